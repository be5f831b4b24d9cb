//! Sequence numbers go on where they were, whoever adds a key again.

use super::packets::{asked, send};
use super::*;
use sealane_engine_xfrm::numbers::{FOR_GOOD, LeaseError, Leased, Numbers, Series};
use sealane_net_ipsec::drop::DropReason;
use sealane_net_ipsec::seq::Lease;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

const BLOCK: u64 = 8;

/// A disk that outlives what it is given to.
#[derive(Default)]
struct Disk {
    /// The last number that may have been used, and whether a state has the series.
    series: BTreeMap<[u8; 16], (u64, bool)>,
    full: bool,
    /// Whether nothing is written down for now.
    frozen: bool,
    /// Why no series is kept for good.
    refused: Option<LeaseError>,
    /// Renewals that nobody has been told of.
    asked: Vec<(Series, u64)>,
    /// The identities of all leases.
    leased: Vec<Vec<u8>>,
}

#[derive(Clone, Default)]
pub(super) struct Storage(Arc<Mutex<Disk>>);

impl Storage {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap()
    }

    /// From now on series that are to be kept for good get this error, or none.
    pub(super) fn refuse(&self, why: Option<LeaseError>) {
        self.disk().refused = why;
    }

    /// The daemon has died and is back.
    pub(super) fn boot(&self) -> Xfrm {
        self.disk().series.values_mut().for_each(|(_, live)| *live = false);
        xfrm_with(Some(Box::new(self.clone())))
    }
}

impl Numbers for Storage {
    fn check(&self, identity: &[u8]) -> Result<(), LeaseError> {
        self.disk().refused.filter(|_| identity[0] == FOR_GOOD).map_or(Ok(()), Err)
    }

    fn lease(&mut self, identity: &[u8], used: u64) -> Result<Leased, LeaseError> {
        let mut disk = self.disk();
        if disk.full {
            return Err(LeaseError::Storage);
        }
        let mut name = [0u8; 16];
        identity.iter().enumerate().for_each(|(i, b)| name[i % 16] = name[i % 16].wrapping_mul(31).wrapping_add(*b));
        let entry = disk.series.entry(name).or_insert((used, false));
        if entry.1 {
            return Err(LeaseError::InUse);
        }
        let lease = Lease::after(entry.0.max(used), BLOCK);
        let leased = Leased { series: Series(name), used: entry.0.max(used), lease };
        *entry = (lease.end, true);
        disk.leased.push(identity.to_vec());
        Ok(leased)
    }

    fn renew(&mut self, series: Series, used: u64) {
        self.disk().asked.push((series, used));
    }

    fn written(&mut self) -> Vec<(Series, Option<Lease>)> {
        let mut disk = self.disk();
        let asked = if disk.frozen { Vec::new() } else { core::mem::take(&mut disk.asked) };
        let write = |(series, used): (Series, u64)| {
            let lease = Lease::after(used, BLOCK);
            if !disk.full {
                disk.series.get_mut(&series.0).unwrap().0 = lease.end;
            }
            (series, (!disk.full).then_some(lease))
        };
        asked.into_iter().map(write).collect()
    }

    fn end(&mut self, series: Series, used: Option<u64>) {
        let mut disk = self.disk();
        let entry = disk.series.get_mut(&series.0).unwrap();
        *entry = (used.unwrap_or(entry.0), false);
    }
}

impl Storage {
    /// A daemon with a state that seals packets.
    fn boot_with_state(&self) -> Xfrm {
        let mut xfrm = self.boot();
        policed(&mut xfrm);
        ok(&mut xfrm, &new_state(state(0x100)), at(0));
        xfrm
    }
}

pub(super) fn policed(xfrm: &mut Xfrm) {
    ok(xfrm, &XfrmMessage::new(Body::NewPolicy(policy(XFRM_POLICY_OUT))).with(tmpl()), at(0));
}

/// Sends a packet: its number.
pub(super) fn number(xfrm: &mut Xfrm) -> Result<u32, DropReason> {
    let sealed = send(xfrm, at(1)).0?;
    Ok(u32::from_be_bytes(*sealed[24..].first_chunk().unwrap()))
}

#[test]
fn a_key_that_is_added_again_goes_on() {
    let storage = Storage::default();
    let mut xfrm = storage.boot_with_state();
    // Leases are renewed as they are used up.
    for sent in 1..=30 {
        assert_eq!(number(&mut xfrm), Ok(sent));
    }
    let id = UsersaId { daddr: state(0).id.daddr, spi: 0x100.into(), family: AF_INET, proto: IPPROTO_ESP, pad: 0 };
    ok(&mut xfrm, &XfrmMessage::new(Body::DelSa(id)), at(0));
    ok(&mut xfrm, &new_state(state(0x100)), at(0));
    // The key manager's numbers are reported until a packet has moved them.
    let said =
        |told: &XfrmMessage, oseq| told.attrs.contains(&Attribute::ReplayVal(ReplayState { oseq, seq: 0, bitmap: 0 }));
    assert!(said(&asked(&mut xfrm, at(1)), 0));
    assert_eq!(number(&mut xfrm), Ok(31));
    assert!(said(&asked(&mut xfrm, at(1)), 31));

    // A crash skips what was leased.
    let mut xfrm = storage.boot_with_state();
    let next = number(&mut xfrm).unwrap();
    assert!(next > 32 && u64::from(next) <= 31 + BLOCK + 1, "{next}");
    // Another SPI is another series, and so is another key.
    ok(&mut xfrm, &XfrmMessage::new(Body::FlushSa(UsersaFlush { proto: IPPROTO_ESP })), at(0));
    ok(&mut xfrm, &new_state(state(0x101)), at(0));
    assert_eq!(number(&mut xfrm), Ok(1));
}

/// Packets do not wait for stable storage as long as there are numbers, and there are none without it.
#[test]
fn what_is_not_written_down_yet_is_not_sent() {
    let storage = Storage::default();
    let mut xfrm = storage.boot_with_state();
    storage.disk().frozen = true;
    for sent in 1..=BLOCK as u32 {
        assert_eq!(number(&mut xfrm), Ok(sent));
    }
    assert_eq!(number(&mut xfrm), Err(DropReason::OutLease));
    assert_eq!(storage.disk().asked.len(), 1, "it was asked in time");
    assert_eq!(xfrm.poll_timeout(at(2)), Some(Duration::from_millis(20)), "somebody looks, without packets too");
    storage.disk().frozen = false;
    xfrm.look_after_leases(at(2));
    assert_eq!(number(&mut xfrm), Ok(BLOCK as u32 + 1));
    // Without anybody but packets.
    for sent in 2..=3 * BLOCK as u32 {
        assert_eq!(number(&mut xfrm), Ok(BLOCK as u32 + sent));
    }
    // A state that is gone needs no more; the one in its place goes on with its own lease.
    storage.disk().frozen = true;
    while storage.disk().asked.is_empty() {
        number(&mut xfrm).unwrap();
    }
    let id = UsersaId { daddr: state(0).id.daddr, spi: 0x100.into(), family: AF_INET, proto: IPPROTO_ESP, pad: 0 };
    ok(&mut xfrm, &XfrmMessage::new(Body::DelSa(id)), at(0));
    assert_eq!(xfrm.poll_timeout(at(2)), None);
    ok(&mut xfrm, &new_state(state(0x100)), at(0));
    storage.disk().asked.clear();
    let sent = core::iter::repeat_with(|| number(&mut xfrm)).take(20).filter(Result::is_ok).count();
    assert_eq!(sent as u64, BLOCK);
}

#[test]
fn what_cannot_be_written_down_is_not_sent() {
    let storage = Storage::default();
    let mut xfrm = storage.boot();
    policed(&mut xfrm);
    storage.disk().full = true;
    assert_eq!(answer(&call(&mut xfrm, &new_state(state(0x100)), at(0))).0, Errno::ENOSPC.number());
    // An input state sends nothing and leases nothing.
    ok(&mut xfrm, &new_state(state(0x200)).with(Attribute::SaDir(XFRM_SA_DIR_IN)), at(0));
    storage.disk().full = false;
    ok(&mut xfrm, &new_state(state(0x100)), at(0));
    storage.disk().full = true;
    let sent = core::iter::repeat_with(|| number(&mut xfrm)).take(20).collect::<Vec<_>>();
    assert_eq!(sent.iter().filter(|n| n.is_ok()).count() as u64, BLOCK);
    assert_eq!(sent.last(), Some(&Err(DropReason::OutLease)));
    // It is tried again, soon, and then once in a second, however often somebody looks.
    assert_eq!(xfrm.poll_timeout(at(2)), Some(Duration::from_millis(20)));
    xfrm.look_after_leases(at(2));
    assert_eq!(number(&mut xfrm), Err(DropReason::OutLease));
    assert_eq!(xfrm.poll_timeout(at(2)), Some(Duration::from_secs(1)));
    storage.disk().full = false;
    xfrm.look_after_leases(at(2));
    assert_eq!(number(&mut xfrm), Err(DropReason::OutLease));
    xfrm.look_after_leases(at(3));
    assert_eq!(number(&mut xfrm), Ok(BLOCK as u32 + 1));
    assert_eq!(xfrm.poll_timeout(at(5)), None);
}

/// The series of a state is known before it is added, and is the one that it then leases.
#[test]
fn numbers_may_be_leased_before_a_state_is_added() {
    let storage = Storage::default();
    let mut xfrm = storage.boot();
    let adds = [state(0x100), state(0x101)].map(|info| new_state(info).encode(NLM_F_REQUEST | NLM_F_ACK, 1, 0));
    let wanted: Vec<_> = adds.iter().flat_map(|datagram| xfrm.series_of(datagram)).collect();
    assert_eq!((wanted.len(), wanted[0] != wanted[1]), (2, true));
    assert!(storage.disk().leased.is_empty(), "nothing has been leased");
    // Nor does the question leave anything behind.
    assert_eq!(xfrm.sizes().0, 0);
    ok(&mut xfrm, &new_state(state(0x100)), at(0));
    assert_eq!(storage.disk().leased, [wanted[0].to_vec()]);
    let inbound = new_state(state(0x200)).with(Attribute::SaDir(XFRM_SA_DIR_IN));
    for message in [inbound, XfrmMessage::new(Body::FlushSa(UsersaFlush { proto: IPPROTO_ESP }))] {
        assert!(xfrm.series_of(&message.encode(NLM_F_REQUEST, 1, 0)).is_empty());
    }
    assert!(xfrm.series_of(b"nonsense").is_empty());
}
