//! An assembler of classic BPF, the language of socket filters, `SO_ATTACH_REUSEPORT_CBPF` and seccomp.
//!
//! The instructions are those of `linux/filter.h`; jumps go forward to named labels.

use libc::{
    BPF_A, BPF_ABS, BPF_ALU, BPF_B, BPF_H, BPF_IMM, BPF_IND, BPF_JA, BPF_JMP, BPF_K, BPF_LD, BPF_LDX, BPF_LEN, BPF_MEM,
    BPF_MISC, BPF_MSH, BPF_RET, BPF_ST, BPF_TAX, BPF_W, BPF_X,
};

/// The offset at which a program reads metadata of the packet (`linux/filter.h`).
const SKF_AD_OFF: u32 = -0x1000i32 as u32;
/// The EtherType.
pub const SKF_AD_PROTOCOL: u32 = SKF_AD_OFF.wrapping_add(0);
/// The packet type of `linux/if_packet.h`.
pub const SKF_AD_PKTTYPE: u32 = SKF_AD_OFF.wrapping_add(4);
/// The packet mark.
pub const SKF_AD_MARK: u32 = SKF_AD_OFF.wrapping_add(20);
/// Whether the packet has a VLAN tag.
pub const SKF_AD_VLAN_TAG_PRESENT: u32 = SKF_AD_OFF.wrapping_add(48);
/// The offset of the network header.
const SKF_NET_OFF: u32 = -0x10_0000i32 as u32;

/// The verdict of a socket filter that keeps the whole packet.
pub const ALL: u32 = u32::MAX >> 1;

/// The name of an instruction; [`NEXT`] is the following one.
pub type Label = &'static str;
/// The following instruction.
pub const NEXT: Label = "";

/// Width of a load.
#[derive(Debug, Clone, Copy)]
pub enum Size {
    /// One byte.
    Byte,
    /// Two bytes.
    Half,
    /// Four bytes.
    Word,
}

impl Size {
    fn code(self) -> u32 {
        match self {
            Size::Byte => BPF_B,
            Size::Half => BPF_H,
            Size::Word => BPF_W,
        }
    }
}

/// One instruction, with labels for its jumps.
struct Insn {
    code: u32,
    k: u32,
    yes: Label,
    no: Label,
}

/// A program under construction. The accumulator is A, the index register X.
#[derive(Default)]
pub struct Program {
    list: Vec<Insn>,
    labels: Vec<(Label, usize)>,
}

impl Program {
    /// A program without instructions.
    pub fn new() -> Self {
        Program::default()
    }

    fn put(&mut self, code: u32, k: u32) -> &mut Self {
        self.list.push(Insn { code, k, yes: NEXT, no: NEXT });
        self
    }

    /// A = the value at an offset of the packet, of `struct seccomp_data`, or one of `SKF_AD_*`.
    pub fn load(&mut self, size: Size, offset: u32) -> &mut Self {
        self.put(BPF_LD | size.code() | BPF_ABS, offset)
    }

    /// A = the value at an offset of the network header.
    pub fn load_net(&mut self, size: Size, offset: u32) -> &mut Self {
        self.load(size, SKF_NET_OFF.wrapping_add(offset))
    }

    /// A = the value at an offset of the packet plus X.
    pub fn load_at_x(&mut self, size: Size, offset: u32) -> &mut Self {
        self.put(BPF_LD | size.code() | BPF_IND, offset)
    }

    /// A = the value at an offset of the network header plus X.
    pub fn load_net_at_x(&mut self, size: Size, offset: u32) -> &mut Self {
        self.load_at_x(size, SKF_NET_OFF.wrapping_add(offset))
    }

    /// A = the length of the packet.
    pub fn load_len(&mut self) -> &mut Self {
        self.put(BPF_LD | BPF_W | BPF_LEN, 0)
    }

    /// A = `value`.
    pub fn set(&mut self, value: u32) -> &mut Self {
        self.put(BPF_LD | BPF_IMM, value)
    }

    /// A = a word of the scratch memory.
    pub fn recall(&mut self, slot: u32) -> &mut Self {
        self.put(BPF_LD | BPF_MEM, slot)
    }

    /// A word of the scratch memory = A.
    pub fn store(&mut self, slot: u32) -> &mut Self {
        self.put(BPF_ST, slot)
    }

    /// X = `value`.
    pub fn set_x(&mut self, value: u32) -> &mut Self {
        self.put(BPF_LDX | BPF_IMM, value)
    }

    /// X = the length of the IPv4 header that begins at an offset.
    pub fn set_x_to_header_len(&mut self, offset: u32) -> &mut Self {
        self.put(BPF_LDX | BPF_B | BPF_MSH, offset)
    }

    /// X = A.
    pub fn copy_to_x(&mut self) -> &mut Self {
        self.put(BPF_MISC | BPF_TAX, 0)
    }

    /// A = A `op` `value`; `op` is one of `BPF_ADD`, `BPF_MUL`, ...
    pub fn alu(&mut self, op: u32, value: u32) -> &mut Self {
        self.put(BPF_ALU | op | BPF_K, value)
    }

    /// A = A `op` X.
    pub fn alu_x(&mut self, op: u32) -> &mut Self {
        self.put(BPF_ALU | op | BPF_X, 0)
    }

    /// Jumps to `yes` if A compares so to `value`, else to `no`; `how` is one of `BPF_JEQ`, `BPF_JGE`, ...
    pub fn jump(&mut self, how: u32, value: u32, yes: Label, no: Label) -> &mut Self {
        self.list.push(Insn { code: BPF_JMP | how | BPF_K, k: value, yes, no });
        self
    }

    /// Jumps to a label.
    pub fn goto(&mut self, to: Label) -> &mut Self {
        self.list.push(Insn { code: BPF_JMP | BPF_JA, k: 0, yes: to, no: to });
        self
    }

    /// Labels the next instruction. Jumps lead to the next label of their name.
    pub fn label(&mut self, name: Label) -> &mut Self {
        self.labels.push((name, self.list.len()));
        self
    }

    /// Ends with a verdict.
    pub fn ret(&mut self, verdict: u32) -> &mut Self {
        self.put(BPF_RET | BPF_K, verdict)
    }

    /// Ends with A as the verdict.
    pub fn ret_a(&mut self) -> &mut Self {
        self.put(BPF_RET | BPF_A, 0)
    }

    /// The instructions with distances in place of labels.
    ///
    /// # Panics
    /// When a label is missing behind a jump to it, or is too far behind it.
    pub fn assemble(&self) -> Vec<libc::sock_filter> {
        let distance = |from: usize, to: Label| {
            let ahead = self.labels.iter().find(|(name, place)| *name == to && *place > from);
            ahead.expect("every label is placed ahead").1 - (from + 1)
        };
        let near = |from: usize, to: Label| match to {
            NEXT => 0,
            to => u8::try_from(distance(from, to)).expect("the program is short"),
        };
        let each = self.list.iter().enumerate();
        each.map(|(at, insn)| match insn.code == BPF_JMP | BPF_JA {
            true => libc::sock_filter { code: insn.code as u16, jt: 0, jf: 0, k: distance(at, insn.yes) as u32 },
            false => {
                let (jt, jf) = (near(at, insn.yes), near(at, insn.no));
                libc::sock_filter { code: insn.code as u16, jt, jf, k: insn.k }
            }
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_lead_to_their_labels() {
        let mut program = Program::new();
        program.load(Size::Word, 0).jump(libc::BPF_JEQ, 7, "far", NEXT).goto("end").label("far").ret(1);
        program.label("end").ret(2);
        let insns = program.assemble();
        assert_eq!((insns[1].jt, insns[1].jf), (1, 0));
        assert_eq!(insns[2].k, 1);
    }

    #[test]
    #[should_panic(expected = "every label is placed ahead")]
    fn a_missing_label_is_a_mistake() {
        Program::new().goto("nowhere").assemble();
    }
}
