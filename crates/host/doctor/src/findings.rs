//! The meaning of the facts: what is in the way, and the commands that help. Nothing here asks the machine anything.

use super::facts::{Facts, ModuleState, Outcome, UnitFact};
use super::programs::Need;
use serde::Serialize;

/// The weight of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Good to know.
    Note,
    /// Something that is installed or configured does not work.
    Problem,
}

/// Something to know or to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A name for scripts, which stays.
    pub id: &'static str,
    /// Its weight.
    pub level: Level,
    /// The state of things, and its consequence.
    pub text: String,
    /// Commands of root that help.
    pub help: Vec<String>,
}

/// Everything that is in the way on a machine, problems first.
#[must_use]
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut judge = Judge { facts, found: Vec::new() };
    judge.rights();
    judge.kernel();
    judge.service();
    judge.programs();
    judge.network();
    judge.found.sort_by_key(|finding| finding.level != Level::Problem);
    judge.found
}

struct Judge<'a> {
    facts: &'a Facts,
    found: Vec<Finding>,
}

impl Judge<'_> {
    fn add(&mut self, level: Level, id: &'static str, text: impl Into<String>, help: &[&str]) {
        let help = help.iter().map(|&line| line.to_owned()).collect();
        self.found.push(Finding { id, level, text: text.into(), help });
    }

    fn problem(&mut self, id: &'static str, text: impl Into<String>, help: &[&str]) {
        self.add(Level::Problem, id, text, help);
    }

    fn note(&mut self, id: &'static str, text: impl Into<String>, help: &[&str]) {
        self.add(Level::Note, id, text, help);
    }

    /// The modules of these whose code the kernel neither has nor loads, with the reason.
    fn closed(&self, names: &[&str]) -> Vec<String> {
        let here = self.facts.modules.iter().filter(|module| names.contains(&&*module.name));
        let told = here.filter_map(|module| match &module.state {
            ModuleState::Blocked(by) => Some(format!("{} is blocked by {by}", module.name)),
            ModuleState::Missing => Some(format!("the kernel has no {}", module.name)),
            ModuleState::BuiltIn | ModuleState::Loaded | ModuleState::Loadable | ModuleState::Unknown => None,
        });
        told.collect()
    }

    fn is_loaded(&self, name: &str) -> bool {
        self.facts.modules.iter().any(|module| module.name == name && module.state == ModuleState::Loaded)
    }

    fn has_program(&self, need: Need) -> bool {
        self.facts.programs.iter().any(|program| program.need == need)
    }

    /// Whether Sealane's own IPsec is wanted: a key manager is here that the kernel cannot serve, or somebody has configured it.
    fn wants_ipsec(&self) -> bool {
        let adopted = self.facts.units.iter().any(|unit| unit.need == Need::Ipsec && unit.wrapped);
        adopted
            || self.facts.service.running && self.facts.configuration.ipsec
            || self.has_program(Need::Ipsec) && !self.closed(&["esp4", "esp6"]).is_empty()
    }

    fn wants_daemon(&self) -> bool {
        self.wants_ipsec() || self.facts.configuration.peers > 0 || self.facts.configuration.tcp_ao
    }

    fn rights(&mut self) {
        if self.facts.user != 0 {
            self.note(
                "not-root",
                "asked by a user other than root: the configuration, firewalls and processes of others are not seen",
                &[],
            );
            return;
        }
        let missing = |name: &&str| !self.facts.capabilities.iter().any(|held| held == name);
        let missing: Vec<&str> = ["CAP_NET_ADMIN", "CAP_NET_RAW"].into_iter().filter(missing).collect();
        if !missing.is_empty() && self.wants_daemon() {
            self.problem(
                "rights",
                format!("this root lacks {}: the daemon cannot work here", missing.join(" and ")),
                &[],
            );
        }
    }

    fn kernel(&mut self) {
        if !self.facts.seccomp_notification {
            let text =
                "the kernel's seccomp has no user notification: `sealane run` serves AF_ALG of dynamic programs only";
            self.problem("seccomp", text, &[]);
        }
        let is_root = self.facts.user == 0;
        if let (Outcome::Fails(why), true, true) = (&self.facts.tun, is_root, self.wants_ipsec()) {
            let text = format!("/dev/net/tun cannot be opened ({why}): IPsec needs it");
            self.problem("tun", text, &["modprobe tun"]);
        }
        if let (Outcome::Fails(why), true, true) = (&self.facts.nftables, is_root, self.wants_daemon()) {
            let text = format!("nftables does not answer ({why}): the daemon needs it");
            self.problem("nftables", text, &["modprobe nf_tables"]);
        }
        if self.wants_ipsec() {
            for name in ["esp4", "esp6"].into_iter().filter(|name| self.is_loaded(name)).collect::<Vec<_>>() {
                let text = format!(
                    "{name} is loaded: the kernel's own ESP stays open, also where modprobe.d blocks the module, until it is unloaded"
                );
                self.note("esp-loaded", text, &[&format!("modprobe -r {name}")]);
            }
        }
        if self.facts.calibration.is_none() {
            self.note(
                "calibration",
                "no table for this CPU: drivers are chosen by priority, not by measurement",
                &["sealane crypto calibrate"],
            );
        }
    }

    fn service(&mut self) {
        let (service, configuration) = (&self.facts.service, &self.facts.configuration);
        let path = configuration.path.display().to_string();
        if let (Some(mistake), 0, true) =
            (&configuration.mistake, self.facts.user, self.wants_daemon() || service.enabled || service.running)
        {
            let text = format!("the configuration cannot be used: {mistake}");
            self.problem("configuration", text, &[&format!("sealane check {path}")]);
        } else if self.wants_ipsec() && !configuration.ipsec && self.facts.user == 0 {
            let text = format!("{path} does not serve IPsec in this network namespace");
            self.problem(
                "no-ipsec",
                text,
                &[&format!("echo '[ipsec]' >> {path}"), "systemctl reload-or-restart sealane"],
            );
        }
        if self.wants_daemon() && !service.running {
            let start: &[&str] =
                if service.installed { &["systemctl enable --now sealane"] } else { &["sealane daemon &"] };
            self.problem(
                "daemon",
                "no daemon runs: what it is to serve is refused, and what it protected is dropped",
                start,
            );
        } else if self.wants_daemon() && service.installed && !service.enabled {
            self.note("not-enabled", "the daemon runs, and will not after a boot", &["systemctl enable sealane"]);
        } else if !self.wants_daemon() && !service.running && !self.facts.tables.is_empty() {
            let text = format!(
                "no daemon runs, and rules of one are left ({}): what they cover is dropped",
                self.facts.tables.join(", ")
            );
            self.problem("left", text, &["sealane clear"]);
        }
    }

    fn programs(&mut self) {
        let closed = self.closed(&["esp4", "esp6"]);
        for unit in &self.facts.units {
            let UnitFact { name, need, wrapped, stale, enabled } = unit;
            let adopt = [format!("sealane adopt {name}"), format!("systemctl restart {name}")];
            let adopt = adopt.each_ref().map(|line| &**line);
            match (need, wrapped) {
                (_, _) if *stale => {
                    self.problem("adopted-stale", format!("{name} has changed since it was put under Sealane"), &adopt);
                }
                (Need::Ipsec, false) if *enabled && !closed.is_empty() => {
                    let text = format!(
                        "{name} is not under `sealane run`, and the kernel cannot serve it: {}",
                        closed.join(", ")
                    );
                    self.problem("not-adopted", text, &adopt);
                }
                (Need::Ipsec, false) if *enabled => {
                    self.note("by-kernel", format!("{name} is left to the kernel's own IPsec"), &adopt);
                }
                (Need::TcpAo, false) if *enabled && self.facts.kernel.tcp_ao == Some(false) => {
                    let text = format!(
                        "{name} is not under `sealane run --tcp-ao`, and the kernel has no TCP-AO: keys of it are refused"
                    );
                    self.note("no-tcp-ao", text, &adopt);
                }
                (Need::Peers, _)
                    if *enabled && self.facts.configuration.peers == 0 && self.facts.kernel.tcp_ao == Some(false) =>
                {
                    let text = format!(
                        "the program of {name} does not know TCP-AO: its sessions can have keys by [[peer]] of the configuration"
                    );
                    self.note("peers", text, &[]);
                }
                _ => {}
            }
        }
        let restart = |need: Need| self.facts.units.iter().find(|unit| unit.need == need && unit.wrapped);
        let unserved = self.facts.processes.iter().filter(|process| !process.served && process.need == Need::Ipsec);
        let told: Vec<(String, String)> = unserved
            .filter_map(|process| {
                let unit = restart(process.need)?;
                let text = format!("{} ({}) runs since before it was put under Sealane", process.name, process.pid);
                Some((text, format!("systemctl restart {}", unit.name)))
            })
            .collect();
        for (text, command) in told {
            self.problem("runs-without", text, &[&command]);
        }
        let closed = self.closed(&["algif_hash", "algif_skcipher", "algif_aead"]);
        let users: Vec<&str> = self.facts.programs.iter().filter(|p| p.need == Need::AfAlg).map(|p| &*p.name).collect();
        if !closed.is_empty() && !users.is_empty() {
            let text = format!(
                "{}: what uses AF_ALG ({} can) needs `sealane run --` in front",
                closed.join(", "),
                users.join(", ")
            );
            self.note("af-alg", text, &[]);
        }
    }

    fn network(&mut self) {
        let facts = self.facts;
        if !self.wants_ipsec() {
            return;
        }
        if facts.networkd.running && (facts.networkd.manages_rules || facts.networkd.manages_routes) {
            let text = "systemd-networkd removes routes and routing rules of others when it starts: the daemon puts its own back, and what \
                        policies cover is dropped meanwhile";
            let lines = r"printf '[Network]\nManageForeignRoutes=no\nManageForeignRoutingPolicyRules=no\n' > /etc/systemd/networkd.conf.d/sealane.conf";
            self.note("networkd", text, &["mkdir -p /etc/systemd/networkd.conf.d", lines]);
        }
        if facts.device_forwards == Some(false) && !facts.forwarding.is_empty() {
            let text = format!(
                "{} forward, and sealane-ipsec does not: packets from tunnels to the networks behind are dropped",
                facts.forwarding.join(", ")
            );
            self.problem("forwarding", text, &["sysctl -w net.ipv4.conf.sealane-ipsec.forwarding=1"]);
        }
        if facts.device_rp_filter == Some(1) {
            let text = "rp_filter of sealane-ipsec is strict: packets from tunnels are dropped unless a route leads back by this device";
            self.problem("rp-filter", text, &["sysctl -w net.ipv4.conf.sealane-ipsec.rp_filter=2"]);
        }
        for (place, line) in &facts.firewall_ipsec {
            let text = format!(
                "a rule of {place} tells packets by the kernel's own IPsec: {line}. Packets from Sealane's tunnels come in by the interface \
                 sealane-ipsec, and have no such mark"
            );
            self.note("firewall", text, &["sealane check --firewall"]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::{Module, Networkd, Process, Program, Service};
    use super::*;

    fn module(name: &str, state: ModuleState) -> Module {
        Module { name: name.into(), state }
    }

    /// A machine with strongSwan and esp4 blocked, where the package was installed and nothing else was done.
    fn fresh() -> Facts {
        let mut facts = Facts { seccomp_notification: true, calibration: Some("x".into()), ..Facts::default() };
        facts.capabilities = ["CAP_NET_ADMIN", "CAP_NET_RAW"].map(str::to_owned).into();
        facts.modules = vec![
            module("esp4", ModuleState::Blocked("/etc/modprobe.d/a.conf".into())),
            module("esp6", ModuleState::Loadable),
        ];
        facts.service = Service { installed: true, enabled: false, running: false };
        facts.configuration.ipsec = true;
        facts.configuration.path = "/etc/sealane/sealane.toml".into();
        facts.programs = vec![Program { name: "strongSwan".into(), path: "/c".into(), need: Need::Ipsec }];
        facts.units = vec![unit("strongswan.service", false)];
        facts
    }

    fn unit(name: &str, wrapped: bool) -> UnitFact {
        UnitFact { name: name.into(), need: Need::Ipsec, wrapped, stale: false, enabled: true }
    }

    /// The ids of the findings; those of problems with an exclamation mark.
    fn ids(facts: &Facts) -> Vec<String> {
        let mark = |f: &Finding| format!("{}{}", f.id, if f.level == Level::Problem { "!" } else { "" });
        findings(facts).iter().map(mark).collect()
    }

    #[test]
    fn from_a_fresh_package_to_a_machine_in_order() {
        let mut facts = fresh();
        assert_eq!(ids(&facts), ["daemon!", "not-adopted!"]);
        assert_eq!(findings(&facts)[0].help, ["systemctl enable --now sealane"]);
        assert!(findings(&facts)[1].text.ends_with("esp4 is blocked by /etc/modprobe.d/a.conf"));
        assert_eq!(
            findings(&facts)[1].help,
            ["sealane adopt strongswan.service", "systemctl restart strongswan.service"]
        );
        facts.service.running = true;
        assert_eq!(ids(&facts), ["not-adopted!", "not-enabled"]);
        facts.service.enabled = true;
        facts.units = vec![unit("strongswan.service", true)];
        facts.processes = vec![Process { pid: 1, name: "charon-systemd".into(), need: Need::Ipsec, served: false }];
        assert_eq!(ids(&facts), ["runs-without!"]);
        facts.processes[0].served = true;
        assert_eq!(ids(&facts), [""; 0]);
        facts.units[0].stale = true;
        assert_eq!(ids(&facts), ["adopted-stale!"]);
    }

    #[test]
    fn where_the_kernel_serves_nothing_is_a_problem() {
        let mut facts = fresh();
        facts.modules = ["esp4", "esp6"].map(|name| module(name, ModuleState::Loaded)).into();
        assert_eq!(ids(&facts), ["by-kernel"]);
        facts.units.clear();
        facts.tables = vec!["sealane-ipsec".into()];
        assert_eq!(ids(&facts), ["left!"]);
    }

    #[test]
    fn what_the_daemon_needs() {
        let mut facts = fresh();
        facts.units.clear();
        facts.service = Service { installed: true, enabled: true, running: true };
        facts.tun = Outcome::Fails("No such file or directory".into());
        facts.nftables = Outcome::Fails("Protocol not supported".into());
        facts.seccomp_notification = false;
        facts.capabilities.pop();
        assert_eq!(ids(&facts), ["rights!", "seccomp!", "tun!", "nftables!"]);
        facts.user = 1000;
        assert_eq!(ids(&facts), ["seccomp!", "not-root"]);
        let mut facts = fresh();
        facts.units.clear();
        facts.service = Service { installed: true, enabled: true, running: true };
        facts.configuration.mistake = Some("line 3".into());
        assert_eq!(ids(&facts), ["configuration!"]);
        facts.configuration.mistake = None;
        facts.configuration.ipsec = false;
        assert_eq!(ids(&facts), ["no-ipsec!"]);
    }

    #[test]
    fn what_the_network_has_in_the_way() {
        let mut facts = fresh();
        facts.units = vec![unit("strongswan.service", true)];
        facts.service = Service { installed: true, enabled: true, running: true };
        facts.networkd = Networkd { running: true, manages_routes: true, manages_rules: false };
        facts.forwarding = vec!["eth0".into()];
        facts.device_forwards = Some(false);
        facts.device_rp_filter = Some(1);
        facts.firewall_ipsec = vec![("nft".into(), "meta ipsec exists accept".into())];
        assert_eq!(ids(&facts), ["forwarding!", "rp-filter!", "networkd", "firewall"]);
        facts.device_forwards = Some(true);
        facts.device_rp_filter = Some(2);
        facts.networkd.manages_routes = false;
        facts.firewall_ipsec.clear();
        assert_eq!(ids(&facts), [""; 0]);
    }

    #[test]
    fn other_services() {
        let mut facts = Facts { seccomp_notification: true, ..Facts::default() };
        assert_eq!(ids(&facts), ["calibration"]);
        facts.calibration = Some("x".into());
        facts.kernel.tcp_ao = Some(false);
        facts.modules = vec![module("algif_hash", ModuleState::Missing)];
        facts.programs = vec![Program { name: "libkcapi".into(), path: "/k".into(), need: Need::AfAlg }];
        facts.units = vec![
            UnitFact { need: Need::TcpAo, ..unit("bird.service", false) },
            UnitFact { need: Need::Peers, ..unit("frr.service", false) },
        ];
        assert_eq!(ids(&facts), ["no-tcp-ao", "peers", "af-alg"]);
        facts.configuration.peers = 1;
        assert_eq!(ids(&facts), ["rights!", "daemon!", "no-tcp-ao", "af-alg"]);
    }
}
