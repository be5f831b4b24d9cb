//! Several workers of one stack: packets of a state stay in order, whichever queues its flows arrive by.

use sealane_conformance::ipsec::{Host, INNER, LIMIT, OUTER, Pair};
use sealane_conformance::lab::Lab;
use sealane_conformance::target::{root, sealane};

const CONFIG: &str = "[ipsec]\nworkers = 2\n[[ipsec.device]]\nname = \"sealane0\"\nkind = \"crypto\"\n";
const FLOWS: u32 = 48;
/// Number of datagrams of a case.
const COUNT: u32 = 16_000;
/// At least this many must arrive and be handed over, or the case tests nothing.
const ENOUGH: u32 = COUNT / 20;

/// A number of states in each direction: one for each port of the receiver, or one for each CPU (RFC 9611).
struct Case {
    what: &'static str,
    states: u32,
    more: &'static str,
    offload: bool,
    per_cpu: bool,
}

impl Case {
    fn ports(&self) -> u32 {
        if self.per_cpu { 1 } else { self.states }
    }

    fn commands(&self, end: usize) -> String {
        let mut script = "ip xfrm state flush; ip xfrm policy flush\n".to_owned();
        let ([outer, _], [inner, _]) = (OUTER, INNER);
        for from in 0..2 {
            let (to, dir) = (1 - from, if from == end { "out" } else { "in" });
            let offload = if self.offload { format!("offload dev sealane0 dir {dir}") } else { String::new() };
            for n in 0..self.states {
                let (spi, reqid) = (0x1000 * (from as u32 + 1) + n, if self.per_cpu { 1 } else { 1 + n });
                let cpu = match self.per_cpu && from == end {
                    true => format!("dir out pcpu-num {n}"),
                    false => "replay-window 32".to_owned(),
                };
                script += &format!(
                    "sealane xfrm state add src {} dst {} proto esp spi {spi:#x} reqid {reqid} mode tunnel \
                     aead 'rfc4106(gcm(aes))' 0x000102030405060708090a0b0c0d0e0f1011{spi:04x} 128 {} {offload} {cpu}\n",
                    outer[from], outer[to], self.more
                );
                if n >= self.ports() {
                    continue;
                }
                // Answers have the port as their source.
                let port = if from == 0 { "dport" } else { "sport" };
                script += &format!(
                    "ip xfrm policy add dir {dir} src {} dst {} proto udp {port} {} \
                     tmpl src {} dst {} proto esp reqid {reqid} mode tunnel\n",
                    inner[from],
                    inner[to],
                    9001 + n,
                    outer[from],
                    outer[to]
                );
            }
        }
        script
    }
}

/// Returns a counter of the daemon's data path, by name.
fn path(host: &Host, lab: &Lab, name: &str) -> u64 {
    let (status, text) = host.sealane(lab, "xfrm --json show interval 0");
    assert_eq!(status, Some(0), "{text}");
    let value = text.split(&format!("\"{name}\":")).nth(1).unwrap_or_else(|| panic!("no {name}: {text}"));
    let digits: String = value.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}"))
}

#[test]
fn a_state_s_numbers_stay_in_order() {
    let Some(Pair { hosts, lab }) = Pair::new("xfrm_workers::a_state_s_numbers_stay_in_order", CONFIG) else { return };
    let program = root().join("conformance/programs/udp_flows.py").to_string_lossy().into_owned();
    let ([from, to], nat) = (INNER[0], "encap espinudp 4500 4500 0.0.0.0");
    for case in [
        Case { what: "one state, ESP in UDP", states: 1, more: nat, offload: false, per_cpu: false },
        Case { what: "one state, plain ESP", states: 1, more: "", offload: false, per_cpu: false },
        Case { what: "several states, ESP in UDP", states: 4, more: nat, offload: false, per_cpu: false },
        Case { what: "several states, plain ESP", states: 4, more: "", offload: false, per_cpu: false },
        Case { what: "a state for each CPU, ESP in UDP", states: 2, more: nat, offload: false, per_cpu: true },
        Case { what: "several states with a crypto core", states: 4, more: nat, offload: true, per_cpu: false },
    ] {
        println!("{}", case.what);
        for (end, host) in hosts.iter().enumerate() {
            host.ip(&lab, &format!("sealane() {{ '{}' \"$@\"; }}\n{}", sealane().display(), case.commands(end)));
        }
        let before = [0, 1].map(|i| path(&hosts[0], &lab, &format!("worker{i}_handed_over")));
        let (ports, count, flows) = (case.ports().to_string(), COUNT.to_string(), FLOWS.to_string());
        let seen = lab.folder().join("seen").to_string_lossy().into_owned();
        let mut receiver = lab.start(&hosts[1].space, &["python3", &program, "receive", to, &ports, &count, &seen]);
        receiver.expect("ready", 1);
        let send = ["python3", &*program, "send", from, to, &*ports, &*flows, &*count, &*seen];
        let (status, text) = lab.start(&hosts[0].space, &send).finish(LIMIT);
        assert_eq!(status, Some(0), "{text}");
        let (_, text) = receiver.finish(LIMIT);
        let number = |word: &str| -> u32 {
            let mut words = text.split_whitespace().skip_while(|w| *w != word);
            words.nth(1).and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{text}"))
        };
        assert!(number("came") >= ENOUGH, "{}: {text}", case.what);
        assert_eq!(number("behind"), 0, "{}: {text}", case.what);
        let states = hosts[1].ip(&lab, "ip -s xfrm state; cat /proc/net/xfrm_stat");
        let good = states.matches("replay-window 0 replay 0 failed 0").count();
        assert_eq!(good, 2 * case.states as usize, "{}: {states}", case.what);
        assert!(states.contains("XfrmInStateSeqError     \t0"), "{}: {states}", case.what);
        let after = [0, 1].map(|i| path(&hosts[0], &lab, &format!("worker{i}_handed_over")));
        let handed: u64 = after.iter().sum::<u64>() - before.iter().sum::<u64>();
        if case.per_cpu {
            // Each worker uses the state with its number.
            assert_eq!(handed, 0);
            let states = hosts[0].ip(&lab, "ip -s xfrm state");
            assert_eq!(states.matches("  0(bytes), 0(packets)").count(), 2, "those back alone are not used: {states}");
        } else {
            // Flows are spread over the queues by their hash.
            assert!(handed > u64::from(ENOUGH), "{}: only {handed} were handed over", case.what);
        }
        for i in 0..2 {
            assert!(path(&hosts[0], &lab, &format!("worker{i}_read")) > 0, "each reads its queue");
        }
    }
}
