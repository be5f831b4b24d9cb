//! `sealane tcp-ao sign`: adds TCP-AO options to the segments of a capture.

use super::capture::{self, Watch};
use crate::answer::Answer;
use crate::args::Sign;
use anyhow::{Context, Result, bail};
use sealane_capture::{Frame, LinkType, Reader, Writer};
use sealane_net_ao::drop::DropReason;
use sealane_wire::ip::NotTcp;
use sealane_wire::tcp::Segment;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// The number of frames by outcome.
#[derive(Default, Debug, PartialEq, Eq)]
struct Tally {
    signed: u64,
    /// Copied, because they match no key.
    copied: u64,
    /// Copied, because signing failed although they match a key.
    failed: u64,
}

pub(crate) fn sign(args: &Sign, out: &mut impl Write) -> Result<Answer> {
    let mut watch = capture::watch(&args.keys, &args.isn)?;
    let mut reader = capture::open(&args.capture)?;
    let name = || args.output.display().to_string();
    let tally = if args.output == Path::new("-") {
        write_all(&mut reader, &mut watch, out)?
    } else {
        let file = File::create(&args.output).with_context(name)?;
        write_all(&mut reader, &mut watch, BufWriter::new(file)).with_context(name)?
    };
    eprintln!(
        "sealane: {} segments signed, {} frames copied, {} segments could not be signed",
        tally.signed, tally.copied, tally.failed
    );
    Ok(if tally.failed == 0 && tally.signed > 0 { Answer::Yes } else { Answer::No })
}

fn write_all(reader: &mut Reader<'_>, watch: &mut Watch, out: impl Write) -> Result<Tally> {
    let mut out = Some(out);
    let mut writer: Option<(Writer<_>, LinkType)> = None;
    let mut tally = Tally::default();
    let mut packet = Vec::new();
    while let Some(frame) = reader.next_frame()? {
        let (writer, link) = match &mut writer {
            Some(w) => w,
            none => {
                let new = Writer::new(out.take().expect("a writer is made once"), frame.link)?;
                none.insert((new, frame.link))
            }
        };
        if *link != frame.link {
            bail!("frame {} has another link type than those before it, which a pcap file cannot hold", frame.number);
        }
        match signed(&frame, watch, &mut packet) {
            Some(Ok(())) => {
                tally.signed += 1;
                writer.write(frame.time_ns, &packet)?;
                continue;
            }
            Some(Err(reason)) => {
                tally.failed += 1;
                eprintln!("sealane: frame {} is not signed: {}", frame.number, reason.help());
            }
            None => tally.copied += 1,
        }
        writer.write(frame.time_ns, frame.data)?;
    }
    match (writer, out) {
        (Some((writer, _)), _) => writer.finish()?,
        // Without frames the link type is unknown; raw IP serves as well as any other.
        (None, Some(out)) => Writer::new(out, LinkType::RAW)?.finish()?,
        (None, None) => unreachable!("`out` is taken only to make the writer"),
    }
    Ok(tally)
}

/// Writes the frame with its segment signed to `out`. `None` if there is nothing to sign.
fn signed(frame: &Frame<'_>, watch: &mut Watch, out: &mut Vec<u8>) -> Option<Result<(), DropReason>> {
    let at = frame.ip_at().ok()?;
    let segment = match Segment::parse(&frame.data[at..]) {
        Ok(segment) => segment,
        Err(NotTcp::Other) => return None,
        Err(NotTcp::Fragment) => return Some(Err(DropReason::Fragment)),
        Err(NotTcp::Malformed) => return Some(Err(DropReason::Malformed)),
    };
    match watch.observer.sign(&segment, frame.time_ns.div_euclid(1_000_000_000), out) {
        Ok(_) => {
            out.splice(..0, frame.data[..at].iter().copied());
            Some(Ok(()))
        }
        Err(DropReason::NoSendKey) => None,
        Err(reason) => Some(Err(reason)),
    }
}

/// Signs the capture `input`, for tests.
#[cfg(test)]
pub(crate) fn signed_capture(input: &[u8], watch: &mut Watch) -> Vec<u8> {
    let mut out = Vec::new();
    write_all(&mut Reader::new(input).unwrap(), watch, &mut out).unwrap();
    out
}
