//! The DHCP server: sockets, the lease file and facts around the pure core of `basalt-dhcp`.
//!
//! Each served interface has its sockets ([`wire`]). Messages are answered in batches: every message that waits is handled, all
//! leases of the batch become durable with one sync, then the replies leave.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use basalt_dhcp::{Action, BootClient, Event, Lease, LeaseState, Mac, Server, Time, ingress};
use basalt_proto::rack_v1::{DhcpConcern, DhcpInForceFact, LeaseFact, Leases, fact::Body};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::boot::BootTable;
use crate::clock::unix_ms;
use crate::dhcp6::Dhcp6;
use crate::facts::About;
use crate::health::Health;
use crate::interfaces::Served;
use crate::journal::Journal;
use crate::lease_file;
use crate::loaders::Loaders;
use crate::presence::Presence;
use crate::spool::writer::Facts;

pub mod config;
mod learned;
pub(crate) mod leftover;
pub(crate) mod others;
pub(crate) mod trace;
mod wire;

use others::Others;
use trace::Parked;
use wire::{Batch, Outgoing, Wire};

/// The lease file is rewritten at start, and when it has grown to this size.
const COMPACT_BYTES: u64 = 64 << 20;
/// How often leases are looked through for expired ones.
const TICK: Duration = Duration::from_secs(5);
/// How long a host may take to say that it has an address. On one link that is a millisecond or a few; a client waits for its offer for seconds.
const PROBE: Duration = Duration::from_millis(200);

/// Which ports are spoken on. Others than the defaults are for tests.
#[derive(Debug, Clone, Copy)]
pub struct Ports {
    /// Of servers and relays: 67.
    pub server: u16,
    /// Of clients: 68.
    pub client: u16,
    /// Of boot servers: 4011. `None`: nobody is answered there.
    pub boot: Option<u16>,
    /// Of this rack's HTTP server, announced to boot clients.
    pub http: u16,
}

/// The server behind all sockets.
#[derive(Debug)]
pub struct Dhcp {
    /// The server of IPv6 subnets: of one concern, and told about together.
    pub v6: Arc<Dhcp6>,
    core: Mutex<Core>,
    ports: Ports,
    presence: Arc<Presence>,
    facts: Facts,
    boot: watch::Receiver<Option<Arc<BootTable>>>,
    others: Others,
}

#[derive(Debug)]
struct Core {
    server: Server,
    journal: Journal<Lease>,
    parked: Parked,
    /// When leases were lost.
    lost_at: Option<Time>,
    /// A region has told all that it knows of leases.
    is_told: bool,
    is_configured: bool,
    /// The blocks that are leased from; 0: of no region.
    delegation: u64,
}

impl Dhcp {
    /// Reads and compacts `DIR/leases`. Where leases were lost, dynamic addresses are withheld until those must have ended.
    ///
    /// # Errors
    /// The file system's.
    pub fn open(
        data_dir: &Path,
        ran_before: bool,
        ports: Ports,
        presence: Arc<Presence>,
        facts: Facts,
        boot: watch::Receiver<Option<Arc<BootTable>>>,
        v6: Arc<Dhcp6>,
    ) -> io::Result<Self> {
        let now = now();
        let file = lease_file::open(&data_dir.join(lease_file::V4), ran_before, now)?;
        let mut journal = file.journal;
        let mut server = Server::new(basalt_dhcp::Config::default()).map_err(io::Error::other)?;
        server.restore(file.records);
        if let Some(at) = file.lost_at {
            server.withhold_dynamic_until(lease_file::withheld_until(at, false));
        }
        let leases: Vec<Lease> = server.leases().cloned().collect();
        journal.rewrite(&leases)?;
        for lease in leases.iter().filter(|lease| lease.state == LeaseState::Bound && lease.is_live(now)) {
            presence.leased(lease.mac, lease.address.into(), millis(lease.expires));
        }
        let core = Mutex::new(Core {
            server,
            journal,
            parked: Parked::default(),
            lost_at: file.lost_at,
            is_told: false,
            is_configured: false,
            delegation: 0,
        });
        Ok(Self { core, v6, ports, presence, facts, boot, others: Others::default() })
    }

    /// Takes another concern; it was checked before. From here on addresses are granted by it alone, and that is told.
    pub fn configure(&self, concern: &DhcpConcern, loaders: &Loaders) {
        let mut config = match config::config(concern, self.ports.http) {
            Ok(config) => config,
            Err(error) => {
                tracing::error!(%error, "the DHCP concern cannot be used; the one before stays");
                return;
            }
        };
        for (subnet, told) in config.subnets.iter_mut().zip(&concern.subnets) {
            loaders.replace_absent(told.loader(), &mut subnet.boot);
        }
        let mut core = self.lock();
        let actions = match core.server.set_config(now(), config) {
            Ok(actions) => actions,
            Err(error) => {
                tracing::error!(%error, "the DHCP concern contradicts itself; the one before stays");
                return;
            }
        };
        core.is_configured = true;
        let learned = core.learned(&actions);
        // What is not in force of IPv6 is not in force.
        if self.v6.configure(concern, loaders) {
            core.delegation = concern.delegation;
            self.tell_in_force(&core);
        }
        drop(core);
        learned.into_iter().for_each(|event| self.report(event));
    }

    /// Tells again which blocks are leased from: a region may have lost what it was told.
    pub fn repeat_in_force(&self) {
        self.tell_in_force(&self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell_in_force(&self, core: &Core) {
        if core.delegation == 0 {
            return;
        }
        let now = now();
        let leases: Vec<&Lease> = core.server.leftover(now).collect();
        let mut leftover =
            leftover::runs(leases.iter().map(|lease| {
                (&*lease.subnet, lease.address.into(), leftover::lasts(now, lease.held_until()))
            }));
        let (further, unsure) = self.v6.leftover();
        leftover.extend(further);
        let longest = core.server.config().subnets.iter().map(|subnet| subnet.lease_seconds).max();
        let unsure = unsure.max(lease_file::unsure(core.lost_at, longest, now));
        let unsure_ms = u64::try_from(unsure.as_millis()).unwrap_or(u64::MAX);
        let fact = DhcpInForceFact { delegation: core.delegation, leftover, unsure_ms };
        self.facts.tell(About::default().saw(Body::DhcpInForce(fact)));
    }

    /// A region has stored this lease: its renewals may take the whole lease time.
    pub fn acknowledge(&self, address: Ipv4Addr, mac: Mac) {
        let mut core = self.lock();
        let known = core.server.lease(address).is_some_and(|lease| lease.mac == mac && lease.acknowledged);
        if known {
            return;
        }
        if let Some(lease) = core.server.acknowledge(address, mac).cloned()
            && let Err(error) = core.journal.append(&[lease])
        {
            tracing::warn!(%error, %address, "the lease file cannot be written");
        }
    }

    /// Takes what a region says that racks granted where this one gives addresses.
    pub fn learn(&self, told: Leases) {
        let now = now();
        let leases = told.leases.into_iter().filter_map(|lease| learned::told(lease, now));
        let mut core = self.lock();
        let actions = core.server.learn(now, leases);
        core.is_told |= told.complete;
        let learned = core.learned(&actions);
        drop(core);
        learned.into_iter().for_each(|event| self.report(event));
    }

    /// How many leases run.
    #[must_use]
    pub fn bound(&self) -> usize {
        let (core, now) = (self.lock(), now());
        core.server.leases().filter(|lease| lease.state == LeaseState::Bound && lease.is_live(now)).count()
    }

    /// How many addresses were offered without asking whether they are in use, since too many were being asked for.
    #[must_use]
    pub fn unprobed(&self) -> u64 {
        self.lock().server.unprobed()
    }

    /// Takes note of which addresses this rack has on which of its interfaces.
    pub fn set_links(&self, links: BTreeMap<u32, Vec<Ipv4Addr>>) {
        self.lock().server.set_links(links);
    }

    /// Answers on one interface until cancelled.
    ///
    /// # Errors
    /// What failed.
    pub async fn serve(
        self: &Arc<Self>,
        at: &Served,
        health: &Health,
        stop: &CancellationToken,
    ) -> io::Result<()> {
        let wire = Wire::open(at, self.ports)?;
        tracing::info!(interface = %at.interface, addresses = ?at.addresses, port = self.ports.server, "DHCP is served");
        let _probing = wire.can_probe().then(|| Probing::on(self, at.index));
        health.up();
        let others = self.look_for_others(at);
        tokio::pin!(others);
        loop {
            let conclusion = self.lock().server.next_conclusion(now(), at.index);
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                ready = wire.readable() => ready?,
                () = tokio::time::sleep(conclusion.unwrap_or_default()), if conclusion.is_some() => {}
                never = &mut others => match never {},
            }
            let batch = wire.receive()?;
            if batch.messages.is_empty() && batch.boot.is_empty() && conclusion.is_none() {
                // ARP between others.
                continue;
            }
            let (this, interface) = (Arc::clone(self), at.index);
            let outgoing = tokio::task::spawn_blocking(move || this.answer(interface, &batch))
                .await
                .map_err(io::Error::other)?;
            for outgoing in outgoing {
                wire.send(outgoing).await;
            }
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
            let actions = self.lock().server.tick(now());
            for action in actions {
                if let Action::Report(event) = action {
                    self.report(event);
                }
            }
        }
    }

    /// Handles what came in on an interface, and what is due there. What it returns may be sent: its leases are durable.
    fn answer(&self, interface: u32, batch: &Batch) -> Vec<Outgoing> {
        let (mut handled, mut chosen, mut traced) = (Vec::new(), Vec::new(), Vec::new());
        let kept = {
            let mut core = self.lock();
            let core = &mut *core;
            for (holder, address) in &batch.claims {
                handled.push(core.server.heard(now(), interface, *address, *holder));
            }
            handled.push(core.server.conclude(now(), interface));
            for actions in &handled {
                traced.extend(core.parked.concluded(&core.server, interface, actions));
            }
            let trace = self.facts.trace();
            for (via, datagram) in &batch.messages {
                match ingress::parse(datagram) {
                    Ok(packet) => {
                        let actions = core.server.handle(now(), *via, &packet);
                        chosen.extend(others::chosen(&packet, &actions));
                        traced.extend(core.parked.message(trace, &core.server, interface, &packet, &actions));
                        handled.push(actions);
                    }
                    Err(error) => tracing::debug!(%error, interface, "malformed DHCP message"),
                }
            }
            for (via, from, datagram) in &batch.boot {
                match ingress::parse(datagram) {
                    Ok(packet) => {
                        let actions = core.server.handle_boot(now(), *via, *from, &packet);
                        traced.extend(core.parked.message(trace, &core.server, interface, &packet, &actions));
                        handled.push(actions);
                    }
                    Err(error) => {
                        tracing::debug!(%error, interface, %from, "malformed message to the boot server port")
                    }
                }
            }
            core.keep(&persisted(handled.iter().flatten()))
        };
        if let Err(error) = &kept {
            tracing::error!(%error, "leases cannot be written: clients are not answered, and ask again");
        }
        for (mac, entry) in traced {
            self.facts.trace().saw(mac, self.boot.borrow().as_deref(), trace::kept(entry, kept.is_ok()));
        }
        for (mac, server) in chosen {
            self.found(interface, server, &format!("{mac} took an address of it"));
        }
        let mut outgoing = Vec::new();
        for action in handled
            .into_iter()
            .flat_map(|actions| actions.into_iter().map_while(|it| durable(it, kept.is_ok())))
        {
            match action {
                Action::Persist(_) => {}
                Action::Send { via, to, bytes } => outgoing.push(Outgoing::Reply { via, to, bytes }),
                Action::Probe { address, .. } => outgoing.push(Outgoing::Probe(address)),
                Action::Report(event) => self.report(event),
            }
        }
        outgoing
    }

    fn report(&self, event: Event) {
        let about = |mac| About::mac(mac, self.boot.borrow().as_deref());
        match event {
            Event::Leased { lease, renewed } => {
                let about = about(lease.mac);
                tracing::info!(machine = %about.machine_uid, mac = %lease.mac, address = %lease.address, renewed, "lease granted");
                self.presence.leased(lease.mac, lease.address.into(), millis(lease.expires));
                self.facts.tell(about.saw(lease_fact(&lease, false)));
            }
            Event::Learned(lease) => {
                let about = about(lease.mac);
                tracing::info!(machine = %about.machine_uid, mac = %lease.mac, address = %lease.address, "lease learned");
                if lease.is_live(now()) {
                    self.presence.leased(lease.mac, lease.address.into(), millis(lease.expires));
                    self.facts.tell(about.saw(lease_fact(&lease, false)));
                }
            }
            Event::Released(lease) | Event::Expired(lease) => {
                let about = about(lease.mac);
                tracing::info!(machine = %about.machine_uid, mac = %lease.mac, address = %lease.address, "lease ended");
                self.presence.ended(lease.mac, lease.address.into());
                self.facts.tell(about.saw(lease_fact(&lease, true)));
            }
            Event::Boot { mac, address, client, file } => {
                let about = about(mac);
                tracing::info!(machine = %about.machine_uid, %mac, %address, file, "boot client answered");
                if !matches!(client, BootClient::Unsupported { .. }) {
                    self.presence.booting(mac, address.into(), unix_ms());
                }
                let what = match client {
                    BootClient::Ipxe => "iPXE",
                    BootClient::Rom { .. } => "network boot ROM",
                    BootClient::Unsupported { .. } => "unsupported architecture",
                };
                self.facts.tell(about.requested("dhcp", what, &file, &address.to_string()));
            }
            Event::Conflict { lease, ended } => {
                let message =
                    format!("{} found its address {} in use by another host", lease.mac, lease.address);
                tracing::warn!(mac = %lease.mac, address = %lease.address, "address is in use by another host");
                let about = about(lease.mac);
                self.facts.tell(about.alarm("address_conflict", &message));
                // The address rests until the record expires; the lease is over now.
                let lease = Lease { expires: lease.granted, ..lease };
                if ended {
                    self.presence.ended(lease.mac, lease.address.into());
                    self.facts.tell(about.saw(lease_fact(&lease, true)));
                }
            }
            Event::Taken { lease, holder } => {
                let (mac, address) = (lease.mac, lease.address);
                let message = format!(
                    "{address} was to be offered to {mac} and is in use by {holder}, which has no lease"
                );
                tracing::warn!(%mac, %address, %holder, "address is in use by another host; nobody is offered it for a while");
                self.facts.tell(about(mac).alarm("address_conflict", &message));
            }
            Event::Offered { mac, address } => tracing::debug!(%mac, %address, "address offered"),
            Event::Refused { mac, address, reason } => {
                tracing::info!(%mac, %address, reason, "address refused")
            }
            Event::Ignored { mac, reason } => tracing::debug!(?mac, %reason, "DHCP message not answered"),
        }
    }
}

/// Addresses are probed on an interface for as long as this lives.
struct Probing<'a> {
    dhcp: &'a Dhcp,
    interface: u32,
}

impl<'a> Probing<'a> {
    fn on(dhcp: &'a Dhcp, interface: u32) -> Self {
        dhcp.lock().server.set_probing(interface, Some(PROBE));
        Self { dhcp, interface }
    }
}

impl Drop for Probing<'_> {
    fn drop(&mut self) {
        self.dhcp.lock().server.set_probing(self.interface, None);
    }
}

impl Core {
    fn keep(&mut self, leases: &[Lease]) -> io::Result<()> {
        if leases.is_empty() {
            return Ok(());
        }
        self.journal.append(leases)?;
        self.journal.compact(COMPACT_BYTES, || self.server.leases().cloned().collect());
        Ok(())
    }

    /// Keeps what was learned of leases; what is then to be reported. Once all that a region knows is known here, dynamic addresses
    /// are withheld for a shorter time.
    fn learned(&mut self, actions: &[Action]) -> Vec<Event> {
        if let Err(error) = self.keep(&persisted(actions)) {
            tracing::error!(%error, "leases that a region told cannot be written");
            return Vec::new();
        }
        let is_whole = self.is_told && self.is_configured && !self.server.has_unplaced();
        if let Some(at) = self.lost_at.filter(|_| is_whole) {
            self.server.withhold_dynamic_until(lease_file::withheld_until(at, true));
        }
        let event = |action: &Action| match action {
            Action::Report(event) => Some(event.clone()),
            _ => None,
        };
        actions.iter().filter_map(event).collect()
    }
}

/// Ends a message's actions at a lease that could not be kept.
fn durable(action: Action, kept: bool) -> Option<Action> {
    (kept || !matches!(action, Action::Persist(_))).then_some(action)
}

fn persisted<'a>(actions: impl IntoIterator<Item = &'a Action>) -> Vec<Lease> {
    let lease = |action: &Action| match action {
        Action::Persist(lease) => Some(lease.clone()),
        _ => None,
    };
    actions.into_iter().filter_map(lease).collect()
}

fn lease_fact(lease: &Lease, released: bool) -> Body {
    Body::Lease(LeaseFact {
        address: lease.address.to_string(),
        hostname: lease.hostname.clone().unwrap_or_default(),
        expires_unix_ms: millis(lease.expires),
        released,
        subnet_uid: lease.subnet.clone(),
        kept_unix_ms: lease.promised_until.map_or(0, millis),
    })
}

fn now() -> Time {
    Time(u64::try_from(unix_ms()).unwrap_or(0))
}

fn millis(time: Time) -> i64 {
    i64::try_from(time.unix_millis()).unwrap_or(i64::MAX)
}
