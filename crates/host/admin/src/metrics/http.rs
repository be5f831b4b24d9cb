//! The page that Prometheus reads: `GET /metrics` over HTTP/1.1.
//!
//! The server knows one method and one path, and serves a bounded number of connections at once. A crate for HTTP
//! servers would be a hundred times as much code to trust.

use crate::Source;
use parking_lot::{Condvar, Mutex};
use sealane_sys::life::{self, Kind};
use sealane_sys::transient;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// The maximum length of the header of a request in bytes.
const MAX_REQUEST: u64 = 8 << 10;

/// The time limit of a request and its answer together.
const PATIENCE: Duration = Duration::from_secs(4);

/// The name of the thread that accepts clients, and of those that answer them.
const THREAD: &str = "sealane-metrics";

/// The maximum number of clients that are served at once.
const CLIENTS: usize = 16;

/// The clients that are being served, the oldest first.
///
/// Silent clients cost an attacker nothing. When all places are taken, the oldest client loses its own, which is that of
/// a silent one sooner than that of one that asks at once and reads the answer.
#[derive(Default)]
struct Clients {
    served: Mutex<VecDeque<Arc<TcpStream>>>,
    /// Somebody has left.
    left: Condvar,
}

impl Clients {
    /// Gives the client a place. Waits until the one that loses its place has left, so that there are never more threads
    /// than places.
    fn enter(self: &Arc<Self>, stream: TcpStream) -> Place {
        let stream = Arc::new(stream);
        let mut served = self.served.lock();
        while served.len() >= CLIENTS {
            if let Some(oldest) = served.front() {
                // One that is gone already has failed by itself.
                let _ = oldest.shutdown(Shutdown::Both);
            }
            self.left.wait(&mut served);
        }
        served.push_back(stream.clone());
        Place { clients: self.clone(), stream }
    }
}

/// The place of one client among those that are served.
struct Place {
    clients: Arc<Clients>,
    stream: Arc<TcpStream>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.clients.served.lock().retain(|other| !Arc::ptr_eq(other, &self.stream));
        self.clients.left.notify_one();
    }
}

/// A connection that fails with `TimedOut` after a moment, however often it has moved a byte until then.
struct Timed<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl Timed<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(bytes)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Serves the metrics of `source` on `addr` until the process ends. Returns the address with the port, which may have
/// been 0; `None` if the address cannot be listened on yet, which is told and tried again: at boot an address may come later
/// than its daemon, and what is protected does not wait for it.
///
/// # Errors
/// If no thread can be started.
pub fn serve(addr: SocketAddr, source: Source) -> io::Result<Option<SocketAddr>> {
    let server = Server::new(source, PATIENCE);
    match listen(addr) {
        Ok((listener, addr)) => start(move || server.run(&listener)).map(|()| Some(addr)),
        Err(e) => {
            warn!(error = %e, "metrics on {addr}: {e}; trying again");
            start(move || server.run(&listen_later(addr))).map(|()| None)
        }
    }
}

fn listen(addr: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(addr)?;
    let addr = listener.local_addr()?;
    Ok((listener, addr))
}

/// The pause after the first attempt to listen; it grows to [`LONGEST`].
const PAUSE: Duration = Duration::from_millis(500);
/// The longest pause between two attempts.
const LONGEST: Duration = Duration::from_secs(10);

/// Listens as soon as the kernel lets us.
fn listen_later(addr: SocketAddr) -> TcpListener {
    let mut pause = PAUSE;
    loop {
        let wait = life::wait();
        std::thread::sleep(pause);
        drop(wait);
        pause = (2 * pause).min(LONGEST);
        if let Ok((listener, addr)) = listen(addr) {
            info!("metrics on http://{addr}/metrics");
            return listener;
        }
    }
}

/// Starts a thread of ours.
fn start(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let work = move || {
        let _alive = life::begin(THREAD, Kind::Control);
        work();
    };
    std::thread::Builder::new().name(THREAD.into()).spawn(work).map(drop)
}

struct Server {
    source: Source,
    patience: Duration,
    clients: Arc<Clients>,
}

impl Server {
    fn new(source: Source, patience: Duration) -> Self {
        // A page is gathered for one client at a time: that takes the threads of packets' time.
        let turn = Mutex::new(());
        let source: Source = Arc::new(move || {
            let _turn = turn.lock();
            source()
        });
        Server { source, patience, clients: Arc::default() }
    }

    fn run(&self, listener: &TcpListener) {
        loop {
            let wait = life::wait();
            let stream = listener.accept();
            drop(wait);
            let served = stream.and_then(|(stream, _)| {
                let (place, source, patience) = (self.clients.enter(stream), self.source.clone(), self.patience);
                // A failure with one client does not concern the others.
                start(move || drop(answer(&place.stream, &source, patience)))
            });
            if let Err(e) = served {
                // The process is probably out of descriptors or threads, which takes time to change.
                transient::count(&e);
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

fn answer(stream: &TcpStream, source: &Source, patience: Duration) -> io::Result<()> {
    let mut stream = Timed { stream, until: Instant::now() + patience };
    let mut request = Vec::new();
    let mut limited = Read::by_ref(&mut stream).take(MAX_REQUEST);
    let mut chunk = [0; 1024];
    while !ends_header(&request) {
        match limited.read(&mut chunk)? {
            0 => break,
            n => request.extend_from_slice(&chunk[..n]),
        }
    }
    let (status, body) = respond(&request, source);
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    if !request.starts_with(b"HEAD ") {
        stream.write_all(body.as_bytes())?;
    }
    stream.flush()
}

fn ends_header(request: &[u8]) -> bool {
    request.windows(4).any(|w| w == b"\r\n\r\n") || request.windows(2).any(|w| w == b"\n\n")
}

fn respond(request: &[u8], source: &Source) -> (&'static str, String) {
    if !ends_header(request) {
        return ("400 Bad Request", "the header of the request is incomplete or too long\n".to_owned());
    }
    let line = request.split(|&b| b == b'\r' || b == b'\n').next().unwrap_or_default();
    let mut words = line.split(|&b| b == b' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split(|&b| b == b'?').next().unwrap_or_default();
    match (method, path) {
        (b"GET" | b"HEAD", b"/metrics") => ("200 OK", super::render(&source())),
        (b"GET" | b"HEAD", _) => ("404 Not Found", "metrics are at /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "only GET\n".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ends of a connection.
    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    /// A client that sends byte by byte, or reads nothing, does not keep others waiting for longer than the limit.
    #[test]
    fn a_slow_client_is_given_up() {
        let (mut client, server) = pair();
        let sender = std::thread::spawn(move || {
            // Ends when the server closes the connection.
            while client.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let source: Source = Arc::new(|| unreachable!("nobody has asked"));
        let given_up = answer(&server, &source, Duration::from_millis(100)).unwrap_err();
        assert!(matches!(given_up.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock), "{given_up}");
        drop(server);
        sender.join().unwrap();
        let (client, server) = pair();
        let mut timed = Timed { stream: &server, until: Instant::now() + Duration::from_millis(100) };
        let given_up = loop {
            if let Err(e) = timed.write(&[0; 1 << 16]) {
                break e;
            }
        };
        assert!(matches!(given_up.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock), "{given_up}");
        drop(client);
    }

    /// An address that somebody else has is served as soon as it is free.
    #[test]
    fn an_address_may_come_later() {
        // Nobody else uses this address.
        let other = TcpListener::bind("127.77.0.1:0").unwrap();
        let addr = other.local_addr().unwrap();
        assert_eq!(serve(addr, Arc::new(crate::socket::tests::example)).unwrap(), None);
        drop(other);
        let until = Instant::now() + Duration::from_secs(60);
        let mut client = loop {
            match TcpStream::connect(addr) {
                Ok(client) => break client,
                Err(e) => assert!(Instant::now() < until, "{e}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut told = String::new();
        client.read_to_string(&mut told).unwrap();
        assert!(told.starts_with("HTTP/1.1 200 OK\r\n"), "{told}");
    }

    /// However many clients say nothing, or one byte now and then, one that asks is answered, and no more are served than
    /// there are places. Nobody is given up for lack of time here.
    #[test]
    fn slow_clients_do_not_keep_others_waiting() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let source: Source = Arc::new(crate::socket::tests::example);
        let server = Server::new(source, Duration::from_secs(3600));
        start(move || server.run(&listener)).unwrap();
        let mut slow = Vec::new();
        for n in 0..3 * CLIENTS {
            let mut client = TcpStream::connect(addr).unwrap();
            if n % 2 == 0 {
                client.write_all(b"G").unwrap();
            }
            slow.push(client);
        }
        let mut client = TcpStream::connect(addr).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut told = String::new();
        client.read_to_string(&mut told).unwrap();
        assert!(told.starts_with("HTTP/1.1 200 OK\r\n"), "{told}");
        // The oldest ones have lost their places, the youngest have theirs.
        for client in &slow {
            client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        }
        for client in &mut slow[..2 * CLIENTS] {
            // A client that has sent something that was not read is told by a reset.
            let end = client.read(&mut [0; 1]).map_err(|e| e.kind());
            assert!(matches!(end, Ok(0) | Err(io::ErrorKind::ConnectionReset)), "{end:?}");
        }
        for client in &mut slow[2 * CLIENTS + 1..] {
            client.set_nonblocking(true).unwrap();
            assert_eq!(client.read(&mut [0; 1]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
    }
}
