//! End-to-end tests: a browser, and a site with simulated machines.

pub mod browser;
pub mod fleet;

/// True under `make soak`, which sets `BASALT_SOAK`: tests that are long by nature run at their full length.
#[must_use]
pub fn soaks() -> bool {
    std::env::var_os("BASALT_SOAK").is_some()
}
