//! The rack controller.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]
pub mod attempts;
pub mod blobs;
pub mod boot;
pub mod certificates;
pub mod check;
pub mod clock;
pub mod concern;
pub mod config;
pub mod daemon;
pub mod dhcp;
pub mod dhcp6;
pub mod disk;
pub mod dns;
pub mod durable;
pub mod epochs;
pub mod facts;
pub mod forget;
mod gate;
pub mod hash;
pub mod health;
pub mod holder;
pub mod http;
pub mod identity;
pub mod interfaces;
pub mod journal;
pub mod kill;
pub mod lease_file;
mod lease_log;
pub mod link;
pub mod loaders;
pub mod log_limit;
pub mod logs;
pub mod meters;
pub mod neighbours;
pub mod ntp;
pub mod power;
pub mod presence;
pub mod proxy;
mod room;
pub mod router_advertisement;
pub mod script;
pub mod settings;
pub mod spool;
pub mod strangers;
pub mod tftp;
pub mod token;
pub mod trace;
