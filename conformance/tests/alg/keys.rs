//! `sealane run --keys keeper`: the keys of programs that know nothing of it are in a keeper, and not in the programs.

use crate::session::{BUILDS, LIMIT, Session, answers, built, places_of_keys, random};
use sealane_conformance::keeper::Place;
use sealane_conformance::keyring;
use sealane_conformance::skip::{is_root, skip, skip_without};
use sealane_conformance::target::{Target, run_limited, sealane};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Whether a test cannot run here, with its full name.
fn skipped(test: &str) -> bool {
    skip_without(&format!("keys::{test}"), &[&Target::sealane("open")])
}

/// Starts a build of the program, with keys in the keeper at `place`, or in the process.
fn session(place: Option<&Place>, program: &str) -> Session {
    Session::under(launcher(place), program)
}

/// `sealane run` with keys in the keeper at `place`, or in the process.
fn launcher(place: Option<&Place>) -> Command {
    let mut command = Command::new(sealane());
    command.arg("run");
    if let Some(place) = place {
        command.args(["--keys", "keeper", "--keeper", &place.file("socket"), "--key-names", "backup,to,gone,unknown"]);
    }
    command.arg("--");
    command
}

#[test]
fn a_program_computes_the_same() {
    if skipped("a_program_computes_the_same") {
        return;
    }
    let mut place = Place::new("same");
    place.start();
    for program in BUILDS {
        let (without, with) = (answers(&mut session(None, program)), answers(&mut session(Some(&place), program)));
        for (without, with) in without.iter().zip(&with) {
            assert_eq!(with, without, "{program}");
        }
        assert!(without.iter().filter(|(_, answer)| !answer.starts_with('E')).count() > 100, "{without:?}");
    }
}

#[test]
fn a_thread_with_little_stack_sets_a_key() {
    if skipped("a_thread_with_little_stack_sets_a_key") {
        return;
    }
    let mut place = Place::new("thin");
    place.start();
    let key = random::<16>();
    let mut program = session(Some(&place), "afalg_keys");
    // What is tested and made once takes more.
    assert_eq!(program.key(0, "skcipher ctr(aes)", &key), "ok");
    let encrypted = program.ask("encrypt 0 16 0 64");
    assert_eq!(program.secret("thin key 1 skcipher ctr(aes) 16", &key), "ok");
    assert_eq!(program.ask("encrypt 1 16 0 64"), encrypted);
}

#[test]
fn known_answers() {
    if skipped("known_answers") {
        return;
    }
    let mut place = Place::new("known");
    place.start();
    for program in ["afalg", "afalg-static", "afalg-go"] {
        let path = built().join(program);
        if !path.exists() {
            skip("keys::known_answers", "no Go toolchain to build afalg-go with");
            continue;
        }
        let mut command = launcher(Some(&place));
        command.arg(&path);
        let done = run_limited(command, LIMIT).unwrap();
        assert_eq!(done.status, Some(0), "{program}: {}{}", done.text, done.errors);
        assert!(done.text.lines().filter(|line| line.ends_with(" ok")).count() >= 3, "{program}: {}", done.text);
    }
    // Who computed: `sealane audit` names the driver.
    let mut command = Command::new(sealane());
    command.args(["audit", "--json", "--keys", "keeper", "--keeper", &place.file("socket"), "--"]);
    command.arg(built().join("afalg"));
    let done = run_limited(command, LIMIT).unwrap();
    let report: serde_json::Value = serde_json::from_str(&done.errors).unwrap();
    let drivers: Vec<_> =
        report["algorithms"].as_array().unwrap().iter().map(|a| a["driver"].as_str().unwrap()).collect();
    for driver in ["cbc-aes-keeper", "gcm-aes-keeper"] {
        assert!(drivers.contains(&driver), "{drivers:?}");
    }
}

/// Neither a key nor a round key is in the program or in the launcher, once the program has wiped its own copy.
#[test]
fn nothing_of_a_key_is_in_the_program_or_the_launcher() {
    if skipped("nothing_of_a_key_is_in_the_program_or_the_launcher") {
        return;
    }
    if !is_root() {
        return skip(
            "keys::nothing_of_a_key_is_in_the_program_or_the_launcher",
            "only root reads the launcher's memory",
        );
    }
    let mut place = Place::new("memory");
    place.start();
    let commands = ["encrypt 0 16 0 4096", "encrypt 1 12 16 64", "mac 2 1000 100", "mac 3 64 64", "child mac 2 64 64"];
    for program in BUILDS {
        for is_kept in [false, true] {
            let found = places_of_keys(&mut session(is_kept.then_some(&place), program), &commands);
            if is_kept {
                assert_eq!(found.iter().sum::<usize>(), 0, "{program}: {found:?}");
            } else {
                // So the search finds what is there.
                assert!(found[0] > 0 && found[2] > 0, "{program}: {found:?}");
            }
        }
    }
}

#[test]
fn keys_are_named() {
    if skipped("keys_are_named") {
        return;
    }
    let mut place = Place::new("named");
    place.start();
    let key: Vec<u8> = (100..132).collect();
    fs::write(place.file("key"), &key).unwrap();
    let import = |name: &str, uses: &str| {
        let made =
            place.key(&["import", name, "--algorithm", "ctr(aes)", "--uses", uses, "--file", &place.file("key")]);
        assert_eq!(made.status, Some(0), "{made:?}");
    };
    import("backup", "encrypt,caller-nonce,decrypt");
    import("to", "encrypt,caller-nonce");
    import("gone", "encrypt,caller-nonce");
    let expected = {
        let mut program = session(None, "afalg_keys");
        assert_eq!(program.key(0, "skcipher ctr(aes)", &key), "ok");
        program.ask("encrypt 0 16 0 48")
    };
    assert_eq!(place.key(&["revoke", "gone"]).status, Some(0));
    for build in BUILDS {
        let mut program = session(Some(&place), build);
        assert_eq!(program.ask("text 0 skcipher ctr(aes) sealane://backup"), "ok");
        assert_eq!(program.ask("encrypt 0 16 0 48"), expected, "{build}");
        assert!(!program.ask("decrypt 0 16 0 48").starts_with('E'), "{build}");
        assert_eq!(program.ask("text 1 skcipher ctr(aes) sealane://to"), "ok");
        assert_eq!(program.ask("encrypt 1 16 0 48"), expected, "{build}");
        // A key for encryption alone does not decrypt.
        assert_eq!(program.ask("decrypt 1 16 0 48"), "EIO", "{build}");
        assert_eq!(program.ask("encrypt 1 16 0 48"), expected, "{build}");
        assert_eq!(program.ask("text 2 skcipher ctr(aes) sealane://unknown"), "ENOKEY", "{build}");
        assert_eq!(program.ask("text 2 skcipher cbc(aes) sealane://backup"), "EINVAL", "{build}");
        assert_eq!(program.ask("text 2 skcipher ctr(aes) sealane://gone"), "EKEYREVOKED", "{build}");
        assert_eq!(program.ask("text 2 hash hmac(sha256) sealane:/no-name"), "ok", "{build}");
        assert!(!program.ask("mac 2 10 10").starts_with('E'), "{build}");
    }
    // A service would use any key that its client names.
    for names in [&[][..], &["--key-names", "to"]] {
        for build in BUILDS {
            let mut command = Command::new(sealane());
            command.args(["run", "--keys", "keeper", "--keeper", &place.file("socket")]).args(names).arg("--");
            let mut program = Session::under(command, build);
            assert_eq!(program.ask("text 0 skcipher ctr(aes) sealane://backup"), "ENOKEY", "{build}");
        }
    }
    // What is to be a name is no key, where nobody has names either: this one has 16 bytes.
    for build in BUILDS {
        let mut alone = session(None, build);
        assert_eq!(alone.ask("text 0 skcipher ctr(aes) sealane://backup"), "ENOKEY", "{build}");
        assert_eq!(alone.ask("text 0 skcipher ctr(aes) sealane://1.2.3"), "ENOKEY", "{build}");
    }
    // In the kernel's keyrings: of the process, which the launcher does not see.
    let mut program = session(Some(&place), "afalg_keys");
    let serial = program.ask("user sealane:backup");
    if serial.starts_with('E') {
        return skip("keys::keys_are_named", "no keyrings here");
    }
    assert_eq!(program.ask(&format!("serial 0 skcipher ctr(aes) {serial}")), "ok");
    assert_eq!(program.ask("encrypt 0 16 0 48"), expected);
    let serial = program.ask("user sealane:unknown");
    assert_eq!(program.ask(&format!("serial 0 skcipher ctr(aes) {serial}")), "ENOKEY");
    // The payload of a logon key would have to be remembered here.
    assert_eq!(program.secret("logon 0 skcipher ctr(aes) 16", &key[..16]), "EACCES");
    // Without a keeper both are payloads, of one byte.
    let mut alone = session(None, "afalg_keys");
    let serial = alone.ask("user sealane:backup");
    assert_eq!(alone.ask(&format!("serial 0 skcipher ctr(aes) {serial}")), "EINVAL");
}

/// The kernel gives of an `encrypted` key another text than it would compute by, and no secret.
#[test]
fn keys_that_the_kernel_seals_are_no_keys() {
    let test = "keys::keys_that_the_kernel_seals_are_no_keys";
    if skipped("keys_that_the_kernel_seals_are_no_keys") {
        return;
    }
    let of = |ty, name, payload: &[u8]| keyring::add(ty, name, payload);
    let made = keyring::join_session()
        .and_then(|_| of(c"user", c"sealane-master", &[5; 32]))
        .and_then(|user| Ok((user, of(c"encrypted", c"sealane-sealed", b"new user:sealane-master 32")?)));
    let Ok((user, sealed)) = made else { return skip(test, "no keyrings here, or none of this type") };
    for build in BUILDS {
        let mut program = session(None, build);
        assert_eq!(program.ask(&format!("serial 0 hash hmac(sha256) {sealed}")), "EACCES", "{build}");
        // Of the same keyring, so that it is not the keyring that refuses.
        assert_eq!(program.ask(&format!("serial 1 hash hmac(sha256) {user}")), "ok", "{build}");
    }
}

#[test]
fn a_keeper_that_ends_is_an_error_and_nothing_else() {
    if skipped("a_keeper_that_ends_is_an_error_and_nothing_else") {
        return;
    }
    for (place, outlives) in [(Place::new("ends"), true), (Place::without_store("forgets"), false)] {
        let mut place = place;
        for build in BUILDS {
            place.start();
            let mut program = session(Some(&place), build);
            assert_eq!(program.key(0, "skcipher ctr(aes)", &[1; 16]), "ok");
            assert_eq!(program.key(2, "hash hmac(sha256)", &[2; 16]), "ok");
            let before = [program.ask("encrypt 0 16 0 64"), program.ask("mac 2 100 50")];
            place.kill();
            for _ in 0..2 {
                assert_eq!(program.ask("encrypt 0 16 0 64"), "EIO", "{build}");
                assert_eq!(program.ask("mac 2 100 50"), "EIO", "{build}");
                assert_eq!(program.ask("result 2"), "EIO", "{build}: the tag of something else");
                assert_eq!(program.ask("child encrypt 0 16 0 64"), "EIO", "{build}");
                assert_eq!(program.key(1, "skcipher ctr(aes)", &[1; 16]), "EIO", "{build}");
                assert_eq!(program.ask("text 1 skcipher ctr(aes) sealane://backup"), "EIO", "{build}");
            }
            place.start();
            if !outlives {
                // The keys of before are nobody's any more.
                assert_eq!(program.ask("encrypt 0 16 0 64"), "EIO", "{build}");
                assert_eq!(program.ask("mac 2 100 50"), "EIO", "{build}");
                assert_eq!(program.key(0, "skcipher ctr(aes)", &[1; 16]), "ok", "{build}");
                assert_eq!(program.key(2, "hash hmac(sha256)", &[2; 16]), "ok", "{build}");
            }
            assert_eq!([program.ask("encrypt 0 16 0 64"), program.ask("mac 2 100 50")], before, "{build}");
            place.kill();
        }
    }
}

#[test]
fn a_keeper_that_hangs_is_an_error_and_goes_on_later() {
    if skipped("a_keeper_that_hangs_is_an_error_and_goes_on_later") {
        return;
    }
    let mut place = Place::new("hangs");
    place.start();
    let mut program = session(Some(&place), "afalg_keys");
    assert_eq!(program.key(0, "skcipher ctr(aes)", &[1; 16]), "ok");
    let before = program.ask("encrypt 0 16 0 64");
    place.signal("STOP");
    assert_eq!(program.ask("encrypt 0 16 0 64"), "EIO");
    place.signal("CONT");
    // It is left alone for two seconds.
    program.tell("wait 2500");
    assert_eq!(program.ask("encrypt 0 16 0 64"), before);
}

#[test]
fn a_program_does_not_run_without_its_keeper() {
    if skipped("a_program_does_not_run_without_its_keeper") {
        return;
    }
    let place = Place::new("none");
    let mut command = launcher(Some(&place));
    command.args(["sh", "-c", "echo it runs"]);
    let done = run_limited(command, LIMIT).unwrap();
    assert_eq!((done.status, &*done.text), (Some(125), ""), "{}", done.errors);
    assert!(done.errors.contains(&place.file("socket")), "{}", done.errors);
    // Nor does it where a word is mistaken for another one.
    let mut command = launcher(None);
    command.args(["sh", "-c", "echo it runs"]).env("SEALANE_KEYS", "kepeer");
    let done = run_limited(command, LIMIT).unwrap();
    assert_eq!((done.status, &*done.text), (Some(125), ""), "{}", done.errors);
}

/// A program that loses its environment, closes descriptors that it does not know, and forks.
#[test]
fn keys_stay_in_the_keeper_whatever_a_program_does() {
    if skipped("keys_stay_in_the_keeper_whatever_a_program_does") {
        return;
    }
    let mut place = Place::new("whatever");
    place.start();
    let mut launcher = launcher(Some(&place));
    launcher.args(["env", "-u", "SEALANE_KEYS", "-u", "SEALANE_KEEPER"]);
    let mut program = Session::under(launcher, "afalg_keys");
    assert_eq!(program.key(0, "skcipher ctr(aes)", &[1; 16]), "ok");
    let before = program.ask("encrypt 0 16 0 64");
    assert_eq!(program.ask("close"), "ok");
    for _ in 0..3 {
        assert_eq!(program.ask("encrypt 0 16 0 64"), before);
        assert_eq!(program.ask("child encrypt 0 16 0 64"), before);
        assert_eq!(program.ask("child close"), "ok");
    }
    // They are in the keeper: without it there is nothing.
    place.kill();
    assert_eq!(program.ask("encrypt 0 16 0 64"), "EIO");
    assert_eq!(program.key(0, "skcipher ctr(aes)", &[1; 16]), "EIO");
}

/// A program that is loaded with the library, and not told where its keys are to be.
#[test]
fn keys_do_not_stay_in_a_process_that_has_lost_its_environment() {
    if skipped("keys_do_not_stay_in_a_process_that_has_lost_its_environment") {
        return;
    }
    let mut place = Place::new("lost");
    place.start();
    let preloaded = |arguments: &[&str]| {
        let mut command = Command::new(sealane());
        command.args(["run", "--intercept", "preload", "--keys", "keeper", "--keeper", &place.file("socket"), "--"]);
        command.args(arguments);
        Session::under(command, "afalg_keys")
    };
    // Nobody can be asked.
    let mut program = preloaded(&["env", "-u", "SEALANE_KEYS", "-u", "SEALANE_KEEPER"]);
    assert_eq!(program.key(0, "skcipher ctr(aes)", &[1; 16]), "EACCES");
    assert_eq!(program.key(0, "skcipher ctr(aes)", &[1; 16]), "EACCES");
    // In a program itself nothing is lost.
    let mut programs = [preloaded(&["env"]), session(Some(&place), "afalg_keys")];
    for program in &mut programs {
        assert_eq!(program.ask("clear"), "ok");
        assert_eq!(program.key(0, "skcipher ctr(aes)", &[1; 16]), "ok");
    }
    place.kill();
    for program in &mut programs {
        assert_eq!(program.ask("encrypt 0 16 0 64"), "EIO");
        assert_eq!(program.key(0, "skcipher ctr(aes)", &[1; 16]), "EIO");
    }
}

/// Of two launchers the outer one serves programs that the library does not reach.
#[test]
fn one_launcher_in_another_has_its_keys_where_that_has_them() {
    if skipped("one_launcher_in_another_has_its_keys_where_that_has_them") {
        return;
    }
    let [mut place, mut other] = ["outer", "inner"].map(Place::new);
    place.start();
    other.start();
    let [socket, other_socket] = [place.file("socket"), other.file("socket")];
    let with = |socket: &'static str| vec!["--keys", "keeper", "--keeper", socket];
    let [socket, other_socket]: [&'static str; 2] = [socket.leak(), other_socket.leak()];
    let process = vec!["--keys", "process"];
    for (outer, inner, status) in [
        (with(socket), with(socket), 0),
        (with(socket), with(other_socket), 125),
        (with(socket), process.clone(), 125),
        (process.clone(), with(socket), 125),
        (process.clone(), process, 0),
        // What the outer one says is the default, whatever has become of the environment.
        (with(socket), vec![], 0),
    ] {
        let mut command = Command::new(sealane());
        command.arg("run").args(&outer).args(["--", "env", "-u", "SEALANE_KEYS", "-u", "SEALANE_KEEPER"]);
        command.arg(sealane()).arg("run").args(&inner).args(["--", "sh", "-c", "echo it runs $SEALANE_KEYS"]);
        let done = run_limited(command, LIMIT).unwrap();
        assert_eq!(done.status, Some(status), "{outer:?} {inner:?}: {}", done.errors);
        let text = match status {
            0 => format!("it runs {}\n", outer[1]),
            _ => String::new(),
        };
        assert_eq!(done.text, text, "{outer:?} {inner:?}: {}", done.errors);
        assert!(status == 0 || done.errors.contains("two places"), "{}", done.errors);
    }
}

/// Whoever may make files in the folder could listen there while no keeper runs.
#[test]
fn somebody_else_at_the_socket_is_no_keeper() {
    const OTHER: u32 = 65534;
    if skipped("somebody_else_at_the_socket_is_no_keeper") {
        return;
    }
    if !is_root() {
        return skip("keys::somebody_else_at_the_socket_is_no_keeper", "only root runs a keeper as another user");
    }
    let place = Place::without_store("somebody");
    fs::set_permissions(&place.folder, fs::Permissions::from_mode(0o777)).unwrap();
    // A checkout may be in a folder of root's.
    let program = place.file("sealane");
    fs::copy(sealane(), &program).unwrap();
    let mut keeper = Command::new(program);
    keeper.args(["keeper", "--config", &place.file("keeper.toml")]).uid(OTHER).gid(OTHER).stdin(Stdio::null());
    let mut keeper = keeper.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let since = Instant::now();
    // `sealane key` does not give it keys either.
    while !place.key(&["list"]).errors.contains("not the owner") {
        assert!(since.elapsed() < LIMIT, "it does not serve: {:?}", keeper.try_wait());
        std::thread::sleep(Duration::from_millis(20));
    }
    let run = || {
        let mut command = launcher(Some(&place));
        command.args(["sh", "-c", "echo it runs"]);
        run_limited(command, LIMIT).unwrap()
    };
    let stranger = run();
    chown(&place.folder, Some(OTHER), Some(OTHER)).unwrap();
    let owner = run();
    keeper.kill().unwrap();
    keeper.wait().unwrap();
    assert_eq!((stranger.status, &*stranger.text), (Some(125), ""), "{}", stranger.errors);
    assert!(stranger.errors.contains("not the owner"), "{}", stranger.errors);
    assert_eq!((owner.status, &*owner.text), (Some(0), "it runs\n"), "{}", owner.errors);
}

/// The launcher serves all programs.
#[test]
fn a_keeper_that_hangs_stops_nobody_who_does_not_ask_it() {
    if skipped("a_keeper_that_hangs_stops_nobody_who_does_not_ask_it") {
        return;
    }
    let mut place = Place::new("stops");
    place.start();
    let mut program = session(Some(&place), "afalg_keys-static");
    assert_eq!(program.key(2, "hash hmac(sha256)", &[1; 16]), "ok");
    assert_eq!(program.ask("splice 2 4096"), "spliced");
    assert_eq!(program.answer("splice"), "ok");
    place.signal("STOP");
    // The child's call ends when the keeper has not answered in time.
    assert_eq!(program.ask("splice 2 4096"), "ok");
    assert_eq!(program.answer("splice"), "EIO");
}

/// A program that changes its user is another one to the keeper.
#[test]
fn another_user_has_no_use_of_a_key() {
    let test = "keys::another_user_has_no_use_of_a_key";
    if skipped("another_user_has_no_use_of_a_key") {
        return;
    }
    if !is_root() {
        return skip(test, "only root becomes another user");
    }
    let mut place = Place::new("users");
    place.start();
    // By the library: the key is bound to the user who set it.
    let mut program = session(Some(&place), "afalg_keys");
    assert_eq!(program.key(0, "skcipher ctr(aes)", &[1; 16]), "ok");
    assert!(!program.ask("encrypt 0 16 0 64").starts_with('E'));
    assert_eq!(program.ask("setuid 65534"), "ok");
    assert_eq!(program.ask("encrypt 0 16 0 64"), "EIO");
    assert_eq!(program.key(0, "skcipher ctr(aes)", &[1; 16]), "ok");
    assert!(!program.ask("encrypt 0 16 0 64").starts_with('E'));
    // By the launcher, which the keeper takes for its own user and for nobody else.
    let mut program = session(Some(&place), "afalg_keys-static");
    assert_eq!(program.key(0, "skcipher ctr(aes)", &[1; 16]), "ok");
    assert_eq!(program.ask("setuid 65534"), "ok");
    assert!(!program.ask("encrypt 0 16 0 64").starts_with('E'), "who has the descriptor may use it");
    assert_eq!(program.key(1, "skcipher ctr(aes)", &[1; 16]), "EACCES");
    assert_eq!(program.ask("text 1 skcipher ctr(aes) sealane://backup"), "EACCES");
}
