//! The end of calls by their caller. A call ends while it connects, while it waits for an answer, and in the pause between two tries.
//!
//! A write that was already sent has two more seconds for its answer. Without the answer it would be unknown if the write was done, and
//! most writes are answered within that time.

use super::transport::{Call, Transport};
use super::{Client, ClientError};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Extra time for the answer of a request that a region may be doing.
const LAST_WORD: Duration = Duration::from_secs(2);

impl Client {
    /// The same client, but its calls end with [`ClientError::Interrupted`] once `end` is cancelled. A write that was sent has two more
    /// seconds for its answer. Nothing is sent after the cancellation. Both clients share their knowledge of the endpoints.
    #[must_use]
    pub fn until(&self, end: CancellationToken) -> Self {
        Self { transport: Arc::new(self.transport.as_ref().clone().until(end)) }
    }

    /// The same client with other limits: `timeout` for one request, and `patience` for tries while no region can be reached. Both clients
    /// share their knowledge of the endpoints.
    #[must_use]
    pub fn within(&self, timeout: Duration, patience: Duration) -> Self {
        Self { transport: Arc::new(self.transport.as_ref().clone().within(timeout, patience)) }
    }
}

impl Transport {
    /// The result of a call, or `Interrupted` after the caller ended its calls.
    pub(super) async fn wanted<T>(
        &self,
        call: &Call,
        comes: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let mut comes = pin!(comes);
        tokio::select! {
            biased;
            () = self.end.cancelled() => {}
            came = &mut comes => return came,
        }
        if call.may_be_done()
            && let Ok(came) = tokio::time::timeout(LAST_WORD, comes).await
        {
            return came;
        }
        Err(ClientError::Interrupted { may_be_done: call.may_be_done() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{ClientConfig, Precondition};
    use crate::schema::Kind;
    use crate::wire::PutRequest;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    /// Far shorter than any of these calls would take without an interrupt.
    const SOON: Duration = Duration::from_secs(60);
    const LONG: Duration = Duration::from_secs(3600);

    fn zone() -> &'static Kind {
        Kind::find("Zone").unwrap()
    }

    async fn patient() -> (TcpListener, Client, CancellationToken) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoints = vec![format!("http://{}", listener.local_addr().unwrap())];
        let config = ClientConfig { endpoints, timeout: LONG, patience: LONG, ..ClientConfig::default() };
        let end = CancellationToken::new();
        (listener, Client::new(&config).unwrap().until(end.clone()), end)
    }

    /// A connection that has received a whole request.
    async fn asked(listener: &TcpListener) -> TcpStream {
        let mut stream = listener.accept().await.unwrap().0;
        let mut seen = vec![0; 4096];
        assert_ne!(stream.read(&mut seen).await.unwrap(), 0);
        stream
    }

    async fn put(client: &Client) -> Result<bool, ClientError> {
        let request = PutRequest::default();
        let put = client.put(zone(), "row-1", &request, Precondition::Absent);
        let put = tokio::time::timeout(SOON, put).await.expect("it ends soon");
        put.map(|written| written.created)
    }

    async fn get(client: &Client) -> Result<bool, ClientError> {
        let get = tokio::time::timeout(SOON, client.find(zone(), "row-1")).await.expect("it ends soon");
        get.map(|found| found.is_some())
    }

    #[tokio::test]
    async fn who_is_told_to_come_back_later_does_not_when_nobody_wants_that_any_more() {
        let (listener, client, end) = patient().await;
        let away = async {
            let busy = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 60\r\ncontent-length: 0\r\n\r\n";
            asked(&listener).await.write_all(busy).await.unwrap();
            end.cancel();
        };
        let (put, ()) = tokio::join!(put(&client), away);
        assert!(matches!(put, Err(ClientError::Interrupted { may_be_done: false })), "{put:?}");
    }

    #[tokio::test]
    async fn a_question_ends_at_once_and_a_write_that_was_sent_may_be_done() {
        let (listener, client, end) = patient().await;
        let (get, _silent) = tokio::join!(get(&client), async {
            let silent = asked(&listener).await;
            end.cancel();
            silent
        });
        assert!(matches!(get, Err(ClientError::Interrupted { may_be_done: false })), "{get:?}");

        let (listener, client, end) = patient().await;
        let (put, _silent) = tokio::join!(put(&client), async {
            let silent = asked(&listener).await;
            end.cancel();
            silent
        });
        assert!(matches!(put, Err(ClientError::Interrupted { may_be_done: true })), "{put:?}");
    }

    #[tokio::test]
    async fn a_write_that_was_sent_has_a_moment_left_for_its_answer() {
        let (listener, client, end) = patient().await;
        let answer = async {
            let mut region = asked(&listener).await;
            end.cancel();
            let body = serde_json::json!({
                "kind": "Zone", "spec": {}, "status": {},
                "metadata": {
                    "name": "row-1", "uid": "0197d3c4-5f6a-7b8c-9d0e-000000000001", "generation": 1,
                    "created_at": "2026-01-31T12:00:00Z", "updated_at": "2026-01-31T12:00:00Z"
                }
            });
            let body = body.to_string();
            let answer = format!("HTTP/1.1 201 Created\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            region.write_all(answer.as_bytes()).await.unwrap();
        };
        let (put, ()) = tokio::join!(put(&client), answer);
        assert!(put.expect("it was answered"), "it is new");
    }

    #[tokio::test]
    async fn nothing_is_sent_any_more_unless_by_a_client_of_its_own() {
        let (listener, client, end) = patient().await;
        end.cancel();
        let connections = AtomicUsize::new(0);
        let count = async {
            loop {
                drop(listener.accept().await.unwrap());
                connections.fetch_add(1, Ordering::Relaxed);
            }
        };
        let calls = async {
            assert!(matches!(put(&client).await, Err(ClientError::Interrupted { may_be_done: false })));
            assert_eq!(connections.load(Ordering::Relaxed), 0);
            let last = client.until(CancellationToken::new()).within(SOON, Duration::ZERO);
            assert!(matches!(put(&last).await, Err(ClientError::Unreachable { .. })));
        };
        tokio::select! {
            () = count => {}
            () = calls => {}
        }
        assert!((1..=4).contains(&connections.into_inner()));
    }
}
