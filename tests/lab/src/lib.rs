//! Emulated machines with BMCs in a network namespace.
