//! A request that reaches a connection, or says why none took it.

use reqwest::{RequestBuilder, Response};
use std::error::Error;

/// How often a request is put on another connection, one after the other, when a connection ended before it took it.
const OTHER_CONNECTIONS: usize = 3;

/// Sends a request.
///
/// A server of TLS 1.3 looks at its client's certificate after the client takes the connection for made (RFC 8446 §2), so a refusal may
/// end it before there is a request to fail of it: all that is known then is that the connection was not ready. Nobody has
/// seen the request, so the next connection takes it, and on that one it hears the reason.
///
/// # Errors
/// Why the last connection did not answer.
pub(super) async fn send(mut request: RequestBuilder) -> Result<Response, reqwest::Error> {
    for _ in 0..OTHER_CONNECTIONS {
        // None of a body that is read as it goes.
        let Some(same) = request.try_clone() else { break };
        match request.send().await {
            Err(error) if is_unsent(&error) => request = same,
            answer => return answer,
        }
    }
    request.send().await
}

/// Whether nobody can have seen the request: no connection was made, or it ended before it took the request.
pub(super) fn is_unseen(error: &reqwest::Error) -> bool {
    error.is_connect() || is_unsent(error)
}

/// Whether a connection ended before it took the request.
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
