//! The fields of a status that Terraform gets. A state has stable fields alone: any value that changes by itself would be drift. Data
//! sources also have facts, which change.

use basalt_api::{Field, Kind, Stability, Type};

/// Ends the description of a status with facts.
pub(super) const MOVES: &str =
    "Some of it changes by itself: an output of that, and whatever is made of it, makes plans differ.";

/// Facts of declarable kinds, beside the stable fields of their status.
const ALSO: &[(&str, &[&str])] = &[("Machine", &["phase", "power", "addresses", "tags"])];

/// A choice of status fields.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Facts {
    /// Stable fields only.
    Stable,
    /// Stable fields, and these.
    Also(&'static [&'static str]),
    /// All fields.
    All,
}

impl Facts {
    /// The fields of an object that a data source reads. A kind that cannot be declared has all its fields in the status.
    pub(super) fn of_found(kind: &Kind) -> Self {
        match ALSO.iter().find(|(name, _)| *name == kind.name) {
            _ if !kind.declarable => Self::All,
            Some((_, names)) => Self::Also(names),
            None => Self::Stable,
        }
    }

    /// True if the field is part of the choice.
    pub(super) fn has(self, field: &Field) -> bool {
        let is_told = match self {
            Self::Stable => false,
            Self::Also(names) => names.contains(&field.name),
            Self::All => true,
        };
        // A field of any JSON has no Terraform type.
        (is_told || field.stability == Stability::Stable) && !matches!(field.ty, Type::Json)
    }

    /// The choice for the fields inside a chosen field.
    pub(super) fn within(self, field: &Field) -> Self {
        match self {
            Self::Also(names) if names.contains(&field.name) => Self::All,
            Self::Also(_) => Self::Stable,
            one => one,
        }
    }
}
