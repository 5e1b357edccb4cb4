//! Real drivers over a real PostgreSQL, with model racks and the engine's model machines. The test moves the time.
//!
//! No part of the region is replaced: its store, queue, handlers and planner run as in production. The racks' ends of the streams
//! are models, and so is the hardware, which is that of the engine's own tests. A driver dies when its future is dropped, which may
//! be at any await.

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
