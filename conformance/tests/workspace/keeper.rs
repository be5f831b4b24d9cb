//! `sealane keeper` and `sealane key`: keys in a process of their own, as a user has them.

use sealane_conformance::skip::skip_without;
use sealane_conformance::target::{Outcome, Target, run_limited, sealane};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// A folder with a configuration, a passphrase and, once it has started, a keeper.
struct Place {
    folder: PathBuf,
    keeper: Option<Child>,
}

impl Place {
    fn new(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("sealane-keeper-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        // Other users have to reach the socket.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        let place = Place { folder, keeper: None };
        let path = |name: &str| place.folder.join(name).display().to_string();
        let (socket, store, passphrase) = (path("socket"), path("keys"), path("passphrase"));
        let admin = fs::metadata(&place.folder).unwrap().uid();
        let text = format!(
            "socket = '{socket}'\nstore = '{store}'\npassphrase-file = '{passphrase}'\nadmin-users = [{admin}]\n"
        );
        fs::write(place.folder.join("keeper.toml"), text).unwrap();
        place.passphrase("right\n");
        place
    }

    fn passphrase(&self, text: &str) {
        let file = self.folder.join("passphrase");
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn command(&self) -> Command {
        let mut command = Command::new(sealane());
        command.arg("keeper").arg("--config").arg(self.folder.join("keeper.toml"));
        command
    }

    /// Starts the keeper, and waits until it serves.
    fn start(&mut self) {
        let log = fs::File::options().create(true).append(true).open(self.folder.join("log")).unwrap();
        let child = self.command().stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.keeper = Some(child);
        let since = Instant::now();
        // 0 and 1 are answers.
        while self.key(&["list"]).status == Some(2) {
            assert!(since.elapsed() < LIMIT, "it does not serve: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills the keeper, and waits for its end.
    fn kill(&mut self) {
        let mut keeper = self.keeper.take().expect("it runs");
        keeper.kill().unwrap();
        keeper.wait().unwrap();
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    fn key(&self, args: &[&str]) -> Outcome {
        self.key_as(None, args)
    }

    /// Runs `sealane key`, as another user if one is given.
    fn key_as(&self, user: Option<u32>, args: &[&str]) -> Outcome {
        let mut exe = sealane();
        if user.is_some() {
            // It may be in a folder that is closed to others.
            let copy = self.folder.join("sealane");
            if !copy.exists() {
                fs::copy(&exe, &copy).unwrap();
            }
            exe = copy;
        }
        let mut command = Command::new(exe);
        command.arg("key").args(args).env("SEALANE_KEEPER", self.folder.join("socket"));
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        run_limited(command, LIMIT).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(mut keeper) = self.keeper.take() {
            let _ = keeper.kill();
            let _ = keeper.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn versions(outcome: &Outcome) -> Vec<Value> {
    let keys: Value = serde_json::from_str(&outcome.text).unwrap_or_else(|e| panic!("{e}: {outcome:?}"));
    keys[0]["versions"].as_array().cloned().unwrap_or_default()
}

fn contains(folder: &Path, secret: &[u8]) -> bool {
    let mut files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    files.any(|file| fs::read(file).unwrap().windows(secret.len()).any(|window| window == secret))
}

#[test]
fn keys_outlive_a_keeper_that_is_killed() {
    if skip_without("keeper::keys_outlive_a_keeper_that_is_killed", &[&Target::sealane("open")]) {
        return;
    }
    let mut place = Place::new("killed");
    place.start();
    let secret = b"a secret of thirty-two bytes....";
    fs::write(place.folder.join("secret"), secret).unwrap();
    let file = place.folder.join("secret").display().to_string();
    for args in [
        &["generate", "a", "--algorithm", "gcm(aes)", "--uses", "encrypt"][..],
        &["import", "b", "--algorithm", "hmac(sha256)", "--file", file.as_str()],
        &["rotate", "b"],
        &["generate", "c", "--algorithm", "gcm(aes)", "--expires-in", "1d"],
        &["revoke", "c"],
    ] {
        let done = place.key(args);
        assert_eq!(done.status, Some(0), "{args:?}: {done:?}");
    }
    place.kill();
    let without = place.key(&["list"]);
    assert_eq!(without.status, Some(2), "{without:?}");
    place.start();
    assert_eq!(versions(&place.key(&["show", "a", "--json"])).len(), 1);
    assert_eq!(versions(&place.key(&["show", "b", "--json"])).len(), 2);
    let revoked = versions(&place.key(&["show", "c", "--json"]));
    assert_eq!(revoked.len(), 1, "{revoked:?}");
    assert!(revoked.iter().all(|version| version["revoked_s"].as_u64() > Some(0)), "{revoked:?}");
    let again = place.key(&["generate", "a", "--algorithm", "gcm(aes)"]);
    assert_eq!((again.status, again.errors.as_str()), (Some(2), "sealane: there is a key 'a' already\n"));
    assert!(!contains(&place.folder.join("keys"), secret));
    let log = place.log();
    assert!(log.contains("audit: user") && log.contains("generate 'a'") && !log.contains("thirty-two"), "{log}");
}

#[test]
fn a_wrong_passphrase_or_a_second_keeper_is_refused() {
    if skip_without("keeper::a_wrong_passphrase_or_a_second_keeper_is_refused", &[&Target::sealane("open")]) {
        return;
    }
    let mut place = Place::new("wrong");
    place.start();
    let second = run_limited(place.command(), LIMIT).unwrap();
    assert!(second.status == Some(2) && second.errors.contains("another keeper serves it"), "{second:?}");
    assert_eq!(place.key(&["generate", "a", "--algorithm", "gcm(aes)"]).status, Some(0));
    place.kill();
    place.passphrase("wrong\n");
    let wrong = run_limited(place.command(), LIMIT).unwrap();
    assert!(wrong.status == Some(2) && wrong.errors.contains("wrong passphrase"), "{wrong:?}");
    place.passphrase("right\n");
    place.start();
    assert_eq!(place.key(&["show", "a"]).status, Some(0));
}

#[test]
fn a_keeper_that_hangs_is_an_error_and_goes_on_later() {
    if skip_without("keeper::a_keeper_that_hangs_is_an_error_and_goes_on_later", &[&Target::sealane("open")]) {
        return;
    }
    let mut place = Place::new("hangs");
    place.start();
    assert_eq!(place.key(&["generate", "a", "--algorithm", "gcm(aes)"]).status, Some(0));
    let pid = place.keeper.as_ref().map(|keeper| keeper.id().to_string()).unwrap_or_default();
    let signal = |name: &str| assert!(Command::new("kill").args([name, pid.as_str()]).status().unwrap().success());
    signal("-STOP");
    let hung = place.key(&["show", "a"]);
    signal("-CONT");
    assert!(hung.status == Some(2) && hung.errors.contains("timed out"), "{hung:?}");
    assert_eq!(place.key(&["show", "a"]).status, Some(0));
}

#[test]
fn a_keeper_that_is_asked_to_end_ends() {
    if skip_without("keeper::a_keeper_that_is_asked_to_end_ends", &[&Target::sealane("open")]) {
        return;
    }
    let mut place = Place::new("ends");
    place.start();
    let mut keeper = place.keeper.take().expect("it runs");
    assert!(Command::new("kill").arg(keeper.id().to_string()).status().unwrap().success());
    assert_eq!(keeper.wait().unwrap().code(), Some(0), "{}", place.log());
    assert!(!place.folder.join("socket").exists());
}

#[test]
fn other_users_learn_nothing_and_change_nothing() {
    if skip_without("keeper::other_users_learn_nothing_and_change_nothing", &[&Target::sealane("open")]) {
        return;
    }
    if !sealane_conformance::skip::is_root() {
        sealane_conformance::skip::skip(
            "keeper::other_users_learn_nothing_and_change_nothing",
            "it runs programs as another user",
        );
        return;
    }
    let mut place = Place::new("users");
    place.start();
    assert_eq!(place.key(&["generate", "a", "--algorithm", "gcm(aes)"]).status, Some(0));
    assert_eq!(place.key(&["generate", "b", "--algorithm", "gcm(aes)", "--user", "65534"]).status, Some(0));
    let seen = place.key_as(Some(65534), &["list", "--json"]);
    assert!(seen.status == Some(0) && seen.text.contains("\"b\"") && !seen.text.contains("\"a\""), "{seen:?}");
    for args in [&["show", "a"][..], &["revoke", "a"], &["rotate", "a"]] {
        let refused = place.key_as(Some(65534), args);
        assert_eq!(refused.status, Some(1), "{args:?}: {refused:?}");
    }
    for args in [&["revoke", "b"][..], &["rotate", "b"], &["generate", "c", "--algorithm", "gcm(aes)"]] {
        let refused = place.key_as(Some(65534), args);
        assert_eq!(refused.status, Some(2), "{args:?}: {refused:?}");
    }
    assert!(place.log().contains("refused: denied"), "{}", place.log());
}
