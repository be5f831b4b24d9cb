//! `sealane keeper` and `sealane key`: keys in a process of their own, as a user has them.

use sealane_conformance::keeper::{Place, in_memory};
use sealane_conformance::keyring;
use sealane_conformance::skip::{skip, skip_without};
use sealane_conformance::sys;
use sealane_conformance::target::{Outcome, Target, run_limited};
use sealane_crypto::aead::AeadTfm;
use sealane_crypto::data::Data;
use sealane_crypto::home::{KeepError, KeyHome};
use sealane_crypto::{Kind as CryptoKind, OpError};
use sealane_keeper_client::client::{Client, ClientError};
use sealane_keeper_client::home::KeeperHome;
use sealane_keeper_client::key::Name;
use sealane_keeper_client::message::{Answer, Code, Operation};
use sealane_keeper_client::pool::Manner;
use sealane_pkey::{Digest, Padding, Scheme};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use zeroize::Zeroizing;

const LIMIT: Duration = Duration::from_secs(60);

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
    place.signal("STOP");
    let hung = place.key(&["show", "a"]);
    place.signal("CONT");
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
    assert_eq!(place.end(), Some(0), "{}", place.log());
    assert!(!place.folder.join("socket").exists());
}

#[test]
fn other_users_learn_nothing_and_change_nothing() {
    if skip_without("keeper::other_users_learn_nothing_and_change_nothing", &[&Target::sealane("open")]) {
        return;
    }
    if !sealane_conformance::skip::is_root() {
        skip("keeper::other_users_learn_nothing_and_change_nothing", "it runs programs as another user");
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

/// Runs openssl in the folder, and wants it to succeed.
fn openssl(place: &Place, args: &str) -> Outcome {
    let mut command = Command::new("openssl");
    command.args(args.split_whitespace()).current_dir(&place.folder);
    let outcome = run_limited(command, LIMIT).unwrap();
    assert_eq!(outcome.status, Some(0), "openssl {args}: {outcome:?}");
    outcome
}

/// Whether a test with private keys cannot run.
fn skip_private(test: &str) -> bool {
    if skip_without(test, &[&Target::sealane("open")]) {
        return true;
    }
    let there = Command::new("openssl").arg("version").output().is_ok();
    if !there {
        skip(test, "there is no openssl");
    }
    !there
}

fn ask(place: &Place, operation: Operation) -> Result<Answer, ClientError> {
    Client::connect(&place.folder.join("socket")).and_then(|mut client| client.ask(operation))
}

fn sign(place: &Place, name: &str, version: u32, scheme: Scheme, text: &[u8]) -> Result<Vec<u8>, Option<Code>> {
    let name = Name::new(name).unwrap();
    match ask(place, Operation::Sign { name, version, scheme, text: Zeroizing::new(text.to_vec()) }) {
        Ok(Answer::Signature { signature, .. }) => Ok(signature),
        Err(ClientError::Refused(refusal)) => Err(Some(refusal.code)),
        _ => Err(None),
    }
}

/// Has openssl check signatures by a key of each scheme that is for it, and by no other.
fn verify(place: &Place, name: &str, version: u32, public: &str) {
    let digest = [7; 32];
    fs::write(place.folder.join("digest"), digest).unwrap();
    fs::write(place.folder.join("md5-sha1"), [7; 36]).unwrap();
    let pss = |salt_len| Scheme::RsaPss { digest: Digest::Sha256, mgf1: Digest::Sha384, salt_len };
    let rsa_pss =
        "-pkeyopt digest:sha256 -pkeyopt rsa_padding_mode:pss -pkeyopt rsa_mgf1_md:sha384 -pkeyopt rsa_pss_saltlen:";
    let schemes = [
        ("rsa", Scheme::RsaPkcs1(Digest::Sha256), &digest[..], "digest", "-pkeyopt digest:sha256".to_owned()),
        ("rsa", Scheme::RsaPkcs1Md5Sha1, &[7; 36], "md5-sha1", "-pkeyopt digest:md5-sha1".to_owned()),
        ("rsa", pss(32), &digest, "digest", format!("{rsa_pss}32")),
        ("rsa", pss(0), &digest, "digest", format!("{rsa_pss}0")),
        ("ec-", Scheme::Ecdsa, &digest, "digest", String::new()),
        ("ed2", Scheme::Ed25519, &digest, "digest", "-rawin".to_owned()),
    ];
    let mut done = 0;
    for (of, scheme, text, file, options) in schemes {
        let signature = sign(place, name, version, scheme, text);
        if !name.starts_with(of) {
            assert_eq!(signature, Err(Some(Code::Parameter)), "{name} {scheme:?}");
            continue;
        }
        fs::write(place.folder.join("signature"), signature.unwrap()).unwrap();
        openssl(place, &format!("pkeyutl -verify -pubin -inkey {public} -in {file} -sigfile signature {options}"));
        done += 1;
    }
    assert!(done > 0, "{name}");
}

#[test]
fn private_keys_sign_what_openssl_verifies_also_after_a_restart() {
    let test = "keeper::private_keys_sign_what_openssl_verifies_also_after_a_restart";
    if skip_private(test) {
        return;
    }
    let mut place = Place::new("private");
    place.start();
    let names = ["rsa-2048", "rsa-3072", "ec-p256", "ec-p384", "ed25519"];
    let public = |place: &Place, name: &str, file: &str, args: &[&str]| {
        let shown = place.key(&[&["public", name], args].concat());
        assert_eq!(shown.status, Some(0), "{shown:?}");
        fs::write(place.folder.join(file), &shown.text).unwrap();
        openssl(place, &format!("pkey -pubin -in {file} -noout"));
    };
    for name in names {
        let made = place.key(&["generate", name, "--algorithm", name]);
        assert_eq!((made.status, made.text), (Some(0), format!("{name}: version 1\n")), "{}", made.errors);
        public(&place, name, &format!("{name}.1"), &[]);
        verify(&place, name, 0, &format!("{name}.1"));
    }
    // All of its threads are confined.
    let pid = place.process();
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        assert!(status.lines().any(|line| line.split_whitespace().eq(["Seccomp:", "2"])), "{status}");
    }
    place.kill();
    place.start();
    for name in names {
        verify(&place, name, 0, &format!("{name}.1"));
        // A server that has loaded its certificate before goes on with the former version.
        assert_eq!(place.key(&["rotate", name]).status, Some(0), "{}", place.log());
        public(&place, name, &format!("{name}.2"), &[]);
        verify(&place, name, 2, &format!("{name}.2"));
        verify(&place, name, 1, &format!("{name}.1"));
        public(&place, name, "again", &["--only", "1"]);
        let former = fs::read(place.folder.join(format!("{name}.1"))).unwrap();
        assert_eq!(fs::read(place.folder.join("again")).unwrap(), former);
        assert_eq!(place.key(&["revoke", name, "--only", "1"]).status, Some(0));
        assert_eq!(sign(&place, name, 1, Scheme::Ecdsa, &[7; 32]), Err(Some(Code::Revoked)));
        verify(&place, name, 0, &format!("{name}.2"));
    }
    let shown = place.key(&["show", "rsa-2048"]);
    assert!(shown.text.starts_with("rsa-2048: private rsa-2048, for: decrypt, sign\n"), "{shown:?}");
    let log = place.log();
    assert!(log.contains("sign 'ed25519'") && log.contains("public 'ec-p256'"), "{log}");
}

#[test]
fn private_keys_are_imported_from_what_openssl_writes() {
    let test = "keeper::private_keys_are_imported_from_what_openssl_writes";
    if skip_private(test) {
        return;
    }
    let mut place = Place::new("import");
    place.start();
    openssl(
        &place,
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=a -keyout key -out certificate",
    );
    openssl(&place, "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:4096 -out rsa-pkcs8.pem");
    openssl(&place, "rsa -in rsa-pkcs8.pem -traditional -out rsa-pkcs1.pem");
    openssl(&place, "genpkey -algorithm ED25519 -outform DER -out ed25519.der");
    openssl(&place, "ecparam -name secp384r1 -genkey -out ec-sec1.pem");
    let read = |name: &str| fs::read_to_string(place.folder.join(name)).unwrap();
    fs::write(place.folder.join("ec-behind.pem"), read("certificate") + &read("certificate") + &read("key")).unwrap();
    let path = |name: &str| place.folder.join(name).display().to_string();
    for (file, algorithm) in [
        ("rsa-pkcs8.pem", "rsa-4096"),
        ("rsa-pkcs1.pem", "rsa-4096"),
        ("ed25519.der", "ed25519"),
        ("ec-sec1.pem", "ec-p384"),
        ("ec-behind.pem", "ec-p256"),
    ] {
        // The name begins as its algorithm does.
        let imported = place.key(&["import", file, "--file", &path(file)]);
        assert_eq!(imported.status, Some(0), "{file}: {imported:?}");
        let shown = place.key(&["show", file]);
        assert!(shown.text.contains(&format!("private {algorithm}, for:")), "{shown:?}");
        let form = if file.ends_with("der") { "DER" } else { "PEM" };
        let public = openssl(&place, &format!("pkey -inform {form} -in {file} -pubout")).text;
        assert_eq!(place.key(&["public", file]).text, public);
        fs::write(place.folder.join("public"), public).unwrap();
        verify(&place, file, 0, "public");
    }
    let secret = fs::read(place.folder.join("ed25519.der")).unwrap();
    assert!(!contains(&place.folder.join("keys"), &secret[16..]));

    openssl(&place, "pkey -in key -aes256 -passout pass:secret -out encrypted.pem");
    openssl(&place, "rsa -in rsa-pkcs8.pem -traditional -aes128 -passout pass:secret -out encrypted-old.pem");
    openssl(&place, "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:1024 -out small.pem");
    openssl(&place, "genpkey -algorithm X25519 -out other.pem");
    fs::write(place.folder.join("two.pem"), read("key") + &read("ec-sec1.pem")).unwrap();
    for (file, why) in [
        ("encrypted.pem", "is encrypted"),
        ("encrypted-old.pem", "is encrypted"),
        ("small.pem", "1024 bits"),
        ("other.pem", "neither RSA"),
        ("two.pem", "more than one private key"),
        ("certificate", "'CERTIFICATE'"),
        ("passphrase", "no private key"),
    ] {
        let refused = place.key(&["import", "refused", "--file", &path(file)]);
        assert!(refused.status == Some(2) && refused.errors.contains(why), "{file}: {refused:?}");
        assert!(refused.errors.contains(&path(file)), "{refused:?}");
    }
    let refused = place.key(&["import", "refused", "--algorithm", "ec-p256", "--file", &path("ec-sec1.pem")]);
    assert!(refused.status == Some(2) && refused.errors.contains("is ec-p384, not ec-p256"), "{refused:?}");
    // A version of another algorithm is none of this key's.
    let refused = place.key(&["rotate", "ed25519.der", "--file", &path("key")]);
    assert!(refused.status == Some(2) && refused.errors.contains("is ec-p256, not ed25519"), "{refused:?}");
    assert_eq!(place.key(&["rotate", "ec-behind.pem", "--file", &path("key")]).status, Some(0));
}

#[test]
fn an_rsa_key_decrypts_what_openssl_encrypts_and_tells_nothing_else() {
    let test = "keeper::an_rsa_key_decrypts_what_openssl_encrypts_and_tells_nothing_else";
    if skip_private(test) {
        return;
    }
    let mut place = Place::new("decrypt");
    place.start();
    for (name, uses) in [("k", "decrypt"), ("signs", "sign")] {
        let made = place.key(&["generate", name, "--algorithm", "rsa-2048", "--uses", uses]);
        assert_eq!(made.status, Some(0), "{made:?}");
    }
    fs::write(place.folder.join("public"), place.key(&["public", "k"]).text).unwrap();
    fs::write(place.folder.join("text"), "a text").unwrap();
    let decrypt = |name: &str, padding: &Padding, text: &[u8]| {
        let name = Name::new(name).unwrap();
        match ask(&place, Operation::Decrypt { name, version: 0, padding: padding.clone(), text: text.to_vec() }) {
            Ok(Answer::Opened(text)) => Ok(text.to_vec()),
            Err(ClientError::Refused(refusal)) => Err(Some(refusal.code)),
            _ => Err(None),
        }
    };
    let oaep = Padding::Oaep { digest: Digest::Sha256, mgf1: Digest::Sha1, label: b"label".to_vec() };
    let options = "-pkeyopt rsa_padding_mode:oaep -pkeyopt rsa_oaep_md:sha256 -pkeyopt rsa_mgf1_md:sha1 \
                   -pkeyopt rsa_oaep_label:6c6162656c";
    for (padding, options, wrong) in [(&Padding::Pkcs1, "", None), (&oaep, options, Some(Code::Auth))] {
        openssl(&place, &format!("pkeyutl -encrypt -pubin -inkey public -in text -out sealed {options}"));
        let mut sealed = fs::read(place.folder.join("sealed")).unwrap();
        assert_eq!(decrypt("k", padding, &sealed), Ok(b"a text".to_vec()));
        assert_eq!(decrypt("signs", padding, &sealed), Err(Some(Code::Use)));
        sealed[255] ^= 1;
        match wrong {
            Some(code) => assert_eq!(decrypt("k", padding, &sealed), Err(Some(code))),
            None => assert!(decrypt("k", padding, &sealed).is_ok_and(|text| text != b"a text")),
        }
    }
    let log = place.log();
    assert!(!log.contains("decrypt 'k' refused: driver") && !log.contains("padding"), "{log}");
    if !sealane_conformance::skip::is_root() {
        skip(test, "its last part runs programs as another user");
        return;
    }
    let hidden = place.key_as(Some(65534), &["public", "k"]);
    assert!(hidden.status == Some(1) && hidden.text.is_empty(), "{hidden:?}");
}

#[test]
fn a_revoked_private_key_is_gone_from_memory() {
    let test = "keeper::a_revoked_private_key_is_gone_from_memory";
    if skip_private(test) {
        return;
    }
    if !sealane_conformance::skip::is_root() {
        skip(test, "only root reads the keeper's memory");
        return;
    }
    let mut place = Place::new("memory");
    place.start();
    let pid = place.process();
    openssl(&place, "genpkey -algorithm ED25519 -outform DER -out key.der");
    let der = fs::read(place.folder.join("key.der")).unwrap();
    let seed = &der[der.len() - 32..];
    let file = place.folder.join("key.der").display().to_string();
    assert_eq!(place.key(&["import", "k", "--file", &file]).status, Some(0));
    assert!(sign(&place, "k", 0, Scheme::Ed25519, b"text").is_ok());
    assert!(in_memory(pid, seed) > 0);
    assert_eq!(place.key(&["revoke", "k"]).status, Some(0));
    assert_eq!(in_memory(pid, seed), 0);
}

#[test]
fn keys_of_programs_live_in_the_confined_keeper_and_outlive_it() {
    let test = "keeper::keys_of_programs_live_in_the_confined_keeper_and_outlive_it";
    if skip_without(test, &[&Target::sealane("open")]) {
        return;
    }
    let mut place = Place::new("programs");
    place.start();
    let home = KeeperHome::new(place.folder.join("socket"), Manner::default());
    let registry = sealane_drivers::system_registry().0;
    let local = registry.lookup(CryptoKind::Aead, "gcm(aes)").unwrap();
    let secret: Vec<u8> = (100..116).collect();
    let reference = home.keep(local.info(), &secret).unwrap();
    assert!(!reference.windows(16).any(|window| window == secret));
    let tfms = [local.aead(&secret).unwrap(), home.adopt(&local).unwrap().aead(&reference).unwrap()];
    let sealed = |tfm: &AeadTfm, len: usize| {
        let (mut text, mut tag) = (vec![1; len], [0; 16]);
        tfm.seal(&[2; 12], &[b"associated"], Data::from(&mut text[..]), &mut tag).map(|()| (text, tag))
    };
    // The longer reply needs more room than a socket has as the kernel makes it.
    for len in [0, 1000, 2000, 250_000] {
        assert!(sealed(&tfms[0], len).unwrap() == sealed(&tfms[1], len).unwrap(), "{len} bytes: {}", place.log());
    }
    // What comes often and is short goes through shared memory.
    assert!(fs::read_to_string("/proc/self/maps").unwrap().contains("sealane-slots"), "{}", place.log());
    let composed = "authenc(hmac(sha256),cbc(aes))";
    let alg = registry.lookup(CryptoKind::Aead, composed).unwrap();
    let key = [&[8, 0, 1, 0, 0, 0, 0, 16][..], &[3; 32], &[4; 16]].concat();
    assert!(alg.aead(&key).is_ok() && home.keep(alg.info(), &key).is_ok(), "{composed}: {}", place.log());
    place.kill();
    assert_eq!(sealed(&tfms[1], 1000), Err(OpError::Driver));
    place.start();
    assert!(sealed(&tfms[0], 1000).unwrap() == sealed(&tfms[1], 1000).unwrap(), "{}", place.log());
    let log = place.log();
    assert!(log.contains(": wrap") && log.contains(": seal-wrapped"), "{log}");
    assert!(
        !contains(&place.folder, &secret) && !contains(&place.folder.join("keys"), &secret),
        "the key is in a file"
    );
    // Nothing of it counts any more where the configuration says so.
    place.kill();
    let config = place.folder.join("keeper.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{text}wrapped-keys = false\n")).unwrap();
    place.start();
    assert_eq!(sealed(&tfms[1], 1000), Err(OpError::Driver));
    match home.keep(local.info(), &secret) {
        Err(KeepError::Denied(text)) => assert!(text.contains("wrapped-keys"), "{text}"),
        other => panic!("{:?}", other.err()),
    }
}

/// The tag that a key of the keeper's gives.
fn tag(place: &Place, name: &str) -> Vec<u8> {
    let operation = Operation::Mac { name: Name::new(name).unwrap(), text: Zeroizing::new(b"a text".to_vec()) };
    match ask(place, operation).unwrap() {
        Answer::Tag { tag, .. } => tag,
        _ => panic!("another answer"),
    }
}

#[test]
fn secrets_come_from_the_kernel_s_keyrings() {
    let test = "keeper::secrets_come_from_the_kernel_s_keyrings";
    if skip_private(test) {
        return;
    }
    if keyring::join_session().is_err() {
        return skip(test, "no keyrings here");
    }
    let mut place = Place::without_store("keyring");
    place.start();
    let secret: Vec<u8> = (0..32).map(|i| i * 7 + 1).collect();
    let user = |payload: &[u8]| keyring::add(c"user", c"sealane-test", payload).unwrap();
    let done = import(&place, "a", user(&secret));
    assert_eq!((done.status, done.text.as_str()), (Some(0), "a: version 1\n"), "{done:?}");
    fs::write(place.file("secret"), &secret).unwrap();
    let of_file = ["import", "b", "--algorithm", "hmac(sha256)", "--file", &place.file("secret")];
    assert_eq!(place.key(&of_file).status, Some(0));
    assert_eq!(tag(&place, "a"), tag(&place, "b"));
    // Another secret for the same key.
    let rotated = place.key(&["rotate", "a", "--keyring", &user(&[9; 20]).to_string()]);
    assert_eq!((rotated.status, rotated.text.as_str()), (Some(0), "a: version 2\n"), "{rotated:?}");
    assert_ne!(tag(&place, "a"), tag(&place, "b"));

    // A private key, in PEM, is longer than a symmetric one may be.
    openssl(&place, "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out private");
    let pem = fs::read(place.folder.join("private")).unwrap();
    let done = place.key(&["import", "web", "--keyring", &user(&pem).to_string()]);
    assert_eq!(done.status, Some(0), "{done:?}");
    openssl(&place, "pkey -in private -pubout -out public");
    assert_eq!(place.key(&["public", "web"]).text.into_bytes(), fs::read(place.folder.join("public")).unwrap());

    let revoked = keyring::add(c"user", c"sealane-revoked", &secret).unwrap();
    sys::revoke_key(revoked).unwrap();
    let logon = keyring::add(c"logon", c"sealane:test", &secret).unwrap();
    let keyring = keyring::add(c"keyring", c"sealane-test", &[]).unwrap();
    let refused = [
        (logon, SEALED),
        (keyring, "keys of its type are not taken"),
        (revoked, "revoked"),
        (0x7123_4567, "not available"),
        (user(&[1; 1025]), "more than 1024 bytes"),
    ];
    for (serial, why) in refused {
        is_refused(&place, serial, why);
    }
}

/// The kernel would give what it has sealed, which anybody may see.
#[test]
fn keys_that_the_kernel_seals_are_no_secrets() {
    let test = "keeper::keys_that_the_kernel_seals_are_no_secrets";
    if skip_without(test, &[&Target::sealane("open")]) {
        return;
    }
    let of = |ty, name, payload: &[u8]| keyring::add(ty, name, payload);
    let made = keyring::join_session()
        .and_then(|_| of(c"user", c"sealane-master", &[5; 32]))
        .and_then(|_| of(c"encrypted", c"sealane-sealed", b"new user:sealane-master 32"));
    let Ok(sealed) = made else { return skip(test, "no keyrings here, or none of this type") };
    let mut place = Place::without_store("sealed");
    place.start();
    is_refused(&place, sealed, SEALED);
}

/// The words about a key whose payload no program can have.
const SEALED: &str = "no program can read its payload";

fn import(place: &Place, name: &str, serial: i64) -> Outcome {
    place.key(&["import", name, "--algorithm", "hmac(sha256)", "--keyring", &serial.to_string()])
}

/// Asserts that a key of the kernel's keyrings is not imported, for this reason.
fn is_refused(place: &Place, serial: i64, why: &str) {
    let done = import(place, "c", serial);
    assert!(done.status == Some(2) && done.errors.contains(why), "{why}: {done:?}");
    assert!(done.errors.contains(&format!("key {serial} of the kernel's keyrings")), "{done:?}");
    assert_eq!(place.key(&["show", "c"]).status, Some(1), "{why}");
}
