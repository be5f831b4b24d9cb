//! Every driver with its keys in guarded memory, closed by `mprotect`: an access while it is closed ends this test. It is the only one
//! here, because other threads would open the memory. With SEALANE_TEST_LOCK=protection-key a protection key closes it, which not
//! every machine has (`conformance/suites/protection_keys.sh`).

use inout::InOutBuf;
use sealane_crypto::aead::{self, AeadOp, AeadStream, AeadTfm};
use sealane_crypto::choice::Table;
use sealane_crypto::data::Data;
use sealane_crypto::hash::HashState;
use sealane_crypto::mac::{self, MacOp, MacTfm, NonceMacTfm};
use sealane_crypto::registry::TestState;
use sealane_crypto::skcipher::{self, Direction, SkcipherOp, SkcipherTfm};
use sealane_crypto::wipe::{STACK_LEN, wipe_traces};
use sealane_crypto::{Alg, AlgInfo, KeyFormat, KeyUse, Kind, Lengths, OpError, Registry, templates};
use sealane_drivers::SystemEntropy;
use sealane_guarded::{Lack, Lock, Memory, Plan, establish, open};
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::HashSet;
use std::sync::Arc;
use zeroize::Zeroizing;

const DIRECTIONS: [Direction; 2] = [Direction::Encrypt, Direction::Decrypt];

/// An allocator that gives out zeros: a prepared key has bytes in it that nobody has written, and what was in them before is no key.
struct Zeros;

// SAFETY: it is the system's allocator.
unsafe impl GlobalAlloc for Zeros {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ZEROS: Zeros = Zeros;

/// The bytes that are compared at a time, when keys are looked for.
const WINDOW: usize = 16;

#[test]
fn keys_lie_in_guarded_memory_and_nowhere_else() {
    let mut former = Former::new();
    let memory = memory();
    let registry = sealane_drivers::registry(Table::default(), Arc::new(SystemEntropy));
    let algs = algs(&registry);
    assert!(algs.len() > 100, "{}", algs.len());
    for alg in &algs {
        let driver = &alg.rows()[0].driver;
        sealane_crypto_portable::self_test(alg).unwrap_or_else(|why| panic!("{driver}: {why}"));
    }
    assert!(memory.is_empty(), "{} bytes are left of keys that were dropped", memory.used());
    former.go_on();
    for alg in &algs {
        first_in_a_child(alg);
    }
    assert!(memory.is_empty());
    let mut held: Vec<(String, Held)> = algs.iter().filter_map(held).collect();
    assert!(held.len() > 100, "{}", held.len());
    children_have_no_keys(&mut held);
    wipe_traces(STACK_LEN);
    let found = found_outside(memory, &algs);
    assert!(found.is_empty(), "parts of keys are in ordinary memory: {found:#?}");
    drop(held);
    assert!(memory.is_empty(), "{} bytes are left of keys that were dropped", memory.used());
}

/// Guarded memory that is closed for certain.
fn memory() -> &'static Memory {
    let lock = match std::env::var("SEALANE_TEST_LOCK").as_deref() {
        Err(_) => Lock::Mprotect,
        Ok("protection-key") => Lock::ProtectionKey,
        Ok(other) => panic!("SEALANE_TEST_LOCK is {other:?}; expected protection-key"),
    };
    let memory = establish(Plan { len: 1 << 20, or_less: false, lock, ..Plan::default() }).expect("guarded memory");
    let has_key = !memory.lacks().iter().any(|lack| matches!(lack, Lack::ProtectionKey(_)));
    assert!(lock == Lock::Mprotect || has_key, "{:?}", memory.lacks());
    memory
}

/// An algorithm for each driver, and those of templates.
fn algs(registry: &Registry) -> Vec<Alg> {
    let rows = registry.rows().iter().filter(|row| row.test_state() != TestState::Exempt);
    let mut algs: Vec<Alg> = rows.map(|row| Alg::of_row(row, registry.entropy())).collect();
    algs.extend(templates::well_known().iter().filter_map(|(kind, name)| registry.lookup(*kind, name).ok()));
    algs
}

/// The key of an algorithm: all its drivers have the same, so that what one of them has in guarded memory is found where another one
/// has it elsewhere. It is computed anew each time, and bytes of it come once only in this process.
fn key(alg: &Alg) -> Option<Zeroizing<Vec<u8>>> {
    let info = alg.info();
    let len = match info.key_lens {
        _ if info.key_format != KeyFormat::Plain => return None,
        Lengths::None => return None,
        Lengths::Of(list) => *list.last()?,
        Lengths::Range(min, max) => max.min(64).max(min),
    };
    Some(stream(&alg.info().name, len))
}

/// Pseudorandom bytes for a name, which differ in each process.
fn stream(name: &str, len: usize) -> Zeroizing<Vec<u8>> {
    let mut state =
        u64::from(std::process::id()).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number(name.repeat(8).as_bytes());
    let next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 56) as u8
    };
    Zeroizing::new(core::iter::repeat_with(next).take(len).collect())
}

/// A transform under a key of its own that has been used, and what is under way with it.
enum Held {
    Mac(MacTfm, [Box<dyn HashState>; 2]),
    NonceMac(NonceMacTfm),
    Skcipher(SkcipherTfm),
    Aead(AeadTfm, Option<[Box<dyn AeadStream>; 2]>),
}

/// Text, IV and tag for an algorithm.
fn operands(info: &AlgInfo) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let tag_len = if info.kind == Kind::Aead { info.tag_lens.max() } else { info.digest_len };
    (vec![3; 1024], vec![1; info.iv_len], vec![0; tag_len])
}

fn held(alg: &Alg) -> Option<(String, Held)> {
    let (info, driver) = (alg.info(), alg.rows()[0].driver.clone());
    if info.key_use == KeyUse::None {
        return None;
    }
    let key = key(alg)?;
    let (mut text, mut iv, mut tag) = operands(info);
    // For the bytes of a key that come from the stack and that nobody has written.
    wipe_traces(STACK_LEN);
    let held = match info.kind {
        Kind::Hash => {
            let tfm = alg.mac(&key).expect(&driver);
            tfm.sign(&[&text], &mut tag).expect(&driver);
            let mut state = tfm.start();
            state.update(&text);
            let second = state.fork();
            Held::Mac(tfm, [state, second])
        }
        Kind::NonceMac => {
            let tfm = alg.nonce_mac(&key).expect(&driver);
            tfm.sign(&iv, &[&text], &mut tag).expect(&driver);
            Held::NonceMac(tfm)
        }
        Kind::Skcipher => {
            let tfm = alg.skcipher(&key).expect(&driver);
            for dir in DIRECTIONS {
                tfm.one(dir, &mut iv, Data::from(&mut text[..])).expect(&driver);
            }
            Held::Skcipher(tfm)
        }
        Kind::Aead => {
            let tfm = alg.aead(&key).expect(&driver);
            let aad = [9; 16];
            // The nonce suits, except for modes that want some value in it.
            tfm.seal(&iv, &[&aad], Data::from(&mut text[..]), &mut tag).expect(&driver);
            tfm.open(&iv, &[&aad], Data::from(&mut text[..]), &tag).expect(&driver);
            let streams = alg.aead_stream(&key).map(|stream| {
                let mut stream = stream.expect(&driver);
                stream.start(&[5; 12]).expect(&driver);
                stream.text(Direction::Encrypt, InOutBuf::from(&mut text[..])).expect(&driver);
                let second = stream.fork().expect(&driver);
                // Where the mode takes any nonce, one of another length.
                stream.start(&[5; 40]).or_else(|_| stream.start(&[6; 12])).expect(&driver);
                [stream, second]
            });
            Held::Aead(tfm, streams)
        }
        Kind::Rng => return None,
    };
    Some((driver, held))
}

/// The drivers of which an operation of this process says something else than that it cannot be done.
fn usable(held: &mut [(String, Held)]) -> Vec<&str> {
    let mut usable = Vec::new();
    for (driver, held) in held {
        let done = match held {
            Held::Mac(tfm, states) => {
                let (text, _, mut tag) = operands(tfm.info());
                let one = tfm.sign(&[&text], &mut tag);
                let mut new = tfm.start();
                new.update(&text);
                let [first, second] = states;
                first.update(&text);
                second.reset();
                let mut third = second.fork();
                let states = [&mut new, first, second, &mut third].map(|state| state.finish(&mut tag));
                let mut ops = [MacOp::new(tfm, &[], &mut tag)];
                mac::sign(&mut ops);
                [one, ops[0].status].into_iter().chain(states).collect::<Vec<_>>()
            }
            Held::NonceMac(tfm) => {
                let (text, iv, mut tag) = operands(tfm.info());
                vec![tfm.sign(&iv, &[&text], &mut tag)]
            }
            Held::Skcipher(tfm) => {
                let (mut text, mut iv, _) = operands(tfm.info());
                let one = tfm.one(Direction::Encrypt, &mut iv, Data::from(&mut text[..]));
                let (mut texts, mut ivs) = ([text.clone(), text], [iv.clone(), iv]);
                let mut ops: Vec<SkcipherOp<'_>> = core::iter::zip(&mut texts, &mut ivs)
                    .map(|(text, iv)| SkcipherOp {
                        tfm,
                        dir: Direction::Encrypt,
                        iv,
                        data: (&mut text[..]).into(),
                        status: Ok(()),
                    })
                    .collect();
                skcipher::crypt(&mut ops);
                vec![one, ops[0].status, ops[1].status]
            }
            Held::Aead(tfm, streams) => {
                let (mut text, iv, mut tag) = operands(tfm.info());
                let one = tfm.seal(&iv, &[&[9; 16]], Data::from(&mut text[..]), &mut tag);
                let (mut texts, mut tags) = ([text.clone(), text.clone()], [tag.clone(), tag.clone()]);
                let mut ops: Vec<AeadOp<'_>> = core::iter::zip(&mut texts, &mut tags)
                    .map(|(text, tag)| AeadOp {
                        tfm,
                        dir: Direction::Encrypt,
                        nonce: &iv,
                        aad: &[&[9; 16]],
                        data: (&mut text[..]).into(),
                        tag,
                        status: Ok(()),
                    })
                    .collect();
                aead::crypt(&mut ops);
                let mut done = vec![one, ops[0].status, ops[1].status];
                for stream in streams.iter_mut().flatten() {
                    done.push(stream.start(&[5; 12]));
                    done.push(stream.text(Direction::Encrypt, InOutBuf::from(&mut text[..])));
                    done.push(stream.seal(&mut tag));
                    done.push(stream.set_key(&[0; 16]).map_err(|_| OpError::Driver));
                    done.push(stream.fork().map(drop));
                }
                done
            }
        };
        if done.iter().any(|status| *status != Err(OpError::Driver)) {
            usable.push(&**driver);
        }
    }
    usable
}

/// Sixteen bytes that are no constant of some table, and no pointers or small numbers.
fn is_telling(window: &[u8]) -> bool {
    window.iter().collect::<HashSet<_>>().len() > 11 && window.iter().filter(|byte| **byte == 0).count() < 3
}

/// A number for a window, by which it is compared without a copy.
fn number(window: &[u8]) -> u64 {
    let (words, _) = window.as_chunks::<8>();
    let mix = |x: u64| (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    words.iter().fold(0x9e37_79b9_7f4a_7c15, |all, word| mix(mix(all) ^ u64::from_le_bytes(*word)))
}

/// Addresses outside guarded memory at which parts of what is inside are.
fn found_outside(memory: &Memory, algs: &[Alg]) -> Vec<String> {
    let _open = open();
    // SAFETY: the memory is open, and other threads do not write to it.
    let inside = unsafe { core::slice::from_raw_parts(memory.address() as *const u8, memory.len()) };
    // At each byte inside, and at each fourth one outside: so a copy is found wherever it begins.
    let windows = inside.windows(WINDOW).filter(|window| is_telling(window));
    let mut numbers: HashSet<u64> = windows.map(number).collect();
    assert!(numbers.len() > 20_000, "{}", numbers.len());
    // Keys as they were given, which some drivers have in another form only.
    for alg in algs {
        numbers.extend(key(alg).iter().flat_map(|key| key.windows(WINDOW).map(number).collect::<Vec<_>>()));
    }
    wipe_traces(STACK_LEN);
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let mut found = Vec::new();
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (range, rights) = (words.next().expect("a range"), words.next().expect("rights"));
        let (from, to) = range.split_once('-').expect("a range");
        let (from, to) = (usize::from_str_radix(from, 16).expect("hex"), usize::from_str_radix(to, 16).expect("hex"));
        if !rights.starts_with("rw") || from == memory.address() || line.contains("[v") {
            continue;
        }
        let at = (from..to - WINDOW).step_by(4);
        // SAFETY: mapped, readable, and read as plain bytes; what changes meanwhile is only this function's own.
        let hits =
            at.filter(|at| numbers.contains(&number(unsafe { core::slice::from_raw_parts(*at as *const u8, WINDOW) })));
        found.extend(hits.take(20).map(|at| format!("{at:#x} in {line}")));
    }
    found
}

/// A key and a stream of before guarded memory was established: they go on where they are.
struct Former {
    tfm: MacTfm,
    stream: Box<dyn AeadStream>,
}

impl Former {
    fn new() -> Self {
        let registry = sealane_drivers::registry(Table::default(), Arc::new(SystemEntropy));
        let tfm = registry.lookup(Kind::Hash, "hmac(sha256)").expect("it is there").mac(b"key").expect("a key");
        let gcm = registry.lookup(Kind::Aead, "gcm(aes)").expect("it is there");
        Former { tfm, stream: gcm.aead_stream(&[1; 16]).expect("a driver has streams").expect("a key") }
    }

    fn go_on(&mut self) {
        self.tfm.sign(&[b"text"], &mut [0; 32]).expect("a tag");
        self.tfm.start().finish(&mut [0; 32]).expect("a tag");
        // Each of these allocates.
        self.stream.set_key(&[2; 32]).expect("a longer key");
        self.stream.start(&[3; 40]).expect("a longer nonce");
        let mut second = self.stream.fork().expect("a copy");
        for stream in [&mut self.stream, &mut second] {
            stream.text(Direction::Encrypt, InOutBuf::from(&mut [4; 64][..])).expect("text");
            stream.seal(&mut [0; 16]).expect("a tag");
        }
    }
}

/// Runs `f` in a child of fork, and checks that it returns true.
fn in_a_child(what: &str, f: impl FnOnce() -> bool) {
    // SAFETY: this process has one thread that allocates, so that the child may allocate, too. It ends at once.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).is_ok_and(|done| done);
        // SAFETY: it ends.
        unsafe { libc::_exit(i32::from(!done)) };
    }
    let mut status = 0;
    // SAFETY: it writes an integer of ours.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{what}: the child's status is {status:#x}");
}

/// The first key that a child makes is this one, and so is the first stream: its memory is made for it.
fn first_in_a_child(alg: &Alg) {
    let driver = alg.rows()[0].driver.clone();
    in_a_child(&driver, || held(alg).is_some() || alg.info().key_use == KeyUse::None || key(alg).is_none());
    if alg.info().kind == Kind::Aead
        && let Some(key) = key(alg)
    {
        in_a_child(&driver, || {
            alg.aead_stream(&key).is_none_or(|stream| stream.is_ok_and(|mut s| s.start(&[1; 12]).is_ok()))
        });
    }
}

/// Checks that a child of fork can do nothing with the keys of its parent, is told so, and can make keys of its own.
fn children_have_no_keys(held: &mut Vec<(String, Held)>) {
    in_a_child("keys of the parent", || {
        let usable: Vec<String> = usable(held).into_iter().map(str::to_owned).collect();
        eprintln!("keys that a child can use: {usable:?}");
        held.clear();
        usable.is_empty()
    });
}
