//! Addresses that the driver gives to deployments' interfaces.

use super::fit::{self, Place};
use super::{declared, duid, machine, parse};
use crate::store::Tx;
use crate::{Store, StoreError};
use basalt_api::values::{Duid, SubnetId, Uid};
use std::net::IpAddr;
use uuid::Uuid;

/// How often a call is repeated if its transaction meets another one.
const TRIES: usize = 8;

/// A request for an address.
#[derive(Clone, Copy, Debug)]
pub struct AddressWish<'a> {
    /// The subnet of the address.
    pub subnet: SubnetId,
    /// The object that is to have the address.
    pub owner: Uid,
    /// The purpose, for example an interface's name. An owner has one address per subnet and purpose.
    pub purpose: &'a str,
    /// The exact address; `None`: the next free one.
    pub address: Option<IpAddr>,
    /// The interface's MAC, for a reservation.
    pub mac: Option<&'a str>,
    /// The host name that DHCP sends with the address.
    pub hostname: Option<&'a str>,
    /// All MACs of the machine. `address` may be the IpAddress of one of them.
    pub machine_macs: &'a [String],
}

/// The result of an [`AddressWish`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Addressed {
    /// The owner may use this address. It is the owner's own, or an IpAddress keeps it for the owner's MAC.
    Owned(IpAddr),
    /// The address is not given; the text is the reason.
    Refused(String),
}

/// An address that is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The subnet of the address.
    pub subnet: SubnetId,
    /// The address itself.
    pub address: IpAddr,
    /// The object that has the address.
    pub owner: Uid,
    /// The purpose; an owner has one address per subnet and purpose.
    pub purpose: String,
    /// The interface's MAC.
    pub mac: Option<String>,
    /// The host's DUID; some IpAddresses have it in place of a MAC.
    pub duid: Option<Duid>,
    /// The host name that DHCP sends with the address.
    pub hostname: Option<String>,
    /// True if an IpAddress keeps the address.
    pub declared: bool,
    /// True if a deployment uses the address of an IpAddress.
    pub borrowed: bool,
}

/// A row of `select_addresses!`.
struct AddressRow {
    subnet: Uuid,
    address: String,
    owner: Uuid,
    purpose: String,
    mac: Option<String>,
    duid: Option<Vec<u8>>,
    hostname: Option<String>,
    declared: bool,
    borrowed: bool,
}

/// `select` of addresses, and of uses of addresses; with a condition for each of the two.
macro_rules! select_addresses {
    ($which:literal, $and_used:literal $(, $arg:expr)* $(,)?) => {
        sqlx::query_as!(
            AddressRow,
            r#"select subnet as "subnet!", host(address) as "address!", owner as "owner!", purpose as "purpose!",
                 mac::text as mac, duid, hostname, declared as "declared!", borrowed as "borrowed!"
               from (
                 select a.subnet, a.address, a.owner, a.purpose, coalesce(a.mac, d.mac) as mac, a.duid, a.hostname,
                   a.class = 'static' as declared, false as borrowed from address a
                 left join lateral (
                   select (array_agg(h.mac))[1] as mac from mac_holder h where h.holder = a.owner having count(*) = 1) d
                   on not exists (select from address i where i.subnet = a.subnet and i.mac = d.mac) "# + $which + r#"
                 union all
                 select u.subnet, u.address, u.owner, u.purpose, null, null, null, false, true from address_use u
                 join address a on a.subnet = u.subnet and a.address = u.address and a.class = 'static' "# + $and_used + r#") x
               order by subnet, address, declared desc"#
            $(, $arg)*
        )
    };
}

impl AddressRow {
    fn address(self) -> Result<Address, StoreError> {
        Ok(Address {
            subnet: SubnetId::from(self.subnet),
            address: parse(&self.address)?,
            owner: Uid::from(self.owner),
            purpose: self.purpose,
            mac: self.mac,
            duid: self.duid.map(|bytes| duid(&bytes)).transpose()?,
            hostname: self.hostname,
            declared: self.declared,
            borrowed: self.borrowed,
        })
    }
}

impl Store {
    /// Gives an address to its owner: the requested one, or the lowest free one outside of the subnet's ranges. A repeated call gives
    /// the same address.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn own_address(&self, wish: &AddressWish<'_>) -> Result<Addressed, StoreError> {
        let mut tries = 1;
        loop {
            match Box::pin(self.own_address_once(wish)).await {
                Err(error) if error.is_race() && tries < TRIES => tries += 1,
                result => return result,
            }
        }
    }

    async fn own_address_once(&self, wish: &AddressWish<'_>) -> Result<Addressed, StoreError> {
        let mut tx = self.begin().await?;
        let (subnet, owner) = (wish.subnet.get(), wish.owner.get());
        // Every writer locks in this order: first objects, then the subnet's addresses.
        let objects = sqlx::query!(
            "select 1 as one from object where uid = any($1) order by uid for key share",
            &[subnet, owner]
        );
        objects.fetch_all(&mut *tx).await?;
        super::lock(&mut tx, &[subnet]).await?;
        let own = sqlx::query_scalar!(
            r#"select host(address) as "address!" from address where subnet = $1 and owner = $2 and purpose = $3"#,
            subnet,
            owner,
            wish.purpose
        );
        if let Some(text) = own.fetch_optional(&mut *tx).await? {
            let own = parse(&text)?;
            if wish.address.is_none_or(|wished| wished == own) {
                let update = sqlx::query!(
                    "update address set mac = $4::text::macaddr, hostname = $5
                     where subnet = $1 and owner = $2 and purpose = $3 and mac is null and hostname is null",
                    subnet,
                    owner,
                    wish.purpose,
                    wish.mac,
                    wish.hostname
                );
                update.execute(&mut *tx).await?;
                self.commit(tx).await?;
                return Ok(Addressed::Owned(own));
            }
        }
        let former = self.former_use(&mut tx, wish).await?;
        if let Some(kept) = reserved(&mut tx, wish).await? {
            keep_using(&mut tx, wish, &kept).await?;
            self.commit(tx).await?;
            return Ok(Addressed::Owned(parse(&kept)?));
        }
        let chosen = match wish.address.or(former) {
            Some(wished) => {
                if let Some(why) = against(&mut tx, wish, wished).await? {
                    return Ok(Addressed::Refused(why));
                }
                wished
            }
            None => match super::next_free(&mut tx, subnet, 1).await?.first() {
                Some(free) => parse(free)?,
                None => return Ok(Addressed::Refused(declared::full(&mut tx, subnet).await?.message)),
            },
        };
        let upsert = sqlx::query!(
            "insert into address (subnet, address, owner, purpose, mac, hostname)
             values ($1, $2::text::inet, $3, $4, $5::text::macaddr, $6)
             on conflict (owner, subnet, purpose) do update
             set address = excluded.address, mac = excluded.mac, hostname = excluded.hostname",
            subnet,
            chosen.to_string(),
            owner,
            wish.purpose,
            wish.mac,
            wish.hostname
        );
        upsert.execute(&mut *tx).await?;
        self.commit(tx).await?;
        Ok(Addressed::Owned(chosen))
    }

    /// The reason for which [`Self::own_address`] would refuse now, as a sentence. `None`: it would give an address.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn address_refusal(&self, wish: &AddressWish<'_>) -> Result<Option<String>, StoreError> {
        let mut tx = self.begin().await?;
        let subnet = wish.subnet.get();
        if reserved(&mut tx, wish).await?.is_some() {
            return Ok(None);
        }
        match wish.address {
            Some(wished) => against(&mut tx, wish, wished).await,
            None if super::next_free(&mut tx, subnet, 1).await?.is_empty() => {
                Ok(Some(declared::full(&mut tx, subnet).await?.message))
            }
            None => Ok(None),
        }
    }

    /// The address that an interface used and that is free now: the IpAddress was deleted, but the machine still has the address.
    async fn former_use(&self, tx: &mut Tx, wish: &AddressWish<'_>) -> Result<Option<IpAddr>, StoreError> {
        let delete = sqlx::query!(
            r#"with gone as (delete from address_use where owner = $1 and subnet = $2 and purpose = $3 returning address)
               select host(g.address) as "address!" from gone g
               where not exists (select from address a where a.subnet = $2 and a.address = g.address)
                 and not exists (select from machine_address m where m.subnet = $2 and m.address = g.address)
                 and not exists (select from ip_range r where r.subnet = $2 and r.span @> g.address)"#,
            wish.owner.get(),
            wish.subnet.get(),
            wish.purpose
        );
        delete.fetch_optional(&mut **tx).await?.map(|row| parse(&row.address)).transpose()
    }

    /// Releases every address of an owner except those in these subnets for these purposes.
    ///
    /// # Errors
    /// Fails if the database cannot be written.
    pub async fn release_addresses(&self, owner: Uid, keep: &[(SubnetId, String)]) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        self.free_addresses(&mut tx, owner, keep).await?;
        self.commit(tx).await
    }

    pub(crate) async fn free_addresses(
        &self,
        tx: &mut Tx,
        owner: Uid,
        keep: &[(SubnetId, String)],
    ) -> Result<(), StoreError> {
        let subnets =
            sqlx::query_scalar!("select distinct subnet from address where owner = $1", owner.get());
        let subnets = subnets.fetch_all(&mut **tx).await?;
        super::lock(tx, &subnets).await?;
        let (kept, purposes): (Vec<_>, Vec<_>) =
            keep.iter().map(|(subnet, purpose)| (subnet.get(), purpose.clone())).unzip();
        let delete = sqlx::query!(
            "delete from address where owner = $1
               and not exists (select from unnest($2::uuid[], $3::text[]) k(s, p) where k.s = subnet and k.p = purpose)",
            owner.get(),
            &kept,
            &purposes
        );
        delete.execute(&mut **tx).await?;
        let delete = sqlx::query!(
            "delete from address_use where owner = $1
               and not exists (select from unnest($2::uuid[], $3::text[]) k(s, p) where k.s = subnet and k.p = purpose)",
            owner.get(),
            &kept,
            &purposes
        );
        delete.execute(&mut **tx).await?;
        Ok(())
    }

    /// The addresses of these subnets that are in use, in order. The address of a Device with a single MAC has that MAC, unless an IpAddress of the subnet has the
    /// MAC. If an IpAddress keeps an address for a deployment's interface, the list has both entries.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn addresses_in(&self, subnets: &[SubnetId]) -> Result<Vec<Address>, StoreError> {
        let subnets: Vec<Uuid> = subnets.iter().map(|subnet| subnet.get()).collect();
        let rows = select_addresses!("where a.subnet = any($1)", "and u.subnet = any($1)", &subnets);
        rows.fetch_all(self.pool()).await?.into_iter().map(AddressRow::address).collect()
    }

    /// The addresses that an owner has or uses, in order.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn addresses_of(&self, owner: Uid) -> Result<Vec<Address>, StoreError> {
        let rows = select_addresses!("where owner = $1", "and u.owner = $1", owner.get());
        rows.fetch_all(self.pool()).await?.into_iter().map(AddressRow::address).collect()
    }
}

/// The reason against a wish for this address, as a sentence.
async fn against(tx: &mut Tx, wish: &AddressWish<'_>, wished: IpAddr) -> Result<Option<String>, StoreError> {
    let address = wished.to_string();
    let place = [Place { owner: wish.owner.get(), subnet: wish.subnet.get(), address: address.clone() }];
    if let Some(misfit) = fit::misfits(tx, &place, "").await?.into_values().next() {
        return Ok(Some(misfit.message));
    }
    let holder = fit::holders(tx, &place).await?.into_values().next();
    let holder = match (holder, wish.address) {
        // If a rack has the requested address, name the rack. Exception: an owner that keeps the address for no MAC is named itself.
        (holder, Some(_)) if holder.as_ref().is_none_or(|holder| holder.mac.is_some()) => {
            fit::racks(tx, &place).await?.into_values().next().or(holder)
        }
        (holder, _) => holder,
    };
    let holder = match holder {
        None => machine::holders(tx, &place).await?.into_values().next(),
        holder => holder,
    };
    Ok(holder.map(|holder| holder.refusal(&address)))
}

/// The address that an IpAddress keeps for this interface, unless a rack has the address as its own. If the wish requests an address, the
/// IpAddress may keep it for any MAC of the machine. Otherwise it must keep it for the interface's MAC.
async fn reserved(tx: &mut Tx, wish: &AddressWish<'_>) -> Result<Option<String>, StoreError> {
    let query = sqlx::query_scalar!(
        r#"select host(address) as "address!" from address a
           where subnet = $1 and class = $2 and case when $3::text is null then mac = $4::text::macaddr
             else address = $3::text::inet and (mac = $4::text::macaddr or mac = any($5::text[]::macaddr[])) end
             and not exists (select from rack_place r where r.subnet = a.subnet and r.address = a.address)"#,
        wish.subnet.get(),
        super::STATIC,
        wish.address.map(|address| address.to_string()),
        wish.mac,
        wish.machine_macs
    );
    Ok(query.fetch_optional(&mut **tx).await?)
}

/// Notes that an interface uses an IpAddress's address, and releases its own one.
async fn keep_using(tx: &mut Tx, wish: &AddressWish<'_>, address: &str) -> Result<(), StoreError> {
    let (owner, subnet) = (wish.owner.get(), wish.subnet.get());
    let delete = sqlx::query!(
        "delete from address where owner = $1 and subnet = $2 and purpose = $3",
        owner,
        subnet,
        wish.purpose
    );
    delete.execute(&mut **tx).await?;
    let insert = sqlx::query!(
        "insert into address_use (owner, subnet, purpose, address) values ($1, $2, $3, $4::text::inet)",
        owner,
        subnet,
        wish.purpose,
        address
    );
    insert.execute(&mut **tx).await?;
    Ok(())
}
