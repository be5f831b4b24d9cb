use super::*;
use crate::socket::tests::example;
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

/// One sample: name, labels, value.
type Sample = (String, Vec<(String, String)>, f64);

fn is_name(text: &str, colons: bool) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || (colons && c == ':');
    text.chars().all(allowed) && text.starts_with(|c: char| !c.is_ascii_digit())
}

/// Reads the text format as its specification has it, strictly.
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
    let ends = [("local", "192.0.2.1:179"), ("remote", "192.0.2.2:40000")];
    assert_eq!(value(&samples, "sealane_tcp_ao_connection_current_send_id", &ends), 5.0);
    assert_eq!(value(&samples, "sealane_tcp_ao_connection_rnext_recv_id", &ends), 105.0);
    let key = [ends[0], ends[1], ("send_id", "6"), ("recv_id", "106"), ("result", "bad")];
    assert_eq!(value(&samples, "sealane_tcp_ao_connection_key_segments_total", &key), 2.0);
    let dropped = "sealane_tcp_ao_connection_last_drop_timestamp_seconds";
    assert_eq!(value(&samples, dropped, &[("reason", "mac")]), 1_769_903_999.123);
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
    let addr = http::serve("127.0.0.1:0".parse().unwrap(), Arc::new(example)).unwrap();
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
