//! A device of the kernel's, inside a kernel that has ESP: the test boots one, with itself as its program.

use super::*;
use crate::device::running::DeviceContext;
use crate::tests::{TUNNEL, attribute, policy, state};
use sealane_abi::Caller;
use sealane_abi::netlink::Messages;
use sealane_abi::xfrm::{Body, XfrmMessage};
use sealane_engine_xfrm::{Sender, Setup, Xfrm};
use sealane_ipsec_data::Settings;
use sealane_sys::netns::Netns;
use sealane_sys::testing;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

const TEST: &str = "device::kernel::tests::a_kernel_has_states_and_policies_of_ours";

#[test]
fn with_a_kernel_that_has_esp() {
    let kernels = std::env::var_os("SEALANE_KERNELS").map(PathBuf::from);
    let shared = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/kernel");
    let boot = kernels.unwrap_or_else(shared).join("boot");
    if !boot.exists() {
        return testing::skip("xfrm::device::kernel", &format!("there is no {}", boot.display()));
    }
    let us = std::env::current_exe().expect("a path");
    let mut command = Command::new(boot);
    command.args(["linux-7.3", "--", "env", "SEALANE_INSIDE=1"]).arg(us).args(["--exact", TEST, "--nocapture"]);
    let done = command.output().expect("it starts");
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&done.stderr));
}

/// A namespace with an engine and a device.
struct Here {
    netns: Netns,
    shared: Arc<Shared>,
    mirror: Arc<Mirror>,
    device: Kernel,
}

impl Here {
    fn open(netns: Netns, name: &str) -> Here {
        let setup = Setup {
            registry: Arc::new(sealane_drivers::system_registry().0),
            random: Box::new(|bytes: &mut [u8]| bytes.fill(7)),
            cpus: 1,
            numbers: None,
        };
        let shared = Shared::new(&netns, Xfrm::new(setup), Box::new(|_| {}), Arc::new(|| {}), Settings::default(), 0)
            .expect("sockets");
        let (shared, mirror) = (Arc::new(shared), Arc::<Mirror>::default());
        let waker = Arc::new(Waker::new().expect("a waker"));
        let place = DeviceContext { netns: &netns, shared: &shared, waker: &waker, mirror: &mirror, number: 0 };
        let mut device = Kernel::open(name, &place).expect("a device");
        let half = device.up().expect("the engine's half");
        shared.xfrm().add_device(device.ifindex() as i32, half);
        Here { netns, shared, mirror, device }
    }

    /// The engine's answer to a datagram, after its effects on the kernel's policies: errno and text.
    fn call(&self, datagram: &[u8]) -> (i32, String) {
        let from = Sender { caller: Caller { privileged: true }, ack: ACK, ..Sender::default() };
        let replies = self.shared.xfrm().call(datagram, from, self.shared.now());
        self.mirror.put(&self.shared.xfrm());
        self.mirror.remove_unwanted();
        let message = Messages::new(&replies.unicast[0]).next().expect("an answer");
        let text = sealane_abi::netlink::answer::text(&message).unwrap_or_default().to_owned();
        (-i32::from_ne_bytes(*message.payload.first_chunk().expect("an errno")), text)
    }

    /// Runs a shell command in the namespace, and returns its output.
    fn sh(&self, command: &str) -> String {
        sh(&self.netns, command)
    }

    fn offloaded(&self, datagram: &[u8], flags: u8) -> Vec<u8> {
        let mut bytes = datagram.to_vec();
        let index = self.device.ifindex().to_ne_bytes();
        attribute(&mut bytes, 28, &[&index[..], &[flags, 0, 0, 0]].concat());
        let len = (bytes.len() as u32).to_ne_bytes();
        bytes[..4].copy_from_slice(&len);
        bytes
    }
}

const ACK: sealane_abi::netlink::answer::AckOptions =
    sealane_abi::netlink::answer::AckOptions { cap: false, ext: true };
const INBOUND: u8 = 2;
const PACKET: u8 = 4;

fn sh(netns: &Netns, command: &str) -> String {
    let done = netns.run(|| Command::new("sh").args(["-ec", command]).output()).expect("a shell");
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{command}: {text}{}", String::from_utf8_lossy(&done.stderr));
    text
}

#[test]
fn a_kernel_has_states_and_policies_of_ours() {
    if std::env::var_os("SEALANE_INSIDE").is_none() {
        return testing::skip(TEST, "runs inside a kernel that another test boots");
    }
    let (a, b) = testing::pair(TEST).expect("namespaces");
    let outer: [IpAddr; 2] = ["10.77.0.1".parse().expect("v4"), "10.77.0.2".parse().expect("v4")];
    let inner: [IpAddr; 2] = ["10.79.1.1".parse().expect("v4"), "10.79.2.1".parse().expect("v4")];
    sh(&a, "ip addr add 10.79.1.1/32 dev lo; ip route add 10.79.2.1 dev a src 10.79.1.1");
    sh(&b, "ip addr add 10.79.2.1/32 dev lo; ip route add 10.79.1.1 dev b src 10.79.2.1");
    let here = Here::open(a, "a");
    let (out, inward) =
        (state(outer[0], outer[1], 0x1000, TUNNEL, false), state(outer[1], outer[0], 0x2000, TUNNEL, false));
    let ends = (outer[0], outer[1]);
    let policies = [
        policy(1, (inner[0], 32), (inner[1], 32), ends, TUNNEL),
        policy(0, (inner[1], 32), (inner[0], 32), (ends.1, ends.0), TUNNEL),
    ];

    // The kernel refuses, because a pair of veths cannot do it.
    let refused = here.call(&here.offloaded(&out, PACKET));
    assert_eq!(
        refused,
        (libc::EINVAL, "Device failed to offload this state".to_owned()),
        "an errno of the kernel's alone"
    );
    let refused = here.call(&here.offloaded(&policies[0], PACKET));
    assert_eq!(refused, (libc::EINVAL, "Policy offload is not supported".to_owned()));
    let counted = ipsec::KernelOffload { kernel_states: 0, kernel_policies: 0, refused: 2 };
    assert_eq!(here.device.status(), DeviceKind::Kernel(counted));
    assert_eq!(here.sh("ip xfrm state; ip xfrm policy"), "");
    // ESP in UDP goes on in software: the kernel is not asked.
    let in_udp = state(outer[0], outer[1], 0x3000, TUNNEL, true);
    assert_eq!(here.call(&here.offloaded(&in_udp, 0)).0, 0);
    assert_eq!(here.sh("ip xfrm state"), "");

    // In crypto offload it does without the card, and has the policies too.
    assert_eq!(here.call(&here.offloaded(&out, 0)).0, 0);
    assert_eq!(here.call(&policies[1]).0, 0);
    assert_eq!(here.sh("ip xfrm policy"), "", "there is no state of the kernel's for it");
    assert_eq!(here.call(&here.offloaded(&inward, INBOUND)).0, 0);
    assert_eq!(here.call(&policies[0]).0, 0);
    assert_eq!(here.sh("ip xfrm state | grep -c 'spi 0x'"), "2\n");
    assert_eq!(here.sh("ip xfrm policy | grep -c 'dir '"), "2\n");
    assert_eq!(here.call(&here.offloaded(&out, 0)).0, libc::EEXIST);
    assert_eq!(here.sh("ip xfrm state | grep -c 'spi 0x'"), "2\n", "what is there stays there");

    // Packets go between it and a kernel that knows nothing of us.
    let key = |spi: u32| (0..20u8).map(|i| format!("{:02x}", i ^ spi as u8)).collect::<String>();
    for (from, to, spi, dir) in [(0, 1, 0x1000, "in"), (1, 0, 0x2000, "out")] {
        sh(
            &b,
            &format!(
                "ip xfrm state add src {} dst {} proto esp spi {spi:#x} reqid 1 mode tunnel flag af-unspec \
                 aead 'rfc4106(gcm(aes))' 0x{} 128\n\
                 ip xfrm policy add dir {dir} src {} dst {} tmpl src {} dst {} proto esp reqid 1 mode tunnel",
                outer[from],
                outer[to],
                key(spi),
                inner[from],
                inner[to],
                outer[from],
                outer[to]
            ),
        );
    }
    here.sh("ping -c 3 -i 0.1 -W 2 10.79.2.1");
    let used: Vec<_> = {
        let mut xfrm = here.shared.xfrm();
        let half = xfrm.device_mut(here.device.ifindex() as i32).expect("a device");
        (0..32).filter_map(|key| half.counters(StateKey(key))).collect()
    };
    assert_eq!(used.len(), 2);
    assert!(used.iter().all(|(used, stat)| used.packets == 3 && *stat == SaStat::default()), "{used:?}");
    let esp = |last: u8, spi: u32| {
        [&[0x45, 0, 0, 28, 0, 0, 0, 0, 64, 50, 0, 0, 10, 77, 0, 3 - last, 10, 77, 0, last][..], &spi.to_be_bytes()]
            .concat()
    };
    assert!(here.shared.kernel_states.has(&esp(1, 0x2000)), "our own sockets leave it alone");
    assert!(!here.shared.kernel_states.has(&esp(1, 0x1000)) && !here.shared.kernel_states.has(&esp(2, 0x2000)));

    // The kernel reports its limits. Each is one state's: its clock counts whole seconds, so that a state whose
    // limits are a second apart may meet the hard one first.
    let add_limits = 16 + 96 + 32; // behind the header, `soft_add_expires_seconds` in `struct xfrm_lifetime_cfg`
    for (spi, limit) in [(0x4000, add_limits), (0x5000, add_limits + 8)] {
        let mut limited = state(outer[0], outer[1], spi, TUNNEL, false);
        limited[limit..][..8].copy_from_slice(&1u64.to_ne_bytes());
        assert_eq!(here.call(&here.offloaded(&limited, 0)).0, 0);
    }
    let start = Instant::now();
    let mut told = Vec::new();
    while told.len() < 2 {
        assert!(start.elapsed() < Duration::from_secs(20), "{} events", told.len());
        std::thread::sleep(Duration::from_millis(50));
        told.extend(here.shared.xfrm().device_events());
    }
    let limit = |notice: &Notice| match XfrmMessage::decode(&Messages::new(&notice.bytes).next()?).ok()?.body {
        Body::Expire(expire) => Some((expire.state.id.spi.get(), expire.hard)),
        _ => None,
    };
    let mut told: Vec<_> = told.iter().filter_map(limit).collect();
    told.sort_unstable();
    assert_eq!(told, [(0x4000, 0), (0x5000, 1)]);
    assert_eq!(here.sh("ip xfrm state | grep -c 'spi 0x'"), "3\n", "the one that expired is gone");

    // All of it goes with the device.
    here.shared.xfrm().device_down(here.device.ifindex() as i32);
    assert_eq!(here.sh("ip xfrm state"), "");
    assert_eq!(here.sh("ip xfrm policy | grep -c 'dir '"), "2\n", "until the rules are ours again");
    assert!(here.mirror.has_changed());
    assert!(here.mirror.put(&here.shared.xfrm()).is_empty());
    here.mirror.remove_unwanted();
    assert_eq!(here.sh("ip xfrm policy"), "");
    assert!(!here.shared.kernel_states.has(&esp(1, 0x2000)));
}
