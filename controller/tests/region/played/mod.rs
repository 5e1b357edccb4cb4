//! Real drivers over a real PostgreSQL, with played racks and the engine's model machines, in a time that the test moves.
//!
//! Nothing of the region is replaced: its store, its queue, its handlers and its planner run as they do in production. Played
//! are the racks' ends of the streams, and the hardware, which is the one that the engine's own tests use. A driver dies by
//! having its future dropped; it can be at any await.

mod awaits;
mod budget;
mod clock;
mod decisions;
mod families;
mod faults;
mod histories;
mod locked;
mod mishaps;
mod patience;
mod poison;
mod rack;
mod restored;
mod seats;
mod sound;
mod statements;
mod topology;
mod wishes;
mod world;

#[path = "../../../engine/tests/engine/world/hardware.rs"]
#[allow(dead_code, reason = "the engine's tests use more of it")]
mod hardware;
