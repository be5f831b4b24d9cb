//! Hash operations whose driver fails, as one that computes in another process can.

use crate::common::{DONTWAIT, MORE, TASK, ThreadHost, keyed, recv, send};
use sealane_crypto::hash::HashState;
use sealane_crypto::key::PreparedKey;
use sealane_crypto::mac::{MacDriver, MacOp};
use sealane_crypto::registry::Driver;
use sealane_crypto::{AlgInfo, KeyError, Lengths, OpError, Registry, Row, Status};
use sealane_engine_alg::{Errno, Profile, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A MAC that works, until it loses every tag.
#[derive(Clone, Default)]
struct Lost(Arc<AtomicBool>);

/// The tag of everything, as long as it works.
const TAG: [u8; 32] = [7; 32];

impl Lost {
    fn tag(&self, out: &mut [u8]) -> Status {
        if self.0.load(Ordering::Relaxed) {
            return Err(OpError::Driver);
        }
        out.copy_from_slice(&TAG[..out.len()]);
        Ok(())
    }
}

impl MacDriver for Lost {
    fn prepare(&self, _: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        Ok(Box::new(()))
    }

    fn start(&self, _: &dyn PreparedKey) -> Box<dyn HashState> {
        Box::new(self.clone())
    }

    fn burst(&self, _: usize, ops: &mut [MacOp<'_>]) {
        ops.iter_mut().for_each(|op| op.status = self.tag(op.tag));
    }
}

impl HashState for Lost {
    fn update(&mut self, _: &[u8]) {}

    fn finish(&mut self, out: &mut [u8]) -> Status {
        self.tag(out)
    }

    fn reset(&mut self) {}

    fn fork(&self) -> Box<dyn HashState> {
        Box::new(self.clone())
    }
}

#[test]
fn a_tag_that_is_not_computed_is_never_received() {
    let lost = Lost::default();
    let info = AlgInfo::mac("hmac(sha256)", 64, 32, Lengths::Range(0, usize::MAX));
    let row = Row::new(info, "hmac-sha256-lost", "test", 1, Driver::Mac(Arc::new(lost.clone())));
    let registry = Registry::builder(|_| Ok(())).rows([row]).build();
    let sys = System::new(Arc::new(registry), Profile::Open, Arc::new(ThreadHost::default()));
    let op = keyed(&sys, "hash", "hmac(sha256)", b"key").accept(TASK).unwrap();
    for _ in 0..2 {
        // The ways in which there is a tag: whole, in pieces to the end, and in pieces up to a receive.
        lost.0.store(false, Ordering::Relaxed);
        let received = || assert_eq!(recv(&op, 32, DONTWAIT).unwrap(), TAG);
        send(&op, b"text", 0).unwrap();
        received();
        send(&op, b"te", MORE).unwrap();
        received();
        send(&op, b"te", MORE).unwrap();
        send(&op, b"xt", 0).unwrap();
        // The last one may be received once more: it is the one that must not be taken for another message's.
        lost.0.store(true, Ordering::Relaxed);
        assert_eq!(send(&op, b"text", 0), Err(Errno::EIO));
        assert_eq!(recv(&op, 32, DONTWAIT), Err(Errno::EIO));
        send(&op, b"te", MORE).unwrap();
        assert_eq!(send(&op, b"xt", 0), Err(Errno::EIO));
        assert_eq!(recv(&op, 32, DONTWAIT), Err(Errno::EIO));
        send(&op, b"te", MORE).unwrap();
        assert_eq!(recv(&op, 32, DONTWAIT), Err(Errno::EIO));
    }
}
