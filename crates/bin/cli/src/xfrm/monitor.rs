//! `sealane xfrm monitor`: prints the events of the daemon.

use super::session::Session;
use super::words::Words;
use crate::answer::Answer;
use anyhow::{Result, bail};
use sealane_abi::xfrm::{
    XFRMNLGRP_ACQUIRE, XFRMNLGRP_AEVENTS, XFRMNLGRP_EXPIRE, XFRMNLGRP_MAPPING, XFRMNLGRP_MIGRATE, XFRMNLGRP_POLICY,
    XFRMNLGRP_REPORT, XFRMNLGRP_SA, group_bit,
};

/// The objects to monitor, with their multicast groups.
const OBJECTS: &[(&str, u32)] = &[
    ("acquire", XFRMNLGRP_ACQUIRE),
    ("expire", XFRMNLGRP_EXPIRE),
    ("SA", XFRMNLGRP_SA),
    ("aevent", XFRMNLGRP_AEVENTS),
    ("policy", XFRMNLGRP_POLICY),
    ("report", XFRMNLGRP_REPORT),
    ("migrate", XFRMNLGRP_MIGRATE),
    ("mapping", XFRMNLGRP_MAPPING),
];

/// Parses the rest of the command: the multicast groups as a mask, and whether keys are hidden.
pub(super) fn groups(words: &mut Words) -> Result<(u32, bool)> {
    let all = OBJECTS.iter().fold(0, |mask, (_, group)| mask | group_bit(*group));
    let (mut mask, mut nokeys) = (0, false);
    while let Some(word) = words.next() {
        match word.as_str() {
            "all" => mask = all,
            "nokeys" => nokeys = true,
            _ => match OBJECTS.iter().find(|(name, _)| *name == word) {
                Some((_, group)) => mask |= group_bit(*group),
                None => {
                    let names: Vec<&str> = OBJECTS.iter().map(|(name, _)| *name).collect();
                    bail!("unknown object '{word}', expected all, nokeys or one of {}", names.join(", "))
                }
            },
        }
    }
    Ok((if mask == 0 { all } else { mask }, nokeys))
}

/// Prints events until the process is terminated.
pub(super) fn run(session: &mut Session<'_>) -> Result<Answer> {
    /// The socket's buffer was full and events were lost.
    const ENOBUFS: i32 = 105;
    loop {
        let mut text = String::new();
        match session.client.event(|m| text.push_str(&session.printer.event(&m))) {
            Err(e) if e.raw_os_error() == Some(ENOBUFS) => {
                eprintln!("sealane: events were lost: the receive buffer was full")
            }
            done => done?,
        }
        session.out.write_all(text.as_bytes())?;
        session.out.flush()?;
    }
}
