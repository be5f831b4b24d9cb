//! Programs of the network namespaces that are served because their names match a pattern.

use super::served::{NewNamespace, Served};
use super::space::Spaces;
use sealane_sys::clock::wall_ms;
use sealane_sys::found::{OnFailure, Service};
use sealane_sys::named_netns::Named;
use sealane_sys::netns::Netns;
use sealane_sys::presence;
use std::io;
use std::path::Path;
use std::time::Instant;

/// TCP-AO in such namespaces.
pub(super) struct Patterns<'a> {
    pub(super) spaces: &'a Spaces,
    /// The daemon's runtime folder.
    pub(super) folder: &'a Path,
    /// Until then processes that still serve them may end. Whoever serves one for longer keeps nobody else waiting.
    pub(super) until: Instant,
}

impl Service for Patterns<'_> {
    type Space = Served;
    const NAME: &'static str = "TCP-AO";
    const SECTION: &'static str = presence::TCP_AO;

    /// Its threads go on when something fails, and a panic is the daemon's failure: `on_failure` is not needed.
    fn start(&self, found: Named, _: OnFailure) -> io::Result<Served> {
        let new = NewNamespace::find(self.spaces, self.folder, found.netns, true)?;
        let patience = self.until.saturating_duration_since(Instant::now());
        // Configured peers are those of namespaces that the configuration names.
        new.open(self.spaces, None, Vec::new(), wall_ms() / 1000, patience)
    }

    fn netns(served: &Served) -> &Netns {
        served.space.netns()
    }

    fn stop(&self, served: Served) {
        served.save();
        self.spaces.close(&served.space);
    }

    fn give_up(&self, served: Served) {
        served.give_up(self.spaces, self.folder);
    }

    fn hand_back(&self, served: Served) {
        served.end(self.spaces, self.folder);
    }
}
