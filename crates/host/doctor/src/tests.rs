//! Whole machines, made of a few files each.

use crate::adopt::{self, DropIn, NoDropIn};
use crate::facts::{Configuration, Daemon, Facts, Lacks, Live};
use crate::{Finding, Id, Keeper, LackingKey, Level, Report, Seen};
use sealane_drivers::tables::Origin;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folder of a machine, which is removed with it.
struct Machine {
    root: PathBuf,
    live: Live,
}

const RELEASE: &str = "6.12.95-test";
/// ESP, AF_ALG, the TUN device and nftables as modules.
const FILES: &str = "kernel/net/ipv4/esp4.ko.xz:\nkernel/net/ipv6/esp6.ko.xz:\nkernel/net/xfrm/xfrm_user.ko.xz:\n\
                     kernel/crypto/af_alg.ko:\nkernel/crypto/algif_hash.ko:\nkernel/crypto/algif_skcipher.ko:\n\
                     kernel/crypto/algif_aead.ko:\nkernel/crypto/algif_rng.ko:\nkernel/drivers/net/tun.ko:\n\
                     kernel/net/netfilter/nf_tables.ko:\nkernel/net/netfilter/nfnetlink_queue.ko:\n\
                     kernel/net/ipv4/tcp_diag.ko:\n";
const NO_ESP: &str = "install esp4 /bin/false\ninstall esp6 /bin/false\n";
const CHARON: &str =
    "[Unit]\nAfter=network-online.target\n[Service]\nType=notify\nExecStart=/usr/sbin/charon-systemd\n";

impl Machine {
    /// One with a distribution's kernel, on which nothing is wrong.
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("sealane-doctor-{name}-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let live = Live {
            exe: "/usr/local/bin/sealane".into(),
            tcp_ao: Some(true),
            is_filtered: false,
            daemon: Daemon::Absent,
            calibration: Ok(Origin::File("/etc/sealane/calibration/x.txt".into())),
            config: Configuration::Absent,
            keeper: None,
        };
        Machine { root, live }
            .with("/proc/sys/kernel/osrelease", &format!("{RELEASE}\n"))
            .with(&format!("/lib/modules/{RELEASE}/modules.dep"), FILES)
            .with(&format!("/lib/modules/{RELEASE}/modules.builtin"), "kernel/mm/zswap.ko\n")
            .with("/proc/modules", "")
            .with("/proc/sys/kernel/seccomp/actions_avail", "kill_process trap errno user_notif allow\n")
            .with("/proc/net/protocols", "protocol size\nXDP 1088\nTCP 2304\n")
            .with("/proc/sys/net/ipv4/ip_forward", "1\n")
            .with("/dev/net/tun", "")
    }

    fn with(self, path: &str, text: &str) -> Self {
        let at = self.root.join(path.trim_start_matches('/'));
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, text).unwrap();
        self
    }

    fn live(mut self, change: impl FnOnce(&mut Live)) -> Self {
        change(&mut self.live);
        self
    }

    fn report(&self) -> Report {
        Report::new(&Facts::gather(&self.root, self.live.clone()).unwrap())
    }

    fn drop_in(&self, unit: &str) -> Result<DropIn, NoDropIn> {
        adopt::drop_in(&self.root, &self.live.exe, unit)
    }

    /// The findings, by kind and level.
    fn findings(&self) -> Vec<(Id, Level)> {
        self.report().findings.iter().map(|finding| (finding.id, finding.level)).collect()
    }

    fn finding(&self, id: Id) -> Finding {
        let report = self.report();
        report.findings.iter().find(|finding| finding.id == id).unwrap_or_else(|| panic!("{report:?}")).clone()
    }

    fn state(&self, name: &str) -> String {
        self.report().facts.into_iter().find(|fact| fact.name == name).unwrap().state
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.root).unwrap();
    }
}

/// A configuration with `[ipsec]`.
const IPSEC: Configuration = Configuration::Good { ipsec: true, gateways: false, tcp_ao: false };
/// A daemon that serves it.
const RUNS: Daemon = Daemon::Runs { ipsec: true, lacks: Lacks::Nothing };

#[test]
fn nothing_is_wrong() {
    let machine = Machine::new("well").with("/usr/sbin/charon-systemd", "");
    assert_eq!(machine.findings(), []);
    assert_eq!(machine.state("esp4"), "a module");
    assert_eq!(machine.state("ah4"), "missing");
    assert_eq!(machine.state("nftables tables with an owner"), "yes, and they outlive it");
}

#[test]
fn charon_without_esp() {
    let machine = Machine::new("charon")
        .with("/usr/sbin/charon-systemd", "")
        .with("/lib/systemd/system/strongswan.service", CHARON)
        .with("/etc/modprobe.d/no-esp.conf", NO_ESP);
    let todo = |id| (id, Level::NeedsDoing);
    assert_eq!(machine.findings(), [todo(Id::NotServed), todo(Id::Configuration)]);
    let finding = machine.finding(Id::NotServed);
    assert_eq!(
        finding.text,
        "charon (/usr/sbin/charon-systemd) needs IPsec, and esp4 is blocked by /etc/modprobe.d/no-esp.conf and esp6 is \
         blocked by /etc/modprobe.d/no-esp.conf: run strongswan.service under Sealane"
    );
    assert_eq!(
        finding.commands,
        ["/usr/local/bin/sealane adopt strongswan.service", "systemctl restart strongswan.service"]
    );
    let drop_in = machine.drop_in("strongswan.service").unwrap();
    let text = "[Unit]\nWants=sealane.service\nAfter=sealane.service\n[Service]\nExecStart=\n\
                ExecStart=/usr/local/bin/sealane run -- /usr/sbin/charon-systemd\nNotifyAccess=all\n";
    let path = "/etc/systemd/system/strongswan.service.d/sealane.conf";
    assert_eq!((drop_in.path.as_str(), drop_in.text.as_str()), (path, text));
    // It and the other commands are what makes it well: a shell writes the files below another root.
    let machine = machine.with(path, text);
    assert_eq!(machine.drop_in("strongswan.service"), Err(NoDropIn::Launched));
    for command in &machine.finding(Id::Configuration).commands {
        let command = command.replace("/etc/", &format!("{}/etc/", machine.root.display()));
        if !command.starts_with("systemctl") {
            assert!(Command::new("sh").arg("-c").arg(&command).status().unwrap().success(), "{command}");
        }
    }
    assert_eq!(fs::read_to_string(machine.root.join("etc/sealane/sealane.toml")).unwrap(), "[ipsec]\n");
    let machine = machine.live(|live| (live.config, live.daemon) = (IPSEC, RUNS));
    assert_eq!(machine.findings(), []);
}

/// libreswan's unit in Debian 12 and 13 says who may notify, and has commands around pluto that stay.
#[test]
fn pluto_without_esp() {
    let unit = "[Service]\nType=notify\nNotifyAccess=all\nWatchdogSec=200\nExecStartPre=/usr/sbin/ipsec checknss\n\
                ExecStart=/usr/libexec/ipsec/pluto --leak-detective --config /etc/ipsec.conf --nofork\n";
    let machine = Machine::new("pluto")
        .with("/usr/libexec/ipsec/pluto", "")
        .with("/lib/systemd/system/ipsec.service", unit)
        .with("/etc/modprobe.d/no-esp.conf", NO_ESP);
    let text = "[Unit]\nWants=sealane.service\nAfter=sealane.service\n[Service]\nExecStart=\n\
                ExecStart=/usr/local/bin/sealane run -- /usr/libexec/ipsec/pluto --leak-detective --config /etc/ipsec.conf \
                --nofork\n";
    assert_eq!(machine.drop_in("ipsec.service").unwrap().text, text);
}

/// NetworkManager is under Sealane where it has strongSwan's plugin, and is left alone elsewhere.
#[test]
fn charon_of_network_manager_without_esp() {
    let unit = "[Unit]\nAfter=network-pre.target dbus.service\n[Service]\nType=dbus\nBusName=org.freedesktop.NetworkManager\n\
                ExecStart=/usr/sbin/NetworkManager --no-daemon\nKillMode=process\nProtectSystem=true\n";
    let machine = Machine::new("network-manager")
        .with("/usr/sbin/NetworkManager", "")
        .with("/usr/lib/systemd/system/NetworkManager.service", unit)
        .with("/etc/modprobe.d/no-esp.conf", NO_ESP);
    assert_eq!(machine.findings(), []);
    assert_eq!(machine.drop_in("NetworkManager.service"), Err(NoDropIn::Unknown));
    let machine = machine
        .with("/usr/lib/ipsec/charon-nm", "")
        .with("/usr/sbin/charon-systemd", "")
        .with("/usr/lib/systemd/system/strongswan.service", CHARON);
    assert_eq!(
        machine.finding(Id::NotServed).commands,
        ["/usr/local/bin/sealane adopt strongswan.service", "systemctl restart strongswan.service"]
    );
    let all: Vec<String> = machine.report().findings.into_iter().flat_map(|finding| finding.commands).collect();
    for command in ["sealane adopt strongswan.service", "sealane adopt NetworkManager.service"] {
        assert_eq!(all.iter().filter(|one| one.ends_with(command)).count(), 1, "{all:?}");
    }
    let both = ["NetworkManager.service".to_owned(), "strongswan.service".to_owned()];
    let restart = |units| adopt::restart(&machine.root, units);
    assert_eq!(restart(&both), ["pkill -x charon-nm", "systemctl restart NetworkManager.service strongswan.service"]);
    assert_eq!(restart(&both[1..]), ["systemctl restart strongswan.service"]);
    let drop_in = machine.drop_in("NetworkManager.service").unwrap();
    let text = "[Unit]\nWants=sealane.service\nAfter=sealane.service\n[Service]\nExecStart=\n\
                ExecStart=/usr/local/bin/sealane run -- /usr/sbin/NetworkManager --no-daemon\n";
    assert_eq!(drop_in.text, text);
    let other = machine.drop_in("strongswan.service").unwrap();
    let machine = machine.with(&drop_in.path, &drop_in.text).with(&other.path, &other.text);
    assert_eq!(machine.findings(), [(Id::Configuration, Level::NeedsDoing)]);
}

#[test]
fn a_daemon_that_does_not_run() {
    let machine = Machine::new("daemon").live(|live| live.config = IPSEC);
    assert_eq!(
        machine.finding(Id::Daemon).commands,
        ["/usr/local/bin/sealane daemon --config /etc/sealane/sealane.toml"]
    );
    let machine = machine.with("/usr/local/lib/systemd/system/sealane.service", "[Service]\n");
    assert_eq!(machine.finding(Id::Daemon).commands, ["systemctl enable --now sealane.service"]);
    let machine = machine.live(|live| live.daemon = Daemon::Runs { ipsec: false, lacks: Lacks::Nothing });
    assert_eq!(machine.finding(Id::Daemon).commands, ["systemctl reload sealane.service"]);
    let machine = machine.live(|live| live.daemon = RUNS);
    assert_eq!(machine.findings(), []);
    let machine = machine.live(|live| live.daemon = Daemon::Unseen);
    assert_eq!(machine.findings(), [(Id::Daemon, Level::Unseen)]);
    // Everybody sees a unit's group of processes.
    let machine = machine.with("/sys/fs/cgroup/system.slice/sealane.service/cgroup.procs", "1\n");
    assert_eq!(machine.findings(), []);
    let machine = machine.live(|live| live.config = Configuration::Wrong(2));
    assert_eq!(machine.findings(), [(Id::Configuration, Level::NeedsDoing)]);
    // Who may not read it is not told that all is well.
    let unseen = |live: &mut Live| {
        live.config = Configuration::Unseen("Permission denied".into());
        live.daemon = Daemon::Absent;
    };
    let machine = machine.live(unseen);
    assert_eq!(machine.findings(), []);
    let machine = machine
        .with("/usr/sbin/charon-systemd", "")
        .with("/etc/systemd/system/strongswan.service", &CHARON.replace("=/usr", "=sealane run -- /usr"));
    assert!(machine.findings().contains(&(Id::Configuration, Level::Unseen)));
}

#[test]
fn units_under_sealane() {
    let launched = CHARON.replace("=/usr", "=-/usr/local/bin/sealane run -- /usr");
    let machine = Machine::new("units")
        .with("/usr/sbin/charon-systemd", "")
        .with("/lib/systemd/system/vpn.service", &launched)
        .live(|live| live.daemon = RUNS);
    let todo = |id| (id, Level::NeedsDoing);
    // Order and notifications; and the kernel's ESP is not needed any more.
    assert_eq!(machine.findings(), [todo(Id::UnitStart), todo(Id::UnitStart), (Id::KernelOpen, Level::Note)]);
    assert_eq!(
        machine.finding(Id::KernelOpen).commands[0],
        "printf 'install %s /bin/false\\n' esp4 esp6 > /etc/modprobe.d/sealane-esp4.conf"
    );
    let sandbox = "[Service]\nRestrictAddressFamilies=AF_INET AF_UNIX\nPrivateNetwork=yes\nNotifyAccess=all\n\
                   [Unit]\nAfter=sealane.service\n";
    let machine = machine
        .with("/etc/systemd/system/vpn.service.d/sandbox.conf", sandbox)
        .with("/etc/modprobe.d/no-esp.conf", NO_ESP);
    assert_eq!(machine.findings(), [todo(Id::UnitSandbox), todo(Id::UnitSandbox)]);
    // A masked unit starts nothing, and so the program has none.
    std::os::unix::fs::symlink("/dev/null", machine.root.join("etc/systemd/system/vpn.service")).unwrap();
    assert_eq!(machine.findings(), [todo(Id::NotServed)]);
    assert_eq!(machine.finding(Id::NotServed).commands, ["/usr/local/bin/sealane run -- /usr/sbin/charon-systemd"]);
}

#[test]
fn af_alg() {
    let iwd = "[Service]\nExecStart=/usr/libexec/iwd -d\nRestrictAddressFamilies=AF_NETLINK AF_UNIX\n";
    let machine = Machine::new("iwd")
        .with("/usr/libexec/iwd", "")
        .with("/lib/systemd/system/iwd.service", iwd)
        .with("/usr/bin/kcapi-dgst", "")
        .with("/etc/modprobe.d/a.conf", "blacklist algif_hash\nblacklist af_alg\n");
    let findings =
        [(Id::NotServed, Level::NeedsDoing), (Id::BlacklistInVain, Level::NeedsDoing), (Id::NotServed, Level::Note)];
    assert_eq!(machine.findings(), findings);
    let finding = machine.finding(Id::NotServed);
    assert!(finding.text.contains("af_alg is blocked by /etc/modprobe.d/a.conf"), "{finding:?}");
    assert_eq!(finding.commands[0], "/usr/local/bin/sealane adopt iwd.service");
    let text = "[Service]\nExecStart=\nExecStart=/usr/local/bin/sealane run -- /usr/libexec/iwd -d\n\
                RestrictAddressFamilies=AF_ALG\n";
    assert_eq!(machine.drop_in("iwd.service").unwrap().text, text);
    // The file of higher rank hides the other one; and what is loaded stays so.
    let machine = machine
        .with("/run/modprobe.d/b.conf", "install algif_hash /bin/true\n")
        .with("/usr/lib/modprobe.d/b.conf", "install tun /bin/false\n")
        .with("/etc/modprobe.d/a.conf", "")
        .with("/proc/modules", "algif_hash 16384 0 - Live 0x0\n");
    assert_eq!(machine.findings(), [(Id::StillLoaded, Level::NeedsDoing)]);
    assert_eq!(machine.state("tun"), "a module");
    let machine = machine.with("/proc/sys/crypto/af_alg_restrict", "2\n").with("/proc/modules", "");
    assert!(machine.finding(Id::NotServed).text.contains("af_alg_restrict"), "{:?}", machine.report());
}

#[test]
fn tcp_ao() {
    let machine = Machine::new("bird")
        .with("/usr/sbin/bird", "")
        .with("/lib/systemd/system/bird.service", "[Service]\nExecStart=/usr/sbin/bird -f -u $USER\n")
        .with("/usr/lib/frr/bgpd", "")
        .live(|live| live.tcp_ao = Some(false));
    assert_eq!(machine.findings(), [(Id::NotServed, Level::Note); 2]);
    let text = "[Service]\nExecStart=\nExecStart=/usr/local/bin/sealane run --tcp-ao -- /usr/sbin/bird -f -u $USER\n";
    assert_eq!(machine.drop_in("bird.service").unwrap().text, text);
    let machine = machine
        .with("/lib/systemd/system/frr.service", "[Service]\nExecStart=/usr/lib/frr/frrinit.sh start\n")
        .with("/lib/systemd/system/bird@.service", "[Service]\nExecStart=@/usr/sbin/bird bird-%i -f\n");
    assert_eq!(machine.drop_in("frr.service"), Err(NoDropIn::Peers));
    assert_eq!(machine.drop_in("bird@.service"), Err(NoDropIn::Renamed));
    assert_eq!(machine.drop_in("nothing.service"), Err(NoDropIn::Unknown));
    // A kernel that has it serves them.
    assert_eq!(machine.live(|live| live.tcp_ao = Some(true)).findings(), []);
}

/// Peers of TCP-AO whose keys are a keeper's, with this answer of its.
fn with_keeper(live: &mut Live, socket: &str, seen: Seen) {
    live.config = Configuration::Good { ipsec: false, gateways: false, tcp_ao: true };
    live.daemon = RUNS;
    live.keeper = Some(Keeper { socket: socket.into(), seen });
}

/// The answer of a keeper that had time for all keys.
fn answers(lacks: Vec<LackingKey>) -> Seen {
    Seen::Answers { lacks, not_asked: 0 }
}

/// Runs the commands of a finding about units that write files.
fn obey(machine: &Machine, finding: &Finding) {
    let units = "/etc/systemd/system";
    for command in finding.commands.iter().filter(|command| !command.starts_with("systemctl")) {
        let command = command.replace(units, &format!("{}{units}", machine.root.display()));
        assert!(Command::new("sh").arg("-c").arg(&command).status().unwrap().success(), "{command}");
    }
}

const DROP_IN: &str = "/etc/systemd/system/sealane.service.d/keeper.conf";
const USUAL: &str = "/run/sealane-keeper/socket";
const SHIPPED: &str = include_str!("../../../../etc/sealane.service");

#[test]
fn the_unit_of_the_daemon_has_to_see_the_keeper_and_to_come_after_it() {
    let machine = Machine::new("keeper-unit")
        .with("/usr/local/lib/systemd/system/sealane.service", SHIPPED)
        .with("/usr/local/lib/systemd/system/sealane-keeper.service", "[Service]\nType=notify\n")
        .live(|live| with_keeper(live, USUAL, answers(Vec::new())));
    assert_eq!(machine.findings(), [(Id::Keeper, Level::NeedsDoing)]);
    let finding = machine.finding(Id::Keeper);
    let says = "does not start after sealane-keeper.service and does not see /run/sealane-keeper";
    assert!(finding.text.ends_with(says), "{finding:?}");
    // The commands make it well, in the words of the guide.
    obey(&machine, &finding);
    assert_eq!(machine.findings(), []);
    let written = fs::read_to_string(machine.root.join(DROP_IN.trim_start_matches('/'))).unwrap();
    let guide = include_str!("../../../../docs/tcp-ao.md");
    assert!(guide.contains(&format!("keeper.conf <<'END'\n{}END\n", written.trim_start())), "{written}");
    // Nothing hides what is elsewhere.
    let machine = machine.live(|live| with_keeper(live, "/srv/keeper/socket", answers(Vec::new())));
    assert_eq!(machine.findings(), []);
}

#[test]
fn lines_of_a_drop_in_are_added_to_those_that_are_there() {
    let after = "[Unit]\nAfter=sealane-keeper.service";
    let bind = "[Service]\nBindReadOnlyPaths=-/run/sealane-keeper\nEnvironment=OF=administrator";
    for (name, there) in [("keeper-after", after), ("keeper-bind", bind)] {
        let machine = Machine::new(name)
            .with("/usr/local/lib/systemd/system/sealane.service", SHIPPED)
            .with("/usr/local/lib/systemd/system/sealane-keeper.service", "[Service]\nType=notify\n")
            // Its last line does not end.
            .with(DROP_IN, there)
            .live(|live| with_keeper(live, USUAL, answers(Vec::new())));
        obey(&machine, &machine.finding(Id::Keeper));
        assert_eq!(machine.findings(), [], "{name}");
        let now = fs::read_to_string(machine.root.join(DROP_IN.trim_start_matches('/'))).unwrap();
        assert!(now.starts_with(&format!("{there}\n")), "{now}");
    }
}

#[test]
fn no_command_shows_the_daemon_another_folder() {
    let mut machine = Machine::new("keeper-open").with("/usr/local/lib/systemd/system/sealane.service", SHIPPED);
    // All of /run, a folder of which the unit shows parts, folders of others, and those of users, who could put a link there.
    for (socket, folder) in [
        ("/run/keeper.sock", "/run"),
        ("/run/x/../keeper.sock", "/run"),
        ("/var/run/keeper.sock", "/run"),
        ("/run/other/socket", "/run/other"),
        ("/run/o'th er/socket", "/run/o'th er"),
        ("/run/lock/keeper/socket", "/run/lock/keeper"),
        ("/run/dbus/x", "/run/dbus"),
        ("/tmp/own/socket", "/tmp/own"),
        ("/root/keeper/socket", "/root/keeper"),
        ("/run/user/1000/keeper/socket", "/run/user/1000/keeper"),
    ] {
        machine = machine.live(|live| with_keeper(live, socket, answers(Vec::new())));
        assert_eq!(machine.findings(), [(Id::Keeper, Level::NeedsDoing)], "{socket}");
        let finding = machine.finding(Id::Keeper);
        let says = format!("does not see {folder}: a BindReadOnlyPaths= of it");
        assert!(finding.commands.is_empty() && finding.text.contains(&says), "{finding:?}");
    }
}

#[test]
fn a_keeper_has_to_answer_and_to_let_the_daemon_use_its_keys() {
    let silent = || Seen::Silent("keeper at /run/sealane-keeper/socket: No such file or directory".into());
    let machine = Machine::new("keeper").live(|live| with_keeper(live, USUAL, silent()));
    assert_eq!(machine.findings(), [(Id::Keeper, Level::NeedsDoing)]);
    let commands = |machine: &Machine| machine.finding(Id::Keeper).commands;
    assert_eq!(commands(&machine), ["/usr/local/bin/sealane keeper --config /etc/sealane/keeper.toml"]);
    let machine = machine.with("/usr/lib/systemd/system/sealane-keeper.service", "[Service]\nType=notify\n");
    assert_eq!(commands(&machine), ["systemctl enable --now sealane-keeper.service"]);
    let machine = machine.with("/sys/fs/cgroup/system.slice/sealane-keeper.service", "");
    assert_eq!(commands(&machine), ["systemctl status sealane-keeper.service"]);

    let key = |name: &str, is_unknown| LackingKey {
        name: name.into(),
        algorithm: "hmac(sha256)".into(),
        is_unknown,
        why: "it says no".into(),
    };
    let machine = machine.live(|live| with_keeper(live, USUAL, answers(vec![key("cut", false), key("gone", true)])));
    assert_eq!(machine.findings(), [(Id::Keeper, Level::NeedsDoing); 2]);
    let report = machine.report();
    let [cut, gone] = report.findings.as_slice() else { panic!("{report:?}") };
    assert!(cut.text.contains("'cut'") && cut.text.ends_with("it says no"), "{cut:?}");
    assert_eq!(cut.commands, ["/usr/local/bin/sealane key show cut"]);
    let import = "/usr/local/bin/sealane key import gone --algorithm 'hmac(sha256)' --uses mac --user 0 --file SECRET";
    assert_eq!(gone.commands, ["/usr/local/bin/sealane key list", import]);
    let machine = machine.live(|live| with_keeper(live, "/run/a b", answers(vec![key("cut", false)])));
    assert_eq!(commands(&machine), ["/usr/local/bin/sealane key show cut --socket '/run/a b'"]);
    // Many are not told of one by one.
    let many = (0..1000).map(|n| key(&format!("k{n}"), false)).collect();
    let machine = machine.live(|live| with_keeper(live, USUAL, answers(many)));
    assert_eq!(machine.findings().len(), 9);
    // One that serves another socket is somebody's, and one that was slow has not said that all is well.
    let machine = machine.live(|live| with_keeper(live, "/run/other/socket", silent()));
    assert_eq!(commands(&machine), [""; 0]);
    let machine = machine.live(|live| with_keeper(live, USUAL, Seen::Answers { lacks: Vec::new(), not_asked: 3 }));
    assert_eq!(machine.findings(), [(Id::Keeper, Level::Unseen)]);
    assert!(machine.finding(Id::Keeper).text.contains("of 3 keys"), "{:?}", machine.report());
    // The keeper is well, and the daemon does not come to it, or did not a moment ago.
    let mut machine = machine.live(|live| with_keeper(live, USUAL, answers(Vec::new())));
    assert_eq!(machine.findings(), []);
    machine.live.daemon = Daemon::Runs { ipsec: false, lacks: Lacks::Keys };
    assert_eq!(commands(&machine), ["sealane tcp-ao show", "systemctl restart sealane.service"]);
    machine.live.daemon = Daemon::Runs { ipsec: false, lacks: Lacks::Derivations };
    assert_eq!(machine.findings(), [(Id::Keeper, Level::Note)]);
    assert_eq!(commands(&machine), ["sealane tcp-ao show"]);
    let words = include_str!("../../tcp-ao/src/configured.rs");
    assert!(words.contains(&format!("format!(\"{}{{why}}\")", Lacks::NOT_FOUND)), "the daemon has other words");
    // Only root is told.
    let machine = machine.live(|live| with_keeper(live, USUAL, Seen::OtherUser));
    assert_eq!(machine.findings(), [(Id::Keeper, Level::Unseen)]);
}

#[test]
fn what_ipsec_needs() {
    let machine = Machine::new("needs")
        .with("/etc/modprobe.d/tun.conf", "install tun /bin/false\n")
        .with("/etc/sysctl.d/10.conf", "net.ipv4.conf.*.rp_filter=1\n")
        .with("/proc/sys/net/ipv4/ip_forward", "0\n")
        .with("/proc/net/protocols", "TCP 1\n")
        .with("/proc/sys/kernel/osrelease", "6.1.0\n")
        .with("/lib/modules/6.1.0/modules.dep", FILES)
        .with("/lib/modules/6.1.0/modules.builtin", "")
        .with("/run/systemd/netif/state", "")
        .with("/proc/sys/kernel/seccomp/actions_avail", "errno\n")
        .live(|live| {
            live.config = Configuration::Good { ipsec: true, gateways: true, tcp_ao: false };
            live.daemon = RUNS;
            live.is_filtered = true;
            live.calibration = Ok(Origin::Shipped("avx2"));
        });
    fs::remove_file(machine.root.join("dev/net/tun")).unwrap();
    let (todo, note) = (|id| (id, Level::NeedsDoing), |id| (id, Level::Note));
    let findings = [
        todo(Id::Kernel),
        todo(Id::TunDevice),
        todo(Id::AfXdp),
        todo(Id::Forwarding),
        todo(Id::UserNotification),
        note(Id::TableOwner),
        note(Id::RpFilter),
        note(Id::Networkd),
        note(Id::SeccompFilter),
        note(Id::Calibration),
    ];
    assert_eq!(machine.findings(), findings);
    // The commands make these two well.
    for id in [Id::RpFilter, Id::Networkd] {
        for command in machine.finding(id).commands.iter().filter(|command| !command.starts_with("systemctl")) {
            let command = command.replace("/etc/", &format!("{}/etc/", machine.root.display()));
            assert!(Command::new("sh").arg("-c").arg(&command).status().unwrap().success(), "{command}");
        }
    }
    let left: Vec<_> = findings.into_iter().filter(|(id, _)| ![Id::RpFilter, Id::Networkd].contains(id)).collect();
    assert_eq!(machine.findings(), left);
    // Nobody wants IPsec: none of it matters.
    let machine = machine.live(|live| live.config = Configuration::Absent);
    assert_eq!(machine.findings(), [note(Id::UserNotification), note(Id::SeccompFilter), note(Id::Calibration)]);
}

#[test]
fn a_kernel_without_files_of_modules() {
    let machine = Machine::new("container").with("/usr/sbin/charon-systemd", "");
    fs::remove_dir_all(machine.root.join("lib/modules")).unwrap();
    // Nothing tells what there is.
    assert_eq!(machine.findings(), [(Id::NotServed, Level::Unseen)]);
    let machine = machine.with("/proc/config", "CONFIG_XFRM_USER=y\n# CONFIG_INET_ESP is not set\n");
    let plain = fs::File::open(machine.root.join("proc/config")).unwrap();
    let packed = fs::File::create(machine.root.join("proc/config.gz")).unwrap();
    let gzip = Command::new("gzip").arg("-c").stdin(Stdio::from(plain)).stdout(Stdio::from(packed)).status();
    assert!(gzip.unwrap().success());
    assert_eq!(machine.state("xfrm_user"), "built in");
    assert!(machine.finding(Id::NotServed).text.contains("esp4 is missing"), "{:?}", machine.report());
    // A file that is not what it should be is told, and nothing is concluded from it.
    let machine = machine.with("/proc/config.gz", "no gzip");
    assert_eq!(machine.findings(), [(Id::NotServed, Level::Unseen), (Id::UnreadFile, Level::Unseen)]);
}

#[test]
fn a_machine_without_proc_cannot_be_looked_at() {
    let machine = Machine::new("nothing");
    assert!(Facts::gather(Path::new("/nonexistent"), machine.live.clone()).is_err());
}
