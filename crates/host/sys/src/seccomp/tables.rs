//! The tables of system calls. Most programs make calls by our own; those of i386 and x32 programs on x86-64, and of 32-bit
//! ones on AArch64, are in others, with other numbers, structures and pointers. The launcher serves nothing by them, and
//! refuses what it would serve otherwise, so that it does not come to the kernel.

use crate::cbpf::Size::Word;
use crate::cbpf::{NEXT, Program};
use sealane_abi::tcp;

pub(super) const AF_ALG: u32 = 38;
pub(super) const AF_KEY: u32 = 15;
pub(super) const AF_NETLINK: u32 = 16;
pub(super) const NETLINK_ROUTE: u32 = 0;
pub(super) const NETLINK_XFRM: u32 = 6;
pub(super) const NETLINK_CRYPTO: u32 = 21;

/// The architecture of our own table (`AUDIT_ARCH_*`).
#[cfg(target_arch = "x86_64")]
pub(crate) const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
pub(crate) const ARCH: u32 = 0xc000_00b7;

/// Offsets in `struct seccomp_data`. Only the low half of an argument is compared: descriptors and numbers are ints, and the
/// kernel ignores the rest.
pub(crate) const NR: u32 = 0;
pub(crate) const ARCH_AT: u32 = 4;
pub(super) const fn arg(n: u32) -> u32 {
    16 + 8 * n
}

/// The number of a call, by the architecture whose table it is in.
struct Table {
    /// `AUDIT_ARCH_*`.
    arch: u32,
    socket: u32,
    setsockopt: u32,
    getsockopt: u32,
    /// The call of i386 that stands for all of sockets.
    socketcall: Option<u32>,
}

/// The tables other than ours.
#[cfg(target_arch = "x86_64")]
const TABLES: [Table; 2] = [
    Table { arch: 0x4000_0003, socket: 359, setsockopt: 366, getsockopt: 365, socketcall: Some(102) },
    // x32 has x86-64's architecture, and a bit in its numbers.
    Table { arch: ARCH, socket: X32 | 41, setsockopt: X32 | 541, getsockopt: X32 | 542, socketcall: None },
];
#[cfg(target_arch = "aarch64")]
const TABLES: [Table; 1] =
    [Table { arch: 0x4000_0028, socket: 281, setsockopt: 294, getsockopt: 295, socketcall: None }];

/// The bit in the numbers of x32 (`__X32_SYSCALL_BIT`).
const X32: u32 = 0x4000_0000;

/// The first argument of `socketcall`: the call that it is to make (`linux/net.h`).
const SYS_SOCKET: u32 = 1;
const SYS_SETSOCKOPT: u32 = 14;
const SYS_GETSOCKOPT: u32 = 15;

/// A call of another architecture that may concern us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignCall {
    /// `socket(family, _, protocol)`.
    Socket {
        /// The family.
        family: i32,
        /// The protocol.
        protocol: i32,
    },
    /// `setsockopt` or `getsockopt`.
    Option {
        /// The level.
        level: i32,
        /// The option.
        name: i32,
    },
    /// One of these two kinds, whose arguments are 32-bit words in the program's memory.
    InMemory {
        /// Whether it is `socket`.
        is_socket: bool,
        /// The address of the first argument.
        at: u64,
    },
}

impl ForeignCall {
    /// The same call with its arguments, the first three words at `at`.
    #[must_use]
    pub fn with_arguments(self, words: [u32; 3]) -> Self {
        let [_, second, third] = words.map(|word| word as i32);
        match self {
            ForeignCall::InMemory { is_socket: true, .. } => {
                ForeignCall::Socket { family: words[0] as i32, protocol: third }
            }
            ForeignCall::InMemory { is_socket: false, .. } => ForeignCall::Option { level: second, name: third },
            known => known,
        }
    }
}

/// The call that these numbers describe, if it was made by the table of another architecture than this process's.
pub(super) fn foreign(arch: u32, nr: u32, args: &[u64; 6]) -> Option<ForeignCall> {
    if arch == ARCH && nr & X32 == 0 {
        return None;
    }
    let int = |n: usize| args[n] as i32;
    let socketcall = TABLES.iter().any(|table| table.arch == arch && table.socketcall == Some(nr));
    let socket = TABLES.iter().any(|table| table.arch == arch && table.socket == nr);
    Some(match (socketcall, socket) {
        (true, _) => ForeignCall::InMemory { is_socket: args[0] as u32 == SYS_SOCKET, at: args[1] },
        (_, true) => ForeignCall::Socket { family: int(0), protocol: int(2) },
        _ => ForeignCall::Option { level: int(1), name: int(2) },
    })
}

/// Selects them, and goes on with calls of our own table.
pub(super) fn select(c: &mut Program, tcp_ao: bool) {
    use libc::{BPF_JEQ, BPF_JGE, BPF_JGT};
    c.load(Word, ARCH_AT).jump(BPF_JEQ, ARCH, NEXT, "foreign");
    match TABLES.iter().any(|table| table.arch == ARCH) {
        true => c.load(Word, NR).jump(BPF_JGE, X32, "x32", "ours"),
        false => c.goto("ours"),
    };
    for table in TABLES {
        match table.arch == ARCH {
            true => c.label("x32"),
            false => c.label("foreign").jump(BPF_JEQ, table.arch, NEXT, "allow").load(Word, NR),
        };
        c.jump(BPF_JEQ, table.socket, "foreign socket", NEXT);
        if let Some(socketcall) = table.socketcall {
            c.jump(BPF_JEQ, socketcall, "socketcall", NEXT);
        }
        if tcp_ao {
            c.jump(BPF_JEQ, table.setsockopt, "foreign option", NEXT);
            c.jump(BPF_JEQ, table.getsockopt, "foreign option", NEXT);
        }
        c.goto("allow");
    }
    c.label("socketcall").load(Word, arg(0));
    c.jump(BPF_JEQ, SYS_SOCKET, "ask", NEXT);
    if tcp_ao {
        c.jump(BPF_JEQ, SYS_SETSOCKOPT, "ask", NEXT).jump(BPF_JEQ, SYS_GETSOCKOPT, "ask", NEXT);
    }
    c.goto("allow");
    c.label("foreign socket").load(Word, arg(0));
    c.jump(BPF_JEQ, AF_ALG, "ask", NEXT).jump(BPF_JEQ, AF_KEY, "ask", NEXT).jump(BPF_JEQ, AF_NETLINK, NEXT, "allow");
    c.load(Word, arg(2));
    c.jump(BPF_JEQ, NETLINK_XFRM, "ask", NEXT).jump(BPF_JEQ, NETLINK_CRYPTO, "ask", "allow");
    if tcp_ao {
        c.label("foreign option").load(Word, arg(1)).jump(BPF_JEQ, tcp::IPPROTO_TCP as u32, NEXT, "allow");
        c.load(Word, arg(2)).jump(BPF_JGT, tcp::TCP_AO_REPAIR as u32, "allow", NEXT);
        c.jump(BPF_JGE, tcp::TCP_AO_ADD_KEY as u32, "ask", "allow");
    }
    c.label("ours");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_each_table() {
        let call = |arch, nr: u32, args: [u64; 3]| foreign(arch, nr, &[args[0], args[1], args[2], 0, 0, 0]);
        assert_eq!(call(ARCH, 41, [38, 5, 0]), None);
        for table in TABLES {
            let socket = Some(ForeignCall::Socket { family: 38, protocol: 6 });
            assert_eq!(call(table.arch, table.socket, [38, 5, 6]), socket);
            let option = Some(ForeignCall::Option { level: 6, name: 38 });
            assert_eq!(call(table.arch, table.setsockopt, [3, 6, 38]), option);
            assert_eq!(call(table.arch, table.getsockopt, [3, 6, 38]), option);
            let Some(socketcall) = table.socketcall else { continue };
            let [one, other] = [SYS_SOCKET, SYS_SETSOCKOPT].map(|what| {
                let call = call(table.arch, socketcall, [what.into(), 4096, 0]).expect("a call");
                assert!(matches!(call, ForeignCall::InMemory { at: 4096, .. }));
                call
            });
            assert_eq!(Some(one.with_arguments([38, 5, 6])), socket);
            assert_eq!(Some(other.with_arguments([3, 6, 38])), option);
        }
    }
}
