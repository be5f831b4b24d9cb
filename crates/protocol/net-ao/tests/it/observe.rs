//! A third party with keys: captures verified and signed, and hints for what does not verify.

use crate::common::{algorithms, hex, mkt, spec};
use sealane_net_ao::alg::Algorithms;
use sealane_net_ao::diagnose::{Hint, Spelling};
use sealane_net_ao::drop::DropReason;
use sealane_net_ao::mkt::{MktSpec, Prefix};
use sealane_net_ao::observe::{Note, Observation, Observer, Verdict, WatchKey};
use sealane_wire::ip::{Layout, set_len, set_tcp_checksum};
use sealane_wire::tcp::{Flags, Segment};
use std::net::SocketAddr;
use std::sync::Arc;

const NOW_S: i64 = 1_700_000_000;
const SYN: u8 = Flags::SYN;
const ACK: u8 = Flags::ACK;

fn always(spec: &MktSpec<'_>) -> WatchKey {
    WatchKey { mkt: mkt(spec), ports: Vec::new(), send: i64::MIN..i64::MAX, accept: i64::MIN..i64::MAX }
}

fn observer(keys: Vec<WatchKey>) -> Observer {
    Observer::new(keys, Arc::new(Algorithms::new(&sealane_crypto_portable::registry())))
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A connection of a client, which is the owner of the keys, and a server, which is their peer.
struct Pair {
    client: SocketAddr,
    server: SocketAddr,
}

const V4: fn() -> Pair = || Pair { client: addr("192.0.2.1:40000"), server: addr("198.51.100.1:179") };

/// A segment without signature.
fn packet(from: SocketAddr, to: SocketAddr, flags: u8, seq: u32, ack: u32, options: &[u8], payload: &[u8]) -> Vec<u8> {
    assert!(options.len().is_multiple_of(4));
    let mut bytes = match (from.ip(), to.ip()) {
        (std::net::IpAddr::V4(a), std::net::IpAddr::V4(b)) => {
            [&[0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0][..], &a.octets(), &b.octets()].concat()
        }
        (std::net::IpAddr::V6(a), std::net::IpAddr::V6(b)) => {
            [&[0x60, 0, 0, 0, 0, 0, 6, 64][..], &a.octets(), &b.octets()].concat()
        }
        _ => unreachable!(),
    };
    let tcp_at = bytes.len();
    bytes.extend_from_slice(&from.port().to_be_bytes());
    bytes.extend_from_slice(&to.port().to_be_bytes());
    bytes.extend_from_slice(&seq.to_be_bytes());
    bytes.extend_from_slice(&ack.to_be_bytes());
    bytes.extend_from_slice(&[((20 + options.len()) / 4 * 16) as u8, flags, 0xff, 0xff, 0, 0, 0, 0]);
    bytes.extend_from_slice(options);
    let payload_at = bytes.len();
    bytes.extend_from_slice(payload);
    let total = bytes.len() as u16;
    if from.is_ipv4() {
        bytes[2..4].copy_from_slice(&total.to_be_bytes());
    } else {
        bytes[4..6].copy_from_slice(&(total - 40).to_be_bytes());
    }
    let at = Layout::find(&bytes).unwrap();
    assert_eq!((at.tcp_at, at.payload_at), (tcp_at, payload_at));
    set_len(&mut bytes, &at);
    set_tcp_checksum(&mut bytes, &at);
    bytes
}

impl Pair {
    fn to_server(&self, flags: u8, seq: u32, ack: u32, payload: &[u8]) -> Vec<u8> {
        packet(self.client, self.server, flags, seq, ack, MSS, payload)
    }

    fn to_client(&self, flags: u8, seq: u32, ack: u32, payload: &[u8]) -> Vec<u8> {
        packet(self.server, self.client, flags, seq, ack, MSS, payload)
    }

    /// Handshake, data both ways, and the end.
    fn conversation(&self) -> Vec<Vec<u8>> {
        vec![
            self.to_server(SYN, 1000, 0, b""),
            self.to_client(SYN | ACK, 9000, 1001, b""),
            self.to_server(ACK, 1001, 9001, b""),
            self.to_server(ACK | Flags::PSH, 1001, 9001, b"hello"),
            self.to_client(ACK | Flags::PSH, 9001, 1006, b"and you"),
            self.to_client(ACK | Flags::FIN, 9008, 1006, b""),
            self.to_server(ACK | Flags::RST, 1006, 9009, b""),
        ]
    }
}

/// An MSS option of 1400 bytes, then timestamps of nothing.
const MSS: &[u8] = &[2, 4, 5, 120, 1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];

fn signed(keys: Vec<WatchKey>, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut signer = observer(keys);
    packets
        .iter()
        .map(|p| {
            let mut out = Vec::new();
            signer.sign(&Segment::parse(p).unwrap(), NOW_S, &mut out).unwrap();
            out
        })
        .collect()
}

fn look(watcher: &mut Observer, packet: &[u8]) -> Observation {
    watcher.observe(&Segment::parse(packet).unwrap(), NOW_S)
}

fn verdicts(watcher: &mut Observer, packets: &[Vec<u8>]) -> Vec<Verdict> {
    packets.iter().map(|p| look(watcher, p).verdict).collect()
}

/// A key as both ends have it, but for what a test changes.
fn sha1<'a>() -> MktSpec<'a> {
    MktSpec { peer: Prefix { addr: addr("198.51.100.0:0").ip(), len: 24 }, ..spec("hmac(sha1)", 5, 6) }
}

#[test]
fn the_vectors_of_rfc_9235_verify() {
    let file: serde_json::Value = serde_json::from_str(include_str!("../../vectors/rfc9235.json")).unwrap();
    let key = |name, exclude_options, peer: &str, len| {
        let peer = Prefix { addr: addr(&format!("{peer}:0")).ip(), len };
        always(&MktSpec { key: b"testvector", exclude_options, peer, ..spec(name, 61, 84) })
    };
    let mut keys = Vec::new();
    for name in ["hmac(sha1)", "cmac(aes128)"] {
        for exclude in [false, true] {
            keys.push(key(name, exclude, "172.27.28.29", 32));
            keys.push(key(name, exclude, "[fd00::2]", 128));
        }
    }
    let mut watcher = observer(keys);
    let vectors = file["vectors"].as_array().unwrap();
    assert_eq!(vectors.len(), 32);
    for vector in vectors {
        let bytes = hex(vector["ip_packet"].as_str().unwrap());
        let seen = look(&mut watcher, &bytes);
        let Verdict::Good(index) = seen.verdict else { panic!("{}: {seen:?}", vector["section"]) };
        assert_eq!(seen.note, None, "{}", vector["section"]);
        let used = &watcher.keys()[index].mkt;
        assert_eq!(!used.exclude_options, vector["tcp_options_covered"].as_bool().unwrap(), "{}", vector["section"]);
        let sha1 = vector["algorithm"] == "HMAC-SHA-1-96";
        assert_eq!(used.algorithm.name, if sha1 { "hmac(sha1)" } else { "cmac(aes128)" });
        // One bit anywhere that is covered, and it does not.
        let mut changed = bytes.clone();
        *changed.last_mut().unwrap() ^= 1;
        let at = Layout::find(&bytes).unwrap();
        if at.payload_len() > 0 {
            assert_eq!(look(&mut watcher, &changed).verdict, Verdict::Bad(DropReason::Mac), "{}", vector["section"]);
        }
    }
}

#[test]
fn what_is_signed_verifies_in_both_families_and_all_algorithms() {
    let v6 = Pair { client: addr("[2001:db8::1]:40000"), server: addr("[2001:db8:1::1]:179") };
    for algorithm in algorithms().iter() {
        for exclude_options in [false, true] {
            for (pair, peer) in [(V4(), Prefix::ANY_V4), (Pair { ..v6 }, Prefix { addr: v6.server.ip(), len: 128 })] {
                let key = || {
                    let mac_len = algorithm.digest_len.min(16);
                    always(&MktSpec { exclude_options, peer, mac_len, ..spec(algorithm.name, 5, 6) })
                };
                let packets = signed(vec![key()], &pair.conversation());
                let mut watcher = observer(vec![key()]);
                let seen = verdicts(&mut watcher, &packets);
                assert_eq!(seen, [Verdict::Good(0); 7], "{} {exclude_options}", algorithm.name);
                for (packet, plain) in packets.iter().zip(pair.conversation()) {
                    assert_eq!(packet.len(), plain.len() + 20);
                    let segment = Segment::parse(packet).unwrap();
                    assert!(sealane_wire::ip::tcp_checksum_ok(packet, segment.layout()));
                }
                // Signed again, it stays the same.
                assert_eq!(signed(vec![key()], &packets), packets);
            }
        }
    }
}

#[test]
fn without_a_handshake_numbers_are_found_where_they_can_be() {
    let packets = signed(vec![always(&sha1())], &V4().conversation());
    // From the handshake's last segment on.
    let mut watcher = observer(vec![always(&sha1())]);
    let first = look(&mut watcher, &packets[2]);
    assert_eq!((first.verdict, first.note), (Verdict::Good(0), Some(Note::IsnFound)));
    assert_eq!(verdicts(&mut watcher, &packets[3..]), [Verdict::Good(0); 4]);
    // From the middle on: there is no telling.
    let mut watcher = observer(vec![always(&sha1())]);
    assert_eq!(verdicts(&mut watcher, &packets[4..6]), [Verdict::Unchecked(DropReason::IsnUnknown); 2]);
    // Unless somebody knows.
    let mut watcher = observer(vec![always(&sha1())]);
    watcher.know(V4().client, V4().server, 1000, 9000);
    assert_eq!(verdicts(&mut watcher, &packets[4..]), [Verdict::Good(0); 3]);
    // A SYN-ACK says both.
    let mut watcher = observer(vec![always(&sha1())]);
    assert_eq!(verdicts(&mut watcher, &packets[1..]), [Verdict::Good(0); 6]);
}

#[test]
fn sequence_numbers_wrap() {
    let pair = V4();
    let start = u32::MAX - 10;
    let mut packets =
        vec![pair.to_server(SYN, start, 0, b""), pair.to_client(SYN | ACK, 9000, start.wrapping_add(1), b"")];
    // Three times around, in strides of 1 GiB.
    for i in 0..12u32 {
        packets.push(pair.to_server(ACK, start.wrapping_add(1).wrapping_add(i << 30), 9001, b"data"));
    }
    let packets = signed(vec![always(&sha1())], &packets);
    let mut watcher = observer(vec![always(&sha1())]);
    assert_eq!(verdicts(&mut watcher, &packets), [Verdict::Good(0); 14]);
    let mut watcher = observer(vec![always(&sha1())]);
    watcher.know(pair.client, pair.server, start, 9000);
    let seen = look(&mut watcher, &packets[13]);
    assert_eq!((seen.verdict, seen.note), (Verdict::Good(0), Some(Note::SneFound(3))));
    // One end that has lost count.
    let mut watcher = observer(vec![always(&sha1())]);
    verdicts(&mut watcher, &packets[..3]);
    let seen = look(&mut watcher, &packets[7]);
    assert_eq!(seen.verdict, Verdict::Bad(DropReason::Mac));
    assert_eq!(seen.hint, Some(Hint::Sne { theirs: 2, ours: 1 }));
}

#[test]
fn ports_are_used_again_by_new_connections() {
    let pair = V4();
    let mut packets = pair.conversation();
    packets.push(pair.to_server(SYN, 500_000, 0, b""));
    packets.push(pair.to_client(SYN | ACK, 700_000, 500_001, b""));
    packets.push(pair.to_server(ACK, 500_001, 700_001, b"again"));
    // Both ends open at once.
    packets.push(pair.to_server(SYN, 1, 0, b""));
    packets.push(pair.to_client(SYN, 2, 0, b""));
    packets.push(pair.to_client(SYN | ACK, 2, 2, b""));
    packets.push(pair.to_server(SYN | ACK, 1, 3, b""));
    packets.push(pair.to_server(ACK, 2, 3, b"at once"));
    let packets = signed(vec![always(&sha1())], &packets);
    let mut watcher = observer(vec![always(&sha1())]);
    assert_eq!(verdicts(&mut watcher, &packets), [Verdict::Good(0); 15]);
}

#[test]
fn a_refused_syn_is_answered_with_half_a_context() {
    let pair = V4();
    let packets = vec![pair.to_server(SYN, 1000, 0, b""), pair.to_client(Flags::RST | ACK, 0, 1001, b"")];
    let packets = signed(vec![always(&sha1())], &packets);
    let mut watcher = observer(vec![always(&sha1())]);
    assert_eq!(verdicts(&mut watcher, &packets), [Verdict::Good(0); 2]);
}

/// The verdict about the first data segment when the client signs with `theirs` and we have `ours`.
fn hint(theirs: &MktSpec<'_>, ours: &[MktSpec<'_>]) -> (Verdict, Option<Hint>) {
    let packets = signed(vec![always(theirs)], &V4().conversation());
    let mut watcher = observer(ours.iter().map(always).collect());
    let seen = packets[..4].iter().map(|p| look(&mut watcher, p)).last().unwrap();
    (seen.verdict, seen.hint)
}

const BAD: Verdict = Verdict::Bad(DropReason::Mac);

#[test]
fn what_people_get_wrong_is_recognised() {
    assert_eq!(
        hint(&sha1(), &[MktSpec { exclude_options: true, ..sha1() }]),
        (BAD, Some(Hint::Options { sender_excludes: false }))
    );
    assert_eq!(
        hint(&MktSpec { exclude_options: true, ..sha1() }, &[sha1()]),
        (BAD, Some(Hint::Options { sender_excludes: true }))
    );
    let other = |name| MktSpec { peer: sha1().peer, ..spec(name, 5, 6) };
    assert_eq!(hint(&other("hmac(sha256)"), &[sha1()]), (BAD, Some(Hint::Algorithm("hmac(sha256)"))));
    let key = |key| MktSpec { key, ..sha1() };
    assert_eq!(hint(&key(b"k\n"), &[key(b"k")]), (BAD, Some(Hint::Secret(Spelling::NewLine))));
    assert_eq!(hint(&key(b"k"), &[key(b"k\n")]), (BAD, Some(Hint::Secret(Spelling::NoNewLine))));
    assert_eq!(hint(&key(&[0xab, 0x01]), &[key(b"AB01")]), (BAD, Some(Hint::Secret(Spelling::HexDecoded))));
    assert_eq!(hint(&key(b"ab01"), &[key(&[0xab, 1])]), (BAD, Some(Hint::Secret(Spelling::HexText))));
    assert_eq!(hint(&key(b"right"), &[key(b"wrong")]), (BAD, None));
    let second = MktSpec { send_id: 7, recv_id: 8, ..key(b"second") };
    assert_eq!(
        hint(&MktSpec { send_id: 5, recv_id: 6, ..key(b"second") }, &[sha1(), second]),
        (BAD, Some(Hint::OtherKey { send_id: 7, recv_id: 8 }))
    );
    let wrong_len = Verdict::Bad(DropReason::MacLen);
    let long = MktSpec { mac_len: 16, ..sha1() };
    assert_eq!(hint(&long, &[sha1()]), (wrong_len, Some(Hint::MacLen { theirs: 16, ours: 12 })));
    let unknown = Verdict::Bad(DropReason::KeyNotFound);
    let swapped = MktSpec { send_id: 6, recv_id: 5, ..sha1() };
    assert_eq!(hint(&sha1(), &[swapped]), (unknown, Some(Hint::OtherKey { send_id: 6, recv_id: 5 })));
    assert_eq!(hint(&sha1(), &[MktSpec { send_id: 9, recv_id: 9, ..key(b"other") }]), (unknown, None));
}

#[test]
fn a_lowered_mss_is_recognised() {
    let pair = V4();
    let syn = packet(pair.client, pair.server, SYN, 1000, 0, &[2, 4, 5, 180], b"");
    let mut syn = signed(vec![always(&sha1())], &[syn]).remove(0);
    // MSS is the last option, behind ours.
    let end = syn.len();
    syn[end - 2..].copy_from_slice(&1300u16.to_be_bytes());
    let seen = look(&mut observer(vec![always(&sha1())]), &syn);
    assert_eq!((seen.verdict, seen.hint), (BAD, Some(Hint::Mss { signed: 1460, arrived: 1300 })));
}

#[test]
fn every_hint_reads_as_a_sentence() {
    let hints = [
        Hint::Options { sender_excludes: true },
        Hint::Options { sender_excludes: false },
        Hint::MacLen { theirs: 1, ours: 2 },
        Hint::Sne { theirs: 1, ours: 2 },
        Hint::OtherKey { send_id: 1, recv_id: 2 },
        Hint::Algorithm("x"),
        Hint::Secret(Spelling::NewLine),
        Hint::Secret(Spelling::NoNewLine),
        Hint::Secret(Spelling::HexDecoded),
        Hint::Secret(Spelling::HexText),
        Hint::Mss { signed: 1, arrived: 2 },
        Hint::SynKey,
        Hint::SwappedEnds,
    ];
    let texts: std::collections::HashSet<String> = hints.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), hints.len());
    assert!(texts.iter().all(|t| t.len() > 30 && !t.contains("  ") && !t.contains('\n')));
}

#[test]
fn unsigned_segments_are_bad_only_where_a_key_is() {
    let pair = V4();
    let plain = pair.conversation();
    let mut watcher = observer(vec![always(&sha1())]);
    assert_eq!(verdicts(&mut watcher, &plain), [Verdict::Bad(DropReason::Required); 7]);
    let elsewhere = MktSpec { peer: Prefix { addr: addr("203.0.113.1:0").ip(), len: 32 }, ..sha1() };
    let mut watcher = observer(vec![always(&elsewhere)]);
    assert_eq!(verdicts(&mut watcher, &plain), [Verdict::NotOurs; 7]);
    let strangers = signed(vec![always(&sha1())], &plain);
    assert_eq!(verdicts(&mut watcher, &strangers), [Verdict::Unchecked(DropReason::KeyNotFound); 7]);
    let ports = vec![(0..=u16::MAX, 80..=80)];
    let mut watcher = observer(vec![WatchKey { ports, ..always(&sha1()) }]);
    assert_eq!(verdicts(&mut watcher, &plain), [Verdict::NotOurs; 7]);
    let md5 = packet(pair.client, pair.server, ACK, 1, 1, &[&[1, 1, 19, 18][..], &[0; 16]].concat(), b"");
    let mut watcher = observer(vec![always(&sha1())]);
    assert_eq!(look(&mut watcher, &md5).verdict, Verdict::Bad(DropReason::Md5Unexpected));
    let twice = packet(pair.client, pair.server, ACK, 1, 1, &[29, 6, 1, 1, 0, 0, 29, 6, 1, 1, 0, 0, 1, 1, 1, 1], b"");
    assert_eq!(look(&mut watcher, &twice).verdict, Verdict::Bad(DropReason::BadHeader));
}

#[test]
fn lifetimes_choose_keys_and_are_remarked() {
    let early = || WatchKey { send: 0..NOW_S, accept: 0..NOW_S + 10, ..always(&sha1()) };
    let late = || {
        let key = MktSpec { send_id: 15, recv_id: 16, key: b"late", ..sha1() };
        WatchKey { send: NOW_S..i64::MAX, accept: NOW_S..i64::MAX, ..always(&key) }
    };
    let packets = signed(vec![early(), late()], &V4().conversation());
    let mut watcher = observer(vec![early(), late()]);
    assert_eq!(verdicts(&mut watcher, &packets), [Verdict::Good(1); 7]);
    let segment = Segment::parse(&packets[3]).unwrap();
    let seen = watcher.observe(&segment, NOW_S - 1);
    assert_eq!((seen.verdict, seen.note), (Verdict::Good(1), Some(Note::OutsideLifetime)));
    let mut signer = observer(vec![early()]);
    let plain = V4().conversation();
    let refused = signer.sign(&Segment::parse(&plain[0]).unwrap(), NOW_S, &mut Vec::new());
    assert_eq!(refused, Err(DropReason::NoSendKey));
}

#[test]
fn nothing_is_signed_whose_numbers_nobody_knows() {
    let plain = V4().conversation();
    let mut signer = observer(vec![always(&sha1())]);
    let refused = signer.sign(&Segment::parse(&plain[3]).unwrap(), NOW_S, &mut Vec::new());
    assert_eq!(refused, Err(DropReason::IsnUnknown));
    signer.know(V4().client, V4().server, 1000, 9000);
    let mut out = Vec::new();
    assert_eq!(signer.sign(&Segment::parse(&plain[3]).unwrap(), NOW_S, &mut out), Ok(0));
    assert_eq!(out, signed(vec![always(&sha1())], &plain)[3]);
}
