//! Captures: any file is read to its end, every segment gets a verdict, and a signed capture verifies.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_capture::{Reader, Writer};
use sealane_net_ao::alg::Algorithms;
use sealane_net_ao::mkt::{Mkt, MktSpec, Prefix};
use sealane_net_ao::observe::{Observer, Verdict, WatchKey};
use sealane_wire::tcp::Segment;
use std::sync::{Arc, LazyLock};

/// Limit of frames: more take time and find nothing new.
const MAX_FRAMES: usize = 48;

static ALGORITHMS: LazyLock<Arc<Algorithms>> = LazyLock::new(|| Arc::new(Algorithms::new(&sealane_fuzz::registry())));

static MKTS: LazyLock<Vec<Arc<Mkt>>> = LazyLock::new(|| {
    let mkt = |name, key: &[u8], send_id, recv_id, mac_len, exclude_options, peer| {
        let algorithm = ALGORITHMS.get(name).expect("a portable algorithm");
        let spec = MktSpec { algorithm, key, send_id, recv_id, mac_len, exclude_options, peer, ifindex: None };
        Arc::new(Mkt::new(&spec).expect("a good key"))
    };
    vec![
        mkt("hmac(sha1)", b"testvector", 61, 84, 12, false, Prefix::ANY_V4),
        mkt("cmac(aes128)", b"testvector", 61, 84, 12, true, Prefix::ANY_V6),
        mkt("hmac(sha1)", b"secret one", 1, 2, 12, false, Prefix::ANY_V4),
        mkt("hmac(sha256)", b"secret two", 10, 20, 16, true, Prefix::ANY_V6),
    ]
});

fn observer() -> Observer {
    let key = |mkt: &Arc<Mkt>| WatchKey {
        mkt: mkt.clone(),
        ports: Vec::new(),
        send: i64::MIN..i64::MAX,
        accept: i64::MIN..i64::MAX,
    };
    Observer::new(MKTS.iter().map(key).collect(), ALGORITHMS.clone())
}

fuzz_target!(|data: &[u8]| {
    let Ok(mut reader) = Reader::new(data) else { return };
    let (mut watcher, mut signer, mut checker) = (observer(), observer(), observer());
    let mut writer = Writer::new(Vec::new(), sealane_capture::LinkType::RAW).expect("memory");
    let mut out = Vec::new();
    for number in 1..=MAX_FRAMES {
        let Ok(Some(frame)) = reader.next_frame() else { break };
        assert_eq!(frame.number, number as u64);
        let Ok(at) = frame.ip_at() else { continue };
        let Ok(segment) = Segment::parse(&frame.data[at..]) else { continue };
        let now_s = frame.time_ns / 1_000_000_000;
        watcher.observe(&segment, now_s);
        if signer.sign(&segment, now_s, &mut out).is_ok() {
            let signed = Segment::parse(&out).expect("a signed segment is one");
            assert_eq!(signed.payload(), segment.payload());
            let seen = checker.observe(&signed, now_s);
            assert!(matches!(seen.verdict, Verdict::Good(_)), "{seen:?}");
            writer.write(frame.time_ns, &out).expect("memory");
        }
    }
});
