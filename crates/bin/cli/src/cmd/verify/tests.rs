use super::*;
use crate::cmd::sign::signed_capture;
use serde_json::Value;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// A capture of segments signed by Linux 7.3 (conformance/vectors/tcp_ao_capture.py).
const KERNEL: &[u8] = include_bytes!("../../../../../../conformance/vectors/tcp-ao-linux.pcap");
const KERNEL_KEYS: &str = include_str!("../../../../../../conformance/vectors/tcp-ao-linux.toml");
const RFC_9235: &str = include_str!("../../../../../protocol/net-ao/vectors/rfc9235.json");

/// The keys of RFC 9235, which all have the same ids.
fn rfc_keys() -> String {
    let key = |algorithm, covered| {
        format!(
            "[[key]]\nsend-id = 61\nrecv-id = 84\nalgorithm = \"{algorithm}\"\nsecret = \"testvector\"\n\
             include-tcp-options = {covered}\nprefix = [\"172.27.28.29\", \"fd00::2\"]\n"
        )
    };
    ["hmac(sha1)", "cmac(aes128)"].iter().flat_map(|a| [key(a, true), key(a, false)]).collect()
}

/// The packets of RFC 9235 as a capture of raw IP.
fn rfc_capture() -> Vec<u8> {
    let file: Value = serde_json::from_str(RFC_9235).unwrap();
    let mut out = Vec::new();
    let mut writer = sealane_capture::Writer::new(&mut out, sealane_capture::LinkType::RAW).unwrap();
    for (i, vector) in file["vectors"].as_array().unwrap().iter().enumerate() {
        let hex = vector["ip_packet"].as_str().unwrap();
        let byte = |i: usize| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap();
        let packet: Vec<u8> = (0..hex.len() / 2).map(byte).collect();
        writer.write(i as i64 * 1_000_000_000, &packet).unwrap();
    }
    writer.finish().unwrap();
    out
}

/// A folder with a capture and its keys, which is removed on drop.
struct Files(PathBuf);

impl Files {
    fn new(name: &str, capture: &[u8], keys: &str) -> Files {
        let folder = std::env::temp_dir().join(format!("sealane-verify-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("capture"), capture).unwrap();
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(folder.join("keys"))
            .unwrap();
        file.write_all(keys.as_bytes()).unwrap();
        Files(folder)
    }

    fn args(&self, json: bool) -> Verify {
        Verify { capture: self.0.join("capture"), keys: self.0.join("keys"), isn: Vec::new(), failed: false, json }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(args: &Verify) -> (Answer, String) {
    let mut out = Vec::new();
    let answer = verify(args, &mut out).unwrap_or_else(|e| panic!("{e:#}"));
    (answer, String::from_utf8(out).unwrap())
}

fn run_json(args: &Verify) -> (Answer, Value) {
    let (answer, text) = run(args);
    (answer, serde_json::from_str(&text).unwrap())
}

#[test]
fn the_segments_of_rfc_9235_are_good() {
    let files = Files::new("rfc", &rfc_capture(), &rfc_keys());
    let (answer, said) = run(&files.args(false));
    assert_eq!(answer, Answer::Yes);
    assert!(
        said.ends_with("\n32 TCP segments: 32 good, 0 bad, 0 unchecked, 0 unprotected; 0 other frames\n"),
        "{said}"
    );
    assert!(said.contains("10.11.12.13:59863 > 172.27.28.29:179 [S] seq 4227574618"), "{said}");
}

#[test]
fn segments_of_linux_are_good_and_wrong_ones_are_explained() {
    let files = Files::new("kernel", KERNEL, KERNEL_KEYS);
    let (answer, said) = run_json(&files.args(true));
    assert_eq!(answer, Answer::No, "four SYNs are wrong on purpose");
    let segments = said["segments"].as_array().unwrap();
    assert_eq!(said["summary"]["segments"], segments.len());
    assert_eq!(said["summary"]["bad"], 4);
    assert_eq!(said["summary"]["good"], segments.len() - 4);
    let to = |port: u16| {
        let is = |s: &&Value| s["destination"].as_str().unwrap().ends_with(&format!(":{port}"));
        segments.iter().filter(is).collect::<Vec<_>>()
    };
    for port in 1701..=1705 {
        assert!(to(port).len() > 3 && to(port).iter().all(|s| s["verdict"] == "good"), "{port}");
    }
    // Both keys of the rotation were used, in both directions.
    for port in [":1705"] {
        for end in ["source", "destination"] {
            for id in [1, 2] {
                let used = |s: &&Value| s[end].as_str().unwrap().ends_with(port) && s["key"]["id"] == id;
                assert!(segments.iter().any(|s| used(&s)), "{end} key {id}");
            }
        }
    }
    let only = |port| {
        let [one] = to(port)[..] else { panic!("one SYN to {port}") };
        (one["reason"].as_str().unwrap(), one["hint"].as_str().unwrap_or("").to_owned())
    };
    assert_eq!(only(1706), ("mac", String::new()));
    let (reason, hint) = only(1707);
    assert!(reason == "mac" && hint.contains("without the TCP options"), "{hint}");
    let (reason, hint) = only(1708);
    assert!(reason == "key-not-found" && hint.contains("do not mirror each other"), "{hint}");
    assert_eq!(only(1709), ("required", String::new()));
}

#[test]
fn initial_sequence_numbers_can_be_given() {
    // The first connection of the capture without the three segments of its handshake.
    let mut reader = Reader::new(KERNEL).unwrap();
    let mut isns = Vec::new();
    let mut rest = Vec::new();
    let mut writer = sealane_capture::Writer::new(&mut rest, sealane_capture::LinkType::ETHERNET).unwrap();
    let mut ends = String::new();
    while let Some(frame) = reader.next_frame().unwrap() {
        let segment = Segment::parse(&frame.data[14..]).unwrap();
        match frame.number {
            1 | 2 => isns.push(segment.seq().to_string()),
            3 => ends = format!("{},{}", segment.source(), segment.destination()),
            5..=11 => writer.write(frame.time_ns, frame.data).unwrap(),
            _ => {}
        }
    }
    writer.finish().unwrap();
    let files = Files::new("middle", &rest, KERNEL_KEYS);
    let (answer, said) = run(&files.args(false));
    assert_eq!(answer, Answer::No);
    assert!(said.contains("0 good, 0 bad, 7 unchecked (isn-unknown 7)"), "{said}");
    assert!(said.contains("give the initial sequence numbers with --isn"), "{said}");
    let (answer, said) = run(&Verify { isn: vec![format!("{ends}={}", isns.join(","))], ..files.args(false) });
    assert_eq!(answer, Answer::Yes);
    assert!(said.contains("7 good, 0 bad, 0 unchecked,"), "{said}");
    let (client, server) = ends.split_once(',').unwrap();
    let keys = format!(
        "{KERNEL_KEYS}\n[[connection]]\nclient = \"{client}\"\nserver = \"{server}\"\nclient-isn = {}\nserver-isn = {}\n",
        isns[0], isns[1]
    );
    let files = Files::new("middle-told", &rest, &keys);
    assert_eq!(run(&files.args(false)).0, Answer::Yes);
}

#[test]
fn signed_captures_verify() {
    let files = Files::new("sign", KERNEL, KERNEL_KEYS);
    let mut watch = capture::watch(&files.args(false).keys, &[]).unwrap();
    let signed = signed_capture(KERNEL, &mut watch);
    // Correct segments stay unchanged, except that the last key of the rotation signs all of that connection.
    let files = Files::new("signed", &signed, KERNEL_KEYS);
    let (answer, said) = run_json(&files.args(true));
    assert_eq!(answer, Answer::Yes, "{}", said["summary"]);
    let ours: Vec<Vec<u8>> = frames(&signed);
    let theirs: Vec<Vec<u8>> = frames(KERNEL);
    let same = ours.iter().zip(&theirs).filter(|(a, b)| a == b).count();
    assert!(same > 40, "a kernel and we sign alike: {same} frames are equal");
}

/// The frames with their TCP checksums zeroed, because the loopback device does not compute them.
fn frames(capture: &[u8]) -> Vec<Vec<u8>> {
    let mut reader = Reader::new(capture).unwrap();
    let mut list = Vec::new();
    while let Some(frame) = reader.next_frame().unwrap() {
        let mut data = frame.data.to_vec();
        let at = 14 + Segment::parse(&data[14..]).unwrap().layout().tcp_at + 16;
        data[at..at + 2].fill(0);
        list.push(data);
    }
    list
}

#[test]
fn captures_that_end_early_are_verified_up_to_there() {
    let files = Files::new("cut", &KERNEL[..KERNEL.len() - 3], KERNEL_KEYS);
    let mut out = Vec::new();
    let error = verify(&files.args(true), &mut out).unwrap_err();
    assert!(error.to_string().contains("ends in the middle of a frame"), "{error:#}");
    let said: Value = serde_json::from_slice(&out).unwrap();
    assert!(said["summary"]["good"].as_u64().unwrap() > 40 && said["summary"]["ended"].is_string());
    let files = Files::new("none", b"text", KERNEL_KEYS);
    assert!(verify(&files.args(false), &mut Vec::new()).is_err());
    let files = Files::new("keyless", KERNEL, "");
    let error = verify(&files.args(false), &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("no key"), "{error:#}");
}

#[test]
fn failed_segments_only_and_foreign_connections() {
    let files = Files::new("failed", KERNEL, KERNEL_KEYS);
    let (_, said) = run(&Verify { failed: true, ..files.args(false) });
    assert_eq!(said.matches(" > ").count(), 4, "{said}");
    let (_, said) = run_json(&Verify { failed: true, ..files.args(true) });
    assert_eq!(said["segments"].as_array().unwrap().len(), 4);
    // The only key matches no connection: signed segments are unchecked, the others are unprotected.
    let keys = "[[key]]\nsend-id = 1\nrecv-id = 1\nalgorithm = \"hmac(md5)\"\nsecret = \"x\"\nprefix = \"192.0.2.1\"\n";
    let files = Files::new("others", KERNEL, keys);
    let (answer, said) = run_json(&files.args(true));
    assert_eq!(answer, Answer::No);
    assert_eq!((&said["summary"]["unchecked"], &said["summary"]["unprotected"]), (&68.into(), &1.into()));
    assert_eq!(said["segments"][0]["help"], "the keys file has no key for these addresses");
}
