//! Bytes of rules, one for each kind of step, test and place. The evaluation of rules in other tests knows nothing of them, and most
//! tests by a kernel need root.

use super::write;
use crate::field::*;
use crate::rule::{QueueWay, Rule, Step, Test};
use crate::value::Value;
use sealane_sys::netlink::Messages;

/// The expressions as hexadecimal digits: a line for each rule of [`rules`].
const WRITTEN: &str = include_str!("written.txt");

fn rules() -> Vec<(&'static str, Rule)> {
    let queue = |way| Rule::new().step(Step::Queue { first: 7, total: 3, way });
    vec![
        ("meta", Rule::new().is(FAMILY, 2u8)),
        ("name", Rule::new().is(IN_NAME, Value::name("eth0"))),
        ("link", Rule::new().is(LINK_TYPE, 0x800u16)),
        ("network", Rule::new().has(V4_FRAGMENT, 0x1fffu16, 0u16)),
        ("transport", Rule::new().tests(SOURCE_PORT, [Test::Ge(1u16.into()), Test::Le(1023u16.into())])),
        ("v6 fragment", Rule::new().has_any(V6_FRAGMENT, 0xfff8u16)),
        ("tcp option", Rule::new().is(TCP_AO, 1u8)),
        ("socket", Rule::new().other_than(SOCKET_MARK, Value::host(0x0102_0304))),
        ("outside", Rule::new().tests(V6_FRAGMENT_NEXT, [Test::Outside(1u8.into(), 42u8.into())])),
        ("set of one", Rule::new().in_set([SOURCES[0]], "hosts4")),
        ("set of five", Rule::new().in_set([IN, SOURCES[1], SOURCE_PORT, DESTINATIONS[1], DESTINATION_PORT], "flows6")),
        ("set of pairs", Rule::new().step(Step::Between { fields: [SOURCES[0], DESTINATIONS[0]], pairs: Vec::new() })),
        ("mark, some bits", Rule::new().set_mark(0xffff_0000, 0x12)),
        ("mark, all bits", Rule::new().set_mark(0, 0)),
        ("mark, more bits", Rule::new().set_mark(u32::MAX, 0x8000_0000)),
        ("mark, fewer bits", Rule::new().set_mark(0x7fff_ffff, 0)),
        ("write", Rule::new().step(Step::Write { to: LINK_MARK, from: MARK })),
        ("forward", Rule::new().step(Step::Forward(9))),
        ("count", Rule::new().step(Step::Count(258))),
        ("accept", Rule::new().accept()),
        ("drop", Rule::new().drop()),
        ("reject", Rule::new().step(Step::Reject)),
        ("jump", Rule::new().jump("leaving")),
        ("queue", queue(QueueWay::Native)),
        ("target", queue(QueueWay::Compat)),
    ]
}

#[test]
fn the_bytes_of_each_kind_of_step() {
    let hex = |rule: &Rule| {
        let mut messages = Messages::new();
        messages.push(0, 0, &[], |list| write(rule, "between1", list));
        messages.bytes()[16..].iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let written: String = rules().iter().map(|(name, rule)| format!("{name}: {}\n", hex(rule))).collect();
    // Numbers in the order of the host are those of a little one.
    if cfg!(target_endian = "little") {
        assert_eq!(written, WRITTEN, "{written}");
    }
}
