//! The rules of policies.

use super::chains::Means;
use super::gre;
use super::group::{Group, groups};
use super::wanted::{Rules, Then};
use crate::rule::Rule;

impl Means {
    /// The rules of policies, with these ends. Where later `fragments` come here, those that may be a policy's have another one.
    pub(super) fn policies(
        &self,
        rules: Option<&Rules>,
        verdict: impl Fn(Then) -> Rule,
        fragments: Option<&dyn Fn(Then) -> Rule>,
        rest: Rule,
    ) -> Vec<Rule> {
        let Some(rules) = rules else { return Vec::new() };
        let groups = groups(rules, self.sets);
        let mut all = Vec::with_capacity(groups.len());
        for of in &groups {
            if let Some(fragment) = fragments.filter(|_| of.then != Then::Pass) {
                all.extend(of_fragments(of).map(|rule| rule.steps(fragment(of.then).steps)));
            }
            let end = || verdict(of.then).steps;
            if of.of.selects_key() {
                // Debian 12's nft aborts where it is to show masked bits of a header behind GRE's number.
                let key = of.of.key();
                all.extend(gre::shapes(key).map(|shape| Rule::new().of_key(shape, key).of_group(of).steps(end())));
            } else {
                all.push(Rule::new().of_group(of).steps(end()));
            }
        }
        all.extend(rules.block_rest.then_some(rest));
        all
    }
}

/// Later fragments that may be of packets which policies select.
fn of_fragments(of: &Group<'_>) -> impl Iterator<Item = Rule> {
    let portless = of.of.selects_ports().then(|| Rule::new().of_later_fragments(of));
    let nameless = (of.of.proto != 0 && of.of.source.0.is_ipv6()).then(|| Rule::new().of_nameless_fragments(of));
    portless.into_iter().chain(nameless)
}
