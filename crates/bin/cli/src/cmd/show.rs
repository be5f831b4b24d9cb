//! `sealane tcp-ao show`: shows the state of running instances.

use crate::answer::Answer;
use crate::args::Show;
use crate::render;
use anyhow::{Context, Result, bail, ensure};
use sealane_abi::admin::{Counters, DataPath, Drop, KeyStatus, MissingKey, Path, Query, Role, Snapshot, Socket};
use sealane_admin::socket as admin;
use sealane_config::{Prefix, rfc3339};
use std::io::{self, Write};

/// The number of keys that are shown for each socket without `--all`.
const SHORT: usize = 16;

pub(crate) fn show(args: &Show, out: &mut impl Write) -> Result<Answer> {
    let peer = args.peer.as_deref().map(Prefix::parse).transpose().map_err(anyhow::Error::msg)?;
    let mut instances = admin::instances().context("cannot list the running instances")?;
    instances.retain(|i| args.pid.is_none_or(|pid| pid == i.pid));
    if args.metrics {
        return metrics(&instances, out);
    }
    let (answers, silent) = ask_all(&instances, admin::snapshot);
    // IPsec is the matter of `sealane xfrm show`.
    let mut snapshots: Vec<Snapshot> =
        answers.into_iter().map(|snapshot| Snapshot { ipsec: Vec::new(), ..snapshot }).collect();
    if let Some(peer) = peer {
        snapshots.iter_mut().for_each(|s| only(s, &peer));
    }
    if args.json {
        render::json(out, &snapshots)?;
    } else {
        if snapshots.is_empty() && silent == 0 {
            eprintln!("sealane: no instance of this user runs");
        }
        for (i, snapshot) in snapshots.iter().enumerate() {
            if i > 0 {
                writeln!(out)?;
            }
            print(snapshot, args.all, out)?;
        }
    }
    all_answered(silent, &instances)?;
    let any = snapshots.iter().flat_map(|s| &s.namespaces).any(|n| !n.sockets.is_empty());
    Ok(if any { Answer::Yes } else { Answer::No })
}

/// Asks all of them. One that hangs, or is of another version, keeps nobody from seeing the others: it is named, and counted. One
/// that has just ended gives no answer.
fn ask_all<T>(
    instances: &[admin::Instance],
    ask: impl Fn(&admin::Instance) -> io::Result<Option<T>>,
) -> (Vec<T>, usize) {
    let (mut answers, mut silent) = (Vec::new(), 0);
    for instance in instances {
        match ask(instance) {
            Ok(answer) => answers.extend(answer),
            Err(e) => {
                silent += 1;
                eprintln!("sealane: {}: {e}", instance.path.display());
            }
        }
    }
    (answers, silent)
}

/// Fails if some of them were silent.
fn all_answered(silent: usize, instances: &[admin::Instance]) -> Result<()> {
    ensure!(silent == 0, "{silent} of {} instances gave no answer", instances.len());
    Ok(())
}

fn metrics(instances: &[admin::Instance], out: &mut impl Write) -> Result<Answer> {
    let (answers, silent) = ask_all(instances, |instance| admin::ask(instance, Query::Metrics));
    match &answers[..] {
        [] => {
            all_answered(silent, instances)?;
            eprintln!("sealane: no instance of this user runs");
            Ok(Answer::No)
        }
        [one] => {
            out.write_all(one.as_bytes())?;
            all_answered(silent, instances)?;
            Ok(Answer::Yes)
        }
        several => bail!("{} instances are running: select one with --pid", several.len()),
    }
}

/// Removes the sockets that have neither a peer in `peer` nor, for listeners, a key for one.
fn only(snapshot: &mut Snapshot, peer: &Prefix) {
    for namespace in &mut snapshot.namespaces {
        namespace.sockets.retain(|socket| {
            let is_for = |key: &KeyStatus| Prefix::parse(&key.peer).is_ok_and(|p| p.overlaps(peer));
            socket.remote.map_or_else(|| socket.keys.iter().any(is_for), |r| peer.contains(r.ip().to_canonical()))
        });
    }
}

fn counters(c: &Counters) -> String {
    format!(
        "good {}, bad {}, key not found {}, required {}, ICMP ignored {}",
        c.good, c.bad, c.key_not_found, c.required, c.dropped_icmps
    )
}

fn print(snapshot: &Snapshot, all: bool, out: &mut impl Write) -> Result<()> {
    let what = match snapshot.role {
        Role::Run => format!("sealane run {}", snapshot.program),
        Role::Daemon => "sealane daemon".to_owned(),
    };
    writeln!(out, "{what} (pid {}) since {}", snapshot.pid, rfc3339(snapshot.started_s))?;
    for namespace in &snapshot.namespaces {
        let name = namespace.name.as_deref().map_or_else(String::new, |n| format!(" {n}"));
        writeln!(out, "network namespace{name} {}: {}", namespace.inode, counters(&namespace.counters))?;
        if !namespace.drops.is_empty() {
            let drops: Vec<String> = namespace.drops.iter().map(|d| format!("{} {}", d.reason, d.count)).collect();
            writeln!(out, "  dropped: {}", drops.join(", "))?;
        }
        if let Some(drop) = &namespace.last_drop {
            print_drop(drop, "  ", out)?;
        }
        if let Some(path) = &namespace.path {
            print_path(path, out)?;
        }
        for MissingKey { peer, send_id, recv_id, key, why } in &namespace.missing_keys {
            writeln!(out, "  peer {peer}: SendID {send_id}, RecvID {recv_id}, key '{key}' of the keeper: {why}")?;
        }
        for socket in &namespace.sockets {
            print_socket(socket, all, out)?;
        }
    }
    Ok(())
}

fn print_path(path: &Path, out: &mut impl Write) -> Result<()> {
    match path.wanted {
        DataPath::Queue => writeln!(out, "  path: queues")?,
        DataPath::Auto => writeln!(
            out,
            "  path: queues, and for {} connections the fast one; by it {} segments in, {} out",
            path.connections, path.fast_in, path.fast_out
        )?,
    }
    for device in &path.not_fast {
        writeln!(out, "  path: queues for {}: {}", device.device, device.why)?;
    }
    let lost = [
        ("queues", path.queue_drops),
        ("the queue of new connections", path.newcomer_drops),
        ("rings", path.ring_drops),
        ("the kernel", path.refused),
    ];
    let lost: Vec<String> =
        lost.iter().filter(|(_, n)| *n > 0).map(|(at, n)| format!("{n} for which {at} had no room")).collect();
    if !lost.is_empty() {
        writeln!(out, "  path: lost {}", lost.join(", "))?;
    }
    Ok(())
}

fn print_socket(socket: &Socket, all: bool, out: &mut impl Write) -> Result<()> {
    let end = |addr: Option<std::net::SocketAddr>| addr.map_or("*".to_owned(), |a| a.to_string());
    write!(out, "\n  {} - {}  {}", end(socket.local), end(socket.remote), socket.state.name())?;
    if let Some(vrf) = socket.vrf {
        write!(out, ", VRF {}", socket.vrf_name.clone().unwrap_or_else(|| vrf.to_string()))?;
    }
    write!(out, "{}", socket.configured.as_ref().map_or(String::new(), |name| format!(", peer '{name}'")))?;
    if let Some(pid) = socket.pid {
        let program = socket.program.as_ref().map_or(String::new(), |name| format!(" ({name})"));
        write!(out, ", pid {pid}{program}")?;
    }
    let settings = [(socket.ao_required, ", unsigned never accepted"), (socket.accept_icmps, ", ICMP errors heeded")];
    for (_, text) in settings.iter().filter(|(on, _)| *on) {
        write!(out, "{text}")?;
    }
    writeln!(out, "\n    {}", counters(&socket.counters))?;
    let shown = if all { socket.keys.len() } else { SHORT };
    let mut table = render::Table::new(&[
        ("    key", render::Align::Left),
        ("send", render::Align::Right),
        ("recv", render::Align::Right),
        ("algorithm", render::Align::Left),
        ("MAC", render::Align::Right),
        ("options", render::Align::Left),
        ("good", render::Align::Right),
        ("bad", render::Align::Right),
        ("use", render::Align::Left),
    ]);
    for key in socket.keys.iter().take(shown) {
        let vrf = key.ifindex.map_or(String::new(), |i| format!(" dev {i}"));
        table.row(vec![
            format!("    {}{vrf}", key.peer),
            key.send_id.to_string(),
            key.recv_id.to_string(),
            key.algorithm.clone(),
            key.mac_len.to_string(),
            if key.exclude_options { "left out" } else { "covered" }.to_owned(),
            key.good.to_string(),
            key.bad.to_string(),
            match (key.current, key.rnext) {
                (true, true) => "current, rnext",
                (true, false) => "current",
                (false, true) => "rnext",
                (false, false) => "",
            }
            .to_owned(),
        ]);
    }
    table.print(out)?;
    if socket.keys.len() > shown {
        writeln!(out, "    and {} more keys (--all shows them)", socket.keys.len() - shown)?;
    }
    if let Some(drop) = &socket.last_drop {
        print_drop(drop, "    ", out)?;
    }
    Ok(())
}

fn print_drop(drop: &Drop, indent: &str, out: &mut impl Write) -> Result<()> {
    let key = drop.key_id.map_or(String::new(), |id| format!(", KeyID {id}"));
    let when = rfc3339(drop.at_ms.div_euclid(1000));
    writeln!(out, "{indent}last drop {when}, {} > {}{key}: {}", drop.source, drop.destination, drop.reason)?;
    writeln!(out, "{indent}  {}", drop.help)?;
    if let Some(hint) = &drop.hint {
        writeln!(out, "{indent}  hint: {hint}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_abi::admin::{AoNamespace, DropCount, Health, SocketState, VERSION};

    fn key(peer: &str, send_id: u8) -> KeyStatus {
        KeyStatus {
            peer: peer.into(),
            ifindex: None,
            send_id,
            recv_id: 100 + send_id % 100,
            algorithm: "hmac(sha256)".into(),
            mac_len: 16,
            exclude_options: send_id == 2,
            current: send_id == 1,
            rnext: send_id == 1,
            good: 7,
            bad: 0,
        }
    }

    fn socket(remote: Option<&str>, keys: Vec<KeyStatus>) -> Socket {
        Socket {
            cookie: 1,
            state: if remote.is_some() { SocketState::Established } else { SocketState::Listen },
            inode: Some(9),
            pid: Some(77),
            program: Some("bird".into()),
            local: Some("192.0.2.1:179".parse().unwrap()),
            remote: remote.map(|r| r.parse().unwrap()),
            vrf: None,
            vrf_name: None,
            configured: None,
            ao_required: remote.is_some(),
            accept_icmps: false,
            counters: Counters { good: 7, bad: 1, ..Counters::default() },
            current: None,
            rnext: None,
            keys,
            last_drop: remote.map(|r| Drop {
                at_ms: 1_769_903_999_123,
                source: r.parse().unwrap(),
                destination: "192.0.2.1:179".parse().unwrap(),
                key_id: Some(101),
                reason: "mac".into(),
                help: "the MAC does not match".into(),
                hint: Some("other options".into()),
            }),
        }
    }

    fn snapshot(sockets: Vec<Socket>) -> Snapshot {
        Snapshot {
            version: VERSION,
            release: "0".into(),
            role: Role::Run,
            pid: 4242,
            program: "bird".into(),
            started_s: 1_769_900_000,
            taken_s: 1_769_900_000,
            health: Health::default(),
            namespaces: vec![AoNamespace {
                inode: 4_026_531_840,
                name: Some("blue".into()),
                counters: Counters { good: 9, ..Counters::default() },
                drops: vec![DropCount { reason: "mac".into(), count: 1 }],
                last_drop: None,
                path: Some(Path { connections: 1, fast_in: 6, fast_out: 5, ..Path::default() }),
                sockets,
                missing_keys: vec![MissingKey {
                    peer: "edge".into(),
                    send_id: 3,
                    recv_id: 4,
                    key: "bgp".into(),
                    why: "not found: key 'bgp' is revoked".into(),
                }],
            }],
            ipsec: Vec::new(),
        }
    }

    #[test]
    fn a_connection_reads_well() {
        let mut out = Vec::new();
        let keys = vec![key("192.0.2.2", 2), key("192.0.2.0/24", 1)];
        print(&snapshot(vec![socket(Some("192.0.2.2:40000"), keys)]), false, &mut out).unwrap();
        let expected = "\
sealane run bird (pid 4242) since 2026-01-31T22:53:20Z
network namespace blue 4026531840: good 9, bad 0, key not found 0, required 0, ICMP ignored 0
  dropped: mac 1
  path: queues, and for 1 connections the fast one; by it 6 segments in, 5 out
  peer edge: SendID 3, RecvID 4, key 'bgp' of the keeper: not found: key 'bgp' is revoked

  192.0.2.1:179 - 192.0.2.2:40000  established, pid 77 (bird), unsigned never accepted
    good 7, bad 1, key not found 0, required 0, ICMP ignored 0
    key           send  recv  algorithm     MAC  options   good  bad  use
    192.0.2.2        2   102  hmac(sha256)   16  left out     7    0
    192.0.2.0/24     1   101  hmac(sha256)   16  covered      7    0  current, rnext
    last drop 2026-01-31T23:59:59Z, 192.0.2.2:40000 > 192.0.2.1:179, KeyID 101: mac
      the MAC does not match
      hint: other options
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn many_keys_are_cut_short_unless_asked_for() {
        let snapshot = snapshot(vec![socket(None, (0..20).map(|i| key("::/0", i)).collect())]);
        let text = |all| {
            let mut out = Vec::new();
            print(&snapshot, all, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(false).matches("hmac").count(), 16);
        assert!(text(false).ends_with("    and 4 more keys (--all shows them)\n"));
        assert_eq!(text(true).matches("hmac").count(), 20);
    }

    #[test]
    fn a_peer_selects_connections_and_listeners() {
        let all = || {
            snapshot(vec![
                socket(Some("192.0.2.2:5"), vec![key("0.0.0.0/0", 1)]),
                socket(None, vec![key("192.0.2.0/24", 1)]),
                socket(None, vec![key("2001:db8::/32", 1)]),
            ])
        };
        let count = |peer: &str| {
            let mut snapshot = all();
            only(&mut snapshot, &Prefix::parse(peer).unwrap());
            snapshot.namespaces[0].sockets.len()
        };
        assert_eq!(count("192.0.2.2"), 2);
        assert_eq!(count("192.0.2.3"), 1);
        assert_eq!(count("0.0.0.0/0"), 2);
        assert_eq!(count("::/0"), 1);
        assert_eq!(count("198.51.100.1"), 0);
    }
}
