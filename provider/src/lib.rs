//! Terraform provider for Basalt: a resource, a list resource and data sources for every kind.
//!
//! Except for [`tags`], resources have no code of their own. [`map`] turns the description of a kind (`basalt_api::Kind`) into a Terraform
//! schema, a state into a spec and an object into a state. [`resource`] creates, reads, updates and deletes objects of any kind. A new kind
//! in `basalt-api` becomes a resource without any code here.
//!
//! | Terraform | Basalt |
//! | --- | --- |
//! | configure | `GET whoami` and `version`: one report of an absent region, another version, or an unknown token ([`greeting`]) |
//! | create | `PUT`, `If-None-Match: *`: never takes an object of another tool |
//! | update | `PUT`, `If-Match`: only if the object is still the planned one; another name is a rename |
//! | delete | `DELETE`, then a wait until the object is gone |
//! | plan | `PUT ?dry_run=true`, if a value differs: advisories become warnings |
//! | refresh | `GET` of one, a list for many ([`snapshot`]) |
//! | find by a field | a list, shared by simultaneous searches ([`listing`]) |
//! | query | a list, page by page ([`list`]) |
//! | action | an operation of a machine, waited for ([`action`]) |
//! | `moved` from types of MAAS | values of the old state find the object ([`maas`]) |
//! | state | the declared spec, `uid`, and the stable part of the status |
//!
//! The region does the long work. The provider waits for it, and an interrupted wait continues in the next apply.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod action;
mod activity;
mod bounded;
mod config;
mod data_source;
mod filter;
mod fresh;
mod functions;
mod greeting;
mod list;
mod listing;
mod maas;
mod map;
mod memory;
mod natural;
mod pages;
mod patience;
mod provider;
mod refusal;
mod region;
mod resource;
mod results;
mod run;
mod snapshot;
mod tags;
mod token;
mod wait;

pub use provider::{ADDRESS, provider};

/// The provider's name as a manager: `metadata.manager` of the objects that it creates.
pub const MANAGER: &str = "terraform";
