//! Frames that a TUN device delivers with a vnet header: packets whose checksum is incomplete, and superframes to be
//! cut into packets (GSO).

use crate::ip::{
    Family, Layout, UDP_HEADER_LEN, be16, be32, finish_nonzero, set_len, set_tcp_checksum, set_udp_checksum, sum,
};
use crate::proto;
use crate::tcp::Flags;
use crate::walk::{Malformed, Walk};

/// The offload work left to do for a frame, from its vnet header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offload {
    /// The start of the checksummed bytes, and the offset of the checksum field from there. The field holds the sum of
    /// the pseudo-header.
    pub checksum: Option<(u16, u16)>,
    /// Payload bytes per packet (the last one may have fewer) when the frame is to be cut; 0 when it is a single
    /// packet.
    pub gso_size: u16,
}

/// Cuts a frame into packets.
pub struct Cutter {
    at: Layout,
    udp: bool,
    /// Payload bytes per packet; 0 when the frame is a single packet.
    size: usize,
    /// Payload bytes already handed out.
    done: usize,
    count: u16,
    over: bool,
}

impl Cutter {
    /// Reads the frame's headers. A frame that is a single packet gets its checksum completed here.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn new(frame: &mut [u8], offload: &Offload) -> Result<Self, Malformed> {
        let walk = Walk::find(frame).map_err(|_| Malformed)?;
        if offload.gso_size == 0 {
            if let Some((start, offset)) = offload.checksum {
                let (start, at) = (usize::from(start), usize::from(start) + usize::from(offset));
                let bytes = frame.get(start..).ok_or(Malformed)?;
                let checksum = finish_nonzero(sum(bytes, 0));
                frame.get_mut(at..at + 2).ok_or(Malformed)?.copy_from_slice(&checksum.to_be_bytes());
            }
            let at = Layout { family: walk.family, tcp_at: walk.upper_at, payload_at: walk.end, end: walk.end };
            return Ok(Cutter { at, udp: false, size: 0, done: 0, count: 0, over: false });
        }
        let (at, udp) = match walk.upper {
            proto::TCP => (Layout::find(frame).map_err(|_| Malformed)?, false),
            proto::UDP if walk.upper_at + UDP_HEADER_LEN <= walk.end => {
                let payload_at = walk.upper_at + UDP_HEADER_LEN;
                (Layout { family: walk.family, tcp_at: walk.upper_at, payload_at, end: walk.end }, true)
            }
            _ => return Err(Malformed),
        };
        Ok(Cutter { at, udp, size: offload.gso_size.into(), done: 0, count: 0, over: false })
    }

    /// Length of the next packet in bytes, `None` after the last one.
    #[must_use]
    pub fn next_len(&self) -> Option<usize> {
        let left = self.at.payload_len() - self.done;
        match self.over {
            true => None,
            false if self.size == 0 => Some(self.at.end),
            false => Some(self.at.payload_at + left.min(self.size)),
        }
    }

    /// Writes the next packet of `frame` to `out`, which has [`Self::next_len`] bytes. It is cut as the kernel does it
    /// (`tcp_gso_segment`, `__udp_gso_segment`): IPv4 identifications count up, FIN and PSH stay on the last packet,
    /// CWR on the first.
    ///
    /// # Panics
    /// When `out` has another length, or there are no more packets.
    pub fn next(&mut self, frame: &[u8], out: &mut [u8]) {
        let len = self.next_len().expect("there is one more");
        if self.size == 0 {
            self.over = true;
            out.copy_from_slice(&frame[..len]);
            return;
        }
        let Layout { family, tcp_at, payload_at, .. } = self.at;
        let payload_len = len - payload_at;
        let from = payload_at + self.done;
        out[..payload_at].copy_from_slice(&frame[..payload_at]);
        out[payload_at..].copy_from_slice(&frame[from..from + payload_len]);
        let first = self.done == 0;
        let seq = self.done as u32;
        self.done += payload_len;
        self.over = self.done == self.at.payload_len();
        if family == Family::V4 {
            let id = be16(frame, 4).wrapping_add(self.count);
            out[4..6].copy_from_slice(&id.to_be_bytes());
        }
        self.count = self.count.wrapping_add(1);
        let layout = Layout { end: len, ..self.at };
        set_len(out, &layout);
        if self.udp {
            let udp_len = (len - tcp_at) as u16;
            out[tcp_at + 4..tcp_at + 6].copy_from_slice(&udp_len.to_be_bytes());
            set_udp_checksum(out, &layout);
        } else {
            let seq = be32(frame, tcp_at + 4).wrapping_add(seq);
            out[tcp_at + 4..tcp_at + 8].copy_from_slice(&seq.to_be_bytes());
            let first_only = if first { 0 } else { Flags::CWR };
            let last_only = if self.over { 0 } else { Flags::FIN | Flags::PSH };
            out[tcp_at + 13] &= !(first_only | last_only);
            set_tcp_checksum(out, &layout);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::{finish, tcp_checksum_ok};

    fn tcp(v6: bool, payload: usize, flags: u8) -> Vec<u8> {
        let len = 20 + payload;
        let mut packet = if v6 {
            let mut p = vec![0x60, 0, 0, 0];
            p.extend_from_slice(&(len as u16).to_be_bytes());
            p.extend_from_slice(&[6, 64]);
            p.extend_from_slice(&[7; 32]);
            p
        } else {
            let mut p = vec![0x45, 0];
            p.extend_from_slice(&((20 + len) as u16).to_be_bytes());
            p.extend_from_slice(&[0xff, 0xff, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            p
        };
        packet.extend_from_slice(&[0, 1, 0, 2, 0xff, 0xff, 0xff, 0xf0, 0, 0, 0, 1, 0x50, flags, 1, 1, 0, 0, 0, 0]);
        packet.extend((0..payload).map(|i| (i * 7) as u8));
        packet
    }

    fn cut(mut frame: Vec<u8>, offload: Offload) -> Vec<Vec<u8>> {
        let mut cutter = Cutter::new(&mut frame, &offload).unwrap();
        let mut all = vec![];
        while let Some(len) = cutter.next_len() {
            let mut out = vec![0; len];
            cutter.next(&frame, &mut out);
            all.push(out);
        }
        all
    }

    #[test]
    fn superframes_of_tcp() {
        for v6 in [false, true] {
            let whole = tcp(v6, 2500, Flags::ACK | Flags::PSH | Flags::FIN | Flags::CWR);
            let packets = cut(whole.clone(), Offload { gso_size: 1000, checksum: Some((20, 16)) });
            let headers = if v6 { 60 } else { 40 };
            assert_eq!(packets.iter().map(|p| p.len() - headers).collect::<Vec<_>>(), [1000, 1000, 500]);
            let mut payload = vec![];
            for (i, packet) in packets.iter().enumerate() {
                let at = Layout::find(packet).unwrap();
                assert!(tcp_checksum_ok(packet, &at));
                assert_eq!(be32(packet, at.tcp_at + 4), 0xffff_fff0u32.wrapping_add(i as u32 * 1000));
                let flags = [Flags::ACK | Flags::CWR, Flags::ACK, Flags::ACK | Flags::PSH | Flags::FIN][i];
                assert_eq!(packet[at.tcp_at + 13], flags);
                if !v6 {
                    assert_eq!(be16(packet, 4), 0xffffu16.wrapping_add(i as u16));
                    assert_eq!(finish(sum(&packet[..20], 0)), 0);
                }
                payload.extend_from_slice(&packet[headers..]);
            }
            assert_eq!(payload, whole[headers..]);
        }
    }

    #[test]
    fn one_packet_with_an_open_checksum() {
        let mut frame = tcp(false, 33, Flags::ACK);
        let at = Layout::find(&frame).unwrap();
        crate::ip::set_partial_checksum(&mut frame, &at);
        let packets = cut(frame, Offload { gso_size: 0, checksum: Some((20, 16)) });
        assert_eq!(packets.len(), 1);
        assert!(tcp_checksum_ok(&packets[0], &at));
    }

    #[test]
    fn superframes_of_udp() {
        let mut frame = vec![0x45, 0, 0, 28 + 50, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        frame.extend_from_slice(&[0, 1, 0, 2, 0, 58, 0, 0]);
        frame.extend([9; 50]);
        let packets = cut(frame, Offload { gso_size: 20, checksum: Some((20, 6)) });
        assert_eq!(packets.iter().map(Vec::len).collect::<Vec<_>>(), [48, 48, 38]);
        for packet in packets {
            let udp_len = packet.len() - 20;
            assert_eq!(usize::from(be16(&packet, 24)), udp_len);
            let pseudo = sum(&packet[12..20], udp_len as u64 + 17);
            assert_eq!(finish(sum(&packet[20..], pseudo)), 0);
        }
    }

    #[test]
    fn what_is_no_packet() {
        for (frame, offload) in [
            (vec![], Offload::default()),
            (vec![0x45; 10], Offload::default()),
            (tcp(false, 0, 0), Offload { gso_size: 0, checksum: Some((500, 0)) }),
            (tcp(false, 0, 0), Offload { gso_size: 0, checksum: Some((20, 39)) }),
        ] {
            let mut frame = frame;
            assert!(Cutter::new(&mut frame, &offload).is_err());
        }
        let mut icmp = tcp(false, 40, 0);
        icmp[9] = 1;
        assert!(Cutter::new(&mut icmp, &Offload { gso_size: 10, checksum: None }).is_err());
    }
}
