//! HMAC (RFC 2104) from cached midstates.

use crate::md::{MAX_BLOCK_LEN, Md, Md5, Rmd160, Running, Sha1, Sha224, Sha256, Sha384, Sha512, absorb, pad};
use crate::wipe::wipe;
use sealane_crypto::hash::HashState;
use sealane_crypto::key::PreparedKey;
use sealane_crypto::mac::{MacDriver, MacOp};
use sealane_crypto::registry::Driver;
use sealane_crypto::{AlgInfo, KeyError, Lengths, Row, Status};
use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

/// The chaining words after the inner and the outer pad block, which replace the key.
struct HmacKey<H: Md> {
    inner: H::Words,
    outer: H::Words,
}

impl<H: Md> HmacKey<H> {
    fn new(key: &[u8]) -> Self {
        let mut block = [0u8; MAX_BLOCK_LEN];
        if key.len() > H::BLOCK_LEN {
            let mut words = H::init();
            absorb::<H>(&mut words, 0, &[key]);
            H::output(&words, &mut block[..H::DIGEST_LEN]);
            wipe(&mut words);
        } else {
            block[..key.len()].copy_from_slice(key);
        }
        let mut padded = |pad: u8| {
            let mut words = H::init();
            block.iter_mut().for_each(|b| *b ^= pad);
            H::compress(&mut words, &block[..H::BLOCK_LEN]);
            block.iter_mut().for_each(|b| *b ^= pad);
            words
        };
        let key = HmacKey { inner: padded(0x36), outer: padded(0x5c) };
        wipe(&mut block);
        key
    }

    /// The outer hash over the inner digest; writes the first `out.len()` bytes of the tag.
    #[inline]
    fn close(&self, inner: &H::Words, out: &mut [u8]) {
        let mut digest = [0u8; 64];
        H::output(inner, &mut digest[..H::DIGEST_LEN]);
        let mut words = self.outer;
        pad::<H>(&mut words, &digest[..H::DIGEST_LEN], (H::BLOCK_LEN + H::DIGEST_LEN) as u64);
        H::output(&words, out);
        wipe(&mut words);
        wipe(&mut digest);
    }
}

impl<H: Md> Clone for HmacKey<H> {
    fn clone(&self) -> Self {
        HmacKey { inner: self.inner, outer: self.outer }
    }
}

impl<H: Md> Drop for HmacKey<H> {
    fn drop(&mut self) {
        wipe(&mut self.inner);
        wipe(&mut self.outer);
    }
}

struct HmacDriver<H>(PhantomData<H>);

impl<H: Md> MacDriver for HmacDriver<H> {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        Ok(Box::new(HmacKey::<H>::new(key)))
    }

    fn start(&self, key: &dyn PreparedKey) -> Box<dyn HashState> {
        let key: &dyn Any = key;
        let key = key.downcast_ref::<HmacKey<H>>().expect("the key that prepare returned").clone();
        Box::new(HmacState { running: Running::new(key.inner, H::BLOCK_LEN), key })
    }

    fn burst(&self, slot: usize, ops: &mut [MacOp<'_>]) {
        for op in ops {
            let key = op.tfm.key::<HmacKey<H>>(slot);
            let mut words = key.inner;
            absorb::<H>(&mut words, H::BLOCK_LEN, op.data);
            key.close(&words, op.tag);
            wipe(&mut words);
            op.status = Ok(());
        }
    }
}

struct HmacState<H: Md> {
    key: HmacKey<H>,
    running: Running<H>,
}

impl<H: Md> HashState for HmacState<H> {
    fn update(&mut self, data: &[u8]) {
        self.running.update(data);
    }

    fn finish(&mut self, out: &mut [u8]) -> Status {
        self.key.close(self.running.finish(), out);
        self.running.restart(self.key.inner, H::BLOCK_LEN);
        Ok(())
    }

    fn reset(&mut self) {
        if !self.running.is_fresh(H::BLOCK_LEN) {
            self.running.restart(self.key.inner, H::BLOCK_LEN);
        }
    }

    fn fork(&self) -> Box<dyn HashState> {
        Box::new(HmacState { key: self.key.clone(), running: self.running.clone() })
    }
}

fn row<H: Md>(legacy: bool) -> Row {
    let name = format!("hmac({})", H::NAME);
    let info = AlgInfo { legacy, ..AlgInfo::mac(&name, H::BLOCK_LEN, H::DIGEST_LEN, Lengths::Range(0, usize::MAX)) };
    crate::row::row(info, &format!("hmac-{}", H::FLAT), Driver::Mac(Arc::new(HmacDriver::<H>(PhantomData))))
}

pub(crate) fn rows() -> Vec<Row> {
    vec![
        row::<Md5>(true),
        row::<Sha1>(true),
        row::<Sha224>(false),
        row::<Sha256>(false),
        row::<Sha384>(false),
        row::<Sha512>(false),
        row::<Rmd160>(true),
    ]
}
