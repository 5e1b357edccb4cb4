//! The region's store: the only crate that knows SQL.
