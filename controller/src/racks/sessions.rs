//! The streams of racks to this region process.
//!
//! Every rack dials every region process, so a process can reach a rack only through its own stream.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use basalt_api::values::{RackId, Timestamp};
use basalt_proto::rack_v1::FromRegion;
use basalt_proto::rack_v1::from_region::Message;
use tokio::sync::{mpsc, watch};
use tonic::Status;

use super::concerns::Bodies;
use super::meters::Meters;

/// The number of messages that may wait for a slow rack. If more wait, the rack is cut off, and dials again.
pub const BACKLOG: usize = 256;

type Sender = mpsc::Sender<Result<FromRegion, Status>>;

#[derive(Debug)]
struct Session {
    number: u64,
    sender: Sender,
    since: Timestamp,
    began: Instant,
}

#[derive(Debug)]
struct Inner {
    /// The open streams of each connected rack, the newest last. A rack that knows two addresses of this process has two.
    sessions: HashMap<RackId, Vec<Session>>,
    /// When the last session of a rack ended, by the database's clock.
    ended: HashMap<RackId, Timestamp>,
    started: Timestamp,
    next: u64,
}

/// The regions of this database, by the addresses that racks dial, `HOST:PORT`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// This process's address, if it knows its own.
    pub own: Option<String>,
    /// The other living processes.
    pub living: BTreeSet<String>,
    /// All regions that racks are told to dial.
    pub all: BTreeSet<String>,
}

/// The connected racks. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Sessions(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    inner: Mutex<Inner>,
    meters: Meters,
    bodies: Arc<Bodies>,
    regions: watch::Sender<Known>,
    /// True once this process ends.
    closing: watch::Sender<bool>,
}

/// Ends a session when it is dropped. The rack stays connected through its other sessions.
#[derive(Debug)]
pub struct Registered {
    sessions: Sessions,
    rack: RackId,
    number: u64,
}

impl Sessions {
    /// No rack is connected yet. `now` is the time of the database's clock.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        let (sessions, ended) = (HashMap::new(), HashMap::new());
        let inner = Mutex::new(Inner { sessions, ended, started: now, next: 0 });
        let (regions, closing) = (watch::Sender::new(Known::default()), watch::Sender::new(false));
        let (meters, bodies) = (Meters::default(), Arc::default());
        Self(Arc::new(Shared { inner, meters, bodies, regions, closing }))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counters of the racks' port.
    #[must_use]
    pub fn meters(&self) -> &Meters {
        &self.0.meters
    }

    /// The bodies of concerns that racks were sent last.
    #[must_use]
    pub fn bodies(&self) -> Arc<Bodies> {
        Arc::clone(&self.0.bodies)
    }

    /// The regions of this database; empty until this process has looked for the others.
    #[must_use]
    pub fn regions(&self) -> watch::Receiver<Known> {
        self.0.regions.subscribe()
    }

    /// Sets the regions. Every rack is told of a change.
    pub(super) fn set_regions(&self, regions: Known) {
        self.0.regions.send_if_modified(|known| {
            let is_news = *known != regions;
            *known = regions;
            is_news
        });
    }

    /// Ends every stream. Racks then use other processes, and dial this one again when it is back.
    pub fn close(&self) {
        self.0.closing.send_replace(true);
    }

    /// Completes when the streams are to end.
    pub(super) async fn closed(&self) {
        let mut closing = self.0.closing.subscribe();
        let _ = closing.wait_for(|closing| *closing).await;
    }

    /// Registers a rack's open stream. `since` is the time of the database's clock.
    #[must_use]
    pub fn register(&self, rack: RackId, sender: Sender, since: Timestamp) -> Registered {
        let mut inner = self.lock();
        inner.next += 1;
        let number = inner.next;
        let session = Session { number, sender, since, began: Instant::now() };
        inner.sessions.entry(rack).or_default().push(session);
        Registered { sessions: self.clone(), rack, number }
    }

    /// When a rack connected to this process; `None`: it is not connected.
    #[must_use]
    pub fn since(&self, rack: RackId) -> Option<Timestamp> {
        self.lock().sessions.get(&rack)?.last().map(|session| session.since)
    }

    /// When a rack that is not connected was lost: the end of its last stream, or the start of this process.
    #[must_use]
    pub fn left(&self, rack: RackId) -> Timestamp {
        let inner = self.lock();
        inner.ended.get(&rack).copied().unwrap_or(inner.started)
    }

    /// When the last stream of a rack to this process ended.
    #[must_use]
    pub fn ended(&self, rack: RackId) -> Option<Timestamp> {
        self.lock().ended.get(&rack).copied()
    }

    /// The number of racks that are connected to this process.
    #[must_use]
    pub fn connected(&self) -> usize {
        self.lock().sessions.len()
    }

    /// Sends a message on a rack's newest open stream. Returns false if the rack is not connected, or does not read.
    #[must_use]
    pub fn send(&self, rack: RackId, message: Message) -> bool {
        let Some(sender) = self.sender(rack) else { return false };
        let Ok(place) = sender.try_reserve() else { return false };
        // Counted before the message goes out, and so before its answer can arrive.
        self.meters().told(rack, &message);
        place.send(Ok(FromRegion { message: Some(message) }));
        true
    }

    fn sender(&self, rack: RackId) -> Option<Sender> {
        let inner = self.lock();
        let open = inner.sessions.get(&rack)?.iter().rev().find(|session| !session.sender.is_closed());
        open.map(|session| session.sender.clone())
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut inner = self.sessions.lock();
        let Some(open) = inner.sessions.get_mut(&self.rack) else { return };
        let Some(place) = open.iter().position(|session| session.number == self.number) else { return };
        let session = open.remove(place);
        if open.is_empty() {
            let ended = session.since.checked_add(session.began.elapsed()).unwrap_or(session.since);
            inner.sessions.remove(&self.rack);
            inner.ended.insert(self.rack, ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_proto::rack_v1::Ping;

    #[test]
    fn an_old_session_that_ends_late_does_not_end_the_new_one() {
        let sessions = Sessions::new(Timestamp::UNIX_EPOCH);
        let rack = RackId::from(uuid::Uuid::from_u128(1));
        let (old_sender, _old) = mpsc::channel(1);
        let (sender, mut new) = mpsc::channel(1);
        let old = sessions.register(rack, old_sender, Timestamp::UNIX_EPOCH);
        let kept = sessions.register(rack, sender, Timestamp::UNIX_EPOCH);
        drop(old);
        assert!(sessions.send(rack, Message::Ping(Ping { nonce: 1 })));
        assert!(new.try_recv().is_ok());
        drop(kept);
        assert!(!sessions.send(rack, Message::Ping(Ping { nonce: 2 })));
        assert!(
            sessions.left(rack) > Timestamp::UNIX_EPOCH,
            "it has just gone, however little it had to say"
        );
    }

    #[test]
    fn a_rack_whose_newest_stream_ends_is_connected_by_the_one_before() {
        let sessions = Sessions::new(Timestamp::UNIX_EPOCH);
        let rack = RackId::from(uuid::Uuid::from_u128(1));
        let at = |second| Timestamp::from_second(second).unwrap();
        let (sender, mut older) = mpsc::channel(1);
        let (newer_sender, newer) = mpsc::channel(1);
        let kept = sessions.register(rack, sender, at(1));
        let ends = sessions.register(rack, newer_sender, at(2));
        assert_eq!((sessions.connected(), sessions.since(rack)), (1, Some(at(2))));
        // The rack has closed the stream, but the stream's task has not noticed yet.
        drop(newer);
        assert!(sessions.send(rack, Message::Ping(Ping { nonce: 1 })));
        assert!(older.try_recv().is_ok());
        drop(ends);
        assert_eq!((sessions.connected(), sessions.since(rack)), (1, Some(at(1))));
        assert_eq!(sessions.ended(rack), None, "it is still here");
        assert!(sessions.send(rack, Message::Ping(Ping { nonce: 2 })));
        drop(kept);
        assert_eq!((sessions.connected(), sessions.since(rack)), (0, None));
        assert!(sessions.ended(rack).is_some());
    }
}
