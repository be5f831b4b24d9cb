//! Xfrm interfaces: packets routed to one use the policies and states of its interface id, as in a real kernel.

use sealane_conformance::ipsec::{Host, INNER, LIMIT, OUTER, Tapped, pings, program, protected};
use sealane_conformance::lab::Lab;
use std::time::{Duration, Instant};

const CONFIG: &str = "[ipsec]\n\
    [[ipsec.interface]]\nname = \"ipsec0\"\nif_id = 42\n\
    [[ipsec.interface]]\nname = \"ipsec1\"\nif_id = 43\n";

/// Returns the address of an end on one of its interfaces.
fn address(end: usize, interface: usize, v6: bool) -> String {
    if v6 { format!("fd85:{interface}::{}", end + 1) } else { format!("10.85.{interface}.{}", end + 1) }
}

/// Returns the commands for the addresses of an end's interfaces, which have the same names at both ends.
fn addresses(end: usize) -> String {
    let each = |n: usize| {
        let [v4, v6] = [false, true].map(|v6| address(end, n, v6));
        format!("ip link set ipsec{n} up\nip addr add {v4}/24 dev ipsec{n}\nip addr add {v6}/64 dev ipsec{n} nodad\n")
    };
    each(0) + &each(1)
}

/// Returns the command that adds or updates the state of an interface from an end.
fn state(verb: &str, interface: usize, from: usize, if_id: usize) -> String {
    let (src, dst, spi) = (OUTER[0][from], OUTER[0][1 - from], 0x1000 + 16 * interface + from);
    format!(
        "ip xfrm state {verb} src {src} dst {dst} proto esp spi {spi:#x} reqid {} mode tunnel replay-window 64 \
         flag af-unspec aead 'rfc4106(gcm(aes))' 0x{spi:08x}02030405060708090a0b0c0d0e0f1011 128 if_id {if_id}",
        1 + interface
    )
}

/// Returns the commands for the states and policies of an end; the policies of both interfaces select everything.
fn commands(end: usize) -> String {
    let mut script = String::new();
    for n in 0..2 {
        let (if_id, reqid) = (42 + n, 1 + n);
        for (from, src) in OUTER[0].into_iter().enumerate() {
            let dst = OUTER[0][1 - from];
            script += &format!("{}\n", state("add", n, from, if_id));
            for direction in if from == end { &["out"][..] } else { &["in", "fwd"] } {
                for any in ["0.0.0.0/0", "::/0"] {
                    script += &format!(
                        "ip xfrm policy add dir {direction} src {any} dst {any} if_id {if_id} \
                         tmpl src {src} dst {dst} proto esp reqid {reqid} mode tunnel\n"
                    );
                }
            }
        }
    }
    script
}

/// Returns the command that makes the interfaces of an end.
fn made(device: &str) -> String {
    format!("for n in 0 1; do ip link add ipsec$n type xfrm dev {device} if_id $((42+n)); done\n")
}

/// A real kernel and a daemon, with two interfaces each.
struct Net(Tapped);

impl Net {
    fn new(test: &str) -> Option<Net> {
        Net::with(test, CONFIG, "")
    }

    /// The same with a configuration, and commands of the daemon's end that come first.
    fn with(test: &str, config: &str, first: &str) -> Option<Net> {
        let mut tapped = Tapped::new(test, config)?;
        tapped.guest.must(&format!("{}{}{}", made("vec0"), addresses(1), commands(1)));
        tapped.host.ip(&tapped.lab, &format!("{first}{}{}", addresses(0), commands(0)));
        Some(Net(tapped))
    }

    /// Runs a shell line at an end; returns whether it succeeded, and its output.
    fn at(&mut self, end: usize, line: &str) -> (bool, String) {
        let Tapped { guest, host, lab } = &mut self.0;
        if end == 1 {
            let (status, text) = guest.run(line);
            return (status == "0", text);
        }
        let (status, text) = host.run(lab, &["sh", "-c", line]);
        (status == Some(0), text)
    }

    /// Runs a line at each end.
    fn both(&mut self, line: impl Fn(usize) -> String) -> [(bool, String); 2] {
        [0, 1].map(|end| self.at(end, &line(end)))
    }

    /// Runs a line and returns the names of the counters that it changes. It waits until they are `should` or more.
    fn moved(&mut self, end: usize, line: &str, should: usize) -> Vec<String> {
        let stat = "cat /proc/net/xfrm_stat";
        let before = self.at(end, stat).1;
        self.at(end, line);
        let changed =
            |(a, b): (&str, &str)| (a != b).then(|| b.split_whitespace().next().unwrap_or_default().to_owned());
        let start = Instant::now();
        loop {
            let after = self.at(end, stat).1;
            let moved: Vec<String> = before.lines().zip(after.lines()).filter_map(changed).collect();
            if moved.len() >= should || start.elapsed() > LIMIT {
                return moved;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Pings the other end; returns whether it answered, as it should or should not.
    fn answers(&mut self, end: usize, interface: usize, should: bool) -> bool {
        let (to, patience) = (address(1 - end, interface, false), if should { 30 } else { 1 });
        self.at(end, &format!("ping -q -c 3 -i 0.05 -W {patience} {to}")).0
    }
}

/// Returns the packets that the states of an end have carried, by SPI.
fn used(lab: &Lab, host: &Host) -> Vec<(u32, u64)> {
    let text = host.ip(lab, "ip -s xfrm state");
    let mut list = Vec::new();
    for state in text.split("\nsrc ") {
        let after = |what: &str| state.split_once(what).map(|(_, rest)| rest);
        let spi = after("spi 0x").and_then(|rest| u32::from_str_radix(rest.get(..8)?, 16).ok());
        let packets = after("lifetime current:\n")
            .and_then(|rest| rest.split_once("(bytes), ")?.1.split('(').next()?.parse().ok());
        list.extend(spi.zip(packets));
    }
    list.sort_unstable();
    list
}

#[test]
fn routes_lead_through_the_states_of_an_interface() {
    let Some(mut net) = Net::new("xfrm_interface::routes_lead_through_the_states_of_an_interface") else { return };
    let mut watch = net.0.lab.start(&net.0.host.space, &["python3", &program("clear_watch.py"), "kernel"]);
    watch.expect("watching", 1);
    const LENS: [u32; 4] = [10, 500, 1300, 4000];
    let count = 5;
    for end in 0..2 {
        for interface in 0..2 {
            for v6 in [false, true] {
                let script = pings(&address(1 - end, interface, v6), &LENS, count);
                let (done, text) = net.at(end, &script);
                assert!(done, "end {end}, ipsec{interface}: {text}");
            }
        }
    }
    // Each of the four states has carried its packets: pings and answers of two ends, four lengths, two families, one
    // fragmented.
    let used = used(&net.0.lab, &net.0.host);
    let least = u64::from(2 * 2 * count * LENS.len() as u32);
    assert_eq!(used.iter().map(|(spi, _)| *spi).collect::<Vec<_>>(), [0x1000, 0x1001, 0x1010, 0x1011]);
    assert!(used.iter().all(|(_, packets)| *packets >= least && *packets < 3 * least), "{used:?}");
    let (_, seen) = watch.finish(LIMIT);
    assert!(u64::from(protected(&seen)) >= 4 * least, "{seen}");
    // Each end reports its MTU to senders.
    for (v6, len) in [(false, 1472), (true, 1452)] {
        let told = net.both(|end| format!("ping -c 2 -i 0.2 -W 30 -M do -s {len} {}", address(1 - end, 0, v6)));
        let mtu = told.each_ref().map(|(_, text)| {
            let of = text.split_once("mtu").map(|(_, rest)| rest.trim_start_matches([' ', '=', ':']));
            of.and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok())
        });
        assert!(mtu[0].is_some() && mtu[0] == mtu[1], "{told:?}");
    }
    // A stream, in superframes where they exist.
    let stream = "import socket,hashlib,sys,threading\n\
        l=socket.create_server((sys.argv[1],7007))\n\
        print('ready',flush=True)\n\
        c,_=l.accept()\nh=hashlib.sha256();n=0\n\
        while b:=c.recv(1<<20): h.update(b);n+=len(b)\n\
        print(n,h.hexdigest(),flush=True)";
    let to = address(0, 1, false);
    let mut serving = net.0.lab.start(&net.0.host.space, &["python3", "-c", stream, &to]);
    serving.expect("ready", 1);
    let send = format!(
        "python3 -c \"import socket,hashlib\ns=socket.create_connection(('{to}',7007))\nd=bytes(range(256))*4096\nh=hashlib.sha256()\n\
         for _ in range(20): s.sendall(d);h.update(d)\ns.close()\nprint(20*len(d),h.hexdigest())\""
    );
    let (done, sent) = net.at(1, &send);
    assert!(done, "{sent}");
    let (_, received) = serving.finish(LIMIT);
    assert!(received.contains(sent.trim()), "{sent}\n{received}");
}

#[test]
fn each_has_policies_of_its_own() {
    let Some(mut net) = Net::new("xfrm_interface::each_has_policies_of_its_own") else { return };
    const ANY: &str = "src 0.0.0.0/0 dst 0.0.0.0/0";
    const BLOCK: &str = "src 10.85.0.0/24 dst 10.85.0.0/24";
    let template = |reqid| format!("{ANY} if_id 42 tmpl proto esp reqid {reqid} mode tunnel");
    for end in 0..2 {
        let (own, other) = (OUTER[0][end], OUTER[0][1 - end]);
        // A change and its reversal, the interface that is pinged, whether it answers, and the counters that change.
        let cases: [(String, String, usize, bool, &[&str]); 5] = [
            // Without a policy no packet leaves, unprotected neither. The device counts it.
            (
                format!("ip xfrm policy delete dir out {ANY} if_id 43"),
                format!(
                    "ip xfrm policy add dir out {ANY} if_id 43 tmpl src {own} dst {other} proto esp reqid 2 mode tunnel"
                ),
                1,
                false,
                &[],
            ),
            (
                format!("ip xfrm policy delete dir in {ANY} if_id 42"),
                format!("ip xfrm policy add dir in {}", template(1)),
                0,
                false,
                &["XfrmInNoPols"],
            ),
            (
                format!("ip xfrm policy update dir in {}", template(9)),
                format!("ip xfrm policy update dir in {}", template(1)),
                0,
                false,
                &["XfrmInTmplMismatch"],
            ),
            // Policies without an id are not for packets of an interface,
            (
                format!("ip xfrm policy add dir in {BLOCK} action block"),
                format!("ip xfrm policy delete dir in {BLOCK}"),
                0,
                true,
                &[],
            ),
            // but for packets that are routed there, before they reach it.
            (
                format!("ip xfrm policy add dir out {BLOCK} action block"),
                format!("ip xfrm policy delete dir out {BLOCK}"),
                0,
                false,
                &["XfrmOutPolBlock"],
            ),
        ];
        for (script, undo, interface, answered, counters) in cases {
            let (done, text) = net.at(end, &script);
            assert!(done, "{script}: {text}");
            let to = address(1 - end, interface, false);
            let moved = net.moved(end, &format!("ping -q -c 3 -i 0.05 -W 1 {to}"), counters.len());
            assert_eq!(moved, counters, "{script}, end {end}");
            assert_eq!(net.answers(end, interface, answered), answered, "{script}, end {end}");
            assert!(net.answers(end, 1 - interface, true), "{script}, end {end}: the other interface");
            let (done, text) = net.at(end, &undo);
            assert!(done && net.answers(end, interface, true), "{undo}: {text}");
        }
    }
}

/// Packets that are routed to an interface and go nowhere are answered at once, by whichever end.
#[test]
fn senders_hear_of_what_goes_nowhere() {
    let Some(mut net) = Net::new("xfrm_interface::senders_hear_of_what_goes_nowhere") else { return };
    // A connect() that waits. Of one that does not, poll() can tell an error that SO_ERROR does not have yet (Linux 6.18, once
    // in some 300,000 attempts through a TUN device), and Python takes that for a connection.
    let attempts = "import errno, socket, struct, sys\n\
        for family, to in (socket.AF_INET, sys.argv[1]), (socket.AF_INET6, sys.argv[2]):\n \
         s = socket.socket(family, socket.SOCK_STREAM)\n \
         s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack('ll', 60, 0))\n \
         try: s.connect((to, 7))\n \
         except OSError as e: print(errno.errorcode.get(e.errno, e))\n";
    const ANY: [&str; 2] = ["src 0.0.0.0/0 dst 0.0.0.0/0", "src ::/0 dst ::/0"];
    // No policy, a policy that blocks, one whose state is missing.
    let changes: [fn(&str, &str) -> String; 3] = [
        |any, _| format!("ip xfrm policy delete dir out {any} if_id 43"),
        |any, _| format!("ip xfrm policy add dir out {any} if_id 43 action block"),
        |any, ends| format!("ip xfrm policy update dir out {any} if_id 43 tmpl {ends} proto esp reqid 99 mode tunnel"),
    ];
    for change in changes {
        let heard = net.both(|end| {
            let ends = format!("src {} dst {}", OUTER[0][end], OUTER[0][1 - end]);
            let [v4, v6] = [false, true].map(|v6| address(1 - end, 1, v6));
            let script: String = ANY.map(|any| format!("{}; ", change(any, &ends))).concat();
            let pings = [v4.as_str(), &v6]
                .map(|to| format!("ping -c 1 -W 60 {to} | grep -Eo '(Host|Address) (U|u)nreachable'"));
            format!("{script}python3 -c \"{attempts}\" {v4} {v6}; {}; true", pings.join("; "))
        });
        let all = (true, "EHOSTUNREACH\nEHOSTUNREACH\nHost Unreachable\nAddress unreachable".to_owned());
        assert_eq!(heard.map(|(done, text)| (done, text.trim().to_owned())), [all.clone(), all]);
    }
    for end in 0..2 {
        assert!(net.answers(end, 0, true), "end {end}: the other interface");
    }
}

#[test]
fn states_move_to_another_interface() {
    let Some(mut net) = Net::new("xfrm_interface::states_move_to_another_interface") else { return };
    for end in 0..2 {
        let to = address(1 - end, 0, false);
        // Each state of the interface that is pinged, and what happens once it is another interface's.
        for (from, counters) in [(end, &["XfrmOutNoStates"][..]), (1 - end, &["XfrmInTmplMismatch"])] {
            assert!(net.answers(end, 0, true), "end {end}");
            let (done, text) = net.at(end, &state("update", 0, from, 43));
            let (_, shown) = net.at(end, "ip xfrm state");
            assert!(done && shown.matches("if_id 0x2b").count() == 3, "end {end}: {text}{shown}");
            let moved = net.moved(end, &format!("ping -q -c 3 -i 0.05 -W 1 {to}"), counters.len());
            assert_eq!(moved, counters, "end {end}, the state from {from}");
            assert!(!net.answers(end, 0, false) && net.answers(end, 1, true), "end {end}");
            let (done, text) = net.at(end, &state("update", 0, from, 42));
            assert!(done && net.answers(end, 0, true), "end {end}: {text}");
        }
    }
}

#[test]
fn an_interface_outlives_its_daemon_and_lets_nothing_pass() {
    let Some(mut net) = Net::new("xfrm_interface::an_interface_outlives_its_daemon_and_lets_nothing_pass") else {
        return;
    };
    assert!(net.answers(0, 0, true) && net.answers(0, 1, true));
    let Tapped { host, lab, .. } = &mut net.0;
    let show = |lab: &Lab, host: &Host, line: &str| lab.start(&host.space, &["sh", "-c", line]).finish(LIMIT);
    // The daemon's status.
    let (_, text) = host.sealane(lab, "xfrm show");
    assert!(text.contains("device ipsec0: interface, up") && text.contains("if id 43"), "{text}");
    // A route to the peer through its own tunnel makes no loop.
    let packets = |lab: &Lab, host: &Host| used(lab, host).iter().find(|(spi, _)| *spi == 0x1000).expect("a state").1;
    let before = packets(lab, host);
    let peer = OUTER[0][1];
    host.ip(
        lab,
        &format!("ip route add {peer}/32 dev ipsec0\nping -q -c 3 -i 0.05 -W 1 {} || true", address(1, 0, false)),
    );
    let after = packets(lab, host);
    assert!(after > before && after <= before + 8, "{before} {after}");
    host.ip(lab, &format!("ip route del {peer}/32 dev ipsec0"));
    // The daemon dies, and packets routed to the interface are dropped.
    host.end(libc::SIGKILL);
    let mut watch = lab.start(&host.space, &["python3", &program("clear_watch.py"), "kernel"]);
    watch.expect("watching", 1);
    let marked = format!(
        "ip route add default dev kernel; ping -q -p 6e6576657220696e20636c656172 -c 5 -i 0.05 -W 1 {}",
        address(1, 0, false)
    );
    let (status, text) = show(lab, host, &marked);
    assert!(status != Some(0) && text.contains(" 0 received"), "{text}");
    let (_, seen) = watch.finish(LIMIT);
    assert!(seen.contains("clear 0"), "{seen}");
    // It returns with the same addresses, policies and states. The peer knows nothing of it.
    host.start(lab);
    let start = Instant::now();
    while !host.ip(lab, &format!("ping -q -c 1 -W 1 {} || true", address(1, 1, true))).contains(" 1 received") {
        assert!(start.elapsed() < LIMIT);
        std::thread::sleep(Duration::from_millis(50));
    }
    // One interface is removed, the other one stays.
    let one = CONFIG.split("[[ipsec.interface]]\nname = \"ipsec1\"").next().expect("a part");
    let said = host.reload(lab, one);
    let (_, links) = show(lab, host, "ip -o link");
    assert!(links.contains("ipsec0") && !links.contains("ipsec1"), "{said}\n{links}");
    assert!(host.ip(lab, &format!("ping -q -c 1 -W 30 {}", address(1, 0, false))).contains(" 1 received"));
    // An interface of that name that somebody else made is left alone.
    let (_, text) = show(lab, host, "ip link add ipsec1 type veth peer name other");
    let said = host.reload(lab, CONFIG);
    assert!(said.contains("ipsec1") && said.contains("exists"), "{text}{said}");
    let [[own, _], _] = INNER;
    assert!(show(lab, host, &format!("ip -d link show ipsec1 | grep -q veth && ping -q -c 1 {own}")).0 == Some(0));
    // One that leaves the configuration is removed; one whose daemon ends in good order stays, and lets nothing pass.
    let none = CONFIG.split("[[ipsec.interface]]").next().expect("a part");
    let said = host.reload(lab, none);
    let (_, links) = show(lab, host, "ip -o link");
    assert!(!links.contains("ipsec0"), "{said}\n{links}");
    host.reload(lab, one);
    host.end(libc::SIGTERM);
    let (_, links) = show(lab, host, "ip -o link");
    assert!(links.contains("ipsec0"), "{links}");
}

/// The device of the daemon's end.
const DEVICE: &str = "kernel";

#[test]
fn programs_make_them_as_on_linux() {
    let Some(mut tapped) = Tapped::new("xfrm_interface::programs_make_them_as_on_linux", "[ipsec]\n") else { return };
    let script = program("xfrm_link.py");
    let (status, wanted) = tapped.guest.run(&format!("python3 {script} vec0"));
    assert_eq!(status, "0", "{wanted}");
    assert!(wanted.contains("if_id must be non zero"), "{wanted}");
    let (status, answered) = tapped.host.run(&tapped.lab, &["python3", &script, DEVICE]);
    assert_eq!(status, Some(0), "{answered}");
    let pairs = wanted.lines().zip(answered.lines());
    let unlike: Vec<_> = pairs.filter(|(linux, ours)| linux != ours).collect();
    assert!(unlike.is_empty() && wanted.lines().count() == answered.lines().count(), "{unlike:#?}\n{answered}");
    // What these two would send is not looked at, so that it is refused (IPSEC-195).
    let (status, refused) = tapped.host.run(&tapped.lab, &["python3", "-c", SPLICES]);
    assert_eq!((status, &*refused), (Some(0), "EINVAL\nEINVAL\n"));
}

/// Tells what `splice` and `sendfile` to a socket of NETLINK_ROUTE answer.
const SPLICES: &str = "
import errno, os, socket
route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
there, here = os.pipe()
os.write(here, bytes(20))
file = os.open('/proc/self/exe', os.O_RDONLY)
for call in lambda: os.splice(there, route.fileno(), 20), lambda: os.sendfile(route.fileno(), file, 0, 20):
    try:
        print(call())
    except OSError as e:
        print(errno.errorcode[e.errno])
";

#[test]
fn one_that_a_program_makes_seals_and_outlives_the_daemon() {
    const TEST: &str = "xfrm_interface::one_that_a_program_makes_seals_and_outlives_the_daemon";
    let Some(mut net) = Net::with(TEST, "[ipsec]\n", &made(DEVICE)) else { return };
    let mut watch = net.0.lab.start(&net.0.host.space, &["python3", &program("clear_watch.py"), DEVICE]);
    watch.expect("watching", 1);
    let all_answer = |net: &mut Net| (0..2).all(|end| (0..2).all(|interface| net.answers(end, interface, true)));
    for (end, interface) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let to = address(1 - end, interface, false);
        let (done, text) =
            net.at(end, &format!("ping -q -p 6e6576657220696e20636c656172 -c 5 -i 0.05 -W 30 -s 200 {to}"));
        assert!(done, "end {end}, ipsec{interface}: {text}");
    }
    let Tapped { host, lab, .. } = &mut net.0;
    // A TUN device tells of its carrier when that comes back, and until then of none.
    let shown = |lab: &Lab, host: &Host| {
        host.ip(lab, "ip -d link show ipsec0").replace(" state UP ", " ").replace(" state UNKNOWN ", " ")
    };
    let text = shown(lab, host);
    assert!(text.contains("xfrm if_id 0x2a") && text.contains(&format!("ipsec0@{DEVICE}")), "{text}");
    // Pings and their answers, some of which may be lost.
    let (_, seen) = watch.finish(LIMIT);
    assert!(protected(&seen) >= 4 * 2, "{seen}");
    // The daemon dies and comes again, and the device is the same.
    host.end(libc::SIGKILL);
    host.start(lab);
    assert_eq!(shown(lab, host), text);
    assert!(all_answer(&mut net));
    // It works without an address of its own, as in Linux.
    let [ours, theirs] = [0, 1].map(|end| address(end, 0, false));
    let Tapped { host, lab, .. } = &mut net.0;
    // `ip addr flush` looks again whether none is left, and the daemon's comes back (IPSEC-197).
    for gone in [format!("{ours}/24"), format!("{}/64", address(0, 0, true)), "192.0.0.8/32".to_owned()] {
        host.ip(lab, &format!("ip addr del {gone} dev ipsec0"));
    }
    host.ip_until(lab, "ip -o addr show dev ipsec0", |text| text.contains("192.0.0.8/32"));
    host.ip(lab, &format!("ip addr add {ours}/32 dev lo\nip route add {theirs} dev ipsec0 src {ours}"));
    assert!(net.answers(0, 0, true));
    let Tapped { host, lab, .. } = &mut net.0;
    host.ip(lab, &format!("ip route del {theirs}\nip addr del {ours}/32 dev lo\nip addr add {ours}/24 dev ipsec0"));
    // A configuration that is read again leaves it alone.
    host.reload(lab, "[ipsec]\n");
    assert!(all_answer(&mut net));
    // With one that is deleted its routes go, and its id is free.
    let Tapped { host, lab, .. } = &mut net.0;
    let text = host.ip(lab, "ip link del ipsec1; ip route; ip -6 route; ip -o link");
    assert!(text.contains("10.85.0.0/24") && !text.contains("10.85.1.") && !text.contains("ipsec1"), "{text}");
    host.ip(lab, &format!("ip link add ipsec1 type xfrm dev {DEVICE} if_id 43\nip link set ipsec1 up"));
    host.ip(lab, &format!("ip addr add {}/24 dev ipsec1", address(0, 1, false)));
    assert!(net.answers(0, 1, true) && net.answers(1, 1, true));
}

/// In Linux an xfrm interface that is moved to another namespace, as to a container, has the policies of that in which it was
/// made, and what it seals leaves from there.
#[test]
fn one_that_is_moved_keeps_the_policies_of_where_it_was_made() {
    const TEST: &str = "xfrm_interface::one_that_is_moved_keeps_the_policies_of_where_it_was_made";
    let Some(mut net) = Net::with(TEST, "[ipsec]\n", &made(DEVICE)) else { return };
    let mut watch = net.0.lab.start(&net.0.host.space, &["python3", &program("clear_watch.py"), DEVICE]);
    watch.expect("watching", 1);
    let away = [net.0.lab.space("away"), "away".to_owned()];
    net.0.guest.must("ip netns add away");
    for (end, there) in away.iter().enumerate() {
        let each = |n: usize| {
            let [v4, v6] = [false, true].map(|v6| address(end, n, v6));
            format!(
                "ip link set ipsec{n} netns {there}\nip -n {there} addr add {v4}/24 dev ipsec{n}\n\
                 ip -n {there} addr add {v6}/64 dev ipsec{n} nodad\nip -n {there} link set ipsec{n} up\n"
            )
        };
        let (done, text) = net.at(end, &format!("set -e\n{}{}ip -o link", each(0), each(1)));
        assert!(done && !text.contains("ipsec0") && !text.contains("ipsec1"), "end {end}: {text}");
    }
    let all_answer = |net: &mut Net| {
        for (end, interface, v6) in (0..8).map(|n| (n & 1, n >> 1 & 1, n & 4 != 0)) {
            let to = address(1 - end, interface, v6);
            let ping = "ping -q -p 6e6576657220696e20636c656172 -c 5 -i 0.05 -W 30 -s 200";
            let (done, text) = net.at(end, &format!("ip netns exec {} {ping} {to}", away[end]));
            assert!(done, "end {end}, interface {interface}: {text}");
        }
    };
    all_answer(&mut net);
    // Here nothing of them is left.
    assert!(!net.answers(0, 0, false));
    // The daemon dies, and nothing passes in clear until the next one has found them.
    net.0.host.end(libc::SIGKILL);
    let (done, text) = net.at(1, &format!("ip netns exec away ping -q -c 3 -i 0.05 -W 1 {}", address(0, 0, false)));
    assert!(!done, "{text}");
    let Tapped { host, lab, .. } = &mut net.0;
    host.start(lab);
    all_answer(&mut net);
    let (_, seen) = watch.finish(LIMIT);
    assert!(protected(&seen) >= 4 * 8, "{seen}");
    // Where it was made, its id is taken, and it is free again when it is deleted there.
    for (end, below) in [(0, DEVICE), (1, "vec0")] {
        let make = format!("ip link add again type xfrm dev {below} if_id 42");
        let (done, text) = net.at(end, &make);
        assert!(!done && text.contains("File exists"), "end {end}: {text}");
        let (done, text) = net.at(end, &format!("ip -n {} link del ipsec0 && {make}", away[end]));
        assert!(done, "end {end}: {text}");
    }
}

/// Rules know an interface by its name: policies without an id are not for what comes out of it, whatever it is called.
#[test]
fn one_that_is_renamed_keeps_its_policies() {
    const TEST: &str = "xfrm_interface::one_that_is_renamed_keeps_its_policies";
    let Some(mut net) = Net::with(TEST, "[ipsec]\n", &made(DEVICE)) else { return };
    for end in 0..2 {
        let block = "ip xfrm policy add dir in src 10.85.0.0/16 dst 10.85.0.0/16 action block";
        // Before Linux 6.2 a device has to be down to be renamed. Its addresses stay.
        let script = format!(
            "set -e\n{block}\nfor n in 0 1; do ip link set ipsec$n down; ip link set ipsec$n name new$n; ip link set new$n up; done"
        );
        let (done, text) = net.at(end, &script);
        assert!(done, "end {end}: {text}");
    }
    for (end, interface) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        assert!(net.answers(end, interface, true), "end {end}, interface {interface}");
    }
    // A device that gets the name is not one.
    let Tapped { host, lab, .. } = &mut net.0;
    host.ip(lab, "ip link add ipsec0 type veth peer name other; ip link set ipsec0 up");
    let rules = host.ip(lab, "nft list table inet sealane-ipsec");
    // Packets may leave late by it.
    let others = rules.replace("\"ipsec0\" . \"ipsec0\"", "");
    assert!(others.contains("\"new0\"") && !others.contains("\"ipsec0\""), "{rules}");
}
