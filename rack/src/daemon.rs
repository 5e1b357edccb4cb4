//! The daemon: starts all parts of this crate and keeps them running.
//!
//! Services are bound to each served address, and addresses come and go with their interfaces. Every two seconds the
//! running services are compared with the wanted ones. A service that fails is started again after five seconds. Its
//! health is reported when it changes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::attempts::Attempts;
use crate::blobs::{self, BlobOrigin, BlobStore, NoOrigin};
use crate::boot::BootTable;
use crate::certificates::Certificates;
use crate::clock::{Clock, wall_ms};
use crate::concern::store::ConcernStore;
use crate::dhcp::{Dhcp, Ports};
use crate::dhcp6::Dhcp6;
use crate::dns::Dns;
use crate::durable;
use crate::epochs::Epochs;
use crate::facts::health;
use crate::forget;
use crate::health::Health;
use crate::http::admission::{Admission, Limits};
use crate::http::forward::Regions;
use crate::http::{self, Site, Web};
use crate::identity::{Identity, IdentityError, Membership};
use crate::interfaces::{self, Link, Served, Served6};
use crate::link::enrol::{EnrolError, enrol};
use crate::link::join::{BadJoinToken, JoinToken};
use crate::link::origin::RegionOrigin;
use crate::link::{self, Context};
use crate::loaders::Loaders;
use crate::logs::senders::Senders;
use crate::logs::writer::LogThread;
use crate::logs::{self, Logs};
use crate::meters::{self, Measured};
use crate::ntp::Ntp;
use crate::power::{self, Power};
use crate::presence::Presence;
use crate::proxy::Proxy;
use crate::room;
use crate::router_advertisement;
use crate::settings::Settings;
use crate::spool::writer::{Facts, SpoolThread};
use crate::spool::{self, writer};
use crate::strangers::{self, Strangers};
use crate::trace;

/// The interval at which interfaces are read.
const INTERFACES: Duration = Duration::from_secs(2);
/// The interval of the search for newly installed boot loaders.
const INSTALLED: Duration = Duration::from_secs(60);
/// The interval at which concern files are checked for changes.
const FILES: Duration = Duration::from_secs(1);
/// How long to wait for the lock of the data directory: a previous daemon may still be ending.
const PREDECESSOR: Duration = Duration::from_secs(1);
/// The wait before a failed service is started again.
const RESTART: Duration = Duration::from_secs(5);
/// The wait before absent blobs are fetched again: the first and the longest.
const PREFETCH: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(600)];
/// The interval at which parts of abandoned fetches are removed.
const TIDY: Duration = Duration::from_secs(3600);
/// The longest time for a stop.
const DRAIN: Duration = Duration::from_secs(15);

/// The reason why the daemon does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data directory cannot be used.
    #[error("data directory {0}: {1}")]
    DataDir(PathBuf, io::Error),
    /// Another daemon runs on the data directory.
    #[error(
        "another basalt-rack runs on data directory {0}; stop it first, or give this one a directory of its own"
    )]
    Running(PathBuf),
    /// The rack's key or certificate cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The join token is malformed.
    #[error(transparent)]
    Join(#[from] BadJoinToken),
    /// The rack could not enrol with a region.
    #[error(transparent)]
    Enrol(#[from] EnrolError),
}

/// A running rack.
#[derive(Debug)]
pub struct Daemon {
    data_dir: PathBuf,
    proxy_dir: PathBuf,
    stop: CancellationToken,
    /// Cancelled when a region says that this rack was deleted.
    deleted: CancellationToken,
    tasks: TaskTracker,
    spool: SpoolThread,
    log_thread: LogThread,
    /// The facts that the rack reports.
    pub facts: Facts,
    /// The log lines that the rack received.
    pub logs: Logs,
    /// The value of `basalt.spki` for its agent endpoint: the SHA-256 of the public key.
    pub spki_sha256: String,
    lock: std::fs::File,
}

/// A service that runs independently of the others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Service {
    /// TFTP and HTTP on an address.
    Files(IpAddr),
    Dns(IpAddr),
    Dhcp(Served),
    Dhcp6(Served6),
    RouterAdvertisements(Link),
    Ntp(IpAddr),
    Syslog(SocketAddr),
}

/// The state that service tasks share.
#[derive(Clone)]
struct Services {
    settings: Arc<Settings>,
    dhcp: Arc<Dhcp>,
    dns: Arc<Dns>,
    web: Arc<Web>,
    ntp: Arc<Ntp>,
    proxy: Arc<Proxy>,
    logs: Logs,
    tls: TlsAcceptor,
    /// One value for all addresses, so that their connections are counted together.
    site: Site,
    facts: Facts,
    tasks: TaskTracker,
}

impl Daemon {
    /// Starts the rack: reads its files, enrols if it has a join token and has not enrolled, and starts all services.
    ///
    /// # Errors
    /// The data directory or the join token cannot be used. Services that cannot start now are tried again later.
    pub async fn start(settings: Settings) -> Result<Self, StartError> {
        let (dir, proxy_dir) = (settings.data_dir.clone(), settings.proxy.dir.clone());
        let files = |error| StartError::DataDir(dir.clone(), error);
        durable::private_dir(&dir).map_err(files)?;
        let lock = lock(&dir).await?;
        room::make(&dir).map_err(files)?;
        let identity = Arc::new(Identity::open(&dir)?);
        let clock = Clock::open(&dir).map_err(files)?;
        let membership = membership(&identity, &settings, &clock).await?;
        let membership = membership.map(|membership| Arc::new(Mutex::new(membership)));
        let ran_before = dir.join("spool").exists();
        let limits = spool::Limits { total: settings.spool_bytes, ..spool::Limits::default() };
        let (facts, spool) = writer::start(&dir, limits, clock).map_err(files)?;
        facts.tell(health(basalt_proto::STARTED, None));
        let epochs = Arc::new(Epochs::open(&dir).map_err(files)?);
        let (concerns, damaged) = ConcernStore::open(&dir, Arc::clone(&epochs)).map_err(files)?;
        for file in damaged {
            tracing::error!(concern = %file.concern, "{}", file.message);
            facts.tell(health(&format!("concern {}", file.concern), Some(&file.message)));
        }
        let concerns = Arc::new(concerns);
        let boot = concerns.views.boot.subscribe();
        let settings = Arc::new(settings);
        let presence = Arc::new(Presence::default());
        let ports = Ports {
            server: settings.dhcp_port,
            client: settings.dhcp_client_port,
            // Firmware only asks this port.
            boot: (settings.dhcp_port == basalt_dhcp::SERVER_PORT).then_some(basalt_dhcp::BOOT_SERVER_PORT),
            http: settings.http_port,
        };
        let v6 =
            Dhcp6::open(&dir, ran_before, ports.http, Arc::clone(&presence), facts.clone(), boot.clone());
        let v6 = Arc::new(v6.map_err(files)?);
        let dhcp =
            Dhcp::open(&dir, ran_before, ports, Arc::clone(&presence), facts.clone(), boot.clone(), v6)
                .map_err(files)?;
        let dhcp = Arc::new(dhcp);
        let region = Arc::new(RegionOrigin::default());
        let origin: Arc<dyn BlobOrigin> =
            if membership.is_some() { region.clone() } else { Arc::new(NoOrigin) };
        let blobs = BlobStore::open(&dir, settings.cache_bytes, origin, concerns.views.images.subscribe())
            .map_err(files)?;
        let certificates = Arc::new(Certificates::open(&dir).map_err(files)?);
        let bmcs = concerns.views.power.subscribe();
        let power = Power::new(bmcs, Arc::clone(&epochs), certificates, facts.clone(), power::PACE);
        let power = Arc::new(power);
        let loaders = Loaders::new(&settings.loader_dir);
        for name in loaders.missing() {
            tracing::warn!(name, dir = %loaders.dir().display(), "a boot loader is missing; install the package `ipxe`");
        }
        let attempts = Arc::new(Attempts::open(&dir).map_err(files)?);
        let senders = Senders::new(
            Arc::clone(&presence),
            boot.clone(),
            concerns.views.dhcp.subscribe(),
            facts.clock().clone(),
        );
        let log_limits = logs::spool::Limits { total: settings.log_bytes, ..Default::default() };
        let log_health = Health::new("logs".to_owned(), facts.clone());
        let (logs, log_thread) =
            Logs::start(&dir, log_limits, senders, facts.clock().clone(), log_health).map_err(files)?;
        let regions = membership.as_ref().map(|membership| {
            Arc::new(Regions::new(Arc::clone(&identity), Arc::clone(membership), Arc::clone(&region)))
        });
        let web = Arc::new(Web {
            boot: boot.clone(),
            attempts: Arc::clone(&attempts),
            strangers: Strangers::had(attempts.strangers(), facts.clock().now()),
            presence,
            blobs: Arc::clone(&blobs),
            admission: Admission::new(Limits { places: settings.http_bodies, ..Limits::default() }),
            loaders,
            facts: facts.clone(),
            logs: logs.clone(),
            reports: http::report::Reports::default(),
            spki_sha256: identity.spki_sha256.clone(),
            regions: regions.clone(),
        });
        let dns = Arc::new(Dns::new(facts.clone()).map_err(files)?);
        let (stop, deleted) = (CancellationToken::new(), CancellationToken::new());
        let tasks = TaskTracker::new();
        let tls = TlsAcceptor::from(Arc::new(identity.agent_tls()?));
        let services = Services {
            settings: Arc::clone(&settings),
            dhcp: Arc::clone(&dhcp),
            dns: Arc::clone(&dns),
            site: Site::new(Arc::clone(&web), tls.clone()),
            web,
            ntp: Arc::new(Ntp::new(facts.clone())),
            proxy: Arc::new(Proxy::new(settings.proxy.clone(), facts.clone(), regions)),
            logs: logs.clone(),
            tls,
            facts: facts.clone(),
            tasks: tasks.clone(),
        };
        let loaders_health = Health::new("loaders".to_owned(), facts.clone());
        tasks.spawn(configure_dhcp(
            Arc::clone(&dhcp),
            Arc::clone(&concerns),
            services.web.loaders.clone(),
            loaders_health,
            stop.clone(),
        ));
        tasks.spawn(dns.follow(concerns.views.dns.subscribe(), stop.clone()));
        tasks.spawn(tick(dhcp.clone(), stop.clone()));
        tasks.spawn(Arc::clone(&services.ntp).follow(concerns.views.time.subscribe(), stop.clone()));
        tasks.spawn(Arc::clone(&services.proxy).follow(
            concerns.views.proxy.subscribe(),
            concerns.views.power.subscribe(),
            stop.clone(),
        ));
        if let Some(address) = services.settings.metrics {
            services.start_metrics(address, stop.clone());
        }
        tasks.spawn(Arc::clone(&power).read(stop.clone()));
        tasks.spawn(logs.clone().tell_dropped(stop.clone()));
        tasks.spawn(trace::tell(facts.clone(), boot.clone(), stop.clone()));
        tasks.spawn(remember_reports(boot, attempts, stop.clone()));
        tasks.spawn(watch_files(Arc::clone(&concerns), stop.clone()));
        tasks.spawn(tidy(Arc::clone(&blobs), stop.clone()));
        tasks.spawn(room::keep(Arc::clone(&blobs), facts.disk(), stop.clone()));
        tasks.spawn(blobs::tell(Arc::clone(&blobs), facts.clone(), blobs::PACE, stop.clone()));
        tasks.spawn(prefetch(blobs, Arc::clone(&concerns), stop.clone()));
        tasks.spawn(services.keep(stop.clone()));
        let spki_sha256 = identity.spki_sha256.clone();
        let taken = logs.clone();
        if let Some(membership) = membership {
            let context = Context {
                identity,
                settings,
                concerns,
                epochs,
                power,
                facts: facts.clone(),
                logs,
                dhcp,
                origin: region,
                membership,
                delivery: Arc::new(Mutex::new(0)),
                deleted: deleted.clone(),
            };
            tasks.spawn(link::run(Arc::new(context), stop.clone()));
        } else {
            tracing::warn!(
                "this rack has joined no region: it works from the files in its data directory alone"
            );
        }
        Ok(Self {
            data_dir: dir,
            proxy_dir,
            stop,
            deleted,
            tasks,
            spool,
            log_thread,
            facts,
            logs: taken,
            spki_sha256,
            lock,
        })
    }

    /// Waits until a region says that this rack was deleted.
    pub async fn deleted(&self) {
        self.deleted.cancelled().await;
    }

    /// Stops, and erases the data that a deleted rack must not keep ([`forget`]).
    ///
    /// # Errors
    /// `io::Error`: a file cannot be erased.
    pub async fn forget(self) -> io::Result<()> {
        let (dir, proxy_dir) = (self.data_dir.clone(), self.proxy_dir.clone());
        let _lock = self.end().await;
        forget::erase(&dir, &proxy_dir)
    }

    /// Stops: refuses new requests, lets running ones end, and makes facts durable.
    pub async fn stop(self) {
        self.end().await;
    }

    /// Stops. Returns the file that holds the lock of the data directory.
    async fn end(self) -> std::fs::File {
        tracing::info!("stopping");
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(DRAIN, self.tasks.wait()).await.is_err() {
            tracing::warn!("not everything ended within {} seconds", DRAIN.as_secs());
        }
        self.log_thread.stop().await;
        self.spool.stop().await;
        self.lock
    }
}

/// The membership of the rack, if it has enrolled. With a join token it enrols first if it has not, or if its
/// certificate has expired.
async fn membership(
    identity: &Identity,
    settings: &Settings,
    clock: &Clock,
) -> Result<Option<Membership>, StartError> {
    let enrolled = identity.membership()?;
    let has_ended = enrolled.as_ref().is_some_and(|it| it.has_ended(wall_ms()));
    if has_ended {
        tracing::error!("this rack's certificate has ended: it has to enrol again, with a new join token");
    }
    let Some(token) = settings.join.as_ref().filter(|_| enrolled.is_none() || has_ended) else {
        return Ok(enrolled);
    };
    match (enrol(identity, &settings.name, &JoinToken::parse(token)?, clock).await, enrolled) {
        (Ok(membership), _) => Ok(Some(membership)),
        // The rack keeps its old membership and serves its stored concerns.
        (Err(error), Some(enrolled)) => {
            tracing::error!(%error, "this rack could not enrol again");
            Ok(Some(enrolled))
        }
        (Err(error), None) => Err(error.into()),
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files(address) => write!(f, "files {address}"),
            Self::Dns(address) => write!(f, "{}{address}", basalt_proto::DNS),
            Self::Dhcp(served) => write!(f, "dhcp {} {:?}", served.interface, served.addresses),
            Self::Dhcp6(served) => write!(f, "dhcp6 {} {:?}", served.interface, served.addresses),
            Self::RouterAdvertisements(link) => {
                write!(f, "router advertisements {} {}", link.interface, link.address)
            }
            Self::Ntp(address) => write!(f, "ntp {address}"),
            Self::Syslog(at) => write!(f, "{}{at}", basalt_proto::SYSLOG),
        }
    }
}

impl Service {
    /// The names under which its health is reported.
    fn names(&self) -> Vec<String> {
        match self {
            Self::Files(address) => vec![format!("tftp {address}"), format!("http {address}")],
            Self::Dns(address) => vec![format!("{}{address}", basalt_proto::DNS)],
            Self::Dhcp(served) => vec![format!("dhcp {}", served.interface)],
            Self::Dhcp6(served) => vec![format!("dhcp6 {}", served.interface)],
            Self::RouterAdvertisements(_) => Vec::new(),
            Self::Ntp(address) => vec![format!("ntp {address}")],
            Self::Syslog(at) => vec![format!("{}{at}", basalt_proto::SYSLOG)],
        }
    }
}

impl Services {
    /// Starts and stops services until the running ones are the wanted ones.
    async fn keep(self, stop: CancellationToken) {
        let mut running: BTreeMap<Service, CancellationToken> = BTreeMap::new();
        let mut timer = tokio::time::interval(INTERFACES);
        let mut warned = BTreeSet::new();
        let of_interface = |name: &String| (name.clone(), self.health(format!("interface {name}")));
        let interfaces: BTreeMap<String, Health> =
            self.settings.interfaces.iter().map(of_interface).collect();
        let of_clock = self.health("clock".to_owned());
        let of_strangers = self.health(basalt_proto::ENLISTMENT.to_owned());
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = timer.tick() => {}
            }
            let clock = self.facts.clock().clone();
            tokio::task::spawn_blocking(move || clock.look()).await.ok();
            match self.facts.clock().is_right() {
                Some(Ok(())) => of_clock.up(),
                Some(Err(wrong)) => of_clock.ill(&wrong),
                None => {}
            }
            let left_out = self.web.strangers.left_out(self.facts.clock().now());
            match strangers::words(&left_out) {
                Some(words) => of_strangers.ill(&words),
                None => of_strangers.up(),
            }
            let wanted = match self.wanted(&mut warned) {
                Ok(wanted) => wanted,
                Err(error) => {
                    tracing::error!(%error, "this host's interfaces cannot be listed");
                    continue;
                }
            };
            self.tell_of_interfaces(&interfaces);
            let goes_on: BTreeSet<String> = wanted.iter().flat_map(Service::names).collect();
            running.retain(|service, ended| {
                let keep = wanted.contains(service);
                if !keep {
                    tracing::warn!(%service, "address is gone; its services stop");
                    ended.cancel();
                    for name in service.names().into_iter().filter(|name| !goes_on.contains(name)) {
                        self.health(name).lacks(
                            "it has stopped: the address that it was served at is gone from this host",
                        );
                    }
                }
                keep
            });
            for service in wanted {
                if running.contains_key(&service) {
                    continue;
                }
                let ended = stop.child_token();
                running.insert(service.clone(), ended.clone());
                match service {
                    Service::Files(address) => self.start_files(address, ended),
                    Service::Dns(address) => self.start_dns(address, ended),
                    Service::Dhcp(served) => self.start_dhcp(served, ended),
                    Service::Dhcp6(served) => self.start_dhcp6(served, ended),
                    Service::RouterAdvertisements(link) => {
                        drop(self.tasks.spawn(router_advertisement::run(link, ended)))
                    }
                    Service::Ntp(address) => self.start_ntp(address, ended),
                    Service::Syslog(at) => self.start_syslog(at, ended),
                }
            }
        }
    }

    /// Reports the health of the interfaces in the configuration.
    fn tell_of_interfaces(&self, interfaces: &BTreeMap<String, Health>) {
        match interfaces::problems(&self.settings.interfaces) {
            Ok(problems) => {
                for (name, health) in interfaces {
                    problems.get(name).map_or_else(|| health.up(), |problem| health.ill(problem));
                }
            }
            Err(error) => tracing::error!(%error, "this host's interfaces cannot be listed"),
        }
    }

    /// The wanted services. Warns once about each interface where a service cannot run.
    fn wanted(&self, warned: &mut BTreeSet<String>) -> io::Result<BTreeSet<Service>> {
        let Settings { interfaces, addresses, router_advertisements, .. } = &*self.settings;
        let served = interfaces::served(interfaces)?;
        let mut wanted: BTreeSet<Service> = addresses.iter().map(|&it| Service::Files(it.into())).collect();
        wanted.extend(served.iter().flat_map(|it| &it.addresses).map(|&it| Service::Files(it.into())));
        if wanted.is_empty() && warned.insert(String::new()) {
            tracing::warn!(?interfaces, "no interface has an IPv4 address yet: nothing is served");
        }
        if *router_advertisements {
            let links = interfaces::links(interfaces)?;
            for interface in served.iter().map(|it| &it.interface) {
                if links.iter().all(|link| link.interface != *interface)
                    && let Some(reason) = router_advertisement::impossible(interface)
                    && warned.insert(interface.clone())
                {
                    tracing::warn!(
                        interface,
                        reason,
                        "router solicitations are not answered: iPXE may take 16 seconds longer"
                    );
                }
            }
            wanted.extend(links.into_iter().map(Service::RouterAdvertisements));
        }
        let served6 = interfaces::served6(interfaces)?;
        self.dhcp.v6.set_links(served6.iter().map(|it| (it.index, it.addresses.clone())).collect());
        if self.dhcp.v6.is_wanted() {
            // A client may be given file URLs with any of these addresses, and a script names the address that it was
            // requested from.
            let addresses = served6.iter().flat_map(|it| &it.addresses);
            wanted.extend(addresses.map(|&it| Service::Files(it.into())));
            wanted.extend(served6.iter().cloned().map(Service::Dhcp6));
        }
        self.dhcp.set_links(served.iter().map(|it| (it.index, it.addresses.clone())).collect());
        wanted.extend(served.into_iter().map(Service::Dhcp));
        let addresses = wanted.iter().filter_map(|service| match service {
            Service::Files(address) => Some(*address),
            _ => None,
        });
        let addresses: BTreeSet<IpAddr> = addresses.collect();
        wanted.extend(addresses.iter().copied().map(Service::Dns));
        wanted.extend(addresses.iter().copied().map(Service::Ntp));
        let ports = &self.settings.syslog_port;
        let syslog =
            addresses.iter().flat_map(|&address| ports.iter().map(move |&port| (address, port).into()));
        wanted.extend(syslog.map(Service::Syslog));
        self.dns.set_own(addresses.clone());
        self.proxy.set_own(addresses.clone());
        self.ntp.set_own(addresses);
        Ok(wanted)
    }

    fn start_dhcp(&self, served: Served, stop: CancellationToken) {
        let dhcp = Arc::clone(&self.dhcp);
        let health = self.health(format!("dhcp {}", served.interface));
        self.tasks.spawn(async move {
            while !stop.is_cancelled() {
                let ended = dhcp.serve(&served, &health, &stop).await;
                pause(ended, &health, &stop).await;
            }
        });
    }

    fn start_dns(&self, address: IpAddr, stop: CancellationToken) {
        let (dns, at) = (Arc::clone(&self.dns), SocketAddr::from((address, self.settings.dns_port)));
        let health = self.health(format!("{}{address}", basalt_proto::DNS));
        self.tasks.spawn(async move {
            while !stop.is_cancelled() {
                let ended = dns.serve(at, &health, &stop).await;
                pause(ended, &health, &stop).await;
            }
        });
    }

    fn start_dhcp6(&self, served: Served6, stop: CancellationToken) {
        let dhcp = Arc::clone(&self.dhcp.v6);
        let health = self.health(format!("dhcp6 {}", served.interface));
        self.tasks.spawn(async move {
            while !stop.is_cancelled() {
                let ended = dhcp.serve(&served, &health, &stop).await;
                pause(ended, &health, &stop).await;
            }
        });
    }

    fn start_files(&self, address: IpAddr, stop: CancellationToken) {
        let (this, token) = (self.clone(), stop.clone());
        let health = self.health(format!("tftp {address}"));
        self.tasks.spawn(async move {
            let port = this.settings.tftp_port;
            while !token.is_cancelled() {
                let (web, http_port) = (Arc::clone(&this.web), this.settings.http_port);
                let ended = crate::tftp::run(address, port, http_port, web, &health, &token).await;
                pause(ended, &health, &token).await;
            }
        });
        let this = self.clone();
        let health = self.health(format!("http {address}"));
        self.tasks.spawn(async move {
            let port = this.settings.http_port;
            let site = this.site.clone();
            while !stop.is_cancelled() {
                let at = SocketAddr::from((address, port));
                let ended = http::serve(at, site.clone(), &health, &stop).await;
                pause(ended, &health, &stop).await;
            }
        });
    }

    fn start_ntp(&self, address: IpAddr, stop: CancellationToken) {
        let (ntp, port) = (Arc::clone(&self.ntp), self.settings.ntp_port);
        let health = self.health(format!("ntp {address}"));
        self.tasks.spawn(async move {
            while !stop.is_cancelled() {
                let ended = ntp.serve(address, port, &health, &stop).await;
                pause(ended, &health, &stop).await;
            }
        });
    }

    fn start_syslog(&self, at: SocketAddr, stop: CancellationToken) {
        let logs = self.logs.clone();
        let health = self.health(format!("{}{at}", basalt_proto::SYSLOG));
        self.tasks.spawn(async move {
            while !stop.is_cancelled() {
                let ended = logs.serve(at, &health, &stop).await;
                pause(ended, &health, &stop).await;
            }
        });
    }

    fn start_metrics(&self, address: SocketAddr, stop: CancellationToken) {
        let router = meters::router(Measured {
            web: Arc::clone(&self.web),
            dhcp: Arc::clone(&self.dhcp),
            dns: Arc::clone(&self.dns),
            ntp: Arc::clone(&self.ntp),
            logs: self.logs.clone(),
            proxy: Arc::clone(&self.proxy),
            connections: self.site.connections().clone(),
        });
        let site = Site::other(router, self.tls.clone());
        let health = self.health(format!("metrics {address}"));
        self.tasks.spawn(async move {
            while !stop.is_cancelled() {
                let ended = http::serve(address, site.clone(), &health, &stop).await;
                pause(ended, &health, &stop).await;
            }
        });
    }

    fn health(&self, name: String) -> Health {
        Health::new(name, self.facts.clone())
    }
}

/// Reports how a service ended, and waits before it is started again.
async fn pause(ended: io::Result<()>, health: &Health, stop: &CancellationToken) {
    let Err(error) = ended else { return };
    health.down(&advised(&error));
    tokio::select! {
        () = stop.cancelled() => {}
        () = tokio::time::sleep(RESTART) => {}
    }
}

/// The error, with advice if the operating system's message has none.
fn advised(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "{error}; ports below 1024 need the capability CAP_NET_BIND_SERVICE, and sockets of one interface CAP_NET_RAW: run basalt-rack as root, or \
             with AmbientCapabilities=CAP_NET_BIND_SERVICE CAP_NET_RAW in its unit; `basalt-rack check` says which it lacks"
        ),
        _ => error.to_string(),
    }
}

/// Locks the data directory for this daemon. A daemon that has just ended may have left the lock to a child process
/// that has not called exec yet. So this waits a little.
async fn lock(dir: &Path) -> Result<std::fs::File, StartError> {
    let end = tokio::time::Instant::now() + PREDECESSOR;
    let path = dir.join("lock");
    let files = |error| StartError::DataDir(dir.to_owned(), error);
    let file =
        std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(path).map_err(files)?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(std::fs::TryLockError::WouldBlock) if tokio::time::Instant::now() < end => {
                tokio::time::sleep(PREDECESSOR / 50).await;
            }
            Err(std::fs::TryLockError::WouldBlock) => return Err(StartError::Running(dir.to_owned())),
            Err(std::fs::TryLockError::Error(error)) => return Err(files(error)),
        }
    }
}

/// Reconfigures DHCP when its concern or the installed boot loaders change.
async fn configure_dhcp(
    dhcp: Arc<Dhcp>,
    concerns: Arc<ConcernStore>,
    loaders: Loaders,
    health: Health,
    stop: CancellationToken,
) {
    let mut view = concerns.views.dhcp.subscribe();
    let mut timer = tokio::time::interval(INSTALLED);
    let mut before = None;
    loop {
        let changed = tokio::select! {
            () = stop.cancelled() => return,
            changed = view.changed() => match changed {
                Ok(()) => true,
                Err(_) => return,
            },
            _ = timer.tick() => false,
        };
        // A concern that arrives from here on stays pending; the next iteration handles it.
        let Some(concern) = view.borrow().clone() else { continue };
        let lacking = loaders.lacking(&concern);
        if !changed && before.as_ref() == Some(&lacking) {
            continue;
        }
        dhcp.configure(&concern, &loaders).await;
        match &lacking {
            None => health.up(),
            Some(problem) => health.down(problem),
        }
        before = Some(lacking);
    }
}

async fn remember_reports(
    mut boot: watch::Receiver<Option<Arc<BootTable>>>,
    attempts: Arc<Attempts>,
    stop: CancellationToken,
) {
    loop {
        let table = boot.borrow_and_update().clone();
        if let Some(table) = table {
            let attempts = Arc::clone(&attempts);
            let remembered = tokio::task::spawn_blocking(move || attempts.remember_reports(&table)).await;
            if let Ok(Err(error)) = remembered {
                tracing::error!(%error, "file `attempts` cannot be written: installed systems may not be able to report to this rack");
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            changed = boot.changed() => if changed.is_err() { return },
        }
    }
}

async fn tick(dhcp: Arc<Dhcp>, stop: CancellationToken) {
    tokio::join!(dhcp.tick(&stop), dhcp.v6.tick(&stop));
}

async fn watch_files(concerns: Arc<ConcernStore>, stop: CancellationToken) {
    let mut stamp = concerns.stamp();
    let mut timer = tokio::time::interval(FILES);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = timer.tick() => {}
        }
        let now = concerns.stamp();
        if now != stamp {
            stamp = now;
            let concerns = Arc::clone(&concerns);
            tokio::task::spawn_blocking(move || concerns.reread()).await.ok();
        }
    }
}

/// Fetches and verifies the blobs that the images concern marks for prefetching. One after the other: fetches that
/// machines wait for go first.
async fn prefetch(blobs: Arc<BlobStore>, concerns: Arc<ConcernStore>, stop: CancellationToken) {
    let mut view = concerns.views.images.subscribe();
    let [first, most] = PREFETCH;
    let mut wait = first;
    loop {
        let wanted = view.borrow_and_update().clone();
        let mut complete = true;
        for blob in wanted.iter().flat_map(|images| &images.blobs).filter(|blob| blob.prefetch) {
            tokio::select! {
                () = stop.cancelled() => return,
                fetched = blobs.prefetch(&blob.sha256) => complete &= fetched.is_ok(),
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            changed = view.changed() => match changed {
                Ok(()) => wait = first,
                Err(_) => return,
            },
            () = tokio::time::sleep(wait), if !complete => wait = (wait * 2).min(most),
        }
    }
}

async fn tidy(blobs: Arc<BlobStore>, stop: CancellationToken) {
    let mut timer = tokio::time::interval(TIDY);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = timer.tick() => blobs.tidy().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_may_not_be_bound_is_told_with_the_capabilities_that_it_takes() {
        let denied =
            io::Error::new(io::ErrorKind::PermissionDenied, "cannot bind 10.77.0.2:67: Permission denied");
        let told = advised(&denied);
        assert!(told.starts_with("cannot bind 10.77.0.2:67: Permission denied; "), "{told}");
        for word in ["CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "as root", "basalt-rack check"] {
            assert!(told.contains(word), "{told}");
        }
        let taken = io::Error::new(io::ErrorKind::AddrInUse, "cannot bind");
        assert_eq!(advised(&taken), "cannot bind");
    }
}
