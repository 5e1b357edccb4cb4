//! The caching HTTP proxy: Squid as a supervised child. Racks and regions use the same code.
//!
//! | module | content |
//! | --- | --- |
//! | [`squid_conf`] | the configuration, a pure function of [`Wanted`] |
//! | [`squid`] | the child process |
//! | [`keeper`] | keeps Squid running with the configuration that is wanted |
//! | [`figures`] | figures of its requests, from its log |
//! | [`relay`] | copies bytes between two connections, for the way from a rack to its region |
//!
//! Squid is optional: if its package is missing, [`State`] names the package, and nothing else is affected.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod figures;
pub mod keeper;
pub mod relay;
mod restarts;
pub mod squid;
pub mod squid_conf;

pub use figures::{Figures, RESULTS};
pub use keeper::{Counts, Keeper, Options, STATES, State};
pub use relay::relay;
pub use squid_conf::{CONNECTIONS_OF_ONE, Parent, Wanted};

/// The files and directories that Squid and its keeper make in the proxy's directory.
pub const FILES: [&str; 7] =
    ["cache", "access.log", "access.log.old", "cache.log", "cache.log.old", "squid.conf", "squid.conf.new"];
