//! Programs for the kernel's virtual machine: an assembler whose jumps are labels, and bpf(2) to load them.
//!
//! Ours are a few dozen instructions each. Compiling them from C would require a BPF compiler wherever Sealane is
//! built.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const BPF_PROG_LOAD: i32 = 5;

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Insn {
    code: u8,
    /// Destination in the lower four bits, source in the upper ones.
    registers: u8,
    off: i16,
    imm: i32,
}

/// A register.
pub type Reg = u8;

/// Width of a load or store (`BPF_SIZE`).
#[derive(Debug, Clone, Copy)]
pub enum Size {
    /// One byte.
    Byte = 0x10,
    /// Two.
    Half = 0x08,
    /// Four.
    Word = 0x00,
}

/// Conditions of 64-bit jumps (`BPF_OP`).
#[derive(Debug, Clone, Copy)]
pub enum If {
    /// Equal.
    Eq = 0x10,
    /// Greater, unsigned.
    Gt = 0x20,
    /// Any of these bits is set.
    Set = 0x40,
    /// Not equal.
    Ne = 0x50,
    /// Less or equal, unsigned.
    Le = 0xb0,
}

/// A program under construction.
#[derive(Debug, Default)]
pub struct Program {
    insns: Vec<Insn>,
    labels: Vec<(&'static str, usize)>,
    jumps: Vec<(&'static str, usize)>,
}

impl Program {
    /// An empty program.
    pub fn new() -> Self {
        Program::default()
    }

    fn put(&mut self, code: u8, to: Reg, from: Reg, off: i16, imm: i32) -> &mut Self {
        self.insns.push(Insn { code, registers: to | from << 4, off, imm });
        self
    }

    /// `to = from`.
    pub fn copy(&mut self, to: Reg, from: Reg) -> &mut Self {
        self.put(0xbf, to, from, 0, 0)
    }

    /// `to = value`, sign-extended.
    pub fn set(&mut self, to: Reg, value: i32) -> &mut Self {
        self.put(0xb7, to, 0, 0, value)
    }

    /// `to = value`, zero-extended.
    pub fn set_unsigned(&mut self, to: Reg, value: u32) -> &mut Self {
        self.put(0xb4, to, 0, 0, value as i32)
    }

    /// `to += value`.
    pub fn add(&mut self, to: Reg, value: i32) -> &mut Self {
        self.put(0x07, to, 0, 0, value)
    }

    /// `to &= value`.
    pub fn and(&mut self, to: Reg, value: i32) -> &mut Self {
        self.put(0x57, to, 0, 0, value)
    }

    /// `to = *(size *)(from + off)`.
    pub fn load(&mut self, size: Size, to: Reg, from: Reg, off: i16) -> &mut Self {
        self.put(0x61 | size as u8, to, from, off, 0)
    }

    /// `*(size *)(to + off) = from`.
    pub fn store(&mut self, size: Size, to: Reg, off: i16, from: Reg) -> &mut Self {
        self.put(0x63 | size as u8, to, from, off, 0)
    }

    /// `*(size *)(to + off) = value`.
    pub fn store_value(&mut self, size: Size, to: Reg, off: i16, value: u32) -> &mut Self {
        self.put(0x62 | size as u8, to, 0, off, value as i32)
    }

    /// `to` = a reference to the map with this descriptor.
    pub fn map(&mut self, to: Reg, fd: &OwnedFd) -> &mut Self {
        const PSEUDO_MAP_FD: Reg = 1;
        self.put(0x18, to, PSEUDO_MAP_FD, 0, fd.as_raw_fd()).put(0, 0, 0, 0, 0)
    }

    /// Calls a helper function of the kernel (`enum bpf_func_id`).
    pub fn call(&mut self, function: i32) -> &mut Self {
        self.put(0x85, 0, 0, 0, function)
    }

    /// Ends the program.
    pub fn exit(&mut self) -> &mut Self {
        self.put(0x95, 0, 0, 0, 0)
    }

    /// Jumps to a label.
    pub fn goto(&mut self, label: &'static str) -> &mut Self {
        self.jumps.push((label, self.insns.len()));
        self.put(0x05, 0, 0, 0, 0)
    }

    /// Jumps to a label if `a` compares so to `value`, which is sign-extended.
    pub fn jump(&mut self, if_: If, a: Reg, value: i32, label: &'static str) -> &mut Self {
        self.jumps.push((label, self.insns.len()));
        self.put(0x05 | if_ as u8, a, 0, 0, value)
    }

    /// Jumps to a label if the lower 32 bits of `a` differ from `value`.
    pub fn jump_unless_word(&mut self, a: Reg, value: u32, label: &'static str) -> &mut Self {
        self.jumps.push((label, self.insns.len()));
        self.put(0x06 | If::Ne as u8, a, 0, 0, value as i32)
    }

    /// Jumps to a label if `a` compares so to `b`.
    pub fn jump_by(&mut self, if_: If, a: Reg, b: Reg, label: &'static str) -> &mut Self {
        self.jumps.push((label, self.insns.len()));
        self.put(0x0d | if_ as u8, a, b, 0, 0)
    }

    /// Labels the next instruction.
    pub fn label(&mut self, label: &'static str) -> &mut Self {
        self.labels.push((label, self.insns.len()));
        self
    }

    /// The finished instructions.
    ///
    /// # Panics
    /// When a jump's label is missing.
    pub fn assemble(&self) -> Vec<Insn> {
        let mut insns = self.insns.clone();
        for (label, at) in &self.jumps {
            let (_, to) = self.labels.iter().find(|(name, _)| name == label).expect("a label that is there");
            insns[*at].off = (*to as i64 - *at as i64 - 1) as i16;
        }
        insns
    }
}

/// Program types (`enum bpf_prog_type`).
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A classifier of traffic control (tc).
    SchedCls = 3,
    /// A program that sees frames as they come from the driver.
    Xdp = 6,
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

/// Loads a program.
///
/// # Errors
/// The kernel's: `EPERM` without `CAP_BPF` and `CAP_NET_ADMIN`, `EINVAL` or `EACCES` when its verifier rejects the
/// program.
pub fn load(kind: Kind, name: &str, program: &[Insn]) -> io::Result<OwnedFd> {
    let license = c"Apache-2.0 OR MIT";
    let mut attr = LoadAttr {
        prog_type: kind as u32,
        insn_cnt: program.len() as u32,
        insns: program.as_ptr().addr() as u64,
        license: license.as_ptr().addr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: 0,
        prog_name: [0; 16],
    };
    // The name must end with a zero byte.
    attr.prog_name[..15].iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
    // SAFETY: an attribute of this size; the program and the licence that it points to live until the call returns.
    unsafe { bpf(BPF_PROG_LOAD, &attr) }
}

/// bpf(2), for commands that return a descriptor.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// The attribute starts with the command's part of `union bpf_attr`; all memory that it points to is live and has the
/// stated length.
pub unsafe fn bpf<T>(command: i32, attr: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise; the descriptor is new and ours.
    unsafe {
        let fd = libc::syscall(libc::SYS_bpf, command, &raw const *attr, size_of::<T>());
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd as i32)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_go_to_their_labels() {
        let mut program = Program::new();
        program.label("again").set(0, 1).jump(If::Eq, 0, 2, "out").goto("again").label("out").exit();
        let insns = program.assemble();
        assert_eq!(insns.iter().map(|i| i.off).collect::<Vec<_>>(), [0, 1, -3, 0]);
    }
}
