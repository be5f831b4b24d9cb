//! Requests to the kernel's own NETLINK_XFRM.

use parking_lot::Mutex;
use sealane_abi::Errno;
use sealane_abi::netlink::{NLM_F_ACK, NLM_F_REQUEST};
use sealane_abi::xfrm::{Attribute, Body, UserpolicyId, XfrmMessage};
use sealane_engine_xfrm::device::Refusal;
use sealane_sys::netlink::{Refusal as Refused, Socket};
use std::collections::BTreeSet;
use std::io;

/// The most texts of the kernel's refusals that are kept: it has about 150.
const MAX_TEXTS: usize = 512;
/// A socket of NETLINK_XFRM.
pub(super) struct KernelSocket {
    socket: Socket,
}

impl KernelSocket {
    /// Opens a socket in the calling thread's namespace.
    ///
    /// # Errors
    /// `EPROTONOSUPPORT` where the kernel has no IPsec.
    pub(super) fn open() -> io::Result<Self> {
        Ok(KernelSocket { socket: Socket::open(libc::NETLINK_XFRM)? })
    }

    /// Sends a request without an answer but the acknowledgement.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(super) fn request(&mut self, message: &XfrmMessage, flags: u16) -> Result<(), Refusal> {
        self.answer(message, flags | NLM_F_ACK).map(drop)
    }

    /// Sends a request that has one answer.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(super) fn answer(&mut self, message: &XfrmMessage, flags: u16) -> Result<Option<XfrmMessage>, Refusal> {
        let bytes = message.encode(NLM_F_REQUEST | flags, 0, 0);
        let mut found = None;
        let done = self.socket.exchange(&bytes, |m| found = XfrmMessage::decode(m).ok());
        // Keys may be in the answer.
        self.socket.wipe();
        done.map(|()| found).map_err(|e| refusal(&e))
    }
}

/// Keeps a text for the life of the process: there are few different ones.
fn leak_text(text: &str) -> Option<&'static str> {
    static TEXTS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut texts = TEXTS.lock();
    if let Some(known) = texts.get(text) {
        return Some(known);
    }
    if text.is_empty() || texts.len() >= MAX_TEXTS {
        return None;
    }
    let new: &'static str = Box::leak(text.to_owned().into_boxed_str());
    texts.insert(new);
    Some(new)
}

/// Converts the kernel's errno. Unknown numbers become EIO.
pub(super) fn errno(number: i32) -> Errno {
    Errno::new(number).unwrap_or(Errno::EIO)
}

fn refusal(e: &io::Error) -> Refusal {
    match e.get_ref().and_then(|e| e.downcast_ref::<Refused>()) {
        Some(said) => Refusal { errno: errno(said.errno), text: leak_text(&said.hint) },
        None => Refusal { errno: errno(e.raw_os_error().unwrap_or(libc::EIO)), text: None },
    }
}

/// The request that puts a policy into the kernel, which gives it a number and counts its use.
pub(super) fn put(message: &XfrmMessage) -> XfrmMessage {
    let mut message = message.clone();
    if let Body::NewPolicy(info) = &mut message.body {
        (info.index, info.curlft) = (0, sealane_abi::xfrm::LifetimeCur::default());
        // A policy that was left behind is replaced.
        message.body = Body::UpdPolicy(*info);
    }
    message
}

/// The request that removes such a policy.
pub(super) fn take(message: &XfrmMessage) -> Option<XfrmMessage> {
    let Body::UpdPolicy(info) = &message.body else { return None };
    let id = UserpolicyId { sel: info.sel, index: 0, dir: info.dir, ..UserpolicyId::default() };
    let named = |a: &&Attribute| matches!(a, Attribute::Mark(_) | Attribute::IfId(_));
    Some(XfrmMessage { body: Body::DelPolicy(id), attrs: message.attrs.iter().filter(named).cloned().collect() })
}
