//! `GET /blobs/{sha256}` in the clear, sent by the kernel: sendfile(2) moves the bytes from the page cache to the socket
//! without this program touching them.
//!
//! A blob request in its plainest form is answered here once its whole head is in the socket. Then the next request of
//! the connection is looked at. Any other request stays in the socket unread; hyper handles it and the rest of the
//! connection.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::response::IntoResponse;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::admission::Limits;
use super::files::{self, Answer, Piece};
use super::request::{self, Asked, Head};
use super::trace::Fetch;
use super::{Ends, HEAD_TIMEOUT, Problem, SILENCE, Web};

/// The longest head of a request that is answered here, in bytes.
const HEAD: usize = 4096;
/// The most bytes per sendfile call.
const CHUNK: u64 = 1 << 20;
/// The number of bytes after which the thread is released.
const TURN: u64 = 8 << 20;
/// The longest time on a thread for a client whose socket is full again and again: other clients wait for a thread.
const KEPT: Duration = Duration::from_millis(100);
/// How long the thread waits for room in a full socket.
const SOON: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Answers blob requests until another request comes, and returns the stream for that one. `None`: the connection has
/// ended.
///
/// # Errors
/// `io::Error`: the connection broke, or the client was too slow.
pub async fn blobs(
    stream: TcpStream,
    web: &Arc<Web>,
    ends: Ends,
    stop: &CancellationToken,
) -> io::Result<Option<TcpStream>> {
    let stream = Arc::new(stream);
    let mut head = vec![0; HEAD];
    loop {
        let seen = tokio::select! {
            () = stop.cancelled() => return Ok(None),
            seen = timeout(HEAD_TIMEOUT, look(&stream, &mut head)) => seen??,
        };
        let asked = match seen {
            Some(Head::Plain(asked)) => asked,
            Some(Head::Unfinished | Head::Other) => return Ok(Arc::into_inner(stream)),
            None => return Ok(None),
        };
        take(&stream, head.get_mut(..asked.length).unwrap_or_default()).await?;
        let fetch = Fetch::of(&ends, &asked.method, &asked.sha256);
        let answer = files::blob_answer(web, &asked.sha256, &asked.method, &asked.conditions, ends.peer.ip());
        let answer = tokio::select! {
            answer = answer => answer,
            () = gone(&stream) => return Ok(None),
        };
        let status = match &answer {
            Ok(answer) => answer.status,
            Err(problem) => problem.status,
        };
        web.facts.meters().answered("/blobs/{sha256}", status);
        match answer {
            Ok(Answer { status, headers, piece }) => {
                write(&stream, &head_of(status, &headers, asked.close)).await?;
                let bytes = piece.as_ref().map_or(0, |piece| piece.count);
                let sent = match piece {
                    Some(piece) => send(&stream, piece, web.admission.limits()).await,
                    None => Ok(()),
                };
                fetch.ended(web, status, bytes, &sent);
                sent?;
            }
            Err(problem) => {
                fetch.refused(web, &problem);
                refuse(&stream, problem, &asked).await?;
            }
        }
        if asked.close {
            return Ok(None);
        }
    }
}

/// Peeks at a request until its kind is known or the buffer is full. `None`: the connection has ended.
async fn look(stream: &TcpStream, buffer: &mut [u8]) -> io::Result<Option<Head>> {
    let mut seen = 0;
    loop {
        let ready = stream.ready(Interest::READABLE).await?;
        // A peek that saw no new byte must report `WouldBlock`, so that tokio waits for the next one.
        let peeked = stream.try_io(Interest::READABLE, || {
            match rustix::net::recv(stream, &mut *buffer, rustix::net::RecvFlags::PEEK)?.0 {
                0 => Ok(0),
                count if count > seen => Ok(count),
                _ => Err(io::ErrorKind::WouldBlock.into()),
            }
        });
        seen = match peeked {
            Ok(0) => return Ok(None),
            Ok(count) => count,
            // The client sends no more, and the socket would stay ready for ever.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && ready.is_read_closed() => {
                return Ok(Some(Head::Unfinished));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        match request::read(buffer.get(..seen).unwrap_or_default()) {
            Head::Unfinished if seen < buffer.len() => {}
            known => return Ok(Some(known)),
        }
    }
}

/// A status line and headers.
fn head_of(status: StatusCode, headers: &HeaderMap, close: bool) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status}\r\n").into_bytes();
    for (name, value) in headers {
        head.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    let date = httpdate::fmt_http_date(SystemTime::now());
    let connection = if close { "connection: close\r\n" } else { "" };
    head.extend(format!("date: {date}\r\n{connection}\r\n").into_bytes());
    head
}

async fn refuse(stream: &TcpStream, problem: Problem, asked: &Asked) -> io::Result<()> {
    let (mut parts, body) = problem.into_response().into_parts();
    let body = axum::body::to_bytes(body, HEAD).await.map_err(io::Error::other)?;
    parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    let mut bytes = head_of(parts.status, &parts.headers, asked.close);
    if asked.method != Method::HEAD {
        bytes.extend_from_slice(&body);
    }
    write(stream, &bytes).await
}

/// Reads bytes that are already in the socket.
async fn take(stream: &TcpStream, mut bytes: &mut [u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.readable().await?;
        match stream.try_read(bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => bytes = bytes.get_mut(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn write(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        timeout(SILENCE, stream.writable()).await??;
        match stream.try_write(bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Ends when the client has closed the connection.
async fn gone(stream: &TcpStream) {
    if matches!(stream.peek(&mut [0]).await, Ok(1..)) {
        // Its next request is already in the socket.
        std::future::pending::<()>().await;
    }
}

/// Sends a piece of a file, as long as the client accepts the least number of bytes per window.
async fn send(stream: &Arc<TcpStream>, piece: Piece, limits: Limits) -> io::Result<()> {
    let Piece { file, first, count, pin: _pin, place: _place } = piece;
    let (file, end) = (Arc::new(file), first + count);
    let mut offset = first;
    let (mut until, mut before) = (Instant::now() + limits.window, offset);
    while offset < end {
        let writable = timeout_at(until, stream.writable()).await;
        if Instant::now() >= until {
            if offset - before < limits.least {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes too little"));
            }
            (until, before) = (Instant::now() + limits.window, offset);
        }
        let Ok(writable) = writable else { continue };
        writable?;
        // Reading the file may block on the disk.
        let (stream, file) = (Arc::clone(stream), Arc::clone(&file));
        let pushed = tokio::task::spawn_blocking(move || push(&stream, &file, offset, end)).await;
        offset = pushed.map_err(io::Error::other)??;
    }
    Ok(())
}

/// Writes as much as the socket accepts, and more as long as the client makes room at once. Returns the offset that was
/// reached.
fn push(stream: &TcpStream, file: &File, first: u64, end: u64) -> io::Result<u64> {
    let (mut offset, until) = (first, Instant::now() + KEPT);
    let some = |offset: &mut u64| {
        let most = usize::try_from((end - *offset).min(CHUNK)).unwrap_or(usize::MAX);
        Ok(rustix::fs::sendfile(stream, file, Some(offset), most)?)
    };
    // The first write goes through tokio, which so learns that the socket is full. Later ones poll the kernel: a
    // wake-up by tokio involves three threads.
    let mut sent = stream.try_io(Interest::WRITABLE, || some(&mut offset));
    let mut waited = false;
    loop {
        match sent {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter")),
            Ok(_) if offset == end || offset - first >= TURN => return Ok(offset),
            Ok(_) => waited = false,
            // The socket is full: wait a moment for room. If there was room and the write would still block, the kernel is
            // short of memory (`waited`): do not retry at once.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if waited || Instant::now() >= until || !has_room_soon(stream)? {
                    return Ok(offset);
                }
                waited = true;
            }
            Err(error) => return Err(error),
        }
        sent = some(&mut offset);
    }
}

fn has_room_soon(stream: &TcpStream) -> io::Result<bool> {
    let mut asked = [PollFd::new(stream, PollFlags::OUT)];
    match rustix::event::poll(&mut asked, Some(&SOON)) {
        Err(rustix::io::Errno::INTR) => Ok(false),
        ready => Ok(ready? > 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn a_request_is_looked_at_until_it_is_whole_or_its_client_has_ended() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connect = async || {
            let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            (client, listener.accept().await.unwrap().0)
        };
        let (mut client, server) = connect().await;
        let mut buffer = vec![0; HEAD];
        client.write_all(b"GET /blobs/ab HTTP/1.1\r\n").await.unwrap();
        let rest = async {
            tokio::task::yield_now().await;
            client.write_all(b"Host: r\r\n\r\n").await.unwrap();
        };
        let (seen, ()) = tokio::join!(look(&server, &mut buffer), rest);
        assert!(matches!(seen.unwrap(), Some(Head::Plain(_))), "in two parts");

        let (mut client, server) = connect().await;
        client.write_all(b"GET /blobs/a").await.unwrap();
        client.shutdown().await.unwrap();
        let ended = timeout(Duration::from_secs(10), look(&server, &mut buffer)).await;
        assert_eq!(ended.expect("it is not waited for for ever").unwrap(), Some(Head::Unfinished));

        let (client, server) = connect().await;
        drop(client);
        assert_eq!(look(&server, &mut buffer).await.unwrap(), None);
    }
}
