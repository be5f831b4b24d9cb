//! The messages of `sealane` on standard error and in systemd's journal.

use sealane_conformance::skip::{skip, skip_without};
use sealane_conformance::target::{Outcome, Target, run_limited, sealane};
use std::collections::HashMap;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
/// The launcher's message about a program that is not there.
const NOT_FOUND: &str = "no-such-program: not found";

/// Runs a program that is not there, under a value of RUST_LOG.
fn not_there(rust_log: &str) -> Outcome {
    let mut command = Command::new(sealane());
    command.args(["run", "--", "no-such-program"]).env("RUST_LOG", rust_log);
    run_limited(command, LIMIT).unwrap()
}

#[test]
fn rust_log_selects() {
    if skip_without("log::rust_log_selects", &[&Target::sealane("open")]) {
        return;
    }
    let line = format!("sealane: {NOT_FOUND}\n");
    for rust_log in ["", "error", "no_such_program=trace,no_such_program[span{field=1}]=off"] {
        assert_eq!(not_there(rust_log).errors, line, "{rust_log}");
    }
    let wrong = not_there("sealane=verbose").errors;
    assert!(wrong.starts_with("sealane: RUST_LOG: 'sealane=verbose' is left out: "), "{wrong}");
    assert!(wrong.ends_with(&line) && wrong.lines().count() == 2, "{wrong}");
    let details = not_there("debug").errors;
    assert_eq!(details, format!("sealane: ERROR sealane_launch::run: {NOT_FOUND} program=no-such-program\n"));
    let silent = not_there("off");
    assert_eq!((silent.errors.as_str(), silent.status), ("", Some(127)));
}

#[test]
fn the_daemon_names_directives_that_mean_nothing() {
    if skip_without("log::the_daemon_names_directives_that_mean_nothing", &[&Target::sealane("open")]) {
        return;
    }
    let mut command = Command::new(sealane());
    command.args(["daemon", "--config", "/nonexistent"]).env("RUST_LOG", "inof");
    let outcome = run_limited(command, LIMIT).unwrap();
    let first = outcome.errors.lines().next().unwrap_or_default();
    assert_eq!(first, "sealane: RUST_LOG: 'inof' is left out: it is neither a level nor a target of Sealane");
}

/// Stands for the journal in a mount namespace of its own: `$1` holds its socket, and `$2` is `sealane`. With `$3` the
/// stream is another one than standard error.
const IN_THE_JOURNAL: &str = "mount -t tmpfs none /run && mkdir -p /run/systemd/journal && mount --bind \"$1\" \
                              /run/systemd/journal && JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2)$3 exec \"$2\" \
                              run -- no-such-program";

#[test]
fn the_journal_gets_priority_and_fields() {
    let test = "log::the_journal_gets_priority_and_fields";
    if skip_without(test, &[&Target::sealane("open")]) {
        return;
    }
    let in_namespace = |script: &str, args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", script, "sh"]).args(args);
        run_limited(command, LIMIT)
    };
    if !in_namespace("mount -t tmpfs none /run", &[]).is_ok_and(|outcome| outcome.status == Some(0)) {
        return skip(test, "no mount namespaces here (unshare)");
    }
    let folder = std::env::temp_dir().join(format!("sealane-journal-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let journal = UnixDatagram::bind(folder.join("socket")).unwrap();
    journal.set_nonblocking(true).unwrap();
    let (folder_name, exe) = (folder.to_string_lossy(), sealane());
    let exe = exe.canonicalize().unwrap();
    let run = |other| in_namespace(IN_THE_JOURNAL, &[&folder_name, &exe.to_string_lossy(), other]).unwrap();

    let outcome = run("");
    assert_eq!((outcome.status, outcome.errors.as_str()), (Some(127), ""));
    let mut entries = Vec::new();
    let mut datagram = vec![0; 1 << 16];
    while let Ok(len) = journal.recv(&mut datagram) {
        // The first, empty one asks whether there is a journal.
        entries.extend((len > 0).then(|| fields(&datagram[..len])));
    }
    let [entry] = &entries[..] else { panic!("one message: {entries:?}") };
    for (name, value) in [
        ("MESSAGE", NOT_FOUND),
        ("PRIORITY", "3"),
        ("SYSLOG_IDENTIFIER", "sealane"),
        ("TARGET", "sealane_launch::run"),
        ("SEALANE_PROGRAM", "no-such-program"),
    ] {
        assert_eq!(entry.get(name).map(String::as_str), Some(value), "{name}: {entry:?}");
    }

    // Standard error that has been redirected gets the messages itself.
    let redirected = run("0");
    assert_eq!(redirected.errors, format!("sealane: {NOT_FOUND}\n"));
    assert!(journal.recv(&mut datagram).is_err(), "nothing in the journal");
    // A journal that does not answer loses nothing.
    drop(journal);
    assert_eq!(run("").errors, format!("sealane: {NOT_FOUND}\n"));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The fields of a datagram of the journal's native protocol: `NAME=VALUE` and a newline, or `NAME`, a newline, the
/// length in eight bytes, the value, and a newline.
fn fields(mut datagram: &[u8]) -> HashMap<String, String> {
    let mut fields = HashMap::new();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    while let Some(end) = datagram.iter().position(|byte| *byte == b'\n') {
        let (line, rest) = (text(&datagram[..end]), &datagram[end + 1..]);
        if let Some((name, value)) = line.split_once('=') {
            fields.insert(name.to_owned(), value.to_owned());
            datagram = rest;
            continue;
        }
        let (len, rest) = rest.split_first_chunk().expect("a length");
        let (value, rest) = rest.split_at(u64::from_le_bytes(*len) as usize);
        fields.insert(line, text(value));
        datagram = &rest[1..];
    }
    fields
}
