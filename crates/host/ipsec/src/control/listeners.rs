//! Facts that the kernel of a namespace knows: settings that key managers change, and whether a program listens to
//! events.

use sealane_engine_xfrm::Xfrm;
use sealane_ipsec_data::Errand;
use sealane_sys::netns::Netns;
use sealane_sys::transient;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The interval at which listeners are looked for.
pub(crate) const LISTENERS: Duration = Duration::from_secs(1);
/// The pause after a look, in the time that it took.
const PAUSE: u32 = 19;

/// The kernel's settings of XFRM (`net.core.xfrm_*`); `None` for each that it does not have.
#[derive(Debug)]
pub(crate) struct Sysctls {
    acq_expires: Option<File>,
    aevent_rseqth: Option<File>,
    aevent_etime: Option<File>,
}

impl Sysctls {
    /// Opens the files of the calling thread's namespace.
    pub(crate) fn open() -> Self {
        let open = |name: &str| File::open(format!("/proc/sys/net/core/xfrm_{name}")).ok();
        Sysctls {
            acq_expires: open("acq_expires"),
            aevent_rseqth: open("aevent_rseqth"),
            aevent_etime: open("aevent_etime"),
        }
    }

    /// Reads their values.
    pub(crate) fn read(&self) -> Settings {
        Settings {
            acquire_s: value(&self.acq_expires),
            aevents: value(&self.aevent_rseqth).zip(value(&self.aevent_etime)),
        }
    }
}

/// Values of the settings that the kernel has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    acquire_s: Option<u32>,
    /// The threshold in packets, and the time in tenths of a second.
    aevents: Option<(u32, u32)>,
}

impl Settings {
    /// Hands them to the engine, before it serves a request.
    pub(crate) fn apply(self, engine: &mut Xfrm) {
        if let Some(seconds) = self.acquire_s {
            engine.set_acquire_s(seconds);
        }
        if let Some((thresh, tenths)) = self.aevents {
            engine.set_aevent_defaults(thresh, tenths);
        }
    }
}

fn value(file: &Option<File>) -> Option<u32> {
    let mut text = [0; 16];
    let len = file.as_ref()?.read_at(&mut text, 0).ok()?;
    core::str::from_utf8(text.get(..len)?).ok()?.trim().parse().ok()
}

/// The multicast groups of NETLINK_USERSOCK that have listeners in a namespace, which only a table in /proc tells.
///
/// It has a line for each socket of any program, so that a thread of its own reads it: requests do not wait for that.
#[derive(Debug)]
pub(crate) struct Listeners {
    shared: Arc<Shared>,
    has_reader: bool,
    asked: Instant,
}

#[derive(Debug)]
struct Shared {
    netns: Netns,
    groups: AtomicU32,
    reading: Errand,
}

impl Shared {
    fn read(&self) {
        let mut text = String::new();
        let read = self.netns.run(|| File::open("/proc/thread-self/net/netlink")?.read_to_string(&mut text));
        self.groups.store(read.map_or(0, |_| groups(&text)), Ordering::Release);
    }
}

impl Listeners {
    /// Looks for the first time.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn new(netns: &Netns) -> io::Result<Self> {
        let (groups, reading) = (AtomicU32::new(0), Errand::default());
        let shared = Arc::new(Shared { netns: netns.try_clone()?, groups, reading });
        shared.read();
        let of_thread = shared.clone();
        let read = move || of_thread.reading.work(|took| took * PAUSE, || of_thread.read());
        let spawned = std::thread::Builder::new().name("sealane-look".into()).spawn(read);
        let has_reader = transient::counted(spawned).is_ok();
        Ok(Listeners { shared, has_reader, asked: Instant::now() })
    }

    /// Whether a program listens to a group, or did a while ago: up to [`LISTENERS`], or longer where there are so many
    /// sockets that the table takes long.
    pub(crate) fn has_listeners(&mut self, group: u32) -> bool {
        if self.asked.elapsed() >= LISTENERS {
            self.asked = Instant::now();
            if self.has_reader { self.shared.reading.ask() } else { self.shared.read() }
        }
        self.shared.groups.load(Ordering::Acquire) >> (group - 1) & 1 != 0
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        self.shared.reading.end();
    }
}

/// Reads the groups of all sockets of NETLINK_USERSOCK from `/proc/net/netlink`: one socket a line, with the protocol
/// as second word and the first 32 groups in hexadecimal as fourth.
fn groups(table: &str) -> u32 {
    let of = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let ours = words.next()?.parse() == Ok(libc::NETLINK_USERSOCK);
        let groups = u32::from_str_radix(words.nth(1)?, 16).ok()?;
        ours.then_some(groups)
    };
    table.lines().filter_map(of).fold(0, |all, groups| all | groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_a_table() {
        let table = "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n\
                     00000000ba5f1ca2 0   5183       00000550 0        0        0     2        0        1\n\
                     0000000024c3d5ea 2   1476788225 00000000 0        0        0     2        0        2\n\
                     0000000024c3d5eb 2   7000       00000011 0        0        0     2        0        3\n\
                     0000000024c3d5eb 2   7001       ffffffff 0        0        0     2        0        3\n";
        assert_eq!(groups(table), u32::MAX);
        assert_eq!(groups(&table.lines().take(4).collect::<Vec<_>>().join("\n")), 0x11);
        assert_eq!(groups("what"), 0);
    }
}
