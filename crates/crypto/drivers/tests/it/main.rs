//! Every driver of this build against the portable ones, and Wycheproof.

mod all_drivers;
mod wycheproof;
