//! The OpenSSL provider beside OpenSSL's default provider: same calls, same bytes, lengths, parameters and errors.
//!
//! This machine's OpenSSL runs, or the one of the folder `SEALANE_OPENSSL`, which has the programs `provider`, `provider_tls`
//! and `openssl` (`suites/openssl_versions.sh` makes one).

use sealane_conformance::skip::skip;
use sealane_conformance::target::{Outcome, built_programs, run_limited, sealane};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(300);

/// Everything is offered, beside OpenSSL's own.
const ALL: &str = "sealane-digests = ALL\n";

/// A folder with `sealane.so` and a configuration of it; removed when this is dropped.
pub(crate) struct Modules(PathBuf);

impl Modules {
    /// The configuration loads the provider.
    pub(crate) fn new(test: &str, settings: &str) -> Self {
        Self::with_section(test, &format!("activate = 1\n{settings}"))
    }

    /// The configuration has this section for the provider.
    fn with_section(test: &str, section: &str) -> Self {
        Self::with_lines(test, "", section)
    }

    /// The configuration has this section for the provider, and lines of others.
    pub(crate) fn with_lines(test: &str, lines: &str, section: &str) -> Self {
        Self::with_list(test, &["default", "sealane"], lines, section)
    }

    /// The configuration lists these providers. All but `default` are ours.
    pub(crate) fn with_list(test: &str, names: &[&str], lines: &str, section: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("sealane-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let library = sealane().with_file_name("libsealane_provider.so");
        symlink(library, folder.join("sealane.so")).unwrap();
        let modules = Modules(folder);
        let list: String = names
            .iter()
            .map(|name| format!("{name} = {}_sect\n", if *name == "default" { "default" } else { "sealane" }))
            .collect();
        // By the path, where the name is not that of the file.
        let module = if names.contains(&"sealane") {
            String::new()
        } else {
            format!("module = {}\n", modules.0.join("sealane.so").display())
        };
        // No section may be called `default`: that is the one of the lines above all sections.
        std::fs::write(
            modules.configuration(),
            format!(
                "openssl_conf = init\n[init]\nproviders = list\n{lines}[list]\n{list}[default_sect]\nactivate = 1\n\
                 [sealane_sect]\n{module}{section}"
            ),
        )
        .unwrap();
        modules
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }

    pub(crate) fn configuration(&self) -> PathBuf {
        self.0.join("openssl.cnf")
    }

    /// Runs one of the programs of `programs/` on the folder and the configuration.
    pub(crate) fn run(&self, program: &Path, arguments: &[&str]) -> Outcome {
        run_limited(self.command(program, arguments), LIMIT).unwrap()
    }

    pub(crate) fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.arg(&self.0).arg(self.configuration()).args(arguments);
        command
    }

    /// Runs OpenSSL's command line.
    pub(crate) fn openssl(&self, arguments: &[&str]) -> Outcome {
        let mut command = openssl();
        command.args(arguments).env("OPENSSL_CONF", self.configuration()).env("OPENSSL_MODULES", &self.0);
        run_limited(command, LIMIT).unwrap()
    }
}

impl Drop for Modules {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The folder with the programs of another OpenSSL than this machine's.
fn other_openssl() -> Option<PathBuf> {
    std::env::var_os("SEALANE_OPENSSL").map(PathBuf::from)
}

/// OpenSSL's command line.
pub(crate) fn openssl() -> Command {
    Command::new(other_openssl().map_or_else(|| PathBuf::from("openssl"), |folder| folder.join("openssl")))
}

/// A program of `programs/`, or `None` where OpenSSL's headers are missing.
pub(crate) fn program(test: &str, name: &str) -> Option<PathBuf> {
    if let Some(folder) = other_openssl() {
        return Some(folder.join(name));
    }
    let path = built_programs(env!("CARGO_TARGET_TMPDIR")).join(name);
    if path.exists() {
        return Some(path);
    }
    skip(test, "no OpenSSL headers to build it with");
    None
}

/// Whether OpenSSL's command line is there; the test is skipped where it is not.
pub(crate) fn has_openssl(test: &str) -> bool {
    let is_there = openssl().arg("version").output().is_ok();
    if !is_there {
        skip(test, "no openssl");
    }
    is_there
}

/// Makes `rounds` of random calls of each kind on both providers.
fn compare(test: &str, rounds: &str, kinds: &[&str]) {
    let Some(program) = program(&format!("provider::{test}"), "provider") else { return };
    let modules = Modules::new(test, ALL);
    // The seed stays, so that a difference stays too.
    let arguments: Vec<&str> = ["1", rounds].iter().chain(kinds).copied().collect();
    let done = modules.run(&program, &arguments);
    assert_eq!(done.status, Some(0), "{}{}", done.text, done.errors);
    assert_eq!(done.text.lines().filter(|line| line.ends_with(" ok")).count(), kinds.len(), "{}", done.text);
}

#[test]
fn digests_are_the_default_providers() {
    compare("digests_are_the_default_providers", "1400", &["digests"]);
}

#[test]
fn macs_are_the_default_providers() {
    compare("macs_are_the_default_providers", "2600", &["macs"]);
}

#[test]
fn ciphers_are_the_default_providers() {
    compare("ciphers_are_the_default_providers", "6600", &["ciphers"]);
}

/// Only the provider has pipelines: each message is compared with one that the default provider seals alone.
#[test]
fn pipelines_are_messages_one_by_one() {
    const TEST: &str = "provider::pipelines_are_messages_one_by_one";
    let Some(program) = program(TEST, "provider") else { return };
    let modules = Modules::new("pipelines", ALL);
    let done = modules.run(&program, &["1", "1200", "pipelines"]);
    if done.status == Some(77) {
        return skip(TEST, "OpenSSL before 3.5 has no pipelines");
    }
    assert_eq!(done.status, Some(0), "{}{}", done.text, done.errors);
}

#[test]
fn names_parameters_and_flags_are_the_default_providers() {
    compare("names_parameters_and_flags_are_the_default_providers", "1", &["lists"]);
}

#[test]
fn records_below_cbc_with_every_padding_and_mistake() {
    compare("records_below_cbc_with_every_padding_and_mistake", "1", &["records"]);
}

#[test]
fn mistakes_of_callers_are_refused_and_have_reasons() {
    compare("mistakes_of_callers_are_refused_and_have_reasons", "1", &["misuse", "reasons"]);
}

#[test]
fn threads_forks_and_several_loads() {
    compare("threads_forks_and_several_loads", "1", &["forks", "threads", "loads"]);
}

#[test]
fn tls_by_every_suite_with_the_provider_at_either_end() {
    const TEST: &str = "provider::tls_by_every_suite_with_the_provider_at_either_end";
    let Some(program) = program(TEST, "provider_tls") else { return };
    let modules = Modules::new("tls", ALL);
    let done = modules.run(&program, &[]);
    assert_eq!(done.status, Some(0), "{}{}", done.text, done.errors);
    assert!(done.text.lines().count() >= 60, "{}", done.text);
}

#[test]
fn tls_by_cbc_below_a_mac_refuses_every_spoilt_record() {
    const TEST: &str = "provider::tls_by_cbc_below_a_mac_refuses_every_spoilt_record";
    let Some(program) = program(TEST, "provider_tls") else { return };
    let modules = Modules::new("records", ALL);
    let mut command = modules.command(&program, &["records"]);
    // With AES instructions libssl takes ciphers of the default provider that have CBC and HMAC in one (PROV-14).
    command.env("OPENSSL_ia32cap", "~0x200000200000000");
    let done = run_limited(command, LIMIT).unwrap();
    assert_eq!(done.status, Some(0), "{}{}", done.text, done.errors);
    assert_eq!(done.text.lines().count(), 14, "{}", done.text);
}

#[test]
fn the_command_line_says_what_is_offered_and_by_which_driver() {
    const TEST: &str = "provider::the_command_line_says_what_is_offered_and_by_which_driver";
    if !has_openssl(TEST) {
        return;
    }
    let settings = "sealane-ciphers = AES-128-CBC:1024, AES-256-GCM\nsealane-drivers = cbc-aes-portable\n";
    let modules = Modules::new("list", settings);
    let list = |what: &str| {
        let done = modules.openssl(&["list", what, "-provider", "sealane"]);
        assert_eq!(done.status, Some(0), "{}", done.errors);
        done.text
            .lines()
            .filter(|line| line.ends_with("@ sealane"))
            .map(|line| line.trim().to_owned())
            .collect::<Vec<_>>()
    };
    let ciphers = list("-cipher-algorithms");
    assert_eq!(ciphers.len(), 2, "{ciphers:?}");
    assert!(ciphers.iter().any(|line| line.contains("AES-128-CBC")), "{ciphers:?}");
    assert_eq!(list("-digest-algorithms"), [""; 0], "digests are only offered where the configuration says so");
    assert_eq!(list("-mac-algorithms").len(), 5);
    let about = modules.openssl(&["list", "-providers", "-verbose"]);
    assert!(about.text.contains("name: Sealane provider"), "{}", about.text);
    assert!(about.text.contains("cbc(aes): cbc-aes-portable\n"), "{}", about.text);
    let blocking = Modules::new("blocked", "sealane-block-operations = mac\nsealane-digests = ALL\n");
    for (what, is_offered) in [("-cipher-algorithms", true), ("-digest-algorithms", true), ("-mac-algorithms", false)] {
        let done = blocking.openssl(&["list", what, "-provider", "sealane"]);
        assert_eq!(done.text.contains("@ sealane"), is_offered, "{what}: {}{}", done.text, done.errors);
    }
}

#[test]
fn a_mistake_in_the_configuration_names_key_and_value() {
    const TEST: &str = "provider::a_mistake_in_the_configuration_names_key_and_value";
    if !has_openssl(TEST) {
        return;
    }
    for (setting, why) in [
        ("CIPHERS = AES-128-CBC,AES-129-CBC", "CIPHERS = AES-128-CBC,AES-129-CBC: there is no cipher AES-129-CBC here"),
        ("sealane-mac = NONE", "sealane-mac = NONE: there is no key sealane-mac here; sealane-macs is meant"),
        (
            "sealane-block-operations = cipher kem",
            "sealane-block-operations = cipher kem: there is no operation kem here, only cipher, digest, mac, store, keymgmt",
        ),
        ("sealane-keeper = keeper", "sealane-keeper = keeper: the socket of the keeper is a path from / on"),
        ("sealane-keeper-connect = now", "sealane-keeper-connect = now: it is use or load"),
        ("keeper = /run/x", "keeper = /run/x: there is no key keeper here; sealane-keeper is meant"),
        ("sealane-drivers = gcm-aes-nobody", "sealane-drivers = gcm-aes-nobody: no driver gcm-aes-nobody serves"),
        ("sealane-digests = SHA256:x", "sealane-digests = SHA256:x: SHA256:x: the size after the colon is a number"),
    ] {
        // OpenSSL tells the errors of a provider that a program asks for, and drops those of one that its configuration loads.
        let asked_for = Modules::with_section("mistake", &format!("{setting}\n"));
        let done = asked_for.openssl(&["list", "-cipher-algorithms", "-provider", "sealane"]);
        assert_ne!(done.status, Some(0), "{setting}: {}", done.text);
        assert!(
            done.errors.contains(&format!("invalid config data:sealane:0:sealane: {why}")),
            "{setting}: {}",
            done.errors
        );
        drop(asked_for);
        let loaded = Modules::new("mistake", &format!("{setting}\n"));
        let done = loaded.openssl(&["list", "-providers"]);
        assert!(done.errors.starts_with(&format!("sealane: {why}")), "{setting}: {}{}", done.text, done.errors);
        assert!(!done.text.contains("Sealane"), "{setting}: {}", done.text);
    }
}
