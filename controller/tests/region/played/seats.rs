//! The region processes of a site, and the racks' lines to them.

use super::rack::Rack;
use super::world::World;
use basalt_api::values::Uid;
use basalt_db::{NewFact, Store};
use basalt_engine::Policy;
use basalt_proto::rack_v1::FromRegion;
use basalt_region::driver::Driver;
use basalt_region::driver::entries::common::Common;
use basalt_region::driver::entries::rack::WrittenConcerns;
use basalt_region::driver::kill::KillPoints;
use basalt_region::driver::meters::Meters;
use basalt_region::driver::topology::Topology;
use basalt_region::racks::observed::{Hello, Observed};
use basalt_region::racks::sessions::{Registered, Sessions};
use basalt_region::telemetry::Telemetry;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Deadlines are the table's divided by this; the model's firmware and agents are quick enough.
const FASTER: u32 = 4;

/// One region process.
pub(crate) struct Seat {
    pub(crate) store: Store,
    pub(crate) driver: Driver,
    /// One line for each rack.
    pub(super) lines: Vec<Line>,
}

/// A rack's line to a region.
pub(super) struct Line {
    pub(super) inbox: mpsc::Receiver<Result<FromRegion, tonic::Status>>,
    pub(super) link: Option<Registered>,
}

impl Line {
    fn cut() -> Self {
        Self { inbox: mpsc::channel(1).1, link: None }
    }
}

impl World {
    /// Starts a process on a store, with a line from each rack.
    pub(super) async fn seat(&self, store: Store) -> Seat {
        let sessions = Sessions::new(self.now);
        let driver = Driver {
            store: store.clone(),
            topology: Topology::new(sessions.clone()),
            common: Common::default(),
            written: WrittenConcerns::default(),
            sessions,
            policy: Policy::default().compressed(FASTER),
            kill: KillPoints::default(),
            owner: Uid::generate(),
            meters: Meters::default(),
            telemetry: Telemetry::default(),
            allocator: Arc::default(),
        };
        let mut seat = Seat { store, driver, lines: Vec::new() };
        for rack in &self.racks {
            let line = if rack.alive { self.connect(&seat, rack).await } else { Line::cut() };
            seat.lines.push(line);
        }
        seat
    }

    async fn connect(&self, seat: &Seat, rack: &Rack) -> Line {
        let place = self.racks.iter().position(|other| other.uid == rack.uid).expect("one of them");
        let addresses = vec![format!("10.77.0.{}/16", place + 1).into()];
        let (kind, body) = Observed::Hello(Hello { addresses, ..Hello::default() }).stored();
        let fact = NewFact {
            seq: 0,
            object: Some(rack.uid.into()),
            mac: None,
            kind,
            step_key: None,
            attempt: None,
            body,
            observed_at: self.now,
            wakes: true,
        };
        seat.store.store_own_fact(&fact).await.expect("stored");
        let (sender, inbox) = mpsc::channel(256);
        let link = Some(seat.driver.sessions.register(rack.uid, sender, self.now));
        seat.store.enqueue(rack.uid.into(), Duration::ZERO).await.expect("woken");
        seat.store.enqueue_kind("Machine").await.expect("woken");
        Line { inbox, link }
    }

    /// A rack's line to a region fails, or is connected again if the rack is alive.
    pub(crate) async fn line(&mut self, seat: usize, rack: usize, up: bool) {
        if up && self.racks[rack].alive && !self.has_line(seat, rack) {
            let line = self.connect(&self.seats[seat], &self.racks[rack]).await;
            self.seats[seat].lines[rack] = line;
        } else if !up {
            self.seats[seat].lines[rack].link = None;
            self.seats[seat].store.enqueue_kind("Machine").await.expect("woken");
        }
    }

    pub(crate) fn has_line(&self, seat: usize, rack: usize) -> bool {
        self.seats[seat].lines[rack].link.is_some()
    }

    /// A rack's process dies, with all that it has received and not read, or starts again.
    pub(crate) async fn rack(&mut self, rack: usize, alive: bool) {
        self.racks[rack].alive = alive;
        for seat in 0..self.seats.len() {
            self.line(seat, rack, alive).await;
            if !alive {
                self.seats[seat].lines[rack] = Line::cut();
            }
        }
    }

    /// A region's process is killed, and another one starts in its place.
    pub(crate) async fn restart(&mut self, seat: usize) {
        let store = self.seats[seat].store.clone();
        let fresh = self.seat(store).await;
        self.seats[seat] = fresh;
        // As each process does when it starts.
        self.store().enqueue_all().await.expect("woken");
    }
}
