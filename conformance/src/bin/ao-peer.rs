//! A client or server that protects its connections with TCP-AO, by the kernel's socket options alone.
//!
//! It runs inside a real kernel with TCP-AO and under `sealane run`. Each end checks every byte that it receives, and
//! prints the result as a line of JSON. Exit status: 0 as expected, 1 not as expected, 2 could not try.
//!
//! ```text
//! ao-peer serve   ADDR:PORT --peer PREFIX --keys FILE [--count N] [--slow] [--late] [--device NAME] [--vrf NAME]
//! ao-peer connect ADDR:PORT --peer PREFIX --keys FILE [--bytes N | --until-told | --ping N] [--rotate MS]
//!                 [--local ADDR[:PORT]] [--abort] [--leave] [--seconds N] [--device NAME] [--vrf NAME]
//! ```
//! The socket is bound to `--device`, and keys with flag 1 to `--vrf`.
//! With `--until-told` it sends until its standard input ends.
//! A `--slow` server takes 640 KB a second, and a `--late` one closes a second after its client; a client with `--leave`
//! ends as soon as it has written. Nothing may take longer than `--seconds` (60). A line of the key file: `ALG SENDID
//! RECVID MACLEN FLAGS SECRET` (flags: 2 leaves TCP options out of the MAC, 1 binds the key to a VRF), or `md5 SECRET`.

mod sys {
    #![allow(unsafe_code, reason = "sockets before they are connected")]
    use std::io;
    use std::net::{IpAddr, SocketAddr, TcpStream};
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    /// Returns a `sockaddr_storage` and its used length.
    pub(crate) fn encode(addr: SocketAddr) -> ([u8; 128], u32) {
        let mut out = [0u8; 128];
        out[2..4].copy_from_slice(&addr.port().to_be_bytes());
        match addr.ip() {
            IpAddr::V4(ip) => {
                out[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
                out[4..8].copy_from_slice(&ip.octets());
                (out, 16)
            }
            IpAddr::V6(ip) => {
                out[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
                out[8..24].copy_from_slice(&ip.octets());
                (out, 28)
            }
        }
    }

    /// The index of a device.
    pub(crate) fn index(device: &str) -> io::Result<i32> {
        let name = std::ffi::CString::new(device).map_err(io::Error::other)?;
        // SAFETY: a string.
        match unsafe { libc::if_nametoindex(name.as_ptr()) } {
            0 => Err(io::Error::last_os_error()),
            index => Ok(index.cast_signed()),
        }
    }

    pub(crate) struct Socket(OwnedFd);

    fn check(r: i32) -> io::Result<i32> {
        if r < 0 { Err(io::Error::last_os_error()) } else { Ok(r) }
    }

    impl Socket {
        pub(crate) fn new(like: SocketAddr) -> io::Result<Self> {
            let family = if like.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
            // SAFETY: plain values; the descriptor is new and ours.
            unsafe {
                let fd = check(libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, libc::IPPROTO_TCP))?;
                Ok(Socket(OwnedFd::from_raw_fd(fd)))
            }
        }

        pub(crate) fn set(&self, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
            set(self.0.as_raw_fd(), level, name, value)
        }

        pub(crate) fn bind(&self, addr: SocketAddr) -> io::Result<()> {
            let (bytes, len) = encode(addr);
            // SAFETY: an address of that length.
            check(unsafe { libc::bind(self.0.as_raw_fd(), bytes.as_ptr().cast(), len) }).map(drop)
        }

        pub(crate) fn listen(&self) -> io::Result<()> {
            // SAFETY: plain values.
            check(unsafe { libc::listen(self.0.as_raw_fd(), 1024) }).map(drop)
        }

        pub(crate) fn connect(&self, addr: SocketAddr) -> io::Result<()> {
            let (bytes, len) = encode(addr);
            // SAFETY: an address of that length.
            check(unsafe { libc::connect(self.0.as_raw_fd(), bytes.as_ptr().cast(), len) }).map(drop)
        }

        pub(crate) fn accept(&self) -> io::Result<TcpStream> {
            // SAFETY: no address is wanted; the descriptor is new and ours.
            unsafe {
                let none = core::ptr::null_mut();
                let fd = check(libc::accept4(self.0.as_raw_fd(), none, core::ptr::null_mut(), libc::SOCK_CLOEXEC))?;
                Ok(TcpStream::from_raw_fd(fd))
            }
        }

        pub(crate) fn into_stream(self) -> TcpStream {
            TcpStream::from(self.0)
        }
    }

    pub(crate) fn set(fd: i32, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
        // SAFETY: bytes of that length.
        check(unsafe { libc::setsockopt(fd, level, name, value.as_ptr().cast(), value.len() as u32) }).map(drop)
    }

    pub(crate) fn get(fd: i32, level: i32, name: i32, value: &mut [u8]) -> io::Result<usize> {
        let mut len = value.len() as u32;
        // SAFETY: room of that length.
        check(unsafe { libc::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &raw mut len) })?;
        Ok(len as usize)
    }
}

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const TCP: i32 = libc::IPPROTO_TCP;
const MD5SIG_EXT: i32 = 32;
const ADD_KEY: i32 = 38;
const INFO: i32 = 40;

/// A line of the key file.
struct Key {
    alg: String,
    send: u8,
    recv: u8,
    mac_len: u8,
    flags: u8,
    secret: String,
}

struct Args {
    serve: bool,
    addr: SocketAddr,
    local: Option<SocketAddr>,
    device: Option<String>,
    vrf: Option<String>,
    peer: (IpAddr, u8),
    keys: Vec<Key>,
    count: usize,
    bytes: u64,
    until_told: bool,
    ping: usize,
    rotate_ms: u64,
    abort: bool,
    slow: bool,
    late: bool,
    leave: bool,
    seconds: u64,
}

fn parse() -> Result<Args, String> {
    let mut list = std::env::args().skip(1);
    let mut next = |what: &str| list.next().ok_or(format!("{what} is missing"));
    let serve = match next("serve or connect")?.as_str() {
        "serve" => true,
        "connect" => false,
        other => return Err(format!("{other}: neither serve nor connect")),
    };
    let addr = next("the address")?.parse().map_err(|e| format!("the address: {e}"))?;
    let mut args = Args {
        serve,
        addr,
        local: None,
        device: None,
        vrf: None,
        peer: (addr.ip(), if addr.is_ipv4() { 32 } else { 128 }),
        keys: Vec::new(),
        count: 1,
        bytes: 0,
        until_told: false,
        ping: 0,
        rotate_ms: 0,
        abort: false,
        slow: false,
        late: false,
        leave: false,
        seconds: 60,
    };
    while let Some(flag) = list.next() {
        let mut value = || list.next().ok_or(format!("{flag}: a value is missing"));
        let number = |v: String| v.parse::<u64>().map_err(|e| format!("{flag} {v}: {e}"));
        match flag.as_str() {
            "--peer" => {
                let v = value()?;
                let (ip, len) = v.split_once('/').ok_or(format!("--peer {v}: no prefix length"))?;
                let ip = ip.parse().map_err(|e| format!("--peer {v}: {e}"))?;
                args.peer = (ip, len.parse().map_err(|e| format!("--peer {v}: {e}"))?);
            }
            "--keys" => {
                let path = value()?;
                let text = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
                args.keys = text.lines().filter(|l| !l.is_empty()).map(key).collect::<Result<_, _>>()?;
            }
            "--local" => {
                let v = value()?;
                let any_port = |ip: IpAddr| SocketAddr::new(ip, 0);
                args.local = Some(v.parse().or_else(|_| v.parse().map(any_port)).map_err(|e| format!("--local: {e}"))?);
            }
            "--device" => args.device = Some(value()?),
            "--vrf" => args.vrf = Some(value()?),
            "--count" => args.count = number(value()?)? as usize,
            "--bytes" => args.bytes = number(value()?)?,
            "--until-told" => (args.bytes, args.until_told) = (u64::MAX, true),
            "--ping" => args.ping = number(value()?)? as usize,
            "--rotate" => args.rotate_ms = number(value()?)?,
            "--seconds" => args.seconds = number(value()?)?,
            "--abort" => args.abort = true,
            "--slow" => args.slow = true,
            "--late" => args.late = true,
            "--leave" => args.leave = true,
            _ => return Err(format!("{flag}: unknown")),
        }
    }
    Ok(args)
}

fn key(line: &str) -> Result<Key, String> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let number = |s: &str| s.parse::<u8>().map_err(|e| format!("{line}: {e}"));
    match fields[..] {
        ["md5", secret] => Ok(Key { alg: "md5".into(), send: 0, recv: 0, mac_len: 0, flags: 0, secret: secret.into() }),
        [alg, send, recv, mac_len, flags, secret] => Ok(Key {
            alg: alg.into(),
            send: number(send)?,
            recv: number(recv)?,
            mac_len: number(mac_len)?,
            flags: number(flags)?,
            secret: secret.into(),
        }),
        _ => Err(format!("{line}: six fields are wanted")),
    }
}

fn install(socket: &sys::Socket, args: &Args) -> io::Result<()> {
    if let Some(device) = &args.device {
        socket.set(libc::SOL_SOCKET, libc::SO_BINDTODEVICE, device.as_bytes())?;
    }
    let vrf = args.vrf.as_deref().map_or(Ok(0), sys::index)?;
    let (addr, _) = sys::encode(SocketAddr::new(args.peer.0, 0));
    for key in &args.keys {
        let secret = key.secret.as_bytes();
        if key.alg == "md5" {
            // tcp_md5sig: address 0, flags 128, prefix length 129, key length 130, ifindex 132, key 136.
            let mut v = [0u8; 216];
            v[..128].copy_from_slice(&addr);
            v[128] = 1;
            v[129] = args.peer.1;
            v[130..132].copy_from_slice(&(secret.len() as u16).to_ne_bytes());
            v[136..136 + secret.len()].copy_from_slice(secret);
            socket.set(TCP, MD5SIG_EXT, &v)?;
            continue;
        }
        // tcp_ao_add: address 0, algorithm 128, ifindex 192, flags 196, prefix 202 and the bytes after it, key 208.
        let mut v = [0u8; 288];
        v[..128].copy_from_slice(&addr);
        v[128..128 + key.alg.len()].copy_from_slice(key.alg.as_bytes());
        if key.flags & 1 != 0 {
            v[192..196].copy_from_slice(&vrf.to_ne_bytes());
        }
        v[202..208].copy_from_slice(&[args.peer.1, key.send, key.recv, key.mac_len, key.flags, secret.len() as u8]);
        v[208..208 + secret.len()].copy_from_slice(secret);
        socket.set(TCP, ADD_KEY, &v)?;
    }
    Ok(())
}

/// Fills in the stream that both ends know, from `from` on: eight bytes at a time depend on their offset.
fn fill(buf: &mut [u8], from: u64) {
    let word = |at: u64| {
        let mixed = (at >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 29).to_le_bytes()
    };
    let skip = (from & 7) as usize;
    let head = buf.len().min((8 - skip) & 7);
    let (first, rest) = buf.split_at_mut(head);
    first.copy_from_slice(&word(from)[skip..skip + head]);
    let mut at = from + head as u64;
    for chunk in rest.chunks_mut(8) {
        chunk.copy_from_slice(&word(at)[..chunk.len()]);
        at += 8;
    }
}

/// Returns `pkt_good`, `pkt_bad` and the rest of TCP_AO_INFO, with the ids of the current and the next key.
fn info(fd: i32) -> String {
    let mut v = [0u8; 48];
    if sys::get(fd, TCP, INFO, &mut v).is_err() {
        return "null".into();
    }
    let word = |at: usize| u64::from_ne_bytes(*v[at..].first_chunk().expect("inside the structure"));
    format!(
        r#"{{"current":{},"rnext":{},"good":{},"bad":{},"not_found":{},"required":{},"dropped_icmp":{}}}"#,
        v[6],
        v[7],
        word(8),
        word(16),
        word(24),
        word(32),
        word(40)
    )
}

/// Asks the peer to send with another of our keys.
fn rotate(fd: i32, rnext: u8) -> io::Result<()> {
    let mut v = [0u8; 48];
    v[0] = 2;
    v[7] = rnext;
    sys::set(fd, TCP, INFO, &v)
}

/// Serves a connection: after 'P' each 64 bytes are echoed; otherwise a stream is read, and its length sent back.
fn serve(mut stream: TcpStream, slow: bool, late: bool) -> io::Result<(u64, bool)> {
    let mut buf = vec![0u8; 1 << 18];
    let mut want = vec![0u8; 1 << 18];
    let mut first = [0u8; 1];
    stream.read_exact(&mut first)?;
    if first[0] == b'P' {
        stream.set_nodelay(true)?;
        let mut pings = 0;
        loop {
            match stream.read_exact(&mut buf[..64]) {
                Ok(()) => stream.write_all(&buf[..64])?,
                Err(_) => return Ok((pings, true)),
            }
            pings += 1;
        }
    }
    let (mut at, mut same) = (0u64, true);
    loop {
        let n = if slow {
            std::thread::sleep(Duration::from_millis(100));
            stream.read(&mut buf[..1 << 16])?
        } else {
            stream.read(&mut buf)?
        };
        if n == 0 {
            break;
        }
        fill(&mut want[..n], at);
        same &= buf[..n] == want[..n];
        at += n as u64;
    }
    stream.write_all(&(if same { at } else { u64::MAX }).to_be_bytes())?;
    // The peer closes first.
    let _ = stream.read(&mut buf[..1]);
    if late {
        std::thread::sleep(Duration::from_secs(1));
    }
    Ok((at, same))
}

/// Sends a stream; returns whether the other end has got all of it, its length, and the number of rotations.
fn send(stream: &mut TcpStream, args: &Args) -> io::Result<(bool, u64, u64)> {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let fd = stream.as_raw_fd();
    let (done, rotations, sent) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    if args.until_told {
        std::thread::spawn(|| {
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            TOLD.store(true, Ordering::Relaxed);
        });
    }
    let same = std::thread::scope(|scope| -> io::Result<bool> {
        if args.rotate_ms > 0 {
            scope.spawn(|| {
                for key in args.keys.iter().cycle() {
                    std::thread::sleep(Duration::from_millis(args.rotate_ms));
                    if done.load(Ordering::Relaxed) || rotate(fd, key.recv).is_err() {
                        return;
                    }
                    rotations.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut go = || -> io::Result<bool> {
            stream.write_all(b"S")?;
            let mut buf = vec![0u8; 1 << 18];
            let mut at = 0;
            while at < args.bytes && !TOLD.load(Ordering::Relaxed) {
                let n = buf.len().min((args.bytes - at) as usize);
                fill(&mut buf[..n], at);
                stream.write_all(&buf[..n])?;
                at += n as u64;
            }
            sent.store(at, Ordering::Relaxed);
            if args.leave {
                return Ok(true);
            }
            stream.shutdown(Shutdown::Write)?;
            let mut answer = [0u8; 8];
            stream.read_exact(&mut answer)?;
            Ok(u64::from_be_bytes(answer) == at)
        };
        let same = go();
        done.store(true, Ordering::Relaxed);
        same
    })?;
    Ok((same, sent.into_inner(), rotations.into_inner()))
}

/// Measures `n` round trips; returns microseconds, sorted.
fn ping(stream: &mut TcpStream, n: usize) -> io::Result<Vec<f64>> {
    stream.set_nodelay(true)?;
    stream.write_all(b"P")?;
    let mut buf = [7u8; 64];
    let mut times = Vec::with_capacity(n);
    for _ in 0..n {
        let start = Instant::now();
        stream.write_all(&buf)?;
        stream.read_exact(&mut buf)?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Connects; returns the stream and the time it took.
fn connect(args: &Args) -> io::Result<(TcpStream, Duration)> {
    let socket = sys::Socket::new(args.addr)?;
    let limit = |seconds: u64| {
        let timeout = [seconds.to_ne_bytes(), 0u64.to_ne_bytes()].concat();
        socket.set(libc::SOL_SOCKET, libc::SO_SNDTIMEO, &timeout)?;
        socket.set(libc::SOL_SOCKET, libc::SO_RCVTIMEO, &timeout)
    };
    limit(args.seconds)?;
    if args.leave {
        // All data fits into the buffer.
        socket.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &(1i32 << 24).to_ne_bytes())?;
    }
    install(&socket, args)?;
    if let Some(local) = args.local {
        socket.set(libc::SOL_SOCKET, libc::SO_REUSEADDR, &1i32.to_ne_bytes())?;
        socket.bind(local)?;
    }
    let start = Instant::now();
    socket.connect(args.addr)?;
    Ok((socket.into_stream(), start.elapsed()))
}

fn client(args: &Args) -> io::Result<bool> {
    let (mut stream, connected) = connect(args)?;
    let start = Instant::now();
    let (ok, what) = if args.ping > 0 {
        let times = ping(&mut stream, args.ping)?;
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        (true, format!(r#""pings":{},"p50_us":{:.1},"p99_us":{:.1}"#, times.len(), at(0.5), at(0.99)))
    } else {
        let (same, bytes, rotations) = send(&mut stream, args)?;
        let seconds = start.elapsed().as_secs_f64();
        (same, format!(r#""bytes":{bytes},"seconds":{seconds:.4},"rotations":{rotations}"#))
    };
    println!(
        r#"{{"ok":{ok},"connect_ms":{:.2},{what},"ao":{}}}"#,
        connected.as_secs_f64() * 1e3,
        info(stream.as_raw_fd())
    );
    if args.abort {
        let linger = [1i32.to_ne_bytes(), 0i32.to_ne_bytes()].concat();
        sys::set(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &linger)?;
    }
    Ok(ok)
}

fn server(args: &Args) -> io::Result<bool> {
    let socket = sys::Socket::new(args.addr)?;
    socket.set(libc::SOL_SOCKET, libc::SO_REUSEADDR, &1i32.to_ne_bytes())?;
    if args.slow {
        socket.set(libc::SOL_SOCKET, libc::SO_RCVBUF, &(1i32 << 16).to_ne_bytes())?;
    }
    install(&socket, args)?;
    socket.bind(args.addr)?;
    socket.listen()?;
    eprintln!("listening on {}", args.addr);
    let ok = AtomicBool::new(true);
    std::thread::scope(|scope| -> io::Result<()> {
        for _ in 0..args.count {
            let stream = socket.accept()?;
            scope.spawn(|| {
                let copy = stream.try_clone();
                let served = serve(stream, args.slow, args.late);
                let ao = copy.map_or("null".into(), |c| info(c.as_raw_fd()));
                match &served {
                    Ok((n, same)) => println!(r#"{{"ok":{same},"bytes":{n},"ao":{ao}}}"#),
                    Err(e) => println!(r#"{{"ok":false,"error":"{e}","ao":{ao}}}"#),
                }
                ok.fetch_and(matches!(served, Ok((_, true))), Ordering::Relaxed);
            });
        }
        Ok(())
    })?;
    Ok(ok.into_inner())
}

fn main() -> ExitCode {
    let args = match parse() {
        Ok(args) => args,
        Err(e) => {
            eprintln!("ao-peer: {e}");
            return ExitCode::from(2);
        }
    };
    let done = if args.serve { server(&args) } else { client(&args) };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(e) => {
            println!(r#"{{"ok":false,"error":"{e}"}}"#);
            ExitCode::from(1)
        }
    }
}
