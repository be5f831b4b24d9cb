//! The facts about a machine.

use super::programs::Need;
use serde::Serialize;
use std::path::PathBuf;

/// Everything that was found out. It says nothing about what is good or bad.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Facts {
    /// The running kernel.
    pub kernel: Kernel,
    /// The kernel's modules that Sealane stands for.
    pub modules: Vec<Module>,
    /// Whether `/dev/net/tun` can be opened.
    pub tun: Outcome,
    /// Whether nftables answers.
    pub nftables: Outcome,
    /// Tables of Sealane's in this network namespace.
    pub tables: Vec<String>,
    /// Whether AF_XDP sockets can be made.
    pub af_xdp: Outcome,
    /// Whether the kernel's seccomp has user notification.
    pub seccomp_notification: bool,
    /// Whether the CPU and the kernel have protection keys for memory.
    pub pku: bool,
    /// The table by which drivers are chosen; `None` if priorities decide.
    pub calibration: Option<String>,
    /// The effective user.
    pub user: u32,
    /// The effective capabilities that Sealane can use, by name.
    pub capabilities: Vec<String>,
    /// Sealane's own service.
    pub service: Service,
    /// Its configuration.
    pub configuration: Configuration,
    /// Programs that were found.
    pub programs: Vec<Program>,
    /// Units of these programs.
    pub units: Vec<UnitFact>,
    /// Processes of these programs.
    pub processes: Vec<Process>,
    /// systemd-networkd.
    pub networkd: Networkd,
    /// `net.ipv4.ip_forward`.
    pub ip_forward: Option<bool>,
    /// Devices that forward, with `net.ipv4.conf.DEVICE.forwarding`.
    pub forwarding: Vec<String>,
    /// Whether the device by which opened packets come in forwards; `None` if there is none.
    pub device_forwards: Option<bool>,
    /// `rp_filter` of that device together with that of all.
    pub device_rp_filter: Option<u8>,
    /// Lines of firewalls that tell IPsec's packets by the kernel's marks of them: where, and the line.
    pub firewall_ipsec: Vec<(String, String)>,
}

/// Whether something works here.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It does.
    #[default]
    Works,
    /// It does not, and why.
    Fails(String),
}

/// The running kernel.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Kernel {
    /// `uname -r`.
    pub release: String,
    /// The first two numbers of the release.
    pub version: (u32, u32),
    /// Whether it has TCP-AO itself; `None` if it did not say.
    pub tcp_ao: Option<bool>,
}

/// A module of the kernel.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Module {
    /// Its name, such as `esp4`.
    pub name: String,
    /// Its state.
    pub state: ModuleState,
}

/// The state of a module.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModuleState {
    /// Part of the kernel.
    BuiltIn,
    /// In memory, whatever modprobe.d says.
    Loaded,
    /// On disk, and loaded when something asks for it.
    Loadable,
    /// On disk, but a configuration keeps it from being loaded: the file.
    Blocked(String),
    /// Not part of this kernel's build.
    Missing,
    /// This machine does not have the list of the kernel's modules, as in containers.
    Unknown,
}

/// Sealane's own service.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Service {
    /// Whether the unit is installed.
    pub installed: bool,
    /// Whether it starts with the machine.
    pub enabled: bool,
    /// Whether a daemon runs.
    pub running: bool,
}

/// The configuration of `sealane daemon`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Configuration {
    /// The file.
    pub path: PathBuf,
    /// Why it cannot be used; `None` if it can.
    pub mistake: Option<String>,
    /// Whether it serves IPsec in the host's network namespace.
    pub ipsec: bool,
    /// Whether it serves programs that set TCP-AO keys.
    pub tcp_ao: bool,
    /// The number of peers with keys.
    pub peers: usize,
    /// The number of gateways.
    pub gateways: usize,
}

/// A program that uses what Sealane serves.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Program {
    /// The name that people know.
    pub name: String,
    /// Its path.
    pub path: PathBuf,
    /// The service that it needs.
    pub need: Need,
}

/// A unit of such a program.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UnitFact {
    /// Its name, such as `strongswan.service`.
    pub name: String,
    /// The service that its program needs.
    pub need: Need,
    /// Whether its program is started under `sealane run`.
    pub wrapped: bool,
    /// Whether a drop-in of `sealane adopt` does not say any more what the unit says.
    pub stale: bool,
    /// Whether it starts with the machine.
    pub enabled: bool,
}

/// A running program that uses what Sealane serves.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// The service that it needs.
    pub need: Need,
    /// Whether a launcher of Sealane's is one of its ancestors.
    pub served: bool,
}

/// systemd-networkd.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Networkd {
    /// Whether it runs.
    pub running: bool,
    /// Whether it removes routes that others made (`ManageForeignRoutes=`).
    pub manages_routes: bool,
    /// Whether it removes routing rules that others made (`ManageForeignRoutingPolicyRules=`).
    pub manages_rules: bool,
}
