//! Region, rack and simulated machines together: whole lives, every kill point and every fault, in seconds
//! each.
#![expect(clippy::print_stdout, reason = "what was said is read by people")]

mod alone;
mod announced;
mod bad_luck;
mod console;
mod foretold;
mod interrupted;
mod kills;
mod lives;
mod networks;
mod racks;
mod restore;
mod secrets;
mod store;
mod strangers;
mod terraform;
mod webhook;
