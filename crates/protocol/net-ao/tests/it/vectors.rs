//! Published vectors: RFC 9235 and RFC 9187.

use crate::common::{algorithm, hex};
use sealane_net_ao::drop::{DropReason, Netstat};
use sealane_net_ao::endpoint::{Endpoint, EndpointState, Request};
use sealane_net_ao::info::{AoInfo, Child, Conn};
use sealane_net_ao::input::{Class, classify, settle};
use sealane_net_ao::kdf::Context;
use sealane_net_ao::mac::{Checksum, Coverage, Sign, Verify, sign, verify};
use sealane_net_ao::mkt::{Mkt, MktSpec, Prefix};
use sealane_net_ao::sne::Sne;
use sealane_wire::tcp::{Auth, Segment};
use serde::Deserialize;
use std::sync::Arc;

#[derive(Deserialize)]
struct File {
    master_key_ascii: String,
    client_keyid: u8,
    server_keyid: u8,
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    section: String,
    algorithm: String,
    tcp_options_covered: bool,
    direction: String,
    src_isn: String,
    dst_isn: String,
    keyid: u8,
    rnext_keyid: u8,
    traffic_key: String,
    ip_packet: String,
    ao_mac_offset_in_tcp: usize,
    mac: String,
}

impl Vector {
    fn is_from_client(&self) -> bool {
        self.direction == "client_to_server"
    }

    /// The client's end of the key pair, or the server's.
    fn mkt(&self, file: &File, client: bool) -> Arc<Mkt> {
        let name = match self.algorithm.as_str() {
            "HMAC-SHA-1-96" => "hmac(sha1)",
            "AES-128-CMAC-96" => "cmac(aes128)",
            other => panic!("{other}"),
        };
        let packet = hex(&self.ip_packet);
        let source = Segment::parse(&packet).unwrap().source().ip();
        let (send_id, recv_id) = (file.client_keyid, file.server_keyid);
        let (send_id, recv_id) = if client { (send_id, recv_id) } else { (recv_id, send_id) };
        let spec = MktSpec {
            algorithm: algorithm(name),
            key: file.master_key_ascii.as_bytes(),
            send_id,
            recv_id,
            mac_len: 12,
            exclude_options: !self.tcp_options_covered,
            peer: if source.is_ipv4() { Prefix::ANY_V4 } else { Prefix::ANY_V6 },
            ifindex: None,
        };
        Arc::new(Mkt::new(&spec).unwrap())
    }

    fn isns(&self) -> (u32, u32) {
        let isn = |text| u32::from_str_radix(text, 16).unwrap();
        (isn(&self.src_isn), isn(&self.dst_isn))
    }
}

fn file() -> File {
    serde_json::from_str(include_str!("../../vectors/rfc9235.json")).unwrap()
}

#[test]
fn rfc9235_traffic_keys_and_macs() {
    let file = file();
    assert_eq!(file.vectors.len(), 32);
    for v in &file.vectors {
        let mkt = v.mkt(&file, v.is_from_client());
        let mut packet = hex(&v.ip_packet);
        let segment = Segment::parse(&packet).unwrap();
        let Ok(Some(Auth::Ao(option))) = segment.auth() else { panic!("{}: no option", v.section) };
        assert_eq!((option.key_id, option.rnext_key_id), (v.keyid, v.rnext_keyid), "{}", v.section);
        assert_eq!(option.mac_at(), v.ao_mac_offset_in_tcp, "{}", v.section);
        let (source_isn, destination_isn) = v.isns();
        let context =
            Context { source: segment.source(), destination: segment.destination(), source_isn, destination_isn };
        assert_eq!(mkt.traffic_key(&context).unwrap().as_bytes(), hex(&v.traffic_key), "{}", v.section);

        let tfm = mkt.traffic_mac(&context).unwrap();
        let at = *segment.layout();
        let cover = Coverage { mac_at: option.mac_at(), mac_len: 12, sne: 0, exclude_options: mkt.exclude_options };
        let mut check = [Verify { tfm: &tfm, packet: &packet, at, cover, status: Ok(()) }];
        verify(&mut check);
        assert_eq!(check[0].status, Ok(()), "{}", v.section);

        let mac = at.tcp_at + option.mac_at()..at.tcp_at + option.mac_at() + 12;
        packet[mac.clone()].fill(0xaa);
        let mut ops = [Sign { tfm: &tfm, packet: &mut packet, at, cover, checksum: Checksum::Full, status: Ok(()) }];
        sign(&mut ops);
        assert_eq!(ops[0].status, Ok(()));
        assert_eq!(packet[mac.clone()], hex(&v.mac), "{}", v.section);
        // The addresses and everything behind the IP header is covered, with two exceptions.
        let addresses = if at.tcp_at == 20 { 12..20 } else { 8..40 };
        let checksum = at.tcp_at + 16..at.tcp_at + 18;
        let options = at.tcp_at + 20..at.tcp_at + option.mac_at() - 4;
        for i in addresses.chain(at.tcp_at..packet.len()) {
            let mut bad = packet.clone();
            bad[i] ^= 1;
            let covered = !(checksum.contains(&i) || mkt.exclude_options && options.contains(&i));
            let mut check = [Verify { tfm: &tfm, packet: &bad, at, cover, status: Ok(()) }];
            verify(&mut check);
            assert_eq!(check[0].status == Err(DropReason::Mac), covered, "{} byte {i}", v.section);
        }
    }
}

/// Each of the 32 segments, as the socket that receives it sees it.
#[test]
fn rfc9235_inbound_decisions() {
    let file = file();
    for v in &file.vectors {
        let packet = hex(&v.ip_packet);
        let segment = Segment::parse(&packet).unwrap();
        let (source_isn, destination_isn) = v.isns();
        let mut info = AoInfo::new();
        info.add_key(v.mkt(&file, !v.is_from_client())).unwrap();
        let conn = Conn::new(segment.destination(), segment.source(), destination_isn, source_isn);
        let flags = segment.flags();
        let state = match (flags.syn(), flags.ack()) {
            (true, false) => EndpointState::Listen,
            (true, true) => {
                info.set_conn(Conn::new(segment.destination(), segment.source(), destination_isn, 0));
                EndpointState::SynSent
            }
            _ => {
                let child = Child { conn, ifindex: 0, key_id: v.keyid, rnext_key_id: v.rnext_keyid };
                info = info.for_child(&child).unwrap();
                EndpointState::Established
            }
        };
        let mut netstat = Netstat::default();
        let to = Endpoint { info: Some(&info), state, request: None, ifindex: 0, md5: false };
        let Class::Verify(check) = classify(&segment, &to) else { panic!("{}", v.section) };
        let mut ops = [check.op(check.traffic.here().unwrap(), &segment)];
        verify(&mut ops);
        let verdict = ops[0].status;
        let ticket = check.ticket;
        assert_eq!(settle(&mut info, &ticket, verdict, &mut netstat), Ok(()), "{}", v.section);
        assert_eq!(info.counters.good, 1);
        // The same as the ACK of a half-open connection.
        if !flags.syn() {
            let request = Request {
                used_ao: true,
                rcv_isn: source_isn,
                snt_isn: destination_isn,
                key_id: v.keyid,
                rnext_key_id: v.rnext_keyid,
            };
            let to = Endpoint {
                info: Some(&info),
                state: EndpointState::Listen,
                request: Some(&request),
                ifindex: 0,
                md5: false,
            };
            let Class::Verify(check) = classify(&segment, &to) else { panic!("{}", v.section) };
            let mut ops = [check.op(check.traffic.here().unwrap(), &segment)];
            verify(&mut ops);
            assert_eq!(ops[0].status, Ok(()), "{}", v.section);
        }
    }
}

#[test]
fn rfc9187_sequence() {
    #[derive(Deserialize)]
    struct Rows {
        rows: Vec<Row>,
    }
    #[derive(Deserialize)]
    struct Row {
        sne: u32,
        seq: u32,
    }
    let rows: Rows = serde_json::from_str(include_str!("../../vectors/rfc9187_sne.json")).unwrap();
    assert_eq!(rows.rows.len(), 29);
    let mut sne = Sne::new(0);
    for (i, row) in rows.rows.iter().enumerate() {
        assert_eq!(sne.of(row.seq), row.sne, "row {i}, {:#x}", row.seq);
        sne.advance(row.seq);
    }
}

/// The algorithms of the draft, over the same segments.
#[test]
fn draft_traffic_keys_and_macs() {
    #[derive(Deserialize)]
    struct Draft {
        master_key: String,
        rows: Vec<Row>,
    }
    #[derive(Deserialize)]
    struct Row {
        section: String,
        algorithm: String,
        traffic_key: String,
        mac: String,
    }
    let (file, draft): (File, Draft) =
        (file(), serde_json::from_str(include_str!("../../vectors/draft_algs.json")).unwrap());
    assert_eq!(draft.rows.len(), 64);
    for row in &draft.rows {
        let v = file.vectors.iter().find(|v| v.section == row.section).unwrap();
        let master = hex(&draft.master_key);
        let exclude_options = !v.tcp_options_covered;
        let spec = MktSpec { key: &master, exclude_options, ..crate::common::spec(&row.algorithm, 1, 2) };
        let mkt = Mkt::new(&spec).unwrap();
        assert_eq!(mkt.mac_len, 16, "the draft's own length");
        let packet = hex(&v.ip_packet);
        let segment = Segment::parse(&packet).unwrap();
        let (source_isn, destination_isn) = v.isns();
        let context =
            Context { source: segment.source(), destination: segment.destination(), source_isn, destination_isn };
        assert_eq!(mkt.traffic_key(&context).unwrap().as_bytes(), hex(&row.traffic_key), "{}", row.section);
        let tfm = mkt.traffic_mac(&context).unwrap();
        let mut packet = packet.clone();
        let at = *segment.layout();
        let cover = Coverage { mac_at: v.ao_mac_offset_in_tcp, mac_len: 12, sne: 0, exclude_options };
        let mut ops = [Sign { tfm: &tfm, packet: &mut packet, at, cover, checksum: Checksum::Full, status: Ok(()) }];
        sign(&mut ops);
        assert_eq!(ops[0].status, Ok(()));
        assert_eq!(packet[at.tcp_at + cover.mac_at..][..12], hex(&row.mac)[..12], "{} {}", row.section, row.algorithm);
    }
}
