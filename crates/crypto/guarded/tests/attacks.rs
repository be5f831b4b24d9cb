//! Attacks from inside a program, on a key in each place: what gets it, and what does not.
//!
//! Each attack is made by a process of its own, which has the key, and which may end by a signal.

mod common;

use common::{child, refuse_memfd_secret};
use sealane_guarded::{Held, Lack, Lock, Plan, establish};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

const KEY_LEN: usize = 32;

/// The place of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Home {
    /// The heap.
    Process,
    /// Guarded memory where the kernel refuses memfd_secret.
    Fallback,
    /// Guarded memory without a protection key.
    Secret,
    /// Guarded memory with all that this machine has.
    Guarded,
}

const HOMES: [Home; 4] = [Home::Process, Home::Fallback, Home::Secret, Home::Guarded];

/// An attack: whether it gets the key at an address.
type Attack = fn(*const u8) -> bool;

const ATTACKS: [(&str, Attack); 10] = [
    ("/proc/self/mem", proc_mem),
    ("write", written),
    ("vmsplice", spliced),
    ("process_vm_readv", vm_readv),
    ("ptrace", traced),
    ("child", in_a_child),
    ("over-read", over_read),
    ("core dump", core_dump),
    ("dump flags", dumpable),
    ("swap", swappable),
];

/// The key, byte by byte, so that the program has it in one place only.
fn key_byte(i: usize) -> u8 {
    (i as u8).wrapping_mul(151) ^ 0x5a
}

fn is_key(bytes: &[u8]) -> bool {
    bytes.len() == KEY_LEN && bytes.iter().enumerate().all(|(i, byte)| *byte == key_byte(i))
}

fn proc_mem(at: *const u8) -> bool {
    let mut seen = [0; KEY_LEN];
    let file = File::open("/proc/self/mem").expect("it is ours");
    file.read_exact_at(&mut seen, at as u64).is_ok() && is_key(&seen)
}

fn pipe() -> (i32, i32) {
    let mut ends = [0; 2];
    // SAFETY: two descriptors are written.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK) }, 0);
    (ends[0], ends[1])
}

/// Whether the key is what can be read from a pipe.
fn got(from: i32) -> bool {
    let mut seen = [0; KEY_LEN];
    // SAFETY: it writes to a buffer of ours.
    let len = unsafe { libc::read(from, seen.as_mut_ptr().cast(), KEY_LEN) };
    len == KEY_LEN as isize && is_key(&seen)
}

fn written(at: *const u8) -> bool {
    let (from, to) = pipe();
    // SAFETY: the kernel checks the address.
    unsafe { libc::write(to, at.cast(), KEY_LEN) };
    got(from)
}

fn spliced(at: *const u8) -> bool {
    let (from, to) = pipe();
    let piece = libc::iovec { iov_base: at.cast_mut().cast(), iov_len: KEY_LEN };
    // SAFETY: the kernel checks the address; nothing writes to the memory.
    unsafe { libc::vmsplice(to, &piece, 1, 0) };
    got(from)
}

fn vm_readv(at: *const u8) -> bool {
    let mut seen = [0; KEY_LEN];
    let local = libc::iovec { iov_base: seen.as_mut_ptr().cast(), iov_len: KEY_LEN };
    let remote = libc::iovec { iov_base: at.cast_mut().cast(), iov_len: KEY_LEN };
    // SAFETY: it writes to a buffer of ours, and checks the other address.
    let len = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    len == KEY_LEN as isize && is_key(&seen)
}

/// Another process of the same user attaches, and reads word by word.
fn traced(at: *const u8) -> bool {
    // SAFETY: no pointers. Where Yama is, it lets others trace this process; where it is not, it fails, and nothing is missing.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
    // SAFETY: no pointers.
    let me = unsafe { libc::getpid() };
    let done = child(|| {
        // SAFETY: it stops and reads another process; errno is this thread's.
        unsafe {
            if libc::ptrace(libc::PTRACE_ATTACH, me, 0, 0) != 0 {
                return 2;
            }
            libc::waitpid(me, core::ptr::null_mut(), libc::__WALL);
            let words = core::array::from_fn::<_, { KEY_LEN / 8 }, _>(|i| {
                *libc::__errno_location() = 0;
                let word = libc::ptrace(libc::PTRACE_PEEKDATA, me, at as usize + 8 * i, 0);
                (*libc::__errno_location() == 0).then(|| word.to_ne_bytes())
            });
            libc::ptrace(libc::PTRACE_DETACH, me, 0, 0);
            let bytes: Vec<u8> = words.into_iter().flatten().flatten().collect();
            i32::from(is_key(&bytes))
        }
    });
    assert_ne!(done, 2, "nobody may trace here");
    done == 1
}

fn in_a_child(at: *const u8) -> bool {
    // SAFETY: the read is the attack; a signal ends the child.
    child(|| i32::from((0..KEY_LEN).all(|i| unsafe { at.add(i).read_volatile() } == key_byte(i)))) == 1
}

fn over_read(at: *const u8) -> bool {
    // SAFETY: the read is the attack; a signal ends this process.
    (0..KEY_LEN).all(|i| unsafe { at.add(i).read_volatile() } == key_byte(i))
}

/// The first line and the flags of the mapping that has an address (`smaps`, its `VmFlags`).
fn mapping(at: *const u8) -> (String, Vec<String>) {
    let text = fs::read_to_string("/proc/self/smaps").expect("it is ours");
    let (mut inside, mut first) = (false, "");
    for line in text.lines() {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        if let Some((Ok(from), Ok(to))) =
            range.map(|(from, to)| (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16)))
        {
            (inside, first) = ((from..to).contains(&(at as usize)), line);
        } else if inside && let Some(flags) = line.strip_prefix("VmFlags:") {
            return (first.to_owned(), flags.split_whitespace().map(str::to_owned).collect());
        }
    }
    panic!("no mapping has {at:?}");
}

fn dumpable(at: *const u8) -> bool {
    !mapping(at).1.contains(&"dd".to_owned())
}

fn swappable(at: *const u8) -> bool {
    // Memory of memfd_secret has no place in swap, whatever its flags are (Linux 6.12.117: not "locked").
    let (first, flags) = mapping(at);
    !first.contains("secretmem") && !flags.contains(&"lo".to_owned())
}

/// The process ends with a core dump, in which its parent looks ([`attack`]).
fn core_dump(_: *const u8) -> bool {
    let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: it reads a struct of ours; then the process ends.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &limit);
        libc::abort();
    }
}

const LEAKS: i32 = 10;
const HOLDS: i32 = 11;
const VARIABLE: &str = "SEALANE_ATTACK";
/// Words of the process that has the key, before the attack, if it expects that the key is had.
const EXPECTED: &str = "expected to leak";
/// Words that it writes when only the attack follows.
const READY: &str = "the key is in place";

/// The outcome of an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Leaks,
    Holds,
    /// It could not be made here.
    NotMade,
}

/// Makes an attack. Returns what came of it, and what was expected.
fn attack(home: Home, name: &str) -> (Outcome, Outcome) {
    let me = std::env::current_exe().expect("the test has a path");
    let folder = std::env::temp_dir().join(format!("sealane-attack-{}-{home:?}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let mut command = Command::new(me);
    command.args(["--exact", "the_matrix", "--nocapture", "--test-threads=1"]).current_dir(&folder);
    let done = command.env(VARIABLE, format!("{home:?} {name}")).output().expect("it starts");
    let dumps = fs::read_dir(&folder).expect("the folder").flatten();
    let dumps: Vec<Vec<u8>> = dumps.map(|file| fs::read(file.path()).expect("a dump")).collect();
    fs::remove_dir_all(&folder).expect("the folder");
    let text = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    let outcome = match (done.status.code(), done.status.signal()) {
        _ if !text.contains(READY) => panic!("{home:?}, {name}: {}\n{text}", done.status),
        (Some(LEAKS), _) => Outcome::Leaks,
        (Some(HOLDS), _) | (_, Some(libc::SIGSEGV | libc::SIGBUS)) => Outcome::Holds,
        // The kernel wrote it elsewhere, or nowhere (core_pattern).
        (_, Some(libc::SIGABRT)) if name == "core dump" && dumps.is_empty() => Outcome::NotMade,
        (_, Some(libc::SIGABRT)) if name == "core dump" => {
            if dumps.iter().any(|dump| dump.windows(KEY_LEN).any(is_key)) { Outcome::Leaks } else { Outcome::Holds }
        }
        _ => panic!("{home:?}, {name}: {}\n{text}", done.status),
    };
    (outcome, if text.contains(EXPECTED) { Outcome::Leaks } else { Outcome::Holds })
}

/// Makes one attack, in the process that has the key.
fn suffer(home: Home, name: &str) -> ! {
    let (_, attack) = ATTACKS.iter().find(|(known, _)| *known == name).expect("an attack");
    if home == Home::Fallback {
        refuse_memfd_secret(libc::ENOSYS);
    }
    let lock = match home {
        Home::Process => None,
        Home::Secret => Some(Lock::None),
        Home::Fallback | Home::Guarded => Some(Lock::ProtectionKey),
    };
    let lacks = lock.map_or(Vec::new(), |lock| {
        establish(Plan { len: 64 << 10, or_less: false, lock, ..Plan::default() })
            .expect("guarded memory")
            .lacks()
            .to_vec()
    });
    lacks.iter().for_each(|lack| println!("{home:?} here: {lack}"));
    if expected(home, name, &lacks) {
        println!("{EXPECTED}");
    }
    // Made where it lies, so that no copy of it is on the stack.
    let mut key = Box::new([0; KEY_LEN]);
    (0..KEY_LEN).for_each(|i| key[i] = black_box(key_byte(black_box(i))));
    let held = Held::new(key).expect("room");
    println!("{READY}");
    std::process::exit(if attack(held.address().cast()) { LEAKS } else { HOLDS })
}

/// Whether an attack is expected to get the key, in memory that lacks these.
fn expected(home: Home, name: &str, lacks: &[Lack]) -> bool {
    let is_guarded = home != Home::Process;
    let has_secret = is_guarded && !lacks.iter().any(|lack| matches!(lack, Lack::Secret(_)));
    let has_key = is_guarded && !lacks.iter().any(|lack| matches!(lack, Lack::ProtectionKey(_)));
    let is_locked = is_guarded && !lacks.iter().any(|lack| matches!(lack, Lack::Locked(_)));
    assert!(home != Home::Fallback || !has_secret);
    assert!(home != Home::Secret || !has_key);
    match name {
        "/proc/self/mem" | "process_vm_readv" | "ptrace" => !has_secret,
        "vmsplice" => !has_secret && !has_key,
        "write" | "over-read" => !has_key,
        "child" | "core dump" | "dump flags" => !is_guarded,
        "swap" => !is_locked,
        _ => panic!("{name} is no attack"),
    }
}

#[test]
fn the_matrix() {
    if let Ok(case) = std::env::var(VARIABLE) {
        let (home, name) = case.split_once(' ').expect("two words");
        suffer(HOMES.into_iter().find(|known| format!("{known:?}") == home).expect("a home"), name);
    }
    let (mut table, mut wrong) = (String::new(), Vec::new());
    for (name, _) in ATTACKS {
        let _ = write!(table, "{name:<17}");
        for home in HOMES {
            let (outcome, expected) = attack(home, name);
            let _ = write!(table, " {home:?}: {:<9}", format!("{outcome:?}"));
            if outcome != Outcome::NotMade && outcome != expected {
                wrong.push((home, name));
            }
        }
        table.push('\n');
    }
    println!("{table}");
    assert!(wrong.is_empty(), "{wrong:?}\n{table}");
}
