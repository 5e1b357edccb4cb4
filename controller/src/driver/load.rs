//! Reads the planner's input from the store.
//!
//! [`Estate`] is the same for all machines, and [`Topology`](super::topology::Topology) keeps it in memory. The data of one machine is
//! read again each time.
//!
//! An object whose spec cannot be read is left out ([`readable`]), so that it affects no other object.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use basalt_api::agent::{BlobRef, DiskMarker};
use basalt_api::kinds::{
    Architecture, DeploymentSpec, FabricSpec, FileRole, ImagePurpose, ImageSpec, Inventory, MachineSpec,
    RackSpec, SettingsSpec, StaticRouteSpec, SubnetSpec, VlanSpec,
};
use basalt_api::values::{
    Attempt, DeploymentId, ImageId, MachineId, RackId, Sha256, SubnetId, Timestamp, Uid,
};
use basalt_db::{
    BmcAccount, BmcDestination, CurrentLease, EntryState, Fact, FleetLimits, HostName, Object, Slot, Store,
    StoreError, Tagged, TopologyRows,
};
use basalt_engine::Policy;
use basalt_engine::budget::Budget;
use basalt_engine::deadlines::DEADLINES;
use basalt_engine::facts::{Facts, StepKey, StepRecord};
use basalt_engine::input::{Claim, EphemeralImage, FirstBootScripts, MachineInput, ResolvedImage};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::addresses::{self, Addressing};
use super::bmc_account::{DeclaredBmc, InUse};
use super::entries;
use super::estate::{self, Net, RackSeen, RouteSeen};
use super::fold::fold;
use super::hardware_tests::HardwareTests;
use super::operation;
use super::scripts::Scripts;
use super::services::{self, Said};
use super::serving;
use super::tag::{self, TagSeen};
use super::zones::DomainSeen;
use crate::racks::observed::{self, Hello, Observed};
use crate::racks::sessions::Sessions;

/// The number of steps that are read of one machine, of each sort. A machine takes a few dozen between two inventories.
const STEPS: i64 = 1000;
/// The zone of machines that name none.
const DEFAULT_ZONE: &str = "default";

/// Everything that is the same for all machines. A clone is cheap, except for the racks.
#[derive(Clone, Debug)]
pub struct Estate {
    /// The subnets with their VLANs.
    pub nets: Arc<[Net]>,
    /// Routes of subnets, in a fixed order.
    pub routes: Arc<[RouteSeen]>,
    /// The racks, each with its presence.
    pub racks: Vec<RackSeen>,
    /// The images, newest first.
    pub images: Arc<[Image]>,
    /// The declared tags, by name.
    pub tags: Arc<[TagSeen]>,
    /// The declared domains, by name.
    pub domains: Arc<[DomainSeen]>,
    /// The settings of the whole region.
    pub settings: Arc<SettingsSpec>,
    /// The uid of the Settings, if they are declared.
    pub settings_uid: Option<Uid>,
    /// The reason why the Settings cannot be read. No action may begin then: the Settings may forbid it.
    pub unread: Option<String>,
}

/// An image, with the files that the region holds.
#[derive(Debug)]
pub struct Image {
    /// The image's id.
    pub uid: ImageId,
    /// The image's name.
    pub name: String,
    /// The declared spec.
    pub spec: ImageSpec,
    /// The sizes of the files that the region holds, in bytes.
    pub held: BTreeMap<FileRole, u64>,
}

/// The data of one machine in the store.
#[derive(Debug)]
pub struct Loaded {
    /// The planner's input.
    pub input: MachineInput,
    /// The deployment that owns it.
    pub deployment: Option<Object>,
    /// The addresses that the deployment needs and has.
    pub addressing: Addressing,
    /// The tasks of armed attempts, as they were composed.
    pub tasks: BTreeMap<Attempt, serde_json::Value>,
    /// The markers on its disks, by kernel name, from the last report.
    pub markers: BTreeMap<String, DiskMarker>,
    /// The facts behind the input.
    pub facts: Vec<Fact>,
    /// Its current leases.
    pub leases: Vec<CurrentLease>,
    /// The hardware of the machine.
    pub inventory: Option<Inventory>,
    /// All tags of the machine.
    pub tags: BTreeSet<String>,
    /// The automatic tags, including those that cannot be computed.
    pub automatic: Vec<Tagged>,
    /// The scripts of its tasks.
    pub scripts: Scripts,
    /// The ids of its step records, and when the effect of each was handed over.
    pub steps: Vec<(i64, Option<Timestamp>)>,
    /// The steps whose results are not recorded yet.
    pub open: Vec<(i64, StepKey)>,
    /// The machine's part in the fleet's budget.
    pub slot: Option<Slot>,
    /// The stored operations on it.
    pub operations: Vec<basalt_db::Operation>,
    /// The account that it has created on its BMC.
    pub account: Option<BmcAccount>,
    /// The reason why the password of that account may not be sent to where the BMC is now.
    pub misdirected: Option<String>,
    /// The declared destinations of the accounts that attempts asked for.
    pub destinations: BTreeMap<Attempt, BmcDestination>,
    /// The declared fields of its BMC. The input has the BMC as racks use it.
    pub declared: DeclaredBmc,
    /// The latest run of each test of its hardware.
    pub tests: HardwareTests,
    /// Its entries in racks' concerns, by concern.
    pub entries: BTreeMap<String, EntryState>,
    /// Its DNS names, as they were last written.
    pub host_names: BTreeSet<HostName>,
    /// The addresses that show the machine's network: those declared for its MACs, and the one of its last claim.
    pub stands_at: Vec<IpAddr>,
}

impl Loaded {
    /// Replaces the spec by another one, for a dry run.
    ///
    /// # Errors
    /// Fails if the database cannot be reached.
    pub async fn suppose(
        &mut self,
        store: &Store,
        estate: &Estate,
        mut spec: MachineSpec,
    ) -> Result<(), StoreError> {
        let (account, facts) = (self.account.as_ref(), &self.input.facts);
        let in_use = Box::pin(InUse::load(store, &estate.nets, &spec, account, facts)).await?;
        self.declared = DeclaredBmc::of(&spec);
        self.misdirected = in_use.misdirected;
        spec.bmc = in_use.bmc;
        (self.input.spec, self.input.bmc_account) = (spec, in_use.account);
        Ok(())
    }
}

/// Reads a stored spec.
///
/// # Errors
/// Fails if the spec does not have the form of the kind: another version wrote it.
pub fn spec<T: DeserializeOwned>(object: &Object) -> Result<T, StoreError> {
    serde_json::from_str(object.spec.get()).map_err(|error| {
        StoreError::Corrupt(format!("the spec of {} {:?}: {error}", object.kind, object.name))
    })
}

/// The objects whose specs can be read. An object that cannot be read gets an error in its own reconciliation, and is left out elsewhere.
pub fn readable<T: DeserializeOwned>(objects: Vec<Object>) -> impl Iterator<Item = (Object, T)> {
    objects.into_iter().filter_map(|object| match spec(&object) {
        Ok(spec) => Some((object, spec)),
        Err(error) => {
            tracing::warn!(%error, "left out, as if it were not there");
            None
        }
    })
}

impl Estate {
    /// The estate of these rows, without the racks' presence.
    #[must_use]
    pub fn of(mut rows: TopologyRows) -> Self {
        let nets = nets(&mut rows);
        let routes = routes(&mut rows, &nets);
        let racks: Vec<_> =
            readable(rows.take("Rack")).map(|(object, spec)| rack(&rows, &object, &spec)).collect();
        let mut images = Vec::new();
        for (object, spec) in readable::<ImageSpec>(rows.take("Image")) {
            let size = |sha256: &Sha256| rows.blobs.get(sha256.bytes()).copied();
            let held =
                spec.files.iter().filter_map(|(role, file)| Some((*role, size(&file.sha256)?))).collect();
            images.push((
                object.created_at,
                Image { uid: ImageId::from(object.uid), name: object.name.clone(), spec, held },
            ));
        }
        // Newest first.
        images.sort_by_key(|(created, image)| (std::cmp::Reverse(*created), image.uid));
        let images = images.into_iter().map(|(_, image)| image).collect();
        let tags = readable(rows.take("Tag")).map(|(object, spec)| TagSeen::new(&object, spec)).collect();
        let domains =
            readable(rows.take("Domain")).filter(|(object, _)| object.deletion_requested_at.is_none());
        let domains =
            domains.map(|(object, spec)| DomainSeen { uid: object.uid, name: object.name, spec }).collect();
        let declared = rows.take("Settings");
        let settings_uid = declared.first().map(|object| object.uid);
        let settings = declared.first().map(spec::<SettingsSpec>).transpose();
        let (settings, unread) = match settings {
            Ok(settings) => (settings.unwrap_or_default(), None),
            Err(error) => (SettingsSpec::default(), Some(error.to_string())),
        };
        let (nets, settings) = (nets.into(), Arc::new(settings));
        Self { nets, routes, racks, images, tags, domains, settings, settings_uid, unread }
    }

    /// Adds the presence of racks: their connections to this process, and when the others were last heard.
    ///
    /// Every fact of a rack counts as a sign of life, and racks send facts all the time. So the time is read only on demand, while a rack
    /// is away, and does not change the estate's position.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub(super) async fn with_presence(
        mut self,
        store: &Store,
        sessions: &Sessions,
    ) -> Result<Self, StoreError> {
        let regions = sessions.regions().borrow().clone();
        let is_other =
            |region: &String| regions.living.contains(region) && regions.own.as_ref() != Some(region);
        let mut away = Vec::new();
        for rack in &mut self.racks {
            rack.elsewhere = rack.linked_to.iter().any(is_other);
            // The rack was there although it had no fact to send.
            rack.last_seen = rack.last_seen.max(sessions.left(rack.uid));
            rack.connected = sessions.since(rack.uid);
            if rack.connected.is_none() {
                away.push(rack.uid.into());
            }
        }
        if away.is_empty() {
            return Ok(self);
        }
        let heard = store.last_heard(&away).await?;
        for rack in self.racks.iter_mut().filter(|rack| rack.connected.is_none()) {
            if let Some(heard) = heard.get(&rack.uid.into()) {
                rack.last_seen = rack.last_seen.max(*heard);
            }
        }
        Ok(self)
    }

    /// A policy with the deadlines that are declared for the region.
    #[must_use]
    pub fn policy(&self, policy: &Policy) -> Policy {
        let declared = &self.settings.deadlines;
        let rows = DEADLINES.iter().filter_map(|row| Some((row.id, declared.get(row.name)?)));
        rows.fold(policy.clone(), |policy, (id, time)| policy.with(id, time.get()))
    }

    /// The limits of the fleet's budget.
    #[must_use]
    pub fn limits(&self) -> FleetLimits {
        let budget = &self.settings.fleet_budget;
        FleetLimits {
            per_zone: budget.max_unavailable_per_zone,
            at_once: budget.max_unavailable,
            per_hour: budget.destructive_per_hour,
            power_on_per_minute: budget.power_on_per_minute,
        }
    }

    /// The budget from the view of a machine, and the machine's own part.
    async fn budget(
        &self,
        store: &Store,
        uid: MachineId,
        zone: &str,
    ) -> Result<(Budget, Option<Slot>), StoreError> {
        let used = store.fleet_use(uid, zone, self.limits()).await?;
        let budget = Budget {
            declared: self.settings.fleet_budget.clone(),
            unread: self.unread.clone(),
            zone: zone.to_owned(),
            in_zone: used.in_zone,
            in_region: used.in_region,
            first_ends: used.first_ends,
            hour_full_until: used.hour_full_until,
            minute_full_until: used.minute_full_until,
            waits_since: used.own.filter(|own| own.attempt.is_none()).map(|own| own.since),
        };
        Ok((budget, used.own))
    }

    /// The ephemeral environment for an architecture: the newest complete one.
    pub(super) fn ephemeral(&self, architecture: Architecture) -> Option<EphemeralImage> {
        self.images.iter().find_map(|image| {
            let file = |role| image.held.contains_key(&role).then(|| image.spec.files.get(&role)).flatten();
            if image.spec.purpose != ImagePurpose::Ephemeral || image.spec.architecture != architecture {
                return None;
            }
            Some(EphemeralImage {
                kernel: file(FileRole::Kernel)?.sha256,
                initrd: file(FileRole::Initrd)?.sha256,
                squashfs: file(FileRole::Squashfs)?.sha256,
                kernel_options: image.spec.kernel_options.clone().unwrap_or_default(),
            })
        })
    }

    /// The claim of a deployment on its machine, if the deployment were as `object` and `declared`, with its present addresses.
    #[must_use]
    pub fn as_if(
        &self,
        object: &Object,
        declared: &DeploymentSpec,
        now: Timestamp,
        claim: Option<Claim>,
    ) -> Claim {
        let image = self.images.iter().find(|image| image.name == declared.image.as_str());
        Claim {
            uid: DeploymentId::from(object.uid),
            name: object.name.clone(),
            generation: object.generation,
            spec: declared.clone(),
            claimed_at: claim.as_ref().map_or(now, |claim| claim.claimed_at),
            deletion_requested_at: object.deletion_requested_at,
            unassigned: claim.as_ref().map(|claim| claim.unassigned.clone()).unwrap_or_default(),
            assigned: claim.map(|claim| claim.assigned).unwrap_or_default(),
            image: image.and_then(|image| self.resolved(image.uid)),
        }
    }

    fn resolved(&self, uid: ImageId) -> Option<ResolvedImage> {
        let image = self.images.iter().find(|image| image.uid == uid)?;
        let root = image.spec.root()?;
        let held = image.held.get(&FileRole::RootTarball).copied();
        Some(ResolvedImage {
            uid,
            digest: digest(&image.spec),
            root: BlobRef { sha256: root.sha256.to_string(), size: held.or(root.size).unwrap_or(0) },
            available: held.is_some(),
            kernel_options: image.spec.kernel_options.clone().unwrap_or_default(),
        })
    }

    /// Reads the data of one machine.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn machine(&self, store: &Store, object: &Object) -> Result<Loaded, StoreError> {
        let uid = MachineId::from(object.uid);
        let mut machine: MachineSpec = spec(object)?;
        let mut stored = store.planning_facts(object.uid).await?;
        let entries = store.entry_states(object.uid).await?;
        self.drop_old_readings(&mut stored, entries::power_holder(&entries));
        let markers = markers(&stored);
        let rows = store.planning_steps(object.uid, STEPS).await?;
        let steps = rows.iter().map(|row| (row.id, row.started_at)).collect();
        let unfinished = rows.iter().filter(|row| row.finished_at.is_none());
        let open = unfinished.map(|row| (row.id, StepKey::from(row.step_key.clone()))).collect();
        let destinations = destinations(&rows)?;
        let (records, tasks) = records(rows)?;
        let mut facts: Facts = fold(stored.clone(), &records, &tasks);
        let inventory = facts.inventory.as_ref().map(|seen| Inventory::from_agent(&seen.inventory, &markers));
        let subject = tag::subject(&object.name, &machine, inventory.as_ref());
        let automatic = tag::evaluate(uid, &subject, &self.tags);
        let mut tags = store.layered_tags_of(uid).await?;
        tags.extend(machine.tags.iter().map(ToString::to_string));
        tags.extend(automatic.iter().filter(|it| it.error.is_none()).map(|it| it.name.clone()));
        machine.kernel_options = tag::kernel_options(
            self.settings.kernel_options.as_ref(),
            &self.tags,
            &tags,
            machine.kernel_options,
        );
        // Names are deleted with their domains.
        let host_names = match self.domains.is_empty() {
            true => BTreeSet::new(),
            false => store.host_names(object.uid).await?,
        };
        let macs: Vec<String> = machine.boot_macs.iter().map(ToString::to_string).collect();
        let mut stands_at = store.declared_addresses(&macs).await?;
        stands_at.extend(claimed_at(&stored));
        let boot_racks = estate::boot_racks(&self.nets, &self.racks, &stands_at);
        (facts.boot_applied, facts.boot_refused) =
            entries::applied(entries.get(entries::BOOT), &boot_racks, &self.racks);
        facts.boot_racks = estate::link(boot_racks);
        let declared = DeclaredBmc::of(&machine);
        let account = store.bmc_account(uid).await?;
        let in_use = Box::pin(InUse::load(store, &self.nets, &machine, account.as_ref(), &facts)).await?;
        machine.bmc = in_use.bmc;
        facts.power_rack = estate::link(self.power_rack(&machine, entries::power_holder(&entries)));
        let zone = machine.zone.as_ref().map_or(DEFAULT_ZONE, |zone| zone.as_str());
        let (budget, slot) = self.budget(store, uid, zone).await?;
        let leases = store.current_leases(&addresses::macs(&machine, &facts)).await?;
        let marks = store.machine_marks(uid).await?;
        let operations = store.planning_operations(uid).await?;
        let held = store.claim_on(uid).await?;
        let deployment = match held {
            Some((deployment, _)) => store.get_by_uid(deployment.into()).await?,
            None => None,
        };
        let claim = match (&deployment, held) {
            (Some(deployment), Some((_, since))) => Some(self.claim(store, deployment, since).await?),
            _ => None,
        };
        let (claim, mut addressing) =
            claim.map(|(claim, addressing)| (Some(claim), addressing)).unwrap_or_default();
        let release = claim.as_ref().map(|claim| &claim.spec);
        let scripts = Scripts::load(store, &machine, release).await?;
        let tests = Box::pin(HardwareTests::load(store, uid, marks.tests_accepted)).await?;
        let mut input = MachineInput {
            uid,
            name: object.name.clone(),
            generation: object.generation,
            bmc_account: in_use.account,
            ephemeral: self.ephemeral(machine.architecture),
            spec: machine,
            created_at: object.created_at,
            deletion_requested_at: object.deletion_requested_at,
            recommission_requested_at: marks.recommission_requested_at,
            abort_requested_at: operation::aborted(&operations),
            operations: operation::open(&operations),
            power_wish: operation::wish(&operations),
            unwiped: marks.unwiped,
            claim,
            inspection: scripts.inspection.planned(),
            failed_tests: tests.failed(),
            install: scripts.install.planned(),
            first_boot: FirstBootScripts::of(&scripts.first_boot),
            release: scripts.release.planned(),
            budget,
            facts,
            records,
        };
        if input.claim.as_ref().is_some_and(|claim| claim.spec.network.is_none()) {
            addressing.subnets = addresses::by_name(input.network(), &self.nets);
        }
        let assigned = addressing.assigned(input.network(), self);
        let unassigned = Box::pin(addressing.refusals(store, &input, &self.nets)).await?;
        if let Some(claim) = &mut input.claim {
            (claim.assigned, claim.unassigned) = (assigned, unassigned);
        }
        Ok(Loaded {
            input,
            deployment,
            addressing,
            tasks,
            markers,
            facts: stored,
            leases,
            inventory,
            tags,
            automatic,
            scripts,
            steps,
            open,
            slot,
            operations,
            host_names,
            account,
            misdirected: in_use.misdirected,
            destinations,
            declared,
            tests,
            entries,
            stands_at,
        })
    }

    /// Drops readings of racks that no longer have the BMC, which may arrive late.
    fn drop_old_readings(&self, facts: &mut Vec<Fact>, holder: Option<RackId>) {
        let holder = holder.and_then(|holder| self.racks.iter().find(|rack| rack.uid == holder));
        // A fact keeps its source's name from before a rename.
        let is_other = |fact: &Fact, rack: &RackSeen| {
            self.racks.iter().any(|it| it.uid != rack.uid && it.name == fact.source)
        };
        let is_current = |fact: &Fact| holder.is_some_and(|rack| !is_other(fact, rack));
        facts.retain(|fact| !observed::is_reading(&fact.kind) || is_current(fact));
    }

    /// The rack that switches a machine's BMC; `holder` has done so until now.
    #[must_use]
    pub fn power_rack(&self, machine: &MachineSpec, holder: Option<RackId>) -> Option<&RackSeen> {
        let bmc = machine.bmc.as_ref().filter(|bmc| estate::has_driver(bmc.driver))?;
        let address = bmc.address.as_ref().and_then(|host| host.to_string().parse().ok());
        estate::power_rack(address, &self.nets, &self.racks, holder)
    }

    async fn claim(
        &self,
        store: &Store,
        deployment: &Object,
        since: Timestamp,
    ) -> Result<(Claim, Addressing), StoreError> {
        let declared: DeploymentSpec = spec(deployment)?;
        let references = store.references(deployment.uid).await?;
        let named = || self.images.iter().find(|image| image.name == declared.image.as_str());
        let image = match store.supposed(deployment.uid) {
            // The references of a supposed deployment are not stored.
            Some(_) => named().map(|image| image.uid.into()),
            None => references.get("/image").copied(),
        };
        let owned = store.addresses_of(deployment.uid).await?;
        let addressing = Addressing { subnets: references, owned };
        let claim = Claim {
            uid: DeploymentId::from(deployment.uid),
            name: deployment.name.clone(),
            claimed_at: since,
            generation: deployment.generation,
            spec: declared,
            deletion_requested_at: deployment.deletion_requested_at,
            assigned: BTreeMap::new(),
            unassigned: BTreeMap::new(),
            image: image.and_then(|uid| self.resolved(ImageId::from(uid))),
        };
        Ok((claim, addressing))
    }
}

/// One SHA-256 over all files of an image.
#[must_use]
pub fn digest(image: &ImageSpec) -> Sha256 {
    let mut text = String::new();
    for (role, file) in &image.files {
        text.push_str(&format!("{role} {}\n", file.sha256));
    }
    let mut bytes = [0; 32];
    bytes.copy_from_slice(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes()).as_ref());
    Sha256::new(bytes)
}

/// The subnets with their VLANs.
fn nets(rows: &mut TopologyRows) -> Vec<Net> {
    let vlans: BTreeMap<String, VlanSpec> =
        readable(rows.take("Vlan")).map(|(object, vlan)| (object.name, vlan)).collect();
    let classes: BTreeMap<String, String> = readable::<FabricSpec>(rows.take("Fabric"))
        .filter_map(|(object, fabric)| Some((object.name, fabric.class?)))
        .collect();
    let mut nets = Vec::new();
    for (object, subnet) in readable::<SubnetSpec>(rows.take("Subnet"))
        .filter(|(object, _)| object.deletion_requested_at.is_none())
    {
        if let Some(vlan) = vlans.get(subnet.vlan.as_str()) {
            let (uid, name) = (SubnetId::from(object.uid), object.name.clone());
            let fabric_class = classes.get(vlan.fabric.as_str()).cloned();
            nets.push(Net { uid, name, vlan: vlan.clone(), subnet, fabric_class });
        }
    }
    nets
}

/// The routes of the networks. If two lead from one subnet to the same network, the one with the lower metric.
fn routes(rows: &mut TopologyRows, nets: &[Net]) -> Arc<[RouteSeen]> {
    let net = |name: &str| nets.iter().find(|net| net.name == name);
    let mut routes: BTreeMap<(SubnetId, String), RouteSeen> = BTreeMap::new();
    for (object, spec) in readable::<StaticRouteSpec>(rows.take("StaticRoute")) {
        let leads_to = spec.destination.as_ref().and_then(|it| Some(net(it.as_str())?.subnet.cidr));
        let (Some(source), Some(destination)) =
            (net(spec.source.as_str()), spec.destination_cidr.or(leads_to))
        else {
            continue;
        };
        if object.deletion_requested_at.is_some() {
            continue;
        }
        let (source, gateway, metric) = (source.uid, spec.gateway, spec.metric);
        let route = RouteSeen { source, destination, gateway, metric };
        let first = routes.entry((source, destination.to_string())).or_insert_with(|| route.clone());
        if (metric, gateway) < (first.metric, first.gateway) {
            *first = route;
        }
    }
    routes.into_values().collect()
}

/// A rack, from its spec and from its reports.
fn rack(rows: &TopologyRows, object: &Object, spec: &RackSpec) -> RackSeen {
    let (mut hello, mut short, mut said) = (Hello::default(), BTreeMap::new(), Vec::new());
    for fact in rows.facts(object.uid) {
        match Observed::of(fact) {
            Some(Observed::Hello(it)) => hello = it,
            Some(observed) => {
                short.extend(serving::short(&observed, fact.stored_at));
                if let Observed::Health(what) = observed {
                    said.push(Said { id: fact.id, stored_at: fact.stored_at, what });
                }
            }
            None => {}
        }
    }
    let served: Vec<IpAddr> = hello.served().collect();
    let answers_dns = services::answering(&said, basalt_proto::DNS).into_iter();
    let answers_dns = answers_dns.filter(|it| served.contains(it)).collect();
    let up = services::all_links(&said).filter(|link| link.problem.is_none());
    RackSeen {
        uid: RackId::from(object.uid),
        name: object.name.clone(),
        addresses: hello.addresses().collect(),
        served,
        reached: hello.reached().collect(),
        maintenance: spec.maintenance || object.deletion_requested_at.is_some(),
        connected: None,
        linked_to: up.map(|link| link.address).collect(),
        elsewhere: false,
        last_seen: object.created_at,
        answers_dns,
        serves_proxy: services::serves_proxy(&said),
        takes_logs: services::answering(&said, basalt_proto::SYSLOG),
        gives_no_address: hello.gives_no_address.then(|| hello.cannot_write.into()),
        short,
    }
}

/// The address from which its agent claimed its last task. A lease is weaker evidence, because any host can use a MAC.
fn claimed_at(facts: &[Fact]) -> Option<IpAddr> {
    let claims = facts.iter().filter(|fact| fact.kind == "claim");
    match claims.max_by_key(|fact| fact.id).and_then(Observed::of) {
        Some(Observed::Claim(claim)) => claim.address.parse().ok(),
        _ => None,
    }
}

/// The part of a step record with the declared destination of an account.
pub const BMC_DESTINATION: &str = "bmc_destination";

/// Step records, and tasks by attempt.
pub type Records = (Vec<StepRecord>, BTreeMap<Attempt, serde_json::Value>);

/// The step records, oldest first, and the tasks of armed attempts. A step that was begun again under a later epoch is
/// still one step.
///
/// # Errors
/// Fails if a record cannot be read: another version wrote it.
pub fn records(rows: Vec<basalt_db::StepRecord>) -> Result<Records, StoreError> {
    let mut records: Vec<StepRecord> = Vec::new();
    let mut tasks = BTreeMap::new();
    for row in rows {
        let read = |part: &str| row.detail.get(part).cloned().unwrap_or_default();
        let mut record: StepRecord = serde_json::from_value(read("record"))
            .map_err(|error| StoreError::Corrupt(format!("step record {}: {error}", row.id)))?;
        // The clock may have gone back in between.
        record.delivered_at = row.started_at.map(|at| at.max(record.started_at));
        if let (Some(attempt), task @ serde_json::Value::Object(_)) = (row.attempt, read("task")) {
            tasks.insert(attempt, task);
        }
        match records.iter_mut().find(|known| known.key == record.key) {
            Some(known) => {
                known.delivered_at = known.delivered_at.max(record.delivered_at);
                known.epoch = known.epoch.max(record.epoch);
            }
            None => records.push(record),
        }
    }
    Ok((records, tasks))
}

/// The declared destinations of accounts, by the attempt that asked for the account.
fn destinations(rows: &[basalt_db::StepRecord]) -> Result<BTreeMap<Attempt, BmcDestination>, StoreError> {
    let asked = rows.iter().filter_map(|row| Some((row, row.attempt?, row.detail.get(BMC_DESTINATION)?)));
    let read = |(row, attempt, destination): (&basalt_db::StepRecord, _, &serde_json::Value)| {
        let destination = BmcDestination::deserialize(destination)
            .map_err(|error| StoreError::Corrupt(format!("step record {}: {error}", row.id)))?;
        Ok((attempt, destination))
    };
    asked.map(read).collect()
}

fn markers(facts: &[Fact]) -> BTreeMap<String, DiskMarker> {
    let results = facts.iter().filter(|fact| fact.kind == "result");
    let latest = results.max_by_key(|fact| fact.id).and_then(Observed::of);
    match latest {
        Some(Observed::Result(result)) => result.markers,
        _ => BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::proxy::tests::estate;
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_deadline_that_is_declared_takes_the_place_of_the_usual_one() {
        let usual = Policy::default();
        let mut estate = estate(Vec::new(), Vec::new());
        let declared = DEADLINES.iter().map(|row| (row.name, "7h")).collect::<BTreeMap<_, _>>();
        let settings = serde_json::json!({ "deadlines": declared });
        estate.settings = Arc::new(serde_json::from_value(settings).unwrap());
        for row in DEADLINES {
            assert_ne!(usual.deadline(row.id), Duration::from_secs(7 * 3600), "{}", row.name);
            assert_eq!(estate.policy(&usual).deadline(row.id), Duration::from_secs(7 * 3600), "{}", row.name);
        }
    }
}
