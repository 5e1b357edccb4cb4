//! End-to-end tests.

/// Whether tests that are long by nature run at their full length: under `make soak`, which sets `BASALT_SOAK`.
#[must_use]
pub fn soaks() -> bool {
    std::env::var_os("BASALT_SOAK").is_some()
}
