//! Clocks.

/// Ticks of the kernel's clock in a second, as on the machine of the recorded answers. Intervals of events are kept in
/// them, and told in tenths of a second.
pub(crate) const TICKS_S: u32 = 100;

/// The time, on two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// Since some start, never going back, in nanoseconds, also while the machine is suspended: for timers.
    pub monotonic_ns: u64,
    /// Since 1970, in seconds: lifetimes are counted in it, as the kernel's are.
    pub wall_s: u64,
}
