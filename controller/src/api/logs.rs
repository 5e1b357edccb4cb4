//! Past and new log lines of machines (`GET /api/v1/machines/{name}/logs`).

use super::caller::Caller;
use super::problem::{Answer, Refusal};
use super::query::parameters;
use super::target::Target;
use super::{App, boots, guard};
use crate::logs::{Follow, MOST, Position, Query};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Uri, header};
use axum::response::{IntoResponse, Response};
use basalt_api::kinds::Machine;
use basalt_api::values::{Timestamp, Uid};
use basalt_api::watch::{EVENT_STREAM, LAST_EVENT_ID};
use basalt_api::wire::{LogLine, Logs};
use basalt_api::{FieldCode, KindOf, ProblemCode};
use basalt_db::Key;
use basalt_proto::places::Place;
use serde::Deserialize;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, Interval};

/// The number of lines if the request has no limit.
const USUAL: usize = 1000;
/// Lifetime of a stream; then the client must request it again.
const LIFE: Duration = Duration::from_secs(3600);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    boot: Option<usize>,
    grep: Option<String>,
    limit: Option<usize>,
    #[serde(default)]
    follow: bool,
}

pub(super) async fn read(
    State(app): State<App>,
    caller: Caller,
    target: Target,
    headers: HeaderMap,
    uri: Uri,
) -> Answer<Response> {
    let parameters: Parameters = parameters(&uri)?;
    let machine = target.object(&app).await?.uid;
    let query = query(&app, machine, &parameters).await?;
    let resumed = headers.get(LAST_EVENT_ID).map(|id| position(id.to_str().unwrap_or("?"))).transpose()?;
    let (mut lines, mut more, mut from) = (Vec::new(), false, resumed.unwrap_or_default());
    if resumed.is_none() {
        let (logs, asked) = (app.logs().clone(), query.clone());
        let page = tokio::task::spawn_blocking(move || logs.read(machine, &asked)).await;
        let page = page.map_err(|error| unreadable(&error))?.map_err(|error| unreadable(&error))?;
        (lines, more, from) = (page.lines, page.more, page.position);
    }
    if !parameters.follow {
        let lines = lines.into_iter().map(|(line, _)| line).collect();
        return Ok(Json(Logs { lines, more }).into_response());
    }
    let place = app.rooms().logs.take(&caller)?;
    let follow = app.logs().follow(machine, from, query);
    // Sent if there is nothing new. At each ping the region also checks that the caller still has the right to follow.
    let mut ping = tokio::time::interval(app.0.parts.bookmark_every);
    ping.reset();
    let stream = Stream {
        ready: lines.iter().map(|(line, behind)| event("line", *behind, &json(line))).collect(),
        follow,
        position: from,
        ping,
        ends: Instant::now() + LIFE,
        stopping: app.stopping(),
        right: Right { app, caller, headers, machine },
        is_over: false,
        _place: place,
    };
    let body = Body::from_stream(futures_util::stream::unfold(stream, Stream::next));
    let headers = [(header::CONTENT_TYPE, EVENT_STREAM), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, body).into_response())
}

fn unreadable(error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(ProblemCode::Internal, format!("the log cannot be read: {error}"))
}

fn position(text: &str) -> Answer<Position> {
    text.parse().map_err(|message: String| {
        Refusal::field("", FieldCode::Format, message, "the id of an event of this log, at the same region")
    })
}

/// Parses the parameters. A boot lasts from its first request to the first request of the next boot.
async fn query(app: &App, machine: Uid, parameters: &Parameters) -> Answer<Query> {
    let limit = parameters.limit.unwrap_or(USUAL);
    if !(1..=MOST).contains(&limit) {
        let message = format!("{limit} lines cannot be asked for at once");
        return Err(Refusal::field("/limit", FieldCode::Range, message, format!("1 to {MOST}")));
    }
    let (mut since, mut until) = (parameters.since, parameters.until);
    if let Some(boot) = parameters.boot {
        let began = boots::began(app, machine).await?;
        let first = *began.get(boot).ok_or_else(|| {
            let message = format!("boot {boot} is not known; {} boots of this machine are", began.len());
            Refusal::field("/boot", FieldCode::Range, message, "0 is the last one, 1 the one before")
        })?;
        since = Some(since.map_or(first, |since| since.max(first)));
        if let Some(next) = boot.checked_sub(1).and_then(|next| began.get(next)) {
            until = Some(until.map_or(*next, |until| until.min(*next)));
        }
    }
    let grep = parameters.grep.clone().filter(|text| !text.is_empty());
    Ok(Query { since, until, grep, limit })
}

fn json(line: &LogLine) -> String {
    serde_json::to_string(line).unwrap_or_default()
}

fn event(event: &str, position: Position, data: &str) -> Bytes {
    Bytes::from(format!("id: {position}\nevent: {event}\ndata: {data}\n\n"))
}

/// A caller's right to follow a log.
struct Right {
    app: App,
    caller: Caller,
    headers: HeaderMap,
    machine: Uid,
}

impl Right {
    async fn holds(&self) -> bool {
        let is_unchanged = guard::is_unchanged(&self.app, &self.headers, &self.caller).await;
        // If the database does not answer, the caller keeps the right.
        let is_changed = matches!(is_unchanged, Ok(false));
        !is_changed && self.caller.sees(&self.app, Machine::KIND, Key::Uid(self.machine)).await.is_ok()
    }
}

/// A stream of log lines.
struct Stream {
    follow: Follow,
    right: Right,
    ready: VecDeque<Bytes>,
    position: Position,
    ping: Interval,
    ends: Instant,
    stopping: watch::Receiver<bool>,
    is_over: bool,
    _place: Place<String>,
}

impl Stream {
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some((Ok(frame), self));
            }
            if self.is_over {
                return None;
            }
            let is_stopping = async { self.stopping.wait_for(|stop| *stop).await.is_ok() };
            let reason = tokio::select! {
                _ = is_stopping => Some("the region stops"),
                () = tokio::time::sleep_until(self.ends) => Some("no stream lasts for ever"),
                _ = self.ping.tick() => match self.right.holds().await {
                    true => {
                        self.ready.push_back(event("ping", self.position, "{}"));
                        None
                    }
                    false => Some("the caller's rights have changed"),
                },
                lines = self.follow.next() => match lines {
                    Ok(lines) => {
                        for (line, position) in lines {
                            self.position = position;
                            self.ready.push_back(event("line", position, &json(&line)));
                        }
                        None
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a log cannot be followed");
                        Some("the log cannot be read")
                    }
                },
            };
            if let Some(reason) = reason {
                let message = serde_json::json!({"message": format!("{reason}; go on from here")});
                self.ready.push_back(event("cut", self.position, &message.to_string()));
                self.is_over = true;
            }
        }
    }
}
