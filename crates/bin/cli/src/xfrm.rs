//! `sealane xfrm`: manages the daemon of a network namespace with the grammar of `ip xfrm`.

mod monitor;
mod names;
mod parse;
mod policy;
mod print;
mod session;
mod show;
mod state;
mod words;

use crate::answer::Answer;
use crate::args::{Cli, Xfrm};
use anyhow::{Context as _, Result};
use clap::CommandFactory as _;
use print::Printer;
use sealane_admin::xfrm::{self as client, Client};
use session::Session;
use std::io::Write;
use words::Words;

/// The first argument of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Object {
    State,
    Policy,
    Monitor,
    Show,
    Clear,
}

impl Object {
    /// Parses the name of an object, which can be abbreviated, but for the one that takes protection away.
    fn parse(word: &str) -> Result<Object> {
        const NAMES: [(&str, Object); 5] = [
            ("state", Object::State),
            ("policy", Object::Policy),
            ("monitor", Object::Monitor),
            ("show", Object::Show),
            ("clear", Object::Clear),
        ];
        let is_meant = |name: &str, object| match object {
            Object::Clear => name == word,
            _ => !word.is_empty() && name.starts_with(word),
        };
        let found = NAMES.iter().find(|(name, object)| is_meant(name, *object));
        let names = || NAMES.map(|(name, _)| name).join(", ");
        found
            .map(|(_, object)| *object)
            .with_context(|| format!("unknown object '{word}', expected one of {}", names()))
    }
}

pub(crate) fn xfrm(args: &Xfrm, out: &mut dyn Write) -> Result<Answer> {
    let mut words = Words::new(&args.words)?;
    if words.asks_for_help() {
        let mut cli = Cli::command();
        cli.build();
        let help = cli.find_subcommand_mut("xfrm").context("'xfrm' is a command")?.render_long_help();
        write!(out, "{help}")?;
        return Ok(Answer::Yes);
    }
    let object = Object::parse(&words.next().context("expected one of state, policy, monitor, show, clear")?)?;
    let netns = args.netns.as_deref();
    if object == Object::Clear {
        words.end()?;
        return crate::cmd::daemon::clear_ipsec(netns);
    }
    let names = client::interface_names(netns).with_context(|| match netns {
        Some(name) => format!("network namespace '{name}'"),
        None => "the interfaces of this network namespace".to_owned(),
    })?;
    let printer = Printer { stats: args.statistics, oneline: args.oneline, nokeys: false, names };
    let family = match (args.v4, args.v6) {
        (true, _) => Some(sealane_abi::xfrm::AF_INET),
        (_, true) => Some(sealane_abi::xfrm::AF_INET6),
        _ => None,
    };
    let groups = if object == Object::Monitor { monitor::groups(&mut words)? } else { (0, false) };
    let client = Client::connect(netns, groups.0).map_err(|e| match e.kind() {
        std::io::ErrorKind::ConnectionRefused => {
            anyhow::anyhow!(
                "no 'sealane daemon' serves IPsec in {}: is it running, and is the namespace listed under [ipsec]?",
                netns.unwrap_or("this network namespace")
            )
        }
        _ => e.into(),
    })?;
    let mut session = Session { client, printer, out, family };
    session.printer.nokeys = groups.1;
    match object {
        Object::State => state::run(&mut session, &mut words),
        Object::Policy => policy::run(&mut session, &mut words),
        Object::Monitor => monitor::run(&mut session),
        Object::Show => show::run(&mut session, &mut words, args.json),
        Object::Clear => Ok(Answer::Yes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_protection_away_is_written_out() {
        assert!(matches!(Object::parse("s"), Ok(Object::State)));
        assert!(matches!(Object::parse("sh"), Ok(Object::Show)));
        assert!(matches!(Object::parse("clear"), Ok(Object::Clear)));
        for word in ["", "c", "clea", "clear "] {
            assert!(Object::parse(word).is_err(), "'{word}'");
        }
    }
}
