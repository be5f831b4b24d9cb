//! Files and sockets that a daemon leaves to the next one, after a crash, a restart or an upgrade.
//!
//! - [`journal`]: records in a file, each of them whole after a crash. Keys are in files of memory only.
//! - [`progress`]: words in such a file that packets change, for example the top of a replay window.
//! - [`keeper`]: who keeps files of memory while no daemon runs. This is systemd where it starts the daemon, and
//!   otherwise a process of ours ([`holder`]), which ends when it keeps nothing any more.
//! - [`rules_owner`]: the socket without which nobody can remove the rules of a namespace.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod holder;
pub mod journal;
pub mod keeper;
pub mod progress;
pub mod rules_owner;

pub use journal::Journal;
pub use keeper::Keeper;
pub use rules_owner::RulesOwner;
