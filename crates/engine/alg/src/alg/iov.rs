//! Walking over the pieces that a caller gives.

use crate::rules::Rules;
use sealane_abi::Errno;
use sealane_abi::socket::PAGE_SIZE;

/// `ALG_MAX_PAGES`: the pages of one piece of a result.
const MAX_PAGES: usize = 16;

/// Reads from pieces, in order.
pub(super) struct Source<'a> {
    pieces: &'a [&'a [u8]],
    at: usize,
    /// Bytes left.
    pub(super) left: usize,
}

impl<'a> Source<'a> {
    pub(super) fn new(pieces: &'a [&'a [u8]]) -> Self {
        Source { pieces, at: 0, left: pieces.iter().map(|p| p.len()).sum() }
    }

    /// Gives up what lies behind the next `len` bytes.
    pub(super) fn cut(&mut self, len: usize) {
        self.left = self.left.min(len);
    }

    /// Appends the next `len` bytes to `out`; at most what is left.
    pub(super) fn append_to(&mut self, out: &mut Vec<u8>, len: usize) {
        let mut len = len.min(self.left);
        self.left -= len;
        while len > 0 {
            let rest = &self.pieces[0][self.at..];
            let n = rest.len().min(len);
            out.extend_from_slice(&rest[..n]);
            len -= n;
            self.at += n;
            if self.at == self.pieces[0].len() {
                self.pieces = &self.pieces[1..];
                self.at = 0;
            }
        }
    }
}

/// Writes to pieces, in order.
pub(super) struct Sink<'a, 'b> {
    pieces: &'a mut [&'b mut [u8]],
    piece: usize,
    at: usize,
    /// Room left, in bytes, `unwritable` included.
    pub(super) left: usize,
    /// The number of bytes at the end that cannot be written.
    unwritable: usize,
}

impl<'a, 'b> Sink<'a, 'b> {
    pub(super) fn new(pieces: &'a mut [&'b mut [u8]], unwritable: usize) -> Self {
        let writable: usize = pieces.iter().map(|p| p.len()).sum();
        Sink { pieces, piece: 0, at: 0, left: writable + unwritable, unwritable }
    }

    /// Whether the next `len` bytes, at most what is left, can be written.
    ///
    /// # Errors
    /// [`Errno::EFAULT`].
    #[inline]
    pub(super) fn check(&self, len: usize) -> Result<(), Errno> {
        if len > self.left - self.unwritable.min(self.left) { Err(Errno::EFAULT) } else { Ok(()) }
    }

    /// The length of a request's result, of at most `max` bytes: the kernel of the rules gathers it in pieces until less
    /// than a page of the receive buffer is left.
    pub(super) fn request_len(&self, max: usize, rcvbuf: usize, rules: Rules) -> usize {
        let max = max.min(self.left);
        if !rules.whole_pieces {
            return max.min(rcvbuf);
        }
        let (mut len, mut at) = (0, self.at);
        for piece in self.pieces.iter().skip(self.piece) {
            while at < piece.len() {
                if len == max || len + PAGE_SIZE > rcvbuf {
                    return len;
                }
                let in_page = piece.as_ptr().addr().wrapping_add(at) % PAGE_SIZE;
                let taken = (piece.len() - at).min(MAX_PAGES * PAGE_SIZE - in_page).min(max - len);
                (len, at) = (len + taken, at + taken);
            }
            at = 0;
        }
        // What cannot be written is come to.
        if len + PAGE_SIZE > rcvbuf { len } else { max }
    }

    fn skip_full(&mut self) {
        while self.pieces.get(self.piece).is_some_and(|p| p.len() == self.at) {
            self.piece += 1;
            self.at = 0;
        }
    }

    /// The next `len` bytes, if they lie in one piece. They count as written.
    pub(super) fn flat(&mut self, len: usize) -> Option<&mut [u8]> {
        self.skip_full();
        let piece = self.pieces.get_mut(self.piece)?.get_mut(self.at..)?.get_mut(..len)?;
        self.at += len;
        self.left -= len;
        Some(piece)
    }

    /// Passes over `len` bytes, at most what is left.
    pub(super) fn skip(&mut self, len: usize) {
        let mut len = len.min(self.left);
        self.left -= len;
        while len > 0 {
            self.skip_full();
            let n = (self.pieces[self.piece].len() - self.at).min(len);
            self.at += n;
            len -= n;
        }
    }

    /// Copies `data` out; what does not fit is dropped.
    pub(super) fn write(&mut self, data: &[u8]) {
        let mut data = &data[..data.len().min(self.left)];
        self.left -= data.len();
        while !data.is_empty() {
            self.skip_full();
            let room = &mut self.pieces[self.piece][self.at..];
            let (now, later) = data.split_at(room.len().min(data.len()));
            room[..now.len()].copy_from_slice(now);
            self.at += now.len();
            data = later;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_abi::Profile;

    #[test]
    fn pieces_of_all_shapes() {
        let mut out = Vec::new();
        let pieces: [&[u8]; 5] = [b"", b"ab", b"", b"cde", b""];
        let mut source = Source::new(&pieces);
        assert_eq!(source.left, 5);
        source.append_to(&mut out, 3);
        source.append_to(&mut out, 9);
        assert_eq!((&out[..], source.left), (&b"abcde"[..], 0));

        let (mut a, mut b, mut c) = ([0u8; 2], [0u8; 0], [0u8; 4]);
        let mut dst: [&mut [u8]; 3] = [&mut a, &mut b, &mut c];
        let mut sink = Sink::new(&mut dst, 0);
        sink.write(b"x");
        assert!(sink.flat(2).is_none(), "two bytes that lie in two pieces");
        sink.write(b"yz");
        sink.flat(2).unwrap().copy_from_slice(b"12");
        assert_eq!(sink.left, 1);
        sink.skip(1);
        sink.skip(1);
        sink.write(b"lost");
        assert_eq!(sink.left, 0);
        assert_eq!((a, c), (*b"xy", *b"z12\0"));

        let mut long = vec![0; 4 * 65_536 + PAGE_SIZE];
        let start = long.as_ptr().align_offset(PAGE_SIZE);
        let mut short = [0; 100];
        let mut dst: [&mut [u8]; 2] = [&mut short, &mut long[start..]];
        let sink = Sink::new(&mut dst, 0);
        let lens = |profile| [4096, 8192, 100_000].map(|rcvbuf| sink.request_len(200_000, rcvbuf, Rules::of(profile)));
        assert_eq!(lens(Profile::Linux6_1), [100, 100 + 65_536, 100 + 2 * 65_536]);
        assert_eq!(lens(Profile::Linux6_12), [4096, 8192, 100_000]);
        assert_eq!(sink.request_len(70, 4096, Rules::of(Profile::Linux6_1)), 70);

        let mut dst: [&mut [u8]; 1] = [&mut a];
        let mut sink = Sink::new(&mut dst, 3);
        sink.write(b"p");
        assert_eq!((sink.left, sink.check(1), sink.check(2)), (4, Ok(()), Err(Errno::EFAULT)));
    }
}
