//! The answer: choices by what they cost, measured where it matters.

use super::candidate::{Candidate, LeftOut, candidates};
use super::cost::{self, Cost, Costs, From};
use super::question::{Interface, Question};
use super::strength::Strength;
use crate::parts::mac::moving;
use crate::parts::{Context, Effort};
use sealane_crypto::Registry;
use serde::Serialize;
use std::time::Duration;

/// Places at the front that are measured and not only looked up.
const FRONT: usize = 5;

/// The most choices that are measured until the front stands.
const MOST_MEASURED: usize = 20;

/// Parts that the table does not have get this share of the time of a choice: they are many.
const OF_A_CHOICE: u32 = 5;

/// Table and measurement differ when one is this many times the other.
const DIFFER: f64 = 1.2;

/// A difference that does not matter, as a share of what TCP costs.
const SMALL: f64 = 0.05;

/// A choice, with its rank.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Choice {
    /// Its place, from 1.
    pub rank: usize,
    /// As it is typed: a name of TCP-AO or AF_ALG, or a part of a line of `ip xfrm state`.
    pub name: String,
    /// Lengths of keys in bytes, in the order in which they are typed; of TCP-AO none, because secrets may have any.
    pub key_bytes: Vec<usize>,
    /// Length of the MAC or ICV in bits; 0 of ciphers and hashes.
    pub icv_bits: u32,
    /// Nanoseconds of one CPU for a packet of mean length at one end.
    pub ns_per_packet: f64,
    /// The same by the table, where it was measured as well.
    pub table_ns_per_packet: Option<f64>,
    /// The origin of the figure.
    pub from: From,
    /// CPUs that are busy at the rate that was asked for.
    pub cores: f64,
    /// Its strength.
    pub strength: Strength,
    /// Bytes that a packet grows by, without an outer IP header.
    pub adds_bytes: f64,
    /// The documents and kernels that have it too; empty of AF_ALG.
    pub known_by: &'static str,
    /// Why it costs what it costs.
    pub reason: String,
}

/// The cost of TCP beside that of the crypto.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BesideTcp {
    /// Nanoseconds of CPU time of both ends to move the bytes of a packet by TCP over loopback.
    pub tcp_ns_per_packet: f64,
    /// Choices that cost no more than the best one and 5 % of that.
    pub alike: usize,
}

/// The table that the figures come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TableOf {
    /// The path of its file, or the name of a shipped one.
    pub origin: String,
    /// The CPU that it was measured on.
    pub cpu: String,
    /// Whether it was measured on this machine.
    pub calibrated: bool,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// The question.
    pub question: Question,
    /// Packets that are served together at this rate.
    pub burst: usize,
    /// The table.
    pub table: TableOf,
    /// The choices that may be used, the cheapest first.
    pub choices: Vec<Choice>,
    /// The others, each with a reason.
    pub left_out: Vec<LeftOut>,
    /// The cost of TCP, of TCP-AO, where it was measured.
    pub beside_tcp: Option<BesideTcp>,
    /// Remarks on the answer as a whole, in sentences.
    pub notes: Vec<String>,
}

/// The means to find an answer.
pub struct Means<'a> {
    /// Drivers, and the table that chooses among them.
    pub registry: &'a Registry,
    /// The origin of the table.
    pub table: TableOf,
    /// Time to measure each choice, length and direction now. Without it the table alone counts.
    pub measure: Option<Duration>,
    /// Told what is being measured.
    pub progress: &'a dyn Fn(&str),
}

/// A choice on its way.
pub(super) struct Ranked {
    pub(super) candidate: Candidate,
    pub(super) cost: Cost,
    /// Nanoseconds by the table, where the cost was measured.
    table_ns: Option<f64>,
}

/// Ranks the choices.
#[must_use]
pub fn advise(question: &Question, means: &Means<'_>) -> Advice {
    let burst = question.burst();
    let (mut ranked, left_out) = rank(question, means, means.measure);
    if let Some(each) = means.measure {
        measure_front(&mut ranked, question, burst, means, each);
    }
    let cheapest = ranked.first().map_or(0.0, |r| r.cost.ns);
    let mut notes = notes(question, means, &ranked);
    let beside_tcp = match question.interface {
        Interface::TcpAo if means.measure.is_some() && !ranked.is_empty() => {
            beside_tcp(question, means, &ranked, &mut notes)
        }
        _ => None,
    };
    let choices = ranked.iter().enumerate().map(|(i, r)| choice(i + 1, r, question, means, cheapest)).collect();
    Advice { question: question.clone(), burst, table: means.table.clone(), choices, left_out, beside_tcp, notes }
}

/// The admitted choices by their parts' costs, the cheapest first, and what is left out. With `measure`, parts that the table does not have
/// are measured.
pub(super) fn rank(question: &Question, means: &Means<'_>, measure: Option<Duration>) -> (Vec<Ranked>, Vec<LeftOut>) {
    let found = candidates(means.registry, question);
    let mut left_out = found.left_out;
    let mut costs = Costs::new(means.registry, &question.sizes, question.burst());
    let parts: Vec<_> = found.admitted.iter().flat_map(|candidate| &candidate.parts).collect();
    if measure.is_some() {
        (means.progress)("measuring what the table does not have");
    }
    costs.find(&parts, measure.map(|each| each / OF_A_CHOICE));
    let mut ranked = Vec::new();
    for candidate in found.admitted {
        match costs.sum(&candidate.parts) {
            Some(cost) => ranked.push(Ranked { candidate, cost, table_ns: None }),
            None => {
                let reason =
                    if measure.is_some() { "it cannot be measured here" } else { "the table has no figure for it" };
                left_out.push(LeftOut { name: candidate.name, reason: reason.to_owned() });
            }
        }
    }
    sort(&mut ranked);
    (ranked, left_out)
}

/// The cheapest first; of equal cost the stronger one, which stands before longer packets.
fn sort(ranked: &mut [Ranked]) {
    ranked.sort_by(|a, b| {
        let equal = || b.candidate.strength.bits.cmp(&a.candidate.strength.bits);
        a.cost.ns.total_cmp(&b.cost.ns).then_with(equal)
    });
}

/// The places of the first choices, by the least that they may cost: nanoseconds, and whether these are the table's. If the table is of a
/// slower machine, those of the table cost less than it says: by `ratio`, the least of a measurement to the table so far.
fn front(costs: &[(f64, bool)], ratio: f64) -> Vec<usize> {
    let least = |at: &usize| costs[*at].0 * if costs[*at].1 { ratio.min(1.0) } else { 1.0 };
    let mut places: Vec<usize> = (0..costs.len()).collect();
    places.sort_by(|a, b| least(a).total_cmp(&least(b)));
    places.truncate(FRONT);
    places
}

/// Measures the front in turns, until no choice stands there that was not measured. A choice that comes there is measured beside all that
/// were there before, so that a slow moment affects all of them.
fn measure_front(ranked: &mut [Ranked], question: &Question, burst: usize, means: &Means<'_>, each: Duration) {
    let mut chosen = Vec::<String>::new();
    let id = |r: &Ranked| format!("{} {:?}", r.candidate.name, r.candidate.key_bytes);
    while chosen.len() < MOST_MEASURED {
        let costs: Vec<_> =
            ranked.iter().map(|r| (r.cost.ns, matches!(r.cost.from, From::Table | From::Estimate))).collect();
        let ratios = ranked.iter().filter_map(|r| Some(r.cost.ns / r.table_ns?));
        let front = front(&costs, ratios.fold(1.0, f64::min));
        let new: Vec<String> =
            front.into_iter().map(|at| id(&ranked[at])).filter(|name| !chosen.contains(name)).collect();
        if new.is_empty() {
            return;
        }
        chosen.extend(new);
        (means.progress)(&format!("measuring {} choices", chosen.len()));
        let mut measured: Vec<&mut Ranked> = ranked.iter_mut().filter(|r| chosen.contains(&id(r))).collect();
        let parts: Vec<_> = measured.iter().map(|r| r.candidate.measurable(means.registry)).collect();
        let figures = cost::measure_lists(&parts, &question.sizes, burst, each);
        for (r, cost) in measured.iter_mut().zip(figures) {
            let Some(cost) = cost else { continue };
            if matches!(r.cost.from, From::Table | From::Estimate) {
                r.table_ns = Some(r.cost.ns);
            }
            r.cost = cost;
        }
        sort(ranked);
    }
}

fn choice(rank: usize, r: &Ranked, question: &Question, means: &Means<'_>, cheapest: f64) -> Choice {
    let candidate = &r.candidate;
    Choice {
        rank,
        name: candidate.name.clone(),
        key_bytes: candidate.key_bytes.clone(),
        icv_bits: candidate.icv_bits,
        ns_per_packet: r.cost.ns,
        table_ns_per_packet: r.table_ns,
        from: r.cost.from,
        cores: question.packets_per_s * r.cost.ns / 1e9,
        strength: candidate.strength.clone(),
        adds_bytes: candidate.adds_bytes,
        known_by: candidate.known_by,
        reason: reason(r, question, means, cheapest),
    }
}

/// Why a choice costs what it costs: the driver, and what the table says of bursts.
fn reason(r: &Ranked, question: &Question, means: &Means<'_>, cheapest: f64) -> String {
    let (bytes, burst) = (question.sizes.mean_bytes() as usize, question.burst());
    let mut words = Vec::new();
    let by = |part: &cost::Part| {
        if part.is_portable() {
            format!("{} in portable code", part.alg.info().name)
        } else {
            format!("by {}", part.row(bytes, burst).driver)
        }
    };
    words.push(r.candidate.parts.iter().map(by).collect::<Vec<_>>().join(" and "));
    if r.candidate.parts.len() > 1 {
        words.push("two passes".to_owned());
    }
    if burst > 1 {
        let gains = r.candidate.parts.iter().filter_map(|part| part.burst_gain(means.registry.table(), bytes, burst));
        if let Some(gain) = gains.max_by(f64::total_cmp).filter(|gain| *gain > 1.25) {
            words.push(format!("{gain:.1} times cheaper in bursts of {burst}"));
        }
    }
    if r.cost.ns > cheapest * 1.05 {
        words.push(format!("{:.1} times the cheapest", r.cost.ns / cheapest));
    }
    words.join(", ")
}

/// Sentences about the answer as a whole.
fn notes(question: &Question, means: &Means<'_>, ranked: &[Ranked]) -> Vec<String> {
    let mut notes = Vec::new();
    if !means.table.calibrated {
        notes.push(format!(
            "No table was measured on this machine ({}): 'sealane crypto calibrate' makes one.",
            means.table.origin
        ));
    }
    for r in ranked {
        if let Some(table) = r.table_ns
            && (r.cost.ns / table).max(table / r.cost.ns) > DIFFER
        {
            notes.push(format!(
                "{}: {:.0} ns measured, {table:.0} ns by the table. The table may be another machine's, or this one is busy.",
                r.candidate.name, r.cost.ns
            ));
        }
    }
    if !question.order {
        notes.push(
            match question.interface {
                Interface::TcpAo => "TCP puts segments in order itself: nothing here needs order.",
                Interface::Ipsec => "Every packet carries its number: nothing here needs order.",
                Interface::AfAlgAead | Interface::AfAlgCipher => {
                    "Nobody can count packets, so nonces are taken to be drawn at random and to go with each packet."
                }
                Interface::AfAlgMac | Interface::AfAlgHash => "Each message stands alone: nothing here needs order.",
            }
            .to_owned(),
        );
    }
    if question.interface == Interface::TcpAo && question.nonces {
        notes.push(
            "A segment has no room for a nonce, so MACs that need one (GMAC, Poly1305) are no choice.".to_owned(),
        );
    }
    if question.interface == Interface::AfAlgCipher {
        notes.push("A cipher alone does not notice changes: where that matters, ask for --what aead.".to_owned());
    }
    notes
}

/// Measures what TCP costs for such packets, and says whether the choice matters beside it.
fn beside_tcp(question: &Question, means: &Means<'_>, ranked: &[Ranked], notes: &mut Vec<String>) -> Option<BesideTcp> {
    (means.progress)("measuring TCP");
    let effort = Effort { each: Duration::from_millis(60), rounds: 5 };
    let context = Context { registry: means.registry, effort, stop: &|| false, progress: means.progress };
    let mut tcp_ns = 0.0;
    for size in question.sizes.iter() {
        match moving::tcp(&context, size.bytes) {
            Ok((_, ns_per_byte)) => tcp_ns += size.share * ns_per_byte * size.bytes as f64,
            Err(why) => {
                notes.push(format!("The cost of TCP could not be measured here: {why}."));
                return None;
            }
        }
    }
    let ns: Vec<f64> = ranked.iter().map(|r| r.cost.ns).collect();
    let (alike, sentence) = matters(&ns, tcp_ns);
    notes.push(sentence);
    Some(BesideTcp { tcp_ns_per_packet: tcp_ns, alike })
}

/// The number of these costs, the lowest first, that hardly differ beside the cost of TCP, and a sentence that follows.
fn matters(ns: &[f64], tcp_ns: f64) -> (usize, String) {
    let best = ns[0];
    let alike = ns.iter().filter(|ns| **ns - best <= SMALL * tcp_ns).count();
    let percent = |ns: f64| 100.0 * ns / tcp_ns;
    let dearest = ns[ns.len() - 1];
    let text = if alike == ns.len() {
        format!(
            "The crypto does not matter beside TCP: the dearest choice adds {:.1} % to what TCP itself costs here ({tcp_ns:.0} ns a \
             packet), {:.1} % more than the cheapest. Choose by strength and by what your peer has.",
            percent(dearest),
            percent(dearest - best)
        )
    } else if alike > 1 {
        format!(
            "The first {alike} choices differ by less than 5 % of what TCP itself costs here ({tcp_ns:.0} ns a packet): among them choose \
             by strength and by what your peer has. The dearest of all adds {:.0} %.",
            percent(dearest)
        )
    } else {
        format!(
            "TCP itself costs {tcp_ns:.0} ns a packet here; the cheapest choice adds {:.0} % to that.",
            percent(best)
        )
    };
    (alike, text)
}

#[cfg(test)]
mod tests;
