//! The way up to the stack: opened packets are joined, and come in by the device that they came by sealed, or by the TUN device.

use crate::entrance::{Entrance, Entrances};
use crate::join::{Joins, Sink, UnfinishedSuperframe};
use crate::routes::Routes;
use crate::shared::Shared;
use crate::tables::Tables;
use sealane_net_ipsec::icmp::{self, Trouble};
use sealane_net_ipsec::open::{Inbound, Opened};
use sealane_packets::incoming::By;
use sealane_packets::tap::Headers;
use sealane_packets::tun::Tun;
use sealane_wire::walk::address_pair;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// A thread's way up to the stack.
pub(crate) struct Stack {
    tun: Tun,
    entrance: Entrance,
    /// A superframe that grows.
    unfinished: UnfinishedSuperframe,
    limits: ErrorLimits,
}

impl Stack {
    /// Gives packets to the stack by this device.
    pub(crate) fn new(tun: Tun) -> Self {
        Stack {
            tun,
            entrance: Entrance::default(),
            unfinished: UnfinishedSuperframe::new(),
            limits: ErrorLimits::default(),
        }
    }

    /// The index of the device.
    pub(crate) fn index(&self) -> u32 {
        self.tun.index()
    }

    /// The device, for another thread.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn tun(&self) -> io::Result<Tun> {
        self.tun.try_clone()
    }

    /// Gives opened packets to the stack. With `more` another burst follows at once, which may continue the last superframe.
    pub(crate) fn deliver(&mut self, shared: &Shared, packets: &[Inbound<'_>], more: bool) {
        let Stack { tun, entrance, unfinished, .. } = self;
        let mut up = Up { tun, entrances: &shared.entrances };
        let mut joins = Joins::new(unfinished);
        let (mut lost, mut elsewhere, mut now) = (0, false, None);
        for packet in packets {
            match packet.status {
                Ok(Opened::Packet) if packet.if_id != 0 => elsewhere = true,
                Ok(Opened::Packet) => {
                    let now = *now.get_or_insert_with(Instant::now);
                    let bytes = packet.packet.bytes();
                    let by = entrance.by(&shared.entrances, packet.device, packet.mark, bytes, now);
                    lost += u64::from(joins.push(bytes, by, &mut up).is_err());
                }
                _ => {}
            }
        }
        lost += u64::from(joins.finish(more, &mut up).is_err());
        if elsewhere {
            lost += shared.gates.deliver(packets);
        }
        shared.counters.refused_in.fetch_add(lost, Relaxed);
    }

    /// Gives to the stack the packets that came out of states of IP-TFS, if there are any.
    pub(crate) fn deliver_emerged(&mut self, shared: &Shared, tables: &mut Tables, more: bool) {
        let emerged = tables.take_emerged();
        if !emerged.is_empty() {
            self.deliver(shared, &emerged, more);
        }
    }

    /// Gives the superframe that grows to the stack as it is.
    pub(crate) fn flush(&mut self, shared: &Shared) {
        let mut up = Up { tun: &mut self.tun, entrances: &shared.entrances };
        self.unfinished.give(&mut up, &shared.counters);
    }

    /// Tells the sender of a packet that it is too big, as if the other end did. With `narrow` the kernel is to cut its
    /// packets if it does not heed that.
    pub(crate) fn tell_too_big(&mut self, shared: &Shared, packet: &[u8], mtu: u32, narrow: bool, routes: &mut Routes) {
        let mut error = [0; icmp::MAX_ERROR_LEN];
        if let Some((destination, len)) = write_error(packet, Trouble::TooBig(mtu), &mut error) {
            // It asks for the MTU of the path, so that it comes before the kernel hears of a smaller one.
            routes.note_mtu(destination, mtu, narrow);
            self.tell(shared, &error[..len], routes);
        }
    }

    /// Tells the sender of a packet that it goes nowhere, if that is this host.
    pub(crate) fn tell_own_unreachable(&mut self, shared: &Shared, packet: &[u8], routes: &Routes) {
        if is_own(packet, routes) == Some(true) {
            self.tell_unreachable(shared, packet, routes);
        }
    }

    /// Tells the sender of a packet that it goes nowhere.
    pub(crate) fn tell_unreachable(&mut self, shared: &Shared, packet: &[u8], routes: &Routes) {
        if !is_own(packet, routes).is_some_and(|own| self.limits.allow(own, routes.now())) {
            return;
        }
        let mut error = [0; icmp::MAX_ERROR_LEN];
        if let Some((_, len)) = write_error(packet, Trouble::Unreachable, &mut error) {
            self.tell(shared, &error[..len], routes);
        }
    }

    /// Gives an error to the stack. A socket that is bound to the device by which its packets were about to leave gets none by another one.
    fn tell(&mut self, shared: &Shared, error: &[u8], routes: &Routes) {
        let Stack { tun, entrance, .. } = self;
        let headers = Headers { bytes: error, tcp_at: 0, partial_checksum: false, gso_size: None };
        let by = entrance.by(&shared.entrances, routes.device(), 0, error, routes.now());
        let _ = Up { tun, entrances: &shared.entrances }.give(by, headers, core::iter::empty());
    }
}

/// Both devices by which packets go up.
struct Up<'s> {
    tun: &'s mut Tun,
    entrances: &'s Entrances,
}

impl Sink for Up<'_> {
    fn give<'a>(
        &mut self,
        by: Option<By>,
        headers: Headers<'a>,
        pieces: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> io::Result<()> {
        let returned = by.and_then(|by| self.entrances.give(by, headers, pieces.clone()));
        returned.unwrap_or_else(|| self.tun.give(headers, pieces))
    }
}

/// Whether this host has sent a packet; none where it cannot be told.
fn is_own(packet: &[u8], routes: &Routes) -> Option<bool> {
    address_pair(packet).ok().map(|(source, _)| routes.has(source))
}

/// Writes an error about a packet, as if the other end sent it: the kernel drops what comes in from an address of its own.
/// Returns the other end, and the error's length; none where there is nobody to tell.
fn write_error(packet: &[u8], trouble: Trouble, error: &mut [u8]) -> Option<(IpAddr, usize)> {
    let (_, destination) = address_pair(packet).ok()?;
    Some((destination, icmp::write_error(packet, trouble, destination, error)?))
}

/// The limits of errors about packets that go nowhere. Anybody may forge the source of what is forwarded, so that it does
/// not count against this host's own programs.
#[derive(Debug, Default)]
struct ErrorLimits {
    own: ErrorLimit,
    others: ErrorLimit,
}

impl ErrorLimits {
    /// Whether another error may be sent at this time, about a packet of this host's own or of others.
    fn allow(&mut self, own: bool, now: Instant) -> bool {
        if own { self.own.allows(now) } else { self.others.allows(now) }
    }
}

/// A limit of errors, like the kernel's for all that it sends (`icmp_msgs_per_sec`, `icmp_msgs_burst`).
#[derive(Debug, Default)]
struct ErrorLimit {
    left: u32,
    since: Option<Instant>,
}

impl ErrorLimit {
    const A_SECOND: u32 = 1000;
    const AT_ONCE: u32 = 50;

    /// Whether another error may be sent at this time.
    fn allows(&mut self, now: Instant) -> bool {
        let passed = self.since.map_or(Duration::MAX, |since| now.saturating_duration_since(since));
        let earned = passed.as_micros().saturating_mul(Self::A_SECOND.into()) / 1_000_000;
        if earned > 0 {
            self.left = Self::AT_ONCE.min(self.left.saturating_add(earned.try_into().unwrap_or(u32::MAX)));
            self.since = Some(now);
        }
        let allowed = self.left > 0;
        self.left = self.left.saturating_sub(1);
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_limited() {
        let (mut limits, start) = (ErrorLimits::default(), Instant::now());
        for own in [false, true] {
            let mut at = |micros, asked| {
                let now = start + Duration::from_micros(micros);
                (0..asked).filter(|_| limits.allow(own, now)).count()
            };
            assert_eq!([at(0, 100), at(999, 100), at(1000, 100), at(3500, 100)], [50, 0, 1, 2], "own: {own}");
            assert_eq!(at(1_000_000, 100), 50, "own: {own}");
        }
    }
}
