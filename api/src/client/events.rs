//! Events of a region: reads past ones, and follows new ones.

use super::transport::Call;
use super::watch::Connection;
use super::{Client, ClientError};
use crate::values::Timestamp;
use crate::wire::{EventEntry, EventPage};
use std::time::Duration;

/// Pause before a broken connection is opened again.
const PAUSE: Duration = Duration::from_millis(500);

/// A selection of events.
#[derive(Clone, Debug, Default)]
pub struct EventOptions {
    /// Kinds, as plurals. Empty: all kinds.
    pub kinds: Vec<String>,
    /// Only events of this object (`uid:UUID` or `KIND/NAME`), or of all objects of a kind (`KIND`).
    pub object: Option<String>,
    /// Only events since this time.
    pub since: Option<Timestamp>,
    /// Most events of a page. Absent: the region chooses.
    pub limit: Option<u32>,
    /// `next` of the previous page.
    pub next: Option<String>,
}

/// A stream of events. It resumes by itself after its connection breaks.
#[derive(Debug)]
pub struct FollowedEvents {
    client: Client,
    options: EventOptions,
    position: Option<String>,
    connection: Option<Connection>,
}

fn call(options: &EventOptions) -> Call {
    let mut call = Call::get("/api/v1/events");
    let kinds = Some(options.kinds.join(",")).filter(|kinds| !kinds.is_empty());
    for (name, value) in [
        ("kinds", kinds),
        ("object", options.object.clone()),
        ("since", options.since.map(|at| at.to_string())),
        ("limit", options.limit.map(|n| n.to_string())),
        ("continue", options.next.clone()),
    ] {
        if let Some(value) = value {
            call = call.query(name, &value);
        }
    }
    call
}

impl Client {
    /// A page of events, the newest first.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn events(&self, options: &EventOptions) -> Result<EventPage, ClientError> {
        self.transport.json(call(options)).await
    }

    /// The last events, and then new ones as they happen. The first [`FollowedEvents::next`] sends the request.
    #[must_use]
    pub fn follow_events(&self, options: &EventOptions) -> FollowedEvents {
        FollowedEvents { client: self.clone(), options: options.clone(), position: None, connection: None }
    }
}

impl FollowedEvents {
    /// The next event.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn next(&mut self) -> Result<EventEntry, ClientError> {
        loop {
            if self.connection.is_none() {
                let mut call = call(&self.options).query("follow", "true");
                if let Some(position) = &self.position {
                    call = call.after(position);
                }
                self.connection = Some(Connection::open(&self.client, call).await?);
            }
            let Some(connection) = &mut self.connection else { continue };
            match connection.raw().await {
                Ok(Some(raw)) => {
                    self.position = Some(raw.id);
                    if raw.event == "event"
                        && let Ok(event) = serde_json::from_str(&raw.data)
                    {
                        return Ok(event);
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
