//! Sequence numbers and windows between what a key manager says and what packets move.

use sealane_abi::xfrm::{ReplayState, ReplayStateEsn};
use sealane_net::ipsec::replay::Window;
use sealane_net::ipsec::sa::SaId;
use sealane_net::ipsec::sad::Sad;

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
pub(crate) fn seen(replay: &Replay, window_pkts: u32, top: u64) -> Vec<u64> {
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
pub(crate) fn reported(said: &Replay, esn: bool, at: Position, window: &Window) -> Replay {
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
pub(crate) fn advanced(replay: &Replay, esn: bool, window_pkts: u32, top: u64) -> Replay {
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
