//! situations
