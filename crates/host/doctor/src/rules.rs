//! The conclusions from what is known about a machine. Nothing here reads a file or asks the kernel.

use crate::facts::{CONFIG, Configuration, Daemon, Facts, KEEPER_UNIT, Lacks, Owner, UNIT};
use crate::finding::{Finding, Id, Level};
use crate::keeper::{Keeper, LackingKey, Seen};
use crate::modules::{MODULES, State};
use crate::programs::{Installed, Means, Program, Service, Unit, plain};
use sealane_config::DEVICE;
use sealane_drivers::tables::Origin;

/// The findings, the most urgent first.
pub(crate) fn judge(facts: &Facts) -> Vec<Finding> {
    let wanted = Wanted::of(facts);
    let mut findings = Vec::new();
    for installed in &facts.programs {
        findings.extend(program(facts, installed));
    }
    findings.extend(blocks(facts));
    findings.extend(open(facts));
    if wanted.ipsec || wanted.tcp_ao {
        findings.extend(kernel(facts, &wanted));
    }
    findings.extend(daemon(facts, &wanted));
    findings.extend(facts.live.keeper.iter().flat_map(|keeper| of_keeper(facts, keeper)));
    if wanted.ipsec {
        findings.extend(network(facts));
    }
    findings.extend(launcher(facts, &wanted));
    findings.extend(calibration(facts));
    findings.extend(
        facts
            .unread
            .iter()
            .map(|file| Finding::new(Level::Unseen, Id::UnreadFile, format!("could not be read: {file}"), Vec::new())),
    );
    findings.sort_by_key(|finding| finding.level);
    findings
}

/// The kernel's answer to a program.
enum Kernel {
    Serves,
    /// With the reasons.
    Refuses(Vec<String>),
    Unseen,
}

fn answer(facts: &Facts, program: &Program) -> Kernel {
    if program.service == Service::TcpAo {
        return match facts.live.tcp_ao {
            Some(true) => Kernel::Serves,
            Some(false) => Kernel::Refuses(vec!["the kernel has no TCP-AO".to_owned()]),
            None => Kernel::Unseen,
        };
    }
    if program.service == Service::AfAlg && facts.af_alg_is_off {
        return Kernel::Refuses(vec!["crypto.af_alg_restrict turns AF_ALG off".to_owned()]);
    }
    let states = program.modules.iter().map(|name| (name, facts.state(name)));
    let (mut reasons, mut is_seen) = (Vec::new(), true);
    for (name, state) in states {
        match state.is_usable() {
            Some(true) => {}
            Some(false) => reasons.push(format!("{name} is {state}")),
            None => is_seen = false,
        }
    }
    match (reasons.is_empty(), is_seen) {
        (false, _) => Kernel::Refuses(reasons),
        (true, true) => Kernel::Serves,
        (true, false) => Kernel::Unseen,
    }
}

/// The services that somebody here is to have from the daemon.
struct Wanted {
    ipsec: bool,
    tcp_ao: bool,
}

impl Wanted {
    fn of(facts: &Facts) -> Self {
        let is_configured = |service: Service| match facts.live.config {
            Configuration::Good { ipsec, tcp_ao, .. } => {
                if service == Service::Ipsec {
                    ipsec
                } else {
                    tcp_ao
                }
            }
            _ => false,
        };
        let has_program = |service: Service| {
            facts.programs.iter().filter(|installed| installed.program.service == service).any(|installed| {
                let is_refused = matches!(answer(facts, installed.program), Kernel::Refuses(_));
                installed.units.iter().any(Unit::is_launched) || installed.program.only.is_none() && is_refused
            })
        };
        let wants = |service: Service| is_configured(service) || has_program(service);
        Wanted { ipsec: wants(Service::Ipsec), tcp_ao: wants(Service::TcpAo) }
    }
}

/// The findings about one program and its units.
fn program(facts: &Facts, installed: &Installed) -> Vec<Finding> {
    let Installed { program, file, units } = installed;
    let Program { name, service, .. } = program;
    let (launched, others): (Vec<&Unit>, Vec<&Unit>) = units.iter().partition(|unit| unit.is_launched());
    let mut findings: Vec<_> = launched.iter().flat_map(|unit| of_launched_unit(program, unit)).collect();
    if !launched.is_empty() && others.is_empty() {
        return findings;
    }
    let (level, only) = match program.only {
        None => (Level::NeedsDoing, String::new()),
        Some(only) => (Level::Note, format!(" {only}")),
    };
    let needs = format!("{name} ({file}) needs {}{only}", service.name());
    match answer(facts, program) {
        Kernel::Serves => {}
        Kernel::Unseen if program.only.is_none() => {
            let text = format!("{needs}, and it could not be seen whether the kernel has it");
            findings.push(Finding::new(Level::Unseen, Id::NotServed, text, Vec::new()));
        }
        Kernel::Unseen => {}
        Kernel::Refuses(reasons) if program.means == Means::Peers => {
            let text =
                format!("{needs}, and {}: the daemon signs its sessions, by [[peer]] in {CONFIG}", list(&reasons));
            findings.push(Finding::new(level, Id::NotServed, text, vec![format!("sealane check {CONFIG}")]));
        }
        Kernel::Refuses(reasons) => {
            let mut text = format!("{needs}, and {}", list(&reasons));
            let commands = if others.is_empty() && file.ends_with(".so") {
                text.push_str(": start these under 'sealane run'");
                Vec::new()
            } else if others.is_empty() {
                text.push_str(": start it under 'sealane run'");
                vec![format!("{} {file}", service.launcher(&facts.live.exe))]
            } else {
                text.push_str(&format!(
                    ": run {} under Sealane",
                    list(&others.iter().map(|unit| &unit.name).collect::<Vec<_>>())
                ));
                others.iter().flat_map(|unit| adopt(facts, program, unit)).collect()
            };
            findings.push(Finding::new(level, Id::NotServed, text, commands));
            findings.extend(others.iter().filter_map(|unit| alone(program, unit)));
        }
    }
    findings
}

/// The commands that put a unit's program under Sealane.
fn adopt(facts: &Facts, program: &Program, unit: &Unit) -> Vec<String> {
    let adopt = format!("{} adopt {}", facts.live.exe, unit.name);
    [adopt].into_iter().chain(program.end()).chain([format!("systemctl restart {}", unit.name)]).collect()
}

fn install_drop_in(unit: &Unit, file: &str, lines: &[String]) -> Vec<String> {
    let folder = format!("/etc/systemd/system/{}.d", unit.name);
    vec![
        format!("mkdir -p {folder}"),
        write(&format!("{folder}/{file}"), lines),
        "systemctl daemon-reload".to_owned(),
        format!("systemctl restart {}", unit.name),
    ]
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The command that prints lines.
fn print(lines: &[String]) -> String {
    let words: Vec<String> = lines.iter().map(|line| quoted(line)).collect();
    format!("printf '%s\\n' {}", words.join(" "))
}

/// The command that writes lines to a file.
fn write(path: &str, lines: &[String]) -> String {
    format!("{} > {path}", print(lines))
}

/// The command that adds lines to a file. The empty one is for a last line that does not end.
fn append(path: &str, lines: &[String]) -> String {
    let lines: Vec<String> = [String::new()].into_iter().chain(lines.iter().cloned()).collect();
    format!("{} >> {path}", print(&lines))
}

/// A unit that is alone in a network namespace, which no daemon serves.
fn alone(program: &Program, unit: &Unit) -> Option<Finding> {
    let is_alone = unit.sections.is_on("Service", "PrivateNetwork") == Some(true);
    (is_alone && program.service == Service::Ipsec).then(|| {
        let text = format!("PrivateNetwork= puts {} into a network namespace that no daemon serves", unit.name);
        Finding::new(Level::NeedsDoing, Id::UnitSandbox, text, vec![format!("systemctl edit {}", unit.name)])
    })
}

/// Settings that keep a unit whose program runs under Sealane from being served.
fn of_launched_unit(program: &Program, unit: &Unit) -> Vec<Finding> {
    let mut findings: Vec<Finding> = alone(program, unit).into_iter().collect();
    let service = |line: &str| vec!["[Service]".to_owned(), line.to_owned()];
    if let Some(family) = unit.refused_family(program.service) {
        // The library in a dynamic program opens no such socket.
        let level = if program.service == Service::AfAlg { Level::Note } else { Level::NeedsDoing };
        let text = format!("RestrictAddressFamilies= of {} refuses {family} before Sealane is asked", unit.name);
        let lines = service(&format!("RestrictAddressFamilies={family}"));
        findings.push(Finding::new(
            level,
            Id::UnitSandbox,
            text,
            install_drop_in(unit, "sealane-families.conf", &lines),
        ));
    }
    if unit.is_notifying() {
        let text =
            format!("{} does not say NotifyAccess=all: systemd hears the launcher only, not its program", unit.name);
        let commands = install_drop_in(unit, "sealane-notify.conf", &service("NotifyAccess=all"));
        findings.push(Finding::new(Level::NeedsDoing, Id::UnitStart, text, commands));
    }
    if program.service == Service::Ipsec && !unit.sections.words("Unit", "After").contains(&UNIT) {
        let text = format!("{} does not start after {UNIT}: without a daemon NETLINK_XFRM is refused", unit.name);
        let lines = ["[Unit]".to_owned(), format!("Wants={UNIT}"), format!("After={UNIT}")];
        let commands = install_drop_in(unit, "sealane-order.conf", &lines);
        findings.push(Finding::new(Level::NeedsDoing, Id::UnitStart, text, commands));
    }
    findings
}

/// Lines that seem to block modules, and do not.
fn blocks(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    for module in &MODULES {
        let name = module.name;
        if let State::Loaded(Some(by)) = facts.state(name) {
            let text = format!(
                "{name} is blocked by {by}, and loaded all the same, until it is unloaded or the machine boots"
            );
            findings.push(Finding::new(Level::NeedsDoing, Id::StillLoaded, text, vec![format!("modprobe -r {name}")]));
        }
        if let Some(by) = facts.evidence.blacklisted_in_vain(module) {
            let text =
                format!("'blacklist {name}' of {by} blocks nothing: the kernel asks for this module by its name");
            let commands = vec![block(&[name]), format!("modprobe -r {name}")];
            findings.push(Finding::new(Level::NeedsDoing, Id::BlacklistInVain, text, commands));
        }
    }
    findings
}

/// The command that blocks modules.
fn block(names: &[&str]) -> String {
    let file = format!("/etc/modprobe.d/sealane-{}.conf", names[0]);
    format!("printf 'install %s /bin/false\\n' {} > {file}", names.join(" "))
}

/// Modules that nobody needs any more, because all units of their programs run under Sealane.
fn open(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (service, modules) in [
        (Service::AfAlg, &["af_alg", "algif_hash", "algif_skcipher", "algif_aead", "algif_rng"][..]),
        (Service::Ipsec, &["esp4", "esp6"][..]),
    ] {
        let mut units =
            facts.programs.iter().filter(|i| i.program.service == service).flat_map(|i| &i.units).peekable();
        if units.peek().is_none() || !units.all(Unit::is_launched) {
            continue;
        }
        let is_open = |name: &&str| matches!(facts.state(name), State::Module | State::Loaded(None));
        let open: Vec<&str> = modules.iter().copied().filter(is_open).collect();
        if !open.is_empty() {
            let text = format!("Sealane serves {}, and the kernel's {} can still be used", service.name(), list(&open));
            let commands = vec![block(&open), format!("modprobe -r {}", open.join(" "))];
            findings.push(Finding::new(Level::Note, Id::KernelOpen, text, commands));
        }
    }
    findings
}

/// The parts of the kernel that the daemon needs.
fn kernel(facts: &Facts, wanted: &Wanted) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut needed = vec!["nf_tables"];
    if wanted.ipsec {
        needed.push("tun");
    }
    if wanted.tcp_ao {
        needed.extend(["nfnetlink_queue", "tcp_diag"]);
    }
    for name in needed {
        let state = facts.state(name);
        let (level, commands) = match &state {
            State::Unseen => (Level::Unseen, Vec::new()),
            State::Missing => (Level::NeedsDoing, Vec::new()),
            State::Blocked(_) => (Level::NeedsDoing, vec![format!("modprobe -c | grep -w {name}")]),
            _ => continue,
        };
        let text = if state == State::Unseen {
            format!("the daemon needs {name}, and it could not be seen whether the kernel has it")
        } else {
            format!("the daemon needs {name}, which is {state}")
        };
        findings.push(Finding::new(level, Id::Kernel, text, commands));
    }
    if wanted.ipsec && !facts.has_tun_device {
        let commands = vec!["mkdir -p /dev/net".to_owned(), "mknod -m 666 /dev/net/tun c 10 200".to_owned()];
        let text = "there is no /dev/net/tun; a container gets it from outside (--device /dev/net/tun)";
        findings.push(Finding::new(Level::NeedsDoing, Id::TunDevice, text, commands));
    }
    let owner = match facts.table_owner() {
        Owner::Persists | Owner::Unseen => None,
        Owner::Ends => Some(
            "before Linux 6.9 rules go with the daemon, and those of a second table, which others can remove, drop",
        ),
        Owner::Nobody => {
            Some("before Linux 5.12 others can remove the daemon's rules (nft flush ruleset), which puts them back")
        }
    };
    findings.extend(owner.map(|text| Finding::new(Level::Note, Id::TableOwner, text, Vec::new())));
    findings
}

/// The daemon and its configuration.
fn daemon(facts: &Facts, wanted: &Wanted) -> Option<Finding> {
    let is_wanted = wanted.ipsec || wanted.tcp_ao;
    let check = || vec![format!("sealane check {CONFIG}")];
    let of_config = |text: String, commands| Some(Finding::new(Level::NeedsDoing, Id::Configuration, text, commands));
    let of_daemon = |level, text, command: String| Some(Finding::new(level, Id::Daemon, text, vec![command]));
    let runs = match facts.live.daemon {
        Daemon::Unseen if facts.unit_runs => Daemon::Runs { ipsec: true, lacks: Lacks::Nothing },
        seen => seen,
    };
    match (&facts.live.config, runs) {
        (Configuration::Wrong(count), _) => of_config(format!("{CONFIG} has {count} mistakes"), check()),
        // It may have another configuration.
        (_, Daemon::Runs { ipsec, .. }) if ipsec || !wanted.ipsec => None,
        (Configuration::Unseen(why), _) if is_wanted => {
            Some(Finding::new(Level::Unseen, Id::Configuration, format!("{CONFIG} could not be read: {why}"), check()))
        }
        (Configuration::Absent, _) if wanted.ipsec => of_config(
            format!("IPsec needs the daemon, and there is no {CONFIG}"),
            vec![
                "mkdir -p /etc/sealane".to_owned(),
                format!("(umask 077; {})", write(CONFIG, &["[ipsec]".to_owned()])),
                format!("systemctl enable --now {UNIT}"),
            ],
        ),
        (Configuration::Good { ipsec: false, .. }, _) if wanted.ipsec => of_config(
            format!("IPsec needs the daemon, and {CONFIG} has no [ipsec]"),
            vec![format!("printf '\\n[ipsec]\\n' >> {CONFIG}"), format!("systemctl reload-or-restart {UNIT}")],
        ),
        (Configuration::Good { .. }, runs) if is_wanted => match runs {
            Daemon::Runs { .. } => {
                let text = "the daemon has not read [ipsec] of its configuration";
                of_daemon(Level::NeedsDoing, text, format!("systemctl reload {UNIT}"))
            }
            Daemon::Absent if facts.unit.is_some() => {
                of_daemon(Level::NeedsDoing, "the daemon does not run", format!("systemctl enable --now {UNIT}"))
            }
            Daemon::Absent => {
                let text = "the daemon does not run, and its unit is not installed";
                of_daemon(Level::NeedsDoing, text, format!("{} daemon --config {CONFIG}", facts.live.exe))
            }
            Daemon::Unseen => {
                let text = "it could not be seen whether the daemon runs";
                of_daemon(Level::Unseen, text, format!("systemctl status {UNIT}"))
            }
        },
        _ => None,
    }
}

/// The most keys that are told of one by one.
const MANY_KEYS: usize = 8;

/// The keeper whose keys the configuration names: the daemon's unit has to see it, it has to answer, and to let root use them.
fn of_keeper(facts: &Facts, keeper: &Keeper) -> Vec<Finding> {
    let Keeper { socket, seen } = keeper;
    let finding = |level, text: String, commands| Finding::new(level, Id::Keeper, text, commands);
    let mut findings: Vec<Finding> = facts.unit.iter().filter_map(|unit| of_unit(facts, keeper, unit)).collect();
    match seen {
        Seen::OtherUser => {
            let text = format!(
                "keys of {CONFIG} are the keeper's at {socket}, which tells root alone whether the daemon may use them"
            );
            findings.push(finding(Level::Unseen, text, Vec::new()));
        }
        Seen::Silent(why) => {
            let text = format!("keys of {CONFIG} are the keeper's, which does not answer: {why}");
            // Nobody knows what serves another socket.
            let command = if !keeper.is_usual() {
                None
            } else if !facts.has_keeper_unit {
                Some(format!("{} keeper --config /etc/sealane/keeper.toml", facts.live.exe))
            } else if facts.keeper_unit_runs {
                Some(format!("systemctl status {KEEPER_UNIT}"))
            } else {
                Some(format!("systemctl enable --now {KEEPER_UNIT}"))
            };
            findings.push(finding(Level::NeedsDoing, text, command.into_iter().collect()));
        }
        Seen::Answers { lacks, not_asked } => {
            findings.extend(of_daemon_that_lacks(facts).filter(|_| lacks.is_empty()));
            if *not_asked > 0 {
                let text = format!(
                    "the keeper was too slow to say of {not_asked} keys of {CONFIG} whether the daemon may use them"
                );
                findings.push(finding(Level::Unseen, text, vec!["sealane tcp-ao show".to_owned()]));
            }
            for LackingKey { name, algorithm, is_unknown, why } in lacks.iter().take(MANY_KEYS) {
                let text = format!("the daemon cannot use the key '{name}' of {CONFIG}, which is the keeper's: {why}");
                let key = |rest: String| {
                    let to = if keeper.is_usual() { String::new() } else { format!(" --socket {}", quoted(socket)) };
                    format!("{} key {rest}{to}", facts.live.exe)
                };
                let commands = if *is_unknown {
                    vec![
                        key("list".to_owned()),
                        key(format!("import {name} --algorithm '{algorithm}' --uses mac --user 0 --file SECRET")),
                    ]
                } else {
                    vec![key(format!("show {name}"))]
                };
                findings.push(finding(Level::NeedsDoing, text, commands));
            }
            if let Some(more) = lacks.len().checked_sub(MANY_KEYS).filter(|more| *more > 0) {
                let text = format!("the daemon cannot use {more} more keys of {CONFIG} which are the keeper's");
                findings.push(finding(Level::NeedsDoing, text, vec!["sealane tcp-ao show".to_owned()]));
            }
        }
    }
    findings
}

/// A daemon that cannot use keys, of which the keeper has refused none that it was asked for.
fn of_daemon_that_lacks(facts: &Facts) -> Option<Finding> {
    let Daemon::Runs { lacks, .. } = facts.live.daemon else { return None };
    let says = format!("the keeper has refused root no key of {CONFIG}, and");
    let show = "sealane tcp-ao show".to_owned();
    let finding = |level, text, commands| Some(Finding::new(level, Id::Keeper, text, commands));
    match lacks {
        Lacks::Nothing => None,
        // It may be over: nobody asks until a connection needs them.
        Lacks::Derivations => {
            let text = format!(
                "{says} it gave the daemon no traffic keys by some of them when a connection needed them, less than a minute ago: \
                 it asks again when one needs them"
            );
            finding(Level::Note, text, vec![show])
        }
        Lacks::Keys => {
            let text = format!(
                "{says} the daemon has not found some: it tries again once a second, and where that does not help, it does not \
                 reach this keeper"
            );
            finding(Level::NeedsDoing, text, vec![show, format!("systemctl restart {UNIT}")])
        }
    }
}

/// The lines of the daemon's unit by which it sees the folder of the keeper's unit.
fn lines_to_see(folder: &str) -> [String; 2] {
    // The keeper may not have made it yet. The unit has another /run than the machine, also for commands with '+'.
    [format!("ExecStartPre=-+/usr/bin/nsenter -t 1 -m /bin/mkdir -p {folder}"), format!("BindReadOnlyPaths=-{folder}")]
}

/// The settings that the daemon's unit lacks to ask a keeper.
fn of_unit(facts: &Facts, keeper: &Keeper, unit: &Unit) -> Option<Finding> {
    let socket = plain(&keeper.socket);
    let folder = socket.parent()?.to_str()?;
    let is_hidden = unit.hides(&socket);
    // Another keeper may come in another way.
    let is_early =
        keeper.is_usual() && facts.has_keeper_unit && !unit.sections.words("Unit", "After").contains(&KEEPER_UNIT);
    let (mut lacks, mut lines) = (Vec::new(), Vec::new());
    if is_early {
        lacks.push(format!("does not start after {KEEPER_UNIT}"));
        lines.extend(["[Unit]".to_owned(), format!("Wants={KEEPER_UNIT}"), format!("After={KEEPER_UNIT}")]);
    }
    if is_hidden {
        lacks.push(format!("does not see {folder}"));
        lines.extend(["[Service]".to_owned()].into_iter().chain(lines_to_see(folder)));
    }
    if lacks.is_empty() {
        return None;
    }
    let mut text = format!("keys of {CONFIG} are the keeper's at {}, and {UNIT} {}", keeper.socket, list(&lacks));
    let commands = if keeper.is_usual() {
        // Lines that are there stay: those of the guide, and an administrator's.
        let drop_ins = format!("/etc/systemd/system/{}.d", unit.name);
        let file = format!("{drop_ins}/keeper.conf");
        let restart = format!("systemctl restart {}", unit.name);
        vec![format!("mkdir -p {drop_ins}"), append(&file, &lines), "systemctl daemon-reload".to_owned(), restart]
    } else {
        // Who may put what into another folder, which the daemon would see then, is not known.
        text.push_str(
            ": a BindReadOnlyPaths= of it shows the socket, in a folder of its own that root alone can change",
        );
        Vec::new()
    };
    Some(Finding::new(Level::NeedsDoing, Id::Keeper, text, commands))
}

/// Settings that get into the way of IPsec's packets.
fn network(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let gateways = matches!(facts.live.config, Configuration::Good { gateways: true, .. });
    match facts.has_af_xdp {
        Some(false) if gateways => {
            let text = format!("{CONFIG} has a gateway past the stack, and the kernel has no AF_XDP");
            findings.push(Finding::new(Level::NeedsDoing, Id::AfXdp, text, Vec::new()));
        }
        None if gateways => {
            let text = format!(
                "{CONFIG} has a gateway past the stack, and it could not be seen whether the kernel has AF_XDP"
            );
            findings.push(Finding::new(Level::Unseen, Id::AfXdp, text, Vec::new()));
        }
        _ => {}
    }
    if facts.forwards == Some(false) {
        let level = if gateways { Level::NeedsDoing } else { Level::Note };
        let text = "net.ipv4.ip_forward is 0: a tunnel serves this machine only, no network behind it";
        let commands = vec![
            write("/etc/sysctl.d/50-sealane-forward.conf", &["net.ipv4.ip_forward = 1".to_owned()]),
            "sysctl -w net.ipv4.ip_forward=1".to_owned(),
        ];
        findings.push(Finding::new(level, Id::Forwarding, text, commands));
    }
    if facts.is_strict {
        let text = "sysctl.d makes rp_filter of each new interface strict, which drops what comes out of a tunnel until \
                    the daemon makes its own loose again";
        let line = format!("net.ipv4.conf.{DEVICE}.rp_filter = 2");
        findings.push(Finding::new(
            Level::Note,
            Id::RpFilter,
            text,
            vec![write("/etc/sysctl.d/50-sealane-rp.conf", &[line])],
        ));
    }
    if let Some(networkd) = facts.networkd {
        let removed = match (networkd.removes_rules, networkd.removes_routes) {
            (true, true) => Some("routing rules and routes"),
            (true, false) => Some("routing rules"),
            (false, true) => Some("routes"),
            (false, false) => None,
        };
        findings.extend(removed.map(|what| {
            let text = format!(
                "systemd-networkd removes {what} of others when it starts: covered traffic is dropped until the daemon \
                 puts them back"
            );
            let lines =
                ["[Network]", "ManageForeignRoutingPolicyRules=no", "ManageForeignRoutes=no"].map(str::to_owned);
            Finding::new(
                Level::Note,
                Id::Networkd,
                text,
                vec![
                    "mkdir -p /etc/systemd/networkd.conf.d".to_owned(),
                    write("/etc/systemd/networkd.conf.d/sealane.conf", &lines),
                    "systemctl restart systemd-networkd".to_owned(),
                ],
            )
        }));
    }
    findings
}

/// The parts of the kernel that the launcher needs.
fn launcher(facts: &Facts, wanted: &Wanted) -> Vec<Finding> {
    let mut findings = Vec::new();
    if facts.has_user_notification == Some(false) {
        let level = if wanted.ipsec || wanted.tcp_ao { Level::NeedsDoing } else { Level::Note };
        let text = "the kernel has no seccomp user notification: 'sealane run' serves AF_ALG of dynamic programs only";
        findings.push(Finding::new(level, Id::UserNotification, text, Vec::new()));
    }
    if facts.live.is_filtered {
        let text = "a seccomp filter is in force here, as in a container: 'sealane run' says at its start which calls \
                    the filter answers itself";
        findings.push(Finding::new(
            Level::Note,
            Id::SeccompFilter,
            text,
            vec![format!("{} run -- true", facts.live.exe)],
        ));
    }
    findings
}

fn calibration(facts: &Facts) -> Option<Finding> {
    let calibrate = || vec!["sealane crypto calibrate".to_owned()];
    match &facts.live.calibration {
        Ok(Origin::File(_)) => None,
        Ok(Origin::Shipped(_) | Origin::Nothing) => {
            let text = "drivers are chosen by a table that was not measured on this machine";
            Some(Finding::new(Level::Note, Id::Calibration, text, calibrate()))
        }
        Err(e) => {
            Some(Finding::new(Level::NeedsDoing, Id::Calibration, format!("the table of drivers: {e}"), calibrate()))
        }
    }
}

/// Words as a list in a sentence.
fn list(words: &[impl AsRef<str>]) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.as_slice() {
        [front @ .., last] if !front.is_empty() => format!("{} and {last}", front.join(", ")),
        words => words.concat(),
    }
}
