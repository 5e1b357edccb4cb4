//! The program that runs on a machine in its ephemeral environment.

fn main() {}
