//! Knowledge about a machine, before anything is concluded.

use crate::files::Files;
use crate::finding::{Fact, printable};
use crate::keeper::Keeper;
use crate::modprobe;
use crate::modules::{self, Evidence, MODULES, Module, State};
use crate::programs::{self, Installed, Unit};
use crate::sections::Sections;
use crate::sysctl;
use sealane_abi::admin::{MissingKey, Role};
use sealane_admin::socket;
use sealane_config::{Config, DEVICE, LoadError};
use sealane_drivers::tables::{self, Origin};
use sealane_sys::{process, tcp_socket};
use std::io;
use std::path::Path;

/// The daemon's configuration.
pub(crate) const CONFIG: &str = "/etc/sealane/sealane.toml";
/// The daemon's unit.
pub(crate) const UNIT: &str = "sealane.service";
/// The keeper's.
pub(crate) const KEEPER_UNIT: &str = "sealane-keeper.service";

/// The daemon's configuration, without anything secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Configuration {
    /// There is none.
    Absent,
    /// It could not be read, for this reason.
    Unseen(String),
    /// It has mistakes: so many.
    Wrong(usize),
    /// It is good.
    Good {
        /// Whether it has `[ipsec]`.
        ipsec: bool,
        /// Whether it has gateways past the stack.
        gateways: bool,
        /// Whether it has peers of TCP-AO, or serves programs with it.
        tcp_ao: bool,
    },
}

/// A daemon, as far as this user sees one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Daemon {
    /// None runs.
    Absent,
    /// This user cannot see whether one runs.
    Unseen,
    /// One runs.
    Runs {
        /// Whether it serves IPsec.
        ipsec: bool,
        /// The keys of a keeper that it cannot use.
        lacks: Lacks,
    },
}

/// The keys of a keeper that a daemon cannot use. The later ones are the worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lacks {
    /// None.
    Nothing,
    /// Some by which nothing was derived when it was last needed, less than a minute ago. It asks again when they are needed.
    Derivations,
    /// Some that it has not found. It asks again once a second.
    Keys,
}

impl Lacks {
    /// The daemon's reasons for keys that it has not found begin so.
    pub(crate) const NOT_FOUND: &str = "not found: ";

    fn of(key: &MissingKey) -> Self {
        if key.why.starts_with(Self::NOT_FOUND) { Lacks::Keys } else { Lacks::Derivations }
    }
}

/// Answers of the kernel and of this process's surroundings, beside files. No question loads a module.
#[derive(Debug, Clone)]
pub struct Live {
    /// The path of the executable `sealane`.
    pub exe: String,
    /// Whether the kernel has TCP-AO; `None` if it could not be asked.
    pub tcp_ao: Option<bool>,
    /// Whether seccomp filters are in force for this process.
    pub is_filtered: bool,
    /// The daemon.
    pub daemon: Daemon,
    /// The origin of the table that chooses drivers, or why there is none.
    pub calibration: Result<Origin, String>,
    /// The daemon's configuration.
    pub config: Configuration,
    /// The keeper whose keys it names.
    pub keeper: Option<Keeper>,
}

impl Live {
    /// Asks.
    #[must_use]
    pub fn ask() -> Self {
        let exe = std::env::current_exe().map_or_else(|_| "sealane".to_owned(), |path| path.display().to_string());
        let is_root = process::effective_user() == 0;
        let loaded = Config::load(Path::new(CONFIG));
        Live {
            exe,
            tcp_ao: tcp_socket::kernel_has_tcp_ao().ok(),
            is_filtered: process::has_filter(std::process::id()),
            daemon: daemon(is_root),
            calibration: tables::load().map(|(_, origin)| origin).map_err(|e| e.to_string()),
            keeper: loaded.as_ref().ok().and_then(|config| Keeper::of(config, is_root)),
            config: configuration(loaded, is_root),
        }
    }
}

/// The first daemon that answers.
fn daemon(is_root: bool) -> Daemon {
    let Ok(instances) = socket::instances() else { return Daemon::Unseen };
    // Those of root are not shown to others, and one that does not answer may be a daemon.
    let mut others = if is_root { Daemon::Absent } else { Daemon::Unseen };
    for instance in instances {
        match socket::snapshot(&instance) {
            Ok(Some(snapshot)) if snapshot.role == Role::Daemon => {
                let missing = snapshot.namespaces.iter().flat_map(|namespace| &namespace.missing_keys);
                let lacks = missing.map(Lacks::of).max().unwrap_or(Lacks::Nothing);
                return Daemon::Runs { ipsec: !snapshot.ipsec.is_empty(), lacks };
            }
            Ok(_) => {}
            Err(_) => others = Daemon::Unseen,
        }
    }
    others
}

fn configuration(loaded: Result<Config, LoadError>, is_root: bool) -> Configuration {
    match loaded {
        Ok(config) => Configuration::Good {
            ipsec: config.ipsec.is_some(),
            gateways: config.ipsec.as_ref().is_some_and(|ipsec| !ipsec.gateways.is_empty()),
            tcp_ao: !config.peers().is_empty() || !config.programs.is_empty(),
        },
        Err(LoadError::Read(_, e)) if e.kind() == io::ErrorKind::NotFound => Configuration::Absent,
        Err(LoadError::Read(_, e)) => Configuration::Unseen(e.to_string()),
        // Key files that only root may read are mistakes, too.
        Err(LoadError::Mistakes(..)) if !is_root => {
            Configuration::Unseen("this user may not read its key files".to_owned())
        }
        Err(LoadError::Mistakes(_, list)) => Configuration::Wrong(list.len()),
    }
}

/// The settings of systemd-networkd about what others have made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Networkd {
    /// It removes routing rules that it has not made.
    pub(crate) removes_rules: bool,
    /// It removes routes that it has not made.
    pub(crate) removes_routes: bool,
}

/// All that is known about a machine.
#[derive(Debug)]
pub struct Facts {
    pub(crate) release: String,
    pub(crate) evidence: Evidence,
    /// Whether a sysctl turns AF_ALG off (`crypto.af_alg_restrict`).
    pub(crate) af_alg_is_off: bool,
    pub(crate) has_tun_device: bool,
    pub(crate) has_user_notification: Option<bool>,
    pub(crate) has_af_xdp: Option<bool>,
    pub(crate) has_pku: bool,
    /// memfd_secret, in words.
    pub(crate) secret_memory: &'static str,
    /// The memory that this process may lock, in words.
    pub(crate) memory_lock: String,
    pub(crate) io_uring: &'static str,
    pub(crate) forwards: Option<bool>,
    /// Whether sysctl.d makes each new interface strict.
    pub(crate) is_strict: bool,
    /// Those of systemd-networkd, where it runs.
    pub(crate) networkd: Option<Networkd>,
    pub(crate) programs: Vec<Installed>,
    /// The daemon's unit, if it is installed.
    pub(crate) unit: Option<Unit>,
    pub(crate) has_keeper_unit: bool,
    pub(crate) keeper_unit_runs: bool,
    pub(crate) unit_runs: bool,
    pub(crate) live: Live,
    /// Files that could not be read, with the reasons.
    pub(crate) unread: Vec<String>,
}

impl Facts {
    /// Reads the files below `root`, which is `/` but for tests.
    ///
    /// # Errors
    /// The file system's, where /proc does not even tell the kernel's release.
    pub fn gather(root: &Path, live: Live) -> io::Result<Self> {
        let files = Files::new(root);
        let Some(release) = files.text("/proc/sys/kernel/osrelease") else {
            return Err(io::Error::other("/proc does not tell the kernel's release"));
        };
        let release = release.trim().to_owned();
        let value = |path: &str| files.text(path).map(|text| text.trim().to_owned());
        let evidence = evidence(&files, &release);
        let flags = files.text("/proc/cpuinfo").unwrap_or_default();
        let settings: Vec<_> = files
            .overlay("sysctl.d", ".conf")
            .iter()
            .filter_map(|path| files.text(path))
            .flat_map(|text| sysctl::parse(&text))
            .collect();
        let has_word =
            |path: &str, word: &str| files.text(path).map(|text| text.split_whitespace().any(|other| other == word));
        let protocols = files.text("/proc/net/protocols");
        let services = files.services();
        let is_of = |path: &str, unit: &str| path.rsplit('/').next() == Some(unit);
        Ok(Facts {
            af_alg_is_off: value("/proc/sys/crypto/af_alg_restrict").as_deref() == Some("2"),
            has_tun_device: files.exists("/dev/net/tun"),
            has_user_notification: has_word("/proc/sys/kernel/seccomp/actions_avail", "user_notif"),
            has_af_xdp: protocols.map(|text| text.lines().any(|line| line.split_whitespace().next() == Some("XDP"))),
            has_pku: flags.split_whitespace().any(|flag| flag == "ospke"),
            secret_memory: secret_memory(&release, &evidence, &files.text("/proc/cmdline").unwrap_or_default()),
            memory_lock: memory_lock(files.text("/proc/self/limits").as_deref()),
            io_uring: io_uring(value("/proc/sys/kernel/io_uring_disabled").as_deref(), &evidence),
            forwards: value("/proc/sys/net/ipv4/ip_forward").map(|value| value == "1"),
            is_strict: sysctl::makes_strict(&settings, DEVICE),
            // A machine on which it never ran has no such file.
            networkd: files.exists("/run/systemd/netif/state").then(|| networkd(&files)),
            programs: programs::installed(&files, &services),
            unit: services.iter().find(|path| is_of(path, UNIT)).map(|path| Unit::read(&files, path, UNIT)),
            has_keeper_unit: services.iter().any(|path| is_of(path, KEEPER_UNIT)),
            unit_runs: files.exists(&format!("/sys/fs/cgroup/system.slice/{UNIT}")),
            keeper_unit_runs: files.exists(&format!("/sys/fs/cgroup/system.slice/{KEEPER_UNIT}")),
            release,
            evidence,
            live,
            unread: files.into_unseen(),
        })
    }

    /// The state of one of [`MODULES`]; of another one, that it could not be seen.
    pub(crate) fn state(&self, name: &str) -> State {
        let module: Option<&Module> = MODULES.iter().find(|module| module.name == name);
        module.map_or(State::Unseen, |module| self.evidence.state(module))
    }

    /// The kernel's version: its first two numbers.
    pub(crate) fn version(&self) -> Option<(u32, u32)> {
        version(&self.release)
    }

    /// Whether tables of nftables have an owner, and outlive it (Linux 5.12 and 6.9), by the kernel's version.
    pub(crate) fn table_owner(&self) -> Owner {
        match self.version() {
            None => Owner::Unseen,
            Some(version) if version >= (6, 9) => Owner::Persists,
            Some(version) if version >= (5, 12) => Owner::Ends,
            Some(_) => Owner::Nobody,
        }
    }

    /// Those that the report shows.
    pub(crate) fn list(&self) -> Vec<Fact> {
        let yes = |has: Option<bool>| match has {
            Some(true) => "yes",
            Some(false) => "no",
            None => "could not be seen",
        };
        let owner = match self.table_owner() {
            Owner::Persists => "yes, and they outlive it",
            Owner::Ends => "yes, and they end with it",
            Owner::Nobody => "no",
            Owner::Unseen => "could not be seen",
        };
        let calibration = match &self.live.calibration {
            Ok(Origin::File(path)) => path.display().to_string(),
            Ok(Origin::Shipped(name)) => format!("shipped for CPUs of the family {name}"),
            Ok(Origin::Nothing) => "none: priorities decide".to_owned(),
            Err(e) => e.clone(),
        };
        let modules = MODULES.iter().map(|module| (module.name.to_owned(), self.evidence.state(module).to_string()));
        let others = [
            ("TCP-AO of the kernel", yes(self.live.tcp_ao)),
            ("/dev/net/tun", yes(Some(self.has_tun_device))),
            ("nftables tables with an owner", owner),
            ("seccomp user notification", yes(self.has_user_notification)),
            ("AF_XDP", yes(self.has_af_xdp)),
            ("protection keys for memory (PKU)", yes(Some(self.has_pku))),
            ("memory of one process alone (memfd_secret)", self.secret_memory),
            ("memory that this user's processes may lock", self.memory_lock.as_str()),
            ("io_uring", self.io_uring),
            ("table of drivers", calibration.as_str()),
        ];
        let others = others.map(|(name, state)| (name.to_owned(), state.to_owned()));
        let fact = |(name, state): (String, String)| Fact { name, state: printable(&state) };
        modules.chain(others).map(fact).collect()
    }
}

/// The ownership of tables of nftables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Persists,
    Ends,
    Nobody,
    Unseen,
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Whether the kernel has memfd_secret (Linux 5.14, and on by itself from 6.5 on): by its version, its options and its command line.
fn secret_memory(release: &str, evidence: &Evidence, command_line: &str) -> &'static str {
    let has_option = evidence.options.as_ref().map(|options| options.contains_key("SECRETMEM"));
    let switch = command_line.split_whitespace().filter_map(|word| word.strip_prefix("secretmem.enable=")).next_back();
    match (version(release), has_option, switch) {
        (Some(version), _, _) if version < (5, 14) => "no",
        (_, Some(false), _) => "no",
        (_, _, Some("0" | "n" | "N")) => "turned off by secretmem.enable on the kernel's command line",
        (Some(_), Some(true), Some(_)) => "yes",
        (Some(version), Some(true), None) if version >= (6, 5) => "yes",
        (Some(version), _, None) if version < (6, 5) => "no: it needs secretmem.enable=1 on the kernel's command line",
        _ => "could not be seen",
    }
}

/// The limit of `/proc/self/limits`. Root is above it.
fn memory_lock(limits: Option<&str>) -> String {
    let limit = limits.and_then(|text| text.lines().find_map(|line| line.strip_prefix("Max locked memory")));
    match limit.and_then(|line| line.split_whitespace().next()) {
        Some("unlimited") => "any".to_owned(),
        Some(bytes) => format!("{bytes} bytes for each (RLIMIT_MEMLOCK)"),
        None => "could not be seen".to_owned(),
    }
}

fn evidence(files: &Files<'_>, release: &str) -> Evidence {
    let names =
        |file: &str| files.text(&format!("/lib/modules/{release}/{file}")).map(|text| modules::file_names(&text));
    let options = files.unpacked("/proc/config.gz").or_else(|| files.text(&format!("/boot/config-{release}")));
    let mut blocks = Vec::new();
    for path in files.overlay("modprobe.d", ".conf") {
        let text = files.text(&path).unwrap_or_default();
        blocks.extend(modprobe::parse(&text).into_iter().map(|block| (path.clone(), block)));
    }
    let command_line = files.text("/proc/cmdline").unwrap_or_default();
    let by_command_line = modprobe::command_line(&command_line).into_iter();
    blocks.extend(by_command_line.map(|block| ("the kernel's command line".to_owned(), block)));
    let closed = files.text("/proc/sys/kernel/modules_disabled");
    Evidence {
        loaded: files.text("/proc/modules").map(|text| modules::loaded(&text)).unwrap_or_default(),
        files: names("modules.dep"),
        built_in: names("modules.builtin"),
        options: options.map(|text| modules::options(&text)),
        blocks,
        is_closed: closed.is_some_and(|text| text.trim() == "1"),
    }
}

fn io_uring(disabled: Option<&str>, evidence: &Evidence) -> &'static str {
    let option = evidence.options.as_ref().map(|options| options.contains_key("IO_URING"));
    match (disabled, option) {
        (Some("0"), _) | (None, Some(true)) => "yes",
        (Some("1"), _) => "for privileged programs",
        (Some(_), _) | (None, Some(false)) => "no",
        (None, None) => "could not be seen",
    }
}

fn networkd(files: &Files<'_>) -> Networkd {
    let mut sections = Sections::default();
    let main = ["/etc", "/run", "/usr/local/lib", "/usr/lib"].map(|rank| format!("{rank}/systemd/networkd.conf"));
    let main = main.iter().find_map(|path| files.text(path));
    sections.read(&main.unwrap_or_default());
    for path in files.overlay("systemd/networkd.conf.d", ".conf") {
        sections.read(&files.text(&path).unwrap_or_default());
    }
    // Both are on where nobody turns them off.
    let removes = |key: &str| sections.is_on("Network", key).unwrap_or(true);
    Networkd {
        removes_rules: removes("ManageForeignRoutingPolicyRules"),
        removes_routes: removes("ManageForeignRoutes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_one_process_depends_on_version_option_and_command_line() {
        let of = |release: &str, options: Option<&str>, line: &str| {
            let options = options.map(modules::options);
            secret_memory(release, &Evidence { options, ..Evidence::default() }, line)
        };
        let (with, without) = (Some("CONFIG_SECRETMEM=y\n"), Some("CONFIG_X=y\n"));
        let needs = "no: it needs secretmem.enable=1 on the kernel's command line";
        let off = "turned off by secretmem.enable on the kernel's command line";
        for (release, options, line, state) in [
            ("5.10.0-9", None, "secretmem.enable=1", "no"),
            ("6.1.0-40-amd64", with, "quiet", needs),
            ("6.1.0-40-amd64", None, "quiet", needs),
            ("6.1.0-40-amd64", with, "secretmem.enable=1 quiet", "yes"),
            ("6.1.0-40-amd64", without, "secretmem.enable=1", "no"),
            ("6.12.1", with, "quiet", "yes"),
            ("6.12.1", without, "quiet", "no"),
            ("6.12.1", None, "quiet", "could not be seen"),
            ("6.12.1", with, "secretmem.enable=1 secretmem.enable=n", off),
            ("unknown", with, "", "could not be seen"),
        ] {
            assert_eq!(of(release, options, line), state, "{release} {options:?} {line}");
        }
    }

    #[test]
    fn the_limit_of_locked_memory_is_read() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max locked memory         8388608              unlimited            bytes     \n";
        assert_eq!(memory_lock(Some(text)), "8388608 bytes for each (RLIMIT_MEMLOCK)");
        assert_eq!(memory_lock(Some(&text.replace("8388608  ", "unlimited"))), "any");
        assert_eq!(memory_lock(Some("")), "could not be seen");
        assert_eq!(memory_lock(None), "could not be seen");
    }
}
