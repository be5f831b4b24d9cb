//! A report with INVENTED figures, in which every shape, scale and oddity of a report occurs.

use sealane_report::data::{
    Axis, Better, Chart, FORMAT, Figure, Machine, Outcome, Part, Point, Report, Run, Scale, Series, Shape, Source,
    Table, X,
};

fn axis(name: &str, unit: &str, scale: Scale, better: Option<Better>) -> Axis {
    Axis { name: name.into(), unit: unit.into(), scale, better }
}

fn series(name: &str, source: Source, points: impl Iterator<Item = Point>) -> Series {
    Series { name: name.into(), source, points: points.collect() }
}

fn published(of: &str) -> Source {
    Source::Published(format!("invented: {of}"))
}

/// A figure of so many rounds, whose spread is this part of it.
fn measured(median: f64, spread: f64) -> Figure {
    Figure { median, low: median * (1.0 - spread), high: median * (1.0 + 2.0 * spread), rounds: 15, cpu: None }
}

fn at(x: f64, figure: Figure, remark: &str) -> Point {
    Point { x: X::Number(x), figure, remark: remark.into() }
}

fn word(x: &str, figure: Figure, remark: &str) -> Point {
    Point { x: X::Word(x.into()), figure, remark: remark.into() }
}

/// A report of all parts.
pub(crate) fn report() -> Report {
    Report {
        format: FORMAT,
        run: Run {
            command: "sealane bench --quick --out report (INVENTED FIGURES)".into(),
            version: "0.0.0-sample".into(),
            began_s: 1_709_164_800,
            took_s: 613.4,
            quick: true,
            interrupted: true,
        },
        machine: Machine {
            cpu: "An invented CPU @ 2.10GHz, family 6, model 143, stepping 8".into(),
            cpus: 2,
            flags: ["aes", "pclmulqdq", "sha_ni", "avx2", "vaes", "vpclmulqdq", "avx512f", "avx512bw", "avx512vl"]
                .map(str::to_owned)
                .to_vec(),
            frequency: vec![
                "no governor: a hypervisor hides it".into(),
                "the counter counts 2.10 GHz whatever the frequency is (constant_tsc)".into(),
            ],
            kernel: "6.1.0-sample".into(),
            versions: [("OpenSSL", "3.0.0 sample"), ("AWS-LC", "1.0.0 sample"), ("libkcapi", "1.4.0 sample")]
                .map(|(name, version)| (name.to_owned(), version.to_owned()))
                .to_vec(),
            table: "built in, for the microarchitecture sample".into(),
        },
        parts: vec![tcp_ao(), speed(), macs(), moving(), odd(), partly(), left_out()],
    }
}

fn part(id: &str, title: &str, about: &str, charts: Vec<Chart>) -> Part {
    Part {
        id: id.into(),
        title: title.into(),
        about: about.into(),
        method: "All figures of this page are invented. Rivals of a row took turns, fifteen rounds of them; a figure is the median of the rounds, \
                 and its spread reaches from the lowest to the highest."
            .into(),
        outcome: Outcome::Measured,
        took_s: 12.34,
        charts,
        tables: Vec::new(),
        notes: Vec::new(),
    }
}

fn tcp_ao() -> Part {
    let words = ["hmac(sha1)", "cmac(aes)", "hmac(sha256)"];
    let bars = |figures: [f64; 3], spread: f64| {
        words.into_iter().zip(figures).map(move |(x, figure)| word(x, measured(figure, spread), ""))
    };
    let stated =
        |figures: [f64; 3]| words.into_iter().zip(figures).map(|(x, figure)| word(x, Figure::stated(figure), ""));
    let chart = |id: &str, unit: &str, by: f64| Chart {
        id: id.into(),
        title: format!("One 128-byte segment of TCP-AO, in {unit}"),
        shape: Shape::Bars,
        x: axis("Algorithm", "", Scale::Linear, None),
        y: axis("Cost of a segment", unit, Scale::Linear, Some(Better::Lower)),
        series: vec![
            series("single", Source::Here, bars([1_311.0 * by, 1_042.0 * by, 1_187.0 * by], 0.04)),
            series("rekeyed, as the kernel does", Source::Here, bars([2_950.0 * by, 1_610.0 * by, 2_204.0 * by], 0.06)),
            series("burst of 32", Source::Here, bars([402.0 * by, 371.0 * by, 512.0 * by], 0.02)),
            series("crypto API", published("kernel list, 2025, a CPU of 2.8 GHz"), stated([3_319.0, 3_311.0, 2_720.0])),
            series("library", published("kernel list, 2025, a CPU of 2.8 GHz"), stated([1_256.0, 1_344.0, 1_107.0])),
        ],
    };
    let mut part = part(
        "tcp-ao",
        "One segment of TCP-AO by algorithm",
        "A BGP session signs each segment. The figures tell what one signature of a short segment costs, with a key that is ready, \
         with one that is prepared each time, and in bursts.",
        vec![chart("cycles", "cycles", 1.0), chart("time", "ns", 0.476)],
    );
    part.notes = vec![
        "CMAC is the cheapest in all three ways here.".into(),
        "Losing row: rekeyed HMAC-SHA1 costs more than twice what it costs with a key that is ready.".into(),
    ];
    part
}

fn speed() -> Part {
    let sizes = [16.0, 64.0, 256.0, 1_024.0, 8_192.0, 16_384.0];
    let line = |most: f64, half: f64, remark: &'static str| {
        sizes.into_iter().map(move |size| {
            let mut figure = measured(most * size / (size + half), 0.05);
            figure.cpu = Some(figure.median * 0.98);
            at(size, figure, remark)
        })
    };
    let stated = |most: f64, half: f64| {
        sizes.into_iter().map(move |size| at(size, Figure::stated((most * size / (size + half)).round()), ""))
    };
    part(
        "openssl-speed",
        "openssl speed by block size",
        "The same command by four ways into the library, from one block to 16 KiB.",
        vec![Chart {
            id: "aes-128-cbc".into(),
            title: "openssl speed -evp aes-128-cbc".into(),
            shape: Shape::Lines,
            x: axis("Block size", "B", Scale::Log, None),
            y: axis("Throughput", "MB/s", Scale::Log, Some(Better::Higher)),
            series: vec![
                series("OpenSSL", Source::Here, line(1_420.0, 31.0, "")),
                series("Sealane's provider", Source::Here, line(1_460.0, 44.0, "cbc-aes-aesni")),
                series("AF_ALG through the shim", Source::Here, line(1_390.0, 520.0, "cbc-aes-aesni")),
                series(
                    "AF_ALG, kernel 6.1",
                    Source::Here,
                    line(1_180.0, 4_100.0, "<script>alert(\"remark\")</script> & more"),
                ),
                series("one more CPU", Source::Model("twice the figure of the shim".into()), stated(2_780.0, 520.0)),
                series("engine devcrypto", published("wiki, 2017, a small router"), stated(81.0, 1_900.0)),
            ],
        }],
    )
}

fn macs() -> Part {
    let names = [
        "hmac(md5)",
        "hmac(sha1)",
        "hmac(sha256)",
        "hmac(sha512)",
        "cmac(aes)",
        "gmac(aes)",
        "poly1305",
        "siphash24",
        "blake2b-keyed",
        "kmac128",
        "xcbc(aes)",
        "vmac64(aes)",
    ];
    let sizes = [16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0, 2_048.0, 4_096.0, 8_192.0];
    let each = names.into_iter().enumerate().map(|(nth, name)| {
        let nth = nth as f64;
        series(
            name,
            Source::Here,
            sizes
                .into_iter()
                .map(move |size| at(size, measured(0.35 + nth * 0.42 + (220.0 + 60.0 * nth) / size, 0.03), "")),
        )
    });
    let bars = |step: f64, spread: f64| {
        names
            .into_iter()
            .enumerate()
            .map(move |(nth, name)| word(name, measured(0.4 + nth as f64 * 0.31 * step, spread), "sample driver"))
    };
    let mut part = part(
        "macs",
        "What a MAC costs",
        "Cycles for each byte of a message, by its length, for every MAC.",
        vec![
            Chart {
                id: "by-length".into(),
                title: "Cycles a byte by length of the message, single".into(),
                shape: Shape::Lines,
                x: axis("Length of the message", "B", Scale::Log, None),
                y: axis("Cost", "cycles a byte", Scale::Log, Some(Better::Lower)),
                series: each.collect(),
            },
            Chart {
                id: "at-1024".into(),
                title: "Twelve MACs in six ways, messages of 1,024 bytes".into(),
                shape: Shape::Bars,
                x: axis("MAC", "", Scale::Linear, None),
                y: axis("Cost", "cycles a byte", Scale::Linear, Some(Better::Lower)),
                series: vec![
                    series("single", Source::Here, bars(1.0, 0.05)),
                    series("burst of 8", Source::Here, bars(0.8, 0.04)),
                    series("burst of 32", Source::Here, bars(0.55, 0.03)),
                    series("keys in guarded memory", Source::Here, bars(1.1, 0.08)),
                    series("bound", Source::Model("loads alone".into()), bars(0.3, 0.0)),
                    series("in 1999", published("a Pentium of 1999"), bars(2.0, 0.0)),
                ],
            },
        ],
    );
    // Of every MAC there is a table, but a picture of a few.
    let in_bursts =
        part.charts[0].series.iter().map(|of| series(&of.name, Source::Here, of.points.clone().into_iter()));
    let bursts = Chart {
        id: "by-length-bursts".into(),
        title: "Cycles a byte by length of the message, bursts".into(),
        shape: Shape::Table,
        series: in_bursts.collect(),
        ..part.charts[0].clone()
    };
    part.charts.push(bursts);
    part.tables = vec![Table {
        title: "Strength".into(),
        columns: ["MAC", "Tag, bits", "Nonce", "Forgery bound"].map(str::to_owned).to_vec(),
        rows: vec![
            [
                "hmac(sha256)",
                "256",
                "none",
                "as good as the compression function is as a pseudo-random function; invented words of some length",
            ]
            .map(str::to_owned)
            .to_vec(),
            ["gmac(aes)", "128", "96 bits, never twice", "grows with the length of messages"]
                .map(str::to_owned)
                .to_vec(),
        ],
        source: published("standards"),
    }];
    part
}

fn moving() -> Part {
    let figures = [
        ("TCP, writes of 10 bytes", 1_000.0),
        ("TCP, writes of 100 bytes", 100.0),
        ("TCP, writes of 1,000 bytes", 15.0),
        ("HMAC-SHA1-96", 25.0),
    ];
    part(
        "moving",
        "What it costs to move the same bytes",
        "One sees where a MAC matters at all.",
        vec![
            Chart {
                id: "tcp".into(),
                title: "Cycles a byte through TCP on this machine".into(),
                shape: Shape::Bars,
                x: axis("Moved by", "", Scale::Linear, None),
                y: axis("Cost", "cycles a byte", Scale::Log, Some(Better::Lower)),
                series: vec![
                    series(
                        "here",
                        Source::Here,
                        figures.into_iter().map(|(name, figure)| word(name, measured(figure * 0.7, 0.2), "")),
                    ),
                    series(
                        "1999",
                        published("a talk"),
                        figures.into_iter().map(|(name, figure)| word(name, Figure::stated(figure), "")),
                    ),
                ],
            },
            Chart {
                id: "ipsec".into(),
                title: "IPsec by CPUs".into(),
                shape: Shape::Lines,
                x: axis("CPUs", "", Scale::Linear, None),
                y: axis("Throughput", "Gbit/s", Scale::Linear, Some(Better::Higher)),
                series: vec![
                    series(
                        "measured",
                        Source::Here,
                        [1.0, 2.0].into_iter().map(|x| at(x, measured(4.1 * x, 0.06), "")),
                    ),
                    series(
                        "modelled",
                        Source::Model("by the share of work that is serial".into()),
                        (1..=16).map(|x| {
                            at(f64::from(x), Figure::stated(4.1 * f64::from(x) / (1.0 + 0.04 * f64::from(x))), "")
                        }),
                    ),
                    series(
                        "other data path",
                        published("a paper of 2022"),
                        [(1.0, 2.9), (4.0, 11.2), (8.0, 21.5), (16.0, 38.0)]
                            .into_iter()
                            .map(|(x, y)| at(x, Figure::stated(y), "")),
                    ),
                ],
            },
            Chart {
                id: "escapes".into(),
                title: "Packets that nobody misses".into(),
                shape: Shape::Lines,
                x: axis("Packets", "", Scale::Linear, None),
                y: axis("Share", "", Scale::Log, Some(Better::Lower)),
                series: vec![
                    series(
                        "counted",
                        Source::Counted("of 1,000 packets; strokes are their intervals of 99 %".into()),
                        (1..=8).map(|x| {
                            let share = 0.5_f64.powi(x);
                            at(
                                f64::from(x),
                                Figure { low: 0.8 * share, high: 1.3 * share, ..Figure::stated(share) },
                                "",
                            )
                        }),
                    ),
                    series(
                        "formula",
                        Source::Model("a half for each packet".into()),
                        (1..=8).map(|x| at(f64::from(x), Figure::stated(0.5_f64.powi(x)), "")),
                    ),
                ],
            },
        ],
    )
}

fn odd() -> Part {
    let nan = f64::NAN;
    let strange = [(0.0, 5.0), (1.0, 0.0), (10.0, -3.0), (100.0, nan), (1_000.0, f64::INFINITY), (10_000.0, 7.0)];
    let chart = |id: &str, shape, x, y, series| Chart {
        id: id.into(),
        title: format!("Odd figures: {id}"),
        shape,
        x: axis("Place", "B", x, None),
        y: axis("Figure", "ns", y, None),
        series,
    };
    let numbers = || {
        strange
            .into_iter()
            .map(|(x, y)| at(x, Figure { median: y, low: y - 2.0, high: y + 2.0, rounds: 3, cpu: None }, "odd"))
    };
    let words = || {
        strange.into_iter().map(|(x, y)| {
            word(&format!("word {x}"), Figure { median: y, low: -4.0, high: y + 2.0, rounds: 1, cpu: Some(nan) }, "")
        })
    };
    let charts = vec![
        chart("log", Shape::Lines, Scale::Log, Scale::Log, vec![series("strange", Source::Here, numbers())]),
        chart(
            "linear",
            Shape::Lines,
            Scale::Linear,
            Scale::Linear,
            vec![series("strange", Source::Here, numbers()), series("empty", Source::Here, std::iter::empty())],
        ),
        chart(
            "bars",
            Shape::Bars,
            Scale::Linear,
            Scale::Linear,
            vec![series("strange", Source::Here, words()), series("steady", Source::Here, words())],
        ),
        chart("log-bars", Shape::Bars, Scale::Linear, Scale::Log, vec![series("strange", Source::Here, words())]),
        chart(
            "lines-over-words",
            Shape::Lines,
            Scale::Linear,
            Scale::Linear,
            vec![series("strange", Source::Here, words())],
        ),
        chart("no-series", Shape::Lines, Scale::Linear, Scale::Log, Vec::new()),
        chart(
            "no-bars",
            Shape::Bars,
            Scale::Linear,
            Scale::Linear,
            vec![series("empty", Source::Here, std::iter::empty())],
        ),
    ];
    part("odd", "Figures & words that <no> part gives", "Zero, less than zero, no number, and nothing at all.", charts)
}

fn partly() -> Part {
    let mut part = part("ctr", "AES-128-CTR in pieces of 63 KiB", "Through AF_ALG against OpenSSL.", Vec::new());
    part.outcome = Outcome::Partly(vec![
        "no kernel to boot: SEALANE_KERNELS names no folder".into(),
        "no keeper is running".into(),
    ]);
    part
}

fn left_out() -> Part {
    let mut part =
        part("drivers", "AF_ALG drivers as kcapi-speed compares them", "Records of 1,024 bytes.", Vec::new());
    part.outcome = Outcome::LeftOut("interrupted before it began".into());
    part.method = String::new();
    part
}
