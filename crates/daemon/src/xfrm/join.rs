//! Opened packets on their way into the TUN device: segments that follow one another go in together (GRO).

use crate::transport::tap::Headers;
use crate::transport::tun::Tun;
use arrayvec::ArrayVec;
use sealane_engine::xfrm::data::BURST;
use sealane_net::ao::segment::join::{Join, Pushed};
use sealane_net::wire::ip::tcp_checksum_ok;
use sealane_net::wire::tcp::Segment;
use std::io;

/// Connections whose superframes grow at a time, as in the kernel (`MAX_GRO_SKBS`).
const MAX_OPEN: usize = 8;

struct Open<'p> {
    /// Addresses and ports.
    key: [&'p [u8]; 2],
    join: Join,
    payloads: ArrayVec<&'p [u8], BURST>,
}

/// The superframes of one burst.
#[derive(Default)]
pub(super) struct Joins<'p> {
    open: ArrayVec<Open<'p>, MAX_OPEN>,
}

impl<'p> Joins<'p> {
    /// Takes a packet, and gives to the stack what is complete by that.
    ///
    /// # Errors
    /// The stack's, which has lost something then.
    pub(super) fn push(&mut self, packet: &'p [u8], tun: &mut Tun) -> io::Result<()> {
        // Whoever sealed it need not have made its checksum; once joined, nobody looks at that any more.
        let Ok(segment) = Segment::parse(packet) else { return alone(packet, tun) };
        let at = segment.layout();
        let key = [at.addresses(packet), &packet[at.tcp_at..at.tcp_at + 4]];
        let mut done = Ok(());
        if let Some(i) = self.open.iter().position(|o| o.key == key) {
            let open = &mut self.open[i];
            let good = !open.payloads.is_full() && tcp_checksum_ok(packet, at);
            let pushed = if good { open.join.push(&segment) } else { Pushed::No };
            if pushed != Pushed::No {
                open.payloads.push(&packet[at.payload_at..at.end]);
            }
            match pushed {
                Pushed::Yes => return Ok(()),
                Pushed::Last => return give(self.open.remove(i), tun),
                Pushed::No => done = give(self.open.remove(i), tun),
            }
        }
        if tcp_checksum_ok(packet, at)
            && let Some(join) = Join::start(&segment)
        {
            if self.open.is_full() {
                done = done.and(give(self.open.remove(0), tun));
            }
            let payloads = core::iter::once(&packet[at.payload_at..at.end]).collect();
            self.open.push(Open { key, join, payloads });
            return done;
        }
        done.and(alone(packet, tun))
    }

    /// Gives the rest to the stack.
    ///
    /// # Errors
    /// The stack's.
    pub(super) fn finish(self, tun: &mut Tun) -> io::Result<()> {
        let mut done = Ok(());
        for open in self.open {
            done = done.and(give(open, tun));
        }
        done
    }
}

/// Gives a packet as it is.
fn alone(packet: &[u8], tun: &mut Tun) -> io::Result<()> {
    let headers = Headers { bytes: packet, tcp_at: 0, partial_checksum: false, gso_size: None };
    tun.give(headers, core::iter::empty())
}

fn give(mut open: Open<'_>, tun: &mut Tun) -> io::Result<()> {
    let (count, size, tcp_at) = (open.join.count(), open.join.gso_size(), open.join.layout().tcp_at);
    let headers = Headers {
        bytes: open.join.header(),
        tcp_at,
        partial_checksum: true,
        gso_size: (count > 1).then_some(size as u16),
    };
    tun.give(headers, open.payloads.into_iter())
}
