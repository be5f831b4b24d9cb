//! Reports about an algorithm (`crypto_report_one` and the `report` function of each type).

use crate::catalog::KernelRow;
use crate::system::System;
use sealane_abi::Profile;
use sealane_abi::cryptouser::{
    CRYPTO_MSG_GETALG, CRYPTOCFGA_PRIORITY_VAL, CRYPTOCFGA_REPORT_ACOMP, CRYPTOCFGA_REPORT_AEAD,
    CRYPTOCFGA_REPORT_AKCIPHER, CRYPTOCFGA_REPORT_BLKCIPHER, CRYPTOCFGA_REPORT_CIPHER, CRYPTOCFGA_REPORT_COMPRESS,
    CRYPTOCFGA_REPORT_HASH, CRYPTOCFGA_REPORT_KPP, CRYPTOCFGA_REPORT_RNG, CRYPTOCFGA_REPORT_SIG, CryptoUserAlg,
    ReportAead, ReportBlkcipher, ReportCipher, ReportHash, ReportRng, ReportType, name_field,
};
use sealane_abi::netlink::answer::message;
use sealane_abi::netlink::push_attr;
use sealane_crypto::registry::TestState;
use sealane_crypto::{Kind, Row};
use zerocopy::IntoBytes;

/// `CRYPTO_ALG_TESTED`.
const TESTED: u32 = 0x400;

/// An algorithm that can be reported: a row of the imitated kernel, or one of ours.
#[derive(Clone, Copy)]
pub(super) enum Entry<'a> {
    Kernel(&'a KernelRow),
    Own(&'a Row),
}

/// All of them, in the order of `/proc/crypto`.
pub(super) fn entries(sys: &System) -> Vec<Entry<'_>> {
    if sys.profile() == Profile::Open {
        sys.own_rows().into_iter().map(|row| Entry::Own(row)).collect()
    } else {
        sys.catalog().live_rows().into_iter().map(Entry::Kernel).collect()
    }
}

impl Entry<'_> {
    pub(super) fn name(&self) -> &[u8] {
        self.name_str().as_bytes()
    }

    pub(super) fn driver(&self) -> &[u8] {
        self.driver_str().as_bytes()
    }

    fn name_str(&self) -> &str {
        match self {
            Entry::Kernel(row) => row.name,
            Entry::Own(row) => &row.info.name,
        }
    }

    fn driver_str(&self) -> &str {
        match self {
            Entry::Kernel(row) => row.driver,
            Entry::Own(row) => &row.driver,
        }
    }

    pub(super) fn flags(&self) -> u32 {
        match self {
            Entry::Kernel(row) => row.number("flags"),
            Entry::Own(row) => {
                let tested = if row.test_state() == TestState::Untested { 0 } else { TESTED };
                let type_ = match row.info.kind {
                    Kind::Aead => 0x3,
                    Kind::Skcipher => 0x5,
                    Kind::Rng => 0xc,
                    Kind::Hash | Kind::NonceMac => 0xe,
                };
                tested | type_
            }
        }
    }

    /// The message that reports it. `held`: references that the request itself holds.
    pub(super) fn message(&self, seq: u32, port: u32, flags: u16, held: u32) -> Vec<u8> {
        let (module, refcnt, priority) = match self {
            Entry::Kernel(row) => {
                let refcnt = if row.since() > 1 { 1 } else { row.number("refcnt") };
                (row.field("module").unwrap_or("kernel"), refcnt, row.priority() as u32)
            }
            Entry::Own(row) => (row.module, 1, row.priority),
        };
        let alg = CryptoUserAlg {
            cru_name: name_field(self.name_str()),
            cru_driver_name: name_field(self.driver_str()),
            cru_module_name: name_field(module),
            cru_type: 0,
            cru_mask: 0,
            cru_refcnt: refcnt + held,
            cru_flags: self.flags(),
        };
        let mut payload = alg.as_bytes().to_vec();
        push_attr(&mut payload, CRYPTOCFGA_PRIORITY_VAL, &priority.to_ne_bytes());
        match self {
            Entry::Kernel(row) => push_kernel_report(&mut payload, row),
            Entry::Own(row) => push_own_report(&mut payload, row),
        }
        message(CRYPTO_MSG_GETALG, flags, seq, port, &payload)
    }
}

fn push_kernel_report(payload: &mut Vec<u8>, row: &KernelRow) {
    let type_ = row.field("type").unwrap_or("");
    let blocksize = row.number("blocksize");
    match type_ {
        "shash" | "ahash" => push_hash(payload, type_, blocksize, row.number("digestsize")),
        "skcipher" | "lskcipher" => {
            let report = ReportBlkcipher {
                type_: name_field(type_),
                geniv: name_field("<none>"),
                blocksize,
                min_keysize: row.number("min_keysize"),
                max_keysize: row.number("max_keysize"),
                ivsize: row.number("ivsize"),
            };
            push_attr(payload, CRYPTOCFGA_REPORT_BLKCIPHER, report.as_bytes());
        }
        "aead" => push_aead(payload, blocksize, row.number("maxauthsize"), row.number("ivsize")),
        "rng" => push_rng(payload, row.number("seedsize")),
        "cipher" => {
            let report = ReportCipher {
                type_: name_field(type_),
                blocksize,
                min_keysize: row.number("min_keysize"),
                max_keysize: row.number("max_keysize"),
            };
            push_attr(payload, CRYPTOCFGA_REPORT_CIPHER, report.as_bytes());
        }
        _ => {
            let attr = match type_ {
                "compression" => CRYPTOCFGA_REPORT_COMPRESS,
                "akcipher" => CRYPTOCFGA_REPORT_AKCIPHER,
                "kpp" => CRYPTOCFGA_REPORT_KPP,
                "acomp" | "scomp" => CRYPTOCFGA_REPORT_ACOMP,
                "sig" => CRYPTOCFGA_REPORT_SIG,
                _ => return,
            };
            push_attr(payload, attr, ReportType { type_: name_field(type_) }.as_bytes());
        }
    }
}

fn push_own_report(payload: &mut Vec<u8>, row: &Row) {
    let info = &row.info;
    let blocksize = info.block_len as u32;
    match info.kind {
        Kind::Hash | Kind::NonceMac => push_hash(payload, "shash", blocksize, info.digest_len as u32),
        Kind::Skcipher => {
            let report = ReportBlkcipher {
                type_: name_field("skcipher"),
                geniv: name_field("<none>"),
                blocksize,
                min_keysize: info.key_lens.min() as u32,
                max_keysize: info.key_lens.max() as u32,
                ivsize: info.iv_len as u32,
            };
            push_attr(payload, CRYPTOCFGA_REPORT_BLKCIPHER, report.as_bytes());
        }
        Kind::Aead => push_aead(payload, blocksize, info.digest_len as u32, info.iv_len as u32),
        Kind::Rng => push_rng(payload, row.seed_len() as u32),
    }
}

fn push_hash(payload: &mut Vec<u8>, type_: &str, blocksize: u32, digestsize: u32) {
    let report = ReportHash { type_: name_field(type_), blocksize, digestsize };
    push_attr(payload, CRYPTOCFGA_REPORT_HASH, report.as_bytes());
}

fn push_aead(payload: &mut Vec<u8>, blocksize: u32, maxauthsize: u32, ivsize: u32) {
    let (type_, geniv) = (name_field("aead"), name_field("<none>"));
    let report = ReportAead { type_, geniv, blocksize, maxauthsize, ivsize };
    push_attr(payload, CRYPTOCFGA_REPORT_AEAD, report.as_bytes());
}

fn push_rng(payload: &mut Vec<u8>, seedsize: u32) {
    push_attr(payload, CRYPTOCFGA_REPORT_RNG, ReportRng { type_: name_field("rng"), seedsize }.as_bytes());
}
