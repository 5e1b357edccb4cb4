//! The DHCPv6 server: sockets, the lease file and facts around the sans-IO core of `basalt_dhcp::v6`.
//!
//! It works like [`dhcp`](crate::dhcp): messages are answered in batches, all leases of a batch become durable with one
//! sync, then the replies leave. It opens its port only if the concern has IPv6 subnets. It has a DUID of its own, made
//! once and stored beside the leases.
//!
//! The link of a client is named by the nearest relay that names one, or else by the rack's own addresses. TFTP and HTTP also answer at the
//! IPv6 addresses of served interfaces. A boot token belongs to the protocol of the request for the script, and to the lease of that
//! protocol.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv6Addr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use basalt_dhcp::v6::ingress::{self, Packet};
use basalt_dhcp::v6::{
    Action, Arrival, Config, Duid, Event, Ignored, Lease, Server, Told, boot_client, infiniband,
};
use basalt_dhcp::{BootClient, Declared, LeaseState, Mac, Time};
use basalt_proto::rack_v1::rack_lease::Grantor;
use basalt_proto::rack_v1::{DhcpConcern, LeaseFact, Leftover, RackLease, fact::Body};
use dhcproto::v6::MessageType;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::boot::BootTable;
use crate::clock::Clock;
use crate::dhcp::leftover::{self, lasts};
use crate::dhcp::shortage::{self, Lack, Shortages};
use crate::durable;
use crate::facts::About;
use crate::health::Health;
use crate::interfaces::Served6;
use crate::lease_file;
use crate::lease_log::{Kept, LeaseLog, NotKept};
use crate::loaders::Loaders;
use crate::presence::Presence;
use crate::spool::writer::Facts;

pub mod config;
mod trace;
mod wire;

use wire::Wire;

/// The interval of the search for expired leases.
const TICK: Duration = Duration::from_secs(5);

/// The server behind all sockets.
#[derive(Debug)]
pub struct Dhcp6 {
    core: Arc<Mutex<Core>>,
    clock: Clock,
    http_port: u16,
    presence: Arc<Presence>,
    facts: Facts,
    boot: watch::Receiver<Option<Arc<BootTable>>>,
}

#[derive(Debug)]
struct Core {
    server: Server,
    /// The lease file. It is written under the core's lock, so in the order of the leases. `None` until the core
    /// exists.
    log: Option<LeaseLog<Lease>>,
    clock: Clock,
    shortages: Shortages,
    /// When lease records were lost.
    lost_at: Option<Time>,
    /// There are subnets to serve.
    wanted: bool,
}

impl Dhcp6 {
    /// Reads `DIR/duid`, and reads and compacts `DIR/leases6`. If leases were lost, dynamic addresses are withheld
    /// until those leases must have ended.
    ///
    /// # Errors
    /// `io::Error`: a file cannot be read or written.
    pub fn open(
        data_dir: &Path,
        ran_before: bool,
        http_port: u16,
        presence: Arc<Presence>,
        facts: Facts,
        boot: watch::Receiver<Option<Arc<BootTable>>>,
    ) -> io::Result<Self> {
        let (duid, had_one) = own_duid(&data_dir.join("duid"))?;
        let clock = facts.clock().clone();
        let path = data_dir.join(lease_file::V6);
        // A data directory of an earlier version has neither DUID nor leases: its rack leased nothing.
        let file = lease_file::open(&path, ran_before && had_one, &clock, |lease: &Lease| lease.granted)?;
        let now = clock.now();
        let mut journal = file.journal;
        let mut server = Server::new(duid, Config::default()).map_err(io::Error::other)?;
        server.restore(file.records);
        if let Some(at) = file.lost_at {
            server.withhold_dynamic_until(lease_file::withheld_until(at, false));
        }
        let leases: Vec<Lease> = server.leases().cloned().collect();
        journal.rewrite(&leases)?;
        for lease in leases.iter().filter(|lease| lease.state == LeaseState::Bound && lease.is_live(now)) {
            if let Some(mac) = lease.mac {
                presence.leased(mac, lease.address.into(), lease.expires, now);
            }
        }
        let shortages = Shortages::new(facts.clone());
        let (log, lost_at) = (None, file.lost_at);
        let core = Core { server, log, clock: clock.clone(), shortages, lost_at, wanted: false };
        let core = Arc::new(Mutex::new(core));
        let of = Arc::downgrade(&core);
        let all = move || Some(locked(&*of.upgrade()?).server.leases().cloned().collect());
        locked(&core).log = Some(LeaseLog::start(journal, (facts.disk(), "leases of IPv6"), all)?);
        Ok(Self { core, clock, http_port, presence, facts, boot })
    }

    /// Applies a concern that was checked before. False: it cannot be used, and the previous one stays.
    pub fn configure(&self, concern: &DhcpConcern, loaders: &Loaders) -> bool {
        let mut core = self.lock();
        let config = config::config(concern, self.http_port).map(|mut config| {
            for (subnet, told) in config.subnets.iter_mut().zip(&concern.subnets6) {
                loaders.replace_absent(told.loader(), &mut subnet.boot);
            }
            config
        });
        let config = config.map_err(|error| error.to_string());
        let wanted = config.as_ref().is_ok_and(|config| !config.subnets.is_empty());
        let taken = config.and_then(|config| {
            core.server.set_config(self.clock.now(), config).map_err(|error| error.to_string())
        });
        if let Err(error) = taken {
            tracing::error!(error, "the DHCPv6 subnets cannot be used; those before stay");
            return false;
        }
        core.wanted = wanted;
        core.look_for_shortages(true);
        true
    }

    /// True if there are subnets to serve.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.lock().wanted
    }

    /// Leases that still run on addresses outside this rack's blocks, and how long this list may be incomplete.
    #[must_use]
    pub fn leftover(&self) -> (Vec<Leftover>, Duration) {
        let (core, now) = (self.lock(), self.clock.now());
        let leases: Vec<&Lease> = core.server.leftover(now).collect();
        let leftover = leftover::runs(
            leases.iter().map(|lease| (&*lease.subnet, lease.address.into(), lasts(now, lease.expires))),
        );
        let longest = core.server.config().subnets.iter().map(|subnet| subnet.lease_seconds).max();
        (leftover, lease_file::unsure(core.lost_at, longest, now))
    }

    /// Notes that a region has stored this lease: its renewals may take the whole lease time.
    pub fn acknowledge(&self, address: Ipv6Addr, mac: Option<Mac>) {
        let mut core = self.lock();
        if let Some(lease) = core.server.acknowledge(self.clock.now(), address, mac).cloned() {
            // If this record is lost, the region acknowledges the lease again with the next renewal.
            drop(core.keep(vec![lease]));
        }
    }

    /// Takes this rack's leases that a region reports. `is_complete`: the region has sent all that it knows, so dynamic
    /// addresses are withheld for a shorter time.
    pub fn learn(&self, leases: &[RackLease], is_complete: bool) {
        let now = self.clock.now();
        let mut core = self.lock();
        let actions = core.server.learn(now, leases.iter().filter_map(|lease| told(lease, now)));
        let leases: Vec<Lease> = actions
            .into_iter()
            .filter_map(|action| if let Action::Persist(lease) = action { Some(lease) } else { None })
            .collect();
        if !leases.is_empty() {
            tracing::info!(leases = leases.len(), "leases of IPv6 that this rack had lost are known again");
        }
        // A lease that is not written here is reported again if it is lost again.
        drop(core.keep(leases));
        if let Some(at) = core.lost_at.filter(|_| is_complete) {
            core.server.withhold_dynamic_until(lease_file::withheld_until(at, true));
        }
    }

    /// The number of running leases.
    #[must_use]
    pub fn bound(&self) -> usize {
        self.lock().server.bound(self.clock.now())
    }

    /// Sets the addresses that this rack has on each of its interfaces.
    pub fn set_links(&self, links: BTreeMap<u32, Vec<Ipv6Addr>>) {
        self.lock().server.set_links(links);
    }

    /// Answers on one interface until cancelled.
    ///
    /// # Errors
    /// `io::Error`: a socket cannot be opened or read.
    pub async fn serve(
        self: &Arc<Self>,
        at: &Served6,
        health: &Health,
        stop: &CancellationToken,
    ) -> io::Result<()> {
        let wire = Wire::open(at)?;
        tracing::info!(interface = %at.interface, addresses = ?at.addresses, "DHCPv6 is served");
        health.up();
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                ready = wire.readable() => ready?,
            }
            let batch = wire.receive()?;
            let (answered, kept) = self.handle(&batch);
            let kept = match kept {
                Some(mut kept) => kept.wait().await,
                None => Ok(()),
            };
            self.send(&wire, answered, &kept).await;
        }
    }

    /// Reports expired leases until cancelled.
    pub async fn tick(&self, stop: &CancellationToken) {
        let mut timer = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = timer.tick() => {}
            }
            let actions = {
                let mut core = self.lock();
                core.look_for_shortages(false);
                core.server.tick(self.clock.now())
            };
            for action in actions {
                if let Action::Report(event) = action {
                    self.report(event);
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        locked(&self.core)
    }

    /// Handles the messages of an interface. Returns the answers, to be sent once their leases are written.
    fn handle(&self, batch: &[(Arrival, Vec<u8>)]) -> (Answered, Option<Kept>) {
        let (mut actions, mut traced) = (Vec::new(), Vec::new());
        let mut core = self.lock();
        if let Some(table) = self.boot.borrow().as_deref() {
            core.server.set_declared(Declared::clone(table.declared()));
        }
        for (via, datagram) in batch {
            match ingress::parse(datagram) {
                Ok(packet) => {
                    let of_packet = core.server.handle(self.clock.now(), *via, &packet);
                    let of_packet = core.held_back(&packet, of_packet);
                    let trace = self.facts.trace();
                    if boot_client(&packet).is_some() && infiniband(&packet).is_some() {
                        self.facts.meters().infiniband("dhcp6");
                    }
                    traced.extend(trace::message(trace, &core.server, *via, &packet, &of_packet));
                    actions.push(of_packet);
                }
                Err(error) => tracing::debug!(%error, from = %via.from, "malformed DHCPv6 message"),
            }
        }
        let leases = actions.iter().flatten().filter_map(|action| match action {
            Action::Persist(lease) => Some(lease.clone()),
            _ => None,
        });
        let kept = core.keep(leases.collect());
        (Answered { actions, traced }, kept)
    }

    /// Reports and sends answers. If the leases were not written, the answers with leases are dropped, and the clients
    /// ask again.
    async fn send(&self, wire: &Wire, answered: Answered, kept: &Result<(), NotKept>) {
        for (mac, entry) in answered.traced {
            let entry = crate::dhcp::trace::kept(entry, kept.is_ok());
            self.facts.trace().saw(mac, self.boot.borrow().as_deref(), entry);
        }
        let mut replies = Vec::new();
        for actions in answered.actions {
            // The actions of a message end at a lease that could not be written.
            for action in actions {
                match action {
                    Action::Persist(_) if kept.is_err() => break,
                    Action::Persist(_) => {}
                    Action::Send { via, to, bytes } => replies.push((via, to, bytes)),
                    Action::Report(event) => self.report(event),
                }
            }
        }
        // Send only after the reports: a client with its address asks for its script at once, and the lease must be
        // known by then.
        for (via, to, bytes) in replies {
            wire.send(via, to, &bytes).await;
        }
    }

    fn lease_fact(&self, lease: &Lease, released: bool) -> Body {
        Body::Lease(LeaseFact {
            address: lease.address.to_string(),
            hostname: lease.hostname.clone().unwrap_or_default(),
            expires_unix_ms: self.clock.unix(lease.expires),
            released,
            subnet_uid: lease.subnet.clone(),
            kept_unix_ms: 0,
        })
    }

    fn report(&self, event: Event) {
        match event {
            Event::Leased { lease, renewed } => {
                let about = self.about(lease.mac);
                tracing::info!(machine = %about.machine_uid, mac = ?lease.mac, duid = %lease.duid, address = %lease.address, renewed, "lease granted");
                if let Some(mac) = lease.mac {
                    self.presence.leased(mac, lease.address.into(), lease.expires, self.clock.now());
                }
                self.facts.tell(about.saw(self.lease_fact(&lease, false)));
            }
            Event::Released(lease) | Event::Expired(lease) => self.ended(&lease),
            Event::Conflict(lease) => {
                let who = lease.mac.map_or_else(|| lease.duid.to_string(), |mac| mac.to_string());
                let message = format!("{who} found its address {} in use by another host", lease.address);
                tracing::warn!(duid = %lease.duid, address = %lease.address, "address is in use by another host");
                self.facts.tell(self.about(lease.mac).alarm("address_conflict", &message));
                // The address stays in quarantine until the record expires; the lease ends now.
                self.ended(&Lease { expires: lease.granted, ..lease });
            }
            Event::Boot { duid, mac, address, client, url } => {
                let about = self.about(mac);
                tracing::info!(machine = %about.machine_uid, ?mac, %duid, %address, url, "boot client answered");
                if let Some(mac) = mac.filter(|_| !matches!(client, BootClient::Unsupported { .. })) {
                    self.presence.booting(mac, address.into(), client.firmware(), self.clock.now());
                }
                let what = match client {
                    BootClient::Ipxe { .. } => "iPXE",
                    BootClient::Rom { .. } => "network boot ROM",
                    BootClient::Unsupported { .. } => "unsupported architecture",
                };
                self.facts.meters().asked("dhcp");
                self.facts.tell(about.requested("dhcp", what, &url, &address.to_string()));
            }
            Event::Refused { duid, mac, reason } => {
                tracing::info!(?mac, %duid, %reason, "no address given");
                if let Some(lack) = shortage::of_v6(reason) {
                    self.lock().refused(lack);
                }
            }
            Event::Ignored { duid, reason } => tracing::debug!(?duid, %reason, "DHCPv6 message not answered"),
        }
    }

    fn ended(&self, lease: &Lease) {
        let about = self.about(lease.mac);
        tracing::info!(machine = %about.machine_uid, mac = ?lease.mac, duid = %lease.duid, address = %lease.address, "lease ended");
        if let Some(mac) = lease.mac {
            self.presence.ended(mac, lease.address.into());
        }
        self.facts.tell(about.saw(self.lease_fact(lease, true)));
    }

    /// The subject of a fact. A client whose hardware address is unknown belongs to no machine.
    fn about(&self, mac: Option<Mac>) -> About {
        mac.map_or_else(About::default, |mac| About::mac(mac, self.boot.borrow().as_deref()))
    }
}

/// The results of messages: the actions of each, and lines for the trace.
#[derive(Debug)]
struct Answered {
    actions: Vec<Vec<Action>>,
    traced: Vec<(Mac, crate::trace::Entry)>,
}

fn locked(core: &Mutex<Core>) -> MutexGuard<'_, Core> {
    core.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Core {
    /// Queues leases for writing in the order in which they were granted; `None` if there are none.
    fn keep(&self, leases: Vec<Lease>) -> Option<Kept> {
        let log = self.log.as_ref().filter(|_| !leases.is_empty())?;
        Some(log.keep(leases))
    }

    /// Drops an ADVERTISE with an address if leases cannot be written: the client would choose it rather than another
    /// rack's.
    fn held_back(&self, packet: &Packet, actions: Vec<Action>) -> Vec<Action> {
        let fails = self.log.as_ref().is_some_and(LeaseLog::fails);
        match packet.kind {
            MessageType::Solicit if fails && !actions.iter().any(|it| matches!(it, Action::Persist(_))) => {
                vec![Action::Report(Event::Ignored { duid: packet.client(), reason: Ignored::Unwritable })]
            }
            _ => actions,
        }
    }

    fn refused(&mut self, lack: Lack) {
        self.shortages.refused(&self.server, lack, self.clock.now(), Instant::now());
    }

    fn look_for_shortages(&mut self, is_reconfigured: bool) {
        self.shortages.look(&self.server, self.clock.now(), Instant::now(), is_reconfigured);
    }
}

/// Converts a lease of this rack that a region reports; `None` if it has no IPv6 address, or has ended.
fn told(lease: &RackLease, now: Time) -> Option<Told> {
    let is_own = lease.by() == Grantor::Self_ && !lease.given_back;
    let runs = Duration::from_millis(u64::try_from(lease.ends_in_ms).ok().filter(|_| is_own)?);
    let (address, subnet) = (lease.address.parse().ok()?, lease.subnet_uid.clone());
    Some(Told { address, mac: lease.mac.parse().ok(), subnet, ends: now + runs })
}

/// Reads the DUID from this file, or makes one from a new UUID. True if the file existed.
fn own_duid(path: &Path) -> io::Result<(Duid, bool)> {
    let mut had_one = false;
    match std::fs::read_to_string(path) {
        Ok(text) => match text.trim().parse() {
            Ok(duid) => return Ok((duid, true)),
            Err(error) => {
                tracing::error!(%error, "file `duid` is damaged: this rack gets another DUID, and clients will ask for their addresses anew");
                had_one = true;
            }
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let duid = Duid::of_uuid(uuid::Uuid::new_v4().into_bytes());
    durable::replace(path, format!("{duid}\n").as_bytes())?;
    Ok((duid, had_one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_leases_that_a_region_tells_those_are_taken_that_this_rack_granted_and_that_run() {
        let now = Time(1_700_000_000_000);
        let lease = RackLease {
            subnet_uid: "s6".into(),
            address: "2001:db8::1".into(),
            mac: "52:54:00:00:00:01".into(),
            ends_in_ms: 5_000,
            by: Grantor::Self_.into(),
            ..RackLease::default()
        };
        let said = told(&lease, now).unwrap();
        assert_eq!((said.address, said.ends), ("2001:db8::1".parse().unwrap(), now.plus_seconds(5)));
        assert_eq!(said.mac, Some(Mac([0x52, 0x54, 0, 0, 0, 1])));
        assert_eq!(told(&RackLease { mac: String::new(), ..lease.clone() }, now).unwrap().mac, None);
        for other in [
            RackLease { address: "10.77.0.1".into(), ..lease.clone() },
            RackLease { ends_in_ms: -1, ..lease.clone() },
            RackLease { given_back: true, ..lease.clone() },
            RackLease { by: Grantor::Owner.into(), ..lease },
        ] {
            assert_eq!(told(&other, now), None, "{other:?}");
        }
    }

    #[test]
    fn the_duid_stays_unless_its_file_is_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("duid");
        let (first, had_one) = own_duid(&path).unwrap();
        assert!(!had_one);
        assert_eq!(own_duid(&path).unwrap(), (first.clone(), true));
        std::fs::write(&path, "?").unwrap();
        let (second, had_one) = own_duid(&path).unwrap();
        assert!(second != first && had_one, "there may be leases");
    }
}
