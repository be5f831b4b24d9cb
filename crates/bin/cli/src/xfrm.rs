//! `sealane xfrm`: the grammar of `ip xfrm`, spoken to the daemon of a network namespace.

mod monitor;
mod names;
mod parse;
mod policy;
mod print;
mod show;
mod state;
mod words;

use crate::Answer;
use crate::args::Xfrm;
use anyhow::{Context as _, Result, bail};
use print::Printer;
use sealane_abi::netlink::{NLM_F_ACK, NLM_F_DUMP};
use sealane_abi::xfrm::Message;
use sealane_admin::xfrm::{self as client, Client, Refusal};
use std::io::Write;
use words::Words;

/// A command in the middle of its work.
struct Session<'a> {
    client: Client,
    printer: Printer,
    out: &'a mut dyn Write,
    /// Family that `-4` or `-6` asks for.
    family: Option<u16>,
}

/// A refusal by the daemon, as `ip` tells it.
struct Refused(Refusal);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0.text {
            Some(text) => write!(f, "Error: {}{}", text, if text.ends_with('.') { "" } else { "." }),
            None => {
                let text = std::io::Error::from_raw_os_error(self.0.errno).to_string();
                write!(f, "RTNETLINK answers: {}", text.split(" (os error").next().unwrap_or_default())
            }
        }?;
        if self.0.dump { f.write_str("\nDump terminated") } else { Ok(()) }
    }
}

impl Session<'_> {
    /// Asks for something to be done.
    fn act(&mut self, request: &Message, flags: u16) -> Result<Result<(), Refusal>> {
        let mut answers = Vec::new();
        let done = self.client.ask(request, flags | NLM_F_ACK, |m| answers.push(self.printer.message(m, "")))?;
        for text in answers {
            self.out.write_all(text.as_bytes())?;
        }
        Ok(done)
    }

    /// Asks for something to be done and says what was refused.
    fn done(&mut self, request: &Message, flags: u16) -> Result<Answer> {
        Ok(said(self.act(request, flags)?))
    }

    /// Asks a question with one answer.
    fn one(&mut self, request: &Message) -> Result<Result<Message, Refusal>> {
        let mut answer = None;
        let done = self.client.ask(request, 0, |m| answer = Message::decode(m).ok())?;
        Ok(match done {
            Ok(()) => Ok(answer.context("an answer that is no message of XFRM")?),
            Err(refusal) => Err(refusal),
        })
    }

    /// All that a dump has.
    fn all(&mut self, request: &Message) -> Result<Result<Vec<Message>, Refusal>> {
        let mut list = Vec::new();
        let done = self.client.ask(request, NLM_F_DUMP, |m| list.extend(Message::decode(m).ok()))?;
        // Whether it was refused at once or ended early, there is no dump.
        Ok(done.map(|()| list).map_err(|refusal| Refusal { dump: true, ..refusal }))
    }

    /// Prints a message.
    fn print(&mut self, message: &Message) -> Result<()> {
        Ok(self.out.write_all(self.printer.decoded(message, "").as_bytes())?)
    }
}

/// What a refusal becomes: a line on standard error, and the exit status of `ip`.
fn said(done: Result<(), Refusal>) -> Answer {
    match done {
        Ok(()) => Answer::Yes,
        Err(refusal) => {
            let status = if refusal.dump { 1 } else { 2 };
            eprintln!("{}", Refused(refusal));
            Answer::Status(status)
        }
    }
}

pub(crate) fn xfrm(args: &Xfrm, out: &mut dyn Write) -> Result<Answer> {
    let mut words = Words::new(&args.words)?;
    let object = words.next().context("one of state, policy, monitor, show is missing")?;
    let netns = args.netns.as_deref();
    let names = client::interface_names(netns)?;
    let printer = Printer { stats: args.statistics, oneline: args.oneline, nokeys: false, names };
    let family = match (args.v4, args.v6) {
        (true, _) => Some(sealane_abi::xfrm::AF_INET),
        (_, true) => Some(sealane_abi::xfrm::AF_INET6),
        _ => None,
    };
    let is = |whole: &str| whole.starts_with(object.as_str());
    let groups = if is("monitor") { monitor::groups(&mut words)? } else { (0, false) };
    let client = Client::connect(netns, groups.0).map_err(|e| match e.kind() {
        std::io::ErrorKind::ConnectionRefused => {
            anyhow::anyhow!("no daemon with [ipsec] serves {}", netns.unwrap_or("this network namespace"))
        }
        _ => e.into(),
    })?;
    let mut session = Session { client, printer, out, family };
    session.printer.nokeys = groups.1;
    match () {
        () if is("state") => state::run(&mut session, &mut words),
        () if is("policy") => policy::run(&mut session, &mut words),
        () if is("monitor") => monitor::run(&mut session),
        () if is("show") => show::run(&mut session, &mut words, args.json),
        () => bail!("'{object}' is none of state, policy, monitor, show"),
    }
}
