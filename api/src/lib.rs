//! Basalt's kinds, their one description, validation, plans, and the wire types shared by every part.

pub mod agent;
