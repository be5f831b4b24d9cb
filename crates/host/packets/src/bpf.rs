//! BPF programs and maps. This file redirects packets from our own devices: a packet that arrives there is marked and
//! handed to the ingress of another device, as if it had arrived there. The program of gateways is in [`super::xdp`].

pub mod map;
pub mod program;

use program::{If, Insn, Kind, Program, Size, load};
use sealane_abi::netlink as nl;
use sealane_sys::marks::Opened;
use sealane_sys::netlink::{Messages, Socket};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

const MARK_OF_SK_BUFF: i16 = 8;
const BPF_F_INGRESS: i32 = 1;
const FUNC_REDIRECT: i32 = 23;
const FUNC_LOAD_BYTES: i32 = 26;

/// ```c
/// skb->mark = mark;
/// return bpf_redirect(device, BPF_F_INGRESS);
/// ```
fn redirect_program(device: u32, mark: u32) -> Vec<Insn> {
    let mut program = Program::new();
    program.set_unsigned(2, mark).store(Size::Word, 1, MARK_OF_SK_BUFF, 2);
    program.set(1, device as i32).set(2, BPF_F_INGRESS).call(FUNC_REDIRECT).exit();
    program.assemble()
}

/// ```c
/// struct { u32 mark; u16 device; } by;
/// if (bpf_skb_load_bytes(skb, 6, &by, 6) < 0)
///     return TC_ACT_SHOT;
/// skb->mark = by.mark == 0 ? opened.plain : opened.marked;
/// return bpf_redirect(by.device, BPF_F_INGRESS);
/// ```
fn redirect_by_frame_program(opened: Opened) -> Vec<Insn> {
    const TC_ACT_SHOT: i32 = 2;
    const FRAME: u8 = 10;
    const BY: i16 = -8;
    const SOURCE_AT: i32 = 6;
    const LEN: i32 = 6;
    let mut program = Program::new();
    program.copy(6, 1);
    program.set(2, SOURCE_AT).copy(3, FRAME).add(3, BY.into()).set(4, LEN).call(FUNC_LOAD_BYTES);
    program.jump(If::Ne, 0, 0, "drop");
    program.load(Size::Word, 7, FRAME, BY).set_unsigned(8, opened.plain).jump(If::Eq, 7, 0, "known");
    program.set_unsigned(8, opened.marked()).label("known").store(Size::Word, 6, MARK_OF_SK_BUFF, 8);
    program.load(Size::Half, 1, FRAME, BY + 4).set(2, BPF_F_INGRESS).call(FUNC_REDIRECT).exit();
    program.label("drop").set(0, TC_ACT_SHOT).exit();
    program.assemble()
}

/// Hands every packet that arrives at device `from` to the ingress of device `to`, with a mark. Applies in the calling
/// thread's namespace for as long as `from` exists.
///
/// # Errors
/// The kernel's: `EPERM` without `CAP_BPF` and `CAP_NET_ADMIN`, `ENOENT` or `EOPNOTSUPP` where it lacks classifiers.
pub fn redirect(from: u32, to: u32, mark: u32) -> io::Result<()> {
    classify(from, &load(Kind::SchedCls, "sealane_redirect", &redirect_program(to, mark))?)
}

/// Hands every packet that arrives at device `from` to the ingress of the device that its frame names, with one of these marks
/// ([`super::incoming`]). Applies as for [`redirect`].
///
/// # Errors
/// As for [`redirect`].
pub fn redirect_by_frame(from: u32, opened: Opened) -> io::Result<()> {
    classify(from, &load(Kind::SchedCls, "sealane_by", &redirect_by_frame_program(opened))?)
}

/// Has a program see every packet that arrives at a device.
fn classify(device: u32, program: &OwnedFd) -> io::Result<()> {
    const TC_H_CLSACT: u32 = 0xffff_fff1;
    const TC_H_INGRESS: u32 = 0xffff_fff2;
    const PRIORITY: u32 = 1;
    const TCA_BPF_FD: u16 = 6;
    const TCA_BPF_NAME: u16 = 7;
    const TCA_BPF_FLAGS: u16 = 8;
    const TCA_BPF_FLAG_ACT_DIRECT: u32 = 1;
    // struct tcmsg: family, padding, index, handle, parent, info.
    let tcmsg = |handle: u32, parent: u32, info: u32| {
        let mut fixed = [0u8; 20];
        for (at, value) in [(4, device), (8, handle), (12, parent), (16, info)] {
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
