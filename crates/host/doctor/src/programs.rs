//! Programs that are known to use what Sealane serves: their places, names as processes, and units.

use serde::Serialize;

/// The service that a program needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// NETLINK_XFRM: `[ipsec]` and `sealane run`.
    Ipsec,
    /// The socket options of TCP-AO: `[tcp-ao]` and `sealane run --tcp-ao`.
    TcpAo,
    /// Keys of the configuration (`[[peer]]`), and no launcher.
    Peers,
    /// AF_ALG: `sealane run`, without a daemon.
    AfAlg,
}

/// A program.
#[derive(Debug)]
pub(crate) struct Known {
    /// The name that people know.
    pub(crate) name: &'static str,
    pub(crate) need: Need,
    /// The paths that distributions give it; the first that exists is shown.
    pub(crate) paths: &'static [&'static str],
    /// `/proc/PID/comm`, of at most 15 bytes.
    pub(crate) comms: &'static [&'static str],
    pub(crate) units: &'static [&'static str],
}

/// All of them.
pub(crate) const KNOWN: &[Known] = &[
    Known {
        name: "strongSwan",
        need: Need::Ipsec,
        paths: &[
            "usr/sbin/charon-systemd",
            "usr/lib/ipsec/charon",
            "usr/libexec/ipsec/charon",
            "usr/libexec/strongswan/charon",
            "usr/lib/strongswan/charon",
        ],
        comms: &["charon", "charon-systemd"],
        units: &["strongswan.service", "strongswan-starter.service", "strongswan-swanctl.service"],
    },
    Known {
        name: "NetworkManager's strongSwan",
        need: Need::Ipsec,
        paths: &["usr/lib/ipsec/charon-nm", "usr/libexec/strongswan/charon-nm", "usr/libexec/ipsec/charon-nm"],
        comms: &["charon-nm"],
        // NetworkManager starts it, and its unit is that of much else.
        units: &[],
    },
    Known {
        name: "libreswan",
        need: Need::Ipsec,
        paths: &["usr/libexec/ipsec/pluto", "usr/lib/ipsec/pluto"],
        comms: &["pluto"],
        units: &["ipsec.service"],
    },
    Known { name: "BIRD", need: Need::TcpAo, paths: &["usr/sbin/bird"], comms: &["bird"], units: &["bird.service"] },
    Known {
        name: "FRR",
        need: Need::Peers,
        paths: &["usr/lib/frr/bgpd", "usr/libexec/frr/bgpd"],
        comms: &[],
        units: &["frr.service"],
    },
    Known {
        name: "GoBGP",
        need: Need::Peers,
        paths: &["usr/bin/gobgpd", "usr/sbin/gobgpd"],
        comms: &[],
        units: &["gobgpd.service"],
    },
    Known { name: "OpenBGPD", need: Need::Peers, paths: &["usr/sbin/bgpd"], comms: &[], units: &["openbgpd.service"] },
    Known {
        name: "iwd",
        need: Need::AfAlg,
        paths: &["usr/libexec/iwd", "usr/lib/iwd/iwd"],
        comms: &["iwd"],
        units: &["iwd.service"],
    },
    Known {
        name: "cryptsetup",
        need: Need::AfAlg,
        paths: &["usr/sbin/cryptsetup", "sbin/cryptsetup"],
        comms: &[],
        units: &[],
    },
    Known {
        name: "libkcapi",
        need: Need::AfAlg,
        paths: &["usr/bin/kcapi-dgst", "usr/bin/kcapi-enc"],
        comms: &[],
        units: &[],
    },
    Known {
        name: "OpenSSL's afalg engine",
        need: Need::AfAlg,
        paths: &[
            "usr/lib/x86_64-linux-gnu/engines-3/afalg.so",
            "usr/lib/aarch64-linux-gnu/engines-3/afalg.so",
            "usr/lib64/engines-3/afalg.so",
        ],
        comms: &[],
        units: &[],
    },
];

/// The interface that the program of a unit needs; `None` for a unit that is not in the table.
pub(crate) fn of_unit(unit: &str) -> Option<Need> {
    KNOWN.iter().find(|known| known.units.contains(&unit)).map(|known| known.need)
}
