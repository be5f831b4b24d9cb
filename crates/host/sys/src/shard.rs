//! Which of several workers opens the packets of a state: reckoned by the kernel with a classic program, from the SPI, or for ESP in
//! UDP from the peer.
//!
//! Multiplied by the golden ratio, numbers that follow one another, or are a fixed distance apart, spread evenly over the workers;
//! numbers that were drawn do so anyway.

use libc::{BPF_ALU, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_MUL, BPF_RET, BPF_RSH};

const GOLDEN: u32 = 0x9e37_79b1;
const HALF: u32 = 16;

/// One of several workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// Which.
    pub index: u32,
    /// How many there are.
    pub of: u32,
}

/// The worker of a number, of so many (at most 65,536).
pub fn shard(number: u32, of: u32) -> u32 {
    ((number.wrapping_mul(GOLDEN) >> HALF) * of) >> HALF
}

/// One instruction.
pub fn op(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// [`shard`] of the accumulator, into the accumulator.
pub fn reckon(of: u32) -> [libc::sock_filter; 4] {
    [
        op(BPF_ALU | BPF_MUL | BPF_K, 0, 0, GOLDEN),
        op(BPF_ALU | BPF_RSH | BPF_K, 0, 0, HALF),
        op(BPF_ALU | BPF_MUL | BPF_K, 0, 0, of),
        op(BPF_ALU | BPF_RSH | BPF_K, 0, 0, HALF),
    ]
}

/// Puts a number of a datagram's sender into the accumulator: its address's words and its port, added up.
pub fn peer(v6: bool) -> Vec<libc::sock_filter> {
    use libc::{BPF_ABS, BPF_ADD, BPF_B, BPF_H, BPF_IMM, BPF_LD, BPF_MEM, BPF_MISC, BPF_ST, BPF_TAX, BPF_W, BPF_X};
    /// The network header (`linux/filter.h`).
    const NET: u32 = -0x10_0000i32 as u32;
    const UDP: u32 = libc::IPPROTO_UDP as u32;
    let at = |offset| NET.wrapping_add(offset);
    // Behind options and extension headers the port is not looked for.
    let (words, plain, port) = match v6 {
        false => (12..16, (0, 0x45), 20),
        true => (8..24, (6, UDP), 40),
    };
    let mut program = vec![
        op(BPF_LD | BPF_B | BPF_ABS, 0, 0, at(plain.0)),
        op(BPF_JMP | BPF_JEQ | BPF_K, 0, 2, plain.1),
        op(BPF_LD | BPF_H | BPF_ABS, 0, 0, at(port)),
        op(BPF_JMP | libc::BPF_JA, 0, 0, 1),
        op(BPF_LD | BPF_IMM, 0, 0, 0),
        op(BPF_ST, 0, 0, 0),
    ];
    for word in words.step_by(4) {
        program.extend([
            op(BPF_LD | BPF_MEM, 0, 0, 0),
            op(BPF_MISC | BPF_TAX, 0, 0, 0),
            op(BPF_LD | BPF_W | BPF_ABS, 0, 0, at(word)),
            op(BPF_ALU | BPF_ADD | BPF_X, 0, 0, 0),
            op(BPF_ST, 0, 0, 0),
        ]);
    }
    program
}

impl Shard {
    /// That of who is alone.
    pub const ALL: Shard = Shard { index: 0, of: 1 };

    /// What a filter does with the SPI in its accumulator: the whole packet for this worker, and nothing for others.
    pub fn keep(self) -> Vec<libc::sock_filter> {
        let mut program = reckon(self.of).to_vec();
        program.push(op(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, self.index));
        program.push(op(BPF_RET | BPF_K, 0, 0, u32::MAX >> 1));
        program.push(op(BPF_RET | BPF_K, 0, 0, 0));
        program
    }

    /// The filter of a raw socket: its own states' packets, and the first worker's those that are too short to have an SPI.
    /// `spi_at` is where that stands behind the IP header, which a socket of IPv6 does not give.
    pub fn filter(self, v6: bool, spi_at: u32) -> Vec<libc::sock_filter> {
        use libc::{BPF_B, BPF_IMM, BPF_IND, BPF_LD, BPF_LDX, BPF_LEN, BPF_MSH, BPF_SUB, BPF_W, BPF_X};
        const SPI_LEN: u32 = 4;
        let short = if self.index == 0 { u32::MAX >> 1 } else { 0 };
        let mut program = vec![
            // X: the length of the IP header.
            if v6 { op(BPF_LDX | BPF_IMM, 0, 0, 0) } else { op(BPF_LDX | BPF_B | BPF_MSH, 0, 0, 0) },
            op(BPF_LD | BPF_W | BPF_LEN, 0, 0, 0),
            op(BPF_ALU | BPF_SUB | BPF_X, 0, 0, 0),
            op(BPF_JMP | BPF_JGE | BPF_K, 1, 0, spi_at + SPI_LEN),
            op(BPF_RET | BPF_K, 0, 0, short),
            op(BPF_LD | BPF_W | BPF_IND, 0, 0, spi_at),
        ];
        program.extend(self.keep());
        program
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_a_row_are_spread() {
        for of in 1..=16 {
            for (from, step) in [(1, 1), (0xc000_0000, 1), (16_389, 4), (7, 2)] {
                let mut counts = vec![0; of as usize];
                (0..64 * of).for_each(|i| counts[shard(from + i * step, of) as usize] += 1);
                assert!(counts.iter().all(|n| (48..=80).contains(n)), "{of} workers, {from} by {step}: {counts:?}");
            }
        }
        assert!((0..1000u32).all(|n| shard(n.wrapping_mul(0x0101_1021), 1) == 0));
    }

    /// A packet of a peer, or of an SPI, arrives at the socket of its worker, and at no other.
    #[test]
    fn the_kernel_reckons_as_we_do() {
        use crate::esp::{self, Around, RawEsp, UdpEsp};
        use crate::testing;
        use std::net::{IpAddr, SocketAddr, UdpSocket};
        const OF: u32 = 3;
        const PORT: u16 = 4500;
        let Some(netns) = testing::namespace("transport::shard") else { return };
        let mut buf = [0; 2048];
        let of_peer = |from: SocketAddr| {
            let address = match from.ip() {
                IpAddr::V4(v4) => v4.to_bits(),
                IpAddr::V6(v6) => {
                    v6.octets().as_chunks().0.iter().fold(0u32, |a, w| a.wrapping_add(u32::from_be_bytes(*w)))
                }
            };
            address.wrapping_add(from.port().into())
        };
        netns
            .run(|| {
                for (v6, host) in [(false, "127.0.0.1"), (true, "::1")] {
                    let host: IpAddr = host.parse().expect("an address");
                    // IKE's socket before ours, behind ours, and none.
                    for ike in [Some(true), Some(false), None] {
                        let reuse = || Ok::<_, std::io::Error>(UdpSocket::from(esp::bound(v6, PORT, true)?));
                        let before = if ike == Some(true) { Some(reuse()?) } else { None };
                        let ours = UdpEsp::open_all(v6, PORT, 0, OF)?;
                        let behind = if ike == Some(false) { Some(reuse()?) } else { None };
                        let mut seen = [false; OF as usize];
                        for _ in 0..64 {
                            let from = UdpSocket::bind((host, 0))?;
                            let wanted = shard(of_peer(from.local_addr()?), OF);
                            seen[wanted as usize] = true;
                            for spi in [0x1000u32, 0x1001, u32::MAX] {
                                from.send_to(&spi.to_be_bytes(), (host, PORT))?;
                                let is = |i: &u32| matches!(ours[*i as usize].receive(&mut buf), Ok(Some(_)));
                                let at: Vec<u32> = (0..OF).filter(is).collect();
                                assert_eq!(at, [wanted], "{from:?}, IKE's socket before: {ike:?}");
                            }
                        }
                        assert_eq!(seen, [true; OF as usize], "64 ports");
                        if let Some(ike) = before.or(behind) {
                            let from = UdpSocket::bind((host, 0))?;
                            from.send_to(&[0, 0, 0, 0, 1], (host, PORT))?;
                            ike.set_read_timeout(Some(std::time::Duration::from_secs(5)))?;
                            assert_eq!(ike.recv(&mut buf)?, 5, "IKE's own");
                        }
                    }
                }
                for (v6, protocol, to) in
                    [(false, 50, "127.0.0.1"), (false, 51, "127.0.0.1"), (true, 50, "::1"), (true, 51, "::1")]
                {
                    let open = |index| RawEsp::open(v6, protocol, 0, Shard { index, of: OF });
                    let ours: Vec<RawEsp> = (0..OF).map(open).collect::<Result<_, _>>()?;
                    let (around, spi_at) = (
                        Around {
                            source: to.parse().expect("an address"),
                            destination: to.parse().expect("an address"),
                            tos: 0,
                            ttl: 64,
                        },
                        if protocol == 51 { 4 } else { 0 },
                    );
                    let mut arrived = |payload: &[u8]| -> std::io::Result<Vec<u32>> {
                        ours[0].send_fragmented(&around, payload)?;
                        Ok((0..OF).filter(|i| matches!(ours[*i as usize].receive(&mut buf), Ok(Some(_)))).collect())
                    };
                    for spi in (0x1000..0x1040u32).chain([u32::MAX]) {
                        let mut payload = [7u8; 40];
                        payload[spi_at..spi_at + 4].copy_from_slice(&spi.to_be_bytes());
                        assert_eq!(arrived(&payload)?, [shard(spi, OF)], "{to}, protocol {protocol}, SPI {spi:#x}");
                    }
                    assert_eq!(arrived(&[7; 3])?, [0], "{to}, protocol {protocol}: too short for an SPI");
                }
                Ok(())
            })
            .expect("sockets");
    }
}
