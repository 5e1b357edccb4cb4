//! The store on a real PostgreSQL.

mod common;
mod follower;
mod objects;
mod work;
