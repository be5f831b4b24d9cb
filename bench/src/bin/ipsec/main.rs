//! IPsec: bursts of 64 packets of ESP in tunnel mode sealed and opened, beside the bare call of the crypto core for the same
//! texts, so that the engine's own share is seen: headers, padding, sequence numbers, lifetimes. Then all of a gateway's work,
//! policies and windows included; and what it costs to find one of up to a million associations and policies, and to keep it.
//!
//! Packets of IPv4 over IPv4, the size is the inner packet's. `--only packets|gateway|states|policies` runs a part, `--states N`
//! does with that many at most, `--from N` with that many at least, `--burst N` with smaller bursts.

mod gateway;
mod packets;
mod tables;

use sealane_bench::report::{Csv, option};
use sealane_drivers::SystemEntropy;
use sealane_net::ipsec::transform::{Keyed, TransformSpec};
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

const BURST: usize = 64;

/// Name in the table, the AEAD behind it, the transform.
struct Algorithm {
    name: &'static str,
    bare: &'static str,
    spec: TransformSpec<'static>,
}

const KEY: [u8; 64] = [7; 64];

fn algorithms() -> Vec<Algorithm> {
    let aead = |name: &'static str, len: usize| Algorithm {
        name,
        bare: name,
        spec: TransformSpec::Aead { aead: Keyed { name, key: &KEY[..len] }, icv_bits: 128 },
    };
    let pair = |name, bare, enc: (&'static str, usize), auth: (&'static str, usize), icv_bits| Algorithm {
        name,
        bare,
        spec: TransformSpec::EncAuth {
            enc: Keyed { name: enc.0, key: &KEY[..enc.1] },
            auth: Keyed { name: auth.0, key: &KEY[..auth.1] },
            icv_bits,
        },
    };
    vec![
        aead("rfc4106(gcm(aes))", 20),
        aead("rfc7539esp(chacha20,poly1305)", 36),
        aead("rfc4309(ccm(aes))", 19),
        pair("cbc(aes), hmac(sha1)", "authenc(hmac(sha1),cbc(aes))", ("cbc(aes)", 16), ("hmac(sha1)", 20), 96),
        pair("cbc(aes), hmac(sha256)", "authenc(hmac(sha256),cbc(aes))", ("cbc(aes)", 16), ("hmac(sha256)", 32), 128),
    ]
}

impl Algorithm {
    fn icv_len(&self) -> usize {
        let (TransformSpec::Aead { icv_bits, .. }
        | TransformSpec::EncAuth { icv_bits, .. }
        | TransformSpec::Auth { icv_bits, .. }) = self.spec;
        icv_bits as usize / 8
    }
}

const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

fn v4(a: u8, b: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, a, b).into()
}

/// The text of a packet of `len` bytes: padded, with pad length and next header.
fn text_len(bare: &str, len: usize) -> usize {
    let block = if bare.contains("cbc") { 16 } else { 4 };
    // An encrypted IV is part of the text.
    (len + 2).next_multiple_of(block) + if bare.contains("cbc") { 16 } else { 0 }
}

fn packet(len: usize) -> Vec<u8> {
    let mut packet = vec![0x5a; len];
    packet[..20].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    packet
}

fn main() -> Result<(), Box<dyn Error>> {
    let (table, _) = sealane_drivers::tables::load()?;
    let registry = Arc::new(sealane_drivers::registry(table, Arc::new(SystemEntropy)));
    let mut csv = Csv::new(
        "algorithm,way,bytes,median_ns,min_ns,median_ticks,bare_median_ns,bare_min_ns,bare_median_ticks,wanted_ticks,dpdk_ticks",
    );
    let runs = |part: &str| option("only").is_none_or(|only| only == part);
    if runs("packets") {
        packets::packets(&registry, &mut csv)?;
    }
    if runs("gateway") {
        gateway::gateway(&registry, &mut csv)?;
    }
    if runs("states") {
        tables::associations(&registry, &mut csv)?;
    }
    if runs("policies") {
        tables::policies(&mut csv)?;
    }
    csv.write()?;
    Ok(())
}
