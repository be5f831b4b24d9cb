//! Offload devices: the commands of Linux's packet offload series, as written there, on devices of a daemon.

use sealane_conformance::ipsec::{Host, LIMIT, ping_all};
use sealane_conformance::lab::Lab;
use sealane_conformance::skip::skip_without;
use sealane_conformance::target::{Target, root, sealane};

const INLINE: &str = "[ipsec]\n[[ipsec.device]]\nname = \"inline0\"\nkind = \"inline\"\n";
const GCM: &str = "aead 'rfc4106(gcm(aes))' 0x000102030405060708090a0b0c0d0e0f10111213 128";
const AH: &str = "auth 'hmac(sha1)' 0x0011223344556677889900112233445566778899";

/// Makes a lab; returns none and reports a skip where that is not possible.
fn lab(test: &str) -> Option<Lab> {
    if skip_without(test, &[&Target::sealane("open")]) {
        return None;
    }
    Lab::new(test)
}

/// Returns `ip xfrm state add` with an SPI and more words at its end.
fn add(spi: u32, rest: &str) -> String {
    let program = if rest.contains("offload crypto") || rest.contains("offload packet") { "sealane" } else { "ip" };
    format!("{program} xfrm state add src 10.0.0.1 dst 10.0.0.2 proto esp spi {spi:#x} mode tunnel {GCM} {rest}")
}

/// Returns the beginning of a script that uses `sealane`.
fn shell() -> String {
    format!("sealane() {{ '{}' \"$@\"; }}\n", sealane().display())
}

/// Runs commands, each with an expected exit status and text. Debian 12's `ip` does not know the words `crypto` and
/// `packet` yet, which `sealane xfrm` does.
fn check(lab: &Lab, host: &Host, commands: &[(&str, i32, &str)]) {
    for (command, status, says) in commands {
        let whole = shell() + command;
        let (found, text) = host.run(lab, &["sh", "-c", &whole]);
        assert_eq!(found, Some(*status), "{command}\n{text}");
        match says {
            &"" => assert_eq!(text, "", "{command}"),
            says => assert!(text.contains(says), "{command}\n{text}"),
        }
    }
}

fn features(lab: &Lab, host: &Host, names: &[&str]) -> String {
    let program = root().join("conformance/programs/xfrm_features.py");
    let (status, text) = host.run(lab, &[&["python3", &*program.to_string_lossy()], names].concat());
    assert_eq!(status, Some(0), "{text}");
    text
}

#[test]
fn crypto_offload_as_written() {
    let Some(mut lab) = lab("xfrm_devices::crypto_offload_as_written") else { return };
    let space = lab.space("x");
    let host = Host::configured(&lab, &space, INLINE);
    const WHERE: &str = "crypto offload parameters: dev inline0 dir out";
    let ah = format!(
        "ip xfrm state add src 10.0.0.1 dst 10.0.0.2 proto ah spi 9 mode transport {AH} offload dev inline0 dir out"
    );
    check(
        &lab,
        &host,
        &[
            (&add(1, "offload dev inline0 dir out"), 0, ""),
            (&add(2, "offload crypto dev inline0 dir in"), 0, ""),
            (&add(3, "flag esn replay-window 32 offload crypto dev inline0 dir out"), 0, ""),
            (&add(1, "offload dev inline0 dir out"), 2, "File exists"),
            ("ip xfrm state list", 0, WHERE),
            ("ip xfrm state get src 10.0.0.1 dst 10.0.0.2 proto esp spi 1", 0, WHERE),
            ("sealane xfrm state get src 10.0.0.1 dst 10.0.0.2 proto esp spi 2", 0, "dev inline0 dir in"),
            // Linux refuses these of any device.
            (&add(4, "tfcpad 100 offload dev inline0 dir out"), 2, "Error: TFC padding can't be offloaded."),
            (&add(4, "if_id 7 offload dev inline0 dir in"), 2, "Error: XFRM if_id is not supported in RX path."),
            (&add(4, "if_id 7 offload dev inline0 dir out"), 0, ""),
            (&ah, 2, "Error: Type doesn't support offload."),
            // This device takes these.
            (&add(5, "offload packet dev inline0 dir out"), 2, "Error: The device does crypto offload only."),
            (
                "sealane xfrm policy add dir out src 10.4.0.0/16 dst 10.5.0.0/16 offload packet dev inline0 \
                 tmpl src 10.0.0.1 dst 10.0.0.2 proto esp mode tunnel",
                2,
                "Error: Policy offload is not supported.",
            ),
            // A device without offload: in crypto mode the stack takes over, in packet mode it must not.
            (&add(6, "offload crypto dev lo dir out"), 0, ""),
            (&add(7, "offload packet dev lo dir out"), 2, "Invalid argument"),
            ("ip xfrm state get src 10.0.0.1 dst 10.0.0.2 proto esp spi 6 | grep -c offload", 1, "0"),
            ("ip xfrm state delete src 10.0.0.1 dst 10.0.0.2 proto esp spi 1", 0, ""),
            ("ip xfrm state list | grep -c offload", 0, "3"),
            ("ip xfrm state flush", 0, ""),
            ("ip xfrm state count", 0, "SAD count 0"),
        ],
    );
    let said = |words: &str| host.sealane(&lab, words);
    let add = "xfrm state add src 10.0.0.1 dst 10.0.0.2 proto esp spi 1 mode tunnel aead rfc4106(gcm(aes)) \
               0x000102030405060708090a0b0c0d0e0f10111213 128";
    let (status, text) = said(&format!("{add} dir out offload dev inline0 dir in"));
    assert_eq!((status, text.trim()), (Some(2), "Error: Mismatched SA and offload direction."));
    assert_eq!(said(&format!("{add} dir out offload crypto dev inline0 dir out")), (Some(0), String::new()));
    let (status, text) = said("xfrm show interval 0");
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("tunnel, crypto on inline0\n"), "{text}");
    assert!(text.contains("device inline0: inline, up, 1 states\n"), "{text}");
}

#[test]
fn a_device_that_goes_down() {
    let Some(mut lab) = lab("xfrm_devices::a_device_that_goes_down") else { return };
    let space = lab.space("x");
    let mut host = Host::configured(&lab, &space, INLINE);
    assert_eq!(features(&lab, &host, &["inline0", "lo", "none"]), "inline0 yes\nlo no\nnone No such device\n");
    let offloaded = add(1, "offload dev inline0 dir out");
    let (plain, offloads) = (add(2, ""), "ip xfrm state list | grep -c 'dev inline0'");
    check(
        &lab,
        &host,
        &[
            (&offloaded, 0, ""),
            (&plain, 0, ""),
            (offloads, 0, "1"),
            // Its states are deleted with it, the others stay.
            ("ip link set inline0 down; ip xfrm state count", 0, "SAD count 1"),
            (&offloaded, 0, ""),
            (offloads, 1, "0"),
            ("ip link set inline0 up; ip xfrm state delete src 10.0.0.1 dst 10.0.0.2 proto esp spi 1", 0, ""),
            (&offloaded, 0, ""),
            (offloads, 0, "1"),
            ("ip link del inline0; ip xfrm state count", 0, "SAD count 1"),
            ("ip link show inline0", 1, "does not exist"),
        ],
    );
    // A reload brings it back, and another one.
    let second = INLINE.to_owned() + "[[ipsec.device]]\nname = \"inline1\"\nkind = \"inline\"\n";
    assert!(host.reload(&lab, &second).contains("read again"));
    check(&lab, &host, &[(&offloaded, 0, ""), (&add(3, "offload dev inline1 dir in"), 0, ""), (offloads, 0, "1")]);
    assert_eq!(features(&lab, &host, &["inline0", "inline1"]), "inline0 yes\ninline1 yes\n");
    // A device that is not configured any more is removed with its states.
    assert!(host.reload(&lab, INLINE).contains("read again"));
    check(
        &lab,
        &host,
        &[(offloads, 0, "1"), ("ip xfrm state count", 0, "SAD count 2"), ("ip link show inline1", 1, "not exist")],
    );
    assert_eq!(features(&lab, &host, &["inline0", "inline1"]), "inline0 yes\ninline1 No such device\n");
    // A wrong configuration changes nothing.
    let said = host.reload(&lab, &INLINE.replace("\"inline\"", "\"inlin\""));
    assert!(said.contains("did you mean \"inline\"?") && said.contains("stays as it was"), "{said}");
    check(&lab, &host, &[(offloads, 0, "1")]);
}

const PACKET: &str = "[ipsec]\n[[ipsec.device]]\nname = \"packet0\"\nkind = \"packet\"\n\
                      [[ipsec.device]]\nname = \"packet1\"\nkind = \"packet\"\n\
                      [[ipsec.device]]\nname = \"crypto0\"\nkind = \"crypto\"\n";

#[test]
fn packet_offload_as_written() {
    let Some(mut lab) = lab("xfrm_devices::packet_offload_as_written") else { return };
    let space = lab.space("x");
    let host = Host::configured(&lab, &space, PACKET);
    let policy = |dir: &str, rest: &str| {
        format!(
            "sealane xfrm policy add dir {dir} src 10.4.0.0/16 dst 10.5.0.0/16 {rest} \
             tmpl src 10.0.0.1 dst 10.0.0.2 proto esp reqid 1 mode tunnel"
        )
    };
    const LIST: &str = "ip xfrm policy list | grep -c 'dev packet0'";
    let unsupported = "Error: Policy offload is not supported.";
    check(
        &lab,
        &host,
        &[
            (&add(1, "offload packet dev packet0 dir out"), 0, ""),
            (&add(2, "flag esn replay-window 32 offload packet dev packet0 dir in"), 0, ""),
            (&add(1, "offload packet dev packet1 dir out"), 2, "File exists"),
            ("sealane xfrm state list", 0, "crypto offload parameters: dev packet0 dir out mode packet"),
            (&policy("out", "offload packet dev packet0"), 0, ""),
            (&policy("in", "offload packet dev packet0"), 0, ""),
            (&policy("fwd", "offload packet dev packet0"), 0, ""),
            (&policy("out", "offload packet dev packet0"), 2, "File exists"),
            (&policy("out", "priority 7 offload packet dev crypto0"), 2, unsupported),
            (&policy("out", "priority 7 offload packet dev lo"), 2, unsupported),
            (LIST, 0, "3"),
            ("ip xfrm policy get dir out src 10.4.0.0/16 dst 10.5.0.0/16", 0, "dev packet0"),
            (&add(4, "tfcpad 100 offload packet dev packet0 dir out"), 2, "Error: TFC padding can't be offloaded."),
            (&add(4, "if_id 7 offload packet dev packet0 dir in"), 2, "Error: XFRM if_id is not supported in RX path."),
            (&add(4, "offload crypto dev crypto0 dir out"), 0, ""),
            ("ip xfrm policy delete dir fwd src 10.4.0.0/16 dst 10.5.0.0/16", 0, ""),
            (LIST, 0, "2"),
            // States and policies of other devices stay when one goes down.
            ("ip link set crypto0 down; ip xfrm state count", 0, "SAD count 2"),
            (LIST, 0, "2"),
            ("ip link set packet0 down; ip xfrm state count", 0, "SAD count 0"),
            (LIST, 1, "0"),
            (&policy("out", "offload packet dev packet0"), 2, unsupported),
            (&add(1, "offload packet dev packet0 dir out"), 2, "Invalid argument"),
            ("ip link set packet0 up", 0, ""),
            (&policy("out", "offload packet dev packet0"), 0, ""),
            (&add(1, "offload packet dev packet0 dir out"), 0, ""),
            (LIST, 0, "1"),
            ("ip xfrm policy flush; ip xfrm state flush; ip xfrm state count; ip xfrm policy list", 0, "SAD count 0\n"),
        ],
    );
    // A refusal by a device has a reason.
    let (status, text) =
        host.run(&lab, &["sh", "-c", &format!("{}{}", shell(), add(9, "offload packet dev crypto0 dir out"))]);
    assert_eq!(status, Some(2), "{text}");
    assert!(text.starts_with("Error: ") || text.contains("Invalid argument"), "{text}");
}

/// Two namespaces with a daemon each; packets between 10.1.0.1 and 10.2.0.1 are protected, and those that arrive
/// unprotected are counted.
struct Pair {
    lab: Lab,
    hosts: [Host; 2],
}

impl Pair {
    fn new(test: &str, config: &str) -> Option<Pair> {
        let mut lab = lab(test)?;
        let spaces = [lab.space("a"), lab.space("b")];
        lab.veth([&spaces[0], &spaces[1]], ["eth0", "eth0"]);
        for (space, end) in spaces.iter().zip([1, 2]) {
            lab.address(space, "eth0", &format!("10.0.0.{end}/24"), &format!("fd00::{end}/64"));
            lab.ip(space, &format!("addr add 10.{end}.0.1/32 dev lo"));
            lab.ip(space, &format!("route add 10.{}.0.1 dev eth0 src 10.{end}.0.1", 3 - end));
            // What the daemon has opened and returned to the device has a source address that no device has.
            let watch = format!(
                "nft add table inet watch; nft 'add chain inet watch in {{ type filter hook prerouting priority -300; }}'\n\
                 nft 'add rule inet watch in iifname eth0 ip daddr 10.{end}.0.1 ether saddr & ff:ff:ff:ff:00:00 != 00:00:00:00:00:00 counter'"
            );
            let (status, text) = lab.start(space, &["sh", "-ec", &watch]).finish(LIMIT);
            assert_eq!(status, Some(0), "{text}");
        }
        let hosts = [0, 1].map(|i: usize| Host::configured(&lab, &spaces[i], config));
        Some(Pair { lab, hosts })
    }

    /// Adds states and policies at an end, with these offload parameters.
    fn configure(&self, end: usize, state: &str, policy: &str) {
        let mut script = shell();
        for (from, spi) in [(0, 0x1001), (1, 0x2001)] {
            let (to, dir) = (1 - from, if from == end { "out" } else { "in" });
            let (from, to) = (from + 1, to + 1);
            let offload = if state.is_empty() { String::new() } else { format!("{state} dir {dir}") };
            script += &format!(
                "sealane xfrm state add src 10.0.0.{from} dst 10.0.0.{to} proto esp spi {spi:#x} reqid 1 mode tunnel {GCM} \
                 replay-window 64 {offload}\n\
                 sealane xfrm policy add dir {dir} src 10.{from}.0.1 dst 10.{to}.0.1 {policy} \
                 tmpl src 10.0.0.{from} dst 10.0.0.{to} proto esp reqid 1 mode tunnel\n"
            );
        }
        self.hosts[end].ip(&self.lab, &script);
    }

    /// Sends five pings; returns the number of answers, which should be `should`.
    fn pings(&self, len: usize, should: usize) -> usize {
        let patience = if should == 0 { "-W 1" } else { "" };
        let ping = format!("{} {patience} -s {len} 10.2.0.1 || :", ping_all(5));
        let (_, text) = self.lab.start(&self.hosts[0].space, &["sh", "-c", &ping]).finish(LIMIT);
        // A route to a device that is gone fails at once.
        if text.contains("No route to host") {
            return 0;
        }
        (0..=5).find(|n| text.contains(&format!(" {n} received"))).unwrap_or_else(|| panic!("no summary: {text}"))
    }

    /// Returns the number of packets that arrived unprotected.
    fn clear(&self) -> u32 {
        let count = |host: &Host| {
            let (_, text) = self.lab.start(&host.space, &["nft", "list", "table", "inet", "watch"]).finish(LIMIT);
            let mut words = text.split_whitespace().skip_while(|w| *w != "packets").skip(1);
            words.next().and_then(|n| n.parse::<u32>().ok()).expect("a counter")
        };
        self.hosts.iter().map(count).sum()
    }
}

#[test]
fn packets_by_each_kind_of_device() {
    for (kind, mode) in [("inline", "crypto"), ("crypto", "crypto"), ("packet", "packet")] {
        let config = format!("[ipsec]\n[[ipsec.device]]\nname = \"sealane0\"\nkind = \"{kind}\"\n");
        let Some(pair) = Pair::new("xfrm_devices::packets_by_each_kind_of_device", &config) else { return };
        let policy = if mode == "packet" { "offload packet dev sealane0" } else { "" };
        pair.configure(0, &format!("offload {mode} dev sealane0"), policy);
        // The other end has its states in software.
        pair.configure(1, "", "");
        // A packet device takes no packet that is too long for the path.
        let long = if mode == "packet" { 1300 } else { 3000 };
        assert_eq!((pair.pings(56, 5), pair.pings(long, 5), pair.clear()), (5, 5, 0), "{kind}");
        let (_, text) = pair.hosts[0].sealane(&pair.lab, "xfrm show interval 0");
        assert_eq!(text.matches(&format!("{mode} on sealane0")).count(), 2, "{text}");
        assert_eq!(text.matches(" bytes, 0 packets;").count(), 0, "{kind}: the device's counters are told: {text}");
        assert!(text.contains(&format!("device sealane0: {kind}, up, 2 states")), "{text}");
    }
}

#[test]
fn nothing_is_in_clear_without_a_device() {
    let config = "[ipsec]\n[[ipsec.device]]\nname = \"sealane0\"\nkind = \"packet\"\n\
                  [[ipsec.device]]\nname = \"sealane1\"\nkind = \"packet\"\n";
    let Some(mut pair) = Pair::new("xfrm_devices::nothing_is_in_clear_without_a_device", config) else { return };
    pair.configure(1, "", "");
    // The state has to be on the policy's device, not on another one or in software.
    for state in ["offload packet dev sealane1", ""] {
        pair.configure(0, state, "offload packet dev sealane0");
        assert_eq!((pair.pings(56, 0), pair.clear()), (0, 0), "{state}");
        pair.hosts[0].ip(&pair.lab, "ip xfrm state flush; ip xfrm policy flush");
    }
    pair.configure(0, "offload packet dev sealane0", "offload packet dev sealane0");
    let wider = "sealane xfrm policy add dir out dst 10.2.0.0/16 priority 1 \
                 tmpl src 10.0.0.1 dst 10.0.0.2 proto esp reqid 2 mode tunnel";
    pair.hosts[0].ip(&pair.lab, &format!("{}{wider}", shell()));
    assert_eq!((pair.pings(56, 5), pair.clear()), (5, 0), "a device's policy comes first");
    // The next policy decides without the device, and has no state.
    pair.hosts[0].ip(&pair.lab, "ip link set sealane0 down");
    assert_eq!((pair.pings(56, 0), pair.clear()), (0, 0));
    // Nor is anything in clear without another policy, also when another daemon comes while the device is down.
    pair.hosts[0].ip(&pair.lab, &format!("{}sealane xfrm policy delete dir out dst 10.2.0.0/16", shell()));
    assert_eq!((pair.pings(56, 0), pair.clear()), (0, 0), "the device is down");
    pair.hosts[0].end(libc::SIGKILL);
    pair.hosts[0].start(&pair.lab);
    assert_eq!((pair.pings(56, 0), pair.clear()), (0, 0), "a policy that has lost its device is kept");
    pair.hosts[0].ip(&pair.lab, "ip link set sealane0 down; ip link delete sealane0");
    assert_eq!((pair.pings(56, 0), pair.clear()), (0, 0), "the device is gone");
    pair.hosts[0].end(libc::SIGKILL);
    pair.hosts[0].start(&pair.lab);
    pair.hosts[0].ip(&pair.lab, "ip link set sealane0 up; ip xfrm state flush; ip xfrm policy flush");
    pair.configure(0, "offload packet dev sealane0", "offload packet dev sealane0");
    assert_eq!((pair.pings(56, 5), pair.clear()), (5, 0), "up again it can be used again");
    pair.hosts[0].end(libc::SIGKILL);
    assert_eq!((pair.pings(56, 0), pair.clear()), (0, 0), "nor when the daemon is gone");
    pair.hosts[0].start(&pair.lab);
    assert_eq!((pair.pings(56, 5), pair.clear()), (5, 0), "the next one goes on, with numbers behind those of before");
}
