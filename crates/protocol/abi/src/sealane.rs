//! Numbers of Sealane's own in number spaces of the kernel: a netlink port and message types, socket options.
//!
//! Launcher, preloaded library and daemon agree on them; no kernel gives them a meaning.

use crate::Errno;
use crate::netlink::{Messages, NLM_F_REQUEST, NLMSG_HDRLEN, Nlmsghdr};
use zerocopy::FromBytes;

/// The NETLINK_USERSOCK port at which the IPsec daemon usually answers in a network namespace that it serves: "XF", and
/// a version. Where somebody else has taken it, the daemon has another one ([`xfrm_port`]).
///
/// Programs take their process id as port; those end at 4,194,304, so none collides with this number.
///
/// The daemon has the same port of NETLINK_GENERIC, to which the kernel lets only processes send that have CAP_NET_ADMIN
/// over the network namespace. Requests that arrive there have the header that [`vouched`] makes.
pub const XFRM_PORT: u32 = 0x5846_0001;

/// The bits that all ports of daemons have in common. There are more of these than anybody can take.
const XFRM_PORTS: u32 = 0xff00_0000;

/// The port of a daemon that a random number chooses.
#[must_use]
pub const fn xfrm_port(random: u32) -> u32 {
    XFRM_PORT & XFRM_PORTS | random & !XFRM_PORTS
}

/// Whether a port may be a daemon's.
#[must_use]
pub const fn is_xfrm_port(port: u32) -> bool {
    port & XFRM_PORTS == XFRM_PORT & XFRM_PORTS
}

/// The type of the header before a request that arrives at the port of NETLINK_GENERIC.
const VOUCHED: u16 = 0xff10;

/// The header before a request of `len` bytes at the port of NETLINK_GENERIC. Answers go to the port `answers` of
/// NETLINK_USERSOCK.
#[must_use]
pub fn vouched(answers: u32, len: usize) -> [u8; NLMSG_HDRLEN] {
    let header = Nlmsghdr {
        nlmsg_len: (NLMSG_HDRLEN + len) as u32,
        nlmsg_type: VOUCHED,
        nlmsg_flags: NLM_F_REQUEST,
        nlmsg_seq: 0,
        nlmsg_pid: answers,
    };
    zerocopy::transmute!(header)
}

/// The port for answers to a frame with the header that [`vouched`] makes, and the request behind the header. `None` for
/// any other frame.
#[must_use]
pub fn read_vouched(frame: &[u8]) -> Option<(u32, &[u8])> {
    let (header, request) = Nlmsghdr::read_from_prefix(frame).ok()?;
    let fits = header.nlmsg_type == VOUCHED && header.nlmsg_len as usize == frame.len();
    fits.then_some((header.nlmsg_pid, request))
}

/// The option of `getsockopt` at level `IPPROTO_TCP` by which the preloaded library asks the launcher for the text of
/// `/proc/net/netstat`, with the thread id in place of the descriptor. The kernel refuses it.
pub const NETSTAT_QUERY: i32 = 0x5ea1;

/// The option of the same level by which the preloaded library waits until no segment of TCP-AO is under way. The kernel
/// refuses it, too.
pub const SETTLED_QUERY: i32 = 0x5ea2;

/// Level and name of the option by which the preloaded library asks the launcher for the text of `/proc/net/xfrm_stat`;
/// no kernel has this level.
pub const XFRM_STAT_QUERY: (i32, i32) = (50, 0x5846);

/// Level and name of the option by which the preloaded library asks the launcher where the program's keys are, with the process id in
/// place of the descriptor. The answer is the name of a [`KeyPlace`], or of a keeper the path of its socket. There is none where keys
/// are in ordinary memory.
pub const KEYS_QUERY: (i32, i32) = (XFRM_STAT_QUERY.0, 0x4b59);

/// The answer to a question for a text, such as [`KEYS_QUERY`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// No launcher serves this process: the kernel answers, to which the number of a process is no descriptor.
    Nobody,
    /// The launcher has no such text.
    Nothing,
    /// The text.
    Text(Vec<u8>),
}

impl Told {
    /// The answer in the result of a system call.
    ///
    /// # Errors
    /// Any other errno: then it is not known what the answer is.
    pub fn of(answer: Result<Vec<u8>, i32>) -> Result<Self, i32> {
        match answer {
            Ok(text) => Ok(Told::Text(text)),
            Err(e) if e == Errno::EBADF.number() => Ok(Told::Nobody),
            Err(e) if e == Errno::ENOENT.number() => Ok(Told::Nothing),
            Err(e) => Err(e),
        }
    }
}

/// The variable that tells a program's processes where its keys are: the name of a [`KeyPlace`]. Empty is as good as absent.
pub const KEYS_VARIABLE: &str = "SEALANE_KEYS";
/// The variable with the socket of the keeper.
pub const KEEPER_VARIABLE: &str = "SEALANE_KEEPER";
/// The variable with the names, separated by commas, that programs may give in place of a key.
pub const KEY_NAMES_VARIABLE: &str = "SEALANE_KEY_NAMES";
/// The longest value of that variable in bytes.
pub const MAX_KEY_NAMES_LEN: usize = 4096;

/// The place where a program's keys of AF_ALG are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyPlace {
    /// The process that computes.
    Process,
    /// Guarded memory of the process that computes, as far as kernel and CPU guard it.
    Guarded,
    /// The same, and no memory that lacks something.
    GuardedStrict,
    /// A keeper.
    Keeper,
}

impl KeyPlace {
    /// All of them.
    pub const ALL: [Self; 4] = [KeyPlace::Process, KeyPlace::Guarded, KeyPlace::GuardedStrict, KeyPlace::Keeper];

    /// The value of [`KEYS_VARIABLE`].
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            KeyPlace::Process => "process",
            KeyPlace::Guarded => "guarded",
            KeyPlace::GuardedStrict => "guarded-strict",
            KeyPlace::Keeper => "keeper",
        }
    }

    /// The place of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|place| place.name() == name)
    }
}

/// A question that NETLINK_XFRM does not have: a message type of Sealane's, answered by one message with a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// Asks for the text of /proc/net/xfrm_stat.
    Stat,
    /// Asks for the status of the namespace, an [`ipsec::Status`](crate::admin::ipsec::Status) as JSON.
    Status,
    /// Asks for the mark (`SO_MARK`) of sockets whose packets no policy covers, as a decimal number. Only those who may
    /// change policies get it.
    ExemptMark,
    /// Asks for what arrives at UDP ports to be sorted into ESP and IKE anew: a key manager has come. The answer, an empty
    /// text, is given when it is so.
    Ports,
    /// Asks for an xfrm interface, new or changed: the message goes on with [`interface_request`]. The answer is an empty text
    /// when packets go through it, or the number of an error. Only those who may change policies may ask.
    Interface,
    /// Asks for a key manager's TCP connection to be taken over for ESP (`espintcp`): the message goes on with the abstract name
    /// of a Unix socket in the namespace, by which the launcher hands it over. The answer is an empty text, or the number of an
    /// error. Only those who may change policies may ask.
    Stream,
    /// Asks for the chains of nftables whose rules are not those that policies, states, devices and interfaces ask for,
    /// with commas between them. The text is empty if there are none, and for those who may not change policies.
    Rules,
}

impl Question {
    /// Every question.
    pub const ALL: [Question; 7] = [
        Question::Stat,
        Question::Status,
        Question::ExemptMark,
        Question::Ports,
        Question::Rules,
        Question::Interface,
        Question::Stream,
    ];

    /// The type of the message, of the question as of its answer.
    #[must_use]
    pub fn kind(self) -> u16 {
        match self {
            Question::Stat => 0xff00,
            Question::Status => 0xff01,
            Question::ExemptMark => 0xff02,
            Question::Ports => 0xff03,
            Question::Rules => 0xff04,
            Question::Interface => 0xff05,
            Question::Stream => 0xff06,
        }
    }

    /// The text of an answer; none where `datagram` does not answer this question.
    #[must_use]
    pub fn text(self, datagram: &[u8]) -> Option<&str> {
        let message = Messages::new(datagram).next().filter(|m| m.header.nlmsg_type == self.kind())?;
        str::from_utf8(&message.bytes[NLMSG_HDRLEN..]).ok()
    }
}

/// The properties of an xfrm interface that a program has made, beside its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interface {
    /// The interface id of its policies and states, not 0.
    pub if_id: u32,
    /// The index of the device that it is said to be on; 0 if none.
    pub link: u32,
    /// The cookie of the network namespace that it was made in, whose policies and states it has wherever it is moved; 0 in a
    /// request, and in an alias of an older version.
    pub home: u64,
}

/// The beginning of the aliases of xfrm interfaces (`ip link show`), by which those of an earlier daemon are recognized.
pub const INTERFACE_ALIAS: &str = "sealane: an xfrm interface";

impl Interface {
    /// The alias of the device, which tells launchers and the next daemon what it is.
    #[must_use]
    pub fn alias(self) -> String {
        let Interface { if_id, link, home } = self;
        format!("{INTERFACE_ALIAS} if_id {if_id} link {link} home {home}")
    }

    /// The interface whose device has this alias.
    #[must_use]
    pub fn of_alias(alias: &str) -> Option<Self> {
        let (if_id, link) = alias.strip_prefix(INTERFACE_ALIAS)?.strip_prefix(" if_id ")?.split_once(" link ")?;
        let (link, home) = link.split_once(" home ").unwrap_or((link, "0"));
        let if_id = if_id.parse().ok().filter(|id| *id != 0)?;
        Some(Interface { if_id, link: link.parse().ok()?, home: home.parse().ok()? })
    }

    /// Whether its policies and states are those of the network namespace with this cookie, in which it is or was made.
    #[must_use]
    pub fn is_of(self, netns: u64) -> bool {
        self.home == 0 || self.home == netns
    }
}

/// The words of [`Question::Interface`].
#[must_use]
pub fn interface_request(name: &str, interface: Interface) -> String {
    format!("{} {} {name}", interface.if_id, interface.link)
}

/// The interface that is asked for, and its name.
#[must_use]
pub fn read_interface_request(words: &str) -> Option<(&str, Interface)> {
    let mut words = words.splitn(3, ' ');
    let if_id = words.next()?.parse().ok().filter(|id| *id != 0)?;
    let link = words.next()?.parse().ok()?;
    Some((words.next().filter(|name| !name.is_empty())?, Interface { if_id, link, home: 0 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_read_as_it_was_written() {
        let interface = Interface { if_id: u32::MAX, link: 7, home: 0 };
        assert_eq!(Interface::of_alias(&interface.alias()), Some(interface));
        let moved = Interface { home: u64::MAX, ..interface };
        assert_eq!(Interface::of_alias(&moved.alias()), Some(moved));
        assert!(interface.is_of(5) && moved.is_of(u64::MAX) && !moved.is_of(5));
        assert_eq!(Interface::of_alias(&format!("{INTERFACE_ALIAS} if_id {} link 7", u32::MAX)), Some(interface));
        assert_eq!(read_interface_request(&interface_request("ipsec0", interface)), Some(("ipsec0", interface)));
        for alias in ["", INTERFACE_ALIAS, "sealane: an xfrm interface if_id 0 link 1", "mine if_id 1 link 1"] {
            assert_eq!(Interface::of_alias(alias), None, "{alias}");
        }
        for words in ["", "1 2", "1 2 ", "0 2 a", "a 2 a", "4294967296 0 a"] {
            assert_eq!(read_interface_request(words), None, "{words}");
        }
    }
}
