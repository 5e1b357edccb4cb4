//! Uploading blobs: streamed from a file, and going on where a broken upload ended.

use super::transport::{Call, decode};
use super::{Client, ClientError};
use crate::problem::ProblemCode;
use crate::values::Sha256;
use crate::wire::{BlobState, RECEIVED_HEADER};
use reqwest::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE};
use reqwest::{Body, Method, StatusCode};
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

/// Most bytes of one request, so that one time limit fits all requests.
const PART: u64 = 256 << 20;

/// Time limit for one part. An upload slower than 1 MiB per second counts as broken.
const PART_TIMEOUT: Duration = Duration::from_secs(300);

/// Most resumptions of an upload without progress.
const TRIES: u32 = 5;

/// Pause before an upload is resumed, multiplied by the number of tries without progress.
const PAUSE: Duration = Duration::from_millis(500);

/// Progress of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobProgress {
    /// Bytes that the region has.
    pub received: u64,
    /// Bytes of the file.
    pub total: u64,
}

impl Client {
    /// The number of bytes that the region has of a blob.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn blob_state(&self, sha256: &Sha256) -> Result<BlobState, ClientError> {
        let call = Call::new(Method::HEAD, &path(sha256));
        match self.transport.send(&call).await {
            Ok(response) => {
                let complete = response.status() != StatusCode::ACCEPTED;
                let header = if complete { CONTENT_LENGTH.as_str() } else { RECEIVED_HEADER };
                let received = response.headers().get(header).and_then(|v| v.to_str().ok()?.parse().ok());
                Ok(BlobState { received: received.unwrap_or_default(), complete })
            }
            Err(error) if error.is_not_found() => Ok(BlobState { received: 0, complete: false }),
            Err(error) => Err(error),
        }
    }

    /// Uploads a file with the hash `sha256`, unless the region has it already. `observe` gets the progress after each part.
    ///
    /// # Errors
    /// `invalid` if the region computes another hash, [`ClientError::File`], and see [`ClientError`].
    pub async fn put_blob(
        &self,
        sha256: &Sha256,
        file: &Path,
        mut observe: impl FnMut(BlobProgress),
    ) -> Result<BlobState, ClientError> {
        let failed = |source| ClientError::File { path: file.to_owned(), source };
        let total = tokio::fs::metadata(file).await.map_err(failed)?.len();
        let mut without_progress = 0;
        let mut furthest = 0;
        let mut last_error = None;
        loop {
            // Sleep before the progress is read: the region may still be writing the bytes of a broken part.
            tokio::time::sleep(PAUSE * without_progress).await;
            let state = self.blob_state(sha256).await?;
            observe(BlobProgress { received: state.received, total });
            if state.complete {
                return Ok(state);
            }
            if state.received > furthest {
                (furthest, without_progress) = (state.received, 0);
            }
            if without_progress >= TRIES
                && let Some(error) = last_error.take()
            {
                return Err(error);
            }
            match self.put_part(sha256, file, state.received.min(total), total).await {
                Ok(state) if state.complete => {
                    observe(BlobProgress { received: total, total });
                    return Ok(state);
                }
                Ok(_) => {}
                // The file does not have its hash, or this user may not upload. A retry changes nothing.
                Err(error @ (ClientError::File { .. } | ClientError::Unexpected { .. })) => {
                    return Err(error);
                }
                Err(ClientError::Problem(problem))
                    if !matches!(problem.code, ProblemCode::Conflict | ProblemCode::Unavailable) =>
                {
                    return Err(ClientError::Problem(problem));
                }
                Err(error) => {
                    without_progress += 1;
                    last_error = Some(error);
                }
            }
        }
    }

    /// Sends the bytes from offset `from` on, at most one part.
    async fn put_part(
        &self,
        sha256: &Sha256,
        file: &Path,
        from: u64,
        total: u64,
    ) -> Result<BlobState, ClientError> {
        let failed = |source| ClientError::File { path: file.to_owned(), source };
        let mut reader = tokio::fs::File::open(file).await.map_err(failed)?;
        reader.seek(std::io::SeekFrom::Start(from)).await.map_err(failed)?;
        let length = (total - from).min(PART);
        let range = match length {
            0 => format!("bytes */{total}"),
            _ => format!("bytes {from}-{}/{total}", from + length - 1),
        };
        let stream = tokio_util::io::ReaderStream::with_capacity(reader.take(length), 256 << 10);
        let response = self
            .transport
            .send_once(Method::PUT, &path(sha256), |request| {
                request
                    .header(CONTENT_RANGE, range)
                    .header(CONTENT_TYPE, "application/octet-stream")
                    .header(CONTENT_LENGTH, length)
                    .timeout(PART_TIMEOUT)
                    .body(Body::wrap_stream(stream))
            })
            .await?;
        decode(response).await
    }
}

fn path(sha256: &Sha256) -> String {
    format!("/api/v1/blobs/{sha256}")
}
