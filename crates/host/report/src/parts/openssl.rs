//! OpenSSL by block size: its own implementations, Sealane's provider, and AF_ALG.

use super::child::{self, Inner, OPENSSL, PROVIDER, Row, SPEED, Speed, Told};
use super::frame::{Context, Entry, INTERRUPTED, Measured};
use super::temporary::Nameless;
use crate::data::{Axis, Better, Chart, Figure, Outcome, Point, Scale, Series, Shape, Source, Table, X};
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) const ENTRY: Entry = Entry {
    id: "openssl-speed",
    title: "OpenSSL by block size, as openssl speed measures",
    about: "The speed of a program that uses OpenSSL at each block size, by OpenSSL's own code and by Sealane's provider, and of a \
            program that uses AF_ALG, by Sealane and by this machine's kernel. Short blocks tell what a call costs, long ones what the algorithm \
            costs.",
    measure,
};

const METHOD: &str = "OpenSSL is called as a program calls it, by its EVP interface, in a process whose configuration loads both providers; \
                      a property query picks one for each row, and both take turns. Keys are set before, an IV comes with each block, and AES-GCM \
                      authenticates 16 bytes beside it. The program 'openssl speed' is a check (the last chart but one): it counts whole \
                      seconds, one provider after the other, and would need minutes for one round of all rows, so that it runs once for a \
                      few. Its AES-GCM sets a key with each block, and authenticates the block alone. AF_ALG is sendmsg() and readv(), \
                      in a process under 'sealane run', and in one without it for the kernel's. MB are 1,000,000 bytes.";

/// The name of AF_ALG by Sealane.
const BY_SEALANE: &str = "AF_ALG by Sealane";
/// The name of AF_ALG by the kernel.
const BY_KERNEL: &str = "AF_ALG by this kernel";

const CARNIVORE: &str = "M. Koetter, carnivore.it, April 2011: openssl speed -evp, the af_alg engine on Linux 2.6.38, a desktop without \
                         AES instructions";
const ENGINE: &str = "README of cotequeiroz/afalg_engine: OpenSSL 1.1.1d, AES-256-CBC, the hardware driver mv-cbc-aes (Marvell CESA, ARM)";

/// `openssl speed`'s sizes and MB/s.
type PublishedRow = (&'static str, &'static [(usize, f64)]);

/// AES-128-CBC.
const CBC_128: [PublishedRow; 2] = [
    ("OpenSSL, 2011", &[(16, 114.16), (64, 161.35), (256, 179.39), (1024, 184.25), (8192, 185.93)]),
    ("af_alg engine, 2011", &[(16, 9.05), (64, 30.87), (256, 75.08), (1024, 114.68), (8192, 136.80)]),
];

/// AES-256-CBC.
const CBC_256: [PublishedRow; 3] = [
    ("OpenSSL", &[(16, 37.94), (64, 42.93), (256, 45.38), (1024, 46.07), (8192, 46.26), (16384, 46.27)]),
    ("afalg engine", &[(16, 1.14), (64, 4.42), (256, 16.06), (1024, 44.76), (8192, 89.82), (16384, 96.23)]),
    (
        "afalg engine, short blocks by software",
        &[(16, 28.65), (64, 39.38), (256, 44.33), (1024, 47.32), (8192, 90.19), (16384, 96.58)],
    ),
];

fn measure(context: &Context<'_>) -> Measured {
    let mut why = Vec::new();
    let mut rows: Vec<Row> = Vec::new();
    let mut add = |told: Told, rival: Option<&str>| {
        why.extend(told.lacks.into_iter().map(|lack| format!("{}: {lack}", rival.unwrap_or("OpenSSL's EVP"))));
        let renamed = |row: Row| Row { rival: rival.map_or(row.rival, str::to_owned), ..row };
        rows.extend(told.rows.into_iter().map(renamed));
    };
    let mut speed = Vec::new();
    let module = provider(&sealane_sys::process::this_program());
    if module.is_none() {
        let places = "the provider is neither beside the executable nor where packages have it: it was not built";
        add(Told { rows: Vec::new(), lacks: vec![places.to_owned()] }, Some(PROVIDER));
    }
    match Configuration::new(module.as_deref()) {
        Ok(configuration) => {
            let inner = if module.is_some() { Inner::EvpAndProvider } else { Inner::Evp };
            let mut command = child::command(inner, context.effort);
            match configuration.give(&mut command) {
                Ok(()) => add(child::ask(context, command), None),
                Err(e) => add(Told { rows: Vec::new(), lacks: vec![e.to_string()] }, None),
            }
            let (checked, lack) = check(context, &configuration, module.is_some());
            speed = checked;
            add(Told { rows: Vec::new(), lacks: lack.into_iter().collect() }, Some("'openssl speed'"));
        }
        Err(e) => add(Told { rows: Vec::new(), lacks: vec![format!("a configuration cannot be written: {e}")] }, None),
    }
    for (command, rival) in [
        (child::under_run(Inner::AfAlg, context.effort), BY_SEALANE),
        (child::command(Inner::AfAlg, context.effort), BY_KERNEL),
    ] {
        if !(context.stop)() {
            add(child::ask(context, command), Some(rival));
        }
    }
    if (context.stop)() {
        why.push(INTERRUPTED.to_owned());
    }
    let outcome = match (rows.is_empty(), why.is_empty()) {
        (true, _) if !(context.stop)() => Outcome::LeftOut(why.join("; ")),
        (false, true) => Outcome::Measured,
        _ => Outcome::Partly(why),
    };
    let charts = if rows.is_empty() { Vec::new() } else { charts(&rows, speed) };
    let lost = lost(&rows);
    let tables = losing_rows(&lost).into_iter().collect();
    Measured { method: METHOD.to_owned(), outcome, charts, tables, notes: notes(&lost) }
}

/// The provider: beside the executable `program` of a build, or where `make install` and the packages put it.
fn provider(program: &Path) -> Option<PathBuf> {
    let beside = program.parent()?;
    let lib = beside.join("../lib");
    let of_architectures = fs::read_dir(&lib).into_iter().flatten().flatten().map(|entry| entry.path());
    let modules = of_architectures.chain([beside.join("../lib64")]).map(|lib| lib.join("ossl-modules/sealane.so"));
    [beside.join("libsealane_provider.so"), lib.join("sealane/sealane.so")]
        .into_iter()
        .chain(modules)
        .find(|place| place.is_file())?
        .canonicalize()
        .ok()
}

/// OpenSSL's configuration for programs that this process starts. It names code that OpenSSL runs, so nobody else can write it.
struct Configuration(Nameless);

impl Configuration {
    /// A configuration of OpenSSL's own provider, and of the one that is `module`.
    fn new(module: Option<&Path>) -> io::Result<Self> {
        Ok(Configuration(Nameless::new(&text(module)?)?))
    }

    /// Has a program use it.
    fn give(&self, command: &mut Command) -> io::Result<()> {
        command.env("OPENSSL_CONF", Nameless::PATH);
        self.0.give(command)
    }
}

fn text(module: Option<&Path>) -> io::Result<String> {
    let mut text =
        "openssl_conf = init\n[init]\nproviders = providers\n[providers]\ndefault = default_section\n".to_owned();
    if module.is_some() {
        text.push_str("sealane = sealane_section\n");
    }
    text.push_str("[default_section]\nactivate = 1\n");
    if let Some(module) = module {
        // OpenSSL's configuration has no quoting that is the same in all versions.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
        let plain = module.to_str().filter(|path| path.chars().all(is_plain));
        let plain =
            plain.ok_or_else(|| io::Error::other(format!("{}: OpenSSL cannot be told this path", module.display())))?;
        text.push_str(&format!("[sealane_section]\nactivate = 1\nmodule = {plain}\nsealane-digests = ALL\n"));
    }
    Ok(text)
}

/// A row of `openssl speed` itself.
struct Checked {
    /// The algorithm and the size.
    what: String,
    rival: &'static str,
    mb_per_s: f64,
}

/// Runs the program `openssl speed` for some rows, a second each. Also returns why it measured nothing, or not all.
fn check(context: &Context<'_>, configuration: &Configuration, has_provider: bool) -> (Vec<Checked>, Option<String>) {
    let is_quick = context.effort == super::frame::Effort::QUICK;
    let sizes: &[usize] = if is_quick { &[1024] } else { &[16, 8192] };
    let algs = SPEED.iter().filter(|alg| !is_quick || ["aes-128-cbc", "sha256"].contains(&alg.openssl));
    let rivals: &[(&str, &str)] = match has_provider {
        true => &[(OPENSSL, "provider=default"), (PROVIDER, "provider=sealane")],
        false => &[(OPENSSL, "provider=default")],
    };
    let mut checked = Vec::new();
    for alg in algs {
        for bytes in sizes {
            for &(rival, query) in rivals {
                if (context.stop)() {
                    return (checked, None);
                }
                (context.progress)(&format!("openssl speed {} of {bytes} bytes by {rival}", alg.openssl));
                let mut command = Command::new("openssl");
                command.args(["speed", "-elapsed", "-seconds", "1", "-mr", "-bytes", &bytes.to_string()]);
                command.args(["-propquery", query]).args(alg.arguments);
                // In a process group of its own, so that Ctrl-C is for this process alone.
                command.process_group(0);
                let done = configuration.give(&mut command).and_then(|()| command.output());
                let done = done.map_err(|e| format!("the program openssl cannot be started: {e}"));
                match done.and_then(|done| {
                    let [said, errors] = [&done.stdout, &done.stderr].map(|bytes| String::from_utf8_lossy(bytes));
                    rate(&said).ok_or_else(|| first_error(&errors))
                }) {
                    Ok(bytes_per_s) => {
                        let what = format!("{}, {bytes} bytes", alg.openssl);
                        checked.push(Checked { what, rival, mb_per_s: bytes_per_s / 1e6 });
                    }
                    Err(why) => return (checked, Some(why)),
                }
            }
        }
    }
    (checked, None)
}

/// Bytes per second of the one algorithm and size in what `openssl speed -mr` prints: `+F:`, a number, the name, and a rate for each size.
fn rate(said: &str) -> Option<f64> {
    let mut results = said.lines().filter_map(|line| line.strip_prefix("+F:"));
    let fields: Vec<&str> = results.next()?.split(':').collect();
    let [_, _, rate] = fields[..] else { return None };
    rate.parse().ok().filter(|rate| *rate > 0.0)
}

/// The first line of an error, without what OpenSSL says of its own code.
fn first_error(said: &str) -> String {
    let is_message = |line: &&str| !line.is_empty() && !line.starts_with('+');
    said.lines().find(is_message).unwrap_or("it printed no result").to_owned()
}

fn charts(rows: &[Row], speed: Vec<Checked>) -> Vec<Chart> {
    let mut charts: Vec<Chart> = SPEED
        .iter()
        .map(|alg| {
            let mut series: Vec<Series> = Vec::new();
            for row in rows.iter().filter(|row| row.alg == alg.name) {
                let x = X::Number(row.bytes as f64);
                let point = Point { x, figure: row.mb_per_s(), remark: String::new() };
                match series.iter_mut().find(|series| series.name == row.rival) {
                    Some(series) => series.points.push(point),
                    None => series.push(Series { name: row.rival.clone(), source: Source::Here, points: vec![point] }),
                }
            }
            if alg.openssl == "aes-128-cbc" {
                series.extend(CBC_128.iter().map(|row| published(row, CARNIVORE)));
            }
            lines(alg.openssl, alg.openssl.to_owned(), series)
        })
        .collect();
    if !speed.is_empty() {
        charts.push(speed_chart(speed));
    }
    let engine = CBC_256.iter().map(|row| published(row, ENGINE)).collect();
    charts.push(lines("published-aes-256-cbc", "aes-256-cbc, as published for another engine".to_owned(), engine));
    charts
}

fn published((name, rates): &PublishedRow, of: &str) -> Series {
    let point = |(bytes, rate): &(usize, f64)| Point {
        x: X::Number(*bytes as f64),
        figure: Figure::stated(*rate),
        remark: String::new(),
    };
    let points = rates.iter().map(point).collect();
    Series { name: (*name).to_owned(), source: Source::Published(of.to_owned()), points }
}

fn throughput(scale: Scale) -> Axis {
    Axis { name: "Throughput".to_owned(), unit: "MB/s".to_owned(), scale, better: Some(Better::Higher) }
}

fn lines(id: &str, title: String, series: Vec<Series>) -> Chart {
    let x = Axis { name: "Block size".to_owned(), unit: "bytes".to_owned(), scale: Scale::Log, better: None };
    Chart { id: id.to_owned(), title, shape: Shape::Lines, x, y: throughput(Scale::Log), series }
}

fn speed_chart(speed: Vec<Checked>) -> Chart {
    let mut series: Vec<Series> = Vec::new();
    for Checked { what, rival, mb_per_s } in speed {
        let figure = Figure { rounds: 1, ..Figure::stated(mb_per_s) };
        let point = Point { x: X::Word(what), figure, remark: String::new() };
        match series.iter_mut().find(|series| series.name == rival) {
            Some(series) => series.points.push(point),
            None => series.push(Series { name: rival.to_owned(), source: Source::Here, points: vec![point] }),
        }
    }
    Chart {
        id: "openssl-speed-itself".to_owned(),
        title: "The program openssl speed, a second each".to_owned(),
        shape: Shape::Bars,
        x: Axis {
            name: "Algorithm and block size".to_owned(),
            unit: String::new(),
            scale: Scale::Linear,
            better: None,
        },
        y: throughput(Scale::Linear),
        series,
    }
}

/// The rivals that Sealane stands behind, which may lose.
const OURS: [&str; 2] = [PROVIDER, BY_SEALANE];

/// An algorithm at which a rival loses: OpenSSL is faster in every round at these sizes.
struct Lost {
    rival: &'static str,
    alg: &'static str,
    sizes: Vec<String>,
    /// The share of OpenSSL's throughput that it reaches there, at each of them.
    shares: Vec<f64>,
}

fn lost(rows: &[Row]) -> Vec<Lost> {
    let of = |rival: &'static str, alg: &'static Speed| {
        let mut lost = Lost { rival, alg: alg.openssl, sizes: Vec::new(), shares: Vec::new() };
        for row in rows.iter().filter(|row| row.rival == rival && row.alg == alg.name) {
            let same = |other: &&Row| other.rival == OPENSSL && other.alg == row.alg && other.bytes == row.bytes;
            if let Some(openssl) = rows.iter().find(same).filter(|openssl| row.ns.loses_to(&openssl.ns, Better::Lower))
            {
                lost.sizes.push(row.bytes.to_string());
                lost.shares.push(openssl.ns.median / row.ns.median);
            }
        }
        lost
    };
    let all = OURS.into_iter().flat_map(|rival| SPEED.iter().map(move |alg| of(rival, alg)));
    all.filter(|lost| !lost.sizes.is_empty()).collect()
}

/// Names the algorithms at which OpenSSL is faster.
fn notes(lost: &[Lost]) -> Vec<String> {
    let mut notes = Vec::new();
    for rival in OURS {
        let algs: Vec<&str> = lost.iter().filter(|lost| lost.rival == rival).map(|lost| lost.alg).collect();
        if !algs.is_empty() {
            notes
                .push(format!("{rival} is slower than OpenSSL's own code at some block sizes of {}.", algs.join(", ")));
        }
    }
    notes
}

/// The block sizes at which OpenSSL is faster, and the least and greatest share of its throughput that is reached there.
fn losing_rows(lost: &[Lost]) -> Option<Table> {
    let row = |Lost { rival, alg, sizes, shares }: &Lost| {
        let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = shares.iter().copied().fold(0.0, f64::max);
        let shares = if sizes.len() == 1 { format!("{least:.2}") } else { format!("{least:.2} to {greatest:.2}") };
        [*rival, *alg, &*sizes.join(", "), &*shares].map(str::to_owned).to_vec()
    };
    (!lost.is_empty()).then(|| Table {
        title: "Rows in which OpenSSL's own code is faster in every round".to_owned(),
        columns: ["rival", "algorithm", "block sizes, bytes", "share of OpenSSL's throughput"]
            .map(str::to_owned)
            .to_vec(),
        rows: lost.iter().map(row).collect(),
        source: Source::Here,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_openssl_speed_are_found() {
        // OpenSSL 3.0, a cipher and a MAC.
        assert_eq!(rate("+H:64\n+F:25:AES-128-GCM:131722368.00\n"), Some(131722368.0));
        assert_eq!(rate("+H:64\n+F:9:hmac(sha256):175636096.00\n"), Some(175636096.0));
        // Later versions number algorithms otherwise, and may say more.
        let later = "version: 3.5.5\nbuilt on: Tue Jan 27 00:00:00 2026 UTC\n+H:8192\n+F:31:AES-128-CBC:1354000000.25\n+F2:0:2048:1:2\n";
        assert_eq!(rate(later), Some(1354000000.25));
        // None is right of several sizes, no rate is none, and neither is nothing.
        for said in ["", "+H:16:64\n+F:22:sha256:1.00:2.00\n", "+F:22:sha256:0.00\n", "+F:22:sha256:inf?\n", "+F:22\n"]
        {
            assert_eq!(rate(said), None, "{said}");
        }
    }

    #[test]
    fn errors_are_told_in_a_line() {
        let said = "+DT:nonesuch:1:64\nspeed: nonesuch is an unknown cipher or digest\n40D7:error:0308010C:digital envelope routines\n";
        assert_eq!(first_error(said), "speed: nonesuch is an unknown cipher or digest");
        assert_eq!(first_error("+DT:sha256:1:64\n"), "it printed no result");
    }

    #[test]
    fn the_provider_is_found_in_builds_and_packages() {
        let root = std::env::temp_dir().join(format!("sealane-report-provider-{}", std::process::id()));
        let program = root.join("bin/sealane");
        fs::create_dir_all(root.join("bin")).unwrap();
        assert_eq!(provider(&program), None);
        // Each later place is preferred to those before it.
        for place in [
            "lib64/ossl-modules/sealane.so",
            "lib/x86_64-linux-gnu/ossl-modules/sealane.so",
            "lib/sealane/sealane.so",
            "bin/libsealane_provider.so",
        ] {
            let place = root.join(place);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(&place, "").unwrap();
            assert_eq!(provider(&program), Some(place.canonicalize().unwrap()));
        }
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn configurations_name_only_paths_that_are_plain() {
        let own = text(None).unwrap();
        assert!(own.contains("default = default_section") && !own.contains("sealane"));
        let both = text(Some(Path::new("/usr/lib/x86_64-linux-gnu/ossl-modules/sealane.so"))).unwrap();
        assert!(both.contains("\nmodule = /usr/lib/x86_64-linux-gnu/ossl-modules/sealane.so\n"));
        for path in ["/a b/sealane.so", "/a\nmodule = /tmp/x.so", "/$HOME/sealane.so", "/a#/sealane.so"] {
            assert!(text(Some(Path::new(path))).is_err(), "{path}");
        }
    }

    fn row(rival: &str, bytes: usize, median: f64) -> Row {
        let ns = Figure { median, low: median * 0.9, high: median * 1.1, rounds: 5, cpu: None };
        Row { alg: "cbc(aes)".to_owned(), bytes, rival: rival.to_owned(), ns }
    }

    #[test]
    fn charts_and_notes_follow_the_rows() {
        let rows = [
            row(OPENSSL, 16, 10.0),
            row(PROVIDER, 16, 20.0),
            row(OPENSSL, 64, 40.0),
            row(PROVIDER, 64, 41.0),
            row(BY_SEALANE, 16, 100.0),
            row(BY_SEALANE, 64, 80.0),
        ];
        let speed = vec![Checked { what: "sha256, 16 bytes".to_owned(), rival: OPENSSL, mb_per_s: 5.0 }];
        let charts = charts(&rows, speed);
        assert_eq!(charts.len(), SPEED.len() + 2);
        let names: Vec<&str> = charts[0].series.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, [OPENSSL, PROVIDER, BY_SEALANE, "OpenSSL, 2011", "af_alg engine, 2011"]);
        assert_eq!(charts[0].series[1].points.len(), 2);
        assert_eq!(charts[SPEED.len()].series[0].points[0].figure.rounds, 1);
        let lost = lost(&rows);
        let said = "is slower than OpenSSL's own code at some block sizes of aes-128-cbc.";
        assert_eq!(notes(&lost), OURS.map(|rival| format!("{rival} {said}")));
        let table = losing_rows(&lost).expect("two rivals lose");
        let expected = [[PROVIDER, "aes-128-cbc", "16", "0.50"], [BY_SEALANE, "aes-128-cbc", "16, 64", "0.10 to 0.50"]];
        assert_eq!(table.rows, expected.map(|row| row.map(str::to_owned).to_vec()));
        assert!(losing_rows(&[]).is_none() && notes(&[]).is_empty());
    }
}
