//! The whole rack: on loopback, booting a machine without a region, and linked to one; and in network namespaces, with
//! other projects' clients.
#![expect(clippy::print_stdout, reason = "what happened is read by people")]

mod addresses;
mod agent6;
mod attacks;
mod beside;
mod cache;
mod clocks;
mod deleted;
mod disk;
mod dnf;
mod dnsmasq;
mod enlistment;
mod firmware;
mod firmware6;
mod forward;
mod guest;
mod http;
mod journal;
mod link;
mod logs;
mod loopback;
mod names;
mod namespace;
mod netem;
mod ntp;
mod own_ports;
mod packages;
mod peers;
mod peers6;
mod perfdhcp;
mod port;
mod proxy;
mod redfish;
mod router_advertisement;
mod secondaries;
mod secure_boot;
mod shared_leases;
mod storm;
mod strangers;
mod support;
mod tftp;
mod two_ways;
mod vlans;
