//! The calls of the racks' protocol: permitted callers and limits on their bodies.
//!
//! | call | permitted callers | limit |
//! | --- | --- | --- |
//! | `Enrol` | anybody | 16 KiB, within 10 seconds |
//! | `Renew`, `FetchBlob` | racks | 16 KiB, within 10 seconds |
//! | `StoreLogs` | racks | 256 KiB, within 60 seconds |
//! | `Link` | racks | [`MAX_FROM_RACK`](basalt_proto::MAX_FROM_RACK) per message, no time limit |
//!
//! A call is refused before its body is read: otherwise an endless message would fill the memory.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use hyper::body::Frame;
use tokio::time::{Sleep, sleep};
use tonic::Status;

/// The limit of small bodies, in bytes. A certificate request has about 300 bytes, a join secret 64.
pub(super) const SMALL: usize = 16 << 10;
/// Time limit for a small body.
const WITHIN: Duration = Duration::from_secs(10);
/// The limit of a batch of log lines, in bytes. A rack sends at most 128 KiB and one line of 10 KiB.
const BATCH: usize = 256 << 10;
/// Time limit for a batch of log lines.
const BATCH_WITHIN: Duration = Duration::from_secs(60);
/// The prefix of the protocol's paths.
const PROTOCOL: &str = "/basalt.rack.v1.";

/// A call of the racks' protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// The name in metrics.
    pub(super) name: &'static str,
    /// True: no certificate is required.
    pub(super) is_open: bool,
    /// The limits of its body, in bytes and time. `None`: the call is a stream without these limits.
    most: Option<(usize, Duration)>,
}

impl Call {
    /// The call at a path. `None`: the path does not belong to the racks' protocol.
    pub(super) fn of(path: &str) -> Option<Self> {
        let small = Some((SMALL, WITHIN));
        let (name, is_open, most) = match path.strip_prefix(PROTOCOL)? {
            "Enrolment/Enrol" => ("Enrol", true, small),
            "RackLink/Link" => ("Link", false, None),
            "RackLink/FetchBlob" => ("FetchBlob", false, small),
            "RackLink/Renew" => ("Renew", false, small),
            "RackLink/StoreLogs" => ("StoreLogs", false, Some((BATCH, BATCH_WITHIN))),
            _ => ("none", false, small),
        };
        Some(Self { name, is_open, most })
    }

    /// Adds the limits to the request: its body ends in an error if it is too large or too late.
    pub(super) fn bounded(self, request: Request) -> Request {
        match self.most {
            Some((most, within)) => request.map(|body| Body::new(Small::new(body, most, within))),
            None => request,
        }
    }
}

/// A body with a limit on its size and time.
struct Small {
    body: Body,
    most: usize,
    read: usize,
    within: Duration,
    late: Pin<Box<Sleep>>,
}

impl Small {
    fn new(body: Body, most: usize, within: Duration) -> Self {
        Self { body, most, read: 0, within, late: Box::pin(sleep(within)) }
    }
}

impl HttpBody for Small {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.late.as_mut().poll(cx).is_ready() {
            let late = format!("the request did not arrive whole within {:?}; send it again", self.within);
            return Poll::Ready(Some(Err(Status::deadline_exceeded(late))));
        }
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(cx));
        let Some(frame) = frame else { return Poll::Ready(None) };
        let frame = frame.map_err(|error| Status::from_error(error.into()))?;
        self.read = self.read.saturating_add(frame.data_ref().map_or(0, Bytes::len));
        if self.read > self.most {
            let large = format!("the request is larger than the {} bytes that this call takes", self.most);
            return Poll::Ready(Some(Err(Status::out_of_range(large))));
        }
        Poll::Ready(Some(Ok(frame)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use tonic::Code;

    const SOON: Duration = Duration::from_millis(50);

    async fn read(body: Body) -> Result<usize, Code> {
        let body = Small::new(body, 10, SOON).collect().await;
        body.map(|body| body.to_bytes().len()).map_err(|status| status.code())
    }

    #[tokio::test]
    async fn a_small_body_ends_where_it_is_too_large_or_too_late() {
        assert_eq!(read(Body::from(vec![0; 10])).await, Ok(10));
        assert_eq!(read(Body::from(vec![0; 11])).await, Err(Code::OutOfRange));
        let endless = futures_util::stream::repeat(Ok::<_, Status>(Bytes::from_static(b"abc")));
        assert_eq!(read(Body::from_stream(endless)).await, Err(Code::OutOfRange));
        let silent = futures_util::stream::pending::<Result<Bytes, Status>>();
        assert_eq!(read(Body::from_stream(silent)).await, Err(Code::DeadlineExceeded));
    }

    #[test]
    fn enrolment_alone_is_open_and_the_link_alone_is_long() {
        let open = |path: &str| Call::of(path).map(|call| (call.is_open, call.most.is_some()));
        assert_eq!(open("/basalt.rack.v1.Enrolment/Enrol"), Some((true, true)));
        assert_eq!(open("/basalt.rack.v1.RackLink/Link"), Some((false, false)));
        for path in
            ["RackLink/Renew", "RackLink/StoreLogs", "RackLink/FetchBlob", "Enrolment/enrol", "RackLink/Next"]
        {
            assert_eq!(open(&format!("{PROTOCOL}{path}")), Some((false, true)), "{path}");
        }
        assert_eq!(Call::of("/api/v1/zones"), None);
    }
}
