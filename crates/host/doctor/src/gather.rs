//! Gathers the facts. The root folder is an argument, so that tests can make one.

mod below;
mod network;
mod processes;

use super::adopt;
use super::facts::{Configuration, Facts, Kernel, Module, Outcome, Program, Service, UnitFact};
use super::modules::Texts;
use super::programs::{KNOWN, Need};
use super::unit::Unit;
use below::{files, read};
use sealane_config::Config;
use sealane_drivers::tables::{self, Origin};
use sealane_sys::probe;
use std::fs;
use std::io;
use std::path::Path;

/// Modules that Sealane stands for, or that it needs.
const MODULES: [&str; 10] =
    ["esp4", "esp6", "ah4", "ah6", "xfrm_user", "algif_hash", "algif_skcipher", "algif_aead", "algif_rng", "tun"];

/// Folders of files whose names decide which one counts, the first one first.
const MODPROBE: [&str; 5] =
    ["etc/modprobe.d", "run/modprobe.d", "usr/local/lib/modprobe.d", "usr/lib/modprobe.d", "lib/modprobe.d"];

/// Capabilities that Sealane uses: number and name.
const CAPABILITIES: [(u32, &str); 5] =
    [(12, "CAP_NET_ADMIN"), (13, "CAP_NET_RAW"), (14, "CAP_IPC_LOCK"), (21, "CAP_SYS_ADMIN"), (39, "CAP_BPF")];

/// Examines this machine: its files are below `root`, which is `/`, and `config` is the configuration of the daemon.
///
/// # Errors
/// The file system's: there is no /proc.
pub fn examine(root: &Path, config: &Path) -> io::Result<Facts> {
    let status = fs::read_to_string(root.join("proc/self/status"))?;
    let processes = processes::Table::read(root);
    let tables = probe::tables();
    let fact = |result: io::Result<()>| result.map_or_else(|e| Outcome::Fails(e.to_string()), |()| Outcome::Works);
    let release = read(root, "proc/sys/kernel/osrelease").trim().to_owned();
    let texts = texts(root, &release);
    let network = network::Network::read(root);
    let units = units(root);
    Ok(Facts {
        kernel: Kernel { version: version(&release), tcp_ao: probe::tcp_ao().ok(), release },
        modules: MODULES.map(|name| Module { name: name.to_owned(), state: texts.state(name) }).into(),
        tun: fact(probe::tun()),
        tables: tables.iter().flatten().filter(|name| name.starts_with("sealane")).cloned().collect(),
        nftables: fact(tables.map(drop)),
        af_xdp: fact(probe::af_xdp()),
        seccomp_notification: read(root, "proc/sys/kernel/seccomp/actions_avail").contains("user_notif"),
        pku: read(root, "proc/cpuinfo").split_whitespace().any(|flag| flag == "ospke"),
        calibration: match tables::load() {
            Ok((_, Origin::File(path))) => Some(path.display().to_string()),
            Ok((_, Origin::Shipped(name))) => Some(format!("shipped: {name}")),
            Ok((_, Origin::Nothing)) | Err(_) => None,
        },
        user: field(&status, "Uid:").and_then(|uids| uids.split_whitespace().nth(1)?.parse().ok()).unwrap_or(u32::MAX),
        capabilities: capabilities(&status),
        service: Service {
            installed: Unit::load(root, "sealane.service", true).is_some(),
            enabled: is_enabled(root, "sealane.service"),
            running: processes.has_daemon(),
        },
        configuration: configuration(config),
        programs: programs(root),
        processes: processes.known(),
        networkd: network::networkd(root, processes.has("systemd-network")),
        units,
        ip_forward: network.ip_forward,
        forwarding: network.forwarding,
        device_forwards: network.device_forwards,
        device_rp_filter: network.device_rp_filter,
        firewall_ipsec: network::firewall(root),
    })
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn capabilities(status: &str) -> Vec<String> {
    let effective = field(status, "CapEff:").and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0);
    CAPABILITIES.iter().filter(|(bit, _)| effective & (1 << bit) != 0).map(|(_, name)| (*name).to_owned()).collect()
}

fn texts(root: &Path, release: &str) -> Texts {
    let folder = ["lib/modules", "usr/lib/modules"].into_iter().find(|folder| root.join(folder).join(release).is_dir());
    let of_kernel = |file: &str| fs::read_to_string(root.join(folder?).join(release).join(file)).ok();
    Texts {
        loaded: read(root, "proc/modules"),
        built_in: of_kernel("modules.builtin").unwrap_or_default(),
        on_disk: of_kernel("modules.dep"),
        configuration: files(root, &MODPROBE),
        command_line: read(root, "proc/cmdline"),
    }
}

fn configuration(path: &Path) -> Configuration {
    let empty = Configuration { path: path.to_owned(), ..Configuration::default() };
    match Config::load(path) {
        Err(e) => Configuration { mistake: Some(e.to_string()), ..empty },
        Ok(config) => Configuration {
            ipsec: config.ipsec.as_ref().is_some_and(|ipsec| ipsec.netns.contains(&None)),
            tcp_ao: config.programs.contains(&None),
            peers: config.peers().len(),
            gateways: config.ipsec.as_ref().map_or(0, |ipsec| ipsec.gateways.len()),
            ..empty
        },
    }
}

fn programs(root: &Path) -> Vec<Program> {
    let found = |known: &super::programs::Known| {
        let path = known.paths.iter().find(|path| root.join(path).exists())?;
        Some(Program { name: known.name.to_owned(), path: Path::new("/").join(path), need: known.need })
    };
    KNOWN.iter().filter_map(found).collect()
}

/// Whether something wants a unit, or it is the alias of a wanted one.
fn is_enabled(root: &Path, name: &str) -> bool {
    let folders = fs::read_dir(root.join("etc/systemd/system")).into_iter().flatten().flatten();
    let wants = |folder: fs::DirEntry| {
        let of_others = folder.file_name().to_string_lossy().ends_with(".wants");
        of_others && fs::symlink_metadata(folder.path().join(name)).is_ok()
    };
    folders.into_iter().any(wants)
}

fn units(root: &Path) -> Vec<UnitFact> {
    let mut wanted: Vec<(String, Need)> = Vec::new();
    for known in KNOWN.iter().filter(|known| known.paths.iter().any(|path| root.join(path).exists())) {
        wanted.extend(known.units.iter().map(|unit| ((*unit).to_owned(), known.need)));
    }
    let mut others = adopt::adopted(root);
    others.retain(|name| !wanted.iter().any(|(known, _)| known == name));
    wanted.extend(others.into_iter().map(|name| (name, Need::Ipsec)));
    let fact = |(name, need): (String, Need)| {
        let unit = Unit::load(root, &name, true)?;
        let (stale, enabled) = (adopt::is_stale(root, &name), is_enabled(root, &name));
        Some(UnitFact { wrapped: unit.is_wrapped(), stale, enabled, name, need })
    };
    wanted.into_iter().filter_map(fact).collect()
}

#[cfg(test)]
mod tests {
    use super::super::facts::ModuleState;
    use super::super::unit::tests::Tree;
    use super::*;

    /// A Debian machine with strongSwan, and esp4 blocked.
    #[test]
    fn a_machine_is_read_from_its_files() {
        let tree = Tree::new(
            "machine",
            &[
                ("proc/self/status", "Name:\tx\nUid:\t0\t0\t0\t0\nCapEff:\t0000008000003000\n"),
                ("proc/sys/kernel/osrelease", "6.1.0-37-amd64\n"),
                ("proc/sys/kernel/seccomp/actions_avail", "kill_process user_notif allow\n"),
                ("proc/cpuinfo", "flags\t\t: fpu pku ospke\n"),
                ("lib/modules/6.1.0-37-amd64/modules.dep", "kernel/net/ipv4/esp4.ko:\n"),
                ("etc/modprobe.d/no-esp.conf", "install esp4 /bin/false\n"),
                ("usr/sbin/charon-systemd", ""),
                (
                    "usr/lib/systemd/system/strongswan.service",
                    "[Service]\nType=notify\nExecStart=/usr/sbin/charon-systemd\n",
                ),
                ("etc/systemd/system/multi-user.target.wants/strongswan.service", ""),
                ("etc/sealane.toml", "[ipsec]\n"),
            ],
        );
        let facts = examine(&tree.0, &tree.0.join("etc/sealane.toml")).unwrap();
        assert_eq!((facts.kernel.version, facts.user), ((6, 1), 0));
        assert_eq!(facts.capabilities, ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF"]);
        let esp4 = facts.modules.iter().find(|m| m.name == "esp4").unwrap();
        assert_eq!(esp4.state, ModuleState::Blocked("/etc/modprobe.d/no-esp.conf".into()));
        assert!(facts.seccomp_notification && facts.pku && facts.configuration.ipsec && !facts.configuration.tcp_ao);
        assert_eq!(facts.programs.iter().map(|p| &*p.name).collect::<Vec<_>>(), ["strongSwan"]);
        let unit = UnitFact {
            name: "strongswan.service".into(),
            need: Need::Ipsec,
            wrapped: false,
            stale: false,
            enabled: true,
        };
        assert_eq!(facts.units, [unit]);
        assert_eq!(facts.service, Service::default());
    }

    #[test]
    fn a_machine_without_proc_cannot_be_asked() {
        assert!(examine(Path::new("/nowhere"), Path::new("/nowhere")).is_err());
    }
}
