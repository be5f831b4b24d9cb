//! The journals that a daemon writes, each at its stage.
//!
//! ```text
//!           │ Changed │ Begun             NotBegun │ Written  NotWritten      │ Placed      NotPlaced
//!  ─────────┼─────────┼────────────────────────────┼──────────────────────────┼──────────────────────────────
//!  Absent   │ Begin   │ New: RecordAll    Tell     │                          │
//!  New      │         │                            │ Place    Absent: GiveUp  │ InPlace     Absent: GiveUp
//!           │         │                            │          of states Place │             of states Tell
//!  InPlace  │         │                            │          Absent: GiveUp  │
//!           │         │                            │          of states none  │
//! ```
//! One file has all policies or is given up: the next daemon then leaves the rules that it finds. Of states it may lack some.

use std::io;

/// A kind of journals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    /// A file of the runtime folder.
    Policies,
    /// A file of memory.
    States,
}

/// The stage of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// There is none.
    Absent,
    /// The next daemon does not find it yet.
    New,
    /// The next daemon finds it.
    InPlace,
}

/// An event in a journal's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// The engine has changes to be recorded.
    Changed,
    /// There is a file for it.
    Begun,
    /// There is none.
    NotBegun,
    /// A batch is written.
    Written,
    /// A part of a batch is not.
    NotWritten,
    /// It is where the next daemon looks.
    Placed,
    /// It could not be put there.
    NotPlaced,
}

/// An action that follows an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    /// Make a file for it.
    Begin,
    /// Have the engine record all that it has.
    RecordAll,
    /// Put it where the next daemon looks.
    Place,
    /// Warn that the next daemon would not find it.
    Tell,
    /// Remove it, because it does not say what is in force, and warn.
    GiveUp,
}

/// The next stage of a journal after an event, and what is to be done.
fn step(table: Table, stage: Stage, event: Event) -> (Stage, Action) {
    use Action::{Begin, GiveUp, Nothing, Place, RecordAll, Tell};
    use Stage::{Absent, InPlace, New};
    match (stage, event, table) {
        (Absent, Event::Changed, _) => (Absent, Begin),
        (Absent, Event::Begun, _) => (New, RecordAll),
        (Absent, Event::NotBegun, _) => (Absent, Tell),
        (New, Event::Written, _) => (New, Place),
        (New, Event::NotWritten, Table::States) => (New, Place),
        (New, Event::Placed, _) => (InPlace, Nothing),
        (New, Event::NotPlaced, Table::States) => (New, Tell),
        (New, Event::NotWritten | Event::NotPlaced, Table::Policies) => (Absent, GiveUp),
        (InPlace, Event::NotWritten, Table::Policies) => (Absent, GiveUp),
        _ => (stage, Nothing),
    }
}

/// An action, and a failure that is to be told: once until the journal is in place.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) action: Action,
    pub(super) news: Option<io::Error>,
}

/// A journal at its stage.
enum Staged<J> {
    Absent,
    New(J),
    InPlace(J),
}

/// A journal that is written.
pub(super) struct Ours<J> {
    table: Table,
    staged: Staged<J>,
    /// Whether a failure has been told since it was in place.
    is_told: bool,
}

impl<J> Ours<J> {
    /// None yet.
    pub(super) fn none(table: Table) -> Self {
        Ours { table, staged: Staged::Absent, is_told: false }
    }

    fn stage(&self) -> Stage {
        match self.staged {
            Staged::Absent => Stage::Absent,
            Staged::New(_) => Stage::New,
            Staged::InPlace(_) => Stage::InPlace,
        }
    }

    /// The journal, if there is one.
    pub(super) fn get(&self) -> Option<&J> {
        match &self.staged {
            Staged::Absent => None,
            Staged::New(journal) | Staged::InPlace(journal) => Some(journal),
        }
    }

    /// The journal, if there is one, to be written.
    pub(super) fn get_mut(&mut self) -> Option<&mut J> {
        match &mut self.staged {
            Staged::Absent => None,
            Staged::New(journal) | Staged::InPlace(journal) => Some(journal),
        }
    }

    /// Notes that the engine has changes.
    pub(super) fn on_change(&mut self) -> Action {
        self.step(Event::Changed, None)
    }

    /// Notes that there is a file for it, with this journal, or none.
    pub(super) fn begun(&mut self, begun: io::Result<J>) -> Done {
        match begun {
            Ok(journal) => Done { action: self.step(Event::Begun, Some(journal)), news: None },
            Err(e) => self.after(Event::NotBegun, Err(e)),
        }
    }

    /// Notes how a batch was written, and has `place` put the journal where the next daemon looks, if it is not there yet.
    pub(super) fn written(&mut self, written: io::Result<()>, place: impl FnOnce(&J) -> io::Result<()>) -> Done {
        let event = if written.is_ok() { Event::Written } else { Event::NotWritten };
        let done = self.after(event, written);
        match self.get() {
            Some(journal) if done.action == Action::Place => {
                let placed = place(journal);
                let event = if placed.is_ok() { Event::Placed } else { Event::NotPlaced };
                self.after(event, placed)
            }
            _ => done,
        }
    }

    fn after(&mut self, event: Event, done: io::Result<()>) -> Done {
        let action = self.step(event, None);
        let is_failure = matches!(action, Action::Tell | Action::GiveUp);
        let news = done.err().filter(|_| is_failure && !core::mem::replace(&mut self.is_told, true));
        Done { action, news }
    }

    fn step(&mut self, event: Event, begun: Option<J>) -> Action {
        let (next, action) = step(self.table, self.stage(), event);
        let before = match core::mem::replace(&mut self.staged, Staged::Absent) {
            Staged::Absent => begun,
            Staged::New(journal) | Staged::InPlace(journal) => Some(journal),
        };
        self.staged = match (next, before) {
            (Stage::Absent, _) | (_, None) => Staged::Absent,
            (Stage::New, Some(journal)) => Staged::New(journal),
            (Stage::InPlace, Some(journal)) => Staged::InPlace(journal),
        };
        self.is_told &= next != Stage::InPlace;
        action
    }
}

#[cfg(test)]
mod tests {
    use super::Action::{Begin, GiveUp, Nothing, Place, RecordAll, Tell};
    use super::Event::{Begun, Changed, NotBegun, NotPlaced, NotWritten, Placed, Written};
    use super::Stage::{Absent, InPlace, New};
    use super::*;

    #[test]
    fn each_stage_and_event_has_its_step() {
        // Of policies, and of states.
        let both = |stage, action| [(stage, action); 2];
        let table = [
            (Absent, Changed, both(Absent, Begin)),
            (Absent, Begun, both(New, RecordAll)),
            (Absent, NotBegun, both(Absent, Tell)),
            (Absent, Written, both(Absent, Nothing)),
            (Absent, NotWritten, both(Absent, Nothing)),
            (Absent, Placed, both(Absent, Nothing)),
            (Absent, NotPlaced, both(Absent, Nothing)),
            (New, Changed, both(New, Nothing)),
            (New, Begun, both(New, Nothing)),
            (New, NotBegun, both(New, Nothing)),
            (New, Written, both(New, Place)),
            (New, NotWritten, [(Absent, GiveUp), (New, Place)]),
            (New, Placed, both(InPlace, Nothing)),
            (New, NotPlaced, [(Absent, GiveUp), (New, Tell)]),
            (InPlace, Changed, both(InPlace, Nothing)),
            (InPlace, Begun, both(InPlace, Nothing)),
            (InPlace, NotBegun, both(InPlace, Nothing)),
            (InPlace, Written, both(InPlace, Nothing)),
            (InPlace, NotWritten, [(Absent, GiveUp), (InPlace, Nothing)]),
            (InPlace, Placed, both(InPlace, Nothing)),
            (InPlace, NotPlaced, both(InPlace, Nothing)),
        ];
        for (stage, event, wanted) in table {
            let steps = [Table::Policies, Table::States].map(|table| step(table, stage, event));
            assert_eq!(steps, wanted, "{stage:?}, {event:?}");
        }
    }

    #[test]
    fn a_failure_is_told_once_until_the_journal_is_in_place() {
        let failure = || io::Error::from(io::ErrorKind::StorageFull);
        let is = |Done { action, news }: Done, wanted, is_told| assert_eq!((action, news.is_some()), (wanted, is_told));
        let mut ours = Ours::none(Table::Policies);
        is(ours.begun(Err(failure())), Tell, true);
        // A batch without a journal ends no failure.
        is(ours.written(Ok(()), |_| unreachable!("there is none")), Nothing, false);
        is(ours.begun(Err(failure())), Tell, false);
        is(ours.begun(Ok(1)), RecordAll, false);
        is(ours.written(Err(failure()), |_| unreachable!("it is given up")), GiveUp, false);
        is(ours.begun(Ok(2)), RecordAll, false);
        is(ours.written(Ok(()), |_| Err(failure())), GiveUp, false);
        is(ours.begun(Ok(3)), RecordAll, false);
        let placed = ours.written(Ok(()), |journal| {
            assert_eq!(*journal, 3);
            Ok(())
        });
        is(placed, Nothing, false);
        is(ours.written(Err(failure()), |_| unreachable!("it is in place")), GiveUp, true);
        is(ours.begun(Ok(4)), RecordAll, false);
        is(ours.written(Ok(()), |_| Ok(())), Nothing, false);
        is(ours.written(Ok(()), |_| unreachable!("it is in place")), Nothing, false);
        assert_eq!((ours.on_change(), ours.get()), (Nothing, Some(&4)));
        is(ours.written(Err(failure()), |_| unreachable!("it is in place")), GiveUp, true);
        assert_eq!((ours.on_change(), ours.get_mut()), (Begin, None));
    }

    /// A batch of states may lack some.
    #[test]
    fn a_journal_of_states_goes_on() {
        let failure = || io::Error::from(io::ErrorKind::StorageFull);
        let mut ours = Ours::none(Table::States);
        assert_eq!(ours.begun(Ok(1)).action, RecordAll);
        for is_first in [true, false] {
            let Done { action, news } = ours.written(Err(failure()), |_| Err(failure()));
            assert_eq!((action, news.is_some(), ours.get()), (Tell, is_first, Some(&1)));
        }
        assert_eq!(ours.written(Err(failure()), |_| Ok(())).action, Nothing);
        let Done { action, news } = ours.written(Err(failure()), |_| unreachable!("it is in place"));
        assert_eq!((action, news.is_some(), ours.get()), (Nothing, false, Some(&1)));
    }
}
