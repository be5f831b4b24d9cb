//! Recorded exchanges between iproute2, charon and a real kernel: each message is read and written again, and refused
//! where the kernel refused it. `conformance/vectors/xfrm_capture.py` and `xfrm_strongswan.py` recorded them.

use sealane_abi::Errno;
use sealane_abi::netlink::answer::{AckOptions, ExtAck, NLMSGERR_ATTR_MSG, ack, done};
use sealane_abi::netlink::rules::Reject;
use sealane_abi::netlink::{
    self, Attrs, Messages, NLM_F_ACK_TLVS, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NLMSG_MIN_TYPE,
};
use sealane_abi::xfrm::{self, Attributes, Body, Reason, Request, XfrmMessage};
use std::collections::BTreeSet;

const RECORDS: [&str; 3] = [
    include_str!("../../../../conformance/vectors/xfrm-linux-7.3.txt"),
    include_str!("../../../../conformance/vectors/xfrm-linux-6.18-migrate.txt"),
    include_str!("../../../../conformance/vectors/xfrm-strongswan-linux-7.3.txt"),
];

/// One command with the datagrams that it sent and received, and the events that it caused.
struct Step {
    command: &'static str,
    sent: Vec<Vec<u8>>,
    received: Vec<Vec<u8>>,
    events: Vec<Vec<u8>>,
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

fn steps() -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in RECORDS.iter().flat_map(|r| r.lines()).filter(|l| !l.starts_with(';')) {
        let (mark, text) = line.split_at(2);
        if mark == "# " {
            steps.push(Step { command: text, sent: Vec::new(), received: Vec::new(), events: Vec::new() });
            continue;
        }
        let step = steps.last_mut().unwrap();
        match mark {
            "> " => step.sent.push(hex(text)),
            "< " => step.received.push(hex(text)),
            "* " => step.events.push(hex(text)),
            _ => panic!("{line}"),
        }
    }
    steps
}

impl Step {
    /// Whether the bytes contain more than a message's meaning, so that writing does not restore them.
    fn is_odd(&self) -> bool {
        [
            "malformed",
            "short PROTO",
            "are not read",
            "least length",
            "unknown attributes",
            "is no request",
            "not a request",
        ]
        .iter()
        .any(|word| self.command.contains(word))
    }

    fn options(&self) -> AckOptions {
        match self.command.split_once("raw").map(|(_, rest)| rest.split(':').next().unwrap()) {
            None => AckOptions { ext: true, cap: false },
            Some(asked) => AckOptions { ext: asked.contains("ext"), cap: asked.contains("cap") },
        }
    }
}

/// Whether it is a message of NETLINK_XFRM.
fn is_ours(type_: u16) -> bool {
    type_ >= NLMSG_MIN_TYPE
}

#[test]
fn everything_comes_back_as_it_was() {
    let mut seen = BTreeSet::new();
    let mut attrs = BTreeSet::new();
    for step in steps() {
        for datagram in step.sent.iter().chain(&step.received).chain(&step.events) {
            for m in Messages::new(datagram).filter(|m| is_ours(m.header.nlmsg_type)) {
                let header = m.header;
                let decoded = match XfrmMessage::decode(&m) {
                    Ok(decoded) => decoded,
                    Err(_) if step.is_odd() => continue,
                    Err(e) => panic!("{}: {e}", step.command),
                };
                let bytes = decoded.encode(header.nlmsg_flags, header.nlmsg_seq, header.nlmsg_pid);
                assert_eq!(bytes.capacity(), bytes.len(), "{}", step.command);
                if step.is_odd() {
                    let again = Messages::new(&bytes).next().unwrap();
                    assert!(XfrmMessage::decode(&again).unwrap() == decoded, "{}", step.command);
                    continue;
                }
                assert_eq!(&bytes[..m.bytes.len()], m.bytes, "{}", step.command);
                seen.insert((header.nlmsg_flags & NLM_F_REQUEST != 0, header.nlmsg_type));
                attrs.extend(decoded.attrs.iter().map(xfrm::Attribute::name));
            }
        }
    }
    let never = |request| -> Vec<u16> {
        (xfrm::XFRM_MSG_NEWSA..=xfrm::XFRM_MSG_MAX).filter(|t| !seen.contains(&(request, *t))).collect()
    };
    // The kernel neither serves nor sends other messages, except REPORT and the event of MIGRATE_STATE, which were not
    // recorded.
    assert_eq!(never(true), [xfrm::XFRM_MSG_REPORT, xfrm::XFRM_MSG_NEWSADINFO, xfrm::XFRM_MSG_MAPPING]);
    let only_asked = [
        xfrm::XFRM_MSG_GETSA,
        xfrm::XFRM_MSG_GETPOLICY,
        xfrm::XFRM_MSG_ALLOCSPI,
        xfrm::XFRM_MSG_GETAE,
        xfrm::XFRM_MSG_REPORT,
        xfrm::XFRM_MSG_GETSADINFO,
        xfrm::XFRM_MSG_GETSPDINFO,
        xfrm::XFRM_MSG_SETDEFAULT,
        xfrm::XFRM_MSG_MIGRATE_STATE,
    ];
    assert_eq!(never(false), only_asked);
    assert_eq!(attrs.len(), 46, "{attrs:?}");
}

/// The text of an acknowledgement.
fn text(m: &netlink::Message<'_>) -> Option<&'static str> {
    if m.header.nlmsg_flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    let repeated = || netlink::align(u32::from_ne_bytes(m.payload[4..8].try_into().unwrap()) as usize);
    let tlvs = match m.header.nlmsg_type {
        NLMSG_DONE => 4,
        _ if m.header.nlmsg_flags & netlink::NLM_F_CAPPED != 0 => 20,
        _ => 4 + repeated(),
    };
    let found = Attrs::new(&m.payload[tlvs..]).find(|a| a.type_ == NLMSGERR_ATTR_MSG)?;
    let text = std::str::from_utf8(&found.payload[..found.payload.len() - 1]).unwrap();
    Some(Box::leak(text.to_owned().into_boxed_str()))
}

/// The first error inside an attribute, in the kernel's order for a state.
fn inside(attrs: &Attributes<'_>) -> Option<Reject> {
    let checks = [
        attrs.alg_aead().err(),
        attrs.alg_auth_trunc().err(),
        attrs.alg_auth().err(),
        attrs.alg_crypt().err(),
        attrs.alg_comp().err(),
        attrs.sec_ctx().err(),
        attrs.replay_esn_val().err(),
    ];
    checks.into_iter().flatten().next()
}

/// Texts of the parser: whatever the kernel refuses with them must be refused here.
const PARSER: [&str; 9] = [
    "Attribute failed policy validation",
    "invalid attribute length",
    "integer out of range",
    "NLA_F_NESTED not expected",
    "Invalid header length",
    "Invalid attribute SA_DIR",
    "Invalid attribute SA_PCPU",
    "Unsupported attribute in XFRM_MSG_MIGRATE_STATE",
    "Unsupported attribute",
];

#[test]
fn acknowledgements_are_the_kernels() {
    let (mut refused, mut accepted, mut ends, mut all) = (0, 0, 0, 0);
    for step in steps() {
        let [datagram] = &step.sent[..] else { continue };
        let requests: Vec<_> = Messages::new(datagram).collect();
        let [request] = requests[..] else { continue };
        if request.header.nlmsg_flags & NLM_F_REQUEST == 0 || !is_ours(request.header.nlmsg_type) {
            continue;
        }
        let answers = step.received.iter().flat_map(|d| Messages::new(d));
        for answer in answers.filter(|a| matches!(a.header.nlmsg_type, NLMSG_ERROR | NLMSG_DONE)) {
            let number = i32::from_ne_bytes(answer.payload[..4].try_into().unwrap());
            let said = text(&answer);
            let errno = Errno::new(-number);
            let (outcome, ext) = match Request::decode(&request) {
                Err(r) => {
                    refused += 1;
                    assert_eq!(Some(r.errno), errno, "{}: {r}", step.command);
                    (Err(r.errno), r.ack)
                }
                Ok(r) => {
                    assert!(!said.is_some_and(|s| PARSER.contains(&s)), "{}: {said:?}", step.command);
                    let new = matches!(r.body, Body::NewSa(_) | Body::UpdSa(_));
                    if let Some(wrong) = inside(&r.attrs).filter(|_| new) {
                        assert_eq!((errno, said), (Some(wrong.errno), wrong.ack.text), "{}", step.command);
                    }
                    match errno {
                        None => (Ok(()), r.warning),
                        // The handler gave a reason, or none, in which case the parser's warning stands.
                        Some(e) => (Err(e), said.map_or(r.warning, ExtAck::text)),
                    }
                }
            };
            all += 1;
            accepted += usize::from(outcome.is_ok());
            let (seq, port, options) = (answer.header.nlmsg_seq, answer.header.nlmsg_pid, step.options());
            let ours = if answer.header.nlmsg_type == NLMSG_DONE {
                ends += 1;
                done(seq, port, 0, outcome, options, &ext)
            } else {
                ack(&request, port, outcome, options, &ext)
            };
            assert_eq!(ours, answer.bytes, "{}", step.command);
        }
    }
    println!("of {all}: {refused} refused by the parser, {accepted} accepted, {ends} ends of dumps");
    assert!(refused >= 90 && accepted >= 60 && ends >= 15, "{refused} {accepted} {ends}");
}

#[test]
fn what_the_kernel_refuses_inside_of_an_attribute_is_refused() {
    let texts: BTreeSet<_> = steps()
        .iter()
        .filter(|s| s.command.contains("malformed"))
        .filter_map(|s| {
            let m = Messages::new(&s.sent[0]).next()?;
            inside(&Request::decode(&m).ok()?.attrs)?.ack.text
        })
        .collect();
    for text in [
        "Invalid AUTH/CRYPT/COMP attribute length",
        "Invalid AUTH_TRUNC attribute length",
        "Invalid AEAD attribute length",
        "Invalid security context length",
        "ESN bitmap length must be <= 128",
        "ESN attribute is too short to fit the full bitmap length",
    ] {
        assert!(texts.contains(text), "{text}: {texts:?}");
    }
}

#[test]
fn requests_read_as_the_kernel_reads_them() {
    let steps = steps();
    let find = |what: &str| {
        let step = steps.iter().find(|s| s.command.contains(what)).unwrap_or_else(|| panic!("{what}"));
        step.sent[0].clone()
    };
    let bytes = find("spi 0x1006 mode tunnel");
    let r = Request::decode(&Messages::new(&bytes).next().unwrap()).unwrap();
    let Body::NewSa(sa) = r.body else { panic!("{:?}", r.body) };
    assert_eq!((sa.id.spi.get(), sa.id.proto, sa.mode, sa.family), (0x1006, 50, xfrm::XFRM_MODE_TUNNEL, xfrm::AF_INET));
    assert_eq!(sa.id.daddr.ip(sa.family), Some("10.0.0.2".parse().unwrap()));
    assert_eq!(sa.lft, xfrm::LifetimeCfg::NONE);
    let aead = r.attrs.alg_aead().unwrap().unwrap();
    assert_eq!((aead.name(), aead.alg_key_len, aead.alg_icv_len), (&b"rfc4106(gcm(aes))"[..], 160, 128));
    assert_eq!(aead.alg_key.expose(), (0..20).collect::<Vec<u8>>());
    assert_eq!(r.attrs.mark().unwrap(), Some(xfrm::Mark { v: 0x10, m: 0xff }));
    assert_eq!((r.attrs.set_mark().unwrap(), r.attrs.set_mark_mask().unwrap()), (Some(0x20), Some(0xf0)));
    assert_eq!((r.attrs.if_id().unwrap(), r.attrs.tfcpad().unwrap()), (Some(9), None));
    // The last mark counts; attribute 99 is unknown.
    let bytes = find("the last of two marks");
    let r = Request::decode(&Messages::new(&bytes).next().unwrap()).unwrap();
    assert_eq!(r.attrs.mark().unwrap(), Some(xfrm::Mark { v: 2, m: 3 }));
    let bytes = find("xfrm state list src 10.0.0.0/8");
    let r = Request::decode(&Messages::new(&bytes).next().unwrap()).unwrap();
    let filter = xfrm::StateFilter::new(&r.attrs).unwrap();
    assert_eq!(r.body, Body::DumpSa);
    assert_eq!(filter.addresses.map(|f| (f.family, f.splen, f.dplen)), Some((2, 8, 0)));
    let bytes = find("ADDRESS_FILTER too long");
    let r = Request::decode(&Messages::new(&bytes).next().unwrap()).unwrap();
    assert_eq!(xfrm::StateFilter::new(&r.attrs).unwrap_err().errno, Errno::EINVAL);
    let bytes = find("policy set hthresh4 24 32 hthresh6 64 128");
    let r = Request::decode(&Messages::new(&bytes).next().unwrap()).unwrap();
    assert_eq!(r.hthresh4, Some(xfrm::Spdhthresh { lbits: 24, rbits: 32 }));
    assert_eq!(r.hthresh6, Some(xfrm::Spdhthresh { lbits: 64, rbits: 128 }));
}

#[test]
fn the_kernels_reasons_are_in_the_table() {
    let steps = steps();
    let mut seen = BTreeSet::new();
    for step in &steps {
        for m in step.received.iter().flat_map(|d| Messages::new(d)) {
            let (NLMSG_ERROR | NLMSG_DONE) = m.header.nlmsg_type else { continue };
            let number = i32::from_ne_bytes(m.payload[..4].try_into().unwrap());
            let Some(said) = text(&m).filter(|t| number != 0 && !PARSER.contains(t)) else { continue };
            if said == "bytes leftover after parsing attributes" {
                continue;
            }
            let errno = Errno::new(-number).unwrap();
            let row = Reason::ALL.iter().find(|r| r.text() == said && r.errno() == errno);
            assert!(row.is_some(), "{}: {said} ({errno})", step.command);
            seen.insert(said);
        }
    }
    println!("{} reasons seen: {seen:?}", seen.len());
    assert!(seen.len() >= 108, "{}", seen.len());
}
