//! Requests about xfrm interfaces (`rtnl_newlink` in net/core/rtnetlink.c, `xfrmi_newlink` and `xfrmi_changelink` in
//! net/xfrm/xfrm_interface_core.c).

use super::call::IFINFOMSG;
use super::shown::whole_type;
use crate::serve::server::Verdict;
use crate::serve::supervisor::CallContext;
use crate::serve::xfrm::link::{ask_with_rights, is_served, may_administer, within};
use sealane_abi::Errno;
use sealane_abi::if_link::{IFLA_TARGET_NETNSID, IFLA_XFRM_COLLECT_METADATA, IFLA_XFRM_IF_ID, IFLA_XFRM_LINK};
use sealane_abi::netlink::answer::message;
use sealane_abi::netlink::{
    Attr, Attrs, Message, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, push_attr,
};
use sealane_abi::sealane::{Interface, Question, interface_request};
use sealane_packets::tun::Tun;
use sealane_sys::link;
use sealane_sys::netns::Netns;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The kind of devices that the daemon makes.
const KIND: &[u8] = b"xfrm";
/// The most devices whose names the kernel chose that are looked for (`dev_alloc_name`).
const MOST_NAMES: u32 = 32 << 10;

/// The reason why a request fails.
pub(super) struct Refused {
    pub(super) errno: Errno,
    pub(super) text: Option<&'static str>,
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Self {
        Refused { errno, text: None }
    }
}

impl From<io::Error> for Refused {
    fn from(e: io::Error) -> Self {
        sealane_sys::netlink::errno(&e).and_then(Errno::new).unwrap_or(Errno::EIO).into()
    }
}

impl Refused {
    fn text(errno: Errno, text: &'static str) -> Self {
        Refused { errno, text: Some(text) }
    }
}

/// The data of an xfrm interface in a request (`struct xfrm_if_parms`).
#[derive(Default)]
struct Data {
    link: u32,
    if_id: u32,
    collect_md: bool,
}

impl Data {
    /// The parser's checks (`xfrmi_policy`).
    fn read(bytes: &[u8]) -> Result<Self, Refused> {
        let refused = |errno| Refused::text(errno, "Attribute failed policy validation");
        let number = |a: &Attr<'_>| number(a.payload).ok_or(refused(Errno::ERANGE));
        let mut data = Data::default();
        for attribute in Attrs::new(bytes) {
            match attribute.type_ {
                IFLA_XFRM_LINK => data.link = number(&attribute)?,
                IFLA_XFRM_IF_ID => data.if_id = number(&attribute)?,
                IFLA_XFRM_COLLECT_METADATA if !attribute.payload.is_empty() => return Err(refused(Errno::ERANGE)),
                IFLA_XFRM_COLLECT_METADATA => data.collect_md = true,
                _ => {}
            }
        }
        Ok(data)
    }

    fn interface(&self) -> Interface {
        Interface { if_id: self.if_id, link: self.link, home: 0 }
    }

    /// The checks of `xfrmi_newlink`.
    fn check_new(&self) -> Result<(), Refused> {
        if self.collect_md && (self.link != 0 || self.if_id != 0) {
            return Err(Refused::text(Errno::EINVAL, "link and if_id must be zero"));
        }
        if self.collect_md {
            return Err(Refused::text(Errno::EOPNOTSUPP, "sealane: interfaces for every interface id are not served"));
        }
        self.check_id()
    }

    /// The checks of `xfrmi_changelink`.
    fn check_change(&self, now: Interface) -> Result<(), Refused> {
        self.check_id()?;
        if self.collect_md {
            return Err(Refused::text(Errno::EINVAL, "collect_md can't be changed"));
        }
        if self.link == now.link { Ok(()) } else { Err(Errno::EINVAL.into()) }
    }

    fn check_id(&self) -> Result<(), Refused> {
        if self.if_id == 0 { Err(Refused::text(Errno::EINVAL, "if_id must be non zero")) } else { Ok(()) }
    }
}

/// A request that may be about a device of ours.
pub(super) struct Asked<'a> {
    flags: u16,
    /// The device, by index and by name: 0 and `None` if it is not named so.
    index: u32,
    name: Option<&'a str>,
    /// Another name of the device, by which it is found if it is not named otherwise (`rtnl_dev_get`).
    other_name: Option<&'a str>,
    /// The flags of the device, and the mask of those that change.
    change: [u32; 2],
    /// Whether it is about a device of kind `xfrm`; else it is a change of an alias.
    is_xfrm: bool,
    /// The data of the kind.
    data: Option<&'a [u8]>,
    /// The namespace in which the device is to be, if the request names one.
    place: Option<Place>,
    /// Whether a namespace is named by its id, or another one than the socket's whose policies the device is to have.
    is_by_id: bool,
    /// All other attributes, with their types.
    others: Vec<(u16, &'a [u8])>,
}

/// A network namespace, as a program names it.
#[derive(Clone, Copy)]
enum Place {
    /// The namespace of a process.
    Process(i32),
    /// The namespace of a descriptor.
    Descriptor(u32),
}

/// A device that is there.
struct Device {
    index: u32,
    name: String,
    /// Its properties, if it is one of ours.
    interface: Option<Interface>,
}

impl<'a> Asked<'a> {
    /// The request of a message, unless only the kernel is concerned.
    pub(super) fn read(m: &Message<'a>) -> Option<Self> {
        // The kernel does nothing about what is no request.
        let is_request = m.header.nlmsg_flags & NLM_F_REQUEST != 0;
        if !is_request || !matches!(m.header.nlmsg_type, libc::RTM_NEWLINK | libc::RTM_SETLINK) {
            return None;
        }
        let (fixed, attributes) = m.payload.split_at_checked(IFINFOMSG)?;
        let word = |at: usize| u32::from_ne_bytes(*fixed[at..].first_chunk().expect("inside the structure"));
        let mut asked = Asked {
            flags: m.header.nlmsg_flags,
            index: word(4),
            name: None,
            other_name: None,
            change: [word(8), word(12)],
            is_xfrm: false,
            data: None,
            place: None,
            is_by_id: false,
            others: Vec::new(),
        };
        let mut has_alias = false;
        for attribute in Attrs::new(attributes) {
            match attribute.type_ {
                libc::IFLA_IFNAME => asked.name = Some(text(attribute.payload)?),
                libc::IFLA_ALT_IFNAME => asked.other_name = Some(text(attribute.payload)?),
                libc::IFLA_LINKINFO => (asked.is_xfrm, asked.data) = kind(attribute.payload),
                libc::IFLA_NET_NS_PID => asked.place = Some(Place::Process(number(attribute.payload)? as i32)),
                libc::IFLA_NET_NS_FD => asked.place = Some(Place::Descriptor(number(attribute.payload)?)),
                libc::IFLA_LINK_NETNSID | IFLA_TARGET_NETNSID => asked.is_by_id = true,
                type_ => {
                    has_alias |= type_ == libc::IFLA_IFALIAS;
                    asked.others.push((whole_type(&attribute), attribute.payload));
                }
            }
        }
        asked.is_xfrm &= m.header.nlmsg_type == libc::RTM_NEWLINK;
        asked.others.retain(|(type_, _)| !asked.is_xfrm || *type_ != libc::IFLA_IFALIAS);
        (asked.is_xfrm || has_alias).then_some(asked)
    }

    /// Whether it is about a device of ours, in a namespace, and not for the kernel to do.
    pub(super) fn concerns_ours(&self, netns: &Netns) -> bool {
        let device = || within(netns, || Ok(self.device())).ok().flatten();
        self.is_xfrm || device().is_some_and(|device| device.interface.is_some())
    }

    /// Does what is asked by one that [`Self::concerns_ours`].
    ///
    /// # Errors
    /// The end of the call, which has done nothing.
    pub(super) fn carry_out(&self, call: &CallContext<'_>, netns: &Netns) -> Result<Result<(), Refused>, Verdict> {
        if !self.is_xfrm {
            let text = "sealane: the alias of an xfrm interface says what it is";
            return Ok(Err(Refused::text(Errno::EOPNOTSUPP, text)));
        }
        call.check_waiting()?;
        match self.new_link(call, netns) {
            Ok(()) => Ok(Ok(())),
            Err(Ended::Refused(refused)) => Ok(Err(refused)),
            Err(Ended::Call(verdict)) => Err(verdict),
        }
    }

    /// The device that is named, in the calling thread's namespace.
    fn device(&self) -> Option<Device> {
        let index = match self.index {
            0 => link::index(self.name.or(self.other_name)?).ok()?,
            index => index,
        };
        // Not one of its other names, by which the daemon does not know it.
        let name = link::name(index).ok()?;
        let interface = link::alias(&name).ok()?.as_deref().and_then(Interface::of_alias);
        Some(Device { index, name, interface })
    }

    /// A request about a device of kind `xfrm`, in the order of `__rtnl_newlink`.
    fn new_link(&self, call: &CallContext<'_>, netns: &Netns) -> Result<(), Ended> {
        let unserved = |text| Err(Refused::text(Errno::EOPNOTSUPP, text).into());
        if self.is_by_id {
            return unserved("sealane: name the namespace by a process or a descriptor");
        }
        let other = self.place.map(|place| place.open(call)).transpose()?;
        let other = other.filter(|other| !is_same(other, netns));
        let data = self.data.map(Data::read).transpose()?;
        // What is to be new must not be there; what is changed is here.
        let is_new = self.flags & NLM_F_CREATE != 0 && self.flags & NLM_F_EXCL != 0;
        let there = other.as_ref().unwrap_or(netns);
        if self.flags & NLM_F_CREATE != 0
            && call.is_made_again
            && let Some(index) = self.made_before(there, data.as_ref())
        {
            return Ok(self.set_others(there, None, index)?);
        }
        let at = if is_new { there } else { netns };
        let device = within(at, || Ok(self.device())).map_err(Refused::from)?;
        match device {
            Some(_) if self.flags & NLM_F_EXCL != 0 => Err(Refused::from(Errno::EEXIST).into()),
            Some(_) if self.flags & NLM_F_REPLACE != 0 => Err(Refused::from(Errno::EOPNOTSUPP).into()),
            Some(device) => self.change(call, netns, other.as_ref(), &device, data),
            None if self.flags & NLM_F_CREATE == 0 => Err(Refused::from(Errno::ENODEV).into()),
            None if self.index != 0 => unserved("sealane: the kernel chooses the index of an xfrm interface"),
            None => self.make(call, there, &data.unwrap_or_default()),
        }
    }

    /// The device that this request asks for, if it is there: the launcher before, which was killed while it carried the request
    /// out, may have had it made. Had it been there before, the answer would have been EEXIST: nobody can tell any more.
    fn made_before(&self, there: &Netns, data: Option<&Data>) -> Option<u32> {
        let (data, home) = (data?, there.cookie().ok()?);
        let is_it = |name: &str, made: Interface| {
            let is_named = self.name.is_none_or(|asked| asked == name);
            is_named && made.is_of(home) && (made.if_id, made.link) == (data.if_id, data.link)
        };
        let found = within(there, || {
            let made = Tun::made()?;
            made.iter().find(|(name, made)| is_it(name, *made)).map(|(name, _)| link::index(name)).transpose()
        });
        found.ok().flatten()
    }

    fn change(
        &self,
        call: &CallContext<'_>,
        netns: &Netns,
        other: Option<&Netns>,
        device: &Device,
        data: Option<Data>,
    ) -> Result<(), Ended> {
        if let Some(data) = data {
            let now = device.interface.ok_or(Refused::from(Errno::EOPNOTSUPP))?;
            if !now.is_of(netns.cookie().map_err(Refused::from)?) {
                let text = "sealane: an xfrm interface is changed in the namespace that it was made in";
                return Err(Refused::text(Errno::EOPNOTSUPP, text).into());
            }
            data.check_change(now)?;
            have_made(call, netns, &device.name, data.interface())?;
        }
        Ok(self.set_others(netns, other, device.index)?)
    }

    /// Makes a device in a namespace, whose policies and states it has (`xfrmi_newlink`).
    fn make(&self, call: &CallContext<'_>, netns: &Netns, data: &Data) -> Result<(), Ended> {
        data.check_new()?;
        let name = self.name.map_or_else(|| within(netns, free_name), |name| Ok(name.to_owned()));
        let name = name.map_err(Refused::from)?;
        if !is_valid_name(&name) {
            return Err(Refused::from(Errno::EINVAL).into());
        }
        have_made(call, netns, &name, data.interface())?;
        let index = within(netns, || link::index(&name)).map_err(Refused::from)?;
        Ok(self.set_others(netns, None, index).inspect_err(|_| {
            // As if it had never been there.
            let _ = within(netns, || link::delete(index));
        })?)
    }

    /// Has the kernel do what else is asked about a device, and move it to the namespace `other`.
    fn set_others(&self, netns: &Netns, other: Option<&Netns>, index: u32) -> Result<(), Refused> {
        let place = other.map(|other| other.as_fd().as_raw_fd().to_ne_bytes());
        let place = place.as_ref().map(|fd| (libc::IFLA_NET_NS_FD, &fd[..]));
        // A device that is named by its index gets the name.
        let name = self.name.filter(|_| self.index != 0).map(|name| [name.as_bytes(), &[0]].concat());
        let name = name.as_ref().map(|name| (libc::IFLA_IFNAME, &name[..]));
        let all: Vec<_> = self.others.iter().copied().chain(name).chain(place).collect();
        Ok(within(netns, || link::change(index, self.change, &all))?)
    }
}

impl Place {
    /// Opens it, if the program may administer it (`rtnl_link_get_net_capable`).
    fn open(self, call: &CallContext<'_>) -> Result<Netns, Refused> {
        let netns = match self {
            Place::Process(pid) if pid <= 0 => return Err(Errno::ESRCH.into()),
            Place::Process(pid) => {
                let folder = call.peer.proc_folder(pid).map_err(|_| Errno::ESRCH)?;
                folder.netns().map_err(|_| Errno::ESRCH)?
            }
            Place::Descriptor(fd) => Netns::from(call.peer.borrow(fd).map_err(|_| Errno::EBADF)?),
        };
        if !netns.is_one() {
            return Err(Errno::EINVAL.into());
        }
        if may_administer(call.peer, &netns) { Ok(netns) } else { Err(Errno::EPERM.into()) }
    }
}

/// Whether both are the same namespace.
fn is_same(one: &Netns, other: &Netns) -> bool {
    one.id().and_then(|id| Ok(id == other.id()?)).unwrap_or(false)
}

/// The end of a request.
enum Ended {
    Refused(Refused),
    Call(Verdict),
}

impl From<Refused> for Ended {
    fn from(refused: Refused) -> Self {
        Ended::Refused(refused)
    }
}

/// A request for all devices of kind `xfrm`, without this condition; `None` for other requests. To a kernel that knows the
/// kind ours are of another one, and it would leave them out. Programs look at the kinds of what they get, because one that
/// does not know the kind gives all devices (`rtnl_dump_ifinfo`).
pub(super) fn of_all_kinds(m: &Message<'_>) -> Option<Vec<u8>> {
    // One of the two flags is enough (`rtnetlink_rcv_msg`).
    if m.header.nlmsg_type != libc::RTM_GETLINK || m.header.nlmsg_flags & NLM_F_DUMP == 0 {
        return None;
    }
    let (fixed, attributes) = m.payload.split_at_checked(IFINFOMSG)?;
    let is_it = |a: &Attr<'_>| a.type_ == libc::IFLA_LINKINFO && kind(a.payload).0;
    if !Attrs::new(attributes).any(|a| is_it(&a)) {
        return None;
    }
    let mut payload = fixed.to_vec();
    for attribute in Attrs::new(attributes).filter(|a| !is_it(a)) {
        push_attr(&mut payload, whole_type(&attribute), attribute.payload);
    }
    Some(message(libc::RTM_GETLINK, m.header.nlmsg_flags, m.header.nlmsg_seq, m.header.nlmsg_pid, &payload))
}

/// Has the daemon make or change an interface.
fn have_made(call: &CallContext<'_>, netns: &Netns, name: &str, interface: Interface) -> Result<(), Ended> {
    let no_answer = || Refused::text(Errno::ECONNREFUSED, "sealane: no daemon answers");
    // A daemon that is stopped does not say that it is there.
    let may_block = call.may_block().map_err(|_| no_answer())?;
    if !is_served(may_block, netns).unwrap_or(false) {
        let text = "sealane: no daemon serves IPsec in that network namespace";
        return Err(Refused::text(Errno::EOPNOTSUPP, text).into());
    }
    let words = interface_request(name, interface);
    let answer = match ask_with_rights(call, netns, Question::Interface, &words) {
        Err(Verdict::Fail(libc::EINTR)) | Err(Verdict::Answered | Verdict::Pass) => {
            return Err(Ended::Call(Verdict::Fail(libc::EINTR)));
        }
        Err(Verdict::Fail(_)) => return Err(no_answer().into()),
        Ok(answer) => answer,
    };
    match answer.as_str() {
        "" => Ok(()),
        number => {
            let errno = number.parse().ok().and_then(Errno::new).unwrap_or(Errno::EIO);
            Err(Refused::from(errno).into())
        }
    }
}

/// A name for a device without one, in the calling thread's namespace.
fn free_name() -> io::Result<String> {
    let mut names = (0..MOST_NAMES).map(|n| format!("xfrm{n}"));
    names.find(|name| link::index(name).is_err()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENFILE))
}

/// Whether the kernel would take a name (`dev_valid_name`); one with `%` stands for several.
fn is_valid_name(name: &str) -> bool {
    let is_bad = |b: u8| matches!(b, b'/' | b':' | b'%' | 0xb) || b.is_ascii_whitespace();
    !name.is_empty() && name.len() < libc::IFNAMSIZ && !matches!(name, "." | "..") && !name.bytes().any(is_bad)
}

/// A number in the machine's byte order.
fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// A text up to its terminating zero.
fn text(bytes: &[u8]) -> Option<&str> {
    str::from_utf8(bytes.split(|b| *b == 0).next()?).ok()
}

/// Whether the kind of a device is `xfrm`, and its data.
fn kind(info: &[u8]) -> (bool, Option<&[u8]>) {
    let of = |type_| Attrs::new(info).find(|a| a.type_ == type_).map(|a| a.payload);
    let is_xfrm = of(libc::IFLA_INFO_KIND).and_then(|kind| kind.split(|b| *b == 0).next()) == Some(KIND);
    (is_xfrm, of(libc::IFLA_INFO_DATA))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_abi::netlink::{Messages, NLA_F_NESTED};

    fn request(type_: u16, kind: &[u8], alias: bool) -> Vec<u8> {
        let (mut payload, mut info) = (vec![0; IFINFOMSG], Vec::new());
        push_attr(&mut payload, libc::IFLA_IFNAME, b"ipsec0\0");
        push_attr(&mut info, libc::IFLA_INFO_KIND, kind);
        push_attr(&mut payload, libc::IFLA_LINKINFO | NLA_F_NESTED, &info);
        if alias {
            push_attr(&mut payload, libc::IFLA_IFALIAS, b"a");
        }
        message(type_, NLM_F_REQUEST | NLM_F_CREATE, 1, 0, &payload)
    }

    #[test]
    fn only_what_may_be_ours_is_looked_at() {
        for (type_, kind, alias, is_asked) in [
            (libc::RTM_NEWLINK, &b"xfrm\0"[..], false, true),
            (libc::RTM_NEWLINK, b"xfrm", false, true),
            (libc::RTM_NEWLINK, b"xfrmi\0", false, false),
            (libc::RTM_NEWLINK, b"dummy\0", false, false),
            (libc::RTM_SETLINK, b"xfrm\0", false, false),
            (libc::RTM_SETLINK, b"dummy\0", true, true),
            (libc::RTM_GETLINK, b"xfrm\0", true, false),
        ] {
            let bytes = request(type_, kind, alias);
            let message = Messages::new(&bytes).next().expect("a message");
            assert_eq!(Asked::read(&message).is_some(), is_asked, "{type_} {kind:?} {alias}");
        }
    }

    #[test]
    fn all_devices_are_asked_for_in_place_of_one_kind() {
        let dump = |flags, kind: Option<&[u8]>| {
            let (mut payload, mut info) = (vec![7; IFINFOMSG], Vec::new());
            if let Some(kind) = kind {
                push_attr(&mut info, libc::IFLA_INFO_KIND, kind);
                push_attr(&mut payload, libc::IFLA_LINKINFO, &info);
            }
            push_attr(&mut payload, libc::IFLA_EXT_MASK, &[1, 0, 0, 0]);
            message(libc::RTM_GETLINK, flags, 3, 4, &payload)
        };
        let asked = |bytes: &[u8]| of_all_kinds(&Messages::new(bytes).next().expect("a message"));
        let all = NLM_F_REQUEST | NLM_F_DUMP;
        let root = NLM_F_REQUEST | libc::NLM_F_ROOT as u16;
        for (flags, kind) in [(all, &b"xfrm\0"[..]), (all, b"xfrm"), (root, b"xfrm")] {
            assert_eq!(asked(&dump(flags, Some(kind))), Some(dump(flags, None)));
        }
        assert_eq!(asked(&dump(NLM_F_REQUEST, Some(b"xfrm\0"))), None);
        assert_eq!(asked(&dump(all, Some(b"vlan\0"))), None);
        assert_eq!(asked(&dump(all, None)), None);
    }

    #[test]
    fn data_is_checked_as_by_the_kernel() {
        let data = |list: &[(u16, &[u8])]| {
            let mut bytes = Vec::new();
            list.iter().for_each(|(type_, payload)| push_attr(&mut bytes, *type_, payload));
            bytes
        };
        let (one, two) = (1u32.to_ne_bytes(), 2u32.to_ne_bytes());
        let new = |list: &[(u16, &[u8])]| {
            let outcome = Data::read(&data(list)).and_then(|data| data.check_new());
            outcome.map_err(|refused| (refused.errno, refused.text.unwrap_or_default())).err()
        };
        let (id, on, all) = (IFLA_XFRM_IF_ID, IFLA_XFRM_LINK, IFLA_XFRM_COLLECT_METADATA);
        assert_eq!(new(&[(id, &one), (9, &two)]), None);
        assert_eq!(new(&[(on, &one)]), Some((Errno::EINVAL, "if_id must be non zero")));
        assert_eq!(new(&[(id, &one), (all, &[])]), Some((Errno::EINVAL, "link and if_id must be zero")));
        assert_eq!(new(&[(id, &[1])]).map(|e| e.0), Some(Errno::ERANGE));
        let change = |list: &[(u16, &[u8])]| {
            let now = Interface { if_id: 1, link: 1, home: 0 };
            Data::read(&data(list)).and_then(|data| data.check_change(now)).map_err(|refused| refused.errno).err()
        };
        assert_eq!(change(&[(id, &two), (on, &one)]), None);
        assert_eq!(change(&[(id, &two), (on, &two)]), Some(Errno::EINVAL));
    }

    #[test]
    fn a_device_that_a_killed_launcher_had_made_is_found() {
        let Some(netns) = sealane_sys::testing::namespace("launch::links::made_before") else { return };
        let home = netns.cookie().expect("a cookie");
        let made = Interface { if_id: 42, link: 1, home };
        let tun = netns.run(|| Tun::open_made("ipsec0", made)).expect("a device");
        let bytes = request(libc::RTM_NEWLINK, b"xfrm\0", false);
        let message = Messages::new(&bytes).next().expect("a message");
        let mut asked = Asked::read(&message).expect("it is for us");
        let found =
            |asked: &Asked<'_>, if_id, link| asked.made_before(&netns, Some(&Data { link, if_id, collect_md: false }));
        assert_eq!(found(&asked, 42, 1), Some(tun.index()));
        assert_eq!((found(&asked, 43, 1), found(&asked, 42, 2)), (None, None));
        assert_eq!(asked.made_before(&netns, None), None);
        asked.name = Some("other");
        assert_eq!(found(&asked, 42, 1), None);
        // The kernel was to choose the name.
        asked.name = None;
        assert_eq!(found(&asked, 42, 1), Some(tun.index()));
        tun.let_go().expect("it goes");
    }

    #[test]
    fn names_that_the_kernel_would_not_take() {
        for name in ["", ".", "..", "a b", "a/b", "a:b", "a\tb", "0123456789abcdef", "a%d"] {
            assert!(!is_valid_name(name), "{name}");
        }
        assert!(is_valid_name("0123456789abcde"));
    }
}
