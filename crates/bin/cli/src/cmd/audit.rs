//! `sealane audit`: reports the algorithms of AF_ALG that a program uses, and whether Linux 7.3 still admits them.

use crate::answer::Answer;
use crate::args::Audit;
use crate::render::{self, Align, Table};
use anyhow::{Context, Result};
use sealane_crypto::Kind;
use sealane_engine_alg::{Caller, catalog};
use sealane_launch::audit::Usage;
use serde::Serialize;
use std::fs::File;
use std::io::Write;

const KINDS: [Kind; 4] = [Kind::Hash, Kind::Skcipher, Kind::Aead, Kind::Rng];

#[derive(Serialize)]
struct AuditReport {
    program: Vec<String>,
    profile: String,
    exit_status: i32,
    algorithms: Vec<Algorithm>,
}

#[derive(Serialize)]
struct Algorithm {
    #[serde(rename = "type")]
    kind: String,
    name: String,
    driver: String,
    /// Whether the program had CAP_NET_ADMIN or CAP_SYS_ADMIN when it bound the name.
    privileged: bool,
    binds: u64,
    keys: u64,
    accepts: u64,
    sends: u64,
    recvs: u64,
    /// Bytes sent to the algorithm.
    bytes: u64,
    bytes_received: u64,
    errors: u64,
    /// Whether the allowlist of Linux 7.3 (`af_alg_restrict=1`) admits it for unprivileged callers.
    allowed_unprivileged: bool,
    /// The same for privileged callers.
    allowed_privileged: bool,
}

impl From<Usage> for Algorithm {
    fn from(u: Usage) -> Self {
        let kind = KINDS.into_iter().find(|k| k.name() == u.kind);
        let allowed = |privileged| kind.is_some_and(|k| catalog::allowed(k, &u.name, Caller { privileged }));
        Algorithm {
            allowed_unprivileged: allowed(false),
            allowed_privileged: allowed(true),
            kind: u.kind,
            name: u.name,
            driver: u.driver,
            privileged: u.privileged,
            binds: u.binds,
            keys: u.keys,
            accepts: u.accepts,
            sends: u.sends,
            recvs: u.recvs,
            bytes: u.bytes_in,
            bytes_received: u.bytes_out,
            errors: u.errors,
        }
    }
}

pub(crate) fn audit(args: &Audit) -> Result<Answer> {
    // The file is created before the program runs, so that a wrong path is found at once and not an hour later.
    let mut out: Box<dyn Write> = match &args.output {
        Some(path) => Box::new(File::create(path).with_context(|| format!("cannot write {}", path.display()))?),
        None => Box::new(std::io::stderr()),
    };
    let options = super::run::options(&args.launch)?;
    let (exit_status, usage) = sealane_launch::run::audit(&options)
        .context("cannot create the counters that the program shares with 'sealane audit'")?;
    // The program did not start, which has been reported on standard error, so there is nothing to report on.
    let Some(usage) = usage else { return Ok(super::run::status(exit_status)) };
    let report = AuditReport {
        program: args.launch.program.iter().map(|a| a.to_string_lossy().into_owned()).collect(),
        profile: args.launch.profile.to_string(),
        exit_status,
        algorithms: usage.into_iter().map(Algorithm::from).collect(),
    };
    if args.json {
        render::json(&mut out, &report)?;
    } else {
        print(&report, &mut out)?;
    }
    Ok(super::run::status(exit_status))
}

fn print(report: &AuditReport, out: &mut impl Write) -> Result<()> {
    if report.algorithms.is_empty() {
        writeln!(out, "{}: no use of AF_ALG", report.program.join(" "))?;
        return Ok(());
    }
    let right = Align::Right;
    let mut table = Table::new(&[
        ("type", Align::Left),
        ("algorithm", Align::Left),
        ("driver", Align::Left),
        ("binds", right),
        ("keys", right),
        ("accepts", right),
        ("sends", right),
        ("receives", right),
        ("bytes", right),
        ("errors", right),
        ("Linux 7.3 admits", Align::Left),
    ]);
    for a in &report.algorithms {
        table.row(vec![
            a.kind.clone(),
            a.name.clone(),
            if a.driver.is_empty() { "-".to_owned() } else { a.driver.clone() },
            a.binds.to_string(),
            a.keys.to_string(),
            a.accepts.to_string(),
            a.sends.to_string(),
            a.recvs.to_string(),
            a.bytes.to_string(),
            a.errors.to_string(),
            match (a.allowed_unprivileged, a.allowed_privileged) {
                (true, _) => "everyone",
                (false, true) => "privileged callers only",
                (false, false) => "nobody",
            }
            .to_owned(),
        ]);
    }
    table.print(out)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_shows_what_linux_admits() {
        let usage = |kind: &str, name: &str| Usage { kind: kind.into(), name: name.into(), ..Usage::default() };
        let report = AuditReport {
            program: vec!["iwd".into()],
            profile: "open".into(),
            exit_status: 0,
            algorithms: [usage("hash", "sha1"), usage("hash", "md5"), usage("rng", "stdrng")]
                .map(Algorithm::from)
                .into(),
        };
        let mut out = Vec::new();
        print(&report, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let admits = |name: &str| text.lines().find(|l| l.contains(name)).unwrap().trim_end().to_owned();
        assert!(admits("sha1").ends_with("everyone"), "{text}");
        assert!(admits("md5").ends_with("privileged callers only"), "{text}");
        assert!(admits("stdrng").ends_with("nobody"), "{text}");
    }
}
