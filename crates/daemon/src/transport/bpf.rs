//! The one program that we load into the kernel: at the ingress of our own device it marks a packet and hands it to the
//! ingress of another device, as if it had come in there.

use super::netlink::{Messages, Socket};
use sealane_abi::netlink as nl;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const BPF_PROG_LOAD: i32 = 5;
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Insn {
    code: u8,
    /// Destination in the lower four bits, source in the upper ones.
    registers: u8,
    off: i16,
    imm: i32,
}

/// The first members of `union bpf_attr` for loading a program.
#[repr(C)]
struct LoadAttr {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
}

/// ```c
/// skb->mark = mark;
/// return bpf_redirect(device, BPF_F_INGRESS);
/// ```
fn redirect_program(device: u32, mark: u32) -> [Insn; 6] {
    const MOV64_IMM: u8 = 0xb7;
    const MOV32_IMM: u8 = 0xb4;
    const STORE_WORD: u8 = 0x63;
    const CALL: u8 = 0x85;
    const EXIT: u8 = 0x95;
    const MARK_OF_SK_BUFF: i16 = 8;
    const BPF_F_INGRESS: i32 = 1;
    const FUNC_REDIRECT: i32 = 23;
    let insn = |code, registers, off, imm| Insn { code, registers, off, imm };
    [
        insn(MOV32_IMM, 2, 0, mark as i32),
        insn(STORE_WORD, 0x21, MARK_OF_SK_BUFF, 0),
        insn(MOV64_IMM, 1, 0, device as i32),
        insn(MOV64_IMM, 2, 0, BPF_F_INGRESS),
        insn(CALL, 0, 0, FUNC_REDIRECT),
        insn(EXIT, 0, 0, 0),
    ]
}

fn load(program: &[Insn]) -> io::Result<OwnedFd> {
    let license = c"Apache-2.0 OR MIT";
    let attr = LoadAttr {
        prog_type: BPF_PROG_TYPE_SCHED_CLS,
        insn_cnt: program.len() as u32,
        insns: program.as_ptr().addr() as u64,
        license: license.as_ptr().addr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: 0,
        prog_name: *b"sealane_redirect",
    };
    // The name has to end with a zero.
    let mut attr = attr;
    attr.prog_name[15] = 0;
    // SAFETY: an attribute of this size; the program and the licence that it points to live until the call returns.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const attr, size_of_val(&attr)) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Hands every packet that comes in by device `from` to the ingress of device `to`, marked. For the calling thread's
/// namespace and as long as `from` lives.
///
/// # Errors
/// The kernel's: `EPERM` without `CAP_BPF` and `CAP_NET_ADMIN`, `ENOENT` or `EOPNOTSUPP` where it lacks classifiers.
pub(crate) fn redirect(from: u32, to: u32, mark: u32) -> io::Result<()> {
    const TC_H_CLSACT: u32 = 0xffff_fff1;
    const TC_H_INGRESS: u32 = 0xffff_fff2;
    const PRIORITY: u32 = 1;
    const TCA_BPF_FD: u16 = 6;
    const TCA_BPF_NAME: u16 = 7;
    const TCA_BPF_FLAGS: u16 = 8;
    const TCA_BPF_FLAG_ACT_DIRECT: u32 = 1;
    let program = load(&redirect_program(to, mark))?;
    // struct tcmsg: family, padding, index, handle, parent, info.
    let tcmsg = |handle: u32, parent: u32, info: u32| {
        let mut fixed = [0u8; 20];
        for (at, value) in [(4, from), (8, handle), (12, parent), (16, info)] {
            fixed[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        fixed
    };
    let create = nl::NLM_F_ACK | libc::NLM_F_CREATE as u16 | libc::NLM_F_EXCL as u16;
    let mut messages = Messages::new();
    messages.push(libc::RTM_NEWQDISC, create, &tcmsg(TC_H_CLSACT & 0xffff_0000, TC_H_CLSACT, 0), |a| {
        a.str(libc::TCA_KIND, "clsact");
    });
    let info = PRIORITY << 16 | u32::from((libc::ETH_P_ALL as u16).to_be());
    messages.push(libc::RTM_NEWTFILTER, create, &tcmsg(0, TC_H_INGRESS, info), |a| {
        a.str(libc::TCA_KIND, "bpf");
        a.nest(libc::TCA_OPTIONS, |a| {
            a.u32(TCA_BPF_FD, program.as_raw_fd() as u32);
            a.str(TCA_BPF_NAME, "sealane");
            a.u32(TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT);
        });
    });
    Socket::open(libc::NETLINK_ROUTE)?.transact(&messages)
}
