//! `sealane xfrm state`: manages states.

use super::names::{ENCAPS, EXTRA_FLAGS, MODES, PROTOS, STATE_FLAGS};
use super::parse::{Identity, flag, limit, mark, masked, selector, within};
use super::session::{Session, report};
use super::words::{Words, unexpected};
use crate::answer::Answer;
use anyhow::{Context as _, Result, bail, ensure};
use sealane_abi::cryptouser::name_field;
use sealane_abi::netlink::{NLM_F_CREATE, NLM_F_EXCL};
use sealane_abi::xfrm::{
    self as x, Algo, AlgoAead, AlgoAuth, Attribute, Body, EncapTmpl, Key, LifetimeCfg, ReplayState, ReplayStateEsn,
    UserOffload, UsersaFlush, UsersaId, UsersaInfo, UserspiInfo, XfrmMessage,
};
use std::io::Read;
use std::net::IpAddr;
use zeroize::Zeroizing;

pub(super) fn run(session: &mut Session<'_>, words: &mut Words) -> Result<Answer> {
    let command = words.next().unwrap_or_else(|| "list".into());
    match command.as_str() {
        "add" => add(session, words, false),
        "update" | "upd" => add(session, words, true),
        "allocspi" => allocspi(session, words),
        "delete" | "del" => by_name(session, words, true),
        "get" => by_name(session, words, false),
        "list" | "show" | "lst" | "ls" => list(session, words, false),
        "deleteall" | "delall" => list(session, words, true),
        "flush" => {
            let proto = if words.take("proto") { words.named("proto", PROTOS)? } else { 0 };
            words.end()?;
            session.execute(&XfrmMessage::new(Body::FlushSa(UsersaFlush { proto })), 0)
        }
        "count" => {
            words.end()?;
            match session.get(&XfrmMessage::new(Body::GetSadInfo(u32::MAX)))? {
                Ok(message) => session.print(&message).map(|()| Answer::Yes),
                Err(refusal) => Ok(report(Err(refusal))),
            }
        }
        _ => bail!(
            "unknown command 'state {command}', expected one of add, update, allocspi, delete, get, list, deleteall, \
             flush, count"
        ),
    }
}

/// Parses a key and returns its length in bits with it. A key is hexadecimal digits after 0x, the bytes of a word, or
/// @FILE for the content of a file in one of these forms.
fn key(words: &mut Words, name: &str) -> Result<(u32, Key)> {
    let word = Zeroizing::new(words.after(name)?);
    let mut text = word;
    if let Some(path) = text.strip_prefix('@') {
        let mut content = Zeroizing::new(String::new());
        let file = std::fs::File::open(path).with_context(|| path.to_owned())?;
        file.take(1 << 16).read_to_string(&mut content).with_context(|| path.to_owned())?;
        text = Zeroizing::new(content.trim_end().to_owned());
    }
    let bytes = match text.strip_prefix("0x") {
        None => Zeroizing::new(text.as_bytes().to_vec()),
        Some(hex) => {
            // If the number of digits is odd, the first digit is a byte.
            let mut bytes = Zeroizing::new(Vec::with_capacity(hex.len() / 2 + 1));
            let (first, rest) = hex.split_at_checked(hex.len() % 2).unwrap_or((hex, ""));
            let pairs = std::iter::once(first).filter(|f| !f.is_empty());
            for pair in pairs.chain((0..rest.len()).step_by(2).map(|i| rest.get(i..i + 2).unwrap_or("?"))) {
                bytes.push(
                    u8::from_str_radix(pair, 16)
                        .map_err(|_| anyhow::anyhow!("the key of '{name}' is not hexadecimal"))?,
                );
            }
            bytes
        }
    };
    Ok((bytes.len() as u32 * 8, Key::new(&bytes)))
}

/// Parses the arguments of "offload": the kind, a device and a direction.
fn offload(session: &Session<'_>, words: &mut Words) -> Result<UserOffload> {
    let mut offload = UserOffload::default();
    if words.take("packet") {
        offload.flags |= x::XFRM_OFFLOAD_PACKET;
    } else {
        words.take("crypto");
    }
    ensure!(words.take("dev"), "'offload' needs 'dev'");
    let name = words.after("dev")?;
    offload.ifindex = session.interface(&name)? as i32;
    ensure!(words.take("dir"), "'offload' needs 'dir'");
    offload.flags |= words.named("dir", &[("in", x::XFRM_OFFLOAD_INBOUND), ("out", 0)])?;
    Ok(offload)
}

fn add(session: &mut Session<'_>, words: &mut Words, update: bool) -> Result<Answer> {
    let mut info = UsersaInfo { lft: LifetimeCfg::NONE, ..UsersaInfo::default() };
    let mut name = Identity::default();
    let mut attrs = Vec::new();
    let (mut window, mut replay, mut extra) = (0u32, [0u32; 4], 0u32);
    let mut output: Option<(u32, Option<u32>)> = None;
    let mut replays = false;
    while let Some(word) = words.next() {
        match word.as_str() {
            "mode" => info.mode = words.named("mode", MODES)?,
            "reqid" => info.reqid = words.number("reqid")?,
            "seq" => info.seq = words.number("seq")?,
            "replay-window" => window = words.number("replay-window")?,
            "replay-seq" | "replay-seq-hi" | "replay-oseq" | "replay-oseq-hi" => {
                let at =
                    ["replay-seq", "replay-seq-hi", "replay-oseq", "replay-oseq-hi"].iter().position(|w| *w == word);
                replay[at.unwrap_or(0)] = words.number(&word)?;
                replays = true;
            }
            "flag" => info.flags |= flag(words, STATE_FLAGS)?,
            "extra-flag" => extra |= flag(words, EXTRA_FLAGS)?,
            "limit" => limit(&mut info.lft, words)?,
            "mark" => attrs.push(Attribute::Mark(masked("mark", words)?)),
            "if_id" => attrs.push(Attribute::IfId(words.number("if_id")?)),
            "output-mark" => output = Some(mark("output-mark", words)?),
            "tfcpad" => attrs.push(Attribute::Tfcpad(words.number("tfcpad")?)),
            "coa" => attrs.push(Attribute::Coaddr(words.address("coa")?.into())),
            "dir" => attrs
                .push(Attribute::SaDir(words.named("dir", &[("in", x::XFRM_SA_DIR_IN), ("out", x::XFRM_SA_DIR_OUT)])?)),
            "pcpu-num" => attrs.push(Attribute::SaPcpu(words.number("pcpu-num")?)),
            "offload" => {
                let offload = offload(session, words)?;
                attrs.push(Attribute::OffloadDev(offload));
            }
            "encap" => {
                let encap_type = words.named("encap", ENCAPS)?;
                let (sport, dport) = (words.number::<u16>("encap")?, words.number::<u16>("encap")?);
                let encap_oa = words.address("encap")?.into();
                let (encap_sport, encap_dport) = (sport.into(), dport.into());
                attrs.push(Attribute::Encap(EncapTmpl { encap_type, encap_sport, encap_dport, encap_oa, pad: [0; 2] }));
            }
            "sel" => {
                while let Some(part) = words.peek().map(str::to_owned) {
                    words.next();
                    if !selector(&mut info.sel, &part, words, session)? {
                        words.back();
                        break;
                    }
                }
            }
            "enc" | "auth" | "auth-trunc" | "aead" | "comp" => attrs.push(algorithm(&word, words)?),
            _ if name.take(&word, words)? => {}
            _ => return Err(unexpected(&word)),
        }
    }
    (info.id, info.saddr) = (name.id, name.saddr);
    info.family = if name.family == 0 { session.default_family() } else { name.family };
    let [seq, seq_hi, oseq, oseq_hi] = replay;
    let esn = info.flags & x::XFRM_STATE_ESN != 0;
    ensure!(!esn || window > 0, "'flag esn' needs 'replay-window'");
    ensure!(
        window as usize <= x::XFRMA_REPLAY_ESN_MAX,
        "'replay-window' must not exceed {} packets",
        x::XFRMA_REPLAY_ESN_MAX
    );
    if esn || window > 32 {
        let bmp_len = window.div_ceil(32);
        let (replay_window, bmp) = (window, vec![0; bmp_len as usize]);
        attrs.push(Attribute::ReplayEsnVal(ReplayStateEsn { bmp_len, oseq, seq, oseq_hi, seq_hi, replay_window, bmp }));
    } else {
        ensure!(seq_hi == 0 && oseq_hi == 0, "'replay-seq-hi' and 'replay-oseq-hi' need 'flag esn'");
        info.replay_window = window as u8;
        if replays {
            attrs.push(Attribute::ReplayVal(ReplayState { oseq, seq, bitmap: 0 }));
        }
    }
    if extra != 0 {
        attrs.push(Attribute::SaExtraFlags(extra));
    }
    if let Some((value, mask)) = output {
        attrs.push(Attribute::SetMark(value));
        attrs.extend(mask.map(Attribute::SetMarkMask));
    }
    let body = if update { Body::UpdSa(info) } else { Body::NewSa(info) };
    let flags = if update { 0x100 } else { NLM_F_CREATE | NLM_F_EXCL };
    session.execute(&XfrmMessage { body, attrs }, flags)
}

fn algorithm(kind: &str, words: &mut Words) -> Result<Attribute> {
    let name = words.after(kind)?;
    let alg_name = name_field(&name);
    if kind == "comp" {
        return Ok(Attribute::AlgComp(Algo { alg_name, alg_key_len: 0, alg_key: Key::new(&[]) }));
    }
    let (alg_key_len, alg_key) = key(words, &name)?;
    Ok(match kind {
        "enc" => Attribute::AlgCrypt(Algo { alg_name, alg_key_len, alg_key }),
        "auth" => Attribute::AlgAuth(Algo { alg_name, alg_key_len, alg_key }),
        "aead" => Attribute::AlgAead(AlgoAead { alg_name, alg_key_len, alg_icv_len: words.number("aead")?, alg_key }),
        _ => {
            let alg_trunc_len = words.number("auth-trunc")?;
            Attribute::AlgAuthTrunc(AlgoAuth { alg_name, alg_key_len, alg_trunc_len, alg_key })
        }
    })
}

fn allocspi(session: &mut Session<'_>, words: &mut Words) -> Result<Answer> {
    let mut info = UsersaInfo { lft: LifetimeCfg::NONE, ..UsersaInfo::default() };
    let (mut name, mut attrs, mut range) = (Identity::default(), Vec::new(), (None, None));
    while let Some(word) = words.next() {
        match word.as_str() {
            "mode" => info.mode = words.named("mode", MODES)?,
            "reqid" => info.reqid = words.number("reqid")?,
            "seq" => info.seq = words.number("seq")?,
            "mark" => attrs.push(Attribute::Mark(masked("mark", words)?)),
            "if_id" => attrs.push(Attribute::IfId(words.number("if_id")?)),
            "min" => range.0 = Some(words.number("min")?),
            "max" => range.1 = Some(words.number("max")?),
            _ if name.take(&word, words)? => {}
            _ => return Err(unexpected(&word)),
        }
    }
    (info.id, info.saddr) = (name.id, name.saddr);
    info.family = if name.family == 0 { session.default_family() } else { name.family };
    let (min, max) = match range {
        (Some(min), Some(max)) => (min, max),
        (None, None) if info.id.proto == x::IPPROTO_COMP => (0x100, 0xffff),
        (None, None) => (0x100, 0x0fff_ffff),
        _ => bail!("'min' and 'max' must be given together"),
    };
    match session.get(&XfrmMessage { body: Body::AllocSpi(UserspiInfo { info, min, max }), attrs })? {
        Ok(message) => session.print(&message).map(|()| Answer::Yes),
        Err(refusal) => Ok(report(Err(refusal))),
    }
}

/// The identity of a state in a request.
fn id(name: &Identity, default_family: u16) -> UsersaId {
    UsersaId {
        daddr: name.id.daddr,
        spi: name.id.spi,
        family: if name.family == 0 { default_family } else { name.family },
        proto: name.id.proto,
        pad: 0,
    }
}

fn by_name(session: &mut Session<'_>, words: &mut Words, delete: bool) -> Result<Answer> {
    let (mut name, mut attrs, mut source) = (Identity::default(), Vec::new(), false);
    while let Some(word) = words.next() {
        match word.as_str() {
            "mark" => attrs.push(Attribute::Mark(masked("mark", words)?)),
            "if_id" => attrs.push(Attribute::IfId(words.number("if_id")?)),
            _ => {
                source |= word == "src";
                ensure!(name.take(&word, words)?, unexpected(&word));
            }
        }
    }
    if source {
        attrs.push(Attribute::Srcaddr(name.saddr));
    }
    let id = id(&name, session.default_family());
    if delete {
        return session.execute(&XfrmMessage { body: Body::DelSa(id), attrs }, 0);
    }
    match session.get(&XfrmMessage { body: Body::GetSa(id), attrs })? {
        Ok(message) => session.print(&message).map(|()| Answer::Yes),
        Err(refusal) => Ok(report(Err(refusal))),
    }
}

/// The conditions by which 'list' and 'deleteall' select states.
#[derive(Default)]
struct StateFilter {
    src: Option<(IpAddr, u8)>,
    dst: Option<(IpAddr, u8)>,
    proto: Option<u8>,
    spi: Option<u32>,
    mode: Option<u8>,
    reqid: Option<u32>,
    flags: u8,
    family: Option<u16>,
}

impl StateFilter {
    fn matches(&self, info: &UsersaInfo) -> bool {
        self.family.is_none_or(|f| f == info.family)
            && within(self.src, &info.saddr, info.family)
            && within(self.dst, &info.id.daddr, info.family)
            && self.proto.is_none_or(|p| p == info.id.proto)
            && self.spi.is_none_or(|s| s == info.id.spi.get())
            && self.mode.is_none_or(|m| m == info.mode)
            && self.reqid.is_none_or(|r| r == info.reqid)
            && info.flags & self.flags == self.flags
    }
}

fn list(session: &mut Session<'_>, words: &mut Words, delete: bool) -> Result<Answer> {
    let mut filter = StateFilter { family: session.family, ..StateFilter::default() };
    while let Some(word) = words.next() {
        match word.as_str() {
            "nokeys" => session.printer.nokeys = true,
            "src" => filter.src = Some(words.prefix("src")?),
            "dst" => filter.dst = Some(words.prefix("dst")?),
            "proto" => filter.proto = Some(words.named("proto", PROTOS)?),
            "spi" => filter.spi = Some(words.number("spi")?),
            "mode" => filter.mode = Some(words.named("mode", MODES)?),
            "reqid" => filter.reqid = Some(words.number("reqid")?),
            "flag" => filter.flags |= flag(words, STATE_FLAGS)?,
            _ => return Err(unexpected(&word)),
        }
    }
    let mut request = XfrmMessage::new(Body::DumpSa);
    request.attrs.extend(filter.proto.map(Attribute::Proto));
    let states = match session.dump(&request)? {
        Ok(states) => states,
        Err(refusal) => return Ok(report(Err(refusal))),
    };
    let mut answer = Answer::Yes;
    for message in &states {
        let Body::NewSa(info) = &message.body else { continue };
        if !filter.matches(info) {
            continue;
        }
        if !delete {
            session.print(message)?;
            continue;
        }
        let name = Identity { id: info.id, saddr: info.saddr, family: info.family };
        let mut request = XfrmMessage::new(Body::DelSa(id(&name, info.family))).with(Attribute::Srcaddr(info.saddr));
        request
            .attrs
            .extend(message.attrs.iter().filter(|a| matches!(a, Attribute::Mark(_) | Attribute::IfId(_))).cloned());
        // A state that cannot be deleted because it is still being acquired does not prevent deleting the others.
        if let Err(refusal) = session.request(&request, 0)? {
            answer = report(Err(refusal));
        }
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Option<Vec<u8>> {
        let mut words = Words::new(&[text.into()]).unwrap();
        key(&mut words, "enc").ok().map(|(bits, key)| {
            assert_eq!(bits as usize, key.expose().len() * 8);
            key.expose().to_vec()
        })
    }

    #[test]
    fn keys_are_digits_words_or_files() {
        assert_eq!(bytes("0x0102ff"), Some(vec![1, 2, 255]));
        assert_eq!(bytes("0x102"), Some(vec![1, 2]));
        assert_eq!(bytes("ab"), Some(b"ab".to_vec()));
        assert_eq!(bytes(""), Some(Vec::new()));
        assert_eq!(bytes("0x"), Some(Vec::new()));
        assert_eq!(bytes("0xzz"), None);
        assert_eq!(bytes("0x1é"), None);
        assert_eq!(bytes("@/nonexistent"), None);
    }

    #[test]
    fn names_of_states() {
        let words = ["dst", "10.0.0.2", "proto", "esp", "spi", "0x10"].map(Into::into);
        let mut words = Words::new(&words).unwrap();
        let mut name = Identity::default();
        while let Some(word) = words.next() {
            assert!(name.take(&word, &mut words).unwrap());
        }
        assert_eq!((name.id.spi.get(), name.id.proto, name.family), (16, 50, x::AF_INET));
    }
}
