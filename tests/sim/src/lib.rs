//! Simulated machines from the same sans-IO cores.
