//! DNS zones and the names of hosts in them.
//!
//! The reconciliations of machines write the machines' names to `host_name`. All other names are read from the objects that declare them.
//! A zone's serial is raised in the same statement that writes new content.

use crate::ipam::parse;
use crate::object::{timestamp, unsigned};
use crate::{Store, StoreError};
use basalt_api::values::{Cidr, Timestamp, Uid};
use std::collections::BTreeSet;
use std::net::IpAddr;
use uuid::Uuid;

/// The largest serial. The next one is 1, because some servers take 0 for "none".
const LARGEST_SERIAL: i64 = 4_294_967_295;

/// A row of `host_name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostName {
    /// The uid of the Domain.
    pub domain: Uid,
    /// The name below the domain.
    pub host: String,
    /// The address of the name.
    pub address: IpAddr,
    /// True: the address resolves back to this name, if several names have the address.
    pub is_main: bool,
}

/// A name of a host, and an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostAddress {
    /// The name: relative to the domain, or fully qualified, as the function says.
    pub name: String,
    /// The address of the name.
    pub address: IpAddr,
}

/// A DnsRecord as it is declared.
#[derive(Clone, Debug)]
pub struct DeclaredRecord {
    /// The DnsRecord's name.
    pub name: String,
    /// Its spec, as JSON.
    pub spec: String,
}

/// Addresses of a dynamic range, first and last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DynamicRange {
    /// The first one.
    pub first: IpAddr,
    /// The last one.
    pub last: IpAddr,
}

/// The version of a stored zone, without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneHead {
    /// The name of its apex, without the final dot.
    pub origin: String,
    /// Its serial (RFC 1982). A zone that was deleted and made again starts anew.
    pub serial: u32,
    /// Since when it has this content.
    pub updated_at: Timestamp,
}

/// A stored zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneRow {
    /// The name of its apex, without the final dot.
    pub origin: String,
    /// Its serial (RFC 1982).
    pub serial: u32,
    /// Its content, without the serial.
    pub body: Vec<u8>,
    /// Since when it has this content.
    pub updated_at: Timestamp,
}

/// The result of [`Store::publish_zone`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// The zone already has this content, with this serial.
    Unchanged(u32),
    /// The content was written under this serial.
    Written(u32),
    /// Another writer was first: read `base` and the content again, and render again.
    Stale,
}

impl Store {
    /// The names that an object's reconciliation wrote last.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn host_names(&self, object: Uid) -> Result<BTreeSet<HostName>, StoreError> {
        let rows = sqlx::query!(
            r#"select domain, host, host(address) as "address!", is_main from host_name where object = $1"#,
            object.get()
        );
        let rows = rows.fetch_all(self.pool()).await?;
        let names = rows.into_iter().map(|row| {
            let (domain, address) = (Uid::from(row.domain), parse(&row.address)?);
            Ok(HostName { domain, host: row.host, address, is_main: row.is_main })
        });
        names.collect()
    }

    /// Replaces the names of an object. Wakes the domains and the subnets whose zones change.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn put_host_names(&self, object: Uid, names: &BTreeSet<HostName>) -> Result<(), StoreError> {
        let domains: Vec<Uuid> = names.iter().map(|it| it.domain.get()).collect();
        let hosts: Vec<String> = names.iter().map(|it| it.host.clone()).collect();
        let addresses: Vec<String> = names.iter().map(|it| it.address.to_string()).collect();
        let main: Vec<bool> = names.iter().map(|it| it.is_main).collect();
        let mut tx = self.begin().await?;
        // Names in a domain that was deleted in the meantime are left out.
        let moved = sqlx::query!(
            r#"with wish as (
                 select w.domain, w.host, w.address::inet as address, w.is_main
                 from unnest($2::uuid[], $3::text[], $4::text[], $5::bool[]) w(domain, host, address, is_main)
                 join object o on o.uid = w.domain),
               gone as (
                 delete from host_name n where n.object = $1
                 and not exists (select from wish w where (w.domain, w.host, w.address, w.is_main) = (n.domain, n.host, n.address, n.is_main))
                 returning n.domain, n.address),
               new as (
                 select w.* from wish w
                 where not exists (select from host_name n where n.object = $1
                   and (w.domain, w.host, w.address, w.is_main) = (n.domain, n.host, n.address, n.is_main)))
               select domain as "domain!", host, host(address) as "address!", is_main, true as "is_new!" from new
               union all select domain, null, host(address), null, false from gone"#,
            object.get(),
            &domains,
            &hosts,
            &addresses,
            &main
        );
        let moved = moved.fetch_all(&mut *tx).await?;
        let new: Vec<_> = moved.iter().filter(|row| row.is_new).collect();
        let insert = sqlx::query!(
            "insert into host_name (object, domain, host, address, is_main)
             select $1, w.domain, w.host, w.address::inet, w.is_main
             from unnest($2::uuid[], $3::text[], $4::text[], $5::bool[]) w(domain, host, address, is_main)",
            object.get(),
            &new.iter().map(|row| row.domain).collect::<Vec<_>>(),
            &new.iter().filter_map(|row| row.host.clone()).collect::<Vec<_>>(),
            &new.iter().map(|row| row.address.clone()).collect::<Vec<_>>(),
            &new.iter().filter_map(|row| row.is_main).collect::<Vec<_>>()
        );
        insert.execute(&mut *tx).await?;
        let at: Vec<String> = moved.iter().map(|row| row.address.clone()).collect();
        let subnets =
            sqlx::query_scalar!("select subnet from subnet_cidr where cidr >>= any($1::text[]::inet[])", &at);
        let mut woken = subnets.fetch_all(&mut *tx).await?;
        woken.extend(moved.iter().map(|row| row.domain));
        self.wake_with(&mut tx, &[], &woken).await?;
        self.commit(tx).await?;
        Ok(())
    }

    /// The names of hosts in a domain, relative to the domain, in a fixed order: of machines, of Devices, and of IpAddresses with a host
    /// name. The default domain includes the names for which no domain is declared.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn names_of_domain(
        &self,
        domain: Uid,
        name: &str,
        is_default: bool,
    ) -> Result<Vec<HostAddress>, StoreError> {
        let rows = sqlx::query!(
            r#"select host as "name!", host(address) as "address!" from host_name where domain = $1
               union
               select d.name, host(e.address) from object d join device_address e on e.device = d.uid
               where d.kind = 'Device' and (case when d.spec ->> 'domain' is null then $3
                 else exists (select from object_ref r where r.from_uid = d.uid and r.to_uid = $1) end)
               union
               select case when a.hostname like '%.' || $2 then left(a.hostname, -length($2) - 1) else a.hostname end, host(a.address)
               from address a join object o on o.uid = a.owner and o.kind = 'IpAddress'
               where a.hostname like '%.' || $2 or ($3 and a.hostname not like '%.%')
               order by 1, 2"#,
            domain.get(),
            name,
            is_default
        );
        let rows = rows.fetch_all(self.pool()).await?;
        rows.into_iter()
            .map(|row| Ok(HostAddress { name: row.name, address: parse(&row.address)? }))
            .collect()
    }

    /// The fully qualified names of the addresses in these networks, without the final dot, in a fixed order. If an address has several
    /// names, only its main names are returned. `default`: the default domain.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn names_in(
        &self,
        networks: &[Cidr],
        default: Option<&str>,
    ) -> Result<Vec<HostAddress>, StoreError> {
        let networks: Vec<String> = networks.iter().map(ToString::to_string).collect();
        let rows = sqlx::query!(
            r#"with named as (
                 select n.host || '.' || d.name as name, n.address, n.is_main from host_name n join object d on d.uid = n.domain
                 where n.address <<= any($1::text[]::inet[])
                 union all
                 select o.name || '.' || coalesce(o.spec ->> 'domain', $2), e.address, true
                 from object o join device_address e on e.device = o.uid
                 where o.kind = 'Device' and e.address <<= any($1::text[]::inet[])
                 union all
                 select case when a.hostname like '%.%' then a.hostname else a.hostname || '.' || $2 end, a.address, true
                 from address a join object o on o.uid = a.owner and o.kind = 'IpAddress'
                 where a.hostname is not null and a.address <<= any($1::text[]::inet[]))
               select distinct name as "name!", host(address) as "address!" from named n
               where name is not null
               and (is_main or not exists (select from named m where m.address = n.address and m.is_main and m.name is not null))
               order by 2, 1"#,
            &networks,
            default
        );
        let rows = rows.fetch_all(self.pool()).await?;
        rows.into_iter()
            .map(|row| Ok(HostAddress { name: row.name, address: parse(&row.address)? }))
            .collect()
    }

    /// The records that are declared in a domain, in a fixed order.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn records_of(&self, domain: Uid) -> Result<Vec<DeclaredRecord>, StoreError> {
        let rows = sqlx::query!(
            r#"select o.name, o.spec::text as "spec!" from object_ref r join object o on o.uid = r.from_uid
               where r.to_uid = $1 and o.kind = 'DnsRecord' and o.deletion_requested_at is null order by o.name"#,
            domain.get()
        );
        let rows = rows.fetch_all(self.pool()).await?;
        Ok(rows.into_iter().map(|row| DeclaredRecord { name: row.name, spec: row.spec }).collect())
    }

    /// The dynamic ranges, in a fixed order.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn dynamic_ranges(&self) -> Result<Vec<DynamicRange>, StoreError> {
        let rows = sqlx::query!(
            r#"select host(lower(r.span)) as "first!", host(upper(r.span)) as "last!"
               from ip_range r where r.purpose = 'dynamic' order by 1, 2"#
        );
        let rows = rows.fetch_all(self.pool()).await?;
        let ranges = rows
            .into_iter()
            .map(|row| Ok(DynamicRange { first: parse(&row.first)?, last: parse(&row.last)? }));
        ranges.collect()
    }

    /// The present serial of a zone; 0 if it was never written. Read the serial *before* the content.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn zone_serial(&self, origin: &str) -> Result<u32, StoreError> {
        let query = sqlx::query_scalar!("select serial from zone where origin = $1", origin);
        Ok(query.fetch_optional(self.pool()).await?.map_or(0, serial))
    }

    /// Writes the content of a zone, rendered after serial `base` was read. The serial rises only if the content differs. New content wakes
    /// one rack, which renders the document for all racks.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn publish_zone(&self, origin: &str, base: u32, body: &[u8]) -> Result<Published, StoreError> {
        let mut tx = self.begin().await?;
        let current = sqlx::query!("select serial, body from zone where origin = $1 for update", origin);
        let current = current.fetch_optional(&mut *tx).await?;
        let at = current.as_ref().map_or(0, |row| serial(row.serial));
        if current.is_some_and(|row| row.body == body) {
            return Ok(Published::Unchanged(at));
        }
        let write = sqlx::query_scalar!(
            "insert into zone as z (origin, body) values ($1, $2) on conflict (origin) do update
             set serial = z.serial % $4 + 1, body = excluded.body, updated_at = clock_timestamp() where z.serial = $3 returning serial",
            origin,
            body,
            i64::from(base),
            LARGEST_SERIAL
        );
        let written = if at == base { write.fetch_optional(&mut *tx).await? } else { None };
        let Some(written) = written else { return Ok(Published::Stale) };
        let rack = sqlx::query_scalar!("select uid from object where kind = 'Rack' order by uid limit 1");
        let rack = rack.fetch_all(&mut *tx).await?;
        self.wake_with(&mut tx, &[], &rack).await?;
        self.commit(tx).await?;
        Ok(Published::Written(serial(written)))
    }

    /// The versions of the zones of these origins, in a fixed order.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn zone_heads(&self, origins: &[String]) -> Result<Vec<ZoneHead>, StoreError> {
        let rows = sqlx::query!(
            r#"select origin, serial, (extract(epoch from updated_at) * 1000000)::bigint as "updated_us!"
               from zone where origin = any($1) order by origin"#,
            origins
        );
        let rows = rows.fetch_all(self.pool()).await?;
        let heads = rows.into_iter().map(|row| {
            let updated_at = timestamp(row.updated_us)?;
            Ok(ZoneHead { origin: row.origin, serial: serial(row.serial), updated_at })
        });
        heads.collect()
    }

    /// The zones of these origins, in a fixed order.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn zones(&self, origins: &[String]) -> Result<Vec<ZoneRow>, StoreError> {
        let rows = sqlx::query!(
            r#"select origin, serial, body, (extract(epoch from updated_at) * 1000000)::bigint as "updated_us!"
               from zone where origin = any($1) order by origin"#,
            origins
        );
        let rows = rows.fetch_all(self.pool()).await?;
        let zones = rows.into_iter().map(|row| {
            let updated_at = timestamp(row.updated_us)?;
            Ok(ZoneRow { origin: row.origin, serial: serial(row.serial), body: row.body, updated_at })
        });
        zones.collect()
    }
}

fn serial(stored: i64) -> u32 {
    u32::try_from(unsigned(stored)).unwrap_or(u32::MAX)
}
