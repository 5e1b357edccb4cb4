//! Explains DNS: the objects that give names in zones, and the racks that have the zones. No zone is rendered from this.

use crate::ipam::parse;
use crate::object::{timestamp, unsigned};
use crate::{ConcernAck, Store, StoreError};
use basalt_api::values::{Cidr, Generation, RackId, Timestamp};
use std::net::IpAddr;

/// An object that gives an address a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameSource {
    /// The whole name in lower case, without the final dot.
    pub name: String,
    /// The address that has the name.
    pub address: IpAddr,
    /// `Machine`, `Deployment`, `Device` or `IpAddress`.
    pub kind: String,
    /// The object's name.
    pub object: String,
    /// The machine of a deployment.
    pub machine: Option<String>,
    /// True if the object is in no pool, or in one of [`NameSources::pools`].
    pub is_visible: bool,
}

/// The names that [`Store::name_sources`] reads.
#[derive(Clone, Copy, Debug)]
pub struct NameSources<'a> {
    /// Names in this domain alone.
    pub domain: Option<&'a str>,
    /// Names of addresses in these networks alone.
    pub networks: Option<&'a [Cidr]>,
    /// The default domain, which has the names that say no domain.
    pub default: Option<&'a str>,
    /// The pools whose machines and deployments are visible; `None`: all.
    pub pools: Option<&'a [String]>,
}

/// The version of the document with the zones, and one rack's answer to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentState {
    /// The rack that answers.
    pub rack: RackId,
    /// The generation of the document; 0: no document was written.
    pub generation: Generation,
    /// When the document got its content.
    pub written_at: Option<Timestamp>,
    /// The rack's last answer.
    pub ack: Option<ConcernAck>,
}

impl Store {
    /// The objects that give names to addresses, in a fixed order.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn name_sources(&self, wanted: &NameSources<'_>) -> Result<Vec<NameSource>, StoreError> {
        let networks = wanted.networks.map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>());
        let rows = sqlx::query!(
            r#"with found as (
                 select n.host || '.' || z.name as whole, n.address, m.uid as first, c.deployment as second,
                   lower(m.name) in (n.host, n.host || '.' || z.name) as is_own
                 from host_name n join object z on z.uid = n.domain join object m on m.uid = n.object
                   left join machine_claim c on c.machine = n.object
                 where ($1::text is null or z.name = $1) and ($2::text[] is null or n.address <<= any($2::text[]::inet[]))
                 union all
                 select d.name || '.' || coalesce(d.spec ->> 'domain', $3), e.address, d.uid, null, true
                 from object d join device_address e on e.device = d.uid
                 where d.kind = 'Device' and ($1::text is null or coalesce(d.spec ->> 'domain', $3) = $1)
                   and ($2::text[] is null or e.address <<= any($2::text[]::inet[]))
                 union all
                 select case when a.hostname like '%.%' then a.hostname else a.hostname || '.' || $3 end, a.address, o.uid, null, true
                 from address a join object o on o.uid = a.owner and o.kind = 'IpAddress'
                 where ($1::text is null or a.hostname like '%.' || $1 or ($1 = $3 and a.hostname not like '%.%'))
                   and ($2::text[] is null or a.address <<= any($2::text[]::inet[])))
               select lower(f.whole) as "name!", host(f.address) as "address!",
                 case when f.is_own or s.uid is null then o.kind else s.kind end as "kind!",
                 case when f.is_own or s.uid is null then o.name else s.name end as "object!",
                 case when not f.is_own and s.uid is not null then o.name end as machine,
                 $4::text[] is null or o.kind in ('Device', 'IpAddress') or coalesce(object_pool(o.kind, o.uid, o.spec) = any($4), false)
                   as "is_visible!"
               from found f join object o on o.uid = f.first left join object s on s.uid = f.second
               where f.whole is not null order by 1, 2, 3, 4"#,
            wanted.domain,
            networks.as_deref() as Option<&[String]>,
            wanted.default,
            wanted.pools as Option<&[String]>
        );
        let rows = rows.fetch_all(self.pool()).await?;
        let sources = rows.into_iter().map(|row| {
            Ok(NameSource {
                name: row.name,
                address: parse(&row.address)?,
                kind: row.kind,
                object: row.object,
                machine: row.machine,
                is_visible: row.is_visible,
            })
        });
        sources.collect()
    }

    /// The name of the IpRange whose addresses are dynamic, and which has this address.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn dynamic_range_of(&self, address: IpAddr) -> Result<Option<String>, StoreError> {
        let query = sqlx::query_scalar!(
            "select o.name from ip_range r join object o on o.uid = r.range
             where r.purpose = 'dynamic' and r.span @> $1::text::inet order by o.name limit 1",
            address.to_string()
        );
        Ok(query.fetch_optional(self.pool()).await?)
    }

    /// The state of each rack's document of a common concern. The documents themselves are not read.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn document_states(&self, concern: &str) -> Result<Vec<DocumentState>, StoreError> {
        let rows = sqlx::query!(
            r#"select o.uid, c.generation as "generation?", (extract(epoch from c.updated_at) * 1000000)::bigint as written_us,
                 a.generation as "answered?", a.outcome as "outcome?", a.message as "message?"
               from object o left join common_concern c on c.concern = $1
                 left join rack_concern_ack a on a.rack = o.uid and a.concern = $1
               where o.kind = 'Rack' order by o.name"#,
            concern
        );
        let rows = rows.fetch_all(self.pool()).await?;
        let states = rows.into_iter().map(|row| {
            let ack = row.answered.zip(row.outcome).map(|(generation, outcome)| ConcernAck {
                concern: concern.to_owned(),
                generation: Generation::new(unsigned(generation)),
                outcome,
                message: row.message.unwrap_or_default(),
            });
            Ok(DocumentState {
                rack: RackId::from(row.uid),
                generation: Generation::new(row.generation.map_or(0, unsigned)),
                written_at: row.written_us.map(timestamp).transpose()?,
                ack,
            })
        });
        states.collect()
    }
}
