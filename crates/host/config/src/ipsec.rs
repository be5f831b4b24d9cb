//! The sections `[ipsec]`: the network namespaces in which the daemon replaces the kernel's IPsec; `[[ipsec.device]]`:
//! its offload devices there; `[[ipsec.gateway]]`: interfaces whose packets bypass the stack; and `[[ipsec.iptfs]]`: states
//! that send at a constant rate, or at one that follows congestion.

use super::namespaces::{Namespaces, namespace};
use super::section::{At, Mistakes, Section, kind, near};
use std::net::IpAddr;

/// The most threads that process packets of one network namespace.
pub const MAX_WORKERS: u32 = 16;
/// The interface through which packets pass between the stack and the daemon.
pub const DEVICE: &str = "sealane-ipsec";

/// The sentence that `allow-partial-macs` has to be: it names the risk.
pub const PARTIAL_MACS_RISK: &str = "parts of packets can be altered unnoticed";

/// The interface by which opened packets come in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Incoming {
    /// Our own, [`DEVICE`].
    #[default]
    Ours,
    /// The one that each came by sealed, as in Linux.
    Device,
}

impl Incoming {
    /// Those with their names in the configuration.
    const NAMES: [(&str, Incoming); 2] = [(DEVICE, Incoming::Ours), ("device", Incoming::Device)];
}

/// The settings of `[ipsec]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ipsec {
    /// The network namespaces to serve.
    pub spaces: Namespaces,
    /// The offload devices, each in one of these namespaces, with a name that is unique there.
    pub devices: Vec<OffloadDevice>,
    /// The xfrm interfaces, each in one of these namespaces, with a name and an interface id that are unique there.
    pub interfaces: Vec<XfrmInterface>,
    /// The gateways, each in one of these namespaces, at most one in each.
    pub gateways: Vec<Gateway>,
    /// The rates of states of IP-TFS, the first of which counts that is about a state.
    pub rates: Vec<IptfsRate>,
    /// The number of threads that process the packets of each namespace's stack, and of its gateway if its interfaces
    /// have as many queues.
    pub workers: u32,
    /// The interface by which opened packets come in.
    pub incoming: Incoming,
    /// Whether packets are sealed that policies cover only as they leave.
    pub late: bool,
    /// Whether states may have partial MACs.
    pub partial_macs: bool,
}

impl Default for Ipsec {
    /// No IPsec.
    fn default() -> Self {
        Ipsec {
            spaces: Namespaces::default(),
            devices: Vec::new(),
            interfaces: Vec::new(),
            gateways: Vec::new(),
            rates: Vec::new(),
            workers: 1,
            incoming: Incoming::Ours,
            late: false,
            partial_macs: false,
        }
    }
}

/// An xfrm interface: packets routed to it use the states with its interface id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XfrmInterface {
    /// The interface's name.
    pub name: String,
    /// The interface id of its policies and states, not 0.
    pub if_id: u32,
    /// The network namespace, one of [`Namespaces::netns`].
    pub netns: Option<String>,
}

/// A gateway whose packets bypass the stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gateway {
    /// The names of its interfaces, without duplicates.
    pub interfaces: Vec<String>,
    /// The network namespace, one of [`Namespaces::netns`].
    pub netns: Option<String>,
}

/// Some states of IP-TFS, and the rate at which each of them sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IptfsRate {
    /// The peer's address; `None` for all.
    pub remote: Option<IpAddr>,
    /// The request id; `None` for all.
    pub reqid: Option<u32>,
    /// The interface id; `None` for all.
    pub if_id: Option<u32>,
    /// Nanoseconds from one outer packet to the next.
    pub interval_ns: u64,
    /// The length of outer packets in bytes.
    pub packet_len: u32,
    /// Whether congestion makes the rate lower.
    pub congestion_control: bool,
    /// The network namespace, one of [`Namespaces::netns`].
    pub netns: Option<String>,
}

/// The implementation of an offload device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// The thread that serves the stack, as without a device.
    Inline,
    /// A thread that does the cryptography (crypto offload).
    Crypto,
    /// A thread that does all of IPsec (packet offload).
    Packet,
    /// An existing interface, whose card is used through the kernel's own IPsec.
    Kernel,
}

impl DeviceKind {
    /// All kinds.
    pub const ALL: [DeviceKind; 4] = [DeviceKind::Inline, DeviceKind::Crypto, DeviceKind::Packet, DeviceKind::Kernel];

    /// The name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            DeviceKind::Inline => "inline",
            DeviceKind::Crypto => "crypto",
            DeviceKind::Packet => "packet",
            DeviceKind::Kernel => "kernel",
        }
    }
}

/// An offload device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffloadDevice {
    /// The interface's name.
    pub name: String,
    /// The implementation.
    pub kind: DeviceKind,
    /// The network namespace, one of [`Namespaces::netns`].
    pub netns: Option<String>,
    /// The CPU that its thread is pinned to, for kinds with a thread.
    pub cpu: Option<u32>,
}

/// The longest interface name (`IFNAMSIZ` without the terminating zero).
const MAX_NAME: usize = 15;
/// The highest CPU number (`CONFIG_NR_CPUS` is at most one more).
const MAX_CPU: i64 = 8191;

/// Reads the section, if there is one.
pub(super) fn ipsec(root: &mut Section<'_>, mistakes: &mut Mistakes<'_>) -> Option<Ipsec> {
    let mut section = root.section("ipsec", mistakes)?;
    let spaces = Namespaces::read(&mut section, mistakes);
    let workers = section.integer::<u32>("workers", 1..=MAX_WORKERS.into(), mistakes).map_or(1, |at| at.value);
    let incoming = section.string("incoming", mistakes).and_then(|At { value, span }| {
        let named = Incoming::NAMES.into_iter().find(|(name, _)| *name == value);
        if named.is_none() {
            mistakes.at(&span, format!("'incoming' is \"{DEVICE}\" or \"device\""));
        }
        named.map(|(_, incoming)| incoming)
    });
    let incoming = incoming.unwrap_or_default();
    let late = section.boolean("late", mistakes).unwrap_or(false);
    let partial_macs = section.string("allow-partial-macs", mistakes).is_some_and(|At { value, span }| {
        if value != PARTIAL_MACS_RISK {
            mistakes.at(&span, format!("'allow-partial-macs' has to name the risk: \"{PARTIAL_MACS_RISK}\""));
        }
        value == PARTIAL_MACS_RISK
    });
    let mut devices: Vec<OffloadDevice> = Vec::new();
    for table in section.sections("device", mistakes) {
        let span = table.span.clone();
        let Some(device) = device(table, &spaces.netns, mistakes) else { continue };
        if devices.iter().any(|d| d.name == device.name && d.netns == device.netns) {
            mistakes.at(&span, format!("there are two devices '{}' in one network namespace", device.name));
        }
        devices.push(device);
    }
    let mut interfaces: Vec<XfrmInterface> = Vec::new();
    for table in section.sections("interface", mistakes) {
        let span = table.span.clone();
        let Some(one) = interface(table, &spaces.netns, mistakes) else { continue };
        let here = || interfaces.iter().filter(|i| i.netns == one.netns);
        if here().any(|i| i.name == one.name) || devices.iter().any(|d| d.name == one.name && d.netns == one.netns) {
            mistakes.at(&span, format!("there are two interfaces '{}' in one network namespace", one.name));
        }
        if here().any(|i| i.if_id == one.if_id) {
            mistakes
                .at(&span, format!("there are two interfaces with the 'if_id' {} in one network namespace", one.if_id));
        }
        interfaces.push(one);
    }
    let mut gateways: Vec<Gateway> = Vec::new();
    for table in section.sections("gateway", mistakes) {
        let span = table.span.clone();
        let Some(gateway) = gateway(table, &spaces.netns, mistakes) else { continue };
        if gateways.iter().any(|g| g.netns == gateway.netns) {
            mistakes.at(&span, "there are two gateways in one network namespace; one can have several interfaces");
        }
        gateways.push(gateway);
    }
    let tables = section.sections("iptfs", mistakes);
    let rates = tables.into_iter().filter_map(|table| iptfs_rate(table, &spaces.netns, mistakes)).collect();
    section.finish(mistakes);
    Some(Ipsec { spaces, devices, interfaces, gateways, rates, workers, incoming, late, partial_macs })
}

/// Reads `[[ipsec.interface]]`; `None` if it has mistakes.
fn interface(
    mut section: Section<'_>,
    served: &[Option<String>],
    mistakes: &mut Mistakes<'_>,
) -> Option<XfrmInterface> {
    let name = section.string("name", mistakes);
    let if_id = section.integer::<u32>("if_id", 1..=u32::MAX.into(), mistakes);
    let netns = section.string("netns", mistakes);
    for needed in ["name", "if_id"] {
        if section.value(needed).is_none() {
            section.missing(needed, mistakes);
        }
    }
    let name = name.filter(|at| {
        let wrong = wrong_name(at.value, None);
        wrong.iter().for_each(|what| mistakes.at(&at.span, what.clone()));
        wrong.is_none()
    });
    let netns = place(netns, "an interface", &section, served, mistakes);
    section.finish(mistakes);
    Some(XfrmInterface { name: name?.value.to_owned(), if_id: if_id?.value, netns: netns? })
}

/// Reads `[[ipsec.gateway]]`; `None` if it has mistakes.
fn gateway(mut section: Section<'_>, served: &[Option<String>], mistakes: &mut Mistakes<'_>) -> Option<Gateway> {
    let mut interfaces: Vec<String> = Vec::new();
    let mut wrong = false;
    for at in section.one_or_many("interfaces") {
        let what = match at.value.as_str() {
            None => Some(format!("'interfaces' has to be strings, not {}", kind(at.value))),
            Some(name) if interfaces.iter().any(|other| other == name) => {
                Some("this interface is there twice".to_owned())
            }
            Some(name) => {
                interfaces.push(name.to_owned());
                wrong_name(name, Some(DeviceKind::Kernel)).map(|what| what.replace("'name'", "this"))
            }
        };
        wrong |= what.is_some();
        what.into_iter().for_each(|what| mistakes.at(&at.span, what));
    }
    if section.value("interfaces").is_none() {
        section.missing("interfaces", mistakes);
    } else if interfaces.is_empty() && !wrong {
        mistakes.at(&section.span, "'interfaces' has none");
    }
    let netns = section.string("netns", mistakes);
    let netns = place(netns, "a gateway", &section, served, mistakes);
    section.finish(mistakes);
    (!wrong && !interfaces.is_empty()).then_some(Gateway { interfaces, netns: netns? })
}

/// The most packets a second of a state, and the most bits.
const MAX_RATE: i64 = 1_000_000;
const MAX_BIT_RATE: i64 = 100_000_000_000;
/// The shortest and the longest outer packet at a constant rate, in bytes.
const PACKET_LENS: std::ops::RangeInclusive<i64> = 128..=65_535;

/// Reads `[[ipsec.iptfs]]`; `None` if it has mistakes.
fn iptfs_rate(mut section: Section<'_>, served: &[Option<String>], mistakes: &mut Mistakes<'_>) -> Option<IptfsRate> {
    const SECOND_NS: u64 = 1_000_000_000;
    let remote = section.string("remote", mistakes).map(|At { value, span }| {
        value.parse::<IpAddr>().inspect_err(|_| mistakes.at(&span, "'remote' is the address of a peer"))
    });
    let reqid = section.integer::<u32>("reqid", 0..=u32::MAX.into(), mistakes).map(|at| at.value);
    let if_id = section.integer::<u32>("if_id", 0..=u32::MAX.into(), mistakes).map(|at| at.value);
    let rate = section.integer::<u64>("rate", 1..=MAX_RATE, mistakes).map(|at| at.value);
    let bit_rate = section.integer::<u64>("bit-rate", 1..=MAX_BIT_RATE, mistakes).map(|at| at.value);
    let packet_len = section.integer::<u32>("packet-size", PACKET_LENS, mistakes).map(|at| at.value);
    let congestion_control = section.boolean("congestion-control", mistakes).unwrap_or(false);
    let netns = section.string("netns", mistakes);
    if section.value("packet-size").is_none() {
        section.missing("packet-size", mistakes);
    }
    let has = ["rate", "bit-rate"].map(|name| section.value(name).is_some());
    match has {
        [true, true] => mistakes.at(&section.span, "'rate' (packets a second) and 'bit-rate' exclude each other"),
        [false, false] => mistakes.at(&section.span, "'rate' (packets a second) or 'bit-rate' is missing"),
        _ => {}
    }
    let netns = place(netns, "a rate", &section, served, mistakes);
    section.finish(mistakes);
    let packet_len = packet_len?;
    let interval_ns = match (rate, bit_rate) {
        (Some(rate), None) => SECOND_NS / rate,
        (None, Some(bits)) => (u64::from(packet_len) * 8 * SECOND_NS / bits).max(SECOND_NS / MAX_RATE.unsigned_abs()),
        _ => return None,
    };
    let remote = remote.transpose().ok()?;
    Some(IptfsRate { remote, reqid, if_id, interval_ns, packet_len, congestion_control, netns: netns? })
}

/// The network namespace that a device, interface or gateway is in.
fn place(
    named: Option<At<&str>>,
    what: &str,
    section: &Section<'_>,
    served: &[Option<String>],
    mistakes: &mut Mistakes<'_>,
) -> Option<Option<String>> {
    match named {
        Some(At { value, span }) => {
            let name = namespace(value);
            if !served.contains(&name) {
                let which = if value.is_empty() { "the daemon's own" } else { "this" };
                mistakes.at(&span, format!("'netns' of [ipsec] does not have {which} network namespace"));
            }
            Some(name)
        }
        None if served.is_empty() => {
            mistakes.at(&section.span, format!("{what} needs a network namespace, and 'netns' of [ipsec] has none"));
            None
        }
        None => served.first().cloned(),
    }
}

/// Reads `[[ipsec.device]]`; `None` if it has mistakes.
fn device(mut section: Section<'_>, served: &[Option<String>], mistakes: &mut Mistakes<'_>) -> Option<OffloadDevice> {
    let name = section.string("name", mistakes);
    let named = section.string("kind", mistakes);
    let netns = section.string("netns", mistakes);
    let cpu = section.integer::<u32>("cpu", 0..=MAX_CPU, mistakes);
    for needed in ["name", "kind"] {
        if section.value(needed).is_none() {
            section.missing(needed, mistakes);
        }
    }
    let kind = named.and_then(|at| {
        let found = DeviceKind::ALL.into_iter().find(|k| k.name() == at.value);
        if found.is_none() {
            let hint = near(DeviceKind::ALL.iter().map(|k| k.name()), at.value);
            let hint = hint.map_or(String::new(), |k| format!("; did you mean \"{k}\"?"));
            mistakes.at(&at.span, format!("'kind' is \"inline\", \"crypto\", \"packet\" or \"kernel\"{hint}"));
        }
        found
    });
    let name = name.filter(|at| match wrong_name(at.value, kind) {
        Some(what) => {
            mistakes.at(&at.span, what);
            false
        }
        None => true,
    });
    let netns = place(netns, "a device", &section, served, mistakes);
    if let (Some(at), Some(DeviceKind::Inline | DeviceKind::Kernel)) = (&cpu, kind) {
        mistakes.at(&at.span, "'cpu' is for devices with a thread of their own: \"crypto\" and \"packet\"");
    }
    section.finish(mistakes);
    let (name, kind, netns) = (name?.value.to_owned(), kind?, netns?);
    Some(OffloadDevice { name, kind, netns, cpu: cpu.map(|at| at.value) })
}

/// Checks the name of an interface (`dev_valid_name`); describes the mistake, if any.
fn wrong_name(name: &str, kind: Option<DeviceKind>) -> Option<String> {
    let made = kind != Some(DeviceKind::Kernel);
    match name {
        "" | "." | ".." => Some("'name' is the name of no interface".to_owned()),
        _ if name.len() > MAX_NAME => {
            Some(format!("'name' is longer than {MAX_NAME} bytes, the longest interface name"))
        }
        _ if name.contains(|c: char| c == '/' || c == ':' || c == '\0' || c.is_whitespace()) => {
            Some("'name' has a character that interface names cannot contain".to_owned())
        }
        // The kernel would replace it by a number.
        _ if made && name.contains('%') => {
            Some("'name' has a %, which the kernel would replace by a number".to_owned())
        }
        DEVICE => Some(format!("'{name}' is the daemon's own interface")),
        "lo" if made => Some("'lo' is there already; a device needs an interface of its own".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    fn ipsec(text: &str) -> Result<Option<Ipsec>, String> {
        let config = Config::parse(text, &mut |_| unreachable!("there are no key files"));
        config.map(|c| c.ipsec).map_err(|list| list.iter().map(|m| m.to_string() + "\n").collect())
    }

    fn parse(text: &str) -> Result<Option<Vec<Option<String>>>, String> {
        ipsec(text).map(|i| i.map(|i| i.spaces.netns))
    }

    #[test]
    fn namespaces() {
        let named = |n: &str| Some(n.to_owned());
        assert_eq!(parse(""), Ok(None));
        assert_eq!(parse("[ipsec]"), Ok(Some(vec![None])));
        assert_eq!(parse("[ipsec]\nnetns = \"a\""), Ok(Some(vec![named("a")])));
        assert_eq!(parse("[ipsec]\nnetns = [\"a\", \"\"]"), Ok(Some(vec![named("a"), None])));
        assert_eq!(parse("[ipsec]\nnetns = []"), Ok(Some(Vec::new())));
        assert!(parse("[ipsec]\nnetns = [\"a\", \"a\"]").unwrap_err().contains("twice"));
        assert!(parse("[ipsec]\nnetns = 1").unwrap_err().contains("not a number"));
        assert!(parse("[ipsec]\nnetn = 1").unwrap_err().contains("did you mean 'netns'"));
        assert!(parse("ipsec = 1").unwrap_err().contains("table"));
    }

    #[test]
    fn patterns() {
        let found = |text: &str| ipsec(text).map(|i| i.map(|i| (i.spaces.patterns, i.spaces.max_found)));
        assert_eq!(found("[ipsec]\nnetns = [\"\", \"*\"]\nmax-found = 7"), Ok(Some((vec!["*".to_owned()], 7))));
        // A device, an interface or a gateway is in a place that is known.
        let wrong = ipsec("[ipsec]\nnetns = \"*\"\n[[ipsec.gateway]]\ninterfaces = [\"a\"]").unwrap_err();
        assert!(wrong.contains("'netns' of [ipsec] has none"), "{wrong}");
    }

    #[test]
    fn workers() {
        let workers = |text: &str| ipsec(text).map(|i| i.map(|i| i.workers));
        assert_eq!(workers("[ipsec]"), Ok(Some(1)));
        assert_eq!(workers("[ipsec]\nworkers = 16"), Ok(Some(16)));
        for text in ["workers = 0", "workers = 17", "workers = \"2\""] {
            assert!(workers(&format!("[ipsec]\n{text}")).unwrap_err().contains("'workers' has to be"), "{text}");
        }
    }

    #[test]
    fn the_interface_of_opened_packets() {
        let incoming = |text: &str| ipsec(&format!("[ipsec]\n{text}")).map(|i| i.map(|i| i.incoming));
        assert_eq!(incoming(""), Ok(Some(Incoming::Ours)));
        assert_eq!(incoming("incoming = \"sealane-ipsec\""), Ok(Some(Incoming::Ours)));
        assert_eq!(incoming("incoming = \"device\""), Ok(Some(Incoming::Device)));
        for text in ["incoming = \"eth0\"", "incoming = \"\"", "incoming = true"] {
            assert!(incoming(text).unwrap_err().contains("'incoming' "), "{text}");
        }
    }

    #[test]
    fn packets_that_are_covered_only_as_they_leave() {
        let late = |text: &str| ipsec(&format!("[ipsec]\n{text}")).map(|i| i.map(|i| i.late));
        assert_eq!(["", "late = true", "late = false"].map(late), [false, true, false].map(|late| Ok(Some(late))));
        assert!(late("late = 1").unwrap_err().contains("'late' has to be true or false"));
    }

    #[test]
    fn partial_macs_are_allowed_by_naming_the_risk() {
        let allowed = |text: &str| ipsec(text).map(|i| i.map(|i| i.partial_macs));
        assert_eq!(allowed("[ipsec]"), Ok(Some(false)));
        let risk = format!("[ipsec]\nallow-partial-macs = \"{PARTIAL_MACS_RISK}\"");
        assert_eq!(allowed(&risk), Ok(Some(true)));
        let config = Config::parse(&risk, &mut |_| unreachable!("there are no key files")).unwrap();
        let warning =
            "'allow-partial-macs' is set: parts of packets can be altered unnoticed, of states that ask for it";
        assert_eq!(config.warnings(0), [warning]);
        let wrong = ["true", "\"\"", "\"yes\"", "1", "\"Parts of packets can be altered unnoticed\""];
        for value in wrong.map(str::to_owned).into_iter().chain([format!("\"{PARTIAL_MACS_RISK} \"")]) {
            let said = allowed(&format!("[ipsec]\n\nallow-partial-macs = {value}")).unwrap_err();
            assert!(said.starts_with("3:22: 'allow-partial-macs' has to "), "{said}");
        }
        assert!(allowed("[ipsec]\nallow-partial-mac = 1").unwrap_err().contains("did you mean 'allow-partial-macs'"));
    }

    const FOUR: &str = r#"
        [ipsec]
        netns = ["a", ""]
        [[ipsec.device]]
        name = "sealane0"
        kind = "inline"
        [[ipsec.device]]
        name = "sealane0"
        kind = "crypto"
        netns = ""
        cpu = 3
        [[ipsec.device]]
        name = "sealane1"
        kind = "packet"
        netns = "a"
        cpu = 0
        [[ipsec.device]]
        name = "eth0"
        kind = "kernel"
    "#;

    #[test]
    fn devices() {
        let a = Some("a".to_owned());
        let device = |name: &str, kind, netns: &Option<String>, cpu| OffloadDevice {
            name: name.to_owned(),
            kind,
            netns: netns.clone(),
            cpu,
        };
        let found = ipsec(FOUR).unwrap().unwrap().devices;
        let wanted = [
            device("sealane0", DeviceKind::Inline, &a, None),
            device("sealane0", DeviceKind::Crypto, &None, Some(3)),
            device("sealane1", DeviceKind::Packet, &a, Some(0)),
            device("eth0", DeviceKind::Kernel, &a, None),
        ];
        assert_eq!(found, wanted);
        assert_eq!(ipsec("[ipsec]").unwrap().unwrap().devices, []);
        assert_eq!(
            ipsec("[[ipsec.device]]\nname = \"x\"\nkind = \"inline\"").unwrap().unwrap().devices,
            [device("x", DeviceKind::Inline, &None, None)],
            "[ipsec] is there when it has a device"
        );
    }

    #[test]
    fn gateways() {
        let a = Some("a".to_owned());
        let found = |text: &str| ipsec(text).map(|i| i.unwrap().gateways);
        let gateway = |names: &[&str], netns: &Option<String>| Gateway {
            interfaces: names.iter().map(|n| (*n).to_owned()).collect(),
            netns: netns.clone(),
        };
        let head = "[ipsec]\nnetns = [\"a\", \"\"]\n[[ipsec.gateway]]\n";
        let two =
            format!("{head}interfaces = [\"eth1\", \"eth2\"]\n[[ipsec.gateway]]\ninterfaces = \"eth1\"\nnetns = \"\"");
        assert_eq!(found(&two), Ok(vec![gateway(&["eth1", "eth2"], &a), gateway(&["eth1"], &None)]));
        for (settings, what) in [
            ("", "3:1: 'interfaces' is missing"),
            ("interfaces = []", "'interfaces' has none"),
            ("interfaces = 1", "has to be strings, not a number"),
            ("interfaces = [\"a b\"]", "4:15: this has a character"),
            ("interfaces = [\"x\", \"x\"]", "4:20: this interface is there twice"),
            ("interfaces = \"x\"\nnetns = \"c\"", "does not have this network namespace"),
            ("interfaces = \"x\"\nnetn = \"a\"", "did you mean 'netns'"),
            ("interfaces = \"x\"\n[[ipsec.gateway]]\ninterfaces = \"y\"", "two gateways in one"),
        ] {
            let said = found(&format!("{head}{settings}")).expect_err(settings);
            assert!(said.contains(what), "{settings}: {said}");
        }
    }

    #[test]
    fn rates_of_iptfs() {
        let found = |text: &str| ipsec(text).map(|i| i.unwrap().rates);
        let head = "[ipsec]\nnetns = [\"a\", \"\"]\n[[ipsec.iptfs]]\n";
        let two = format!(
            "{head}remote = \"192.0.2.2\"\nrate = 50\npacket-size = 1400\n[[ipsec.iptfs]]\nreqid = 7\nif_id = 42\nbit-rate = 1000000\npacket-size = 1250\ncongestion-control = true\nnetns = \"\""
        );
        let first = IptfsRate {
            remote: Some("192.0.2.2".parse().unwrap()),
            reqid: None,
            if_id: None,
            interval_ns: 20_000_000,
            packet_len: 1400,
            congestion_control: false,
            netns: Some("a".to_owned()),
        };
        let second = IptfsRate {
            remote: None,
            reqid: Some(7),
            if_id: Some(42),
            interval_ns: 10_000_000,
            packet_len: 1250,
            congestion_control: true,
            netns: None,
        };
        assert_eq!(found(&two), Ok(vec![first, second]));
        for (settings, what) in [
            ("rate = 9", "3:1: 'packet-size' is missing"),
            ("packet-size = 1400", "'rate' (packets a second) or 'bit-rate' is missing"),
            ("packet-size = 1400\nrate = 1\nbit-rate = 1", "exclude each other"),
            ("packet-size = 1400\nrate = 0", "'rate' has to be a whole number from 1 to 1000000"),
            ("packet-size = 20\nrate = 1", "from 128 to 65535"),
            ("packet-size = 1400\nrate = 1\nremote = \"peer\"", "6:10: 'remote' is the address of a peer"),
            ("packet-size = 1400\nrate = 1\nnetns = \"c\"", "does not have this network namespace"),
            ("packet-size = 1400\nrate = 1\ncongestion-control = 1", "'congestion-control' has to be"),
            ("packet-size = 1400\nrate = 1\nreq = 1", "did you mean 'reqid'"),
        ] {
            let said = found(&format!("{head}{settings}")).expect_err(settings);
            assert!(said.contains(what), "{settings}: {said}");
        }
    }

    #[test]
    fn interfaces() {
        let a = Some("a".to_owned());
        let found = |text: &str| ipsec(text).map(|i| i.unwrap().interfaces);
        let one = |name: &str, if_id, netns: &Option<String>| XfrmInterface {
            name: name.to_owned(),
            if_id,
            netns: netns.clone(),
        };
        let head =
            "[ipsec]\nnetns = [\"a\", \"\"]\n[[ipsec.device]]\nname = \"d\"\nkind = \"inline\"\n[[ipsec.interface]]\n";
        let two = format!(
            "{head}name = \"x\"\nif_id = 0x2a\n[[ipsec.interface]]\nname = \"x\"\nif_id = 4294967295\nnetns = \"\""
        );
        assert_eq!(found(&two), Ok(vec![one("x", 42, &a), one("x", u32::MAX, &None)]));
        for (settings, what) in [
            ("", "6:1: 'name' is missing"),
            ("name = \"x\"", "6:1: 'if_id' is missing"),
            ("name = \"x\"\nif_id = 0", "'if_id' has to be a whole number from 1 to 4294967295"),
            ("name = \"x\"\nif_id = \"1\"", "'if_id' has to be a whole number"),
            ("name = \"a b\"\nif_id = 1", "7:8: 'name' has a character"),
            ("name = \"x%d\"\nif_id = 1", "'name' has a %"),
            ("name = \"d\"\nif_id = 1", "there are two interfaces 'd'"),
            ("name = \"x\"\nif_id = 1\nnetns = \"c\"", "does not have this network namespace"),
            ("name = \"x\"\nifid = 1", "did you mean 'if_id'"),
            ("name = \"x\"\nif_id = 1\n[[ipsec.interface]]\nname = \"x\"\nif_id = 2", "there are two interfaces 'x'"),
            ("name = \"x\"\nif_id = 1\n[[ipsec.interface]]\nname = \"y\"\nif_id = 1", "with the 'if_id' 1"),
        ] {
            let said = found(&format!("{head}{settings}")).expect_err(settings);
            assert!(said.contains(what), "{settings}: {said}");
        }
    }

    #[test]
    fn devices_that_cannot_be_meant() {
        let refused = |settings: &str| {
            let text = format!("[ipsec]\nnetns = \"a\"\n[[ipsec.device]]\n{settings}");
            ipsec(&text).expect_err(settings)
        };
        for (settings, what) in [
            ("", "3:1: 'name' is missing"),
            ("name = \"x\"", "3:1: 'kind' is missing"),
            ("kind = \"packet\"", "3:1: 'name' is missing"),
            ("name = \"x\"\nkind = \"packets\"", "5:8: 'kind' is"),
            ("name = \"x\"\nkind = \"packets\"", "did you mean \"packet\"?"),
            ("name = \"x\"\nkind = 1", "'kind' has to be a string, not a number"),
            ("name = \"x\"\nkind = \"inline\"\nnetns = \"b\"", "6:9: 'netns' of [ipsec] does not have this"),
            ("name = \"x\"\nkind = \"inline\"\nnetns = \"\"", "does not have the daemon's own"),
            ("name = \"x\"\nkind = \"crypto\"\ncpu = -1", "'cpu' has to be a whole number from 0 to 8191"),
            ("name = \"x\"\nkind = \"inline\"\ncpu = 1", "'cpu' is for devices with a thread of their own"),
            ("name = \"x\"\nkind = \"inline\"\ncpus = 1", "did you mean 'cpu'?"),
            ("name = \"a-name-too-long!\"\nkind = \"inline\"", "4:8: 'name' is longer than 15 bytes"),
            ("name = \"a/b\"\nkind = \"inline\"", "'name' has a character"),
            ("name = \"a b\"\nkind = \"inline\"", "'name' has a character"),
            ("name = \"a%d\"\nkind = \"inline\"", "'name' has a %"),
            ("name = \"\"\nkind = \"inline\"", "'name' is the name of no interface"),
            ("name = \"sealane-ipsec\"\nkind = \"packet\"", "the daemon's own interface"),
            ("name = \"lo\"\nkind = \"packet\"", "'lo' is there already"),
        ] {
            let said = refused(settings);
            assert!(said.contains(what), "{settings}: {said}");
        }
        let twice = FOUR.replace("sealane1", "sealane0");
        assert!(ipsec(&twice).unwrap_err().contains("two devices 'sealane0'"));
        assert!(ipsec("[ipsec]\ndevice = 1").unwrap_err().contains("[[device]]"));
        let none = "[ipsec]\nnetns = []\n[[ipsec.device]]\nname = \"x\"\nkind = \"inline\"";
        assert!(ipsec(none).unwrap_err().contains("needs a network namespace"));
        assert!(ipsec("[[ipsec.device]]\nname = \"lo\"\nkind = \"kernel\"").is_ok(), "it is there, as it should");
    }
}
