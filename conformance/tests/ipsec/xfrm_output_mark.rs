//! `output-mark`: sealed packets are routed by the mark of their state, as in a real kernel.

use sealane_conformance::ipsec::{Host, INNER, KERNEL, LIMIT, OUTER, Peer, Wired, program};
use sealane_conformance::lab::Lab;
use sealane_conformance::recorded::Sequence;

/// A state of a sender, and the route of its packets.
struct Case {
    v6: bool,
    proto: &'static str,
    packets: u32,
    /// Whether they leave by the other device.
    other: bool,
}

const ESP: &str = "esp spi 0x1001 reqid 1 mode tunnel enc 'rfc3686(ctr(aes))' 0x0102030405060708090a0b0c0d0e0f1011121314 \
                   auth-trunc 'hmac(sha256)' 0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f 128";
const AH: &str = "ah spi 0x1001 reqid 1 mode tunnel auth-trunc 'hmac(sha256)' \
                  0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f 128";
const UDP: &str = "encap espinudp 4500 4500 0.0.0.0";

fn cases() -> Vec<(Case, String)> {
    let case = |proto, more: &str, other| (Case { v6: false, proto, packets: 10, other }, more.to_owned());
    let v6 = |(case, more): (Case, String)| (Case { v6: true, ..case }, more);
    let many = |(case, more): (Case, String)| (Case { packets: 50, ..case }, more);
    vec![
        case(ESP, "", false),
        many(case(ESP, "output-mark 0x1 mask 0xff", true)),
        case(ESP, "output-mark 0x1", true),
        case(ESP, "output-mark 0x2 mask 0xff", false),
        case(ESP, "output-mark 0x101 mask 0xff00", false),
        case(ESP, "output-mark 0x301 mask 0x1ff", true),
        many(case(ESP, &format!("{UDP} output-mark 0x1 mask 0xff"), true)),
        case(ESP, UDP, false),
        case(AH, "output-mark 0x1 mask 0xff", true),
        v6(case(ESP, "flag af-unspec output-mark 0x1 mask 0xff", true)),
        v6(case(ESP, "flag af-unspec", false)),
    ]
}

/// Returns the commands of a sender.
fn commands(end: usize, case: &Case, more: &str) -> String {
    let outer = OUTER[usize::from(case.v6)];
    let (own, other) = (outer[end], outer[1 - end]);
    let (from, to) = (INNER[0][end], INNER[0][1 - end]);
    let kind = case.proto.split(' ').next().unwrap_or_default();
    format!(
        "ip xfrm state flush\nip xfrm policy flush\n\
         ip xfrm state add src {own} dst {other} proto {} {more}\n\
         ip xfrm policy add dir out src {from} dst {to} proto icmp tmpl src {own} dst {other} proto {kind} reqid 1 mode tunnel\n",
        case.proto
    )
}

/// Makes a device that drops the packets that a mark routes there.
fn other_device(end: usize) -> String {
    let [v4, v6] = OUTER.map(|outer| outer[1 - end]);
    let way = |family: &str, to: &str, len: u8| {
        format!(
            "ip {family} neigh add {to} lladdr 02:00:00:00:00:99 dev other\n\
             ip {family} rule add fwmark 1/0xff lookup 100\nip {family} route add {to}/{len} dev other table 100\n"
        )
    };
    let device = "ip link add other type veth peer name nobody\nip link set nobody up\nip link set other up\n";
    // The kernel of the tests has no IPv6 rules.
    let v6 = if end == 0 { way("-6", v6, 128) } else { String::new() };
    format!("{device}{}{v6}", way("-4", v4, 32))
}

/// Sends more packets than are waited for, because some may be lost under load.
fn ping(end: usize, packets: u32) -> String {
    let packets = packets * 4;
    format!("ping -q -c {packets} -i 0.002 -W 0.1 -I {} {} || true", INNER[0][end], INNER[0][1 - end])
}

/// Returns the number of packets by each device at the daemon's end.
fn of_daemon(lab: &Lab, host: &Host, case: &Case, more: &str) -> String {
    host.ip(lab, &commands(0, case, more));
    let count = case.packets.to_string();
    let mut watch = lab.start(&host.space, &["python3", &program("esp_ways.py"), "0x1001", &count]);
    watch.expect("watching", 1);
    host.ip(lab, &ping(0, case.packets));
    watch.finish(LIMIT).1
}

/// Returns the same for the kernel's end.
fn of_kernel(lab: &Lab, kernel: &mut Peer, case: &Case, more: &str) -> String {
    kernel.must(lab, &commands(1, case, more));
    let file = lab.folder().join("ways").to_string_lossy().into_owned();
    let (program, count) = (program("esp_ways.py"), case.packets);
    let script = format!(
        "(python3 {program} 0x1001 {count} > {file} 2>&1 &); while ! grep -q watching {file}; do sleep 0.02; done\n{}\n\
         while ! grep -q -e done -e Error {file}; do sleep 0.02; done",
        ping(1, count)
    );
    kernel.must(lab, &script);
    std::fs::read_to_string(&file).expect("a file")
}

#[test]
fn routed_as_linux_routes() {
    const TEST: &str = "xfrm_output_mark::routed_as_linux_routes";
    let sources = ["conformance/programs/esp_ways.py", "conformance/tests/ipsec/xfrm_output_mark.rs"];
    let title = |case: &Case, more: &str| format!("## {} {more}\n", case.proto);
    let of_linux = Sequence::new(KERNEL, "xfrm-output-mark").files(&sources).answer(TEST, || {
        let Wired { peer: mut kernel, host: _host, lab } = Wired::new(TEST, "[ipsec]\n", true)?;
        kernel.must(&lab, &other_device(1));
        let cases = cases();
        let way = |(case, more): &(Case, String)| title(case, more) + &of_kernel(&lab, &mut kernel, case, more);
        Some(cases.iter().filter(|(case, _)| !case.v6).map(way).collect())
    });
    let Some(of_linux) = of_linux else { return };
    let Some(Wired { peer: _peer, host, lab }) = Wired::new(TEST, "[ipsec]\n", false) else { return };
    let (status, text) = lab.start(&host.space, &["sh", "-ec", &other_device(0)]).finish(LIMIT);
    assert_eq!(status, Some(0), "{text}");
    for (case, more) in cases() {
        let way = |main: &str| format!("watching\n{} {} done\n", if case.other { "other" } else { main }, case.packets);
        if !case.v6 {
            let wanted = title(&case, &more) + &way("vec0");
            assert!(of_linux.contains(&wanted), "not {wanted}, linux: {of_linux}");
        }
        let found = of_daemon(&lab, &host, &case, &more);
        assert_eq!(found, way("kernel"), "here: {} {more}", case.proto);
    }
    // The rules follow a state that is replaced, and one that is updated.
    let marked = Case { v6: false, proto: ESP, packets: 10, other: true };
    assert_eq!(of_daemon(&lab, &host, &marked, "output-mark 0x1 mask 0xff"), "watching\nother 10 done\n");
    let update = commands(0, &marked, "output-mark 0x2 mask 0xff").replace("state add", "state update");
    let update = update.lines().find(|line| line.contains("state update")).expect("a command").to_owned();
    host.ip(&lab, &update);
    let mut watch = lab.start(&host.space, &["python3", &program("esp_ways.py"), "0x1001", "10"]);
    watch.expect("watching", 1);
    host.ip(&lab, &ping(0, 10));
    assert_eq!(watch.finish(LIMIT).1, "watching\nkernel 10 done\n");
}
