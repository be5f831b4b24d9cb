//! AES-128-CTR through AF_ALG in large pieces, against OpenSSL in the same process.

use super::child::{self, AF_ALG, Inner, OPENSSL, PIECE, Told};
use super::frame::{Context, Entry, INTERRUPTED, Measured};
use crate::data::{Axis, Better, Chart, Figure, Outcome, Point, Scale, Series, Shape, Source, X};

pub(super) const ENTRY: Entry = Entry {
    id: "af-alg",
    title: "AES-128-CTR through AF_ALG in pieces of 63 KiB",
    about: "The cost of the socket interface to a program that encrypts much: the time of a piece and the CPU time for it, through AF_ALG and \
            by OpenSSL, and the ratio that Cloudflare published for the kernel's.",
    measure,
};

const METHOD: &str = "A process measures OpenSSL's EVP and AF_ALG in turns: 64,512 bytes, one buffer into another, the key set before, the \
                      IV with each piece. AF_ALG is sendmsg() with IV and text, and readv(): under 'sealane run' Sealane's preloaded \
                      library serves them, without it this machine's kernel. Cloudflare's program gave pages by vmsplice() and splice().";

/// The server of AF_ALG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Server {
    Sealane,
    Kernel,
}

impl Server {
    const ALL: [Server; 2] = [Server::Sealane, Server::Kernel];

    fn name(self) -> &'static str {
        match self {
            Server::Sealane => "AF_ALG by Sealane",
            Server::Kernel => "AF_ALG by this kernel",
        }
    }
}

fn measure(context: &Context<'_>) -> Measured {
    let ask = |server| {
        let command = match server {
            Server::Sealane => child::under_run(Inner::AfAlgPieces, context.effort),
            Server::Kernel => child::command(Inner::AfAlgPieces, context.effort),
        };
        (server, child::ask(context, command))
    };
    let told: Vec<(Server, Told)> = Server::ALL.into_iter().map(ask).collect();
    report(&told, (context.stop)())
}

/// A figure of `rival` from one process.
fn figure(told: &Told, rival: &str) -> Option<Figure> {
    told.rows.iter().find(|row| row.rival == rival).map(|row| row.ns)
}

fn report(told: &[(Server, Told)], is_interrupted: bool) -> Measured {
    let mut why = Vec::new();
    let mut times = Vec::new();
    let mut ratios = Vec::new();
    let mut notes = Vec::new();
    for (server, told) in told {
        why.extend(told.lacks.iter().map(|lack| format!("{}: {lack}", server.name())));
        let Some(openssl) = figure(told, OPENSSL) else { continue };
        // OpenSSL's figure is that of the same process and the same moments.
        times.push(("OpenSSL", server, openssl));
        let Some(af_alg) = figure(told, AF_ALG) else { continue };
        times.push(("AF_ALG", server, af_alg));
        let ratio = openssl.median / af_alg.median;
        ratios.push(point(server.name(), spread(&openssl, &af_alg)));
        if af_alg.loses_to(&openssl, Better::Lower) {
            notes.push(format!("{} is slower than OpenSSL: {ratio:.2} of its throughput.", server.name()));
        }
    }
    if is_interrupted {
        why.push(INTERRUPTED.to_owned());
    }
    let outcome = match (times.is_empty(), why.is_empty()) {
        (true, _) if !is_interrupted => Outcome::LeftOut(why.join("; ")),
        (false, true) => Outcome::Measured,
        _ => Outcome::Partly(why),
    };
    let time = (!times.is_empty()).then(|| time_chart(&times));
    let ratio = (!ratios.is_empty()).then(|| ratio_chart(ratios));
    Measured {
        method: METHOD.to_owned(),
        outcome,
        charts: time.into_iter().chain(ratio).collect(),
        tables: Vec::new(),
        notes,
    }
}

/// The ratio of throughputs, with the widest range that the rounds allow.
fn spread(openssl: &Figure, af_alg: &Figure) -> Figure {
    Figure {
        median: openssl.median / af_alg.median,
        low: openssl.low / af_alg.high,
        high: openssl.high / af_alg.low,
        rounds: 0,
        cpu: None,
    }
}

fn point(word: &str, figure: Figure) -> Point {
    Point { x: X::Word(word.to_owned()), figure, remark: String::new() }
}

fn words(name: &str) -> Axis {
    Axis { name: name.to_owned(), unit: String::new(), scale: Scale::Linear, better: None }
}

fn time_chart(times: &[(&str, &Server, Figure)]) -> Chart {
    let us = |ns: &Figure| Figure {
        median: ns.median / 1e3,
        low: ns.low / 1e3,
        high: ns.high / 1e3,
        rounds: ns.rounds,
        cpu: ns.cpu.map(|ns| ns / 1e3),
    };
    let series = |name: &str| {
        let of_this = times.iter().filter(|time| time.0 == name);
        let points = of_this.map(|(_, server, figure)| point(server.name(), us(figure))).collect();
        Series { name: name.to_owned(), source: Source::Here, points }
    };
    Chart {
        id: "time".to_owned(),
        title: format!("Time for a piece of {} KiB", PIECE >> 10),
        shape: Shape::Bars,
        x: words("Server of AF_ALG"),
        y: Axis { name: "Time".to_owned(), unit: "µs".to_owned(), scale: Scale::Linear, better: Some(Better::Lower) },
        series: ["OpenSSL", "AF_ALG"].map(series).into_iter().filter(|series| !series.points.is_empty()).collect(),
    }
}

fn ratio_chart(ratios: Vec<Point>) -> Chart {
    let published = "Cloudflare, \"The Linux Crypto API for user applications\", May 2023: the kernel's AF_ALG with vmsplice against \
                     OpenSSL, AES-128-CTR, their machine";
    Chart {
        id: "ratio".to_owned(),
        title: "Throughput of AF_ALG, as a share of OpenSSL's in the same process".to_owned(),
        shape: Shape::Bars,
        x: words("Server of AF_ALG"),
        y: Axis {
            name: "AF_ALG / OpenSSL".to_owned(),
            unit: String::new(),
            scale: Scale::Linear,
            better: Some(Better::Higher),
        },
        series: vec![
            Series {
                name: "this machine".to_owned(),
                source: Source::Model("computed from the times for a piece in this report".to_owned()),
                points: ratios,
            },
            Series {
                name: "Cloudflare, 2023".to_owned(),
                source: Source::Published(published.to_owned()),
                points: vec![point("AF_ALG by a kernel of 2023", Figure::stated(0.56))],
            },
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::child::Row;
    use super::*;

    fn told(rows: &[(&str, f64)], lacks: &[&str]) -> Told {
        let row = |(rival, median): &(&str, f64)| Row {
            alg: "ctr(aes)".to_owned(),
            bytes: PIECE,
            rival: (*rival).to_owned(),
            ns: Figure { median: *median, low: median * 0.9, high: median * 1.1, rounds: 5, cpu: Some(*median) },
        };
        Told { rows: rows.iter().map(row).collect(), lacks: lacks.iter().map(|lack| (*lack).to_owned()).collect() }
    }

    #[test]
    fn a_kernel_without_af_alg_leaves_the_rest() {
        let served = told(&[(OPENSSL, 2000.0), (AF_ALG, 4000.0)], &[]);
        let report = report(&[(Server::Sealane, served), (Server::Kernel, told(&[], &["no AF_ALG"]))], false);
        assert_eq!(report.outcome, Outcome::Partly(vec!["AF_ALG by this kernel: no AF_ALG".to_owned()]));
        let [time, ratio] = &report.charts[..] else { panic!("two charts") };
        let af_alg = &time.series[1].points[0];
        assert_eq!((af_alg.figure.median, af_alg.figure.cpu), (4.0, Some(4.0)));
        let figure = ratio.series[0].points[0].figure;
        assert!(
            matches!(ratio.series[0].source, Source::Model(_)) && figure.rounds == 0,
            "what is computed counts once"
        );
        assert!((figure.median - 0.5).abs() < 1e-9 && figure.low < 0.5 && figure.high > 0.5, "{figure:?}");
        assert_eq!(report.notes, ["AF_ALG by Sealane is slower than OpenSSL: 0.50 of its throughput."]);
    }

    #[test]
    fn outcomes_follow_what_there_is() {
        let full = || told(&[(OPENSSL, 2.0), (AF_ALG, 1.0)], &[]);
        let both = report(&[(Server::Sealane, full()), (Server::Kernel, full())], false);
        assert_eq!((both.outcome, both.notes.len()), (Outcome::Measured, 0));
        let nothing = report(&[(Server::Sealane, told(&[], &["no OpenSSL"]))], false);
        assert_eq!(nothing.outcome, Outcome::LeftOut("AF_ALG by Sealane: no OpenSSL".to_owned()));
        assert!(nothing.charts.is_empty());
        let interrupted = || Outcome::Partly(vec![INTERRUPTED.to_owned()]);
        assert_eq!(report(&[(Server::Sealane, full()), (Server::Kernel, told(&[], &[]))], true).outcome, interrupted());
        let at_once = report(&[], true);
        assert_eq!((at_once.outcome, at_once.charts.len()), (interrupted(), 0));
        let only_openssl = report(&[(Server::Sealane, told(&[(OPENSSL, 2.0)], &[]))], true);
        let [time] = &only_openssl.charts[..] else { panic!("one chart") };
        assert_eq!((time.id.as_str(), time.series.len()), ("time", 1));
    }
}
