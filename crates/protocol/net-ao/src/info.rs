//! The TCP-AO state of a socket: its keys, the keys in use, counters and the connection (`struct tcp_ao_info`).

use crate::drop::{Counter, DropReason};
use crate::kdf::Context;
use crate::mkt::{Mkt, unmapped};
use crate::sne::Sne;
use crate::table::{Ids, Key, KeyRef, KeyTable, TrafficKeys};
use crate::traffic::{Traffic, Wanted};
use core::net::{IpAddr, SocketAddr};
use sealane_crypto::KeyError;
use sealane_crypto::mac::MacTfm;
use std::sync::Arc;

/// The counters of a socket (`TCP_AO_INFO`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Segments that verified.
    pub good: u64,
    /// Segments that did not.
    pub bad: u64,
    /// Segments for whose KeyID there was no key.
    pub key_not_found: u64,
    /// Unsigned segments that should have been signed.
    pub required: u64,
    /// ICMP errors that were ignored.
    pub dropped_icmp: u64,
}

impl Counters {
    /// Adds one.
    pub fn bump(&mut self, counter: Counter) {
        *match counter {
            // Sockets have no counter for TCP-MD5.
            Counter::Md5Unexpected => return,
            Counter::Required => &mut self.required,
            Counter::Bad => &mut self.bad,
            Counter::KeyNotFound => &mut self.key_not_found,
            Counter::Good => &mut self.good,
            Counter::DroppedIcmps => &mut self.dropped_icmp,
        } += 1;
    }
}

/// A connection: both ends, and the sequence numbers of both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conn {
    /// Our end. No address here is v4-mapped.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Our initial sequence number.
    pub lisn: u32,
    /// The peer's initial sequence number; 0 as long as it is not known.
    pub risn: u32,
    /// The sending direction; its base is `snd_una`.
    pub snd: Sne,
    /// The end of the data sent so far (`snd_nxt`), with its SNE in the upper half.
    pub snd_nxt: u64,
    /// The receiving direction; its base is `rcv_nxt`.
    pub rcv: Sne,
}

impl Conn {
    /// A connection whose ISNs are `lisn` and `risn`, both SNEs 0.
    #[must_use]
    pub fn new(local: SocketAddr, remote: SocketAddr, lisn: u32, risn: u32) -> Self {
        let canonical = |a: SocketAddr| SocketAddr::new(unmapped(a.ip()), a.port());
        Conn {
            local: canonical(local),
            remote: canonical(remote),
            lisn,
            risn,
            snd: Sne::new(lisn),
            // The SYN takes one sequence number.
            snd_nxt: u64::from(lisn) + 1,
            rcv: Sne::new(risn),
        }
    }

    /// The KDF context of our sending direction.
    #[must_use]
    pub fn send_context(&self) -> Context {
        Context { source: self.local, destination: self.remote, source_isn: self.lisn, destination_isn: self.risn }
    }

    /// The KDF context of our receiving direction.
    #[must_use]
    pub fn receive_context(&self) -> Context {
        Context { source: self.remote, destination: self.local, source_isn: self.risn, destination_isn: self.lisn }
    }
}

/// The key cannot be removed, because it is the current or the rnext key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InUse;

/// The reason why an accepted connection gets no keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildError {
    /// The listener's keys for this peer have been removed since the SYN.
    NoKey,
    /// The driver could not derive a traffic key.
    Key(KeyError),
}

/// A connection that a listener accepts, as its handshake left it.
#[derive(Debug, Clone, Copy)]
pub struct Child {
    /// Both ends and ISNs.
    pub conn: Conn,
    /// VRF of the new socket, 0 for none.
    pub ifindex: i32,
    /// KeyID of the SYN (of the ACK, after a SYN cookie): picks the rnext key.
    pub key_id: u8,
    /// RNextKeyID of the same segment: picks the current key.
    pub rnext_key_id: u8,
}

/// The TCP-AO state of a socket.
#[derive(Default)]
pub struct AoInfo {
    keys: KeyTable,
    current: Option<KeyRef>,
    rnext: Option<KeyRef>,
    /// Whether unsigned segments are dropped, whoever sends them.
    pub ao_required: bool,
    /// Whether ICMP errors are accepted.
    pub accept_icmps: bool,
    /// Counters.
    pub counters: Counters,
    conn: Option<Conn>,
    keyed: bool,
}

impl AoInfo {
    /// State without keys.
    #[must_use]
    pub fn new() -> Self {
        AoInfo::default()
    }

    /// The keys.
    #[must_use]
    pub fn keys(&self) -> &KeyTable {
        &self.keys
    }

    /// A key.
    #[must_use]
    pub fn key(&self, key: KeyRef) -> Option<&Key> {
        self.keys.get(key)
    }

    /// A key, mutable for its counters.
    pub fn key_mut(&mut self, key: KeyRef) -> Option<&mut Key> {
        self.keys.get_mut(key)
    }

    /// The key that signs what we send.
    #[must_use]
    pub fn current(&self) -> Option<KeyRef> {
        self.current
    }

    /// The key that we ask the peer to use.
    #[must_use]
    pub fn rnext(&self) -> Option<KeyRef> {
        self.rnext
    }

    /// The connection, once it is known.
    #[must_use]
    pub fn conn(&self) -> Option<&Conn> {
        self.conn.as_ref()
    }

    /// The connection, mutable for its sequence numbers. Use [`AoInfo::set_conn`] to change addresses or ISNs.
    pub fn conn_mut(&mut self) -> Option<&mut Conn> {
        self.conn.as_mut()
    }

    /// Whether traffic keys have been derived.
    #[must_use]
    pub fn is_keyed(&self) -> bool {
        self.keyed
    }

    /// Signs with this key from now on. Does nothing if the key has been removed.
    pub fn set_current(&mut self, key: KeyRef) {
        if self.keys.get(key).is_some() {
            self.current = Some(key);
        }
    }

    /// Asks the peer to use this key from now on. Does nothing if the key has been removed.
    pub fn set_rnext(&mut self, key: KeyRef) {
        if self.keys.get(key).is_some() {
            self.rnext = Some(key);
        }
    }

    /// Adds a key in front, with its traffic keys if those of the connection have been derived. The caller checks for
    /// overlaps ([`KeyTable::overlapping`]) and decides whether the key becomes current and rnext.
    ///
    /// # Errors
    /// When the driver cannot derive a traffic key; nothing has changed then.
    pub fn add_key(&mut self, mkt: Arc<Mkt>) -> Result<KeyRef, KeyError> {
        let traffic = match &self.conn {
            Some(conn) if self.keyed => Some(traffic(&mkt, conn)?),
            _ => None,
        };
        Ok(self.keys.add(mkt, traffic))
    }

    /// The same, with traffic keys that are derived when they are needed ([`AoInfo::wanted`]).
    pub fn add_key_later(&mut self, mkt: Arc<Mkt>) -> KeyRef {
        let traffic = self.conn.as_ref().filter(|_| self.keyed).map(|conn| traffic_later(&mkt, conn));
        self.keys.add(mkt, traffic)
    }

    /// Removes a key, after `new_current` and `new_rnext` have taken over where given. A key that is still in use then
    /// stays and becomes the newest one, as in the kernel (`tcp_ao_delete_key`).
    ///
    /// # Errors
    /// [`InUse`]; the new current and rnext key are set nevertheless, as in the kernel.
    pub fn remove_key(
        &mut self,
        key: KeyRef,
        new_current: Option<KeyRef>,
        new_rnext: Option<KeyRef>,
    ) -> Result<(), InUse> {
        if let Some(k) = new_current {
            self.set_current(k);
        }
        if let Some(k) = new_rnext {
            self.set_rnext(k);
        }
        if self.current == Some(key) || self.rnext == Some(key) {
            self.keys.move_to_front(key);
            return Err(InUse);
        }
        self.keys.remove(key);
        Ok(())
    }

    /// Removes a key of a listening socket, in use or not (`del_async`).
    pub fn remove_key_async(&mut self, key: KeyRef) {
        self.keys.remove(key);
        self.current = self.current.filter(|k| *k != key);
        self.rnext = self.rnext.filter(|k| *k != key);
    }

    /// Does what `connect()` does: removes keys that do not match `peer`, and makes the newest of the others the
    /// current and the rnext key where none was chosen. Returns whether a key is left.
    pub fn keep_matching(&mut self, peer: IpAddr, ifindex: i32) -> bool {
        let ids = Ids::any(ifindex);
        let matches = |mkt: &Mkt| ids.matches(mkt) && mkt.peer.contains(peer);
        let gone: Vec<KeyRef> = self.keys.iter().filter(|(_, k)| !matches(&k.mkt)).map(|(r, _)| r).collect();
        for key in gone {
            self.remove_key_async(key);
        }
        let newest = self.keys.iter().next().map(|(r, _)| r);
        self.current = self.current.or(newest);
        self.rnext = self.rnext.or(newest);
        newest.is_some()
    }

    /// Sets the connection. Traffic keys come with [`AoInfo::derive`].
    pub fn set_conn(&mut self, conn: Conn) {
        self.conn = Some(conn);
    }

    /// Sets the peer's ISN from its SYN or SYN-ACK, and starts the SNE of the receiving direction anew.
    pub fn learn_peer_isn(&mut self, risn: u32) {
        if let Some(conn) = &mut self.conn {
            conn.risn = risn;
            conn.rcv = Sne::new(risn);
        }
    }

    /// Forgets the connection and its traffic keys, before the socket is connected again.
    pub fn clear_conn(&mut self) {
        self.conn = None;
        self.keyed = false;
        self.keys.iter_mut().for_each(|k| k.traffic = None);
    }

    /// Derives the traffic keys of all keys, now that both ISNs are known. Does nothing without a connection.
    ///
    /// # Errors
    /// When a driver cannot derive a key.
    pub fn derive(&mut self) -> Result<(), KeyError> {
        if let Some(conn) = self.conn {
            for key in self.keys.iter_mut() {
                key.traffic = Some(traffic(&key.mkt, &conn)?);
            }
            self.keyed = true;
        }
        Ok(())
    }

    /// The same, where they are derived when they are needed ([`AoInfo::wanted`]).
    pub fn derive_later(&mut self) {
        if let Some(conn) = self.conn {
            for key in self.keys.iter_mut() {
                key.traffic = Some(traffic_later(&key.mkt, &conn));
            }
            self.keyed = true;
        }
    }

    /// The traffic keys of the connection that are still to be derived, first those with which it sends and asks the peer to send.
    pub fn wanted(&self) -> impl Iterator<Item = &Wanted> {
        let (current, rnext) = (self.current, self.rnext.filter(|key| self.current != Some(*key)));
        let in_use = [current, rnext].into_iter().flatten().filter_map(|key| self.keys.get(key));
        let others = self.keys.iter().filter(move |(key, _)| ![current, rnext].contains(&Some(*key)));
        let keys = in_use.chain(others.map(|(_, key)| key));
        keys.filter_map(|key| key.traffic.as_ref()).flat_map(|t| [&t.send, &t.receive]).filter_map(Traffic::wanted)
    }

    /// Takes a traffic key that has been derived, if it is one that the connection still wants.
    pub fn learn(&mut self, wanted: &Wanted, tfm: &Arc<MacTfm>) {
        if self.conn.is_none() {
            return;
        }
        for TrafficKeys { send, receive } in self.keys.iter_mut().filter_map(|key| key.traffic.as_mut()) {
            for one in [send, receive] {
                if one.wanted() == Some(wanted) {
                    *one = Traffic::Here(tfm.clone());
                }
            }
        }
    }

    /// The state with which an accepted socket starts: this listener's keys for the peer, the oldest first (the
    /// kernel's copy reverses the list), and counters at 0.
    ///
    /// # Errors
    /// [`ChildError`].
    pub fn for_child(&self, child: &Child) -> Result<AoInfo, ChildError> {
        let ids = Ids::any(child.ifindex);
        let peer = child.conn.remote.ip();
        let mut new = AoInfo {
            ao_required: self.ao_required,
            accept_icmps: self.accept_icmps,
            conn: Some(child.conn),
            keyed: true,
            ..AoInfo::default()
        };
        for key in self.keys.matching(peer, ids).into_iter().filter_map(|k| self.keys.get(k)) {
            let traffic = traffic(&key.mkt, &child.conn).map_err(ChildError::Key)?;
            new.keys.add(key.mkt.clone(), Some(traffic));
        }
        let first = new.keys.iter().next().map(|(r, _)| r).ok_or(ChildError::NoKey)?;
        let pick = |ids| new.keys.by_ids(ids).unwrap_or(first);
        (new.current, new.rnext) =
            (Some(pick(Ids::default().send(child.rnext_key_id))), Some(pick(Ids::default().recv(child.key_id))));
        Ok(new)
    }

    /// Counts a dropped segment on the socket and, where given, on the key.
    pub fn count_drop(&mut self, reason: DropReason, key: Option<KeyRef>) {
        if let Some(counter) = reason.counter().filter(|_| reason.counted_on_socket()) {
            self.counters.bump(counter);
            if let Some(key) = key.and_then(|k| self.keys.get_mut(k)).filter(|_| counter == Counter::Bad) {
                key.pkt_bad += 1;
            }
        }
    }

    /// Counts a segment that verified.
    pub fn count_good(&mut self, key: KeyRef) {
        self.counters.bump(Counter::Good);
        if let Some(key) = self.keys.get_mut(key) {
            key.pkt_good += 1;
        }
    }
}

/// The traffic keys of a connection. Those whose master key is elsewhere are wanted: this always succeeds for them.
fn traffic(mkt: &Arc<Mkt>, conn: &Conn) -> Result<TrafficKeys, KeyError> {
    let of = |context| Traffic::of(mkt, &context);
    Ok(TrafficKeys { send: of(conn.send_context())?, receive: of(conn.receive_context())? })
}

fn traffic_later(mkt: &Arc<Mkt>, conn: &Conn) -> TrafficKeys {
    let of = |context| Traffic::later(mkt, &context);
    TrafficKeys { send: of(conn.send_context()), receive: of(conn.receive_context()) }
}
