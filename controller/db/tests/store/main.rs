//! The store on a real PostgreSQL.

mod audit;
mod blocks;
mod bmc;
mod common;
mod common_concern;
mod dice;
mod disks;
mod entry;
mod follower;
mod hangup;
mod ipam;
mod objects;
mod old;
mod rotate;
mod shared_leases;
mod stranger;
mod topology;
mod wake;
mod work;
mod zone;
