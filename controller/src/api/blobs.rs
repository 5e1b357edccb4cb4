//! Uploads and downloads of blobs.
//!
//! A client may upload a blob in parts, in order: `Content-Range: bytes 0-99/1000`. `HEAD` of an incomplete upload returns 202 with the
//! offset of the next part in [`RECEIVED_HEADER`]; 404 means that there is no part yet. An upload whose bytes do not have the declared hash
//! is deleted.

use super::App;
use super::caller::Caller;
use super::problem::{Answer, Refusal};
use super::query::NoParameters;
use crate::blobs::{BlobError, Part};
use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use basalt_api::values::Sha256;
use basalt_api::wire::{BlobState, RECEIVED_HEADER};
use basalt_api::{FieldCode, ProblemCode};
use futures_util::{StreamExt, TryStreamExt};
use tokio_util::io::{ReaderStream, StreamReader};

impl From<BlobError> for Refusal {
    fn from(error: BlobError) -> Self {
        let detail = error.to_string();
        match error {
            BlobError::Offset { .. } | BlobError::Busy { .. } => Self::new(ProblemCode::Conflict, detail),
            BlobError::OtherHash { .. } | BlobError::Incomplete { .. } => {
                Self::field("", FieldCode::Rule, detail, "send exactly the bytes that the path's hash is of")
            }
            BlobError::TooLarge { .. } => Self::field(
                "",
                FieldCode::Range,
                detail,
                "a smaller image; or the setting blob-bytes of the region, like 100GiB",
            ),
            BlobError::Full { .. } => {
                tracing::error!(%error, "a blob is refused");
                Self::unavailable("the region's disk has no room for images: free some, or delete Images")
            }
            BlobError::Store(error) => error.into(),
            BlobError::File { .. } => {
                tracing::error!(%error, source = ?std::error::Error::source(&error), "a blob cannot be stored");
                Self::unavailable("the region cannot write the blob; its log has more")
            }
        }
    }
}

fn hash(text: &str) -> Answer<[u8; 32]> {
    let bad = || {
        let message = format!("{text:?} is not a SHA-256");
        Refusal::field("", FieldCode::Format, message, "64 lower-case hexadecimal digits")
    };
    text.parse::<Sha256>().map_err(|_| bad())?;
    let bytes = hex::decode(text).map_err(|_| bad())?;
    bytes.try_into().map_err(|_| bad())
}

pub(super) async fn state(
    State(app): State<App>,
    Path(text): Path<String>,
    _: NoParameters,
) -> Answer<Response> {
    let sha256 = hash(&text)?;
    match app.blobs().find(&sha256).await? {
        Some(blob) => {
            app.store().use_blob(&sha256).await?;
            Ok((StatusCode::OK, [(header::CONTENT_LENGTH, HeaderValue::from(blob.size))]).into_response())
        }
        None => {
            let received = app.blobs().received(&sha256).await?;
            Ok(match received {
                0 => Refusal::new(ProblemCode::NotFound, format!("there is no blob {text}")).into_response(),
                _ => (StatusCode::ACCEPTED, [(RECEIVED_HEADER, HeaderValue::from(received))]).into_response(),
            })
        }
    }
}

pub(super) async fn upload(
    State(app): State<App>,
    caller: Caller,
    Path(text): Path<String>,
    _: NoParameters,
    headers: HeaderMap,
    body: Body,
) -> Answer<Response> {
    let sha256 = hash(&text)?;
    if let Some(blob) = app.blobs().find(&sha256).await? {
        app.store().use_blob(&sha256).await?;
        return Ok(axum::Json(BlobState { received: blob.size, complete: true }).into_response());
    }
    let part = match headers.get(header::CONTENT_RANGE) {
        None => Part { offset: 0, total: None },
        Some(range) => content_range(range)?,
    };
    let reader = StreamReader::new(body.into_data_stream().map_err(std::io::Error::other));
    let state = caller.blobs(&app).receive(&sha256, part, reader).await?;
    let status = if state.complete { StatusCode::CREATED } else { StatusCode::ACCEPTED };
    Ok((status, axum::Json(state)).into_response())
}

/// Parses `bytes 0-99/1000` (RFC 9110 §14.4). The end follows from the body.
fn content_range(value: &HeaderValue) -> Answer<Part> {
    let read = || {
        let (range, total) = value.to_str().ok()?.strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let (offset, last, total): (u64, u64, u64) =
            (first.parse().ok()?, last.parse().ok()?, total.parse().ok()?);
        (offset <= last && last < total).then_some(Part { offset, total: Some(total) })
    };
    read().ok_or_else(|| {
        let message = format!("the header Content-Range {value:?} is not understood");
        Refusal::field("", FieldCode::Format, message, "bytes FIRST-LAST/TOTAL")
    })
}

pub(super) async fn download(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(text): Path<String>,
    _: NoParameters,
    headers: HeaderMap,
) -> Answer<Response> {
    let sha256 = hash(&text)?;
    let place = app.rooms().downloads.take(&caller)?;
    let Some(blob) = app.blobs().find(&sha256).await? else {
        return Err(Refusal::new(ProblemCode::NotFound, format!("there is no blob {text}")));
    };
    let offset = headers.get(header::RANGE).and_then(open_range).filter(|o| *o < blob.size);
    let file = app.blobs().read(&sha256, offset.unwrap_or(0)).await?;
    let left = blob.size.saturating_sub(offset.unwrap_or(0));
    let content = ReaderStream::with_capacity(file, 256 << 10).inspect(move |_| {
        let _held = &place;
    });
    let mut answer = Body::from_stream(content).into_response();
    answer.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(left));
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    if let Some(offset) = offset {
        *answer.status_mut() = StatusCode::PARTIAL_CONTENT;
        let range = format!("bytes {offset}-{}/{}", blob.size.saturating_sub(1), blob.size);
        if let Ok(range) = HeaderValue::from_str(&range) {
            answer.headers_mut().insert(header::CONTENT_RANGE, range);
        }
    }
    Ok(answer)
}

/// Parses `bytes=100-`. For any other range the whole blob is sent, as RFC 9110 §14.2 allows.
fn open_range(value: &HeaderValue) -> Option<u64> {
    value.to_str().ok()?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
}
