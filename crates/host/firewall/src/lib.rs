//! Firewall rules that ask the kernel whether a packet came through a tunnel, or goes into one. The kernel knows nothing of
//! Sealane's states, so that such rules never match, or match too much.
//!
//! Text goes in, findings come out: of nftables (`nft -a list ruleset`, `nftables.conf`), iptables (`iptables-save`, files
//! for `iptables-restore`, ufw's rules, scripts) and firewalld (direct rules in XML). Memory is proportional to the text.
#![forbid(unsafe_code)]

mod finding;
mod firewalld;
mod iptables;
mod nft;
mod rewrite;
#[cfg(test)]
mod tests;

pub use finding::{Finding, Report, Unreadable, Why};
pub use rewrite::DEVICE;

/// Returns the rules of a text that ask the kernel's IPsec. Its form is recognised by its contents.
///
/// `devices` are the further interfaces by which packets come from Sealane's tunnels and go into them, beside [`DEVICE`]: xfrm
/// interfaces, and devices of packet offload.
///
/// # Errors
/// [`Unreadable`], with the line: the text is of none of these forms.
pub fn examine(text: &str, devices: &[String]) -> Result<Report, Unreadable> {
    if text.trim_start().starts_with('<') {
        firewalld::examine(text, devices)
    } else if iptables::is_ours(text) {
        iptables::examine(text, devices)
    } else {
        nft::examine(text, devices)
    }
}
