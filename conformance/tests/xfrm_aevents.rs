//! Events of replay: what `ip xfrm monitor aevent` shows at a real kernel and at a daemon for the same packets.

use sealane_conformance::ipsec::{LIMIT, Tapped};

/// How often the same is tried.
const ATTEMPTS: usize = 8;
const ENDS: [&str; 2] = ["10.81.0.1", "10.81.0.2"];

/// States and policies between the ends' addresses, for ping. The key is another one each time: where one is added again a
/// daemon goes on counting.
fn commands(end: usize, flags: &str, key: usize) -> String {
    let mut script = "ip xfrm state flush\nip xfrm policy flush\n".to_owned();
    for (from, spi) in [(0, "0x1001"), (1, "0x2001")] {
        let (source, destination) = (ENDS[from], ENDS[1 - from]);
        let direction = if from == end { "out" } else { "in" };
        script += &format!(
            "ip xfrm state add src {source} dst {destination} proto esp spi {spi} reqid 1 mode transport \
             aead 'rfc4106(gcm(aes))' 0x{key:02x}0102030405060708090a0b0c0d0e0f10111213 128 {flags}\n\
             ip xfrm policy add dir {direction} src {source} dst {destination} proto icmp \
             tmpl proto esp reqid 1 mode transport\n"
        );
    }
    script
}

/// A monitor, which ends by itself.
fn watch(settings: &str) -> String {
    format!("{settings}; exec timeout 9 ip xfrm monitor aevent")
}

/// Steps with time between them: numbers too few to tell, then by time, then enough, then nothing until it is late.
fn steps(to: &str) -> String {
    let ping = |count: u32| format!("ping -q -c {count} -i 0.06 -W 5 {to}\n");
    format!("sleep 0.5\n{}sleep 1\n{}sleep 2.5\n{}sleep 0.5\n{}sleep 1.5\n", ping(1), ping(5), ping(1), ping(1))
}

/// What was shown of each state, the one that packets leave by first. Timers that are due at a time go off in any order.
fn shown(text: &str, own: usize) -> [Vec<String>; 2] {
    let mut events: [Vec<String>; 2] = Default::default();
    for event in text.split("Async event").skip(1) {
        let what = event.lines().next().unwrap_or_default().trim().to_owned();
        let spi = event.split("SPI ").nth(1).map(str::trim);
        match spi {
            Some("0x1001") => events[own].push(what),
            Some("0x2001") => events[1 - own].push(what),
            _ => panic!("{text}"),
        }
    }
    events
}

/// Runs one case; `thresh` packets and `tenths` of a second are the kernel's settings.
fn shown_as_linux_shows(test: &str, flags: &str, thresh: u32, tenths: u32) {
    let Some(Tapped { mut guest, host, lab }) = Tapped::new(test, "[ipsec]\n") else { return };
    let file = lab.folder().join("aevents").to_string_lossy().into_owned();
    let settings = format!(
        "echo {thresh} > /proc/sys/net/core/xfrm_aevent_rseqth; echo {tenths} > /proc/sys/net/core/xfrm_aevent_etime"
    );
    let mut key = 0;
    // What happens when is a matter of milliseconds, which a busy machine does not keep to: then it is done again.
    for attempt in 1.. {
        // Who pings sends first: what one shows then the other one shows when it does.
        let mut seen: [[[Vec<String>; 2]; 2]; 2] = Default::default();
        for pinger in 0..2 {
            key += 1;
            let here = host.begin(&lab, &["sh", "-c", &watch(&settings)]);
            guest.must(&format!("({}) > {file} 2>&1 &", watch(&settings)));
            // A daemon looks every second whether anybody listens.
            std::thread::sleep(std::time::Duration::from_millis(1500));
            host.ip(&lab, &commands(0, flags, key));
            guest.must(&commands(1, flags, key));
            if pinger == 0 {
                let (status, text) = lab.start(&host.space, &["sh", "-ec", &steps(ENDS[1])]).finish(LIMIT);
                assert_eq!(status, Some(0), "{text}");
            } else {
                guest.must(&steps(ENDS[0]));
            }
            let (_, here) = here.finish(LIMIT);
            let there = std::fs::read_to_string(&file).expect("a file");
            for (end, text) in [here, there].iter().enumerate() {
                seen[usize::from(end == pinger)][end] = shown(text, end);
            }
        }
        assert!(seen.iter().all(|[_, linux]| !linux[0].is_empty()), "{flags}: {seen:?}");
        if seen.iter().all(|[daemon, linux]| daemon == linux) {
            break;
        }
        assert!(attempt < ATTEMPTS, "of the pinged and of the pinger, daemon and kernel: {flags}: {seen:#?}");
    }
}

#[test]
fn of_a_window_in_the_old_way() {
    shown_as_linux_shows("xfrm_aevents::of_a_window_in_the_old_way", "replay-window 32", 2, 10);
}

#[test]
fn of_extended_numbers() {
    shown_as_linux_shows("xfrm_aevents::of_extended_numbers", "replay-window 64 flag esn", 3, 10);
}

#[test]
fn by_time_alone() {
    shown_as_linux_shows("xfrm_aevents::by_time_alone", "replay-window 64", 0, 10);
}

#[test]
fn of_no_window() {
    shown_as_linux_shows("xfrm_aevents::of_no_window", "replay-window 0", 3, 0);
}
