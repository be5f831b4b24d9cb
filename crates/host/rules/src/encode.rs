//! Rules as netlink attributes (`linux/netfilter/nf_tables.h`).

use crate::field::{Field, Header, Place};
use crate::nfta::*;
use crate::rule::{QueueWay, Rule, Step, Test};
use crate::value::Value;
use sealane_abi::netlink::Attrs;
use sealane_sys::netlink::Attributes;

/// The register of steps that need one.
const REGISTER: i32 = libc::NFT_REG_1;

/// The packet passes.
const NF_ACCEPT: i32 = 1;
/// The packet is dropped.
const NF_DROP: i32 = 0;

const COUNTER: &str = "counter";
const LOOKUP: &str = "lookup";

/// The name of a set of pairs, whatever it is in the kernel.
pub(crate) const ANY_SET: &str = "";

/// The number of packets that an expression has counted, if it is a counter.
pub(crate) fn counted(expression: &[u8]) -> Option<u64> {
    let packets = attribute(data_of(expression, COUNTER)?, NFTA_COUNTER_PACKETS)?;
    Some(u64::from_be_bytes(packets.try_into().ok()?))
}

/// Whether a rule that the kernel tells is one that was written: each of its expressions has what was written, and
/// perhaps what that says by default. What has been counted does not matter.
pub(crate) fn is_told(written: &[u8], told: &[u8]) -> bool {
    let same = |written, told| {
        let of = |type_| [written, told].map(|expression| attribute(expression, type_).unwrap_or_default());
        let (names, data) = (of(NFTA_EXPR_NAME), of(NFTA_EXPR_DATA));
        let is_free = data_of(written, COUNTER).is_some() || looks_up(written) == Some(ANY_SET);
        names[0] == names[1] && (is_free || has_all(data[0], data[1]))
    };
    let [mut written, mut told] = [written, told].map(|list| Attrs::new(list).map(|expression| expression.payload));
    written.by_ref().all(|expression| told.next().is_some_and(|there| same(expression, there))) && told.next().is_none()
}

/// The name of the set in which an expression looks something up.
pub(crate) fn looks_up(expression: &[u8]) -> Option<&str> {
    let name = attribute(data_of(expression, LOOKUP)?, NFTA_LOOKUP_SET)?;
    core::str::from_utf8(name.strip_suffix(&[0])?).ok()
}

/// The data of an expression, if it is of this kind.
fn data_of<'a>(expression: &'a [u8], kind: &str) -> Option<&'a [u8]> {
    let is_it = attribute(expression, NFTA_EXPR_NAME)?.strip_suffix(&[0]) == Some(kind.as_bytes());
    attribute(expression, NFTA_EXPR_DATA).filter(|_| is_it)
}

/// The payload of the first attribute of a type.
pub(crate) fn attribute(attributes: &[u8], type_: u16) -> Option<&[u8]> {
    Attrs::new(attributes).find(|a| a.type_ == type_).map(|a| a.payload)
}

/// Whether all attributes are among those that the kernel tells.
fn has_all(written: &[u8], told: &[u8]) -> bool {
    Attrs::new(written).all(|wanted| {
        let there = Attrs::new(told).find(|there| there.type_ == wanted.type_).map(|there| there.payload);
        there.is_some_and(|there| there == wanted.payload || wanted.nested && has_all(wanted.payload, there))
    })
}

/// Writes the expressions of a rule, within `NFTA_RULE_EXPRESSIONS`. The set of its pairs has this name.
pub(crate) fn write(rule: &Rule, set: &str, list: &mut Attributes<'_>) {
    rule.steps.iter().for_each(|step| write_step(&mut Expressions(list), step, set));
}

fn write_step(to: &mut Expressions<'_, '_>, step: &Step, set_of_pairs: &str) {
    match *step {
        Step::Is { field, mask, ref tests } => {
            to.load(field, REGISTER);
            if let Some(mask) = mask {
                to.bitwise(mask.bytes(), &[0; Value::MAX][..mask.bytes().len()]);
            }
            tests.iter().for_each(|test| to.test(test));
        }
        Step::In { ref fields, set } => to.look_up(fields, set),
        Step::Between { ref fields, .. } => to.look_up(fields, set_of_pairs),
        Step::SetMark { keep, set } => {
            to.load(crate::field::MARK, REGISTER);
            if keep != u32::MAX {
                to.bitwise(&keep.to_ne_bytes(), &[0; 4]);
            }
            // A mark that is set as a whole may be 0.
            if set != 0 || keep == 0 {
                to.bitwise(&(!set).to_ne_bytes(), &set.to_ne_bytes());
            }
            to.set_meta(libc::NFT_META_MARK);
        }
        Step::SetMarkTo(field) => {
            to.load(field, REGISTER);
            to.set_meta(libc::NFT_META_MARK);
        }
        Step::SetPriority(priority) => {
            to.immediate(priority);
            to.set_meta(libc::NFT_META_PRIORITY);
        }
        Step::Write { to: place, from } => {
            to.load(from, REGISTER);
            to.write_header(place);
        }
        Step::Forward(device) => {
            to.immediate(device);
            to.expression("fwd", |a| a.be32(1, REGISTER as u32));
        }
        Step::Count(packets) => to.expression(COUNTER, |a| {
            a.put(NFTA_COUNTER_BYTES, &0u64.to_be_bytes());
            a.put(NFTA_COUNTER_PACKETS, &packets.to_be_bytes());
        }),
        Step::Accept => to.verdict(NF_ACCEPT, None),
        Step::Drop => to.verdict(NF_DROP, None),
        Step::Reject => {
            const NFT_REJECT_ICMPX_UNREACH: u32 = 2;
            const NFT_REJECT_ICMPX_ADMIN_PROHIBITED: u8 = 3;
            to.expression("reject", |a| {
                a.be32(1, NFT_REJECT_ICMPX_UNREACH);
                a.put(2, &[NFT_REJECT_ICMPX_ADMIN_PROHIBITED]);
            });
        }
        Step::Jump(chain) => to.verdict(libc::NFT_JUMP, Some(chain)),
        // `bypass` is never set: without a listener the packet is dropped.
        Step::Queue { first, total, way: QueueWay::Native } => to.expression("queue", |a| {
            a.put(1, &first.to_be_bytes());
            a.put(2, &total.to_be_bytes());
        }),
        Step::Queue { first, total, way: QueueWay::Compat } => {
            // struct xt_NFQ_info_v3 { queuenum, queues_total, flags }, padded to 8 bytes.
            let mut info = [0u8; 8];
            info[..2].copy_from_slice(&first.to_ne_bytes());
            info[2..4].copy_from_slice(&total.to_ne_bytes());
            to.expression("target", |a| {
                a.str(1, "NFQUEUE");
                a.be32(2, 3);
                a.put(3, &info);
            });
        }
    }
}

/// The register of a word of a key, by the number that the kernel tells: those of sixteen bytes have numbers of their own.
fn register_of(word: i32) -> i32 {
    if word % 4 == 0 { REGISTER + word / 4 } else { libc::NFT_REG32_00 + word }
}

/// The number of registers that a field takes.
fn words(field: &Field) -> i32 {
    match field.place {
        Place::Header { len, .. } | Place::V6Fragment { len, .. } => len.div_ceil(4) as i32,
        Place::Meta(libc::NFT_META_IIFNAME | libc::NFT_META_OIFNAME) => 4,
        Place::Meta(_) | Place::TcpOption(_) | Place::SocketMark | Place::DestinationType => 1,
    }
}

/// The expressions of one rule.
struct Expressions<'a, 'b>(&'a mut Attributes<'b>);

impl Expressions<'_, '_> {
    fn expression(&mut self, name: &str, data: impl FnOnce(&mut Attributes<'_>)) {
        self.0.nest(NFTA_LIST_ELEM, |a| {
            a.str(NFTA_EXPR_NAME, name);
            a.nest(NFTA_EXPR_DATA, data);
        });
    }

    /// Loads a field.
    fn load(&mut self, field: &Field, register: i32) {
        const NFT_EXTHDR_F_PRESENT: u32 = 1;
        const NFT_EXTHDR_OP_TCPOPT: u32 = 1;
        const NFT_SOCKET_MARK: u32 = 1;
        const NFT_FIB_RESULT_ADDRTYPE: u32 = 3;
        const NFTA_FIB_F_DADDR: u32 = 1 << 1;
        match field.place {
            Place::Meta(key) => self.expression("meta", |a| {
                a.be32(2, key as u32);
                a.be32(1, register as u32);
            }),
            Place::Header { of, at, len } => self.expression("payload", |a| {
                a.be32(1, register as u32);
                header_bytes(a, of, at, len);
            }),
            Place::TcpOption(number) => self.expression("exthdr", |a| {
                a.be32(1, register as u32);
                a.put(2, &[number]);
                a.be32(3, 0);
                a.be32(4, 1);
                a.be32(5, NFT_EXTHDR_F_PRESENT);
                a.be32(6, NFT_EXTHDR_OP_TCPOPT);
            }),
            Place::V6Fragment { at, len } => self.expression("exthdr", |a| {
                a.be32(1, register as u32);
                a.put(2, &[libc::IPPROTO_FRAGMENT as u8]);
                a.be32(3, at);
                a.be32(4, len);
            }),
            Place::SocketMark => self.expression("socket", |a| {
                a.be32(1, NFT_SOCKET_MARK);
                a.be32(2, register as u32);
            }),
            Place::DestinationType => self.expression("fib", |a| {
                a.be32(1, register as u32);
                a.be32(2, NFT_FIB_RESULT_ADDRTYPE);
                a.be32(3, NFTA_FIB_F_DADDR);
            }),
        }
    }

    /// Looks for fields, one behind another, in a set.
    fn look_up(&mut self, fields: &[&Field], set: &str) {
        let mut word = 0;
        for field in fields {
            self.load(field, register_of(word));
            word += words(field);
        }
        self.expression(LOOKUP, |a| {
            a.str(NFTA_LOOKUP_SET, set);
            a.be32(2, REGISTER as u32);
        });
    }

    /// Loads a number in the byte order of this machine.
    fn immediate(&mut self, number: u32) {
        self.expression("immediate", |a| {
            a.be32(1, REGISTER as u32);
            a.nest(2, |a| a.put(NFTA_DATA_VALUE, &number.to_ne_bytes()));
        });
    }

    /// Writes what is loaded into a header that no checksum covers.
    fn write_header(&mut self, field: &Field) {
        let Place::Header { of, at, len } = field.place else { unreachable!("{} is not in a header", field.term) };
        self.expression("payload", |a| {
            header_bytes(a, of, at, len);
            a.be32(5, REGISTER as u32);
        });
    }

    /// Gives the packet what is loaded.
    fn set_meta(&mut self, key: i32) {
        self.expression("meta", |a| {
            a.be32(2, key as u32);
            a.be32(3, REGISTER as u32);
        });
    }

    /// Keeps the bits of a mask, and changes those of another one.
    fn bitwise(&mut self, mask: &[u8], xor: &[u8]) {
        self.expression("bitwise", |a| {
            a.be32(1, REGISTER as u32);
            a.be32(2, REGISTER as u32);
            a.be32(3, mask.len() as u32);
            a.nest(4, |a| a.put(NFTA_DATA_VALUE, mask));
            a.nest(5, |a| a.put(NFTA_DATA_VALUE, xor));
        });
    }

    fn test(&mut self, test: &Test) {
        const NFT_RANGE_NEQ: u32 = 1;
        let (op, value) = match test {
            Test::Eq(value) => (libc::NFT_CMP_EQ, value),
            Test::Ne(value) => (libc::NFT_CMP_NEQ, value),
            Test::Ge(value) => (libc::NFT_CMP_GTE, value),
            Test::Le(value) => (libc::NFT_CMP_LTE, value),
            Test::Outside(first, last) => {
                return self.expression("range", |a| {
                    a.be32(1, REGISTER as u32);
                    a.be32(2, NFT_RANGE_NEQ);
                    a.nest(3, |a| a.put(NFTA_DATA_VALUE, first.bytes()));
                    a.nest(4, |a| a.put(NFTA_DATA_VALUE, last.bytes()));
                });
            }
        };
        self.expression("cmp", |a| {
            a.be32(1, REGISTER as u32);
            a.be32(2, op as u32);
            a.nest(3, |a| a.put(NFTA_DATA_VALUE, value.bytes()));
        });
    }

    fn verdict(&mut self, code: i32, chain: Option<&str>) {
        self.expression("immediate", |a| {
            a.be32(1, libc::NFT_REG_VERDICT as u32);
            a.nest(2, |a| {
                a.nest(NFTA_DATA_VERDICT, |a| {
                    a.be32(NFTA_VERDICT_CODE, code as u32);
                    if let Some(chain) = chain {
                        a.str(NFTA_VERDICT_CHAIN, chain);
                    }
                });
            });
        });
    }
}

/// The place of bytes in a header.
fn header_bytes(a: &mut Attributes<'_>, of: Header, at: u32, len: u32) {
    let base = match of {
        Header::Link => libc::NFT_PAYLOAD_LL_HEADER,
        Header::Network => libc::NFT_PAYLOAD_NETWORK_HEADER,
        Header::Transport => libc::NFT_PAYLOAD_TRANSPORT_HEADER,
    };
    a.be32(2, base as u32);
    a.be32(3, at);
    a.be32(4, len);
}

#[cfg(test)]
mod tests;
