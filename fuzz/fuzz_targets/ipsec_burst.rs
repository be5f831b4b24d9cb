//! Bursts of packets with any numbers, forged or not: each packet is judged and counted as if it had come alone.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_crypto::Kind;
use sealane_crypto::mac::MacTfm;
use sealane_fuzz::{Input, registry};
use sealane_net_ipsec::burst::BURST;
use sealane_net_ipsec::lifetime::Limits;
use sealane_net_ipsec::open::{Inbound, open};
use sealane_net_ipsec::packet::{HEADROOM, Packet};
use sealane_net_ipsec::sa::{SaFlags, SaId, SaSpec};
use sealane_net_ipsec::sad::Sad;
use sealane_net_ipsec::transform::{Keyed, Transform, TransformSpec, Transforms};
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

const KEY: [u8; 20] = [7; 20];
const ICV_LEN: usize = 12;
const WINDOWS: [u32; 7] = [1, 32, 64, 100, 128, 4096, 0];

struct Fixed {
    /// States without and with extended sequence numbers.
    null: [Transform; 2],
    mac: MacTfm,
}

static FIXED: LazyLock<Fixed> = LazyLock::new(|| {
    let registry = Arc::new(registry());
    let mac = registry.lookup(Kind::Hash, "hmac(sha1)").expect("a known name").mac(&KEY).expect("a good key");
    let mut transforms = Transforms::new(registry);
    let auth = Keyed { name: "hmac(sha1)", key: &KEY };
    let null = TransformSpec::EncAuth { enc: Keyed { name: "ecb(cipher_null)", key: &[] }, auth, icv_bits: 96 };
    Fixed { null: [false, true].map(|esn| transforms.prepare(&null, esn).expect("a good spec")), mac }
});

fn states(how: u8, top: u64, limit: u8) -> (Sad, [SaId; 2]) {
    let [src, dst] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse::<IpAddr>().expect("an address"));
    let esn = how & 16 != 0;
    let window_pkts = WINDOWS[usize::from(how & 15) % if esn { 6 } else { 7 }];
    let limits = Limits { hard_packets: if limit == 0 { u64::MAX } else { limit.into() }, ..Limits::NONE };
    let mut sad = Sad::new(0);
    let ids = [1, 2].map(|spi| {
        let transform = FIXED.null[usize::from(esn)].clone();
        let flags = SaFlags { esn, ..SaFlags::default() };
        let spec = SaSpec { flags, window_pkts, in_number: top, limits, ..SaSpec::tunnel(spi, src, dst, transform) };
        sad.add(spec).expect("a good spec")
    });
    (sad, ids)
}

/// Returns an ESP packet with this number.
fn packet(spi: u32, number: u64, esn: bool, forged: bool) -> Vec<u8> {
    let inner = [0x45, 0, 0, 22, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 1, 0, 5, 10, 2, 0, 5, 0xaa, 0xbb];
    let mut esp = [&spi.to_be_bytes()[..], &(number as u32).to_be_bytes(), &inner, &[0, 4]].concat();
    let high = ((number >> 32) as u32).to_be_bytes();
    let mut icv = [0; ICV_LEN];
    FIXED.mac.sign(&[&esp, if esn { &high } else { &[] }], &mut icv).expect("it signs");
    icv[0] ^= u8::from(forged);
    esp.extend(icv);
    let len = (20 + esp.len()) as u8;
    let mut wire = vec![0x45, 0, 0, len, 0, 0, 0x40, 0, 64, 50, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
    wire.extend(esp);
    wire
}

/// Returns the verdicts on packets that arrive in bursts of this size, and the states afterwards.
fn opened(how: u8, top: u64, limit: u8, wires: &[Vec<u8>], together: usize) -> (Vec<String>, Vec<String>) {
    let (mut sad, ids) = states(how, top, limit);
    let mut verdicts = Vec::new();
    for wires in wires.chunks(together) {
        let mut bufs: Vec<Vec<u8>> = wires.iter().map(|wire| [&[0; HEADROOM][..], wire].concat()).collect();
        let mut packets: Vec<Inbound<'_>> = bufs
            .iter_mut()
            .map(|buf| {
                let end = buf.len();
                Inbound::new(Packet::new(buf, HEADROOM, end))
            })
            .collect();
        open(&mut sad, &mut packets, 9, &mut Vec::new());
        verdicts.extend(packets.iter().map(|inn| format!("{:?} {:?}", inn.status, inn.path)));
    }
    let known = ids.map(|id| {
        let sa = sad.get(id).expect("it is there");
        format!("{:?} {:?} {:#x} {:?}", sad.state(id), sa.stat, sa.window().top(), sad.usage(id))
    });
    (verdicts, known.to_vec())
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let how = input.byte();
    let esn = how & 16 != 0;
    let [a, b, c, d, e, f] = [(); 6].map(|()| input.byte());
    let high = if esn { u64::from(u16::from_le_bytes([a, b])) } else { 0 };
    let top = high << 32 | u64::from(u32::from_le_bytes([c, d, e, f]));
    let limit = input.byte();
    let wires: Vec<Vec<u8>> = input
        .0
        .chunks_exact(5)
        .take(BURST)
        .map(|chunk| {
            let (wrong, low) = (chunk[0], u32::from_le_bytes([chunk[1], chunk[2], chunk[3], chunk[4]]));
            let high = high.wrapping_add(u64::from(wrong & 4 != 0)).wrapping_sub(u64::from(wrong & 8 != 0));
            packet(1 + u32::from(wrong & 2 != 0), high << 32 | u64::from(low), esn, wrong & 1 != 0)
        })
        .collect();
    assert_eq!(opened(how, top, limit, &wires, BURST), opened(how, top, limit, &wires, 1));
});
