//! The messages of the libraries, which are events of `tracing`, on their way out of the process.
//!
//! They go to standard error, one line each. If standard error is the journal's stream, they go to the journal itself,
//! with their level and their fields. RUST_LOG selects them.

use std::env;
use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::fs::{File, Metadata};
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber, warn};
use tracing_journald::{Priority, PriorityMappings};
use tracing_subscriber::Registry;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// The processes that read RUST_LOG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readers {
    /// This one alone.
    Sealane,
    /// This one, and the program that it runs, for which most of the directives may be meant.
    ProgramToo,
}

/// Directs all messages of this process. To be called once, before a library is used.
pub(crate) fn start(readers: Readers) {
    let Selection { targets, remarks } = Selection::read(&env::var_os("RUST_LOG").unwrap_or_default(), readers);
    let details = has_details(&targets);
    let subscriber = Registry::default().with(targets);
    let done = match journal() {
        Some(journal) => tracing::subscriber::set_global_default(subscriber.with(journal)),
        None => tracing::subscriber::set_global_default(subscriber.with(Lines { details, write: to_stderr })),
    };
    done.expect("nothing else directs messages");
    for remark in remarks {
        warn!("RUST_LOG: {remark}");
    }
}

/// Writes a line in one call, so that lines of several processes do not mix.
fn to_stderr(line: &str) {
    // There is nobody left to be told about an error.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// The way to the journal, if standard error is its stream and its socket can be reached.
fn journal() -> Option<tracing_journald::Layer> {
    let stderr = File::from(io::stderr().as_fd().try_clone_to_owned().ok()?).metadata().ok()?;
    if !is_journal(env::var_os("JOURNAL_STREAM").as_deref(), &stderr) {
        return None;
    }
    // By default the journal gives a service's lines the priority of information, so our own have it too.
    let priorities = PriorityMappings {
        error: Priority::Error,
        warn: Priority::Warning,
        info: Priority::Informational,
        debug: Priority::Debug,
        trace: Priority::Debug,
    };
    let journal = tracing_journald::layer().ok()?;
    Some(
        journal
            .with_syslog_identifier("sealane".to_owned())
            .with_field_prefix(Some("SEALANE".to_owned()))
            .with_priority_mappings(priorities),
    )
}

/// Whether a file is the stream between a service and the journal. JOURNAL_STREAM names its device and inode
/// (systemd.exec(5)), also in processes whose standard error has been redirected.
fn is_journal(stream: Option<&OsStr>, file: &Metadata) -> bool {
    let Some((device, inode)) = stream.and_then(OsStr::to_str).and_then(|stream| stream.split_once(':')) else {
        return false;
    };
    (device.parse(), inode.parse()) == (Ok(file.dev()), Ok(file.ino()))
}

/// The messages that RUST_LOG selects.
#[derive(Debug)]
struct Selection {
    targets: Targets,
    /// Directives that were left out, with the reason.
    remarks: Vec<String>,
}

impl Selection {
    /// Reads the value of RUST_LOG. Without a level for all targets, that is `info`: what concerns other programs must
    /// not silence us.
    fn read(value: &OsStr, readers: Readers) -> Self {
        let mut targets = Targets::new().with_default(LevelFilter::INFO);
        let mut remarks = Vec::new();
        let value = value.to_string_lossy();
        for directive in value.split(',').map(str::trim).filter(|directive| !directive.is_empty()) {
            let parsed = directive.parse::<Targets>();
            if let Some(level) = parsed.as_ref().ok().and_then(Targets::default_level) {
                targets = targets.with_default(level);
            } else if directive.starts_with("sealane") {
                match parsed {
                    Ok(one) => targets.extend(one),
                    Err(e) => remarks.push(format!("'{directive}' is left out: {e}")),
                }
            } else if readers == Readers::Sealane {
                remarks.push(format!("'{directive}' is left out: it is neither a level nor a target of Sealane"));
            }
        }
        Selection { targets, remarks }
    }
}

/// Whether levels below `info` are selected for any target.
fn has_details(targets: &Targets) -> bool {
    let mut levels = targets.iter().map(|(_, level)| level).chain(targets.default_level());
    levels.any(|level| level > LevelFilter::INFO)
}

/// Writes events as lines: `sealane: MESSAGE`.
struct Lines<W> {
    /// Whether a line has the level, the target and the fields too, those of the context last.
    details: bool,
    write: W,
}

/// The fields of a context, as a line shows them.
struct Shown(String);

impl<S, W> Layer<S> for Lines<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: Fn(&str) + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut text = Text::default();
        attributes.record(&mut text);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(Shown(text.fields));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        let Text { message, mut fields } = text;
        if !self.details {
            return (self.write)(&format!("sealane: {message}\n"));
        }
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(Shown(more)) = span.extensions().get() {
                fields += more;
            }
        }
        let (level, target) = (event.metadata().level(), event.metadata().target());
        (self.write)(&format!("sealane: {level} {target}: {message}{fields}\n"));
    }
}

/// The message of an event, and its fields.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use tracing::{Level, debug, error, error_span, info};

    const DEVICE: &str = "sealane_ipsec::device";
    const PEERS: &str = "sealane_tcp_ao::configured";

    fn select(value: &str, readers: Readers) -> Selection {
        Selection::read(OsStr::new(value), readers)
    }

    /// The lines that some events write under a value of RUST_LOG.
    fn lines(value: &str) -> Vec<String> {
        // Levels are cached for all threads.
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = ALONE.lock();
        let Selection { targets, .. } = select(value, Readers::Sealane);
        let written = Arc::new(Mutex::new(Vec::new()));
        let lines = written.clone();
        let write = move |line: &str| lines.lock().unwrap().push(line.to_owned());
        let details = has_details(&targets);
        tracing::subscriber::with_default(Registry::default().with(targets).with(Lines { details, write }), || {
            let context = error_span!(target: DEVICE, "ipsec", netns = "blue", netns_inode = 7);
            let _context = context.enter();
            let e = io::Error::other("no such device");
            error!(target: DEVICE, device = "eth0", error = %e, "xfrm: eth0: {e}: the device stays down");
            info!(target: PEERS, connections = 3, "3 connections go on");
            debug!(target: DEVICE, device = "eth1", "xfrm: eth1: the device is up");
        });
        written.lock().unwrap().clone()
    }

    #[test]
    fn a_line_is_the_message_alone() {
        let [down, go_on] =
            ["sealane: xfrm: eth0: no such device: the device stays down\n", "sealane: 3 connections go on\n"];
        assert_eq!(lines(""), [down, go_on]);
        assert_eq!(lines("info"), [down, go_on]);
        assert_eq!(lines("warn"), [down]);
        assert_eq!(lines("warn,sealane_tcp_ao=info"), [down, go_on]);
        assert_eq!(lines("sealane_ipsec=off"), [go_on]);
        assert!(lines("off").is_empty());
    }

    #[test]
    fn fields_are_shown_to_those_who_look_for_details() {
        let all = [
            "sealane: ERROR sealane_ipsec::device: xfrm: eth0: no such device: the device stays down device=eth0 \
             error=no such device netns=blue netns_inode=7\n",
            "sealane: INFO sealane_tcp_ao::configured: 3 connections go on connections=3 netns=blue netns_inode=7\n",
            "sealane: DEBUG sealane_ipsec::device: xfrm: eth1: the device is up device=eth1 netns=blue netns_inode=7\n",
        ];
        assert_eq!(lines("debug"), all);
        assert_eq!(lines("sealane=debug"), all);
        assert_eq!(lines("sealane_tcp_ao=debug"), all[..2]);
    }

    #[test]
    fn a_wrong_directive_is_named_and_left_out() {
        for (value, named) in [
            ("sealane_ipsec=verbose", "'sealane_ipsec=verbose' is left out: "),
            ("inof", "'inof' is left out: it is neither a level nor a target of Sealane"),
            ("hyper=debug", "'hyper=debug' is left out: it is neither a level nor a target of Sealane"),
        ] {
            let Selection { targets, remarks } = select(value, Readers::Sealane);
            assert!(remarks.len() == 1 && remarks[0].starts_with(named), "{value}: {remarks:?}");
            assert!(
                targets.would_enable(DEVICE, &Level::INFO) && !targets.would_enable(DEVICE, &Level::DEBUG),
                "{value}"
            );
        }
        // The others are followed.
        let Selection { targets, remarks } = select("error, sealane=verbose, sealane_tcp_ao=debug", Readers::Sealane);
        assert_eq!(remarks.len(), 1, "{remarks:?}");
        assert!(targets.would_enable(PEERS, &Level::DEBUG) && !targets.would_enable(DEVICE, &Level::WARN));
    }

    #[test]
    fn directives_of_the_program_are_none_of_ours() {
        for value in ["hyper=trace", "app[request{id=7,user=8}]=debug,tower=off", "inof", ",", "app"] {
            let Selection { targets, remarks } = select(value, Readers::ProgramToo);
            assert!(remarks.is_empty(), "{value}: {remarks:?}");
            assert!(
                targets.would_enable(DEVICE, &Level::INFO) && !targets.would_enable(DEVICE, &Level::DEBUG),
                "{value}"
            );
            assert!(!has_details(&targets), "{value}");
        }
        assert_eq!(select("sealane=verbose,app=debug", Readers::ProgramToo).remarks.len(), 1);
    }

    #[test]
    fn the_stream_of_the_journal_is_known_by_device_and_inode() {
        let file = std::fs::metadata("/").expect("a file");
        let is_journal = |stream: Option<&str>| is_journal(stream.map(OsStr::new), &file);
        let (device, inode) = (file.dev(), file.ino());
        assert!(is_journal(Some(&format!("{device}:{inode}"))));
        for stream in [&format!("{device}:{}", inode + 1), &format!("{}:{inode}", device + 1), "", "x:y", "7"] {
            assert!(!is_journal(Some(stream)), "{stream}");
        }
        assert!(!is_journal(None));
    }
}
