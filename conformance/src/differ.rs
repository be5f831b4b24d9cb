//! The differential test: runs the same sequences in two places and shrinks those that differ.

use crate::sequences;
use crate::shrink::shrink;
use crate::target::Target;
use crate::transcript::{self, Block};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The settings of a comparison.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// The program `alg-sequence`.
    pub program: PathBuf,
    /// Reference first.
    pub targets: [Target; 2],
    /// Seed of all sequences.
    pub seed: u64,
    /// Number of the first sequence.
    pub from: u64,
    /// Number of sequences.
    pub sequences: u64,
    /// Calls of each.
    pub calls: usize,
    /// `core` or `all`.
    pub names: String,
    /// Time limit of one run, to which each sequence adds its own.
    pub limit: Duration,
    /// Number of different differences that are shrunk and shown.
    pub reports: usize,
    /// Calls whose results are not compared: words of their lines.
    pub not_compared: &'static [&'static str],
}

/// Calls whose results under a kernel's profile are not its own (LIMITATIONS.md, TEST-10).
#[must_use]
pub fn not_compared(kernel: &str) -> &'static [&'static str] {
    if kernel == "linux-6.1" { &["recv:Splice"] } else { &[] }
}

/// The result of a comparison.
#[derive(Debug)]
pub struct Verdict {
    /// Sequences that both sides made.
    pub compared: u64,
    /// Sequences in which the reference itself died or hung; they are not compared.
    pub reference_died: Vec<u64>,
    /// Sequences that differ.
    pub differing: u64,
    /// For each kind of difference, the number of sequences that begin to differ by it.
    pub kinds: BTreeMap<String, u64>,
    /// Readable reproducers.
    pub reports: Vec<String>,
}

impl Comparison {
    /// Runs `sequences` sequences in one place.
    fn run(&self, target: &Target, extra: &[&str], sequences: usize) -> Result<HashMap<u64, Block>, String> {
        // Each line goes to the disk only after a quick run has died, to find the call: it is slow.
        let (blocks, _) = self.run_once(target, extra, sequences, false)?;
        if blocks.len() == sequences && blocks.iter().all(|b| b.complete) {
            return Ok(blocks.into_iter().map(|b| (b.number, b)).collect());
        }
        let (blocks, why) = self.run_once(target, extra, sequences, true)?;
        if blocks.is_empty() {
            return Err(why);
        }
        Ok(blocks.into_iter().map(|b| (b.number, b)).collect())
    }

    /// Returns the sequences, and in words how the run ended.
    fn run_once(
        &self,
        to: &Target,
        extra: &[&str],
        sequences: usize,
        sync: bool,
    ) -> Result<(Vec<Block>, String), String> {
        let (seed, calls) = (self.seed.to_string(), self.calls.to_string());
        let program = self.program.to_string_lossy();
        let file = temp_path("transcript");
        let path = file.to_string_lossy().into_owned();
        let mut argv: Vec<&str> = vec![&program, "--seed", &seed, "--calls", &calls, "--profile", &self.names];
        argv.extend(["--output", &path]);
        argv.extend(sync.then_some("--sync"));
        argv.extend(extra);
        let label = to.label();
        let limit = self.limit + Duration::from_millis(if sync { 200 } else { 50 }) * sequences as u32;
        let outcome = to.run(&argv, limit).map_err(|e| format!("{label}: {e}"))?;
        let text = std::fs::read(&file).unwrap_or_default();
        let _ = std::fs::remove_file(&file);
        let timed_out = if outcome.timed_out { " (ran out of time)" } else { "" };
        let tail: String = (outcome.text + &outcome.errors).lines().rev().take(5).collect::<Vec<_>>().join(" / ");
        let why = format!("{label}: no transcript, status {:?}{timed_out}: {tail}", outcome.status);
        let mut blocks = transcript::parse(&String::from_utf8_lossy(&text));
        blocks.iter_mut().for_each(|block| block.forget_results(self.not_compared));
        Ok((blocks, why))
    }

    /// Runs all sequences in one place. When it dies in one, those after it are run again.
    fn run_all(&self, target: &Target) -> Result<Vec<Block>, String> {
        let (mut all, end) = (Vec::new(), self.from + self.sequences);
        let mut next = self.from;
        while next < end {
            let (from, count) = (next.to_string(), (end - next).to_string());
            let mut blocks = self.run(target, &["--from", &from, "--sequences", &count], (end - next) as usize)?;
            let before = next;
            while let Some(block) = blocks.remove(&next) {
                all.push(block);
                next += 1;
            }
            if next == before {
                return Err(format!("{}: sequence {next} was not even started", target.label()));
            }
        }
        Ok(all)
    }

    /// Returns the answers of the reference.
    ///
    /// # Errors
    /// A sentence when it could not be run at all.
    pub fn reference(&self) -> Result<Vec<Block>, String> {
        self.run_all(&self.targets[0])
    }

    /// Runs the comparison.
    ///
    /// # Errors
    /// A sentence when one side could not be run at all.
    pub fn verdict(&self) -> Result<Verdict, String> {
        self.verdict_against(&self.reference()?)
    }

    /// Compares with answers of the reference that are known already.
    ///
    /// # Errors
    /// A sentence when the other side could not be run at all.
    pub fn verdict_against(&self, reference: &[Block]) -> Result<Verdict, String> {
        let mut verdict = Verdict {
            compared: 0,
            reference_died: Vec::new(),
            differing: 0,
            kinds: BTreeMap::new(),
            reports: Vec::new(),
        };
        let others = self.run_all(&self.targets[1])?;
        if reference.len() != others.len() {
            return Err(format!("{} sequences of the reference, {} others", reference.len(), others.len()));
        }
        for (x, y) in reference.iter().zip(&others) {
            if !x.complete {
                verdict.reference_died.push(x.number);
                continue;
            }
            verdict.compared += 1;
            if let Some(at) = transcript::first_difference(x, y) {
                self.note(&mut verdict, x.number, x, y, at)?;
            }
        }
        Ok(verdict)
    }

    fn both(&self, extra: &[&str], sequences: usize) -> Result<[HashMap<u64, Block>; 2], String> {
        Ok([self.run(&self.targets[0], extra, sequences)?, self.run(&self.targets[1], extra, sequences)?])
    }

    fn note(&self, verdict: &mut Verdict, number: u64, a: &Block, b: &Block, at: usize) -> Result<(), String> {
        verdict.differing += 1;
        let kind = transcript::signature(a, b, at);
        let seen = verdict.kinds.entry(kind).or_insert(0);
        *seen += 1;
        if *seen == 1 && verdict.reports.len() < self.reports {
            let report = self.reproducer(number, a, b, at)?;
            verdict.reports.push(report);
        }
        Ok(())
    }

    fn reproducer(&self, number: u64, a: &Block, b: &Block, at: usize) -> Result<String, String> {
        if let Some(missing) = self.targets[0].missing() {
            let names = self.targets.each_ref().map(Target::label);
            let shown = transcript::side_by_side(a, b, names.each_ref().map(String::as_str));
            return Ok(format!("sequence {number}, not shrunk ({missing}):\n{shown}"));
        }
        let plan = temp_path("plan");
        let mut failure = None;
        let last = at.min(self.calls - 1);
        let keep = shrink((0..=last).collect(), |candidates| {
            self.try_plan(&plan, number, candidates).unwrap_or_else(|e| {
                failure.get_or_insert(e);
                vec![false; candidates.len()]
            })
        });
        let shrunk = self.try_blocks(&plan, number, std::slice::from_ref(&keep));
        let _ = std::fs::remove_file(&plan);
        let labels = [self.targets[0].label(), self.targets[1].label()];
        let names = [labels[0].as_str(), labels[1].as_str()];
        let list: Vec<String> = keep.iter().map(ToString::to_string).collect();
        let mut out = format!(
            "sequence {number} (seed {}, {} calls, names {}), made by the plan line `0 {number} {}`:\n",
            self.seed,
            self.calls,
            self.names,
            list.join(",")
        );
        match shrunk?.first() {
            Some((x, y)) if transcript::first_difference(x, y).is_some() => {
                out += &transcript::side_by_side(x, y, names);
            }
            _ => {
                out += "  (the difference did not come back: it depends on what ran before; the whole sequence:)\n";
                out += &transcript::side_by_side(a, b, names);
            }
        }
        if let Some(failure) = failure {
            out += &format!("  (shrinking was cut short: {failure})\n");
        }
        Ok(out)
    }

    fn try_blocks(&self, plan: &Path, number: u64, candidates: &[Vec<usize>]) -> Result<Vec<(Block, Block)>, String> {
        let mut done: Vec<(Block, Block)> = Vec::new();
        while done.len() < candidates.len() {
            let rows = sequences::plan(number, &candidates[done.len()..]);
            std::fs::write(plan, rows).map_err(|e| format!("{}: {e}", plan.display()))?;
            let [mut a, mut b] = self.both(&["--plan", &plan.to_string_lossy()], candidates.len() - done.len())?;
            let before = done.len();
            for i in 0..(candidates.len() - before) as u64 {
                match (a.remove(&i), b.remove(&i)) {
                    (Some(x), Some(y)) => done.push((x, y)),
                    _ => break,
                }
            }
            if done.len() == before {
                return Err("a candidate was not started on one side".to_owned());
            }
        }
        Ok(done)
    }

    fn try_plan(&self, plan: &Path, number: u64, candidates: &[Vec<usize>]) -> Result<Vec<bool>, String> {
        let blocks = self.try_blocks(plan, number, candidates)?;
        Ok(blocks.iter().map(|(a, b)| transcript::first_difference(a, b).is_some()).collect())
    }
}

/// Returns a path in the temporary folder, which guests see too.
fn temp_path(what: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let n = COUNT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("sealane-{what}.{}.{n}", std::process::id()))
}
