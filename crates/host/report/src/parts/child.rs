//! Measurements that need a process of their own: under `sealane run`, or with another configuration of OpenSSL.
//!
//! Such a process is `sealane bench --inner WHAT`. It prints a line of JSON for each row, so that the report has what was measured when it
//! is ended in the middle.

use super::frame::{Context, Effort};
use crate::data::Figure;
use sealane_crypto::choice::{MeasuredDirection, Table};
use sealane_crypto::{Alg, Kind, Registry, Row as Driver};
use sealane_drivers::SystemEntropy;
use sealane_drivers::measure::{Measured, Shape, Workload, in_turns};
use serde::{Deserialize, Serialize};
use std::ffi::CStr;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// The measurements of such a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inner {
    /// OpenSSL's own implementations, by its EVP interface.
    Evp,
    /// The same, in turns with those of the provider `sealane`.
    EvpAndProvider,
    /// AF_ALG, by libc's calls.
    AfAlg,
    /// AF_ALG in pieces of 63 KiB, in turns with OpenSSL.
    AfAlgPieces,
}

impl Inner {
    const ALL: [Inner; 4] = [Inner::Evp, Inner::EvpAndProvider, Inner::AfAlg, Inner::AfAlgPieces];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Inner::Evp => "evp",
            Inner::EvpAndProvider => "evp-and-provider",
            Inner::AfAlg => "af-alg",
            Inner::AfAlgPieces => "af-alg-pieces",
        }
    }

    /// The one with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|inner| inner.name() == name)
    }
}

/// An algorithm of `openssl speed`.
pub(crate) struct Speed {
    /// The kernel's name.
    pub(crate) name: &'static str,
    /// OpenSSL's name, as it is drawn.
    pub(crate) openssl: &'static str,
    kind: Kind,
    /// The arguments of `openssl speed`.
    pub(crate) arguments: &'static [&'static str],
}

/// The algorithms of `openssl speed`.
pub(crate) const SPEED: [Speed; 6] = [
    Speed { name: "cbc(aes)", openssl: "aes-128-cbc", kind: Kind::Skcipher, arguments: &["-evp", "aes-128-cbc"] },
    Speed { name: "ctr(aes)", openssl: "aes-128-ctr", kind: Kind::Skcipher, arguments: &["-evp", "aes-128-ctr"] },
    Speed { name: "gcm(aes)", openssl: "aes-128-gcm", kind: Kind::Aead, arguments: &["-evp", "aes-128-gcm"] },
    Speed { name: "sha256", openssl: "sha256", kind: Kind::Hash, arguments: &["-evp", "sha256"] },
    Speed { name: "hmac(sha1)", openssl: "hmac(sha1)", kind: Kind::Hash, arguments: &["-hmac", "sha1"] },
    Speed { name: "hmac(sha256)", openssl: "hmac(sha256)", kind: Kind::Hash, arguments: &["-hmac", "sha256"] },
];

/// The sizes of `openssl speed`, bytes.
pub(crate) const SIZES: [usize; 6] = [16, 64, 256, 1024, 8192, 16384];

/// A piece of Cloudflare's comparison, bytes.
pub(crate) const PIECE: usize = 63 << 10;

/// OpenSSL's own implementation.
pub(crate) const OPENSSL: &str = "OpenSSL";
/// OpenSSL with Sealane's provider.
pub(crate) const PROVIDER: &str = "OpenSSL with Sealane's provider";
/// AF_ALG, whoever serves it.
pub(crate) const AF_ALG: &str = "AF_ALG";

/// A row that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The kernel's name of the algorithm.
    pub(crate) alg: String,
    /// Length of each message.
    pub(crate) bytes: usize,
    /// The rival that was measured.
    pub(crate) rival: String,
    /// Nanoseconds for each message, elapsed and of the CPU.
    pub(crate) ns: Figure,
}

impl Row {
    /// The throughput, MB/s: the slowest round is the lowest figure.
    pub(crate) fn mb_per_s(&self) -> Figure {
        mb_per_s(self.bytes, &self.ns)
    }
}

/// The throughput of messages of `bytes` that took `ns`, MB/s.
pub(crate) fn mb_per_s(bytes: usize, ns: &Figure) -> Figure {
    let rate = |ns: f64| bytes as f64 * 1e3 / ns;
    Figure { median: rate(ns.median), low: rate(ns.high), high: rate(ns.low), rounds: ns.rounds, cpu: None }
}

/// Nanoseconds for each operation.
pub(crate) fn ns(measured: &Measured, rounds: u32) -> Figure {
    let Measured { median_ns, min_ns, max_ns, cpu_ns, .. } = *measured;
    Figure { median: median_ns, low: min_ns, high: max_ns, rounds, cpu: Some(cpu_ns) }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    Row(Row),
    /// Something could not be measured, because of this.
    Lacks(String),
}

// The process that measures.

/// Drivers of one rival.
struct Rival {
    name: &'static str,
    rows: Vec<Arc<Driver>>,
}

impl Rival {
    fn new(name: &'static str, rows: Vec<Driver>) -> Self {
        Rival { name, rows: rows.into_iter().map(Arc::new).collect() }
    }

    fn openssl(name: &'static str, properties: &CStr) -> Self {
        Rival::new(name, sealane_crypto_openssl::rows_of(Some(properties)))
    }

    /// The algorithm by this rival, once it computes what it should.
    fn alg(&self, registry: &Registry, kind: Kind, name: &str) -> Result<Alg, String> {
        let row = self.rows.iter().find(|row| row.info.kind == kind && row.info.name == name);
        let row = row.ok_or_else(|| format!("{} has no {name}", self.name))?;
        registry.self_test(row).map_err(|why| format!("{name} by {}: {why}", self.name))?;
        Ok(Alg::of_row(row, registry.entropy()))
    }
}

/// Measures `what`, and writes a line for each row.
///
/// # Errors
/// Those of `out`.
pub fn measure(what: Inner, effort: Effort, out: &mut dyn Write) -> io::Result<()> {
    if let (Inner::Evp | Inner::EvpAndProvider | Inner::AfAlgPieces, Err(why)) =
        (what, sealane_crypto_openssl::version())
    {
        return tell(out, &Line::Lacks(format!("OpenSSL cannot be used: {why}")));
    }
    let mut rivals = Vec::new();
    if what != Inner::AfAlg {
        rivals.push(Rival::openssl(OPENSSL, c"provider=default"));
    }
    if what == Inner::EvpAndProvider {
        let provider = Rival::openssl(PROVIDER, c"provider=sealane");
        // A program whose OpenSSL could not load a provider goes on without it, and nobody says why.
        if provider.rows.iter().any(|row| row.info.name == "sha256") {
            rivals.push(provider);
        } else {
            tell(out, &Line::Lacks("OpenSSL did not load Sealane's provider".to_owned()))?;
        }
    }
    if let Inner::AfAlg | Inner::AfAlgPieces = what {
        let kernel = Rival::new(AF_ALG, sealane_drivers::kernel_rows());
        if kernel.rows.is_empty() {
            return tell(out, &Line::Lacks("the kernel offers no AF_ALG to this process".to_owned()));
        }
        rivals.push(kernel);
    }
    let registry = sealane_drivers::registry(Table::default(), Arc::new(SystemEntropy));
    if what == Inner::AfAlgPieces {
        return row(&registry, &rivals, (Kind::Skcipher, "ctr(aes)"), &[PIECE], effort, out);
    }
    for Speed { kind, name, .. } in SPEED {
        row(&registry, &rivals, (kind, name), &SIZES, effort, out)?;
    }
    Ok(())
}

/// Measures one algorithm by all `rivals` in turns, at each size.
fn row(
    registry: &Registry,
    rivals: &[Rival],
    (kind, name): (Kind, &str),
    sizes: &[usize],
    effort: Effort,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut algs = Vec::new();
    for rival in rivals {
        match rival.alg(registry, kind, name) {
            Ok(alg) => algs.push((rival.name, alg)),
            Err(why) => tell(out, &Line::Lacks(why))?,
        }
    }
    for &bytes in sizes {
        let shape = Shape { way: MeasuredDirection::Forward, bytes, burst: 1 };
        let mut names = Vec::new();
        let mut loads = Vec::new();
        for (rival, alg) in &algs {
            match Workload::new(alg, shape) {
                Ok(load) => {
                    names.push(*rival);
                    loads.push(load);
                }
                Err(why) => tell(out, &Line::Lacks(format!("{rival}: {why}")))?,
            }
        }
        let measured = in_turns(&mut loads, effort.each, effort.rounds);
        for (rival, measured) in names.iter().zip(&measured) {
            let (alg, rival) = (name.to_owned(), (*rival).to_owned());
            tell(out, &Line::Row(Row { alg, bytes, rival, ns: ns(measured, effort.rounds) }))?;
        }
    }
    Ok(())
}

fn tell(out: &mut dyn Write, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")?;
    out.flush()
}

// The process that has it measured.

/// The results of a child process.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// The figures.
    pub(crate) rows: Vec<Row>,
    /// Sentences that say why something could not be measured.
    pub(crate) lacks: Vec<String>,
}

/// The command that measures `what` in a process of this program.
pub(crate) fn command(what: Inner, effort: Effort) -> Command {
    with_arguments(Command::new(sealane_sys::process::this_program()), what, effort)
}

/// The command that does so under `sealane run`.
pub(crate) fn under_run(what: Inner, effort: Effort) -> Command {
    let program = sealane_sys::process::this_program();
    let mut command = Command::new(&program);
    command.args(["run", "--"]).arg(&program);
    with_arguments(command, what, effort)
}

fn with_arguments(mut command: Command, what: Inner, effort: Effort) -> Command {
    command.args(["bench", "--inner", what.name()]).stdin(Stdio::null());
    if effort == Effort::QUICK {
        command.arg("--quick");
    }
    command
}

/// Runs a command that prints what [`measure`] writes. Returns what it has told by then if somebody asks to end.
pub(crate) fn ask(context: &Context<'_>, mut command: Command) -> Told {
    let mut told = Told::default();
    if (context.stop)() {
        return told;
    }
    if let Err(why) = hear(context, &mut command, &mut told) {
        told.lacks.push(why);
    }
    // The same is lacking at every size.
    told.lacks.dedup();
    told
}

fn hear(context: &Context<'_>, command: &mut Command, told: &mut Told) -> Result<(), String> {
    // In a process group of its own, so that Ctrl-C is for this process alone, which then ends the child.
    command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command.spawn().map_err(|e| format!("{program} cannot be started: {e}"))?;
    let mut errors = child.stderr.take().expect("a pipe was asked for");
    let errors = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = errors.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let lines = BufReader::new(child.stdout.take().expect("a pipe was asked for")).lines();
    let mut heard = Ok(());
    let mut is_ended = false;
    for line in lines {
        match line.map_err(|e| e.to_string()).and_then(|line| parse(&line)) {
            Ok(Line::Row(row)) => {
                (context.progress)(&format!("{} of {} bytes by {}", row.alg, row.bytes, row.rival));
                told.rows.push(row);
            }
            Ok(Line::Lacks(why)) => told.lacks.push(why),
            Err(why) => heard = Err(format!("{program}: {why}")),
        }
        is_ended = (context.stop)();
        if is_ended || heard.is_err() {
            break;
        }
    }
    // The reader is gone by now: a child that goes on ends at its next line, with an error that says nothing.
    let status = child.wait().map_err(|e| format!("{program}: {e}"))?;
    let errors = errors.join().unwrap_or_default();
    heard?;
    if status.success() || is_ended {
        return Ok(());
    }
    Err(format!("{}: {status}", errors.lines().last().unwrap_or(&program)))
}

fn parse(line: &str) -> Result<Line, String> {
    serde_json::from_str(line).map_err(|e| format!("'{line}': {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::time::Duration;

    const LITTLE: Effort = Effort { each: Duration::from_micros(10), rounds: 2 };

    /// Asks a shell that prints `script`'s output; ends after `lines` lines.
    fn heard(script: &str, lines: usize) -> (Told, usize) {
        let registry = sealane_drivers::registry(Table::default(), Arc::new(SystemEntropy));
        let (asked, seen) = (Cell::new(0), Cell::new(0));
        let stop = || {
            asked.set(asked.get() + 1);
            asked.get() > lines
        };
        let progress = |_: &str| seen.set(seen.get() + 1);
        let context = Context { registry: &registry, effort: LITTLE, stop: &stop, progress: &progress };
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        (ask(&context, command), seen.get())
    }

    const ROW: &str = r#"{"row":{"alg":"sha256","bytes":64,"rival":"AF_ALG","ns":{"median":2.0,"low":1.0,"high":4.0,"rounds":5,"cpu":2.5}}}"#;

    #[test]
    fn rows_are_kept_when_the_run_is_ended() {
        let (told, seen) = heard(&format!("while :; do echo '{ROW}' || exit 1; done"), 3);
        assert_eq!((told.rows.len(), seen), (3, 3));
        assert!(told.lacks.is_empty(), "{:?}", told.lacks);
        let rate = told.rows[0].mb_per_s();
        assert_eq!((rate.low, rate.median, rate.high, rate.cpu), (16000.0, 32000.0, 64000.0, None));
    }

    #[test]
    fn a_child_that_fails_leaves_its_last_words() {
        let (told, _) = heard(&format!("echo '{ROW}'; echo 'sealane: no seccomp here' >&2; exit 125"), usize::MAX);
        assert_eq!(told.rows.len(), 1);
        assert!(matches!(&told.lacks[..], [why] if why.starts_with("sealane: no seccomp here: ")), "{:?}", told.lacks);
        let (told, _) = heard("echo nonsense", usize::MAX);
        assert!(matches!(&told.lacks[..], [why] if why.contains("'nonsense'")), "{:?}", told.lacks);
        let (told, _) = heard(r#"echo '{"lacks":"no"}'; echo '{"lacks":"no"}'"#, usize::MAX);
        assert_eq!(told.lacks, ["no"]);
    }

    #[test]
    fn both_ends_speak_the_same_lines() {
        let registry = sealane_drivers::registry(Table::default(), Arc::new(SystemEntropy));
        let own = Rival { name: "own", rows: registry.rows().to_vec() };
        let mut out = Vec::new();
        let rivals = [own];
        row(&registry, &rivals, (Kind::Hash, "nonesuch"), &[16], LITTLE, &mut out).unwrap();
        row(&registry, &rivals, (Kind::Hash, "sha256"), &[16, 64], LITTLE, &mut out).unwrap();
        let lines: Vec<Line> = String::from_utf8(out).unwrap().lines().map(|line| parse(line).unwrap()).collect();
        let [Line::Lacks(why), Line::Row(first), Line::Row(second)] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!(why, "own has no nonesuch");
        assert_eq!((first.bytes, second.bytes, &*first.rival, first.ns.rounds), (16, 64, "own", 2));
        assert!(first.ns.low <= first.ns.median && first.ns.median <= first.ns.high);
    }

    #[test]
    fn names_lead_back() {
        for inner in Inner::ALL {
            assert_eq!(Inner::named(inner.name()), Some(inner));
        }
        assert_eq!(Inner::named("nothing"), None);
    }
}
