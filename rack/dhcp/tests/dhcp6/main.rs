//! The behaviour of the DHCPv6 core, seen from the wire.

mod allocation;
mod boot;
mod flood;
mod hostile;
mod learned;
mod messages;
mod properties;
mod relays;
mod support;
