//! Rows read and write nothing outside their buffers: every buffer ends at the start of an inaccessible page, or starts
//! at the end of one. A violation kills the test.

use inout::InOutBuf;
use sealane_crypto::aead::AeadTfm;
use sealane_crypto::data::Data;
use sealane_crypto::mac::{self, MacOp};
use sealane_crypto::registry::Alg;
use sealane_crypto::skcipher::Direction;
use sealane_crypto::{Kind, Lengths, Registry};

const PAGE: usize = 4096;

/// Room for one buffer between two inaccessible pages.
struct Guarded(*mut u8);

impl Guarded {
    fn new() -> Self {
        // SAFETY: a fresh private mapping of four pages, whose middle two are made accessible.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let mem = libc::mmap(core::ptr::null_mut(), 4 * PAGE, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(mem, libc::MAP_FAILED);
            let mem = mem.cast::<u8>();
            assert_eq!(libc::mprotect(mem.add(PAGE).cast(), 2 * PAGE, libc::PROT_READ | libc::PROT_WRITE), 0);
            Guarded(mem)
        }
    }

    /// `len` bytes of `fill` that touch the page after them, or the page before them.
    fn place(&mut self, len: usize, fill: u8, at_end: bool) -> &mut [u8] {
        assert!(len <= 2 * PAGE);
        let start = if at_end { 3 * PAGE - len } else { PAGE };
        // SAFETY: inside the two accessible pages, which `self` owns.
        let place = unsafe { core::slice::from_raw_parts_mut(self.0.add(start), len) };
        place.fill(fill);
        place
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`.
        unsafe { libc::munmap(self.0.cast(), 4 * PAGE) };
    }
}

fn lens() -> impl Iterator<Item = (usize, bool)> {
    (0..=300).chain([512, 1000, 1024, 2047, 4096, 8000, 8192]).flat_map(|n| [(n, true), (n, false)])
}

fn algs(kind: Kind) -> Vec<Alg> {
    if let Err(why) = sealane_crypto_ipsecmb::available() {
        eprintln!("SKIPPED: {why}");
        return Vec::new();
    }
    let ours = Registry::builder(|_| Ok(())).rows(sealane_crypto_ipsecmb::rows()).build();
    let rows = ours.rows().iter().filter(|row| row.info.kind == kind);
    rows.map(|row| ours.lookup(kind, &row.driver).expect("a row")).collect()
}

/// Keys, which may not be read beyond their end either.
fn key_lens(alg: &Alg) -> Vec<usize> {
    match alg.info().key_lens {
        Lengths::Of(list) => list.to_vec(),
        Lengths::Range(..) => vec![1, 20, 64, 65, 129],
        Lengths::None => vec![0],
    }
}

/// A key that is not weak for DES.
fn key(guarded: &mut Guarded, len: usize) -> &[u8] {
    let key = guarded.place(len, 0x31, true);
    key.iter_mut().enumerate().for_each(|(i, b)| *b = (i as u8).wrapping_mul(37) | 1);
    key
}

#[test]
fn hashes_and_macs() {
    let (mut key_at, mut message, mut tag) = (Guarded::new(), Guarded::new(), Guarded::new());
    for alg in algs(Kind::Hash) {
        eprintln!("{}", alg.info().name);
        let full = alg.info().digest_len;
        for key_len in key_lens(&alg) {
            let tfm = (alg.info().key_lens != Lengths::None).then(|| alg.mac(key(&mut key_at, key_len)).unwrap());
            for (len, at_end) in lens() {
                let (data, out) = ([&*message.place(len, 1, at_end)], tag.place(full, 0, at_end));
                match &tfm {
                    Some(tfm) => tfm.sign(&data, out).unwrap(),
                    None => alg.hash().one(&data, out).unwrap(),
                }
                // The same message in every lane of a burst.
                if let Some(tfm) = &tfm {
                    let mut tags = [[0; 64]; 17];
                    let mut ops: Vec<MacOp<'_>> =
                        tags.iter_mut().map(|t| MacOp::new(tfm, &data, &mut t[..full])).collect();
                    mac::sign(&mut ops);
                    assert!(tags.iter().all(|t| t[..full] == *out), "{} of {len} bytes", alg.info().name);
                }
            }
        }
    }
}

#[test]
fn nonce_macs() {
    let (mut key_at, mut nonce, mut message) = (Guarded::new(), Guarded::new(), Guarded::new());
    let mut tag = Guarded::new();
    for alg in algs(Kind::NonceMac) {
        eprintln!("{}", alg.info().name);
        for key_len in key_lens(&alg) {
            let tfm = alg.nonce_mac(key(&mut key_at, key_len)).unwrap();
            for (len, at_end) in lens() {
                let nonce = nonce.place(alg.info().iv_len, 9, at_end);
                tfm.sign(nonce, &[message.place(len, 1, at_end)], tag.place(16, 0, at_end)).unwrap();
            }
        }
    }
}

#[test]
fn ciphers() {
    let (mut key_at, mut iv, mut from, mut to) = (Guarded::new(), Guarded::new(), Guarded::new(), Guarded::new());
    for alg in algs(Kind::Skcipher) {
        eprintln!("{}", alg.info().name);
        for key_len in key_lens(&alg) {
            let tfm = alg.skcipher(key(&mut key_at, key_len)).unwrap();
            for (len, at_end) in lens().filter(|(n, _)| alg.info().name.starts_with("ctr") || n % 16 == 0) {
                for dir in [Direction::Encrypt, Direction::Decrypt] {
                    let iv = iv.place(alg.info().iv_len, 9, at_end);
                    let (src, dst) = (from.place(len, 1, at_end), to.place(len, 0, at_end));
                    tfm.one(dir, iv, Data::Flat(InOutBuf::new(src, dst).unwrap())).unwrap();
                    tfm.one(dir, iv, Data::Flat(dst.into())).unwrap();
                }
            }
        }
    }
}

#[test]
fn aeads() {
    let (mut key_at, mut nonce, mut aad) = (Guarded::new(), Guarded::new(), Guarded::new());
    let (mut from, mut to, mut tag) = (Guarded::new(), Guarded::new(), Guarded::new());
    for alg in algs(Kind::Aead) {
        eprintln!("{}", alg.info().name);
        for key_len in key_lens(&alg) {
            let tfm: AeadTfm = alg.aead(key(&mut key_at, key_len)).unwrap();
            for (len, at_end) in lens() {
                let nonce = nonce.place(alg.info().iv_len, 3, at_end);
                let aad = [&*aad.place(len % 61, 2, at_end)];
                let (src, dst) = (from.place(len, 1, at_end), to.place(len, 0, at_end));
                let tag = tag.place(16, 0, at_end);
                tfm.seal(nonce, &aad, InOutBuf::new(src, dst).unwrap().into(), tag).unwrap();
                src.copy_from_slice(dst);
                tfm.open(nonce, &aad, dst.into(), tag).unwrap();
                assert!(dst.iter().all(|b| *b == 1), "{} of {len} bytes", alg.info().name);
                tag[0] ^= 1;
                tfm.open(nonce, &aad, src.into(), tag).unwrap_err();
            }
        }
    }
}
