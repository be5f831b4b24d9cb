//! Distribution of a state's packets over workers. The kernel computes the worker with a classic BPF program, from the
//! SPI, or from the peer for ESP in UDP.
//!
//! Multiplying by the golden ratio spreads consecutive numbers, or numbers at a fixed distance, evenly over the
//! workers; random numbers are spread evenly anyway.

use libc::{BPF_ADD, BPF_JEQ, BPF_JGE, BPF_MUL, BPF_RSH, BPF_SUB};
use sealane_sys::cbpf::Size::{Byte, Half, Word};
use sealane_sys::cbpf::{ALL, NEXT, Program};

const GOLDEN: u32 = 0x9e37_79b1;
const HALF: u32 = 16;

/// One of several workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// Its index.
    pub index: u32,
    /// The number of workers.
    pub of: u32,
}

/// The worker of a number, out of `of` (at most 65,536).
pub fn shard(number: u32, of: u32) -> u32 {
    ((number.wrapping_mul(GOLDEN) >> HALF) * of) >> HALF
}

/// Computes [`shard`] of A into A.
pub(crate) fn reckon(program: &mut Program, of: u32) {
    program.alu(BPF_MUL, GOLDEN).alu(BPF_RSH, HALF).alu(BPF_MUL, of).alu(BPF_RSH, HALF);
}

/// Computes a number for a datagram's sender into A: the sum of the words of its address and its port.
pub(crate) fn peer(program: &mut Program, v6: bool) {
    /// The scratch word that holds the sum.
    const SUM: u32 = 0;
    const UDP: u32 = libc::IPPROTO_UDP as u32;
    // With options or extension headers, the port is left out.
    let (words, plain, port) = match v6 {
        false => (12..16, (0, 0x45), 20),
        true => (8..24, (6, UDP), 40),
    };
    program.load_net(Byte, plain.0).jump(BPF_JEQ, plain.1, NEXT, "options");
    program.load_net(Half, port).goto("addresses");
    program.label("options").set(0);
    program.label("addresses").store(SUM);
    for word in words.step_by(4) {
        program.recall(SUM).copy_to_x().load_net(Word, word).alu_x(BPF_ADD).store(SUM);
    }
}

impl Shard {
    /// A single worker.
    pub const ALL: Shard = Shard { index: 0, of: 1 };

    /// Ends a filter that has the SPI in A: keeps the whole packet if its state belongs to this worker, and drops it
    /// otherwise.
    pub(crate) fn keep(self, program: &mut Program) {
        reckon(program, self.of);
        program.jump(BPF_JEQ, self.index, NEXT, "another's").ret(ALL);
        program.label("another's").ret(0);
    }

    /// The filter of a raw socket for the packets of this worker's states; the first worker also gets packets too short
    /// for an SPI. `spi_at` is the offset of the SPI after the IP header, which an IPv6 socket does not deliver.
    pub fn filter(self, v6: bool, spi_at: u32) -> Vec<libc::sock_filter> {
        const SPI_LEN: u32 = 4;
        let mut program = Program::new();
        // X: the length of the IP header.
        if v6 {
            program.set_x(0);
        } else {
            program.set_x_to_header_len(0);
        }
        program.load_len().alu_x(BPF_SUB).jump(BPF_JGE, spi_at + SPI_LEN, "has an SPI", NEXT);
        program.ret(if self.index == 0 { ALL } else { 0 });
        program.label("has an SPI").load_at_x(Word, spi_at);
        self.keep(&mut program);
        program.assemble()
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

    /// A packet arrives at the socket of its peer's or SPI's worker, and at no other.
    #[test]
    fn the_kernel_reckons_as_we_do() {
        use crate::esp::{self, RawEsp};
        use crate::udp_group::UdpGroup;
        use crate::udp_table;
        use sealane_sys::testing;
        use sealane_wire::outer::OuterHeader;
        use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
        const OF: u32 = 3;
        const PORT: u16 = 4500;
        let Some(netns) = testing::namespace("sys::shard") else { return };
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
                let any: [(IpAddr, IpAddr); 2] = [
                    (Ipv4Addr::LOCALHOST.into(), Ipv4Addr::UNSPECIFIED.into()),
                    (Ipv6Addr::LOCALHOST.into(), Ipv6Addr::UNSPECIFIED.into()),
                ];
                for (host, any) in any {
                    let at = SocketAddr::new(any, PORT);
                    let bind = || Ok::<_, std::io::Error>(UdpSocket::from(esp::bound(at)?));
                    let send = |from: &UdpSocket, bytes: &[u8]| from.send_to(bytes, (host, PORT));
                    // Key managers come and go before ours, behind ours, on both sides of ours, and there may be none.
                    let before = [bind()?, bind()?];
                    let (mut group, ours) = UdpGroup::open(at, 0, OF, &udp_table::read()?)?;
                    let mut managers = Vec::from(before);
                    for turn in 0..9 {
                        match turn {
                            0 => {}
                            1 | 4 => managers.push(bind()?),
                            2 | 5 => drop(managers.remove(0)),
                            3 => managers.truncate(1),
                            6 => managers.clear(),
                            7 => managers = vec![bind()?, bind()?],
                            _ => {
                                managers.clear();
                                managers.push(bind()?);
                            }
                        }
                        group.look(&udp_table::read()?)?;
                        assert_eq!(group.has_others(), !managers.is_empty());
                        let mut seen = [false; OF as usize];
                        for _ in 0..32 {
                            let from = UdpSocket::bind((host, 0))?;
                            let wanted = shard(of_peer(from.local_addr()?), OF);
                            seen[wanted as usize] = true;
                            for spi in [0x1000u32, 0x1001, u32::MAX] {
                                send(&from, &spi.to_be_bytes())?;
                                let is = |i: &u32| matches!(ours[*i as usize].receive(&mut buf), Ok(Some(_)));
                                let at: Vec<u32> = (0..OF).filter(is).collect();
                                assert_eq!(at, [wanted], "{from:?}, turn {turn}");
                            }
                        }
                        assert_eq!(seen, [true; OF as usize], "32 ports");
                        if let Some(latest) = managers.last() {
                            send(&UdpSocket::bind((host, 0))?, &[0, 0, 0, 0, 1])?;
                            assert_eq!(latest.recv(&mut buf).ok(), Some(5), "turn {turn}: IKE's own");
                        }
                    }
                }
                for (v6, protocol, to) in
                    [(false, 50, "127.0.0.1"), (false, 51, "127.0.0.1"), (true, 50, "::1"), (true, 51, "::1")]
                {
                    let open = |index| RawEsp::open(v6, protocol, 0, Shard { index, of: OF });
                    let ours: Vec<RawEsp> = (0..OF).map(open).collect::<Result<_, _>>()?;
                    let (outer, spi_at) = (
                        OuterHeader {
                            source: to.parse().expect("an address"),
                            destination: to.parse().expect("an address"),
                            tos: 0,
                            ttl: 64,
                            dont_fragment: false,
                            ports: None,
                            tcp: false,
                        },
                        if protocol == 51 { 4 } else { 0 },
                    );
                    let mut arrived = |payload: &[u8]| -> std::io::Result<Vec<u32>> {
                        ours[0].send_fragmented(&outer, 0, payload)?;
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
