//! `launch [PROFILE[,preload|seccomp|audit]] PROGRAM ARGS...`: the launcher without the command line around it.

use sealane_launch::run::{Intercept, Options, audit, run};

fn main() {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut args = std::env::args_os().skip(1);
    let how = args.next().expect("a profile").into_string().expect("text");
    let mut words = how.split(',');
    let profile = words.next().unwrap_or_default().parse().expect("a known profile");
    let mut options = Options { profile, program: args.next().expect("a program"), ..Options::default() };
    options.args = args.collect();
    let mut counting = false;
    for word in words {
        match word {
            "preload" => options.intercept = Intercept::Preload,
            "seccomp" => options.intercept = Intercept::Seccomp,
            "audit" => counting = true,
            other => panic!("{other}: not preload, seccomp or audit"),
        }
    }
    if !counting {
        std::process::exit(run(&options));
    }
    let (status, usage) = audit(&options).expect("counters");
    for u in usage.into_iter().flatten() {
        eprintln!("{u:?}");
    }
    std::process::exit(status);
}
