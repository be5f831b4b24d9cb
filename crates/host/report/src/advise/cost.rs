//! The cost of a packet: by the calibrated table, or measured on the spot.

use super::question::Sizes;
use sealane_crypto::choice::{Grid, LEN_POINTS, MeasuredDirection, Table, burst_class, len_class};
use sealane_crypto::{Alg, AlgInfo, KeyFormat, Lengths, Registry, Row};
use sealane_drivers::calibrate::measurable;
use sealane_drivers::measure::{Shape, Workload, in_turns};
use serde::Serialize;
use std::time::Duration;

/// The key length of block ciphers in the calibrated table, in bytes.
const TABLE_KEY_LEN: usize = 16;

/// Rounds of a measurement. The fastest one counts, as in the calibrated table: other work of the machine disturbed it least.
const ROUNDS: u32 = 5;

/// The origin of a cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum From {
    /// The calibrated table.
    Table,
    /// The calibrated table, for keys of 128 bits: keys of 256 bits are taken to cost as much more as AES has more rounds.
    Estimate,
    /// Measured now.
    Measured,
    /// Measured now, each part alone: what they cost is added up.
    Parts,
}

impl From {
    /// The word for people.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            From::Table => "table",
            From::Estimate => "estimate",
            From::Measured => "measured",
            From::Parts => "parts, measured",
        }
    }

    /// Of a sum: that of the less certain part.
    fn and(self, other: From) -> From {
        match (self, other) {
            (From::Estimate, _) | (_, From::Estimate) => From::Estimate,
            (From::Table, From::Table) => From::Table,
            _ => From::Parts,
        }
    }
}

/// Nanoseconds of a packet of mean length, and where they come from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cost {
    pub(super) ns: f64,
    pub(super) from: From,
}

/// An algorithm that is computed over each packet.
#[derive(Clone)]
pub(super) struct Part {
    pub(super) alg: Alg,
    /// The key's length in bytes, where it decides about the cost.
    key_len: Option<usize>,
    /// Bytes that the message has more than the packet.
    extra: isize,
    /// The message has a multiple of this many bytes.
    align: usize,
    /// Whether the two directions may differ.
    both_ways: bool,
}

impl Part {
    /// A MAC or hash, of which both ends compute the same.
    pub(super) fn mac(alg: &Alg, key_len: Option<usize>, extra: isize, align: usize) -> Self {
        Part { alg: alg.clone(), key_len, extra, align, both_ways: false }
    }

    /// A cipher or AEAD.
    pub(super) fn cipher(alg: &Alg, key_len: Option<usize>, extra: isize, align: usize) -> Self {
        Part { both_ways: true, ..Part::mac(alg, key_len, extra, align) }
    }

    /// Whether it is the same for the same packets.
    fn same(&self, other: &Part) -> bool {
        let id = |part: &Part| (part.key_len, part.extra, part.align, part.alg.info().kind);
        id(self) == id(other) && self.alg.info().name == other.alg.info().name
    }

    fn ways(&self) -> &'static [MeasuredDirection] {
        if self.both_ways { &MeasuredDirection::ALL } else { &[MeasuredDirection::Forward] }
    }

    /// The length of the message of a packet.
    pub(super) fn message_len(&self, packet: usize) -> usize {
        packet.saturating_add_signed(self.extra).max(1).next_multiple_of(self.align)
    }

    fn is_aes(&self) -> bool {
        self.alg.info().name.contains("aes")
    }

    /// The factor by which a packet costs more than in the table because of a longer key; none where nothing is known of it.
    fn key_factor(&self) -> Option<f64> {
        match self.key_len {
            // Rounds of AES (FIPS 197): 10, 12 and 14. The salts of IPsec's modes are no part of a cipher's key.
            Some(TABLE_KEY_LEN | 19 | 20) | None => Some(1.0),
            Some(24 | 28) if self.is_aes() => Some(1.2),
            Some(32 | 36) if self.is_aes() => Some(1.4),
            Some(_) if self.alg.info().key_lens.contains(TABLE_KEY_LEN) => None,
            // It has one length of keys.
            Some(_) => Some(1.0),
        }
    }

    /// The cost by the table.
    pub(super) fn by_table(&self, table: &Table, sizes: &Sizes, burst: usize) -> Option<Cost> {
        let factor = self.key_factor()?;
        let mut ns = 0.0;
        for size in sizes.iter() {
            let bytes = self.message_len(size.bytes);
            for &way in self.ways() {
                ns += size.share * self.one_way(table, way, bytes, burst)? / self.ways().len() as f64;
            }
        }
        let from = if factor == 1.0 { From::Table } else { From::Estimate };
        Some(Cost { ns: ns * factor, from })
    }

    /// Nanoseconds of a message of `bytes`, by the fastest driver of the table that this build and CPU have.
    fn one_way(&self, table: &Table, way: MeasuredDirection, bytes: usize, burst: usize) -> Option<f64> {
        let grids = table.drivers(&self.alg.info().name, way);
        let grids = grids.filter(|(driver, _)| self.alg.rows().iter().any(|row| row.driver == *driver));
        fastest(grids.map(|(_, grid)| grid), bytes, burst)
    }

    /// The time of a packet's message alone, as a multiple of that in a burst, by the table.
    pub(super) fn burst_gain(&self, table: &Table, packet: usize, burst: usize) -> Option<f64> {
        let bytes = self.message_len(packet);
        let at = |burst| self.one_way(table, MeasuredDirection::Forward, bytes, burst);
        Some(at(1)? / at(burst)?)
    }

    /// Whether portable code serves this algorithm here, whatever the length.
    pub(super) fn is_portable(&self) -> bool {
        self.alg.rows().iter().all(|row| row.module == "portable")
    }

    /// The algorithm as it serves this shape, with keys of the length that is meant and no other.
    fn keyed(&self, shape: Shape) -> Alg {
        let Some(key_len) = self.key_len else { return self.alg.clone() };
        let row = self.alg.row_for(shape.way, shape.bytes, shape.burst);
        let only = Lengths::Range(key_len, key_len);
        let info = match row.info.key_format {
            KeyFormat::Plain => AlgInfo { key_lens: only, ..row.info.clone() },
            KeyFormat::Authenc { .. } => {
                AlgInfo { key_format: KeyFormat::Authenc { cipher_key_lens: only }, ..row.info.clone() }
            }
        };
        self.alg.served_by(Row::new(info, &row.driver, row.module, row.priority, row.imp().clone()))
    }

    /// The driver that serves a packet of this length.
    pub(super) fn row(&self, packet: usize, burst: usize) -> &Row {
        self.alg.row_for(MeasuredDirection::Forward, self.message_len(packet), burst)
    }
}

/// Nanoseconds of a message of one length, by the fastest of these drivers.
fn fastest<'a>(grids: impl Iterator<Item = &'a Grid>, bytes: usize, burst: usize) -> Option<f64> {
    // The registry picks the fastest driver of the nearest point; between two points another one may be the fastest, but then both are
    // nearly as fast.
    let (class, burst) = (len_class(bytes), burst_class(burst));
    let cell = |grid: &&Grid| grid.0[class][burst];
    let grid = grids.filter(|grid| !cell(grid).is_nan()).min_by(|a, b| cell(a).total_cmp(&cell(b)))?;
    between(grid, bytes, burst)
}

/// The time of a message between the lengths that were measured. A message costs so much to begin and so much for each byte, so the time is
/// on a straight line between two lengths, and goes on as straight behind the last one.
fn between(grid: &Grid, bytes: usize, burst_class: usize) -> Option<f64> {
    let upper = LEN_POINTS.iter().position(|&point| point >= bytes).unwrap_or(LEN_POINTS.len() - 1).max(1);
    let [a, b] = [upper - 1, upper].map(|at| (LEN_POINTS[at] as f64, f64::from(grid.0[at][burst_class])));
    if a.1.is_nan() || b.1.is_nan() {
        return None;
    }
    let ns = a.1 + (bytes as f64 - a.0) / (b.0 - a.0) * (b.1 - a.1);
    // Shorter than the shortest: no cheaper than it.
    Some(if bytes <= LEN_POINTS[0] { a.1 } else { ns.max(0.05) })
}

/// Measures these parts in turns, `each` of time for each length and direction. A part that cannot be measured has no cost.
fn measure(parts: &[&Part], sizes: &Sizes, burst: usize, each: Duration) -> Vec<Option<f64>> {
    let mut sums = vec![Some(0.0); parts.len()];
    for size in sizes.iter() {
        for way in MeasuredDirection::ALL {
            let (mut loads, mut of) = (Vec::<Workload>::new(), Vec::new());
            for (i, part) in parts.iter().enumerate() {
                if !part.ways().contains(&way) || sums[i].is_none() {
                    continue;
                }
                let shape = Shape { way, bytes: part.message_len(size.bytes), burst };
                let alg = part.keyed(shape);
                match Workload::new(&alg, measurable(&alg, shape)) {
                    Ok(load) => {
                        loads.push(load);
                        of.push(i);
                    }
                    Err(_) => sums[i] = None,
                }
            }
            for (i, m) in of.into_iter().zip(in_turns(&mut loads, each, ROUNDS)) {
                let ns = size.share * m.min_ns / parts[i].ways().len() as f64;
                sums[i] = sums[i].map(|sum| sum + ns);
            }
        }
    }
    sums
}

/// Measures several lists of parts in turns. The parts of a list are added up; a list with a part that cannot be measured has no cost.
pub(super) fn measure_lists(lists: &[Vec<Part>], sizes: &Sizes, burst: usize, each: Duration) -> Vec<Option<Cost>> {
    let mut ns = measure(&lists.iter().flatten().collect::<Vec<_>>(), sizes, burst, each).into_iter();
    let cost = |list: &Vec<Part>| {
        let parts: Vec<Option<f64>> = ns.by_ref().take(list.len()).collect();
        let from = if list.len() == 1 { From::Measured } else { From::Parts };
        Some(Cost { ns: parts.into_iter().sum::<Option<f64>>()?, from })
    };
    lists.iter().map(cost).collect()
}

/// The costs of parts, each found once.
pub(super) struct Costs<'a> {
    pub(super) table: &'a Table,
    pub(super) sizes: &'a Sizes,
    pub(super) burst: usize,
    known: Vec<(Part, Option<Cost>)>,
}

impl<'a> Costs<'a> {
    pub(super) fn new(registry: &'a Registry, sizes: &'a Sizes, burst: usize) -> Self {
        Costs { table: registry.table(), sizes, burst, known: Vec::new() }
    }

    /// Finds the costs of these parts: by the table, and measured where it has none and `each` says how long that may take.
    pub(super) fn find(&mut self, parts: &[&Part], each: Option<Duration>) {
        let mut missing: Vec<&Part> = Vec::new();
        for part in parts {
            if self.known.iter().any(|(known, _)| known.same(part)) || missing.iter().any(|other| other.same(part)) {
                continue;
            }
            let cost = part.by_table(self.table, self.sizes, self.burst);
            // An estimate is good enough for no more than a first look.
            match cost {
                Some(Cost { from: From::Table, .. }) => self.known.push(((*part).clone(), cost)),
                _ if each.is_some() => missing.push(part),
                _ => self.known.push(((*part).clone(), cost)),
            }
        }
        let Some(each) = each else { return };
        for (part, ns) in missing.iter().zip(measure(&missing, self.sizes, self.burst, each)) {
            self.known.push(((*part).clone(), ns.map(|ns| Cost { ns, from: From::Measured })));
        }
    }

    /// The cost of parts that are computed one after the other.
    pub(super) fn sum(&self, parts: &[Part]) -> Option<Cost> {
        let of = |part: &Part| self.known.iter().find(|(known, _)| known.same(part)).and_then(|(_, cost)| *cost);
        let (first, rest) = parts.split_first()?;
        rest.iter().try_fold(of(first)?, |sum, part| {
            let cost = of(part)?;
            Some(Cost { ns: sum.ns + cost.ns, from: sum.from.and(cost.from) })
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn table(lines: &str) -> Table {
        Table::parse(&format!("sealane-calibration 1\ncpu Some CPU\n{lines}\n")).expect("a table")
    }

    /// A line of a driver with so many nanoseconds for each message and each byte; a burst of 64 takes half of that.
    pub(in super::super) fn line(alg: &str, way: &str, driver: &str, fixed: f64, byte: f64) -> String {
        let mut line = format!("{alg} {way} {driver}");
        for bytes in LEN_POINTS {
            for burst in 0..7 {
                let ns = (fixed + byte * bytes as f64) * if burst == 6 { 0.5 } else { 1.0 };
                line.push_str(&format!(" {ns:.1}"));
            }
        }
        line
    }

    #[test]
    fn times_are_on_lines_between_lengths() {
        let table = table(&line("hmac(sha1)", "forward", "one", 100.0, 0.5));
        let grids = |name, way| table.drivers(name, way).map(|(_, grid)| grid);
        let at = |bytes, burst| fastest(grids("hmac(sha1)", MeasuredDirection::Forward), bytes, burst);
        for (bytes, burst, ns) in [
            (16, 1, 108.0),
            (1, 1, 108.0),
            (64, 1, 132.0),
            (1000, 1, 600.0),
            (1000, 63, 600.0),
            (1000, 64, 300.0),
            (100_000, 1, 50_100.0),
        ] {
            assert!((at(bytes, burst).unwrap() - ns).abs() < 0.2, "{bytes} {burst}: {:?}", at(bytes, burst));
        }
        assert_eq!(fastest(grids("hmac(sha1)", MeasuredDirection::Backward), 64, 1), None);
        assert_eq!(fastest(grids("hmac(md5)", MeasuredDirection::Forward), 64, 1), None);
    }

    #[test]
    fn the_fastest_driver_of_a_length_counts() {
        let lines =
            [line("hmac(sha1)", "forward", "short", 10.0, 2.0), line("hmac(sha1)", "forward", "long", 900.0, 0.1)];
        let table = table(&lines.join("\n"));
        let grids = || table.drivers("hmac(sha1)", MeasuredDirection::Forward).map(|(_, grid)| grid);
        let at = |bytes| fastest(grids(), bytes, 1).unwrap();
        assert!((at(64) - 138.0).abs() < 0.2 && (at(4096) - 1309.6).abs() < 0.2, "{} {}", at(64), at(4096));
    }

    #[test]
    fn sums_are_as_certain_as_their_parts() {
        assert_eq!(From::Table.and(From::Table), From::Table);
        assert_eq!(From::Table.and(From::Measured), From::Parts);
        assert_eq!(From::Measured.and(From::Estimate), From::Estimate);
        assert_eq!(From::Measured.and(From::Measured), From::Parts);
    }
}
