//! The DHCP server: sockets, the lease file and facts around the sans-IO core of `basalt-dhcp`.
//!
//! Each served interface has its sockets ([`wire`]). Messages are answered in batches. Answers without a lease leave at
//! once. The others leave when the leases of the batch are durable; the next batch is handled meanwhile.
//!
//! The rack is one server at all addresses of a served interface. Subnets that share an interface share the link: a client gets an address
//! of any of them, and names the rack by the rack's address there. The clients of a relay are on the link that option 82 or 118 names, or
//! else on the relay's own link.
//!
//! An answer to a client without an address is a frame to its hardware address. Without `CAP_NET_RAW` it is broadcast.
//!
//! If a lease cannot be written, the rack notes it ([`disk`](crate::disk)) and reports it in its hello. Until writes work again it offers
//! nothing, and images leave the cache (`room`).
//!
//! Racks of one network learn each other's leases (docs/decisions/055-shared-leases.md). A region keeps the last grant of each rack for each
//! address, and sends changes to the other racks every few seconds (`learned`).

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use basalt_dhcp::{
    Action, BootClient, Declared, Event, Ignored, Lease, LeaseState, Mac, Server, Time, ingress,
};
use basalt_proto::rack_v1::{DhcpConcern, DhcpInForceFact, LeaseFact, Leases, fact::Body};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::boot::BootTable;
use crate::clock::Clock;
use crate::dhcp6::Dhcp6;
use crate::disk;
use crate::facts::About;
use crate::health::Health;
use crate::interfaces::Served;
use crate::lease_file;
use crate::lease_log::{Kept, LeaseLog, NotKept};
use crate::loaders::Loaders;
use crate::presence::Presence;
use crate::spool::writer::Facts;

pub mod config;
mod learned;
mod left_out;
pub(crate) mod leftover;
pub(crate) mod others;
pub(crate) mod shortage;
pub(crate) mod trace;
mod wire;

use left_out::LeftOut;
use others::{Others, Racks};
use shortage::{Lack, Shortages};
use trace::Parked;
use wire::{Batch, Outgoing, Wire};

/// The most batches of an interface whose leases are being written; no more are read meanwhile.
const ON_THE_WAY: usize = 8;
/// The interval of the search for expired leases.
const TICK: Duration = Duration::from_secs(5);
/// How long a host may take to answer a probe. On one link an answer takes a few milliseconds; a client waits for its
/// offer for seconds.
const PROBE: Duration = Duration::from_millis(200);

/// The ports that are used. Tests use others than the defaults.
#[derive(Debug, Clone, Copy)]
pub struct Ports {
    /// The port of servers and relays: 67.
    pub server: u16,
    /// The port of clients: 68.
    pub client: u16,
    /// The port of boot servers: 4011. `None`: requests to it are not answered.
    pub boot: Option<u16>,
    /// The port of this rack's HTTP server, sent to boot clients.
    pub http: u16,
}

/// The DHCP servers, with the state that all sockets share.
#[derive(Debug)]
pub struct Dhcp {
    /// The server of the IPv6 subnets. Both servers take the same concern and report in one fact.
    pub v6: Arc<Dhcp6>,
    core: Arc<Mutex<Core>>,
    clock: Clock,
    ports: Ports,
    presence: Arc<Presence>,
    facts: Facts,
    boot: watch::Receiver<Option<Arc<BootTable>>>,
    others: Others,
    racks: Racks,
    left_out: LeftOut,
}

#[derive(Debug)]
struct Core {
    server: Server,
    clock: Clock,
    /// The lease file. It is written under the core's lock, so in the order of the leases. `None` until the core
    /// exists.
    log: Option<LeaseLog<Lease>>,
    parked: Parked,
    shortages: Shortages,
    /// When lease records were lost.
    lost_at: Option<Time>,
    /// A region has sent every lease that it knows.
    is_told: bool,
    is_configured: bool,
    /// The number of the delegation whose blocks are leased from; 0 if it comes from no region.
    delegation: u64,
}

impl Dhcp {
    /// Reads and compacts `DIR/leases`. If leases were lost, dynamic addresses are withheld until those leases must
    /// have ended.
    ///
    /// # Errors
    /// `io::Error`: the file cannot be read or written.
    pub fn open(
        data_dir: &Path,
        ran_before: bool,
        ports: Ports,
        presence: Arc<Presence>,
        facts: Facts,
        boot: watch::Receiver<Option<Arc<BootTable>>>,
        v6: Arc<Dhcp6>,
    ) -> io::Result<Self> {
        let clock = facts.clock().clone();
        let path = data_dir.join(lease_file::V4);
        let file = lease_file::open(&path, ran_before, &clock, |lease: &Lease| lease.granted)?;
        let now = clock.now();
        let mut journal = file.journal;
        let mut server = Server::new(basalt_dhcp::Config::default()).map_err(io::Error::other)?;
        server.restore(file.records);
        if let Some(at) = file.lost_at {
            server.withhold_dynamic_until(lease_file::withheld_until(at, false));
        }
        let leases: Vec<Lease> = server.leases().cloned().collect();
        journal.rewrite(&leases)?;
        for lease in leases.iter().filter(|lease| lease.state == LeaseState::Bound && lease.is_live(now)) {
            presence.leased(lease.mac, lease.address.into(), lease.expires, now);
        }
        let core = Arc::new(Mutex::new(Core {
            server,
            clock: clock.clone(),
            log: None,
            parked: Parked::default(),
            shortages: Shortages::new(facts.clone()),
            lost_at: file.lost_at,
            is_told: false,
            is_configured: false,
            delegation: 0,
        }));
        let of = Arc::downgrade(&core);
        let all = move || Some(locked(&*of.upgrade()?).server.leases().cloned().collect());
        locked(&core).log = Some(LeaseLog::start(journal, (facts.disk(), disk::LEASES), all)?);
        Ok(Self {
            core,
            clock,
            v6,
            ports,
            presence,
            facts,
            boot,
            others: Others::default(),
            racks: Racks::default(),
            left_out: LeftOut::default(),
        })
    }

    /// Applies a concern that was checked before. From here on leases follow it, and a fact says so.
    pub async fn configure(&self, concern: &DhcpConcern, loaders: &Loaders) {
        let mut config = match config::config(concern, self.ports.http) {
            Ok(config) => config,
            Err(error) => {
                tracing::error!(%error, "the DHCP concern cannot be used; the one before stays");
                return;
            }
        };
        self.racks.told(&concern.racks, Instant::now());
        for (subnet, told) in config.subnets.iter_mut().zip(&concern.subnets) {
            loaders.replace_absent(told.loader(), &mut subnet.boot);
        }
        let (actions, kept) = {
            let mut core = self.lock();
            let actions = match core.server.set_config(self.clock.now(), config) {
                Ok(actions) => actions,
                Err(error) => {
                    tracing::error!(%error, "the DHCP concern contradicts itself; the one before stays");
                    return;
                }
            };
            core.is_configured = true;
            core.look_for_shortages(true);
            // If the rack refused the DHCPv6 part, do not report this delegation as in force.
            if self.v6.configure(concern, loaders) {
                core.delegation = concern.delegation;
                self.tell_in_force(&core);
            }
            let kept = core.keep(persisted(&actions));
            (actions, kept)
        };
        self.learned(actions, kept).await;
    }

    /// Reports the blocks in force again: a region may have lost the report.
    pub fn repeat_in_force(&self) {
        self.tell_in_force(&self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        locked(&self.core)
    }

    fn tell_in_force(&self, core: &Core) {
        if core.delegation == 0 {
            return;
        }
        let now = self.clock.now();
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

    /// Notes that a region has stored this lease: its renewals may take the whole lease time.
    pub fn acknowledge(&self, address: Ipv4Addr, mac: Mac) {
        let mut core = self.lock();
        let known = core.server.lease(address).is_some_and(|lease| lease.mac == mac && lease.acknowledged);
        if known {
            return;
        }
        if let Some(lease) = core.server.acknowledge(address, mac).cloned() {
            // If this record is lost, the region acknowledges the lease again with the next renewal.
            drop(core.keep(vec![lease]));
        }
    }

    /// Takes the leases, of this rack and of others, that a region has sent. They are in subnets that this rack serves.
    pub async fn learn(&self, told: Leases) {
        self.v6.learn(&told.leases, told.complete);
        let now = self.clock.now();
        let leases = told.leases.into_iter().filter_map(|lease| learned::told(lease, now));
        let (actions, kept) = {
            let mut core = self.lock();
            let actions = core.server.learn(now, leases);
            core.is_told |= told.complete;
            let kept = core.keep(persisted(&actions));
            (actions, kept)
        };
        self.learned(actions, kept).await;
    }

    /// Reports learned leases once they are written. Once this rack has every lease that the region knows, dynamic
    /// addresses are withheld for a shorter time.
    async fn learned(&self, actions: Vec<Action>, kept: Option<Kept>) {
        if let Some(mut kept) = kept
            && kept.wait().await.is_err()
        {
            return;
        }
        self.lock().withhold_no_longer();
        for action in actions {
            if let Action::Report(event) = action {
                self.report(event);
            }
        }
    }

    /// The number of running leases.
    #[must_use]
    pub fn bound(&self) -> usize {
        let (core, now) = (self.lock(), self.clock.now());
        core.server.leases().filter(|lease| lease.state == LeaseState::Bound && lease.is_live(now)).count()
    }

    /// The number of addresses offered without a probe because too many probes were open.
    #[must_use]
    pub fn unprobed(&self) -> u64 {
        self.lock().server.unprobed()
    }

    /// Sets the addresses that this rack has on each of its interfaces.
    pub fn set_links(&self, links: BTreeMap<u32, Vec<Ipv4Addr>>) {
        self.racks.own(links.values().flatten().copied(), Instant::now());
        self.lock().server.set_links(links);
    }

    /// Answers on one interface until cancelled.
    ///
    /// # Errors
    /// `io::Error`: a socket cannot be opened or read.
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
        let mut on_the_way = VecDeque::new();
        let ended = async {
            loop {
                let conclusion = self.lock().server.next_conclusion(self.clock.now(), at.index);
                let has_room = on_the_way.len() < ON_THE_WAY;
                tokio::select! {
                    () = stop.cancelled() => return Ok(()),
                    kept = first_kept(&mut on_the_way) => {
                        if let Some((answered, _)) = on_the_way.pop_front() {
                            self.send(&wire, answered, &kept).await;
                        }
                        continue;
                    }
                    ready = wire.readable(), if has_room => ready?,
                    () = tokio::time::sleep(conclusion.unwrap_or_default()), if has_room && conclusion.is_some() => {}
                    never = &mut others => match never {},
                }
                let batch = wire.receive()?;
                if batch.messages.is_empty() && batch.boot.is_empty() && conclusion.is_none() {
                    // ARP messages between other hosts.
                    continue;
                }
                let (at_once, later) = self.handle(at.index, &batch);
                self.send(&wire, at_once, &Ok(())).await;
                on_the_way.extend(later);
            }
        }
        .await;
        // A client sends its RELEASE only once, so finish the batches.
        for (answered, mut kept) in on_the_way {
            let kept = kept.wait().await;
            self.send(&wire, answered, &kept).await;
        }
        ended
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

    /// Handles the messages of an interface and its ended probes. Returns the answers to send at once, and those to
    /// send once their leases are written.
    fn handle(&self, interface: u32, batch: &Batch) -> (Answered, Option<(Answered, Kept)>) {
        let (mut handled, mut chosen): (Answered, _) = (Vec::new(), Vec::new());
        let (later, kept) = {
            let mut core = self.lock();
            let core = &mut *core;
            if let Some(table) = self.boot.borrow().as_deref() {
                core.server.set_declared(Declared::clone(table.declared()));
            }
            let mut due = Vec::new();
            for (holder, address) in &batch.claims {
                due.push(core.server.heard(self.clock.now(), interface, *address, *holder));
            }
            due.push(core.server.conclude(self.clock.now(), interface));
            for actions in due {
                let actions = core.held_back(actions);
                let traced = core.parked.concluded(&core.server, interface, &actions);
                handled.push(Handled { actions, traced });
            }
            let trace = self.facts.trace();
            for (via, datagram) in &batch.messages {
                match ingress::parse(datagram) {
                    Ok(packet) => {
                        let actions = core.server.handle(self.clock.now(), *via, &packet);
                        let actions = core.held_back(actions);
                        chosen.extend(others::chosen(&packet, &actions));
                        let traced = core.parked.message(trace, &core.server, interface, &packet, &actions);
                        handled.push(Handled { actions, traced: traced.into_iter().collect() });
                    }
                    Err(error) => tracing::debug!(%error, interface, "malformed DHCP message"),
                }
            }
            for (via, from, datagram) in &batch.boot {
                match ingress::parse(datagram) {
                    Ok(packet) => {
                        let actions = core.server.handle_boot(self.clock.now(), *via, *from, &packet);
                        let traced = core.parked.message(trace, &core.server, interface, &packet, &actions);
                        handled.push(Handled { actions, traced: traced.into_iter().collect() });
                    }
                    Err(error) => {
                        tracing::debug!(%error, interface, %from, "malformed message to the boot server port")
                    }
                }
            }
            let is_promise =
                |it: &mut Handled| it.actions.iter().any(|action| matches!(action, Action::Persist(_)));
            let later: Answered = handled.extract_if(.., is_promise).collect();
            let kept = core.keep(persisted(later.iter().flat_map(|it| &it.actions)));
            (later, kept)
        };
        for (mac, server) in chosen {
            self.found(interface, server, &format!("{mac} took an address of it"));
        }
        (handled, kept.map(|kept| (later, kept)))
    }

    /// Reports and sends answers. If the leases were not written, the answers with leases are dropped, and the clients
    /// ask again.
    async fn send(&self, wire: &Wire, answered: Answered, kept: &Result<(), NotKept>) {
        let is_ok = kept.is_ok();
        let mut outgoing = Vec::new();
        for Handled { actions, traced } in answered {
            for (mac, entry) in traced {
                self.facts.trace().saw(mac, self.boot.borrow().as_deref(), trace::kept(entry, is_ok));
            }
            for action in actions.into_iter().map_while(|it| durable(it, is_ok)) {
                match action {
                    Action::Persist(_) => {}
                    Action::Send { via, to, bytes } => outgoing.push(Outgoing::Reply { via, to, bytes }),
                    Action::Probe { address, .. } => outgoing.push(Outgoing::Probe(address)),
                    Action::Report(event) => self.report(event),
                }
            }
        }
        // Send only after the reports: a client with its address asks for its script at once, and the lease must be
        // known by then.
        for outgoing in outgoing {
            wire.send(outgoing).await;
        }
    }

    fn lease_fact(&self, lease: &Lease, released: bool) -> Body {
        Body::Lease(LeaseFact {
            address: lease.address.to_string(),
            hostname: lease.hostname.clone().unwrap_or_default(),
            expires_unix_ms: self.clock.unix(lease.expires),
            released,
            subnet_uid: lease.subnet.clone(),
            kept_unix_ms: lease.promised_until.map_or(0, |until| self.clock.unix(until)),
        })
    }

    fn report(&self, event: Event) {
        let about = |mac| About::mac(mac, self.boot.borrow().as_deref());
        match event {
            Event::Leased { lease, renewed } => {
                let about = about(lease.mac);
                tracing::info!(machine = %about.machine_uid, mac = %lease.mac, address = %lease.address, renewed, "lease granted");
                self.presence.leased(lease.mac, lease.address.into(), lease.expires, self.clock.now());
                self.facts.tell(about.saw(self.lease_fact(&lease, false)));
            }
            Event::Learned(lease) => {
                let about = about(lease.mac);
                tracing::info!(machine = %about.machine_uid, mac = %lease.mac, address = %lease.address, "lease learned");
                if lease.is_live(self.clock.now()) {
                    self.presence.leased(lease.mac, lease.address.into(), lease.expires, self.clock.now());
                    self.facts.tell(about.saw(self.lease_fact(&lease, false)));
                }
            }
            Event::Released(lease) | Event::Expired(lease) => {
                let about = about(lease.mac);
                tracing::info!(machine = %about.machine_uid, mac = %lease.mac, address = %lease.address, "lease ended");
                self.presence.ended(lease.mac, lease.address.into());
                self.facts.tell(about.saw(self.lease_fact(&lease, true)));
            }
            Event::Boot { mac, address, client, file } => {
                let about = about(mac);
                tracing::info!(machine = %about.machine_uid, %mac, %address, file, "boot client answered");
                if !matches!(client, BootClient::Unsupported { .. }) {
                    self.presence.booting(mac, address.into(), client.firmware(), self.clock.now());
                }
                let what = match client {
                    BootClient::Ipxe { .. } => "iPXE",
                    BootClient::Rom { .. } => "network boot ROM",
                    BootClient::Unsupported { .. } => "unsupported architecture",
                };
                self.facts.meters().asked("dhcp");
                self.facts.tell(about.requested("dhcp", what, &file, &address.to_string()));
            }
            Event::Conflict { lease, ended } => {
                let message =
                    format!("{} found its address {} in use by another host", lease.mac, lease.address);
                tracing::warn!(mac = %lease.mac, address = %lease.address, "address is in use by another host");
                let about = about(lease.mac);
                self.facts.tell(about.alarm("address_conflict", &message));
                // The address stays in quarantine until the record expires; the lease ends now.
                let lease = Lease { expires: lease.granted, ..lease };
                if ended {
                    self.presence.ended(lease.mac, lease.address.into());
                    self.facts.tell(about.saw(self.lease_fact(&lease, true)));
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
            Event::AnswersForAll { interface, holder } => {
                let message = format!(
                    "{holder} answers ARP for whatever address is asked; its word that an address is in use is not believed"
                );
                tracing::warn!(interface, %holder, "a host answers ARP for every address; addresses are offered all the same");
                self.facts.tell(about(holder).alarm("address_conflict", &message));
            }
            Event::LeftOut { mac, options } if self.left_out.is_news(&options, Instant::now()) => {
                tracing::warn!(%mac, ?options, "DHCP options do not fit into what a client takes, and are left out");
            }
            Event::LeftOut { mac, options } => tracing::debug!(%mac, ?options, "DHCP options are left out"),
            Event::Offered { mac, address } => tracing::debug!(%mac, %address, "address offered"),
            Event::Refused { mac, address, reason } => {
                tracing::info!(%mac, %address, reason, "address refused")
            }
            Event::Ignored { reason: Ignored::InfiniBand, .. } => self.facts.meters().infiniband("dhcp"),
            Event::Ignored { mac, ref reason } => {
                tracing::debug!(?mac, %reason, "DHCP message not answered");
                if let Some(lack) = shortage::of(&event) {
                    self.lock().refused(lack);
                }
            }
        }
    }
}

/// Keeps probing on for an interface until it is dropped.
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

/// The result of a message: actions, and lines for the trace.
#[derive(Debug)]
struct Handled {
    actions: Vec<Action>,
    traced: Vec<trace::Line>,
}

/// The results of several messages.
type Answered = Vec<Handled>;

/// Waits until the leases of the first batch are written; without a batch, waits for ever.
async fn first_kept(on_the_way: &mut VecDeque<(Answered, Kept)>) -> Result<(), NotKept> {
    match on_the_way.front_mut() {
        Some((_, kept)) => kept.wait().await,
        None => std::future::pending().await,
    }
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

    /// Drops an offer if its lease could not be written: the client would choose it rather than another rack's.
    fn held_back(&self, actions: Vec<Action>) -> Vec<Action> {
        if !self.log.as_ref().is_some_and(LeaseLog::fails) {
            return actions;
        }
        let held_back = |action: Action| match action {
            Action::Report(Event::Offered { mac, .. }) => {
                Some(Action::Report(Event::Ignored { mac: Some(mac), reason: Ignored::Unwritable }))
            }
            Action::Send { .. } => None,
            other => Some(other),
        };
        let is_offer = actions.iter().any(|it| matches!(it, Action::Report(Event::Offered { .. })));
        if is_offer { actions.into_iter().filter_map(held_back).collect() } else { actions }
    }

    fn refused(&mut self, lack: Lack) {
        self.shortages.refused(&self.server, lack, self.clock.now(), Instant::now());
    }

    fn look_for_shortages(&mut self, is_reconfigured: bool) {
        self.shortages.look(&self.server, self.clock.now(), Instant::now(), is_reconfigured);
    }

    /// Shortens the withholding once this rack has every lease that the region knows: the lost ones are among them.
    fn withhold_no_longer(&mut self) {
        let is_whole = self.is_told && self.is_configured && !self.server.has_unplaced();
        if let Some(at) = self.lost_at.filter(|_| is_whole) {
            self.server.withhold_dynamic_until(lease_file::withheld_until(at, true));
        }
    }
}

/// Drops a lease that could not be written, and so ends the message's actions.
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
