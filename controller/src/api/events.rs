//! Past and new events of the region (`GET /api/v1/events`).

use super::caller::Caller;
use super::names::{self, Names};
use super::problem::{Answer, Refusal};
use super::query::{limit, parameters};
use super::rights::ACCESS;
use super::{App, audit, body, guard};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Uri, header};
use axum::response::{IntoResponse, Response};
use basalt_api::values::{Timestamp, Uid};
use basalt_api::watch::{EVENT_STREAM, LAST_EVENT_ID};
use basalt_api::wire::{EventEntry, EventPage, EventSort};
use basalt_api::{FieldCode, Kind};
use basalt_db::{Event, EventQuery, Key};
use basalt_engine::steps::StepId;
use basalt_proto::places::Place;
use serde::Deserialize;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior};

/// Time between two queries of a stream.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Events per query.
const AT_ONCE: i64 = 500;
/// Lifetime of a stream; then the client must request it again.
const LIFE: Duration = Duration::from_secs(3600);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    kinds: Option<String>,
    object: Option<String>,
    since: Option<Timestamp>,
    limit: Option<i64>,
    #[serde(rename = "continue")]
    next: Option<String>,
    #[serde(default)]
    follow: bool,
}

/// A filter of events: the request's parameters, and the caller's rights.
struct Wanted {
    kinds: Option<Vec<String>>,
    uid: Option<Uid>,
    since: Option<Timestamp>,
    /// The pools of a reader who sees only some pools.
    pools: Option<Vec<String>>,
}

impl Wanted {
    async fn new(app: &App, caller: &Caller, parameters: &Parameters) -> Answer<Self> {
        let words = parameters.kinds.iter().flat_map(|kinds| kinds.split(',')).map(str::trim);
        let mut kinds = Vec::new();
        for word in words.filter(|word| !word.is_empty()) {
            kinds.push(body::kind(word).or_else(|refusal| Kind::find(word).ok_or(refusal))?.name.to_owned());
        }
        let subject = parameters.object.as_deref().map(audit::subject).transpose()?.unwrap_or_default();
        let uid = match (subject.uid, subject.kind, subject.name) {
            (None, Some(kind), Some(name)) => {
                let object = app.store().get(kind, Key::Name(name)).await?;
                if let Some(kind) = Kind::find(kind) {
                    caller.sees(app, kind, Key::Uid(object.uid)).await?;
                }
                Some(object.uid)
            }
            (uid, kind, _) => {
                kinds.extend(kind.map(str::to_owned));
                uid
            }
        };
        let pools = caller.rights.visible_pools().map(|pools| pools.into_iter().collect());
        let kinds = Some(kinds).filter(|kinds| !kinds.is_empty());
        Ok(Self { kinds, uid, since: parameters.since, pools })
    }

    fn query(&self) -> EventQuery<'_> {
        EventQuery {
            kinds: self.kinds.as_deref(),
            uid: self.uid,
            since: self.since,
            pools: self.pools.as_deref(),
            hidden: &ACCESS,
        }
    }
}

pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    uri: Uri,
) -> Answer<Response> {
    let parameters: Parameters = parameters(&uri)?;
    let limit = limit(parameters.limit)?;
    let before = parameters.next.as_deref().map(id).transpose()?;
    let wanted = Wanted::new(&app, &caller, &parameters).await?;
    if !parameters.follow {
        let page = app.store().events_before(&wanted.query(), before, limit).await?;
        let items = page.events.into_iter().map(|event| entry(event, wanted.pools.is_none())).collect();
        return Ok(Json(EventPage { items, next: page.next.map(|id| id.to_string()) }).into_response());
    }
    let resumed = headers.get(LAST_EVENT_ID).map(|value| id(value.to_str().unwrap_or("?"))).transpose()?;
    let place = app.rooms().events.take(&caller)?;
    let mut ready = VecDeque::new();
    let position = match resumed {
        Some(id) => id,
        None => {
            let horizon = app.store().event_horizon(0).await?;
            let page =
                app.store().events_before(&wanted.query(), Some(horizon.saturating_add(1)), limit).await?;
            ready = frames(&app, &caller, page.events.into_iter().rev().collect()).await?;
            horizon
        }
    };
    // Sent if there is nothing new. At each ping the region also checks that the caller still has the right to follow.
    let mut ping = tokio::time::interval(app.0.parts.bookmark_every);
    ping.reset();
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let stopping = app.stopping();
    let ends = Instant::now() + LIFE;
    let stream = Stream {
        app,
        caller,
        headers,
        wanted,
        ready,
        position,
        ping,
        look,
        ends,
        stopping,
        is_over: false,
        _place: place,
    };
    let body = Body::from_stream(futures_util::stream::unfold(stream, Stream::next));
    Ok(([(header::CONTENT_TYPE, EVENT_STREAM), (header::CACHE_CONTROL, "no-store")], body).into_response())
}

fn id(text: &str) -> Answer<i64> {
    text.parse().map_err(|_| {
        let message = format!("{text:?} in continue is not from the page before");
        Refusal::field(
            "/continue",
            FieldCode::Format,
            message,
            "`continue` of the page before, or an event's id",
        )
    })
}

/// An event as the API returns it. A reader of some pools does not see accounts, so the actor has no name then.
fn entry(event: Event, names_actors: bool) -> EventEntry {
    let Event { id, at, what, kind, uid, name, words, detail, actor } = event;
    let step = || {
        let step: Result<StepId, _> = serde_json::from_value(words.clone().into());
        step.map_or_else(|_| words.clone(), |step| step.spec().says.to_owned())
    };
    let sort = EventSort::parse(&what);
    let words = match (sort, &detail) {
        (EventSort::Began, _) => format!("has begun: {}", step()),
        (EventSort::Ended, None) => format!("is done: {}", step()),
        (EventSort::Ended, Some(_)) => format!("has failed: {}", step()),
        (EventSort::Phase, _) => format!("is {words}"),
        (EventSort::Stalled, _) => format!("is stuck: {words}"),
        (EventSort::Written | EventSort::Left, _) => words,
    };
    let actor = match (names_actors, actor.split_once(' ')) {
        (false, Some((sort, _))) => sort.to_owned(),
        _ => actor,
    };
    EventEntry { id: id.to_string(), at, sort, kind, uid, name, words, detail, actor }
}

/// Events as frames, without names that the caller must not see.
async fn frames(app: &App, caller: &Caller, events: Vec<Event>) -> Answer<VecDeque<Bytes>> {
    let mut frames = VecDeque::with_capacity(events.len());
    let names_actors = caller.rights.visible_pools().is_none();
    for event in events {
        let id = event.id;
        let mut text = serde_json::to_string(&entry(event, names_actors)).unwrap_or_default();
        if caller.rights.unlimited().is_none() && names::may_name(None, &text) {
            let names = Names::of(app.store(), None, &text).await?;
            text = names.reworded(&|pool| caller.rights.over(pool).is_some(), &|_| false).unwrap_or(text);
        }
        frames.push_back(frame("event", id, &text));
    }
    Ok(frames)
}

fn frame(event: &str, id: i64, data: &str) -> Bytes {
    Bytes::from(format!("id: {id}\nevent: {event}\ndata: {data}\n\n"))
}

/// A stream of events.
struct Stream {
    app: App,
    caller: Caller,
    headers: HeaderMap,
    wanted: Wanted,
    ready: VecDeque<Bytes>,
    /// All events up to this id were sent.
    position: i64,
    ping: Interval,
    look: Interval,
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
                _ = self.ping.tick() => {
                    // If the database does not answer, the caller keeps the right.
                    let unchanged = guard::is_unchanged(&self.app, &self.headers, &self.caller).await;
                    match matches!(unchanged, Ok(false)) {
                        true => Some("the caller's rights have changed"),
                        false => {
                            self.ready.push_back(frame("ping", self.position, "{}"));
                            None
                        }
                    }
                }
                _ = self.look.tick() => match self.look().await {
                    Ok(()) => None,
                    Err(_) => Some("the database does not answer"),
                },
            };
            if let Some(reason) = reason {
                let message = serde_json::json!({"message": format!("{reason}; go on from here")});
                self.ready.push_back(frame("cut", self.position, &message.to_string()));
                self.is_over = true;
            }
        }
    }

    /// Reads new events.
    async fn look(&mut self) -> Answer<()> {
        let horizon = self.app.store().event_horizon(self.position).await?;
        if horizon <= self.position {
            return Ok(());
        }
        let through = (self.position, horizon);
        let page = self.app.store().events_after(&self.wanted.query(), through, AT_ONCE).await?;
        self.ready = frames(&self.app, &self.caller, page.events).await?;
        self.position = page.next.unwrap_or(horizon);
        Ok(())
    }
}
