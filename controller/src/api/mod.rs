//! The REST API (port 5240 and DIR/api.sock). It is generic: [`basalt_api::KINDS`] lists its kinds.
//!
//! | module | is |
//! | --- | --- |
//! | `router` | the handlers of [`basalt_api::routes::ROUTES`] |
//! | `guard`, `caller` | authentication and authorisation of requests |
//! | [`rights`] | the rules of roles and pools |
//! | `session`, `cookie`, `logins`, `bucket`, `tokens` | logins, also of browsers, and their rate limits; the texts of ApiTokens |
//! | `audit` | the audit log |
//! | `guards` | reasons to refuse a write or a removal |
//! | `objects`, `body`, `render`, `query` | objects: handlers, reading of requests, rendering of answers |
//! | `target` | the object that a path names |
//! | `patch`, `layers` | changes of a part of a spec; labels and tags beside it |
//! | `apply` | many objects in one transaction |
//! | `runs` | runs of clients, and the creations that they confirm |
//! | `announce` | the results of writes, in advance |
//! | `receivers` | receivers of logs, in the status of Settings |
//! | `webhooks` | deliveries, and the status of webhooks |
//! | `addresses` | the owners of addresses, from every source |
//! | `utilisation`, `serving` | usage of subnets and ranges; the racks that serve them |
//! | `wait`, `watch` | answers that wait for a condition; streams of changes |
//! | `waiting` | the objects that a deletion waits for |
//! | `explain` | plan, waits, timeline |
//! | `boots` | the requests that booting machines send to racks |
//! | `results` | findings of hardware tests |
//! | `events`, `matching` | events of the region; lists by a filter |
//! | `names` | answers without the names that the caller does not see |
//! | `openid`, `racks` | logins by OpenID Connect; join tokens of racks |
//! | `host_names` | how racks answer for a name |
//! | `logs` | the logs of machines |
//! | `lasting` | limits of requests that last |
//! | `operations` | one-time requests on a machine |
//! | `blobs` | uploads and downloads |
//! | `registry` | the Terraform provider, for Terraform to install |
//! | `system`, `docs`, `metrics` | health, version, OpenAPI; the API reference for people; counters |
//! | `console` | the web UI's page and files |
//! | `forwarded` | the API for requests that racks forward |
//! | `serve`, `stall` | the listeners; connections whose other end does not read |
//! | `problem`, `caught` | errors; handlers that panic |

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
mod events;
mod explain;
mod forwarded;
mod guard;
mod guards;
mod host_names;
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
mod router;
mod runs;
mod serve;
mod serving;
mod session;
mod shape;
mod slow;
mod stall;
mod system;
mod target;
mod tls;
mod tokens;
mod utilisation;
mod wait;
mod waiting;
mod watch;
mod webhooks;

pub use forwarded::Forwarded;
pub(crate) use render::first_status;
pub use serve::{Tls, serve_tcp, serve_unix};
pub(crate) use session::{fresh_token, logging_in};
pub use tls::{Certificate, CertificateError, CertificateFiles};
pub use watch::hub::run as tell_watchers;
pub(crate) use webhooks::payload;

use crate::blobs::Blobs;
use crate::driver::Machinery;
use crate::logs::Logs;
use crate::openid::issuer::Issuers;
use crate::proxy::RegionProxy;
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

/// The parts that the API uses.
#[derive(Debug)]
pub struct Parts {
    /// The region's store.
    pub store: Store,
    /// The change log's follower.
    pub follower: Follower,
    /// The region's blobs.
    pub blobs: Blobs,
    /// The logs of machines.
    pub logs: Logs,
    /// The caching proxy for racks.
    pub proxy: Arc<RegionProxy>,
    /// The registry with the Terraform provider.
    pub registry: Registry,
    /// True to answer plain HTTP to other hosts.
    pub allow_plaintext: bool,
    /// The interval of bookmarks in a quiet watch.
    pub bookmark_every: Duration,
    /// The number of bytes that may wait for one watch.
    pub watch_buffer: usize,
    /// How long a client may take to send a part of its request.
    pub client_timeout: Duration,
    /// The limits of connections over TCP; as many more may use the unix socket.
    pub connections: Limits,
    /// The sender of spans.
    pub telemetry: Telemetry,
    /// Becomes true when the region is to stop.
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
    /// The API with these parts.
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

    /// The limits of requests that last.
    fn rooms(&self) -> &lasting::Rooms {
        &self.0.rooms
    }

    /// Connects the API to the driver, once.
    pub fn set_machinery(&self, machinery: Arc<dyn Machinery>) {
        let _ = self.0.machinery.set(machinery);
    }

    /// Enables the API to make join tokens, once.
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

    pub(crate) fn proxy(&self) -> &Arc<RegionProxy> {
        &self.0.parts.proxy
    }

    fn registry(&self) -> &Registry {
        &self.0.parts.registry
    }

    fn stopping(&self) -> Receiver<bool> {
        self.0.parts.stopping.clone()
    }
}
