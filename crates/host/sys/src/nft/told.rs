//! The rules of a table as the kernel tells them, compared with those that a transaction writes.

use super::expr::is_told;
use super::write::{Batch, NFTA_RULE_CHAIN, NFTA_RULE_EXPRESSIONS, NFTA_RULE_TABLE};
use super::{INET, Messages, Socket, nl};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// The expressions of each rule, by the name of its chain.
type Chains = BTreeMap<String, Vec<Vec<u8>>>;

/// The names of the chains whose rules are not those that a transaction writes into a new table. What rules have counted does
/// not matter.
///
/// # Errors
/// The kernel's.
pub(super) fn unlike(socket: &mut Socket, table: &str, written: &Batch) -> io::Result<BTreeSet<String>> {
    let type_ = |of| (libc::NFNL_SUBSYS_NFTABLES << 8 | of) as u16;
    let mut wanted = Chains::new();
    let writes = |message: &nl::Message<'_>| message.header.nlmsg_type == type_(libc::NFT_MSG_NEWRULE);
    written.messages().filter(writes).for_each(|message| push(&mut wanted, table, message.payload));
    let mut messages = Messages::new();
    messages.push(type_(libc::NFT_MSG_GETRULE), nl::NLM_F_DUMP, &[INET, 0, 0, 0], |a| a.str(NFTA_RULE_TABLE, table));
    let told = socket.dump(&messages, |told, message| push(told, table, message.payload))?;
    let differs = |name: &&String| match (wanted.get(*name), told.get(*name)) {
        (Some(wanted), Some(told)) => {
            wanted.len() != told.len() || !wanted.iter().zip(told).all(|(w, t)| is_told(w, t))
        }
        _ => true,
    };
    Ok(wanted.keys().chain(told.keys()).filter(differs).cloned().collect())
}

/// Appends the rule of a message, if it is one of this table: older kernels tell those of all tables.
fn push(chains: &mut Chains, table: &str, message: &[u8]) {
    let attributes = message.get(4..).unwrap_or_default();
    let of = |type_| nl::Attrs::new(attributes).find(|a| a.type_ == type_).map(|a| a.payload);
    let name = |type_| of(type_)?.strip_suffix(&[0]).map(String::from_utf8_lossy);
    if name(NFTA_RULE_TABLE).is_some_and(|name| name == table)
        && let (Some(chain), Some(expressions)) = (name(NFTA_RULE_CHAIN), of(NFTA_RULE_EXPRESSIONS))
    {
        chains.entry(chain.into_owned()).or_default().push(expressions.to_vec());
    }
}
