//! Keeps the library in a process once it is loaded there.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // libcrypto unloads a provider with its last library context. AWS-LC has destructors of threads (its queue of errors),
    // which would then jump into nothing when their threads end, and a key of threads that each load would take anew, of
    // the 1,024 that a process has.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
