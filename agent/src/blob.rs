//! Blobs by content: fetched from the rack, hashed as they pass, taken up again where a connection broke.

use std::io::{self, Read};
use std::time::Instant;

use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::deadlines::{self, Backoff};
use crate::http::{Client, HttpError, Request, Response, Security};
use crate::say;

/// Why a blob is not there.
#[derive(Debug, Error)]
pub enum BlobError {
    /// The rack did not deliver it.
    #[error("blob {hash} could not be fetched: {reason}")]
    Unavailable {
        /// Lower-case hex.
        hash: String,
        /// What happened last.
        reason: String,
    },
    /// What the rack delivered is something else.
    #[error(
        "blob {expected} is corrupt: the rack delivered {length} bytes with SHA-256 {found}; upload it to the region again"
    )]
    Corrupt {
        /// Lower-case hex.
        expected: String,
        /// Lower-case hex.
        found: String,
        /// Bytes delivered.
        length: u64,
    },
}

/// Reads a blob. The end of it is reported as an error when the bytes do not have the hash, so that a reader who
/// sees no error has read exactly the blob.
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
    /// Nothing is fetched before the first read.
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

    /// Why the last read failed.
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

    /// One attempt to have bytes; `Ok(0)` is the end of the blob.
    fn attempt(&mut self, buffer: &mut [u8]) -> Result<usize, HttpError> {
        if self.response.is_none() {
            let request = Request { from: self.position, ..Request::get(&self.path) };
            let mut response = self.client.send(Security::Clear, request)?;
            let broken = |source| HttpError::Io { method: "GET", path: self.path.clone(), source };
            // A server without ranges starts again: skip what was read already.
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
                        // It is not this machine's turn yet, which is no failure, however often it is said.
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
