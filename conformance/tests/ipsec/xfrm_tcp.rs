//! ESP in TCP (RFC 9329): sockets of key managers with `espintcp`, and states with that encapsulation.

use sealane_conformance::ipsec::{INNER, LIMIT, OUTER, Pair, Peer, Wired, program, protected};
use sealane_conformance::lab::Running;
use sealane_conformance::recorded::Sequence;
use sealane_conformance::target::{Target, root};
use std::time::Duration;

/// The kernel that has it.
const KERNEL_WITH_TCP: &str = "linux-7.3-net";
/// The port of the first end's key manager, which listens.
const PORT: u16 = 4500;
const CALLS: &str = "conformance/programs/espintcp_calls.py";

/// Differences of a program's calls: the title of a line, and what it is here.
const DIFFERENT: [(&str, &str); 2] = [
    // LIMITATIONS.md, IPSEC-207 and IPSEC-208.
    ("of one that is not connected", "ENOTCONN"),
    ("sending does not", "EPIPE"),
];

/// The same program sees the same, of Linux's sockets and of those that stand for the daemon's connections.
#[test]
fn calls_on_a_socket() {
    let test = "xfrm_tcp::calls_on_a_socket";
    let in_kernel = || {
        let argv = ["python3", "-B", &*root().join(CALLS).to_string_lossy()].map(str::to_owned);
        let done = Target::kernel(KERNEL_WITH_TCP).run(&argv.each_ref().map(|word| &**word), LIMIT).expect("it starts");
        assert_eq!(done.status, Some(0), "{}", done.text);
        Some(done.text)
    };
    let of_linux = Sequence::new(KERNEL_WITH_TCP, "espintcp").files(&[CALLS]).answer(test, in_kernel);
    let (Some(of_linux), Some(pair)) = (of_linux, Pair::new(test, "[ipsec]\n")) else { return };
    let host = &pair.hosts[0];
    let (status, text) = host.run(&pair.lab, &["python3", "-B", &program("espintcp_calls.py")]);
    assert_eq!(status, Some(0), "{text}\n{}", host.output());
    let wanted = of_linux.lines().map(|line| {
        let (title, result) = line.split_once(": ").unwrap_or((line, ""));
        let here = DIFFERENT.iter().find(|(of, _)| *of == title).map_or(result, |(_, here)| here);
        if line.contains(": ") { format!("{title}: {here}") } else { line.to_owned() }
    });
    let differs = |(found, wanted): (&str, String)| (found != wanted).then(|| format!("{found}, not {wanted}\n"));
    let differences: String = text.lines().zip(wanted).filter_map(differs).collect();
    assert!(differences.is_empty() && text.lines().count() == of_linux.lines().count(), "{differences}\n{text}");
}

/// States and policies of a tunnel between the inner addresses of IPv4, over a connection that the second end has made from
/// this port.
fn commands(side: usize, family: usize, from_port: u16) -> String {
    let (outer, inner) = (OUTER[family], INNER[0]);
    let ports = [PORT, from_port];
    let mut commands = String::from("ip xfrm policy flush; ip xfrm state flush\n");
    for (spi, from) in [(0x107, 0), (0x117, 1)] {
        let to = 1 - from;
        commands += &format!(
            "ip xfrm state add src {} dst {} proto esp spi {spi} reqid 1 mode tunnel flag af-unspec replay-window 64 \
             aead 'rfc4106(gcm(aes))' 0x{spi:040x} 128 encap espintcp {} {} 0.0.0.0\n",
            outer[from], outer[to], ports[from], ports[to]
        );
        let direction = if from == side { "out" } else { "in" };
        commands += &format!(
            "ip xfrm policy add src {} dst {} dir {direction} tmpl src {} dst {} proto esp reqid 1 mode tunnel\n",
            inner[from], inner[to], outer[from], outer[to]
        );
    }
    commands
}

/// The port in the last line that tells of a connection.
fn port(output: &str) -> u16 {
    let (_, rest) = output.rsplit_once("connection from ").expect("a connection");
    rest.lines().next().and_then(|word| word.trim().parse().ok()).expect("a port")
}

/// Pings with the text that a watch of the wire looks for.
fn pings(count: u32, wait_s: u32) -> String {
    format!("ping -q -c {count} -i 0.02 -W {wait_s} -p 6e6576657220696e20636c656172 {}", INNER[0][0])
}

/// Two key managers of a pair, of which the second has connected to the first.
fn managers(pair: &Pair, family: usize) -> [Running; 2] {
    let (py, port) = (program("esp_in_tcp.py"), PORT.to_string());
    let mut first = pair.hosts[0].begin(&pair.lab, &["python3", &py, "listen", OUTER[family][0], &port]);
    first.expect("listening", 1);
    let mut second = pair.hosts[1].begin(&pair.lab, &["python3", &py, "connect", OUTER[family][0], &port]);
    second.expect("IKE answer to hello", 1);
    first.expect("IKE hello", 1);
    [first, second]
}

fn set_up(pair: &Pair, family: usize, from_port: u16) {
    for side in 0..2 {
        pair.hosts[side].ip(&pair.lab, &commands(side, family, from_port));
    }
}

fn answered(pair: &Pair, when: &str) {
    let (done, text) = pair.lab.start(&pair.hosts[1].space, &["sh", "-c", &pings(20, 30)]).finish(LIMIT);
    assert_eq!((done, text.contains(" 20 received")), (Some(0), true), "{when}: {text}");
}

#[test]
fn between_two_daemons() {
    let Some(pair) = Pair::new("xfrm_tcp::between_two_daemons", "[ipsec]\n") else { return };
    for family in 0..2 {
        let watch = pair.watch(1, &[]);
        let [mut first, mut second] = managers(&pair, family);
        set_up(&pair, family, port(&second.output()));
        answered(&pair, "a tunnel in TCP");
        second.tell("say more");
        second.expect("IKE answer to more", 1);
        // Somebody who does not read IKE loses that, and nothing else.
        first.tell("deaf");
        first.expect("is deaf", 1);
        second.tell("flood 3000 text");
        second.expect("flooded", 1);
        answered(&pair, "while IKE is not read");
        first.tell("hear");
        first.expect("hears", 1);
        // The first messages come first; those that did not fit are lost.
        assert!(first.output().contains("IKE flood text 0\n"));
        second.tell("say at last");
        second.expect("IKE answer to at last", 1);
        // The connection ends with the key manager, and with it ESP: nothing goes another way.
        second.signal(libc::SIGTERM);
        let _ = second.finish(LIMIT);
        first.expect("end", 1);
        let (done, text) = pair.lab.start(&pair.hosts[1].space, &["sh", "-c", &pings(3, 1)]).finish(LIMIT);
        assert_eq!((done, text.contains(" 0 received")), (Some(1), true), "{text}");
        pair.hosts[1].ip_until(&pair.lab, "cat /proc/net/xfrm_stat", |stat| {
            let line = stat.lines().find(|line| line.starts_with("XfrmOutStateProtoError"));
            line.and_then(|line| line.split_whitespace().last()?.parse::<u32>().ok()).is_some_and(|count| count >= 3)
        });
        first.signal(libc::SIGTERM);
        let _ = first.finish(LIMIT);
        let (_, seen) = watch.finish(Duration::from_secs(60));
        assert_eq!(protected(&seen), 0, "ESP by itself: {seen}");
    }
}

/// A connection ends with its daemon; the next one serves new ones, by the states of before.
#[test]
fn a_daemon_that_is_killed() {
    let Some(mut pair) = Pair::new("xfrm_tcp::a_daemon_that_is_killed", "[ipsec]\n") else { return };
    let watch = pair.watch(1, &[]);
    let [mut first, mut second] = managers(&pair, 0);
    set_up(&pair, 0, port(&second.output()));
    answered(&pair, "a tunnel in TCP");
    pair.hosts[1].end(libc::SIGKILL);
    second.expect("end", 1);
    first.expect("end", 1);
    let (done, text) = pair.lab.start(&pair.hosts[1].space, &["sh", "-c", &pings(3, 1)]).finish(LIMIT);
    assert_eq!((done, text.contains(" 0 received")), (Some(1), true), "{text}");
    let Pair { hosts, lab } = &mut pair;
    hosts[1].start(lab);
    for running in [first, second] {
        running.signal(libc::SIGTERM);
        let _ = running.finish(LIMIT);
    }
    let [first, second] = managers(&pair, 0);
    set_up(&pair, 0, port(&second.output()));
    answered(&pair, "with the next daemon");
    drop((first, second));
    let (_, seen) = watch.finish(Duration::from_secs(60));
    assert_eq!(protected(&seen), 0, "ESP by itself: {seen}");
}

/// The same key manager at a real kernel with espintcp, which connects or is connected to.
fn with_a_kernel(test: &str, kernel_connects: bool) {
    let Some(Wired { peer, host, lab }) = Wired::with(test, "[ipsec]\n", Some(KERNEL_WITH_TCP)) else { return };
    let Peer::Kernel(mut guest) = peer else { unreachable!("it was asked for") };
    let (py, port_word) = (program("esp_in_tcp.py"), PORT.to_string());
    let beside = |how: &str, address: &str, wanted: &str| {
        let out = format!("/run/{how}");
        format!(
            "rm -f {out}\npython3 {py} {how} {address} {PORT} > {out} 2>&1 < /dev/null &\necho $! > {out}.id\n\
             n=0; until grep -qs '{wanted}' {out}; do n=$((n+1)); [ $n -lt 600 ] || {{ cat {out}; exit 1; }}; sleep 0.1; done\n\
             cat {out}"
        )
    };
    for (family, outer) in OUTER.iter().enumerate() {
        // The end that connects is the second one of `commands`.
        let (mine, ours);
        if kernel_connects {
            let mut first = host.begin(&lab, &["python3", &py, "listen", outer[0], &port_word]);
            first.expect("listening", 1);
            let said = guest.must(&beside("connect", outer[0], "IKE answer to hello"));
            (mine, ours) = (port(&said), first);
            host.ip(&lab, &commands(0, family, mine));
            guest.must(&commands(1, family, mine));
        } else {
            guest.must(&beside("listen", outer[1], "listening"));
            let mut second = host.begin(&lab, &["python3", &py, "connect", outer[1], &port_word]);
            second.expect("IKE answer to hello", 1);
            (mine, ours) = (port(&second.output()), second);
            // The addresses of the second end are this host's.
            let turned = |side: usize| turned(&commands(side, family, mine), family);
            guest.must(&turned(0));
            host.ip(&lab, &turned(1));
        }
        let (done, text) = lab
            .start(&host.space, &["sh", "-c", &format!("ping -q -c 20 -i 0.02 -W 30 {}", INNER[0][1])])
            .finish(LIMIT);
        assert_eq!(
            (done, text.contains(" 20 received")),
            (Some(0), true),
            "{text}\n{}",
            guest.must("ip -s xfrm state; cat /proc/net/xfrm_stat")
        );
        guest.must(&format!("ping -q -c 20 -i 0.02 -W 30 -s 4000 {}", INNER[0][0]));
        assert!(guest.must("awk '$2' /proc/net/xfrm_stat").is_empty());
        ours.signal(libc::SIGTERM);
        let _ = ours.finish(LIMIT);
        guest.must(
            "kill $(cat /run/*.id); while kill -0 $(cat /run/*.id) 2> /dev/null; do sleep 0.05; done; rm /run/*.id",
        );
    }
}

/// Commands with the addresses of both ends changed.
fn turned(commands: &str, family: usize) -> String {
    let pairs = [OUTER[family], INNER[0]];
    pairs
        .iter()
        .fold(commands.to_owned(), |text, [a, b]| text.replace(a, "first end").replace(b, a).replace("first end", b))
}

#[test]
#[ignore = "make accept: boots linux-7.3-net"]
fn a_kernel_that_connects() {
    with_a_kernel("xfrm_tcp::a_kernel_that_connects", true);
}

#[test]
#[ignore = "make accept: boots linux-7.3-net"]
fn a_kernel_that_is_connected_to() {
    with_a_kernel("xfrm_tcp::a_kernel_that_is_connected_to", false);
}
