//! The store on a real PostgreSQL.

mod audit;
mod common;
mod follower;
mod ipam;
mod objects;
mod rotate;
mod work;
