//! Symmetric keys of the keeper by the OpenSSL provider: those that programs give (`sealane-keys = keeper`), and the keeper's own by their
//! names (`sealane-key`). OpenSSL's default provider, which has their bytes, checks what comes out.

use crate::provider::{Modules, has_openssl, openssl, program};
use sealane_conformance::keeper;
use sealane_conformance::skip::{skip, skip_without};
use sealane_conformance::target::{Target, end, run_limited};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const LIMIT: Duration = Duration::from_secs(300);

/// Every cipher: `ALL` leaves out those of OpenSSL's generator of random numbers.
const CIPHERS: &str = "CIPHERS = AES-128-ECB AES-192-ECB AES-256-ECB AES-128-CBC AES-192-CBC AES-256-CBC AES-128-CTR AES-192-CTR \
    AES-256-CTR AES-128-GCM AES-192-GCM AES-256-GCM AES-128-CCM AES-192-CCM AES-256-CCM AES-128-CBC-CTS AES-192-CBC-CTS \
    AES-256-CBC-CTS AES-128-XTS AES-256-XTS DES-EDE3-CBC ChaCha20-Poly1305\nsealane-digests = ALL\n";

/// Keys of the keeper's: name, algorithm, length, and other rules.
const KEYS: [(&str, &str, usize, &[&str]); 17] = [
    ("ecb", "ecb(aes)", 32, &[]),
    ("cbc", "cbc(aes)", 32, &[]),
    ("ctr", "ctr(aes)", 32, &[]),
    ("xts", "xts(aes)", 64, &[]),
    ("des", "cbc(des3_ede)", 24, &[]),
    ("gcm", "gcm(aes)", 32, &[]),
    ("ccm", "ccm(aes)", 32, &[]),
    ("chacha", "rfc7539(chacha20,poly1305)", 32, &[]),
    ("hmac", "hmac(sha256)", 32, &[]),
    ("cmac", "cmac(aes)", 32, &[]),
    ("cbc-enc", "cbc(aes)", 32, &["--uses", "encrypt,caller-nonce"]),
    ("cbc-dec", "cbc(aes)", 32, &["--uses", "decrypt"]),
    ("ctr-enc", "ctr(aes)", 32, &["--uses", "encrypt,caller-nonce"]),
    ("ctr-dec", "ctr(aes)", 32, &["--uses", "decrypt"]),
    ("gcm-enc", "gcm(aes)", 32, &["--uses", "encrypt,caller-nonce"]),
    ("gcm-dec", "gcm(aes)", 32, &["--uses", "decrypt"]),
    ("revoked", "cbc(aes)", 32, &[]),
];

/// A keeper with keys whose bytes are in files, too.
struct Place {
    keeper: keeper::Place,
    /// In a later second than this one the key `expired` has expired.
    expires_after_s: u64,
}

/// Seconds since 1970.
fn wall_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

impl Place {
    /// Starts a keeper; `None`, with the reason, where this cannot be tried.
    fn new(test: &str) -> Option<Self> {
        let full = format!("provider_symmetric::{test}");
        if skip_without(&full, &[&Target::sealane("open")]) || !has_openssl(&full) {
            return None;
        }
        let mut keeper = keeper::Place::new(&format!("symmetric-{test}"));
        keeper.start();
        let mut place = Place { keeper, expires_after_s: 0 };
        for (at, (name, algorithm, len, rules)) in KEYS.into_iter().enumerate() {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 37 + i / 8 + 11 * at + 1) as u8).collect();
            let file = place.keeper.file(&format!("{name}.key"));
            fs::write(&file, bytes).unwrap();
            // The nonces are the program's.
            let all: &[&str] = match algorithm.starts_with("hmac") || algorithm.starts_with("cmac") {
                true => &["--uses", "mac"],
                false => &["--uses", "encrypt,decrypt,caller-nonce"],
            };
            let rules = if rules.is_empty() { all } else { rules };
            place.key(&[&["import", name, "--algorithm", algorithm, "--file", &file], rules].concat());
        }
        place.key(&["revoke", "revoked"]);
        let file = place.keeper.file("cbc.key");
        let rules = ["--uses", "encrypt,caller-nonce", "--expires-in", "1s"];
        place.key(&[&["import", "expired", "--algorithm", "cbc(aes)", "--file", &file], &rules[..]].concat());
        place.expires_after_s = wall_s();
        Some(place)
    }

    /// Runs `sealane key`, which has to succeed.
    fn key(&self, arguments: &[&str]) {
        let done = self.keeper.key(arguments);
        assert_eq!(done.status, Some(0), "{arguments:?}: {done:?}");
    }

    /// A configuration with this keeper.
    fn modules(&self, name: &str, settings: &str) -> Modules {
        let section = format!("sealane-keeper = {}\n{settings}", self.keeper.file("socket"));
        Modules::new(&format!("symmetric-{name}"), &section)
    }

    /// A configuration by which programs' keys are kept by this keeper.
    fn kept(&self, name: &str) -> Modules {
        self.modules(&format!("kept-{name}"), &format!("{CIPHERS}sealane-keys = keeper\n"))
    }

    /// Runs parts of the program `provider_keys`.
    fn run(&self, test: &str, modules: &Modules, what: &[&str]) {
        let Some(program) = program(&format!("provider_symmetric::{test}"), "provider_keys") else { return };
        let folder = self.keeper.folder.display().to_string();
        let done = modules.run(&program, &[&[folder.as_str()], what].concat());
        assert_eq!(done.status, Some(0), "{}{}", done.text, done.errors);
    }
}

/// Runs a program of `programs/`, which has to end well.
fn run(test: &str, name: &str, modules: &Modules, arguments: &[&str]) -> Option<String> {
    let program = program(&format!("provider_symmetric::{test}"), name)?;
    let done = modules.run(&program, arguments);
    assert_eq!(done.status, Some(0), "{arguments:?}: {}{}", done.text, done.errors);
    Some(done.text)
}

#[test]
fn a_key_by_its_name_is_its_bytes() {
    const TEST: &str = "a_key_by_its_name_is_its_bytes";
    let Some(place) = Place::new(TEST) else { return };
    // The key that expires in a second has, by the clock by which it does.
    while wall_s() <= place.expires_after_s {
        std::thread::sleep(Duration::from_millis(50));
    }
    place.run(TEST, &place.modules("named", CIPHERS), &["named"]);
    place.run(TEST, &place.kept("named"), &["named"]);
    // It makes no difference where the program's own keys lie.
    let guarded = place.modules("guarded", &format!("{CIPHERS}sealane-keys = guarded\n"));
    place.run(TEST, &guarded, &["named"]);
}

#[test]
fn kept_keys_compute_as_the_default_provider() {
    const TEST: &str = "kept_keys_compute_as_the_default_provider";
    let Some(place) = Place::new(TEST) else { return };
    let modules = place.kept("same");
    run(TEST, "provider", &modules, &["4", "1300", "kept", "macs", "ciphers"]);
    run(TEST, "provider", &modules, &["4", "1", "kept", "lists", "misuse", "reasons", "threads", "forks", "loads"]);
}

#[test]
fn pipelines_of_kept_keys() {
    const TEST: &str = "provider_symmetric::pipelines_of_kept_keys";
    let Some(place) = Place::new("pipelines_of_kept_keys") else { return };
    let Some(program) = program(TEST, "provider") else { return };
    let done = place.kept("pipelines").run(&program, &["2", "200", "pipelines"]);
    if done.status == Some(77) {
        return skip(TEST, "OpenSSL before 3.5 has no pipelines");
    }
    assert_eq!(done.status, Some(0), "{}{}", done.text, done.errors);
}

#[test]
fn a_kept_key_is_not_in_the_programs_memory() {
    const TEST: &str = "a_kept_key_is_not_in_the_programs_memory";
    let Some(place) = Place::new(TEST) else { return };
    let found = |modules: &Modules| {
        let text = run(TEST, "provider_guarded", modules, &["search", "mem", "kept"])?;
        let line = text.lines().last().unwrap_or_default().to_owned();
        let words: Vec<&str> = line.split(' ').collect();
        let [places, "of", all, "keys", "found", ..] = words.as_slice() else { panic!("{text}") };
        assert!(all.parse::<usize>().unwrap() > 40, "{text}");
        Some((places.parse::<usize>().unwrap(), text))
    };
    // On the heap the search finds them, so that it is one.
    let Some((here, text)) = found(&place.modules("search", CIPHERS)) else { return };
    assert!(here > 30, "{text}");
    let (kept, text) = found(&place.kept("search")).unwrap();
    assert_eq!(kept, 0, "{text}");
}

#[test]
fn contexts_go_on_in_children_and_threads() {
    const TEST: &str = "contexts_go_on_in_children_and_threads";
    let Some(place) = Place::new(TEST) else { return };
    place.run(TEST, &place.kept("begun"), &["begun"]);
}

/// EVP_SKEY: by bytes and by name, wherever the program's own keys lie.
#[test]
fn opaque_keys() {
    const TEST: &str = "provider_symmetric::opaque_keys";
    let Some(place) = Place::new("opaque_keys") else { return };
    let Some(program) = program(TEST, "provider_keys") else { return };
    let guarded = place.modules("opaque-guarded", &format!("{CIPHERS}sealane-keys = guarded\n"));
    // A child has no guarded key of its parent's.
    let all = [(place.modules("opaque", CIPHERS), "opaque"), (place.kept("opaque"), "opaque-kept")];
    for (modules, what) in all {
        let done = modules.run(&program, &[&place.keeper.folder.display().to_string(), what]);
        if done.status == Some(77) {
            return skip(TEST, "OpenSSL before 3.5 has no opaque keys");
        }
        assert_eq!(done.status, Some(0), "{}{}", done.text, done.errors);
    }
    let listed = |modules: &Modules| {
        let done = modules.openssl(&["list", "-skey-managers", "-provider", "sealane"]);
        done.text.lines().filter(|line| line.ends_with("@ sealane")).count()
    };
    assert_eq!(listed(&guarded), 2);
    assert_eq!(listed(&place.modules("blocked", "sealane-block-operations = skeymgmt\n")), 0);
}

#[test]
fn tls_by_every_suite_has_kept_keys() {
    const TEST: &str = "tls_by_every_suite_has_kept_keys";
    let Some(place) = Place::new(TEST) else { return };
    let Some(text) = run(TEST, "provider_tls", &place.kept("tls"), &["kept"]) else { return };
    assert!(text.lines().count() >= 50, "{text}");
}

/// A program that encrypts for each line, and answers with how that went.
struct Talker {
    child: Child,
    from: BufReader<ChildStdout>,
}

impl Talker {
    fn new(place: &Place, test: &str, modules: &Modules) -> Option<Self> {
        let program = program(&format!("provider_symmetric::{test}"), "provider_keys")?;
        let mut command = modules.command(&program, &[&place.keeper.folder.display().to_string(), "symmetric"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let from = BufReader::new(child.stdout.take().unwrap());
        let mut talker = Talker { child, from };
        assert_eq!(talker.hear(), "ready");
        Some(talker)
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Each thing that it does, once.
    fn round(&mut self) -> [String; 4] {
        [(); 4].map(|()| {
            self.child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
            self.hear()
        })
    }
}

impl Drop for Talker {
    fn drop(&mut self) {
        let _ = end(&mut self.child);
    }
}

#[test]
fn a_keeper_that_is_killed_and_starts_again() {
    const TEST: &str = "a_keeper_that_is_killed_and_starts_again";
    let Some(mut place) = Place::new(TEST) else { return };
    let Some(mut talker) = Talker::new(&place, TEST, &place.kept("killed")) else { return };
    assert_eq!(talker.round(), ["done"; 4]);
    place.keeper.kill();
    let socket = format!("refused: sealane: keeper at {}", place.keeper.file("socket"));
    let refused = talker.round();
    assert!(refused.iter().all(|line| line.starts_with(&socket)), "{refused:?}");
    place.keeper.start();
    assert_eq!(talker.round(), ["done"; 4]);
    // Without a request in between, so that the connection is one to the keeper of before.
    place.keeper.kill();
    place.keeper.start();
    assert_eq!(talker.round(), ["done"; 4]);
    // The second one is by a key of the keeper's.
    place.key(&["revoke", "gcm"]);
    let [cbc, gcm, hmac, another] = talker.round();
    assert_eq!([cbc, hmac, another], ["done"; 3]);
    assert!(gcm.starts_with("refused: sealane: ") && gcm.contains("revoked"), "{gcm}");
}

#[test]
fn without_a_keeper_the_provider_is_not_loaded() {
    const TEST: &str = "without_a_keeper_the_provider_is_not_loaded";
    let Some(mut place) = Place::new(TEST) else { return };
    let list = |modules: &Modules| modules.openssl(&["list", "-providers", "-verbose"]);
    let modules = place.kept("load");
    let done = list(&modules);
    let socket = place.keeper.file("socket");
    assert!(done.text.contains(&format!("keys: in the keeper at {socket}\n")), "{}{}", done.text, done.errors);
    // Random numbers are drawn of the default provider, unless somebody names its ciphers.
    let plain = place.modules("plain", "sealane-keys = keeper\n");
    let listed = plain.openssl(&["list", "-cipher-algorithms", "-provider", "sealane"]);
    let has =
        |name: &str| listed.text.lines().any(|line| line.ends_with("@ sealane") && line.to_uppercase().contains(name));
    for (name, is_there) in
        [("AES-256-CTR", false), ("AES-256-ECB", false), ("AES-128-CTR", true), ("AES-256-GCM", true)]
    {
        assert_eq!(has(name), is_there, "{name}: {}", listed.text);
    }
    place.keeper.kill();
    let done = list(&modules);
    let why = format!("sealane: sealane-keys = keeper: keeper at {socket}: ");
    assert!(done.errors.starts_with(&why) && !done.text.contains("Sealane"), "{}{}", done.text, done.errors);
    // Whoever only might name a key of it loads.
    assert!(list(&place.modules("alone", "")).text.contains("Sealane provider"));
    let memory = place
        .modules("memory", "sealane-keys = keeper\nsealane-guarded-memory = 4M\n")
        .openssl(&["list", "-providers"]);
    let why = "sealane: sealane-guarded-memory = 4M: this memory is for sealane-keys = guarded";
    assert!(memory.errors.starts_with(why) && !memory.text.contains("Sealane"), "{}{}", memory.text, memory.errors);
}

#[test]
fn the_command_line_names_a_key() {
    const TEST: &str = "the_command_line_names_a_key";
    let Some(place) = Place::new(TEST) else { return };
    let text = place.keeper.file("text");
    fs::write(&text, "a message\n").unwrap();
    let hex: String =
        fs::read(place.keeper.file("hmac.key")).unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
    let mac = |modules: Option<&Modules>, key: &str| {
        let mut command = openssl();
        command.arg("mac");
        match modules {
            None => command.env("OPENSSL_CONF", "/dev/null"),
            Some(modules) => command
                .env("OPENSSL_CONF", modules.configuration())
                .env("OPENSSL_MODULES", modules.folder())
                .args(["-propquery", "provider=sealane"]),
        };
        command.args(["-in", &text, "-macopt", "digest:SHA256", "-macopt", key, "HMAC"]);
        run_limited(command, LIMIT).unwrap()
    };
    let theirs = mac(None, &format!("hexkey:{hex}"));
    let ours = mac(Some(&place.modules("mac", "")), "sealane-key:hmac");
    assert_eq!((theirs.status, ours.status), (Some(0), Some(0)), "{}{}", theirs.errors, ours.errors);
    assert_eq!(ours.text, theirs.text);
    assert_eq!(ours.text.trim().len(), 64);
}
