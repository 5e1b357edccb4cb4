//! Blobs from the rack: hashed as they arrive, and resumed after a broken connection.

use std::io::{self, Read};
use std::time::Instant;

use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::deadlines::{self, Backoff};
use crate::http::{Client, HttpError, Request, Response, Security};
use crate::say;

/// The reason why a blob could not be read.
#[derive(Debug, Error)]
pub enum BlobError {
    /// The rack did not deliver the blob.
    #[error("blob {hash} could not be fetched: {reason}")]
    Unavailable {
        /// SHA-256 of the blob, in lower-case hex.
        hash: String,
        /// The last error.
        reason: String,
    },
    /// The delivered bytes do not have the hash of the blob.
    #[error(
        "blob {expected} is corrupt: the rack delivered {length} bytes with SHA-256 {found}; upload it to the region again"
    )]
    Corrupt {
        /// SHA-256 of the blob, in lower-case hex.
        expected: String,
        /// SHA-256 of the delivered bytes, in lower-case hex.
        found: String,
        /// Number of delivered bytes.
        length: u64,
    },
}

/// Reads a blob. If the bytes do not have the hash, the read at the end fails. So a reader that gets no error has read exactly the blob.
#[derive(Debug)]
pub struct BlobReader<'a> {
    client: &'a Client,
    expected: [u8; 32],
    path: String,
    hash: Sha256,
    position: u64,
    response: Option<Response>,
    end: Instant,
    failed: Option<BlobError>,
}

impl<'a> BlobReader<'a> {
    /// Makes a reader. Nothing is fetched before the first read.
    #[must_use]
    pub fn new(client: &'a Client, expected: [u8; 32]) -> Self {
        Self {
            client,
            expected,
            path: format!("/blobs/{}", hex::encode(expected)),
            hash: Sha256::new(),
            position: 0,
            response: None,
            end: Instant::now() + deadlines::BLOB,
            failed: None,
        }
    }

    /// Bytes read so far.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The reason why the last read failed.
    pub fn take_error(&mut self) -> Option<BlobError> {
        self.failed.take()
    }

    fn fail(&mut self, error: BlobError) -> io::Error {
        let message = error.to_string();
        self.failed = Some(error);
        io::Error::other(message)
    }

    fn unavailable(&mut self, reason: impl ToString) -> io::Error {
        let error = BlobError::Unavailable { hash: hex::encode(self.expected), reason: reason.to_string() };
        self.fail(error)
    }

    /// Reads once; `Ok(0)` is the end of the blob.
    fn attempt(&mut self, buffer: &mut [u8]) -> Result<usize, HttpError> {
        if self.response.is_none() {
            let request = Request { from: self.position, ..Request::get(&self.path) };
            let mut response = self.client.send(Security::Clear, request)?;
            let broken = |source| HttpError::Io { method: "GET", path: self.path.clone(), source };
            // A server without ranges starts at the first byte: skip the bytes that were already read.
            let skip = self.position.checked_sub(response.from).ok_or_else(|| {
                broken(io::Error::new(io::ErrorKind::InvalidData, "the rack left out bytes"))
            })?;
            let skipped = io::copy(&mut (&mut response).take(skip), &mut io::sink()).map_err(broken)?;
            if skipped < skip {
                return Err(broken(io::Error::new(io::ErrorKind::UnexpectedEof, "the blob became shorter")));
            }
            self.response = Some(response);
        }
        let Some(response) = &mut self.response else { return Ok(0) };
        response.read(buffer).map_err(|source| HttpError::Io {
            method: "GET",
            path: self.path.clone(),
            source,
        })
    }
}

impl Read for BlobReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut backoff = Backoff::new(deadlines::BLOB_STALLED);
        loop {
            if Instant::now() > self.end {
                return Err(self.unavailable(format!("not complete after {:?}", deadlines::BLOB)));
            }
            match self.attempt(buffer) {
                Ok(0) => {
                    let found: [u8; 32] = self.hash.clone().finalize().into();
                    if found == self.expected {
                        return Ok(0);
                    }
                    let error = BlobError::Corrupt {
                        expected: hex::encode(self.expected),
                        found: hex::encode(found),
                        length: self.position,
                    };
                    return Err(self.fail(error));
                }
                Ok(read) => {
                    self.hash.update(buffer.get(..read).unwrap_or_default());
                    self.position += read as u64;
                    return Ok(read);
                }
                Err(error) => {
                    self.response = None;
                    if !error.is_transient() {
                        return Err(self.unavailable(error));
                    }
                    say!("{error}; trying again from byte {}", self.position);
                    if let Some(wait) = error.retry_after() {
                        // The rack serves other machines first. That is no failure, however often the rack says so.
                        std::thread::sleep(wait.clamp(deadlines::TURN[0], deadlines::TURN[1]));
                        backoff = Backoff::new(deadlines::BLOB_STALLED);
                    } else if !backoff.wait() {
                        return Err(self.unavailable(error));
                    }
                }
            }
        }
    }
}
