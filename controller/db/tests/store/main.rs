//! The store on a real PostgreSQL.

mod audit;
mod common;
mod follower;
mod objects;
mod work;
