//! A network of a Deployment or Machine fits the subnets of its addresses: routers are within reach, VLANs carry no larger packets than their
//! parents.
//!
//! The MTU of a Vlan may change after the write: the planner judges again before it installs.

use super::Subject;
use crate::StoreError;
use crate::store::Tx;
use basalt_api::kinds::{LinkAddress, NetworkConfig, SubnetFacts};
use basalt_api::pointer::child;
use basalt_api::values::{Cidr, Uid};
use basalt_api::{FieldError, KindOf, kinds};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use uuid::Uuid;

/// A network that was written, and the subnets that it names, by JSON pointers.
struct Declared<'a> {
    subject: Uid,
    network: NetworkConfig,
    references: &'a BTreeMap<String, Uid>,
}

impl Declared<'_> {
    fn subnets(&self) -> impl Iterator<Item = Uuid> {
        let named = self.references.iter().filter(|(at, _)| at.starts_with("/network/"));
        named.map(|(_, uid)| uid.get())
    }

    /// Addresses that are declared without their subnet.
    fn nowhere(&self) -> impl Iterator<Item = IpAddr> {
        let each = self.network.links().flat_map(|link| link.addresses());
        each.filter(|one| one.subnet.is_none()).filter_map(|one| one.address)
    }

    fn contradictions(&self, known: &BTreeMap<Uuid, SubnetFacts>) -> Vec<(Uid, FieldError)> {
        let links = self.network.links();
        let each = links.flat_map(|link| link.addresses().map(move |one| (link.pointer_to(&one), one)));
        let subnets: BTreeMap<String, SubnetFacts> = each
            .filter_map(|(at, one)| Some((one.purpose.clone(), self.subnet(&at, &one, known)?)))
            .collect();
        let errors = self.network.contradictions(&|one| subnets.get(&one.purpose).copied());
        errors.into_iter().map(|error| (self.subject, error)).collect()
    }

    fn subnet(
        &self,
        at: &str,
        one: &LinkAddress<'_>,
        known: &BTreeMap<Uuid, SubnetFacts>,
    ) -> Option<SubnetFacts> {
        match (one.subnet, one.address) {
            (Some(_), _) => known.get(&self.references.get(&child(at, "subnet"))?.get()).copied(),
            (None, Some(address)) => {
                let mut with = known.values().filter(|subnet| subnet.cidr.contains(address));
                with.next().filter(|_| with.next().is_none()).copied()
            }
            (None, None) => None,
        }
    }
}

/// Contradictions between networks that change and the subnets of their addresses.
pub(super) async fn contradictory(
    tx: &mut Tx,
    subjects: &[Subject<'_>],
) -> Result<Vec<(Uid, FieldError)>, StoreError> {
    let declared: Vec<Declared<'_>> = subjects.iter().filter_map(changed).collect();
    let subnets: BTreeSet<Uuid> = declared.iter().flat_map(Declared::subnets).collect();
    let nowhere: BTreeSet<IpAddr> = declared.iter().flat_map(Declared::nowhere).collect();
    if subnets.is_empty() && nowhere.is_empty() {
        return Ok(Vec::new());
    }
    let known = known(tx, subnets, nowhere).await?;
    Ok(declared.iter().flat_map(|declared| declared.contradictions(&known)).collect())
}

fn changed<'a>(subject: &Subject<'a>) -> Option<Declared<'a>> {
    let kinds = [kinds::Deployment::NAME, kinds::Machine::NAME];
    let before = subject.before.and_then(|before| before.get("network"));
    let network = subject.spec.get("network").filter(|network| before != Some(*network))?;
    let network = serde_json::from_value(network.clone()).ok().filter(|_| kinds.contains(&subject.kind))?;
    Some(Declared { subject: subject.uid, network, references: subject.references })
}

/// Reads the subnets with these uids, and for each address without a named subnet the only subnet that contains it.
async fn known(
    tx: &mut Tx,
    subnets: BTreeSet<Uuid>,
    nowhere: BTreeSet<IpAddr>,
) -> Result<BTreeMap<Uuid, SubnetFacts>, StoreError> {
    let subnets: Vec<Uuid> = subnets.into_iter().collect();
    let addresses: Vec<String> = nowhere.iter().map(ToString::to_string).collect();
    let rows = sqlx::query!(
        r#"select c.subnet as "subnet!", c.cidr::text as "cidr!", coalesce((v.spec->>'mtu')::bigint, 1500) as "mtu!"
           from subnet_cidr c
           left join object_ref r on r.from_uid = c.subnet and r.pointer = '/vlan' left join object v on v.uid = r.to_uid
           where c.subnet = any(array(
             select unnest($1::uuid[])
             union select min(s.subnet::text)::uuid from unnest($2::text[]) a join subnet_cidr s on a::inet <<= s.cidr
             group by a having count(*) = 1))"#,
        &subnets,
        &addresses
    );
    let mut known = BTreeMap::new();
    for row in rows.fetch_all(&mut **tx).await? {
        let bad =
            |error: &dyn std::fmt::Display| StoreError::Corrupt(format!("subnet {}: {error}", row.subnet));
        let cidr: Cidr = row.cidr.parse().map_err(|error| bad(&error))?;
        let mtu = u32::try_from(row.mtu).map_err(|error| bad(&error))?;
        known.insert(row.subnet, SubnetFacts { cidr, mtu });
    }
    Ok(known)
}
