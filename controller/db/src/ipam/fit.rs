//! Checks an address before the database's constraints do, to name the obstacle in the error.

use crate::StoreError;
use crate::store::Tx;
use basalt_api::{FieldCode, FieldError, KindOf, kinds};
use std::collections::BTreeMap;
use uuid::Uuid;

/// An address and the object that is to get it, or that had it.
#[derive(PartialEq)]
pub(crate) struct Place {
    pub(super) owner: Uuid,
    pub(super) subnet: Uuid,
    pub(super) address: String,
}

pub(super) fn columns(places: &[Place]) -> (Vec<Uuid>, Vec<Uuid>, Vec<String>) {
    let owners = places.iter().map(|place| place.owner).collect();
    let subnets = places.iter().map(|place| place.subnet).collect();
    (owners, subnets, places.iter().map(|place| place.address.clone()).collect())
}

/// The errors of addresses that no object can have, by owner: outside of the subnet, the network's own, or leased by DHCP.
pub(super) async fn misfits(
    tx: &mut Tx,
    places: &[Place],
    pointer: &str,
) -> Result<BTreeMap<Uuid, FieldError>, StoreError> {
    let (owners, subnets, addresses) = columns(places);
    let rows = sqlx::query!(
        r#"select u.o as "owner!", u.a as "address!", s.name as subnet, c.cidr::text as "cidr!",
             u.a::inet <<= c.cidr as "inside!",
             u.a::inet = host(network(c.cidr))::inet as "is_first!",
             host(first_host(c.cidr)) as "first!", host(last_host(c.cidr)) as "last!",
             r.name as "range?", r.first as "range_first?", r.last as "range_last?"
           from unnest($1::uuid[], $2::uuid[], $3::text[]) u(o, s, a)
           join subnet_cidr c on c.subnet = u.s join object s on s.uid = u.s
           left join lateral (
             select ro.name, host(lower(i.span)) as first, host(upper(i.span)) as last
             from ip_range i join object ro on ro.uid = i.range
             where i.subnet = u.s and i.purpose = 'dynamic' and i.span @> u.a::inet) r on true
           where r.name is not null or u.a::inet not between first_host(c.cidr) and last_host(c.cidr)"#,
        &owners,
        &subnets,
        &addresses
    );
    let errors = rows.fetch_all(&mut **tx).await?.into_iter().map(|row| {
        let address = row.address;
        let hosts = format!("an address from {} to {}", row.first, row.last);
        let error = match (row.range, row.range_first, row.range_last) {
            (Some(range), Some(first), Some(last)) => FieldError::new(
                pointer,
                FieldCode::Overlap,
                format!(
                    "{address} is in {first}-{last} of IpRange {range:?}, which DHCP leases to whoever asks"
                ),
                "an address outside of dynamic ranges; or change the range",
            ),
            _ if !row.inside => {
                let message = format!("{address} is outside {} of Subnet {:?}", row.cidr, row.subnet);
                FieldError::new(pointer, FieldCode::Rule, message, hosts)
            }
            _ => {
                let which = if row.is_first { "network" } else { "broadcast" };
                let message = format!("{address} is the {which} address of {}", row.cidr);
                FieldError::new(pointer, FieldCode::Rule, message, hosts)
            }
        };
        (row.owner, error)
    });
    Ok(errors.collect())
}

/// The owner of an address, or a Machine that declares it.
pub(super) struct Holder {
    pub(super) kind: String,
    /// True if it is being deleted.
    pub(super) leaves: bool,
    /// The machine that a Deployment has. Without a claim, it is the machine that the Deployment names.
    pub(super) machine: Option<Uuid>,
    /// The MAC for which an IpAddress keeps the address.
    pub(super) mac: Option<String>,
    /// The owner in words: `the gateway of Subnet "lab"`, `the address of IpAddress "x"`.
    words: String,
}

impl Holder {
    /// An object, by its kind, its name and the class of the address.
    pub(super) fn of(kind: String, class: &str, name: &str) -> Self {
        let what = if class == super::GATEWAY { "gateway" } else { "address" };
        let words = format!("the {what} of {kind} {name:?}");
        Self { kind, leaves: false, machine: None, mac: None, words }
    }

    /// A Machine that declares the address.
    pub(super) fn machine(uid: Uuid, name: &str) -> Self {
        Self { machine: Some(uid), ..Self::of(kinds::Machine::NAME.to_owned(), "", name) }
    }

    /// The sentence for the owner of a deployment. People who may not see the other Deployment or Machine can read it.
    pub(super) fn refusal(&self, address: &str) -> String {
        match [kinds::Deployment::NAME, kinds::Machine::NAME].contains(&self.kind.as_str()) {
            true => format!("{address} is the address of another {} already", self.kind),
            false => taken("", address, self).message,
        }
    }
}

/// The other holder of each address, by the owner that wants it.
pub(super) async fn holders(tx: &mut Tx, places: &[Place]) -> Result<BTreeMap<Uuid, Holder>, StoreError> {
    let (owners, subnets, addresses) = columns(places);
    let rows = sqlx::query!(
        r#"select u.o as "owner!", o.kind, o.name, h.class, h.mac::text as mac,
             o.deletion_requested_at is not null as "leaves!",
             coalesce(
               (select machine from machine_claim where deployment = h.owner),
               (select to_uid from object_ref where from_uid = h.owner and pointer = '/machine')) as machine
           from unnest($1::uuid[], $2::uuid[], $3::text[]) u(o, s, a)
           join address h on h.subnet = u.s and h.address = u.a::inet and h.owner <> u.o
           join object o on o.uid = h.owner"#,
        &owners,
        &subnets,
        &addresses
    );
    let holders = rows.fetch_all(&mut **tx).await?.into_iter().map(|row| {
        let holder = Holder::of(row.kind, &row.class, &row.name);
        (row.owner, Holder { leaves: row.leaves, machine: row.machine, mac: row.mac, ..holder })
    });
    Ok(holders.collect())
}

/// The racks that have wanted addresses as their own, by owner. An owner that had the address before the rack keeps it.
pub(super) async fn racks(tx: &mut Tx, places: &[Place]) -> Result<BTreeMap<Uuid, Holder>, StoreError> {
    let (owners, subnets, addresses) = columns(places);
    let rows = sqlx::query!(
        r#"select u.o as "owner!", min(o.name) as "name!"
           from unnest($1::uuid[], $2::uuid[], $3::text[]) u(o, s, a)
           join rack_place r on r.subnet = u.s and r.address = u.a::inet join object o on o.uid = r.rack
           where not exists (select from address h where h.subnet = u.s and h.address = u.a::inet and h.owner = u.o)
           group by u.o"#,
        &owners,
        &subnets,
        &addresses
    );
    let racks = rows
        .fetch_all(&mut **tx)
        .await?
        .into_iter()
        .map(|row| (row.owner, Holder::of(kinds::Rack::NAME.to_owned(), "", &row.name)));
    Ok(racks.collect())
}

/// The error for an address that belongs to another object.
pub(super) fn taken(pointer: &str, address: &str, holder: &Holder) -> FieldError {
    let message = format!("{address} is {} already", holder.words);
    let hint = "an address has one owner: name a free one, or remove it there first";
    FieldError::new(pointer, FieldCode::Overlap, message, hint)
}
