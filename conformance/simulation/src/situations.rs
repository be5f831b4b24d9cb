//! Situations that orders are meant to get into. One that no order has reached is a hole in the simulation.

use std::collections::BTreeMap;

/// The situations, and a list of all of them.
macro_rules! situations {
    ($($name:ident,)*) => {
        /// A situation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Situation {
            $($name,)*
        }

        impl Situation {
            pub(crate) const ALL: &[Situation] = &[$(Situation::$name,)*];
        }
    };
}

situations! {
    // Out.
    Sealed,
    SealedForwarded,
    SealedBehindDestinationNat,
    SealedWithMasquerading,
    SealedByKeyOfGre,
    SealedAfterRestart,
    SealedByNextState,
    PassedBesidePolicies,
    PassedByPolicy,
    PassedMasqueraded,
    PassedByFlowtable,
    PassedByEngine,
    PassedWithoutDaemon,
    CoveredWithoutDaemon,
    CoveredWithoutState,
    CoveredByPolicyThatBlocks,
    CoveredWithOverwrittenMark,
    CoveredWithOverwrittenMarkAndMasquerading,
    CoveredWithRuleOfOthers,
    CoveredWithoutOurRule,
    CoveredWithoutDevice,
    CoveredBySourceNatOnly,
    CoveredBehindItsTranslation,
    CoveredAfterFlowWasTakenOver,
    CoveredAfterFlush,
    CoveredBetweenCallAndAnswer,
    // In.
    Opened,
    OpenedForwarded,
    OpenedAndSealedAgain,
    OpenedWithoutPolicyOfThatPeer,
    OpenedByFormerState,
    ClearRefused,
    ClearDelivered,
    ReplayRefused,
    ReplayRefusedAfterRestart,
    // Life.
    EndedBeforeRecord,
    EndedBeforeRules,
    EndedBeforeWays,
    EndedBeforeAnswer,
    EndedWhileStarting,
    RestartedWithPolicies,
    RestartedWithUpdatedPolicy,
    RestartedWithChange,
    RestartedWithoutChange,
    NumbersGoOnAfterRestart,
    NumbersGoOnAfterDeletion,
    RefusedRequest,
    GuardIsBack,
    ClockWasSetBack,
    WanWasDown,
}

/// The times that each was reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Reached(BTreeMap<Situation, u64>);

impl Reached {
    pub(crate) fn note(&mut self, situation: Situation) {
        *self.0.entry(situation).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Reached) {
        other.0.iter().for_each(|(situation, times)| *self.0.entry(*situation).or_default() += times);
    }

    pub(crate) fn missing(&self) -> Vec<Situation> {
        Situation::ALL.iter().copied().filter(|situation| !self.0.contains_key(situation)).collect()
    }
}

impl core::fmt::Display for Reached {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let times = |situation| self.0.get(situation).copied().unwrap_or(0);
        Situation::ALL.iter().try_for_each(|situation| writeln!(f, "{:>12} {situation:?}", times(situation)))
    }
}
