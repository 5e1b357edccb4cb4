//! The region controller.

fn main() {}
