//! Expressions of nftables rules (`linux/netfilter/nf_tables.h`), written as netlink attributes.

use crate::netlink::Attributes;
use sealane_abi::netlink::Attrs;

const NFTA_LIST_ELEM: u16 = 1;
const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
const NFTA_DATA_VALUE: u16 = 1;
const NFTA_DATA_VERDICT: u16 = 2;
const NFTA_VERDICT_CODE: u16 = 1;
const NFTA_VERDICT_CHAIN: u16 = 2;

/// The register of rules that need one.
pub(super) const R1: i32 = libc::NFT_REG_1;

/// The packet passes.
const NF_ACCEPT: u32 = 1;
/// The packet is dropped.
const NF_DROP: u32 = 0;

const COUNTER: &str = "counter";
const NFTA_COUNTER_BYTES: u16 = 1;
const NFTA_COUNTER_PACKETS: u16 = 2;

/// The number of packets that an expression has counted, if it is a counter.
pub(super) fn counted(expression: &[u8]) -> Option<u64> {
    let of = |bytes, type_| Attrs::new(bytes).find(|a| a.type_ == type_).map(|a| a.payload);
    let name = of(expression, NFTA_EXPR_NAME)?.strip_suffix(&[0])?;
    let packets = of(of(expression, NFTA_EXPR_DATA).filter(|_| name == COUNTER.as_bytes())?, NFTA_COUNTER_PACKETS)?;
    Some(u64::from_be_bytes(packets.try_into().ok()?))
}

/// Whether a rule that the kernel tells is one that was written: each of its expressions has what was written, and
/// perhaps what that says by default. What has been counted does not matter.
pub(super) fn is_told(written: &[u8], told: &[u8]) -> bool {
    let of = |expression, type_| Attrs::new(expression).find(|a| a.type_ == type_).map_or(&[][..], |a| a.payload);
    let same = |written, told| {
        let names = [written, told].map(|expression| of(expression, NFTA_EXPR_NAME));
        let data = [written, told].map(|expression| of(expression, NFTA_EXPR_DATA));
        names[0] == names[1] && (names[0].strip_suffix(&[0]) == Some(COUNTER.as_bytes()) || has_all(data[0], data[1]))
    };
    let [mut written, mut told] = [written, told].map(|list| Attrs::new(list).map(|expression| expression.payload));
    written.by_ref().all(|expression| told.next().is_some_and(|there| same(expression, there))) && told.next().is_none()
}

/// Whether all attributes are among those that the kernel tells.
fn has_all(written: &[u8], told: &[u8]) -> bool {
    Attrs::new(written).all(|wanted| {
        let there = Attrs::new(told).find(|there| there.type_ == wanted.type_).map(|there| there.payload);
        there.is_some_and(|there| there == wanted.payload || wanted.nested && has_all(wanted.payload, there))
    })
}

/// The way in which a rule hands packets to a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueKind {
    /// nftables' own expression (`CONFIG_NFT_QUEUE`).
    Native,
    /// The target of x_tables, through `CONFIG_NFT_COMPAT`, as `iptables-nft` does it.
    Compat,
}

/// The expressions of one rule, within `NFTA_RULE_EXPRESSIONS`.
pub(super) struct Rule<'a, 'b> {
    pub(super) list: &'a mut Attributes<'b>,
}

impl Rule<'_, '_> {
    fn expr(&mut self, name: &str, data: impl FnOnce(&mut Attributes<'_>)) -> &mut Self {
        self.list.nest(NFTA_LIST_ELEM, |a| {
            a.str(NFTA_EXPR_NAME, name);
            a.nest(NFTA_EXPR_DATA, data);
        });
        self
    }

    /// Loads a metadata field of the packet.
    pub(super) fn meta(&mut self, key: i32, register: i32) -> &mut Self {
        self.expr("meta", |a| {
            a.be32(2, key as u32);
            a.be32(1, register as u32);
        })
    }

    /// Loads bytes of a header.
    pub(super) fn payload(&mut self, base: i32, offset: u32, len: u32, register: i32) -> &mut Self {
        self.expr("payload", |a| {
            a.be32(1, register as u32);
            a.be32(2, base as u32);
            a.be32(3, offset);
            a.be32(4, len);
        })
    }

    /// Loads 1 if the TCP option is present, else 0; the rule does not match if the option list is malformed.
    pub(super) fn tcp_option_exists(&mut self, kind: u8, register: i32) -> &mut Self {
        const NFT_EXTHDR_F_PRESENT: u32 = 1;
        const NFT_EXTHDR_OP_TCPOPT: u32 = 1;
        self.expr("exthdr", |a| {
            a.be32(1, register as u32);
            a.put(2, &[kind]);
            a.be32(3, 0);
            a.be32(4, 1);
            a.be32(5, NFT_EXTHDR_F_PRESENT);
            a.be32(6, NFT_EXTHDR_OP_TCPOPT);
        })
    }

    /// Continues only if the register compares with `value` as `op` says.
    pub(super) fn cmp(&mut self, register: i32, op: i32, value: &[u8]) -> &mut Self {
        self.expr("cmp", |a| {
            a.be32(1, register as u32);
            a.be32(2, op as u32);
            a.nest(3, |a| a.put(NFTA_DATA_VALUE, value));
        })
    }

    /// Applies a mask to a register.
    pub(super) fn and(&mut self, register: i32, mask: &[u8]) -> &mut Self {
        self.expr("bitwise", |a| {
            a.be32(1, register as u32);
            a.be32(2, register as u32);
            a.be32(3, mask.len() as u32);
            a.nest(4, |a| a.put(NFTA_DATA_VALUE, mask));
            a.nest(5, |a| a.put(NFTA_DATA_VALUE, &[0; 16][..mask.len()]));
        })
    }

    /// Sets bits in a four-byte register.
    pub(super) fn or(&mut self, register: i32, bits: u32) -> &mut Self {
        self.expr("bitwise", |a| {
            a.be32(1, register as u32);
            a.be32(2, register as u32);
            a.be32(3, 4);
            a.nest(4, |a| a.put(NFTA_DATA_VALUE, &(!bits).to_ne_bytes()));
            a.nest(5, |a| a.put(NFTA_DATA_VALUE, &bits.to_ne_bytes()));
        })
    }

    /// Continues only for packets from sockets of a user, if one is given.
    pub(super) fn of_user(&mut self, user: Option<u32>) -> &mut Self {
        match user {
            Some(user) => {
                self.meta(libc::NFT_META_SKUID, R1);
                self.cmp(R1, libc::NFT_CMP_EQ, &user.to_ne_bytes())
            }
            None => self,
        }
    }

    /// Sets the packet's mark from a register.
    pub(super) fn set_mark(&mut self, register: i32) -> &mut Self {
        self.expr("meta", |a| {
            a.be32(2, libc::NFT_META_MARK as u32);
            a.be32(3, register as u32);
        })
    }

    /// Loads the fragment offset and flags of IPv6 (RFC 8200 section 4.5); the rule does not match packets without
    /// them.
    pub(super) fn v6_fragment(&mut self, register: i32) -> &mut Self {
        self.of_v6_fragment(2, 2, register)
    }

    /// Loads the number of the header behind IPv6's fragment header; the rule does not match packets without it.
    pub(super) fn v6_fragment_next(&mut self, register: i32) -> &mut Self {
        self.of_v6_fragment(0, 1, register)
    }

    /// Loads bytes of IPv6's fragment header.
    fn of_v6_fragment(&mut self, at: u32, len: u32, register: i32) -> &mut Self {
        self.expr("exthdr", |a| {
            a.be32(1, register as u32);
            a.put(2, &[libc::IPPROTO_FRAGMENT as u8]);
            a.be32(3, at);
            a.be32(4, len);
        })
    }

    /// Continues only if the register is below the first or above the last of a range.
    pub(super) fn outside(&mut self, register: i32, (first, last): (&[u8], &[u8])) -> &mut Self {
        const NFT_RANGE_NEQ: u32 = 1;
        self.expr("range", |a| {
            a.be32(1, register as u32);
            a.be32(2, NFT_RANGE_NEQ);
            a.nest(3, |a| a.put(NFTA_DATA_VALUE, first));
            a.nest(4, |a| a.put(NFTA_DATA_VALUE, last));
        })
    }

    /// Loads the mark of the socket that a packet is for; the rule does not match if there is none.
    pub(super) fn socket_mark(&mut self, register: i32) -> &mut Self {
        const NFT_SOCKET_MARK: u32 = 1;
        self.expr("socket", |a| {
            a.be32(1, NFT_SOCKET_MARK);
            a.be32(2, register as u32);
        })
    }

    /// Calls another chain.
    pub(super) fn jump(&mut self, chain: &str) {
        self.expr("immediate", |a| {
            a.be32(1, libc::NFT_REG_VERDICT as u32);
            a.nest(2, |a| {
                a.nest(NFTA_DATA_VERDICT, |a| {
                    a.be32(NFTA_VERDICT_CODE, libc::NFT_JUMP as u32);
                    a.str(NFTA_VERDICT_CHAIN, chain);
                });
            });
        });
    }

    /// Continues only if the set contains the key that starts in the register.
    pub(super) fn lookup(&mut self, set: &str, register: i32) -> &mut Self {
        self.expr("lookup", |a| {
            a.str(1, set);
            a.be32(2, register as u32);
        })
    }

    /// Ends the rule with a verdict.
    fn verdict(&mut self, code: u32) {
        self.expr("immediate", |a| {
            a.be32(1, libc::NFT_REG_VERDICT as u32);
            a.nest(2, |a| a.nest(NFTA_DATA_VERDICT, |a| a.be32(NFTA_VERDICT_CODE, code)));
        });
    }

    /// Ends the rule: the packet passes.
    pub(super) fn accept(&mut self) {
        self.verdict(NF_ACCEPT);
    }

    /// Ends the rule: the packet is dropped.
    pub(super) fn drop(&mut self) {
        self.verdict(NF_DROP);
    }

    /// Ends the rule: the packet is dropped, and its sender gets an ICMP error: it is prohibited here.
    pub(super) fn reject(&mut self) {
        const NFT_REJECT_ICMPX_UNREACH: u32 = 2;
        const NFT_REJECT_ICMPX_ADMIN_PROHIBITED: u8 = 3;
        self.expr("reject", |a| {
            a.be32(1, NFT_REJECT_ICMPX_UNREACH);
            a.put(2, &[NFT_REJECT_ICMPX_ADMIN_PROHIBITED]);
        });
    }

    /// Counts the packets that get here, starting at `packets`.
    pub(super) fn counter(&mut self, packets: u64) -> &mut Self {
        self.expr(COUNTER, |a| {
            a.put(NFTA_COUNTER_BYTES, &0u64.to_be_bytes());
            a.put(NFTA_COUNTER_PACKETS, &packets.to_be_bytes());
        })
    }

    /// Ends the rule in one of `total` consecutive queues from `number` on. `bypass` is never set: without a listener
    /// the packet is dropped.
    pub(super) fn queue(&mut self, kind: QueueKind, number: u16, total: u16) {
        match kind {
            QueueKind::Native => self.expr("queue", |a| {
                a.put(1, &number.to_be_bytes());
                a.put(2, &total.to_be_bytes());
            }),
            QueueKind::Compat => {
                // struct xt_NFQ_info_v3 { queuenum, queues_total, flags }, padded to 8 bytes.
                let mut info = [0u8; 8];
                info[..2].copy_from_slice(&number.to_ne_bytes());
                info[2..4].copy_from_slice(&total.to_ne_bytes());
                self.expr("target", |a| {
                    a.str(1, "NFQUEUE");
                    a.be32(2, 3);
                    a.put(3, &info);
                })
            }
        };
    }
}
