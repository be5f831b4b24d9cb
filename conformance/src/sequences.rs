//! The options of the programs that make random calls: sequences by number, or a plan of them.

use std::fmt::Write;

/// The options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// `--seed`: what all sequences depend on.
    pub seed: u64,
    /// `--from`: number of the first.
    pub from: u64,
    /// `--sequences`: number of sequences.
    pub sequences: u64,
    /// `--calls`: calls of each.
    pub calls: usize,
    /// `--plan`: a file with other sequences, as [`plan`] writes it.
    pub plan: Option<String>,
    /// `--output`: a file that takes the place of standard output.
    pub output: Option<String>,
    /// `--dry-run`: make no call.
    pub dry_run: bool,
}

impl Options {
    /// Reads the arguments of a program whose sequences have `calls` calls by default. `own` handles the program's own
    /// options: it gets each one with a function for the value that follows, and returns whether it knew the option.
    /// `--help` ends the program.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn read(
        help: &str,
        calls: usize,
        own: impl FnMut(&str, &mut dyn FnMut() -> Result<String, String>) -> Result<bool, String>,
    ) -> Result<Self, String> {
        let args: Vec<String> = std::env::args().skip(1).collect();
        if args.iter().any(|a| a == "--help" || a == "-h") {
            print!("{help}");
            std::process::exit(0);
        }
        Self::from_args(args, calls, own)
    }

    fn from_args(
        args: Vec<String>,
        calls: usize,
        mut own: impl FnMut(&str, &mut dyn FnMut() -> Result<String, String>) -> Result<bool, String>,
    ) -> Result<Self, String> {
        let mut o = Options { seed: 1, from: 0, sequences: 1, calls, plan: None, output: None, dry_run: false };
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} wants a value"));
            match arg.as_str() {
                "--seed" => o.seed = number(&arg, &value()?)?,
                "--from" => o.from = number(&arg, &value()?)?,
                "--sequences" => o.sequences = number(&arg, &value()?)?,
                "--calls" => o.calls = number(&arg, &value()?)? as usize,
                "--plan" => o.plan = Some(value()?),
                "--output" => o.output = Some(value()?),
                "--dry-run" => o.dry_run = true,
                _ if own(&arg, &mut value)? => {}
                _ => return Err(format!("unknown option {arg}")),
            }
        }
        Ok(o)
    }

    /// Passes each sequence to `make`, as the number of its head line and its calls with their indices. `generate`
    /// returns the calls of a sequence.
    ///
    /// # Errors
    /// A sentence about the plan, or the error of `make`.
    pub fn each<C>(
        &self,
        generate: impl Fn(u64) -> Vec<C>,
        mut make: impl FnMut(u64, &[(usize, &C)]) -> Result<(), String>,
    ) -> Result<(), String> {
        let Some(path) = &self.plan else {
            for number in self.from..self.from + self.sequences {
                make(number, &generate(number).iter().enumerate().collect::<Vec<_>>())?;
            }
            return Ok(());
        };
        let text = std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
        for row in text.lines() {
            let fields: Vec<&str> = row.split(' ').collect();
            let [candidate, number, keep] = fields[..] else { return Err(format!("{path}: {row:?}")) };
            let wrong = |_| format!("{path}: {row:?}");
            let calls = generate(number.parse().map_err(wrong)?);
            let mut kept = Vec::new();
            for index in keep.split(',').filter(|k| !k.is_empty()) {
                let index: usize = index.parse().map_err(wrong)?;
                kept.push((index, calls.get(index).ok_or_else(|| format!("{path}: no call {index}"))?));
            }
            make(candidate.parse().map_err(wrong)?, &kept)?;
        }
        Ok(())
    }
}

/// Returns the value of an option as a number.
///
/// # Errors
/// A sentence.
pub fn number(option: &str, value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| format!("{option}: {value:?} is not a number"))
}

/// Returns a plan for parts of sequence `number`: a line for each candidate, with the indices of the calls that it
/// keeps.
#[must_use]
pub fn plan(number: u64, candidates: &[Vec<usize>]) -> String {
    let mut rows = String::new();
    for (i, keep) in candidates.iter().enumerate() {
        let keep: Vec<String> = keep.iter().map(ToString::to_string).collect();
        let _ = writeln!(rows, "{i} {number} {}", keep.join(","));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(args: &str) -> Result<(Options, Vec<String>), String> {
        let mut own = Vec::new();
        let args = args.split_whitespace().map(str::to_owned).collect();
        let options = Options::from_args(args, 40, |arg, value| {
            match arg {
                "--names" => own.push(value()?),
                "--sync" => own.push(String::new()),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok((options, own))
    }

    #[test]
    fn options_of_all_and_of_one() {
        let (o, own) = read("--seed 7 --names core --dry-run --sync --from 3 --sequences 2").expect("it is right");
        assert_eq!((o.seed, o.from, o.sequences, o.calls, o.dry_run), (7, 3, 2, 40, true));
        assert_eq!(own, ["core", ""]);
        for wrong in ["--seed", "--seed x", "--names", "--what 1"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        let path = std::env::temp_dir().join(format!("sealane-sequences.{}", std::process::id()));
        let candidates = vec![vec![0, 2], vec![], vec![1]];
        std::fs::write(&path, plan(5, &candidates)).expect("a file");
        let (mut o, _) = read("--seed 1").expect("it is right");
        o.plan = Some(path.to_string_lossy().into_owned());
        let mut made = Vec::new();
        let calls = |number| (0..3).map(|i| number * 10 + i).collect::<Vec<u64>>();
        let done = o.each(calls, |number, calls| {
            made.push((number, calls.iter().map(|(i, c)| (*i, **c)).collect::<Vec<_>>()));
            Ok(())
        });
        assert_eq!(done, Ok(()));
        assert_eq!(made, [(0, vec![(0, 50), (2, 52)]), (1, vec![]), (2, vec![(1, 51)])]);
        std::fs::write(&path, plan(5, &[vec![3]])).expect("a file");
        assert!(o.each(calls, |_, _| Ok(())).is_err(), "there is no fourth call");
        std::fs::remove_file(&path).expect("it was there");
    }
}
