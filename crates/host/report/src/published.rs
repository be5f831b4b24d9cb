//! Figures that others have published, with their sources.

use crate::data::{Figure, Point, Series, Source, X};

/// A series of published figures over words.
pub(crate) fn over_words(name: &str, source: &str, figures: &[(&str, f64)]) -> Series {
    series(name, source, figures.iter().map(|(x, y)| (X::Word((*x).to_owned()), *y)))
}

/// A series of published figures over numbers.
pub(crate) fn over_numbers(name: &str, source: &str, figures: &[(f64, f64)]) -> Series {
    series(name, source, figures.iter().map(|(x, y)| (X::Number(*x), *y)))
}

fn series(name: &str, source: &str, figures: impl Iterator<Item = (X, f64)>) -> Series {
    let point = |(x, y)| Point { x, figure: Figure::stated(y), remark: String::new() };
    Series { name: name.to_owned(), source: Source::Published(source.to_owned()), points: figures.map(point).collect() }
}

/// The source of the figures of Linux' TCP-AO.
pub(crate) const TCP_AO: &str = "Eric Biggers, \"[RFC PATCH 0/8] Reimplement TCP-AO using crypto library\", netdev and linux-crypto, \
    7 March 2026: tcp_ao_hash_skb() with skb->len of 128, average cycles; the CPU is not named";

/// Cycles of `tcp_ao_hash_skb()` by `crypto_ahash`, by TCP-AO's algorithm.
pub(crate) const TCP_AO_BEFORE: &[(&str, f64)] =
    &[("hmac(sha1)", 3319.0), ("hmac(sha256)", 3311.0), ("cmac(aes128)", 2720.0)];

/// The same by the kernel's crypto library.
pub(crate) const TCP_AO_AFTER: &[(&str, f64)] =
    &[("hmac(sha1)", 1256.0), ("hmac(sha256)", 1344.0), ("cmac(aes128)", 1107.0)];

/// The source of the figures of 1999.
pub(crate) const ACSA: &str = "a member of DARPA's project ACSA, in \"Fast MAC algorithms?\", cryptography mailing list (metzdowd.com), \
    22 July 2009: Pentium II, Linux 2.2.14, measured about 1999, rounded there";

/// Cycles a byte of TCP, by bytes of a packet.
pub(crate) const TCP_1999: &[(f64, f64)] = &[(10.0, 1000.0), (100.0, 100.0), (1000.0, 15.0)];

/// Cycles a byte of HMAC-SHA1-96.
pub(crate) const HMAC_SHA1_96_1999: &[(f64, f64)] = &[(1000.0, 25.0)];

/// CPU time to move IP packets through the kernel, as a multiple of that without a MAC, which is 1 therefore.
pub(crate) const MOVING_1999: &[(&str, f64)] = &[("HMAC-MD5-96", 2.0), ("HMAC-SHA1-96", 3.0)];

/// The source of the share of the kernel's AF_ALG.
pub(crate) const CLOUDFLARE: &str = "Cloudflare, \"The Linux Crypto API for user applications\", 11 May 2023: AES-128-CTR in pieces of \
    63 KiB by AF_ALG without copies, beside OpenSSL";

/// Throughput of the kernel's AF_ALG as a share of OpenSSL's, at 63 KiB.
pub(crate) const AF_ALG_2023: f64 = 0.56;

/// The source of the figures of IPsec in Linux.
pub(crate) const OFFLOAD: &str = "Leon Romanovsky, \"Extend XFRM core to allow packet offload configuration\", netdev, 2022: Linux, \
    ConnectX-6 Dx, Xeon Platinum 8380 at 2.3 GHz";

/// Gb/s of ESP in software, by CPUs.
pub(crate) const SOFTWARE_2022: &[(f64, f64)] =
    &[(1.0, 6.0), (2.0, 11.9), (4.0, 23.3), (8.0, 45.9), (16.0, 83.8), (32.0, 91.8)];

/// Gb/s with crypto offload, by CPUs.
pub(crate) const CRYPTO_2022: &[(f64, f64)] =
    &[(1.0, 15.0), (2.0, 29.7), (4.0, 58.5), (8.0, 89.6), (16.0, 90.4), (32.0, 90.8)];

/// Gb/s with packet offload, by CPUs.
pub(crate) const PACKET_2022: &[(f64, f64)] =
    &[(1.0, 28.0), (2.0, 57.0), (4.0, 90.7), (8.0, 91.0), (16.0, 91.3), (32.0, 91.9)];

/// Gb/s without IPsec, by CPUs.
pub(crate) const NO_IPSEC_2022: &[(f64, f64)] = &[(1.0, 27.9)];

/// The source of the figures of prototypes of homes.
pub(crate) const PROTOTYPES: &str = "prototypes that Sealane's homes were chosen by, 2026, published here: Cascade Lake, two cores, with \
    AVX-512 and protection keys, without VAES; AES-128-CTR";

/// The prototype of a keeper: a ring in shared memory at which both sides spin, one text at a time, which is copied in and out.
const PROTOTYPE_RING: &str = "prototype: another process, shared ring";

/// Megabytes a second of the prototypes, by bytes of a text.
pub(crate) const PROTOTYPE_RATES: &[(&str, &[(f64, f64)])] = &[
    (
        "prototype: EVP in the process",
        &[(16.0, 627.0), (256.0, 3948.0), (1024.0, 5136.0), (16384.0, 5666.0), (64512.0, 5704.0)],
    ),
    (
        "prototype: memfd_secret, protection key",
        &[(16.0, 313.0), (256.0, 2775.0), (1024.0, 4528.0), (16384.0, 5625.0), (64512.0, 5685.0)],
    ),
    (PROTOTYPE_RING, &[(16.0, 42.0), (256.0, 490.0), (1024.0, 1174.0), (16384.0, 2442.0), (64512.0, 2656.0)]),
];

/// CPU seconds for a gigabyte of the prototypes, by bytes of a text.
pub(crate) const PROTOTYPE_CPU: &[(&str, &[(f64, f64)])] =
    &[("prototype: EVP in the process", &[(64512.0, 0.18)]), (PROTOTYPE_RING, &[(64512.0, 0.36)])];
