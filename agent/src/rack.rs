//! The agent API of the rack. A call is repeated until it is answered or its time limit has passed.

use std::time::Duration;

use basalt_api::agent::{BmcAccount, Checkpoint, ClaimReply, ClaimRequest, Progress, Task, TaskResult};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::deadlines::{self, Backoff};
use crate::http::{Client, HttpError, Request, Response, Security};
use crate::say;

/// The reason why a call has no usable answer.
#[derive(Debug, Error)]
pub enum RackError {
    /// No answer, or a refusal.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The answer is not valid.
    #[error("the rack's answer to {path} cannot be understood: {reason}")]
    Answer {
        /// Path of the call.
        path: &'static str,
        /// The error in the answer.
        reason: String,
    },
}

/// Claims this boot.
///
/// # Errors
/// The rack refuses the token, or does not answer within [`deadlines::CLAIM`].
pub fn claim(client: &Client, request: &ClaimRequest) -> Result<ClaimReply, RackError> {
    let body = serde_json::to_vec(request).map_err(|error| unusable("claim", error))?;
    let request = Request::post("/agent/v1/claim", JSON, &body);
    json("claim", send(client, request, deadlines::CLAIM)?)
}

const JSON: &str = "application/json";

/// A claimed session.
#[derive(Clone, Debug)]
pub struct Session {
    client: Client,
    key: String,
}

impl Session {
    /// A session with the key from the claim.
    #[must_use]
    pub fn new(client: Client, key: String) -> Self {
        Self { client, key }
    }

    /// The HTTP client for this rack, which also serves blobs.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The task of this boot.
    ///
    /// # Errors
    /// No answer within [`deadlines::CLAIM`], a refusal, or a task of a type that this agent does not know.
    pub fn task(&self) -> Result<Task, RackError> {
        json("task", send(&self.client, Request::get("/agent/v1/task").bearer(&self.key), deadlines::CLAIM)?)
    }

    /// Sends progress without a retry: the next report replaces it.
    ///
    /// # Errors
    /// No answer, or a refusal.
    pub fn progress(&self, progress: &Progress) -> Result<(), RackError> {
        self.post_once("/agent/v1/progress", JSON, &encode("progress", progress)?)
    }

    /// Sends the part of the log that starts at `offset`, without a retry. The next call sends from the first byte that the rack lacks.
    ///
    /// # Errors
    /// No answer, or a refusal.
    pub fn log(&self, offset: u64, bytes: &[u8]) -> Result<(), RackError> {
        self.post_once(&format!("/agent/v1/log?offset={offset}"), "text/plain", bytes)
    }

    /// Makes the rack store an account's sealed password on its disk, before the BMC gets the password.
    ///
    /// # Errors
    /// A refusal, or no answer within [`deadlines::BMC_PROMISE`].
    pub fn bmc(&self, account: &BmcAccount) -> Result<(), RackError> {
        let body = encode("bmc", account)?;
        let request = Request::post("/agent/v1/bmc", JSON, &body).bearer(&self.key);
        send(&self.client, request, deadlines::BMC_PROMISE)?;
        Ok(())
    }

    /// Makes the rack store a checkpoint on its disk, for the next boot of the attempt.
    ///
    /// # Errors
    /// A refusal, or no answer within [`deadlines::CHECKPOINT`].
    pub fn checkpoint(&self, checkpoint: &Checkpoint) -> Result<(), RackError> {
        let body = encode("checkpoint", checkpoint)?;
        let request = Request::post("/agent/v1/checkpoint", JSON, &body).bearer(&self.key);
        send(&self.client, request, deadlines::CHECKPOINT)?;
        Ok(())
    }

    /// Delivers the result.
    ///
    /// # Errors
    /// A refusal, or no answer within [`deadlines::RESULT`].
    pub fn result(&self, result: &TaskResult) -> Result<(), RackError> {
        let body = encode("result", result)?;
        let request = Request::post("/agent/v1/result", JSON, &body).bearer(&self.key);
        send(&self.client, request, deadlines::RESULT)?;
        Ok(())
    }

    fn post_once(&self, path: &str, content_type: &str, body: &[u8]) -> Result<(), RackError> {
        let request = Request::post(path, content_type, body).bearer(&self.key);
        self.client.send(Security::Tls, request)?;
        Ok(())
    }
}

/// Sends a request until the answer is final: not a temporary failure.
fn send(client: &Client, request: Request<'_>, limit: Duration) -> Result<Response, HttpError> {
    let mut backoff = Backoff::new(limit);
    loop {
        match client.send(Security::Tls, request) {
            Err(error) if error.is_transient() => {
                say!("{error}; trying again");
                if !backoff.wait() {
                    return Err(error);
                }
            }
            other => return other,
        }
    }
}

fn encode(path: &'static str, value: &impl Serialize) -> Result<Vec<u8>, RackError> {
    serde_json::to_vec(value).map_err(|error| unusable(path, error))
}

fn json<T: DeserializeOwned>(path: &'static str, response: Response) -> Result<T, RackError> {
    let bytes = response.bytes().map_err(|error| unusable(path, error))?;
    serde_json::from_slice(&bytes).map_err(|error| unusable(path, error))
}

fn unusable(path: &'static str, reason: impl ToString) -> RackError {
    RackError::Answer { path, reason: reason.to_string() }
}
