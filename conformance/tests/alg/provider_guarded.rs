//! Keys of the OpenSSL provider in guarded memory: no reader of ordinary memory finds one, children have none of their parent's, and
//! everything else is as it is with keys on the heap.

use super::provider::{Modules, has_openssl, program};
use sealane_conformance::skip::skip;
use sealane_conformance::target::{Outcome, run_limited};
use sealane_crypto::Kind;
use sealane_crypto::choice::Table;
use sealane_drivers::SystemEntropy;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(300);

/// Every cipher; `ALL` leaves out AES-ECB where keys are guarded.
const CIPHERS: &str = "sealane-digests = ALL\nCIPHERS = AES-128-ECB AES-192-ECB AES-256-ECB AES-128-CBC AES-192-CBC AES-256-CBC \
    AES-128-CTR AES-192-CTR AES-256-CTR AES-128-GCM AES-192-GCM AES-256-GCM AES-128-CCM AES-192-CCM AES-256-CCM AES-128-CBC-CTS \
    AES-192-CBC-CTS AES-256-CBC-CTS AES-128-XTS AES-256-XTS DES-EDE3-CBC ChaCha20-Poly1305\n";

/// Everything is offered, and its keys are guarded.
fn guarded(test: &str, more: &str) -> Modules {
    Modules::new(&format!("guarded-{test}"), &format!("{CIPHERS}sealane-keys = guarded\n{more}"))
}

/// The same with memory that `mprotect` closes: an access at another time than when it is open ends the process, on every machine.
fn closed(test: &str) -> Modules {
    Modules::new(&format!("closed-{test}"), &format!("{CIPHERS}sealane-keys = guarded-mprotect\n"))
}

/// Runs a program of `programs/`, which has to end well; `None` where it cannot be built.
fn run(test: &str, name: &str, modules: &Modules, arguments: &[&str]) -> Option<String> {
    let program = program(&format!("provider_guarded::{test}"), name)?;
    let done = modules.run(&program, arguments);
    assert_eq!(done.status, Some(0), "{arguments:?}: {}{}", done.text, done.errors);
    Some(done.text)
}

/// The protections of guarded memory that this machine has.
struct Machine {
    secret: bool,
    protection_key: bool,
}

impl Machine {
    /// As the provider says.
    fn of(about: &str) -> Self {
        assert!(about.contains("keys: in guarded memory of "), "{about}");
        let lacks =
            |what: &str| about.lines().any(|line| line.contains("guarded memory lacks: ") && line.contains(what));
        Machine { secret: !lacks("memfd_secret"), protection_key: !lacks("protection key") }
    }
}

/// The command line's words on the providers.
fn about(modules: &Modules) -> String {
    let done = modules.openssl(&["list", "-providers", "-verbose"]);
    assert_eq!(done.status, Some(0), "{}", done.errors);
    done.text
}

/// The keys that a program has found.
struct Found {
    /// In all of its memory.
    places: usize,
    /// On the stack, when a key had just been set, and when it had been used.
    set: usize,
    used: usize,
    text: String,
}

/// Has a program look for keys in its own memory.
fn found(test: &str, modules: &Modules, how: &str) -> Option<Found> {
    let text = run(test, "provider_guarded", modules, &["search", how])?;
    let words: Vec<&str> = text.lines().last().unwrap_or_default().split(' ').collect();
    let [places, "of", all, "keys", "found", .., "on", "the", "stack", set, "set,", used, "used"] = words.as_slice()
    else {
        panic!("{text}")
    };
    assert!(all.parse::<usize>().unwrap() > 50, "{text}");
    let number = |word: &&str| word.parse().unwrap();
    Some(Found { places: number(places), set: number(set), used: number(used), text: text.clone() })
}

#[test]
fn keys_are_in_no_memory_that_can_be_read() {
    const TEST: &str = "keys_are_in_no_memory_that_can_be_read";
    if !has_openssl(&format!("provider_guarded::{TEST}")) {
        return;
    }
    let (modules, closed) = (guarded("search", ""), closed("search"));
    let Machine { secret, protection_key } = Machine::of(&about(&modules));
    assert!(Machine::of(&about(&closed)).protection_key, "mprotect lacks none");
    // The search finds keys that are there: of all algorithms but those whose round keys have nothing of the key as it is.
    let on_heap = Modules::new("search", CIPHERS);
    for (how, is_kept) in [("mem", secret), ("read", protection_key)] {
        let Some(Found { places, set, text, .. }) = found(TEST, &on_heap, how) else { return };
        assert!(places > 40 && set > 0, "{how}: {text}");
        let Found { places, set, used, text } = found(TEST, &modules, how).unwrap();
        assert_eq!((set, used), (0, 0), "{how}: {text}");
        if is_kept {
            assert_eq!(places, 0, "{how}: {text}");
        } else {
            // It says that it lacks this protection, and so it is.
            assert!(places > 40, "{how}: {text}");
        }
        if how == "read" || secret {
            let Found { places, set, text, .. } = found(TEST, &closed, how).unwrap();
            assert_eq!((places, set), (0, 0), "{how}: {text}");
        }
    }
}

/// Algorithms of the provider that several drivers serve.
const SERVED: [(Kind, &[&str]); 3] = [
    (
        Kind::Hash,
        &["hmac(md5)", "hmac(sha1)", "hmac(sha224)", "hmac(sha256)", "hmac(sha384)", "hmac(sha512)", "cmac(aes)"],
    ),
    (Kind::Skcipher, &["ecb(aes)", "cbc(aes)", "ctr(aes)", "xts(aes)", "cbc(des3_ede)", "chacha20"]),
    (Kind::Aead, &["gcm(aes)", "ccm(aes)", "rfc7539(chacha20,poly1305)"]),
];

/// Settings by which each driver of the algorithms above serves once. A table of the machine may choose any of them.
fn each_driver() -> impl Iterator<Item = String> {
    let registry = sealane_drivers::registry(Table::default(), Arc::new(SystemEntropy));
    (0..).map_while(move |n| {
        let names: Vec<&str> = SERVED
            .iter()
            .flat_map(|(kind, names)| names.iter().map(|name| (*kind, *name)))
            .filter_map(|(kind, name)| {
                registry.rows().iter().filter(|row| row.info.kind == kind && row.info.name == name).nth(n)
            })
            .map(|row| &*row.driver)
            .collect();
        (!names.is_empty()).then(|| format!("sealane-drivers = {}\n", names.join(" ")))
    })
}

#[test]
fn no_driver_leaves_a_key_on_the_stack() {
    const TEST: &str = "no_driver_leaves_a_key_on_the_stack";
    let mut traces = String::new();
    for (n, drivers) in each_driver().enumerate() {
        let Some(Found { set, used, text, .. }) = found(TEST, &guarded(&format!("driver-{n}"), &drivers), "mem") else {
            return;
        };
        if (set, used) != (0, 0) {
            traces += &format!("{drivers}{text}");
        }
    }
    assert!(traces.is_empty(), "{traces}");
}

#[test]
fn a_child_has_keys_of_its_own_and_none_of_its_parents() {
    const TEST: &str = "a_child_has_keys_of_its_own_and_none_of_its_parents";
    for modules in [guarded("fork", ""), closed("fork")] {
        run(TEST, "provider_guarded", &modules, &["fork"]);
    }
}

#[test]
fn after_the_load_no_system_call_is_needed_also_in_a_child() {
    const TEST: &str = "after_the_load_no_system_call_is_needed_also_in_a_child";
    run(TEST, "provider_guarded", &guarded("sandbox", ""), &["sandbox"]);
    for (n, drivers) in each_driver().enumerate() {
        run(TEST, "provider_guarded", &guarded(&format!("sandbox-{n}"), &drivers), &["sandbox"]);
    }
}

#[test]
fn random_numbers_go_on_in_a_child() {
    const TEST: &str = "random_numbers_go_on_in_a_child";
    for ciphers in ["", "CIPHERS = ALL\n"] {
        let modules = Modules::new("guarded-random", &format!("sealane-keys = guarded\n{ciphers}"));
        run(TEST, "provider_guarded", &modules, &["random"]);
    }
}

#[test]
fn without_room_a_key_is_refused_and_nothing_else() {
    const TEST: &str = "without_room_a_key_is_refused_and_nothing_else";
    for len in ["64K", "200K"] {
        let modules = guarded("full", &format!("sealane-guarded-memory = {len}\n"));
        run(TEST, "provider_guarded", &modules, &["full"]);
    }
}

#[test]
fn every_key_takes_guarded_memory_and_gives_it_back() {
    const TEST: &str = "every_key_takes_guarded_memory_and_gives_it_back";
    let Some(text) = run(TEST, "provider_guarded", &guarded("cost", ""), &["cost"]) else { return };
    assert!(text.lines().count() > 40, "{text}");
}

#[test]
fn macs_and_ciphers_are_those_of_keys_on_the_heap() {
    const TEST: &str = "macs_and_ciphers_are_those_of_keys_on_the_heap";
    let modules = guarded("same", "");
    run(TEST, "provider", &modules, &["2", "1300", "macs", "ciphers"]);
    let all = ["2", "1", "lists", "records", "misuse", "reasons", "forks", "threads", "loads"];
    run(TEST, "provider", &modules, &all);
    run(TEST, "provider", &closed("same"), &["3", "300", "macs", "ciphers", "misuse", "threads"]);
}

#[test]
fn pipelines_are_those_of_keys_on_the_heap() {
    const TEST: &str = "provider_guarded::pipelines_are_those_of_keys_on_the_heap";
    let Some(program) = program(TEST, "provider") else { return };
    let done = closed("pipelines").run(&program, &["2", "400", "pipelines"]);
    if done.status == Some(77) {
        return skip(TEST, "OpenSSL before 3.5 has no pipelines");
    }
    assert_eq!(done.status, Some(0), "{}{}", done.text, done.errors);
}

#[test]
fn tls_by_every_suite_has_guarded_keys() {
    const TEST: &str = "tls_by_every_suite_has_guarded_keys";
    for modules in [guarded("tls", ""), closed("tls")] {
        let Some(text) = run(TEST, "provider_tls", &modules, &[]) else { return };
        assert!(text.lines().count() >= 60, "{text}");
    }
}

#[test]
fn the_command_line_says_where_keys_lie_and_what_is_lacking() {
    const TEST: &str = "provider_guarded::the_command_line_says_where_keys_lie_and_what_is_lacking";
    if !has_openssl(TEST) {
        return;
    }
    let on_heap = about(&Modules::new("heap", ""));
    assert!(on_heap.contains("keys: in the process\n") && !on_heap.contains("guarded memory lacks"), "{on_heap}");
    let text = about(&guarded("about", "sealane-guarded-memory = 1M\n"));
    assert!(text.contains("keys: in guarded memory of 1048576 bytes, of which 0 are taken\n"), "{text}");
    let machine = Machine::of(&text);
    let strict = Modules::new("strict", "sealane-keys = guarded-strict\n").openssl(&["list", "-providers"]);
    if machine.secret && machine.protection_key {
        assert!(strict.text.contains("Sealane provider"), "{}{}", strict.text, strict.errors);
        return;
    }
    assert!(!strict.text.contains("Sealane"), "{}", strict.text);
    assert!(strict.errors.starts_with("sealane: sealane-keys = guarded-strict: no "), "{}", strict.errors);
    for (has, what) in [(machine.secret, "no memfd_secret"), (machine.protection_key, "no protection key")] {
        assert_eq!(strict.errors.contains(what), !has, "{}", strict.errors);
    }
}

#[test]
fn mistakes_and_missing_memory_keep_the_provider_from_loading() {
    const TEST: &str = "provider_guarded::mistakes_and_missing_memory_keep_the_provider_from_loading";
    if !has_openssl(TEST) {
        return;
    }
    for (settings, why) in [
        (
            "sealane-keys = heap",
            "sealane-keys = heap: it is process, guarded, guarded-strict, guarded-mprotect or keeper",
        ),
        ("sealane-guarded-memory = 4M", "sealane-guarded-memory = 4M: this memory is for sealane-keys = guarded"),
        (
            "sealane-keys = guarded\nsealane-guarded-memory = 4MB",
            "sealane-guarded-memory = 4MB: it is a number of bytes, or of K, M or G, from 64K to 64G",
        ),
        ("keys = guarded", "keys = guarded: there is no key keys here; sealane-keys is meant"),
    ] {
        let done = Modules::new("guarded-mistake", &format!("{settings}\n")).openssl(&["list", "-providers"]);
        assert!(done.errors.starts_with(&format!("sealane: {why}")), "{settings}: {}", done.errors);
        assert!(!done.text.contains("Sealane"), "{settings}: {}", done.text);
    }
    // More than may be locked is refused where it is asked for. Where it is not, there is as much as there may be.
    let asking = "sealane-keys = guarded\nsealane-guarded-memory = 4M\n";
    let done = with_little_memory(&Modules::new("guarded-limit", asking));
    let has_secret = Machine::of(&about(&guarded("machine", ""))).secret;
    if has_secret {
        let why = "RLIMIT_MEMLOCK lets this process lock 262144 bytes in all";
        assert!(done.errors.contains("sealane-guarded-memory = 4194304: "), "{}", done.errors);
        assert!(done.errors.contains(why) && !done.text.contains("Sealane"), "{}{}", done.text, done.errors);
    }
    let done = with_little_memory(&Modules::new("guarded-less", "sealane-keys = guarded\n"));
    assert!(done.text.contains("keys: in guarded memory of "), "{}{}", done.text, done.errors);
}

/// Runs OpenSSL's command line where 256 KiB may be locked.
fn with_little_memory(modules: &Modules) -> Outcome {
    // Root may lock any memory, unless it lacks a capability.
    let mut command = Command::new("bash");
    command.args([
        "-c",
        "ulimit -l 256; less=; [[ $(id -u) = 0 ]] && less='setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock'; exec $less \"$@\"",
        "bash",
    ]);
    let openssl = super::provider::openssl();
    command.arg(PathBuf::from(openssl.get_program())).args(["list", "-providers", "-verbose"]);
    command.env("OPENSSL_CONF", modules.configuration()).env("OPENSSL_MODULES", modules.folder());
    run_limited(command, LIMIT).unwrap()
}
