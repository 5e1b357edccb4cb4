//! A minimal HTTP/1.1 client: one request a connection, blocking, bounded in size and time (RFC 9112).
//!
//! The agent API uses TLS with the pinned key. Blobs may be fetched without TLS from the same port: they contain no secrets, and their hash
//! is known from a trusted source.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use thiserror::Error;

use crate::deadlines;

/// Longest status line or header line.
const MAX_LINE: u64 = 16 * 1024;
/// Most header lines.
const MAX_HEADERS: usize = 128;
/// Answers of the class 1xx before the one that counts (RFC 9110 §15.2).
const MAX_INTERIM: usize = 8;
/// Longest body that is read as a whole.
const MAX_BODY: u64 = 16 * 1024 * 1024;

/// The reason why a request has no answer.
#[derive(Debug, Error)]
pub enum HttpError {
    /// The URL is invalid.
    #[error("{0} is not an address of the form https://HOST:PORT")]
    Address(String),
    /// No connection could be made.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// Host and port of the server.
        address: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The connection broke.
    #[error("{method} {path}: {source}")]
    Io {
        /// Method of the request.
        method: &'static str,
        /// Path of the request.
        path: String,
        /// The error of the connection.
        source: io::Error,
    },
    /// The answer is not HTTP.
    #[error("{method} {path}: the answer is not HTTP: {what}")]
    Malformed {
        /// Method of the request.
        method: &'static str,
        /// Path of the request.
        path: String,
        /// The error in the answer.
        what: &'static str,
    },
    /// The server answered with an error status.
    #[error("{method} {path}: the rack answered {status}: {body}")]
    Status {
        /// Method of the request.
        method: &'static str,
        /// Path of the request.
        path: String,
        /// HTTP status code.
        status: u16,
        /// Start of the body.
        body: String,
        /// Time after which the server wants the request again.
        retry_after: Option<Duration>,
    },
}

impl HttpError {
    /// True if the same request may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Address(_) => false,
            Self::Connect { .. } | Self::Io { .. } | Self::Malformed { .. } => true,
            Self::Status { status, .. } => *status >= 500 || matches!(status, 408 | 425 | 429),
        }
    }

    /// Time after which the server wants the request again. The server works, but serves other clients first.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// An HTTP request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// `GET`, `POST`
    pub method: &'static str,
    /// Path and query.
    pub path: &'a str,
    /// Key for the header `Authorization: Bearer`.
    pub bearer: Option<&'a str>,
    /// Offset of the first wanted byte.
    pub from: u64,
    /// Headers of a protocol on top of HTTP: name, value.
    pub headers: &'a [(&'a str, &'a str)],
    /// Content type and body.
    pub body: Option<(&'a str, &'a [u8])>,
}

impl<'a> Request<'a> {
    /// A GET request without a body.
    #[must_use]
    pub fn get(path: &'a str) -> Self {
        Self::new("GET", path)
    }

    /// A request without a body.
    #[must_use]
    pub fn new(method: &'static str, path: &'a str) -> Self {
        Self { method, path, bearer: None, from: 0, headers: &[], body: None }
    }

    /// A POST request with a body.
    #[must_use]
    pub fn post(path: &'a str, content_type: &'a str, body: &'a [u8]) -> Self {
        Self { body: Some((content_type, body)), ..Self::new("POST", path) }
    }

    /// Adds a bearer key.
    #[must_use]
    pub fn bearer(self, key: &'a str) -> Self {
        Self { bearer: Some(key), ..self }
    }

    fn broken(&self, source: io::Error) -> HttpError {
        HttpError::Io { method: self.method, path: self.path.to_owned(), source }
    }

    fn malformed(&self, what: &'static str) -> HttpError {
        HttpError::Malformed { method: self.method, path: self.path.to_owned(), what }
    }
}

/// One server: a rack, or the machine's own BMC.
#[derive(Clone, Debug)]
pub struct Client {
    host: String,
    port: u16,
    /// The address to connect to. `None`: resolve the host name.
    at: Option<SocketAddr>,
    /// The server name in the TLS handshake.
    name: String,
    tls: Arc<ClientConfig>,
    end: Option<Instant>,
}

/// The protection of a connection to the rack's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// TLS with the pinned key.
    Tls,
    /// Plain HTTP, for bytes that are checked by hash.
    Clear,
}

impl Client {
    /// A client for `https://HOST[:PORT]`. The default port is 443.
    ///
    /// # Errors
    /// [`HttpError::Address`].
    pub fn new(url: &str, tls: Arc<ClientConfig>) -> Result<Self, HttpError> {
        let bad = || HttpError::Address(url.to_owned());
        let authority = url.strip_prefix("https://").ok_or_else(bad)?;
        let authority = authority.split('/').next().unwrap_or_default();
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| bad())?),
            _ => (authority, 443),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(bad());
        }
        Ok(Self { host: host.to_owned(), port, at: None, name: host.to_owned(), tls, end: None })
    }

    /// A client for the server at this address. `name` is sent in the TLS handshake if it is a host name.
    #[must_use]
    pub fn to(at: SocketAddr, name: &str, tls: Arc<ClientConfig>) -> Self {
        let host = at.ip().to_string();
        let is_name = ServerName::try_from(name).is_ok_and(|it| matches!(it, ServerName::DnsName(_)));
        let name = if is_name { name.to_owned() } else { host.clone() };
        Self { host, port: at.port(), at: Some(at), name, tls, end: None }
    }

    /// Ends all requests at this time, also those that are answered byte by byte.
    pub fn until(&mut self, end: Instant) {
        self.end = Some(end);
    }

    /// Sends a request and reads the head of its answer. A status of 400 and more is an error.
    ///
    /// # Errors
    /// No connection, no answer in time, an answer that is not HTTP, or an error status.
    pub fn send(&self, security: Security, request: Request<'_>) -> Result<Response, HttpError> {
        let response = self.exchange(security, request)?;
        if response.status < 400 {
            return Ok(response);
        }
        let (status, retry_after) = (response.status, response.retry_after);
        let mut body = Vec::new();
        // The status is the important part. A body that breaks off is kept as far as it arrived.
        let _ = response.take(1024).read_to_end(&mut body);
        Err(HttpError::Status {
            method: request.method,
            path: request.path.to_owned(),
            status,
            body: String::from_utf8_lossy(&body).trim().to_owned(),
            retry_after,
        })
    }

    /// Sends a request over TLS and reads the head of its answer. No status is an error.
    ///
    /// # Errors
    /// No connection, no answer in time, or an answer that is not HTTP.
    pub fn ask(&self, request: Request<'_>) -> Result<Response, HttpError> {
        self.exchange(Security::Tls, request)
    }

    fn exchange(&self, security: Security, request: Request<'_>) -> Result<Response, HttpError> {
        let stream = Ending { stream: self.connect()?, end: self.end };
        let mut stream: Box<dyn Stream> = match security {
            Security::Clear => Box::new(stream),
            Security::Tls => {
                let name = ServerName::try_from(self.name.clone())
                    .map_err(|_| HttpError::Address(format!("https://{}", self.authority())))?;
                let connection = ClientConnection::new(self.tls.clone(), name)
                    .map_err(|error| request.broken(io::Error::other(error)))?;
                Box::new(StreamOwned::new(connection, stream))
            }
        };
        let mut head = format!(
            "{} {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: basalt-agent/{}\r\nConnection: close\r\n",
            request.method,
            request.path,
            self.authority(),
            env!("CARGO_PKG_VERSION"),
        );
        if let Some(key) = request.bearer {
            head.push_str(&format!("Authorization: Bearer {key}\r\n"));
        }
        if request.from > 0 {
            head.push_str(&format!("Range: bytes={}-\r\n", request.from));
        }
        for (name, value) in request.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some((content_type, body)) = request.body {
            head.push_str(&format!("Content-Type: {content_type}\r\nContent-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(request.body.map_or(&[], |(_, body)| body));
        stream.write_all(&bytes).and_then(|()| stream.flush()).map_err(|error| request.broken(error))?;
        read_head(BufReader::with_capacity(256 * 1024, stream), request)
    }

    /// Host and port, in the form of a URL.
    fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    fn connect(&self) -> Result<TcpStream, HttpError> {
        let failed = |source| HttpError::Connect { address: self.authority(), source };
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        let resolved = || (self.host.as_str(), self.port).to_socket_addrs().map(Iterator::collect);
        let addresses: Vec<SocketAddr> = self.at.map_or_else(resolved, |at| Ok(vec![at])).map_err(failed)?;
        for address in addresses {
            match TcpStream::connect_timeout(&address, deadlines::CONNECT) {
                Ok(stream) => {
                    // Requests are written at once; nothing is gained by waiting for more.
                    stream.set_nodelay(true).map_err(failed)?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }
}

/// A connection that ends at a time.
struct Ending {
    stream: TcpStream,
    end: Option<Instant>,
}

impl Ending {
    /// How long the next read or write may take.
    fn patience(&self) -> io::Result<Option<Duration>> {
        let Some(end) = self.end else { return Ok(Some(deadlines::SILENCE)) };
        let left = end.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(io::Error::new(io::ErrorKind::TimedOut, "the time for all requests is over")),
            false => Ok(Some(left.min(deadlines::SILENCE))),
        }
    }
}

impl Read for Ending {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.patience()?)?;
        self.stream.read(buffer)
    }
}

impl Write for Ending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.patience()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// An answer whose body was not read yet.
pub struct Response {
    /// Status code. [`Client::send`] has it below 400.
    pub status: u16,
    /// The header Location (RFC 9110 §10.2.2).
    pub location: Option<String>,
    /// The tag of the resource's version (RFC 9110 §8.8.3).
    pub etag: Option<String>,
    retry_after: Option<Duration>,
    /// First byte of a partial answer (206), 0 of a whole one.
    pub from: u64,
    body: Body,
}

impl std::fmt::Debug for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status)
            .field("from", &self.from)
            .finish_non_exhaustive()
    }
}

impl Response {
    /// The whole body, up to 16 MiB.
    ///
    /// # Errors
    /// The connection broke, or the body is longer.
    pub fn bytes(mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        (&mut self.body).take(MAX_BODY + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_BODY {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the body is longer than 16 MiB"));
        }
        Ok(bytes)
    }
}

impl Read for Response {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.body.read(buffer)
    }
}

struct Body {
    stream: BufReader<Box<dyn Stream>>,
    framing: Framing,
}

/// The end of a body (RFC 9112 §6.3), with the number of bytes left.
enum Framing {
    Length(u64),
    /// Bytes left of this chunk. At 0, the line end after the chunk was read.
    Chunk(u64),
    Close,
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let left = match &mut self.framing {
            Framing::Close => return self.stream.read(buffer),
            Framing::Length(0) => return Ok(0),
            Framing::Chunk(0) => {
                let size = line(&mut self.stream)?;
                let size = size.split(';').next().unwrap_or_default().trim();
                let size = u64::from_str_radix(size, 16)
                    .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a chunk has no size"))?;
                if size == 0 {
                    self.framing = Framing::Length(0);
                    return Ok(0);
                }
                self.framing = Framing::Chunk(size);
                size
            }
            Framing::Length(left) | Framing::Chunk(left) => *left,
        };
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.stream.read(buffer.get_mut(..most).unwrap_or_default())?;
        if read == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the answer ended early"));
        }
        let left = left - read as u64;
        match &mut self.framing {
            Framing::Length(length) => *length = left,
            Framing::Chunk(chunk) => {
                *chunk = left;
                if left == 0 {
                    line(&mut self.stream)?;
                }
            }
            Framing::Close => {}
        }
        Ok(read)
    }
}

/// One line without its end; bytes that are not UTF-8 are replaced.
fn line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut bytes = Vec::new();
    stream.take(MAX_LINE).read_until(b'\n', &mut bytes)?;
    if !bytes.ends_with(b"\n") {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a line has no end"));
    }
    Ok(String::from_utf8_lossy(&bytes).trim_end_matches(['\r', '\n']).to_owned())
}

fn read_head(mut stream: BufReader<Box<dyn Stream>>, request: Request<'_>) -> Result<Response, HttpError> {
    for _ in 0..MAX_INTERIM {
        let status = line(&mut stream).map_err(|error| request.broken(error))?;
        let status = status
            .strip_prefix("HTTP/1.")
            .and_then(|rest| rest.split(' ').nth(1)?.parse::<u16>().ok())
            .ok_or_else(|| request.malformed("no status line"))?;
        let mut framing = if matches!(status, 204 | 304) { Framing::Length(0) } else { Framing::Close };
        let (mut from, mut retry_after, mut location, mut etag) = (0, None, None, None);
        for count in 0.. {
            let header = line(&mut stream).map_err(|error| request.broken(error))?;
            if header.is_empty() {
                break;
            }
            if count == MAX_HEADERS {
                return Err(request.malformed("too many headers"));
            }
            let (name, value) =
                header.split_once(':').ok_or_else(|| request.malformed("a header has no colon"))?;
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "transfer-encoding" if value.eq_ignore_ascii_case("chunked") => framing = Framing::Chunk(0),
                "content-length" if matches!(framing, Framing::Close) => {
                    framing = Framing::Length(
                        value.parse().map_err(|_| request.malformed("a length is no number"))?,
                    );
                }
                "content-range" => {
                    from = value
                        .strip_prefix("bytes ")
                        .and_then(|range| range.split('-').next()?.parse().ok())
                        .ok_or_else(|| request.malformed("a range is not in bytes"))?;
                }
                "location" => location = Some(value.to_owned()),
                "etag" => etag = Some(value.to_owned()),
                // The other form, a date, is for longer outages and is ignored.
                "retry-after" => retry_after = value.parse().ok().map(Duration::from_secs),
                _ => {}
            }
        }
        if status < 200 {
            continue;
        }
        let body = Body { stream, framing };
        return Ok(Response { status, location, etag, retry_after, from, body });
    }
    Err(request.malformed("interim answers without an end"))
}
