//! The caching HTTP proxy: concern `proxy`, served by Squid as a child of the rack ([`basalt_proxy`]).
//!
//! | module | content |
//! | --- | --- |
//! | [`region`] | the way to the proxy of a region |
//!
//! The concern does not depend on Squid. If the package of Squid is missing, the rack reports that, and all other
//! services run.

pub mod region;

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use basalt_proto::PROXY;
use basalt_proto::rack_v1::{PowerConcern, ProxyConcern, ProxyVia};
use basalt_proxy::{CONNECTIONS_OF_ONE, Counts, Keeper, Parent, State, Wanted};
use ipnet::IpNet;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::facts::{health, remark};
use crate::holder::{self, Protocol};
use crate::http::forward::Regions;
use crate::spool::writer::Facts;
use region::{Reach, RegionProxy};

/// How often to check the host's addresses.
const LOOK: Duration = Duration::from_secs(30);
/// How long changes are gathered: the region may send several concerns at once.
const GATHER: Duration = Duration::from_millis(200);
/// Another remedy, besides ending the program that holds the port.
const ADVICE: &str = "or turn the proxy off (proxy.enabled of Settings)";

/// The proxy's settings.
#[derive(Debug, Clone)]
pub struct Options {
    /// The port on each served address.
    pub port: u16,
    /// Squid's program; `None`: where packages install it.
    pub program: Option<PathBuf>,
    /// The directory for cache, logs and configuration.
    pub dir: PathBuf,
    /// The size of the cache, in bytes; `None`: decided by the free disk.
    pub cache_bytes: Option<u64>,
    /// The rack's name.
    pub name: String,
}

/// The proxy of this rack.
#[derive(Debug)]
pub struct Proxy {
    options: Options,
    served: watch::Sender<BTreeSet<IpAddr>>,
    facts: Facts,
    keeper: Keeper,
    region: Arc<RegionProxy>,
}

impl Proxy {
    /// A proxy that serves nothing yet. `regions`: `None` if this rack has joined no region.
    #[must_use]
    pub fn new(options: Options, facts: Facts, regions: Option<Arc<Regions>>) -> Self {
        let Options { program, dir, cache_bytes, .. } = options.clone();
        let keeper = Keeper::new(basalt_proxy::Options { program, dir, cache_bytes, taken });
        let region = Arc::new(RegionProxy::new(regions));
        Self { options, served: watch::Sender::default(), facts, keeper, region }
    }

    /// Figures since the start, and the state now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.keeper.counts()
    }

    /// Connections to the proxies of regions, since the start: made, and refused by all regions.
    #[must_use]
    pub fn region_counts(&self) -> [(&'static str, u64); 2] {
        self.region.counts()
    }

    /// Sets the addresses that this rack serves.
    pub fn set_own(&self, own: BTreeSet<IpAddr>) {
        self.served.send_if_modified(|served| {
            let is_news = *served != own;
            *served = own;
            is_news
        });
    }

    /// Follows concern `proxy` until cancelled. `power` names the BMCs, which the proxy must not connect to.
    pub async fn follow(
        self: Arc<Self>,
        view: watch::Receiver<Option<Arc<ProxyConcern>>>,
        power: watch::Receiver<Option<Arc<PowerConcern>>>,
        stop: CancellationToken,
    ) {
        let (tell, wanted) = watch::channel(None);
        let via = watch::Sender::new(ProxyVia::Unspecified);
        tokio::join!(
            self.keeper.keep(wanted, stop.clone()),
            self.configure(view, power, tell, &via, &stop),
            self.report(via.subscribe(), &stop),
        );
    }

    /// Computes the configuration, again whenever something that it depends on has changed.
    async fn configure(
        &self,
        mut view: watch::Receiver<Option<Arc<ProxyConcern>>>,
        mut power: watch::Receiver<Option<Arc<PowerConcern>>>,
        tell: watch::Sender<Option<Wanted>>,
        via: &watch::Sender<ProxyVia>,
        stop: &CancellationToken,
    ) {
        let mut own = self.served.subscribe();
        let mut timer = tokio::time::interval(LOOK);
        let mut door: Option<region::Door> = None;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Ok(()) = view.changed() => tokio::time::sleep(GATHER).await,
                Ok(()) = power.changed() => tokio::time::sleep(GATHER).await,
                Ok(()) = own.changed() => {}
                _ = timer.tick() => {}
            }
            let concern = view.borrow_and_update().clone();
            let bmcs = bmcs(power.borrow_and_update().as_deref());
            let at = own.borrow_and_update().iter().map(|&it| (it, self.options.port).into()).collect();
            let way = concern.as_ref().filter(|it| it.enabled).map_or(ProxyVia::Unspecified, |it| it.via());
            if way == ProxyVia::Unspecified {
                door = None;
            } else if door.is_none() {
                match Arc::clone(&self.region).open().await {
                    Ok(opened) => door = Some(opened),
                    Err(error) => {
                        tracing::warn!(%error, "no port of 127.0.0.1 is free for the way to regions")
                    }
                }
            }
            let through = door.as_ref().map(region::Door::address);
            let wanted = self.wanted(concern.as_deref(), at, &bmcs, through);
            via.send_if_modified(|told| std::mem::replace(told, way) != way);
            tell.send_if_modified(|told| {
                let is_news = *told != wanted;
                *told = wanted;
                is_news
            });
        }
    }

    /// The configuration that should be in force. `door` leads to the proxies of regions.
    fn wanted(
        &self,
        concern: Option<&ProxyConcern>,
        listen: Vec<SocketAddr>,
        bmcs: &[IpNet],
        door: Option<SocketAddr>,
    ) -> Option<Wanted> {
        let concern = concern.filter(|it| it.enabled && !listen.is_empty())?;
        let clients: Vec<IpNet> = concern.clients.iter().filter_map(|it| it.parse().ok()).collect();
        let denied = concern.denied.iter().filter_map(|it| it.parse().ok()).chain(bmcs.iter().copied());
        let (parents, direct) = way_out(concern, door)?;
        (!clients.is_empty()).then(|| Wanted {
            name: self.options.name.clone(),
            listen,
            clients: IpNet::aggregate(&clients),
            connections_of_one: Some(CONNECTIONS_OF_ONE),
            denied: Wanted::denied(denied),
            parents,
            direct,
            dir: self.options.dir.clone(),
            cache_mib: 0,
        })
    }

    /// Reports the state whenever it has changed.
    async fn report(&self, mut via: watch::Receiver<ProxyVia>, stop: &CancellationToken) {
        let (mut state, mut reach) = (self.keeper.state(), self.region.reach());
        let mut told = None;
        while !stop.is_cancelled() {
            let via_now = *via.borrow_and_update();
            let now = match &*state.borrow_and_update() {
                State::Off => (true, String::new()),
                State::Serves { at, lost } => {
                    let words = serves(at, via_now, &reach.borrow_and_update());
                    (true, [Some(words), lost.clone()].into_iter().flatten().collect::<Vec<_>>().join("; "))
                }
                State::Lacks(problem) => (false, problem.clone()),
            };
            if told.as_ref().unwrap_or(&(true, String::new())) != &now {
                self.facts.tell(match &now {
                    (true, words) => remark(PROXY, words),
                    (false, problem) => health(PROXY, Some(problem)),
                });
            }
            told = Some(now);
            tokio::select! {
                () = stop.cancelled() => return,
                Ok(()) = state.changed() => {}
                Ok(()) = reach.changed() => {}
                Ok(()) = via.changed() => {}
            }
        }
    }
}

/// The parent proxies that Squid asks, in order, and true if it may also ask servers directly. `None`: the
/// concern is not usable.
fn way_out(concern: &ProxyConcern, door: Option<SocketAddr>) -> Option<(Vec<Parent>, bool)> {
    let upstream = match concern.upstream.as_str() {
        "" => None,
        url => Some(Parent::parse(url)?),
    };
    let door = door.map(|at| Parent { host: at.ip().to_string(), port: at.port() });
    Some(match concern.via() {
        ProxyVia::Unspecified => (upstream.iter().cloned().collect(), upstream.is_none()),
        ProxyVia::PreferRegion => (door.into_iter().chain(upstream.clone()).collect(), upstream.is_none()),
        ProxyVia::Region => (door.into_iter().collect(), false),
    })
}

fn taken(at: SocketAddr, error: &io::Error) -> String {
    holder::refused("proxy", Protocol::Tcp, at, error, ADVICE).to_string()
}

fn serves(at: &[SocketAddr], via: ProxyVia, reach: &Reach) -> String {
    let at = at.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let way = match (via, reach) {
        (ProxyVia::Unspecified, _) | (_, Reach::Unknown) => String::new(),
        (_, Reach::Through(region)) => format!(" through region {region}"),
        (ProxyVia::PreferRegion, Reach::Refused(why)) => format!(" by its own way out: {why}"),
        (ProxyVia::Region, Reach::Refused(why)) => format!(" from its cache alone: {why}"),
    };
    format!("Squid serves {at}{way}")
}

/// The networks and addresses of BMCs that this rack knows.
fn bmcs(power: Option<&PowerConcern>) -> Vec<IpNet> {
    let networks = power.iter().flat_map(|it| &it.networks).filter_map(|it| it.parse().ok());
    let addresses = power.iter().flat_map(|it| &it.bmcs).filter_map(|it| it.address.parse::<IpAddr>().ok());
    networks.chain(addresses.map(IpNet::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bmcs_are_those_that_the_rack_is_told() {
        let bmc = basalt_proto::rack_v1::Bmc { address: "10.9.0.7".into(), ..Default::default() };
        let power = PowerConcern { bmcs: vec![bmc], networks: vec!["10.8.0.0/24".into()], reading_ms: 0 };
        let nets: Vec<String> = bmcs(Some(&power)).iter().map(ToString::to_string).collect();
        assert_eq!(nets, ["10.8.0.0/24", "10.9.0.7/32"]);
        assert!(bmcs(None).is_empty());
    }

    #[test]
    fn the_way_out_is_the_declared_one_and_leads_past_regions_only_if_that_is_declared() {
        let door = Some(SocketAddr::from(([127, 0, 0, 1], 4000)));
        let way = |via: ProxyVia, upstream: &str, door| {
            let concern = ProxyConcern { via: via.into(), upstream: upstream.into(), ..Default::default() };
            let (parents, direct) = way_out(&concern, door).unwrap();
            (parents.iter().map(|it| format!("{}:{}", it.host, it.port)).collect::<Vec<_>>(), direct)
        };
        let (region, other) = ("127.0.0.1:4000".to_owned(), "proxy:3128".to_owned());
        for (via, upstream, parents, direct) in [
            (ProxyVia::Unspecified, "", vec![], true),
            (ProxyVia::Unspecified, "http://proxy:3128", vec![other.clone()], false),
            (ProxyVia::PreferRegion, "", vec![region.clone()], true),
            (ProxyVia::PreferRegion, "http://proxy:3128", vec![region.clone(), other], false),
            (ProxyVia::Region, "", vec![region.clone()], false),
            (ProxyVia::Region, "http://proxy:3128", vec![region], false),
        ] {
            let door = door.filter(|_| via != ProxyVia::Unspecified);
            assert_eq!(way(via, upstream, door), (parents, direct), "{via:?} {upstream}");
        }
        assert_eq!(way(ProxyVia::Region, "", None), (vec![], false), "without a door nothing is asked");
    }
}
