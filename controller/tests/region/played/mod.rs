//! Real drivers over a real PostgreSQL, with a played rack and the engine's model machines, in a time that the test moves.
//!
//! Nothing of the region is replaced: its store, its queue, its handlers and its planner run as they do in production. Played
//! are the rack's end of the stream, and the hardware, which is the one that the engine's own tests use. A driver dies by
//! having its future dropped; it can be at any await.

mod budget;
mod decisions;
mod faults;
mod histories;
mod poison;
mod rack;
mod world;

#[path = "../../../engine/tests/engine/world/hardware.rs"]
#[allow(dead_code, reason = "the engine's tests use more of it")]
mod hardware;
