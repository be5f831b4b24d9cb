//! The rows of AEADs. Compositions (`rfc4106`, `authenc`, ...) are templates over the drivers of their parts.

use super::block::{Aes, Family, Sm4};
use super::ccm::Ccm;
use super::chachapoly::ChaChaPoly;
use super::gcm::Gcm;
use super::row::{MODULE, PRIORITY};
use cipher::consts::U16;
use sealane_crypto::aead::AeadDriver;
use sealane_crypto::registry::{Driver, Row};
use sealane_crypto::{AlgInfo, CipherMode, Lengths};
use std::marker::PhantomData;
use std::sync::Arc;

pub(super) fn rows() -> Vec<Row> {
    let chachapoly = AlgInfo::aead("rfc7539(chacha20,poly1305)", 1, Lengths::Of(&[32]), 12, Lengths::Of(&[16]));
    vec![
        gcm::<Aes>(),
        gcm::<Sm4>(),
        ccm::<Aes>(),
        ccm::<Sm4>(),
        row(chachapoly, "rfc7539-chacha20-poly1305", ChaChaPoly),
    ]
}

fn row(info: AlgInfo, flat_name: &str, driver: impl AeadDriver + 'static) -> Row {
    Row::new(info, &format!("{flat_name}-{MODULE}"), MODULE, PRIORITY, Driver::Aead(Arc::new(driver)))
}

fn gcm<F: Family<Block = U16>>() -> Row {
    let tags = Lengths::Of(&[4, 8, 12, 13, 14, 15, 16]);
    let info = AlgInfo::aead(&format!("gcm({})", F::NAME), 1, F::KEY_LENS, 12, tags);
    row(info, &format!("gcm-{}", F::NAME), Gcm::<F>(PhantomData))
}

fn ccm<F: Family<Block = U16>>() -> Row {
    let tags = Lengths::Of(&[4, 6, 8, 10, 12, 14, 16]);
    let info = AlgInfo::aead(&format!("ccm({})", F::NAME), 1, F::KEY_LENS, 16, tags).mode(CipherMode::Ccm);
    row(info, &format!("ccm-{}", F::NAME), Ccm::<F>(PhantomData))
}
