//! Structures about policies.

use super::common::{Address, Id, LifetimeCfg, LifetimeCur, Selector};
use super::layout::fixed_layout;

/// Type of a policy: the usual one.
pub const XFRM_POLICY_TYPE_MAIN: u8 = 0;
/// Type of a policy: the one consulted first, if the kernel has it (`CONFIG_XFRM_SUB_POLICY`).
pub const XFRM_POLICY_TYPE_SUB: u8 = 1;
/// Type of a policy: in a request, every type.
pub const XFRM_POLICY_TYPE_ANY: u8 = 255;

/// Direction of a policy: for packets to this host.
pub const XFRM_POLICY_IN: u8 = 0;
/// Direction of a policy: for packets from this host.
pub const XFRM_POLICY_OUT: u8 = 1;
/// Direction of a policy: for packets through this host.
pub const XFRM_POLICY_FWD: u8 = 2;
/// Directions are smaller than this.
pub const XFRM_POLICY_MAX: u8 = 3;

/// Action of a policy: let packets pass, transformed by its templates.
pub const XFRM_POLICY_ALLOW: u8 = 0;
/// Action of a policy: drop them.
pub const XFRM_POLICY_BLOCK: u8 = 1;

/// Flag of a policy: a socket may override it.
pub const XFRM_POLICY_LOCALOK: u8 = 1;
/// Flag of a policy: it also applies to ICMP errors about its packets.
pub const XFRM_POLICY_ICMP: u8 = 2;
/// Flag of a policy: acquires name the CPU (RFC 9611).
pub const XFRM_POLICY_CPU_ACQUIRE: u8 = 4;

/// Sharing of a state: no limit.
pub const XFRM_SHARE_ANY: u8 = 0;
/// Sharing of a state: this session only.
pub const XFRM_SHARE_SESSION: u8 = 1;
/// Sharing of a state: this user only.
pub const XFRM_SHARE_USER: u8 = 2;
/// Sharing of a state: once.
pub const XFRM_SHARE_UNIQUE: u8 = 3;

/// Default policy: unchanged.
pub const XFRM_USERPOLICY_UNSPEC: u8 = 0;
/// Default policy: drop packets without a policy.
pub const XFRM_USERPOLICY_BLOCK: u8 = 1;
/// Default policy: let packets without a policy pass.
pub const XFRM_USERPOLICY_ACCEPT: u8 = 2;

/// The maximum number of templates of a policy, and of states of a migration.
pub const XFRM_MAX_DEPTH: usize = 6;

fixed_layout! {
    /// `struct xfrm_userpolicy_info`: a policy.
    pub struct UserpolicyInfo(168) {
        /// The packets that it applies to.
        pub sel: Selector,
        /// Limits.
        pub lft: LifetimeCfg,
        /// Usage so far.
        pub curlft: LifetimeCur,
        /// Lower numbers come first.
        pub priority: u32,
        /// Its number; the three lowest bits are its direction.
        pub index: u32,
        /// `XFRM_POLICY_IN`, `..._OUT`, `..._FWD`.
        pub dir: u8,
        /// `XFRM_POLICY_ALLOW` or `..._BLOCK`.
        pub action: u8,
        /// `XFRM_POLICY_LOCALOK`, ...
        pub flags: u8,
        /// `XFRM_SHARE_...`.
        pub share: u8,
        /// Padding.
        pub pad: [u8; 4],
    }

    /// `struct xfrm_userpolicy_id`: identifies a policy by its selector, or by its number if that is not 0.
    pub struct UserpolicyId(64) {
        /// The packets that it applies to.
        pub sel: Selector,
        /// Its number.
        pub index: u32,
        /// Its direction.
        pub dir: u8,
        /// Padding.
        pub pad: [u8; 3],
    }

    /// `struct xfrm_user_acquire`: a policy needs a state.
    pub struct UserAcquire(280) {
        /// The state wanted.
        pub id: Id,
        /// Its source.
        pub saddr: Address,
        /// The packet that needs it.
        pub sel: Selector,
        /// The policy.
        pub policy: UserpolicyInfo,
        /// Bit set of authentication algorithms.
        pub aalgos: u32,
        /// Bit set of ciphers.
        pub ealgos: u32,
        /// Bit set of compressions.
        pub calgos: u32,
        /// Number of the acquire.
        pub seq: u32,
    }

    /// `struct xfrm_user_polexpire`: a limit of a policy was reached.
    pub struct UserPolexpire(176) {
        /// The policy.
        pub pol: UserpolicyInfo,
        /// Whether it was the hard limit (not 0); then the policy is deleted.
        pub hard: u8,
        /// Padding.
        pub pad: [u8; 7],
    }

    /// `struct xfrm_userpolicy_type`.
    pub struct UserpolicyType(6) {
        /// `XFRM_POLICY_TYPE_...`.
        pub type_: u8,
        /// Padding.
        pub pad: u8,
        /// 0.
        pub reserved1: u16,
        /// 0.
        pub reserved2: u8,
        /// Padding.
        pub pad2: u8,
    }

    /// `struct xfrm_userpolicy_default`: the actions for packets without a policy, `XFRM_USERPOLICY_...`.
    pub struct UserpolicyDefault(3) {
        /// To this host.
        pub input: u8,
        /// Through this host.
        pub fwd: u8,
        /// From this host.
        pub out: u8,
    }

    /// `struct xfrmu_spdinfo`: the numbers of policies; `s...` are those of sockets.
    pub struct Spdinfo(24) {
        /// In.
        pub incnt: u32,
        /// Out.
        pub outcnt: u32,
        /// Forward.
        pub fwdcnt: u32,
        /// In, of sockets.
        pub inscnt: u32,
        /// Out, of sockets.
        pub outscnt: u32,
        /// Forward, of sockets.
        pub fwdscnt: u32,
    }

    /// `struct xfrmu_spdhinfo`: the hash table of policies.
    pub struct Spdhinfo(8) {
        /// Buckets.
        pub spdhcnt: u32,
        /// The maximum number of buckets.
        pub spdhmcnt: u32,
    }

    /// `struct xfrmu_spdhthresh`: policies with prefixes at least this long are hashed.
    pub struct Spdhthresh(2) {
        /// Local prefix in bits.
        pub lbits: u8,
        /// Remote prefix in bits.
        pub rbits: u8,
    }
}
