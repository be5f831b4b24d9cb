//! Two hosts behind two gateways, each with a daemon: packets are forwarded protected or dropped, with the ICMP errors
//! of a router.
//!
//! ```text
//! a 10.91.1.2, fd91:1::2 ── lan ── g ── wan 10.90.0.1, fd90::1 ── 10.90.0.2, fd90::2 ── p ── lan ── b 10.91.2.2, fd91:2::2
//! ```
//!
//! The gateways go through the stack and their TUN devices, or past it (`[[ipsec.gateway]]`).

use sealane_conformance::ipsec::{Host, LIMIT, ping_all, program};
use sealane_conformance::lab::Lab;
use sealane_conformance::skip::{skip, skip_without};
use sealane_conformance::target::Target;
use std::time::{Duration, Instant};

/// `clear_watch.py`'s marker, for `ping`.
const MARKER: &str = "6e6576657220696e20636c656172";

/// The networks of each side.
const NETS: [[&str; 2]; 2] = [["10.91.1.0/24", "10.91.2.0/24"], ["fd91:1::/64", "fd91:2::/64"]];
const OUTER: [[&str; 2]; 2] = [["10.90.0.1", "10.90.0.2"], ["fd90::1", "fd90::2"]];
const FAR: [&str; 2] = ["10.91.2.2", "fd91:2::2"];

struct Net {
    lab: Lab,
    a: String,
    b: String,
    gateways: [Host; 2],
}

/// Configurations: a gateway through the TUN device, and one past the stack.
const BY_TUN: &str = "[ipsec]\n";
const BY_XDP: &str = "[[ipsec.gateway]]\ninterfaces = [\"lan\", \"wan\"]\n";
/// A gateway past the stack with two threads, on interfaces with two queues each.
const BY_THREADS: &str = "[ipsec]\nworkers = 2\n[[ipsec.gateway]]\ninterfaces = [\"lan\", \"wan\", \"late\"]\n";

impl Net {
    /// Sets up gateways with these configurations. The second one's interface to its host is `lan` or, with `bridge`, a
    /// bridge of this name around it.
    fn new(test: &str, encap: &str, configs: [&str; 2], bridge: Option<&str>) -> Option<Net> {
        if skip_without(test, &[&Target::sealane("open")]) {
            return None;
        }
        let mut lab = Lab::new(test)?;
        let probe = lab.space("xdp");
        let socket = "import socket; socket.socket(44, socket.SOCK_RAW)";
        let past_the_stack = configs.iter().any(|config| config.contains("gateway"));
        if past_the_stack && lab.start(&probe, &["python3", "-c", socket]).finish(LIMIT).0 != Some(0) {
            skip(test, "this kernel has no sockets of AF_XDP");
            return None;
        }
        let [a, g, p, b] = ["a", "g", "p", "b"].map(|which| lab.space(which));
        let several = configs.contains(&BY_THREADS);
        for ([from, to], name) in [([&a, &g], "lan"), ([&g, &p], "wan"), ([&p, &b], "lan")] {
            match several {
                // Packets by two queues of the other end are in no order.
                true => lab
                    .ip(from, &two_queues(name, &format!("{name} {} netns {to}", if from == &g { ONE } else { TWO }))),
                false => lab.veth([from, to], [name, name]),
            }
        }
        for (n, host, gateway) in [(1, &a, &g), (2, &b, &p)] {
            lab.address(host, "lan", &format!("10.91.{n}.2/24"), &format!("fd91:{n}::2/64"));
            let inner = match bridge {
                Some(bridge) if n == 2 => {
                    lab.ip(gateway, &format!("link add {bridge} type bridge"));
                    lab.ip(gateway, &format!("link set lan master {bridge}"));
                    lab.ip(gateway, "link set lan up");
                    bridge
                }
                _ => "lan",
            };
            lab.address(gateway, inner, &format!("10.91.{n}.1/24"), &format!("fd91:{n}::1/64"));
            lab.address(gateway, "wan", &format!("10.90.0.{n}/24"), &format!("fd90::{n}/64"));
            lab.ip(host, &format!("route add default via 10.91.{n}.1"));
            lab.ip(host, &format!("route add default via fd91:{n}::1"));
            // XDP sees frames before their checksums are computed on veth.
            assert_eq!(lab.start(host, &["ethtool", "-K", "lan", "tx", "off"]).finish(LIMIT).0, Some(0));
            let forward = "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding";
            assert_eq!(lab.start(gateway, &["sh", "-ec", forward]).finish(LIMIT).0, Some(0));
        }
        for (side, gateway) in [&g, &p].into_iter().enumerate() {
            for family in 0..2 {
                lab.ip(gateway, &format!("route add {} via {}", NETS[family][1 - side], OUTER[family][1 - side]));
            }
        }
        let gateways =
            [(&g, configs[0]), (&p, configs[1])].map(|(space, config)| Host::configured(&lab, space, config));
        for (side, gateway) in gateways.iter().enumerate() {
            // A small window detects numbers that leave out of order.
            gateway.ip(&lab, &commands(side, encap, if several { 32 } else { 2048 }));
        }
        Some(Net { lab, a, b, gateways })
    }

    /// Runs a shell line in a namespace; returns whether it succeeded, and its output.
    fn sh(&self, space: &str, line: &str) -> (bool, String) {
        let (status, text) = self.lab.start(space, &["sh", "-c", line]).finish(LIMIT);
        (status == Some(0), text)
    }

    /// Returns the status of a gateway, a line for each interface. It takes a second, for rates.
    fn interfaces(&self, gateway: usize) -> String {
        let start = Instant::now();
        loop {
            let (status, text) = self.gateways[gateway].sealane(&self.lab, "xfrm show");
            assert_eq!(status, Some(0), "{text}");
            if text.contains("device ") {
                return text;
            }
            assert!(start.elapsed() < LIMIT, "no interfaces: {text}");
        }
    }

    /// Pings from `a`, with these options, all of which are answered.
    fn all_answered(&self, count: u32, options: &str) {
        let (done, text) =
            self.sh(&self.a, &format!("{} {options} | tee /dev/stderr | grep -q ' {count} received'", ping_all(count)));
        assert!(done, "{options}: {text}");
    }

    /// Runs a shell line in `a` until it succeeds: IPv6 on new devices takes a while.
    fn soon(&self, line: &str) {
        let start = Instant::now();
        loop {
            let (done, text) = self.sh(&self.a, line);
            if done {
                return;
            }
            assert!(start.elapsed() < LIMIT, "{line}: {text}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

const TWO: &str = "numtxqueues 2 numrxqueues 2";
const ONE: &str = "numtxqueues 1 numrxqueues 2";

/// Returns the command for an interface with two queues and its peer.
fn two_queues(name: &str, peer: &str) -> String {
    format!("link add {name} {TWO} type veth peer name {peer}")
}

fn commands(side: usize, encap: &str, window: u32) -> String {
    let mut script = String::new();
    for family in 0..2 {
        for from in 0..2 {
            let (to, spi) = (1 - from, 0x1001 + family * 16 + from);
            let (outer, nets) = (OUTER[family], NETS[family]);
            script += &format!(
                "ip xfrm state add src {} dst {} proto esp spi {spi:#x} reqid {family} mode tunnel replay-window {window} flag esn \
                 aead 'rfc4106(gcm(aes))' 0x000102030405060708090a0b0c0d0e0f10111213 128 {encap}\n",
                outer[from], outer[to]
            );
            for direction in if from == side { &["out"][..] } else { &["in", "fwd"] } {
                script += &format!(
                    "ip xfrm policy add dir {direction} src {} dst {} tmpl src {} dst {} proto esp reqid {family} mode tunnel\n",
                    nets[from], nets[to], outer[from], outer[to]
                );
            }
        }
    }
    script
}

#[test]
fn what_a_router_does() {
    routes("xfrm_gateway::what_a_router_does", BY_TUN);
}

#[test]
fn what_a_router_does_past_the_stack() {
    routes("xfrm_gateway::what_a_router_does_past_the_stack", BY_XDP);
}

/// Tests the first gateway with this configuration. The other one uses the TUN device, and its interface is watched.
fn routes(test: &str, config: &str) {
    for encap in ["", "encap espinudp 4500 4500 0.0.0.0"] {
        let Some(net) = Net::new(test, encap, [config, BY_TUN], None) else { return };
        let mut watch = net.lab.start(&net.gateways[1].space, &["python3", &program("clear_watch.py"), "wan"]);
        watch.expect("watching", 1);
        for (family, far) in FAR.into_iter().enumerate() {
            net.soon(&format!("ping -q -c 1 -W 1 {far}"));
            let expect = |line: &str, text: &str| {
                let (_, printed) = net.sh(&net.a, line);
                assert!(printed.contains(text), "{line}: {text}\n{printed}");
            };
            // Each gateway is a hop, and reports an exceeded hop limit.
            expect(&format!("ping -c 1 -W 30 {far}"), "ttl=62");
            let exceeded = ["Time to live exceeded", "Time exceeded: Hop limit"][family];
            for hops in 1..3 {
                expect(&format!("ping -c 1 -W 30 -t {hops} {far}"), exceeded);
            }
            expect(&format!("ping -c 1 -W 30 -t 3 {far}"), " 1 received");
            net.all_answered(200, &format!("-p {MARKER} -s 500 {far}"));
            // The MTU is reported, and a packet of that length passes.
            let mtu = [[1446, 1426], [1438, 1418]][usize::from(!encap.is_empty())][family];
            let head = [28, 48][family];
            let long = format!("ping -p {MARKER} -c 2 -i 0.2 -W 30 -M do -s {} {far}", 1500 - head);
            expect(&long, &format!("mtu{}{mtu}", if family == 0 { " = " } else { "=" }));
            net.all_answered(3, &format!("-p {MARKER} -M do -s {} {far}", mtu - head));
            // In fragments, once the other end knows the MTU, too.
            let pieces = format!("-p {MARKER} -M dont -s 5000 {far}");
            net.soon(&format!("ping -q -c 1 -W 1 {pieces}"));
            net.all_answered(20, &pieces);
        }
        // A stream, busy enough for the fast path, in whole segments.
        let server = "import socket,hashlib\n\
            l=socket.create_server(('::',7007),family=socket.AF_INET6,dualstack_ipv6=True)\nprint('ready',flush=True)\n\
            for _ in range(2):\n c,_=l.accept()\n h=hashlib.sha256()\n\
            \x20while b:=c.recv(1<<20): h.update(b)\n print(h.hexdigest(),flush=True)";
        let client = "import socket,hashlib,sys\nd=(b'never in clear'*4096)*4\nh=hashlib.sha256()\n\
            for to in sys.argv[1:]:\n s=socket.create_connection((to,7007))\n h=hashlib.sha256()\n\
            \x20for _ in range(300): s.sendall(d); h.update(d)\n s.close()\n print(h.hexdigest())";
        let mut serving = net.lab.start(&net.b, &["python3", "-c", server]);
        serving.expect("ready", 1);
        let (status, sent) = net.lab.start(&net.a, &["python3", "-c", client, FAR[0], FAR[1]]).finish(LIMIT);
        assert_eq!(status, Some(0), "{sent}");
        let (_, received) = serving.finish(LIMIT);
        let digests: Vec<&str> = sent.lines().collect();
        assert_eq!(digests.len(), 2, "{sent}");
        assert!(digests.iter().all(|digest| received.contains(digest)), "{sent}\n{received}");
        let (_, seen) = watch.finish(LIMIT);
        assert!(seen.contains("clear 0 esp "), "{seen}");
        if config == BY_XDP {
            let text = net.interfaces(0);
            let counted = |name| counted(&text, "lan", name);
            assert!(counted("sealed") >= 10_000 && counted("opened") >= 1_000 && counted("sent") >= 10_000, "{text}");
        }
        for gateway in &net.gateways {
            let states = gateway.ip(&net.lab, "ip -s xfrm state");
            assert_eq!(states.matches("replay 0 failed 0").count(), 4, "{states}");
        }
    }
}

/// Linux looks at the setting of the device by which a packet came sealed, which has `forwarding` by itself here.
#[test]
fn forwarding_of_single_interfaces() {
    const TEST: &str = "xfrm_gateway::forwarding_of_single_interfaces";
    let Some(net) = Net::new(TEST, "", [BY_TUN; 2], None) else { return };
    let set = |gateway: &Host, names: &[&str], to: u8| {
        let line: String =
            names.iter().map(|name| format!("echo {to} > /proc/sys/net/ipv4/conf/{name}/forwarding; ")).collect();
        assert!(net.sh(&gateway.space, &format!("set -e; {line}")).0, "{line}");
    };
    let [near, far] = &net.gateways;
    // All devices, ours as well.
    set(near, &["all", "default"], 0);
    set(far, &["all", "default"], 0);
    let is = |on: u8| {
        let line =
            format!("until [ $(cat /proc/sys/net/ipv4/conf/sealane-ipsec/forwarding) = {on} ]; do sleep 0.01; done");
        assert!(net.sh(&far.space, &format!("timeout 60 sh -c '{line}'")).0, "{on}");
    };
    is(0);
    for gateway in [near, far] {
        set(gateway, &["lan", "wan"], 1);
    }
    is(1);
    net.soon(&format!("ping -q -c 1 -W 1 {}", FAR[0]));
    net.all_answered(20, FAR[0]);
    set(far, &["lan", "wan"], 0);
    is(0);
    let (answered, text) = net.sh(&net.a, &format!("ping -q -c 5 -i 0.01 -W 1 {}", FAR[0]));
    assert!(!answered && text.contains(" 0 received"), "{text}");
    // Others decide for the loopback device, by which nothing comes sealed.
    set(far, &["lo"], 1);
    set(far, &["lan"], 1);
    is(1);
    net.lab.ip(&far.space, "link del lan");
    is(0);
}

/// Returns a number of a gateway's status of an interface.
fn counted(text: &str, interface: &str, name: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with(&format!("device {interface}:")));
    let line = line.unwrap_or_else(|| panic!("no {interface}: {text}"));
    let value = line.split("; ").find_map(|part| part.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    value.unwrap_or_else(|| panic!("no {name}: {line}"))
}

#[test]
fn interfaces_as_they_are() {
    // One end has its outer interface with the stack, and an interface without frames; the other end has an interface
    // without XDP, and one that is added later.
    let configs = [
        "[[ipsec.gateway]]\ninterfaces = [\"lan\", \"lo\"]\n",
        "[[ipsec.gateway]]\ninterfaces = [\"bridge\", \"wan\", \"late\"]\n",
    ];
    let Some(net) = Net::new("xfrm_gateway::interfaces_as_they_are", "", configs, Some("bridge")) else { return };
    let [g, p] = [net.interfaces(0), net.interfaces(1)];
    for (text, name, how) in [
        (&g, "lan", "gateway-native-copied, up"),
        (&g, "lo", "gateway, down"),
        (&p, "bridge", "gateway-generic-copied, up"),
        (&p, "wan", "gateway-native-copied, up"),
        (&p, "late", "gateway, down"),
    ] {
        assert!(text.contains(&format!("device {name}: {how},")), "{name}: {text}");
    }
    let pings = || {
        for far in FAR {
            net.soon(&format!("ping -q -c 1 -W 1 {far}"));
            net.all_answered(200, &format!("-s 500 {far}"));
        }
    };
    pings();
    let [g, p] = [net.interfaces(0), net.interfaces(1)];
    for (text, name) in [(&g, "lan"), (&p, "bridge")] {
        assert!(counted(text, name, "sealed") >= 300, "{text}");
        assert!(counted(text, name, "not sent full") == 0 && counted(text, name, "received full") == 0, "{text}");
    }
    // One end sends through the stack, the other one by itself.
    assert!(counted(&g, "lan", "to stack") >= 300 && counted(&g, "lan", "opened") == 0, "{g}");
    assert!(counted(&p, "bridge", "opened") >= 300 && counted(&p, "bridge", "sent") >= 600, "{p}");
    // All interfaces are reopened when one is added or removed.
    let is_up = |up: bool| {
        let start = Instant::now();
        let late = if up { "device late: gateway-native-copied, up" } else { "device late: gateway, down" };
        while ![late, "device bridge: gateway-generic-copied, up"].iter().all(|line| net.interfaces(1).contains(line)) {
            assert!(start.elapsed() < LIMIT, "{}", net.interfaces(1));
        }
    };
    net.lab.ip(&net.gateways[1].space, "link add late type veth peer name later");
    net.lab.ip(&net.gateways[1].space, "link set late up");
    is_up(true);
    pings();
    net.lab.ip(&net.gateways[1].space, "link del late");
    is_up(false);
    pings();
    let after = counted(&net.interfaces(1), "bridge", "sent");
    assert!(after >= counted(&p, "bridge", "sent") + 1200, "{after} after {p}");
}

#[test]
fn several_threads_keep_the_order_of_a_state() {
    const TEST: &str = "xfrm_gateway::several_threads_keep_the_order_of_a_state";
    for encap in ["", "encap espinudp 4500 4500 0.0.0.0"] {
        let Some(net) = Net::new(TEST, encap, [BY_THREADS, BY_TUN], None) else { return };
        FAR.iter().for_each(|far| net.soon(&format!("ping -q -c 1 -W 1 {far}")));
        let echo = "import socket\ns=socket.socket(socket.AF_INET6,socket.SOCK_DGRAM)\ns.bind(('::',7007))\nprint('ready',flush=True)\n\
            while True:\n d,a=s.recvfrom(2048)\n s.sendto(d,a)";
        let mut echoing = net.lab.start(&net.b, &["python3", "-c", echo]);
        echoing.expect("ready", 1);
        let flows = |net: &Net, times: &str| {
            for far in FAR {
                let (status, text) = net.lab.start(&net.a, &["python3", "-c", FLOWS, far, times]).finish(LIMIT);
                assert_eq!((status, text.trim()), (Some(0), "all came back in order"), "{}", net.interfaces(0));
            }
        };
        // More datagrams than chunks of memory: each chunk returns to its thread.
        flows(&net, "80");
        let text = net.interfaces(0);
        for name in ["lan", "wan"] {
            let line = format!("device {name}: gateway-native-copied, up");
            assert!(text.contains(&line) && counted(&text, name, "threads") == 2, "{text}");
        }
        let number = |text: &str, name| counted(text, "lan", name);
        // Half of the flows are read by a thread other than their state's.
        assert!(number(&text, "handed over") > 5_000 && number(&text, "not handed over full") == 0, "{text}");
        assert!(number(&text, "sealed") >= 30_000 && number(&text, "opened") >= 30_000, "{text}");
        if encap.is_empty() {
            // All sockets are reopened for two threads, then for one, and for two again.
            let is = |late: &str, threads: u64| {
                let start = Instant::now();
                loop {
                    let text = net.interfaces(0);
                    if text.contains(&format!("device late: gateway{late}"))
                        && counted(&text, "lan", "threads") == threads
                    {
                        return;
                    }
                    assert!(start.elapsed() < LIMIT, "{text}");
                }
            };
            let late = |words: &str| net.lab.ip(&net.gateways[0].space, words);
            late(&two_queues("late", &format!("later {TWO}")));
            late("link set late up");
            is("-native-copied, up", 2);
            flows(&net, "5");
            late("link del late");
            is(", down", 2);
            late("link add late type veth peer name later");
            late("link set late up");
            is("-native-copied, up", 1);
            flows(&net, "5");
            late("link del late");
            is(", down", 2);
            flows(&net, "5");
        }
        for gateway in &net.gateways {
            let states = gateway.ip(&net.lab, "ip -s xfrm state");
            assert_eq!(states.matches("replay 0 failed 0").count(), 4, "{states}");
        }
    }
}

/// Sends 48 flows with four datagrams each in flight, for a number of rounds.
const FLOWS: &str = "import socket,sys
to=(sys.argv[1],7007)
flows=[socket.socket(socket.AF_INET6 if ':' in to[0] else socket.AF_INET,socket.SOCK_DGRAM) for _ in range(48)]
for s in flows: s.settimeout(20); s.connect(to)
for n in range(int(sys.argv[2])):
    for i in range(4):
        for s in flows: s.send(b'%06d' % (4*n+i))
    for s in flows:
        came=[int(s.recv(100)) for _ in range(4)]
        assert came==list(range(4*n,4*n+4)), came
print('all came back in order')";

#[test]
fn nothing_is_forwarded_in_clear() {
    clear("xfrm_gateway::nothing_is_forwarded_in_clear", BY_TUN);
}

#[test]
fn nothing_is_forwarded_in_clear_past_the_stack() {
    clear("xfrm_gateway::nothing_is_forwarded_in_clear_past_the_stack", BY_THREADS);
}

/// Kills the first gateway, which has this configuration.
fn clear(test: &str, config: &str) {
    let Some(mut net) = Net::new(test, "", [config, BY_TUN], None) else { return };
    FAR.iter().for_each(|far| net.soon(&format!("ping -q -c 1 -W 1 {far}")));
    let watcher = program("clear_watch.py");
    let watch = |net: &Net| {
        let mut watch = net.lab.start(&net.gateways[1].space, &["python3", &watcher, "wan"]);
        watch.expect("watching", 1);
        watch
    };
    let pings = |net: &Net, patience: u32| {
        FAR.map(|far| net.sh(&net.a, &format!("ping -q -p {MARKER} -c 20 -i 0.01 -W {patience} -s 500 {far}")).0)
    };
    let before = watch(&net);
    assert_eq!(pings(&net, 30), [true; 2]);
    let programs = |net: &Net| net.sh(&net.gateways[0].space, "ip link").1.matches("xdp").count();
    if config != BY_TUN {
        let text = net.interfaces(0);
        assert!(counted(&text, "lan", "sealed") >= 40, "{text}");
        assert!(programs(&net) > 0);
    }
    net.gateways[0].end(libc::SIGKILL);
    assert_eq!(programs(&net), 0, "the stack has its frames again");
    assert_eq!(pings(&net, 1), [false; 2], "what policies protect is dropped");
    let (_, seen) = before.finish(LIMIT);
    assert!(seen.contains("clear 0 esp ") && !seen.contains("esp 0"), "{seen}");
    // Without policies packets leave unprotected, and the other gateway drops them.
    net.gateways[0].start(&net.lab);
    net.gateways[0].ip(&net.lab, "ip xfrm policy flush");
    let after = watch(&net);
    let mut inner = net.lab.start(&net.b, &["python3", &watcher, "lan"]);
    inner.expect("watching", 1);
    assert_eq!(pings(&net, 1), [false; 2], "what comes in clear is not forwarded");
    let (_, seen) = after.finish(LIMIT);
    assert!(!seen.contains("clear 0"), "it did leave: {seen}");
    let (_, seen) = inner.finish(LIMIT);
    assert!(seen.contains("clear 0"), "{seen}");
}

/// A gateway seals again what it has opened, hub and spoke. While packets are opened past the stack its policies stop being
/// simple, and are simple again, all the time: none that a policy covers leaves in clear meanwhile.
#[test]
fn a_hub_that_hands_over_to_its_stack_sends_nothing_in_clear() {
    const TEST: &str = "xfrm_gateway::a_hub_that_hands_over_to_its_stack_sends_nothing_in_clear";
    let Some(net) = Net::new(TEST, "", [BY_TUN, BY_THREADS], None) else { return };
    let hub = &net.gateways[1];
    net.soon(&format!("ping -q -c 1 -W 1 {}", FAR[0]));
    hub.ip(&net.lab, HUB);
    let watcher = program("clear_watch.py");
    let mut watch = net.lab.start(&net.b, &["python3", &watcher, "lan"]);
    watch.expect("watching", 1);
    let senders = [7, 8].map(|port| net.lab.start(&net.a, &["python3", "-c", FLOOD, FAR[0], &port.to_string()]));
    hub.ip(&net.lab, CHANGES);
    senders.into_iter().for_each(|sender| assert_eq!(sender.finish(LIMIT), (Some(0), String::new())));
    let text = net.interfaces(1);
    assert!(counted(&text, "lan", "opened") > 1000, "{text}");
    let (_, seen) = watch.finish(LIMIT);
    assert!(seen.contains("clear 0 esp ") && !seen.contains("esp 0"), "{seen}");
}

/// The second spoke is `b`. Further states make a change of the tables take its time.
const HUB: &str = "ip xfrm state add src 10.91.2.1 dst 10.91.2.2 proto esp spi 0x2001 reqid 9 mode tunnel flag esn replay-window 32 \
     aead 'rfc4106(gcm(aes))' 0x000102030405060708090a0b0c0d0e0f10111213 128
ip xfrm policy add dir out src 10.91.1.0/24 dst 10.91.2.0/24 tmpl src 10.91.2.1 dst 10.91.2.2 proto esp reqid 9 mode tunnel
for n in $(seq 400); do
    echo \"xfrm state add src 10.90.0.9 dst 10.90.0.2 proto esp spi $((0x3000 + n)) reqid 10 mode tunnel \
        aead rfc4106(gcm(aes)) 0x000102030405060708090a0b0c0d0e0f10111213 128\"
done | ip -batch -";

const CHANGES: &str = "for n in $(seq 60); do
    ip xfrm policy setdefault out block; sleep 0.03
    ip xfrm policy setdefault out accept; sleep 0.1
done";

/// Sends a marker to a port of an address until its standard input ends.
const FLOOD: &str = "import select,socket,sys
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)
s.connect((sys.argv[1],int(sys.argv[2])))
while not select.select([sys.stdin],[],[],0)[0]:
    for _ in range(100):
        try: s.send(b'never in clear '*20)
        except OSError: pass";
