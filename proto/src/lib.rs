//! The region-rack protocol: gRPC messages and services.
//!
//! `basalt/rack/v1/*.proto` is the source. The generated code is checked in, so that building Basalt needs no
//! generator; `tests/generated.rs` makes it again and fails when it differs (`UPDATE_GENERATED=1` writes it).

/// Version 1 of the protocol between a region and its racks.
#[allow(missing_docs, clippy::all, unreachable_pub, unused_qualifications)]
pub mod rack_v1 {
    include!("gen/basalt.rack.v1.rs");
}

/// What the health of a subnet's addresses is told under: this, and the subnet's CIDR.
pub const ADDRESSES: &str = "addresses ";

/// A rack that starts tells the health of this before any other: what it told before it says again, or it is so no more.
pub const STARTED: &str = "start";

/// What is told of the disk that a rack keeps its files on is told under this.
pub const DISK: &str = "disk";

/// The health of a link to a region process is told under this, and the address of the region ([`region::address`]).
pub const LINK: &str = "link ";

/// Before an address, the service that answers DNS there.
pub const DNS: &str = "dns ";
/// Before an address and a port, the service that takes syslog there.
pub const SYSLOG: &str = "syslog ";
/// The state of a secondary of a zone is told under this, the zone, a space and the secondary's name. No words: it is declared no more.
pub const SECONDARY: &str = "secondary ";
/// The rack's caching proxy. No words: Settings have switched it off.
pub const PROXY: &str = "proxy";
/// The state of an NTP server is told under this, and the server's name. No words: the server is asked no more.
pub const TIME: &str = "time ";

/// The largest message that a rack sends to a region, in bytes: a fact of 4 MiB in a batch of 1 MiB, with room.
pub const MAX_FROM_RACK: usize = 8 << 20;

pub mod budget;
pub mod kill;
pub mod local;
pub mod open_files;
pub mod places;
pub mod region;

/// The trace that a W3C `traceparent` names; empty where it names none.
#[must_use]
pub fn trace_id(traceparent: &str) -> &str {
    traceparent.split('-').nth(1).unwrap_or_default()
}

/// The DNS name in every region's RPC certificate (a SAN), which racks check instead of an address: regions are
/// interchangeable, and a rack's certificate, of the same CA, does not have it. A region presents its certificate and the
/// CA's, so that a rack which enrols finds the CA whose fingerprint its join token names.
pub const REGION_SERVER_NAME: &str = "region.basalt.internal";
