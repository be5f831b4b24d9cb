//! `sealane xfrm`: manages the daemon of a network namespace with the grammar of `ip xfrm`.

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
use anyhow::{Context as _, Result};
use print::Printer;
use sealane_abi::netlink::{NLM_F_ACK, NLM_F_DUMP};
use sealane_abi::xfrm::Message;
use sealane_admin::xfrm::{self as client, Client, Refusal};
use std::io::Write;
use words::Words;

/// The first argument of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Object {
    State,
    Policy,
    Monitor,
    Show,
}

impl Object {
    /// Parses the name of an object, which can be abbreviated.
    fn parse(word: &str) -> Result<Object> {
        const NAMES: [(&str, Object); 4] = [
            ("state", Object::State),
            ("policy", Object::Policy),
            ("monitor", Object::Monitor),
            ("show", Object::Show),
        ];
        let found = NAMES.iter().find(|(name, _)| name.starts_with(word));
        let names = || NAMES.map(|(name, _)| name).join(", ");
        found
            .map(|(_, object)| *object)
            .with_context(|| format!("unknown object '{word}', expected one of {}", names()))
    }
}

/// The execution of a command.
struct Session<'a> {
    client: Client,
    printer: Printer,
    out: &'a mut dyn Write,
    /// The address family selected by `-4` or `-6`.
    family: Option<u16>,
}

/// A refusal of the daemon, in the words of `ip`.
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
    /// Sends a request that is acknowledged, and prints the messages of the answer.
    fn act(&mut self, request: &Message, flags: u16) -> Result<Result<(), Refusal>> {
        let mut answers = Vec::new();
        let done = self.client.ask(request, flags | NLM_F_ACK, |m| answers.push(self.printer.message(m, "")))?;
        for text in answers {
            self.out.write_all(text.as_bytes())?;
        }
        Ok(done)
    }

    /// The same, and reports a refusal.
    fn done(&mut self, request: &Message, flags: u16) -> Result<Answer> {
        Ok(said(self.act(request, flags)?))
    }

    /// Sends a request that is answered by one message.
    fn one(&mut self, request: &Message) -> Result<Result<Message, Refusal>> {
        let mut answer = None;
        let done = self.client.ask(request, 0, |m| answer = Message::decode(m).ok())?;
        Ok(match done {
            Ok(()) => Ok(answer.context("the daemon's answer is not a message of XFRM")?),
            Err(refusal) => Err(refusal),
        })
    }

    /// The messages of a dump.
    fn all(&mut self, request: &Message) -> Result<Result<Vec<Message>, Refusal>> {
        let mut list = Vec::new();
        let done = self.client.ask(request, NLM_F_DUMP, |m| list.extend(Message::decode(m).ok()))?;
        // A dump that is refused at once and one that ends early are the same failure.
        Ok(done.map(|()| list).map_err(|refusal| Refusal { dump: true, ..refusal }))
    }

    /// Prints a message.
    fn print(&mut self, message: &Message) -> Result<()> {
        Ok(self.out.write_all(self.printer.decoded(message, "").as_bytes())?)
    }
}

/// Reports a refusal on standard error, with the exit status of `ip`.
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
    let object = Object::parse(&words.next().context("expected one of state, policy, monitor, show")?)?;
    let netns = args.netns.as_deref();
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
    }
}
