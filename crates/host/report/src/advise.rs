//! `sealane advise`: the choices for a workload, ranked by what a packet costs on this machine.
//!
//! `candidate` lists what an interface has, `strength` says how hard each is to break at the rate that is asked for, `cost` what a packet of
//! it costs. Nothing below the strength that was asked for is recommended, and what is left out is named with its reason.

mod candidate;
mod check;
mod cost;
mod question;
mod rank;
mod strength;

pub use candidate::LeftOut;
pub use check::{Checked, check};
pub use cost::From;
pub use question::{Interface, Nonsense, Question, Rate, Size, Sizes};
pub use rank::{Advice, BesideTcp, Choice, Means, TableOf, advise};
pub use strength::Strength;
