//! Changes of our tables by others.

use crate::table::Name;
use sealane_abi::netlink as nl;
use sealane_sys::netlink::Socket;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Notices when somebody else changes a table of our name.
#[derive(Debug)]
pub struct Watch {
    socket: Socket,
    tables: &'static [Name<'static>],
    ours: u32,
}

impl Watch {
    /// Watches tables of the calling thread's namespace. `ours` is the port by which we change them ourselves.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn over(tables: &'static [Name<'static>], ours: u32) -> io::Result<Self> {
        let socket = Socket::open(libc::NETLINK_NETFILTER)?;
        socket.join(libc::NFNLGRP_NFTABLES as u32)?;
        Ok(Watch { socket, tables, ours })
    }

    /// Whether anything has changed since the last call. Does not wait.
    pub fn changed(&mut self) -> bool {
        let (ours, tables, mut changed) = (self.ours, self.tables, false);
        let read = self.socket.receive(|message| {
            // Attribute 1 is the table's name in all messages about tables, chains, rules, sets and elements. In
            // messages about generations it is a number. The family is the first byte of `struct nfgenmsg`.
            let number = message.payload.first();
            let attributes = nl::Attrs::new(message.payload.get(4..).unwrap_or_default());
            let is_it = |name: &[u8], table: &Name<'_>| {
                number == Some(&table.family.number()) && name.strip_suffix(&[0]) == Some(table.name.as_bytes())
            };
            let is_ours = |name: &[u8]| tables.iter().any(|table| is_it(name, table));
            let named = attributes.filter(|a| a.type_ == 1).any(|a| is_ours(a.payload));
            changed |= named && message.header.nlmsg_pid != ours;
        });
        // Lost messages may have been about our table.
        changed | read.is_err()
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
