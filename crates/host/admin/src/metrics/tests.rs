use super::*;
use crate::socket::tests::example;
use sealane_abi::admin::SocketState;
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

/// A sample: its name, labels and value.
type Sample = (String, Vec<(String, String)>, f64);

fn is_name(text: &str, colons: bool) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || (colons && c == ':');
    text.chars().all(allowed) && text.starts_with(|c: char| !c.is_ascii_digit())
}

/// Parses the text format strictly, by its specification.
fn parse(text: &str) -> Vec<Sample> {
    assert!(text.ends_with('\n'));
    let mut samples: Vec<Sample> = Vec::new();
    let mut families: HashSet<String> = HashSet::new();
    let mut family = String::new();
    let mut counter = false;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(is_name(name, true) && !help.is_empty() && !help.contains('\\'), "{line}");
            assert!(families.insert(name.to_owned()), "{name}: samples of a metric stand together");
            family = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, family, "TYPE follows HELP");
            assert!(["counter", "gauge"].contains(&kind));
            counter = kind == "counter";
            assert_eq!(counter, name.ends_with("_total"), "{name}");
        } else {
            let sample = parse_sample(line);
            assert_eq!(sample.0, family, "{line}");
            assert!(!counter || sample.2 >= 0.0);
            assert!(!samples.iter().any(|s| s.0 == sample.0 && s.1 == sample.1), "twice: {line}");
            samples.push(sample);
        }
    }
    samples
}

fn parse_sample(line: &str) -> Sample {
    let (name, mut rest) = line.split_at(line.find(['{', ' ']).unwrap());
    assert!(is_name(name, true), "{line}");
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"").unwrap();
            assert!(is_name(label, false), "{line}");
            let mut value = String::new();
            let mut chars = after.char_indices();
            let end = loop {
                match chars.next().expect("a closing quote") {
                    (i, '"') => break i,
                    (_, '\\') => value.push(match chars.next().unwrap().1 {
                        'n' => '\n',
                        c @ ('\\' | '"') => c,
                        c => panic!("\\{c} in {line}"),
                    }),
                    (_, c) => value.push(c),
                }
            };
            labels.push((label.to_owned(), value));
            rest = &after[end + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').unwrap();
    }
    let value = rest.strip_prefix(' ').unwrap().parse().unwrap_or_else(|_| panic!("{line}"));
    (name.to_owned(), labels, value)
}

fn value(samples: &[Sample], name: &str, labels: &[(&str, &str)]) -> f64 {
    let has = |s: &Sample| labels.iter().all(|(n, v)| s.1.iter().any(|(a, b)| a == n && b == v));
    let found: Vec<&Sample> = samples.iter().filter(|s| s.0 == name && has(s)).collect();
    assert_eq!(found.len(), 1, "{name} {labels:?}");
    found[0].2
}

#[test]
fn metrics_keep_to_the_format_and_say_what_the_snapshot_says() {
    let samples = parse(&render(&example()));
    let netns = ("netns", "blue \"x\"\\\n");
    assert_eq!(value(&samples, "sealane_info", &[("version", "0.1.0"), ("role", "run"), ("program", "bird")]), 1.0);
    assert_eq!(value(&samples, "sealane_start_time_seconds", &[]), 1_769_900_000.0);
    let segments = "sealane_tcp_ao_segments_total";
    for (result, count) in
        [("good", 40.0), ("bad", 2.0), ("key_not_found", 1.0), ("required", 3.0), ("dropped_icmp", 0.0)]
    {
        assert_eq!(value(&samples, segments, &[netns, ("result", result)]), count);
    }
    assert_eq!(value(&samples, "sealane_tcp_ao_drops_total", &[netns, ("reason", "mac")]), 2.0);
    assert_eq!(value(&samples, "sealane_tcp_ao_sockets", &[netns, ("state", "listen")]), 1.0);
    assert_eq!(value(&samples, "sealane_tcp_ao_sockets", &[netns, ("state", "time-wait")]), 0.0);
    assert_eq!(value(&samples, "sealane_tcp_ao_keys", &[("state", "listen")]), 2.0);
    assert_eq!(value(&samples, "sealane_tcp_ao_missing_keys", &[netns]), 1.0);
    let ends = [("local", "192.0.2.1:179"), ("remote", "192.0.2.2:40000")];
    assert_eq!(value(&samples, "sealane_tcp_ao_connection_current_send_id", &ends), 5.0);
    assert_eq!(value(&samples, "sealane_tcp_ao_connection_rnext_recv_id", &ends), 105.0);
    let key = [ends[0], ends[1], ("send_id", "6"), ("recv_id", "106"), ("result", "bad")];
    assert_eq!(value(&samples, "sealane_tcp_ao_connection_key_segments_total", &key), 2.0);
    let dropped = "sealane_tcp_ao_connection_last_drop_timestamp_seconds";
    assert_eq!(value(&samples, dropped, &[("reason", "mac")]), 1_769_903_999.123);
}

#[test]
fn ipsec_has_a_sample_for_each_of_its_numbers() {
    let samples = parse(&render(&example()));
    let netns = ("netns", "4026531841");
    let is = |name: &str, labels: &[(&str, &str)], count: f64| {
        let labels: Vec<_> = [netns].into_iter().chain(labels.iter().copied()).collect();
        assert_eq!(value(&samples, &format!("sealane_ipsec_{name}"), &labels), count, "{name} {labels:?}");
    };
    is("states", &[], 1.0);
    for (direction, count) in [("in", 2.0), ("out", 3.0), ("fwd", 4.0)] {
        is("policies", &[("direction", direction)], count);
    }
    is("packets_total", &[("direction", "out")], 5.0);
    is("bytes_total", &[("direction", "out")], 6.0);
    is("packets_total", &[("direction", "in")], 7.0);
    is("bytes_total", &[("direction", "in")], 8.0);
    is("xfrm_stat_total", &[("counter", "XfrmInError")], 0.0);
    is("xfrm_stat_total", &[("counter", "XfrmInNoStates")], 9.0);
    is("drops_total", &[("reason", "no-state")], 9.0);
    is("drops_total", &[("reason", "icv")], 0.0);
    is("sent_packets_total", &[], 10.0);
    is("fast_path_packets_total", &[("direction", "out")], 11.0);
    is("fast_path_packets_total", &[("direction", "in")], 13.0);
    is("path_lost_total", &[("at", "wire")], 12.0);
    is("path_lost_total", &[("at", "ring")], 14.0);
    is("path_lost_total", &[("at", "stack")], 15.0);
    is("clear_packets_total", &[], 16.0);
    is("held_packets_total", &[], 17.0);
    is("malformed_frames_total", &[], 18.0);
    is("lock_waits_total", &[], 19.0);
    is("port_swaps_total", &[], 68.0);
    is("workers", &[], 2.0);
    for (worker, counts) in [("0", [20.0, 21.0, 22.0, 23.0]), ("1", [24.0, 25.0, 26.0, 27.0])] {
        let worker = ("worker", worker);
        for (result, count) in ["read", "handed_over", "taken_over"].into_iter().zip(counts) {
            is("worker_frames_total", &[worker, ("result", result)], count);
        }
        is("worker_waits_total", &[worker], counts[3]);
    }
    for (device, kind, up) in
        [("inline0", "inline", 1.0), ("crypto0", "crypto", 1.0), ("packet0", "packet", 0.0), ("eth0", "kernel", 1.0)]
    {
        is("device_up", &[("device", device), ("kind", kind)], up);
    }
    let crypto = ("device", "crypto0");
    is("device_bursts_total", &[crypto], 30.0);
    is("device_packets_total", &[crypto, ("result", "processed")], 31.0);
    is("device_bytes_total", &[crypto], 32.0);
    is("device_busy_seconds_total", &[crypto], 33.000_000_001);
    is("device_packets_total", &[crypto, ("result", "no_key")], 34.0);
    is("device_waits_total", &[crypto], 35.0);
    for (result, count) in [("sealed", 36.0), ("opened", 37.0), ("dropped", 38.0), ("asked", 39.0)] {
        is("device_packets_total", &[("device", "packet0"), ("result", result)], count);
    }
    is("device_objects", &[("device", "eth0"), ("object", "states")], 40.0);
    is("device_objects", &[("device", "eth0"), ("object", "policies")], 41.0);
    is("device_refused_total", &[("device", "eth0")], 42.0);
    is("interface_up", &[("interface", "ipsec0"), ("if_id", "43")], 1.0);
    for (result, count) in example().ipsec[0].status.gateway.as_ref().unwrap().counters.rows() {
        is("gateway_packets_total", &[("result", result)], count as f64);
    }
    is("gateway_interface_up", &[("interface", "lan"), ("xdp", "native"), ("memory", "copied")], 1.0);
    is("gateway_interface_up", &[("interface", "wan"), ("xdp", "none")], 0.0);
    is("gateway_queues", &[("interface", "lan")], 60.0);
    is("gateway_threads", &[("interface", "lan")], 61.0);
    is("gateway_lost_total", &[("interface", "lan"), ("at", "ring")], 62.0);
    is("gateway_lost_total", &[("interface", "lan"), ("at", "kernel")], 63.0);
    is("controlled_rates", &[("feedback", "yes")], 2.0);
    is("controlled_rates", &[("feedback", "no")], 1.0);
}

#[test]
fn without_ipsec_there_is_no_metric_of_it() {
    let snapshot = Snapshot { ipsec: Vec::new(), ..example() };
    assert!(!render(&snapshot).contains("ipsec"));
}

#[test]
fn connections_with_the_same_ends_are_told_once() {
    let mut snapshot = example();
    let mut old = snapshot.namespaces[0].sockets[1].clone();
    old.state = SocketState::TimeWait;
    old.current = Some(99);
    snapshot.namespaces[0].sockets.insert(0, old);
    let samples = parse(&render(&snapshot));
    assert_eq!(value(&samples, "sealane_tcp_ao_connection_current_send_id", &[]), 5.0);
}

#[test]
fn http_has_one_page() {
    let addr = http::serve("127.0.0.1:0".parse().unwrap(), Arc::new(example)).unwrap().expect("a port is free");
    let ask = |request: &str| {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    };
    let (head, body) = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())));
    assert_eq!(body, render(&example()));
    assert_eq!(ask("GET /metrics?x=1 HTTP/1.0\n\n").1, body);
    assert_eq!(ask("HEAD /metrics HTTP/1.1\r\n\r\n").1, "");
    assert!(ask("GET / HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 404 "));
    assert!(ask("POST /metrics HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 405 "));
    assert!(ask("GET /metrics").0.starts_with("HTTP/1.1 400 "));
    assert!(ask(&"x".repeat(8 << 10)).0.starts_with("HTTP/1.1 400 "));
}
