//! Structures about states (SAs).

use super::common::{Address, Id, LifetimeCfg, LifetimeCur, Mark, Selector};
use super::layout::fixed_layout;
use zerocopy::big_endian::{U16, U32};

/// Flag of a state: the outer ECN bits remain 0.
pub const XFRM_STATE_NOECN: u8 = 1;
/// Flag of a state: copy the outer DSCP inwards.
pub const XFRM_STATE_DECAP_DSCP: u8 = 2;
/// Flag of a state: no path MTU discovery.
pub const XFRM_STATE_NOPMTUDISC: u8 = 4;
/// Flag of a state: it accepts any destination.
pub const XFRM_STATE_WILDRECV: u8 = 8;
/// Flag of a state: it also accepts ICMP errors about its packets.
pub const XFRM_STATE_ICMP: u8 = 16;
/// Flag of a state: the inner family is any.
pub const XFRM_STATE_AF_UNSPEC: u8 = 32;
/// Flag of a state: AH's header is aligned to 4 bytes.
pub const XFRM_STATE_ALIGN4: u8 = 64;
/// Flag of a state: extended sequence numbers.
pub const XFRM_STATE_ESN: u8 = 128;
/// Extra flag of a state: the outer DSCP is 0.
pub const XFRM_SA_XFLAG_DONT_ENCAP_DSCP: u32 = 1;
/// Extra flag of a state: the outgoing sequence number may wrap.
pub const XFRM_SA_XFLAG_OSEQ_MAY_WRAP: u32 = 2;

/// Transport mode.
pub const XFRM_MODE_TRANSPORT: u8 = 0;
/// Tunnel mode.
pub const XFRM_MODE_TUNNEL: u8 = 1;
/// Route optimisation of Mobile IPv6.
pub const XFRM_MODE_ROUTEOPTIMIZATION: u8 = 2;
/// Trigger of Mobile IPv6.
pub const XFRM_MODE_IN_TRIGGER: u8 = 3;
/// Bound end-to-end tunnel mode.
pub const XFRM_MODE_BEET: u8 = 4;
/// IP-TFS (RFC 9347).
pub const XFRM_MODE_IPTFS: u8 = 5;
/// Modes are smaller than this.
pub const XFRM_MODE_MAX: u8 = 6;

/// Direction of a state: inbound.
pub const XFRM_SA_DIR_IN: u8 = 1;
/// Direction of a state: outbound.
pub const XFRM_SA_DIR_OUT: u8 = 2;

/// Offload: a flag that nothing reads (strongSwan sets it).
pub const XFRM_OFFLOAD_IPV6: u8 = 1;
/// Offload of a state: it is inbound.
pub const XFRM_OFFLOAD_INBOUND: u8 = 2;
/// Offload: of whole packets; without it, of their cryptography.
pub const XFRM_OFFLOAD_PACKET: u8 = 4;

/// Kind of an event of replay and lifetime: replay threshold.
pub const XFRM_AE_RTHR: u32 = 1;
/// Kind of an event of replay and lifetime: replay value.
pub const XFRM_AE_RVAL: u32 = 2;
/// Kind of an event of replay and lifetime: lifetime.
pub const XFRM_AE_LVAL: u32 = 4;
/// Kind of an event of replay and lifetime: timer threshold.
pub const XFRM_AE_ETHR: u32 = 8;
/// Kind of an event of replay and lifetime: caused by a replay update.
pub const XFRM_AE_CR: u32 = 16;
/// Kind of an event of replay and lifetime: caused by a timer.
pub const XFRM_AE_CE: u32 = 32;
/// Kind of an event of replay and lifetime: caused by an update from user space.
pub const XFRM_AE_CU: u32 = 64;

/// [`UserMigrateState::flags`]: the new state is not offloaded.
pub const XFRM_MIGRATE_STATE_CLEAR_OFFLOAD: u32 = 1;
/// [`UserMigrateState::flags`]: the selector follows the new addresses.
pub const XFRM_MIGRATE_STATE_UPDATE_H2H_SEL: u32 = 2;
/// [`UserMigrateState::flags`] that this version knows.
pub const XFRM_MIGRATE_STATE_KNOWN_FLAGS: u32 = 3;

fixed_layout! {
    /// `struct xfrm_stats`: counters of packets that a state rejected.
    pub struct Stats(12) {
        /// Packets behind the window.
        pub replay_window: u32,
        /// Packets seen before.
        pub replay: u32,
        /// Packets that were not authentic.
        pub integrity_failed: u32,
    }

    /// `struct xfrm_usersa_info`: a state.
    pub struct UsersaInfo(224) {
        /// The packets that it is for.
        pub sel: Selector,
        /// Destination, SPI, protocol.
        pub id: Id,
        /// Source.
        pub saddr: Address,
        /// Limits.
        pub lft: LifetimeCfg,
        /// Usage so far.
        pub curlft: LifetimeCur,
        /// Counters of rejected packets.
        pub stats: Stats,
        /// Sequence number of the acquire that it answers.
        pub seq: u32,
        /// Request id.
        pub reqid: u32,
        /// Family of its addresses.
        pub family: u16,
        /// `XFRM_MODE_...`.
        pub mode: u8,
        /// Replay window in packets, up to 32; larger ones are in [`super::ReplayStateEsn`].
        pub replay_window: u8,
        /// `XFRM_STATE_...`.
        pub flags: u8,
        /// Padding.
        pub pad: [u8; 7],
    }

    /// `struct xfrm_usersa_id`: identifies a state.
    pub struct UsersaId(24) {
        /// Destination.
        pub daddr: Address,
        /// SPI.
        pub spi: U32,
        /// Family of the address.
        pub family: u16,
        /// IP protocol.
        pub proto: u8,
        /// Padding.
        pub pad: u8,
    }

    /// `struct xfrm_aevent_id`: replay and lifetime of a state.
    pub struct AeventId(48) {
        /// The state.
        pub sa_id: UsersaId,
        /// Its source.
        pub saddr: Address,
        /// `XFRM_AE_...`.
        pub flags: u32,
        /// Its request id.
        pub reqid: u32,
    }

    /// `struct xfrm_userspi_info`: a state that gets an SPI from a range.
    pub struct UserspiInfo(232) {
        /// The state.
        pub info: UsersaInfo,
        /// Lowest SPI, host order.
        pub min: u32,
        /// Highest SPI, host order.
        pub max: u32,
    }

    /// `struct xfrm_user_expire`: a limit of a state was reached.
    pub struct UserExpire(232) {
        /// The state.
        pub state: UsersaInfo,
        /// Whether it was the hard limit (not 0); then the state is deleted.
        pub hard: u8,
        /// Padding.
        pub pad: [u8; 7],
    }

    /// `struct xfrm_usersa_flush`.
    pub struct UsersaFlush(1) {
        /// The protocol of the states; 0 for all.
        pub proto: u8,
    }

    /// `struct xfrm_user_report`.
    pub struct UserReport(60) {
        /// Protocol.
        pub proto: u8,
        /// Padding.
        pub pad: [u8; 3],
        /// The packet.
        pub sel: Selector,
    }

    /// `struct xfrm_user_kmaddress`: the addresses of the key managers during a migration.
    pub struct UserKmaddress(40) {
        /// Local address.
        pub local: Address,
        /// Remote address.
        pub remote: Address,
        /// 0.
        pub reserved: u32,
        /// Family of the addresses.
        pub family: u16,
        /// Padding.
        pub pad: [u8; 2],
    }

    /// `struct xfrm_user_migrate`: new addresses for states and templates.
    pub struct UserMigrate(76) {
        /// Old destination.
        pub old_daddr: Address,
        /// Old source.
        pub old_saddr: Address,
        /// New destination.
        pub new_daddr: Address,
        /// New source.
        pub new_saddr: Address,
        /// IP protocol.
        pub proto: u8,
        /// `XFRM_MODE_...`.
        pub mode: u8,
        /// 0.
        pub reserved: u16,
        /// Request id.
        pub reqid: u32,
        /// Old family.
        pub old_family: u16,
        /// New family.
        pub new_family: u16,
    }

    /// `struct xfrm_user_migrate_state`: new addresses for one state.
    pub struct UserMigrateState(132) {
        /// The state.
        pub id: UsersaId,
        /// New destination.
        pub new_daddr: Address,
        /// New source.
        pub new_saddr: Address,
        /// Its mark.
        pub old_mark: Mark,
        /// New selector.
        pub new_sel: Selector,
        /// New request id.
        pub new_reqid: u32,
        /// `XFRM_MIGRATE_STATE_...`.
        pub flags: u32,
        /// New family.
        pub new_family: u16,
        /// 0.
        pub reserved: u16,
    }

    /// `struct xfrm_user_mapping`: the address or port of a peer behind a NAT has changed.
    pub struct UserMapping(64) {
        /// The state.
        pub id: UsersaId,
        /// Its request id.
        pub reqid: u32,
        /// Old address.
        pub old_saddr: Address,
        /// New address.
        pub new_saddr: Address,
        /// Old port.
        pub old_sport: U16,
        /// New port.
        pub new_sport: U16,
    }

    /// `struct xfrm_replay_state`: sequence numbers and the window of 32 packets.
    pub struct ReplayState(12) {
        /// Last number sent.
        pub oseq: u32,
        /// Highest number received.
        pub seq: u32,
        /// Window; bit 0 stands for `seq`.
        pub bitmap: u32,
    }

    /// `struct xfrmu_sadhinfo`: the hash table of states.
    pub struct Sadhinfo(8) {
        /// Buckets.
        pub sadhcnt: u32,
        /// The most that there can be.
        pub sadhmcnt: u32,
    }
}
