//! Structures about states (SAs).

use super::common::{Address, Id, LifetimeCfg, LifetimeCur, Mark, Selector};
use super::layout::fixed_layout;
use zerocopy::big_endian::{U16, U32};

/// Flag of a state: the outer ECN bits stay clear.
pub const XFRM_STATE_NOECN: u8 = 1;
/// Flag of a state: copy the outer DSCP inwards.
pub const XFRM_STATE_DECAP_DSCP: u8 = 2;
/// Flag of a state: no path MTU discovery.
pub const XFRM_STATE_NOPMTUDISC: u8 = 4;
/// Flag of a state: any destination.
pub const XFRM_STATE_WILDRECV: u8 = 8;
/// Flag of a state: ICMP about its packets too.
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
/// The same: replay value.
pub const XFRM_AE_RVAL: u32 = 2;
/// The same: lifetime.
pub const XFRM_AE_LVAL: u32 = 4;
/// The same: timer threshold.
pub const XFRM_AE_ETHR: u32 = 8;
/// The same: caused by a replay update.
pub const XFRM_AE_CR: u32 = 16;
/// The same: caused by a timer.
pub const XFRM_AE_CE: u32 = 32;
/// The same: caused by an update from user space.
pub const XFRM_AE_CU: u32 = 64;

/// [`UserMigrateState::flags`]: the new state is not offloaded.
pub const XFRM_MIGRATE_STATE_CLEAR_OFFLOAD: u32 = 1;
/// [`UserMigrateState::flags`]: the selector follows the new addresses.
pub const XFRM_MIGRATE_STATE_UPDATE_H2H_SEL: u32 = 2;
/// [`UserMigrateState::flags`] that this version knows.
pub const XFRM_MIGRATE_STATE_KNOWN_FLAGS: u32 = 3;

fixed_layout! {
    /// `struct xfrm_stats`: packets that a state refused.
    pub struct Stats(12) {
        /// Before the window.
        pub replay_window: u32,
        /// Seen before.
        pub replay: u32,
        /// Not authentic.
        pub integrity_failed: u32,
    }

    /// `struct xfrm_usersa_info`: a state.
    pub struct UsersaInfo(224) {
        /// Which packets it is for.
        pub sel: Selector,
        /// Destination, SPI, protocol.
        pub id: Id,
        /// Source.
        pub saddr: Address,
        /// Limits.
        pub lft: LifetimeCfg,
        /// What has been used up.
        pub curlft: LifetimeCur,
        /// What was refused.
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

    /// `struct xfrm_usersa_id`: names a state.
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
        /// Least SPI, host order.
        pub min: u32,
        /// Largest SPI, host order.
        pub max: u32,
    }

    /// `struct xfrm_user_expire`: a limit of a state was reached.
    pub struct UserExpire(232) {
        /// The state.
        pub state: UsersaInfo,
        /// Not 0: the hard one; the state is gone.
        pub hard: u8,
        /// Padding.
        pub pad: [u8; 7],
    }

    /// `struct xfrm_usersa_flush`.
    pub struct UsersaFlush(1) {
        /// States of this protocol; 0 is all.
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

    /// `struct xfrm_user_kmaddress`: where the key manager talks during a migration.
    pub struct UserKmaddress(40) {
        /// Here.
        pub local: Address,
        /// There.
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
        /// Destination so far.
        pub old_daddr: Address,
        /// Source so far.
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
        /// Family so far.
        pub old_family: u16,
        /// New family.
        pub new_family: u16,
    }

    /// `struct xfrm_user_migrate_state`: one state moves.
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

    /// `struct xfrm_user_mapping`: a peer behind a NAT has got another address or port.
    pub struct UserMapping(64) {
        /// The state.
        pub id: UsersaId,
        /// Its request id.
        pub reqid: u32,
        /// Address so far.
        pub old_saddr: Address,
        /// New address.
        pub new_saddr: Address,
        /// Port so far.
        pub old_sport: U16,
        /// New port.
        pub new_sport: U16,
    }

    /// `struct xfrm_replay_state`: sequence numbers and the window of 32 packets.
    pub struct ReplayState(12) {
        /// Last one sent.
        pub oseq: u32,
        /// Largest one received.
        pub seq: u32,
        /// Bit 0 is `seq`.
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
