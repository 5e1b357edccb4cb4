//! A value that may be null or unknown.

use std::ops::Deref;

use super::{Nested, Typed};
use crate::diag::Diags;
use crate::path::Path;
use crate::same::Semantics;
use crate::schema::Nesting;
use crate::types::Type;
use crate::value::Val;

/// A value that may be null, or known only after the apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tf<T> {
    /// A known value.
    Known(T),
    /// No value: null.
    #[default]
    Null,
    /// A value that is not known yet.
    Unknown,
}

impl<T> Tf<T> {
    /// The value, if it is known and not null.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Null | Self::Unknown => None,
        }
    }

    /// The value, if it is known and not null.
    pub fn into_known(self) -> Option<T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Null | Self::Unknown => None,
        }
    }

    /// The value's [`Deref`] target, such as the `str` of a `String`, if it is known and not null.
    pub fn as_deref(&self) -> Option<&T::Target>
    where
        T: Deref,
    {
        self.known().map(Deref::deref)
    }

    /// True if the value is null.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// True if the value is not known yet.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown)
    }
}

impl<T> From<T> for Tf<T> {
    fn from(value: T) -> Self {
        Self::Known(value)
    }
}

impl<T> From<Option<T>> for Tf<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Self::Known)
    }
}

impl<T: Typed> Typed for Tf<T> {
    const IS_SPELLED: bool = T::IS_SPELLED;
    const SAYS_MORE: bool = T::SAYS_MORE;
    const NULLABLE: bool = {
        assert!(!T::NULLABLE, "an Option or a Tf has no other one in it");
        true
    };
    fn of() -> Type {
        T::of()
    }
    fn semantics() -> Semantics {
        T::semantics()
    }
    fn read(val: &Val, at: &Path) -> Result<Self, Diags> {
        match val {
            Val::Null => Ok(Self::Null),
            Val::Unknown => Ok(Self::Unknown),
            // Unknown elements may turn out to be equal to others, so the whole set is unknown.
            some if T::IS_SET && !some.is_wholly_known() => {
                Ok(T::read(some, at).map_or(Self::Unknown, Self::Known))
            }
            there => T::read(there, at).map(Self::Known),
        }
    }
    fn write(&self) -> Val {
        match self {
            Self::Known(value) => value.write(),
            Self::Null => Val::Null,
            Self::Unknown => Val::Unknown,
        }
    }
}

impl<T: Typed> Typed for Option<T> {
    const IS_SPELLED: bool = T::IS_SPELLED;
    const SAYS_MORE: bool = T::SAYS_MORE;
    const NULLABLE: bool = {
        assert!(!T::NULLABLE, "an Option or a Tf has no other one in it");
        true
    };
    fn of() -> Type {
        T::of()
    }
    fn semantics() -> Semantics {
        T::semantics()
    }
    fn read(val: &Val, at: &Path) -> Result<Self, Diags> {
        match val {
            Val::Null => Ok(None),
            there => T::read(there, at).map(Some),
        }
    }
    fn write(&self) -> Val {
        self.as_ref().map_or(Val::Null, T::write)
    }
}

impl<T: Nested> Nested for Tf<T> {
    type Of = T::Of;
    const NESTING: Nesting = T::NESTING;
}

impl<T: Nested> Nested for Option<T> {
    type Of = T::Of;
    const NESTING: Nesting = T::NESTING;
}
