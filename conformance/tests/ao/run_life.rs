//! The ordinary life of programs under `sealane run` and of the daemon: they go to the background, are stopped and continued,
//! and lose their terminal.

use super::run_guard::{asking, goes_on, lab, state, until};
use sealane_conformance::ipsec::{Host, program};
use sealane_conformance::lab::{Lab, child};
use sealane_conformance::sys::signal;
use sealane_conformance::target::sealane;
use std::fs;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Runs a program that goes to the background, and looks at what it finds there.
fn goes_to_the_background(lab: &Lab, name: &str, run: impl Fn(&[&str]) -> (Option<i32>, String)) {
    let file = lab.folder().join(name).display().to_string();
    let write = |end: &str| fs::write(format!("{file}.{end}"), "").expect("a file");
    // A pipe whose end a reader waits for, and a lock: neither is kept by the launcher.
    let script = format!("exec 9>{file}.lock; flock 9; exec python3 {} {file} 9>&- | cat", program("background.py"));
    let (status, text) = run(&["bash", "-o", "pipefail", "-c", &script]);
    assert_eq!((status, &*text), (Some(5), ""), "{name}");
    let locked = std::process::Command::new("flock").args(["-n", &format!("{file}.lock"), "true"]).status();
    assert!(locked.expect("flock").success(), "{name}: the file is still locked");
    let launcher = fs::read_to_string(format!("{file}.launcher")).expect("a number").parse().expect("a number");
    write("go");
    until("sockets", || fs::exists(&file).is_ok_and(|there| there));
    let used = ["TCP", "UDP", "UNIX", "rtnetlink", "XFRM", "AF_ALG"].map(|kind| format!("{kind}: used\n")).concat();
    assert_eq!(fs::read_to_string(&file).expect("lines"), used, "{name}");
    write("end");
    until("end of the launcher", || state(launcher).is_none_or(|state| state == 'Z'));
}

/// The program's first process ends, and the launcher with its status; what goes on in the background has all that it had.
#[test]
fn programs_go_to_the_background() {
    let Some((lab, space)) = lab("run_life::programs_go_to_the_background") else { return };
    let host = Host::new(&lab, &space);
    goes_to_the_background(&lab, "by-daemon", |argv| host.run(&lab, argv));
    let exe = sealane().to_string_lossy().into_owned();
    let own = format!("SEALANE_RUNTIME_DIR={}", lab.folder().join("own").display());
    goes_to_the_background(&lab, "by-launcher", |argv| {
        let tcp_ao = [&["env", &*own, &*exe, "run", "--tcp-ao", "--"], argv].concat();
        lab.start(&space, &tcp_ao).finish(LIMIT)
    });
}

/// Whoever has started the program sees that it is stopped and continued. The launcher goes on: others need it.
#[test]
fn programs_are_stopped_and_continued() {
    let Some((lab, space)) = lab("run_life::programs_are_stopped_and_continued") else { return };
    let host = Host::new(&lab, &space);
    let (mut asks, launcher, program) = asking(&host, &lab);
    let guard = asks.id();
    for _ in 0..5 {
        signal(program, libc::SIGSTOP);
        until("stop", || state(program) == Some('T') && state(guard) == Some('T'));
        assert_ne!(state(launcher), Some('T'));
        signal(program, libc::SIGCONT);
        until("continuation", || state(guard) != Some('T'));
        goes_on(&mut asks);
        assert_ne!(state(launcher), Some('T'));
    }
    // As a shell does in the foreground again.
    signal(program, libc::SIGSTOP);
    until("stop", || state(guard) == Some('T'));
    signal(guard, libc::SIGCONT);
    until("continuation", || state(program) != Some('T') && state(guard) != Some('T'));
    goes_on(&mut asks);
    signal(program, libc::SIGSTOP);
    until("stop", || state(guard) == Some('T'));
    signal(program, libc::SIGKILL);
    assert_eq!(asks.finish(LIMIT).0, Some(128 + libc::SIGKILL));
}

/// A program whose launcher is the leader of its session learns that the terminal is gone.
#[test]
fn programs_lose_their_terminal() {
    let Some((lab, space)) = lab("run_life::programs_lose_their_terminal") else { return };
    let host = Host::new(&lab, &space);
    let exe = sealane().to_string_lossy().into_owned();
    let told = lab.folder().join("told");
    let script = format!("trap 'echo > {}; exit 3' HUP; echo ready; while :; do sleep 0.02; done", told.display());
    let runtime = format!("SEALANE_RUNTIME_DIR={}", host.folder());
    let terminal = program("terminal.py");
    let mut on = lab.start(&space, &["env", &runtime, "python3", &terminal, &exe, "run", "--", "sh", "-c", &script]);
    on.expect("ready", 1);
    on.tell("hangup");
    assert_eq!(on.finish(LIMIT).0, Some(3));
    assert!(told.exists());
}

/// The daemon in a terminal that is resized, in which Ctrl-Z is typed, and which is closed. SIGINT ends it.
#[test]
fn a_daemon_on_a_terminal() {
    let Some((lab, space)) = lab("run_life::a_daemon_on_a_terminal") else { return };
    let exe = sealane().to_string_lossy().into_owned();
    let config = lab.file("terminal.toml", &format!("[ipsec]\nnetns = [\"{space}\"]\n"));
    let runtime = format!("SEALANE_RUNTIME_DIR={}", lab.folder().join("terminal").display());
    let terminal = program("terminal.py");
    let mut daemon = lab.start(&space, &["env", &runtime, "python3", &terminal, &exe, "daemon", "--config", &config]);
    daemon.expect("IPsec in 1 network namespaces", 1);
    let pid = child(daemon.id());
    let serves = || {
        let count = ["env", &*runtime, &*exe, "run", "--", "ip", "xfrm", "state", "count"];
        let (status, text) = lab.start(&space, &count).finish(LIMIT);
        assert_eq!(status, Some(0), "{text}");
    };
    for (n, word) in ["resize", "suspend", "resize", "hangup"].into_iter().enumerate() {
        daemon.tell(word);
        daemon.expect("done: ", n + 1);
        serves();
        assert!(state(pid).is_some_and(|state| !matches!(state, 'T' | 'Z')), "{word}: {}", daemon.output());
    }
    signal(pid, libc::SIGQUIT);
    assert_eq!(daemon.finish(LIMIT).0, Some(0));
}
