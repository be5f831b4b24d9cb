//! `sealane doctor`.

use crate::answer::Answer;
use crate::args::Doctor;
use crate::render;
use anyhow::{Context, Result};
use sealane_doctor::{Facts, Finding, Level, ModuleState, Outcome, examine, findings};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

#[derive(Serialize)]
struct Report<'a> {
    facts: &'a Facts,
    findings: &'a [Finding],
}

pub(crate) fn doctor(args: &Doctor, out: &mut impl Write) -> Result<Answer> {
    let facts = examine(Path::new("/"), &args.config).context("/proc")?;
    let findings = findings(&facts);
    if args.json {
        render::json(out, &Report { facts: &facts, findings: &findings })?;
    } else {
        print(&facts, &findings, out)?;
    }
    let problem = findings.iter().any(|finding| finding.level == Level::Problem);
    Ok(if problem { Answer::No } else { Answer::Yes })
}

fn print(facts: &Facts, findings: &[Finding], out: &mut impl Write) -> Result<()> {
    let has = |yes| if yes { "yes" } else { "no" };
    let works = |outcome: &Outcome| match outcome {
        Outcome::Works => "works".to_owned(),
        Outcome::Fails(why) => format!("does not work: {why}"),
    };
    let tcp_ao = facts.kernel.tcp_ao.map_or("TCP-AO unknown", |yes| if yes { "with TCP-AO" } else { "without TCP-AO" });
    let mut line = |name: &str, value: &str| writeln!(out, "{name:<16}{value}");
    line("kernel", &format!("{}, {tcp_ao}", facts.kernel.release))?;
    let mut modules: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for module in &facts.modules {
        let state = match &module.state {
            ModuleState::BuiltIn => "built in".to_owned(),
            ModuleState::Loaded => "loaded".to_owned(),
            ModuleState::Loadable => "loadable".to_owned(),
            ModuleState::Blocked(by) => format!("blocked by {by}"),
            ModuleState::Missing => "not there".to_owned(),
            ModuleState::Unknown => "unknown: this machine has no list of the kernel's modules".to_owned(),
        };
        modules.entry(state).or_default().push(&module.name);
    }
    for (state, names) in modules {
        line("modules", &format!("{}: {state}", names.join(", ")))?;
    }
    line("/dev/net/tun", &works(&facts.tun))?;
    line("nftables", &works(&facts.nftables))?;
    line("AF_XDP", &works(&facts.af_xdp))?;
    line("seccomp", if facts.seccomp_notification { "with user notification" } else { "without user notification" })?;
    line("memory keys", has(facts.pku))?;
    line("calibration", facts.calibration.as_deref().unwrap_or("none"))?;
    let service = &facts.service;
    let daemon = format!(
        "installed: {}, enabled: {}, running: {}",
        has(service.installed),
        has(service.enabled),
        has(service.running)
    );
    line("daemon", &daemon)?;
    let configuration = &facts.configuration;
    let serves = format!(
        "IPsec: {}, programs with TCP-AO: {}, peers: {}",
        has(configuration.ipsec),
        has(configuration.tcp_ao),
        configuration.peers
    );
    line("configuration", configuration.mistake.as_deref().unwrap_or(&serves))?;
    for program in &facts.programs {
        line("program", &format!("{} ({})", program.name, program.path.display()))?;
    }
    for unit in facts.units.iter().filter(|unit| unit.enabled || unit.wrapped) {
        line("unit", &format!("{}, under sealane: {}", unit.name, has(unit.wrapped)))?;
    }
    for Finding { id, level, text, help } in findings {
        let level = if *level == Level::Problem { "PROBLEM" } else { "note" };
        writeln!(out, "\n{level} ({id}): {text}")?;
        for command in help {
            writeln!(out, "  # {command}")?;
        }
    }
    if !findings.iter().any(|finding| finding.level == Level::Problem) {
        writeln!(out, "\nNo problem was found.")?;
    }
    Ok(())
}
