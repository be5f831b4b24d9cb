//! The front end with a program whose memory is a vector.

use crate::common::{TASK, bound, keyed, system};
use sealane_abi::if_alg::{ALG_OP_ENCRYPT, ALG_SET_IV, ALG_SET_OP, push_cmsg};
use sealane_abi::netlink::{NETLINK_CRYPTO, NLM_F_ACK, NLM_F_REQUEST, Nlmsghdr};
use sealane_abi::socket::{
    AF_ALG, AF_NETLINK, MMSGHDR_LEN, MSG_DONTWAIT, MSG_TRUNC, MSG_WAITFORONE, Msghdr, SOCK_NONBLOCK, SOCK_RAW,
    SOCK_SEQPACKET, SOL_ALG,
};
use sealane_engine_alg::front::{self, Buffers, Descriptor, Memory, Object};
use sealane_engine_alg::{Caller, Errno, Profile, Received, System, Task};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// A descriptor of a program with 4 KiB of memory.
struct Program {
    object: Object<parking_lot::RawMutex>,
    memory: RefCell<Vec<u8>>,
    nonblock: bool,
    /// The operation that nobody has closed, which a sweep finds.
    left: RefCell<Option<Object<parking_lot::RawMutex>>>,
    changes: Cell<u32>,
}

impl Program {
    fn new(object: Object<parking_lot::RawMutex>) -> Self {
        let memory = RefCell::new(vec![0; 4096]);
        Program { object, memory, nonblock: false, left: RefCell::new(None), changes: Cell::new(0) }
    }

    fn range(&self, at: u64, len: usize) -> Result<core::ops::Range<usize>, Errno> {
        let at = usize::try_from(at).map_err(|_| Errno::EFAULT)?;
        let end = at.checked_add(len).filter(|end| *end <= self.memory.borrow().len()).ok_or(Errno::EFAULT)?;
        Ok(at..end)
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        self.write(at, bytes).unwrap();
    }

    fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        self.memory.borrow()[self.range(at, len).unwrap()].to_vec()
    }

    /// Stores a message header at `at`, with one buffer and control messages.
    fn put_msg(&self, at: u64, iov: u64, buffer: (u64, u64), control: (u64, u64)) {
        self.put(iov, &[buffer.0.to_ne_bytes(), buffer.1.to_ne_bytes()].concat());
        let msg = Msghdr {
            msg_name: 0,
            msg_namelen: 0,
            pad: 0,
            msg_iov: iov,
            msg_iovlen: 1,
            msg_control: control.0,
            msg_controllen: control.1,
            msg_flags: 7,
            pad2: 0,
        };
        self.put(at, msg.as_bytes());
    }

    fn spans(&self, buffers: Buffers) -> Result<Vec<(u64, usize)>, Errno> {
        match buffers {
            Buffers::One { at, len } => Ok(vec![(at, len)]),
            Buffers::Vector { count, too_many, .. } if count > 1024 => Err(too_many),
            Buffers::Vector { at, count, .. } => (0..count)
                .map(|i| {
                    let word = |at| Ok::<_, Errno>(u64::from_ne_bytes(self.read(at)?));
                    Ok((word(at + i * 16)?, word(at + i * 16 + 8)? as usize))
                })
                .collect(),
        }
    }
}

impl Memory for Program {
    type Failure = Errno;
    const MAX_INPUT: usize = 2048;

    fn read<const N: usize>(&self, at: u64) -> Result<[u8; N], Errno> {
        Ok(*self.memory.borrow()[self.range(at, N)?].first_chunk().unwrap())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Errno> {
        let range = self.range(at, bytes.len())?;
        self.memory.borrow_mut()[range].copy_from_slice(bytes);
        Ok(())
    }

    fn input<R>(&self, at: u64, len: usize, then: impl FnOnce(&[u8]) -> R) -> Result<R, Errno> {
        let bytes = self.memory.borrow()[self.range(at, len)?].to_vec();
        Ok(then(&bytes))
    }

    fn gather<R>(&self, from: Buffers, then: impl FnOnce(&[&[u8]], usize) -> Result<R, Errno>) -> Result<R, Errno> {
        let spans = self.spans(from)?;
        let pieces: Result<Vec<Vec<u8>>, Errno> =
            spans.iter().map(|(at, len)| Ok(self.memory.borrow()[self.range(*at, *len)?].to_vec())).collect();
        match pieces {
            Ok(pieces) => then(&pieces.iter().map(|piece| &piece[..]).collect::<Vec<_>>(), 0),
            Err(_) => then(&[], spans.iter().map(|(_, len)| len).sum()),
        }
    }

    fn scatter(
        &self,
        to: Buffers,
        then: impl FnOnce(&mut [&mut [u8]], usize) -> Result<Received, Errno>,
    ) -> Result<Received, Errno> {
        let spans = self.spans(to)?;
        let mut pieces: Vec<Vec<u8>> = spans.iter().map(|(_, len)| vec![0; *len]).collect();
        let got = then(&mut pieces.iter_mut().map(|piece| &mut piece[..]).collect::<Vec<_>>(), 0)?;
        spans.iter().zip(&pieces).try_for_each(|((at, _), piece)| self.write(*at, piece))?;
        Ok(got)
    }
}

impl Descriptor for Program {
    type Lock = parking_lot::RawMutex;

    fn task(&self) -> &dyn Task {
        TASK
    }

    fn object(&self) -> &Object<Self::Lock> {
        &self.object
    }

    fn is_nonblocking(&self) -> bool {
        self.nonblock
    }

    fn caller(&self) -> Caller {
        Caller { privileged: true }
    }

    fn own_port(&self) -> u32 {
        4711
    }

    fn changed(&self) {
        self.changes.set(self.changes.get() + 1);
    }

    fn sweep(&self) -> bool {
        self.left.take().is_some()
    }
}

fn program(sys: &Arc<System>, kind: &str, name: &str, key: &[u8]) -> Program {
    let socket = if key.is_empty() { bound(sys, kind, name).unwrap() } else { keyed(sys, kind, name, key) };
    Program::new(Object::Alg(socket))
}

/// An operation of a program's transform.
fn operation(transform: &Program) -> Program {
    Program::new(front::accept(transform, false, 0).unwrap())
}

#[test]
fn a_message_with_control_and_its_answer() {
    let transform = program(&system(Profile::Linux7_3), "skcipher", "cbc(aes)", &[1; 16]);
    let op = operation(&transform);
    assert!(op.object.is_pollable() && !transform.object.is_pollable());
    let mut control = Vec::new();
    push_cmsg(&mut control, SOL_ALG, ALG_SET_OP, &[&ALG_OP_ENCRYPT.to_ne_bytes()]);
    push_cmsg(&mut control, SOL_ALG, ALG_SET_IV, &[&16u32.to_ne_bytes(), &[2; 16]]);
    op.put(1024, &control);
    op.put(2048, b"sixteen bytes...");
    op.put_msg(0, 256, (2048, 16), (1024, control.len() as u64));
    assert_eq!(front::sendmsg(&op, 0, 0), Ok(16));
    op.put_msg(0, 256, (3072, 32), (1024, 100));
    assert_eq!(front::recvmsg(&op, 0, MSG_DONTWAIT), Ok(16));
    assert_ne!(op.bytes(3072, 16), b"sixteen bytes...");
    let msg = Msghdr::read_from_bytes(&op.bytes(0, 56)).unwrap();
    assert_eq!((msg.msg_controllen, msg.msg_flags, msg.msg_control), (0, 0, 1024), "none came, and the rest stays");
    assert_eq!(op.changes.get(), 2);
    op.put_msg(0, 256, (2048, 16), (1024, 2049));
    assert_eq!(front::sendmsg(&op, 0, 0), Err(Errno::ENOBUFS));
    op.put_msg(0, 256, (9999, 16), (1024, 0));
    assert_eq!(front::sendmsg(&op, 0, 0), Err(Errno::EFAULT));
    assert_eq!(front::sendmsg(&op, 4090, 0), Err(Errno::EFAULT));
}

#[test]
fn nothing_and_positions_do_not_reach_the_socket() {
    let transform = program(&system(Profile::Linux7_3), "hash", "sha256", b"");
    let op = operation(&transform);
    op.put(0, &[0; 32]);
    assert_eq!((front::read(&op, 0, 0), front::readv(&op, 0, 2), front::writev(&op, 0, 2)), (Ok(0), Ok(0), Ok(0)));
    assert_eq!(front::preadv2(&op, 0, 2, 0), Err(Errno::ESPIPE));
    assert_eq!(front::pwritev2(&op, 0, 2, 5), Err(Errno::ESPIPE));
    assert_eq!(front::preadv2(&op, 0, 2, -1), Ok(0));
    assert_eq!((front::readv(&op, 0, 1025), front::writev(&op, 0, 1025)), (Err(Errno::EINVAL), Err(Errno::EINVAL)));
    assert_eq!(op.changes.get(), 0);
    assert_eq!(front::send(&op, 0, 0, 0), Ok(0), "a write of nothing does");
    assert_eq!((front::recv(&op, 512, 32, 0), op.changes.get()), (Ok(32), 2));
    assert_eq!(op.bytes(512, 4), [0xe3, 0xb0, 0xc4, 0x42]);
}

#[test]
fn several_messages() {
    let transform = program(&system(Profile::Linux7_3), "hash", "sha256", b"");
    let op = operation(&transform);
    op.put_msg(0, 512, (1024, 3), (0, 0));
    op.put_msg(MMSGHDR_LEN, 544, (1024, 3), (0, 0));
    op.put_msg(2 * MMSGHDR_LEN, 576, (9999, 3), (0, 0));
    assert_eq!(front::sendmmsg(&op, 0, 3, 0), Ok(2), "the third cannot be read");
    assert_eq!(op.bytes(56, 4), 3u32.to_ne_bytes());
    assert_eq!(front::sendmmsg(&op, 2 * MMSGHDR_LEN, 1, 0), Err(Errno::EFAULT));

    let transform = program(&system(Profile::Linux7_3), "skcipher", "cbc(aes)", &[1; 16]);
    let op = operation(&transform);
    op.put_msg(0, 512, (1024, 16), (0, 0));
    op.put_msg(MMSGHDR_LEN, 544, (1024, 16), (0, 0));
    assert_eq!(front::send(&op, 2048, 16, 0), Ok(16));
    // The second would wait until the test's alarm.
    assert_eq!(front::recvmmsg(&op, 0, 2, MSG_WAITFORONE), Ok(1));
}

#[test]
fn busy_until_swept() {
    let transform = program(&system(Profile::Linux7_3), "hash", "hmac(sha256)", b"key");
    let op = front::accept(&transform, false, 0).unwrap();
    assert_eq!(front::setsockopt(&transform, SOL_ALG, 1, 0, 0), Err(Errno::EBUSY));
    *transform.left.borrow_mut() = Some(op);
    assert_eq!(front::setsockopt(&transform, SOL_ALG, 1, 16, 3), Ok(()));
    assert_eq!(front::accept(&transform, true, 0).err(), Some(Errno::ECONNABORTED));
    assert_eq!(front::accept(&transform, false, 1).err(), Some(Errno::EINVAL));
}

#[test]
fn names_and_kinds() {
    let sys = system(Profile::Linux7_3);
    let make = |domain, type_, protocol| front::socket::<_, Errno>(domain, type_, protocol, || Ok(sys.clone()));
    assert_eq!(make(AF_ALG, SOCK_SEQPACKET | 0x100, 0).err(), Some(Errno::EINVAL));
    let alg = Program::new(make(AF_ALG, SOCK_SEQPACKET | SOCK_NONBLOCK, 0).unwrap());
    alg.put(4, &128u32.to_ne_bytes());
    assert_eq!(front::getsockname(&alg, 64, 4), Err(Errno::EOPNOTSUPP));
    assert_eq!(front::connect(&alg, 64, 12), Err(Errno::EOPNOTSUPP));
    assert_eq!(front::bind(&alg, 64, 129), Err(Errno::EINVAL));

    let netlink = Program::new(make(AF_NETLINK, SOCK_RAW, NETLINK_CRYPTO).unwrap());
    assert_eq!(front::bind(&netlink, 64, 12), Ok(()), "port 0 asks for any");
    netlink.put(4, &8u32.to_ne_bytes());
    assert_eq!(front::getsockname(&netlink, 64, 4), Ok(()));
    assert_eq!(netlink.bytes(4, 4), 12u32.to_ne_bytes(), "the whole length, though only 8 bytes were stored");
    assert_eq!(netlink.bytes(68, 8), [4711u32.to_ne_bytes(), [0; 4]].concat());
    let request = Nlmsghdr {
        nlmsg_len: 16,
        nlmsg_type: 0xfff,
        nlmsg_flags: NLM_F_REQUEST | NLM_F_ACK,
        nlmsg_seq: 1,
        nlmsg_pid: 0,
    };
    netlink.put(512, request.as_bytes());
    assert_eq!(front::send(&netlink, 512, 16, 0), Ok(16));
    netlink.put(4, &12u32.to_ne_bytes());
    let got = front::recvfrom(&netlink, 1024, 20, MSG_DONTWAIT | MSG_TRUNC, 64, 4).unwrap();
    assert_eq!((got, netlink.bytes(64, 8)), (36, [16, 0, 0, 0, 0, 0, 0, 0].to_vec()), "from the kernel, cut");
    assert_eq!(front::ioctl(&netlink, 0x1234), Err(Errno::ENOTTY));
    assert_eq!((front::ioctl(&alg, 0x1234), front::ioctl(&alg, 0x5421)), (Err(Errno::EOPNOTSUPP), Ok(())));
}
