//! The rack controller.

fn main() {}
