//! Faults that there have been, or that are feared. Each is put back on purpose, so that the simulation can be seen to find it.

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Rules know no key of GRE, so that no policy with one applies (before 70122ab0).
    Gre,
    /// Rules lead and mark at the priority of mangle tables, and nobody looks before source NAT (F2, before 5412ef6b).
    BeforeMangle,
    /// Flows that a flowtable has taken over pass new policies by (F3, before 16e9288c).
    KeptWays,
    /// Nobody looks at packets before a flowtable takes over their flow.
    TakenOver,
    /// A policy that is updated gets another place among those of its priority when the daemon starts again (F5).
    NewPlace,
    /// The rules of a request are written after its answer.
    LateRules,
    /// The next daemon starts with empty replay windows.
    ForgottenWindows,
    /// The next daemon leases numbers from 0.
    ForgottenNumbers,
    /// A record is written after the answer of its request.
    LateRecords,
    /// A daemon that ends takes its rules with it.
    RulesGo,
    /// Only one of the chains that depend on policies is written again.
    StaleChains,
}

impl Fault {
    pub(crate) const ALL: [Fault; 11] = [
        Fault::Gre,
        Fault::BeforeMangle,
        Fault::KeptWays,
        Fault::TakenOver,
        Fault::NewPlace,
        Fault::LateRules,
        Fault::ForgottenWindows,
        Fault::ForgottenNumbers,
        Fault::LateRecords,
        Fault::RulesGo,
        Fault::StaleChains,
    ];
}
