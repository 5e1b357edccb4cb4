//! Lives of machines, driven through a model of the world.

mod announced;
mod choosing;
mod deadlines;
mod first_boot;
mod first_boot_runner;
mod histories;
mod operations;
mod ownership;
mod rendering;
mod situations;
mod stories;
mod task_scripts;
mod world;
