//! `sealane advise`: the choices for a workload, ranked by what they cost here.

use crate::answer::Answer;
use crate::args::{Advise, For, What};
use crate::render::{self, Align, Table};
use anyhow::{Context, Result, bail};
use sealane_capture::Frame;
use sealane_drivers::tables::{self, Origin};
use sealane_report::advise::{
    Advice, Checked, Choice, Interface, LeftOut, Means, Question, Rate, Sizes, TableOf, advise as rank, check,
};
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

/// Time to measure each choice, length and direction.
const EACH: Duration = Duration::from_millis(15);

/// Choices that are shown without `--all`.
const SHOWN: usize = 12;

/// The workloads of `--check` follow from this number.
const SEED: u64 = 16;

/// Advice that is this much slower than the best is not as good.
const AS_GOOD: f64 = 1.05;

/// The protocol number of TCP.
const TCP: u8 = 6;

pub(crate) fn advise(args: &Advise, out: &mut impl Write) -> Result<Answer> {
    let (table, origin) = tables::load()?;
    let of = table_of(&table.cpu, &origin);
    let registry = super::registry_with(table);
    let live = std::io::stderr().is_terminal();
    let progress = |what: &str| {
        if live {
            eprint!("\r\x1b[K{what}");
        }
    };
    let clear = || progress("");
    let means =
        Means { registry: &registry, table: of, measure: (!args.no_measure).then_some(EACH), progress: &progress };
    if let Some(count) = args.check {
        let checked = check(count, SEED, &means, |_| ());
        clear();
        print_checked(&checked, args.json, out)?;
        let good = checked.iter().filter(|c| c.advised_ratio <= AS_GOOD).count();
        return Ok(if good == count { Answer::Yes } else { Answer::No });
    }
    let advice = rank(&question(args)?, &means);
    clear();
    if args.json {
        render::json(out, &advice)?;
    } else {
        print(&advice, args.all, out)?;
    }
    Ok(if advice.choices.is_empty() { Answer::No } else { Answer::Yes })
}

fn table_of(cpu: &str, origin: &Origin) -> TableOf {
    let (origin, calibrated) = match origin {
        Origin::File(path) => (path.display().to_string(), true),
        Origin::Shipped(name) => (format!("the shipped one, {name}"), false),
        Origin::Nothing => ("there is none for this CPU".to_owned(), false),
    };
    TableOf { origin, cpu: cpu.to_owned(), calibrated }
}

fn question(args: &Advise) -> Result<Question> {
    let interface = match (args.interface, args.what) {
        (Some(For::TcpAo), None) => Interface::TcpAo,
        (Some(For::Ipsec), None) => Interface::Ipsec,
        (Some(For::AfAlg), Some(What::Mac)) => Interface::AfAlgMac,
        (Some(For::AfAlg), Some(What::Cipher)) => Interface::AfAlgCipher,
        (Some(For::AfAlg), Some(What::Aead)) => Interface::AfAlgAead,
        (Some(For::AfAlg), Some(What::Hash)) => Interface::AfAlgHash,
        (Some(For::AfAlg) | None, None) => {
            bail!("--for says what protects the packets, and --what what AF_ALG computes")
        }
        (_, Some(_)) => bail!("--what is for --for af-alg only"),
    };
    if args.no_encryption && interface != Interface::Ipsec {
        bail!("--no-encryption is for --for ipsec only");
    }
    let sizes = sizes(&args.size, interface).context("--size")?;
    Ok(Question {
        interface,
        packets_per_s: Rate::parse(&args.rate).context("--rate")?.packets_per_s(&sizes),
        sizes,
        sessions: args.sessions,
        strength_bits: args.strength.unwrap_or(interface.usual_strength()),
        nonces: !args.no_nonces,
        order: !args.no_order,
        encryption: !args.no_encryption,
        max_icv_bits: args.at_most_icv,
    })
}

/// Lengths from numbers, or from a capture. A text that begins with a digit and is no file is meant to be numbers.
fn sizes(text: &str, interface: Interface) -> Result<Sizes> {
    let path = Path::new(text);
    let numbers = text.chars().all(|c| c.is_ascii_digit() || c == ',' || c == ' ');
    if numbers || !path.exists() && text.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(Sizes::parse(text)?);
    }
    let mut reader = super::capture::open(path)?;
    let mut lengths = Vec::new();
    while let Some(frame) = reader.next_frame().with_context(|| path.display().to_string())? {
        lengths.extend(packet_len(&frame, interface == Interface::TcpAo));
    }
    let what = if interface == Interface::TcpAo { "TCP segments" } else { "IP packets" };
    Sizes::of(lengths).with_context(|| format!("{} has no {what}", path.display()))
}

/// The length of the IP packet in a frame, as its header says it; none of other frames, and with `only_tcp` of other protocols.
fn packet_len(frame: &Frame<'_>, only_tcp: bool) -> Option<usize> {
    let at = frame.ip_at().ok()?;
    let packet = &frame.data[at..];
    let (len, protocol) = match packet.first()? >> 4 {
        4 => (u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]), packet.get(9)?),
        6 => (u16::from_be_bytes([*packet.get(4)?, *packet.get(5)?]).checked_add(40)?, packet.get(6)?),
        _ => return None,
    };
    if only_tcp && *protocol != TCP {
        return None;
    }
    // A superframe that was captured before it was cut may say 0.
    Some(if len == 0 || len == 40 && packet[0] >> 4 == 6 { frame.len - at } else { len.into() })
}

fn print(advice: &Advice, all: bool, out: &mut impl Write) -> Result<()> {
    let question = &advice.question;
    writeln!(
        out,
        "{:.0} packets a second of {:.0} bytes, {} session{}, bursts of {}; {} bits of strength or more\n",
        question.packets_per_s,
        question.sizes.mean_bytes(),
        question.sessions,
        if question.sessions == 1 { "" } else { "s" },
        advice.burst,
        question.strength_bits
    )?;
    if advice.choices.is_empty() {
        writeln!(out, "There is no choice that has all of that.")?;
    } else {
        choices(advice, all, out)?;
    }
    left_out(&advice.left_out, out)?;
    for (i, note) in advice.notes.iter().enumerate() {
        writeln!(out, "{}{note}", if i == 0 { "\n" } else { "" })?;
    }
    Ok(())
}

fn choices(advice: &Advice, all: bool, out: &mut impl Write) -> Result<()> {
    let shown = if all { advice.choices.len() } else { SHOWN.min(advice.choices.len()) };
    let mut heads = vec![
        ("", Align::Right),
        ("choice", Align::Left),
        ("key bytes", Align::Right),
        ("ns/packet", Align::Right),
        ("cores", Align::Right),
        ("strength", Align::Right),
        ("adds bytes", Align::Right),
        ("known by", Align::Left),
        ("from", Align::Left),
        ("reason", Align::Left),
    ];
    // Columns that are empty in every row are left out.
    let rows: Vec<Vec<String>> = advice.choices[..shown].iter().map(row).collect();
    let used: Vec<bool> = (0..heads.len()).map(|i| rows.iter().any(|row| !row[i].is_empty())).collect();
    let mut keep = used.iter();
    heads.retain(|_| *keep.next().expect("a column"));
    let mut table = Table::new(&heads);
    for mut row in rows {
        let mut keep = used.iter();
        row.retain(|_| *keep.next().expect("a column"));
        table.row(row);
    }
    table.print(out)?;
    if shown < advice.choices.len() {
        writeln!(out, "and {} more, which cost more (--all)", advice.choices.len() - shown)?;
    }
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if advice.choices[0].cores > cpus as f64 {
        writeln!(out, "\nEven the cheapest choice keeps more CPUs busy than the {cpus} that this machine has.")?;
    } else if advice.choices[0].cores > 1.0 {
        writeln!(
            out,
            "\nEven the cheapest choice keeps more than one CPU busy: one session alone cannot have this rate."
        )?;
    }
    Ok(())
}

fn row(choice: &Choice) -> Vec<String> {
    let keys: Vec<String> = choice.key_bytes.iter().map(usize::to_string).collect();
    let ns = choice.ns_per_packet;
    vec![
        choice.rank.to_string(),
        choice.name.clone(),
        keys.join(" + "),
        if ns < 100.0 { format!("{ns:.1}") } else { format!("{ns:.0}") },
        two_digits(choice.cores),
        choice.strength.bits.to_string(),
        format!("{:.0}", choice.adds_bytes),
        choice.known_by.to_owned(),
        choice.from.word().to_owned(),
        choice.reason.clone(),
    ]
}

/// A number with two digits that count.
fn two_digits(number: f64) -> String {
    if number <= 0.0 {
        return "0".to_owned();
    }
    let decimals = (1 - number.log10().floor() as i32).max(0) as usize;
    format!("{number:.decimals$}")
}

/// Prints the choices that are left out, gathered by reason.
fn left_out(left: &[LeftOut], out: &mut impl Write) -> Result<()> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for LeftOut { name, reason } in left {
        match reasons.iter_mut().find(|(known, _)| known == reason) {
            Some((_, names)) => names.push(name),
            None => reasons.push((reason, vec![name])),
        }
    }
    for (i, (reason, names)) in reasons.iter().enumerate() {
        if i == 0 {
            writeln!(out, "\nLeft out:")?;
        }
        writeln!(out, "  {}: {reason}", names.join("; "))?;
    }
    Ok(())
}

fn print_checked(checked: &[Checked], json: bool, out: &mut impl Write) -> Result<()> {
    if json {
        return render::json(out, &checked);
    }
    let mut table = Table::new(&[
        ("", Align::Right),
        ("for", Align::Left),
        ("packets/s", Align::Right),
        ("bytes", Align::Right),
        ("burst", Align::Right),
        ("bits", Align::Right),
        ("measured", Align::Right),
        ("best", Align::Left),
        ("ns", Align::Right),
        ("by the table", Align::Right),
        ("advised", Align::Right),
    ]);
    for (i, c) in checked.iter().enumerate() {
        let q = &c.question;
        table.row(vec![
            (i + 1).to_string(),
            format!("{:?}", q.interface),
            format!("{:.0}", q.packets_per_s),
            format!("{:.0}", q.sizes.mean_bytes()),
            q.burst().to_string(),
            q.strength_bits.to_string(),
            c.measured.to_string(),
            c.best.clone(),
            format!("{:.1}", c.best_ns),
            format!("{:.3}", c.by_table_ratio),
            format!("{:.3}", c.advised_ratio),
        ]);
    }
    table.print(out)?;
    let within = |ratio: fn(&Checked) -> f64| checked.iter().filter(|c| ratio(c) <= AS_GOOD).count();
    let all = checked.len();
    writeln!(out, "\nthe best, or within 5 % of it: by the table {} of {all}", within(|c| c.by_table_ratio))?;
    writeln!(out, "                               as advised {} of {all}", within(|c| c.advised_ratio))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use sealane_capture::{LinkType, Writer};

    fn args(words: &[&str]) -> Advise {
        #[derive(Parser)]
        struct Only {
            #[command(flatten)]
            advise: Advise,
        }
        Only::try_parse_from(["advise"].iter().chain(words)).unwrap_or_else(|e| panic!("{words:?}: {e}")).advise
    }

    #[test]
    fn words_become_a_question() {
        let asked =
            question(&args(&["--for", "tcp-ao", "--size", "64,1420", "--rate", "5k", "--sessions", "7"])).unwrap();
        assert_eq!((asked.interface, asked.strength_bits, asked.sessions), (Interface::TcpAo, 96, 7));
        assert_eq!((asked.packets_per_s, asked.sizes.iter().count()), (5000.0, 2));
        assert!(asked.nonces && asked.order && asked.encryption && asked.max_icv_bits.is_none());
        let words =
            ["--for", "ipsec", "--rate", "10Gbit", "--size", "1250", "--no-nonces", "--no-order", "--no-encryption"];
        let asked = question(&args(&words)).unwrap();
        assert_eq!((asked.interface, asked.strength_bits, asked.packets_per_s), (Interface::Ipsec, 128, 1e6));
        assert!(!asked.nonces && !asked.order && !asked.encryption);
        let asked = question(&args(&["--for", "af-alg", "--what", "hash", "--strength", "64", "--at-most-icv", "96"]));
        let asked = asked.unwrap();
        assert_eq!((asked.interface, asked.strength_bits, asked.max_icv_bits), (Interface::AfAlgHash, 64, Some(96)));
    }

    #[test]
    fn nonsense_is_named() {
        for (words, wrong) in [
            (&["--for", "tcp-ao", "--size", "64,x"][..], "--size: 'x'"),
            (&["--for", "tcp-ao", "--size", "no such file"], "no such file"),
            (&["--for", "tcp-ao", "--rate", "fast"], "--rate: 'fast'"),
            (&["--for", "tcp-ao", "--what", "mac"], "--what is for"),
            (&["--for", "tcp-ao", "--no-encryption"], "--no-encryption is for"),
        ] {
            let error = format!("{:#}", question(&args(words)).unwrap_err());
            assert!(error.contains(wrong), "{words:?}: {error}");
        }
    }

    /// An IP packet that says it has `len` bytes, of which the beginning is there.
    fn packet(version: u8, protocol: u8, len: u16) -> Vec<u8> {
        let mut packet = vec![0; 60];
        packet[0] = version << 4 | 5;
        if version == 4 {
            packet[2..4].copy_from_slice(&len.to_be_bytes());
            packet[9] = protocol;
        } else {
            packet[4..6].copy_from_slice(&(len - 40).to_be_bytes());
            packet[6] = protocol;
        }
        packet
    }

    #[test]
    fn a_capture_has_the_lengths_of_its_packets() {
        // Raw IP.
        let mut bytes = Vec::new();
        let mut file = Writer::new(&mut bytes, LinkType(101)).unwrap();
        for packet in [packet(4, 6, 1420), packet(6, 6, 1420), packet(4, 6, 64), packet(4, 17, 576), vec![0; 20]] {
            file.write(0, &packet).unwrap();
        }
        file.finish().unwrap();
        let path = std::env::temp_dir().join(format!("sealane-advise-{}.pcap", std::process::id()));
        std::fs::write(&path, &bytes).unwrap();
        let text = path.to_str().unwrap();
        let of = |interface| sizes(text, interface).map(|s| s.iter().map(|s| (s.bytes, s.share)).collect::<Vec<_>>());
        let (ipsec, tcp) = (of(Interface::Ipsec), of(Interface::TcpAo));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(ipsec.unwrap(), [(64, 0.25), (576, 0.25), (1420, 0.5)]);
        let tcp = tcp.unwrap();
        assert_eq!(tcp.iter().map(|s| s.0).collect::<Vec<_>>(), [64, 1420]);
        assert!((tcp[1].1 - 2.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn numbers_have_two_digits() {
        for (number, text) in
            [(0.0, "0"), (0.000_123, "0.00012"), (0.9, "0.90"), (1.26, "1.3"), (12.6, "13"), (126.0, "126")]
        {
            assert_eq!(two_digits(number), text);
        }
    }

    #[test]
    fn what_is_left_out_is_gathered_by_reason() {
        let left = [("a", "weak"), ("b", "old"), ("c", "weak")];
        let left = left.map(|(name, reason)| LeftOut { name: name.to_owned(), reason: reason.to_owned() });
        let mut out = Vec::new();
        left_out(&left, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "\nLeft out:\n  a; c: weak\n  b: old\n");
    }
}
