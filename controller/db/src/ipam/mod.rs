//! Addresses: their owners, free addresses, and the usage of subnets.
//!
//! The database's constraints refuse every invalid state (docs/decisions/040-ipam.md). This module chooses addresses, and its errors
//! name the obstacle. Every writer of a subnet's addresses or ranges first locks the subnet's row in `subnet_cidr`. So the gaps
//! change one after another, and the next free address is still free when it is taken.
//!
//! | module | is |
//! | --- | --- |
//! | `own` | addresses of deployments' interfaces, for the driver |
//! | `interface` | static addresses that Deployments and Machines declare for interfaces |
//! | `machine` | addresses that Machines declare: no two Machines have the same one |
//! | `declared` | addresses that clients declare: IpAddress, and a Subnet's gateway |
//! | `device` | addresses of Devices |
//! | `range` | IpRange |
//! | `fit` | the obstacles to an address |
//! | `before` | values in an earlier version's database that would be refused |
//! | `block`, `divide` | the division of dynamic ranges between racks |
//! | `listing` | the owners of addresses, from every source |
//! | `usage` | the usage of subnets and ranges |

pub(crate) mod before;
pub(crate) mod block;
pub(crate) mod declared;
pub(crate) mod device;
mod divide;
mod fit;
pub(crate) mod interface;
mod listing;
mod machine;
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

/// The class of a declared address, and below it the class of a gateway.
const STATIC: &str = "static";
const GATEWAY: &str = "gateway";

/// Locks the addresses of these subnets until the end of the transaction.
pub(crate) async fn lock(tx: &mut Tx, subnets: &[Uuid]) -> Result<(), StoreError> {
    let lock = sqlx::query!(
        "select 1 as one from subnet_cidr where subnet = any($1) order by subnet for update",
        subnets
    );
    lock.fetch_all(&mut **tx).await?;
    Ok(())
}

/// The lowest free addresses of a locked subnet, at most `wanted`, without the racks' own. None if the subnet is not managed.
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
