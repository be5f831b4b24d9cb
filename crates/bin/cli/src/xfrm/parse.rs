//! Parsers of the arguments that states and policies have in common: identities, selectors, limits, marks, templates.

use super::names::{LEVELS, MODES, PROTOS, SHARES, UPPER};
use super::session::Session;
use super::words::{Words, number};
use anyhow::{Context as _, Result, bail, ensure};
use sealane_abi::xfrm::{AF_INET, AF_INET6, Address, Id, LifetimeCfg, Mark, Selector, UserTmpl};
use std::net::IpAddr;

/// The family of `ip`.
pub(super) fn family_of(ip: IpAddr) -> u16 {
    if ip.is_ipv4() { AF_INET } else { AF_INET6 }
}

/// The identity of a state: source, destination, protocol and SPI.
#[derive(Default)]
pub(super) struct Identity {
    pub(super) id: Id,
    pub(super) saddr: Address,
    pub(super) family: u16,
}

impl Identity {
    fn address(&mut self, ip: IpAddr) -> Result<Address> {
        ensure!([0, family_of(ip)].contains(&self.family), "'{ip}': 'src' and 'dst' must be of the same family");
        self.family = family_of(ip);
        Ok(ip.into())
    }

    /// Parses the argument `word` and its value. `false` if it is not a part of an identity.
    pub(super) fn take(&mut self, word: &str, words: &mut Words) -> Result<bool> {
        match word {
            "src" => self.saddr = words.address(word).and_then(|ip| self.address(ip))?,
            "dst" => self.id.daddr = words.address(word).and_then(|ip| self.address(ip))?,
            "proto" => self.id.proto = words.named(word, PROTOS)?,
            "spi" => self.id.spi = words.number::<u32>(word)?.into(),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Parses the name or number of an upper-layer protocol.
pub(super) fn upper(word: &str) -> Option<u8> {
    UPPER.iter().find(|(name, _)| *name == word).map(|(_, n)| *n).or_else(|| number(word)?.try_into().ok())
}

/// Parses the argument `word` and its value into `sel`. `false` if it is not a part of a selector.
pub(super) fn selector(sel: &mut Selector, word: &str, words: &mut Words, session: &Session<'_>) -> Result<bool> {
    let port = |words: &mut Words| -> Result<_> { Ok((words.number::<u16>(word)?.into(), u16::MAX.into())) };
    match word {
        "src" | "dst" => {
            let (ip, len) = words.prefix(word)?;
            ensure!([0, family_of(ip)].contains(&sel.family), "'{ip}': 'src' and 'dst' must be of the same family");
            sel.family = family_of(ip);
            if word == "src" {
                (sel.saddr, sel.prefixlen_s) = (ip.into(), len);
            } else {
                (sel.daddr, sel.prefixlen_d) = (ip.into(), len);
            }
        }
        "dev" => {
            let name = words.after(word)?;
            let index = session.interface(&name)?;
            sel.ifindex = index as i32;
        }
        "proto" => {
            let name = words.after(word)?;
            sel.proto = upper(&name).with_context(|| format!("unknown protocol '{name}'"))?;
        }
        "sport" | "type" => (sel.sport, sel.sport_mask) = port(words)?,
        "dport" | "code" => (sel.dport, sel.dport_mask) = port(words)?,
        "key" => {
            let text = words.after(word)?;
            let dotted = text.parse::<std::net::Ipv4Addr>().ok().map(u32::from);
            let key = dotted.or_else(|| number(&text)?.try_into().ok());
            let key = key.with_context(|| format!("'{text}' is not a GRE key"))?;
            (sel.sport, sel.sport_mask) = (((key >> 16) as u16).into(), u16::MAX.into());
            (sel.dport, sel.dport_mask) = ((key as u16).into(), u16::MAX.into());
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Parses the arguments of "limit".
pub(super) fn limit(limits: &mut LifetimeCfg, words: &mut Words) -> Result<()> {
    let what = words.after("limit")?;
    let field = match what.as_str() {
        "time-soft" => &mut limits.soft_add_expires_seconds,
        "time-hard" => &mut limits.hard_add_expires_seconds,
        "time-use-soft" => &mut limits.soft_use_expires_seconds,
        "time-use-hard" => &mut limits.hard_use_expires_seconds,
        "byte-soft" => &mut limits.soft_byte_limit,
        "byte-hard" => &mut limits.hard_byte_limit,
        "packet-soft" => &mut limits.soft_packet_limit,
        "packet-hard" => &mut limits.hard_packet_limit,
        _ => bail!("unknown limit '{what}', expected time, time-use, byte or packet, each with -soft or -hard"),
    };
    *field = words.number(&what)?;
    Ok(())
}

/// Parses the arguments of "mark" or "output-mark": a value, optionally with a mask.
pub(super) fn mark(what: &str, words: &mut Words) -> Result<(u32, Option<u32>)> {
    let value = words.number(what)?;
    let mask = if words.take("mask") { Some(words.number("mask")?) } else { None };
    Ok((value, mask))
}

/// The same with a default mask of all ones.
pub(super) fn masked(what: &str, words: &mut Words) -> Result<Mark> {
    let (v, m) = mark(what, words)?;
    Ok(Mark { v, m: m.unwrap_or(u32::MAX) })
}

/// Parses the arguments of "tmpl".
pub(super) fn template(words: &mut Words, default_family: u16) -> Result<UserTmpl> {
    let all = u32::MAX;
    let mut tmpl = UserTmpl { aalgos: all, ealgos: all, calgos: all, ..UserTmpl::default() };
    let mut name = Identity::default();
    while let Some(word) = words.peek().map(str::to_owned) {
        if !["src", "dst", "proto", "spi", "mode", "reqid", "level", "share"].contains(&word.as_str()) {
            break;
        }
        words.next();
        match word.as_str() {
            "mode" => tmpl.mode = words.named("mode", MODES)?,
            "reqid" => tmpl.reqid = words.number("reqid")?,
            "level" => tmpl.optional = words.named("level", LEVELS)?,
            "share" => tmpl.share = words.named("share", SHARES)?,
            _ => drop(name.take(&word, words)?),
        }
    }
    (tmpl.id, tmpl.saddr) = (name.id, name.saddr);
    tmpl.family = if name.family == 0 { default_family } else { name.family };
    Ok(tmpl)
}

/// Parses the argument of "flag": the name of a bit, or a number.
pub(super) fn flag<T: Copy + TryFrom<u64>>(words: &mut Words, table: &[(&str, T)]) -> Result<T> {
    let word = words.after("flag")?;
    let named = table.iter().find(|(name, _)| *name == word).map(|(_, bit)| *bit);
    let known = || table.iter().map(|(n, _)| *n).collect::<Vec<_>>().join(", ");
    named
        .or_else(|| number(&word).and_then(|n| T::try_from(n).ok()))
        .with_context(|| format!("unknown flag '{word}', expected one of {}", known()))
}

/// Whether `address` is in `prefix`. Without a prefix every address is.
pub(super) fn within(prefix: Option<(IpAddr, u8)>, address: &Address, family: u16) -> bool {
    prefix.is_none_or(|(ip, len)| family_of(ip) == family && address.matches(&ip.into(), len))
}
