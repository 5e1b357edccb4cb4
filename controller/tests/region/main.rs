//! The region's API over real HTTP, on a real PostgreSQL; each test has a database of its own.

mod access;
mod accounts;
mod addresses;
mod allocation;
mod apply;
mod audit;
mod backup;
mod blobs;
mod examples;
mod hostile;
mod images;
mod inventory;
mod kinds;
mod layers;
mod leaving;
mod metrics;
mod objects;
mod patch;
mod process;
mod receiver;
mod rotate;
mod support;
mod tags;
mod traces;
mod watch;
mod webhooks;
