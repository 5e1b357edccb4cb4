//! Sends a request again if its connection ended before the server received it.

use reqwest::{RequestBuilder, Response};
use std::error::Error;

/// Most connections that are tried, one after the other, if a connection ends before it takes the request.
const OTHER_CONNECTIONS: usize = 3;

/// Sends a request, if necessary on several connections.
///
/// In TLS 1.3 the server checks the client's certificate after the client considers the handshake complete (RFC 8446 §2). A refusal may
/// therefore end the connection before the request is sent, with the error that the connection was not ready. The server has not seen the
/// request, so it is safe to send it on another connection, which can report the reason.
///
/// # Errors
/// The error of the last connection.
pub(super) async fn send(request: RequestBuilder) -> Result<Response, reqwest::Error> {
    // A body that is a stream cannot be cloned: then there are no copies.
    let copies = std::iter::from_fn(|| request.try_clone()).take(OTHER_CONNECTIONS);
    match taken(copies.map(RequestBuilder::send), |error| is_unsent(error)).await {
        Some(answer) => answer,
        None => request.send().await,
    }
}

/// The result of the first try whose connection took the request, or `None`. No further tries are made.
async fn taken<T, E>(
    tries: impl Iterator<Item = impl Future<Output = Result<T, E>>>,
    is_in_vain: impl Fn(&E) -> bool,
) -> Option<Result<T, E>> {
    for attempt in tries {
        match attempt.await {
            Err(error) if is_in_vain(&error) => {}
            answer => return Some(answer),
        }
    }
    None
}

/// True if no server can have seen the request: no connection was made, or it ended before it took the request.
pub(super) fn is_unseen(error: &reqwest::Error) -> bool {
    error.is_connect() || is_unsent(error)
}

/// True if a connection ended before it took the request.
fn is_unsent(error: &(dyn Error + 'static)) -> bool {
    std::iter::successors(Some(error), |&error| error.source())
        .filter_map(|error| error.downcast_ref::<hyper::Error>())
        .any(hyper::Error::is_canceled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper_util::rt::TokioIo;

    #[tokio::test]
    async fn what_was_in_vain_is_tried_again_and_nothing_else_is() {
        let after = async |answers: [Result<u8, &'static str>; 3]| {
            let mut tries = answers.into_iter();
            let answer = taken(tries.by_ref().map(std::future::ready), |error| *error == "unsent").await;
            (answer, tries.len())
        };
        let vain = Err("unsent");
        assert_eq!(after([Ok(1), vain, vain]).await, (Some(Ok(1)), 2));
        assert_eq!(after([vain, vain, Ok(3)]).await, (Some(Ok(3)), 0));
        assert_eq!(after([vain, Err("broken"), Ok(3)]).await, (Some(Err("broken")), 1), "it may be done");
        assert_eq!(after([vain, vain, vain]).await, (None, 0));
    }

    #[tokio::test]
    async fn a_connection_that_ended_has_not_taken_a_request_and_one_that_broke_may_have() {
        let request = || hyper::Request::new(String::new());
        let (near, far) = tokio::io::duplex(4096);
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(near)).await.unwrap();
        drop(far);
        connection.await.ok();
        let error = sender.send_request(request()).await.unwrap_err();
        assert!(is_unsent(&error), "{error:?}");

        let (near, mut far) = tokio::io::duplex(4096);
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(near)).await.unwrap();
        tokio::spawn(connection);
        let (answer, ()) = tokio::join!(sender.send_request(request()), async {
            tokio::io::AsyncReadExt::read_u8(&mut far).await.unwrap();
            drop(far);
        });
        let error = answer.unwrap_err();
        assert!(!is_unsent(&error), "{error:?}");
    }
}
