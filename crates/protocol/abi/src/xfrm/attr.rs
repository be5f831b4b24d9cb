//! The attributes: one table of number, rule, type and reader.

use super::common::{Address, AddressFilter, EncapTmpl, LifetimeCur, Mark, UserOffload, UserTmpl};
use super::key::{Algo, AlgoAead, AlgoAuth, ReplayStateEsn, SecCtx};
use super::payload::Payload;
use super::policy::{Spdhinfo, Spdhthresh, Spdinfo, UserpolicyInfo, UserpolicyType};
use super::state::{ReplayState, Sadhinfo, UserKmaddress, UserMigrate, UsersaInfo, XFRM_SA_DIR_IN, XFRM_SA_DIR_OUT};
use crate::errno::Errno;
use crate::netlink::rules::{Kind, Reject, Rule, Rules, Table};
use crate::netlink::{NLA_HDRLEN, Nlattr, align};
use zerocopy::{FromBytes, IntoBytes};

macro_rules! fixed {
    ($($type:ty),*) => {$(
        impl Payload for $type {
            fn read(attr: u16, bytes: &[u8]) -> Result<Self, Reject> {
                // An attribute that has passed the rules is long enough.
                let short = Reject::attribute(Errno::ERANGE, attr, "Attribute failed policy validation");
                <$type>::read_from_prefix(bytes).map(|(value, _)| value).map_err(|_| short)
            }

            fn len(&self) -> usize {
                size_of::<$type>()
            }

            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(self.as_bytes());
            }
        }
    )*};
}
fixed!((), u8, u16, u32, u64, Address, AddressFilter, EncapTmpl, LifetimeCur, Mark, ReplayState, Sadhinfo, Spdhinfo);
fixed!(Spdhthresh, Spdinfo, UserKmaddress, UserOffload, UserpolicyInfo, UserpolicyType, UsersaInfo);

/// An array that fills the attribute: templates, migrations. An incomplete item at the end is ignored.
macro_rules! arrays {
    ($($item:ty),*) => {$(
        impl Payload for Vec<$item> {
            fn read(_: u16, bytes: &[u8]) -> Result<Self, Reject> {
                let items = bytes.chunks_exact(size_of::<$item>());
                Ok(items.filter_map(|item| <$item>::read_from_bytes(item).ok()).collect())
            }

            fn len(&self) -> usize {
                size_of_val(self.as_slice())
            }

            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(self.as_bytes());
            }
        }
    )*};
}
arrays!(UserTmpl, UserMigrate);

macro_rules! attributes {
    (
        $($(#[$doc:meta])* $const:ident = $n:literal, $variant:ident($type:ty), $getter:ident, $rule:expr;)*
        @info $($(#[$idoc:meta])* $iconst:ident = $in:literal in $family:ident, $ivariant:ident($itype:ty);)*
    ) => {
        $($(#[$doc])* pub const $const: u16 = $n;)*
        $($(#[$idoc])* pub const $iconst: u16 = $in;)*

        /// An attribute with its payload. It has no `Debug`, as some are keys.
        #[derive(Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Attribute {
            $($(#[$doc])* $variant($type),)*
            $($(#[$idoc])* $ivariant($itype),)*
        }

        impl Attribute {
            /// Its type.
            #[must_use]
            pub fn type_(&self) -> u16 {
                match self {
                    $(Attribute::$variant(_) => $const,)*
                    $(Attribute::$ivariant(_) => $iconst,)*
                }
            }

            /// Its kernel name (`"XFRMA_MARK"`).
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    $(Attribute::$variant(_) => stringify!($const),)*
                    $(Attribute::$ivariant(_) => stringify!($iconst),)*
                }
            }

            /// Reads the attribute of this type; `None` for a type that this version does not know.
            ///
            /// # Errors
            /// If the payload contradicts itself, for instance in a length.
            pub(super) fn read(family: AttrSpace, type_: u16, bytes: &[u8]) -> Result<Option<Self>, Reject> {
                Ok(Some(match (family, type_) {
                    $((AttrSpace::Xfrm, $const) => Attribute::$variant(Payload::read(type_, bytes)?),)*
                    $((AttrSpace::$family, $iconst) => Attribute::$ivariant(Payload::read(type_, bytes)?),)*
                    _ => return Ok(None),
                }))
            }

            /// The length of its payload in bytes.
            #[must_use]
            pub fn payload_len(&self) -> usize {
                match self {
                    $(Attribute::$variant(value) => Payload::len(value),)*
                    $(Attribute::$ivariant(value) => Payload::len(value),)*
                }
            }

            /// Appends the payload without padding.
            fn write_payload(&self, out: &mut Vec<u8>) {
                match self {
                    $(Attribute::$variant(value) => value.write(out),)*
                    $(Attribute::$ivariant(value) => value.write(out),)*
                }
            }
        }

        /// The kernel's rules for the attributes (`xfrma_policy`).
        pub const XFRMA_RULES: Rules<{ XFRMA_MAX as usize + 1 }> = {
            let mut rules = [Rule::ANY; XFRMA_MAX as usize + 1];
            $(rules[$const as usize] = $rule;)*
            Rules { rules, strict_from: XFRMA_SA_DIR }
        };

        /// The attributes of a request, read on access. If there are several of one type, the last one counts.
        ///
        /// Access fails if the kernel refuses the attribute for its contents: access it where the kernel does.
        #[derive(Clone)]
        pub struct Attributes<'a>(pub(super) Table<'a, { XFRMA_MAX as usize + 1 }>);

        impl Attributes<'_> {
            $(
                #[doc = concat!("[`", stringify!($const), "`].\n\n# Errors\nIf its payload contradicts itself, for instance in a length.")]
                pub fn $getter(&self) -> Result<Option<$type>, Reject> {
                    self.0.raw($const).map(|bytes| Payload::read($const, bytes)).transpose()
                }
            )*
        }
    };
}

/// The numbering of a message's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttrSpace {
    /// `XFRMA_...`.
    Xfrm,
    /// `XFRMA_SAD_...`.
    Sad,
    /// `XFRMA_SPD_...`.
    Spd,
}

const U32: Rule = Rule::new(Kind::U32);

attributes! {
    /// Authentication: [`Algo`].
    XFRMA_ALG_AUTH = 1, AlgAuth(Algo), alg_auth, Rule::new(Kind::Bytes(68));
    /// Cipher: [`Algo`].
    XFRMA_ALG_CRYPT = 2, AlgCrypt(Algo), alg_crypt, Rule::new(Kind::Bytes(68));
    /// Compression: [`Algo`].
    XFRMA_ALG_COMP = 3, AlgComp(Algo), alg_comp, Rule::new(Kind::Bytes(68));
    /// ESP in UDP or TCP.
    XFRMA_ENCAP = 4, Encap(EncapTmpl), encap, Rule::least::<EncapTmpl>();
    /// A policy's templates.
    XFRMA_TMPL = 5, Tmpl(Vec<UserTmpl>), tmpl, Rule::least::<UserTmpl>();
    /// The state that was deleted, in an event.
    XFRMA_SA = 6, Sa(UsersaInfo), sa, Rule::least::<UsersaInfo>();
    /// The policy that was deleted, in an event.
    XFRMA_POLICY = 7, Policy(UserpolicyInfo), policy, Rule::least::<UserpolicyInfo>();
    /// Security context.
    XFRMA_SEC_CTX = 8, SecCtx(SecCtx), sec_ctx, Rule::new(Kind::Bytes(8));
    /// Usage so far.
    XFRMA_LTIME_VAL = 9, LtimeVal(LifetimeCur), ltime_val, Rule::least::<LifetimeCur>();
    /// Sequence numbers and window.
    XFRMA_REPLAY_VAL = 10, ReplayVal(ReplayState), replay_val, Rule::least::<ReplayState>();
    /// Packets between two replay events.
    XFRMA_REPLAY_THRESH = 11, ReplayThresh(u32), replay_thresh, U32;
    /// Time between two replay events, in tenths of a second.
    XFRMA_ETIMER_THRESH = 12, EtimerThresh(u32), etimer_thresh, U32;
    /// Source, where the structure has none.
    XFRMA_SRCADDR = 13, Srcaddr(Address), srcaddr, Rule::least::<Address>();
    /// Care-of address.
    XFRMA_COADDR = 14, Coaddr(Address), coaddr, Rule::least::<Address>();
    /// When the state was last used, seconds since 1970.
    XFRMA_LASTUSED = 15, Lastused(u64), lastused, Rule::new(Kind::U64);
    /// Type of a policy.
    XFRMA_POLICY_TYPE = 16, PolicyType(UserpolicyType), policy_type, Rule::least::<UserpolicyType>();
    /// Migrations: all in one attribute of a request, each in its own in an event.
    XFRMA_MIGRATE = 17, Migrate(Vec<UserMigrate>), migrate, Rule::least::<UserMigrate>();
    /// AEAD: [`AlgoAead`].
    XFRMA_ALG_AEAD = 18, AlgAead(AlgoAead), alg_aead, Rule::new(Kind::Bytes(72));
    /// Addresses of the key managers.
    XFRMA_KMADDRESS = 19, Kmaddress(UserKmaddress), kmaddress, Rule::least::<UserKmaddress>();
    /// Authentication with its truncation: [`AlgoAuth`].
    XFRMA_ALG_AUTH_TRUNC = 20, AlgAuthTrunc(AlgoAuth), alg_auth_trunc, Rule::new(Kind::Bytes(72));
    /// Mark of the packets.
    XFRMA_MARK = 21, Mark(Mark), mark, Rule::least::<Mark>();
    /// Length to pad to (traffic flow confidentiality), in bytes.
    XFRMA_TFCPAD = 22, Tfcpad(u32), tfcpad, U32;
    /// Sequence numbers, and a window of any size.
    XFRMA_REPLAY_ESN_VAL = 23, ReplayEsnVal(ReplayStateEsn), replay_esn_val, Rule::new(Kind::Bytes(24));
    /// `XFRM_SA_XFLAG_...`.
    XFRMA_SA_EXTRA_FLAGS = 24, SaExtraFlags(u32), sa_extra_flags, U32;
    /// Protocol of the states to dump.
    XFRMA_PROTO = 25, Proto(u8), proto, Rule::new(Kind::U8);
    /// Addresses of the states to dump.
    XFRMA_ADDRESS_FILTER = 26, AddressFilter(AddressFilter), address_filter, Rule::least::<AddressFilter>();
    /// Padding before an attribute of 8-byte numbers, on kernels for machines that need it.
    XFRMA_PAD = 27, Pad(()), pad, Rule::ANY;
    /// Offload to a device.
    XFRMA_OFFLOAD_DEV = 28, OffloadDev(UserOffload), offload_dev, Rule::least::<UserOffload>();
    /// Mark set on packets.
    XFRMA_SET_MARK = 29, SetMark(u32), set_mark, U32;
    /// Mask of the mark set on packets.
    XFRMA_SET_MARK_MASK = 30, SetMarkMask(u32), set_mark_mask, U32;
    /// Interface id.
    XFRMA_IF_ID = 31, IfId(u32), if_id, U32;
    /// Seconds between two mapping events.
    XFRMA_MTIMER_THRESH = 32, MtimerThresh(u32), mtimer_thresh, U32;
    /// Direction of a state: [`XFRM_SA_DIR_IN`] or [`XFRM_SA_DIR_OUT`].
    XFRMA_SA_DIR = 33, SaDir(u8), sa_dir, Rule::new(Kind::U8).within(XFRM_SA_DIR_IN as u64, XFRM_SA_DIR_OUT as u64);
    /// Seconds between two NAT keep-alives.
    XFRMA_NAT_KEEPALIVE_INTERVAL = 34, NatKeepaliveInterval(u32), nat_keepalive_interval, U32;
    /// CPU of a state (RFC 9611).
    XFRMA_SA_PCPU = 35, SaPcpu(u32), sa_pcpu, U32;
    /// IP-TFS, in: microseconds to wait for a missing packet.
    XFRMA_IPTFS_DROP_TIME = 36, IptfsDropTime(u32), iptfs_drop_time, U32;
    /// IP-TFS, in: window of reordering in packets.
    XFRMA_IPTFS_REORDER_WINDOW = 37, IptfsReorderWindow(u16), iptfs_reorder_window, Rule::new(Kind::U16);
    /// IP-TFS, out: inner packets are not fragmented.
    XFRMA_IPTFS_DONT_FRAG = 38, IptfsDontFrag(()), iptfs_dont_frag, Rule::new(Kind::Flag);
    /// IP-TFS, out: microseconds to wait for more packets.
    XFRMA_IPTFS_INIT_DELAY = 39, IptfsInitDelay(u32), iptfs_init_delay, U32;
    /// IP-TFS, out: largest queue in bytes.
    XFRMA_IPTFS_MAX_QSIZE = 40, IptfsMaxQsize(u32), iptfs_max_qsize, U32;
    /// IP-TFS, out: size of an outer packet in bytes; 0 is the path MTU.
    XFRMA_IPTFS_PKT_SIZE = 41, IptfsPktSize(u32), iptfs_pkt_size, U32;
    @info
    /// States: their number.
    XFRMA_SAD_CNT = 1 in Sad, SadCnt(u32);
    /// States: their hash table.
    XFRMA_SAD_HINFO = 2 in Sad, SadHinfo(Sadhinfo);
    /// Policies: their number.
    XFRMA_SPD_INFO = 1 in Spd, SpdInfo(Spdinfo);
    /// Policies: their hash table.
    XFRMA_SPD_HINFO = 2 in Spd, SpdHinfo(Spdhinfo);
    /// Policies: prefix lengths from which IPv4 policies are hashed.
    XFRMA_SPD_IPV4_HTHRESH = 3 in Spd, SpdIpv4Hthresh(Spdhthresh);
    /// Policies: prefix lengths from which IPv6 policies are hashed.
    XFRMA_SPD_IPV6_HTHRESH = 4 in Spd, SpdIpv6Hthresh(Spdhthresh);
}

/// The last attribute of this version.
pub const XFRMA_MAX: u16 = XFRMA_IPTFS_PKT_SIZE;

/// The kernel's rules for the attributes of [`super::XFRM_MSG_NEWSPDINFO`] (`xfrma_spd_policy`).
pub const XFRMA_SPD_RULES: Rules<5> = Rules {
    rules: [Rule::ANY, Rule::ANY, Rule::ANY, Rule::least::<Spdhthresh>(), Rule::least::<Spdhthresh>()],
    strict_from: 0,
};

/// Rules for the attributes of [`super::XFRM_MSG_NEWSADINFO`], which the kernel only sends.
pub const XFRMA_SAD_RULES: Rules<3> = Rules { rules: [Rule::ANY, U32, Rule::least::<Sadhinfo>()], strict_from: 0 };

impl Attributes<'_> {
    /// The payload of the attribute of this type.
    #[must_use]
    pub fn raw(&self, type_: u16) -> Option<&[u8]> {
        self.0.raw(type_)
    }

    /// The types present, ascending.
    pub fn types(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.types()
    }
}

impl Attribute {
    /// Its length in a message in bytes, with header and padding.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        align(NLA_HDRLEN + self.payload_len())
    }

    /// Appends it with header and padding.
    ///
    /// # Panics
    /// If it is longer than 65,531 bytes, as only an array or key could be that cannot be sent.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let len = u16::try_from(NLA_HDRLEN + self.payload_len()).expect("attributes are shorter than 64 KiB");
        out.extend_from_slice(Nlattr { nla_len: len, nla_type: self.type_() }.as_bytes());
        self.write_payload(out);
        out.resize(align(out.len()), 0);
    }
}
