//! The executable `sealane`.
//!
//! Answers go to standard output, everything else to standard error. The exit status is 0 for success, 1 if the answer
//! is no, and 2 for an error; `run` and `audit` exit with the status of the program they run, and with 125 for an error of
//! their own, as env(1) and timeout(1) do. Whoever has not read all of an answer finds 141, as of a program that SIGPIPE ends.
#![forbid(unsafe_code)]

mod answer;
mod args;
mod cmd;
mod log;
mod render;
mod xfrm;

use answer::Answer;
use args::{Cli, Command, Crypto, TcpAo};
use clap::Parser;
use std::process::ExitCode;

/// The status of an error of our own, beside that of a program.
const OWN_ERROR: u8 = 125;
/// The status after the reader of the output has closed the pipe: 128 and SIGPIPE.
const NOT_READ: u8 = 141;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
            let runs = std::env::args_os().nth(1).is_some_and(|word| word == "run" || word == "audit");
            let status = if runs { OWN_ERROR } else { 2 };
            return ExitCode::from(if e.use_stderr() { status } else { 0 });
        }
    };
    let error = if matches!(cli.command, Command::Run(_) | Command::Audit(_)) { OWN_ERROR } else { 2 };
    // The libraries of the other commands have no messages.
    match cli.command {
        Command::Daemon(_) | Command::Keeper(_) => log::start(log::Readers::Sealane),
        Command::Run(_) | Command::Audit(_) => log::start(log::Readers::ProgramToo),
        _ => {}
    }
    let mut out = std::io::stdout();
    let result = match cli.command {
        Command::Run(args) => cmd::run::run(&args),
        Command::Audit(args) => cmd::audit::audit(&args),
        Command::Crypto(Crypto::List(args)) => cmd::list::list(&args, &mut out),
        Command::Crypto(Crypto::Test(args)) => cmd::test::test(&args, &mut out),
        Command::Crypto(Crypto::Calibrate(args)) => cmd::calibrate::calibrate(&args, &mut out),
        Command::Crypto(Crypto::Explain(args)) => cmd::explain::explain(&args, &mut out),
        Command::TcpAo(TcpAo::Show(args)) => cmd::show::show(&args, &mut out),
        Command::TcpAo(TcpAo::Verify(args)) => cmd::verify::verify(&args, &mut out),
        Command::TcpAo(TcpAo::Sign(args)) => cmd::sign::sign(&args, &mut out),
        Command::TcpAo(TcpAo::Clear(args)) => cmd::daemon::clear_tcp_ao(&args),
        Command::Xfrm(args) => xfrm::xfrm(&args, &mut out),
        Command::Daemon(args) => cmd::daemon::daemon(&args),
        Command::Keeper(args) => cmd::key::keeper(&args),
        Command::Key(args) => cmd::key::key(&args, &mut out),
        Command::Hold(args) => cmd::daemon::hold(&args),
        Command::Check(args) => cmd::check::check(&args, &mut out),
        Command::Doctor(args) => cmd::doctor::doctor(&args, &mut out),
        Command::Adopt(args) => cmd::adopt::adopt(&args, &mut out),
        Command::Speed(args) => cmd::speed::speed(&args, &mut out),
        Command::Advise(args) => cmd::advise::advise(&args, &mut out),
        Command::Bench(args) => cmd::bench::bench(&args, &mut out),
        Command::Man(args) => cmd::docs::man(&args),
        Command::Completions(args) => cmd::docs::completions(&args, &mut out),
    };
    match result {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(1),
        Ok(Answer::Status(status)) => ExitCode::from(status),
        // Whoever has read the beginning wants no message, and no success that was not seen.
        Err(e) if is_broken_pipe(&e) => ExitCode::from(NOT_READ),
        Err(e) => {
            eprintln!("sealane: {e:#}");
            ExitCode::from(error)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
            || cause
                .downcast_ref::<serde_json::Error>()
                .is_some_and(|e| e.io_error_kind() == Some(std::io::ErrorKind::BrokenPipe))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;
    use std::io::{Error, ErrorKind};

    #[test]
    fn a_reader_that_goes_is_told_from_other_errors() {
        struct Gone(ErrorKind);
        impl std::io::Write for Gone {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(Error::from(self.0))
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        for (kind, gone) in [(ErrorKind::BrokenPipe, true), (ErrorKind::StorageFull, false)] {
            let json = serde_json::to_writer(Gone(kind), &1).context("the answer");
            assert_eq!(is_broken_pipe(&json.unwrap_err()), gone, "{kind}");
            let text = Err::<(), _>(Error::from(kind)).context("the answer");
            assert_eq!(is_broken_pipe(&text.unwrap_err()), gone, "{kind}");
        }
    }
}
