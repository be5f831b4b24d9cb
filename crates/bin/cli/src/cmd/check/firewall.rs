//! `sealane check --firewall`: rules that ask the kernel's IPsec, in force and in files.

use crate::answer::Answer;
use crate::render;
use anyhow::{Context, Result, bail};
use sealane_firewall::{Finding, examine};
use serde::Serialize;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The longest text in bytes that is looked at.
const MAX_TEXT: u64 = 16 << 20;

/// Files from which firewalls load their rules.
const FILES: [&str; 13] = [
    "/etc/nftables.conf",
    "/etc/sysconfig/nftables.conf",
    "/etc/iptables/rules.v4",
    "/etc/iptables/rules.v6",
    "/etc/sysconfig/iptables",
    "/etc/sysconfig/ip6tables",
    "/etc/ufw/before.rules",
    "/etc/ufw/before6.rules",
    "/etc/ufw/after.rules",
    "/etc/ufw/after6.rules",
    "/etc/ufw/user.rules",
    "/etc/ufw/user6.rules",
    "/etc/firewalld/direct.xml",
];

/// For each family: the file with the names of the older tables of iptables in this network namespace, the program that
/// prints these, and the one that prints those in nftables, or these where there is no nftables in it.
const IPTABLES: [(&str, &str, &str, &str); 2] = [
    ("ip", "/proc/net/ip_tables_names", "iptables-legacy-save", "iptables-save"),
    ("ip6", "/proc/net/ip6_tables_names", "ip6tables-legacy-save", "ip6tables-save"),
];

#[derive(Serialize)]
struct FirewallReport {
    findings: Vec<Row>,
    not_looked_at: Vec<Unlooked>,
}

#[derive(Serialize)]
struct Row {
    /// The file, or the program that printed the rule in force.
    place: String,
    /// Of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    table: String,
    chain: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    handle: Option<u64>,
    rule: String,
    reasons: Vec<&'static str>,
    because: Vec<String>,
    instead: Vec<String>,
}

#[derive(Serialize)]
struct Unlooked {
    place: String,
    reason: String,
}

/// The examination of several places.
struct Look {
    devices: Vec<String>,
    /// Files that have been looked at.
    seen: Vec<PathBuf>,
    report: FirewallReport,
}

pub(super) fn firewall(files: &[PathBuf], json: bool, out: &mut impl Write) -> Result<Answer> {
    let report = FirewallReport { findings: Vec::new(), not_looked_at: Vec::new() };
    let mut look = Look { devices: devices(), seen: Vec::new(), report };
    if files.is_empty() {
        look.in_force();
        FILES.iter().map(Path::new).filter(|file| file.exists()).for_each(|file| look.file(file));
    } else {
        files.iter().for_each(|file| look.file(file));
    }
    let report = look.report;
    if json {
        render::json(out, &report)?;
    } else {
        print(&report, out)?;
    }
    Ok(match (report.findings.is_empty(), report.not_looked_at.is_empty()) {
        (false, _) => Answer::No,
        (true, false) => Answer::Status(2),
        (true, true) => Answer::Yes,
    })
}

/// The TUN devices of this network namespace: xfrm interfaces and devices of packet offload are among them.
fn devices() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let tun = entries.filter(|entry| entry.path().join("tun_flags").exists());
    tun.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

impl Look {
    fn unlooked(&mut self, place: impl Into<String>, reason: impl Into<String>) {
        self.report.not_looked_at.push(Unlooked { place: place.into(), reason: reason.into() });
    }

    /// Looks at a file and at what it includes, at each once.
    fn file(&mut self, file: &Path) {
        if self.seen.iter().any(|seen| seen == file) {
            return;
        }
        self.seen.push(file.to_owned());
        let place = file.display().to_string();
        let found = read(file).and_then(|text| Ok(examine(&text, &self.devices)?));
        match found {
            Ok(found) => {
                self.report.findings.extend(found.findings.into_iter().map(|finding| row(&place, finding, true)));
                for (line, pattern) in found.includes {
                    match included(&pattern) {
                        Ok(files) => files.iter().for_each(|file| self.file(file)),
                        Err(e) => self.unlooked(pattern, format!("{e:#}, included at {place}:{line}")),
                    }
                }
            }
            Err(e) => self.unlooked(place, format!("{e:#}")),
        }
    }

    /// Examines what a program has printed, but for the rules of some tables. Both programs of an iptables may print the same.
    fn printed(&mut self, place: &str, text: &str, without: &[String]) {
        let found = match examine(text, &self.devices) {
            Ok(found) => found.findings,
            Err(e) => return self.unlooked(place, e.to_string()),
        };
        let family = |place: &str| place.replace("-legacy", "");
        let rows = &mut self.report.findings;
        for row in found.into_iter().map(|finding| row(place, finding, false)) {
            let same = |known: &Row| {
                (known.place != place && family(&known.place) == family(place))
                    && (&known.table, &known.chain, &known.rule) == (&row.table, &row.chain, &row.rule)
            };
            if !without.contains(&row.table) && !rows.iter().any(same) {
                rows.push(row);
            }
        }
    }

    /// Looks at the rules of this network namespace.
    fn in_force(&mut self) {
        let managed = match output(&["nft", "-s", "-t", "-a", "list", "ruleset"]) {
            Ok(Some((text, warnings))) => {
                let managed = managed(&format!("{warnings}\n{text}"));
                self.printed("nft list ruleset", &text, &managed);
                managed
            }
            Ok(None) => {
                self.unlooked("nftables", "the program 'nft' is not installed");
                Vec::new()
            }
            Err(e) => {
                self.unlooked("nft list ruleset", format!("{e:#}"));
                Vec::new()
            }
        };
        for (family, names, legacy, save) in IPTABLES {
            let older = std::fs::read_to_string(names).is_ok_and(|text| !text.trim().is_empty());
            let newer = managed.iter().any(|table| table.split(' ').next() == Some(family));
            let text = self.program(save);
            if newer && text.is_none() {
                self.unlooked(format!("the tables of iptables ({family})"), format!("'{save}' is not installed"));
            }
            let prints_older = text.is_some_and(|text| !text.is_empty() && !text.contains("(nf_tables)"));
            if older && self.program(legacy).is_none() && !prints_older {
                self.unlooked(
                    format!("the older tables of iptables ({family})"),
                    format!("'{legacy}' is not installed"),
                );
            }
        }
    }

    /// Examines what a program of iptables prints, and returns it; none if it is not installed.
    fn program(&mut self, name: &str) -> Option<String> {
        match output(&[name]) {
            Ok(printed) => {
                let (text, _) = printed?;
                self.printed(name, &text, &[]);
                Some(text)
            }
            Err(e) => {
                self.unlooked(name, format!("{e:#}"));
                Some(String::new())
            }
        }
    }
}

/// The tables that nft says are those of iptables, which it cannot print in full.
fn managed(text: &str) -> Vec<String> {
    let table = |line: &str| {
        let (table, _) = line.strip_prefix("# Warning: table ")?.split_once(" is managed by")?;
        Some(table.to_owned())
    };
    text.lines().map(str::trim).filter_map(table).collect()
}

/// The files for which an `include` of nft stands: a path, of which the last part may have a star.
fn included(pattern: &str) -> Result<Vec<PathBuf>> {
    let path = if pattern.starts_with("./") { PathBuf::from(pattern) } else { Path::new("/etc").join(pattern) };
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        bail!("not a path");
    };
    let Some((begin, end)) = name.split_once('*') else { return Ok(vec![path]) };
    let folder_name = folder.to_string_lossy();
    if [&*folder_name, end, begin].iter().any(|part| part.contains(['*', '?', '['])) {
        bail!("more than one star");
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        let fits = |name: &str| {
            let rest = name.strip_prefix(begin).filter(|_| !name.starts_with('.'));
            rest.is_some_and(|rest| rest.ends_with(end))
        };
        if name.to_str().is_some_and(fits) {
            files.push(folder.join(name));
        }
    }
    files.sort();
    Ok(files)
}

fn read(file: &Path) -> Result<String> {
    text_of(&bytes_of(std::fs::File::open(file)?)?)
}

/// The bytes of a text, or one more than it may have.
fn bytes_of(from: impl Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MAX_TEXT + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Comments may be in any encoding.
fn text_of(bytes: &[u8]) -> Result<String> {
    if bytes.len() as u64 > MAX_TEXT {
        bail!("it is longer than {MAX_TEXT} bytes");
    }
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

/// The output and the messages of a program; none if it is not installed.
fn output(argv: &[&str]) -> Result<Option<(String, String)>> {
    let mut command = Command::new(argv[0]);
    command.args(&argv[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        spawned => spawned.with_context(|| format!("cannot run '{}'", argv[0]))?,
    };
    let pipes = child.stdout.take().zip(child.stderr.take()).context("it has pipes")?;
    // It may fill one pipe before it writes to the other.
    let (bytes, messages) = std::thread::scope(|scope| {
        let messages = scope.spawn(|| bytes_of(pipes.1));
        (bytes_of(pipes.0), messages.join())
    });
    let status = child.wait()?;
    let text = text_of(&bytes?)?;
    let messages = String::from_utf8_lossy(&messages.expect("reading does not panic")?).into_owned();
    if !status.success() {
        bail!("'{}' failed: {}", argv.join(" "), messages.trim());
    }
    Ok(Some((text, messages)))
}

fn row(place: &str, finding: Finding, is_file: bool) -> Row {
    Row {
        place: place.to_owned(),
        line: is_file.then_some(finding.line),
        table: finding.table,
        chain: finding.chain,
        handle: finding.handle,
        rule: finding.rule,
        reasons: finding.whys.iter().map(|why| why.name()).collect(),
        because: finding.whys.iter().map(ToString::to_string).collect(),
        instead: finding.instead,
    }
}

fn print(report: &FirewallReport, out: &mut impl Write) -> Result<()> {
    for row in &report.findings {
        let line = row.line.map_or(String::new(), |line| format!(":{line}"));
        let handle = row.handle.map_or(String::new(), |handle| format!(", handle {handle}"));
        writeln!(out, "{}{line}: table {}, chain {}{handle}", row.place, row.table, row.chain)?;
        writeln!(out, "  rule:     {}", row.rule)?;
        row.because.iter().try_for_each(|because| writeln!(out, "  because:  {because}"))?;
        match &row.instead[..] {
            [] => writeln!(out, "  instead:  see docs/firewall.md, 'Rules that take more'")?,
            rules => rules.iter().try_for_each(|rule| writeln!(out, "  instead:  {rule}"))?,
        }
    }
    for Unlooked { place, reason } in &report.not_looked_at {
        eprintln!("sealane: not looked at: {place}: {reason}");
    }
    if report.findings.is_empty() && report.not_looked_at.is_empty() {
        writeln!(out, "good: no rule asks the kernel's IPsec")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The crate that reads rules depends on no other.
    #[test]
    fn the_device_in_rules_is_that_of_the_stack() {
        assert_eq!(sealane_firewall::DEVICE, sealane_config::DEVICE);
    }

    struct File(PathBuf);

    impl File {
        fn new(name: &str, text: &str) -> File {
            let path = std::env::temp_dir().join(format!("sealane-firewall-{name}-{}", std::process::id()));
            std::fs::write(&path, text).unwrap();
            File(path)
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn run(files: &[&File], json: bool) -> (Answer, String) {
        let mut out = Vec::new();
        let files: Vec<PathBuf> = files.iter().map(|file| file.0.clone()).collect();
        let answer = firewall(&files, json, &mut out).unwrap();
        (answer, String::from_utf8(out).unwrap())
    }

    const RULES: &str = "table inet filter {\n  chain input {\n    type filter hook input priority 0;\n    meta ipsec exists accept\n    \
                         meta ipsec vmap { exists : accept, missing : drop }\n  }\n}\n";

    #[test]
    fn a_rule_has_its_place_the_reason_and_another_rule() {
        let file = File::new("found", RULES);
        let (answer, said) = run(&[&file], false);
        assert_eq!(answer, Answer::No);
        let wanted = format!(
            "{0}:4: table inet filter, chain input\n  rule:     meta ipsec exists accept\n  because:  it never matches what came \
             through a tunnel: the kernel does not know Sealane's states\n  instead:  iifname \"sealane-ipsec\" accept\n{0}:5: ",
            file.0.display()
        );
        assert!(
            said.starts_with(&wanted) && said.ends_with("see docs/firewall.md, 'Rules that take more'\n"),
            "{said}"
        );
        let (answer, said) = run(&[&file], true);
        let value: serde_json::Value = serde_json::from_str(&said).unwrap();
        let found = &value["findings"][0];
        assert_eq!((answer, &found["line"], &found["reasons"][0]), (Answer::No, &4.into(), &"never-in".into()));
        assert_eq!(found["instead"][0], "iifname \"sealane-ipsec\" accept");
    }

    #[test]
    fn statuses_tell_nothing_found_from_not_looked_at() {
        let good = File::new("good", "table inet filter {\n}\n");
        assert_eq!(run(&[&good], false), (Answer::Yes, "good: no rule asks the kernel's IPsec\n".to_owned()));
        let other = File::new("other", "[ipsec]\n");
        assert_eq!(run(&[&good, &other], false), (Answer::Status(2), String::new()));
        let includes = File::new("missing", "include \"/nowhere/at.all\"\n");
        let (answer, said) = run(&[&includes], true);
        let value: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert_eq!((answer, &value["not_looked_at"][0]["place"]), (Answer::Status(2), &"/nowhere/at.all".into()));
        let found = File::new("beside", RULES);
        assert_eq!(run(&[&found, &other], false).0, Answer::No);
        assert_eq!(firewall(&["/nowhere/at.all".into()], false, &mut Vec::new()).unwrap(), Answer::Status(2));
    }

    #[test]
    fn included_files_are_looked_at_once() {
        let folder = std::env::temp_dir();
        let id = std::process::id();
        let both = ["one", "two"].map(|name| File::new(&format!("rules-{name}"), RULES));
        let text = format!(
            "include \"{0}/sealane-firewall-rules-*-{id}\"\ninclude \"{1}\"\n",
            folder.display(),
            both[0].0.display()
        );
        let (answer, said) = run(&[&File::new("includes", &text)], true);
        let value: serde_json::Value = serde_json::from_str(&said).unwrap();
        let places: Vec<_> =
            value["findings"].as_array().unwrap().iter().map(|row| row["place"].as_str().unwrap()).collect();
        let [one, two] = both.each_ref().map(|file| file.0.to_str().unwrap());
        assert_eq!((answer, places), (Answer::No, vec![one, one, two, two]), "{said}");
        assert!(included("/etc/*/x*").is_err());
    }

    #[test]
    fn tables_of_iptables_are_told_from_nftables_own() {
        let text = "# Warning: table ip filter is managed by iptables-nft, do not touch!\ntable ip filter {\n}\n";
        assert_eq!(managed(text), ["ip filter"]);
    }
}
