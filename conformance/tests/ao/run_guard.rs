//! A program under `sealane run` outlives its launcher if a daemon serves it: the launcher has a guard, its parent, and
//! each of the two may be killed. Without a daemon a program with TCP-AO does not, nor does what it leaves.

use sealane_conformance::ipsec::{Host, program};
use sealane_conformance::lab::{Lab, Running, child};
use sealane_conformance::skip::skip_without;
use sealane_conformance::target::{Target, sealane};
use std::fs;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

pub(super) fn lab(test: &str) -> Option<(Lab, String)> {
    if skip_without(test, &[&Target::sealane("open")]) {
        return None;
    }
    let mut lab = Lab::new(test)?;
    let space = lab.space("a");
    Some((lab, space))
}

/// The state of a process, as in /proc/PID/stat; `None` if it is gone.
pub(super) fn state(id: u32) -> Option<char> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    text.rsplit(')').next()?.trim().chars().next()
}

pub(super) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LIMIT, "no {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for so many more rounds of run_asks.py.
pub(super) fn goes_on(asks: &mut Running) {
    let now = asks.output().matches("round").count();
    asks.expect("round", now + 3);
}

/// A program that asks a daemon again and again, with its guard and its launcher.
pub(super) fn asking(host: &Host, lab: &Lab) -> (Running, u32, u32) {
    let mut asks = host.begin(lab, &["python3", &program("run_asks.py")]);
    goes_on(&mut asks);
    let launcher = asks.launcher();
    (asks, launcher, child(launcher))
}

/// The guard serves the program, whose sockets go on, and has its exit status. Without either of them the program has no
/// IPsec: its calls do not reach the kernel's.
#[test]
fn a_program_outlives_its_launcher() {
    let Some((lab, space)) = lab("run_guard::a_program_outlives_its_launcher") else { return };
    let host = Host::new(&lab, &space);
    // In some of the rounds a call is under way when the launcher is killed.
    for _ in 0..10 {
        let (mut asks, launcher, _) = asking(&host, &lab);
        sealane_conformance::sys::signal(launcher, libc::SIGKILL);
        goes_on(&mut asks);
        asks.expect("its guard serves the program", 1);
        assert!(!asks.output().contains("failed"), "{}", asks.output());
        // One answer may have been in the hands of the launcher (IPSEC-136).
        assert!(asks.output().matches("asked again").count() <= 1, "{}", asks.output());
        asks.signal(libc::SIGTERM);
        assert_eq!(asks.finish(LIMIT).0, Some(128 + libc::SIGTERM));
    }
    let (asks, launcher, program) = asking(&host, &lab);
    let guard = asks.id();
    for id in [launcher, guard] {
        sealane_conformance::sys::signal(id, libc::SIGKILL);
    }
    until("failure", || asks.output().contains("failed"));
    assert!(
        asks.output().contains("failed: ENOSYS") || asks.output().contains("failed: ECONNREFUSED"),
        "{}",
        asks.output()
    );
    until("end", || state(program).is_none_or(|state| state == 'Z'));
}

#[test]
fn a_program_outlives_the_guard() {
    let Some((lab, space)) = lab("run_guard::a_program_outlives_the_guard") else { return };
    let host = Host::new(&lab, &space);
    let (asks, launcher, program) = asking(&host, &lab);
    let guard = asks.id();
    sealane_conformance::sys::signal(guard, libc::SIGKILL);
    let rounds = asks.output().matches("round").count();
    until("rounds", || asks.output().matches("round").count() >= rounds + 3);
    assert!(!asks.output().contains("failed"), "{}", asks.output());
    assert!(state(launcher).is_some_and(|state| state != 'Z'));
    // The launcher ends with its program.
    sealane_conformance::sys::signal(program, libc::SIGKILL);
    until("end", || state(launcher).is_none_or(|state| state == 'Z'));
}

/// Signals and exit statuses pass through both processes.
#[test]
fn signals_and_statuses_pass_through() {
    let Some((lab, space)) = lab("run_guard::signals_and_statuses_pass_through") else { return };
    let host = Host::new(&lab, &space);
    let wait = "trap 'exit 7' TERM; trap 'echo told' USR1; echo ready; while :; do sleep 0.02; done";
    for killed in [false, true] {
        let mut waits = host.begin(&lab, &["sh", "-c", wait]);
        waits.expect("ready", 1);
        let launcher = waits.launcher();
        let program = child(launcher);
        if killed {
            sealane_conformance::sys::signal(launcher, libc::SIGKILL);
            waits.expect("its guard serves the program", 1);
        }
        // SIGHUP may be ignored by whoever started the tests (nohup), and shells leave that as it is.
        waits.signal(libc::SIGUSR1);
        waits.expect("told", 1);
        waits.signal(libc::SIGTSTP);
        // A guard that serves goes on.
        until("stop", || state(program) == Some('T') && (killed || state(waits.id()) == Some('T')));
        waits.signal(libc::SIGCONT);
        until("continuation", || state(program) != Some('T') && state(waits.id()) != Some('T'));
        waits.signal(libc::SIGTERM);
        let (status, told) = waits.finish(LIMIT);
        assert_eq!(status, Some(7), "{told}");
    }
    assert_eq!(host.run(&lab, &["sh", "-c", "exit 3"]).0, Some(3));
    assert_eq!(host.run(&lab, &["/nonexistent/program"]).0, Some(127));
    assert_eq!(host.run(&lab, &["/dev/null"]).0, Some(126));
    assert_eq!(host.run(&lab, &["sh", "-c", "kill -9 $$"]).0, Some(128 + 9));
}

/// The keys of its sockets are lost with the launcher: the guard ends, too.
#[test]
fn without_a_daemon_nobody_takes_over() {
    let Some((lab, space)) = lab("run_guard::without_a_daemon_nobody_takes_over") else { return };
    let (exe, runtime) = (sealane(), format!("SEALANE_RUNTIME_DIR={}", lab.folder().join("none").display()));
    let mut sleeps = lab.start(
        &space,
        &["env", &runtime, &*exe.to_string_lossy(), "run", "--", "sh", "-c", "echo ready; exec sleep 60"],
    );
    sleeps.expect("ready", 1);
    sealane_conformance::sys::signal(sleeps.launcher(), libc::SIGKILL);
    assert_eq!(sleeps.finish(LIMIT).0, Some(128 + libc::SIGKILL));
}

/// A program that would find the kernel's own TCP-AO or IPsec in place of ours does not run if the kernel gives no filter. Under
/// another launcher, which has the only filter that there can be, it runs if that serves the same.
#[test]
fn nothing_runs_past_a_filter_that_is_refused() {
    let Some((lab, space)) = lab("run_guard::nothing_runs_past_a_filter_that_is_refused") else { return };
    let exe = sealane().to_string_lossy().into_owned();
    let refused = ["python3".to_owned(), program("no_seccomp.py")];
    let refused = refused.each_ref().map(|word| &**word);
    let run = |before: &[&str], words: &str| {
        let words = words.split(' ').map(|word| if word == "sealane" { &exe } else { word });
        lab.start(&space, &before.iter().copied().chain(words).collect::<Vec<_>>()).finish(LIMIT)
    };
    let own = format!("SEALANE_RUNTIME_DIR={}", lab.folder().join("own").display());
    let own = ["env", &own];
    let there = [&own[..], &refused].concat();
    for words in ["sealane run --tcp-ao -- echo ran", "sealane run --intercept seccomp -- echo ran"] {
        let (status, text) = run(&there, words);
        assert!(
            status == Some(125) && text.contains("(seccomp)") && !text.contains("ran"),
            "{words}: {status:?}: {text}"
        );
    }
    let (status, text) = run(&there, "sealane run -- echo ran");
    assert!(status == Some(0) && text.contains("(seccomp)") && text.contains("ran\n"), "{status:?}: {text}");
    assert_eq!(run(&there, "sealane run -- /no/such/program").0, Some(127), "what it can run without is not to blame");
    let (status, text) = run(&own, "sealane run -- sealane run --tcp-ao -- echo ran");
    assert!(status == Some(125) && text.contains("sealane run"), "{status:?}: {text}");
    let twice = "sealane run --tcp-ao -- sealane run --tcp-ao -- echo ran";
    assert_eq!(run(&own, twice), (Some(0), "ran\n".into()));
    let host = Host::new(&lab, &space);
    let of_daemon = format!("SEALANE_RUNTIME_DIR={}", lab.folder().join(format!("run-{space}")).display());
    let (status, text) = run(&[&["env", &*of_daemon][..], &refused].concat(), "sealane run -- echo ran");
    assert!(status == Some(125) && !text.contains("ran"), "{status:?}: {text}");
    let (status, text) = host.run(&lab, &[&exe, "run", "--", "ip", "-4", "xfrm", "policy", "list"]);
    assert_eq!((status, &*text), (Some(0), ""));
}

/// The keys of TCP-AO are lost with the launcher, its reaper or its guard, and every call on them would wait for ever: all
/// processes of the program end, also those that have changed their user, left their session or lost their parent. One
/// that was started before the guard, by the shell that became it, is none of them.
#[test]
fn without_a_daemon_all_of_a_program_with_tcp_ao_ends() {
    let Some((lab, space)) = lab("run_guard::without_a_daemon_all_of_a_program_with_tcp_ao_ends") else { return };
    for killed in 0..3 {
        let (runs, program, others) = with_children(&lab, &space);
        let all = ancestors(program[2], runs.id());
        let is_guard = all[killed] == runs.id();
        sealane_conformance::sys::signal(all[killed], libc::SIGKILL);
        for id in program.into_iter().chain(all[..2].iter().copied()) {
            until("end", || state(id).is_none_or(|state| state == 'Z'));
        }
        assert!(state(others).is_some_and(|state| state != 'Z'));
        sealane_conformance::sys::signal(others, libc::SIGKILL);
        let (status, told) = runs.finish(LIMIT);
        assert_eq!(status, (!is_guard).then_some(128 + libc::SIGKILL), "{told}");
        assert!(told.contains("was killed: the program cannot go on"), "{told}");
    }
}

/// The program's first process ends, and the guard with its status. Those that it has left go on, and end with the
/// launcher or its reaper: without them they would accept connections that nobody signs.
#[test]
fn without_a_daemon_what_a_program_with_tcp_ao_leaves_ends() {
    let Some((lab, space)) = lab("run_guard::without_a_daemon_what_a_program_with_tcp_ao_leaves_ends") else { return };
    for killed in 0..2 {
        let (mut runs, program, others) = with_children(&lab, &space);
        let all = ancestors(program[2], runs.id());
        runs.tell("end");
        assert_eq!(runs.finish(LIMIT).0, Some(5));
        for id in program[..2].iter().chain(&all[..2]) {
            assert!(state(*id).is_some_and(|state| state != 'Z'), "{id} of {program:?}, {all:?}");
        }
        sealane_conformance::sys::signal(all[killed], libc::SIGKILL);
        for id in program[..2].iter().chain(&all[..2]) {
            until("end", || state(*id).is_none_or(|state| state == 'Z'));
        }
        assert!(state(others).is_some_and(|state| state != 'Z'));
        sealane_conformance::sys::signal(others, libc::SIGKILL);
    }
}

/// Starts a program with TCP-AO whose shell ends with status 5 when it is told to. Returns its processes, a child, an
/// orphan and the shell, and a process that its guard had started before.
fn with_children(lab: &Lab, space: &str) -> (Running, [u32; 3], u32) {
    let (exe, runtime) = (sealane(), format!("SEALANE_RUNTIME_DIR={}", lab.folder().join("none").display()));
    let inner = "sleep 61 & echo id $!; (setsid sleep 62 & echo id $!); echo id $$; echo ready; read word; exit 5";
    let user = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    let outer = format!("sleep 64 & echo other $!; exec {} run --tcp-ao -- {user} sh -c '{inner}'", exe.display());
    let mut runs = lab.start(space, &["env", &runtime, "sh", "-c", &outer]);
    runs.expect("ready", 1);
    let output = runs.output();
    let ids =
        |name: &str| output.lines().filter_map(|line| line.strip_prefix(name)?.parse::<u32>().ok()).collect::<Vec<_>>();
    let program = ids("id ").try_into().unwrap_or_else(|_| panic!("{output}"));
    let [others] = ids("other ")[..] else { panic!("{output}") };
    (runs, program, others)
}

/// The launcher of a program, its reaper and its guard.
fn ancestors(program: u32, guard: u32) -> [u32; 3] {
    let launcher = parent(program);
    let all = [launcher, parent(launcher), parent(parent(launcher))];
    assert_eq!(all[2], guard);
    all
}

/// The parent of a process; 0 if it is gone.
fn parent(id: u32) -> u32 {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let after = text.rsplit(')').next().unwrap_or_default();
    after.split_whitespace().nth(1).and_then(|parent| parent.parse().ok()).unwrap_or_default()
}
