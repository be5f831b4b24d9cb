//! The drivers over a real kernel's AF_ALG. Where this machine's kernel has none, the test runs itself again inside a
//! user-mode kernel.

use sealane_crypto::rng::Entropy;
use sealane_crypto::{Alg, OpError, Row};
use sealane_crypto_portable::self_test;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Environment variable that is set for the run inside the kernel.
const INSIDE: &str = "SEALANE_INSIDE_KERNEL";

/// Lets Linux 7.3 bind all names; by default it binds only a short list.
const OPEN_ALL: &str = r#"echo 0 >/proc/sys/crypto/af_alg_restrict; exec "$@""#;

struct NoEntropy;

impl Entropy for NoEntropy {
    fn fill(&self, _: &mut [u8]) -> Result<(), OpError> {
        Err(OpError::Driver)
    }
}

/// `SEALANE_KERNELS`, or `../shared/kernel` beside the repository.
fn kernels() -> PathBuf {
    match std::env::var_os("SEALANE_KERNELS") {
        Some(path) => path.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/kernel"),
    }
}

#[test]
fn every_row_equals_the_portable_driver() {
    let rows = sealane_crypto_kernel::rows();
    if !rows.is_empty() {
        check(rows);
        return;
    }
    assert!(std::env::var_os(INSIDE).is_none(), "the kernel that was booted has no AF_ALG");
    let boot = kernels().join("boot");
    if !boot.exists() {
        eprintln!("SKIPPED: this kernel has no AF_ALG, and {} is missing (SEALANE_KERNELS)", boot.display());
        return;
    }
    let me = std::env::current_exe().expect("this program has a path");
    let out = Command::new(&boot)
        .args(["linux-7.3", "--", "env", &format!("{INSIDE}=1"), "bash", "-c", OPEN_ALL, "bash"])
        .arg(me)
        .args(["--exact", "every_row_equals_the_portable_driver", "--nocapture"])
        .output()
        .expect("boot runs");
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "inside the kernel:\n{text}{}", String::from_utf8_lossy(&out.stderr));
    assert!(text.contains("1 passed"), "inside the kernel:\n{text}");
}

/// Runs the self-test of every row, which compares it with the portable one, and runs it again in a child, which must
/// not use its parent's sockets.
fn check(rows: Vec<Row>) {
    let entropy: Arc<dyn Entropy> = Arc::new(NoEntropy);
    let rows: Vec<Arc<Row>> = rows.into_iter().map(Arc::new).collect();
    let names: Vec<&str> = rows.iter().map(|row| &*row.info.name).collect();
    println!("{} rows: {}", names.len(), names.join(" "));
    for name in ["sha256", "hmac(sha1)", "cmac(aes)", "cbc(aes)", "ctr(aes)", "gcm(aes)", "ccm(aes)"] {
        assert!(names.contains(&name), "no row for {name}");
    }
    let failed: Vec<String> = rows.iter().filter_map(|row| self_test(&Alg::of_row(row, &entropy)).err()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    long_texts(&rows, &entropy);
    shared_after_fork(&rows, &entropy);
}

fn alg(rows: &[Arc<Row>], entropy: &Arc<dyn Entropy>, name: &str) -> Alg {
    Alg::of_row(rows.iter().find(|row| row.info.name == name).expect("checked above"), entropy)
}

/// A text longer than a socket buffers.
fn long_texts(rows: &[Arc<Row>], entropy: &Arc<dyn Entropy>) {
    let portable = sealane_crypto_portable::registry();
    for len in [128 << 10, (128 << 10) + 16, 1 << 20] {
        let text = vec![7; len];
        let tag = |alg: Alg| {
            let mut tag = [0; 20];
            alg.mac(b"key").expect("any key").sign(&[&text], &mut tag).expect("signing does not fail");
            tag
        };
        let portable_hmac = portable.lookup(sealane_crypto::Kind::Hash, "hmac(sha1)").expect("portable");
        assert_eq!(tag(alg(rows, entropy, "hmac(sha1)")), tag(portable_hmac));
        let encrypted = |alg: Alg| {
            let (mut text, mut iv) = (text.clone(), [1; 16]);
            let tfm = alg.skcipher(&[2; 16]).expect("16 bytes");
            let done = tfm.one(sealane_crypto::skcipher::Direction::Encrypt, &mut iv, (&mut text[..]).into());
            assert_eq!(done, Ok(()));
            (text, iv)
        };
        let portable_cbc = portable.lookup(sealane_crypto::Kind::Skcipher, "cbc(aes)").expect("portable");
        assert!(encrypted(alg(rows, entropy, "cbc(aes)")) == encrypted(portable_cbc), "cbc(aes), {len} bytes");
    }
}

/// A key that was used before `fork` serves both processes.
fn shared_after_fork(rows: &[Arc<Row>], entropy: &Arc<dyn Entropy>) {
    let tfm = alg(rows, entropy, "hmac(sha1)").mac(b"key").expect("any key");
    let sign = |text: &[u8]| {
        let mut tag = [0; 20];
        tfm.sign(&[text], &mut tag).expect("signing does not fail");
        tag
    };
    let (parent, child) = (sign(b"parent"), sign(b"child"));
    // SAFETY: the child only makes system calls and leaves with _exit.
    match unsafe { libc::fork() } {
        0 => {
            let right = (0..200).all(|_| sign(b"child") == child);
            // SAFETY: no pointers.
            unsafe { libc::_exit(i32::from(!right)) }
        }
        pid => {
            assert!(pid > 0, "fork failed");
            let right = (0..200).all(|_| sign(b"parent") == parent);
            let mut status = -1;
            // SAFETY: the status is writable.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            assert!(right && status == 0, "parent right: {right}, child's status: {status}");
        }
    }
}
