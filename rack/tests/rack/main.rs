//! The whole rack on loopback: booting a machine without a region, and the link to one; and in network namespaces, with other
//! people's clients.

mod link;
mod loopback;
mod namespace;
mod peers;
mod router_advertisement;
mod support;
