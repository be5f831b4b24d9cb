//! Guarded memory: the one place in which the keys of a process lie, once it has been established. They are the keys of ciphers, AEADs and
//! MACs; what generators of random numbers, private keys and drivers of OpenSSL have is on the heap.
//!
//! ```text
//!  PROT_NONE │ memfd_secret, behind a protection key, not in dumps, not in children │ PROT_NONE
//!            └── Held, Held, ...: closed, except for a thread between `open` and the end of `Opened`
//! ```
//!
//! | reader | sees a key | because of |
//! |---|---|---|
//! | `/proc/PID/mem`, `process_vm_readv`, `ptrace`, `vmsplice`, a core dump, swap | no | memfd_secret |
//! | an over-read of this process, `write` of its address | no | the protection key (and pages around it that nobody can read) |
//! | a child of fork | no | MADV_DONTFORK |
//! | code that runs in this process and opens the memory itself | yes | |
//!
//! [`Memory::lacks`] says what a kernel or CPU lacks. A process without guarded memory has its keys on the heap: [`Held`] is a box then,
//! and [`open`] does nothing.
//!
//! After a fork the child has none of its parent's keys ([`Held::is_here`]); it gets memory of its own with its first key, or by
//! [`renew`].

mod cells;
mod held;
mod lock;
mod memory;
mod process;
mod wipe;

pub use held::{Held, Typed};
pub use lock::Lock;
pub use memory::{Lack, Memory, NoRoom, Plan};
pub use process::{
    Opened, allocate, begin, establish, give_back, guards, has, is_established, open, renew, renew_once, unguarded,
};
