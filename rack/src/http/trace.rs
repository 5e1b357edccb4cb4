//! HTTP requests in the trace of a boot. Two modules make their own entries: scripts, since TFTP serves them too, and
//! [`direct`](super::direct), which sends blobs.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use basalt_dhcp::Mac;
use http::{StatusCode, header};

use super::{Ends, Problem, Web};
use crate::trace::{Entry, reason, without_secrets};

/// The reason for a refused request, attached to its answer.
#[derive(Debug, Clone)]
pub(super) struct Refused {
    pub(super) code: &'static str,
    pub(super) detail: String,
}

/// The routes of requests that belong to a boot, by prefix, with the service of the entry. An agent's progress and log
/// have facts of their own.
const ROUTES: [(&str, &str); 6] = [
    ("/loaders/", "http"),
    ("/blobs/", "http"),
    ("/agent/v1/claim", "agent"),
    ("/agent/v1/task", "agent"),
    ("/agent/v1/result", "agent"),
    ("/report/", "agent"),
];

/// Makes an entry for a request and its answer.
pub(super) async fn note(
    State(web): State<Arc<Web>>,
    Extension(ends): Extension<Ends>,
    request: Request,
    next: Next,
) -> Response {
    let matched = request.extensions().get::<MatchedPath>();
    let route = matched.and_then(|it| ROUTES.iter().find(|(begin, _)| it.as_str().starts_with(begin)));
    let Some((_, service)) = route else { return next.run(request).await };
    let asked = format!("{} {}", request.method(), without_secrets(request.uri().path()));
    let response = next.run(request).await;
    let refused = response.extensions().get::<Refused>();
    let length = response.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let bytes = length.map(|length| format!(", {length} bytes")).unwrap_or_default();
    let answered = match refused {
        Some(refused) => format!("{}: {}", response.status().as_u16(), refused.detail),
        None => format!("{}{bytes}", response.status().as_u16()),
    };
    let reason = refused.map(|refused| refused.code);
    web.saw_at(
        ends.peer.ip(),
        Entry { service, asked: asked.into(), answered: answered.into(), reason, ..Entry::default() },
    );
    response
}

/// A blob request that the kernel answers.
pub(super) struct Fetch {
    peer: IpAddr,
    asked: String,
    began: Instant,
}

impl Fetch {
    pub(super) fn of(ends: &Ends, method: &http::Method, sha256: &str) -> Self {
        let asked = format!("{method} {}", without_secrets(&format!("/blobs/{sha256}")));
        Self { peer: ends.peer.ip(), asked, began: Instant::now() }
    }

    pub(super) fn refused(self, web: &Web, problem: &Problem) {
        let answered = format!("{}: {}", problem.status.as_u16(), problem.detail);
        self.tell(web, answered, Some(problem.code));
    }

    pub(super) fn ended(self, web: &Web, status: StatusCode, bytes: u64, sent: &io::Result<()>) {
        let in_time = format!("{bytes} bytes in {}", words(self.began.elapsed()));
        let (answered, why) = match sent {
            Ok(()) => (format!("{}, {in_time}", status.as_u16()), None),
            Err(error) => (
                format!("{}, broke off before the end of {in_time}: {error}", status.as_u16()),
                Some(reason::FELL_SILENT),
            ),
        };
        self.tell(web, answered, why);
    }

    fn tell(self, web: &Web, answered: String, reason: Option<&'static str>) {
        let Self { peer, asked, .. } = self;
        web.saw_at(
            peer,
            Entry {
                service: "http",
                asked: asked.into(),
                answered: answered.into(),
                reason,
                ..Entry::default()
            },
        );
    }
}

fn words(took: Duration) -> String {
    format!("{} ms", took.as_millis())
}

impl Web {
    /// Makes an entry for a machine that named its MAC in the request.
    pub(super) fn saw(&self, mac: Mac, entry: Entry) {
        self.facts.trace().saw(mac, self.boot.borrow().as_deref(), entry);
    }

    fn saw_at(&self, address: IpAddr, entry: Entry) {
        self.facts.trace().saw_at(address, self.boot.borrow().as_deref(), entry);
    }
}
