//! The page that Prometheus reads: `GET /metrics` over HTTP/1.1.
//!
//! The server knows one method and one path, and serves one connection at a time. A crate for HTTP servers would be a
//! hundred times as much code to trust.

use crate::Source;
use sealane_sys::life::{self, Kind};
use sealane_sys::transient;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// The maximum length of the header of a request in bytes.
const MAX_REQUEST: u64 = 8 << 10;

/// The time limit of a request and its answer together.
const PATIENCE: Duration = Duration::from_secs(4);

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
/// been 0.
///
/// # Errors
/// If the address cannot be listened on, or no thread can be started.
pub fn serve(addr: SocketAddr, source: Source) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(addr)?;
    let addr = listener.local_addr()?;
    std::thread::Builder::new().name("sealane-metrics".into()).spawn(move || {
        let _alive = life::begin("sealane-metrics", Kind::Control);
        loop {
            let wait = life::wait();
            let stream = listener.accept();
            drop(wait);
            match stream {
                // A failure with one client does not concern the others.
                Ok((stream, _)) => drop(answer(&stream, &source, PATIENCE)),
                // The process is probably out of descriptors, which takes time to change.
                Err(e) => {
                    transient::count(&e);
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    })?;
    Ok(addr)
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
    use std::sync::Arc;

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
}
