//! The packets of a namespace, and the events that follow from them.

use crate::burst::{Paths, Run};
use crate::data::{Owner, Tables, is_unknown};
use crate::namespace::Xfrm;
use crate::reply::Notice;
use crate::time::Now;
use sealane_net_ipsec::drop::Stat;
use sealane_net_ipsec::open::Inbound;
use sealane_net_ipsec::sad::Sad;
use sealane_net_ipsec::seal::Outbound;
use sealane_net_ipsec::spd::Spd;

impl Xfrm {
    /// Seals each packet that a policy protects, see [`Tables::outbound`]. Returns what key managers are to hear.
    pub fn outbound(
        &mut self,
        runs: &[Run],
        packets: &mut [Outbound<'_>],
        paths: &mut impl Paths,
        cpu: u32,
        now: Now,
    ) -> Vec<Notice> {
        self.data.tables(cpu, now).outbound(runs, packets, paths);
        self.notices(now)
    }

    /// Opens packets and asks the policies, see [`Tables::inbound`]. Returns what key managers are to hear.
    pub fn inbound(&mut self, packets: &mut [Inbound<'_>], paths: &mut impl Paths, now: Now) -> Vec<Notice> {
        self.data.tables(0, now).inbound(packets, paths);
        self.notices(now)
    }

    /// The tables for one burst, which is processed in phases and ends with [`Self::take_notices`].
    pub fn tables(&mut self, cpu: u32, now: Now) -> Tables<'_> {
        self.data.tables(cpu, now)
    }

    /// The events for key managers that packets caused.
    pub fn take_notices(&mut self, now: Now) -> Vec<Notice> {
        self.notices(now)
    }

    /// The packets that came out of payloads of IP-TFS and that are to be delivered, in their order.
    pub fn take_emerged(&mut self) -> Vec<Inbound<'static>> {
        self.data.take_emerged()
    }

    /// The policies.
    #[must_use]
    pub fn spd(&self) -> &Spd {
        &self.data.spd
    }

    /// The states.
    #[must_use]
    pub fn sad(&self) -> &Sad {
        &self.data.sad
    }

    /// The counters of `/proc/net/xfrm_stat`, devices included, and the traffic of all states.
    #[must_use]
    pub fn stat(&self) -> Stat {
        let mut stat = self.data.stat();
        self.add_device_stat(&mut stat);
        stat
    }

    /// The number of states, and of policies by direction: in, out, forward.
    #[must_use]
    pub fn sizes(&self) -> (usize, [u32; 3]) {
        (self.states.len(), self.policies.counts())
    }

    /// Leaves packets of unknown states to other tables from now on; [`Self::count_unknown`] counts them.
    pub fn leave_unknown(&mut self) {
        self.data.owner = Owner::Stack;
    }

    /// From now on there are xfrm interfaces with these interface ids: what comes through states with one of them comes
    /// out of its interface ([`Inbound::if_id`]), and has the policies of that.
    pub fn set_interfaces(&mut self, mut if_ids: Vec<u32>) {
        if_ids.retain(|if_id| *if_id != 0);
        self.data.interfaces = if_ids;
    }

    /// Counts packets whose state nobody has, or is not valid.
    pub fn count_unknown(&mut self, packets: &[Inbound<'_>]) {
        let unknown = packets.iter().filter(|packet| is_unknown(packet));
        unknown.filter_map(|packet| packet.status.err()).for_each(|reason| self.data.stat.dropped(reason));
    }

    fn notices(&mut self, now: Now) -> Vec<Notice> {
        let mut notices = Vec::new();
        if !self.data.events.is_empty() {
            let events = core::mem::take(&mut self.data.events);
            self.handle_events(events, now, &mut notices);
        }
        self.take_leases();
        notices
    }
}
