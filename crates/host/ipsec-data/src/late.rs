//! The late way of packets to the daemon: as they are about to leave by a device of others. [`sealane_rules::late`] says which.
//!
//! A thread of its own seals them. Outer packets leave by the device that the packet was about to leave by, as Linux looks for their route.

use sealane_packets::outgoing::{DEVICE, Origin, OutgoingDevice};
use sealane_packets::tun::Tun;
use sealane_rules::late::Late;
use sealane_sys::marks::Bits;
use sealane_sys::poll::Waker;
use sealane_sys::transient;
use sealane_wire::gso::Offload;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use tracing::warn;

/// The late way, where there is one.
pub struct LateWay {
    /// The way as rules know it.
    pub way: Late,
    pub(crate) device: OutgoingDevice,
    pub(crate) waker: Arc<Waker>,
}

impl LateWay {
    /// Makes the device in the calling thread's namespace, if it is `wanted` and the kernel's rules can lead packets to it. Otherwise that
    /// of an earlier daemon goes, and with it what rules lead there.
    ///
    /// # Errors
    /// Those of a moment.
    pub(crate) fn open(bits: Bits, wanted: bool) -> io::Result<Option<Self>> {
        if !wanted {
            let _ = OutgoingDevice::remove();
            return Ok(None);
        }
        let device = OutgoingDevice::open();
        let opened = device.and_then(|device| Ok((Late::probe(bits, device.index(), DEVICE)?, device)));
        match opened {
            Ok((way, device)) => Ok(Some(LateWay { way, device, waker: Arc::new(Waker::new()?) })),
            Err(e) if transient::is(&e) => Err(e),
            Err(e) => {
                warn!(
                    error = %e,
                    "xfrm: what policies cover only as it leaves is dropped, and not sealed: {e} ('late' takes Linux 5.16 with chains at egress)"
                );
                let _ = OutgoingDevice::remove();
                Ok(None)
            }
        }
    }

    /// Makes the kernel remove the device with the data path.
    ///
    /// # Errors
    /// The kernel's.
    pub fn let_go(&self) -> io::Result<()> {
        self.device.let_go()
    }
}

/// The device that a worker reads packets of the stack from.
pub(crate) enum Source {
    /// Those that are routed to it.
    Routed(Tun),
    /// Those that were about to leave.
    Late(OutgoingDevice),
}

impl Source {
    /// Reads a packet: its range in `buf`, the offloads that are left to do, and where it comes from.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn read(&mut self, buf: &mut [u8]) -> io::Result<Option<(core::ops::Range<usize>, Offload, Origin)>> {
        match self {
            Source::Routed(tun) => Ok(tun.read(buf)?.map(|(range, offload)| (range, offload, Origin::default()))),
            Source::Late(device) => device.read(buf),
        }
    }
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Source::Routed(tun) => tun.as_fd(),
            Source::Late(device) => device.as_fd(),
        }
    }
}
