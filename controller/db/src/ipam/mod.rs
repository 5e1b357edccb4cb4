//! Addresses: who has which, which are free, how full a subnet is.
//!
//! The database refuses whatever would be wrong (docs/decisions/040-ipam.md); this module chooses addresses and says in words
//! what stands against one. Everybody who changes a subnet's addresses or ranges first locks its row in `subnet_cidr`: the
//! gaps change one after another, and the next free address is still free when it is taken.
//!
//! | module | is |
//! | --- | --- |
//! | `own` | addresses of deployments' interfaces, for the driver |
//! | `interface` | static addresses that Deployments and Machines declare for interfaces |
//! | `declared` | those that clients declare: IpAddress, and a Subnet's gateway |
//! | `device` | those of Devices |
//! | `range` | IpRange |
//! | `fit` | what stands against an address |
//! | `before` | what a database of an earlier version holds that would be refused |
//! | `block`, `divide` | which rack leases which part of a dynamic range |
//! | `listing` | who has which address, from every source |
//! | `usage` | how full subnets and ranges are |

pub(crate) mod before;
pub(crate) mod block;
pub(crate) mod declared;
pub(crate) mod device;
mod divide;
mod fit;
pub(crate) mod interface;
mod listing;
mod own;
pub(crate) mod range;
mod usage;

pub use block::{Block, Delegation, ServedSubnet};
pub use listing::{AddressPosition, AddressQuery, TakenAddress, TakenPage};
pub use own::{Address, AddressWish, Addressed};
pub use usage::{BlockUse, RangeUse, SubnetUse};

use crate::StoreError;
use crate::store::Tx;
use basalt_api::values::Duid;
use std::net::IpAddr;
use uuid::Uuid;

/// What the region's addresses of a subnet are owned as.
const STATIC: &str = "static";
const GATEWAY: &str = "gateway";

/// From here to the end of the transaction nobody else changes the addresses of these subnets.
pub(crate) async fn lock(tx: &mut Tx, subnets: &[Uuid]) -> Result<(), StoreError> {
    let lock = sqlx::query!(
        "select 1 as one from subnet_cidr where subnet = any($1) order by subnet for update",
        subnets
    );
    lock.fetch_all(&mut **tx).await?;
    Ok(())
}

/// The lowest free addresses of a locked subnet, at most `wanted`; none of one that is not managed, and no rack's own.
async fn next_free(tx: &mut Tx, subnet: Uuid, wanted: usize) -> Result<Vec<String>, StoreError> {
    let wanted = i32::try_from(wanted).unwrap_or(i32::MAX / 2);
    let free = sqlx::query_scalar!(
        r#"select host(a) as "address!"
           from object o, next_free(o.uid, $2 + (select count(*) from rack_address)::int) a
           where o.uid = $1 and coalesce((o.spec->>'managed')::boolean, true)
             and not exists (select from rack_address r where r.address = a)
           limit $2"#,
        subnet,
        wanted
    );
    Ok(free.fetch_all(&mut **tx).await?)
}

pub(crate) fn parse(text: &str) -> Result<IpAddr, StoreError> {
    text.parse().map_err(|_| StoreError::Corrupt(format!("the address {text:?}")))
}

fn duid(bytes: &[u8]) -> Result<Duid, StoreError> {
    Duid::new(bytes).map_err(|error| StoreError::Corrupt(error.message))
}
