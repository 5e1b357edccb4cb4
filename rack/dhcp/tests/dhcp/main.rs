//! The behaviour of the DHCP cores, seen from the wire.
#![expect(clippy::print_stdout, reason = "what happened is read by people")]

mod allocation;
mod boot;
mod client;
mod elsewhere;
mod flood;
mod hostile;
mod layout;
mod messages;
mod networks;
mod probing;
mod properties;
mod proxy;
mod racks;
mod support;
