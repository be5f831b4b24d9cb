//! The connection of a command to the daemon, and its output.

use super::print::Printer;
use crate::answer::Answer;
use anyhow::{Context as _, Result};
use sealane_abi::netlink::{NLM_F_ACK, NLM_F_DUMP};
use sealane_abi::xfrm::{AF_INET, XfrmMessage};
use sealane_admin::xfrm::{Client, Refusal};
use std::io::Write;

/// The execution of a command.
pub(super) struct Session<'a> {
    pub(super) client: Client,
    pub(super) printer: Printer,
    pub(super) out: &'a mut dyn Write,
    /// The address family selected by `-4` or `-6`.
    pub(super) family: Option<u16>,
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
    pub(super) fn request(&mut self, request: &XfrmMessage, flags: u16) -> Result<Result<(), Refusal>> {
        let mut answers = Vec::new();
        let done = self.client.ask(request, flags | NLM_F_ACK, |m| answers.push(self.printer.message(m, "")))?;
        for text in answers {
            self.out.write_all(text.as_bytes())?;
        }
        Ok(done)
    }

    /// Sends a request, and reports a refusal.
    pub(super) fn execute(&mut self, request: &XfrmMessage, flags: u16) -> Result<Answer> {
        Ok(report(self.request(request, flags)?))
    }

    /// Sends a request that is answered by one message.
    pub(super) fn get(&mut self, request: &XfrmMessage) -> Result<Result<XfrmMessage, Refusal>> {
        let mut answer = None;
        let done = self.client.ask(request, 0, |m| answer = XfrmMessage::decode(m).ok())?;
        Ok(match done {
            Ok(()) => Ok(answer.context("the daemon's answer is not a message of XFRM")?),
            Err(refusal) => Err(refusal),
        })
    }

    /// The messages of a dump.
    pub(super) fn dump(&mut self, request: &XfrmMessage) -> Result<Result<Vec<XfrmMessage>, Refusal>> {
        let mut list = Vec::new();
        let done = self.client.ask(request, NLM_F_DUMP, |m| list.extend(XfrmMessage::decode(m).ok()))?;
        // A dump that is refused at once and one that ends early are the same failure.
        Ok(done.map(|()| list).map_err(|refusal| Refusal { dump: true, ..refusal }))
    }

    /// The index of the interface `name`.
    pub(super) fn interface(&self, name: &str) -> Result<u32> {
        let found = self.printer.names.iter().find(|(_, n)| *n == name).map(|(index, _)| *index);
        found.with_context(|| format!("there is no interface '{name}' in this network namespace"))
    }

    /// The family of objects whose arguments do not imply one.
    pub(super) fn default_family(&self) -> u16 {
        self.family.unwrap_or(AF_INET)
    }

    /// Prints a message.
    pub(super) fn print(&mut self, message: &XfrmMessage) -> Result<()> {
        Ok(self.out.write_all(self.printer.decoded(message, "").as_bytes())?)
    }
}

/// Reports a refusal on standard error, with the exit status of `ip`.
pub(super) fn report(done: Result<(), Refusal>) -> Answer {
    match done {
        Ok(()) => Answer::Yes,
        Err(refusal) => {
            let status = if refusal.dump { 1 } else { 2 };
            eprintln!("{}", Refused(refusal));
            Answer::Status(status)
        }
    }
}
