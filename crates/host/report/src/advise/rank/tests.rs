use super::super::cost::tests::line;
use super::super::question::Sizes;
use super::*;
use sealane_crypto::Kind;
use sealane_crypto::choice::Table;
use sealane_drivers::SystemEntropy;
use std::sync::Arc;

fn registry(table: Table) -> Registry {
    sealane_drivers::registry(table, Arc::new(SystemEntropy))
}

/// A registry with a made-up table: for each algorithm nanoseconds for a message and for a byte, of a driver that there is.
fn made_up(figures: &[(Kind, &str, f64, f64)]) -> Registry {
    let plain = registry(Table::default());
    let mut text = "sealane-calibration 1\ncpu Some CPU\n".to_owned();
    for (kind, name, fixed, byte) in figures {
        let row = plain.rows().iter().find(|row| row.info.kind == *kind && row.info.name == *name);
        let driver = &row.unwrap_or_else(|| panic!("no row of {name}")).driver;
        for way in ["forward", "backward"] {
            text.push_str(&line(name, way, driver, *fixed, *byte));
            text.push('\n');
        }
    }
    registry(Table::parse(&text).expect("a table"))
}

const FIGURES: [(Kind, &str, f64, f64); 8] = [
    (Kind::Hash, "hmac(md5)", 10.0, 0.1),
    (Kind::Hash, "hmac(sha1)", 200.0, 0.5),
    (Kind::Hash, "hmac(sha256)", 300.0, 0.7),
    (Kind::Hash, "cmac(aes)", 50.0, 0.6),
    (Kind::Aead, "gcm(aes)", 90.0, 0.05),
    (Kind::Skcipher, "cbc(aes)", 40.0, 0.4),
    (Kind::Skcipher, "ctr(aes)", 40.0, 0.04),
    (Kind::NonceMac, "gmac(aes)", 30.0, 0.02),
];

fn ask(interface: Interface) -> Question {
    Question {
        interface,
        sizes: Sizes::parse("1420").unwrap(),
        packets_per_s: 1e5,
        sessions: 100,
        strength_bits: interface.usual_strength(),
        nonces: true,
        order: true,
        encryption: true,
        max_icv_bits: None,
    }
}

/// The advice by the made-up table alone.
fn advice(question: &Question) -> Advice {
    let registry = made_up(&FIGURES);
    let table = TableOf { origin: "made up".to_owned(), cpu: "Some CPU".to_owned(), calibrated: true };
    advise(question, &Means { registry: &registry, table, measure: None, progress: &|_| () })
}

fn names(advice: &Advice) -> Vec<&str> {
    advice.choices.iter().map(|choice| &*choice.name).collect()
}

/// The reasons why choices were left out whose name begins with this.
fn why<'a>(advice: &'a Advice, name: &str) -> Vec<&'a str> {
    advice.left_out.iter().filter(|left| left.name.starts_with(name)).map(|left| &*left.reason).collect()
}

#[test]
fn the_table_ranks() {
    let long = advice(&ask(Interface::TcpAo));
    // 1,416 bytes: 50 + 849.6, 200 + 708, 300 + 991.2; the algorithm of the draft has that MAC, too.
    assert_eq!(names(&long), ["cmac(aes128)", "hmac(sha1)", "hmac-sha256-128", "hmac(sha256)"]);
    let ns: Vec<f64> = long.choices.iter().map(|c| c.ns_per_packet).collect();
    for (ns, expected) in ns.iter().zip([899.6, 908.0, 1291.2, 1291.2]) {
        assert!((ns - expected).abs() < 0.5, "{ns} {expected}");
    }
    assert!((long.choices[0].cores - 0.08996).abs() < 1e-4);
    assert!(long.choices.iter().all(|c| c.from == From::Table));
    assert_eq!(long.choices.iter().map(|c| c.rank).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let short = advice(&Question { sizes: Sizes::parse("64,9000").unwrap(), ..ask(Interface::TcpAo) });
    assert_eq!(short.choices[0].name, "hmac(sha1)");
    assert_eq!(why(&short, "kmac256-128"), ["the table has no figure for it"]);
}

#[test]
fn equal_costs_go_by_strength() {
    let sha256 = advice(&ask(Interface::TcpAo));
    let [a, b] = [&sha256.choices[2], &sha256.choices[3]];
    assert_eq!(a.ns_per_packet, b.ns_per_packet);
    assert_eq!([a.strength.bits, b.strength.bits], [128, 96]);
}

#[test]
fn nothing_below_the_strength_is_recommended() {
    for interface in [
        Interface::TcpAo,
        Interface::Ipsec,
        Interface::AfAlgMac,
        Interface::AfAlgCipher,
        Interface::AfAlgAead,
        Interface::AfAlgHash,
    ] {
        for strength_bits in [64, 96, 128, 192, 256] {
            let advice = advice(&Question { strength_bits, encryption: false, ..ask(interface) });
            for choice in &advice.choices {
                assert!(choice.strength.bits >= strength_bits, "{interface:?} {strength_bits}: {choice:?}");
                for never in ["md4", "cbc(des)", "cmac(des)", "ecb(aes)"] {
                    assert!(!choice.name.contains(never), "{interface:?} {strength_bits}: {choice:?}");
                }
            }
        }
    }
}

#[test]
fn what_is_left_out_of_tcp_ao_has_a_reason() {
    let usual = advice(&ask(Interface::TcpAo));
    assert_eq!(why(&usual, "hmac(md5)"), ["64 bits, of 96 asked for (HMAC over md5 counts as no more)"]);
    // More strength takes longer MACs.
    assert_eq!(usual.choices[0].icv_bits, 96);
    assert_eq!(usual.choices[0].adds_bytes, 16.0);
    let strong = advice(&Question { strength_bits: 128, ..ask(Interface::TcpAo) });
    assert_eq!(names(&strong)[0], "cmac(aes128)");
    assert!(strong.choices.iter().all(|c| c.icv_bits == 128 && c.adds_bytes == 20.0));
    // Too little room for what is asked for.
    let short = advice(&Question { max_icv_bits: Some(64), ..ask(Interface::TcpAo) });
    assert!(short.choices.is_empty());
    assert_eq!(why(&short, "hmac(sha1)"), ["64 bits, of 96 asked for (a tag of 64 bits)"]);
    assert_eq!(why(&short, "kmac256-128"), ["its MAC is longer than 64 bits"]);
    let weak = advice(&Question { max_icv_bits: Some(64), strength_bits: 64, ..ask(Interface::TcpAo) });
    assert_eq!(names(&weak)[0], "hmac(md5)");
    assert!(weak.choices.iter().all(|c| c.icv_bits == 64));
    let strongest = advice(&Question { strength_bits: 192, ..ask(Interface::TcpAo) });
    assert!(strongest.choices.is_empty(), "a MAC of TCP-AO has 128 bits at most: {:?}", names(&strongest));
}

#[test]
fn peers_of_tcp_ao_are_named() {
    let usual = advice(&ask(Interface::TcpAo));
    let known: Vec<_> = usual.choices.iter().map(|c| c.known_by).collect();
    assert_eq!(known, ["RFC 5926, Linux", "RFC 5926, Linux", "a draft", "Linux"]);
    let weak = advice(&Question { strength_bits: 64, ..ask(Interface::TcpAo) });
    assert_eq!(weak.choices.iter().find(|c| c.name == "hmac(md5)").map(|c| c.known_by), Some("Linux until 7.0"));
}

#[test]
fn a_key_that_sees_too_much_loses_strength() {
    let busy = Question { packets_per_s: 1e9, sessions: 1, ..ask(Interface::TcpAo) };
    let busy = advice(&busy);
    let [reason] = why(&busy, "cmac(aes128)")[..] else { panic!("{busy:?}") };
    assert!(reason.contains("of 96 asked for") && reason.contains("equal states between blocks"), "{reason}");
    assert!(names(&busy).contains(&"hmac(sha1)"));
}

#[test]
fn ipsec_encrypts_unless_it_need_not() {
    let usual = advice(&ask(Interface::Ipsec));
    let first = &usual.choices[0];
    assert_eq!((&*first.name, &first.key_bytes[..]), ("aead 'rfc4106(gcm(aes))' KEY 128", &[20][..]));
    assert_eq!(first.adds_bytes, 8.0 + 8.0 + 2.0 + 2.0 + 16.0);
    // AES-256 costs 14 rounds in place of 10.
    let second = usual.choices.iter().find(|c| c.key_bytes == [36]).unwrap();
    assert_eq!(second.from, From::Estimate);
    assert!((second.ns_per_packet / first.ns_per_packet - 1.4).abs() < 1e-6);
    let cbc = "enc 'cbc(aes)' KEY auth-trunc 'hmac(sha256)' KEY 128";
    let cbc = usual.choices.iter().find(|c| c.name == cbc && c.key_bytes == [16, 32]).unwrap();
    assert!(cbc.reason.contains("two passes"), "{cbc:?}");
    assert!((cbc.ns_per_packet - (40.0 + 0.4 * 1424.0 + 300.0 + 0.7 * 1446.0)).abs() < 0.5, "{cbc:?}");
    assert!(names(&usual).iter().all(|name| !name.contains("cipher_null") && !name.contains("proto ah")));
    assert_eq!(why(&usual, "aead rfc4543(gcm(aes))"), ["it encrypts nothing"]);
    assert_eq!(why(&usual, "enc ecb(cipher_null)"), ["it encrypts nothing"]);
    assert_eq!(why(&usual, "auth-trunc digest_null"), ["it authenticates nothing"]);
    assert!(why(&usual, "enc cbc(des),")[0].contains("56 bits"));
    assert!(why(&usual, "auth-trunc hmac(md5)")[0].starts_with("64 bits, of 128"));

    let integrity = advice(&Question { encryption: false, ..ask(Interface::Ipsec) });
    assert_eq!(integrity.choices[0].name, "aead 'rfc4543(gcm(aes))' KEY 128");
    for name in
        ["proto ah auth-trunc 'cmac(aes)' KEY 128", "proto esp enc ecb(cipher_null) '' auth-trunc 'cmac(aes)' KEY 128"]
    {
        assert!(names(&integrity).contains(&name), "{name}");
    }
}

#[test]
fn choices_that_need_nonces_are_left_out_where_there_are_none() {
    let without = |interface| advice(&Question { nonces: false, ..ask(interface) });
    let ipsec = without(Interface::Ipsec);
    assert!(!ipsec.choices.is_empty());
    assert!(names(&ipsec).iter().all(|name| name.starts_with("enc 'cbc(")), "{:?}", names(&ipsec));
    for name in ["aead rfc4106(gcm(aes))", "aead rfc7539esp(chacha20,poly1305)", "enc rfc3686(ctr(aes))"] {
        assert_eq!(why(&ipsec, name), ["it needs a number that never comes twice under a key"], "{name}");
    }
    assert_eq!(names(&without(Interface::TcpAo)), names(&advice(&ask(Interface::TcpAo))));
    for interface in [Interface::AfAlgAead, Interface::AfAlgCipher] {
        assert!(without(interface).choices.is_empty());
    }
    assert!(!without(Interface::AfAlgMac).choices.is_empty());
}

#[test]
fn without_order_nonces_are_random_and_travel() {
    let calm = ask(Interface::AfAlgAead);
    let lossy = |packets_per_s| advice(&Question { order: false, packets_per_s, sessions: 1, ..calm.clone() });
    let (ordered, slow, fast) = (advice(&calm), lossy(1e3), lossy(1e6));
    assert_eq!(ordered.choices[0].name, "gcm(aes)");
    assert_eq!(slow.choices[0].adds_bytes, ordered.choices[0].adds_bytes + 12.0);
    assert!(!names(&fast).contains(&"gcm(aes)"));
    assert!(why(&fast, "gcm(aes)")[0].contains("nonces drawn at random"), "{:?}", fast.left_out);
    assert!(slow.notes.iter().any(|note| note.contains("drawn at random")));
}

#[test]
fn an_uncalibrated_machine_is_told_so() {
    let registry = made_up(&FIGURES);
    let table = TableOf { origin: "shipped: some".to_owned(), cpu: String::new(), calibrated: false };
    let means = Means { registry: &registry, table, measure: None, progress: &|_| () };
    let notes = advise(&ask(Interface::TcpAo), &means).notes;
    assert!(notes.iter().any(|note| note.contains("sealane crypto calibrate") && note.contains("some")), "{notes:?}");
}

#[test]
fn the_front_is_measured_and_the_table_kept_beside_it() {
    let registry = made_up(&FIGURES);
    let table = TableOf { origin: "made up".to_owned(), cpu: String::new(), calibrated: true };
    let means = Means { registry: &registry, table, measure: Some(Duration::from_micros(100)), progress: &|_| () };
    for interface in [Interface::TcpAo, Interface::Ipsec] {
        let advice = advise(&ask(interface), &means);
        let is_measured = |c: &Choice| matches!(c.from, From::Measured | From::Parts);
        // Where measured choices fall behind again and again, it ends at some number of them.
        let measured = advice.choices.iter().filter(|c| is_measured(c)).count();
        assert!(advice.choices.iter().take(FRONT).all(is_measured) || measured >= MOST_MEASURED, "{measured}");
        assert!(advice.choices.is_sorted_by(|a, b| a.ns_per_packet <= b.ns_per_packet));
        assert!(advice.choices.iter().any(|c| c.table_ns_per_packet.is_some()));
        // The made-up table lacks it.
        let sm3 = advice.choices.iter().find(|c| c.name.contains("hmac(sm3)"));
        assert!(sm3.is_some_and(|c| is_measured(c) && c.reason.contains("hmac(sm3) in portable code")), "{sm3:?}");
        assert_eq!(advice.beside_tcp.is_some(), interface == Interface::TcpAo && sealane_drivers::turns::ticks() != 0);
    }
}

/// Measured choices of a machine that is faster than the table's do not keep those out that are not measured yet.
#[test]
fn the_front_is_by_the_least_that_a_choice_may_cost() {
    let mut costs =
        [(60.0, false), (61.0, false), (62.0, false), (63.0, false), (64.0, false), (100.0, true), (110.0, true)];
    assert_eq!(front(&costs, 1.0), [0, 1, 2, 3, 4]);
    assert_eq!(front(&costs, 0.6), [0, 5, 1, 2, 3]);
    assert_eq!(front(&costs, 1.5), [0, 1, 2, 3, 4], "no choice costs more than the table says");
    costs[5] = (63.5, false);
    assert_eq!(front(&costs, 0.6), [0, 1, 2, 3, 5]);
    assert_eq!(front(&costs[..2], 1.0), [0, 1]);
}

#[test]
fn whether_the_choice_matters_is_a_matter_of_what_tcp_costs() {
    let (alike, text) = matters(&[100.0, 120.0, 140.0], 1000.0);
    assert_eq!(alike, 3);
    assert!(text.starts_with("The crypto does not matter beside TCP") && text.contains("adds 14.0 %"), "{text}");
    let (alike, text) = matters(&[100.0, 120.0, 400.0], 1000.0);
    assert_eq!(alike, 2);
    assert!(text.starts_with("The first 2 choices") && text.contains("adds 40 %"), "{text}");
    let (alike, text) = matters(&[500.0, 900.0], 1000.0);
    assert_eq!(alike, 1);
    assert!(text.contains("adds 50 %"), "{text}");
}

#[test]
fn json_has_all_of_it() {
    let json = serde_json::to_value(advice(&ask(Interface::TcpAo))).unwrap();
    assert_eq!(json["question"]["for"], "tcp-ao");
    assert_eq!(json["question"]["sizes"][0]["bytes"], 1420);
    assert_eq!(json["table"]["origin"], "made up");
    assert_eq!(json["burst"], 2);
    let first = &json["choices"][0];
    assert_eq!(first["rank"], 1);
    assert_eq!(first["name"], "cmac(aes128)");
    assert_eq!(first["from"], "table");
    assert_eq!(first["strength"]["bits"], 96);
    for key in ["ns_per_packet", "cores", "adds_bytes", "icv_bits"] {
        assert!(first[key].is_number(), "{key}: {first}");
    }
    for key in ["reason", "known_by"] {
        assert!(first[key].is_string(), "{key}: {first}");
    }
    assert!(
        json["left_out"]
            .as_array()
            .is_some_and(|left| left.iter().all(|l| l["name"].is_string() && l["reason"].is_string()))
    );
    assert!(json["beside_tcp"].is_null() && json["notes"].is_array());
}
