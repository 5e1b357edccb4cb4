//! Loaders and blobs: bytes with ranges (RFC 9110 §14).

use std::io::SeekFrom;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio_util::io::ReaderStream;

use super::{Problem, Web, open};
use crate::blobs::{BlobError, OriginError};

/// Bytes read at once.
const CHUNK: usize = 256 << 10;

/// What of a file is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    /// First byte and length.
    Range(u64, u64),
    Unsatisfiable,
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
    send(file, length, None, &method, &headers).await
}

/// `GET, HEAD /blobs/{sha256}`
pub async fn blob(
    State(web): State<Arc<Web>>,
    Path(sha256): Path<String>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (file, length) = web.blobs.get(&sha256).await.map_err(|error| {
        let (status, code) = match &error {
            BlobError::Name(_) | BlobError::Origin(_, OriginError::NotFound) => {
                (StatusCode::NOT_FOUND, "not_found")
            }
            BlobError::Corrupt(..) => (StatusCode::BAD_GATEWAY, "corrupt"),
            _ => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        };
        Problem::new(status, code, error.to_string())
    })?;
    send(file, length, Some(&sha256), &method, &headers).await
}

async fn send(
    mut file: File,
    length: u64,
    etag: Option<&str>,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let range = headers.get(header::RANGE).and_then(|range| range.to_str().ok());
    let (status, first, count) = match part(range, length) {
        Part::Whole => (StatusCode::OK, 0, length),
        Part::Range(first, count) => (StatusCode::PARTIAL_CONTENT, first, count),
        Part::Unsatisfiable => {
            let value = format!("bytes */{length}");
            return Ok((StatusCode::RANGE_NOT_SATISFIABLE, [(header::CONTENT_RANGE, value)]).into_response());
        }
    };
    let body = if method == Method::HEAD {
        Body::empty()
    } else {
        if first > 0 {
            file.seek(SeekFrom::Start(first)).await.map_err(|error| Problem::disk(&error))?;
        }
        Body::from_stream(ReaderStream::with_capacity(file.take(count), CHUNK))
    };
    let mut response = (status, body).into_response();
    let answered = response.headers_mut();
    answered.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    answered.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    answered.insert(header::CONTENT_LENGTH, HeaderValue::from(count));
    if let Some(etag) = etag.and_then(|etag| HeaderValue::from_str(&format!("\"{etag}\"")).ok()) {
        answered.insert(header::ETAG, etag);
    }
    if status == StatusCode::PARTIAL_CONTENT
        && let Ok(value) = HeaderValue::from_str(&format!("bytes {first}-{}/{length}", first + count - 1))
    {
        answered.insert(header::CONTENT_RANGE, value);
    }
    Ok(response)
}

/// Reads a Range header. Several ranges, and units that are not bytes, are answered with the whole, as RFC 9110 allows.
fn part(range: Option<&str>, length: u64) -> Part {
    let Some(range) = range.and_then(|range| range.trim().strip_prefix("bytes=")) else { return Part::Whole };
    let Some((from, to)) = range.split_once('-').filter(|(_, to)| !to.contains(',')) else {
        return Part::Whole;
    };
    match (from.trim().parse::<u64>(), to.trim().parse::<u64>()) {
        (Ok(from), _) if from >= length => Part::Unsatisfiable,
        (Ok(from), Ok(to)) if to >= from => Part::Range(from, to.min(length - 1) - from + 1),
        (Ok(from), Err(_)) if to.trim().is_empty() => Part::Range(from, length - from),
        (Err(_), Ok(0)) if from.trim().is_empty() => Part::Unsatisfiable,
        (Err(_), Ok(last)) if from.trim().is_empty() && length > 0 => {
            Part::Range(length - last.min(length), last.min(length))
        }
        _ => Part::Whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_as_the_rfc_has_them() {
        let cases = [
            (None, Part::Whole),
            (Some("bytes=0-0"), Part::Range(0, 1)),
            (Some("bytes=0-99"), Part::Range(0, 10)),
            (Some("bytes=4-6"), Part::Range(4, 3)),
            (Some("bytes=4-"), Part::Range(4, 6)),
            (Some("bytes=-3"), Part::Range(7, 3)),
            (Some("bytes=-99"), Part::Range(0, 10)),
            (Some("bytes=10-"), Part::Unsatisfiable),
            (Some("bytes=-0"), Part::Unsatisfiable),
            (Some("bytes=6-4"), Part::Whole),
            (Some("bytes=0-1,3-4"), Part::Whole),
            (Some("lines=0-1"), Part::Whole),
            (Some("bytes=x-"), Part::Whole),
            (Some("bytes=99999999999999999999-"), Part::Whole),
        ];
        for (header, expected) in cases {
            assert_eq!(part(header, 10), expected, "{header:?}");
        }
        assert_eq!(part(Some("bytes=0-"), 0), Part::Unsatisfiable);
        assert_eq!(part(Some("bytes=-5"), 0), Part::Whole);
    }
}
