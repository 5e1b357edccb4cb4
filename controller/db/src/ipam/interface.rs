//! Static addresses that Deployments and Machines declare for interfaces.
//!
//! If a Deployment names an address and its subnet, it owns the address from the write on. So nobody else gets the address while the
//! Deployment waits for a machine. Once the Deployment has a machine, the driver decides when its addresses are released: the machine may
//! still use the former ones. A Machine's network applies to Deployments that declare none. The Machine keeps its addresses from other
//! objects ([`machine`]), and the Deployment owns them once it has the Machine.

use super::fit::{self, Holder, Place};
use super::machine;
use crate::StoreError;
use crate::invariant::Subject;
use crate::store::Tx;
use basalt_api::kinds::{Addressing, NetworkConfig};
use basalt_api::pointer::child;
use basalt_api::values::Uid;
use basalt_api::{FieldError, KindOf, kinds};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use uuid::Uuid;

/// A static address of an interface.
pub(crate) struct Interface {
    owner: Uuid,
    /// True for a Deployment: it owns the addresses that it declares.
    owns: bool,
    /// The machine, if it is known.
    machine: Option<Uuid>,
    /// JSON pointer to the address in the spec.
    pointer: String,
    purpose: String,
    pub(crate) subnet: Uuid,
    /// True if the spec names the subnet.
    is_named: bool,
    address: IpAddr,
}

impl Interface {
    fn place(&self) -> Place {
        Place { owner: self.owner, subnet: self.subnet, address: self.address.to_string() }
    }
}

/// The static addresses of the subjects whose network or machine changes. If such a Deployment declares no network, those of its machine.
pub(crate) async fn declared(tx: &mut Tx, subjects: &[Subject<'_>]) -> Result<Vec<Interface>, StoreError> {
    let (mut found, mut without) = (Found::default(), BTreeMap::<Uuid, Vec<Uuid>>::new());
    for subject in subjects.iter().filter(|subject| is_changed(subject)) {
        let owner = subject.uid.get();
        let owns = subject.kind == kinds::Deployment::NAME;
        let named = subject.references.get("/machine").map(|uid| uid.get());
        let machine = if owns { named } else { Some(owner) };
        match (network(subject.spec.get("network")), machine) {
            (Some(network), machine) => {
                let declares = Declares { owner, owns, machine, is_inherited: false };
                found.extend(&network, &declares, |pointer| {
                    subject.references.get(pointer).map(|uid| uid.get())
                });
            }
            (None, Some(machine)) if owns => without.entry(machine).or_default().push(owner),
            (None, _) => {}
        }
    }
    for (machine, spec, subnets) in of_machines(tx, &without).await? {
        let Some(network) = network(Some(&spec)) else { continue };
        for owner in without.get(&machine).into_iter().flatten() {
            let declares =
                Declares { owner: *owner, owns: false, machine: Some(machine), is_inherited: true };
            found.extend(&network, &declares, |pointer| subnets.get(pointer).copied());
        }
    }
    let Found { mut named, nowhere } = found;
    named.extend(located(tx, nowhere).await?);
    Ok(named)
}

/// The object that a network is for.
struct Declares {
    owner: Uuid,
    owns: bool,
    machine: Option<Uuid>,
    /// True for a Deployment that has the network of its machine. Errors are at its `machine`.
    is_inherited: bool,
}

/// Static addresses: those with a named subnet, and those without.
#[derive(Default)]
struct Found {
    named: Vec<Interface>,
    nowhere: Vec<Interface>,
}

impl Found {
    /// Adds the static addresses of a network. `subnet` gives the subnet that is named at a pointer.
    fn extend(
        &mut self,
        network: &NetworkConfig,
        declares: &Declares,
        subnet: impl Fn(&str) -> Option<Uuid>,
    ) {
        for link in network.links() {
            for one in link.addresses().filter(|one| one.addressing == Addressing::Static) {
                let Some(address) = one.address else { continue };
                let at = link.pointer_to(&one);
                let subnet = subnet(&child(&at, "subnet"));
                let interface = Interface {
                    owner: declares.owner,
                    owns: declares.owns,
                    machine: declares.machine,
                    pointer: if declares.is_inherited {
                        "/machine".to_owned()
                    } else {
                        child(&at, "address")
                    },
                    purpose: one.purpose,
                    subnet: subnet.unwrap_or_default(),
                    is_named: subnet.is_some(),
                    address,
                };
                match (subnet, one.subnet) {
                    (Some(_), _) => self.named.push(interface),
                    (None, None) => self.nowhere.push(interface),
                    // The missing subnet is reported by the check of references.
                    (None, Some(_)) => {}
                }
            }
        }
    }
}

impl Interface {
    /// True if a Deployment may have the address too. It has this machine, or the interface is of a Machine that the Deployment may yet
    /// choose.
    fn may_share_with(&self, machine: Option<Uuid>) -> bool {
        !self.owns && (machine == self.machine || (machine.is_none() && self.machine == Some(self.owner)))
    }
}

/// True if the subject is a Deployment or Machine whose network or machine changes.
fn is_changed(subject: &Subject<'_>) -> bool {
    let kinds = [kinds::Deployment::NAME, kinds::Machine::NAME];
    let is_other = |before: &Value| {
        ["/network", "/machine"].iter().any(|field| before.pointer(field) != subject.spec.pointer(field))
    };
    kinds.contains(&subject.kind) && subject.before.is_none_or(is_other)
}

fn network(spec: Option<&Value>) -> Option<NetworkConfig> {
    serde_json::from_value(spec?.clone()).ok()
}

/// The networks of machines, each with the subnets that it names, by the pointers to their names.
async fn of_machines(
    tx: &mut Tx,
    wanted: &BTreeMap<Uuid, Vec<Uuid>>,
) -> Result<Vec<(Uuid, Value, BTreeMap<String, Uuid>)>, StoreError> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let machines: Vec<Uuid> = wanted.keys().copied().collect();
    let references = sqlx::query!(
        "select from_uid, pointer, to_uid from object_ref where from_uid = any($1) and pointer like '/network/%'",
        &machines
    );
    let mut subnets = BTreeMap::<Uuid, BTreeMap<String, Uuid>>::new();
    for row in references.fetch_all(&mut **tx).await? {
        subnets.entry(row.from_uid).or_default().insert(row.pointer, row.to_uid);
    }
    let networks = sqlx::query!(
        r#"select uid, (spec->'network')::jsonb as "network!" from object
           where uid = any($1) and kind = 'Machine' and spec->'network' is not null order by uid"#,
        &machines
    );
    let networks = networks.fetch_all(&mut **tx).await?.into_iter();
    Ok(networks.map(|row| (row.uid, row.network, subnets.remove(&row.uid).unwrap_or_default())).collect())
}

/// Finds the subnet of addresses without a named one. An address in the range of several subnets is left out: it is not checked.
async fn located(tx: &mut Tx, interfaces: Vec<Interface>) -> Result<Vec<Interface>, StoreError> {
    if interfaces.is_empty() {
        return Ok(Vec::new());
    }
    let addresses: BTreeSet<IpAddr> = interfaces.iter().map(|it| it.address).collect();
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let rows = sqlx::query!(
        r#"select a as "address!", min(c.subnet::text)::uuid as "subnet!"
           from unnest($1::text[]) a join subnet_cidr c on a::inet <<= c.cidr group by a having count(*) = 1"#,
        &addresses
    );
    let rows = rows.fetch_all(&mut **tx).await?;
    let subnets: BTreeMap<String, Uuid> = rows.into_iter().map(|row| (row.address, row.subnet)).collect();
    let at = |it: Interface| Some(Interface { subnet: *subnets.get(&it.address.to_string())?, ..it });
    Ok(interfaces.into_iter().filter_map(at).collect())
}

/// The objects whose network changes.
pub(crate) struct Moved {
    deployments: Vec<Uuid>,
    machines: Vec<Uuid>,
}

/// The Deployments and Machines whose network changes.
pub(crate) fn moved(subjects: &[Subject<'_>]) -> Moved {
    let of = |kind: &str| {
        let moved = subjects.iter().filter(|subject| {
            subject.kind == kind
                && subject.before.is_some_and(|before| before.get("network") != subject.spec.get("network"))
        });
        moved.map(|subject| subject.uid.get()).collect()
    };
    Moved { deployments: of(kinds::Deployment::NAME), machines: of(kinds::Machine::NAME) }
}

/// The subnets in which these objects have addresses.
pub(crate) async fn subnets(tx: &mut Tx, moved: &Moved) -> Result<Vec<Uuid>, StoreError> {
    let mut subnets = machine::subnets(tx, &moved.machines).await?;
    if !moved.deployments.is_empty() {
        let query = sqlx::query_scalar!(
            "select distinct subnet from address where owner = any($1)",
            &moved.deployments
        );
        subnets.extend(query.fetch_all(&mut **tx).await?);
    }
    Ok(subnets)
}

/// The addresses that Machines had before a batch.
pub(crate) type Had = Vec<Place>;

/// Releases the addresses of Machines, and of Deployments that have no machine yet. [`write`] gives the newly declared ones.
pub(crate) async fn release(tx: &mut Tx, moved: &Moved) -> Result<Had, StoreError> {
    let had = machine::release(tx, &moved.machines).await?;
    let deployments = &moved.deployments;
    if deployments.is_empty() {
        return Ok(had);
    }
    let delete = sqlx::query!(
        "delete from address where owner = any($1) and class = 'deployment'
           and not exists (select from machine_claim where deployment = owner)",
        deployments
    );
    delete.execute(&mut **tx).await?;
    Ok(had)
}

/// Gives Machines and Deployments their static addresses. A Deployment does not get an address that an IpAddress of the batch declares.
/// Returns the interfaces without an error, and errors of two sorts: the address does not fit its subnet, or a rack has it. After the
/// addresses of the batch are written, [`taken`] reports the other conflicts. The caller has locked the subnets.
pub(crate) async fn write(
    tx: &mut Tx,
    interfaces: Vec<Interface>,
    subjects: &[Subject<'_>],
    had: &[Place],
) -> Result<(Vec<Interface>, Vec<(Uid, FieldError)>), StoreError> {
    let (mut errors, mut fit) = (Vec::new(), Vec::new());
    for round in rounds(interfaces) {
        let places: Vec<Place> = round.iter().map(Interface::place).collect();
        let mut misfits = fit::misfits(tx, &places, "").await?;
        let racks = fit::racks(tx, &places).await?;
        for interface in round {
            let error = misfits.remove(&interface.owner);
            let rack = racks.get(&interface.owner).filter(|_| !had.contains(&interface.place()));
            match error.or_else(|| rack.map(|rack| fit::taken("", &interface.address.to_string(), rack))) {
                Some(error) => errors.push(at(&interface, error)),
                None => fit.push(interface),
            }
        }
    }
    let reserved = subjects.iter().filter(|subject| subject.kind == kinds::IpAddress::NAME);
    let reserved: BTreeSet<IpAddr> =
        reserved.filter_map(|subject| subject.text("/address")?.parse().ok()).collect();
    let owned = fit.iter().filter(|it| it.owns && it.is_named && !reserved.contains(&it.address));
    own(tx, &owned.collect::<Vec<_>>()).await?;
    let of_machines = fit.iter().filter(|it| it.machine == Some(it.owner));
    machine::write(tx, &of_machines.map(Interface::place).collect::<Vec<_>>()).await?;
    Ok((fit, errors))
}

/// Rounds in which each owner occurs at most once: the queries return one error or holder per owner.
fn rounds(mut interfaces: Vec<Interface>) -> Vec<Vec<Interface>> {
    let mut rounds = Vec::new();
    while !interfaces.is_empty() {
        let mut owners = BTreeSet::new();
        let (round, rest) = interfaces.into_iter().partition(|it: &Interface| owners.insert(it.owner));
        rounds.push(round);
        interfaces = rest;
    }
    rounds
}

fn at(interface: &Interface, error: FieldError) -> (Uid, FieldError) {
    (interface.owner.into(), FieldError { pointer: interface.pointer.clone(), ..error })
}

fn somebody_s(interface: &Interface, holder: &Holder) -> (Uid, FieldError) {
    at(interface, fit::taken("", &interface.address.to_string(), holder))
}

/// Inserts the addresses without a MAC: DHCP serves an address only when the Deployment has its machine.
async fn own(tx: &mut Tx, owned: &[&Interface]) -> Result<(), StoreError> {
    if owned.is_empty() {
        return Ok(());
    }
    let owners: Vec<Uuid> = owned.iter().map(|it| it.owner).collect();
    let subnets: Vec<Uuid> = owned.iter().map(|it| it.subnet).collect();
    let addresses: Vec<String> = owned.iter().map(|it| it.address.to_string()).collect();
    let purposes: Vec<String> = owned.iter().map(|it| it.purpose.clone()).collect();
    let insert = sqlx::query!(
        "insert into address (subnet, address, owner, purpose)
         select s, a::inet, o, p from unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[]) with ordinality u(o, s, a, p, n)
         join subnet_cidr c on c.subnet = s
         order by n
         on conflict do nothing",
        &owners,
        &subnets,
        &addresses,
        &purposes
    );
    insert.execute(&mut **tx).await?;
    Ok(())
}

/// Reports addresses that have another owner.
pub(crate) async fn taken(
    tx: &mut Tx,
    interfaces: Vec<Interface>,
) -> Result<Vec<(Uid, FieldError)>, StoreError> {
    let (mut errors, mut reserved) = (Vec::new(), Vec::<(Interface, Holder)>::new());
    for round in rounds(interfaces) {
        let places: Vec<Place> = round.iter().map(Interface::place).collect();
        let mut holders = fit::holders(tx, &places).await?;
        let machines = machine::holders(tx, &places).await?;
        for interface in round {
            if let Some(machine) = machines.get(&interface.owner) {
                errors.push(somebody_s(&interface, machine));
                continue;
            }
            match holders.remove(&interface.owner) {
                // A Machine declares the addresses of its Deployment: no conflict. An address that is about to be released is waited for.
                Some(holder)
                    if holder.kind == kinds::Deployment::NAME
                        && (holder.leaves || interface.may_share_with(holder.machine)) => {}
                Some(holder) if holder.mac.is_some() => reserved.push((interface, holder)),
                Some(holder) => errors.push(somebody_s(&interface, &holder)),
                None => {}
            }
        }
    }
    let machines: Vec<Uuid> = reserved.iter().filter_map(|(interface, _)| interface.machine).collect();
    let macs = machine::macs(tx, &machines).await?;
    for (interface, holder) in reserved {
        // An IpAddress reserves the address for a MAC. No conflict if the MAC is the machine's, or if the machine or its MACs are unknown.
        let is_own = interface.machine.is_none_or(|machine| {
            macs.get(&machine).zip(holder.mac.as_ref()).is_none_or(|(macs, mac)| macs.contains(mac))
        });
        if !is_own {
            errors.push(somebody_s(&interface, &holder));
        }
    }
    Ok(errors)
}
