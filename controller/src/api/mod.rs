//! The REST API (port 5240 and DIR/api.sock). It is generic: a kind is whatever [`basalt_api::KINDS`] lists.
//!
//! | module | is |
//! | --- | --- |
//! | [`endpoints`] | the table of endpoints, and which role each needs |
//! | `guard`, `caller` | who asks, and whether they may |
//! | [`rights`] | roles and pools: what somebody may do and see |
//! | `session`, `cookie`, `logins`, `bucket`, `tokens` | logins, also of browsers, and how often they may be tried; the texts of ApiTokens |
//! | `audit` | who wrote what |
//! | `guards` | what stands against a write or a removal |
//! | `objects`, `body`, `render`, `query` | objects: handlers, what comes in, what goes out |
//! | `patch`, `layers` | some of a spec; labels and tags beside it |
//! | `apply` | many objects in one transaction |
//! | `runs` | runs of clients, and which creations they confirm |
//! | `announce` | what a write would do |
//! | `receivers` | what the status of Settings says of receivers of logs |
//! | `webhooks` | deliveries, and what webhooks' status says of them |
//! | `addresses` | who has which address, from every source |
//! | `utilisation`, `serving` | how full subnets and ranges are; whether racks serve them |
//! | `wait`, `watch` | answers that wait for a condition; what changes, as it changes |
//! | `waiting` | whom a deletion waits for |
//! | `explain` | plan, waits, timeline |
//! | `boots` | what machines asked of racks as they booted |
//! | `logs` | what machines logged |
//! | `lasting` | places for requests that last |
//! | `operations` | what is asked of a machine once |
//! | `blobs` | uploads and downloads |
//! | `registry` | the Terraform provider, for Terraform to install |
//! | `system`, `docs`, `metrics` | health, version, OpenAPI; the same for people; what is counted |
//! | `console` | the web UI's page and files |
//! | `forwarded` | the same for what racks pass on |
//! | `serve`, `stall` | the listeners; connections whose other end does not read |
//! | `problem`, `caught` | errors, all of them; handlers that panic |

pub mod endpoints;
mod events;
pub mod rights;

mod addresses;
mod announce;
mod apply;
mod audit;
mod blobs;
mod body;
mod boots;
mod bucket;
mod caller;
mod caught;
mod console;
mod cookie;
mod docs;
mod explain;
mod forwarded;
mod guard;
mod guards;
mod lasting;
mod layers;
mod logins;
mod logs;
mod matching;
mod metrics;
mod names;
mod objects;
mod openid;
mod operations;
mod patch;
mod problem;
mod query;
mod racks;
mod receivers;
mod registry;
mod render;
mod results;
mod runs;
mod serve;
mod serving;
mod session;
mod shape;
mod slow;
mod stall;
mod system;
mod tls;
mod tokens;
mod utilisation;
mod wait;
mod waiting;
mod watch;
mod webhooks;

pub use forwarded::Forwarded;
pub(crate) use render::first_status;
pub use rights::Role;
pub use serve::{Tls, serve_tcp, serve_unix};
pub(crate) use session::{fresh_token, logging_in};
pub use tls::{Certificate, CertificateError, CertificateFiles};
pub use watch::hub::run as tell_watchers;
pub(crate) use webhooks::payload;

use crate::blobs::Blobs;
use crate::driver::Machinery;
use crate::logs::Logs;
use crate::openid::issuer::Issuers;
use crate::racks::join_token::Joiner;
use crate::registry::Registry;
use crate::telemetry::Telemetry;
use crate::webhooks::Counters;
use basalt_db::Store;
use basalt_db::change::Follower;
use basalt_proto::places::{Limits, Places};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch::Receiver;

/// What the API works on.
#[derive(Debug)]
pub struct Parts {
    /// The store.
    pub store: Store,
    /// The change log's follower.
    pub follower: Follower,
    /// The blobs.
    pub blobs: Blobs,
    /// The logs of machines.
    pub logs: Logs,
    /// The provider, for Terraform.
    pub registry: Registry,
    /// Answer plain HTTP to other hosts.
    pub allow_plaintext: bool,
    /// How often a quiet watch says where it is.
    pub bookmark_every: Duration,
    /// Bytes that may wait for one watch.
    pub watch_buffer: usize,
    /// How long a client may take for what it has to send.
    pub client_timeout: Duration,
    /// Connections over TCP, and as many more over the unix socket.
    pub connections: Limits,
    /// Where spans go.
    pub telemetry: Telemetry,
    /// Turns true when the region is to stop.
    pub stopping: Receiver<bool>,
}

/// The API's state. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Inner>);

struct Inner {
    parts: Parts,
    machinery: OnceLock<Arc<dyn Machinery>>,
    joiner: OnceLock<Joiner>,
    metrics: metrics::Metrics,
    watchers: watch::hub::Hub,
    logins: session::Logins,
    issuers: Issuers,
    webhooks: Arc<Counters>,
    networks: serving::Recent,
    connections: Places<IpAddr>,
    rooms: lasting::Rooms,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("parts", &self.0.parts).finish_non_exhaustive()
    }
}

impl App {
    /// The API on these parts.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let connections = Places::new(parts.connections);
        let watchers = watch::hub::Hub::new(parts.follower.position(), parts.watch_buffer);
        Self(Arc::new(Inner {
            parts,
            machinery: OnceLock::new(),
            joiner: OnceLock::new(),
            metrics: metrics::Metrics::default(),
            watchers,
            logins: session::Logins::default(),
            issuers: Issuers::default(),
            webhooks: Arc::default(),
            networks: serving::Recent::default(),
            connections,
            rooms: lasting::Rooms::default(),
        }))
    }

    /// Places for requests that last.
    fn rooms(&self) -> &lasting::Rooms {
        &self.0.rooms
    }

    /// Lets the API ask the driver; the first one stays.
    pub fn set_machinery(&self, machinery: Arc<dyn Machinery>) {
        let _ = self.0.machinery.set(machinery);
    }

    /// Lets the API make join tokens; the first one stays.
    pub fn set_joiner(&self, joiner: Joiner) {
        let _ = self.0.joiner.set(joiner);
    }

    pub(crate) fn telemetry(&self) -> &Telemetry {
        &self.0.parts.telemetry
    }

    pub(crate) fn webhooks(&self) -> &Arc<Counters> {
        &self.0.webhooks
    }

    fn networks(&self) -> &serving::Recent {
        &self.0.networks
    }

    fn joiner(&self) -> Option<&Joiner> {
        self.0.joiner.get()
    }

    fn machinery(&self) -> Option<&Arc<dyn Machinery>> {
        self.0.machinery.get()
    }

    fn store(&self) -> &Store {
        &self.0.parts.store
    }

    fn follower(&self) -> &Follower {
        &self.0.parts.follower
    }

    fn watchers(&self) -> &watch::hub::Hub {
        &self.0.watchers
    }

    fn blobs(&self) -> &Blobs {
        &self.0.parts.blobs
    }

    fn logs(&self) -> &Logs {
        &self.0.parts.logs
    }

    fn registry(&self) -> &Registry {
        &self.0.parts.registry
    }

    fn stopping(&self) -> Receiver<bool> {
        self.0.parts.stopping.clone()
    }
}
