//! Simulated machines against a real rack, and against programs that share no code with us.

mod deployments;
mod foreign;
mod support;
