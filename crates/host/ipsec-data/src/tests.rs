//! Parts that tests of several modules need. Threads of a data path need root.

use crate::{Settings, Shared, Worker};
use sealane_abi::Caller;
use sealane_abi::cryptouser::name_field;
use sealane_abi::netlink::{NLM_F_ACK, NLM_F_REQUEST};
use sealane_abi::xfrm::{
    AF_INET, Address, AlgoAead, Attribute, Body, EncapTmpl, IPPROTO_ESP, Id, Key, LifetimeCfg, UDP_ENCAP_ESPINUDP,
    UsersaInfo, XFRM_MODE_TUNNEL, XfrmMessage,
};
use sealane_engine_xfrm::{Sender, Setup, Xfrm};
use sealane_net_ipsec::sa::{SaId, SaSpec};
use sealane_net_ipsec::sad::Sad;
use sealane_net_ipsec::transform::{Keyed, Transform, TransformSpec, Transforms};
use sealane_sys::life::{self, Kind};
use sealane_sys::marks::Bits;
use sealane_sys::netns::Netns;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::thread::JoinHandle;

/// A transform with AES-GCM.
pub(crate) fn transform() -> Transform {
    let mut transforms = Transforms::new(Arc::new(sealane_crypto_portable::registry()));
    let aead = Keyed { name: "rfc4106(gcm(aes))", key: &[3; 20] };
    transforms.prepare(&TransformSpec::Aead { aead, icv_bits: 128 }, false).expect("it is there")
}

const ENDS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2))];

/// A state's name, of a database that is gone.
pub(crate) fn sa_id() -> SaId {
    let [a, b] = ENDS;
    Sad::new(1).add(SaSpec::tunnel(9, a, b, transform())).expect("it is the first")
}

/// The part that threads share, without threads.
pub(crate) fn shared(netns: &Netns) -> Arc<Shared> {
    let registry = Arc::new(sealane_crypto_portable::registry());
    let xfrm = Xfrm::new(Setup { registry, random: Box::new(|bytes| bytes.fill(7)), cpus: 2, numbers: None });
    Arc::new(
        Shared::new(netns, xfrm, Box::new(|_| {}), Arc::new(|| {}), Settings::default(), Bits::draw())
            .expect("sockets"),
    )
}

/// Has a key manager add a state with encapsulation in UDP between these ports.
pub(crate) fn add_state(shared: &Shared, spi: u32, [from, to]: [u16; 2]) {
    let [src, dst] = ENDS.map(Address::from);
    let info = UsersaInfo {
        id: Id { daddr: dst, spi: spi.into(), proto: IPPROTO_ESP, pad: [0; 3] },
        saddr: src,
        lft: LifetimeCfg::NONE,
        family: AF_INET,
        mode: XFRM_MODE_TUNNEL,
        ..UsersaInfo::default()
    };
    let aead = AlgoAead {
        alg_name: name_field("rfc4106(gcm(aes))"),
        alg_key_len: 160,
        alg_icv_len: 128,
        alg_key: Key::new(&[spi as u8; 20]),
    };
    let encap = EncapTmpl {
        encap_type: UDP_ENCAP_ESPINUDP,
        encap_sport: from.into(),
        encap_dport: to.into(),
        ..EncapTmpl::default()
    };
    let order = XfrmMessage::new(Body::NewSa(info)).with(Attribute::AlgAead(aead)).with(Attribute::Encap(encap));
    let sender = Sender { caller: Caller { privileged: true }, ..Sender::default() };
    let replies = shared.xfrm().call(&order.encode(NLM_F_REQUEST | NLM_F_ACK, 1, 0), sender, shared.now());
    let answer = &replies.unicast[0];
    assert_eq!(i32::from_ne_bytes(answer[16..20].try_into().unwrap()), 0, "{}", String::from_utf8_lossy(answer));
}

/// A data path's threads, without rules that lead packets to them.
pub(crate) struct Threads {
    shared: Arc<Shared>,
    all: Vec<JoinHandle<()>>,
}

impl Threads {
    /// A worker, and the thread that looks for sockets of key managers.
    pub(crate) fn start(netns: &Netns, shared: &Arc<Shared>) -> Self {
        let workers = netns.run(|| Worker::open_all(shared)).expect("a device");
        let looker = |shared: Arc<Shared>| move || shared.look_when_asked();
        let worker = |mut worker: Worker| move || worker.run().expect("packets");
        let mut threads = Threads { shared: shared.clone(), all: Vec::new() };
        threads.spawn(netns, looker(shared.clone()));
        workers.into_iter().for_each(|each| threads.spawn(netns, worker(each)));
        shared.note_request();
        threads
    }

    fn spawn(&mut self, netns: &Netns, work: impl FnOnce() + Send + 'static) {
        let there = netns.try_clone().expect("a descriptor");
        self.all.push(std::thread::spawn(move || {
            let _alive = life::begin("test", Kind::Control);
            there.enter().expect("the namespace");
            work();
        }));
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.end();
        for thread in self.all.drain(..) {
            let done = thread.join();
            assert!(done.is_ok() || std::thread::panicking(), "a thread of the data path has panicked");
        }
    }
}
