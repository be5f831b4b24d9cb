//! Packets that policies cover only as they leave: none leaves in clear while their way changes, and they are sealed again afterwards.

use sealane_conformance::ipsec::{LIMIT, program};
use sealane_conformance::lab::Lab;
use sealane_conformance::skip::skip_without;
use sealane_conformance::target::{Target, sealane};

const PROGRAM: &str = "late.py";
const LATE: &str = "IPSEC=late = true";
/// The events of the program.
const EVENTS: [&str; 14] = [
    "nothing",
    "marks and priorities of others",
    "all rules of others flushed",
    "routing rules flushed",
    "policies updated",
    "the interface down and up",
    "the interface renamed and back",
    "the interface moved away and back",
    "the same while the daemon stands still",
    "our device down and up",
    "our device deleted",
    "the daemon ended",
    "the daemon killed",
    "the daemon killed while packets wait for a neighbour",
];

fn assert_events(text: &str) {
    let each = EVENTS.iter().map(|event| format!("{event}: in clear 0, answers: True\n"));
    assert_eq!(text, format!("before: in clear True\n{}", each.collect::<String>()));
}

#[test]
fn nothing_leaves_in_clear_while_its_way_changes() {
    let Some(mut lab) = Lab::new("xfrm_late::nothing_leaves_in_clear_while_its_way_changes") else { return };
    let [c, g, r] = ["c", "g", "r"].map(|which| lab.space(which));
    let (program, sealane) = (program(PROGRAM), format!("SEALANE={}", sealane().display()));
    let argv = ["env", &sealane, LATE, "python3", "-B", &program, &c, &g, &r];
    let (status, text) = lab.start(&c, &argv).finish(LIMIT * 2);
    assert_eq!(status, Some(0), "{text}");
    assert_events(&text);
}

/// Runs the program inside a kernel, with more words.
fn in_kernel(test: &str, kernel: &str, more: &str) {
    if skip_without(test, &[&Target::kernel(kernel), &Target::sealane("open")]) {
        return;
    }
    let (program, sealane) = (program(PROGRAM), sealane());
    let script = format!(
        "for n in c g r; do ip netns add $n; done; env '{LATE}' SEALANE={} python3 -B {program} c g r {more}",
        sealane.display()
    );
    let done = Target::kernel(kernel).run(&["sh", "-ec", &script], LIMIT * 4).expect("it starts");
    assert_eq!(done.status, Some(0), "{}", done.text);
    assert_events(&done.text);
}

/// With a flowtable that had taken the flows over before there were policies, and tries to again.
#[test]
fn nor_by_a_flowtable() {
    in_kernel("xfrm_late::nor_by_a_flowtable", "linux-7.3-net", "flowtable");
}

/// The kernel of Debian 12, whose rules go with their owner and whose chains go with their interface.
#[test]
#[ignore = "make accept: boots linux-6.1, which takes more than a minute"]
fn nor_with_an_older_kernel() {
    in_kernel("xfrm_late::nor_with_an_older_kernel", "linux-6.1", "");
}
