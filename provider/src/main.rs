//! Terraform provider for Basalt.

fn main() {}
