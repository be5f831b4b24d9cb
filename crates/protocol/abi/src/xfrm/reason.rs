//! The kernel's reasons to refuse a well-formed request: errno and extended-ack text, as one table.
//!
//! The rows follow the kernel's files and, within a file, its order; Sealane's own come last. A text that occurs several
//! times with the same errno has one row. The table omits refusals without a text (`ESRCH`, `EEXIST` and the like), the
//! parser's own ([`crate::netlink::rules`], [`super::Request::decode`]), those for lack of memory, and the one text that
//! contains a number (unknown flags of [`super::UserMigrateState`]).

use crate::errno::Errno;
use crate::netlink::rules::Reject;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $errno:ident, $text:literal;)*) => {
        /// A refusal with a text. Names that begin with `Out` or `In` are about output or input SAs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Reason {
            $(#[doc = concat!($text, " (`", stringify!($errno), "`).")] $(#[$doc])* $name,)*
        }

        impl Reason {
            /// All reasons.
            pub const ALL: &[Reason] = &[$(Reason::$name),*];

            /// The error number. If a lower layer determines it, this is the most common one.
            #[must_use]
            pub const fn errno(self) -> Errno {
                match self {
                    $(Reason::$name => Errno::$errno,)*
                }
            }

            /// The text of the extended acknowledgement.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Reason::$name => $text,)*
                }
            }
        }
    };
}

reasons! {
    // net/xfrm/xfrm_user.c: attributes of a state. Reading an attribute returns those that are only about lengths.
    AlgLength = EINVAL, "Invalid AUTH/CRYPT/COMP attribute length";
    AuthTruncLength = EINVAL, "Invalid AUTH_TRUNC attribute length";
    AeadLength = EINVAL, "Invalid AEAD attribute length";
    SecCtxLength = EINVAL, "Invalid security context length";
    EsnMissing = EINVAL, "Missing required attribute for ESN";
    EsnBitmapTooLong = EINVAL, "ESN bitmap length must be <= 128";
    EsnBitmapShort = EINVAL, "ESN attribute is too short to fit the full bitmap length";
    EsnProto = EINVAL, "ESN only supported for ESP and AH";
    EsnReplayWindow = EINVAL, "ESN not compatible with legacy replay_window";
    OutReplayWindow = EINVAL, "Replay window should be 0 for output SA";
    OutReplaySeq = EINVAL, "Replay seq and seq_hi should be 0 for output SA";
    OutReplayOseqHi = EINVAL, "Replay oseq_hi should be 0 in non-ESN mode for output SA";
    OutReplayOseq = EINVAL, "Replay oseq should be less than 0xFFFFFFFF in non-ESN mode for output SA";
    OutReplayOseqEnd = EINVAL, "Replay oseq and oseq_hi should be less than 0xFFFFFFFF for output SA";
    OutReplayBitmap = EINVAL, "Replay bmp_len should 0 for output SA";
    InReplayOseq = EINVAL, "Replay oseq and oseq_hi should be 0 for input SA";
    InReplaySeqHi = EINVAL, "Replay seq_hi should be 0 in non-ESN mode for input SA";
    InReplaySeq = EINVAL, "Replay seq should be less than 0xFFFFFFFF in non-ESN mode for input SA";
    InReplaySeqEnd = EINVAL, "Replay seq and seq_hi should be less than 0xFFFFFFFF for input SA";
    MtimerEncap = EINVAL, "MTIMER_THRESH requires encapsulation";
    MtimerOut = EINVAL, "MTIMER_THRESH should not be set on output SA";
    Ipv6Disabled = EAFNOSUPPORT, "IPv6 support disabled";
    Family = EINVAL, "Invalid address family";
    SelectorPrefix4 = EINVAL, "Invalid prefix length in selector (must be <= 32 for IPv4)";
    SelectorPrefix6 = EINVAL, "Invalid prefix length in selector (must be <= 128 for IPv6)";
    SelectorFamily = EINVAL, "Invalid address family in selector";
    AhMissing = EINVAL, "Missing required attribute for AH: AUTH_TRUNC or AUTH";
    AhAttributes = EINVAL, "Invalid attributes for AH: AEAD, CRYPT, COMP, TFCPAD";
    EspComp = EINVAL, "Invalid attribute for ESP: COMP";
    EspMissing = EINVAL, "Missing required attribute for ESP: at least one of AUTH, AUTH_TRUNC, CRYPT, AEAD";
    EspAead = EINVAL, "Invalid attribute combination for ESP: AEAD can't be used with AUTH, AUTH_TRUNC, CRYPT";
    TfcMode = EINVAL, "TFC padding can only be used in tunnel mode";
    IptfsOptions = EINVAL, "IP-TFS options can only be used in IP-TFS mode";
    CompMissing = EINVAL, "Missing required attribute for COMP: COMP";
    CompAttributes = EINVAL, "Invalid attributes for COMP: AEAD, AUTH, AUTH_TRUNC, CRYPT, TFCPAD";
    CompSpi = EINVAL, "SPI is too large for COMP (must be < 0x10000)";
    MipAttributes = EINVAL, "Invalid attributes for DSTOPTS/ROUTING";
    MipMissing = EINVAL, "Missing required COADDR attribute for DSTOPTS/ROUTING";
    Proto = EINVAL, "Unsupported protocol";
    IptfsProto = EINVAL, "IP-TFS mode only supported with ESP";
    IptfsDir = EINVAL, "IP-TFS mode requires in or out direction attribute";
    Mode = EINVAL, "Unsupported mode";
    OutDecapDscp = EINVAL, "Flag DECAP_DSCP should not be set for output SA";
    OutIcmp = EINVAL, "Flag ICMP should not be set for output SA";
    OutWildrecv = EINVAL, "Flag WILDRECV should not be set for output SA";
    OutIptfsDropTime = EINVAL, "IP-TFS drop time should not be set for output SA";
    OutIptfsReorder = EINVAL, "IP-TFS reorder window should not be set for output SA";
    OutReplayVal = EINVAL, "Replay seq and bitmap should be 0 for output SA";
    InNopmtudisc = EINVAL, "Flag NOPMTUDISC should not be set for input SA";
    InDontEncapDscp = EINVAL, "Flag DONT_ENCAP_DSCP should not be set for input SA";
    InOseqMayWrap = EINVAL, "Flag OSEQ_MAY_WRAP should not be set for input SA";
    InIptfsDontFrag = EINVAL, "IP-TFS don't fragment should not be set for input SA";
    InIptfsInitDelay = EINVAL, "IP-TFS initial delay should not be set for input SA";
    InIptfsMaxQsize = EINVAL, "IP-TFS max queue size should not be set for input SA";
    InIptfsPktSize = EINVAL, "IP-TFS packet size should not be set for input SA";
    PcpuDir = EINVAL, "SA_PCPU only supported with SA_DIR";
    CompUnknown = ENOSYS, "Requested COMP algorithm not found";
    CryptUnknown = ENOSYS, "Requested CRYPT algorithm not found";
    AuthUnknown = ENOSYS, "Requested AUTH algorithm not found";
    AuthTruncUnknown = ENOSYS, "Requested AUTH_TRUNC algorithm not found";
    TruncLength = EINVAL, "Invalid length requested for truncated ICV";
    AeadUnknown = ENOSYS, "Requested AEAD algorithm not found";
    EsnShort = EINVAL, "ESN attribute is too short";
    EsnSizeChanged = EINVAL, "New ESN size doesn't match the existing SA's ESN size";
    EsnBitmapChanged = EINVAL, "New ESN bitmap size doesn't match the existing SA's ESN bitmap";
    EsnWindowLong = EINVAL, "ESN replay window is longer than the bitmap";
    TfcExcessive = EINVAL, "Excessive TFC padding";
    /// For a new state; otherwise see [`Reason::PcpuRequest`].
    Pcpu = ERANGE, "pCPU number too big";
    /// For an SPI or an acquire; for a new state see [`Reason::Pcpu`].
    PcpuRequest = EINVAL, "pCPU number too big";
    InUse = EPERM, "SA is in use by tunnels";
    // Counts and thresholds.
    Hthresh4Length = EINVAL, "Invalid SPD_IPV4_HTHRESH attribute length";
    Hthresh4 = EINVAL, "Invalid hash threshold (must be <= 32 for IPv4)";
    Hthresh6Length = EINVAL, "Invalid SPD_IPV6_HTHRESH attribute length";
    Hthresh6 = EINVAL, "Invalid hash threshold (must be <= 128 for IPv6)";
    AcquireUnknown = ENOENT, "Target ACQUIRE not found";
    // Policies.
    PolicyDir = EINVAL, "Invalid policy direction";
    PolicyType = EINVAL, "Invalid policy type";
    PolicyShare = EINVAL, "Invalid policy share";
    PolicyAction = EINVAL, "Invalid policy action";
    PolicySelectorFamily = EINVAL, "Invalid selector family";
    PolicyIndex = EINVAL, "Policy index doesn't match direction";
    TmplCount = EINVAL, "Template count must be <= XFRM_MAX_DEPTH (6)";
    TmplMode = EINVAL, "Mode in template must be < XFRM_MODE_MAX (6)";
    TmplOptional = EINVAL, "Mode in optional template not allowed in outbound policy";
    TmplFamilyChange = EINVAL, "Mode in template doesn't support a family change";
    TmplFamily = EINVAL, "Invalid family in template";
    TmplProto = EINVAL, "Invalid XFRM protocol in template";
    // Replay and lifetime, migration.
    AeMissing = EINVAL, "Missing required attribute for AE";
    AeReplace = EINVAL, "NLM_F_REPLACE flag is required";
    NotValid = EINVAL, "SA must be in VALID state";
    MigrateCount = EINVAL, "Invalid number of SAs to migrate, must be 0 < num <= XFRM_MAX_DEPTH (6)";
    MigrateMissing = EINVAL, "Missing required MIGRATE attribute";
    MigrateSpi = EINVAL, "Invalid SPI 0x0";
    MigrateReserved = EINVAL, "Reserved field must be zero";
    MigrateUnknown = ESRCH, "Can not find state";
    MigrateSelector = EINVAL, "SA selector is not a single-host match for SA addresses";
    MigrateEncap = EINVAL, "Unsupported encapsulation type";
    MigrateKeepalive = EINVAL, "NAT_KEEPALIVE_INTERVAL requires encapsulation";
    MigrateOccupied = EEXIST, "New SA tuple already occupied";
    MigrateClone = EINVAL, "State migration clone failed";
    MigrateDeleted = ESRCH, "State already deleted";
    MigrateStateOff = ENOPROTOOPT, "XFRM_MSG_MIGRATE_STATE is not supported";
    // net/xfrm/xfrm_state.c.
    SpiComp = EINVAL, "IPCOMP SPI must be <= 65535";
    SpiProto = EINVAL, "Invalid protocol, must be one of AH, ESP, IPCOMP";
    SpiRange = EINVAL, "Invalid SPI range: min > max";
    AcquireDead = ENOENT, "Target ACQUIRE is in DEAD state";
    SpiExhausted = ENOENT, "No SPI available in the requested range";
    ModeUnknown = EPROTONOSUPPORT, "Requested mode not found";
    ModeFamilyChange = EPROTONOSUPPORT, "Only tunnel modes can accommodate a change of family";
    TypeUnknown = EPROTONOSUPPORT, "Requested type not found";
    KeepaliveDir = EINVAL, "NAT keepalive is only supported for outbound SAs";
    KeepaliveEncap = EINVAL, "NAT keepalive is only supported for UDP encapsulation";
    MigrateAdd = EEXIST, "Failed to add migrated state";
    // net/xfrm/xfrm_policy.c.
    PolicyUnknown = ENOENT, "Target policy not found";
    MigrateAddress = EINVAL, "Addresses in the MIGRATE attribute's list cannot be null";
    MigrateTwice = EINVAL, "Entries in the MIGRATE attribute's list must be unique";
    // net/xfrm/xfrm_replay.c.
    ReplayBitmap = EINVAL, "ESN replay window is too large for the chosen bitmap size";
    ReplayWindow = EINVAL, "ESN replay window must be > 0";
    // net/xfrm/xfrm_device.c.
    OffloadFlags = EINVAL, "Unrecognized flags in offload request";
    OffloadDir = EINVAL, "Mismatched SA and offload direction";
    OffloadIfId = EINVAL, "XFRM if_id is not supported in RX path";
    OffloadTfc = EINVAL, "TFC padding can't be offloaded";
    OffloadEsn = EINVAL, "Device doesn't support offload with ESN";
    OffloadType = EINVAL, "Type doesn't support offload";
    /// The device's own errno.
    OffloadState = EOPNOTSUPP, "Device failed to offload this state";
    OffloadPolicies = EINVAL, "Policy offload is not supported";
    OffloadPolicyDir = EINVAL, "Unrecognized offload direction";
    /// The device's own errno.
    OffloadPolicy = EOPNOTSUPP, "Device failed to offload this policy";
    // net/xfrm/xfrm_iptfs.c, net/xfrm/xfrm_ipcomp.c.
    IptfsPktSize = EINVAL, "Packet size must be 0 or greater than IPTFS/ESP header length";
    IpcompMissing = EINVAL, "Missing required compression algorithm";
    IpcompEncap = EINVAL, "IPComp is not compatible with encapsulation";
    IpcompMode = EINVAL, "Unsupported XFRM mode for IPcomp";
    // net/ipv4/esp4.c, ah4.c, xfrm4_tunnel.c and their IPv6 siblings.
    AlgName = ENAMETOOLONG, "Algorithm name is too long";
    /// The errno of the crypto layer.
    Crypto = EINVAL, "Kernel was unable to initialize cryptographic operations";
    EspAlg = EINVAL, "ESP: AEAD or CRYPT must be provided";
    EspEncap = EINVAL, "Unsupported encapsulation type for ESP";
    AhAuth = EINVAL, "AH requires a state with an AUTH algorithm";
    AhEncap = EINVAL, "AH is not compatible with encapsulation";
    /// AH over IPv6 only.
    AhMode = EINVAL, "Invalid mode requested for AH, must be one of TRANSPORT, TUNNEL, BEET";
    Tunnel4Mode = EINVAL, "IPv4 tunnel can only be used with tunnel mode";
    Tunnel4Encap = EINVAL, "IPv4 tunnel is not compatible with encapsulation";
    Tunnel6Mode = EINVAL, "IPv6 tunnel can only be used with tunnel mode";
    Tunnel6Encap = EINVAL, "IPv6 tunnel is not compatible with encapsulation";
    MipSpi = EINVAL, "SPI must be 0";
    MipMode = EINVAL, "XFRM mode must be XFRM_MODE_ROUTEOPTIMIZATION";
    // Sealane's own.
    /// Linux says that there is no such algorithm.
    AuthUnsound = ENOSYS, "This MAC is not for packets: see the algorithms in docs/ipsec.md";
    /// Linux would apply the policy to the packets of the device.
    Vti = EOPNOTSUPP,
        "The mark is the key of a VTI device, which is not served: use an xfrm interface of Sealane's configuration";
}

impl From<Reason> for Reject {
    fn from(reason: Reason) -> Self {
        reason.with(reason.errno())
    }
}

impl Reason {
    /// The refusal of this attribute.
    #[must_use]
    pub const fn of(self, attr: u16) -> Reject {
        Reject::attribute(self.errno(), attr, self.text())
    }

    /// The refusal with the error number of a lower layer.
    #[must_use]
    pub const fn with(self, errno: Errno) -> Reject {
        Reject::message(errno, self.text())
    }
}
