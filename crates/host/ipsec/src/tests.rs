//! Two network namespaces and a data path in each. They need root.

use crate::control::kept::Kept;
use crate::control::path::DataPath;
use crate::{Spaces, Surroundings};
use sealane_abi::Caller;
use sealane_abi::cryptouser::name_field;
use sealane_abi::netlink::{NLM_F_ACK, NLM_F_REQUEST};
use sealane_abi::xfrm::{
    AF_INET, Address, Algo, AlgoAuth, Attribute, Body, IPPROTO_ESP, Id, Key, LifetimeCfg, ReplayStateEsn, UsersaFlush,
    UsersaInfo, XFRM_MODE_TUNNEL, XFRM_SA_DIR_IN, XFRM_STATE_ESN, XfrmMessage,
};
use sealane_config::{Ipsec, Namespaces};
use sealane_engine_xfrm::{Sender, Setup, Xfrm};
use sealane_handover::Keeper;
use sealane_ipsec_data::Settings;
use sealane_sys::netns::Netns;
use sealane_sys::poll::Waker;
use sealane_sys::testing;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

fn put(buf: &mut [u8], at: usize, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => buf[at..at + 4].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => buf[at..at + 16].copy_from_slice(&v6.octets()),
    }
}

fn family(address: IpAddr) -> u16 {
    if address.is_ipv4() { 2 } else { 10 }
}

pub(super) fn attribute(out: &mut Vec<u8>, kind: u16, payload: &[u8]) {
    out.extend_from_slice(&((payload.len() + 4) as u16).to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(payload);
    out.resize(out.len().next_multiple_of(4), 0);
}

pub(super) fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&((16 + body.len()) as u32).to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    // NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL
    out.extend_from_slice(&0x605u16.to_ne_bytes());
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(body);
    out
}

fn lifetime(out: &mut [u8]) {
    out[..32].fill(0xff);
}

/// `XFRM_MSG_NEWSA`: ESP with AES-GCM-128.
pub(super) fn state(src: IpAddr, dst: IpAddr, spi: u32, mode: u8, encap: bool) -> Vec<u8> {
    state_in_udp(src, dst, spi, mode, encap.then_some([4500; 2]))
}

/// The state's message with UDP encapsulation between these ports, if there are any.
pub(super) fn state_in_udp(src: IpAddr, dst: IpAddr, spi: u32, mode: u8, ports: Option<[u16; 2]>) -> Vec<u8> {
    let mut body = vec![0; 224];
    put(&mut body, 56, dst);
    body[72..76].copy_from_slice(&spi.to_be_bytes());
    body[76] = 50;
    put(&mut body, 80, src);
    lifetime(&mut body[96..]);
    body[208..212].copy_from_slice(&1u32.to_ne_bytes());
    body[212..214].copy_from_slice(&family(src).to_ne_bytes());
    body[214] = mode;
    body[215] = 64;
    // XFRM_STATE_AF_UNSPEC: for packets of both families.
    body[216] = if mode == TUNNEL { 32 } else { 0 };
    let mut aead = vec![0; 64];
    aead[..16].copy_from_slice(b"rfc4106(gcm(aes)");
    aead[16] = b')';
    aead.extend_from_slice(&160u32.to_ne_bytes());
    aead.extend_from_slice(&128u32.to_ne_bytes());
    aead.extend((0..20).map(|i| i ^ spi as u8));
    attribute(&mut body, 18, &aead);
    if let Some([from, to]) = ports {
        let mut template = vec![0; 24];
        template[..2].copy_from_slice(&2u16.to_ne_bytes());
        template[2..4].copy_from_slice(&from.to_be_bytes());
        template[4..6].copy_from_slice(&to.to_be_bytes());
        attribute(&mut body, 4, &template);
    }
    message(16, &body)
}

/// `XFRM_MSG_NEWPOLICY` with one template.
pub(super) fn policy(dir: u8, src: (IpAddr, u8), dst: (IpAddr, u8), ends: (IpAddr, IpAddr), mode: u8) -> Vec<u8> {
    let mut body = vec![0; 168];
    put(&mut body, 0, dst.0);
    put(&mut body, 16, src.0);
    body[40..42].copy_from_slice(&family(src.0).to_ne_bytes());
    (body[42], body[43]) = (dst.1, src.1);
    lifetime(&mut body[56..]);
    body[160] = dir;
    let mut template = vec![0; 64];
    if mode != 0 {
        put(&mut template, 0, ends.1);
        put(&mut template, 28, ends.0);
    }
    template[20] = 50;
    template[24..26].copy_from_slice(&family(ends.0).to_ne_bytes());
    template[44..48].copy_from_slice(&1u32.to_ne_bytes());
    template[48] = mode;
    template[52..64].fill(0xff);
    attribute(&mut body, 5, &template);
    message(19, &body)
}

pub(super) fn call(path: &DataPath, datagram: &[u8]) {
    let from = Sender { caller: Caller { privileged: true }, ..Sender::default() };
    let replies = path.with(|xfrm, now| xfrm.call(datagram, from, now)).expect("rules");
    let answer = &replies.unicast[0];
    assert_eq!(i32::from_ne_bytes(answer[16..20].try_into().unwrap()), 0, "{}", String::from_utf8_lossy(answer));
}

pub(super) fn start(netns: &Netns, workers: u32) -> DataPath {
    let registry = Arc::new(sealane_drivers::system_registry().0);
    let mut seed = 7u8;
    let random = move |bytes: &mut [u8]| {
        bytes.iter_mut().for_each(|b| {
            seed = seed.wrapping_mul(5).wrapping_add(3);
            *b = seed;
        });
    };
    let xfrm = Xfrm::new(Setup { registry, random: Box::new(random), cpus: 2, numbers: None });
    // A folder that is not there: policies and states do not outlive the test.
    let folder = Path::new("/nonexistent");
    let kept = Kept::of(folder, netns, Arc::new(Keeper::of_folder(folder))).expect("a name");
    let netns = netns.try_clone().expect("a descriptor");
    DataPath::start(netns, xfrm, Box::new(|_| {}), Arc::new(|| {}), Settings { workers, ..Settings::default() }, kept)
        .expect("a data path")
}

/// Namespaces, data paths, and the addresses inside the tunnel.
struct Both {
    spaces: [Netns; 2],
    paths: [DataPath; 2],
    inner: [IpAddr; 2],
}

fn both(test: &str, outer: [&str; 2], inner: [&str; 2], mode: u8, udp: Option<[u16; 2]>, workers: u32) -> Option<Both> {
    let (a, b) = testing::pair(test)?;
    let outer: [IpAddr; 2] = outer.map(|a| a.parse().unwrap());
    let inner: [IpAddr; 2] = inner.map(|a| a.parse().unwrap());
    let bits = if inner[0].is_ipv4() { 32 } else { 128 };
    let spaces = [a, b];
    for (i, space) in spaces.iter().enumerate() {
        let device = ["a", "b"][i];
        if inner[i] != outer[i] {
            space.run(|| testing::address("lo", inner[i], bits)).expect("an inner address");
            let inside = format!("{}/{bits}", inner[1 - i]);
            let command =
                ["ip", "route", "add", &inside, "dev", device, "src", &inner[i].to_string()].map(str::to_owned);
            let done = space.run(|| Command::new(&command[0]).args(&command[1..]).status()).expect("ip");
            assert!(done.success());
        }
    }
    let paths = [start(&spaces[0], workers), start(&spaces[1], workers)];
    for path in &paths {
        for (i, spi) in [(0, 0x1000), (1, 0x2000)] {
            let ports = udp.map(|ports| [ports[i], ports[1 - i]]);
            call(path, &state_in_udp(outer[i], outer[1 - i], spi, mode, ports));
        }
    }
    for (i, path) in paths.iter().enumerate() {
        let (us, them) = ((inner[i], bits), (inner[1 - i], bits));
        call(path, &policy(1, us, them, (outer[i], outer[1 - i]), mode));
        call(path, &policy(0, them, us, (outer[1 - i], outer[i]), mode));
    }
    Some(Both { spaces, paths, inner })
}

impl Both {
    fn show(&self) {
        for path in &self.paths {
            let xfrm = path.shared().xfrm();
            println!("{:?} {:?}", path.shared().path_status(), xfrm.stat());
        }
    }

    /// A transfer by TCP, and one by UDP.
    fn transfer(&self, len: usize) {
        let to = std::net::SocketAddr::new(self.inner[1], 7301);
        let listener = self.spaces[1].run(|| TcpListener::bind(to)).expect("a listener");
        let from = std::net::SocketAddr::new(self.inner[0], 0);
        let udp = self.spaces[0].run(|| UdpSocket::bind(from)).expect("a socket");
        let sink = self.spaces[1].run(|| UdpSocket::bind(to)).expect("a socket");
        udp.send_to(b"hello", to).expect("sent");
        sink.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut buf = [0; 16];
        assert_eq!(sink.recv(&mut buf).inspect_err(|_| self.show()).expect("received"), 5);
        let connected = self.spaces[0].run(|| TcpStream::connect_timeout(&to, Duration::from_secs(5)));
        let mut stream = connected.inspect_err(|_| self.show()).expect("connected");
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                let mut bytes = Vec::new();
                let done = stream.read_to_end(&mut bytes);
                assert!(done.is_ok(), "{done:?} after {} bytes", bytes.len());
                bytes
            });
            let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
            stream.write_all(&bytes).inspect_err(|_| self.show()).expect("written");
            drop(stream);
            assert_eq!(reader.join().unwrap(), bytes);
        });
    }

    fn stop(self) {
        self.paths.iter().for_each(DataPath::hand_back);
    }
}

const OUTER4: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
const OUTER6: [&str; 2] = ["fd77::1", "fd77::2"];
const INNER4: [&str; 2] = ["10.79.1.1", "10.79.2.1"];
const INNER6: [&str; 2] = ["fd79:1::1", "fd79:2::1"];
pub(super) const TUNNEL: u8 = 1;
const TRANSPORT: u8 = 0;

#[test]
fn tunnels_and_transport() {
    for (outer, inner, mode, encap) in [
        (OUTER4, INNER4, TUNNEL, true),
        (OUTER4, INNER4, TUNNEL, false),
        (OUTER6, INNER6, TUNNEL, true),
        (OUTER6, INNER6, TUNNEL, false),
        (OUTER4, INNER6, TUNNEL, true),
        (OUTER6, INNER4, TUNNEL, false),
        (OUTER4, OUTER4, TRANSPORT, false),
        (OUTER4, OUTER4, TRANSPORT, true),
        (OUTER6, OUTER6, TRANSPORT, false),
        (OUTER6, OUTER6, TRANSPORT, true),
    ] {
        for workers in [1, 3] {
            println!("{outer:?} {inner:?} {mode} {encap} {workers}");
            let udp = encap.then_some([4500; 2]);
            let Some(both) = both("xfrm::tunnels_and_transport", outer, inner, mode, udp, workers) else { return };
            both.transfer(1_000_000);
            both.stop();
        }
    }
}

/// All workers end with the first one: traffic covered by policies is dropped.
#[test]
fn workers_end_together() {
    let Some(both) = both("xfrm::workers_end_together", OUTER4, INNER4, TUNNEL, Some([4500; 2]), 3) else { return };
    both.transfer(1000);
    let [path, other] = &both.paths;
    assert!(!path.has_ended() && !other.has_ended());
    path.end_one();
    let start = std::time::Instant::now();
    while !path.has_ended() {
        assert!(start.elapsed() < Duration::from_secs(20), "the others go on");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!other.has_ended());
    both.stop();
}

/// By other ports, for which there is no rule, between hosts whose policies cover the sealed packets as well.
#[test]
fn other_ports() {
    for workers in [1, 3] {
        let ports = Some([5000, 6000]);
        let Some(both) = both("xfrm::other_ports", OUTER4, OUTER4, TRANSPORT, ports, workers) else { return };
        // An end that has not sent does not listen yet.
        for (us, them, port) in [(0, 1, 5000), (1, 0, 6000)] {
            let start = std::time::Instant::now();
            let to = std::net::SocketAddr::new(both.inner[them], 9);
            let socket = both.spaces[us].run(|| UdpSocket::bind("0.0.0.0:0")).expect("a socket");
            // Each look has the port for a moment.
            while both.spaces[us].run(|| UdpSocket::bind(("0.0.0.0", port))).is_ok() {
                assert!(start.elapsed() < Duration::from_secs(20), "nothing leaves");
                socket.send_to(b"x", to).expect("sent");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        both.transfer(1_000_000);
        both.stop();
    }
}

/// The request for a state with a partial MAC, or with the whole one.
pub(super) fn with_mac(spi: u32, mac: &str) -> Vec<u8> {
    let [dst, src] = ["192.0.2.2", "192.0.2.1"].map(|text| Address::from(text.parse::<IpAddr>().unwrap()));
    let info = UsersaInfo {
        id: Id { daddr: dst, spi: spi.into(), proto: IPPROTO_ESP, pad: [0; 3] },
        saddr: src,
        lft: LifetimeCfg::NONE,
        family: AF_INET,
        mode: XFRM_MODE_TUNNEL,
        flags: XFRM_STATE_ESN,
        ..UsersaInfo::default()
    };
    let auth = AlgoAuth {
        alg_name: name_field(mac),
        alg_key_len: 128,
        alg_trunc_len: 96,
        alg_key: Key::new(&[spi as u8; 16]),
    };
    let null = Algo { alg_name: name_field("ecb(cipher_null)"), alg_key_len: 0, alg_key: Key::new(&[]) };
    let window = ReplayStateEsn { bmp_len: 1, oseq: 0, seq: 0, oseq_hi: 0, seq_hi: 0, replay_window: 32, bmp: vec![0] };
    let order = XfrmMessage::new(Body::NewSa(info)).with(Attribute::AlgAuthTrunc(auth));
    let order = order.with(Attribute::AlgCrypt(null)).with(Attribute::ReplayEsnVal(window));
    // One that sends would need numbers that outlive a boot.
    let order = order.with(Attribute::SaDir(XFRM_SA_DIR_IN));
    order.encode(NLM_F_REQUEST | NLM_F_ACK, 1, 0).to_vec()
}

/// A configuration without the leave for partial MACs ends states that have one before it does anything else, whatever else of it
/// cannot be put in place.
#[test]
fn states_with_partial_macs_end_first() {
    let Some(netns) = testing::namespace("xfrm::states_with_partial_macs_end_first") else { return };
    let folder = std::env::temp_dir().join(format!("sealane-partial-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let place = folder.join("netns");
    std::fs::write(&place, b"").unwrap();
    let mounted = testing::Mounted::new(&netns, &place);
    let surroundings = Surroundings {
        registry: Arc::new(sealane_drivers::system_registry().0),
        folder: folder.clone(),
        keeper: Arc::new(Keeper::of_folder(Path::new("/nonexistent"))),
        on_failure: Arc::new(|| {}),
    };
    let mut spaces = Spaces::new(surroundings, Arc::new(Waker::new().unwrap()));
    let named = Some(place.to_str().unwrap().to_owned());
    let config = |partial_macs, more: Option<&str>| {
        let netns = [named.clone()].into_iter().chain(more.map(|name| Some(name.to_owned()))).collect();
        Ipsec { spaces: Namespaces { netns, ..Namespaces::default() }, partial_macs, ..Ipsec::default() }
    };
    let states = |spaces: &Spaces| spaces.by_name[&named].engine().sizes().0;
    let fill = |spaces: &Spaces| {
        for (spi, mac) in [(1, "partial(cmac(aes),1/4)"), (2, "cmac(aes)"), (3, "partial(hmac(sha1),1/2)")] {
            call(spaces.by_name[&named].data(), &with_mac(spi, mac));
        }
    };
    let flush =
        XfrmMessage::new(Body::FlushSa(UsersaFlush { proto: IPPROTO_ESP })).encode(NLM_F_REQUEST | NLM_F_ACK, 1, 0);
    spaces.serve(Some(&config(true, None))).unwrap();
    for round in 0..3 {
        assert_eq!(states(&spaces), 0);
        fill(&spaces);
        // The same configuration again leaves them.
        spaces.serve(Some(&config(true, None))).unwrap();
        assert_eq!(states(&spaces), 3);
        match round {
            0 => spaces.serve(Some(&config(false, None))).unwrap(),
            // What follows fails.
            1 => assert!(spaces.serve(Some(&config(false, Some("/nonexistent/netns")))).is_err()),
            // As the daemon does it before anything else, for a configuration without IPsec too.
            _ => spaces.restrict(None),
        }
        assert_eq!(states(&spaces), 1, "the whole MAC stays");
        call(spaces.by_name[&named].data(), &flush);
        spaces.serve(Some(&config(true, None))).unwrap();
    }
    spaces.stop();
    drop(mounted);
    std::fs::remove_dir_all(&folder).unwrap();
}
