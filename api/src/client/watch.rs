//! Watches report changes of objects as they happen, and resume after a broken connection.

use super::transport::Call;
use super::{Client, ClientError};
use crate::object::Object;
use crate::schema::Kind;
use crate::watch::{Cut, CutReason, EVENT_STREAM, Event, Gone, What};
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use std::collections::BTreeMap;
use std::time::Duration;

/// A region sends something at least every 15 s by default. After this time without an event it counts as unreachable.
const SILENCE: Duration = Duration::from_secs(60);

/// Pause before a broken connection is opened again.
const PAUSE: Duration = Duration::from_millis(200);

/// Most bytes of one event.
const MAX_EVENT: usize = 16 << 20;

/// Selection of the objects to watch, and the start of the watch.
#[derive(Clone, Debug, Default)]
pub struct WatchOptions {
    /// Kinds of the objects; empty: every kind.
    pub kinds: Vec<&'static Kind>,
    /// Only objects with all of these labels.
    pub labels: BTreeMap<String, String>,
    /// Start at this position of a list or an event. Absent: start with the next change.
    pub since: Option<String>,
}

/// A watch. It resumes by itself after its connection breaks or the region cuts it.
#[derive(Debug)]
pub struct Watch {
    client: Client,
    options: WatchOptions,
    connection: Option<Connection>,
    /// Number of connections that were opened after the first one.
    resumed: u64,
}

#[derive(Debug)]
pub(super) struct Connection {
    response: Response,
    events: Events,
}

impl Client {
    /// Watches objects. The first [`Watch::next`] sends the request.
    #[must_use]
    pub fn watch(&self, options: WatchOptions) -> Watch {
        Watch { client: self.clone(), options, connection: None, resumed: 0 }
    }

    /// All objects of a kind with these labels, and the position to watch them from.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn list_to_watch(
        &self,
        kind: &Kind,
        labels: &BTreeMap<String, String>,
    ) -> Result<(Vec<Object>, Option<String>), ClientError> {
        self.pages(kind, super::ListOptions { labels: labels.clone(), ..Default::default() }).await
    }
}

impl Watch {
    /// The position from which another watch could continue.
    #[must_use]
    pub fn position(&self) -> Option<&str> {
        self.options.since.as_deref()
    }

    /// Number of times that the watch was resumed.
    #[must_use]
    pub fn resumed(&self) -> u64 {
        self.resumed
    }

    /// The next event. A cut is returned as an event; the next call resumes.
    ///
    /// # Errors
    /// `compacted`: list again, and watch from that position. `unreachable`: no region answered within the client's patience. See
    /// [`ClientError`] for others.
    pub async fn next(&mut self) -> Result<Event, ClientError> {
        loop {
            if self.connection.is_none() {
                self.connection = Some(self.open().await?);
            }
            let Some(connection) = &mut self.connection else { continue };
            match connection.next().await {
                Ok(Some(event)) => {
                    self.options.since = Some(event.position.clone());
                    if matches!(event.what, What::Cut(_)) {
                        self.connection = None;
                        self.resumed += 1;
                    }
                    return Ok(event);
                }
                Ok(None) | Err(ClientError::Broken { .. }) => {
                    self.connection = None;
                    self.resumed += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn open(&self) -> Result<Connection, ClientError> {
        let mut call = Call::get("/api/v1/watch");
        if !self.options.kinds.is_empty() {
            let kinds: Vec<_> = self.options.kinds.iter().map(|kind| kind.plural).collect();
            call = call.query("kinds", &kinds.join(","));
        }
        if !self.options.labels.is_empty() {
            let pairs: Vec<_> = self.options.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
            call = call.query("labels", &pairs.join(","));
        }
        if let Some(since) = &self.options.since {
            call = call.query("since", since);
        }
        Connection::open(&self.client, call).await
    }
}

impl Connection {
    /// Sends a request whose answer is a stream of events.
    pub(super) async fn open(client: &Client, call: Call) -> Result<Self, ClientError> {
        let response = client.transport.stream(call).await?;
        let is_stream = response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|t| t.to_str().is_ok_and(|t| t.starts_with(EVENT_STREAM)));
        if !is_stream {
            let (url, status) = (response.url().to_string(), response.status().as_u16());
            let why = format!("it is not {EVENT_STREAM}");
            return Err(ClientError::Unexpected { url, status, why });
        }
        Ok(Connection { response, events: Events::default() })
    }

    /// The next event that this build knows. `None` if the connection has ended.
    async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        while let Some(raw) = self.raw().await? {
            if let Some(event) = raw.typed().map_err(|why| self.unexpected(why))? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    fn unexpected(&self, why: String) -> ClientError {
        let (url, status) = (self.response.url().to_string(), self.response.status().as_u16());
        ClientError::Unexpected { url, status, why }
    }

    /// The next event of any name.
    pub(super) async fn raw(&mut self) -> Result<Option<Raw>, ClientError> {
        loop {
            if let Some(raw) = self.events.next() {
                return Ok(Some(raw));
            }
            if self.events.waiting() > MAX_EVENT {
                return Err(self.unexpected(format!("an event is longer than {MAX_EVENT} bytes")));
            }
            let broken = |why: String, url: String| ClientError::Broken { url, why };
            let url = self.response.url().to_string();
            match tokio::time::timeout(SILENCE, self.response.chunk()).await {
                Err(_) => return Err(broken("the region has become silent".to_owned(), url)),
                Ok(Err(error)) => return Err(broken(super::transport::root_cause(&error), url)),
                Ok(Ok(None)) => return Ok(None),
                Ok(Ok(Some(bytes))) => self.events.feed(&bytes),
            }
        }
    }
}

/// Parser of an event stream (HTML Living Standard §9.2.6), for the part that regions use: lines end with LF or CR LF.
#[derive(Debug, Default)]
struct Events {
    buffer: Vec<u8>,
    /// Number of bytes of `buffer` that were parsed.
    at: usize,
    raw: Raw,
}

/// An event whose data was not parsed yet.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Raw {
    pub(super) id: String,
    pub(super) event: String,
    pub(super) data: String,
}

impl Events {
    fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.at);
        self.at = 0;
        self.buffer.extend_from_slice(bytes);
    }

    fn waiting(&self) -> usize {
        self.buffer.len() + self.raw.data.len()
    }

    fn next(&mut self) -> Option<Raw> {
        loop {
            let rest = self.buffer.get(self.at..)?;
            let length = rest.iter().position(|byte| *byte == b'\n')?;
            let line = String::from_utf8_lossy(rest.get(..length)?).trim_end_matches('\r').to_owned();
            self.at += length + 1;
            if line.is_empty() {
                let raw = std::mem::take(&mut self.raw);
                if raw != Raw::default() {
                    return Some(raw);
                }
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((line.as_str(), ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "id" => value.clone_into(&mut self.raw.id),
                "event" => value.clone_into(&mut self.raw.event),
                "data" => {
                    if !self.raw.data.is_empty() {
                        self.raw.data.push('\n');
                    }
                    self.raw.data.push_str(value);
                }
                // A comment, or a field of a newer region.
                _ => {}
            }
        }
    }
}

impl Raw {
    /// Parses the event. `None` for an event that this build does not know.
    fn typed(self) -> Result<Option<Event>, String> {
        fn read<T: serde::de::DeserializeOwned>(event: &str, data: &str) -> Result<T, String> {
            serde_json::from_str(data).map_err(|error| format!("in an event {event:?}: {error}"))
        }
        let what = match self.event.as_str() {
            "put" => What::Put(Box::new(read::<Object>("put", &self.data)?)),
            "delete" => What::Delete(read::<Gone>("delete", &self.data)?),
            "bookmark" => What::Bookmark,
            "cut" => What::Cut(
                read::<Cut>("cut", &self.data)
                    .unwrap_or(Cut { reason: CutReason::Other, message: self.data }),
            ),
            _ => return Ok(None),
        };
        Ok(Some(Event { position: self.id, what }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_however_their_bytes_arrive() {
        let text = "id: a:1\nevent: bookmark\ndata: {}\n\n: nothing\n\nid: a:2\r\nevent: put\r\ndata: {\"x\":\r\ndata: 1}\r\n\r\n";
        let raw = |id: &str, event: &str, data: &str| Raw {
            id: id.to_owned(),
            event: event.to_owned(),
            data: data.to_owned(),
        };
        let wanted = [raw("a:1", "bookmark", "{}"), raw("a:2", "put", "{\"x\":\n1}")];
        for size in [1, 2, 3, 7, 1000] {
            let mut events = Events::default();
            let mut seen = Vec::new();
            for bytes in text.as_bytes().chunks(size) {
                events.feed(bytes);
                seen.extend(std::iter::from_fn(|| events.next()));
            }
            assert_eq!(seen, wanted, "in pieces of {size}");
        }
    }

    #[test]
    fn an_event_of_a_newer_region_is_passed_over_and_nonsense_is_told() {
        let raw = |event: &str| Raw { id: "a:1".to_owned(), event: event.to_owned(), data: "no".to_owned() };
        assert_eq!(raw("from_the_future").typed(), Ok(None));
        assert!(raw("put").typed().unwrap_err().contains("in an event \"put\""));
    }
}
