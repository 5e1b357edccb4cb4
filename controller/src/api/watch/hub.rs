//! One task per region reads what changed, once, and hands it to every reader.
//!
//! An event holds the object as it is when the task reads it, which may be later than its position; so two rules keep objects
//! from going back. A reader joins while the task reads nothing: whatever it is handed was read after it joined. And what
//! it reads itself, to catch up, it compares with what it is handed by [`version`](basalt_db::Changed::version).

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

/// Changes read at once.
const PAGE: i64 = 256;

/// Events that may wait for one reader.
const QUEUE: usize = 1024;

/// Readers of one region.
const READERS: usize = 1000;

/// Readers of one [holder](super::view::View::holder). A program that opens a watch in each run and ends none leaves the rest to
/// others.
const SHARE: usize = 250;

/// Places that only admins may take. They must be able to watch when others took all the rest.
const RESERVE: usize = 100;

/// While somebody's queue is half full the task waits, so that a burst does not cut who merely needs a moment; at most so often
/// and so long.
const PACE: (u32, Duration) = (20, Duration::from_millis(10));

/// For the task to hand out what was committed before. Whoever holds a transaction open holds it back longer.
const CATCH_UP: Duration = Duration::from_secs(1);

/// After the database did not answer.
const PAUSE: Duration = Duration::from_secs(1);

/// The fan-out, and what is counted of it.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    state: Mutex<State>,
    /// The state's position, for who waits for it.
    passed: watch::Sender<i64>,
    /// Bytes that may wait for one reader, beside one event.
    bytes: usize,
    /// Watches that are open.
    pub(super) open: AtomicUsize,
    /// Watches that were cut, by the place of the reason in [`CutReason::ALL`].
    cuts: [AtomicU64; CutReason::ALL.len()],
    /// Events handed to readers.
    events: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Everything up to here was handed out.
    position: i64,
    readers: Vec<Reader>,
}

#[derive(Debug)]
struct Reader {
    view: Arc<View>,
    queue: mpsc::Sender<Handed>,
    shared: Arc<Shared>,
    /// Objects that it does not show, and has said so.
    hidden: HashSet<Uid>,
    /// Before the page was read it had caught up, and this task with it. Until then it may have been told of something newer than what
    /// it is handed, and pass that over: so nothing counts as said.
    is_settled: bool,
}

/// Between the task and one reader.
#[derive(Debug, Default)]
struct Shared {
    /// Everything up to here is in the queue, or was.
    through: AtomicI64,
    bytes: AtomicUsize,
    cut: OnceLock<CutReason>,
    /// It reads nothing from the log by itself any more, and passes over nothing after this.
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

/// A reader's end.
#[derive(Debug)]
pub(super) struct Seat {
    /// Where the task was when it joined.
    pub(super) joined_at: i64,
    queue: mpsc::Receiver<Handed>,
    shared: Arc<Shared>,
}

impl Seat {
    /// The next event, or why there are no more.
    pub(super) async fn next(&mut self) -> Result<Handed, CutReason> {
        match self.queue.recv().await {
            Some(handed) => Ok(self.taken(handed)),
            None => Err(self.shared.cut.get().copied().unwrap_or(CutReason::Stopping)),
        }
    }

    /// An event that waits, or else the position up to which there is none.
    pub(super) fn now(&mut self) -> Result<Handed, i64> {
        // Before the look into the queue: what it covers is in the queue, or was taken from it.
        let through = self.shared.through.load(Ordering::Acquire);
        self.queue.try_recv().map(|handed| self.taken(handed)).map_err(|_| through)
    }

    /// Says that it reads nothing from the log by itself any more, and passes over nothing after `told`.
    pub(super) fn settled(&self, told: i64) {
        self.shared.settled.store(told, Ordering::Release);
    }

    fn taken(&self, handed: Handed) -> Handed {
        self.shared.bytes.fetch_sub(handed.frame.len(), Ordering::Relaxed);
        handed
    }
}

impl Hub {
    /// Of a follower that is at `position`; so many bytes may wait for one reader, beside one event.
    pub(crate) fn new(position: i64, bytes: usize) -> Self {
        let state = Mutex::new(State { position, readers: Vec::new() });
        Self { state, passed: watch::Sender::new(position), bytes, ..Self::default() }
    }

    /// Waits until everything up to a position was handed out, or for a moment.
    pub(super) async fn catch_up(&self, position: i64) {
        let mut passed = self.passed.subscribe();
        let _ = tokio::time::timeout(CATCH_UP, passed.wait_for(|at| *at >= position)).await;
    }

    fn at(&self, state: &mut State, position: i64) {
        state.position = position;
        self.passed.send_replace(position);
    }

    /// A seat for a reader. From now on everything after `joined_at` comes into its queue.
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

    /// How many watches were cut for each reason.
    pub(crate) fn cuts(&self) -> impl Iterator<Item = (CutReason, u64)> {
        let counts = self.cuts.iter().map(|count| count.load(Ordering::Relaxed));
        CutReason::ALL.iter().copied().zip(counts)
    }

    /// How many watches are open.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// How many events were handed to readers.
    pub(crate) fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }
}

/// Refuses one more reader where there is no place for it.
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

/// The task. It ends when the region stops.
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

/// Reads one page up to `through` and hands it out; says whether it read anything.
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
    // Before anything of the page: whoever resumes does so from before the change of its rights.
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
        // It was not handed everything: its bookmarks stay where they are.
        Some(reason) => {
            hub.count_cut(*reason);
            false
        }
    });
    hub.at(&mut state, page.through);
    Ok(true)
}

/// Renders one change, once for all, where anybody is shown it.
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
    // Those whom an object waits for are told apart before it is rendered.
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
            // It cannot be rendered.
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
    /// The object as JSON.
    text: String,
    /// It may name what some readers do not see.
    may_name: bool,
    /// The names in it, asked for the first of these readers, and kept for all.
    names: OnceCell<Names>,
}

impl Rendering {
    /// The frame as this reader may read it.
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

/// The object's frame, for who sees everything, or only some pools. One that cannot be rendered is in the log, and stops nobody else's.
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
            // Never one event without those before it.
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
