//! basalt: the operator's command.

fn main() {}
