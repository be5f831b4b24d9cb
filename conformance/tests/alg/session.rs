//! The program `afalg_keys`, which computes with keys that it wipes from its own memory, under `sealane run`.

use sealane_conformance::keeper::in_memory;
use sealane_conformance::target::{built_programs, descendants, end};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The longest time for an answer.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// The builds of the program: served by the preloaded library, and by the launcher.
pub(crate) const BUILDS: [&str; 2] = ["afalg_keys", "afalg_keys-static"];

/// The folder of the programs.
pub(crate) fn built() -> PathBuf {
    built_programs(env!("CARGO_TARGET_TMPDIR"))
}

/// Bytes that are nowhere else.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    File::open("/dev/urandom").unwrap().read_exact(&mut bytes).unwrap();
    bytes
}

/// A program that reads commands, `afalg_keys`.
pub(crate) struct Session {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Session {
    /// Starts a build of it under `launcher`.
    pub(crate) fn under(mut launcher: Command, program: &str) -> Self {
        launcher.arg(built().join(program)).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = launcher.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (to, lines) = channel();
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| to.send(line))
        });
        Session { child, input, lines }
    }

    /// The next answer, to this command.
    pub(crate) fn answer(&self, command: &str) -> String {
        self.lines.recv_timeout(LIMIT).unwrap_or_else(|e| panic!("'{command}': {e}"))
    }

    /// Gives a command that has no answer.
    pub(crate) fn tell(&mut self, command: &str) {
        writeln!(self.input, "{command}").unwrap();
    }

    /// Gives a command, and returns the answer.
    pub(crate) fn ask(&mut self, command: &str) -> String {
        self.tell(command);
        self.answer(command)
    }

    /// Sets a key.
    pub(crate) fn key(&mut self, slot: usize, alg: &str, key: &[u8]) -> String {
        self.secret(&format!("key {slot} {alg} {}", key.len()), key)
    }

    /// Gives a command that is followed by a secret.
    pub(crate) fn secret(&mut self, command: &str, secret: &[u8]) -> String {
        self.tell(command);
        self.give(secret)
    }

    /// Gives a secret that a command waits for.
    pub(crate) fn give(&mut self, secret: &[u8]) -> String {
        self.input.write_all(secret).unwrap();
        self.answer("a secret")
    }

    /// The places of these bytes in the memory of all processes of it, the launcher's too.
    pub(crate) fn in_memory(&self, needle: &[u8]) -> usize {
        let mut all = descendants(self.child.id());
        all.push(self.child.id());
        all.iter().map(|pid| in_memory(*pid, needle)).sum()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = end(&mut self.child);
    }
}

/// A key of `authenc(hmac(sha256),cbc(aes))`: an attribute with the length of the key of AES, the key of HMAC, that of AES.
fn authenc_key() -> Vec<u8> {
    let attribute = [8u16.to_ne_bytes(), 1u16.to_ne_bytes()].concat();
    [attribute, 16u32.to_be_bytes().to_vec(), vec![1; 32], vec![2; 16]].concat()
}

/// A program, and what it has been asked.
struct Log<'a> {
    program: &'a mut Session,
    answers: Vec<(String, String)>,
}

impl Log<'_> {
    fn ask(&mut self, command: &str) {
        self.answers.push((command.to_owned(), self.program.ask(command)));
    }

    fn key(&mut self, slot: usize, alg: &str, key: &[u8]) {
        self.answers.push((format!("key {slot} {alg} {}", key.len()), self.program.key(slot, alg, key)));
    }
}

/// Commands that use every type of algorithm in every way, each with its answer.
pub(crate) fn answers(program: &mut Session) -> Vec<(String, String)> {
    let key: Vec<u8> = (0..64).collect();
    let mut log = Log { program, answers: Vec::new() };
    let ciphers = [("cbc(aes)", 16, 16), ("ctr(aes)", 32, 16), ("ecb(aes)", 24, 0), ("xts(aes)", 64, 16)];
    for (name, key_len, iv_len) in ciphers {
        log.key(0, &format!("skcipher {name}"), &key[..key_len]);
        for len in [16, 64, 15, 4096, 100_000] {
            log.ask(&format!("encrypt 0 {iv_len} 0 {len}"));
            log.ask(&format!("decrypt 0 {iv_len} 0 {len}"));
        }
        log.ask(&format!("chain 0 {iv_len} 960 96"));
        log.ask(&format!("child encrypt 0 {iv_len} 0 80"));
        log.key(0, &format!("skcipher {name}"), &key[..key_len - 1]);
    }
    let authenc = authenc_key();
    let aeads = [
        ("gcm(aes)", &key[..16], 12, 20),
        ("ccm(aes)", &key[..32], 16, 20),
        ("rfc4106(gcm(aes))", &key[..20], 8, 16),
        ("authenc(hmac(sha256),cbc(aes))", &authenc, 16, 16),
    ];
    for (name, key, iv_len, assoc_len) in aeads {
        log.key(1, &format!("aead {name}"), key);
        for len in [0, 16, 64, 4096, 65_536] {
            log.ask(&format!("encrypt 1 {iv_len} {assoc_len} {len}"));
            log.ask(&format!("decrypt 1 {iv_len} {assoc_len} {len}"));
        }
        log.ask(&format!("child encrypt 1 {iv_len} {assoc_len} 32"));
        // Other associated data: the tag is wrong.
        log.ask(&format!("encrypt 1 {iv_len} {assoc_len} 64"));
        log.ask(&format!("decrypt 1 {iv_len} 0 {}", 64 + assoc_len));
    }
    for (name, key_len) in [("hmac(sha256)", 20), ("cmac(aes)", 16), ("blake2b-256", 32), ("hmac(sha512)", 64)] {
        log.key(2, &format!("hash {name}"), &key[..key_len]);
        for (len, piece) in [(0, 1), (1, 1), (1000, 1000), (1000, 100), (70_000, 70_000), (200_000, 30_000)] {
            log.ask(&format!("mac 2 {len} {piece}"));
        }
        log.ask("fork 2 100");
        log.ask("fork 2 100000");
        log.ask("move 2 400000");
        log.ask("child mac 2 300 100");
        log.ask("mac 2 300 100");
        log.ask("result 2");
    }
    // Without keys.
    log.key(3, "hash sha256", b"");
    log.key(3, "hash sha256", b"x");
    log.answers
}

/// Sets four keys in the slots 0 to 3, gives these commands, and counts the places at which the keys, the first and last round keys of
/// those of AES, and then a key of HMAC are in memory.
pub(crate) fn places_of_keys(program: &mut Session, commands: &[&str]) -> Vec<usize> {
    let aes: [[u8; 16]; 3] = random::<48>().as_chunks().0.try_into().unwrap();
    let hmac: [u8; 32] = random();
    let set: [(&str, &[u8]); 4] = [
        ("skcipher cbc(aes)", &aes[0]),
        ("aead gcm(aes)", &aes[1]),
        ("hash hmac(sha256)", &hmac),
        ("hash cmac(aes)", &aes[2]),
    ];
    for (slot, (alg, key)) in set.into_iter().enumerate() {
        assert_eq!(program.key(slot, alg, key), "ok", "{alg}");
    }
    for command in commands {
        let answer = program.ask(command);
        assert!(!answer.starts_with('E'), "{command}: {answer}");
    }
    let needles = aes.iter().flat_map(|key| {
        let [first, last] = round_keys(key);
        [*key, first, last]
    });
    let needles = needles.map(|key| key.to_vec()).chain([hmac.to_vec()]);
    needles.map(|needle| program.in_memory(&needle)).collect()
}

/// The words 4 to 7 and 40 to 43 of the expanded key of AES-128: the first round key and the last.
pub(crate) fn round_keys(key: &[u8; 16]) -> [[u8; 16]; 2] {
    fn times_two(x: u8) -> u8 {
        (x << 1) ^ ((x >> 7) * 0x1b)
    }
    fn times(mut a: u8, mut b: u8) -> u8 {
        let mut product = 0;
        while b > 0 {
            product ^= a * (b & 1);
            (a, b) = (times_two(a), b >> 1);
        }
        product
    }
    let sbox = |x: u8| {
        // x^254 is the inverse.
        let inverse = (0..254).fold(1, |power, _| times(power, x));
        (0..5).fold(0x63, |sum, turn| sum ^ inverse.rotate_left(turn))
    };
    let (mut round, mut constant) = (*key, 1);
    let mut keys = Vec::new();
    for _ in 0..10 {
        let last = [13, 14, 15, 12].map(|at| sbox(round[at]));
        for (at, byte) in last.into_iter().enumerate() {
            round[at] ^= byte;
        }
        round[0] ^= constant;
        (4..16).for_each(|at| round[at] ^= round[at - 4]);
        constant = times_two(constant);
        keys.push(round);
    }
    [keys[0], keys[9]]
}

#[test]
fn round_keys_are_those_of_fips_197() {
    // Appendix A.1.
    let hex = |text: &str| -> [u8; 16] {
        core::array::from_fn(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
    };
    let key = hex("2b7e151628aed2a6abf7158809cf4f3c");
    assert_eq!(round_keys(&key), ["a0fafe1788542cb123a339392a6c7605", "d014f9a8c9ee2589e13f0cc8b6630ca6"].map(hex));
}
