//! The whole rack on loopback: booting a machine without a region, and the link to one.

mod link;
mod loopback;
mod router_advertisement;
mod support;
