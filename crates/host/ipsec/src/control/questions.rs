//! Answers to the [`Question`]s that NETLINK_XFRM does not have.

use sealane_abi::netlink::{Messages, answer};
use sealane_abi::sealane::Question;
use sealane_engine_xfrm::{Replies, Sender};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// The questions of clients without rights that are answered at once, and the time after which there is room for one more.
const MOST: u32 = 200;
const EACH: Duration = Duration::from_millis(10);

/// Limits the work that clients without rights can make. Beyond the limit they get the answer that was given last.
#[derive(Default)]
pub(crate) struct Budget {
    spent: u32,
    since: Option<Instant>,
    last: HashMap<u16, String>,
}

impl Budget {
    /// The answer to a question, of now if there is room for it.
    fn text(&mut self, question: Question, now: Instant, text: impl FnOnce(Question) -> String) -> String {
        let since = *self.since.get_or_insert(now);
        let regained = u32::try_from(now.duration_since(since).as_nanos() / EACH.as_nanos()).unwrap_or(u32::MAX);
        if regained > 0 {
            self.spent = self.spent.saturating_sub(regained);
            self.since = Some(now);
        }
        match self.last.get(&question.kind()) {
            Some(last) if self.spent >= MOST => last.clone(),
            _ => {
                self.spent += 1;
                let new = text(question);
                self.last.insert(question.kind(), new.clone());
                new
            }
        }
    }
}

/// The answer to a datagram that is such a question.
pub(crate) fn answer(
    datagram: &[u8],
    from: &Sender,
    budget: &mut Budget,
    text: impl FnOnce(Question, &str) -> String,
) -> Option<Replies> {
    let message = Messages::new(datagram).next()?;
    let question = Question::ALL.into_iter().find(|q| q.kind() == message.header.nlmsg_type)?;
    let words = str::from_utf8(message.payload).unwrap_or_default();
    let text = |question| text(question, words);
    let text = if from.caller.privileged { text(question) } else { budget.text(question, Instant::now(), text) };
    let answer = answer::message(question.kind(), 0, message.header.nlmsg_seq, from.port, text.as_bytes());
    Some(Replies { unicast: vec![Zeroizing::new(answer)], events: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_budget_the_last_answer_is_repeated() {
        let (mut budget, start) = (Budget::default(), Instant::now());
        let mut count = 0;
        let mut ask = |question, at: Duration| {
            budget.text(question, start + at, |_| {
                count += 1;
                count.to_string()
            })
        };
        for n in 1..=MOST {
            assert_eq!(ask(Question::Stat, Duration::ZERO), n.to_string());
        }
        assert_eq!(ask(Question::Stat, Duration::ZERO), MOST.to_string());
        assert_eq!(ask(Question::Status, Duration::ZERO), (MOST + 1).to_string(), "never asked before");
        assert_eq!(ask(Question::Stat, EACH / 2), MOST.to_string());
        assert_eq!(ask(Question::Stat, EACH), MOST.to_string(), "one was spent too much");
        assert_eq!(ask(Question::Stat, EACH * 3), (MOST + 2).to_string());
    }
}
