//! `sealane run --keys guarded`: the keys of programs that know nothing of it lie in guarded memory, and nowhere else.

use crate::session::{BUILDS, LIMIT, Session, answers, built, places_of_keys, random, round_keys};
use sealane_conformance::skip::{is_root, skip, skip_without};
use sealane_conformance::target::{Outcome, Target, run_limited, sealane};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// The build that the preloaded library serves.
const PRELOADED: &str = BUILDS[0];

/// Whether a test cannot run here, with its full name.
fn skipped(test: &str) -> bool {
    skip_without(&format!("guarded::{test}"), &[&Target::sealane("open")])
}

/// `sealane run` with keys in this place.
fn launcher(keys: &str) -> Command {
    let mut command = Command::new(sealane());
    command.args(["run", "--keys", keys, "--"]);
    command
}

fn session(keys: &str, program: &str) -> Session {
    Session::under(launcher(keys), program)
}

/// The same in a process that may lock these KiB of memory, half of which become guarded memory.
fn limited(limit_kib: u32, program: &str) -> Session {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -l {limit_kib} && exec \"$@\""), "sh"]).arg(sealane());
    command.args(["run", "--keys", "guarded", "--"]);
    Session::under(command, program)
}

fn outcome(keys: &str, program: &[&str]) -> Outcome {
    let mut command = launcher(keys);
    command.args(program).env_remove("SEALANE_KEYS");
    run_limited(command, LIMIT).unwrap()
}

/// The things that guarded memory lacks here, as the launcher says.
fn lacks() -> Vec<String> {
    let done = outcome("guarded", &["true"]);
    assert_eq!(done.status, Some(0), "{}", done.errors);
    done.errors.lines().filter_map(|line| Some(line.split_once("--keys guarded: ")?.1.to_owned())).collect()
}

#[test]
fn a_program_computes_the_same() {
    if skipped("a_program_computes_the_same") {
        return;
    }
    for program in BUILDS {
        let (without, with) = (answers(&mut session("process", program)), answers(&mut session("guarded", program)));
        for ((command, without), (_, with)) in without.iter().zip(&with) {
            // A child does not have its parent's memory. The launcher has the keys of all processes.
            let expected = if command.starts_with("child ") && program == PRELOADED { "EIO" } else { without };
            assert_eq!(with, expected, "{program}: {command}");
        }
        assert!(with.iter().filter(|(_, answer)| !answer.starts_with('E')).count() > 100, "{with:?}");
    }
}

#[test]
fn known_answers() {
    if skipped("known_answers") {
        return;
    }
    for program in ["afalg", "afalg-static", "afalg-go"] {
        let path = built().join(program);
        if !path.exists() {
            skip("guarded::known_answers", "no Go toolchain to build afalg-go with");
            continue;
        }
        let done = outcome("guarded", &[&path.to_string_lossy()]);
        assert_eq!(done.status, Some(0), "{program}: {}{}", done.text, done.errors);
        assert!(done.text.lines().filter(|line| line.ends_with(" ok")).count() >= 3, "{program}: {}", done.text);
    }
}

/// Neither a key nor a round key can be read in the program, in a child, or in the launcher, once the program has wiped its own copy.
#[test]
fn nothing_of_a_key_is_in_ordinary_memory() {
    let test = "guarded::nothing_of_a_key_is_in_ordinary_memory";
    if skipped("nothing_of_a_key_is_in_ordinary_memory") {
        return;
    }
    if !is_root() {
        return skip(test, "only root reads the launcher's memory");
    }
    if lacks().iter().any(|lack| lack.starts_with("no memfd_secret")) {
        return skip(test, "no memfd_secret: guarded memory can be read, too");
    }
    let commands = [
        "encrypt 0 16 0 4096",
        "decrypt 0 16 0 4096",
        "encrypt 1 12 16 64",
        "mac 2 1000 100",
        "mac 3 64 64",
        "fork 2 100",
    ];
    for program in BUILDS {
        // So the search finds what is there.
        let mut open = session("process", program);
        let found = places_of_keys(&mut open, &commands);
        assert!(found[0] > 0 && found[2] > 0, "{program}: {found:?}");
        assert_eq!(open.ask("drop 0"), "ok");
        let [own, common] = random::<32>().as_chunks::<16>().0.try_into().unwrap();
        keys_of_a_child(&mut open, &own, &common, program);
        assert!(open.in_memory(&own) > 0 && open.in_memory(&common) > 0, "{program}");
        drop(open);
        let mut guarded = session("guarded", program);
        let found = places_of_keys(&mut guarded, &commands);
        assert_eq!(found.iter().sum::<usize>(), 0, "{program}: {found:?}");
        // One that is refused, one that a child sets for itself, and those that both set on a socket of both.
        let keys: [[u8; 16]; 5] = random::<80>().as_chunks().0.try_into().unwrap();
        let refused = [&keys[0][..], &[1]].concat();
        assert_eq!(guarded.key(4, "aead gcm(aes)", &refused), "EINVAL", "{program}");
        assert_eq!(guarded.ask("drop 0"), "ok");
        keys_of_a_child(&mut guarded, &keys[1], &keys[2], program);
        let mut needles = keys[..3].to_vec();
        for key in &keys[1..3] {
            needles.extend(round_keys(key));
        }
        let found: Vec<usize> = needles.iter().map(|needle| guarded.in_memory(needle)).collect();
        assert_eq!(found.iter().sum::<usize>(), 0, "{program}: {found:?}");
        guarded.tell("");
        assert_eq!(guarded.secret("rekey 0 16", &keys[3]), "ok", "{program}");
        assert!(!guarded.ask("encrypt 0 16 0 64").starts_with('E'), "{program}");
        assert_eq!(guarded.in_memory(&keys[3]), 0, "{program}");
        // Operations whose drivers have round keys on the stack.
        for (alg, command) in [
            ("skcipher ctr(aes)", "encrypt 7 16 0 4096"),
            ("skcipher ctr(aes)", "encrypt 7 16 0 64"),
            ("skcipher ecb(aes)", "encrypt 7 0 0 4096"),
        ] {
            let key = random::<16>();
            assert_eq!(guarded.key(7, alg, &key), "ok", "{program}");
            assert!(!guarded.ask(command).starts_with('E'), "{program}: {command}");
            let found = round_keys(&key).map(|key| guarded.in_memory(&key));
            assert_eq!(found, [0, 0], "{program}: {alg}, {command}");
        }
        // The launcher does not see payloads that programs add.
        if program == PRELOADED {
            match &*guarded.secret("logon 6 skcipher ctr(aes) 16", &keys[4]) {
                "ok" => assert_eq!(guarded.in_memory(&keys[4]), 0, "{program}"),
                answer => skip(&format!("{test}: of logon keys"), &format!("no keyrings here: {answer}")),
            }
        }
    }
}

/// Has a child set a key of its own, and one on a socket that it has in common with its parent; it waits then.
fn keys_of_a_child(session: &mut Session, own: &[u8; 16], common: &[u8; 16], program: &str) {
    session.tell("child key 5 skcipher ctr(aes) 16; rekey 0 16; pause");
    assert_eq!(session.give(own), "ok", "{program}");
    assert_eq!(session.give(common), "ok", "{program}");
}

/// A key is of the process that has set it, which is told so by an error, and of no other one.
#[test]
fn a_key_stays_with_the_process_that_sets_it() {
    if skipped("a_key_stays_with_the_process_that_sets_it") {
        return;
    }
    let expected = |alg: &str, command: &str| {
        let mut program = session("process", PRELOADED);
        assert_eq!(program.key(0, alg, &[1; 16]), "ok");
        program.ask(command)
    };
    for (alg, command) in [
        ("skcipher ctr(aes)", "encrypt 0 16 0 64"),
        ("aead gcm(aes)", "encrypt 0 12 16 64"),
        ("hash hmac(sha256)", "mac 0 300 100"),
        ("hash cmac(aes)", "mac 0 64 64"),
        ("hash blake2b-256", "mac 0 300 300"),
    ] {
        let expected = expected(alg, command);
        let mut program = session("guarded", PRELOADED);
        assert_eq!(program.key(0, alg, &[1; 16]), "ok");
        for _ in 0..2 {
            assert_eq!(program.ask(&format!("child {command}")), "EIO", "{alg}");
            assert_eq!(program.ask(command), expected, "{alg}");
        }
        // A child can have one of its own, on a socket of its own and on that of both, which its parent then does not have.
        program.tell(&format!("child key 1 {alg} 16; {}", command.replacen(" 0 ", " 1 ", 1)));
        assert_eq!(program.give(&[1; 16]), "ok", "{alg}");
        assert_eq!(program.answer("a child's own"), expected, "{alg}");
        assert_eq!(program.ask("drop 0"), "ok");
        program.tell(&format!("child rekey 0 16; {command}"));
        assert_eq!(program.give(&[1; 16]), "ok", "{alg}");
        assert_eq!(program.answer("a child's key"), expected, "{alg}");
        assert_eq!(program.ask("accept 0"), "ok", "{alg}");
        assert_eq!(program.ask(command), "EIO", "{alg}");
        assert_eq!(program.ask(&format!("child {command}")), "EIO", "{alg}");
        assert_eq!(program.secret("rekey 0 16", &[1; 16]), "ok", "{alg}");
        assert_eq!(program.ask(command), expected, "{alg}");
        // Of a parent's parent, too.
        assert_eq!(program.ask(&format!("child child {command}")), "EIO", "{alg}");
    }
}

/// Each place is given back, whatever becomes of the socket.
#[test]
fn guarded_memory_is_given_back() {
    if skipped("guarded_memory_is_given_back") {
        return;
    }
    // Of each of the eight ways in which a key goes more turns than there are cells of 64 bytes: one that stayed of each would be too
    // many.
    const TURNS: [u32; 2] = [20_000, 10_000];
    let filled = |answer: String| -> u32 {
        let (count, errno) = answer.split_once(' ').unwrap();
        assert_eq!(errno, "ENOMEM", "after {count} keys");
        count.parse().unwrap()
    };
    for (build, turns) in BUILDS.into_iter().zip(TURNS) {
        assert!(turns / 8 > (64 << 10) / 64);
        let mut program = limited(128, build);
        let fill = "fill skcipher ecb(aes) 16";
        let count = filled(program.ask(fill));
        assert!(count > 4, "{build}: {count} keys");
        assert_eq!(program.ask(&format!("turns {turns}")), "ok", "{build}");
        // As many keys lie in it in another order.
        let again = filled(program.ask(fill));
        assert!(again * 4 > count * 3, "{build}: {count} keys, and then {again}");
        assert_eq!(program.key(0, "skcipher ctr(aes)", &[1; 16]), "ok", "{build}");
        assert!(!program.ask("encrypt 0 16 0 64").starts_with('E'), "{build}");
        // A child's is its own, and as large.
        let childs = filled(program.ask(&format!("child {fill}; turns 480; {fill}")));
        assert_eq!(program.answer("turns in a child"), "ok", "{build}");
        let again = filled(program.answer("fill in a child"));
        assert!(
            childs * 4 > count * 3 && again * 4 > count * 3,
            "{build}: {count} keys, {childs} in a child, and then {again}"
        );
    }
}

/// Keys do not come to be in ordinary memory.
#[test]
fn there_are_no_sockets_without_guarded_memory() {
    let test = "guarded::there_are_no_sockets_without_guarded_memory";
    if skipped("there_are_no_sockets_without_guarded_memory") {
        return;
    }
    if !is_root() {
        return skip(test, "only root gives its capabilities away");
    }
    if lacks().iter().any(|lack| lack.starts_with("no memfd_secret")) {
        return skip(test, "memory that is not memfd_secret's needs no limit");
    }
    // The limit is nothing to whoever has CAP_IPC_LOCK.
    let mut launcher_ = launcher("guarded");
    launcher_.args(["sh", "-c", "ulimit -l 0; exec \"$@\"", "sh"]);
    let mut program = Session::under(launcher_, PRELOADED);
    assert_eq!(program.ask("setuid 65534"), "ok");
    for _ in 0..2 {
        assert_eq!(program.key(0, "skcipher ctr(aes)", &[1; 16]), "ENOMEM");
    }
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-ipc_lock", "sh", "-c", "ulimit -l 0; exec \"$@\"", "sh"]);
    command.arg(sealane()).args(["run", "--keys", "guarded", "--", "sh", "-c", "echo it runs"]);
    match run_limited(command, LIMIT) {
        Err(_) => skip(test, "no setpriv"),
        Ok(done) => {
            assert_eq!((done.status, &*done.text), (Some(125), ""), "{}", done.errors);
            assert!(done.errors.contains("no guarded memory"), "{}", done.errors);
        }
    }
}

/// The launcher says once what this machine lacks; with `guarded-strict` nothing runs then.
#[test]
fn what_is_lacking_is_said() {
    if skipped("what_is_lacking_is_said") {
        return;
    }
    let lacks = lacks();
    let strict = outcome("guarded-strict", &["sh", "-c", "echo it runs"]);
    if lacks.is_empty() {
        assert_eq!((strict.status, &*strict.text), (Some(0), "it runs\n"), "{}", strict.errors);
    } else {
        assert_eq!((strict.status, &*strict.text), (Some(125), ""), "{}", strict.errors);
    }
    for lack in &lacks {
        assert!(strict.errors.contains(lack), "{lack}: {}", strict.errors);
    }
    // The program and its children say it no more.
    let path = built().join("afalg");
    let done = outcome("guarded", &["sh", "-c", &format!("{0} && {0}", path.display())]);
    assert_eq!(done.status, Some(0), "{}", done.errors);
    for lack in &lacks {
        assert_eq!(done.errors.matches(&**lack).count(), 1, "{}", done.errors);
    }
    // A process of its own, without a launcher that has looked.
    let shim = sealane().with_file_name("libsealane_shim.so");
    let mut command = Command::new(built().join("afalg"));
    command.env("LD_PRELOAD", shim).env("SEALANE_KEYS", "guarded-strict");
    let done = run_limited(command, LIMIT).unwrap();
    match lacks.first() {
        None => assert_eq!(done.status, Some(0), "{}", done.errors),
        Some(lack) => {
            assert_ne!(done.status, Some(0), "{}", done.text);
            assert!(done.errors.contains(lack), "{}", done.errors);
        }
    }
}

/// A program whose environment is lost, and programs that are served by nobody.
#[test]
fn keys_are_guarded_whatever_becomes_of_the_environment() {
    if skipped("keys_are_guarded_whatever_becomes_of_the_environment") {
        return;
    }
    // The key is guarded if a child does not have it.
    let is_guarded = |program: &mut Session| {
        assert_eq!(program.key(0, "skcipher ctr(aes)", &[1; 16]), "ok");
        assert!(!program.ask("encrypt 0 16 0 64").starts_with('E'));
        program.ask("child encrypt 0 16 0 64") == "EIO"
    };
    let with = |arguments: &[&str]| {
        let mut command = Command::new(sealane());
        command.arg("run").args(arguments);
        command
    };
    let lost = ["--", "env", "-u", "SEALANE_KEYS"];
    let guarded = ["--keys", "guarded"];
    assert!(is_guarded(&mut Session::under(with(&[&guarded[..], &lost].concat()), PRELOADED)));
    assert!(!is_guarded(&mut Session::under(with(&[&["--keys", "process"][..], &lost].concat()), PRELOADED)));
    // By the variable alone, and by that which another launcher says.
    let mut command = with(&["--"]);
    command.env("SEALANE_KEYS", "guarded");
    assert!(is_guarded(&mut Session::under(command, PRELOADED)));
    let mut command = with(&[&guarded[..], &lost].concat());
    command.arg(sealane()).args(["run", "--"]);
    assert!(is_guarded(&mut Session::under(command, PRELOADED)));
    // Nobody can be asked.
    let preloaded = [&["--intercept", "preload"][..], &guarded, &lost].concat();
    let mut program = Session::under(with(&preloaded), PRELOADED);
    assert_eq!(program.key(0, "skcipher ctr(aes)", &[1; 16]), "EACCES");
    // In the program itself nothing is lost.
    let mut program = session("guarded", PRELOADED);
    assert_eq!(program.ask("clear"), "ok");
    assert!(is_guarded(&mut program));
}

/// Of two launchers the outer one serves programs that the library does not reach.
#[test]
fn one_launcher_in_another_has_its_keys_where_that_has_them() {
    if skipped("one_launcher_in_another_has_its_keys_where_that_has_them") {
        return;
    }
    for (outer, inner, status) in [
        ("guarded", "guarded", 0),
        ("guarded", "process", 125),
        ("process", "guarded", 125),
        ("guarded", "keeper", 125),
    ] {
        let exe = sealane();
        let inner_ = [&*exe.to_string_lossy(), "run", "--keys", inner, "--", "sh", "-c", "echo it runs $SEALANE_KEYS"];
        let done = outcome(outer, &[&["env", "-u", "SEALANE_KEYS"], &inner_[..]].concat());
        assert_eq!(done.status, Some(status), "{outer} {inner}: {}", done.errors);
        let text = if status == 0 { "it runs guarded\n" } else { "" };
        assert_eq!(done.text, text, "{outer} {inner}: {}", done.errors);
        assert!(status == 0 || done.errors.contains("two places"), "{}", done.errors);
    }
}

#[test]
fn programs_that_run_without_us_are_named() {
    if skipped("programs_that_run_without_us_are_named") {
        return;
    }
    let folder = std::env::temp_dir().join(format!("sealane-guarded-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let program = folder.join("raised");
    fs::copy("/bin/true", &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let done = outcome("guarded", &[&program.to_string_lossy()]);
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(done.status, Some(0), "{}", done.errors);
    assert!(done.errors.contains("runs without us, and its keys are not in guarded memory"), "{}", done.errors);
}
