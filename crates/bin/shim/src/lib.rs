//! AF_ALG inside an unmodified program.
//!
//! `sealane run` loads this library before libc (LD_PRELOAD). It interposes the functions by which a program reaches
//! the kernel's crypto sockets and serves them from the engine in the program's own process. A call goes like this:
//!
//! - [`hooks`] has the C functions; a glance at [`table`] tells whether a descriptor is ours, and if not libc's own
//!   function is called;
//! - [`entry`] stands between the C caller and us: errno, panics, signal handlers;
//! - [`program`] gives the engine's front end the descriptor and, by [`user`], slices for the caller's pointers; it does the
//!   rest;
//! - [`standin`] keeps what poll sees of a descriptor in step;
//! - [`arena`] holds everything, and each socket has a [`home`] in it; [`lock`] excludes threads and processes;
//! - [`share`] keeps the sockets in step that a process has in common with its children, by memory that [`tie`] says who may
//!   use; [`detach`] ends that before its credentials change.
//!
//! - [`place`] says where the program's keys are: [`key_memory`] gives them memory of their own, [`keeper`] is the way to them where
//!   another process has them.
//!
//! Until the program opens its first AF_ALG socket none of this costs more than one load and one branch a call.

mod arena;
mod atomic;
mod audit;
mod borrow;
mod cell;
mod detach;
mod entry;
mod environment;
mod fork;
mod handle;
mod home;
mod hooks;
mod keeper;
mod key_memory;
mod launcher;
mod limits;
mod lock;
mod mapping;
mod pages;
mod place;
mod proc;
mod program;
mod record;
mod share;
mod standin;
mod sys;
mod system;
mod table;
mod thread;
mod tie;
mod user;
