//! Real programs under the launcher: dynamic and static C, Python, Go, and what Debian ships.

use sealane_sys::testing::skip;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

#[path = "programs/others.rs"]
mod others;

/// `target/PROFILE`, where this test was built.
fn target() -> PathBuf {
    let exe = std::env::current_exe().expect("a test has a path");
    exe.parent().and_then(Path::parent).expect("tests lie in target/PROFILE/deps").to_owned()
}

fn tmp() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// The library, built now, as no package may depend on a cdylib; or before, with the whole workspace, as SEALANE_BUILT says.
fn shim() -> &'static Path {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    SHIM.get_or_init(|| {
        let library = target().join("libsealane_shim.so");
        if std::env::var_os("SEALANE_BUILT").is_some() {
            assert!(library.exists(), "SEALANE_BUILT is set, and there is no {}", library.display());
            return library;
        }
        let folder = target();
        let profile = match folder.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(name) => name,
        };
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "sealane-shim", "--profile", profile, "--target-dir"]);
        cargo.arg(folder.parent().expect("target/PROFILE lies in target"));
        assert!(cargo.status().expect("cargo runs").success(), "the library does not build");
        library
    })
}

fn launch(how: &str) -> Command {
    let mut command = Command::new(target().join("examples/launch"));
    command.arg(how).env("SEALANE_SHIM", shim());
    command
}

fn succeeds(command: &mut Command) -> Output {
    let output = command.output().expect("the launcher runs");
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Whether `program` is on this machine; tells when it is not.
fn present(program: &str) -> bool {
    let found =
        Command::new("sh").args(["-c", &format!("command -v {program}")]).output().is_ok_and(|o| o.status.success());
    if !found {
        eprintln!("SKIPPED: {program} is not installed");
    }
    found
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// The C program, linked dynamically or statically, compiled once; none where there is no compiler for it.
fn c_program(link: &[&str]) -> Option<PathBuf> {
    static BUILT: [OnceLock<Option<PathBuf>>; 2] = [const { OnceLock::new() }; 2];
    BUILT[usize::from(!link.is_empty())].get_or_init(|| compile(link)).clone()
}

fn compile(link: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/alg.c");
    let out = tmp().join(format!("alg{}", link.concat()));
    if !present("cc") {
        return None;
    }
    let done =
        Command::new("cc").args(["-O1", "-Wall", "-o"]).arg(&out).arg(source).arg("-pthread").args(link).output();
    let done = done.expect("cc runs");
    if !done.status.success() && !link.is_empty() {
        eprintln!("SKIPPED: cc cannot link with {link:?}");
        return None;
    }
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Some(out)
}

const ALL: [&str; 19] = [
    "basic",
    "dups",
    "forks",
    "threads",
    "crowd",
    "partings",
    "closings",
    "execs",
    "signals",
    "blocking",
    "bystanders",
    "stops",
    "splices",
    "full_pipe",
    "others_mistakes",
    "beside",
    "polls",
    "close_all",
    "many",
];

#[test]
fn dynamic_program() {
    let Some(program) = c_program(&[]) else { return };
    for part in ALL {
        succeeds(launch("open").arg(&program).arg(part));
    }
}

/// The dynamic loader's lock is not needed by calls that are made while a library is loaded.
#[test]
fn a_constructor_that_waits_for_a_thread() {
    if !present("cc") {
        return;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/constructor.c");
    let [program, library] = ["constructor", "constructor.so"].map(|name| tmp().join(name));
    let kinds = [(&program, &["-rdynamic", "-pthread"][..]), (&library, &["-shared", "-fPIC", "-DLIBRARY"])];
    for (out, how) in kinds {
        let built = Command::new("cc").args(["-O1", "-o"]).arg(out).arg(&source).args(how).output().expect("cc runs");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    }
    for how in ["open", "open,preload"] {
        assert_eq!(succeeds(launch(how).arg(&program).arg(&library)).stdout, b"done\n", "{how}");
    }
}

#[test]
fn dynamic_program_without_the_filter() {
    let Some(program) = c_program(&[]) else { return };
    for part in ["basic", "forks"] {
        succeeds(launch("open,preload").arg(&program).arg(part));
    }
}

#[test]
fn static_program() {
    let Some(program) = c_program(&["-static"]) else { return };
    for part in
        ["basic", "dups", "forks", "blocking", "bystanders", "stops", "splices", "full_pipe", "beside", "polls", "many"]
    {
        succeeds(launch("open").arg(&program).arg(part));
    }
}

/// A static program whose child has given up root's ids does not reach by the launcher, which has them, what Linux would
/// not give it.
#[test]
fn static_program_with_fewer_rights_than_the_launcher() {
    const TEST: &str = "launch::static_program_with_fewer_rights_than_the_launcher";
    let Some(program) = c_program(&["-static"]) else { return };
    if !is_root() {
        return skip(TEST, "needs root");
    }
    for part in ["keys", "fewer_rights"] {
        succeeds(launch("open").arg(&program).arg(part));
    }
}

#[test]
fn children_of_any_kind() {
    let (Some(dynamic), Some(fixed)) = (c_program(&[]), c_program(&["-static"])) else { return };
    let script =
        format!("{} basic && {} basic && {} exec basic", dynamic.display(), fixed.display(), dynamic.display());
    succeeds(launch("open").args(["sh", "-c", &script]));
}

#[test]
fn go_program() {
    if !present("go") {
        return;
    }
    let out = tmp().join("alg-go");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/alg.go");
    let built = Command::new("go").args(["build", "-o"]).arg(&out).arg(source).env("CGO_ENABLED", "0").output();
    let built = built.expect("go runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    assert_eq!(succeeds(launch("open").arg(out)).stdout, b"ok\n");
}

#[test]
fn python_hashes() {
    if !present("python3") {
        return;
    }
    let script = "import socket; s = socket.socket(38, 5, 0); s.bind(('hash', 'sha256')); o = s.accept()[0]; \
                  o.send(b'abc'); print(o.recv(4).hex(), s.getsockopt(1, 39), socket.socketpair()[0].family)";
    for how in ["open", "open,preload", "open,seccomp"] {
        let output = succeeds(launch(how).args(["python3", "-c", script]));
        assert!(output.stdout.starts_with(b"ba7816bf 38 "), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn debian_programs() {
    let text = tmp().join("text");
    std::fs::write(&text, b"abc").expect("a file");
    if present("kcapi-dgst") {
        let output = succeeds(launch("open").args(["kcapi-dgst", "-c", "sha256", "--hex", "-i"]).arg(&text));
        assert!(output.stdout.starts_with(b"ba7816bf"), "{}", String::from_utf8_lossy(&output.stdout));
    }
    if present("sha256hmac") {
        succeeds(launch("open").arg("sha256hmac").arg(&text));
    }
}

#[test]
fn status_and_signals() {
    let status = |how: &mut Command| how.status().expect("the launcher runs").code();
    assert_eq!(status(launch("open").args(["sh", "-c", "exit 7"])), Some(7));
    assert_eq!(status(launch("open").args(["sh", "-c", "kill -9 $$"])), Some(137));
    assert_eq!(status(launch("open").arg("no-such-program")), Some(127));
    assert_eq!(status(launch("open").arg("/etc/passwd")), Some(126));
    assert_eq!(status(launch("open").arg("true").env("SEALANE_SHIM", "/nonexistent")), Some(125));
    // A signal to the launcher reaches the program.
    let script = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done";
    let mut child =
        launch("open").args(["sh", "-c", script]).stdout(Stdio::piped()).spawn().expect("the launcher runs");
    let mut ready = [0; 6];
    child.stdout.as_mut().expect("a pipe").read_exact(&mut ready).expect("its trap is set");
    assert!(Command::new("kill").arg(child.id().to_string()).status().expect("kill runs").success());
    assert_eq!(child.wait().expect("it ends").code(), Some(9));
}

/// A service manager's watchdog names the launcher's process, and is the program's (`sd_watchdog_enabled(3)`: without a name
/// it is everybody's).
#[test]
fn the_watchdog_is_the_programs() {
    const TELL: &str = "echo ${WATCHDOG_PID-everybody} $WATCHDOG_USEC";
    let start = |pid: &str| {
        let exec = format!("WATCHDOG_USEC=200000000 WATCHDOG_PID={pid} exec \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &exec, "sh"]).arg(target().join("examples/launch"));
        command.args(["open", "sh", "-c", TELL]).env("SEALANE_SHIM", shim());
        String::from_utf8(succeeds(&mut command).stdout).expect("text")
    };
    assert_eq!(start("$$"), "everybody 200000000\n");
    assert_eq!(start("1"), "1 200000000\n", "another process's");
}

/// Descriptors that a service manager opens for the launcher's process are the program's, which has another one
/// (`sd_listen_fds(3)`).
#[test]
fn descriptors_of_the_service_manager_are_the_programs() {
    const TELL: &str = "echo $0 $1 $LISTEN_FDS $KEPT $((LISTEN_PID - $$)); read line <&3; echo $line";
    let start = |intercept: &str, pid: &str| {
        let exec = format!("exec 3<<<inherited; LISTEN_FDS=1 KEPT=kept LISTEN_PID={pid} exec \"$@\"");
        let mut command = Command::new("bash");
        command.args(["-c", &exec, "bash"]).arg(target().join("examples/launch"));
        command.args([intercept, "sh", "-c", TELL, "name", "an argument"]).env("SEALANE_SHIM", shim());
        String::from_utf8(succeeds(&mut command).stdout).expect("text")
    };
    for intercept in ["open", "open,preload", "open,seccomp"] {
        assert_eq!(start(intercept, "$$"), "name an argument 1 kept 0\ninherited\n", "{intercept}");
    }
    let another = start("open", "1");
    assert!(another.starts_with("name an argument 1 kept -"), "another process's: {another}");
}

/// A program that inherits a descriptor of ours over exec has no cipher behind it: what it writes there must not come
/// back as if it were ciphertext.
#[test]
fn a_descriptor_inherited_over_exec_does_not_echo() {
    const PROGRAM: &str = r#"
import os, select, socket, sys
if len(sys.argv) > 1:
    fd = int(sys.argv[1])
    os.set_blocking(fd, False)
    try:
        os.write(fd, b"a plaintext of 32 bytes, in clear")
        while True:
            assert b"plain" not in os.read(fd, 4096), "the plaintext came back"
    except OSError:
        print("nothing came back")
        sys.exit(0)
tfm = socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)
tfm.bind(("skcipher", "ctr(aes)"))
tfm.setsockopt(socket.SOL_ALG, socket.ALG_SET_KEY, bytes(16))
op, _ = tfm.accept()
op.sendmsg_afalg([b""], op=socket.ALG_OP_ENCRYPT, iv=bytes(16), flags=socket.MSG_MORE)
poll = select.poll()
poll.register(op)
assert poll.poll(0) == [(op.fileno(), select.POLLOUT)]
op.send(b"16 bytes of text")
assert poll.poll(0) == [(op.fileno(), select.POLLIN | select.POLLOUT)]
assert len(op.recv(16)) == 16
os.set_inheritable(op.fileno(), True)
os.execv(sys.executable, [sys.executable, "-c", os.environ["PROGRAM"], str(op.fileno())])
"#;
    if !present("python3") {
        return;
    }
    let output = succeeds(launch("open").args(["python3", "-c", PROGRAM]).env("PROGRAM", PROGRAM));
    assert_eq!(output.stdout, b"nothing came back\n");
}

/// A file that arrives in a message is read as a file, even if it has the inode of an AF_ALG socket: the sender may choose
/// it. Here it is that of a segment of shared memory, which is its id.
#[test]
fn a_received_file_with_the_inode_of_a_socket_is_a_file() {
    const TEST: &str = "launch::a_received_file_with_the_inode_of_a_socket_is_a_file";
    const PROGRAM: &str = r#"
import ctypes, os, socket, sys
tfm = socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)
tfm.bind(("hash", "sha256"))
op, _ = tfm.accept()
inode = os.fstat(op.fileno()).st_ino
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
libc.shmdt.argtypes = [ctypes.c_void_p]
try:
    with open("/proc/sys/kernel/shm_next_id", "w") as wanted:
        wanted.write(str(inode))
    segment = libc.shmget(0, 4096, 0o1600)
    at = libc.shmat(segment, None, 0)
    libc.shmctl(segment, 0, None)
    ctypes.memmove(at, b"text", 4)
    file = os.open("/proc/self/map_files/%x-%x" % (at, at + 4096), os.O_RDWR)
except OSError as e:
    print("skip:", e)
    sys.exit()
if os.fstat(file).st_ino != inode:
    print("skip: no such inode")
    sys.exit()
here, there = socket.socketpair()
socket.send_fds(there, [b"x"], [file, op.fileno()])
_, (received, again), _, _ = socket.recv_fds(here, 1, 2)
op.close()
print(os.read(received, 4))
os.write(again, b"abc")
print(os.read(again, 4).hex())
"#;
    if !present("python3") {
        return;
    }
    let output = succeeds(launch("open,preload").args(["python3", "-c", PROGRAM]));
    let text = String::from_utf8_lossy(&output.stdout);
    if text.starts_with("skip: ") {
        return skip(TEST, "needs root and a kernel that gives shared memory a chosen id");
    }
    assert_eq!(text, "b'text'\nba7816bf\n");
}

/// Root of another user namespace is nobody special to the kernel's crypto API, as in linux-7.3.
#[test]
fn capabilities_count_in_the_initial_user_namespace() {
    const TEST: &str = "launch::capabilities_count_in_the_initial_user_namespace";
    const PROGRAM: &str = r#"
import socket
def errno(call):
    try:
        call(socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET))
    except OSError as e:
        return e.errno
print(errno(lambda s: s.bind(("hash", "sha256"))), errno(lambda s: s.setsockopt(socket.SOL_SOCKET, 32, 4096)))
"#;
    let made = Command::new("unshare").args(["-Ur", "true"]).status();
    let ours = std::fs::read_link("/proc/self/ns/user").unwrap_or_default();
    if !present("python3")
        || !is_root()
        || !made.is_ok_and(|done| done.success())
        || ours.as_os_str() != "user:[4026531837]"
    {
        return skip(TEST, "needs root of the initial user namespace, and another one");
    }
    for how in ["linux-7.3-restricted,preload", "linux-7.3-restricted,seccomp"] {
        for (user, answer) in [(&[][..], "None None\n"), (&["unshare", "-Ur"], "2 1\n")] {
            let output = succeeds(launch(how).args(user).args(["python3", "-c", PROGRAM]));
            assert_eq!(String::from_utf8_lossy(&output.stdout), answer, "{how} {user:?}");
        }
    }
}

#[test]
fn audit_counts_both_ways() {
    let (Some(dynamic), Some(fixed)) = (c_program(&[]), c_program(&["-static"])) else { return };
    for program in [dynamic, fixed] {
        let output = succeeds(launch("open,audit").arg(program).arg("basic"));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = text.lines().find(|l| l.contains("name: \"sha256\"")).unwrap_or_else(|| panic!("{text}"));
        assert!(line.contains("binds: 1, keys: 0, accepts: 1, sends: 6"), "{line}");
    }
}
