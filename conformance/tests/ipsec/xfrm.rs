//! NETLINK_XFRM of unmodified programs: the same commands and socket calls on a real kernel and, under `sealane run`,
//! on a daemon.

use sealane_conformance::lab::{Lab, Running};
use sealane_conformance::recorded::Sequence;
use sealane_conformance::skip::{skip, skip_without};
use sealane_conformance::sys::signal;
use sealane_conformance::target::{Target, built_programs, root, sealane};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(600);
const KERNEL: &str = "linux-7.3";

/// Texts that the kernel prints, those that are expected here in their place, and how often.
type Differences = [(&'static str, &'static str, usize)];

/// A namespace whose IPsec is a daemon.
struct Host {
    lab: Lab,
    space: String,
    config: String,
    daemon: Option<Running>,
}

impl Host {
    fn new(test: &str) -> Option<Host> {
        if skip_without(test, &[&Target::sealane("open")]) {
            return None;
        }
        let mut lab = Lab::new(test)?;
        let space = lab.space("x");
        let config = lab.file("sealane.toml", "[ipsec]\n");
        let mut host = Host { lab, space, config, daemon: None };
        host.start();
        Some(host)
    }

    /// The environment of the programs that run here.
    fn runtime(&self) -> String {
        format!("SEALANE_RUNTIME_DIR={}", self.lab.folder().join("run").display())
    }

    fn start(&mut self) {
        let exe = sealane();
        let argv = ["env", &self.runtime(), &*exe.to_string_lossy(), "daemon", "--config", &self.config];
        let mut daemon = self.lab.start(&self.space, &argv);
        daemon.expect("IPsec in 1 network namespaces", 1);
        self.daemon = Some(daemon);
    }

    fn end(&mut self, signal: i32) {
        let daemon = self.daemon.take().expect("it runs");
        daemon.signal(signal);
        daemon.finish(LIMIT);
    }

    /// Takes away what an ended daemon has left.
    fn clear(&self) {
        let exe = sealane();
        let argv = ["env", &self.runtime(), &*exe.to_string_lossy(), "xfrm", "clear"];
        assert_eq!(self.lab.start(&self.space, &argv).finish(LIMIT), (Some(0), String::new()));
    }

    /// Runs a program under `sealane run`; returns its exit status and output.
    fn run(&self, argv: &[&str]) -> (Option<i32>, String) {
        self.begin(argv).finish(LIMIT)
    }

    fn begin(&self, argv: &[&str]) -> Running {
        self.launch(&[], argv)
    }

    /// The same for a program parts of which run as another user, whom the folders above the library may be closed to, as
    /// root's home is: the dynamic loader would say so. The library has no part in NETLINK_XFRM.
    fn run_without_library(&self, argv: &[&str]) -> (Option<i32>, String) {
        self.launch(&["--intercept", "seccomp"], argv).finish(LIMIT)
    }

    fn launch(&self, how: &[&str], argv: &[&str]) -> Running {
        let exe = sealane();
        let runtime = self.runtime();
        let launch = ["env", &runtime, &*exe.to_string_lossy(), "run"];
        self.lab.start(&self.space, &[&launch[..], how, &["--"], argv].concat())
    }
}

fn file(path: &str) -> String {
    root().join("conformance").join(path).to_string_lossy().into_owned()
}

/// Hides times of day, which differ.
fn without_times(text: &str) -> String {
    let is_time = |w: &str| {
        let form: String = w.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        form == "0000-00-00" || form == "00:00:00"
    };
    let line = |l: &str| l.split(' ').map(|w| if is_time(w) { "TIME" } else { w }).collect::<Vec<_>>().join(" ");
    text.lines().map(|l| line(l) + "\n").collect()
}

/// Runs a program here and compares its output with the kernel's, which `sources` determine.
fn same(test: &str, name: &str, argv: &[&str], sources: &[&str], tools: &[&str]) -> Option<String> {
    same_by(Host::run, test, name, argv, sources, tools, &[])
}

/// The same with a way to run the program, but for what differs on purpose. Returns what is expected here.
fn same_by(
    run: impl FnOnce(&Host, &[&str]) -> (Option<i32>, String),
    test: &str,
    name: &str,
    argv: &[&str],
    sources: &[&str],
    tools: &[&str],
    differences: &Differences,
) -> Option<String> {
    let sequence = Sequence::new(KERNEL, name).files(sources).tools(tools);
    let mut expected =
        sequence.answer(test, || Some(without_times(&Target::kernel(KERNEL).run(argv, LIMIT).unwrap().text)))?;
    for (kernels, ours, times) in differences {
        assert_eq!(expected.matches(kernels).count(), *times, "the kernel prints {kernels:?}");
        expected = expected.replace(kernels, ours);
    }
    let ours = without_times(&run(&Host::new(test)?, argv).1);
    let mut command = "";
    for (at, pair) in expected.lines().zip(ours.lines()).enumerate() {
        if pair.0.starts_with("==") {
            command = pair.0;
        }
        assert_eq!(pair.0, pair.1, "line {}, at {command}", at + 1);
    }
    assert_eq!(expected, ours, "one prints more");
    Some(expected)
}

#[test]
fn commands_of_ip() {
    let sources = ["conformance/programs/xfrm_commands.sh", "conformance/vectors/xfrm-commands.txt"];
    let [script, list] = sources.map(|path| root().join(path).to_string_lossy().into_owned());
    let argv = ["bash", &*script, &*list];
    let (test, run) = ("xfrm::commands_of_ip", Host::run_without_library);
    let expected = same_by(run, test, "xfrm-commands", &argv, &sources, &["ip -V"], &[]);
    let Some(text) = expected else { return };
    let count = text.lines().filter(|l| l.starts_with("-- ")).count();
    assert!(count > 200, "{count} commands");
    assert!(text.matches("\nError: ").count() > 30, "refusals have texts");
    assert!(text.matches("\n-- 0\n").count() > 100, "most commands are done");
}

#[test]
fn calls_on_a_socket() {
    let argv = ["python3", &*file("programs/xfrm_socket.py")];
    let sources = ["conformance/programs/xfrm_socket.py"];
    let Some(text) = same("xfrm::calls_on_a_socket", "xfrm-socket", &argv, &sources, &["python3 -V"]) else { return };
    assert!(text.ends_with("many came and went\ndone without a word 40\n"), "{text}");
}

#[test]
fn a_static_program() {
    let program = built_programs(env!("CARGO_TARGET_TMPDIR")).join("xfrm-static");
    let sources = ["conformance/programs/xfrm.c", "conformance/programs/build.sh"];
    let argv = [&*program.to_string_lossy()];
    let Some(text) = same("xfrm::a_static_program", "xfrm-static", &argv, &sources, &[]) else { return };
    assert!(text.ends_with("epoll 0\nepoll 1\n"), "{text}");
}

#[test]
fn what_others_send_never_arrives() {
    let Some(host) = Host::new("xfrm::what_others_send_never_arrives") else { return };
    assert_eq!(host.run(&["python3", &file("programs/xfrm_forged.py")]), (Some(0), "clean\n".to_owned()));
}

/// Rights are those over the network namespace, of who sends, at that moment.
#[test]
fn only_who_has_rights_is_served() {
    let Some(host) = Host::new("xfrm::only_who_has_rights_is_served") else { return };
    let expected = "\
root, guarded: answered 0x22
root, open: the daemon refuses: Operation not permitted
nobody, guarded: the kernel refuses: Operation not permitted
nobody, open: the daemon refuses: Operation not permitted
nobody with root's sockets, guarded: the kernel refuses: Operation not permitted
nobody with root's sockets, open: the daemon refuses: Operation not permitted
root of another user namespace, guarded: the kernel refuses: Operation not permitted
root of another user namespace, open: the daemon refuses: Operation not permitted
nobody connects to the guarded port: refused
";
    assert_eq!(host.run(&["python3", &file("programs/xfrm_rights.py")]), (Some(0), expected.to_owned()));
}

/// While no daemon runs nothing reaches the kernel's own IPsec, and the next one has the policies of before. After
/// `sealane xfrm clear` there is nothing to wait for: requests are refused.
#[test]
fn without_the_daemon() {
    let Some(mut host) = Host::new("xfrm::without_the_daemon") else { return };
    let add = "ip xfrm policy add dir out src 10.1.0.0/16 dst 10.2.0.0/16 action block";
    let add: Vec<&str> = add.split(' ').collect();
    let count = ["ip", "xfrm", "policy", "count"];
    assert_eq!(host.run(&add), (Some(0), String::new()));
    assert!(host.run(&count).1.contains("OUT 1"));
    for signal in [libc::SIGKILL, libc::SIGTERM] {
        host.end(signal);
        let (status, told) = host.run(&add);
        assert_eq!(status, Some(2), "{told}");
        assert!(told.contains("Connection refused"), "{told}");
        host.start();
        assert!(host.run(&count).1.contains("OUT 1"), "after signal {signal}");
        let (status, told) = host.run(&add);
        assert_eq!((status, &*told), (Some(2), "RTNETLINK answers: File exists\n"));
    }
    host.end(libc::SIGTERM);
    host.clear();
    let (status, told) = host.run(&count);
    assert!(status == Some(1) && told.contains("Protocol not supported"), "{status:?}: {told}");
}

/// Where no daemon serves, NETLINK_XFRM is refused as by a kernel without it, and the launcher says why, once for each
/// namespace: also to programs that go there, by whichever way. Their other sockets are served. With `--kernel-ipsec`, and
/// for an audit, they speak to the kernel's own IPsec.
#[test]
fn where_nobody_serves() {
    let test = "xfrm::where_nobody_serves";
    let Some(mut host) = Host::new(test) else { return };
    let [served, other, launched] = [host.space.clone(), host.lab.space("y"), host.lab.space("z")];
    let refused = |told: &str, space: &str| {
        assert!(told.contains("Protocol not supported"), "{told}");
        let said = format!("no daemon serves IPsec in the network namespace '{space}': NETLINK_XFRM is refused there");
        assert_eq!(told.matches(&said).count(), 1, "{told}");
        assert!(told.contains("--kernel-ipsec"), "{told}");
    };
    let (add, count) = ("ip xfrm policy add dir out dst 10.2.0.0/16 action block", "ip xfrm policy count");
    let [add_words, count_words] = [add, count].map(|line| line.split(' ').collect::<Vec<_>>());
    // The namespace of the program is looked at, wherever the launcher is.
    host.space.clone_from(&launched);
    let (status, told) = host.run(&["sh", "-c", &format!("{add}; {add}; ip -n {served} xfrm policy count")]);
    assert!(status == Some(0) && told.contains("OUT 0"), "the last command is the daemon's: {status:?}: {told}");
    refused(&told, &launched);
    let (status, told) = host.run(&[&["ip", "netns", "exec", &*other][..], &add_words].concat());
    assert_eq!(status, Some(1), "{told}");
    refused(&told, &other);
    // A thread that goes there and then opens the socket.
    let script = format!(
        "import ctypes, os, socket, threading\n\
         def go():\n \
         there = os.open('/run/netns/{other}', os.O_RDONLY)\n \
         assert ctypes.CDLL(None).setns(there, 0) == 0\n \
         try: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 6)\n \
         except OSError as e: print(e.strerror, flush=True)\n\
         thread = threading.Thread(target=go)\nthread.start()\nthread.join()\n\
         socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)\n\
         socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 6)\n\
         socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET).bind(('hash', 'sha256'))\nprint('the others are there')\n"
    );
    host.space.clone_from(&served);
    let (status, told) = host.run(&["python3", "-c", &script]);
    assert!(status == Some(0) && told.contains("the others are there"), "{status:?}: {told}");
    refused(&told, &other);
    // Nothing of all this got anywhere.
    for space in [&served, &other, &launched] {
        let (status, told) = host.lab.start(space, &count_words).finish(LIMIT);
        if status != Some(0) {
            skip(test, &format!("this machine's kernel has no NETLINK_XFRM: {told}"));
            return;
        }
        assert!(told.contains("OUT 0"), "the kernel's own IPsec in {space}: {told}");
    }
    host.space.clone_from(&launched);
    assert_eq!(host.launch(&["--kernel-ipsec"], &add_words).finish(LIMIT), (Some(0), String::new()));
    let (status, told) = host.lab.start(&launched, &["ip", "xfrm", "policy"]).finish(LIMIT);
    assert!(status == Some(0) && told.contains("dst 10.2.0.0/16"), "it is in the kernel: {status:?}: {told}");
    let exe = sealane();
    let audit = [&*exe.to_string_lossy(), "audit", "--", "ip", "xfrm", "policy"];
    let (status, told) = host.lab.start(&launched, &audit).finish(LIMIT);
    assert!(status == Some(0) && told.contains("dst 10.2.0.0/16"), "{status:?}: {told}");
}

/// PF_KEY is nobody's: it is refused where a daemon serves and where none does, and the user is told once of each program.
/// With `--kernel-ipsec` it is the kernel's where no daemon serves.
#[test]
fn pf_key_is_refused() {
    let Some(mut host) = Host::new("xfrm::pf_key_is_refused") else { return };
    let script = "import socket\n\
                  for _ in range(2):\n \
                  try: socket.socket(15, socket.SOCK_RAW, 2)\n \
                  except OSError as e: print(e.strerror)\n";
    let program = ["python3", "-c", script];
    let other = host.lab.space("y");
    let (status, kernel) = host.lab.start(&other, &program).finish(LIMIT);
    assert_eq!(status, Some(0), "{kernel}");
    let refused = |(status, told): (Option<i32>, String)| {
        assert_eq!(status, Some(0), "{told}");
        assert_eq!(told.matches("Address family not supported by protocol").count(), 2, "{told}");
        assert_eq!(told.matches("asks for PF_KEY, which is not served").count(), 1, "{told}");
    };
    refused(host.run(&program));
    refused(host.launch(&["--kernel-ipsec"], &program).finish(LIMIT));
    host.space.clone_from(&other);
    refused(host.run(&program));
    assert_eq!(host.launch(&["--kernel-ipsec"], &program).finish(LIMIT), (Some(0), kernel));
}

#[test]
fn a_daemon_that_ends_leaves_nobody_waiting() {
    let Some(mut host) = Host::new("xfrm::a_daemon_that_ends_leaves_nobody_waiting") else { return };
    let set = "ip xfrm policy update dir out src 10.1.0.0/16 dst 10.2.0.0/16 action block";
    let set: Vec<&str> = set.split(' ').collect();
    for signal in [libc::SIGTERM, libc::SIGKILL].into_iter().cycle().take(6) {
        // A policy, so that the daemon has something to leave.
        assert_eq!(host.run(&set), (Some(0), String::new()));
        let mut asking: Vec<_> = (0..3).map(|_| host.begin(&["python3", &file("programs/xfrm_asks.py")])).collect();
        asking.iter_mut().for_each(|one| one.expect("busy", 1));
        host.end(signal);
        for one in asking {
            assert_eq!(one.finish(LIMIT), (Some(0), "busy\nECONNREFUSED\n".to_owned()));
        }
        host.start();
    }
}

/// A launcher that was suspended for longer than it waits for an answer, as a whole machine may be, still finds that the daemon
/// which owes the answer has ended meanwhile.
#[test]
fn a_suspended_launcher_leaves_nobody_waiting() {
    let Some(mut host) = Host::new("xfrm::a_suspended_launcher_leaves_nobody_waiting") else { return };
    let mut asking = host.begin(&["python3", &file("programs/xfrm_asks.py")]);
    asking.expect("busy", 1);
    host.daemon.as_ref().expect("it runs").signal(libc::SIGSTOP);
    // Now a request has no answer, and the launcher looks for the daemon now and then.
    std::thread::sleep(Duration::from_secs(1));
    signal(asking.launcher(), libc::SIGSTOP);
    std::thread::sleep(Duration::from_secs(31));
    host.end(libc::SIGKILL);
    host.start();
    signal(asking.launcher(), libc::SIGCONT);
    assert_eq!(asking.finish(LIMIT), (Some(0), "busy\nECONNREFUSED\n".to_owned()));
}

/// `sealane xfrm` prints the same as `ip xfrm`, except for commands that `ip` itself refuses.
#[test]
fn the_same_grammar_without_ip() {
    let test = "xfrm::the_same_grammar_without_ip";
    let Some(mut host) = Host::new(test) else { return };
    let (script, list) = (file("programs/xfrm_commands.sh"), file("vectors/xfrm-commands.txt"));
    let (_, all) = host.run_without_library(&["bash", &script, &list]);
    // Commands that never reach the kernel: ip's own checks have their own exit statuses and texts.
    let mut refused = std::collections::HashSet::new();
    let mut block: Vec<&str> = Vec::new();
    for line in all.lines() {
        match line.strip_prefix("== ") {
            Some(command) => block = vec![command],
            None => block.push(line),
        }
        let asked = block.iter().any(|l| l.starts_with("RTNETLINK") || l.starts_with("Error: ")) && line == "-- 2";
        if line.starts_with("-- ") && line != "-- 0" && !asked && !block[0].starts_with("! ") {
            refused.insert(block[0].to_owned());
        }
    }
    let text = std::fs::read_to_string(&list).unwrap();
    // `ip xfrm monitor nokeys` shows keys all the same.
    let kept = |l: &&str| !refused.contains(*l) && !l.contains("nokeys");
    let mut kept: Vec<&str> = text.lines().filter(kept).collect();
    if let Some(at) = text.lines().position(|l| l == "+ nokeys all") {
        let gone = text.lines().skip(at + 1).position(|l| l == "-").map(|n| text.lines().skip(at + 1).take(n + 1));
        let gone: Vec<&str> = gone.into_iter().flatten().collect();
        let first = kept.windows(gone.len()).position(|w| w == gone.as_slice()).expect("they were kept");
        kept.drain(first..first + gone.len());
    }
    assert!(kept.iter().filter(|l| l.contains("xfrm ")).count() > 180, "most are left");
    let list = host.lab.file("commands", &(kept.join("\n") + "\n"));
    let mut told = [String::new(), String::new()];
    for (own, told) in [false, true].into_iter().zip(&mut told) {
        host.end(libc::SIGTERM);
        host.clear();
        host.start();
        *told = without_times(&if own {
            let xfrm = format!("XFRM={} xfrm", sealane().display());
            host.lab.start(&host.space, &["env", &xfrm, "bash", &script, &list]).finish(LIMIT).1
        } else {
            host.run_without_library(&["bash", &script, &list]).1
        });
    }
    let mut command = "";
    for (ip, ours) in told[0].lines().zip(told[1].lines()) {
        if ip.starts_with("==") {
            command = ip;
        }
        assert_eq!(ip, ours, "{command}");
    }
    assert_eq!(told[0], told[1]);
}

#[test]
fn counters_for_programs() {
    let Some(host) = Host::new("xfrm::counters_for_programs") else { return };
    for path in ["/proc/net/xfrm_stat", "/proc/self/net/xfrm_stat"] {
        let (status, text) = host.run(&["cat", path]);
        assert_eq!(status, Some(0), "{text}");
        assert!(text.contains("XfrmInNoStates          \t0\n") && text.contains("XfrmOutNoQueueSpace"), "{text}");
    }
    // Its process 1 is not the launcher's.
    let look = "import os; print(os.readlink('/proc/self/fd/%d' % os.open('/proc/1/net/xfrm_stat', os.O_RDONLY)))";
    let inside = ["unshare", "--pid", "--fork", "--mount-proc", "python3", "-c", look];
    assert_eq!(host.run(&inside), (Some(0), "/memfd:sealane (deleted)\n".to_owned()));
    let exe = sealane();
    let shown = host.lab.start(&host.space, &[&exe.to_string_lossy(), "xfrm", "show"]).finish(LIMIT);
    assert_eq!(shown, (Some(0), "no states\nrules: as policies and states ask for\n".to_owned()));
}

/// The daemon closes its descriptors of programs that have ended.
#[test]
fn programs_that_have_ended_are_forgotten() {
    let Some(host) = Host::new("xfrm::programs_that_have_ended_are_forgotten") else { return };
    let pid = host.daemon.as_ref().expect("it runs").id();
    let descriptors = || std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it lives").count();
    let before = descriptors();
    let (status, told) = host.run(&["sh", "-c", "for i in $(seq 60); do ip xfrm state count || exit 1; done"]);
    assert_eq!(status, Some(0), "{told}");
    assert!(descriptors() < before + 30, "{before} descriptors, then {}", descriptors());
}
