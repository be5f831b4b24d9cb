//! The page that Prometheus reads: `GET /metrics` over HTTP/1.1.
//!
//! The server knows one method and one path, and serves one connection at a time. A crate for HTTP servers would be a
//! hundred times as much code to trust.

use crate::Source;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// The maximum length of the header of a request in bytes.
const MAX_REQUEST: u64 = 8 << 10;

/// The time limit of each read and write.
const PATIENCE: Duration = Duration::from_secs(2);

/// Serves the metrics of `source` on `addr` until the process ends. Returns the address with the port, which may have
/// been 0.
///
/// # Errors
/// If the address cannot be listened on, or no thread can be started.
pub fn serve(addr: SocketAddr, source: Source) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(addr)?;
    let addr = listener.local_addr()?;
    std::thread::Builder::new().name("sealane-metrics".into()).spawn(move || {
        for stream in listener.incoming() {
            match stream {
                // A failure with one client does not concern the others.
                Ok(stream) => drop(answer(&stream, &source)),
                // The process is probably out of descriptors, which takes time to change.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    })?;
    Ok(addr)
}

fn answer(stream: &TcpStream, source: &Source) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = Vec::new();
    let mut limited = stream.take(MAX_REQUEST);
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
    let mut stream = stream;
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
