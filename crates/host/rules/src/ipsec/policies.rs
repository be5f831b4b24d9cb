//! The rules of policies.

use super::gre;
use super::refused::Refused;
use super::wanted::{Match, Rules, Then};
use crate::rule::Rule;

/// The end of rules of policies that let no unprotected packet pass, by the chains of their reasons.
pub(super) fn refusing(chain: fn(Refused) -> &'static str) -> impl Fn(Then) -> Rule {
    move |then| match then {
        Then::Pass => Rule::new().accept(),
        Then::Protect(_) => Rule::new().jump(chain(Refused::Template)),
        Then::Block => Rule::new().jump(chain(Refused::Block)),
    }
}

/// The rules of policies, with these ends. Where later `fragments` come here, those that may be a policy's have another one.
pub(super) fn policies(
    rules: Option<&Rules>,
    verdict: impl Fn(Then) -> Rule,
    fragments: Option<&dyn Fn(Then) -> Rule>,
    rest: Rule,
) -> Vec<Rule> {
    let Some(rules) = rules else { return Vec::new() };
    let mut all = Vec::with_capacity(rules.list.len());
    for (of, then) in &rules.list {
        if let Some(fragment) = fragments.filter(|_| *then != Then::Pass) {
            all.extend(of_fragments(of).map(|rule| rule.steps(fragment(*then).steps)));
        }
        let end = || verdict(*then).steps;
        if of.selects_key() {
            // Debian 12's nft aborts where it is to show masked bits of a header behind GRE's number.
            let shapes = gre::shapes(of.key());
            all.extend(shapes.map(|shape| Rule::new().of_key(shape, of.key()).of(of).steps(end())));
        } else {
            all.push(Rule::new().of(of).steps(end()));
        }
    }
    all.extend(rules.block_rest.then_some(rest));
    all
}

/// Later fragments that may be of packets which a policy selects.
fn of_fragments(of: &Match) -> impl Iterator<Item = Rule> {
    let portless = of.selects_ports().then(|| Rule::new().of_later_fragments(of));
    let nameless = (of.proto != 0 && of.source.0.is_ipv6()).then(|| Rule::new().of_nameless_fragments(of));
    portless.into_iter().chain(nameless)
}
