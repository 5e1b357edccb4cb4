//! Logs of machines: reads past lines, and follows new ones.

use super::transport::{self, Call};
use super::watch::Connection;
use super::{Client, ClientError};
use crate::values::Timestamp;
use crate::wire::{LogLine, Logs};
use std::time::Duration;

/// Pause before a broken connection is opened again.
const PAUSE: Duration = Duration::from_millis(500);

/// Selection of lines.
#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    /// Only lines since this time.
    pub since: Option<Timestamp>,
    /// Only lines before this time.
    pub until: Option<Timestamp>,
    /// Only lines of one boot: 0 is the last one, 1 the one before.
    pub boot: Option<u32>,
    /// Only lines with this text.
    pub grep: Option<String>,
    /// Most lines. If there are more, the last ones are returned.
    pub limit: Option<u32>,
}

/// A stream of log lines. It resumes by itself after its connection breaks.
#[derive(Debug)]
pub struct FollowedLog {
    client: Client,
    machine: String,
    options: LogOptions,
    position: Option<String>,
    connection: Option<Connection>,
}

impl Client {
    fn log_call(machine: &str, options: &LogOptions) -> Call {
        let mut call = Call::get(&format!("/api/v1/machines/{}/logs", transport::encode(machine)));
        let LogOptions { since, until, boot, grep, limit } = options;
        let text = |value: &Option<u32>| value.map(|it| it.to_string());
        let moment = |value: &Option<Timestamp>| value.map(|it| it.to_string());
        for (name, value) in [
            ("since", moment(since)),
            ("until", moment(until)),
            ("boot", text(boot)),
            ("grep", grep.clone()),
            ("limit", text(limit)),
        ] {
            if let Some(value) = value {
                call = call.query(name, &value);
            }
        }
        call
    }

    /// The last lines of a machine's log that fit the options.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn logs(&self, machine: &str, options: &LogOptions) -> Result<Logs, ClientError> {
        self.transport.json(Self::log_call(machine, options)).await
    }

    /// The same lines, and then new ones as they arrive. The first [`FollowedLog::next`] sends the request.
    #[must_use]
    pub fn follow_log(&self, machine: &str, options: &LogOptions) -> FollowedLog {
        FollowedLog {
            client: self.clone(),
            machine: machine.to_owned(),
            options: options.clone(),
            position: None,
            connection: None,
        }
    }
}

impl FollowedLog {
    /// Closes the connection. The next call of [`Self::next`] opens another one.
    pub fn disconnect(&mut self) {
        self.connection = None;
    }

    /// The next line.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn next(&mut self) -> Result<LogLine, ClientError> {
        loop {
            if self.connection.is_none() {
                let mut call = Client::log_call(&self.machine, &self.options).query("follow", "true");
                if let Some(position) = &self.position {
                    call = call.after(position);
                }
                self.connection = Some(Connection::open(&self.client, call).await?);
            }
            let Some(connection) = &mut self.connection else { continue };
            match connection.raw().await {
                Ok(Some(raw)) => {
                    self.position = Some(raw.id);
                    if raw.event == "line"
                        && let Ok(line) = serde_json::from_str(&raw.data)
                    {
                        return Ok(line);
                    }
                }
                Ok(None) | Err(ClientError::Broken { .. }) => {
                    self.connection = None;
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}
