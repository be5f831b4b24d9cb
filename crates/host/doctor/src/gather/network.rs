//! Settings of the network that get in the way.

use super::super::facts::Networkd;
use super::below::{files, read};
use sealane_config::DEVICE;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Files in which firewalls keep their rules.
const FIREWALLS: [&str; 6] = [
    "etc/nftables.conf",
    "etc/iptables/rules.v4",
    "etc/iptables/rules.v6",
    "etc/ufw/before.rules",
    "etc/ufw/after.rules",
    "etc/firewalld/direct.xml",
];
/// Words by which rules tell packets that came through the kernel's IPsec.
const IDIOMS: [&str; 5] = ["-m policy", "meta ipsec", "ipsec in ", "ipsec out ", "match \"policy\""];

/// Settings of devices.
pub(super) struct Network {
    pub(super) ip_forward: Option<bool>,
    pub(super) forwarding: Vec<String>,
    pub(super) device_forwards: Option<bool>,
    pub(super) device_rp_filter: Option<u8>,
}

impl Network {
    pub(super) fn read(root: &Path) -> Self {
        let number = |path: &str| read(root, path).trim().parse::<u8>().ok();
        let of = |device: &str, what: &str| number(&format!("proc/sys/net/ipv4/conf/{device}/{what}"));
        let list = fs::read_dir(root.join("proc/sys/net/ipv4/conf")).into_iter().flatten().flatten();
        let mut forwarding: Vec<String> = list
            .filter_map(|e| e.file_name().into_string().ok())
            .filter(|name| !matches!(&**name, "all" | "default" | "lo" | DEVICE) && of(name, "forwarding") == Some(1))
            .collect();
        forwarding.sort();
        Network {
            ip_forward: number("proc/sys/net/ipv4/ip_forward").map(|n| n != 0),
            forwarding,
            device_forwards: of(DEVICE, "forwarding").map(|n| n != 0),
            device_rp_filter: of(DEVICE, "rp_filter").map(|n| n.max(of("all", "rp_filter").unwrap_or(0))),
        }
    }
}

/// The settings of systemd-networkd that concern routes of others.
pub(super) fn networkd(root: &Path, running: bool) -> Networkd {
    let folders = [
        "etc/systemd/networkd.conf.d",
        "run/systemd/networkd.conf.d",
        "usr/local/lib/systemd/networkd.conf.d",
        "usr/lib/systemd/networkd.conf.d",
    ];
    let main = ["etc/systemd/networkd.conf", "usr/lib/systemd/networkd.conf"].map(|path| read(root, path));
    let texts = main
        .into_iter()
        .find(|text| !text.is_empty())
        .into_iter()
        .chain(files(root, &folders).into_iter().map(|(_, text)| text));
    let mut networkd = Networkd { running, manages_routes: true, manages_rules: true };
    for line in texts.collect::<Vec<_>>().join("\n").lines().map(str::trim) {
        let Some((key, value)) = line.split_once('=') else { continue };
        let is_yes = !matches!(value.trim().to_ascii_lowercase().as_str(), "no" | "false" | "off" | "0" | "n" | "f");
        match key.trim() {
            "ManageForeignRoutes" => networkd.manages_routes = is_yes,
            "ManageForeignRoutingPolicyRules" => networkd.manages_rules = is_yes,
            _ => {}
        }
    }
    networkd
}

/// Rules that tell packets of IPsec by the kernel's marks: in files, and those that are in force.
pub(super) fn firewall(root: &Path) -> Vec<(String, String)> {
    let mut texts: Vec<(String, String)> =
        FIREWALLS.iter().map(|path| (format!("/{path}"), read(root, path))).collect();
    if root == Path::new("/") {
        for (program, arguments) in
            [("nft", &["-s", "list", "ruleset"][..]), ("iptables-legacy-save", &[]), ("ip6tables-legacy-save", &[])]
        {
            let output = Command::new(program).args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).output();
            let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
            texts.push((program.to_owned(), text));
        }
    }
    texts.iter().flat_map(|(place, text)| idioms(text).into_iter().map(|line| (place.clone(), line))).collect()
}

fn idioms(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    lines.filter(|line| IDIOMS.iter().any(|idiom| line.contains(idiom))).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::unit::tests::Tree;
    use super::*;

    #[test]
    fn settings_are_read_in_their_order() {
        let tree = Tree::new(
            "network",
            &[
                (
                    "etc/systemd/networkd.conf",
                    "[Network]\n#ManageForeignRoutes=no\nManageForeignRoutingPolicyRules=no\n",
                ),
                ("usr/lib/systemd/networkd.conf.d/10-a.conf", "[Network]\nManageForeignRoutes=no\n"),
                ("etc/systemd/networkd.conf.d/20-b.conf", "[Network]\nManageForeignRoutingPolicyRules=yes\n"),
                ("proc/sys/net/ipv4/ip_forward", "0\n"),
                ("proc/sys/net/ipv4/conf/all/rp_filter", "1\n"),
                ("proc/sys/net/ipv4/conf/all/forwarding", "0\n"),
                ("proc/sys/net/ipv4/conf/eth0/forwarding", "1\n"),
                ("proc/sys/net/ipv4/conf/sealane-ipsec/forwarding", "0\n"),
                ("proc/sys/net/ipv4/conf/sealane-ipsec/rp_filter", "0\n"),
                (
                    "etc/iptables/rules.v4",
                    "# -m policy\n-A FORWARD -m policy --dir in --pol ipsec -j ACCEPT\n-A FORWARD -j DROP\n",
                ),
            ],
        );
        assert_eq!(networkd(&tree.0, true), Networkd { running: true, manages_routes: false, manages_rules: true });
        let network = Network::read(&tree.0);
        assert_eq!(
            (network.ip_forward, network.device_forwards, network.device_rp_filter),
            (Some(false), Some(false), Some(1))
        );
        assert_eq!(network.forwarding, ["eth0"]);
        let rule = "-A FORWARD -m policy --dir in --pol ipsec -j ACCEPT".to_owned();
        assert_eq!(firewall(&tree.0), [("/etc/iptables/rules.v4".to_owned(), rule)]);
    }
}
