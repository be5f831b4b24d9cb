//! The other ends of tunnels, which lose nothing and forget nothing.

use crate::flow::raw;
use crate::model::State;
use crate::net::HOST_WAN;
use sealane_net_ipsec::open::{self, Inbound, Opened};
use sealane_net_ipsec::packet::{HEADROOM, Packet, TAILROOM};
use sealane_net_ipsec::sa::{SaId, SaSpec};
use sealane_net_ipsec::sad::Sad;
use sealane_net_ipsec::seal::{self, Outbound};
use sealane_net_ipsec::transform::{Keyed, TransformSpec, Transforms};
use sealane_rules::eval;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// Algorithms for all, which test themselves once.
pub(crate) static REGISTRY: LazyLock<Arc<sealane_crypto::Registry>> =
    LazyLock::new(|| Arc::new(sealane_crypto_portable::registry()));

/// AES-GCM with a key of 16 bytes and a salt of four.
pub(crate) const CIPHER: &str = "rfc4106(gcm(aes))";
pub(crate) const ICV_BITS: u32 = 128;

/// The key and salt of a state.
pub(crate) fn key(spi: u32) -> [u8; 20] {
    core::array::from_fn(|at| spi.to_be_bytes()[at % 4] ^ at as u8)
}

/// The states of both peers.
pub(crate) struct Peers {
    sad: Sad,
    transforms: Transforms,
    known: BTreeMap<u32, SaId>,
}

impl Peers {
    pub(crate) fn new() -> Self {
        Peers { sad: Sad::new(7), transforms: Transforms::new(REGISTRY.clone()), known: BTreeMap::new() }
    }

    /// Its end of a state of the host.
    pub(crate) fn learn(&mut self, spi: u32, of: State) {
        if self.known.contains_key(&spi) {
            return;
        }
        let aead = Keyed { name: CIPHER, key: &key(spi) };
        let transform = self.transforms.prepare(&TransformSpec::Aead { aead, icv_bits: ICV_BITS }, false);
        let transform = transform.expect("a portable driver has it");
        let (peer, host) = (of.peer.address().into(), HOST_WAN.into());
        let (from, to) = if of.inward { (peer, host) } else { (host, peer) };
        let added = self.sad.add(SaSpec::tunnel(spi, from, to, transform));
        self.known.insert(spi, added.expect("its SPI is new"));
    }

    /// Seals a packet for the host.
    pub(crate) fn seal(&mut self, spi: u32, packet: &[u8]) -> eval::Packet {
        let mut buffer = [&[0; HEADROOM][..], packet, &[0; TAILROOM]].concat();
        let inner = Packet::new(&mut buffer, HEADROOM, HEADROOM + packet.len());
        let mut burst = [Outbound::new(self.known[&spi], inner)];
        seal::seal(&mut self.sad, &mut burst, 0, &mut Vec::new());
        burst[0].status.expect("it can be sealed");
        raw(burst[0].packet.bytes().to_vec())
    }

    /// Opens what the host has sealed; nothing where it is not for them.
    pub(crate) fn open(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        let mut buffer = [&[0; HEADROOM][..], packet].concat();
        let end = buffer.len();
        let mut burst = [Inbound::new(Packet::new(&mut buffer, HEADROOM, end))];
        open::open(&mut self.sad, &mut burst, 0, &mut Vec::new());
        (burst[0].status == Ok(Opened::Packet)).then(|| burst[0].packet.bytes().to_vec())
    }
}
