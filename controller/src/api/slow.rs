//! Ends requests whose body arrives too slowly: a client that sends one byte an hour must not hold a connection.

use super::App;
use super::problem::Refusal;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use basalt_api::ProblemCode;
use hyper::body::{Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// The least average rate of a body, in bytes per second, once its initial timeout has passed.
const LEAST_RATE: u64 = 1024;

/// Middleware around every handler: a body that does not arrive in time ends the request.
pub(super) async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    let timeout = app.0.parts.client_timeout;
    let late = Arc::new(AtomicBool::new(false));
    let watched = Arc::clone(&late);
    let response = next.run(request.map(|body| Body::new(Timely::new(body, timeout, watched)))).await;
    if !late.load(Ordering::Relaxed) {
        return response;
    }
    let detail = format!(
        "the body does not come: nothing within {timeout:?}, or less than {LEAST_RATE} bytes a second; send it again"
    );
    let mut response = Refusal::new(ProblemCode::TooSlow, detail).into_response();
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// A body that fails if no part of it arrives for a while, or if it is too slow in total.
struct Timely {
    body: Body,
    timeout: Duration,
    begun: Instant,
    received: u64,
    waiting: Option<Pin<Box<Sleep>>>,
    late: Arc<AtomicBool>,
}

impl Timely {
    fn new(body: Body, timeout: Duration, late: Arc<AtomicBool>) -> Self {
        Self { body, timeout, begun: Instant::now(), received: 0, waiting: None, late }
    }

    /// The deadline for the next part.
    fn until(&self) -> Instant {
        let earned = Duration::from_secs(self.received / LEAST_RATE);
        (Instant::now() + self.timeout).min(self.begun + self.timeout + earned)
    }
}

impl HttpBody for Timely {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            let bytes = frame.as_ref().and_then(|frame| frame.as_ref().ok()).and_then(Frame::data_ref);
            self.received += bytes.map_or(0, |bytes| u64::try_from(bytes.len()).unwrap_or(u64::MAX));
            self.waiting = None;
            return Poll::Ready(frame);
        }
        let until = self.until();
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep_until(until)));
        ready!(waiting.as_mut().poll(cx));
        self.late.store(true, Ordering::Relaxed);
        let late = io::Error::new(io::ErrorKind::TimedOut, "the body does not come");
        Poll::Ready(Some(Err(axum::Error::new(late))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::StreamExt;
    use http_body_util::BodyExt;

    /// An endless body: one byte after each interval.
    fn dripping(every: Duration) -> Body {
        let drops = futures_util::stream::repeat(()).then(move |()| async move {
            tokio::time::sleep(every).await;
            Ok::<_, io::Error>(Bytes::from_static(b"x"))
        });
        Body::from_stream(drops)
    }

    /// The body's length; on failure, whether it was late.
    async fn whole(body: Body) -> Result<usize, bool> {
        let late = Arc::new(AtomicBool::new(false));
        let body = Timely::new(body, Duration::from_millis(200), Arc::clone(&late));
        match body.collect().await {
            Ok(body) => Ok(body.to_bytes().len()),
            Err(_) => Err(late.load(Ordering::Relaxed)),
        }
    }

    #[tokio::test]
    async fn a_body_has_to_come_and_not_drop_by_drop() {
        assert_eq!(whole(Body::from("hello")).await, Ok(5));
        assert_eq!(whole(dripping(Duration::from_secs(3600))).await, Err(true), "nothing comes");
        assert_eq!(whole(dripping(Duration::from_millis(10))).await, Err(true), "a drop now and then");
    }
}
