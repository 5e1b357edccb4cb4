//! The rack controller: the daemon, and the services that it gives machines.
//!
//! | module | is |
//! | --- | --- |
//! | [`daemon`], [`settings`], [`check`] | the parts of a rack, started and kept running; its settings; `basalt-rack check` |
//! | [`link`], [`identity`], [`forget`] | the links to regions, the rack's key, the end of a deleted rack |
//! | [`concern`] | the desired state from regions, accepted and stored |
//! | [`spool`], [`facts`], `gate` | facts for regions: stored, named, limited |
//! | [`dhcp`], [`dhcp6`], [`lease_file`], `lease_log` | DHCPv4 and DHCPv6, and their lease files |
//! | [`router_advertisement`] | the announcement that there is no IPv6 router |
//! | [`boot`], [`loaders`], [`script`], [`config`] | what a machine boots, with which loader, by which script |
//! | [`tftp`], [`http`], [`blobs`] | servers of loaders, scripts and images; the cache of images |
//! | [`token`], [`attempts`], [`presence`] | the secrets of machines, the register of attempts, the addresses of MACs |
//! | [`power`], [`certificates`], [`epochs`] | the arbiter of BMCs; their certificates; protection against late commands |
//! | [`dns`], [`ntp`], [`proxy`], [`logs`] | names, time, the caching proxy, syslog |
//! | [`strangers`] | undeclared machines |
//! | [`trace`], [`health`], [`meters`], [`log_limit`] | boot requests for people, the state of services, counters, limits of the log |
//! | [`clock`], [`disk`], `room`, [`durable`], [`journal`] | time, and files on a disk that may be full |
//! | [`interfaces`], [`neighbours`], [`holder`] | this host's interfaces, its ARP table, and the processes that hold its ports |
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
