//! Tables on packets that tests make, by the rules of the kernel's own evaluation (`nft_do_chain`). There is no state in it:
//! no connections, no routes, no sockets but what a packet says of its own.

mod packet;

pub use packet::{Device, Packet};

use crate::field::Field;
use crate::rule::{Rule, Step, Test};
use crate::table::{Point, Set, Table};
use crate::value::Value;

/// The end of a packet's way through rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It passes.
    Accept,
    /// It is dropped.
    Drop,
    /// It is dropped, and its sender is told.
    Reject,
    /// It leaves by the device with this index instead.
    Forward(u32),
    /// One of several queues has it.
    Queue {
        /// The number of the first.
        first: u16,
        /// Their number.
        total: u16,
    },
}

/// A verdict, and the chain of the rule that ended the way; `None` where no rule did.
pub type Judged<'a> = (Verdict, Option<&'a str>);

/// The rules on the way have no more than this many chains one in another.
const DEPTH: usize = 16;

impl Table {
    /// The verdict of a chain. The packet has the mark that rules have given it.
    ///
    /// # Panics
    /// When there is no such chain or set, or jumps go round in a circle.
    pub fn judge<'a>(&'a self, chain: &'a str, packet: &mut Packet) -> Judged<'a> {
        self.through(chain, packet, DEPTH).unwrap_or((Verdict::Accept, None))
    }

    fn through<'a>(&'a self, name: &'a str, packet: &mut Packet, depth: usize) -> Option<Judged<'a>> {
        assert!(depth > 0, "jumps go round in a circle");
        let chain = self.chains.iter().find(|chain| chain.name == name);
        let rules = &chain.unwrap_or_else(|| panic!("there is no chain {name}")).rules;
        rules.iter().find_map(|rule| self.by(rule, name, packet, depth))
    }

    /// The verdict of one rule, if it has any for the packet.
    fn by<'a>(&'a self, rule: &'a Rule, chain: &'a str, packet: &mut Packet, depth: usize) -> Option<Judged<'a>> {
        for step in &rule.steps {
            let verdict = match step {
                Step::Is { field, mask, tests } => {
                    let value = packet.field(field)?;
                    let value = mask.map_or(value, |mask| value.and(mask));
                    if !tests.iter().all(|test| test.passes(value)) {
                        return None;
                    }
                    continue;
                }
                Step::In { fields, set } => {
                    if !self.set(set).has(&key(fields, packet)?) {
                        return None;
                    }
                    continue;
                }
                Step::Between { fields: [from, to], pairs } => {
                    let (from, to) = (packet.field(from)?, packet.field(to)?);
                    if !pairs.iter().any(|[source, destination]| source.has(from) && destination.has(to)) {
                        return None;
                    }
                    continue;
                }
                Step::SetMark { keep, set } => {
                    packet.mark = packet.mark & keep & !set | set;
                    continue;
                }
                Step::SetMarkTo(field) => {
                    let value = packet.field(field)?;
                    packet.mark = value.bytes().first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
                    continue;
                }
                Step::SetPriority(priority) => {
                    packet.priority = *priority;
                    continue;
                }
                Step::Write { to, from } => {
                    packet.write(to, packet.field(from)?);
                    continue;
                }
                Step::Count(_) => continue,
                // A jump ends the rule: a packet that comes back goes on with the next one.
                Step::Jump(to) => return self.through(to, packet, depth - 1),
                Step::Accept => Verdict::Accept,
                Step::Drop => Verdict::Drop,
                Step::Reject => Verdict::Reject,
                Step::Forward(device) => Verdict::Forward(*device),
                Step::Queue { first, total, .. } => Verdict::Queue { first: *first, total: *total },
            };
            return Some((verdict, Some(chain)));
        }
        None
    }

    fn set(&self, name: &str) -> &Set {
        self.sets.iter().find(|set| set.name == name).unwrap_or_else(|| panic!("there is no set {name}"))
    }
}

/// The verdict of all chains of some tables at a hook: what one lets pass comes to the next by priority.
///
/// # Panics
/// As [`Table::judge`].
pub fn at<'a>(tables: &[&'a Table], point: Point, packet: &mut Packet) -> Judged<'a> {
    let chains = tables.iter().flat_map(|table| table.chains.iter().map(move |chain| (*table, chain)));
    let mut here: Vec<_> = chains
        .filter_map(|(table, chain)| {
            let hook = chain.hook.as_ref().filter(|hook| hook.point == point)?;
            Some((hook.priority, table, &*chain.name))
        })
        .collect();
    here.sort_by_key(|(priority, ..)| *priority);
    let mut last = (Verdict::Accept, None);
    for (_, table, name) in here {
        last = table.judge(name, packet);
        if last.0 != Verdict::Accept {
            break;
        }
    }
    last
}

impl Test {
    fn passes(self, value: Value) -> bool {
        match self {
            Test::Eq(other) => value == other,
            Test::Ne(other) => value != other,
            Test::Ge(other) => value >= other,
            Test::Le(other) => value <= other,
            Test::Outside(first, last) => value < first || value > last,
        }
    }
}

/// Fields one behind another, each padded to words of four bytes.
fn key(fields: &[&'static Field], packet: &Packet) -> Option<Vec<u8>> {
    let mut key = Vec::new();
    for field in fields {
        key.extend_from_slice(packet.field(field)?.bytes());
        key.resize(key.len().next_multiple_of(4), 0);
    }
    Some(key)
}

impl Set {
    fn has(&self, key: &[u8]) -> bool {
        if !self.intervals {
            return self.elements.iter().any(|element| element.key == key);
        }
        // At the same key an interval ends before another one begins.
        let up_to_it = self.elements.iter().filter(|element| &*element.key <= key);
        up_to_it.max_by_key(|element| (&element.key, !element.ends)).is_some_and(|element| !element.ends)
    }
}
