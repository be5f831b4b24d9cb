//! The calls of a program on the descriptor of one of our sockets, for the preloaded library and for the supervisor.
//!
//! Each function is one system call: it decodes the program's structures, checks in the kernel's order and calls the
//! [`Object`] behind the descriptor. The caller implements [`Memory`], access to the program's memory in place or by
//! copies, and [`Descriptor`], the open file and the process that calls.

mod data;
mod object;
mod program;
mod socket;
mod splice;

pub use data::{
    give, preadv2, pwritev2, read, readv, recv, recv_pieces, recvfrom, recvmmsg, recvmsg, send, sendmmsg, sendmsg,
    sendto, take, writev,
};
pub use object::Object;
pub use program::{Buffers, Descriptor, Memory};
pub use socket::{accept, bind, connect, getpeername, getsockname, getsockopt, ioctl, setsockopt, socket};
pub use splice::{SourceFile, Splice, SpliceEnd, on_no_pipe, send_file, sendfile, splice, splices_nothing};
