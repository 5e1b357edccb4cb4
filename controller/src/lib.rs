//! The region controller: it stores what is declared, and makes the data centre match it.
//!
//! | module | is |
//! | --- | --- |
//! | [`settings`] | every setting: flag, environment variable, TOML key |
//! | [`data_dir`] | the files of the data directory: lock, seal key, admin token |
//! | [`region`] | a running region: PostgreSQL, store, follower, servers; started and drained |
//! | [`controller`] | the racks' port and the driver, beside it |
//! | [`api`] | the REST API, generic over kinds; the table of endpoints and roles |
//! | [`backup`] | backup, restore, recover |
//! | [`rotate`], [`seal_file`] | replacement of the seal key, and the file with the key |
//! | [`blobs`] | the bytes of images |
//! | [`driver`] | the engine's driver, and its interface for the API |
//! | [`logs`] | the logs of machines, and their receivers |
//! | `openid` | logins by OpenID Connect |
//! | [`built_in`], [`admin_token`] | the Scripts that come with Basalt; the first admin's token |
//! | [`proxy`] | the caching proxy of this process, for its racks |
//! | [`racks`] | enrolment of racks and the link with them |
//! | [`registry`] | the Terraform provider, for Terraform to install |
//! | [`telemetry`] | traces, from the request to the rack |
//! | [`webhooks`] | posts events to webhooks |
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod admin_token;
pub mod api;
pub mod backup;
pub mod blobs;
pub mod built_in;
pub mod controller;
pub mod data_dir;
pub mod driver;
pub mod logs;
mod openid;
pub mod proxy;
pub mod racks;
pub mod region;
pub mod registry;
pub mod rotate;
pub mod seal_file;
pub mod settings;
pub mod telemetry;
mod tls;
pub mod webhooks;
