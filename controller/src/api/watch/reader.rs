//! One watch: it first catches up from the log, then continues with events from the hub.

use super::super::App;
use super::ahead::Ahead;
use super::frame::Frames;
use super::hub::{self, Handed, Seat};
use super::view::View;
use axum::body::Bytes;
use basalt_api::watch::CutReason;
use basalt_db::StoreError;
use std::collections::{HashSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior};

/// The number of changes per read while catching up. They wait in memory until the client has read them.
const PAGE: i64 = 32;

/// The longest life of a watch. The client must then ask again, which checks its rights.
const LIFE: Duration = Duration::from_secs(3600);

/// The state of one watch.
pub(super) struct Watch {
    app: App,
    frames: Frames,
    view: Arc<View>,
    seat: Seat,
    /// The log is read after this position; `None` once the watch has caught up.
    behind: Option<i64>,
    /// Everything up to this position was sent.
    told: i64,
    /// Objects that were sent in a newer state than the hub's events may have.
    ahead: Ahead,
    ready: VecDeque<(i64, Bytes)>,
    bookmarks: Interval,
    ends: Instant,
    stopping: watch::Receiver<bool>,
    over: bool,
}

enum Happened {
    Over(CutReason),
    Tick,
    Handed(Result<Handed, CutReason>),
}

impl Watch {
    pub(super) fn new(app: App, view: Arc<View>, seat: Seat, since: Option<i64>, every: Duration) -> Self {
        let told = since.unwrap_or(seat.joined_at);
        // The first bookmark comes at once: it shows that the watch has caught up.
        let mut bookmarks = tokio::time::interval(every);
        bookmarks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        app.watchers().open.fetch_add(1, Ordering::Relaxed);
        let behind = Some(told).filter(|told| *told < seat.joined_at);
        if behind.is_none() {
            // The position of a list may be ahead of the hub.
            seat.settled(told);
        }
        Self {
            frames: Frames(app.store().incarnation()),
            stopping: app.stopping(),
            behind,
            app,
            view,
            seat,
            told,
            ahead: Ahead::default(),
            ready: VecDeque::new(),
            bookmarks,
            ends: Instant::now() + LIFE,
            over: false,
        }
    }

    /// The next bytes; `None` at the end.
    pub(super) async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        loop {
            if let Some((position, frame)) = self.ready.pop_front() {
                self.told = self.told.max(position);
                return Some((Ok(frame), self));
            }
            if self.over {
                return None;
            }
            if let Some(after) = self.behind {
                match self.catch_up(after).await {
                    Ok(()) => {}
                    Err(reason) => self.cut(reason),
                }
                continue;
            }
            let Self { stopping, bookmarks, seat, ends, .. } = &mut self;
            let happened = tokio::select! {
                biased;
                _ = stopping.wait_for(|stop| *stop) => Happened::Over(CutReason::Stopping),
                () = tokio::time::sleep_until(*ends) => Happened::Over(CutReason::Renew),
                _ = bookmarks.tick() => Happened::Tick,
                handed = seat.next() => Happened::Handed(handed),
            };
            match happened {
                Happened::Over(reason) => self.cut(reason),
                Happened::Tick => match self.seat.now() {
                    Ok(handed) => self.take(handed),
                    Err(through) => {
                        self.told = self.told.max(through);
                        self.ready.push_back((self.told, self.frames.bookmark(self.told)));
                    }
                },
                Happened::Handed(Ok(handed)) => self.take(handed),
                // The hub has already counted it.
                Happened::Handed(Err(reason)) => self.end(reason),
            }
        }
    }

    /// Takes an event from the hub, unless the client knows the object in this state or a newer one.
    fn take(&mut self, handed: Handed) {
        let Handed { position, version, uid, .. } = handed;
        let known = self.ahead.knows(uid, version);
        self.ahead.tell(uid, position, version);
        if !known && position > self.told {
            self.ready.push_back((position, handed.frame));
        }
    }

    async fn catch_up(&mut self, after: i64) -> Result<(), CutReason> {
        let through = self.seat.joined_at;
        let unavailable = |error: StoreError| {
            tracing::warn!(%error, "a watch cannot catch up");
            CutReason::Unavailable
        };
        let (store, kinds) = (self.app.store(), self.view.kinds());
        let page = store.changed(after, through, kinds, PAGE).await.map_err(unavailable)?;
        if self.app.store().compacted_through().await.map_err(unavailable)? > after {
            return Err(CutReason::Compacted);
        }
        // A page has one reading of an object, so the object is sent once.
        let mut said = HashSet::new();
        for mut changed in page.changed {
            if !self.view.covers(&changed.kind) {
                continue;
            }
            let (uid, version) = (changed.uid, changed.version);
            let frame = match changed.object.take() {
                Some(object) if self.view.shows(&object, changed.pool.as_deref()) => {
                    let put =
                        hub::put(&self.app, self.frames, changed.position, object, self.view.is_limited());
                    match put.await.map_err(unavailable)? {
                        Some(put) => Some(put.for_reader(&self.app, &self.view).await.map_err(unavailable)?),
                        None => None,
                    }
                }
                object if self.view.knew(&changed) => Some(self.frames.delete(&changed, object.as_ref())),
                _ => None,
            };
            let frame = frame.filter(|_| said.insert(uid));
            // An object that was not sent stays unknown: the hub may still have to report its deletion.
            if frame.is_some() {
                self.ahead.tell(uid, through, version);
            }
            self.ready.extend(frame.map(|frame| (changed.position, frame)));
        }
        self.behind = Some(page.through).filter(|at| *at < through);
        if self.behind.is_none() {
            self.seat.settled(through);
        }
        Ok(())
    }

    fn cut(&mut self, reason: CutReason) {
        self.app.watchers().count_cut(reason);
        self.end(reason);
    }

    fn end(&mut self, reason: CutReason) {
        self.ready.push_back((self.told, self.frames.cut(self.told, reason)));
        self.over = true;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.app.watchers().open.fetch_sub(1, Ordering::Relaxed);
    }
}
