//! Loaders and blobs: bytes with ranges (RFC 9110 §14) and validators (§13).

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use tokio::io::AsyncReadExt;
use tokio_stream::Stream;
use tokio_util::io::ReaderStream;
use tokio_util::sync::CancellationToken;

use super::admission::{Busy, Limits, Place, RETRY_AFTER, SMALL};
use super::conditions::{Conditions, Verdict};
use super::request::Part;
use super::{Ends, Hangup, Problem, Web, open};
use crate::blobs::{self, Blob, BlobError, OriginError};
use crate::hash;

/// The number of bytes read at once.
const CHUNK: usize = 256 << 10;

/// The answer to a request for a file.
#[derive(Debug)]
pub struct Answer {
    /// The status: 200, 206, 304, 412 or 416.
    pub status: StatusCode,
    /// The headers, with the length.
    pub headers: HeaderMap,
    /// The body, if there is one.
    pub piece: Option<Piece>,
}

/// A piece of a file, and the resources that are held while it is sent.
#[derive(Debug)]
pub struct Piece {
    /// The open file.
    pub file: File,
    /// The offset of the first byte.
    pub first: u64,
    /// The number of bytes.
    pub count: u64,
    /// Keeps a blob in the cache.
    pub pin: Option<blobs::Pin>,
    /// The place of a large body.
    pub place: Option<Place>,
}

/// `GET, HEAD /loaders/NAME`
pub async fn loader(
    State(web): State<Arc<Web>>,
    Path(name): Path<String>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let absent = || Problem::new(StatusCode::NOT_FOUND, "not_found", "this rack has no such loader");
    let path = web.loaders.path(&name).ok_or_else(absent)?;
    let (file, length) = open(path).await.map_err(|_| absent())?;
    // The file may just have been replaced by one of the same length, so the hash is computed from the open file.
    let hashed = tokio::task::spawn_blocking(move || hash::of_file(&file).map(|sha256| (file, sha256)));
    let hashed = hashed.await.map_err(io::Error::other).flatten();
    let (file, sha256) = hashed.map_err(|error| Problem::disk(&error))?;
    let answer = answer(file, length, &sha256, &method, &Conditions::of(&headers));
    response(answer, None).map_err(|error| Problem::disk(&error))
}

/// `GET, HEAD /blobs/{sha256}`, for requests that [`direct`](super::direct) leaves to hyper, such as those over TLS.
pub async fn blob(
    State(web): State<Arc<Web>>,
    Extension(ends): Extension<Ends>,
    Extension(hangup): Extension<Hangup>,
    Path(sha256): Path<String>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let answer = blob_answer(&web, &sha256, &method, &Conditions::of(&headers), ends.peer.ip()).await?;
    response(answer, Some((web.admission.limits(), hangup.0))).map_err(|error| Problem::disk(&error))
}

/// The answer to a request for a blob, once the blob is here and the client has a place. Firmware cannot wait long: its
/// images, and small bodies, need no place.
pub async fn blob_answer(
    web: &Web,
    sha256: &str,
    method: &Method,
    conditions: &Conditions,
    client: IpAddr,
) -> Result<Answer, Problem> {
    let for_firmware = || web.boot.borrow().as_ref().is_some_and(|table| table.is_for_firmware(sha256));
    // Firmware asks once and then waits. Agents tolerate only a short silence, and ask again when they are told to.
    let found = web.blobs.get(sha256);
    let found = match for_firmware() {
        true => found.await,
        false => tokio::time::timeout(web.admission.limits().fetch, found)
            .await
            .unwrap_or_else(|_| Err(BlobError::Slow(sha256.to_owned()))),
    };
    let Blob { file, length, pin } = found.map_err(|error| {
        let (status, code) = match &error {
            BlobError::Name(_) | BlobError::Origin(_, OriginError::NotFound) => {
                (StatusCode::NOT_FOUND, "not_found")
            }
            BlobError::Corrupt(..) => (StatusCode::BAD_GATEWAY, "corrupt"),
            BlobError::TooLarge(..) | BlobError::DiskFull(_) => {
                (StatusCode::INSUFFICIENT_STORAGE, "no_space")
            }
            _ => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        };
        let problem = Problem::new(status, code, error.to_string());
        match error {
            BlobError::Slow(_) | BlobError::Full(_) => problem.retry_after(RETRY_AFTER),
            _ => problem,
        }
    })?;
    let mut answer = answer(file, length, sha256, method, conditions);
    if let Some(piece) = &mut answer.piece {
        piece.pin = Some(pin);
        if piece.count > SMALL && !for_firmware() {
            piece.place = Some(web.admission.place(client).await.map_err(|Busy| {
                let detail = "this rack sends as many images as it may; ask again in a moment";
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail).retry_after(RETRY_AFTER)
            })?);
        }
    }
    Ok(answer)
}

/// The answer for a file. Its hash is its validator.
fn answer(file: File, length: u64, sha256: &str, method: &Method, conditions: &Conditions) -> Answer {
    let etag = format!("\"{sha256}\"");
    let (status, first, count) = match conditions.judge(method, &etag, length) {
        Verdict::Send(Part::Whole) => (StatusCode::OK, 0, length),
        Verdict::Send(Part::Range(first, count)) => (StatusCode::PARTIAL_CONTENT, first, count),
        Verdict::Send(Part::Unsatisfiable) => (StatusCode::RANGE_NOT_SATISFIABLE, 0, 0),
        Verdict::NotModified => (StatusCode::NOT_MODIFIED, 0, 0),
        Verdict::Failed => (StatusCode::PRECONDITION_FAILED, 0, 0),
    };
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.extend(HeaderValue::from_str(&etag).ok().map(|etag| (header::ETAG, etag)));
    // A length there would be that of the file, which is not sent (RFC 9110 §8.6).
    if status != StatusCode::NOT_MODIFIED {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(count));
    }
    let content_range = match status {
        StatusCode::PARTIAL_CONTENT => Some(format!("bytes {first}-{}/{length}", first + count - 1)),
        StatusCode::RANGE_NOT_SATISFIABLE => Some(format!("bytes */{length}")),
        _ => None,
    };
    if let Some(value) = content_range.and_then(|value| HeaderValue::from_str(&value).ok()) {
        headers.insert(header::CONTENT_RANGE, value);
    }
    let has_body = count > 0 && method != Method::HEAD;
    let piece = has_body.then_some(Piece { file, first, count, pin: None, place: None });
    Answer { status, headers, piece }
}

/// The answer for hyper. A client that accepts too little of a large body is disconnected.
fn response(answer: Answer, pace: Option<(Limits, CancellationToken)>) -> io::Result<Response> {
    let Answer { status, headers, piece } = answer;
    let body = match piece {
        None => Body::empty(),
        Some(Piece { mut file, first, count, pin, place }) => {
            file.seek(SeekFrom::Start(first))?;
            let taken = Arc::new(AtomicU64::new(0));
            let watched = pace.filter(|_| place.is_some()).map(|(limits, hangup)| {
                let sent = CancellationToken::new();
                tokio::spawn(watch(Arc::clone(&taken), limits, hangup, sent.clone()));
                sent.drop_guard()
            });
            let bytes = ReaderStream::with_capacity(tokio::fs::File::from_std(file).take(count), CHUNK);
            Body::from_stream(Sent { bytes, taken, _held: (pin, place, watched) })
        }
    };
    Ok((status, headers, body).into_response())
}

/// Disconnects a client that accepts too little.
async fn watch(taken: Arc<AtomicU64>, limits: Limits, hangup: CancellationToken, sent: CancellationToken) {
    let mut before = 0;
    while tokio::time::timeout(limits.window, sent.cancelled()).await.is_err() {
        let now = taken.load(Ordering::Relaxed);
        if now - before < limits.least {
            return hangup.cancel();
        }
        before = now;
    }
}

/// A body, a count of the bytes sent, and the resources that are held until it ends.
struct Sent<S, H> {
    bytes: S,
    taken: Arc<AtomicU64>,
    _held: H,
}

impl<S: Stream<Item = io::Result<Bytes>> + Unpin, H: Unpin> Stream for Sent<S, H> {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let chunk = std::task::ready!(Pin::new(&mut self.bytes).poll_next(context));
        if let Some(Ok(bytes)) = &chunk {
            self.taken.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        Poll::Ready(chunk)
    }
}
