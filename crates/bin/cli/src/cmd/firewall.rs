//! `sealane check --firewall`: rules that ask whether a packet is IPsec's, of which the kernel knows nothing here.

mod iptables;
mod nft;
mod rules;

use crate::answer::Answer;
use crate::render;
use anyhow::{Context, Result, bail};
use rules::{Effect, Finding};
use serde::Serialize;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// A program that tells which rules are in force: its arguments, and the program that has made them.
type Teller = (&'static str, &'static [&'static str], &'static str);

const NFT: Teller = ("nft", &["-a", "list", "ruleset"], "");

/// The programs of both kinds of iptables.
const IPTABLES: [Teller; 4] = [
    ("iptables-nft-save", &[], "iptables"),
    ("ip6tables-nft-save", &[], "ip6tables"),
    ("iptables-legacy-save", &[], "iptables-legacy"),
    ("ip6tables-legacy-save", &[], "ip6tables-legacy"),
];

/// Those of systems that have one kind of iptables only.
const ONE_IPTABLES: [Teller; 2] = [("iptables-save", &[], "iptables"), ("ip6tables-save", &[], "ip6tables")];

#[derive(Serialize)]
struct Report {
    /// The programs or files that were read.
    read: Vec<String>,
    /// The number of rules.
    rules: usize,
    findings: Vec<Finding>,
}

/// Checks the rules in a file, or those in force.
///
/// # Errors
/// When they cannot be read.
pub(super) fn check(file: Option<&Path>, json: bool, out: &mut impl Write) -> Result<Answer> {
    let report = match file {
        Some(path) => of_file(path)?,
        None => in_force()?,
    };
    if json {
        render::json(out, &report)?;
    } else {
        print(&report, out)?;
    }
    Ok(if report.findings.is_empty() { Answer::Yes } else { Answer::No })
}

fn of_file(path: &Path) -> Result<Report> {
    let name = path.display().to_string();
    let mut text = String::new();
    match name.as_str() {
        "-" => io::stdin().read_to_string(&mut text),
        _ => std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut text)),
    }
    .with_context(|| name.clone())?;
    let mut report = Report { read: vec![name], rules: 0, findings: Vec::new() };
    report.add(nft::find(&text, &[]));
    report.add(iptables::find(&text, "iptables"));
    let is_list = |line: &str| line.starts_with('*') || line.starts_with("table ");
    if !text.is_empty() && !text.lines().any(is_list) {
        bail!("{}: neither a list of 'nft list ruleset' nor one of 'iptables-save'", path.display());
    }
    Ok(report)
}

fn in_force() -> Result<Report> {
    let mut saved = told(&IPTABLES)?;
    if saved.is_empty() {
        saved = told(&ONE_IPTABLES)?;
    }
    let listed = told(&[NFT])?;
    let mut report = Report { read: Vec::new(), rules: 0, findings: Vec::new() };
    for ((program, ..), text, warnings) in &listed {
        report.read.push((*program).to_owned());
        let others = if saved.is_empty() { Vec::new() } else { nft::of_iptables(warnings) };
        report.add(nft::find(text, &others));
    }
    for ((program, _, by), text, _) in &saved {
        report.read.push((*program).to_owned());
        report.add(iptables::find(text, by));
    }
    if report.read.is_empty() {
        bail!("there is neither 'nft' nor 'iptables-save' that would tell the rules");
    }
    Ok(report)
}

/// The output of those programs that there are, and their warnings.
fn told(programs: &[Teller]) -> Result<Vec<(Teller, String, String)>> {
    let one = |teller: &Teller| Ok(output_of(teller.0, teller.1)?.map(|[text, warnings]| (*teller, text, warnings)));
    programs.iter().filter_map(|teller| one(teller).transpose()).collect()
}

/// The standard output and the standard error of a program; `None` if there is no such program.
fn output_of(program: &str, arguments: &[&str]) -> Result<Option<[String; 2]>> {
    let output = match Command::new(program).args(arguments).stdin(Stdio::null()).output() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        output => output.with_context(|| program.to_owned())?,
    };
    if !output.status.success() {
        bail!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(Some([output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned())))
}

impl Report {
    fn add(&mut self, (rules, findings): (usize, Vec<Finding>)) {
        self.rules += rules;
        self.findings.extend(findings);
    }
}

fn print(report: &Report, out: &mut impl Write) -> Result<()> {
    for Finding { place, rule, effect, instead, notes } in &report.findings {
        writeln!(out, "{place}: {}\n    {rule}", effect.text())?;
        if let Some(instead) = instead {
            writeln!(out, "  write:\n    {instead}")?;
        }
        for note in notes {
            writeln!(out, "  note: {note}")?;
        }
        writeln!(out)?;
    }
    let of = |effect| report.findings.iter().filter(|finding| finding.effect == effect).count();
    let [never, always, undecided] = [Effect::NeverMatches, Effect::AlwaysMatches, Effect::Undecided].map(of);
    writeln!(
        out,
        "{}: {} rules; {never} never match, {always} match packets of tunnels, too, {undecided} take them for others",
        report.read.join(", "),
        report.rules
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str, json: bool) -> (Result<Answer>, String) {
        let name = format!("sealane-firewall-{}-{}-{json}", std::process::id(), text.len());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        let mut out = Vec::new();
        let answer = check(Some(&path), json, &mut out);
        std::fs::remove_file(&path).unwrap();
        (answer, String::from_utf8(out).unwrap())
    }

    #[test]
    fn a_file_of_either_kind() {
        let (answer, said) =
            run("*filter\n-A INPUT -m policy --dir in --pol ipsec --reqid 1 -j ACCEPT\nCOMMIT\n", false);
        assert_eq!(answer.unwrap(), Answer::No);
        assert!(
            said.starts_with(
                "iptables, table filter, chain INPUT: never matches\n    -A INPUT -m policy --dir in --pol ipsec --reqid 1 -j ACCEPT\n  \
                 write:\n    -A INPUT -i sealane-ipsec -j ACCEPT\n  note: "
            ) && said.ends_with(": 1 rules; 1 never match, 0 match packets of tunnels, too, 0 take them for others\n"),
            "{said}"
        );
        let (answer, said) =
            run("table ip t {\n\tchain c {\n\t\ttcp dport 22 accept\n\t\tmeta ipsec missing drop\n\t}\n}\n", true);
        assert_eq!(answer.unwrap(), Answer::No);
        let value: serde_json::Value = serde_json::from_str(&said).unwrap();
        let found = &value["findings"][0];
        assert_eq!((&value["rules"], &found["effect"]), (&2.into(), &"always-matches".into()));
        assert_eq!(found["instead"], "iifname != \"sealane-ipsec\" drop");
        let (answer, said) = run("*nat\n-A POSTROUTING -o eth0 -j MASQUERADE\n", false);
        assert_eq!(answer.unwrap(), Answer::Yes);
        assert!(said.contains(": 1 rules; 0 never match"), "{said}");
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        assert!(run("nothing of the kind\n", false).0.is_err());
        assert_eq!(run("", false).0.unwrap(), Answer::Yes, "no rules");
        assert!(check(Some(Path::new("/nowhere/at.all")), false, &mut Vec::new()).is_err());
        assert!(output_of("sealane-no-such-program", &[]).unwrap().is_none());
        assert!(output_of("false", &[]).is_err());
    }
}
