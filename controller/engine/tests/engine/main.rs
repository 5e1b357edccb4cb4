//! Lives of machines, driven through a model of the world.

mod deadlines;
mod histories;
mod situations;
mod stories;
mod world;
