//! `sealane tcp-ao verify`: verifies every segment of a capture.

use super::capture::{self, KeyLabel, Watch};
use crate::answer::Answer;
use crate::args::Verify;
use anyhow::Result;
use sealane_capture::{Frame, NotIp, Reader};
use sealane_config::rfc3339;
use sealane_net_ao::drop::DropReason;
use sealane_net_ao::observe::{Note, Observation, Verdict};
use sealane_wire::ip::NotTcp;
use sealane_wire::tcp::{Flags, Segment};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::Write;

/// The report of one segment.
#[derive(Serialize)]
struct Line<'a> {
    number: u64,
    time: String,
    #[serde(flatten)]
    facts: Option<Facts>,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a KeyLabel>,
}

/// The header fields of a segment.
#[derive(Serialize)]
struct Facts {
    source: String,
    destination: String,
    flags: String,
    seq: u32,
    ack: u32,
    length: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_id: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rnext_key_id: Option<u8>,
}

#[derive(Default, Serialize)]
struct Summary {
    /// All TCP segments.
    segments: u64,
    good: u64,
    bad: u64,
    unchecked: u64,
    /// Segments without TCP-AO that match no key.
    unprotected: u64,
    /// Frames without a TCP segment.
    other_frames: u64,
    reasons: BTreeMap<&'static str, u64>,
    /// The error that ended the capture early.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<String>,
}

pub(crate) fn verify(args: &Verify, out: &mut impl Write) -> Result<Answer> {
    let mut watch = capture::watch(&args.keys, &args.isn)?;
    let mut reader = capture::open(&args.capture)?;
    let mut summary = Summary::default();
    if args.json {
        json(&mut reader, &mut watch, args, &mut summary, out)?;
    } else {
        each(&mut reader, &mut watch, &mut summary, |line| {
            if args.failed && ["good", "unprotected"].contains(&line.verdict) { Ok(()) } else { print(line, out) }
        })?;
        print_summary(&summary, out)?;
    }
    if let Some(ended) = &summary.ended {
        anyhow::bail!("{}: {ended}; the frames before that were verified", args.capture.display());
    }
    let all_good = summary.bad == 0 && summary.unchecked == 0 && summary.good > 0;
    if summary.good + summary.bad + summary.unchecked == 0 {
        eprintln!("sealane: no segment of this capture has a TCP-AO option or matches a key of the keys file");
    }
    Ok(if all_good { Answer::Yes } else { Answer::No })
}

/// Verifies every frame and calls `tell` for each segment.
fn each(
    reader: &mut Reader<'_>,
    watch: &mut Watch,
    summary: &mut Summary,
    mut tell: impl FnMut(&Line<'_>) -> Result<()>,
) -> Result<()> {
    let mut unknown_link = None;
    loop {
        let frame = match reader.next_frame() {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(()),
            Err(e) => {
                summary.ended = Some(e.to_string());
                return Ok(());
            }
        };
        let at = match frame.ip_at() {
            Ok(at) => at,
            Err(e) => {
                if let NotIp::Link(link) = e
                    && unknown_link.replace(link).is_none()
                {
                    eprintln!("sealane: frame {}: {e}", frame.number);
                }
                summary.other_frames += 1;
                continue;
            }
        };
        match line(&frame, &frame.data[at..], watch) {
            Some(line) => {
                summary.count(&line);
                tell(&line)?;
            }
            None => summary.other_frames += 1,
        }
    }
}

impl Summary {
    fn count(&mut self, line: &Line<'_>) {
        self.segments += 1;
        *match line.verdict {
            GOOD => &mut self.good,
            BAD => &mut self.bad,
            UNCHECKED => &mut self.unchecked,
            _ => &mut self.unprotected,
        } += 1;
        if let Some(reason) = line.reason {
            *self.reasons.entry(reason).or_default() += 1;
        }
    }
}

const GOOD: &str = "good";
const BAD: &str = "bad";
const UNCHECKED: &str = "unchecked";
const UNPROTECTED: &str = "unprotected";

/// The report of an IP packet. `None` if it is not TCP.
fn line<'a>(frame: &Frame<'_>, packet: &[u8], watch: &'a mut Watch) -> Option<Line<'a>> {
    let time_s = frame.time_ns.div_euclid(1_000_000_000);
    let fraction = frame.time_ns.rem_euclid(1_000_000_000) / 1000;
    let time = format!("{}.{fraction:06}Z", rfc3339(time_s).trim_end_matches('Z'));
    let mut line = Line {
        number: frame.number,
        time,
        facts: None,
        verdict: UNCHECKED,
        reason: None,
        help: None,
        hint: None,
        note: None,
        key: None,
    };
    let segment = match Segment::parse(packet) {
        Ok(segment) => segment,
        Err(NotTcp::Other) => return None,
        Err(NotTcp::Malformed) if frame.is_cut() => {
            line.reason = Some("cut");
            line.help = Some("the capture contains only the beginning of this frame; use a larger snapshot length");
            return Some(line);
        }
        Err(e) => {
            let reason = if e == NotTcp::Fragment { DropReason::Fragment } else { DropReason::Malformed };
            line.reason = Some(reason.name());
            line.help = Some(reason.help());
            return Some(line);
        }
    };
    let Watch { observer, labels } = watch;
    let seen = observer.observe(&segment, time_s);
    line.facts = Some(facts(&segment, &seen));
    line.hint = seen.hint.map(|h| h.to_string());
    line.note = seen.note.map(|n| match n {
        Note::IsnFound => {
            "the handshake was not captured; the sequence numbers just before those of this segment fit".to_owned()
        }
        Note::SneFound(n) => format!("the start was not captured; the sequence number had wrapped {n} times before"),
        Note::OutsideLifetime => "the segment is outside the key's lifetime".to_owned(),
    });
    let (verdict, reason) = match seen.verdict {
        Verdict::Good(key) => {
            line.key = Some(&labels[key]);
            (GOOD, None)
        }
        Verdict::Bad(reason) => (BAD, Some(reason)),
        Verdict::Unchecked(reason) => (UNCHECKED, Some(reason)),
        Verdict::NotOurs => (UNPROTECTED, None),
    };
    line.verdict = verdict;
    line.reason = reason.map(DropReason::name);
    line.help = reason.map(DropReason::help);
    line.help = match seen.verdict {
        Verdict::Unchecked(DropReason::IsnUnknown) => {
            Some("the handshake was not captured; give the initial sequence numbers with --isn")
        }
        Verdict::Unchecked(DropReason::KeyNotFound) => Some("the keys file has no key for these addresses"),
        _ => line.help,
    };
    Some(line)
}

fn facts(segment: &Segment<'_>, seen: &Observation) -> Facts {
    const NAMES: [(u8, char); 8] = [
        (Flags::SYN, 'S'),
        (Flags::FIN, 'F'),
        (Flags::RST, 'R'),
        (Flags::PSH, 'P'),
        (Flags::ACK, '.'),
        (Flags::URG, 'U'),
        (Flags::ECE, 'E'),
        (Flags::CWR, 'W'),
    ];
    Facts {
        source: segment.source().to_string(),
        destination: segment.destination().to_string(),
        flags: NAMES.iter().filter(|(bit, _)| segment.flags().has(*bit)).map(|(_, c)| c).collect(),
        seq: segment.seq(),
        ack: segment.ack_seq(),
        length: segment.payload().len(),
        key_id: seen.option.map(|o| o.key_id),
        rnext_key_id: seen.option.map(|o| o.rnext_key_id),
    }
}

fn print(line: &Line<'_>, out: &mut impl Write) -> Result<()> {
    write!(out, "{:>6}  {}  ", line.number, line.time)?;
    if let Some(f) = &line.facts {
        write!(out, "{} > {} [{}] seq {} ack {} length {}", f.source, f.destination, f.flags, f.seq, f.ack, f.length)?;
        if let (Some(key_id), Some(rnext)) = (f.key_id, f.rnext_key_id) {
            write!(out, " KeyID {key_id} RNextKeyID {rnext}")?;
        }
        write!(out, ": ")?;
    }
    write!(out, "{}", line.verdict)?;
    if let Some(key) = line.key {
        write!(out, ", {}, peer '{}' key {}", key.algorithm, key.peer, key.id)?;
    }
    writeln!(out, "{}", line.reason.map_or(String::new(), |r| format!(", {r}")))?;
    for (what, text) in [("", line.help), ("hint: ", line.hint.as_deref()), ("note: ", line.note.as_deref())] {
        if let Some(text) = text {
            writeln!(out, "        {what}{text}")?;
        }
    }
    Ok(())
}

fn print_summary(s: &Summary, out: &mut impl Write) -> Result<()> {
    let reasons: Vec<String> = s.reasons.iter().map(|(reason, n)| format!("{reason} {n}")).collect();
    let reasons = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) };
    writeln!(
        out,
        "\n{} TCP segments: {} good, {} bad, {} unchecked{reasons}, {} unprotected; {} other frames",
        s.segments, s.good, s.bad, s.unchecked, s.unprotected, s.other_frames
    )?;
    Ok(())
}

/// The segments of a capture, which are serialized as they are read because a capture can be larger than memory.
struct Streamed<'x, 'r> {
    reader: RefCell<&'x mut Reader<'r>>,
    watch: RefCell<&'x mut Watch>,
    summary: RefCell<&'x mut Summary>,
    failed_only: bool,
    error: Cell<Option<anyhow::Error>>,
}

impl Serialize for Streamed<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeSeq;
        let mut list = serializer.serialize_seq(None)?;
        let mut failed: Option<S::Error> = None;
        let done =
            each(&mut self.reader.borrow_mut(), &mut self.watch.borrow_mut(), &mut self.summary.borrow_mut(), |line| {
                if self.failed_only && [GOOD, UNPROTECTED].contains(&line.verdict) {
                    return Ok(());
                }
                list.serialize_element(line).map_err(|e| {
                    failed = Some(e);
                    anyhow::anyhow!("cannot write the report")
                })
            });
        match (failed, done) {
            (Some(e), _) => return Err(e),
            (None, Err(e)) => self.error.set(Some(e)),
            (None, Ok(())) => {}
        }
        list.end()
    }
}

fn json(
    reader: &mut Reader<'_>,
    watch: &mut Watch,
    args: &Verify,
    summary: &mut Summary,
    out: &mut impl Write,
) -> Result<()> {
    let streamed = Streamed {
        reader: reader.into(),
        watch: watch.into(),
        summary: RefCell::new(&mut *summary),
        failed_only: args.failed,
        error: Cell::new(None),
    };
    let mut serializer = serde_json::Serializer::pretty(&mut *out);
    let mut map = serializer.serialize_map(None)?;
    map.serialize_entry("capture", &args.capture.display().to_string())?;
    map.serialize_entry("segments", &streamed)?;
    let error = streamed.error.take();
    drop(streamed);
    map.serialize_entry("summary", &*summary)?;
    map.end()?;
    writeln!(out)?;
    error.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests;
