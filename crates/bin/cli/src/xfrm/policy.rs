//! `sealane xfrm policy`: manages policies.

use super::names::{ACTIONS, DEFAULTS, DIRS, POLICY_FLAGS, PTYPES};
use super::parse::{flag, limit, masked, selector, template, within};
use super::session::{Session, report};
use super::words::{Words, unexpected};
use crate::answer::Answer;
use anyhow::{Context as _, Result, bail, ensure};
use sealane_abi::netlink::{NLM_F_CREATE, NLM_F_EXCL};
use sealane_abi::xfrm::{
    self as x, Attribute, Body, LifetimeCfg, Selector, Spdhthresh, UserOffload, UserpolicyDefault, UserpolicyId,
    UserpolicyInfo, UserpolicyType, XfrmMessage,
};
use std::net::IpAddr;

pub(super) fn run(session: &mut Session<'_>, words: &mut Words) -> Result<Answer> {
    let command = words.next().unwrap_or_else(|| "list".into());
    match command.as_str() {
        "add" => add(session, words, false),
        "update" | "upd" => add(session, words, true),
        "delete" | "del" => by_name(session, words, true),
        "get" => by_name(session, words, false),
        "list" | "show" | "lst" | "ls" => list(session, words, false),
        "deleteall" | "delall" => list(session, words, true),
        "flush" => {
            let ptype = if words.take("ptype") { Some(words.named("ptype", PTYPES)?) } else { None };
            words.end()?;
            let mut request = XfrmMessage::new(Body::FlushPolicy);
            request.attrs.extend(ptype.map(of_type));
            session.execute(&request, 0)
        }
        "count" => {
            words.end()?;
            question(session, &XfrmMessage::new(Body::GetSpdInfo(u32::MAX)))
        }
        "set" => thresholds(session, words),
        "setdefault" => defaults(session, words),
        "getdefault" => {
            words.end()?;
            question(session, &XfrmMessage::new(Body::GetDefault(UserpolicyDefault::default())))
        }
        _ => bail!(
            "unknown command 'policy {command}', expected one of add, update, delete, get, list, deleteall, flush, count, \
             set, setdefault, getdefault"
        ),
    }
}

fn question(session: &mut Session<'_>, request: &XfrmMessage) -> Result<Answer> {
    match session.get(request)? {
        Ok(message) => session.print(&message).map(|()| Answer::Yes),
        Err(refusal) => Ok(report(Err(refusal))),
    }
}

fn of_type(type_: u8) -> Attribute {
    Attribute::PolicyType(UserpolicyType { type_, ..UserpolicyType::default() })
}

fn add(session: &mut Session<'_>, words: &mut Words, update: bool) -> Result<Answer> {
    let mut info = UserpolicyInfo { lft: LifetimeCfg::NONE, ..UserpolicyInfo::default() };
    let (mut dir, mut attrs, mut templates) = (None, Vec::new(), Vec::new());
    while let Some(word) = words.next() {
        match word.as_str() {
            "dir" => dir = Some(words.named("dir", DIRS)?),
            "index" => info.index = words.number("index")?,
            "ptype" => attrs.push(of_type(words.named("ptype", PTYPES)?)),
            "action" => info.action = words.named("action", ACTIONS)?,
            "priority" => info.priority = words.number("priority")?,
            "flag" => info.flags |= flag(words, POLICY_FLAGS)?,
            "limit" => limit(&mut info.lft, words)?,
            "mark" => attrs.push(Attribute::Mark(masked("mark", words)?)),
            "if_id" => attrs.push(Attribute::IfId(words.number("if_id")?)),
            "tmpl" => {
                let family = if info.sel.family == 0 { session.default_family() } else { info.sel.family };
                templates.push(template(words, family)?);
            }
            "offload" => {
                words.take("packet");
                ensure!(words.take("dev"), "'offload' needs 'dev'");
                let ifindex = session.interface(&words.after("dev")?)? as i32;
                attrs.push(Attribute::OffloadDev(UserOffload { ifindex, flags: x::XFRM_OFFLOAD_PACKET, pad: [0; 3] }));
            }
            _ => ensure!(selector(&mut info.sel, &word, words, session)?, unexpected(&word)),
        }
    }
    info.dir = dir.context("'dir' is missing")?;
    if info.sel.family == 0 {
        info.sel.family = session.default_family();
    }
    if !templates.is_empty() {
        attrs.insert(0, Attribute::Tmpl(templates));
    }
    let body = if update { Body::UpdPolicy(info) } else { Body::NewPolicy(info) };
    let flags = if update { 0x100 } else { NLM_F_CREATE | NLM_F_EXCL };
    session.execute(&XfrmMessage { body, attrs }, flags)
}

fn by_name(session: &mut Session<'_>, words: &mut Words, delete: bool) -> Result<Answer> {
    let mut id = UserpolicyId::default();
    let (mut dir, mut attrs) = (None, Vec::new());
    while let Some(word) = words.next() {
        match word.as_str() {
            "dir" => dir = Some(words.named("dir", DIRS)?),
            "index" => id.index = words.number("index")?,
            "ptype" => attrs.push(of_type(words.named("ptype", PTYPES)?)),
            "mark" => attrs.push(Attribute::Mark(masked("mark", words)?)),
            "if_id" => attrs.push(Attribute::IfId(words.number("if_id")?)),
            _ => ensure!(selector(&mut id.sel, &word, words, session)?, unexpected(&word)),
        }
    }
    id.dir = dir.context("'dir' is missing")?;
    if id.sel.family == 0 {
        id.sel.family = session.default_family();
    }
    if delete {
        session.execute(&XfrmMessage { body: Body::DelPolicy(id), attrs }, 0)
    } else {
        question(session, &XfrmMessage { body: Body::GetPolicy(id), attrs })
    }
}

/// The conditions by which 'list' and 'deleteall' select policies.
#[derive(Default)]
struct PolicyFilter {
    sel: Selector,
    src: Option<(IpAddr, u8)>,
    dst: Option<(IpAddr, u8)>,
    dir: Option<u8>,
    index: Option<u32>,
    ptype: Option<u8>,
    action: Option<u8>,
    priority: Option<u32>,
    flags: u8,
    family: Option<u16>,
}

impl PolicyFilter {
    fn matches(&self, info: &UserpolicyInfo, attrs: &[Attribute]) -> bool {
        let type_ = attrs.iter().find_map(|a| match a {
            Attribute::PolicyType(t) => Some(t.type_),
            _ => None,
        });
        let is = |wanted: u64, real: u64| wanted == 0 || wanted == real;
        // The directions of socket policies are not listed.
        info.dir < x::XFRM_POLICY_MAX
            && self.family.is_none_or(|f| f == info.sel.family)
            && within(self.src, &info.sel.saddr, info.sel.family)
            && within(self.dst, &info.sel.daddr, info.sel.family)
            && is(self.sel.proto.into(), info.sel.proto.into())
            && is(self.sel.sport.get().into(), info.sel.sport.get().into())
            && is(self.sel.dport.get().into(), info.sel.dport.get().into())
            && is(self.sel.ifindex as u64, info.sel.ifindex as u64)
            && self.dir.is_none_or(|d| d == info.dir)
            && self.index.is_none_or(|i| i == info.index)
            && self.ptype.is_none_or(|t| t == type_.unwrap_or(x::XFRM_POLICY_TYPE_MAIN))
            && self.action.is_none_or(|a| a == info.action)
            && self.priority.is_none_or(|p| p == info.priority)
            && info.flags & self.flags == self.flags
    }
}

fn list(session: &mut Session<'_>, words: &mut Words, delete: bool) -> Result<Answer> {
    let mut filter = PolicyFilter { family: session.family, ..PolicyFilter::default() };
    while let Some(word) = words.next() {
        match word.as_str() {
            // The daemon has no socket policies.
            "nosock" => {}
            "src" => filter.src = Some(words.prefix("src")?),
            "dst" => filter.dst = Some(words.prefix("dst")?),
            "dir" => filter.dir = Some(words.named("dir", DIRS)?),
            "index" => filter.index = Some(words.number("index")?),
            "ptype" => filter.ptype = Some(words.named("ptype", PTYPES)?),
            "action" => filter.action = Some(words.named("action", ACTIONS)?),
            "priority" => filter.priority = Some(words.number("priority")?),
            "flag" => filter.flags |= flag(words, POLICY_FLAGS)?,
            _ => ensure!(selector(&mut filter.sel, &word, words, session)?, unexpected(&word)),
        }
    }
    let policies = match session.dump(&XfrmMessage::new(Body::DumpPolicy))? {
        Ok(policies) => policies,
        Err(refusal) => return Ok(report(Err(refusal))),
    };
    for message in &policies {
        let Body::NewPolicy(info) = &message.body else { continue };
        if !filter.matches(info, &message.attrs) {
            continue;
        }
        if !delete {
            session.print(message)?;
            continue;
        }
        let id = UserpolicyId { sel: info.sel, index: info.index, dir: info.dir, pad: [0; 3] };
        let mut request = XfrmMessage::new(Body::DelPolicy(id));
        let kept = |a: &&Attribute| matches!(a, Attribute::Mark(_) | Attribute::IfId(_) | Attribute::PolicyType(_));
        request.attrs.extend(message.attrs.iter().filter(kept).cloned());
        if let Err(refusal) = session.request(&request, 0)? {
            return Ok(report(Err(refusal)));
        }
    }
    Ok(Answer::Yes)
}

fn thresholds(session: &mut Session<'_>, words: &mut Words) -> Result<Answer> {
    let mut request = XfrmMessage::new(Body::NewSpdInfo(u32::MAX));
    while let Some(word) = words.next() {
        let mut bits = |most: u8| -> Result<Spdhthresh> {
            let (lbits, rbits) = (words.number(&word)?, words.number(&word)?);
            ensure!(lbits <= most && rbits <= most, "'{word}': a threshold must not exceed {most} bits");
            Ok(Spdhthresh { lbits, rbits })
        };
        request.attrs.push(match word.as_str() {
            "hthresh4" => Attribute::SpdIpv4Hthresh(bits(32)?),
            "hthresh6" => Attribute::SpdIpv6Hthresh(bits(128)?),
            _ => bail!("unexpected argument '{word}', expected hthresh4 or hthresh6"),
        });
    }
    session.execute(&request, 0)
}

fn defaults(session: &mut Session<'_>, words: &mut Words) -> Result<Answer> {
    let mut defaults = UserpolicyDefault::default();
    while let Some(word) = words.next() {
        let field = match word.as_str() {
            "in" => &mut defaults.input,
            "fwd" => &mut defaults.fwd,
            "out" => &mut defaults.out,
            _ => bail!("unexpected argument '{word}', expected in, fwd or out"),
        };
        *field = words.named(&word, DEFAULTS)?;
    }
    session.execute(&XfrmMessage::new(Body::SetDefault(defaults)), 0)
}
