//! Remains of a launcher that died: rules that drop all protected traffic, and connections whose keys are lost.
//!
//! A successor takes over the rules with all their peers and ends those connections. The new engine knows no keys for
//! them, so it would let their segments leave unsigned.

use super::start::{DYING, FIRST_QUEUE};
use super::state;
use sealane_abi::tcp::State;
use sealane_net_ao::mkt::Prefix;
use sealane_rules::ao::left;
use sealane_sys::runtime;
use sealane_sys::sock_diag::{Entry, SockDiag};
use std::io;
use std::time::{Duration, Instant};
use tracing::warn;

/// Takes over the remains of a predecessor in the calling thread's namespace: ends its connections while the rules drop
/// their traffic, and returns the peers that it protected. `inode` is the namespace's.
///
/// # Errors
/// `AddrInUse` when the owner of the rules is alive, or is a daemon that may come back; otherwise the kernel's.
pub(super) fn take_over(inode: u64) -> io::Result<Vec<Prefix>> {
    let peers: Vec<Prefix> = left()?.into_iter().map(|(addr, len)| Prefix { addr, len }).collect();
    if peers.is_empty() {
        return Ok(peers);
    }
    let refuse = |why| Err(io::Error::new(io::ErrorKind::AddrInUse, why));
    let began = Instant::now();
    while somebody_listens() {
        if began.elapsed() > DYING {
            return refuse("another sealane serves TCP-AO in this network namespace");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    // A daemon's connections go on when it is back, and its rules outlive it on purpose.
    if runtime::folder().is_some_and(|folder| state::path(&folder, inode).exists()) {
        return refuse("the rules of this network namespace are the daemon's: start it, or `sealane tcp-ao clear`");
    }
    let ended = end_connections(|e| peers.iter().any(|p| p.contains(e.remote.ip())))?;
    if ended > 0 {
        warn!(connections = ended, "TCP-AO: ended {ended} connections that a launcher left behind when it died");
    }
    Ok(peers)
}

/// Whether a process reads our queue.
fn somebody_listens() -> bool {
    let queues = std::fs::read_to_string("/proc/thread-self/net/netfilter/nfnetlink_queue").unwrap_or_default();
    let number = FIRST_QUEUE.to_string();
    queues.lines().any(|line| line.split_whitespace().next() == Some(&number))
}

/// Ends the connections of the calling thread's namespace that match, and returns the number of those that could still send
/// data. What is in TIME_WAIT would answer unsigned when its rules are gone.
///
/// # Errors
/// The kernel's: connections may be left, but only those that it has not ended. That it cannot end those in TIME_WAIT is none:
/// they send no data.
pub(super) fn end_connections(which: impl Fn(&Entry) -> bool) -> io::Result<usize> {
    let mut diag = SockDiag::open()?;
    let mut list: Vec<Entry> = Vec::new();
    diag.connections(|e| {
        if which(&e) {
            list.push(e);
        }
    })?;
    let is_over = |entry: &Entry| entry.state == State::TimeWait;
    let mut failed = None;
    for entry in &list {
        match diag.destroy(entry) {
            // It has ended meanwhile.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) if is_over(entry) && e.kind() == io::ErrorKind::Unsupported => {}
            Err(e) => failed = Some(e),
            Ok(()) => {}
        }
    }
    failed.map_or(Ok(list.iter().filter(|entry| !is_over(entry)).count()), Err)
}
