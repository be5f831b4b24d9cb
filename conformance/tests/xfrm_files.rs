//! Files of /proc that tell of IPsec and set it, for dynamic and static programs: as on a kernel, and under `sealane run`,
//! where the kernel has the settings and where it does not.

use sealane_conformance::lab::Lab;
use sealane_conformance::skip::skip_without;
use sealane_conformance::target::{Target, built_programs, sealane};
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
const KERNEL: &str = "linux-7.3";

/// Runs the rest with a folder of settings that has none of XFRM's, as on a kernel without it.
const WITHOUT: &str = r#"mount -t tmpfs none /proc/sys/net/core && : >/proc/sys/net/core/somaxconn && exec "$@""#;

/// The folder with the programs: `files` and `files-static`.
fn built() -> &'static Path {
    built_programs(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("xfrm-files"))
}

#[test]
fn for_every_program_with_and_without_the_kernel_s() {
    let name = "xfrm_files::for_every_program_with_and_without_the_kernel_s";
    if skip_without(name, &[&Target::sealane("open"), &Target::kernel(KERNEL)]) {
        return;
    }
    let Some(mut lab) = Lab::new(name) else { return };
    let programs = built();
    let files = [
        "/proc/net/xfrm_stat",
        "/proc/self/net/xfrm_stat",
        "/proc/thread-self/net/xfrm_stat",
        "/proc/sys/net/core/xfrm_acq_expires=165\n",
        "/proc/sys/net/core/xfrm_aevent_etime=11\n",
        "/proc/sys/net/core/xfrm_aevent_rseqth=3\n",
        "/proc/sys/net/core/xfrm_larval_drop=0\n",
        "/proc/sys/net/core/xfrm_nothing",
        "/proc/net/netstats",
    ];
    let program = programs.join("files-static").to_string_lossy().into_owned();
    let as_root = [&[&*program], &files[..]].concat();
    let as_nobody = [&["setpriv", "--reuid=65534", "--bounding-set=-all", "--clear-groups"], &as_root[..]].concat();
    let kernel = Target::kernel(KERNEL);
    let [expected, refused] = [&as_root, &as_nobody].map(|argv| kernel.run(argv, LIMIT).unwrap().text);
    assert!(expected.contains("XfrmInNoStates          \t0\n") && expected.contains(": 165\n"), "{expected}");
    assert!(refused.contains("open to write with 1: EACCES"), "{refused}");

    let exe = sealane().to_string_lossy().into_owned();
    for (which, without) in [("with", false), ("without", true)] {
        let space = lab.space(which);
        let config = lab.file("sealane.toml", "[ipsec]\n");
        let runtime = format!("SEALANE_RUNTIME_DIR={}", lab.folder().join(which).display());
        let start = |argv: &[&str]| {
            let mask: &[&str] = if without { &["unshare", "-m", "sh", "-ec", WITHOUT, "sh"] } else { &[] };
            lab.start(&space, &[mask, &["env", &runtime, &exe], argv].concat())
        };
        let daemon = || {
            let mut daemon = start(&["daemon", "--config", &config]);
            daemon.expect("IPsec in 1 network namespaces", 1);
            daemon
        };
        let run = |argv: &[&str]| start(&[&["run", "--"], argv].concat()).finish(LIMIT);
        let reset = [("acq_expires", "30"), ("aevent_etime", "10"), ("aevent_rseqth", "2"), ("larval_drop", "1")]
            .map(|(name, value)| format!("echo {value} >/proc/sys/net/core/xfrm_{name}"))
            .join("; ");
        let first = daemon();
        for kind in ["files-static", "files"] {
            let program = programs.join(kind).to_string_lossy().into_owned();
            for (argv, expected) in [(&as_nobody, &refused), (&as_root, &expected)] {
                let argv: Vec<&str> =
                    argv.iter().map(|word| if word.contains("files-") { &*program } else { word }).collect();
                let (status, text) = run(&argv);
                for (at, (ours, theirs)) in text.lines().zip(expected.lines()).enumerate() {
                    assert_eq!(ours, theirs, "line {} of {kind}, {which} the kernel's", at + 1);
                }
                assert_eq!((status, text.len()), (Some(0), expected.len()));
            }
            assert_eq!(run(&["sh", "-ec", &reset]), (Some(0), String::new()));
        }

        // The daemon goes by them, and the next one too.
        let acquire = "echo 5 >/proc/sys/net/core/xfrm_acq_expires; \
                       ip xfrm state allocspi src 10.0.0.1 dst 10.0.0.2 proto esp >/dev/null; \
                       ip -s xfrm state; cat /proc/sys/net/core/xfrm_acq_expires";
        let (status, text) = run(&["sh", "-ec", acquire]);
        assert!(status == Some(0) && text.ends_with("\n5\n"), "{text}");
        assert!(text.contains("expire add: soft 0(sec), hard 5(sec)"), "{text}");
        first.signal(libc::SIGKILL);
        first.finish(LIMIT);
        let second = daemon();
        let (status, text) = run(&["sh", "-ec", "cat /proc/sys/net/core/xfrm_acq_expires"]);
        assert!(status == Some(0) && text == "5\n", "{text}");
        second.signal(libc::SIGTERM);
        second.finish(LIMIT);
    }
}
