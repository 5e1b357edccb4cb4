//! The DNS core, seen from the wire. Replies are read by hickory-proto, which does not share the code that wrote them.

mod aliases;
mod computed;
mod delegations;
mod foreign;
mod forwarder;
mod lookup;
mod messages;
mod model;
mod noise;
mod responses;
mod secondaries;
mod sizes;
mod support;
mod wildcards;
mod zone_files;
