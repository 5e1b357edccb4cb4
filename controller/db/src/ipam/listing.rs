//! A list of all addresses that are not free, in pages. Its order is the order of the tables' keys: by subnet, then by address.

use super::{duid, parse};
use crate::object::timestamp;
use crate::{Store, StoreError};
use basalt_api::values::{Duid, Timestamp, Uid};
use std::net::IpAddr;
use std::str::FromStr;
use uuid::Uuid;

/// A filter of entries.
#[derive(Clone, Debug, Default)]
pub struct AddressQuery<'a> {
    /// Entries in this subnet.
    pub subnet: Option<Uid>,
    /// Entries of this address.
    pub address: Option<IpAddr>,
    /// Entries from this source: `gateway`, `ip_address`, `device`, `deployment`, `machine`, `rack` or `lease`.
    pub source: Option<&'a str>,
    /// Entries of deployments and machines in these pools; `None`: in all pools. With pools, a lease is left out unless its client is
    /// such a machine, or a device.
    pub pools: Option<&'a [String]>,
    /// Entries after this one.
    pub after: Option<AddressPosition>,
    /// The number of entries per page, 1 to 1000.
    pub limit: i64,
}

/// The position of an entry in the list. It prints as one word and parses from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressPosition {
    subnet: Uuid,
    address: IpAddr,
    /// The order of the sources of one address: its owner, then racks and machines, then leases.
    rank: i16,
    by: Uuid,
}

impl std::fmt::Display for AddressPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{},{},{},{}", self.subnet, self.address, self.rank, self.by)
    }
}

impl FromStr for AddressPosition {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split(',');
        let mut next = || words.next().ok_or(());
        let position = Self {
            subnet: next()?.parse().map_err(drop)?,
            address: next()?.parse().map_err(drop)?,
            rank: next()?.parse().map_err(drop)?,
            by: next()?.parse().map_err(drop)?,
        };
        if words.next().is_none() { Ok(position) } else { Err(()) }
    }
}

/// One address, and why it is not free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenAddress {
    /// IPv4 or IPv6.
    pub address: IpAddr,
    /// Name of its subnet.
    pub subnet: String,
    /// The source, one of [`AddressQuery::source`].
    pub source: String,
    /// Name of the object that owns it; `None` for a lease.
    pub owner: Option<String>,
    /// The interface of a deployment.
    pub interface: Option<String>,
    /// Name of the machine that has the MAC, or on which the deployment is.
    pub machine: Option<String>,
    /// Name of the device that has the MAC.
    pub device: Option<String>,
    /// MAC address of the host.
    pub mac: Option<String>,
    /// DUID of the host.
    pub duid: Option<Duid>,
    /// The host name from the DHCP request, or from the IpAddress.
    pub hostname: Option<String>,
    /// Name of the rack that granted the lease; `None` if the rack is gone.
    pub rack: Option<String>,
    /// When the lease ends.
    pub ends_at: Option<Timestamp>,
}

/// A page of entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TakenPage {
    /// In the order of subnets and addresses.
    pub entries: Vec<TakenAddress>,
    /// The position for [`AddressQuery::after`] of the next page; `None` at the end.
    pub next: Option<AddressPosition>,
}

impl Store {
    /// A page of addresses that are not free.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn taken_addresses(&self, query: &AddressQuery<'_>) -> Result<TakenPage, StoreError> {
        let limit = query.limit.clamp(1, 1000);
        let after = query.after;
        // Each source is read in its own order, up to the end of the page.
        let mut tx = self.begin_planning().await?;
        let rows = sqlx::query!(
            r#"with taken as (
                 (select a.subnet, a.address, 0::smallint as rank, a.owner as by,
                    case a.class when 'static' then case o.kind when 'Device' then 'device' else 'ip_address' end else a.class end as source,
                    o.name as owner, case a.class when 'deployment' then a.purpose end as interface,
                    case a.class when 'deployment' then (select machine from machine_claim where deployment = a.owner) end as machine,
                    a.mac, a.duid, a.hostname, null::uuid as rack, null::timestamptz as ends_at
                  from address a join object o on o.uid = a.owner
                  where ($1::uuid is null or a.subnet = $1) and ($2::text is null or a.address = $2::text::inet)
                    and ($3::text is null or $3 = case a.class when 'static' then case o.kind when 'Device' then 'device' else 'ip_address' end else a.class end)
                    and ($4::text[] is null or a.class <> 'deployment' or object_pool(o.kind, o.uid, o.spec) = any($4))
                    and ($5::uuid is null or (a.subnet, a.address, 0::smallint, a.owner) > ($5, $6::text::inet, $7::smallint, $8::uuid))
                  order by a.subnet, a.address, a.owner limit $9)
                 union all
                 (select p.subnet, p.address, 1::smallint, p.rack, 'rack', o.name, null, null, null, null, null, null, null
                  from rack_place p join object o on o.uid = p.rack
                  where ($1::uuid is null or p.subnet = $1) and ($2::text is null or p.address = $2::text::inet)
                    and ($3::text is null or $3 = 'rack')
                    and ($5::uuid is null or (p.subnet, p.address, 1::smallint, p.rack) > ($5, $6::text::inet, $7::smallint, $8::uuid))
                  order by p.subnet, p.address, p.rack limit $9)
                 union all
                 (select m.subnet, m.address, 1::smallint, m.machine, 'machine', o.name, null, m.machine, null, null, null, null, null
                  from machine_address m join object o on o.uid = m.machine
                  where ($1::uuid is null or m.subnet = $1) and ($2::text is null or m.address = $2::text::inet)
                    and ($3::text is null or $3 = 'machine')
                    and ($4::text[] is null or object_pool(o.kind, o.uid, o.spec) = any($4))
                    and ($5::uuid is null or (m.subnet, m.address, 1::smallint, m.machine) > ($5, $6::text::inet, $7::smallint, $8::uuid))
                  order by m.subnet, m.address, m.machine limit $9)
                 union all
                 (select l.subnet, l.address, 2::smallint, l.rack, 'lease', null, null, null, l.mac, null, nullif(l.hostname, ''), l.rack, l.ends_at
                  from lease l left join mac_holder h on h.mac = l.mac left join object o on o.uid = h.holder
                  where not l.given_back and l.ends_at > now()
                    and ($1::uuid is null or l.subnet = $1) and ($2::text is null or l.address = $2::text::inet)
                    and ($3::text is null or $3 = 'lease')
                    and ($4::text[] is null or o.kind = 'Device' or object_pool(o.kind, o.uid, o.spec) = any($4))
                    and ($5::uuid is null or (l.subnet, l.address, 2::smallint, l.rack) > ($5, $6::text::inet, $7::smallint, $8::uuid))
                  order by l.subnet, l.address, l.rack limit $9)
                 union all
                 (select l.subnet, l.address, 2::smallint, l.rack, 'lease', null, null, null, l.mac, null, null, l.rack, l.ends_at
                  from lease6 l left join mac_holder h on h.mac = l.mac left join object o on o.uid = h.holder
                  where not l.given_back and l.ends_at > now()
                    and ($1::uuid is null or l.subnet = $1) and ($2::text is null or l.address = $2::text::inet)
                    and ($3::text is null or $3 = 'lease')
                    and ($4::text[] is null or o.kind = 'Device' or object_pool(o.kind, o.uid, o.spec) = any($4))
                    and ($5::uuid is null or (l.subnet, l.address, 2::smallint, l.rack) > ($5, $6::text::inet, $7::smallint, $8::uuid))
                  order by l.subnet, l.address, l.rack limit $9)
                 order by subnet, address, rank, by limit $9)
               select t.subnet as "subnet_uid!", s.name as "subnet!", host(t.address) as "address!", t.rank as "rank!", t.by as "by!",
                 t.source as "source!", t.owner as "owner?", t.interface as "interface?", t.mac::text as "mac?", t.duid as "duid?",
                 t.hostname as "hostname?", r.name as "rack?", (extract(epoch from t.ends_at) * 1000000)::bigint as "ends_us?",
                 m.kind as "holder_kind?", m.name as "holder?"
               from taken t join object s on s.uid = t.subnet
                 left join object r on r.uid = t.rack
                 left join mac_holder h on h.mac = t.mac
                 left join object m on m.uid = coalesce(t.machine, h.holder)
                   and ($4::text[] is null or m.kind <> 'Machine' or object_pool(m.kind, m.uid, m.spec) = any($4))
               order by t.subnet, t.address, t.rank, t.by"#,
            query.subnet.map(|uid| uid.get()),
            query.address.map(|address| address.to_string()),
            query.source,
            query.pools as Option<&[String]>,
            after.map(|it| it.subnet),
            after.map(|it| it.address.to_string()),
            after.map(|it| it.rank),
            after.map(|it| it.by),
            limit.saturating_add(1)
        );
        let mut rows = rows.fetch_all(&mut *tx).await?;
        drop(tx);
        let more = rows.len() > usize::try_from(limit).unwrap_or(usize::MAX);
        if more {
            rows.pop();
        }
        let mut page = TakenPage::default();
        for row in rows {
            let address = parse(&row.address)?;
            page.next = more.then_some(AddressPosition {
                subnet: row.subnet_uid,
                address,
                rank: row.rank,
                by: row.by,
            });
            let of = |kind: &str| row.holder.clone().filter(|_| row.holder_kind.as_deref() == Some(kind));
            page.entries.push(TakenAddress {
                address,
                subnet: row.subnet,
                source: row.source,
                machine: of("Machine"),
                device: of("Device"),
                owner: row.owner,
                interface: row.interface,
                mac: row.mac,
                duid: row.duid.as_deref().map(duid).transpose()?,
                hostname: row.hostname,
                rack: row.rack,
                ends_at: row.ends_us.map(timestamp).transpose()?,
            });
        }
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_one_word() {
        let position = AddressPosition {
            subnet: Uuid::from_u128(1),
            address: "2001:db8::1".parse().unwrap(),
            rank: 2,
            by: Uuid::from_u128(3),
        };
        assert_eq!(position.to_string().parse(), Ok(position));
        for wrong in ["", "10.77.0.1", "1,2,3,4", &format!("{position},5")] {
            assert_eq!(wrong.parse::<AddressPosition>(), Err(()), "{wrong}");
        }
    }
}
