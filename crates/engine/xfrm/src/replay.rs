//! Sequence numbers and windows between what a key manager says and what packets move.
//!
//! The numbers of a state have several homes, and a [`Sequence`] knows which of them count:
//!
//! ```text
//!  event                                    said by now              is told, until a packet moves it
//!  ─────────────────────────────────────────┬────────────────────────┬─────────────────────────────────
//!  NEWSA, UPDSA of a reserved SPI           │ the request            │ the request
//!  a packet                                 │ as before              │ the SAD's number, top and window
//!  NEWAE                                    │ the request            │ the request
//!  MIGRATE                                  │ what was told before   │ what was told before
//!  another process goes on                  │ its record, advanced   │ the record, advanced
//!                                           │ by the noted progress  │
//! ```
//! Numbers that the SAD sends begin behind the state's lease, whatever was said; a lease is told only once a packet has moved the state.

use sealane_abi::xfrm::{ReplayState, ReplayStateEsn};
use sealane_net_ipsec::replay::Window;
use sealane_net_ipsec::sa::{SaError, SaId};
use sealane_net_ipsec::sad::Sad;

/// The sequence numbers and the window of a state.
#[derive(Debug, Clone)]
pub(crate) struct Sequence {
    said: Replay,
    /// The position of the SAD at which that was said, if packets go through the state: it is current until that moves.
    at: Option<Position>,
}

impl Sequence {
    /// One that a request makes, for a state that is not in the SAD yet.
    pub(crate) fn of(said: Replay) -> Self {
        Sequence { said, at: None }
    }

    /// Numbers as they were said last, which are the current ones only if no packet has moved them.
    pub(crate) fn said(&self) -> &Replay {
        &self.said
    }

    /// The numbers to start from: the last one sent, the highest one received.
    pub(crate) fn numbers(&self, esn: bool) -> (u64, u64) {
        numbers(&self.said, esn)
    }

    /// Numbers and window as they stand in the SAD.
    pub(crate) fn snapshot(&self, sad: &Sad, id: SaId) -> Option<Replay> {
        let (at, sa) = (position(sad, id)?, sad.get(id)?);
        (self.at != Some(at)).then(|| reported(&self.said, sa.flags.esn, at, sa.window()))
    }

    /// Has packets of a state that was just added to the SAD go on from here: its bitmap, whose numbers it was added with. Numbers
    /// to send do not go back behind its lease.
    pub(crate) fn resume(&mut self, sad: &mut Sad, id: SaId, window_pkts: u32) {
        let (_, top) = self.numbers(sad.get(id).is_some_and(|sa| sa.flags.esn));
        let seen = seen(&self.said, window_pkts, top);
        if !seen.is_empty() {
            let out = sad.out_number(id).unwrap_or(u64::MAX);
            // The numbers are those that it was added with: nothing goes back.
            let _ = sad.set_replay(id, out, top, seen);
        }
        self.at = position(sad, id);
    }

    /// Has packets of a state go on from these numbers, wherever they were.
    ///
    /// # Errors
    /// [`SaError::Backward`] if numbers would be sent twice, [`SaError::Window`], [`SaError::Gone`]: the SAD is as before.
    pub(crate) fn set(&mut self, sad: &mut Sad, id: SaId, window_pkts: u32) -> Result<(), SaError> {
        let (out, top) = self.numbers(sad.get(id).is_some_and(|sa| sa.flags.esn));
        sad.set_replay(id, out, top, seen(&self.said, window_pkts, top))?;
        self.at = position(sad, id);
        Ok(())
    }

    /// Goes on at another place in the SAD with what was told last.
    pub(crate) fn moved(told: Replay, at: Option<Position>) -> Self {
        Sequence { said: told, at }
    }

    /// Takes in what another process has noted behind its record: the highest number received, and whether packets came that may
    /// have moved no number. Nobody knows which numbers came then, so that all of them count as received.
    pub(crate) fn advance(&mut self, esn: bool, window_pkts: u32, top: u64, has_moved: bool) {
        // Of the two numbers the top is noted first.
        if has_moved || top > self.numbers(esn).1 {
            self.said = advanced(&self.said, esn, window_pkts, top);
        }
    }
}

/// Sequence numbers and window as a key manager gave them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Replay {
    /// 32 bits.
    Legacy(ReplayState),
    /// A bitmap of any size.
    Esn(ReplayStateEsn),
}

/// The current sequence numbers of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    /// The last number sent.
    out: u64,
    /// The highest number received.
    top: u64,
    /// Packets counted: a late packet moves nothing else.
    packets: u64,
}

/// The numbers to start from: the last one sent, the highest one received.
pub(crate) fn numbers(replay: &Replay, esn: bool) -> (u64, u64) {
    match replay {
        Replay::Legacy(r) => (r.oseq.into(), r.seq.into()),
        Replay::Esn(r) if esn => {
            (u64::from(r.oseq_hi) << 32 | u64::from(r.oseq), u64::from(r.seq_hi) << 32 | u64::from(r.seq))
        }
        Replay::Esn(r) => (r.oseq.into(), r.seq.into()),
    }
}

/// The place of the number `back` before the highest in the bitmap (`xfrm_replay_advance_esn`).
fn place(esn: &ReplayStateEsn, back: u32) -> usize {
    let window = u64::from(esn.replay_window.max(1));
    let top = u64::from(esn.seq.wrapping_sub(1)) % window;
    ((top + window - u64::from(back) % window) % window) as usize
}

/// The numbers that a bitmap says were received.
fn seen(replay: &Replay, window_pkts: u32, top: u64) -> Vec<u64> {
    let is_set = |back: u32| match replay {
        Replay::Legacy(r) => back < 32 && r.bitmap >> back & 1 != 0,
        Replay::Esn(r) => {
            let at = place(r, back);
            r.bmp.get(at / 32).is_some_and(|word| word >> (at % 32) & 1 != 0)
        }
    };
    (0..window_pkts).filter(|back| is_set(*back)).filter_map(|back| top.checked_sub(back.into())).collect()
}

/// Converts a window to a structure of the ABI, of the same kind as `said`.
fn reported(said: &Replay, esn: bool, at: Position, window: &Window) -> Replay {
    let seen = |back: u32| at.top.checked_sub(back.into()).is_some_and(|n| n != 0 && window.is_seen(n));
    match said {
        Replay::Legacy(said) => {
            let mut told = ReplayState { oseq: at.out as u32, ..*said };
            if window.size_pkts() != 0 {
                told.seq = at.top as u32;
                told.bitmap = (0..window.size_pkts().min(32)).filter(|back| seen(*back)).map(|back| 1 << back).sum();
            }
            Replay::Legacy(told)
        }
        Replay::Esn(said) => {
            let mut told = ReplayStateEsn { oseq: at.out as u32, ..said.clone() };
            if esn {
                told.oseq_hi = (at.out >> 32) as u32;
            }
            if said.replay_window != 0 {
                told.seq = at.top as u32;
                if esn {
                    told.seq_hi = (at.top >> 32) as u32;
                }
                told.bmp = vec![0; said.bmp_len as usize];
                for back in (0..said.replay_window).filter(|back| seen(*back)) {
                    let bit = place(&told, back);
                    if let Some(word) = told.bmp.get_mut(bit / 32) {
                        *word |= 1 << (bit % 32);
                    }
                }
            }
            Replay::Esn(told)
        }
    }
}

/// The window as it is known to be at least: the highest number received is `top`, and of those before it nobody knows,
/// so that all of them count as received, those too that came late, behind a number that was known.
fn advanced(replay: &Replay, esn: bool, window_pkts: u32, top: u64) -> Replay {
    if window_pkts == 0 || top < numbers(replay, esn).1 || top == 0 {
        return replay.clone();
    }
    match replay {
        Replay::Legacy(r) => Replay::Legacy(ReplayState { seq: top as u32, bitmap: u32::MAX, ..*r }),
        Replay::Esn(r) => {
            let bmp = vec![u32::MAX; r.bmp.len()];
            let mut all = ReplayStateEsn { seq: top as u32, bmp, ..r.clone() };
            if esn {
                all.seq_hi = (top >> 32) as u32;
            }
            Replay::Esn(all)
        }
    }
}

/// The current sequence numbers of an association.
pub(crate) fn position(sad: &Sad, sa: SaId) -> Option<Position> {
    Some(Position { out: sad.out_number(sa)?, top: sad.get(sa)?.window().top(), packets: sad.usage(sa)?.packets })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_net_ipsec::lifetime::Usage;
    use sealane_net_ipsec::sa::SaSpec;
    use sealane_net_ipsec::transform::{Keyed, TransformSpec, Transforms};
    use std::sync::Arc;

    const WINDOW: u32 = 32;

    fn legacy(oseq: u32, seq: u32, bitmap: u32) -> Replay {
        Replay::Legacy(ReplayState { oseq, seq, bitmap })
    }

    /// The same numbers in a bitmap, in which the place of a number is the number less one.
    fn esn(high: u32, oseq: u32, seq: u32, word: u32) -> Replay {
        let (bmp_len, bmp) = (1, vec![word]);
        Replay::Esn(ReplayStateEsn { bmp_len, oseq, seq, oseq_hi: high, seq_hi: high, replay_window: WINDOW, bmp })
    }

    /// A state with these numbers to begin with, whose lease begins at another number to send.
    fn added(said: &Replay, leased: u64) -> (Sad, SaId, Sequence) {
        let mut transforms = Transforms::new(Arc::new(sealane_crypto_portable::registry()));
        let aead = Keyed { name: "rfc4106(gcm(aes))", key: &[3; 20] };
        let transform = transforms.prepare(&TransformSpec::Aead { aead, icv_bits: 128 }, false).expect("it is there");
        let [a, b] = [1, 2].map(|n| core::net::Ipv4Addr::new(192, 0, 2, n).into());
        let sequence = Sequence::of(said.clone());
        let mut spec = SaSpec { window_pkts: WINDOW, ..SaSpec::tunnel(9, a, b, transform) };
        spec.flags.esn = matches!(said, Replay::Esn(_));
        let (out, top) = sequence.numbers(spec.flags.esn);
        (spec.out_number, spec.in_number) = (out.max(leased), top);
        let mut sad = Sad::new(1);
        let id = sad.add(spec).expect("it is the first");
        (sad, id, sequence)
    }

    fn told(sequence: &Sequence, sad: &Sad, id: SaId) -> Replay {
        sequence.snapshot(sad, id).unwrap_or_else(|| sequence.said().clone())
    }

    #[test]
    fn each_event_says_which_numbers_count() {
        let high = 2u64 << 32;
        // What is said, after packets, with all of a window, and the numbers' high half.
        let rows = [
            (legacy(5, 7, 0b101), legacy(9, 8, 0b11), legacy(5, 8, u32::MAX), 0),
            (esn(2, 5, 7, 1 << 6 | 1 << 4), esn(2, 9, 8, 1 << 7 | 1 << 6), esn(2, 5, 8, u32::MAX), high),
        ];
        for (said, moved, all, high) in rows {
            let is_esn = high != 0;
            // It is made. What it may send begins behind its lease, which nobody is told of.
            let (mut sad, id, mut sequence) = added(&said, high + 8);
            sequence.resume(&mut sad, id, WINDOW);
            assert_eq!((told(&sequence, &sad, id), sad.out_number(id)), (said.clone(), Some(high + 8)));
            let is_seen = |sad: &Sad| [8, 7, 6, 5].map(|n| sad.get(id).unwrap().window().is_seen(high + n));
            assert_eq!(is_seen(&sad), [false, true, false, true]);
            // Packets.
            sad.set_replay(id, high + 9, high + 8, [high + 8, high + 7]).unwrap();
            assert_eq!(told(&sequence, &sad, id), moved);
            // A key manager says other numbers: back they do not go.
            let mut back = Sequence::of(said.clone());
            assert_eq!(back.set(&mut sad, id, WINDOW), Err(SaError::Backward));
            assert_eq!((told(&sequence, &sad, id), is_seen(&sad)), (moved.clone(), [true, true, false, false]));
            let ahead = if is_esn { esn(2, 20, 7, 1 << 6) } else { legacy(20, 7, 1) };
            sequence = Sequence::of(ahead.clone());
            sequence.set(&mut sad, id, WINDOW).unwrap();
            assert_eq!((told(&sequence, &sad, id), is_seen(&sad)), (ahead, [false, true, false, false]));
            assert_eq!(sad.out_number(id), Some(high + 20));
            // A packet that comes late moves nothing but the count of packets, and a bit.
            sad.set_replay(id, high + 20, high + 7, [high + 7, high + 5]).unwrap();
            sad.set_usage(id, &Usage { packets: 1, ..Usage::default() }, 1);
            let late = if is_esn { esn(2, 20, 7, 1 << 6 | 1 << 4) } else { legacy(20, 7, 0b101) };
            assert_eq!(told(&sequence, &sad, id), late);
            // It moves to other addresses, or to a device.
            sequence = Sequence::moved(told(&sequence, &sad, id), position(&sad, id));
            assert_eq!((sequence.snapshot(&sad, id), sequence.said()), (None, &late));
            // Another process goes on: by its record, or by what was noted behind it.
            for (has_moved, top, wanted) in
                [(false, 7, &said), (false, 3, &said), (true, 3, &said), (true, 8, &all), (false, 8, &all)]
            {
                let mut sequence = Sequence::of(said.clone());
                sequence.advance(is_esn, WINDOW, high + top, has_moved);
                assert_eq!(sequence.said(), wanted, "{has_moved} {top}");
            }
            let mut late = Sequence::of(said.clone());
            late.advance(is_esn, WINDOW, high + 7, true);
            let (mut sad, id, _) = added(&said, 0);
            late.resume(&mut sad, id, WINDOW);
            let window = sad.get(id).unwrap().window();
            assert!((1..=7).all(|n| window.is_seen(high + n)) && !window.is_seen(high + 8));
            // Without a window there is nothing to accept twice.
            let mut sequence = Sequence::of(said.clone());
            sequence.advance(is_esn, 0, high + 8, true);
            assert_eq!(sequence.said(), &said);
        }
    }
}
