//! The hub of watches: one task per region reads each change once, and passes it to every reader.
//!
//! An event has the object as the task reads it, which may be later than its position. Two rules keep objects from going back to an
//! older state. A reader joins while the task reads nothing, so every event that it gets was read after it joined. And it compares
//! objects that it reads itself, to catch up, with those from the hub by [`version`](basalt_db::Changed::version).

use super::super::names::{self, Names};
use super::super::problem::{Answer, Refusal};
use super::super::waiting::WaitsFor;
use super::super::{App, render};
use super::frame::Frames;
use super::view::View;
use axum::body::Bytes;
use basalt_api::Kind;
use basalt_api::values::Uid;
use basalt_api::watch::CutReason;
use basalt_db::{Changed, StoreError};
use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Mutex, OnceCell, mpsc, watch};

/// The number of changes per read.
const PAGE: i64 = 256;

/// The number of events that may wait for one reader.
const QUEUE: usize = 1024;

/// The largest number of readers of one region.
const READERS: usize = 1000;

/// The largest number of readers of one [holder](super::view::View::holder). A program that opens a watch in each run and closes none
/// must leave places for others.
const SHARE: usize = 250;

/// Places for admins only. They must be able to watch when all other places are taken.
const RESERVE: usize = 100;

/// How often and how long the task waits while a queue is half full: a burst must not cut a reader that only needs a moment.
const PACE: (u32, Duration) = (20, Duration::from_millis(10));

/// The longest wait until the task has passed on earlier commits. An open transaction can hold it back for longer.
const CATCH_UP: Duration = Duration::from_secs(1);

/// The pause after the database did not answer.
const PAUSE: Duration = Duration::from_secs(1);

/// The hub, with its counters.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    state: Mutex<State>,
    /// The position of the state, for tasks that wait for it.
    passed: watch::Sender<i64>,
    /// The number of bytes that may wait for one reader, in addition to one event.
    bytes: usize,
    /// The number of open watches.
    pub(super) open: AtomicUsize,
    /// The number of watches that were cut, in the order of [`CutReason::ALL`].
    cuts: [AtomicU64; CutReason::ALL.len()],
    /// The number of events passed to readers.
    events: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Everything up to this position was passed on.
    position: i64,
    readers: Vec<Reader>,
}

#[derive(Debug)]
struct Reader {
    view: Arc<View>,
    queue: mpsc::Sender<Handed>,
    shared: Arc<Shared>,
    /// Objects outside of the reader's view. The reader was informed that they are hidden.
    hidden: HashSet<Uid>,
    /// True if the reader and this task had caught up before the page was read. Until then the reader may know a newer state than the
    /// event's, and skip the event: so it does not count as told.
    is_settled: bool,
}

/// State that the task and one reader share.
#[derive(Debug, Default)]
struct Shared {
    /// Everything up to this position is or was in the queue.
    through: AtomicI64,
    bytes: AtomicUsize,
    cut: OnceLock<CutReason>,
    /// From this position on, the reader reads nothing from the log by itself, and skips no event.
    settled: AtomicI64,
}

/// One event for one reader.
#[derive(Debug)]
pub(super) struct Handed {
    pub(super) position: i64,
    pub(super) version: i64,
    pub(super) uid: Uid,
    pub(super) frame: Bytes,
}

/// The reader's end of a queue.
#[derive(Debug)]
pub(super) struct Seat {
    /// The position of the task when the reader joined.
    pub(super) joined_at: i64,
    queue: mpsc::Receiver<Handed>,
    shared: Arc<Shared>,
}

impl Seat {
    /// The next event, or the reason why there are no more.
    pub(super) async fn next(&mut self) -> Result<Handed, CutReason> {
        match self.queue.recv().await {
            Some(handed) => Ok(self.taken(handed)),
            None => Err(self.shared.cut.get().copied().unwrap_or(CutReason::Stopping)),
        }
    }

    /// A waiting event, or else the position up to which there is none.
    pub(super) fn now(&mut self) -> Result<Handed, i64> {
        // Read before the queue: every event up to this position is in the queue or was taken from it.
        let through = self.shared.through.load(Ordering::Acquire);
        self.queue.try_recv().map(|handed| self.taken(handed)).map_err(|_| through)
    }

    /// Notes that the reader reads nothing from the log by itself any more, and skips no event after `told`.
    pub(super) fn settled(&self, told: i64) {
        self.shared.settled.store(told, Ordering::Release);
    }

    fn taken(&self, handed: Handed) -> Handed {
        self.shared.bytes.fetch_sub(handed.frame.len(), Ordering::Relaxed);
        handed
    }
}

impl Hub {
    /// A hub for a follower at `position`. `bytes` may wait for one reader, in addition to one event.
    pub(crate) fn new(position: i64, bytes: usize) -> Self {
        let state = Mutex::new(State { position, readers: Vec::new() });
        Self { state, passed: watch::Sender::new(position), bytes, ..Self::default() }
    }

    /// Waits until everything up to a position was passed on, or for a moment.
    pub(super) async fn catch_up(&self, position: i64) {
        let mut passed = self.passed.subscribe();
        let _ = tokio::time::timeout(CATCH_UP, passed.wait_for(|at| *at >= position)).await;
    }

    fn at(&self, state: &mut State, position: i64) {
        state.position = position;
        self.passed.send_replace(position);
    }

    /// A seat for a new reader. From now on everything after `joined_at` comes into its queue.
    pub(super) async fn join(&self, view: Arc<View>) -> Answer<Seat> {
        let mut state = self.state.lock().await;
        state.readers.retain(|reader| !reader.queue.is_closed());
        let joined_at = state.position;
        admit(&state.readers, &view)?;
        let (queue, receiver) = mpsc::channel(QUEUE);
        let (through, settled) = (AtomicI64::new(joined_at), AtomicI64::new(i64::MAX));
        let shared = Arc::new(Shared { through, settled, ..Shared::default() });
        let reader =
            Reader { view, queue, shared: shared.clone(), hidden: HashSet::new(), is_settled: false };
        state.readers.push(reader);
        Ok(Seat { joined_at, queue: receiver, shared })
    }

    pub(super) fn count_cut(&self, reason: CutReason) {
        let place = CutReason::ALL.iter().position(|r| *r == reason);
        if let Some(counter) = place.and_then(|place| self.cuts.get(place)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number of watches that were cut, for each reason.
    pub(crate) fn cuts(&self) -> impl Iterator<Item = (CutReason, u64)> {
        let counts = self.cuts.iter().map(|count| count.load(Ordering::Relaxed));
        CutReason::ALL.iter().copied().zip(counts)
    }

    /// The number of open watches.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// The number of events passed to readers.
    pub(crate) fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }
}

/// Refuses a reader if there is no place for it.
fn admit(readers: &[Reader], view: &View) -> Answer<()> {
    let holder = view.holder();
    if readers.iter().filter(|reader| reader.view.holder() == holder).count() >= SHARE {
        return Err(Refusal::unavailable(format!(
            "{holder} has {SHARE} watches open at this region, as many as one may have; end some of them, or watch more kinds with each"
        )));
    }
    let places = if view.is_of_admin() { READERS } else { READERS.saturating_sub(RESERVE) };
    if readers.len() >= places {
        return Err(Refusal::unavailable(format!("{places} watches are open at this region; try again")));
    }
    Ok(())
}

/// The hub's task. It ends when the region stops.
pub async fn run(app: App) {
    let mut stopping = app.stopping();
    let mut positions = app.follower().positions();
    while !*stopping.borrow() {
        let through = *positions.borrow_and_update();
        match hand_out(&app, through).await {
            Ok(true) => pace(app.watchers()).await,
            Ok(false) => {
                tokio::select! {
                    risen = positions.changed() => if risen.is_err() { break },
                    _ = stopping.changed() => {}
                }
            }
            Err(error) => {
                tracing::warn!(%error, "watchers are not told what changed; trying again");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    app.watchers().state.lock().await.readers.clear();
}

/// Reads one page up to `through` and passes it on. Returns true if it read anything.
async fn hand_out(app: &App, through: i64) -> Result<bool, StoreError> {
    let hub = app.watchers();
    let mut state = hub.state.lock().await;
    state.readers.retain(|reader| !reader.queue.is_closed());
    let position = state.position;
    if state.readers.is_empty() || position >= through {
        hub.at(&mut state, position.max(through));
        return Ok(false);
    }
    for reader in &mut state.readers {
        reader.is_settled = reader.shared.settled.load(Ordering::Acquire) <= position;
    }
    let page = app.store().changed(position, through, None, PAGE).await?;
    if app.store().compacted_through().await? > position {
        for reader in state.readers.drain(..) {
            let _ = reader.shared.cut.set(CutReason::Compacted);
            hub.count_cut(CutReason::Compacted);
        }
    }
    // Cut before the page is passed on: a reader must resume from before the change of its rights.
    for reader in &state.readers {
        if page.changed.iter().any(|changed| reader.view.rests_on(changed.uid)) {
            let _ = reader.shared.cut.set(CutReason::Rights);
        }
    }
    let frames = Frames(app.store().incarnation());
    for changed in page.changed {
        hand_one(app, &mut state.readers, frames, changed).await?;
    }
    state.readers.retain(|reader| match reader.shared.cut.get() {
        None => {
            reader.shared.through.store(page.through, Ordering::Release);
            true
        }
        // The reader did not get every event, so its bookmark does not advance.
        Some(reason) => {
            hub.count_cut(*reason);
            false
        }
    });
    hub.at(&mut state, page.through);
    Ok(true)
}

/// Renders one change once for all readers that see it.
async fn hand_one(
    app: &App,
    readers: &mut [Reader],
    frames: Frames,
    mut changed: Changed,
) -> Result<(), StoreError> {
    let object = changed.object.take();
    let covered = readers
        .iter_mut()
        .filter(|reader| reader.view.covers(&changed.kind) && reader.shared.cut.get().is_none());
    let covered: Vec<(&mut Reader, bool)> = covered
        .map(|reader| {
            let shown =
                object.as_ref().is_some_and(|object| reader.view.shows(object, changed.pool.as_deref()));
            (reader, shown)
        })
        .collect();
    let (position, version, uid) = (changed.position, changed.version, changed.uid);
    let has_left = object.is_none();
    let gone = frames.delete(&changed, object.as_ref());
    let shown_to =
        |limited| covered.iter().any(|(reader, shown)| *shown && reader.view.is_limited() == limited);
    let (mut for_all, mut for_limited) = (None, None);
    // The names of the objects that it waits for differ between readers, so there are two renderings.
    let differ = object.as_ref().is_some_and(|object| object.deletion_requested_at.is_some());
    if let Some(object) = object {
        if differ && shown_to(true) {
            for_limited = put(app, frames, position, object.clone(), true).await?;
        }
        if shown_to(false) || (!differ && shown_to(true)) {
            for_all = put(app, frames, position, object, false).await?;
        }
    }
    for (reader, shown) in covered {
        let put = if differ && reader.view.is_limited() { &for_limited } else { &for_all };
        let frame = match (put, shown) {
            (Some(put), true) => {
                reader.hidden.remove(&uid);
                put.for_reader(app, &reader.view).await?
            }
            // The object cannot be rendered.
            (None, true) => continue,
            (_, false) if !reader.view.knew(&changed) => continue,
            (_, false) if has_left => {
                let known_to_be_gone = reader.hidden.remove(&uid);
                if known_to_be_gone {
                    continue;
                }
                gone.clone()
            }
            (_, false) if !reader.is_settled || reader.hidden.insert(uid) => gone.clone(),
            (_, false) => continue,
        };
        reader.hand(Handed { position, version, uid, frame }, app.watchers().bytes);
        app.watchers().events.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// A frame of an object.
#[derive(Debug)]
pub(super) struct Rendering {
    frames: Frames,
    position: i64,
    kind: Option<&'static Kind>,
    frame: Bytes,
    /// The object as a JSON text.
    text: String,
    /// True if it may contain names that some readers may not see.
    may_name: bool,
    /// The names in it, read for the first of these readers and kept for all.
    names: OnceCell<Names>,
}

impl Rendering {
    /// The frame, with the names that this reader may see.
    pub(super) async fn for_reader(&self, app: &App, view: &View) -> Result<Bytes, StoreError> {
        let reworded = match self.may_name && view.is_limited() {
            true => {
                let names =
                    self.names.get_or_try_init(|| Names::of(app.store(), self.kind, &self.text)).await?;
                names.reworded(&|pool| view.sees(pool), &|_| false)
            }
            false => None,
        };
        if let Some(fields) = view.fields() {
            let text = reworded.as_ref().unwrap_or(&self.text);
            let whole = serde_json::from_str(text).unwrap_or_default();
            return Ok(self.frames.put(self.position, &render::sparse(&whole, fields).to_string()));
        }
        Ok(reworded.map_or_else(|| self.frame.clone(), |text| self.frames.put(self.position, &text)))
    }
}

/// The object's frame, for readers with all rights or for limited ones. An error is logged, and does not stop other objects.
pub(super) async fn put(
    app: &App,
    frames: Frames,
    position: i64,
    object: basalt_db::Object,
    limited: bool,
) -> Result<Option<Rendering>, StoreError> {
    let (kind, name) = (object.kind.clone(), object.name.clone());
    let waits_for = match object.deletion_requested_at {
        Some(_) if limited => WaitsFor::of_no_pool(app.store().referrers(object.uid).await?),
        Some(_) => WaitsFor::all(app.store().referrers(object.uid).await?),
        None => WaitsFor::default(),
    };
    match render::render(object, &waits_for).and_then(|rendered| rendered.text()) {
        Ok(text) => {
            let (kind, frame) = (Kind::find(&kind), frames.put(position, &text));
            let may_name = names::may_name(kind, &text);
            Ok(Some(Rendering { frames, position, kind, frame, text, may_name, names: OnceCell::new() }))
        }
        Err(refusal) => {
            tracing::error!(kind, name, ?refusal, "an object cannot be rendered, and watchers do not see it");
            Ok(None)
        }
    }
}

impl Reader {
    fn hand(&self, handed: Handed, most: usize) {
        let length = handed.frame.len();
        let waiting = self.shared.bytes.fetch_add(length, Ordering::Relaxed);
        let fits = waiting == 0 || waiting.saturating_add(length) <= most;
        if self.shared.cut.get().is_some() || !fits || self.queue.try_send(handed).is_err() {
            // A reader that misses one event must not get the later ones.
            let _ = self.shared.cut.set(CutReason::Slow);
        }
    }
}

async fn pace(hub: &Hub) {
    let (times, pause) = PACE;
    for _ in 0..times {
        let half_full = |reader: &Reader| {
            reader.queue.capacity() < QUEUE / 2 || reader.shared.bytes.load(Ordering::Relaxed) > hub.bytes / 2
        };
        if !hub.state.lock().await.readers.iter().any(half_full) {
            return;
        }
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::rights::{Rights, Role};
    use super::*;

    async fn watch(hub: &Hub, holder: &str, role: Role) -> Option<Seat> {
        hub.join(Arc::new(View::of(holder, Rights::everywhere(role)))).await.ok()
    }

    async fn open(hub: &Hub, holder: &str, role: Role) -> Vec<Seat> {
        let mut seats = Vec::new();
        while let Some(seat) = watch(hub, holder, role).await {
            seats.push(seat);
        }
        seats
    }

    #[tokio::test]
    async fn one_holder_takes_its_share_and_leaves_the_rest_to_others() {
        let hub = Hub::new(0, 1);
        let mut seats = open(&hub, "token greedy", Role::Viewer).await;
        assert_eq!(seats.len(), SHARE);
        assert!(watch(&hub, "token other", Role::Viewer).await.is_some());
        seats.pop();
        assert!(watch(&hub, "token greedy", Role::Viewer).await.is_some(), "a watch that ended is one less");
    }

    #[tokio::test]
    async fn admins_can_watch_when_others_took_all_places() {
        let hub = Hub::new(0, 1);
        let mut seats = Vec::new();
        for number in 0..10 {
            seats.extend(open(&hub, &format!("token {number}"), Role::Operator).await);
        }
        assert_eq!(seats.len(), READERS - RESERVE);
        seats.extend(open(&hub, "user root", Role::Admin).await);
        assert_eq!(seats.len(), READERS, "the reserve is theirs");
        assert!(watch(&hub, "user other", Role::Admin).await.is_none());
    }
}
