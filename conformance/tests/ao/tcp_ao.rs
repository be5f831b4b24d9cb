//! Random calls on TCP sockets with TCP-AO's options: made in a real kernel by `ao-calls`, which notes the facts about each
//! socket, and answered by `sealane_engine_ao` from the same facts. What the kernels answered to the calls of each run is
//! recorded.

use sealane_abi::tcp::{
    State, TCP_AO_ADD_KEY, TCP_AO_GET_KEYS, TCP_AO_INFO, TCP_AO_REPAIR, TCP_MD5SIG, TCP_MD5SIG_EXT,
};
use sealane_abi::{Errno, Profile};
use sealane_conformance::ao::facts::Facts;
use sealane_conformance::ao::generate::generate;
use sealane_conformance::ao::plan::{Call, Opt, SLOTS};
use sealane_conformance::ao::rle;
use sealane_conformance::recorded::Sequence;
use sealane_conformance::sequences;
use sealane_conformance::shrink::shrink;
use sealane_conformance::skip::{skip, skip_without};
use sealane_conformance::target::{self, Outcome, Target, run_limited};
use sealane_conformance::transcript::{self, Block, parse, with_known, without_known};
use sealane_crypto::Registry;
use sealane_engine_ao::{Accepted, Family, Namespace, NoVrfs, RepairSeqs, SocketFacts, SocketId};
use sealane_net_ao::alg::Algorithms;
use sealane_net_ao::info::{Child, Conn};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

/// Number of sequences of a comparison, unless SEALANE_SEQUENCES says otherwise.
const SEQUENCES: u64 = 400;
const CALLS: usize = 60;

#[derive(Clone, Copy)]
struct Slot {
    id: SocketId,
    v6: bool,
    /// Whether its counters depend on traffic, of which there is none here.
    noisy: bool,
    /// Whether the kernel chose its ISNs at random.
    isns_unknown: bool,
    /// Whether it has had a key, so that the engine knows it.
    known: bool,
    /// Whether it remembers the peer of a connect() that the engine did not see (LIMITATIONS.md).
    remembers: bool,
    /// Whether connect() was called.
    connected: bool,
    /// Whether connect() to a v4-mapped address was called.
    was_mapped: bool,
    /// Whether listen() was called.
    listened: bool,
}

/// A sequence that the engine answers.
struct Replay {
    ns: Namespace,
    slots: [Option<Slot>; SLOTS],
    next_id: u64,
    /// Children to be accepted, by the address of their peer.
    children: Vec<(SocketAddr, SocketId)>,
}

fn facts<'a>(slot: &Slot, f: &Facts, net_admin: bool) -> SocketFacts<'a> {
    SocketFacts {
        family: if slot.v6 { Family::V6 } else { Family::V4 },
        state: State::new(f.state).expect("a state of the kernel's"),
        local: f.local,
        peer: f.peer,
        v6only: f.v6only,
        bound_ifindex: f.ifindex,
        repair: f.repair.map(|(send, receive)| RepairSeqs { send, receive }),
        net_admin,
        interfaces: &NoVrfs,
    }
}

/// The kernel's answer: a number, or an errno.
fn answer(word: &str) -> Result<i64, Errno> {
    match word.strip_prefix('-') {
        None => Ok(word.parse().expect("a number")),
        Some(name) => Err(Errno::from_name(name)
            .or_else(|| name.strip_prefix("errno ").and_then(|n| Errno::new(n.parse().ok()?)))
            .unwrap_or_else(|| panic!("no errno {name}"))),
    }
}

fn text<T: std::fmt::Display>(r: &Result<T, Errno>) -> String {
    match r {
        Ok(n) => n.to_string(),
        Err(e) => format!("-{e}"),
    }
}

impl Replay {
    fn new(registry: &Registry, profile: Profile) -> Self {
        let ns = Namespace::new(profile, Algorithms::new(registry));
        Replay { ns, slots: [None; SLOTS], next_id: 1, children: Vec::new() }
    }

    fn fresh(&mut self, v6: bool) -> Slot {
        let id = SocketId(self.next_id);
        self.next_id += 1;
        Slot {
            id,
            v6,
            noisy: false,
            isns_unknown: false,
            known: false,
            remembers: false,
            connected: false,
            was_mapped: false,
            listened: false,
        }
    }

    /// Answers a call; `Err` is the engine's answer when the kernel's is another one.
    fn call(&mut self, call: &Call, before: &str, result: &str) -> Result<(), String> {
        let (result, after) = result.split_once(" @ ").unwrap_or((result, "-"));
        let (before, after) = (before.parse::<Facts>().ok(), after.parse::<Facts>().ok());
        let word = result.split(' ').next().unwrap_or_default();
        // "-errno 101" contains a space.
        let kernel = answer(if word == "-errno" { result } else { word });
        match call {
            Call::Socket { slot, v6 } => {
                self.close(*slot);
                self.slots[*slot] = Some(self.fresh(*v6));
                Ok(())
            }
            Call::Close { slot } => {
                self.close(*slot);
                Ok(())
            }
            Call::Listen { slot } => {
                if let (Some(s), true) = (&mut self.slots[*slot], kernel.is_ok()) {
                    (s.noisy, s.listened) = (true, true);
                }
                Ok(())
            }
            Call::Connect { slot, addr } => match (before, after) {
                (Some(before), Some(after)) => self.connect(*slot, *addr, &before, &after, kernel),
                _ => Ok(()),
            },
            Call::Accept { new, .. } => {
                if let (Ok(_), Some(after)) = (kernel, after) {
                    self.close(*new);
                    let mut child = self.fresh(after.local.is_some_and(|a| a.is_ipv6()));
                    (child.noisy, child.isns_unknown, child.known) = (true, true, true);
                    if let Some(at) = self.children.iter().position(|(peer, _)| Some(*peer) == after.peer) {
                        child.id = self.children.remove(at).1;
                    }
                    self.slots[*new] = Some(child);
                }
                Ok(())
            }
            Call::Set(o) => before.map_or(Ok(()), |before| self.set(o, &before, kernel)),
            Call::Get(o) => before.map_or(Ok(()), |before| self.get(o, &before, kernel, result)),
            Call::Disconnect { slot } => {
                if let Some(s) = self.slots[*slot] {
                    self.ns.disconnect(s.id);
                }
                Ok(())
            }
            Call::V6only { .. } | Call::Bind { .. } | Call::Repair { .. } | Call::QueueSeq { .. } => Ok(()),
        }
    }

    fn close(&mut self, slot: usize) {
        if let Some(s) = self.slots[slot].take() {
            self.ns.closed(s.id);
        }
    }

    fn connect(
        &mut self,
        slot: usize,
        addr: SocketAddr,
        before: &Facts,
        after: &Facts,
        kernel: Result<i64, Errno>,
    ) -> Result<(), String> {
        let s = self.slots[slot].as_mut().ok_or("no such slot")?;
        s.remembers |= !s.known;
        s.connected = true;
        let mapped = matches!(addr, SocketAddr::V6(a) if a.ip().to_ipv4_mapped().is_some());
        let was_mapped = s.was_mapped && !mapped;
        s.was_mapped |= mapped;
        let id = s.id;
        let ours = self.ns.connect(id, &facts(s, before, true), addr);
        match (ours, kernel) {
            (Err(_), Err(Errno::EKEYREJECTED)) => {}
            // The kernel looks for a route first, and checks an earlier connect() (LIMITATIONS.md).
            (Err(_), Err(Errno::ENETUNREACH | Errno::EHOSTUNREACH | Errno::EINVAL)) => {}
            (Err(_), Err(Errno::ECONNREFUSED | Errno::ECONNRESET | Errno::EISCONN)) if s.remembers => {}
            (Err(e), _) => return Err(format!("-{e}")),
            // Linux still looks for MD5 keys of the earlier IPv4 peer (LIMITATIONS.md).
            (Ok(()), Err(Errno::EKEYREJECTED)) if was_mapped => {}
            (Ok(()), Err(Errno::EKEYREJECTED)) => return Err("0".to_owned()),
            (Ok(()), _) => {}
        }
        let done = self.ns.connect_done(id, &facts(s, after, true), kernel.map(|_| ()));
        done.map_err(|e| format!("then -{e}"))?;
        if before.state == State::Close as u8 && matches!(kernel, Ok(_) | Err(Errno::EINPROGRESS)) {
            s.noisy |= before.repair.is_none();
            s.isns_unknown = before.repair.is_none();
        }
        // Over loopback the handshake has been completed by now.
        if after.state != State::Established as u8 || before.state == after.state || before.repair.is_some() {
            return Ok(());
        }
        let (Some(local), Some(info)) = (after.local, self.ns.info(id)) else { return Ok(()) };
        let id_of = |key: Option<_>| key.and_then(|k| info.key(k));
        let (Some(current), Some(rnext)) = (id_of(info.current()), id_of(info.rnext())) else {
            return Err("0, and no key was chosen".to_owned());
        };
        let (key_id, rnext_key_id) = (current.mkt.send_id, rnext.mkt.recv_id);
        let port = addr.port();
        let listener = 20_000..=u16::MAX;
        let listener = listener.contains(&port).then_some((port % 8) as usize).and_then(|s| *self.slots.get(s)?);
        let Some(listener) = listener.filter(|l| l.id != id && self.ns.info(l.id).is_some()) else { return Ok(()) };
        let child = self.fresh(listener.v6).id;
        let conn = Conn::new(addr, local, 1, 2);
        let handshake = Child { conn, ifindex: 0, key_id, rnext_key_id };
        let accepted = Accepted { listener: listener.id, child, handshake };
        self.ns.accepted(&accepted).map_err(|e| format!("0, and accepting says -{e}"))?;
        let seen_as = match (listener.v6, local) {
            (true, SocketAddr::V4(a)) => SocketAddr::new(a.ip().to_ipv6_mapped().into(), a.port()),
            (false, _) => SocketAddr::new(local.ip().to_canonical(), local.port()),
            _ => local,
        };
        self.children.push((seen_as, child));
        Ok(())
    }

    fn set(&mut self, o: &Opt, before: &Facts, kernel: Result<i64, Errno>) -> Result<(), String> {
        let slot = self.slots[o.slot].as_mut().ok_or("no such slot")?;
        let f = facts(slot, before, !o.as_user);
        // Peers of connect() calls that the engine did not see, or that listen() without bind() keeps (LIMITATIONS.md).
        let may_remember = slot.remembers && f.peer.is_none() || slot.connected && slot.listened;
        if o.name == TCP_AO_ADD_KEY && may_remember && kernel == Err(Errno::EINVAL) {
            return Ok(());
        }
        let ours = if matches!(o.name, TCP_MD5SIG | TCP_MD5SIG_EXT) {
            self.ns.md5_setsockopt(slot.id, &f, o.name, &o.memory, o.len, || match kernel {
                // A kernel without TCP-AO would have accepted it.
                Ok(_) | Err(Errno::EKEYREJECTED) => Ok(()),
                Err(e) => Err(e),
            })
        } else {
            self.ns.setsockopt(slot.id, &f, o.name, &o.memory, o.len)
        };
        slot.known |= ours.is_ok();
        if ours.is_ok() && o.name == TCP_AO_REPAIR {
            slot.isns_unknown = false;
        }
        if ours == kernel.map(|_| ()) { Ok(()) } else { Err(text(&ours.map(|()| 0))) }
    }

    fn get(&mut self, o: &Opt, before: &Facts, kernel: Result<i64, Errno>, result: &str) -> Result<(), String> {
        let slot = self.slots[o.slot].ok_or("no such slot")?;
        let f = facts(&slot, before, !o.as_user);
        let mut memory = o.memory.clone();
        let ours = self.ns.getsockopt(slot.id, &f, o.name, &o.memory, o.len).and_then(|answer| {
            for w in answer.optval() {
                let room = memory.get_mut(w.offset..w.offset + w.bytes.len()).ok_or(Errno::EFAULT)?;
                room.copy_from_slice(&w.bytes);
            }
            Ok(i64::from(answer.optlen.unwrap_or(o.len)))
        });
        if ours != kernel {
            return Err(text(&ours));
        }
        if ours.is_err() {
            return Ok(());
        }
        let mut theirs = result.split_once(' ').and_then(|(_, bytes)| rle::decode(bytes)).ok_or("no bytes")?;
        let shown = memory.clone();
        if o.name == TCP_AO_REPAIR && slot.isns_unknown {
            return Ok(());
        }
        if slot.noisy {
            mask(o, &mut memory);
            mask(o, &mut theirs);
        }
        if memory == theirs { Ok(()) } else { Err(format!("{} {}", text(&ours), rle::encode(&shown))) }
    }
}

/// Clears counters that depend on traffic.
fn mask(o: &Opt, memory: &mut [u8]) {
    match o.name {
        TCP_AO_INFO => memory.iter_mut().take(48).skip(8).for_each(|b| *b = 0),
        TCP_AO_GET_KEYS => {
            for entry in memory.chunks_mut(o.len.max(1) as usize) {
                entry.iter_mut().take(304).skip(288).for_each(|b| *b = 0);
            }
        }
        _ => {}
    }
}

/// Returns the first line of a sequence that the engine answers differently, and its answer.
fn replay(registry: &Registry, profile: Profile, plan: &[Call], block: &Block) -> Option<(usize, String)> {
    let mut r = Replay::new(registry, profile);
    for (at, line) in block.lines.iter().enumerate() {
        let parsed = (|| {
            let index: usize = line.split(' ').next()?.parse().ok()?;
            let call = plan.get(index)?;
            let rest = line.strip_prefix(&format!("{index} {call} @ "))?;
            let (before, result) = rest.split_once(" = ")?;
            Some((call, before, result))
        })();
        let Some((call, before, result)) = parsed else { return Some((at, "cannot read this line".to_owned())) };
        if let Err(ours) = r.call(call, before, result) {
            return Some((at, ours));
        }
    }
    None
}

/// The place where the calls are made.
enum Place {
    /// A kernel with TCP-AO.
    Kernel(Target),
    /// A network namespace of this machine, under `sealane run --tcp-ao`.
    Sealane(&'static str),
}

impl Place {
    fn label(&self) -> String {
        match self {
            Place::Kernel(target) => target.label(),
            Place::Sealane(profile) => Target::sealane(profile).label(),
        }
    }

    fn run(&self, argv: &[&str], limit: Duration) -> std::io::Result<Outcome> {
        match self {
            Place::Kernel(target) => target.run(argv, limit),
            Place::Sealane(profile) => {
                let mut command = Command::new("unshare");
                command.arg("-n").arg(target::sealane()).args(["run", "--profile", profile, "--tcp-ao", "--"]);
                // Handshakes pass through a queue there.
                command.args(argv).args(["--settle", "30"]);
                let runtime = std::env::temp_dir().join(format!("sealane-ao-run.{}", std::process::id()));
                command.env("SEALANE_RUNTIME_DIR", &runtime);
                let outcome = run_limited(command, limit);
                let _ = std::fs::remove_dir_all(runtime);
                outcome
            }
        }
    }
}

struct Oracle {
    registry: Registry,
    profile: Profile,
    place: Place,
    seed: u64,
}

impl Oracle {
    fn record(&self, extra: &[&str], sequences: usize) -> Vec<Block> {
        let file =
            std::env::temp_dir().join(format!("sealane-ao.{}.{:?}", std::process::id(), std::thread::current().id()));
        let (seed, calls) = (self.seed.to_string(), CALLS.to_string());
        let path = file.to_string_lossy();
        let mut argv = vec![env!("CARGO_BIN_EXE_ao-calls"), "--seed", &seed, "--calls", &calls, "--output", &path];
        argv.extend(extra);
        let limit = Duration::from_secs(20) + Duration::from_millis(50) * sequences as u32;
        let outcome = self.place.run(&argv, limit).expect("the kernel starts");
        let blocks = parse(&std::fs::read_to_string(&file).unwrap_or_default());
        let _ = std::fs::remove_file(&file);
        let complete = blocks.iter().filter(|b| b.complete).count();
        assert_eq!(complete, sequences, "{}: {} {}", self.place.label(), outcome.text, outcome.errors);
        blocks
    }

    fn judge(&self, number: u64, block: &Block) -> Option<(usize, String)> {
        replay(&self.registry, self.profile, &generate(self.seed, number, CALLS), block)
    }

    /// Returns the answers to the first `sequences` sequences.
    fn record_all(&self, sequences: u64) -> Vec<Block> {
        let mut blocks = Vec::new();
        for from in (0..sequences).step_by(500) {
            let count = (sequences - from).min(500);
            let range = ["--from", &from.to_string(), "--sequences", &count.to_string()];
            blocks.extend(self.record(&range, count as usize));
        }
        blocks
    }

    /// Returns the smallest part of a sequence that still differs, as text.
    fn reproducer(&self, number: u64, block: &Block, last: usize, ours: &str) -> String {
        if let Place::Kernel(kernel) = &self.place
            && let Some(missing) = kernel.missing()
        {
            let lines = block.lines[..=last].join("\n    ");
            return format!("sequence {number}, not shrunk ({missing}):\n    {lines}\n  > here: {ours}\n");
        }
        let plan = std::env::temp_dir().join(format!("sealane-ao-plan.{}", std::process::id()));
        let run = |candidates: &[Vec<usize>]| -> Vec<(Block, Option<(usize, String)>)> {
            std::fs::write(&plan, sequences::plan(number, candidates)).expect("a plan");
            let blocks = self.record(&["--plan", &plan.to_string_lossy()], candidates.len());
            blocks.into_iter().map(|b| (self.judge(number, &b), b)).map(|(d, b)| (b, d)).collect()
        };
        let keep = shrink((0..=last).collect(), |c| run(c).iter().map(|(_, d)| d.is_some()).collect());
        let (block, difference) = run(std::slice::from_ref(&keep)).remove(0);
        let _ = std::fs::remove_file(&plan);
        let (at, ours) = difference.unwrap_or((usize::MAX, "(it did not come back)".to_owned()));
        let mut out = format!("sequence {number}, seed {}, calls {keep:?}:\n", self.seed);
        for (i, line) in block.lines.iter().enumerate() {
            out += &format!("    {line}\n");
            if i == at {
                out += &format!("  > here: {ours}\n");
            }
        }
        out
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|n| n.parse().ok())
}

fn oracle(place: Place, profile: Profile) -> Oracle {
    let registry = Registry::builder(sealane_crypto_portable::self_test).rows(sealane_crypto_portable::rows()).build();
    Oracle { registry, profile, place, seed: number("SEALANE_SEED").unwrap_or(1) }
}

/// Compares the engine's answers with those of a place.
fn compare(test: &str, oracle: &Oracle, blocks: &[Block]) {
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    let mut reports = String::new();
    let mut calls = 0;
    for block in blocks {
        calls += block.lines.len();
        let Some((at, ours)) = oracle.judge(block.number, block) else { continue };
        let line = &block.lines[at];
        let what = line.split(' ').nth(1).unwrap_or_default();
        let theirs = line.split_once(" = ").map_or("", |(_, r)| r.split(' ').next().unwrap_or_default());
        let kind = ours.split(' ').next().unwrap_or_default();
        let seen = kinds.entry(format!("{what}: {theirs} | {kind}")).or_default();
        *seen += 1;
        if *seen == 1 && kinds.len() <= 6 {
            reports += &oracle.reproducer(block.number, block, at, &ours);
        }
    }
    println!("{test}: {} sequences, {calls} calls compared", blocks.len());
    assert!(calls >= blocks.len() * CALLS / 2, "the sequences are too short");
    assert!(kinds.is_empty(), "\n{reports}\n{kinds:#?}");
}

/// The sources of `ao-calls` that make calls and show their results.
const SOURCES: [&str; 6] = [
    "conformance/src/bin/ao-calls.rs",
    "conformance/src/ao/perform.rs",
    "conformance/src/ao/facts.rs",
    "conformance/src/ao/rle.rs",
    "conformance/src/sys.rs",
    "conformance/src/sys/tcp.rs",
];

/// The beginning of an answer with ISNs, which the kernel may have chosen.
const ISNS: &str = "? ";

/// The facts about each slot that are known: those before its last call, or after it.
#[derive(Default)]
struct LastFacts([String; SLOTS]);

impl LastFacts {
    fn note(&mut self, call: &Call, before: &str, result: &str) {
        before.clone_into(&mut self.0[call.slot()]);
        if let Some((_, after)) = result.split_once(" @ ") {
            let slot = if let Call::Accept { new, .. } = call { *new } else { call.slot() };
            after.clone_into(&mut self.0[slot]);
        }
    }
}

/// Writes `@ BEFORE = RESULT` as `RESULT` when BEFORE is known.
fn without_facts(last: &mut LastFacts, call: &Call, line: &str) -> String {
    let (before, result) = line.strip_prefix("@ ").and_then(|l| l.split_once(" = ")).expect("facts");
    let isns = if matches!(call, Call::Get(Opt { name: TCP_AO_REPAIR, .. })) { ISNS } else { "" };
    let facts = if last.0[call.slot()] == before { String::new() } else { format!("@ {before} = ") };
    last.note(call, before, result);
    format!("{facts}{isns}{result}")
}

/// Reads what [`without_facts`] writes.
fn with_facts(last: &mut LastFacts, call: &Call, line: &str) -> String {
    let noted = line.strip_prefix("@ ").and_then(|l| l.split_once(" = "));
    let (before, result) = noted.unwrap_or((&last.0[call.slot()], line));
    let (before, result) = (before.to_owned(), result.strip_prefix(ISNS).unwrap_or(result));
    last.note(call, &before, result);
    format!("@ {before} = {result}")
}

/// Changes all lines, in order.
fn each_line(mut blocks: Vec<Block>, seed: u64, change: fn(&mut LastFacts, &Call, &str) -> String) -> Vec<Block> {
    for block in &mut blocks {
        let mut last = LastFacts::default();
        for (line, call) in block.lines.iter_mut().zip(&generate(seed, block.number, CALLS)) {
            *line = change(&mut last, call, line);
        }
    }
    blocks
}

/// Hides ports and ISNs, which a kernel chooses: also whether one port is chosen twice is chance.
fn without_chosen(text: &str) -> String {
    let mut masked = String::new();
    for line in text.lines() {
        for (at, word) in line.split(' ').enumerate() {
            let address = word.rsplit_once(':').and_then(|(ip, port)| Some((ip, port.parse::<u16>().ok()?)));
            let isns = word.split_once(',').is_some_and(|(a, b)| a.parse::<u32>().and(b.parse::<u32>()).is_ok());
            masked += if at > 0 { " " } else { "" };
            match address {
                _ if isns => masked += "isns",
                Some((ip, port)) if port >= 32_768 => masked += &format!("{ip}:chosen"),
                _ => masked += word,
            }
            if word == ISNS.trim_end() {
                break;
            }
        }
        masked.push('\n');
    }
    masked
}

fn compare_kernel(test: &str, kernel: &str, profile: Profile) {
    let oracle = oracle(Place::Kernel(Target::kernel(kernel)), profile);
    let sequences = number("SEALANE_SEQUENCES").unwrap_or(SEQUENCES);
    let calls = |sequence| {
        let calls = generate(oracle.seed, sequence, CALLS);
        calls.iter().enumerate().map(|(i, call)| format!("{i} {call} ")).collect::<Vec<_>>()
    };
    let sequence = Sequence::new(kernel, "ao-calls")
        .text(&(0..sequences).flat_map(calls).collect::<String>())
        .files(&SOURCES)
        .fixed(number("SEALANE_SEED").or(number("SEALANE_SEQUENCES")).is_none())
        .masked(without_chosen);
    let answer = sequence.answer(test, || {
        let blocks = without_known(oracle.record_all(sequences), calls);
        Some(transcript::text(&each_line(blocks, oracle.seed, without_facts)))
    });
    if let Some(answer) = answer {
        let blocks = each_line(parse(&answer), oracle.seed, with_facts);
        compare(test, &oracle, &with_known(blocks, calls));
    }
}

#[test]
fn linux_7_3() {
    compare_kernel("tcp_ao::linux_7_3", "linux-7.3", Profile::Linux7_3);
}

#[test]
fn linux_6_12() {
    compare_kernel("tcp_ao::linux_6_12", "linux-6.12", Profile::Linux6_12);
}

/// A program under the launcher sees the engine's answers.
#[test]
fn under_sealane() {
    let test = "tcp_ao::under_sealane";
    if skip_without(test, &[&Target::sealane("linux-7.3")]) {
        return;
    }
    let namespace = Command::new("unshare").args(["-n", "true"]).status();
    if !namespace.is_ok_and(|s| s.success()) {
        return skip(test, "network namespaces cannot be made here");
    }
    let oracle = oracle(Place::Sealane("linux-7.3"), Profile::Linux7_3);
    compare(test, &oracle, &oracle.record_all(number("SEALANE_SEQUENCES").unwrap_or(60)));
}
