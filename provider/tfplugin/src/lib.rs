//! Terraform plugin protocol 6 for Rust.
