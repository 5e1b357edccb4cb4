//! Machines for deployments: decided in rounds.
//!
//! The first deployment without a machine that is reconciled starts a round. The round reads all machines and all deployments without
//! a machine, decides for all of them at once, and claims in one transaction; no other region gives machines away meanwhile. So
//! deployments that were declared together are decided together, and thousands cost one reading of the fleet. Deployments without a
//! match get their reasons from the round's result, until a change that a choice depends on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use basalt_api::kinds::{Architecture, DeploymentSpec, ImageSpec, MachineSpec, MachineStatus};
use basalt_api::values::{DeploymentId, Epoch, Generation, MachineId, Timestamp};
use basalt_db::change::{Change, Op};
use basalt_db::{Allocation, Given, Object, Store, StoreError};
use basalt_engine::PLANNER;
use basalt_engine::select::{Attached, Candidate, Choice, Ground, MachineRequest, Misses, Placed, selector};
use serde_json::Value;
use tokio::sync::{Mutex, Notify};

use crate::driver::status::to_json;
use crate::driver::stored::readable;
use crate::driver::topology::Topology;
use crate::driver::topology::estate::Estate;
use crate::driver::topology::network;

/// The zone and pool of machines that name none.
const DEFAULT: &str = "default";
/// The shortest time between two wake-ups of all waiting deployments: a working fleet changes all the time.
const WAKE_EVERY: Duration = Duration::from_millis(250);
/// The longest time for which a round's result is used, in case a change was missed.
const BELIEVED: Duration = Duration::from_secs(30);
/// The kinds that a choice depends on. A change of a Deployment, Device or IpAddress, or the end of a Rack, may free an address of a
/// machine's network. An address that a rack gives up is noticed when the deployment looks again, within a minute.
const DECIDES: [&str; 7] = ["Deployment", "Device", "Image", "IpAddress", "Subnet", "Vlan", "Rack"];

/// The rounds of one process.
#[derive(Debug, Default)]
pub struct Allocator {
    changes: AtomicU64,
    changed: Notify,
    last: Mutex<Option<Round>>,
}

/// The result of a round.
#[derive(Debug)]
struct Round {
    /// The count of changes at its start.
    changes: u64,
    at: Instant,
    waiting: HashMap<DeploymentId, (Generation, Misses)>,
}

/// The decision for a deployment that had no machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decided {
    /// The deployment has a machine now.
    Claimed,
    /// No machine matches.
    Waits(Misses),
    /// The data changed meanwhile: decide again.
    Overtaken,
}

impl Allocator {
    /// Notes a committed change. Waiting deployments are woken if their choice may depend on it.
    pub fn note(&self, change: &Change) {
        let decides = match (change.kind.as_str(), change.op) {
            // The status has its lifecycle and its hardware.
            ("Machine", _) => true,
            (_, Op::Status) => false,
            (kind, _) => DECIDES.contains(&kind),
        };
        if decides {
            self.note_any();
        }
    }

    /// Notes that anything may have changed.
    pub fn note_any(&self) {
        self.changed.notify_one();
    }

    /// Wakes waiting deployments after changes. Never ends.
    pub async fn wake(&self, store: &Store) {
        loop {
            self.changed.notified().await;
            // In this order: a deployment that is woken must not use the former result.
            self.changes.fetch_add(1, Ordering::SeqCst);
            if let Err(error) = store.enqueue_waiting().await {
                tracing::warn!(%error, "deployments that wait were not woken; they look by themselves");
            }
            tokio::time::sleep(WAKE_EVERY).await;
        }
    }

    /// Finds a machine for a deployment without one, and for all other waiting deployments.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn decide(
        &self,
        store: &Store,
        topology: &Topology,
        object: &Object,
        epoch: Epoch,
    ) -> Result<Decided, StoreError> {
        let uid = DeploymentId::from(object.uid);
        let mut last = self.last.lock().await;
        if let Some(misses) = last.as_ref().and_then(|round| self.believed(round, uid, object.generation)) {
            return Ok(Decided::Waits(misses));
        }
        if store.claimed_by(uid).await?.is_some() {
            return Ok(Decided::Claimed);
        }
        let changes = self.changes.load(Ordering::SeqCst);
        let (got, waiting) = round(store, topology, epoch).await?;
        let decided = match (got.contains(&uid), waiting.get(&uid)) {
            (true, _) => Decided::Claimed,
            (false, Some((generation, misses))) if *generation == object.generation => {
                Decided::Waits(misses.clone())
            }
            (false, _) => Decided::Overtaken,
        };
        *last = Some(Round { changes, at: Instant::now(), waiting });
        Ok(decided)
    }

    fn believed(&self, round: &Round, uid: DeploymentId, generation: Generation) -> Option<Misses> {
        let fresh = round.changes == self.changes.load(Ordering::SeqCst) && round.at.elapsed() < BELIEVED;
        let (of, misses) = round.waiting.get(&uid).filter(|_| fresh)?;
        (*of == generation).then(|| misses.clone())
    }
}

type Left = (BTreeSet<DeploymentId>, HashMap<DeploymentId, (Generation, Misses)>);

/// Decides and claims for all. Returns the deployments that got a machine, and the reasons of the others.
async fn round(store: &Store, topology: &Topology, epoch: Epoch) -> Result<Left, StoreError> {
    let claiming = store.claiming().await?;
    let fleet = Fleet::load(store, topology).await?;
    let generations: HashMap<_, _> = fleet.waiting.iter().map(|(wish, at)| (wish.uid, *at)).collect();
    let (choices, ground) = fleet.decide().await?;
    let allocation = allocation(store.now().await?, &choices, &ground)?;
    let of = |uid| generations.get(&uid).copied().unwrap_or_default();
    let waiting = choices.into_iter().filter_map(|(uid, choice)| match choice {
        Choice::Chosen { .. } => None,
        Choice::None(misses) => Some((uid, (of(uid), misses))),
    });
    let waiting = waiting.collect();
    let got = claiming.claim(&allocation, epoch).await?;
    for Given { name, machine, why, .. } in allocation.given.iter().filter(|it| got.contains(&it.deployment))
    {
        tracing::info!(deployment = name, %machine, why, "machine claimed");
    }
    Ok((got, waiting))
}

/// A decision in the form in which it is stored.
///
/// # Errors
/// Fails only if serialisation fails, which is a bug.
pub fn allocation(
    now: Timestamp,
    choices: &BTreeMap<DeploymentId, Choice>,
    ground: &Ground,
) -> Result<Allocation, StoreError> {
    let given = ground.wishes.iter().filter_map(|wish| match choices.get(&wish.uid)? {
        Choice::Chosen { machine, why } => Some(Given {
            deployment: wish.uid,
            wish: wish.uid,
            name: wish.name.clone(),
            machine: *machine,
            chosen: *machine,
            why: why.clone(),
        }),
        Choice::None(_) => None,
    });
    let given: Vec<Given> = given.collect();
    // Most rounds give no machine away.
    let ground = if given.is_empty() { Value::Null } else { to_json(ground)? };
    Ok(Allocation { planner: PLANNER.to_owned(), now, ground, given, made: BTreeMap::new() })
}

/// The machines that deployments without one would get with these declarations, in one decision with all other waiting deployments.
/// The ground has the inputs of the choice.
///
/// # Errors
/// Fails if the database cannot be read.
pub async fn suppose(
    store: &Store,
    topology: &Topology,
    declared: &[(&Object, DeploymentSpec)],
) -> Result<(BTreeMap<DeploymentId, Choice>, Ground), StoreError> {
    let mut fleet = Fleet::load(store, topology).await?;
    let uids: BTreeSet<_> = declared.iter().map(|(object, _)| DeploymentId::from(object.uid)).collect();
    fleet.waiting.retain(|(wish, _)| !uids.contains(&wish.uid));
    for (object, declared) in declared {
        if !fleet.served.contains(&DeploymentId::from(object.uid)) {
            let wish = wish(object, declared, &fleet.images);
            fleet.waiting.push((wish, object.generation));
        }
    }
    let (mut choices, ground) = fleet.decide().await?;
    choices.retain(|uid, _| uids.contains(uid));
    Ok((choices, ground))
}

/// Everything that decides which deployment gets which machine.
struct Fleet {
    waiting: Vec<(MachineRequest, Generation)>,
    placed: Vec<Placed>,
    /// The deployments that have a machine.
    served: BTreeSet<DeploymentId>,
    candidates: Vec<Candidate>,
    images: Images,
}

type Images = BTreeMap<String, OfImage>;

/// The fields of an image on which a choice depends.
struct OfImage {
    architecture: Architecture,
    installable: bool,
}

impl Fleet {
    async fn load(store: &Store, topology: &Topology) -> Result<Self, StoreError> {
        let estate = topology.estate(store).await?;
        let of = |image: &ImageSpec| OfImage {
            architecture: image.architecture,
            installable: image.root().is_some(),
        };
        let images: Images =
            estate.images.iter().map(|image| (image.name.clone(), of(&image.spec))).collect();
        let claims: HashMap<MachineId, DeploymentId> = store.claims().await?.into_iter().collect();
        let held: HashMap<DeploymentId, MachineId> = claims.iter().map(|(m, d)| (*d, *m)).collect();
        let (mut waiting, mut placed, mut names) = (Vec::new(), Vec::new(), HashMap::new());
        for (object, declared) in readable::<DeploymentSpec>(store.all("Deployment").await?) {
            let uid = DeploymentId::from(object.uid);
            match held.get(&uid) {
                Some(machine) => {
                    placed.push(Placed { selector: selector(&declared), machine: *machine });
                }
                None if object.deletion_requested_at.is_none() => {
                    waiting.push((wish(&object, &declared, &images), object.generation));
                }
                None => {}
            }
            names.insert(uid, object.name);
        }
        let owner = |machine: &MachineId| -> Option<String> {
            let deployment = claims.get(machine)?;
            Some(names.get(deployment).cloned().unwrap_or_else(|| deployment.to_string()))
        };
        let unwiped = store.unwiped().await?;
        let mut obstructed = store.machines_without_their_addresses().await?;
        let mut beside = store.tags_beside_specs().await?;
        let mut candidates = Vec::new();
        for (object, declared) in readable::<MachineSpec>(store.all("Machine").await?) {
            let uid = MachineId::from(object.uid);
            let mut machine = candidate(&object, declared, &estate);
            machine.owner = owner(&uid);
            machine.unwiped = unwiped.contains(&uid);
            machine.obstructed = obstructed.remove(&uid);
            machine.tags.extend(beside.remove(&object.uid).unwrap_or_default());
            candidates.push(machine);
        }
        let served = held.into_keys().collect();
        Ok(Self { waiting, placed, served, candidates, images })
    }

    /// Decides on a thread of its own, so that no other task waits.
    async fn decide(self) -> Result<(BTreeMap<DeploymentId, Choice>, Ground), StoreError> {
        let decide = move || {
            let wishes = self.waiting.into_iter().map(|(wish, _)| wish).collect();
            Ground { wishes, placed: self.placed, candidates: self.candidates }.decide()
        };
        let decided = tokio::task::spawn_blocking(decide).await;
        decided.map_err(|died| StoreError::Corrupt(format!("choosing machines failed badly: {died}")))
    }
}

fn wish(object: &Object, declared: &DeploymentSpec, images: &Images) -> MachineRequest {
    let image = images.get(declared.image.as_str());
    MachineRequest {
        uid: DeploymentId::from(object.uid),
        name: object.name.clone(),
        created_at: object.created_at,
        machine: declared.machine.as_ref().map(ToString::to_string),
        selector: selector(declared),
        architecture: image.map(|image| image.architecture),
        not_installable: image.is_some_and(|image| !image.installable),
        inherits_network: declared.network.is_none(),
    }
}

/// A machine, from its spec and its status.
fn candidate(object: &Object, machine: MachineSpec, estate: &Estate) -> Candidate {
    let status: MachineStatus = serde_json::from_str(object.status.get()).unwrap_or_default();
    let bmc = machine.bmc.as_ref().and_then(|bmc| bmc.address.as_ref()?.ip());
    // A lease shows the network of an interface even after it has ended.
    let seen = || status.addresses.iter().chain(&status.last_leased);
    let known = seen().map(|(_, at)| *at).chain(bmc);
    let rack = network::rack_near(known, &estate.nets, &estate.racks);
    let attached = seen().map(|(name, at)| (name.clone(), attached(*at, estate)));
    Candidate {
        uid: MachineId::from(object.uid),
        name: object.name.clone(),
        architecture: machine.architecture,
        zone: machine.zone.as_ref().map_or(DEFAULT, |zone| zone.as_str()).to_owned(),
        pool: machine.pool.as_ref().map_or(DEFAULT, |pool| pool.as_str()).to_owned(),
        rack: rack.map(|rack| rack.name.clone()),
        tags: machine.tags.iter().map(ToString::to_string).collect(),
        attached: attached.collect(),
        inventory: status.inventory,
        lifecycle: status.axes.lifecycle,
        mode: machine.mode,
        locked: machine.locked,
        owner: None,
        deleting: object.deletion_requested_at.is_some(),
        unwiped: false,
        obstructed: None,
    }
}

/// The networks of an address. Two fabrics may use the same addresses; then it counts as in both.
fn attached(address: IpAddr, estate: &Estate) -> Vec<Attached> {
    let of = estate.nets.iter().filter(|net| net.subnet.cidr.contains(address));
    of.map(|net| Attached {
        subnet: net.name.clone(),
        vlan: net.subnet.vlan.to_string(),
        fabric: net.vlan.fabric.to_string(),
        fabric_class: net.fabric_class.clone(),
        space: net.vlan.space.as_ref().map(ToString::to_string),
    })
    .collect()
}
