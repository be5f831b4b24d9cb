//! `sealane check`: explains a configuration, or lists its errors.

mod firewall;

use crate::answer::Answer;
use crate::args::Check;
use crate::render::{self, Align, Table};
use anyhow::{Context, Result};
use sealane_config::{Config, KeyChain, LoadError, Mistake, parse_time, rfc3339};
use serde::Serialize;
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Serialize)]
struct CheckReport {
    file: String,
    ok: bool,
    mistakes: Vec<JsonMistake>,
    warnings: Vec<String>,
    /// The time at which `preferred` and `accepted` of the keys apply.
    at: String,
    peers: Vec<PeerRow>,
    chains: Vec<ChainRow>,
    /// The network namespaces whose programs with TCP-AO are served; an empty name is the daemon's own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    programs: Vec<String>,
    /// Those that are found by their names.
    #[serde(skip_serializing_if = "Option::is_none")]
    programs_found: Option<FoundRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ipsec: Option<IpsecRow>,
}

/// Network namespaces that are found by their names.
#[derive(Serialize)]
struct FoundRow {
    patterns: Vec<String>,
    max_found: u32,
}

/// The section `[ipsec]`.
#[derive(Serialize)]
struct IpsecRow {
    /// The network namespaces; an empty name is the daemon's own.
    netns: Vec<String>,
    /// Patterns of the names of others.
    patterns: Vec<String>,
    max_found: u32,
    workers: u32,
    devices: usize,
    interfaces: usize,
    gateways: usize,
}

#[derive(Serialize)]
struct JsonMistake {
    line: usize,
    column: usize,
    what: String,
}

#[derive(Serialize)]
struct PeerRow {
    name: String,
    prefixes: Vec<String>,
    chain: String,
}

#[derive(Serialize)]
struct ChainRow {
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    description: String,
    keys: Vec<KeyRow>,
    next_change: Option<String>,
}

#[derive(Serialize)]
struct KeyRow {
    id: u64,
    send_id: u8,
    recv_id: u8,
    algorithm: String,
    mac_len: u8,
    include_tcp_options: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_len: Option<usize>,
    /// The name of a key of the keeper's.
    #[serde(skip_serializing_if = "Option::is_none")]
    keeper: Option<String>,
    /// Its version, if the configuration names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    keeper_version: Option<u32>,
    send: String,
    accept: String,
    /// Whether new connections send with it and ask the peer to use it.
    preferred: bool,
    accepted: bool,
}

pub(crate) fn check(args: &Check, out: &mut impl Write) -> Result<Answer> {
    match (&args.config, &args.firewall) {
        (Some(config), None) => configuration(config, args, out),
        (_, files) => firewall::firewall(files.as_deref().unwrap_or_default(), args.json, out),
    }
}

fn configuration(config: &Path, args: &Check, out: &mut impl Write) -> Result<Answer> {
    let now_s = match &args.at {
        Some(text) => parse_time(text).map_err(anyhow::Error::msg).context("--at")?,
        None => i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())?,
    };
    let file = config.display().to_string();
    let report = match Config::load(config) {
        Ok(config) => report(file, &config, now_s),
        Err(LoadError::Mistakes(_, list)) => refused(file, &list, now_s),
        Err(e) => return Err(e.into()),
    };
    if args.json {
        render::json(out, &report)?;
    } else {
        print(&report, out)?;
    }
    Ok(if report.ok { Answer::Yes } else { Answer::No })
}

fn refused(file: String, list: &[Mistake], now_s: i64) -> CheckReport {
    let json = |m: &Mistake| JsonMistake { line: m.line, column: m.column, what: m.what.clone() };
    CheckReport {
        file,
        ok: false,
        mistakes: list.iter().map(json).collect(),
        warnings: Vec::new(),
        at: rfc3339(now_s),
        peers: Vec::new(),
        chains: Vec::new(),
        programs: Vec::new(),
        programs_found: None,
        ipsec: None,
    }
}

fn report(file: String, config: &Config, now_s: i64) -> CheckReport {
    let peer = |p: &sealane_config::Peer| PeerRow {
        name: p.name.clone(),
        prefixes: p.prefixes.iter().map(ToString::to_string).collect(),
        chain: p.chain.name.clone(),
    };
    let names = |list: &[Option<String>]| list.iter().map(|name| name.clone().unwrap_or_default()).collect();
    CheckReport {
        file,
        ok: true,
        mistakes: Vec::new(),
        warnings: config.warnings(now_s),
        at: rfc3339(now_s),
        peers: config.peers().iter().map(peer).collect(),
        chains: config.chains.iter().map(|(chain, _)| chain_row(chain, now_s)).collect(),
        programs: names(&config.programs.netns),
        programs_found: (!config.programs.patterns.is_empty())
            .then(|| FoundRow { patterns: config.programs.patterns.clone(), max_found: config.programs.max_found }),
        ipsec: config.ipsec.as_ref().map(|ipsec| IpsecRow {
            netns: names(&ipsec.spaces.netns),
            patterns: ipsec.spaces.patterns.clone(),
            max_found: ipsec.spaces.max_found,
            workers: ipsec.workers,
            devices: ipsec.devices.len(),
            interfaces: ipsec.interfaces.len(),
            gateways: ipsec.gateways.len(),
        }),
    }
}

/// Prints in which network namespaces a service is.
fn print_namespaces(
    what: &str,
    netns: &[String],
    (patterns, max_found): (&[String], u32),
    out: &mut impl Write,
) -> Result<()> {
    let names = netns.iter().map(|name| if name.is_empty() { "the daemon's own" } else { name });
    let names = names.collect::<Vec<_>>().join(", ");
    let names = if names.is_empty() { names } else { format!(": {names}") };
    writeln!(out, "\n{what} in {} network namespaces{names}", netns.len())?;
    if !patterns.is_empty() {
        writeln!(out, "  in at most {max_found} more, by their names: {}", patterns.join(", "))?;
    }
    Ok(())
}

fn chain_row(chain: &KeyChain, now_s: i64) -> ChainRow {
    let keys = chain.keys.iter().enumerate().map(|(i, key)| KeyRow {
        id: key.id,
        send_id: key.send_id,
        recv_id: key.recv_id,
        algorithm: key.algorithm.clone(),
        mac_len: key.mac_len,
        include_tcp_options: !key.exclude_options,
        key_len: key.secret.known_len(),
        keeper: key.secret.kept().map(|(name, _)| name.to_owned()),
        keeper_version: key.secret.kept().and_then(|(_, version)| version),
        send: key.send.to_string(),
        accept: key.accept.to_string(),
        preferred: chain.preferred(now_s) == Some(i),
        accepted: chain.accepts(i, now_s),
    });
    ChainRow {
        name: chain.name.clone(),
        description: chain.description.clone(),
        keys: keys.collect(),
        next_change: chain.next_change_s(now_s).map(rfc3339),
    }
}

fn print(report: &CheckReport, out: &mut impl Write) -> Result<()> {
    for mistake in &report.mistakes {
        writeln!(out, "{}:{}:{}: {}", report.file, mistake.line, mistake.column, mistake.what)?;
    }
    if !report.ok {
        return Ok(());
    }
    for warning in &report.warnings {
        eprintln!("sealane: {}: warning: {warning}", report.file);
    }
    let keys: usize = report.chains.iter().map(|c| c.keys.len()).sum();
    let (peers, chains) = (report.peers.len(), report.chains.len());
    writeln!(out, "{}: good: {peers} peers, {chains} key chains, {keys} keys", report.file)?;
    let CheckReport { programs, programs_found, .. } = report;
    if !programs.is_empty() || programs_found.is_some() {
        let (patterns, most) = programs_found.as_ref().map_or((&[][..], 0), |row| (&row.patterns[..], row.max_found));
        print_namespaces("programs with TCP-AO", programs, (patterns, most), out)?;
    }
    if let Some(ipsec) = &report.ipsec {
        let IpsecRow { netns, patterns, max_found, workers, devices, interfaces, gateways } = ipsec;
        print_namespaces("IPsec", netns, (&patterns[..], *max_found), out)?;
        writeln!(
            out,
            "  workers: {workers}, offload devices: {devices}, xfrm interfaces: {interfaces}, gateways: {gateways}"
        )?;
    }
    for peer in &report.peers {
        writeln!(out, "\npeer '{}', {}: key chain '{}'", peer.name, peer.prefixes.join(", "), peer.chain)?;
    }
    for chain in &report.chains {
        let next = chain.next_change.as_ref().map_or(String::new(), |t| format!(", next change {t}"));
        writeln!(out, "\nkey chain '{}' at {}{next}", chain.name, report.at)?;
        let mut table = Table::new(&[
            ("  key", Align::Right),
            ("send", Align::Right),
            ("recv", Align::Right),
            ("algorithm", Align::Left),
            ("MAC", Align::Right),
            ("now", Align::Left),
            ("sent with", Align::Left),
            ("secret", Align::Left),
        ]);
        for key in &chain.keys {
            table.row(vec![
                key.id.to_string(),
                key.send_id.to_string(),
                key.recv_id.to_string(),
                key.algorithm.clone(),
                key.mac_len.to_string(),
                match (key.preferred, key.accepted) {
                    (true, _) => "in use",
                    (false, true) => "accepted",
                    (false, false) => "not used",
                }
                .to_owned(),
                key.send.clone(),
                match (&key.keeper, key.keeper_version) {
                    (None, _) => "in the daemon".to_owned(),
                    (Some(name), None) => format!("key '{name}' of the keeper"),
                    (Some(name), Some(version)) => format!("key '{name}' of the keeper, version {version}"),
                },
            ]);
        }
        table.print(out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_keeper_client::key::Name;
    use std::path::PathBuf;

    fn example() -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../etc/sealane.toml"))
    }

    /// Writes `text` to a file that only its owner can read; the modes of files in a checkout are arbitrary.
    fn private(name: &str, text: &str) -> PathBuf {
        use std::os::unix::fs::OpenOptionsExt;
        let path = std::env::temp_dir().join(format!("sealane-check-{name}-{}.toml", std::process::id()));
        let mut file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        path
    }

    fn run(config: PathBuf, at: &str, json: bool) -> (Answer, String) {
        let mut out = Vec::new();
        let args = Check { config: Some(config.clone()), firewall: None, at: Some(at.to_owned()), json };
        let answer = check(&args, &mut out).unwrap();
        std::fs::remove_file(&config).unwrap();
        (answer, String::from_utf8(out).unwrap())
    }

    #[test]
    fn the_example_is_good() {
        let text = std::fs::read_to_string(example()).unwrap();
        let (answer, said) = run(private("good", &text), "2026-06-25T00:00:00Z", false);
        assert_eq!(answer, Answer::Yes);
        assert!(said.contains(": good: 2 peers, 2 key chains, 3 keys\n"), "{said}");
        assert!(said.contains("peer 'route servers', 192.0.2.0/28, 2001:db8:100::/64: key chain 'exchange'"), "{said}");
        assert!(said.contains("at 2026-06-25T00:00:00Z, next change 2026-07-01T00:00:00Z"), "{said}");
        let rows: Vec<&str> = said.lines().filter(|l| l.contains("hmac(sha256)")).collect();
        assert!(rows[0].contains("accepted") && rows[1].contains("in use"), "{said}");
    }

    #[test]
    fn keys_of_the_keeper_are_named() {
        let key = |id: u8, secret: &str| {
            format!("[[peer.key]]\nsend-id = {id}\nrecv-id = {id}\nalgorithm = \"hmac(sha256)\"\nsecret = {secret}\n")
        };
        let keys = [key(1, "\"s\""), key(2, "{ keeper = \"bgp\" }"), key(3, "{ keeper = \"bgp\", version = 2 }")];
        let text = format!("[[peer]]\nname = \"p\"\nprefix = \"192.0.2.1\"\n{}", keys.concat());
        let (answer, said) = run(private("keeper", &text), "2026-06-25T00:00:00Z", false);
        assert_eq!(answer, Answer::Yes);
        let rows: Vec<&str> = said.lines().filter(|l| l.contains("hmac(sha256)")).map(str::trim_end).collect();
        let ends = ["in the daemon", "key 'bgp' of the keeper", "key 'bgp' of the keeper, version 2"];
        assert!(rows.iter().zip(ends).all(|(row, end)| row.ends_with(end)) && rows.len() == 3, "{said}");
        let bad = text.replace("keeper = \"bgp\" }", "keeper = \"b gp\" }");
        let (answer, said) = run(private("keeper-bad", &bad), "2026-06-25T00:00:00Z", false);
        assert!(answer == Answer::No && said.contains(":13:21: 'b gp' is no name of a key"), "{said}");
    }

    /// The configuration knows nothing of the keeper, and judges names by itself.
    #[test]
    fn a_configuration_takes_the_names_that_the_keeper_takes() {
        let longest = "k".repeat(64);
        let names =
            ["bgp", "Bgp-2_a.b", "7", &longest, &format!("{longest}k"), ".k", "-k", "_k", "a b", "a/b", "\u{e4}", ""];
        for name in names {
            let text = format!(
                "[[peer]]\nname = \"p\"\nprefix = \"192.0.2.1\"\n[[peer.key]]\nsend-id = 1\nrecv-id = 1\n\
                 algorithm = \"hmac(sha256)\"\nsecret = {{ keeper = \"{name}\" }}\n"
            );
            let (answer, said) = run(private("names", &text), "2026-06-25T00:00:00Z", false);
            assert_eq!(answer == Answer::Yes, Name::new(name).is_some(), "{name}: {said}");
        }
    }

    #[test]
    fn ipsec_is_summed_up() {
        let text = "[ipsec]\nnetns = [\"\", \"blue\"]\nworkers = 2\n\
                    [[ipsec.device]]\nname = \"sealane0\"\nkind = \"inline\"\n";
        let (answer, said) = run(private("ipsec", text), "2026-01-01T00:00:00Z", false);
        assert_eq!(answer, Answer::Yes);
        assert!(
            said.contains("\nIPsec in 2 network namespaces: the daemon's own, blue\n  workers: 2, offload devices: 1,"),
            "{said}"
        );
        let (_, said) = run(private("ipsec-json", text), "2026-01-01T00:00:00Z", true);
        let value: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert_eq!((&value["ipsec"]["netns"][1], &value["ipsec"]["devices"]), (&"blue".into(), &1.into()));
    }

    #[test]
    fn programs_are_summed_up() {
        let text = "[tcp-ao]\nnetns = [\"\", \"cust-*\", \"/run/docker/netns/*\"]\nmax-found = 9\n";
        let (answer, said) = run(private("programs", text), "2026-01-01T00:00:00Z", false);
        assert_eq!(answer, Answer::Yes);
        let wanted = "\nprograms with TCP-AO in 1 network namespaces: the daemon's own\n  \
                      in at most 9 more, by their names: cust-*, /run/docker/netns/*\n";
        assert!(said.contains(wanted), "{said}");
        let (_, said) = run(private("programs-json", text), "2026-01-01T00:00:00Z", true);
        let value: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert_eq!((&value["programs"][0], &value["programs_found"]["max_found"]), (&"".into(), &9.into()));
    }

    #[test]
    fn json_has_no_secrets() {
        let text = std::fs::read_to_string(example()).unwrap();
        let (answer, said) = run(private("json", &text), "2026-01-01T00:00:00Z", true);
        assert_eq!(answer, Answer::Yes);
        let value: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert_eq!(value["chains"][0]["keys"][0]["preferred"], true);
        assert_eq!(value["chains"][0]["keys"][0]["key_len"], 32);
        assert!(!said.contains("5ea1a4e0") && !said.to_lowercase().contains("secret"));
    }

    #[test]
    fn mistakes_are_reported_as_the_answer_no() {
        let path = private("bad", "[[peer]]\nprefix = \"x\"\n");
        let name = path.display().to_string();
        let (answer, said) = run(path, "2026-01-01T00:00:00Z", false);
        assert_eq!(answer, Answer::No);
        assert!(said.contains(&format!("{name}:2:10: 'x' is no address or prefix")), "{said}");
        let (answer, said) = run(private("bad-json", "x"), "2026-01-01T00:00:00Z", true);
        assert_eq!(answer, Answer::No);
        let value: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert_eq!((&value["ok"], &value["mistakes"][0]["line"]), (&false.into(), &1.into()));
    }

    #[test]
    fn an_unreadable_file_is_an_error() {
        for (config, at) in [("/nowhere/at.all".into(), None), (example(), Some("noon".into()))] {
            let args = Check { config: Some(config), firewall: None, at, json: false };
            assert!(check(&args, &mut Vec::new()).is_err());
        }
    }
}
