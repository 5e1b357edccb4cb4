//! histories
