//! Addresses that the driver gives to deployments' interfaces.

use super::fit::{self, Place};
use super::parse;
use crate::{Store, StoreError};
use basalt_api::values::{SubnetId, Uid};
use std::net::IpAddr;

/// Transactions may meet; each of them may lose this often.
const TRIES: usize = 8;

/// An address to have.
#[derive(Clone, Copy, Debug)]
pub struct AddressWish<'a> {
    /// In which subnet.
    pub subnet: SubnetId,
    /// Whose.
    pub owner: Uid,
    /// What for: one owner has one address of a subnet per purpose (an interface's name, say).
    pub purpose: &'a str,
    /// This very address; the next free one otherwise.
    pub address: Option<IpAddr>,
    /// The interface's MAC, for a reservation.
    pub mac: Option<&'a str>,
    /// The name that DHCP hands out with it.
    pub hostname: Option<&'a str>,
}

/// What became of an [`AddressWish`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Addressed {
    /// It is the owner's, now or already.
    Owned(IpAddr),
    /// The wished address is another object's.
    HeldBy(String),
    /// Nobody can have the wished address; why, in words.
    Unfit(String),
    /// No address of the subnet is free, or the subnet is not managed.
    Exhausted,
}

/// An address that somebody has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// In which subnet.
    pub subnet: SubnetId,
    /// The address.
    pub address: IpAddr,
    /// Whose.
    pub owner: Uid,
    /// What for.
    pub purpose: String,
    /// The interface's MAC.
    pub mac: Option<String>,
    /// The name that DHCP hands out with it.
    pub hostname: Option<String>,
}

impl Store {
    /// Gives an address to its owner: the wished one, or the lowest one that is free and in no range of the subnet. Repeated, it
    /// is the same one.
    ///
    /// # Errors
    /// The database.
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
        // In the order of every writer: objects first, then the subnet's addresses.
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
                return Ok(Addressed::Owned(own));
            }
        }
        let chosen = match wish.address {
            Some(wished) => {
                let place = [Place { owner, subnet, address: wished.to_string() }];
                if let Some(error) = fit::misfits(&mut tx, &place, "").await?.into_values().next() {
                    return Ok(Addressed::Unfit(error.message));
                }
                if let Some(holder) = fit::holders(&mut tx, &place).await?.into_values().next() {
                    return Ok(Addressed::HeldBy(holder.name));
                }
                wished
            }
            None => match super::next_free(&mut tx, subnet, 1).await?.first() {
                Some(free) => parse(free)?,
                None => return Ok(Addressed::Exhausted),
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

    /// Gives back every address of an owner but those for the purposes in `keep`.
    ///
    /// # Errors
    /// The database.
    pub async fn release_addresses(&self, owner: Uid, keep: &[String]) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        let subnets =
            sqlx::query_scalar!("select distinct subnet from address where owner = $1", owner.get());
        let subnets = subnets.fetch_all(&mut *tx).await?;
        super::lock(&mut tx, &subnets).await?;
        let delete =
            sqlx::query!("delete from address where owner = $1 and purpose <> all($2)", owner.get(), keep);
        delete.execute(&mut *tx).await?;
        self.commit(tx).await
    }

    /// Every owned address, in order.
    ///
    /// # Errors
    /// The database.
    pub async fn addresses(&self) -> Result<Vec<Address>, StoreError> {
        let rows = sqlx::query!(
            r#"select subnet, host(address) as "address!", owner, purpose, mac::text as mac, hostname
               from address order by subnet, address"#
        );
        let rows = rows.fetch_all(self.pool()).await?;
        rows.into_iter()
            .map(|r| {
                Ok(Address {
                    subnet: SubnetId::from(r.subnet),
                    address: parse(&r.address)?,
                    owner: Uid::from(r.owner),
                    purpose: r.purpose,
                    mac: r.mac,
                    hostname: r.hostname,
                })
            })
            .collect()
    }
}
