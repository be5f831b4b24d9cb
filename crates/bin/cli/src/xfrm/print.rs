//! Prints messages in the format of `ip xfrm`.

use super::names::{
    self, ACTIONS, DEFAULTS, DIRS, ENCAPS, EXTRA_FLAGS, MODES, POLICY_FLAGS, PTYPES, SHARES, STATE_FLAGS, UPPER,
};
use sealane_abi::netlink;
use sealane_abi::xfrm::{
    self as x, Address, Attribute, Body, Id, Key, LifetimeCfg, LifetimeCur, Selector, UserTmpl, UserpolicyInfo,
    UsersaId, UsersaInfo, XFRM_INF, XfrmMessage,
};
use std::collections::HashMap;
use std::fmt::Write;

/// The settings of the output, and the names of the interfaces.
pub(super) struct Printer {
    /// The number of `-s` options; each adds detail.
    pub(super) stats: u8,
    /// `-o`: newlines within an object are printed as backslashes.
    pub(super) oneline: bool,
    /// Keys are hidden.
    pub(super) nokeys: bool,
    /// The names of interfaces by index.
    pub(super) names: HashMap<u32, String>,
}

/// An address as text, or "-" if its family is unknown.
fn ip(address: &Address, family: u16) -> String {
    address.ip(family).map_or_else(|| "-".into(), |ip| ip.to_string())
}

/// The first value that `pick` finds.
fn find<'a, T>(attrs: &'a [Attribute], pick: impl Fn(&'a Attribute) -> Option<T>) -> Option<T> {
    attrs.iter().find_map(pick)
}

/// The value of the first attribute of a kind.
macro_rules! attr {
    ($attrs:expr, $kind:ident) => {
        find($attrs, |a| if let Attribute::$kind(value) = a { Some(value) } else { None })
    };
}

impl Printer {
    /// A message as text after `prefix`; empty if it cannot be decoded.
    pub(super) fn message(&self, message: &netlink::Message<'_>, prefix: &str) -> String {
        XfrmMessage::decode(message).map_or_else(|_| String::new(), |m| self.decoded(&m, prefix))
    }

    /// An event as text.
    pub(super) fn event(&self, message: &netlink::Message<'_>) -> String {
        let prefix = match message.header.nlmsg_type {
            x::XFRM_MSG_UPDSA | x::XFRM_MSG_UPDPOLICY => "Updated ",
            x::XFRM_MSG_DELSA | x::XFRM_MSG_DELPOLICY => "Deleted ",
            x::XFRM_MSG_EXPIRE | x::XFRM_MSG_POLEXPIRE => "Expired ",
            _ => "",
        };
        self.message(message, prefix)
    }

    /// A decoded message as text after `prefix`.
    pub(super) fn decoded(&self, message: &XfrmMessage, prefix: &str) -> String {
        let mut out = prefix.to_owned();
        // Writing to a string does not fail.
        let _ = self.write(&mut out, message);
        if self.oneline && !out.is_empty() { out.replace('\n', "\\") + "\n" } else { out }
    }

    fn write(&self, out: &mut String, message: &XfrmMessage) -> std::fmt::Result {
        let attrs = &message.attrs[..];
        match &message.body {
            Body::NewSa(info) | Body::UpdSa(info) => self.state(out, info, attrs),
            Body::AllocSpi(x::UserspiInfo { info, .. }) => self.state(out, info, attrs),
            Body::DelSa(_) => match attr!(attrs, Sa) {
                Some(info) => self.state(out, info, attrs),
                None => Ok(()),
            },
            Body::Expire(expire) => {
                self.state(out, &expire.state, attrs)?;
                writeln!(out, "\thard {}", expire.hard)
            }
            Body::NewPolicy(info) | Body::UpdPolicy(info) => self.policy(out, info, attrs, "\t", ""),
            Body::DelPolicy(_) => match attr!(attrs, Policy) {
                Some(info) => self.policy(out, info, attrs, "\t", ""),
                None => Ok(()),
            },
            Body::PolExpire(expire) => {
                self.policy(out, &expire.pol, attrs, "\t", "")?;
                writeln!(out, "\thard {}", expire.hard)
            }
            Body::Acquire(acquire) => {
                write!(out, "acquire proto {} ", names::proto_name(acquire.id.proto))?;
                if self.stats > 0 || acquire.id.spi.get() != 0 {
                    write!(out, "spi 0x{:08x} ", acquire.id.spi.get())?;
                }
                writeln!(out)?;
                self.selector(out, &acquire.sel, "  sel ")?;
                self.policy(out, &acquire.policy, attrs, "    ", "  policy ")
            }
            Body::FlushSa(flush) => writeln!(out, "Flushed state proto {}", names::proto_name(flush.proto)),
            Body::FlushPolicy => {
                let type_ = attr!(attrs, PolicyType).map_or_else(String::new, |t| names::of(PTYPES, t.type_));
                writeln!(out, "Flushed policy {type_}")
            }
            Body::NewSadInfo(_) => {
                write!(out, "\t SAD count {}", attr!(attrs, SadCnt).copied().unwrap_or_default())?;
                if let Some(table) = attr!(attrs, SadHinfo).filter(|_| self.stats > 0) {
                    write!(out, " (buckets count {} Max {})", table.sadhcnt, table.sadhmcnt)?;
                }
                writeln!(out)
            }
            Body::NewSpdInfo(_) => self.policies(out, attrs),
            Body::GetDefault(d) | Body::SetDefault(d) => {
                writeln!(out, "Default policies:")?;
                for (name, action) in [("in: ", d.input), ("fwd:", d.fwd), ("out:", d.out)] {
                    writeln!(out, " {name} {}", names::of(DEFAULTS, action))?;
                }
                Ok(())
            }
            Body::Mapping(m) => {
                let family = m.id.family;
                write!(out, "Mapping change {}:{} -> ", ip(&m.old_saddr, family), m.old_sport.get())?;
                writeln!(out, "{}:{} SPI 0x{:08x}", ip(&m.new_saddr, family), m.new_sport.get(), m.id.spi.get())
            }
            Body::NewAe(event) => {
                write!(out, "Async event ")?;
                let kinds = [
                    (x::XFRM_AE_CR, "replay update"),
                    (x::XFRM_AE_CE, "timer expired"),
                    (x::XFRM_AE_CU, "policy updated"),
                ];
                write!(out, " (0x{:x}) ", event.flags)?;
                for (_, name) in kinds.iter().filter(|(bit, _)| event.flags & bit != 0) {
                    write!(out, " {name} ")?;
                }
                writeln!(out)?;
                self.event_of(out, &event.sa_id, &event.saddr, event.reqid)
            }
            _ => Ok(()),
        }
    }

    fn event_of(&self, out: &mut String, id: &UsersaId, saddr: &Address, reqid: u32) -> std::fmt::Result {
        write!(out, "\t src {} dst {} ", ip(saddr, id.family), ip(&id.daddr, id.family))?;
        writeln!(out, " reqid 0x{reqid:x} protocol {}  SPI 0x{:x}", names::proto_name(id.proto), id.spi.get())
    }

    fn policies(&self, out: &mut String, attrs: &[Attribute]) -> std::fmt::Result {
        if let Some(n) = attr!(attrs, SpdInfo) {
            write!(out, "\t SPD IN  {} OUT {} FWD {}", n.incnt, n.outcnt, n.fwdcnt)?;
            if self.stats > 0 {
                write!(out, " (Sock: IN {} OUT {} FWD {})", n.inscnt, n.outscnt, n.fwdscnt)?;
            }
            writeln!(out)?;
        }
        if self.stats > 1 {
            if let Some(table) = attr!(attrs, SpdHinfo) {
                writeln!(out, "\t SPD buckets: count {} Max {}", table.spdhcnt, table.spdhmcnt)?;
            }
            let thresholds = [("IPv4", attr!(attrs, SpdIpv4Hthresh)), ("IPv6", attr!(attrs, SpdIpv6Hthresh))];
            for (name, bits) in thresholds.iter().filter_map(|(n, b)| Some((n, (*b)?))) {
                writeln!(out, "\t SPD {name} thresholds: local {} remote {}", bits.lbits, bits.rbits)?;
            }
        }
        Ok(())
    }

    fn state(&self, out: &mut String, info: &UsersaInfo, attrs: &[Attribute]) -> std::fmt::Result {
        self.id(out, &info.saddr, &info.id, info.family, info.reqid, info.mode, "", "\t")?;
        write!(out, "\treplay-window {} ", info.replay_window)?;
        if self.stats > 0 {
            write!(out, "seq 0x{:08} ", info.seq)?;
        }
        if self.stats > 0 || info.flags != 0 {
            write!(out, "flag {}", names::bits(STATE_FLAGS, info.flags))?;
        }
        if self.stats > 0 {
            write!(out, " (0x{:08b})", info.flags)?;
            if let Some(extra) = attr!(attrs, SaExtraFlags).filter(|e| **e != 0) {
                write!(out, " extra_flag {} (0x{extra:032b})", names::bits(EXTRA_FLAGS, *extra))?;
            }
        }
        writeln!(out)?;
        self.attributes(out, attrs, info.family, "\t")?;
        if info.sel != Selector::default() {
            let family = if info.sel.family == 0 { info.family } else { info.sel.family };
            self.selector(out, &Selector { family, ..info.sel }, "\tsel ")?;
        }
        if self.stats > 0 {
            self.lifetime(out, &info.lft, &info.curlft, "\t")?;
            let s = &info.stats;
            writeln!(out, "\tstats:")?;
            writeln!(out, "\t  replay-window {} replay {} failed {}", s.replay_window, s.replay, s.integrity_failed)?;
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "a state's and a template's have them in different structures")]
    fn id(
        &self,
        out: &mut String,
        saddr: &Address,
        id: &Id,
        family: u16,
        reqid: u32,
        mode: u8,
        title: &str,
        indent: &str,
    ) -> std::fmt::Result {
        writeln!(out, "{title}src {} dst {}", ip(saddr, family), ip(&id.daddr, family))?;
        write!(out, "{indent}proto {} ", names::proto_name(id.proto))?;
        let spi = id.spi.get();
        // A template without an SPI matches any SPI.
        if title.is_empty() || self.stats > 0 || spi != 0 {
            write!(out, "spi 0x{spi:08x}")?;
            if self.stats > 0 {
                write!(out, "({spi})")?;
            }
            out.push(' ');
        }
        write!(out, "reqid {reqid}")?;
        if self.stats > 0 {
            write!(out, "(0x{reqid:08x})")?;
        }
        writeln!(out, " mode {}", names::of(MODES, mode))
    }

    fn key(&self, out: &mut String, kind: &str, name: &[u8], bits: u32, key: &Key) -> std::fmt::Result {
        write!(out, "{kind} {} ", String::from_utf8_lossy(name))?;
        if self.nokeys {
            out.push_str("<<Keys hidden>>");
        } else if !key.expose().is_empty() {
            out.push_str("0x");
            key.expose().iter().try_for_each(|b| write!(out, "{b:02x}"))?;
        }
        if self.stats > 0 { write!(out, " ({bits} bits)") } else { Ok(()) }
    }

    fn attributes(&self, out: &mut String, attrs: &[Attribute], family: u16, indent: &str) -> std::fmt::Result {
        let output = attr!(attrs, SetMark);
        if let Some(mark) = attr!(attrs, Mark) {
            write!(out, "{indent}mark {:#x}/{:#x} ", mark.v, mark.m)?;
            if output.is_none() {
                writeln!(out)?;
            }
        } else if output.is_some() {
            out.push_str(indent);
        }
        if let Some(value) = output {
            write!(out, "output-mark 0x{value:x}")?;
            if let Some(mask) = attr!(attrs, SetMarkMask) {
                write!(out, "/0x{mask:x}")?;
            }
            writeln!(out)?;
        }
        if let Some(a) = attr!(attrs, AlgAuthTrunc) {
            out.push_str(indent);
            self.key(out, "auth-trunc", a.name(), a.alg_key_len, &a.alg_key)?;
            writeln!(out, " {}", a.alg_trunc_len)?;
        } else if let Some(a) = attr!(attrs, AlgAuth) {
            out.push_str(indent);
            self.key(out, "auth", a.name(), a.alg_key_len, &a.alg_key)?;
            writeln!(out)?;
        }
        if let Some(a) = attr!(attrs, AlgAead) {
            out.push_str(indent);
            self.key(out, "aead", a.name(), a.alg_key_len, &a.alg_key)?;
            writeln!(out, " {}", a.alg_icv_len)?;
        }
        for (kind, a) in [("enc", attr!(attrs, AlgCrypt)), ("comp", attr!(attrs, AlgComp))] {
            if let Some(a) = a {
                out.push_str(indent);
                self.key(out, kind, a.name(), a.alg_key_len, &a.alg_key)?;
                writeln!(out)?;
            }
        }
        if let Some(e) = attr!(attrs, Encap) {
            let name = names::of(ENCAPS, e.encap_type);
            write!(out, "{indent}encap type {name} sport {} dport {} ", e.encap_sport.get(), e.encap_dport.get())?;
            writeln!(out, "addr {}", ip(&e.encap_oa, family))?;
        }
        if let Some(list) = attr!(attrs, Tmpl) {
            list.iter().try_for_each(|t| self.template(out, t, indent))?;
        }
        if let Some(a) = attr!(attrs, Coaddr) {
            writeln!(out, "{indent}coa {}", ip(a, family))?;
        }
        if let Some(t) = attr!(attrs, Lastused) {
            writeln!(out, "{indent}lastused {}", time(*t))?;
        }
        if let Some(r) = attr!(attrs, ReplayVal) {
            write!(out, "{indent}anti-replay context: seq 0x{:x}, ", r.seq)?;
            writeln!(out, "oseq 0x{:x}, bitmap 0x{:08x}", r.oseq, r.bitmap)?;
        }
        if let Some(r) = attr!(attrs, ReplayEsnVal) {
            writeln!(out, "{indent}anti-replay esn context:")?;
            write!(out, "{indent} seq-hi 0x{:x}, seq 0x{:x}, ", r.seq_hi, r.seq)?;
            writeln!(out, "oseq-hi 0x{:x}, oseq 0x{:x}", r.oseq_hi, r.oseq)?;
            writeln!(out, "{indent} replay_window {}, bitmap-length {}", r.replay_window, r.bmp_len)?;
            for line in r.bmp.chunks(8) {
                write!(out, "{indent} ")?;
                line.iter().try_for_each(|w| write!(out, "{w:08x} "))?;
                writeln!(out)?;
            }
        }
        if let Some(o) = attr!(attrs, OffloadDev) {
            let dir = if o.flags & x::XFRM_OFFLOAD_INBOUND != 0 { "in" } else { "out" };
            let mode = if o.flags & x::XFRM_OFFLOAD_PACKET != 0 { " mode packet" } else { "" };
            writeln!(out, "{indent}crypto offload parameters: dev {} dir {dir}{mode}", self.device(o.ifindex))?;
        }
        if let Some(id) = attr!(attrs, IfId) {
            writeln!(out, "{indent}if_id {id:#x}")?;
        }
        if let Some(bytes) = attr!(attrs, Tfcpad) {
            writeln!(out, "{indent}tfcpad {bytes}")?;
        }
        if let Some(dir) = attr!(attrs, SaDir) {
            writeln!(out, "{indent}dir {}", if *dir == x::XFRM_SA_DIR_IN { "in" } else { "out" })?;
        }
        if let Some(cpu) = attr!(attrs, SaPcpu) {
            writeln!(out, "{indent}pcpu-num {cpu}")?;
        }
        Ok(())
    }

    fn template(&self, out: &mut String, t: &UserTmpl, indent: &str) -> std::fmt::Result {
        let deeper = format!("{indent}\t");
        self.id(out, &t.saddr, &t.id, t.family, t.reqid, t.mode, &format!("{indent}tmpl "), &deeper)?;
        let required = t.optional == 0;
        if self.stats > 0 || !required {
            write!(out, "{deeper}level {} ", if required { "required" } else { "use" })?;
            if self.stats > 0 {
                write!(out, "share {} ", names::of(SHARES, t.share))?;
            }
            writeln!(out)?;
        }
        if self.stats > 0 {
            writeln!(out, "{deeper}enc-mask {:x} auth-mask {:x} comp-mask {:x}", t.ealgos, t.aalgos, t.calgos)?;
        }
        Ok(())
    }

    fn policy(
        &self,
        out: &mut String,
        info: &UserpolicyInfo,
        attrs: &[Attribute],
        indent: &str,
        title: &str,
    ) -> std::fmt::Result {
        self.selector(out, &info.sel, title)?;
        write!(out, "{indent}dir {} ", names::of(DIRS, info.dir))?;
        if self.stats > 0 || info.action != x::XFRM_POLICY_ALLOW {
            write!(out, "action {} ", names::of(ACTIONS, info.action))?;
        }
        if self.stats > 0 {
            write!(out, "index {} ", info.index)?;
        }
        write!(out, "priority {} ", info.priority)?;
        if let Some(type_) = attr!(attrs, PolicyType).filter(|t| self.stats > 0 || t.type_ != x::XFRM_POLICY_TYPE_MAIN)
        {
            write!(out, "ptype {} ", names::of(PTYPES, type_.type_))?;
        }
        if self.stats > 0 {
            write!(out, "share {} ", names::of(SHARES, info.share))?;
        }
        if self.stats > 0 || info.flags != 0 {
            write!(out, "flag {}", names::bits(POLICY_FLAGS, info.flags))?;
        }
        if self.stats > 0 {
            write!(out, " (0x{:08b})", info.flags)?;
        }
        writeln!(out)?;
        if self.stats > 0 {
            self.lifetime(out, &info.lft, &info.curlft, indent)?;
        }
        self.attributes(out, attrs, info.sel.family, indent)
    }

    fn selector(&self, out: &mut String, sel: &Selector, title: &str) -> std::fmt::Result {
        write!(out, "{title}src {}/{} ", ip(&sel.saddr, sel.family), sel.prefixlen_s)?;
        write!(out, "dst {}/{} ", ip(&sel.daddr, sel.family), sel.prefixlen_d)?;
        if sel.proto != 0 {
            write!(out, "proto {} ", names::of(UPPER, sel.proto))?;
        }
        let (sport, dport) = (sel.sport.get(), sel.dport.get());
        let ports = [("s", sport, sel.sport_mask.get()), ("d", dport, sel.dport_mask.get())];
        match sel.proto {
            1 | 58 | 135 => {
                for (name, port, mask) in [("type", ports[0].1, ports[0].2), ("code", ports[1].1, ports[1].2)] {
                    if mask != 0 {
                        write!(out, "{name} {port} ")?;
                    }
                }
            }
            47 if ports[0].2 != 0 && ports[1].2 != 0 => {
                write!(out, "key {} ", u32::from(sport) << 16 | u32::from(dport))?;
            }
            _ => {
                for (name, port, mask) in ports.iter().filter(|(_, _, mask)| *mask != 0) {
                    write!(out, "{name}port {port} ")?;
                    if *mask != u16::MAX {
                        write!(out, "mask {mask:#x} ")?;
                    }
                }
            }
        }
        if sel.ifindex > 0 {
            write!(out, "dev {} ", self.device(sel.ifindex))?;
        }
        if self.stats > 0 {
            write!(out, "uid {}", sel.user)?;
        }
        writeln!(out)
    }

    /// The name of an interface, or its index if it has no name.
    pub(super) fn device(&self, index: i32) -> String {
        self.names.get(&(index as u32)).cloned().unwrap_or_else(|| format!("if{index}"))
    }

    fn lifetime(&self, out: &mut String, cfg: &LifetimeCfg, cur: &LifetimeCur, indent: &str) -> std::fmt::Result {
        let count = |n: u64| if n == XFRM_INF { "(INF)".to_owned() } else { n.to_string() };
        writeln!(out, "{indent}lifetime config:")?;
        let limits = [
            ("bytes", cfg.soft_byte_limit, cfg.hard_byte_limit),
            ("packets", cfg.soft_packet_limit, cfg.hard_packet_limit),
        ];
        for (what, soft, hard) in limits {
            writeln!(out, "{indent}  limit: soft {}({what}), hard {}({what})", count(soft), count(hard))?;
        }
        let times = [
            ("add", cfg.soft_add_expires_seconds, cfg.hard_add_expires_seconds),
            ("use", cfg.soft_use_expires_seconds, cfg.hard_use_expires_seconds),
        ];
        for (what, soft, hard) in times {
            writeln!(out, "{indent}  expire {what}: soft {soft}(sec), hard {hard}(sec)")?;
        }
        writeln!(out, "{indent}lifetime current:")?;
        writeln!(out, "{indent}  {}(bytes), {}(packets)", cur.bytes, cur.packets)?;
        writeln!(out, "{indent}  add {} use {}", time(cur.add_time), time(cur.use_time))
    }
}

/// A time in UTC as text.
fn time(seconds: u64) -> String {
    if seconds == 0 {
        return "-".into();
    }
    let text = sealane_config::rfc3339(seconds as i64);
    text.replace('T', " ").replace('Z', "")
}
