//! As much of a kernel as decides where packets go: the hooks of netfilter, NAT by connections, routing by marks, and flows
//! that a flowtable has taken over.

use crate::flow::{ESP, Flow, GRE, set_addresses};
use crate::net::{CLIENT, HOST_WAN, LAN, LO, Prefix, SERVER, SERVICE, TUN, WAN, is_local};
use sealane_rules::eval::{Device, Packet, Verdict};
use sealane_rules::rule::{Rule, Step};
use sealane_rules::table::{Chain, ChainType, Family, Hook, Name, Owned, Point, Table};
use sealane_sys::marks::Bits;

/// Priorities of NAT (`NF_IP_PRI_NAT_DST`, `NF_IP_PRI_NAT_SRC`).
const DESTINATION_NAT: i32 = -100;
const SOURCE_NAT: i32 = 100;
/// The priority of the chain that has a flowtable take flows over.
const FLOWS: i32 = 0;

/// The name of the table of others that changes marks.
const MANGLE: &str = "mangle";

/// The kernel of one host.
pub(crate) struct Kernel {
    tables: Vec<Installed>,
    /// The order of creation of base chains.
    created: u32,
    /// For each point the chains in the order in which packets get to them.
    hooks: [Vec<At>; POINTS.len()],
    /// Rules of others.
    pub(crate) masquerades: bool,
    pub(crate) translates: bool,
    pub(crate) has_flowtable: bool,
    pub(crate) is_wan_up: bool,
    pub(crate) routes: Routes,
    connections: Vec<Connection>,
    offloaded: Vec<Offloaded>,
    /// Of all ways: one that was found before a change is looked for again.
    generation: u32,
}

/// Routing beside the main table.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Routes {
    /// Whether our rule for marked packets is there.
    pub(crate) rule: bool,
    /// Whether our table has the route to the TUN device; the one to nowhere stays.
    pub(crate) device: bool,
    /// Whether somebody has a rule before it that leads everything to the main table.
    pub(crate) others_first: bool,
}

const POINTS: [Point; 5] = [Point::Prerouting, Point::Input, Point::Forward, Point::Output, Point::Postrouting];

struct Installed {
    table: Table,
    /// The order of creation of each chain.
    created: Vec<u32>,
}

/// One call at a hook.
#[derive(Debug, Clone, Copy)]
struct At {
    priority: i32,
    created: u32,
    call: Call,
}

#[derive(Debug, Clone, Copy)]
enum Call {
    Chain { table: usize, chain: usize },
    Destination,
    Source,
    Offload,
}

/// A connection as NAT knows it: the flow as it began, and the flow of its answers.
struct Connection {
    original: Flow,
    reply: Flow,
    is_answered: bool,
    /// Whether a packet of it got through all hooks. Without one there is no connection.
    is_confirmed: bool,
    /// Whether the rules of source NAT have been asked.
    is_settled: bool,
}

/// One direction of a flow that a flowtable has taken over.
struct Offloaded {
    flow: Flow,
    connection: usize,
    /// The devices by which it comes, of which its key has the index, and leaves.
    by: Device,
    device: Device,
    generation: u32,
    /// Whether the packet that had it taken over went the other way.
    is_back: bool,
    /// Whether a policy covered it already when it was taken over, and nobody could know; nothing where nobody has looked yet.
    was_covered: Option<bool>,
}

/// The end of a packet's way through the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// To the wire of a device.
    Left(Device),
    /// To whoever reads the TUN device.
    ToTun,
    /// To a socket of the host.
    Here,
    /// By a rule.
    Refused,
    /// There is no way.
    Unreachable,
}

/// A packet at the end of its way.
#[derive(Debug)]
pub(crate) struct Passage {
    pub(crate) fate: Fate,
    pub(crate) packet: Packet,
    /// The flow as it came, as routing and policies see it, and as it leaves.
    pub(crate) came: Flow,
    pub(crate) routed: Flow,
    pub(crate) left: Flow,
    /// The chain that refused it.
    pub(crate) chain: Option<String>,
    /// Whether a flowtable had it, and whether a policy covered it then.
    pub(crate) was_offloaded: bool,
    pub(crate) was_covered: bool,
}

impl Kernel {
    pub(crate) fn new() -> Self {
        let mut kernel = Kernel {
            tables: Vec::new(),
            created: 0,
            hooks: Default::default(),
            masquerades: false,
            translates: false,
            has_flowtable: false,
            is_wan_up: true,
            routes: Routes::default(),
            connections: Vec::new(),
            offloaded: Vec::new(),
            generation: 0,
        };
        kernel.order();
        kernel
    }

    // Tables.

    /// The table with a name.
    pub(crate) fn table(&self, name: Name<'_>) -> Option<&Table> {
        self.tables.iter().map(|installed| &installed.table).find(|table| table.name() == name)
    }

    /// Creates a table with its contents.
    pub(crate) fn create(&mut self, table: Table) {
        assert!(self.table(table.name()).is_none(), "there is one of this name");
        let created = table.chains.iter().map(|_| {
            self.created += 1;
            self.created
        });
        let created = created.collect();
        self.tables.push(Installed { table, created });
        self.order();
    }

    /// Deletes a table, if it is there.
    pub(crate) fn delete(&mut self, name: Name<'_>) {
        self.tables.retain(|installed| installed.table.name() != name);
        self.order();
    }

    /// Writes other rules into a chain that is there, which keeps its place.
    pub(crate) fn rewrite(&mut self, name: Name<'_>, chain: Chain) {
        let table = self.tables.iter_mut().map(|installed| &mut installed.table).find(|table| table.name() == name);
        let there = table.and_then(|table| table.chains.iter_mut().find(|there| there.name == chain.name));
        there.expect("the chain is there").rules = chain.rules;
    }

    /// `nft flush ruleset` of somebody else. A table of ours stays as long as somebody has its owner's socket.
    pub(crate) fn flush(&mut self) {
        self.tables.retain(|installed| installed.table.owned != Owned::Nobody);
        (self.masquerades, self.translates, self.has_flowtable) = (false, false, false);
        self.offloaded.clear();
        self.order();
    }

    /// Somebody's chains that give packets a mark, at this priority; `None` removes them.
    pub(crate) fn mangle(&mut self, of: Option<(i32, u32)>) {
        self.delete(Name { family: Family::Inet, name: MANGLE });
        let Some((priority, mark)) = of else { return };
        let chain = |name: &'static str, kind, point| {
            let rule = Rule::new().step(Step::SetMark { keep: 0, set: mark });
            Chain::new(name, Some(Hook::new(kind, point, priority)), vec![rule])
        };
        let chains = vec![
            chain("prerouting", ChainType::Filter, Point::Prerouting),
            chain("output", ChainType::Route, Point::Output),
        ];
        let (family, owned) = (Family::Inet, Owned::Nobody);
        self.create(Table { family, name: MANGLE.into(), owned, sets: Vec::new(), chains });
    }

    /// Whether somebody gives packets marks.
    pub(crate) fn mangles(&self) -> bool {
        self.table(Name { family: Family::Inet, name: MANGLE }).is_some()
    }

    /// Of two chains of one priority at a hook the later one comes first (`nf_hook_entries_grow`).
    fn order(&mut self) {
        for (point, hooks) in POINTS.into_iter().zip(&mut self.hooks) {
            hooks.clear();
            let fixed = |priority, call| At { priority, created: 0, call };
            match point {
                Point::Prerouting | Point::Output => hooks.push(fixed(DESTINATION_NAT, Call::Destination)),
                Point::Postrouting => hooks.push(fixed(SOURCE_NAT, Call::Source)),
                Point::Forward => hooks.push(fixed(FLOWS, Call::Offload)),
                _ => {}
            }
            for (at, Installed { table, created }) in self.tables.iter().enumerate() {
                for (chain, created) in (0..).zip(created) {
                    let hook = table.chains[chain].hook.as_ref().filter(|hook| hook.point == point);
                    hooks.extend(hook.map(|hook| At {
                        priority: hook.priority,
                        created: *created,
                        call: Call::Chain { table: at, chain },
                    }));
                }
            }
            hooks.sort_by_key(|at| (at.priority, core::cmp::Reverse(at.created)));
        }
    }

    // Routes.

    /// A change of rules or routes makes every way that was found before it stale.
    pub(crate) fn choose_anew(&mut self) {
        self.generation += 1;
    }

    /// The device by which a packet leaves; the loopback device for the host itself.
    fn route(&self, packet: &Packet) -> Option<Device> {
        let bits = Bits::new(0, 0);
        let to = Flow::of(&packet.bytes).destination;
        if is_local(to) {
            return Some(LO);
        }
        let ours = self.routes.rule && !self.routes.others_first && packet.mark & bits.protect != 0;
        if ours {
            return self.routes.device.then_some(TUN);
        }
        if Prefix(CLIENT, 24).has(to) { Some(LAN) } else { self.is_wan_up.then_some(WAN) }
    }

    // Packets.

    /// The way of a packet that comes by a device.
    pub(crate) fn receive(&mut self, mut packet: Packet, by: Device) -> Passage {
        packet.from = by;
        let came = Flow::of(&packet.bytes);
        if by != TUN
            && let Some((device, connection, was_covered)) = self.taken_over(&came, by)
        {
            let left = self.connections[connection].translated(&came);
            set_addresses(&mut packet, left.source, left.destination);
            let fate = if device == TUN { Fate::ToTun } else { Fate::Left(device) };
            return Passage { fate, packet, came, routed: left, left, chain: None, was_offloaded: true, was_covered };
        }
        let connection = self.connection(&came);
        let mut way = Way { packet, came, routed: came, connection };
        if let Err(chain) = self.hook(Point::Prerouting, &mut way) {
            return way.end(Fate::Refused, Some(chain));
        }
        way.routed = Flow::of(&way.packet.bytes);
        let Some(device) = self.route(&way.packet) else { return way.end(Fate::Unreachable, None) };
        if device == LO {
            return match self.hook(Point::Input, &mut way) {
                Ok(()) => {
                    self.confirm(&way);
                    way.end(Fate::Here, None)
                }
                Err(chain) => way.end(Fate::Refused, Some(chain)),
            };
        }
        way.packet.to = device;
        match self.hook(Point::Forward, &mut way) {
            Ok(()) => self.leave(way),
            Err(chain) => way.end(Fate::Refused, Some(chain)),
        }
    }

    /// The way of a packet of this host.
    pub(crate) fn send(&mut self, mut packet: Packet) -> Passage {
        let came = Flow::of(&packet.bytes);
        let connection = self.connection(&came);
        let Some(device) = self.route(&packet) else {
            return Way { packet, came, routed: came, connection }.end(Fate::Unreachable, None);
        };
        packet.to = device;
        let mut way = Way { packet, came, routed: came, connection };
        if let Err(chain) = self.hook(Point::Output, &mut way) {
            return way.end(Fate::Refused, Some(chain));
        }
        way.routed = Flow::of(&way.packet.bytes);
        self.leave(way)
    }

    /// Behind routing.
    fn leave(&mut self, mut way: Way) -> Passage {
        if let Err(chain) = self.hook(Point::Postrouting, &mut way) {
            return way.end(Fate::Refused, Some(chain));
        }
        self.confirm(&way);
        let fate = match way.packet.to {
            LO => Fate::Here,
            TUN => Fate::ToTun,
            device => Fate::Left(device),
        };
        way.end(fate, None)
    }

    /// All chains at a point; the name of the one that refuses it.
    fn hook(&mut self, point: Point, way: &mut Way) -> Result<(), String> {
        let at = POINTS.iter().position(|other| *other == point).expect("a point that packets of IP get to");
        for hook in 0..self.hooks[at].len() {
            match self.hooks[at][hook].call {
                Call::Chain { table, chain } => {
                    let table = &self.tables[table].table;
                    let chain = &table.chains[chain];
                    let mark = way.packet.mark;
                    let (verdict, by) = table.judge(&chain.name, &mut way.packet);
                    if verdict != Verdict::Accept {
                        return Err(by.unwrap_or_default().to_owned());
                    }
                    let kind = chain.hook.as_ref().map(|hook| hook.kind);
                    if mark != way.packet.mark && kind == Some(ChainType::Route) {
                        self.route_anew(way)?;
                    }
                }
                Call::Destination => {
                    if self.translate_destination(way) && point == Point::Output {
                        self.route_anew(way)?;
                    }
                }
                Call::Source => self.translate_source(way),
                Call::Offload => self.take_over(way),
            }
        }
        Ok(())
    }

    fn route_anew(&self, way: &mut Way) -> Result<(), String> {
        way.packet.to = self.route(&way.packet).ok_or_else(|| "no route".to_owned())?;
        Ok(())
    }

    // Connections and NAT.

    /// The connection of a flow, which may be a new one. Nobody translates ESP.
    fn connection(&mut self, flow: &Flow) -> Option<usize> {
        if flow.upper.protocol() == ESP {
            return None;
        }
        self.connections.pop_if(|last| !last.is_confirmed);
        if let Some(at) = self.connections.iter().position(|of| of.original == *flow || of.reply == *flow) {
            self.connections[at].is_answered |= self.connections[at].reply == *flow;
            return Some(at);
        }
        let (is_answered, is_confirmed, is_settled) = (false, false, false);
        let reply = flow.back();
        self.connections.push(Connection { original: *flow, reply, is_answered, is_confirmed, is_settled });
        Some(self.connections.len() - 1)
    }

    fn confirm(&mut self, way: &Way) {
        way.connection.into_iter().for_each(|at| self.connections[at].is_confirmed = true);
    }

    /// Changes the destination, if it is to be changed; returns whether it was.
    fn translate_destination(&mut self, way: &mut Way) -> bool {
        let Some(connection) = way.connection.map(|at| &mut self.connections[at]) else { return false };
        let flow = Flow::of(&way.packet.bytes);
        if flow == connection.original {
            if !connection.is_settled && self.translates && flow.destination == SERVICE {
                connection.reply.source = SERVER;
            }
            set_addresses(&mut way.packet, flow.source, connection.reply.source);
            return flow.destination != connection.reply.source;
        }
        // An answer: source NAT is undone.
        set_addresses(&mut way.packet, flow.source, connection.original.source);
        flow.destination != connection.original.source
    }

    /// Changes the source, if it is to be changed.
    fn translate_source(&mut self, way: &mut Way) {
        let Some(connection) = way.connection.map(|at| &mut self.connections[at]) else { return };
        let is_original = way.came == connection.original;
        if !core::mem::replace(&mut connection.is_settled, true)
            && is_original
            && self.masquerades
            && way.packet.to == WAN
        {
            connection.reply.destination = HOST_WAN;
        }
        let flow = Flow::of(&way.packet.bytes);
        let source = if is_original { connection.reply.destination } else { connection.original.destination };
        set_addresses(&mut way.packet, source, flow.destination);
    }

    // Flowtables.

    /// Has a flowtable take over a forwarded flow, both directions of it: this packet's way, and the one by which it came.
    fn take_over(&mut self, way: &Way) {
        let Some(connection) = way.connection.filter(|_| self.has_flowtable) else { return };
        let is_known = self.offloaded.iter().any(|of| of.connection == connection);
        let of = &self.connections[connection];
        if is_known || !of.is_answered || way.came.upper.protocol() == GRE {
            return;
        }
        let back = if way.came == of.original { of.reply } else { of.original };
        let (from, to, generation) = (way.packet.from, way.packet.to, self.generation);
        for (flow, by, device, is_back) in [(way.came, from, to, false), (back, to, from, true)] {
            self.offloaded.push(Offloaded { flow, connection, by, device, generation, is_back, was_covered: None });
        }
    }

    /// The device and connection of a flow that a flowtable has. One whose way is stale is given back (`nf_flow_dst_check`).
    fn taken_over(&mut self, flow: &Flow, by: Device) -> Option<(Device, usize, bool)> {
        let of = self.offloaded.iter().find(|of| of.flow == *flow && of.by == by)?;
        let (device, connection, was_covered) = (of.device, of.connection, of.was_covered == Some(true));
        if of.generation != self.generation {
            self.offloaded.retain(|other| other.connection != connection);
            return None;
        }
        Some((device, connection, was_covered))
    }

    /// Notes of flows that have just been taken over whether a policy covers them, and nobody could know: the packet went the other way, or
    /// is covered behind NAT only.
    pub(crate) fn note_taken_over(&mut self, covers: impl Fn(&Flow) -> bool) {
        let Kernel { offloaded, connections, .. } = self;
        for of in offloaded.iter_mut().filter(|of| of.was_covered.is_none()) {
            let behind_nat = connections[of.connection].translated(&of.flow);
            of.was_covered = Some(if covers(&of.flow) { of.is_back } else { covers(&behind_nat) });
        }
    }

    /// Whether a flowtable has a flow, stale or not.
    pub(crate) fn has_taken_over(&self, flow: &Flow) -> bool {
        self.offloaded.iter().any(|of| of.flow == *flow)
    }

    /// Ends the flowtable.
    pub(crate) fn forget_flows(&mut self) {
        self.offloaded.clear();
    }
}

impl Connection {
    /// A flow of this connection behind all NAT.
    fn translated(&self, flow: &Flow) -> Flow {
        if *flow == self.original { self.reply.back() } else { self.original.back() }
    }
}

/// A packet on its way.
struct Way {
    packet: Packet,
    came: Flow,
    routed: Flow,
    connection: Option<usize>,
}

impl Way {
    fn end(self, fate: Fate, chain: Option<String>) -> Passage {
        let left = Flow::of(&self.packet.bytes);
        let Way { packet, came, routed, .. } = self;
        Passage { fate, packet, came, routed, left, chain, was_offloaded: false, was_covered: false }
    }
}
