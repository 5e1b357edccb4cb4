//! The region-rack protocol: gRPC messages and services.
//!
//! `basalt/rack/v1/*.proto` is the source. The generated code is checked in, so that building Basalt needs no
//! generator; `tests/generated.rs` makes it again and fails when it differs (`UPDATE_GENERATED=1` writes it).

/// Version 1 of the protocol between a region and its racks.
#[allow(missing_docs, clippy::all, unreachable_pub, unused_qualifications)]
pub mod rack_v1 {
    include!("gen/basalt.rack.v1.rs");
}

/// Prefix of the name under which the health of a subnet's addresses is reported. The subnet's CIDR follows.
pub const ADDRESSES: &str = "addresses ";

/// The name of the first health report of a rack that starts. The rack repeats all earlier reports that still hold; the
/// others are over.
pub const STARTED: &str = "start";

/// The name under which a rack reports the state of its disk.
pub const DISK: &str = "disk";

/// The name of the [`ServiceHealth`](rack_v1::ServiceHealth) about undeclared machines that a rack does not inspect, because their VLAN has
/// too many of them.
pub const ENLISTMENT: &str = "enlistment";

/// Prefix of the name under which the health of a link to a region process is reported. The region's address follows
/// ([`region::address`]).
pub const LINK: &str = "link ";

/// Prefix of the name of a DNS service. Its address follows.
pub const DNS: &str = "dns ";
/// Prefix of the name of a syslog service. Its address and port follow.
pub const SYSLOG: &str = "syslog ";
/// Prefix of the name under which the state of a secondary of a zone is reported. The zone, a space and the secondary's
/// name follow. An empty message: the secondary is no longer declared.
pub const SECONDARY: &str = "secondary ";
/// The number of files that a [`CacheFact`](rack_v1::CacheFact) names at most.
pub const CACHE_NAMES: usize = 256;
/// The name of the rack's caching proxy. An empty message: it is switched off in the Settings.
pub const PROXY: &str = "proxy";
/// The authority that a rack gives to CONNECT on the racks' port (RFC 9113 §8.5) for a connection to the region's caching
/// proxy. A region refuses with a status of its own, and the reason as text.
pub const PROXY_AUTHORITY: &str = "proxy.basalt.internal:8000";
/// The most connections of one rack to the proxy of a region.
pub const TUNNELS: usize = 128;
/// Prefix of the name under which the state of an NTP server is reported. The server's name follows. An empty message:
/// the server is no longer asked.
pub const TIME: &str = "time ";

/// The largest message that a rack sends to a region, in bytes: a fact of 4 MiB in a batch of 1 MiB, with room.
pub const MAX_FROM_RACK: usize = 8 << 20;

pub mod budget;
pub mod delta;
pub mod kill;
pub mod local;
pub mod open_files;
pub mod places;
pub mod region;

/// The trace id in a W3C `traceparent`; empty if it has none.
#[must_use]
pub fn trace_id(traceparent: &str) -> &str {
    traceparent.split('-').nth(1).unwrap_or_default()
}

/// The DNS name in every region's RPC certificate (a SAN). Racks check it instead of an address, because regions are
/// interchangeable. A rack's certificate from the same CA does not have it. A region presents its own certificate and
/// the CA's. So a rack that enrols finds the CA with the fingerprint in its join token.
pub const REGION_SERVER_NAME: &str = "region.basalt.internal";
