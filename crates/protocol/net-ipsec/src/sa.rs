//! A security association: its specification from the control path, and the state that packets need.
//!
//! A packet touches [`Hot`], one cache line, and the first lines of [`Sa`]: outbound the prebuilt outer header and the
//! IV salt, inbound the window and addresses.

pub use crate::carrier::Carrier;
use crate::drop::DropReason;
use crate::event::Event;
pub use crate::id::SaId;
use crate::iptfs;
use crate::lifetime::{Age, Limits, Usage};
use crate::prebuilt::PrebuiltHeader;
use crate::progress::{Progress, Words};
use crate::replay::Window;
use crate::selector::{Mark, Selector, family_of};
use crate::seq::Lease;
use crate::transform::{Crypt, IvKind, Transform};
use core::fmt;
use core::net::IpAddr;
use core::num::NonZeroI32;
use sealane_wire::ip::Family;
use sealane_wire::proto;
use std::sync::Arc;
use zeroize::Zeroize;

/// The protocol of an association.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Proto {
    /// Encapsulating security payload.
    Esp,
    /// Authentication header.
    Ah,
    /// IP payload compression (RFC 3173). The SPI is the CPI.
    Comp,
    /// IP in IP: what the peer of an IPComp tunnel did not compress. Inbound, behind ESP or AH, and known by both addresses;
    /// the SPI is [`ipip_spi`].
    Ipip,
}

impl Proto {
    /// The protocol's number.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Proto::Esp => proto::ESP,
            Proto::Ah => proto::AH,
            Proto::Comp => proto::COMP,
            Proto::Ipip => proto::IPIP,
        }
    }

    /// Whether its packets need no keys.
    pub(crate) const fn is_keyless(self) -> bool {
        matches!(self, Proto::Comp | Proto::Ipip)
    }
}

/// The number by which an association of [`Proto::Ipip`] is looked up: of its source, and never 0.
#[must_use]
pub fn ipip_spi(src: IpAddr) -> u32 {
    let folded = match src {
        IpAddr::V4(src) => src.to_bits(),
        IpAddr::V6(src) => {
            src.to_bits().to_be_bytes().as_chunks::<4>().0.iter().fold(0, |a, w| a ^ u32::from_be_bytes(*w))
        }
    };
    folded.max(1)
}

/// The mode of an association.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// ESP or AH goes between the IP header and its payload.
    Transport,
    /// The packet is carried in another IP packet.
    Tunnel,
    /// A tunnel with fixed inner addresses, whose inner header is not sent (draft-nikander-esp-beet-mode).
    Beet,
    /// A tunnel that carries several packets, or a piece of one, in an outer packet (RFC 9347).
    Iptfs,
}

/// Whether an association may have a partial MAC: ESP in tunnel or transport mode with extended numbers.
///
/// In IP-TFS headers are anywhere in a payload, and a header of BEET mode is made of what is in front of it after decryption. In
/// transport mode behind a NAT the receiver writes the checksum of the upper protocol anew, so that whatever was altered looks right.
#[must_use]
pub fn may_have_partial_mac(proto: Proto, mode: Mode, has_encap: bool, esn: bool) -> bool {
    let has_fixed_headers = match mode {
        Mode::Tunnel => true,
        Mode::Transport => !has_encap,
        Mode::Beet | Mode::Iptfs => false,
    };
    proto == Proto::Esp && esn && has_fixed_headers
}

/// The direction of an association (`XFRM_SA_DIR`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaDir {
    /// Inbound only.
    In,
    /// Outbound only.
    Out,
}

/// Encapsulation of ESP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encap {
    /// The protocol that ESP is within.
    pub by: Carrier,
    /// Outbound, the source port; inbound, the port that the peer is expected to send from.
    pub sport: u16,
    /// The destination port.
    pub dport: u16,
}

impl Encap {
    /// UDP between these ports.
    #[must_use]
    pub const fn udp(sport: u16, dport: u16) -> Self {
        Encap { by: Carrier::Udp, sport, dport }
    }

    /// A TCP connection between these ports.
    #[must_use]
    pub const fn tcp(sport: u16, dport: u16) -> Self {
        Encap { by: Carrier::Tcp, sport, dport }
    }
}

/// The flags of a state (`XFRM_STATE_*`, `XFRM_SA_XFLAG_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SaFlags {
    /// Extended sequence numbers.
    pub esn: bool,
    /// ECN is not copied between inner and outer header.
    pub noecn: bool,
    /// The inner DSCP is set from the outer one.
    pub decap_dscp: bool,
    /// The outer header never forbids fragmentation.
    pub nopmtudisc: bool,
    /// For input only, with any source address.
    pub wildrecv: bool,
    /// ICMP errors pass if the packet that they quote matches the selector.
    pub icmp: bool,
    /// AH is padded to a multiple of 4 bytes instead of 8.
    pub align4: bool,
    /// The outer DSCP is 0.
    pub dont_encap_dscp: bool,
    /// Without extended numbers, the sequence number may wrap around (the IV does not).
    pub oseq_may_wrap: bool,
}

/// The state of an association.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum SaState {
    /// Its slot is free.
    Dead,
    /// A placeholder: its keys were requested from the key manager, or its SPI is reserved.
    Acquiring,
    /// In use.
    Valid,
    /// In use by the device to which it is offloaded as a whole (packet offload): nothing is sealed or opened here.
    Offloaded,
    /// Past a hard limit.
    Expired,
}

/// The device that runs an association's crypto (crypto offload).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CryptoDevice {
    /// Its interface.
    pub ifindex: NonZeroI32,
    /// The device's handle of the association.
    pub key: u64,
}

/// The specification of an association, from the key manager.
pub struct SaSpec {
    /// SPI; 0 only while keys are being acquired.
    pub spi: u32,
    /// Outer destination; its family is that of the association.
    pub dst: IpAddr,
    /// Outer source.
    pub src: IpAddr,
    /// Protocol.
    pub proto: Proto,
    /// Mode.
    pub mode: Mode,
    /// The request id, which links states to the templates of policies.
    pub reqid: u32,
    /// The mark of the packets that it is for.
    pub mark: Mark,
    /// The mark that packets which come through it get (`XFRMA_SET_MARK`).
    pub set_mark: Mark,
    /// The interface id of xfrm interfaces.
    pub if_id: u32,
    /// The CPU whose packets it is for (RFC 9611); `None` for every CPU.
    pub cpu: Option<u32>,
    /// The interface of the device to which it is offloaded as a whole (packet offload).
    pub device: Option<u32>,
    /// The selector of permitted traffic; BEET mode takes the inner addresses from it.
    pub selector: Selector,
    /// Direction, if specified.
    pub dir: Option<SaDir>,
    /// Flags.
    pub flags: SaFlags,
    /// Encapsulation in UDP or TCP.
    pub encap: Option<Encap>,
    /// Packets are padded to this length in bytes if the MTU allows (traffic flow confidentiality).
    pub tfc_pad: u32,
    /// Size of the replay window in packets.
    pub window_pkts: u32,
    /// The last number sent.
    pub out_number: u64,
    /// The highest number received.
    pub in_number: u64,
    /// The lease of sequence numbers to send.
    pub lease: Lease,
    /// Keys.
    pub transform: Transform,
    /// Secret random bytes that make IVs unpredictable.
    pub iv_salt: [u8; 16],
    /// Limits.
    pub limits: Limits,
    /// Minimum seconds between two events about a change of the peer's port; 0 for an event each time.
    pub mapping_maxage_s: u32,
    /// The properties of IP-TFS, for [`Mode::Iptfs`].
    pub iptfs: iptfs::Config,
    /// TTL or hop limit of the outer header.
    pub hop_limit: u8,
    /// The current wall time in seconds.
    pub now_s: u64,
}

impl SaSpec {
    /// A plain ESP tunnel between two addresses, to be adapted as needed.
    #[must_use]
    pub fn tunnel(spi: u32, src: IpAddr, dst: IpAddr, transform: Transform) -> Self {
        SaSpec {
            spi,
            dst,
            src,
            proto: Proto::Esp,
            mode: Mode::Tunnel,
            reqid: 0,
            mark: Mark::default(),
            set_mark: Mark::default(),
            if_id: 0,
            cpu: None,
            device: None,
            selector: Selector::ANY,
            dir: None,
            flags: SaFlags::default(),
            encap: None,
            tfc_pad: 0,
            window_pkts: 0,
            out_number: 0,
            in_number: 0,
            lease: Lease::ALL,
            transform,
            iv_salt: [0; 16],
            limits: Limits::NONE,
            mapping_maxage_s: 0,
            iptfs: iptfs::Config::default(),
            hop_limit: 64,
            now_s: 0,
        }
    }
}

/// Reasons why an association cannot be added or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaError {
    /// There is already one with this SPI, destination, protocol and mark.
    Exists,
    /// The replay window is too large, or 0 with extended sequence numbers.
    Window,
    /// The outer addresses are of different families.
    Family,
    /// AH with an AEAD, encapsulation, BEET or IP-TFS mode; IPComp with keys or any of these; a partial MAC where none may be
    /// ([`may_have_partial_mac`]).
    Transform,
    /// BEET mode without inner addresses in the selector, or traffic flow confidentiality without tunnel mode.
    Mode,
    /// The table is full.
    Full,
    /// There is no such association.
    Gone,
    /// Sequence numbers would be used twice.
    Backward,
}

impl fmt::Display for SaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SaError::Exists => "there is already a state with this SPI, destination and protocol",
            SaError::Window => "replay window too large, or none with extended sequence numbers",
            SaError::Family => "outer source and destination are of different families",
            SaError::Transform => "protocol and algorithms do not match",
            SaError::Mode => {
                "BEET mode needs the inner addresses in the selector, padding to a length needs tunnel mode"
            }
            SaError::Full => "the table of states is full",
            SaError::Gone => "there is no such state",
            SaError::Backward => "sequence numbers would be used twice",
        })
    }
}

impl core::error::Error for SaError {}

/// The part of an association that every packet touches: one cache line.
#[repr(align(64))]
pub(crate) struct Hot {
    pub(crate) crypt: Crypt,
    /// The last number sent.
    pub(crate) number: u64,
    /// Bytes left until [`Sa::at_limit`] must be called.
    pub(crate) bytes_left: u64,
    pub(crate) packets_left: u64,
    pub(crate) generation: u32,
    pub(crate) state: SaState,
    pub(crate) iv_len: u8,
    pub(crate) icv_len: u8,
    pub(crate) align: u8,
}

const _: () = assert!(size_of::<Hot>() == 64);

/// Counters of rejected packets (`struct xfrm_stats`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SaStat {
    /// Packets behind the window.
    pub replay_window: u32,
    /// Packets seen before.
    pub replay: u32,
    /// Packets that were not authentic.
    pub integrity_failed: u32,
}

/// An association, except for its [`Hot`] part.
#[repr(C, align(64))]
pub struct Sa {
    // The fields that outbound packets use come first: `OUT_LINES`.
    pub(crate) outer: PrebuiltHeader,
    pub(crate) iv: IvKind,
    /// Mode.
    pub mode: Mode,
    /// Protocol.
    pub proto: Proto,
    /// Flags.
    pub flags: SaFlags,
    /// Whether the key manager was notified of a soft limit.
    pub dying: bool,
    lease_low_sent: bool,
    /// Direction, if specified.
    pub dir: Option<SaDir>,
    /// SPI.
    pub spi: u32,
    pub(crate) iv_salt: [u8; 16],
    /// Encapsulation in UDP or TCP.
    pub encap: Option<Encap>,
    /// Packets are padded to this length in bytes.
    pub tfc_pad: u32,
    /// The last outer MTU, and the inner MTU that it leaves.
    pub(crate) mtu: (u32, u32),
    pub(crate) crypto_device: Option<CryptoDevice>,
    /// The numbers, sent and received, from which on the next packet causes an event; the largest one for never.
    pub(crate) notify_from: [u64; 2],
    /// When its last packet came; 0 before the first.
    pub last_used_s: u64,
    /// The words in which its progress is noted.
    progress: Option<Arc<dyn Words>>,
    /// Outer destination.
    pub dst: IpAddr,
    /// Outer source.
    pub src: IpAddr,
    /// The mark of the packets that it is for.
    pub mark: Mark,
    // Further fields that inbound packets and policies use: `IN_LINES`.
    pub(crate) window: Window,
    /// When its first packet came; 0 before the first.
    pub use_time_s: u64,
    /// When it was added, in seconds of wall time.
    pub add_time_s: u64,
    bytes_mark: u64,
    packets_mark: u64,
    /// The mark that packets which come through it get.
    pub set_mark: Mark,
    /// The selector of permitted traffic.
    pub selector: Selector,
    /// The request id, which links states to the templates of policies.
    pub reqid: u32,
    /// The interface id of xfrm interfaces.
    pub if_id: u32,
    // Further fields that the search for an outbound packet's state uses: `FIND_LINES`.
    /// The CPU whose packets it is for; `None` for every CPU.
    pub cpu: Option<u32>,
    /// The interface of the device to which it is offloaded as a whole (packet offload).
    pub device: Option<u32>,
    /// Neighbours in the list of those with the same addresses and reqid.
    pub(crate) newer: Option<u32>,
    pub(crate) older: Option<u32>,
    // Only the control path uses the rest.
    /// Faults of single packets.
    pub stat: SaStat,
    /// Limits.
    pub limits: Limits,
    /// The seconds until the soft limit since its addition, at the last look, if it was ahead.
    soft_left_s: Option<u64>,
    /// The lease of sequence numbers to send.
    pub lease: Lease,
    pub(crate) full_icv_len: u8,
    mapping_maxage_s: u32,
    mapped_s: u64,
    /// Of IP-TFS.
    pub(crate) aggregation: Option<Box<iptfs::Aggregation>>,
    /// A counter of additions: a newer association has a higher one.
    pub serial: u64,
}

/// The number of cache lines of an association that are used by outbound packets, by inbound packets, and by
/// [`Sad::find_out`].
///
/// [`Sad::find_out`]: crate::sad::Sad::find_out
pub(crate) const OUT_LINES: usize = 4;
pub(crate) const IN_LINES: usize = 6;
pub(crate) const FIND_LINES: usize = 6;

const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(Sa, mark) + size_of::<Mark>() <= OUT_LINES * 64);
    assert!(offset_of!(Sa, if_id) + 4 <= IN_LINES * 64);
    assert!(offset_of!(Sa, older) + 8 <= FIND_LINES * 64);
};

impl Drop for Sa {
    fn drop(&mut self) {
        self.iv_salt.zeroize();
    }
}

impl Sa {
    /// Makes an association, or rejects its specification.
    pub(crate) fn new(spec: SaSpec, serial: u64, generation: u32) -> Result<(Hot, Self), SaError> {
        if family_of(spec.src) != family_of(spec.dst) {
            return Err(SaError::Family);
        }
        let larval = matches!(spec.transform.crypt, Crypt::None);
        let esp_only = matches!(spec.mode, Mode::Beet | Mode::Iptfs);
        if spec.proto == Proto::Ah
            && (matches!(spec.transform.crypt, Crypt::Aead(_)) || spec.encap.is_some() || esp_only)
        {
            return Err(SaError::Transform);
        }
        let keyless = matches!(spec.transform.crypt, Crypt::Keyless);
        if !larval && keyless != spec.proto.is_keyless()
            || spec.proto.is_keyless() && (spec.encap.is_some() || esp_only)
        {
            return Err(SaError::Transform);
        }
        if matches!(spec.transform.crypt, Crypt::Partial(_))
            && !may_have_partial_mac(spec.proto, spec.mode, spec.encap.is_some(), spec.flags.esn)
        {
            return Err(SaError::Transform);
        }
        if spec.mode == Mode::Beet && !larval {
            let one = family_of(spec.selector.source) == family_of(spec.selector.destination);
            if spec.selector.family.is_none() || !one {
                return Err(SaError::Mode);
            }
        }
        if spec.tfc_pad != 0 && spec.mode != Mode::Tunnel {
            return Err(SaError::Mode);
        }
        let window_pkts =
            if spec.dir == Some(SaDir::Out) && spec.flags.esn { spec.window_pkts.max(1) } else { spec.window_pkts };
        let window = Window::new(window_pkts, spec.flags.esn, spec.in_number).ok_or(SaError::Window)?;
        let transform = &spec.transform;
        let hot = Hot {
            crypt: transform.crypt.clone(),
            number: spec.out_number,
            bytes_left: 0,
            packets_left: 0,
            generation,
            state: match spec.device {
                _ if larval => SaState::Acquiring,
                Some(_) => SaState::Offloaded,
                None => SaState::Valid,
            },
            iv_len: transform.iv_len,
            icv_len: transform.icv_len,
            align: transform.align,
        };
        let sa = Sa {
            outer: PrebuiltHeader::new(
                spec.src,
                spec.dst,
                spec.proto.number(),
                spec.hop_limit,
                spec.encap.map(|encap| encap.by),
            ),
            iv: transform.iv,
            mode: spec.mode,
            proto: spec.proto,
            flags: spec.flags,
            dying: false,
            lease_low_sent: false,
            dir: spec.dir,
            spi: spec.spi,
            iv_salt: spec.iv_salt,
            encap: spec.encap,
            tfc_pad: spec.tfc_pad,
            mtu: (0, 0),
            crypto_device: None,
            window,
            src: spec.src,
            dst: spec.dst,
            mark: spec.mark,
            set_mark: spec.set_mark,
            bytes_mark: 0,
            packets_mark: 0,
            progress: None,
            notify_from: [u64::MAX; 2],
            add_time_s: spec.now_s,
            use_time_s: 0,
            last_used_s: 0,
            stat: SaStat::default(),
            limits: spec.limits,
            lease: spec.lease,
            selector: spec.selector,
            reqid: spec.reqid,
            soft_left_s: None,
            if_id: spec.if_id,
            cpu: spec.cpu,
            device: spec.device,
            full_icv_len: transform.full_icv_len,
            mapping_maxage_s: spec.mapping_maxage_s,
            mapped_s: 0,
            aggregation: (spec.mode == Mode::Iptfs).then(|| Box::new(iptfs::Aggregation::new(spec.iptfs))),
            serial,
            newer: None,
            older: None,
        };
        Ok((hot, sa))
    }

    /// Lets a state live whose hard limit is over without a warning: somebody has set the clock. Then it counts
    /// as added when the time of the soft limit had passed (`xfrm_timer_handler`, XFRM_SOFT_EXPIRE).
    pub(crate) fn excuse(&mut self, now_s: u64) {
        let is_over = self.limits.hard_add_s != 0 && self.add_time_s.saturating_add(self.limits.hard_add_s) <= now_s;
        if is_over && let Some(left_s) = self.soft_left_s {
            self.add_time_s = now_s.saturating_sub(left_s + 1);
        }
    }

    /// Remembers how long the soft limit is away, until it is reached.
    pub(crate) fn note_soft(&mut self, age: Age, now_s: u64) {
        let at_s = self.add_time_s.saturating_add(self.limits.soft_add_s);
        let is_ahead = age == Age::Young && !self.dying && self.limits.soft_add_s != 0;
        self.soft_left_s = is_ahead.then(|| at_s.saturating_sub(now_s)).filter(|left| *left > 0);
    }

    /// Whether its packets go through a TCP connection.
    #[must_use]
    pub fn is_in_tcp(&self) -> bool {
        self.encap.is_some_and(|encap| encap.by == Carrier::Tcp)
    }

    /// The family of the outer addresses.
    #[must_use]
    pub fn family(&self) -> Family {
        family_of(self.dst)
    }

    /// The replay window.
    #[must_use]
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// The specification of this association with other addresses; its numbers continue.
    pub(crate) fn moved(&self, hot: &Hot, src: IpAddr, dst: IpAddr) -> SaSpec {
        SaSpec {
            spi: self.spi,
            dst,
            src,
            proto: self.proto,
            mode: self.mode,
            reqid: self.reqid,
            mark: self.mark,
            set_mark: self.set_mark,
            if_id: self.if_id,
            cpu: self.cpu,
            device: self.device,
            selector: self.selector,
            dir: self.dir,
            flags: self.flags,
            encap: self.encap,
            tfc_pad: self.tfc_pad,
            window_pkts: self.window.size_pkts(),
            out_number: hot.number,
            in_number: self.window.top(),
            lease: self.lease,
            transform: Transform {
                crypt: hot.crypt.clone(),
                iv: self.iv,
                iv_len: hot.iv_len,
                icv_len: hot.icv_len,
                full_icv_len: self.full_icv_len,
                align: hot.align,
            },
            iv_salt: self.iv_salt,
            limits: self.limits,
            mapping_maxage_s: self.mapping_maxage_s,
            iptfs: self.aggregation.as_ref().map(|of| of.config).unwrap_or_default(),
            hop_limit: self.outer.hop_limit(),
            now_s: self.add_time_s,
        }
    }

    /// Takes over the counters of the association that this one replaces.
    pub(crate) fn inherit(&mut self, hot: &mut Hot, old: &Sa, used: &Usage) {
        self.window = old.window.clone();
        (self.stat, self.dying, self.lease_low_sent) = (old.stat, old.dying, old.lease_low_sent);
        self.notify_from = old.notify_from;
        self.use_time_s = used.use_time_s;
        self.last_used_s = old.last_used_s;
        self.progress.clone_from(&old.progress);
        (self.bytes_mark, self.packets_mark) =
            (used.bytes.wrapping_add(hot.bytes_left), used.packets.wrapping_add(hot.packets_left));
        self.refill(hot);
    }

    /// Continues counting from this usage.
    pub(crate) fn count_from(&mut self, hot: &mut Hot, used: &Usage) {
        (self.add_time_s, self.use_time_s) = (used.add_time_s, used.use_time_s);
        (hot.bytes_left, hot.packets_left) = (0, 0);
        (self.bytes_mark, self.packets_mark) = (used.bytes, used.packets);
        self.refill(hot);
    }

    /// Length of AH in bytes.
    pub(crate) fn ah_len(&self, icv_len: usize) -> usize {
        let align = if self.flags.align4 { 4 } else { 8 };
        (crate::ah::FIXED_LEN + icv_len).next_multiple_of(align)
    }

    pub(crate) fn usage(&self, hot: &Hot) -> Usage {
        Usage {
            bytes: self.bytes_mark.wrapping_sub(hot.bytes_left),
            packets: self.packets_mark.wrapping_sub(hot.packets_left),
            add_time_s: self.add_time_s,
            use_time_s: self.use_time_s,
        }
    }

    /// The last number that may be sent.
    fn last_number(&self) -> u64 {
        if self.flags.esn || self.flags.oseq_may_wrap { u64::MAX } else { u64::from(u32::MAX) }
    }

    /// Recomputes the bytes and packets left until the next limit.
    pub(crate) fn refill(&mut self, hot: &mut Hot) {
        let used = self.usage(hot);
        let (bytes, mut packets) = self.limits.left(&used, self.dying);
        if self.dir != Some(SaDir::In) {
            let stop = if self.lease_low_sent { self.lease.end } else { self.lease.low() };
            packets = packets.min(stop.min(self.last_number()).saturating_sub(hot.number));
        }
        self.leave(hot, &used, bytes, packets);
    }

    /// Sets the bytes and packets left. Marks wrap around: a key manager may report that nearly all has been used
    /// (XFRM_MSG_NEWAE), and only their difference from what is left matters.
    fn leave(&mut self, hot: &mut Hot, used: &Usage, bytes: u64, packets: u64) {
        (self.bytes_mark, self.packets_mark) = (used.bytes.wrapping_add(bytes), used.packets.wrapping_add(packets));
        (hot.bytes_left, hot.packets_left) = (bytes, packets);
    }

    /// Handles a limit that may have been reached: an event, the end of the state, or nothing yet.
    pub(crate) fn at_limit(
        &mut self,
        id: SaId,
        hot: &mut Hot,
        dir: SaDir,
        events: &mut Vec<Event>,
    ) -> Result<(), DropReason> {
        match self.limits.volume(&self.usage(hot)) {
            Age::Hard => {
                hot.state = SaState::Expired;
                events.push(Event::HardExpire(id));
                return Err(if dir == SaDir::Out { DropReason::OutExpired } else { DropReason::InExpired });
            }
            Age::Soft if !self.dying => {
                self.dying = true;
                events.push(Event::SoftExpire(id));
            }
            _ => {}
        }
        if dir == SaDir::Out {
            if hot.number >= self.last_number() {
                return Err(DropReason::OutSeq);
            }
            if hot.number >= self.lease.low() && !self.lease_low_sent {
                self.lease_low_sent = true;
                events.push(Event::LeaseLow(id));
            }
            if hot.number >= self.lease.end {
                return Err(DropReason::OutLease);
            }
        }
        self.refill(hot);
        if dir == SaDir::In && hot.packets_left == 0 {
            // Sequence numbers to send are no limit for inbound packets.
            let used = self.usage(hot);
            let (bytes, packets) = self.limits.left(&used, self.dying);
            self.leave(hot, &used, bytes, packets);
        }
        Ok(())
    }

    /// Counts one packet, after its lifetime was checked.
    pub(crate) fn count(&mut self, hot: &mut Hot, bytes: usize, now_s: u64) {
        let bytes = bytes as u64;
        if bytes > hot.bytes_left {
            self.bytes_mark = self.bytes_mark.wrapping_add(bytes - hot.bytes_left);
            hot.bytes_left = 0;
        } else {
            hot.bytes_left -= bytes;
        }
        if hot.packets_left == 0 {
            self.packets_mark = self.packets_mark.wrapping_add(1);
        } else {
            hot.packets_left -= 1;
        }
        if self.last_used_s != now_s {
            self.last_used_s = now_s;
            if self.use_time_s == 0 {
                self.use_time_s = now_s;
            }
        }
        self.note_progress(hot);
    }

    /// Notes the progress, before a packet is given to anybody.
    #[inline]
    pub(crate) fn note_progress(&self, hot: &Hot) {
        if let Some(words) = &self.progress {
            let used = self.usage(hot);
            let progress = Progress {
                top: self.window.top(),
                bytes: used.bytes,
                packets: used.packets,
                use_time_s: self.use_time_s,
                last_used_s: self.last_used_s,
            };
            progress.store(words.words());
        }
    }

    /// The number of the words in which its progress is noted.
    #[must_use]
    pub fn progress_index(&self) -> Option<u32> {
        self.progress.as_ref().map(|words| words.index())
    }

    /// Notes the progress in these words from now on.
    pub(crate) fn set_progress(&mut self, hot: &Hot, words: Arc<dyn Words>) {
        self.progress = Some(words);
        self.note_progress(hot);
    }

    /// Renews the lease of sequence numbers.
    pub(crate) fn renew(&mut self, hot: &mut Hot, lease: Lease) {
        self.lease = lease;
        self.lease_low_sent = false;
        self.refill(hot);
    }

    /// Whether an event about the peer's new address or port is due.
    pub(crate) fn mapping_is_due(&mut self, now_s: u64) -> bool {
        let due = self.mapping_maxage_s == 0 || now_s.saturating_sub(self.mapped_s) > u64::from(self.mapping_maxage_s);
        if due {
            self.mapped_s = now_s;
        }
        due
    }
}
