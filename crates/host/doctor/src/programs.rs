//! The programs that use the kernel's network cryptography: where they are, and what they need.

use crate::files::Files;
use crate::sections::Sections;
use std::path::{Component, Path, PathBuf};

/// A service of Sealane's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    AfAlg,
    TcpAo,
    Ipsec,
}

impl Service {
    /// Its name in sentences.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Service::AfAlg => "AF_ALG",
            Service::TcpAo => "TCP-AO",
            Service::Ipsec => "IPsec",
        }
    }

    /// The front of a command that runs a program under Sealane, whose executable is `exe`.
    pub(crate) fn launcher(self, exe: &str) -> String {
        let option = if self == Service::TcpAo { " --tcp-ao" } else { "" };
        format!("{exe} run{option} --")
    }
}

/// The way in which a program is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Means {
    /// Under `sealane run`.
    Launcher,
    /// By peers in the daemon's configuration: it has no TCP-AO of its own.
    Peers,
}

/// A program that uses one of the services.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// The places of its executable.
    files: &'static [&'static str],
    /// The units that start it by a script or as a plugin. Others are found by its executable.
    units: &'static [&'static str],
    pub(crate) service: Service,
    /// The kernel's modules that it uses.
    pub(crate) modules: &'static [&'static str],
    pub(crate) means: Means,
    /// The condition under which it uses the service, if it does not always.
    pub(crate) only: Option<&'static str>,
    /// Whether it goes on when its unit is restarted, so that it has to be ended by itself.
    pub(crate) outlives_unit: bool,
}

impl Program {
    /// The command that ends it where a restart of its unit does not.
    pub(crate) fn end(&self) -> Option<String> {
        self.outlives_unit.then(|| format!("pkill -x {}", self.name))
    }
}

const TYPES: &[&str] = &["af_alg", "algif_hash", "algif_skcipher"];
const ESP: &[&str] = &["xfrm_user", "esp4", "esp6"];

pub(crate) const PROGRAMS: &[Program] = &[
    Program {
        name: "charon",
        files: &[
            "/usr/sbin/charon-systemd",
            "/usr/lib/ipsec/charon",
            "/usr/lib/strongswan/charon",
            "/usr/libexec/ipsec/charon",
            "/usr/libexec/strongswan/charon",
        ],
        units: &["strongswan-starter.service"],
        service: Service::Ipsec,
        modules: ESP,
        means: Means::Launcher,
        only: None,
        outlives_unit: false,
    },
    // NetworkManager starts it for a VPN (`program=` in /usr/lib/NetworkManager/VPN/nm-strongswan-service.name), so that it runs
    // under what NetworkManager runs under, and stays when that ends (`KillMode=process`): the next one finds it on D-Bus.
    Program {
        name: "charon-nm",
        files: &[
            "/usr/lib/ipsec/charon-nm",
            "/usr/lib/strongswan/charon-nm",
            "/usr/libexec/ipsec/charon-nm",
            "/usr/libexec/strongswan/charon-nm",
        ],
        units: &["NetworkManager.service"],
        service: Service::Ipsec,
        modules: ESP,
        means: Means::Launcher,
        only: None,
        outlives_unit: true,
    },
    Program {
        name: "pluto",
        files: &["/usr/libexec/ipsec/pluto", "/usr/lib/ipsec/pluto"],
        units: &[],
        service: Service::Ipsec,
        modules: ESP,
        means: Means::Launcher,
        only: None,
        outlives_unit: false,
    },
    Program {
        name: "iwd",
        files: &["/usr/libexec/iwd", "/usr/lib/iwd/iwd", "/usr/lib/iwd"],
        units: &[],
        service: Service::AfAlg,
        modules: TYPES,
        means: Means::Launcher,
        only: None,
        outlives_unit: false,
    },
    Program {
        name: "bluetoothd",
        files: &["/usr/libexec/bluetooth/bluetoothd", "/usr/lib/bluetooth/bluetoothd"],
        units: &[],
        service: Service::AfAlg,
        modules: TYPES,
        means: Means::Launcher,
        only: Some("for GATT and mesh"),
        outlives_unit: false,
    },
    Program {
        name: "cryptsetup",
        files: &["/usr/sbin/cryptsetup", "/sbin/cryptsetup", "/usr/bin/cryptsetup"],
        units: &[],
        service: Service::AfAlg,
        modules: &["af_alg", "algif_skcipher"],
        means: Means::Launcher,
        only: Some("for its benchmark, and for ciphers that its library lacks"),
        outlives_unit: false,
    },
    Program {
        name: "libkcapi",
        files: &["/usr/bin/kcapi-dgst", "/usr/bin/kcapi-enc", "/usr/bin/kcapi-rng"],
        units: &[],
        service: Service::AfAlg,
        modules: &["af_alg", "algif_hash", "algif_skcipher", "algif_aead", "algif_rng"],
        means: Means::Launcher,
        only: Some("in each of its tools"),
        outlives_unit: false,
    },
    Program {
        name: "OpenSSL's afalg engine",
        files: &[
            "/usr/lib/x86_64-linux-gnu/engines-3/afalg.so",
            "/usr/lib/aarch64-linux-gnu/engines-3/afalg.so",
            "/usr/lib64/engines-3/afalg.so",
        ],
        units: &[],
        service: Service::AfAlg,
        modules: &["af_alg", "algif_skcipher"],
        means: Means::Launcher,
        only: Some("for programs whose configuration selects it"),
        outlives_unit: false,
    },
    Program {
        name: "bird",
        files: &["/usr/sbin/bird", "/usr/local/sbin/bird", "/usr/bin/bird"],
        units: &[],
        service: Service::TcpAo,
        modules: &[],
        means: Means::Launcher,
        only: Some("for sessions with 'authentication ao'"),
        outlives_unit: false,
    },
    Program {
        name: "FRR's bgpd",
        files: &["/usr/lib/frr/bgpd", "/usr/libexec/frr/bgpd"],
        units: &["frr.service"],
        service: Service::TcpAo,
        modules: &[],
        means: Means::Peers,
        only: Some("for sessions whose peers ask for it"),
        outlives_unit: false,
    },
    Program {
        name: "gobgpd",
        files: &["/usr/bin/gobgpd", "/usr/sbin/gobgpd", "/usr/local/bin/gobgpd"],
        units: &[],
        service: Service::TcpAo,
        modules: &[],
        means: Means::Peers,
        only: Some("for sessions whose peers ask for it"),
        outlives_unit: false,
    },
];

/// A program that is installed.
#[derive(Debug, Clone)]
pub(crate) struct Installed {
    pub(crate) program: &'static Program,
    /// Its executable.
    pub(crate) file: String,
    /// The units that start it.
    pub(crate) units: Vec<Unit>,
}

/// A unit of systemd, with its drop-ins.
#[derive(Debug, Clone)]
pub(crate) struct Unit {
    pub(crate) name: String,
    pub(crate) sections: Sections,
}

impl Unit {
    /// Reads a unit's file and its drop-ins.
    pub(crate) fn read(files: &Files<'_>, path: &str, name: &str) -> Self {
        let mut sections = Sections::default();
        sections.read(&files.text(path).unwrap_or_default());
        let mut unit = Unit { name: name.to_owned(), sections };
        unit.read_drop_ins(files);
        unit
    }

    fn read_drop_ins(&mut self, files: &Files<'_>) {
        for drop_in in files.overlay(&format!("systemd/system/{}.d", self.name), ".conf") {
            self.sections.read(&files.text(&drop_in).unwrap_or_default());
        }
    }

    /// The destinations of its `BindPaths=` and `BindReadOnlyPaths=`.
    fn bound(&self) -> Vec<&str> {
        let words = ["BindPaths", "BindReadOnlyPaths"].map(|key| self.sections.words("Service", key)).concat();
        words.into_iter().map(destination).collect()
    }

    /// The folders that are empty for it, but for what is bound into them.
    fn emptied(&self) -> Vec<&str> {
        let mut folders: Vec<&str> = Vec::new();
        for word in self.sections.words("Service", "TemporaryFileSystem") {
            folders.extend(word.split(':').next());
        }
        let is_private = self.sections.is_on("Service", "PrivateTmp") == Some(true)
            || self.sections.last("Service", "PrivateTmp") == Some("disconnected");
        if is_private {
            folders.extend(TEMPORARY);
        }
        if self.sections.last("Service", "ProtectHome") == Some("tmpfs") {
            folders.extend(HOMES);
        }
        folders
    }

    /// Whether a path of the machine's, which [`plain`] has made so, is hidden from it: by a folder that is empty for it (`TemporaryFileSystem=`,
    /// `PrivateTmp=`) and into which nothing above the path is bound, or by `ProtectHome=yes`, which nothing is bound into.
    pub(crate) fn hides(&self, path: &Path) -> bool {
        if self.sections.is_on("Service", "ProtectHome") == Some(true)
            && HOMES.iter().any(|home| path.starts_with(home))
        {
            return true;
        }
        let bound = self.bound();
        let is_bound = |folder: &str| bound.iter().any(|to| Path::new(to).starts_with(folder) && path.starts_with(to));
        self.emptied().into_iter().any(|folder| path.starts_with(folder) && !is_bound(folder))
    }

    /// The commands that it starts, with the characters that may stand before their paths.
    pub(crate) fn commands(&self) -> Vec<&str> {
        self.sections.list("Service", "ExecStart")
    }

    /// Whether its commands run under `sealane run`.
    pub(crate) fn is_launched(&self) -> bool {
        self.commands().iter().any(|command| {
            let mut words = command.trim_start_matches(PREFIXES).split_whitespace();
            let program = words.next().and_then(|path| path.rsplit('/').next());
            (program, words.next()) == (Some("sealane"), Some("run"))
        })
    }

    /// Whether systemd waits for a message of its main process, which under Sealane is the launcher.
    pub(crate) fn is_notifying(&self) -> bool {
        self.sections.last("Service", "Type").is_some_and(|kind| kind.starts_with("notify"))
            && self.sections.last("Service", "NotifyAccess") != Some("all")
    }

    /// The family of sockets that it refuses and that a program needs under Sealane for a service.
    pub(crate) fn refused_family(&self, service: Service) -> Option<&'static str> {
        let family = match service {
            Service::AfAlg => "AF_ALG",
            Service::Ipsec => "AF_NETLINK",
            Service::TcpAo => return None,
        };
        self.sections.refuses_family(family).then_some(family)
    }
}

/// The folders that `PrivateTmp=` makes anew.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];
/// The folders that `ProtectHome=` hides.
const HOMES: [&str; 3] = ["/home", "/root", "/run/user"];

/// The place at which a word `-SOURCE:DESTINATION:OPTIONS` binds its source, which alone is enough.
fn destination(word: &str) -> &str {
    let mut parts = word.trim_start_matches('-').split(':');
    let source = parts.next().unwrap_or_default();
    parts.next().filter(|to| !to.is_empty()).unwrap_or(source)
}

/// A path without `..`, and without the link /var/run. Other links are not followed.
pub(crate) fn plain(path: &str) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain.strip_prefix("/var/run").map(|rest| Path::new("/run").join(rest)).unwrap_or(plain)
}

/// The characters that may stand before the path in `ExecStart=`.
pub(crate) const PREFIXES: [char; 6] = ['-', '@', ':', '+', '!', '|'];

/// The programs that are installed, with their units among `services`.
pub(crate) fn installed(files: &Files<'_>, services: &[String]) -> Vec<Installed> {
    let found = |program: &'static Program| {
        // `/usr/lib/iwd` is a folder on some systems and the program itself on others.
        let file = program.files.iter().find(|path| files.is_file(path))?;
        Some(Installed { program, file: (*file).to_owned(), units: Vec::new() })
    };
    let mut all: Vec<Installed> = PROGRAMS.iter().filter_map(found).collect();
    for path in services {
        let Some(name) = path.rsplit('/').next().filter(|name| is_plain(name)) else { continue };
        let mut sections = Sections::default();
        sections.read(&files.text(path).unwrap_or_default());
        let starts = |sections: &Sections, installed: &Installed| {
            let words = sections.words("Service", "ExecStart");
            let mut words = words.iter().map(|word| word.trim_start_matches(PREFIXES));
            installed.program.units.contains(&name) || words.any(|word| installed.program.files.contains(&word))
        };
        let Some(installed) = all.iter_mut().find(|installed| starts(&sections, installed)) else { continue };
        let mut unit = Unit { name: name.to_owned(), sections };
        unit.read_drop_ins(files);
        installed.units.push(unit);
    }
    all
}

/// Whether a unit's name can stand in a command as it is.
fn is_plain(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || ":_.@-".contains(c))
}
