//! One end of a TCP connection for bench/ao_bulk.py and bench/ao_latency.py: plain, with the kernel's TCP-MD5, or with TCP-AO.
//!
//! `ao-bulk serve ADDRESS:PORT PEER KIND` accepts one connection; `ao-bulk send|ask ADDRESS:PORT KIND SECONDS`
//! connects, and sends as much as it can, or sends requests of 64 bytes and waits for each answer. `ao-bulk accept
//! ADDRESS:PORT PEER KIND` accepts connections until one says that it is the last, and `ao-bulk calls ADDRESS:PORT KIND
//! SECONDS` makes connections, one after another, and resets them. KIND is `plain`, `md5` or the kernel's name of a TCP-AO
//! algorithm.

use sealane_abi::tcp::{SOCKADDR_STORAGE_LEN, SockaddrStorage, TCP_AO_ADD_KEY, TCP_MD5SIG, TcpAoAdd, TcpMd5sig};
use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};
use zerocopy::{FromZeros, IntoBytes};

const KEY: &[u8] = b"a key for a bench";
const ASKED: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["serve", at, peer, kind] => serve(at.parse()?, peer.parse()?, kind),
        ["send", at, kind, seconds] => send(at.parse()?, kind, Duration::from_secs_f64(seconds.parse()?)),
        ["ask", at, kind, seconds] => ask(at.parse()?, kind, Duration::from_secs_f64(seconds.parse()?)),
        ["accept", at, peer, kind] => accept(at.parse()?, peer.parse()?, kind),
        ["calls", at, kind, seconds] => calls(at.parse()?, kind, Duration::from_secs_f64(seconds.parse()?)),
        _ => Err("see the top of bench/src/bin/ao-bulk.rs".into()),
    }
}

/// Opens a socket with a key of this kind for `peer`.
fn socket(peer: IpAddr, kind: &str) -> io::Result<OwnedFd> {
    let family = if peer.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: plain values; the descriptor is new and ours.
    let fd = unsafe {
        let fd = libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    match kind {
        "plain" => {}
        "md5" => {
            let mut option = TcpMd5sig::new_zeroed();
            option.tcpm_addr = storage(SocketAddr::new(peer, 0));
            option.tcpm_keylen = (KEY.len() as u16).into();
            option.tcpm_key[..KEY.len()].copy_from_slice(KEY);
            set(&fd, TCP_MD5SIG, option.as_bytes())?;
        }
        alg => {
            let mut option = TcpAoAdd::new_zeroed();
            option.addr = storage(SocketAddr::new(peer, 0));
            option.alg_name[..alg.len()].copy_from_slice(alg.as_bytes());
            option.prefix = if peer.is_ipv4() { 32 } else { 128 };
            (option.sndid, option.rcvid) = (1, 1);
            option.keylen = KEY.len() as u8;
            option.key[..KEY.len()].copy_from_slice(KEY);
            set(&fd, TCP_AO_ADD_KEY, option.as_bytes())?;
        }
    }
    Ok(fd)
}

fn set(fd: &OwnedFd, option: i32, value: &[u8]) -> io::Result<()> {
    // SAFETY: the kernel reads live bytes.
    let r = unsafe {
        let len = value.len() as libc::socklen_t;
        libc::setsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, option, value.as_ptr().cast(), len)
    };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Encodes an address for the kernel.
fn storage(address: SocketAddr) -> SockaddrStorage {
    let mut bytes = [0; SOCKADDR_STORAGE_LEN];
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    let family = match address.ip() {
        IpAddr::V4(v4) => {
            bytes[4..8].copy_from_slice(&v4.octets());
            libc::AF_INET
        }
        IpAddr::V6(v6) => {
            bytes[8..24].copy_from_slice(&v6.octets());
            libc::AF_INET6
        }
    };
    bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    SockaddrStorage(bytes)
}

/// Returns the length of the address of a family.
fn len(address: SocketAddr) -> libc::socklen_t {
    if address.is_ipv4() { 16 } else { 28 }
}

fn connect(at: SocketAddr, kind: &str) -> io::Result<TcpStream> {
    let fd = socket(at.ip(), kind)?;
    let address = storage(at);
    // SAFETY: an address of at least this length.
    let r = unsafe { libc::connect(fd.as_raw_fd(), address.0.as_ptr().cast(), len(at)) };
    if r < 0 {
        return Err(io::Error::last_os_error());
    }
    let stream = TcpStream::from(fd);
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn listen(at: SocketAddr, peer: IpAddr, kind: &str, backlog: i32) -> io::Result<TcpListener> {
    let fd = socket(peer, kind)?;
    let address = storage(at);
    // SAFETY: an address of at least this length; plain values.
    let r = unsafe {
        match libc::bind(fd.as_raw_fd(), address.0.as_ptr().cast(), len(at)) {
            0 => libc::listen(fd.as_raw_fd(), backlog),
            refused => refused,
        }
    };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(TcpListener::from(fd)) }
}

fn serve(at: SocketAddr, peer: IpAddr, kind: &str) -> Result<(), Box<dyn Error>> {
    let (mut stream, _) = listen(at, peer, kind, 1)?.accept()?;
    stream.set_nodelay(true)?;
    let mut first = [0];
    stream.read_exact(&mut first)?;
    let mut buf = vec![0; 1 << 18];
    loop {
        let n = stream.read(&mut buf)?;
        if n == 0 {
            return Ok(());
        }
        if first == *b"a" {
            stream.write_all(&buf[..n])?;
        }
    }
}

/// Prints bytes and seconds.
fn send(at: SocketAddr, kind: &str, time: Duration) -> Result<(), Box<dyn Error>> {
    let mut stream = connect(at, kind)?;
    stream.write_all(b"s")?;
    let (buf, start, mut sent) = (vec![0x5a; 1 << 18], Instant::now(), 0);
    while start.elapsed() < time {
        sent += stream.write(&buf)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    stream.shutdown(std::net::Shutdown::Write)?;
    stream.read_exact(&mut [0]).expect_err("the other end closes when it has everything");
    println!("{sent} {seconds}");
    Ok(())
}

/// Prints the number of answers, and the median and 99th percentile of their times in microseconds.
fn ask(at: SocketAddr, kind: &str, time: Duration) -> Result<(), Box<dyn Error>> {
    let mut stream = connect(at, kind)?;
    stream.write_all(b"a")?;
    let (mut buf, start, mut times) = ([0; ASKED], Instant::now(), Vec::with_capacity(1 << 20));
    while start.elapsed() < time {
        let asked = Instant::now();
        stream.write_all(&buf)?;
        stream.read_exact(&mut buf)?;
        times.push(asked.elapsed());
    }
    times.sort_unstable();
    let at = |percent: usize| times[times.len() * percent / 100].as_secs_f64() * 1e6;
    println!("{} {:.2} {:.2}", times.len(), at(50), at(99));
    Ok(())
}

/// Accepts connections until one sends something. The others are reset by their client.
fn accept(at: SocketAddr, peer: IpAddr, kind: &str) -> Result<(), Box<dyn Error>> {
    let listener = listen(at, peer, kind, 256)?;
    loop {
        let (mut stream, _) = listener.accept()?;
        if stream.read(&mut [0]).is_ok_and(|n| n > 0) {
            return Ok(());
        }
    }
}

/// The pause between connections, so that what one of them leaves behind does not meet the next.
const PACE: Duration = Duration::from_millis(1);

/// Prints a line for each call: its name, the number of calls, and the median and 99th percentile of their times in
/// microseconds. `connect` has the handshake in it, `call` is a connect() that does not wait for it, `reset` is a close() that
/// resets the connection of `connect`.
fn calls(at: SocketAddr, kind: &str, time: Duration) -> Result<(), Box<dyn Error>> {
    let (address, start) = (storage(at), Instant::now());
    let names = ["key", "connect", "reset", "call"];
    let mut times: [Vec<Duration>; 4] = Default::default();
    while start.elapsed() < time {
        for waits in [true, false] {
            let before = Instant::now();
            let fd = socket(at.ip(), kind)?;
            times[0].push(before.elapsed());
            let linger = libc::linger { l_onoff: 1, l_linger: 0 };
            // SAFETY: the kernel reads live bytes, and an address of at least this length; plain values.
            let (r, called) = unsafe {
                let value = (&raw const linger).cast();
                let len_of = size_of::<libc::linger>() as libc::socklen_t;
                libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, value, len_of);
                let flags = if waits { 0 } else { libc::O_NONBLOCK };
                libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags);
                let before = Instant::now();
                let r = libc::connect(fd.as_raw_fd(), address.0.as_ptr().cast(), len(at));
                (r, before.elapsed())
            };
            let error = io::Error::last_os_error();
            if r < 0 && (waits || error.raw_os_error() != Some(libc::EINPROGRESS)) {
                return Err(error.into());
            }
            times[if waits { 1 } else { 3 }].push(called);
            let before = Instant::now();
            drop(fd);
            if waits {
                times[2].push(before.elapsed());
            }
            std::thread::sleep(PACE);
        }
    }
    connect(at, kind)?.write_all(b"q")?;
    for (name, mut times) in names.into_iter().zip(times) {
        times.sort_unstable();
        let at = |percent: usize| times[times.len() * percent / 100].as_secs_f64() * 1e6;
        println!("{name} {} {:.2} {:.2}", times.len(), at(50), at(99));
    }
    Ok(())
}
