//! Hash operations whose driver fails, as one that computes in another process can.

use crate::common::{DONTWAIT, MORE, ThreadHost, keyed, recv, send};
use sealane_crypto::hash::HashState;
use sealane_crypto::key::PreparedKey;
use sealane_crypto::mac::{MacDriver, MacOp};
use sealane_crypto::registry::Driver;
use sealane_crypto::{AlgInfo, KeyError, Lengths, OpError, Registry, Row, Status};
use sealane_engine_alg::{Errno, Profile, System};
use std::sync::Arc;

/// A MAC of which every tag is lost.
struct Lost;

impl MacDriver for Lost {
    fn prepare(&self, _: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        Ok(Box::new(()))
    }

    fn start(&self, _: &dyn PreparedKey) -> Box<dyn HashState> {
        Box::new(Lost)
    }

    fn burst(&self, _: usize, ops: &mut [MacOp<'_>]) {
        ops.iter_mut().for_each(|op| op.status = Err(OpError::Driver));
    }
}

impl HashState for Lost {
    fn update(&mut self, _: &[u8]) {}

    fn finish(&mut self, _: &mut [u8]) -> Status {
        Err(OpError::Driver)
    }

    fn reset(&mut self) {}

    fn fork(&self) -> Box<dyn HashState> {
        Box::new(Lost)
    }
}

#[test]
fn a_tag_that_is_not_computed_is_never_received() {
    let info = AlgInfo::mac("hmac(sha256)", 64, 32, Lengths::Range(0, usize::MAX));
    let row = Row::new(info, "hmac-sha256-lost", "test", 1, Driver::Mac(Arc::new(Lost)));
    let registry = Registry::builder(|_| Ok(())).rows([row]).build();
    let sys = System::new(Arc::new(registry), Profile::Open, Arc::new(ThreadHost::default()), None);
    let op = keyed(&sys, "hash", "hmac(sha256)", b"key").accept().unwrap();
    for _ in 0..2 {
        // Whole, in pieces to the end, and in pieces up to a receive.
        assert_eq!(send(&op, b"text", 0), Err(Errno::EIO));
        assert_eq!(recv(&op, 32, DONTWAIT), Err(Errno::EIO));
        send(&op, b"te", MORE).unwrap();
        assert_eq!(send(&op, b"xt", 0), Err(Errno::EIO));
        assert_eq!(recv(&op, 32, DONTWAIT), Err(Errno::EIO));
        send(&op, b"te", MORE).unwrap();
        assert_eq!(recv(&op, 32, DONTWAIT), Err(Errno::EIO));
    }
}
