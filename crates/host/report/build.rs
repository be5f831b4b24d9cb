//! Keeps the compiler's version: figures depend on it.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=RUSTC");
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = Command::new(rustc).arg("--version").output().map(|done| done.stdout).unwrap_or_default();
    println!("cargo:rustc-env=SEALANE_RUSTC={}", String::from_utf8_lossy(&said).trim());
}
