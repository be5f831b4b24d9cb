//! A rule: a list of steps, which a packet takes one after another.

use crate::field::{Field, MARK, USER};
use crate::value::{Prefix, Value};

/// A step of a rule. Where a packet does not pass a step, or lacks a field, the next rule is for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A field, or the bits of it that a mask keeps, passes all tests.
    Is {
        /// The field.
        field: &'static Field,
        /// The mask, as long as the field.
        mask: Option<Value>,
        /// The tests.
        tests: Vec<Test>,
    },
    /// A set has the fields, one behind another.
    In {
        /// The fields, each padded to words of four bytes.
        fields: Vec<&'static Field>,
        /// The set's name.
        set: &'static str,
    },
    /// One of the pairs has both addresses. They are in a set that has no others, and whose name the transaction knows. A rule has one such
    /// step at most.
    Between {
        /// The fields of the addresses.
        fields: [&'static Field; 2],
        /// The pairs, of which no two have the same addresses.
        pairs: Vec<Pair>,
    },
    /// Changes the packet's mark.
    SetMark {
        /// The bits that stay.
        keep: u32,
        /// The bits that are set.
        set: u32,
    },
    /// Sets the packet's mark to the four bytes of a field, as they are.
    SetMarkTo(&'static Field),
    /// Sets the packet's priority.
    SetPriority(u32),
    /// Writes a field into the header of the frame.
    Write {
        /// The place in the header.
        to: &'static Field,
        /// The field that is written there, of the same length.
        from: &'static Field,
    },
    /// Counts the packet, from this number of packets on.
    Count(u64),
    /// The packet passes.
    Accept,
    /// The packet is dropped.
    Drop,
    /// The packet is dropped, and its sender gets an ICMP error: it is prohibited here.
    Reject,
    /// The frame leaves by the device with this index instead. Without such a device it is dropped.
    Forward(u32),
    /// Goes through the rules of another chain, and then on with the next rule.
    Jump(&'static str),
    /// One of several queues gets the packet. Without a listener it is dropped.
    Queue {
        /// The number of the first.
        first: u16,
        /// The number of queues that follow one another.
        total: u16,
        /// The way in which the kernel is asked for it.
        way: QueueWay,
    },
}

impl Step {
    /// Whether no packet takes a step behind it.
    fn ends(&self) -> bool {
        match self {
            Step::Accept | Step::Drop | Step::Reject => true,
            Step::Forward(_) | Step::Jump(_) | Step::Queue { .. } => true,
            Step::Is { .. } | Step::In { .. } | Step::Between { .. } | Step::SetMark { .. } => false,
            Step::SetMarkTo(_) | Step::SetPriority(_) | Step::Write { .. } | Step::Count(_) => false,
        }
    }
}

/// The prefixes of a source and of a destination.
pub type Pair = [Prefix; 2];

/// A test of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    /// Equal.
    Eq(Value),
    /// Not equal.
    Ne(Value),
    /// Greater or equal.
    Ge(Value),
    /// Less or equal.
    Le(Value),
    /// Less than the first, or greater than the last.
    Outside(Value, Value),
}

/// The way in which a rule hands packets to a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueWay {
    /// nftables' own expression (`CONFIG_NFT_QUEUE`).
    Native,
    /// The target of x_tables, through `CONFIG_NFT_COMPAT`, as `iptables-nft` does it.
    Compat,
}

/// A rule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// Its steps.
    pub steps: Vec<Step>,
}

impl Rule {
    /// A rule without steps.
    pub fn new() -> Self {
        Rule::default()
    }

    /// The pairs in whose set it looks, if there is one.
    pub(crate) fn pairs(&self) -> Option<&[Pair]> {
        self.steps.iter().find_map(|step| match step {
            Step::Between { pairs, .. } => Some(&pairs[..]),
            _ => None,
        })
    }

    /// Adds a step.
    #[must_use]
    pub fn step(mut self, step: Step) -> Self {
        debug_assert!(!self.steps.last().is_some_and(Step::ends), "nothing comes behind {:?}", self.steps.last());
        self.steps.push(step);
        self
    }

    /// Adds several steps.
    #[must_use]
    pub fn steps(self, steps: impl IntoIterator<Item = Step>) -> Self {
        steps.into_iter().fold(self, Rule::step)
    }

    /// Goes on if a field passes all tests.
    #[must_use]
    pub fn tests(self, field: &'static Field, tests: impl Into<Vec<Test>>) -> Self {
        self.step(Step::Is { field, mask: None, tests: tests.into() })
    }

    /// Goes on if a field has a value.
    #[must_use]
    pub fn is(self, field: &'static Field, value: impl Into<Value>) -> Self {
        self.tests(field, [Test::Eq(value.into())])
    }

    /// Goes on if a field has another value.
    #[must_use]
    pub fn other_than(self, field: &'static Field, value: impl Into<Value>) -> Self {
        self.tests(field, [Test::Ne(value.into())])
    }

    /// Goes on if the bits of a field that a mask keeps are these.
    #[must_use]
    pub fn has(self, field: &'static Field, mask: impl Into<Value>, value: impl Into<Value>) -> Self {
        self.step(Step::Is { field, mask: Some(mask.into()), tests: vec![Test::Eq(value.into())] })
    }

    /// Goes on if any of the bits of a field that a mask keeps is set.
    #[must_use]
    pub fn has_any(self, field: &'static Field, mask: impl Into<Value>) -> Self {
        let mask = mask.into();
        let none = Value::new(&[0; Value::MAX][..mask.bytes().len()]);
        self.step(Step::Is { field, mask: Some(mask), tests: vec![Test::Ne(none)] })
    }

    /// Goes on for packets of a user's sockets; for all if none is given.
    #[must_use]
    pub fn of_user(self, user: Option<u32>) -> Self {
        match user {
            Some(user) => self.is(USER, Value::host(user)),
            None => self,
        }
    }

    /// Goes on if bits of the mark are these.
    #[must_use]
    pub fn has_mark(self, mask: u32, mark: u32) -> Self {
        self.has(MARK, Value::host(mask), Value::host(mark))
    }

    /// Goes on if a set has the fields.
    #[must_use]
    pub fn in_set(self, fields: impl Into<Vec<&'static Field>>, set: &'static str) -> Self {
        self.step(Step::In { fields: fields.into(), set })
    }

    /// Changes the mark.
    #[must_use]
    pub fn set_mark(self, keep: u32, set: u32) -> Self {
        self.step(Step::SetMark { keep, set })
    }

    /// Sets the priority.
    #[must_use]
    pub fn set_priority(self, priority: u32) -> Self {
        self.step(Step::SetPriority(priority))
    }

    /// The packet passes.
    #[must_use]
    pub fn accept(self) -> Self {
        self.step(Step::Accept)
    }

    /// The packet is dropped.
    #[must_use]
    pub fn drop(self) -> Self {
        self.step(Step::Drop)
    }

    /// The same rule with a jump where packets would pass.
    #[must_use]
    pub(crate) fn instead_of_accept(mut self, chain: &'static str) -> Self {
        if let Some(last @ Step::Accept) = self.steps.last_mut() {
            *last = Step::Jump(chain);
        }
        self
    }

    /// Goes through another chain.
    #[must_use]
    pub fn jump(self, chain: &'static str) -> Self {
        self.step(Step::Jump(chain))
    }
}
