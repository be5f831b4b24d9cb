//! Messages: their types, their bodies, reading and writing of the whole.

use super::attr::{
    AttrSpace, Attribute, Attributes, XFRMA_ENCAP, XFRMA_MARK, XFRMA_MTIMER_THRESH, XFRMA_NAT_KEEPALIVE_INTERVAL,
    XFRMA_OFFLOAD_DEV, XFRMA_RULES, XFRMA_SA_DIR, XFRMA_SA_PCPU, XFRMA_SAD_RULES, XFRMA_SET_MARK, XFRMA_SET_MARK_MASK,
    XFRMA_SPD_IPV4_HTHRESH, XFRMA_SPD_IPV6_HTHRESH, XFRMA_SPD_RULES,
};
use super::policy::{Spdhthresh, UserAcquire, UserPolexpire, UserpolicyDefault, UserpolicyId, UserpolicyInfo};
use super::state::{
    AeventId, UserExpire, UserMapping, UserMigrateState, UserReport, UsersaFlush, UsersaId, UsersaInfo, UserspiInfo,
};
use crate::errno::Errno;
use crate::netlink::answer::ExtAck;
use crate::netlink::rules::Reject;
use crate::netlink::{self, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_HDRLEN, Nlmsghdr, align};
use zerocopy::{FromBytes, IntoBytes};
use zeroize::Zeroizing;

macro_rules! bodies {
    ($($(#[$doc:meta])* $const:ident = $n:literal, $variant:ident$(($type:ty))?;)*) => {
        $($(#[$doc])* pub const $const: u16 = $n;)*

        /// The fixed part of a message, which determines its type. None of them contains keys, so all can be printed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Body {
            $($(#[$doc])* $variant$(($type))?,)*
            /// [`XFRM_MSG_GETSA`] as a dump: no structure; attributes are the filter.
            DumpSa,
            /// [`XFRM_MSG_GETPOLICY`] as a dump: no structure; attributes are ignored.
            DumpPolicy,
        }

        impl Body {
            /// Its message type.
            #[must_use]
            pub fn type_(&self) -> u16 {
                match self {
                    $(Body::$variant { .. } => $const,)*
                    Body::DumpSa => XFRM_MSG_GETSA,
                    Body::DumpPolicy => XFRM_MSG_GETPOLICY,
                }
            }

            /// The length of the structure of a message type; `None` for a type that this version does not know.
            #[must_use]
            pub fn len_of(type_: u16) -> Option<usize> {
                match type_ {
                    $($const => Some(0 $(+ size_of::<$type>())?),)*
                    _ => None,
                }
            }

            fn read(type_: u16, payload: &[u8]) -> Option<Self> {
                Some(match type_ {
                    $($const => Body::$variant$((<$type>::read_from_prefix(payload).ok()?.0))?,)*
                    _ => return None,
                })
            }

            /// Its bytes.
            #[must_use]
            pub fn as_bytes(&self) -> &[u8] {
                match self {
                    $(bodies!(@pattern $variant body $($type)?) => bodies!(@bytes body $($type)?),)*
                    Body::DumpSa | Body::DumpPolicy => &[],
                }
            }
        }
    };
    (@pattern $variant:ident $body:ident) => { Body::$variant };
    (@pattern $variant:ident $body:ident $type:ty) => { Body::$variant($body) };
    (@bytes $body:ident) => { &[] };
    (@bytes $body:ident $type:ty) => { $body.as_bytes() };
}

bodies! {
    /// Adds a state; also the answer to [`XFRM_MSG_GETSA`], and the event.
    XFRM_MSG_NEWSA = 0x10, NewSa(UsersaInfo);
    /// Deletes a state.
    XFRM_MSG_DELSA = 0x11, DelSa(UsersaId);
    /// Requests a state.
    XFRM_MSG_GETSA = 0x12, GetSa(UsersaId);
    /// Adds a policy; also the answer to [`XFRM_MSG_GETPOLICY`], and the event.
    XFRM_MSG_NEWPOLICY = 0x13, NewPolicy(UserpolicyInfo);
    /// Deletes a policy.
    XFRM_MSG_DELPOLICY = 0x14, DelPolicy(UserpolicyId);
    /// Requests a policy.
    XFRM_MSG_GETPOLICY = 0x15, GetPolicy(UserpolicyId);
    /// Requests an SPI; the answer is a larval state.
    XFRM_MSG_ALLOCSPI = 0x16, AllocSpi(UserspiInfo);
    /// Event: a policy needs a state.
    XFRM_MSG_ACQUIRE = 0x17, Acquire(UserAcquire);
    /// Event or command: a state has reached a limit.
    XFRM_MSG_EXPIRE = 0x18, Expire(UserExpire);
    /// Changes or adds a policy.
    XFRM_MSG_UPDPOLICY = 0x19, UpdPolicy(UserpolicyInfo);
    /// Changes a state.
    XFRM_MSG_UPDSA = 0x1a, UpdSa(UsersaInfo);
    /// Event or command: a policy has reached a limit.
    XFRM_MSG_POLEXPIRE = 0x1b, PolExpire(UserPolexpire);
    /// Deletes all states, or all of one protocol.
    XFRM_MSG_FLUSHSA = 0x1c, FlushSa(UsersaFlush);
    /// Deletes all policies of a type.
    XFRM_MSG_FLUSHPOLICY = 0x1d, FlushPolicy;
    /// Sets replay state and lifetime of a state; also the answer to [`XFRM_MSG_GETAE`], and the event.
    XFRM_MSG_NEWAE = 0x1e, NewAe(AeventId);
    /// Requests replay state and lifetime of a state.
    XFRM_MSG_GETAE = 0x1f, GetAe(AeventId);
    /// Event: a packet that Mobile IPv6 cannot use.
    XFRM_MSG_REPORT = 0x20, Report(UserReport);
    /// Moves states and templates to other addresses.
    XFRM_MSG_MIGRATE = 0x21, Migrate(UserpolicyId);
    /// Counts of states, with the flags of the request.
    XFRM_MSG_NEWSADINFO = 0x22, NewSadInfo(u32);
    /// Requests counts of states; the flags are returned.
    XFRM_MSG_GETSADINFO = 0x23, GetSadInfo(u32);
    /// Counts of policies. As a request, it sets the thresholds for hashing.
    XFRM_MSG_NEWSPDINFO = 0x24, NewSpdInfo(u32);
    /// Requests counts of policies; the flags are returned.
    XFRM_MSG_GETSPDINFO = 0x25, GetSpdInfo(u32);
    /// Event: the address or port of a peer behind a NAT has changed.
    XFRM_MSG_MAPPING = 0x26, Mapping(UserMapping);
    /// Sets the action for packets without a policy.
    XFRM_MSG_SETDEFAULT = 0x27, SetDefault(UserpolicyDefault);
    /// Requests the action for packets without a policy; also the answer.
    XFRM_MSG_GETDEFAULT = 0x28, GetDefault(UserpolicyDefault);
    /// Moves one state to other addresses.
    XFRM_MSG_MIGRATE_STATE = 0x29, MigrateState(UserMigrateState);
}

/// The last message type of this version.
pub const XFRM_MSG_MAX: u16 = XFRM_MSG_MIGRATE_STATE;

/// Whether the kernel accepts requests of this type. The others are messages that it only sends; it parses such a
/// request before it refuses it.
#[must_use]
pub fn is_served(type_: u16) -> bool {
    !matches!(type_, XFRM_MSG_REPORT | XFRM_MSG_NEWSADINFO | XFRM_MSG_MAPPING)
        && (XFRM_MSG_NEWSA..=XFRM_MSG_MAX).contains(&type_)
}

/// A refusal without a text.
fn plain(errno: Errno) -> Reject {
    Reject { errno, attr: None, ack: ExtAck::default() }
}

/// A request that has passed the checks of the kernel's `xfrm_user_rcv_msg`.
#[derive(Clone)]
pub struct Request<'a> {
    /// Header.
    pub header: Nlmsghdr,
    /// The fixed part.
    pub body: Body,
    /// Attributes. Those of [`Body::NewSpdInfo`] are in [`Request::hthresh4`] and [`Request::hthresh6`].
    pub attrs: Attributes<'a>,
    /// [`XFRMA_SPD_IPV4_HTHRESH`].
    pub hthresh4: Option<Spdhthresh>,
    /// [`XFRMA_SPD_IPV6_HTHRESH`].
    pub hthresh6: Option<Spdhthresh>,
    /// The extended acknowledgement, unless serving the request yields another one.
    pub warning: ExtAck,
}

impl<'a> Request<'a> {
    /// Reads a request of type [`XFRM_MSG_NEWSA`] or above. The sender's permission is checked before.
    ///
    /// A dump that is refused here is answered by the end of a dump with the error, not by an error message.
    ///
    /// # Errors
    /// The errors that the kernel detects before it serves a request: unknown types, structures and attributes that are
    /// too short, attributes where they do not belong.
    pub fn decode(message: &netlink::Message<'a>) -> Result<Self, Reject> {
        let header = message.header;
        let dump = header.nlmsg_flags & NLM_F_DUMP != 0;
        let none = netlink::Message { payload: &[], ..*message };
        let request = |body, attrs: Attributes<'a>| {
            let warning = attrs.0.warning;
            Request { header, body, attrs, hthresh4: None, hthresh6: None, warning }
        };
        match header.nlmsg_type {
            XFRM_MSG_GETSA if dump => return Ok(request(Body::DumpSa, Attributes(XFRMA_RULES.parse(message, 0)?))),
            XFRM_MSG_GETPOLICY if dump => {
                return Ok(request(Body::DumpPolicy, Attributes(XFRMA_RULES.parse(&none, 0)?)));
            }
            _ => {}
        }
        let type_ = header.nlmsg_type;
        // For the message that it only sends, the kernel requires no structure (`xfrm_msg_min`).
        let len = if type_ == XFRM_MSG_NEWSADINFO { Some(0) } else { Body::len_of(type_) };
        let len = len.ok_or(plain(Errno::EINVAL))?;
        if type_ == XFRM_MSG_NEWSPDINFO {
            let table = XFRMA_SPD_RULES.parse(message, len)?;
            let thresh = |attr| table.raw(attr).and_then(|b| Some(Spdhthresh::read_from_prefix(b).ok()?.0));
            let (hthresh4, hthresh6) = (thresh(XFRMA_SPD_IPV4_HTHRESH), thresh(XFRMA_SPD_IPV6_HTHRESH));
            let body = Body::read(type_, message.payload).ok_or(plain(Errno::EINVAL))?;
            let attrs = Attributes(XFRMA_RULES.parse(&none, 0)?);
            return Ok(Request { hthresh4, hthresh6, warning: table.warning, ..request(body, attrs) });
        }
        let attrs = Attributes(XFRMA_RULES.parse(message, len)?);
        reject_unused(type_, &attrs)?;
        let body = Body::read(type_, message.payload).filter(|_| is_served(type_));
        let refused = Reject { ack: attrs.0.warning, ..plain(Errno::EINVAL) };
        Ok(request(body.ok_or(refused)?, attrs))
    }
}

/// Refuses attributes that a type does not use (`xfrm_reject_unused_attr`).
fn reject_unused(type_: u16, attrs: &Attributes<'_>) -> Result<(), Reject> {
    let new = matches!(type_, XFRM_MSG_NEWSA | XFRM_MSG_UPDSA | XFRM_MSG_ALLOCSPI);
    if attrs.raw(XFRMA_SA_DIR).is_some() && !new {
        return Err(Reject::attribute(Errno::EINVAL, XFRMA_SA_DIR, "Invalid attribute SA_DIR"));
    }
    if attrs.raw(XFRMA_SA_PCPU).is_some() && !new && type_ != XFRM_MSG_ACQUIRE {
        return Err(Reject::attribute(Errno::EINVAL, XFRMA_SA_PCPU, "Invalid attribute SA_PCPU"));
    }
    if type_ != XFRM_MSG_MIGRATE_STATE {
        return Ok(());
    }
    let useful = [
        XFRMA_MARK,
        XFRMA_ENCAP,
        XFRMA_OFFLOAD_DEV,
        XFRMA_SET_MARK,
        XFRMA_SET_MARK_MASK,
        XFRMA_MTIMER_THRESH,
        XFRMA_NAT_KEEPALIVE_INTERVAL,
    ];
    let Some(attr) = attrs.types().find(|t| !useful.contains(t)) else { return Ok(()) };
    let offset = attrs.0.offset(attr);
    let text = Some("Unsupported attribute in XFRM_MSG_MIGRATE_STATE");
    Err(Reject { errno: Errno::EINVAL, attr: Some(attr), ack: ExtAck { text, offset, rule: None } })
}

/// A whole message: a request, an answer or an event.
#[derive(Clone, PartialEq, Eq)]
pub struct XfrmMessage {
    /// The fixed part.
    pub body: Body,
    /// The attributes in their order.
    pub attrs: Vec<Attribute>,
}

impl XfrmMessage {
    /// A message without attributes.
    #[must_use]
    pub fn new(body: Body) -> Self {
        XfrmMessage { body, attrs: Vec::new() }
    }

    /// Appends an attribute.
    #[must_use]
    pub fn with(mut self, attr: Attribute) -> Self {
        self.attrs.push(attr);
        self
    }

    /// Reads a message of NETLINK_XFRM. Attributes of later versions are omitted.
    ///
    /// # Errors
    /// If a structure or an attribute is too short, or its contents contradict each other.
    pub fn decode(message: &netlink::Message<'_>) -> Result<Self, Reject> {
        let header = message.header;
        let dump = header.nlmsg_flags & NLM_F_REQUEST != 0 && header.nlmsg_flags & NLM_F_DUMP != 0;
        let mut attrs = Vec::new();
        let mut family = AttrSpace::Xfrm;
        let body = match header.nlmsg_type {
            XFRM_MSG_GETSA if dump => Body::DumpSa,
            XFRM_MSG_GETPOLICY if dump => return Ok(XfrmMessage::new(Body::DumpPolicy)),
            type_ => {
                family = match type_ {
                    XFRM_MSG_NEWSADINFO => AttrSpace::Sad,
                    XFRM_MSG_NEWSPDINFO => AttrSpace::Spd,
                    _ => AttrSpace::Xfrm,
                };
                Body::len_of(type_).ok_or(plain(Errno::EINVAL))?;
                let short = Reject::message(Errno::EINVAL, "Invalid header length");
                Body::read(type_, message.payload).ok_or(short)?
            }
        };
        let len = body.as_bytes().len();
        let mut found = |type_, _, payload: &[u8]| {
            attrs.extend(Attribute::read(family, type_, payload)?);
            Ok(())
        };
        match family {
            AttrSpace::Xfrm => XFRMA_RULES.walk(message, len, &mut found)?,
            AttrSpace::Sad => XFRMA_SAD_RULES.walk(message, len, &mut found)?,
            AttrSpace::Spd => XFRMA_SPD_RULES.walk(message, len, &mut found)?,
        };
        Ok(XfrmMessage { body, attrs })
    }

    /// Its length in bytes when written, with padding.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let attrs: usize = self.attrs.iter().map(Attribute::encoded_len).sum();
        NLMSG_HDRLEN + align(self.body.as_bytes().len()) + attrs
    }

    /// Writes the message; it is wiped on drop as it may contain keys. Like the kernel's, the length includes padding,
    /// except for a request without attributes, which ends with its structure.
    ///
    /// # Panics
    /// As [`Attribute::encode`].
    #[must_use]
    pub fn encode(&self, flags: u16, seq: u32, port: u32) -> Zeroizing<Vec<u8>> {
        // The capacity is reserved at once: a vector that grows leaves copies behind.
        let mut out = Zeroizing::new(Vec::with_capacity(self.encoded_len()));
        let bare = flags & NLM_F_REQUEST != 0 && self.attrs.is_empty();
        let len = if bare { NLMSG_HDRLEN + self.body.as_bytes().len() } else { self.encoded_len() };
        let header = Nlmsghdr {
            nlmsg_len: len as u32,
            nlmsg_type: self.body.type_(),
            nlmsg_flags: flags,
            nlmsg_seq: seq,
            nlmsg_pid: port,
        };
        out.extend_from_slice(header.as_bytes());
        out.extend_from_slice(self.body.as_bytes());
        let padded = align(out.len());
        out.resize(padded, 0);
        self.attrs.iter().for_each(|a| a.encode(&mut out));
        out
    }
}
