//! Private keys by the OpenSSL provider: `sealane://NAME` is a key of `sealane keeper`.
//!
//! OpenSSL's command line and libssl are users of it, and OpenSSL's default provider, which has the same keys from files, checks
//! what comes out. This machine's OpenSSL runs, or another one (see `provider.rs`).

use crate::provider::{Modules, openssl, program};
use sealane_conformance::keeper::{self, in_memory};
use sealane_conformance::skip::{is_root, skip, skip_without};
use sealane_conformance::target::{Outcome, Target, end, run_limited, sealane};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(100);

/// Names of keys, and the arguments by which `openssl genpkey` makes them.
const KEYS: [(&str, &[&str]); 4] = [
    ("rsa", &["RSA", "-pkeyopt", "rsa_keygen_bits:2048"]),
    ("ec", &["EC", "-pkeyopt", "ec_paramgen_curve:P-256"]),
    ("ec384", &["EC", "-pkeyopt", "ec_paramgen_curve:P-384"]),
    ("ed", &["ED25519"]),
];

/// A keeper with keys that are in files, too, and a configuration of OpenSSL that leads to it.
struct Place {
    keeper: keeper::Place,
    modules: Modules,
}

impl Deref for Place {
    type Target = keeper::Place;

    fn deref(&self) -> &keeper::Place {
        &self.keeper
    }
}

impl DerefMut for Place {
    fn deref_mut(&mut self) -> &mut keeper::Place {
        &mut self.keeper
    }
}

impl Place {
    /// Starts a keeper; `None`, with the reason, where this cannot be tried.
    fn new(test: &str) -> Option<Self> {
        let full = format!("provider_keys::{test}");
        if skip_without(&full, &[&Target::sealane("open")]) {
            return None;
        }
        if openssl().arg("version").output().is_err() {
            skip(&full, "no openssl");
            return None;
        }
        let mut keeper = keeper::Place::new(&format!("provider-{test}"));
        let modules = Modules::with_lines(
            &format!("keys-{test}"),
            "alg_section = algs\n[algs]\ndefault_properties = ?provider=sealane\n",
            &format!("activate = 1\nsealane-keeper = {}\n", keeper.file("socket")),
        );
        keeper.start();
        let place = Place { keeper, modules };
        for (name, arguments) in KEYS {
            let file = place.file(&format!("{name}.pem"));
            // By OpenSSL's default provider alone, though the configuration prefers ours.
            let made = place.openssl(&[&["genpkey", "-out", &file, "-algorithm"], arguments].concat());
            assert_eq!(made.status, Some(0), "{name}: {}", made.errors);
            let kept = place.key(&["import", name, "--file", &file]);
            assert_eq!(kept.status, Some(0), "{name}: {kept:?}");
            let public = place.plain(&["pkey", "-in", &file, "-pubout", "-out", &place.file(&format!("{name}.pub"))]);
            assert_eq!(public.status, Some(0), "{name}: {}", public.errors);
        }
        Some(place)
    }

    /// OpenSSL's command line with our configuration.
    fn openssl(&self, arguments: &[&str]) -> Outcome {
        self.modules.openssl(arguments)
    }

    /// OpenSSL's command line without us.
    fn plain(&self, arguments: &[&str]) -> Outcome {
        let mut command = openssl();
        command.args(arguments).env("OPENSSL_CONF", "/dev/null");
        run_limited(command, LIMIT).unwrap()
    }

    /// Runs OpenSSL's command line with our configuration, which has to succeed.
    fn ours(&self, arguments: &[&str]) -> Outcome {
        let done = self.openssl(arguments);
        assert_eq!(done.status, Some(0), "openssl {arguments:?}: {}{}", done.text, done.errors);
        done
    }

    /// Runs OpenSSL's command line without us, which has to succeed.
    fn theirs(&self, arguments: &[&str]) -> Outcome {
        let done = self.plain(arguments);
        assert_eq!(done.status, Some(0), "openssl {arguments:?}, alone: {}{}", done.text, done.errors);
        done
    }

    /// A certificate of a key, signed by itself through us.
    fn certificate(&self, name: &str) -> String {
        let file = self.file(&format!("{name}.crt"));
        let (key, subject) = (format!("sealane://{name}"), format!("/CN={name}"));
        self.ours(&["req", "-x509", "-key", &key, "-subj", &subject, "-days", "10", "-out", &file]);
        file
    }

    /// A server of TLS on a Unix socket, which has the key from a URI or a file.
    fn server(&self, key: &str, certificate: &str, more: &[&str]) -> Server {
        // OpenSSL 3.0 has room for 31 bytes where it prints the path.
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("sl{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let socket = std::env::temp_dir().join(name).display().to_string();
        let log = self.file("server");
        let mut command = openssl();
        command.args(["s_server", "-unix", &socket, "-www", "-key", key, "-cert", certificate]).args(more);
        command.env("OPENSSL_CONF", self.modules.configuration()).env("OPENSSL_MODULES", self.modules.folder());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap()).process_group(0);
        let server = Server { child: command.spawn().unwrap(), socket, log };
        let since = Instant::now();
        while std::os::unix::net::UnixStream::connect(&server.socket).is_err() {
            assert!(since.elapsed() < LIMIT, "no server: {}", server.errors());
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }

    /// A client of TLS without us, or with us: what it and the server say of their session.
    fn client(&self, with_us: bool, server: &Server, more: &[&str]) -> Outcome {
        let mut command = Command::new("sh");
        command.args(["-c", "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | \"$@\"", "sh"]);
        command.arg(openssl().get_program()).args([
            "s_client",
            "-unix",
            &server.socket,
            "-ign_eof",
            "-verify_return_error",
        ]);
        command.args(more);
        if with_us {
            command.env("OPENSSL_CONF", self.modules.configuration()).env("OPENSSL_MODULES", self.modules.folder());
        } else {
            command.env("OPENSSL_CONF", "/dev/null");
        }
        run_limited(command, LIMIT).unwrap()
    }

    /// A client of TLS, which has to succeed and to say `what`.
    fn talk(&self, server: &Server, more: &[&str], what: &[&str]) {
        let done = self.client(false, server, more);
        let says = what.iter().all(|what| done.text.contains(what));
        assert!(
            done.status == Some(0) && done.text.contains("HTTP/1.0 200") && says,
            "{more:?}, {what:?}: {}{}{}",
            done.text,
            done.errors,
            server.errors()
        );
    }

    /// Runs parts of the C program.
    fn program(&self, test: &str, what: &[&str]) {
        self.program_with(&self.modules, test, what);
    }

    /// A configuration that connects when the provider is loaded.
    fn at_load(&self, test: &str) -> Modules {
        let section = format!("sealane-keeper = {}\nsealane-keeper-connect = load\n", self.file("socket"));
        Modules::new(&format!("keys-load-{test}"), &section)
    }

    /// Runs parts of the C program with another configuration.
    fn program_with(&self, modules: &Modules, test: &str, what: &[&str]) {
        let Some(program) = program(&format!("provider_keys::{test}"), "provider_keys") else { return };
        let folder = self.folder.display().to_string();
        let done = modules.run(&program, &[&[folder.as_str()], what].concat());
        assert_eq!(done.status, Some(0), "{}{}", done.text, done.errors);
        assert_eq!(done.text.lines().filter(|line| line.ends_with(" ok")).count(), what.len(), "{}", done.text);
    }

    /// A part of the C program that reads lines.
    fn talker(&self, test: &str, what: &str) -> Option<Talker> {
        let program = program(&format!("provider_keys::{test}"), "provider_keys")?;
        let mut command = self.modules.command(&program, &[&self.folder.display().to_string(), what]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut talker = Talker { child, to: Some(to), from };
        assert_eq!(talker.hear(), "ready");
        Some(talker)
    }
}

struct Server {
    child: Child,
    socket: String,
    log: String,
}

impl Server {
    fn errors(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = end(&mut self.child);
        let _ = fs::remove_file(&self.socket);
    }
}

/// A program that does something for each line, and answers with one.
struct Talker {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Talker {
    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn ask(&mut self) -> String {
        self.to.as_mut().unwrap().write_all(b"go\n").unwrap();
        self.hear()
    }

    /// Lets it end, which it has to do well.
    fn finish(mut self, what: &str) {
        drop(self.to.take());
        assert_eq!(self.hear(), format!("{what} ok"));
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Talker {
    fn drop(&mut self) {
        let _ = end(&mut self.child);
    }
}

#[test]
fn certificates_and_messages_are_signed() {
    let Some(place) = Place::new("certificates_and_messages_are_signed") else { return };
    let (text, signature) = (place.file("text"), place.file("signature"));
    fs::write(&text, "a message\n").unwrap();
    for (name, _) in KEYS {
        let (key, pem) = (format!("sealane://{name}"), place.file(&format!("{name}.pem")));
        let public = place.ours(&["pkey", "-in", &key, "-pubout"]).text;
        assert_eq!(public, fs::read_to_string(place.file(&format!("{name}.pub"))).unwrap());
        let certificate = place.certificate(name);
        for run in [Place::theirs, Place::ours] {
            let done = run(&place, &["verify", "-check_ss_sig", "-CAfile", &certificate, &certificate]);
            assert!(done.text.ends_with(": OK\n"), "{}", done.text);
        }
        let request = place.file("request");
        place.ours(&["req", "-new", "-key", &key, "-subj", "/CN=request", "-out", &request]);
        place.theirs(&["req", "-verify", "-noout", "-in", &request]);
        // Issued by a key of ours for a file's.
        // OpenSSL 4.0 takes the first lines of the configuration for extensions otherwise.
        let issue = ["x509", "-req", "-extfile", "/dev/null", "-in", &request, "-CA", &certificate, "-CAkey", &key];
        let issued = place.ours(&issue).text;
        assert!(issued.starts_with("-----BEGIN CERTIFICATE-----"), "{issued}");
        place.ours(&["pkey", "-in", &key, "-check", "-pubcheck", "-noout"]);
        // Nobody gets the private part.
        let secret = place.openssl(&["pkey", "-in", &key]);
        assert!(secret.status != Some(0) && !secret.text.contains("PRIVATE"), "{}", secret.text);

        let (sign, check): (&[&str], &[&str]) = if name == "ed" {
            let raw = ["pkeyutl", "-rawin", "-in", &text];
            (
                &[&raw[..], &["-sign", "-out", &signature, "-inkey"]].concat(),
                &[&raw[..], &["-verify", "-sigfile", &signature, "-inkey"]].concat(),
            )
        } else {
            (
                &["dgst", "-sha384", "-out", &signature, "-sign"],
                &["dgst", "-sha384", "-signature", &signature, "-prverify"],
            )
        };
        let with = |arguments: &[&str], key: &str| -> Vec<String> {
            let mut all: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
            all.push(key.to_owned());
            if name != "ed" {
                all.push(text.clone());
            }
            all
        };
        let run = |run: fn(&Place, &[&str]) -> Outcome, all: &[String]| {
            run(&place, &all.iter().map(String::as_str).collect::<Vec<_>>())
        };
        run(Place::ours, &with(sign, &key));
        run(Place::theirs, &with(check, &pem));
        run(Place::ours, &with(check, &key));
        // A signature of the file's key is one of ours.
        run(Place::theirs, &with(sign, &pem));
        run(Place::ours, &with(check, &key));
        fs::write(&text, "another message\n").unwrap();
        assert_ne!(run(Place::openssl, &with(check, &key)).status, Some(0), "{name}: of another message");
        fs::write(&text, "a message\n").unwrap();
    }
}

#[test]
fn rsa_has_the_paddings_and_digests_of_the_default_provider() {
    let Some(place) = Place::new("rsa_has_the_paddings_and_digests_of_the_default_provider") else { return };
    let (text, signature, pem) = (place.file("text"), place.file("signature"), place.file("rsa.pem"));
    fs::write(&text, "a message\n").unwrap();
    let pss = ["-sigopt", "rsa_padding_mode:pss"];
    for options in [
        &[][..],
        &pss,
        &[&pss[..], &["-sigopt", "rsa_pss_saltlen:digest"]].concat(),
        &[&pss[..], &["-sigopt", "rsa_pss_saltlen:max"]].concat(),
        &[&pss[..], &["-sigopt", "rsa_pss_saltlen:0"]].concat(),
        &[&pss[..], &["-sigopt", "rsa_pss_saltlen:17", "-sigopt", "rsa_mgf1_md:sha1"]].concat(),
    ] {
        for digest in ["-sha1", "-sha224", "-sha256", "-sha384", "-sha512"] {
            place.ours(&[&["dgst", digest], options, &["-sign", "sealane://rsa", "-out", &signature, &text]].concat());
            for (run, key) in
                [(Place::theirs as fn(&Place, &[&str]) -> Outcome, pem.as_str()), (Place::ours, "sealane://rsa")]
            {
                let verified = ["-prverify", key, "-signature", &signature, &text];
                run(&place, &[&["dgst", digest], options, &verified].concat());
            }
        }
        // The identifier of the algorithm in a certificate is that of the default provider.
        let certificate = |run: fn(&Place, &[&str]) -> Outcome, key: &str| {
            let file = place.file("identifier");
            run(&place, &[&["req", "-x509", "-subj", "/CN=x", "-out", &file, "-key", key], options].concat());
            let shown = place.theirs(&["x509", "-in", &file, "-noout", "-text"]).text;
            let from = shown.find("    Signature Algorithm").expect("an algorithm");
            shown[from..].split("Validity").next().unwrap_or_default().to_owned()
        };
        assert_eq!(certificate(Place::ours, "sealane://rsa"), certificate(Place::theirs, &pem), "{options:?}");
    }
    for (options, why) in [
        (&[&pss[..], &["-sigopt", "rsa_pss_saltlen:300"]].concat()[..], "the longest salt has 222 bytes"),
        (&["-sigopt", "rsa_padding_mode:x931"], "the keeper signs with the paddings pkcs1 and pss"),
        (&["-sigopt", "rsa_padding_mode:none"], "the keeper signs with the paddings pkcs1 and pss"),
    ] {
        let refused = place
            .openssl(&[&["dgst", "-sha256"], options, &["-sign", "sealane://rsa", "-out", &signature, &text]].concat());
        assert!(refused.status != Some(0) && refused.errors.contains(why), "{options:?}: {}", refused.errors);
    }
    // Digests that are not made here, and without a name PSS takes SHA-1's.
    for (name, len, options) in [
        ("rsa", 20, &["-pkeyopt", "rsa_padding_mode:pss"][..]),
        ("rsa", 48, &["-pkeyopt", "rsa_padding_mode:pss", "-pkeyopt", "digest:sha384"]),
        ("rsa", 32, &["-pkeyopt", "digest:sha256"]),
        ("ec", 32, &[]),
        ("ec384", 20, &[]),
    ] {
        fs::write(&text, vec![7; len]).unwrap();
        let (key, pem) = (format!("sealane://{name}"), place.file(&format!("{name}.pem")));
        let input = ["-in", &text];
        for (sign, by, verify, with) in [
            (
                Place::ours as fn(&Place, &[&str]) -> Outcome,
                &key,
                Place::theirs as fn(&Place, &[&str]) -> Outcome,
                &pem,
            ),
            (Place::theirs, &pem, Place::ours, &key),
        ] {
            sign(&place, &[&["pkeyutl", "-sign", "-inkey", by, "-out", &signature], &input[..], options].concat());
            let verified = ["pkeyutl", "-verify", "-inkey", with, "-sigfile", &signature];
            verify(&place, &[&verified, &input[..], options].concat());
        }
        fs::write(&text, vec![7; 33]).unwrap();
        let long = [&["pkeyutl", "-sign", "-inkey", &key, "-out", &signature], &input[..], options].concat();
        assert_eq!(name == "rsa", place.openssl(&long).status != Some(0), "{name}: a digest of another length");
    }
    let md5 = place.openssl(&["dgst", "-md5", "-sign", "sealane://rsa", "-out", &signature, &text]);
    assert!(
        md5.status != Some(0) && md5.errors.to_lowercase().contains("the keeper signs no digest of md5"),
        "{}",
        md5.errors
    );
    let raw = place.openssl(&["pkeyutl", "-sign", "-inkey", "sealane://rsa", "-in", &text]);
    assert!(
        raw.status != Some(0) && raw.errors.contains("the keeper signs with RSA what has a digest"),
        "{}",
        raw.errors
    );
}

#[test]
fn mail_is_signed_and_decrypted() {
    let Some(place) = Place::new("mail_is_signed_and_decrypted") else { return };
    let (text, mail, opened) = (place.file("text"), place.file("mail"), place.file("opened"));
    fs::write(&text, "a message\r\n").unwrap();
    for (name, options) in
        [("rsa", &[][..]), ("rsa", &["-keyopt", "rsa_padding_mode:pss"]), ("ec", &[]), ("ec384", &["-md", "sha384"])]
    {
        let (key, certificate) = (format!("sealane://{name}"), place.certificate(name));
        let signed = ["cms", "-sign", "-in", &text, "-out", &mail, "-signer", &certificate, "-inkey", &key];
        place.ours(&[&signed[..], options].concat());
        place.theirs(&["cms", "-verify", "-in", &mail, "-CAfile", &certificate, "-out", &opened]);
        assert_eq!(fs::read(&opened).unwrap(), fs::read(&text).unwrap());
    }
    let certificate = place.certificate("rsa");
    let oaep = ["-keyopt", "rsa_padding_mode:oaep"];
    for options in
        [&[][..], &oaep, &[&oaep[..], &["-keyopt", "rsa_oaep_md:sha256", "-keyopt", "rsa_mgf1_md:sha1"]].concat()]
    {
        let sealed = ["cms", "-encrypt", "-in", &text, "-out", &mail, "-aes128", "-recip", &certificate];
        place.theirs(&[&sealed[..], options].concat());
        let _ = fs::remove_file(&opened);
        place.ours(&[
            "cms",
            "-decrypt",
            "-in",
            &mail,
            "-recip",
            &certificate,
            "-inkey",
            "sealane://rsa",
            "-out",
            &opened,
        ]);
        assert_eq!(fs::read(&opened).unwrap(), fs::read(&text).unwrap(), "{options:?}");
    }
}

#[test]
fn tls_by_every_kind_of_key_and_version() {
    let Some(place) = Place::new("tls_by_every_kind_of_key_and_version") else { return };
    for (name, kind) in [("rsa", "RSA-PSS"), ("ec", "ECDSA"), ("ec384", "ECDSA"), ("ed", "ed25519")] {
        let (key, certificate) = (format!("sealane://{name}"), place.certificate(name));
        let server = place.server(&key, &certificate, &[]);
        for (version, says) in [("-tls1_3", "New, TLSv1.3"), ("-tls1_2", "New, TLSv1.2")] {
            let kind = format!("Peer signature type: {kind}").to_lowercase();
            let done = place.client(false, &server, &[version, "-CAfile", &certificate]);
            // Later versions name the scheme in place of the kind: rsa_pss_rsae_sha256, ecdsa_secp384r1_sha384.
            let text = done.text.to_lowercase().replace("rsa_pss_rsae", "rsa-pss");
            assert!(
                done.status == Some(0) && done.text.contains(says),
                "{name} {version}: {}{}",
                done.text,
                server.errors()
            );
            assert!(text.contains(&kind), "{name} {version}: {}", done.text);
        }
    }
}

#[test]
fn tls_of_former_versions_and_with_rsa_key_exchange() {
    let Some(place) = Place::new("tls_of_former_versions_and_with_rsa_key_exchange") else { return };
    let certificate = place.certificate("rsa");
    let server = place.server("sealane://rsa", &certificate, &["-cipher", "ALL:@SECLEVEL=0"]);
    let old = |version: &'static str, cipher: &'static str| [version, "-cipher", cipher, "-CAfile"];
    for (options, cipher) in [
        // The client encrypts the premaster secret to the key.
        (old("-tls1_2", "AES128-GCM-SHA256"), "AES128-GCM-SHA256"),
        (old("-tls1_2", "AES256-SHA"), "AES256-SHA"),
        (old("-tls1_2", "ECDHE-RSA-AES128-GCM-SHA256"), "ECDHE-RSA-AES128-GCM-SHA256"),
        // MD5 and SHA-1 are signed together.
        (old("-tls1_1", "ECDHE-RSA-AES128-SHA:@SECLEVEL=0"), "ECDHE-RSA-AES128-SHA"),
        (old("-tls1", "AES128-SHA:@SECLEVEL=0"), "AES128-SHA"),
    ] {
        let says = format!("Cipher is {cipher}");
        place.talk(&server, &[&options[..], &[&certificate]].concat(), &[&says]);
    }
}

#[test]
fn tls_sessions_are_resumed_and_clients_have_keys() {
    let Some(place) = Place::new("tls_sessions_are_resumed_and_clients_have_keys") else { return };
    let (certificate, session) = (place.certificate("ec"), place.file("session"));
    let server = place.server("sealane://ec", &certificate, &[]);
    for version in ["-tls1_3", "-tls1_2"] {
        let options = [version, "-CAfile", &certificate];
        place.talk(&server, &[&options[..], &["-sess_out", &session]].concat(), &["New, TLS"]);
        place.talk(&server, &[&options[..], &["-sess_in", &session]].concat(), &["Reused, TLS"]);
    }
    drop(server);
    for (name, _) in KEYS {
        let (key, client) = (format!("sealane://{name}"), place.certificate(name));
        // The server has its key from a file, by OpenSSL's own provider, though the configuration prefers ours.
        let pem = place.file("ec.pem");
        let server = place.server(&pem, &certificate, &["-Verify", "1", "-verify_return_error", "-CAfile", &client]);
        for version in ["-tls1_3", "-tls1_2"] {
            let options = [version, "-CAfile", &certificate, "-cert", &client, "-key", &key];
            let done = place.client(true, &server, &options);
            let is_known =
                done.text.contains("HTTP/1.0 200") && server.errors().replace(' ', "").contains(&format!("CN={name}"));
            assert!(
                done.status == Some(0) && is_known,
                "{name} {version}: {}{}{}",
                done.text,
                done.errors,
                server.errors()
            );
        }
    }
}

#[test]
fn programs_with_keys_of_their_own_go_on() {
    let Some(place) = Place::new("programs_with_keys_of_their_own_go_on") else { return };
    let socket = place.file("socket");
    let prefers = "alg_section = algs\n[algs]\ndefault_properties = ?provider=sealane\n";
    let section = format!("activate = 1\nsealane-keeper = {socket}\n");
    let why_order = "keys are offered where the provider `default` is activated before this one";
    let why_name = "the configuration calls this provider crypto: its keys are offered under a name behind `default`";
    for (name, modules, refusal) in [
        ("preferred", Modules::with_lines("own-preferred", prefers, &section), None),
        ("plain", Modules::with_lines("own-plain", "", &section), None),
        ("before", Modules::with_list("own-before", &["sealane", "default"], prefers, &section), Some(why_order)),
        (
            "before-plain",
            Modules::with_list("own-before-plain", &["sealane", "default"], "", &section),
            Some(why_order),
        ),
        ("crypto", Modules::with_list("own-crypto", &["default", "crypto"], prefers, &section), Some(why_name)),
        (
            "crypto-before",
            Modules::with_list("own-crypto-before", &["crypto", "default"], prefers, &section),
            Some(why_name),
        ),
    ] {
        let ours = |arguments: &[&str]| {
            let done = modules.openssl(arguments);
            assert_eq!(done.status, Some(0), "{name}: openssl {arguments:?}: {}{}", done.text, done.errors);
            done.text
        };
        assert!(ours(&["list", "-providers"]).contains("Sealane provider"), "{name}");
        for (_, arguments) in KEYS {
            let made = ours(&[&["genpkey", "-algorithm"], arguments].concat());
            assert!(made.contains("BEGIN PRIVATE KEY"), "{name}: {made}");
        }
        for (key, _) in KEYS {
            let pem = place.file(&format!("{key}.pem"));
            ours(&["pkey", "-in", &pem, "-check", "-noout"]);
            ours(&["req", "-x509", "-key", &pem, "-subj", "/CN=x", "-out", &place.file("own.crt")]);
            ours(&["verify", "-CAfile", &place.file("own.crt"), &place.file("own.crt")]);
        }
        let made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x"];
        ours(&[&made[..], &["-keyout", &place.file("new.pem"), "-out", &place.file("new.crt")]].concat());
        ours(&[
            "pkcs12",
            "-export",
            "-in",
            &place.file("new.crt"),
            "-inkey",
            &place.file("new.pem"),
            "-passout",
            "pass:x",
            "-out",
            &place.file("p12"),
        ]);
        ours(&["pkcs12", "-in", &place.file("p12"), "-passin", "pass:x", "-nodes"]);
        let stored = modules.openssl(&["pkey", "-in", "sealane://rsa", "-pubout"]);
        match refusal {
            None => assert_eq!(stored.status, Some(0), "{name}: {}", stored.errors),
            Some(why) => assert!(stored.status != Some(0) && stored.errors.contains(why), "{name}: {}", stored.errors),
        }
    }
}

#[test]
fn what_is_offered_is_listed_and_can_be_blocked() {
    let Some(place) = Place::new("what_is_offered_is_listed_and_can_be_blocked") else { return };
    let listed = |modules: &Modules, what: &str| {
        let done = modules.openssl(&["list", what, "-provider", "sealane"]);
        assert_eq!(done.status, Some(0), "{}", done.errors);
        done.text.lines().filter(|line| line.ends_with("@ sealane")).count()
    };
    let kinds =
        [("-store-loaders", 1), ("-key-managers", 3), ("-signature-algorithms", 3), ("-asymcipher-algorithms", 1)];
    for (what, count) in kinds {
        assert_eq!(listed(&place.modules, what), count, "{what}");
    }
    for (at, operation) in ["store", "keymgmt", "signature", "asym-cipher"].into_iter().enumerate() {
        let section = format!("sealane-keeper = {}\nsealane-block-operations = {operation}\n", place.file("socket"));
        let modules = Modules::new(&format!("blocked-{operation}"), &section);
        for (i, (what, count)) in kinds.into_iter().enumerate() {
            assert_eq!(listed(&modules, what), if i == at { 0 } else { count }, "{operation}, {what}");
        }
    }
}

#[test]
fn errors_say_what_is_wrong() {
    let Some(mut place) = Place::new("errors_say_what_is_wrong") else { return };
    let refused = |place: &Place, key: &str, why: &[&str]| {
        let done = place.openssl(&["req", "-x509", "-key", key, "-subj", "/CN=x"]);
        let says = why.iter().all(|why| done.errors.contains(why));
        assert!(done.status != Some(0) && says, "{key}: {why:?}: {}", done.errors);
    };
    refused(&place, "sealane://nobody", &["no such key", "nobody"]);
    refused(&place, "sealane://rsa?version=7", &["no such key", "rsa"]);
    refused(&place, "sealane://rsa?version=x", &["not the name of a key", "a version is a number from 1"]);
    refused(&place, "sealane://../rsa", &["not the name of a key"]);
    let decrypts = place.key(&["import", "decrypts", "--file", &place.file("rsa.pem"), "--uses", "decrypt"]);
    assert_eq!(decrypts.status, Some(0), "{decrypts:?}");
    refused(&place, "sealane://decrypts", &["not permitted", "decrypts"]);
    let limited = place.key(&["import", "limited", "--file", &place.file("ed.pem"), "--limit-operations", "1"]);
    assert_eq!(limited.status, Some(0), "{limited:?}");
    // The first request has signed once.
    place.ours(&["req", "-new", "-key", "sealane://limited", "-subj", "/CN=x", "-out", &place.file("limited")]);
    refused(&place, "sealane://limited", &["refused by the keeper of keys", "limited"]);
    if is_root() {
        // A user who may not know of the key.
        let mut command = openssl();
        command.args(["pkey", "-in", "sealane://rsa", "-pubout"]).uid(65_534).gid(65_534);
        fs::set_permissions(place.modules.folder(), fs::Permissions::from_mode(0o755)).unwrap();
        let copy = place.folder.join("sealane.so");
        fs::copy(sealane().with_file_name("libsealane_provider.so"), &copy).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
        command.env("OPENSSL_CONF", place.modules.configuration()).env("OPENSSL_MODULES", &place.folder);
        let done = run_limited(command, LIMIT).unwrap();
        assert!(done.status != Some(0) && done.errors.contains("no such key"), "{}", done.errors);
    }
    let revoked = place.key(&["revoke", "ed"]);
    assert_eq!(revoked.status, Some(0), "{revoked:?}");
    refused(&place, "sealane://ed", &["no such key", "ed"]);
    place.kill();
    let socket = place.file("socket");
    refused(&place, "sealane://rsa", &["no answer of the keeper of keys", &socket]);
}

#[test]
fn a_server_goes_on_with_its_version_after_a_rotation() {
    let Some(place) = Place::new("a_server_goes_on_with_its_version_after_a_rotation") else { return };
    let certificate = place.certificate("ec");
    let server = place.server("sealane://ec", &certificate, &[]);
    let rotated = place.key(&["rotate", "ec"]);
    assert_eq!(rotated.status, Some(0), "{rotated:?}");
    place.talk(&server, &["-CAfile", &certificate], &["New, TLS"]);
    drop(server);
    let public = |key: &str| place.ours(&["pkey", "-in", key, "-pubout"]).text;
    assert_eq!(public("sealane://ec?version=1"), fs::read_to_string(place.file("ec.pub")).unwrap());
    assert_eq!(public("sealane://ec"), public("sealane://ec?version=2"));
    assert_ne!(public("sealane://ec"), public("sealane://ec?version=1"));
    // The certificate is for the former one.
    let server = place.server("sealane://ec?version=1", &certificate, &[]);
    place.talk(&server, &["-CAfile", &certificate], &["New, TLS"]);
}

#[test]
fn keys_have_the_values_of_the_default_provider_and_no_secret() {
    const TEST: &str = "keys_have_the_values_of_the_default_provider_and_no_secret";
    let Some(place) = Place::new(TEST) else { return };
    place.program(TEST, &["parts", "lists", "texts", "contexts"]);
}

#[test]
fn threads_forks_signals_and_closed_descriptors() {
    const TEST: &str = "threads_forks_signals_and_closed_descriptors";
    let Some(place) = Place::new(TEST) else { return };
    place.program(TEST, &["lazy"]);
    place.program(TEST, &["threads", "signals"]);
    place.program(TEST, &["closed", "loads"]);
    place.program(TEST, &["forks"]);
}

#[test]
fn a_connection_is_made_at_load_where_it_is_asked_for() {
    const TEST: &str = "a_connection_is_made_at_load_where_it_is_asked_for";
    let Some(place) = Place::new(TEST) else { return };
    place.program_with(&place.at_load("early"), TEST, &["early"]);
}

/// A sandbox with the system calls of docs/provider.md, and no other.
#[test]
fn signing_makes_the_system_calls_that_are_documented() {
    const TEST: &str = "signing_makes_the_system_calls_that_are_documented";
    let Some(place) = Place::new(TEST) else { return };
    place.program(TEST, &["confined"]);
    place.program_with(&place.at_load("confined"), TEST, &["confined-early"]);
}

/// A daemon loads its key as root, gives up its rights, and signs: the keeper has to see the user it is then.
#[test]
fn a_program_that_changes_its_user() {
    const TEST: &str = "a_program_that_changes_its_user";
    let Some(place) = Place::new(TEST) else { return };
    if !is_root() {
        return skip(&format!("provider_keys::{TEST}"), "not root");
    }
    let made = place.key(&["import", "served", "--file", &place.file("ed.pem"), "--user", "65534"]);
    assert_eq!(made.status, Some(0), "{made:?}");
    place.program(TEST, &["users"]);
    let log = place.log();
    for (event, happens) in [
        ("user 0: public 'served'", true),
        ("user 0: sign 'served' refused", true),
        ("user 65534: sign 'served'", true),
        ("user 65534: sign 'served' refused", false),
        ("user 65534: sign 'ec' refused", true),
    ] {
        assert_eq!(log.contains(event), happens, "{event}: {log}");
    }
}

#[test]
fn a_keeper_that_is_killed_and_starts_again() {
    const TEST: &str = "a_keeper_that_is_killed_and_starts_again";
    let Some(mut place) = Place::new(TEST) else { return };
    let Some(mut asked) = place.talker(TEST, "asked") else { return };
    assert_eq!(asked.ask(), "signed");
    place.kill();
    let gone = asked.ask();
    assert!(gone.starts_with("refused: sealane: keeper at "), "{gone}");
    place.start();
    assert_eq!(asked.ask(), "signed");
    // Without a request in between, so that the connection is one to the keeper of before.
    place.kill();
    place.start();
    assert_eq!(asked.ask(), "signed");
    asked.finish("asked");
    let mut storm = place.talker(TEST, "storm").unwrap();
    for _ in 0..3 {
        assert_eq!(storm.ask(), "signed");
        place.kill();
        place.start();
    }
    assert_eq!(storm.ask(), "signed");
    storm.finish("storm");
}

/// More processes than the keeper gives connections to a user: each of them is served.
#[test]
fn more_processes_than_connections() {
    const TEST: &str = "more_processes_than_connections";
    let Some(mut place) = Place::new(TEST) else { return };
    place.kill();
    let mut settings = fs::File::options().append(true).open(place.folder.join("keeper.toml")).unwrap();
    settings.write_all(b"clients-per-user = 2\n").unwrap();
    place.start();
    let mut all = Vec::new();
    for _ in 0..5 {
        let Some(asked) = place.talker(TEST, "asked") else { return };
        all.push(asked);
    }
    for _ in 0..3 {
        for asked in &mut all {
            assert_eq!(asked.ask(), "signed");
        }
    }
    all.into_iter().for_each(|asked| asked.finish("asked"));
}

#[test]
fn a_keeper_that_hangs() {
    const TEST: &str = "a_keeper_that_hangs";
    let Some(place) = Place::new(TEST) else { return };
    let Some(mut asked) = place.talker(TEST, "asked") else { return };
    assert_eq!(asked.ask(), "signed");
    place.signal("STOP");
    let (patience, at_load) = (Duration::from_secs(2), place.at_load("hung"));
    // Programs that use no key of it start, and work, also where the configuration connects when the provider is loaded: there is
    // room for connections that nobody accepts yet.
    let makes_a_key = |modules: &Modules| {
        let since = Instant::now();
        let done = modules.openssl(&["genpkey", "-algorithm", "ED25519"]);
        assert_eq!(done.status, Some(0), "{}", done.errors);
        since.elapsed()
    };
    makes_a_key(&place.modules);
    makes_a_key(&at_load);
    // No room: who connects at load waits for it, but not for long.
    let mut crowd = place.talker(TEST, "crowd").unwrap();
    assert_eq!(crowd.ask(), "on");
    makes_a_key(&place.modules);
    let took = makes_a_key(&at_load);
    assert!(took >= patience && took < Duration::from_secs(9), "a program starts within {took:?}");
    let late = asked.ask();
    assert!(late.starts_with("refused: ") && late.ends_with("it does not answer in time"), "{late}");
    crowd.finish("crowd");
    // As long as the provider leaves the keeper alone.
    let rests_from = Instant::now();
    place.signal("CONT");
    std::thread::sleep(patience.saturating_sub(rests_from.elapsed()) + Duration::from_millis(1));
    assert_eq!(asked.ask(), "signed");
    asked.finish("asked");
}

/// Parts of the secret numbers of a key, in both orders of bytes: the last 16 bytes of its factors, or of its number.
fn secrets(place: &Place, name: &str) -> Vec<Vec<u8>> {
    let shown = place.theirs(&["pkey", "-in", &place.file(&format!("{name}.pem")), "-noout", "-text"]).text;
    let mut found = Vec::new();
    for label in ["prime1:", "prime2:", "privateExponent:", "priv:"] {
        let Some(from) = shown.find(&format!("{label}\n")) else { continue };
        let lines = shown[from..].lines().skip(1).take_while(|line| line.starts_with("    "));
        let digits: String = lines.flat_map(|line| line.chars().filter(char::is_ascii_hexdigit)).collect();
        let bytes: Vec<u8> =
            (0..digits.len() / 2).map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap()).collect();
        let last = bytes[bytes.len() - 16..].to_vec();
        found.push(last.iter().rev().copied().collect());
        found.push(last);
    }
    assert!(!found.is_empty(), "{shown}");
    found
}

#[test]
fn no_part_of_a_key_is_in_a_servers_memory() {
    let Some(place) = Place::new("no_part_of_a_key_is_in_a_servers_memory") else { return };
    for name in ["rsa", "ec", "ed"] {
        let (certificate, secrets) = (place.certificate(name), secrets(&place, name));
        let versions: &[&[&str]] =
            if name == "rsa" { &[&["-tls1_3"], &["-tls1_2", "-cipher", "AES128-SHA256"]] } else { &[&["-tls1_3"]] };
        for (key, has_it) in [(place.file(&format!("{name}.pem")), true), (format!("sealane://{name}"), false)] {
            let server = place.server(&key, &certificate, &[]);
            for version in versions {
                place.talk(&server, &[*version, &["-CAfile", &certificate]].concat(), &["New, "]);
            }
            // With a file's key it is found, so that the search is one.
            let has = secrets.iter().any(|secret| in_memory(server.child.id(), secret) > 0);
            assert_eq!(has, has_it, "{key}");
        }
    }
}

/// The path of a file is not read as a name of a key, and a name of a key with its slashes not as a path.
#[test]
fn files_and_names_are_apart() {
    let Some(place) = Place::new("files_and_names_are_apart") else { return };
    let pem = place.file("ed.pem");
    place.ours(&["pkey", "-in", &pem, "-noout"]);
    place.ours(&["pkey", "-in", &format!("file:{pem}"), "-noout"]);
    assert!(Path::new(&pem).exists());
    assert_ne!(place.openssl(&["pkey", "-in", "file:sealane:ed", "-noout"]).status, Some(0));
    // Files with the text of a name as their path, and another key in them.
    let folder = place.folder.join("named");
    fs::create_dir_all(folder.join("sealane:")).unwrap();
    for file in ["sealane:ed", "sealane:/ed"] {
        fs::copy(place.file("rsa.pem"), folder.join(file)).unwrap();
    }
    let public = |uri: &str| {
        let mut command = openssl();
        command.args(["pkey", "-in", uri, "-pubout"]).current_dir(&folder);
        command.env("OPENSSL_CONF", place.modules.configuration()).env("OPENSSL_MODULES", place.modules.folder());
        let done = run_limited(command, LIMIT).unwrap();
        assert_eq!(done.status, Some(0), "{uri}: {}", done.errors);
        done.text
    };
    let read = |name: &str| fs::read_to_string(place.file(&format!("{name}.pub"))).unwrap();
    assert_eq!(public("sealane://ed"), read("ed"));
    // OpenSSL itself looks for a file first where the slashes are left out, as the docs say.
    assert_eq!(public("sealane:ed"), read("rsa"));
}
