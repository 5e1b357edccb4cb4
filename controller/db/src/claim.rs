//! Who has a machine, and who has an address.

use crate::object::{signed, unsigned};
use crate::{Store, StoreError};
use basalt_api::values::{DeploymentId, Epoch, MachineId, SubnetId, Uid};
use std::net::IpAddr;

/// What became of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// The machine is the deployment's.
    Yes,
    /// Another deployment has it.
    HeldBy(String),
    /// The deployment has another machine already.
    Holds(MachineId),
}

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
    /// No address of the subnet is free.
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

fn address(text: &str) -> Result<IpAddr, StoreError> {
    text.parse().map_err(|_| StoreError::Corrupt(format!("the address {text:?}")))
}

impl Store {
    /// Gives a free machine to a deployment; the same claim again is the same.
    ///
    /// # Errors
    /// The database.
    pub async fn claim_machine(
        &self,
        deployment: DeploymentId,
        machine: MachineId,
        epoch: Epoch,
    ) -> Result<Claimed, StoreError> {
        let mut tx = self.begin().await?;
        let insert = sqlx::query!(
            "insert into machine_claim (machine, deployment, epoch) values ($1, $2, $3) on conflict do nothing",
            machine.get(),
            deployment.get(),
            signed(epoch.get())
        );
        if insert.execute(&mut *tx).await?.rows_affected() == 1 {
            self.wake_around(&mut tx, deployment.into()).await?;
            self.commit(tx).await?;
            return Ok(Claimed::Yes);
        }
        let held = sqlx::query!(
            "select c.machine, c.deployment, o.name from machine_claim c join object o on o.uid = c.deployment
             where c.machine = $1 or c.deployment = $2 order by c.machine = $1 desc limit 1",
            machine.get(),
            deployment.get()
        );
        let held = held.fetch_one(&mut *tx).await?;
        Ok(match (held.machine == machine.get(), held.deployment == deployment.get()) {
            (true, true) => Claimed::Yes,
            (true, false) => Claimed::HeldBy(held.name),
            (false, _) => Claimed::Holds(MachineId::from(held.machine)),
        })
    }

    /// Gives a deployment's machine back.
    ///
    /// # Errors
    /// The database.
    pub async fn release_machine(&self, deployment: DeploymentId) -> Result<(), StoreError> {
        let mut tx = self.begin().await?;
        self.wake_around(&mut tx, deployment.into()).await?;
        sqlx::query!("delete from machine_claim where deployment = $1", deployment.get())
            .execute(&mut *tx)
            .await?;
        self.commit(tx).await
    }

    /// Which machine a deployment has, and since which epoch.
    ///
    /// # Errors
    /// The database.
    pub async fn claimed_by(
        &self,
        deployment: DeploymentId,
    ) -> Result<Option<(MachineId, Epoch)>, StoreError> {
        let row =
            sqlx::query!("select machine, epoch from machine_claim where deployment = $1", deployment.get());
        let row = row.fetch_optional(self.pool()).await?;
        Ok(row.map(|r| (MachineId::from(r.machine), Epoch::new(unsigned(r.epoch)))))
    }

    /// Which deployment has a machine.
    ///
    /// # Errors
    /// The database.
    pub async fn claimant_of(&self, machine: MachineId) -> Result<Option<DeploymentId>, StoreError> {
        let row =
            sqlx::query_scalar!("select deployment from machine_claim where machine = $1", machine.get());
        Ok(row.fetch_optional(self.pool()).await?.map(DeploymentId::from))
    }

    /// Every claim: (machine, deployment).
    ///
    /// # Errors
    /// The database.
    pub async fn claims(&self) -> Result<Vec<(MachineId, DeploymentId)>, StoreError> {
        let rows = sqlx::query!("select machine, deployment from machine_claim order by machine");
        let rows = rows.fetch_all(self.pool()).await?;
        Ok(rows.into_iter().map(|r| (MachineId::from(r.machine), DeploymentId::from(r.deployment))).collect())
    }

    /// Gives an address to its owner: the wished one, or the lowest one that is free and in no range of the subnet, not the
    /// gateway, and neither network nor broadcast address. Repeated, it is the same one.
    ///
    /// # Errors
    /// The database: an address outside the subnet, too.
    pub async fn own_address(&self, wish: &AddressWish<'_>) -> Result<Addressed, StoreError> {
        let mut tx = self.begin().await?;
        // One at a time per subnet, so that the next free one is still free.
        let subnet = wish.subnet.get();
        sqlx::query!("select 1 as one from subnet_cidr where subnet = $1 for update", subnet)
            .fetch_optional(&mut *tx)
            .await?;
        let own = sqlx::query_scalar!(
            r#"select host(address) as "address!" from address where subnet = $1 and owner = $2 and purpose = $3"#,
            subnet,
            wish.owner.get(),
            wish.purpose
        );
        if let Some(text) = own.fetch_optional(&mut *tx).await? {
            let own = address(&text)?;
            if wish.address.is_none_or(|wished| wished == own) {
                return Ok(Addressed::Owned(own));
            }
        }
        let chosen = match wish.address {
            Some(wished) => {
                let holder = sqlx::query_scalar!(
                    "select o.name from address a join object o on o.uid = a.owner
                     where a.subnet = $1 and a.address = $2::text::inet and a.owner <> $3",
                    subnet,
                    wished.to_string(),
                    wish.owner.get()
                );
                if let Some(name) = holder.fetch_optional(&mut *tx).await? {
                    return Ok(Addressed::HeldBy(name));
                }
                wished.to_string()
            }
            None => {
                // The lowest free address follows the network address, or something that is taken.
                let free = sqlx::query_scalar!(
                    r#"with net as (
                         select c.cidr, o.spec->>'gateway' as gateway from subnet_cidr c
                         join object o on o.uid = c.subnet where c.subnet = $1),
                       taken as (
                         select inetrange(address, address, '[]') as span from address where subnet = $1
                         union all select span from ip_range where subnet = $1
                         union all select inetrange(gateway::inet, gateway::inet, '[]') from net where gateway is not null),
                       candidate as (
                         select host(network(cidr))::inet + 1 as a from net
                         union select upper(span) + 1 from taken)
                       select host(min(a)) from candidate, net
                       where a << cidr and (family(cidr) = 6 or a < host(broadcast(cidr))::inet)
                         and not exists (select from taken where span @> a)"#,
                    subnet
                );
                match free.fetch_one(&mut *tx).await? {
                    Some(free) => free,
                    None => return Ok(Addressed::Exhausted),
                }
            }
        };
        let upsert = sqlx::query!(
            "insert into address (subnet, address, owner, purpose, mac, hostname)
             values ($1, $2::text::inet, $3, $4, $5::text::macaddr, $6)
             on conflict (owner, subnet, purpose) do update
             set address = excluded.address, mac = excluded.mac, hostname = excluded.hostname",
            subnet,
            chosen,
            wish.owner.get(),
            wish.purpose,
            wish.mac,
            wish.hostname
        );
        upsert.execute(&mut *tx).await?;
        self.commit(tx).await?;
        Ok(Addressed::Owned(address(&chosen)?))
    }

    /// Gives back every address of an owner but those for the purposes in `keep`.
    ///
    /// # Errors
    /// The database.
    pub async fn release_addresses(&self, owner: Uid, keep: &[String]) -> Result<(), StoreError> {
        let delete =
            sqlx::query!("delete from address where owner = $1 and purpose <> all($2)", owner.get(), keep);
        delete.execute(self.pool()).await?;
        self.touched();
        Ok(())
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
                    address: address(&r.address)?,
                    owner: Uid::from(r.owner),
                    purpose: r.purpose,
                    mac: r.mac,
                    hostname: r.hostname,
                })
            })
            .collect()
    }
}
