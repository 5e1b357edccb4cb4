//! What of a status Terraform is told. A state has what is stable alone: whatever changes by itself would be drift. Data sources tell facts
//! as well, of what is read for them.

use basalt_api::{Field, Kind, Stability, Type};

/// Ends the description of a status with facts.
pub(super) const MOVES: &str =
    "Some of it changes by itself: an output of that, and whatever is made of it, makes plans differ.";

/// Facts of kinds that are declared, beside what is stable of their status.
const ALSO: &[(&str, &[&str])] = &[("Machine", &["phase", "power", "addresses", "tags"])];

/// Which fields of a status are told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Facts {
    /// What does not change by itself.
    Stable,
    /// That, and these.
    Also(&'static [&'static str]),
    /// Everything.
    All,
}

impl Facts {
    /// What is told of an object that was looked up. What nobody declares is known by its status alone.
    pub(super) fn of_found(kind: &Kind) -> Self {
        match ALSO.iter().find(|(name, _)| *name == kind.name) {
            _ if !kind.declarable => Self::All,
            Some((_, names)) => Self::Also(names),
            None => Self::Stable,
        }
    }

    /// Whether a field is told.
    pub(super) fn has(self, field: &Field) -> bool {
        let is_told = match self {
            Self::Stable => false,
            Self::Also(names) => names.contains(&field.name),
            Self::All => true,
        };
        // What may have any shape has no type that Terraform knows.
        (is_told || field.stability == Stability::Stable) && !matches!(field.ty, Type::Json)
    }

    /// What is told of the fields in a field that is.
    pub(super) fn within(self, field: &Field) -> Self {
        match self {
            Self::Also(names) if names.contains(&field.name) => Self::All,
            Self::Also(_) => Self::Stable,
            one => one,
        }
    }
}
