//! Traits that connect Rust types with descriptions. `#[derive(Model)]` implements them.

use crate::schema::{Field, MAX_INT, Schema, Semantic, Type};
use crate::values::Name;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;

/// A struct with a description.
pub trait Model: Serialize + DeserializeOwned {
    /// The schema of the struct.
    const SCHEMA: &'static Schema;
}

/// A type that a field can have.
pub trait Described {
    /// The type's form in the description.
    const TYPE: Type;
}

/// A kind, as a type: `Ref<Zone>`, `Typed<Machine>`.
pub trait KindOf: 'static {
    /// Name of the kind.
    const NAME: &'static str;
    /// Its entry in [`crate::KINDS`].
    const KIND: &'static crate::Kind;
    /// The fields that clients declare.
    type Spec: Model;
    /// The fields that the region reports.
    type Status: Model + Default;
}

/// The name of an object of kind `K`.
pub struct Ref<K> {
    name: Name,
    kind: PhantomData<fn() -> K>,
}

impl<K> Ref<K> {
    /// A reference to the object with this name.
    #[must_use]
    pub const fn new(name: Name) -> Self {
        Self { name, kind: PhantomData }
    }

    /// Name of the object.
    #[must_use]
    pub const fn name(&self) -> &Name {
        &self.name
    }

    /// The name's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.name.as_str()
    }
}

impl<K> std::str::FromStr for Ref<K> {
    type Err = crate::BadValue;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self::new)
    }
}

impl<K> From<Name> for Ref<K> {
    fn from(name: Name) -> Self {
        Self::new(name)
    }
}

impl<K> Clone for Ref<K> {
    fn clone(&self) -> Self {
        Self::new(self.name.clone())
    }
}

impl<K> PartialEq for Ref<K> {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl<K> Eq for Ref<K> {}

impl<K> PartialOrd for Ref<K> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<K> Ord for Ref<K> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.name.cmp(&other.name)
    }
}

impl<K> fmt::Debug for Ref<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl<K> fmt::Display for Ref<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.name, f)
    }
}

impl<K> Serialize for Ref<K> {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.name.serialize(to)
    }
}

impl<'de, K> Deserialize<'de> for Ref<K> {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Name::deserialize(from).map(Self::new)
    }
}

impl<K: KindOf> Described for Ref<K> {
    const TYPE: Type = Type::Ref(K::NAME);
}

impl<T: Described> Described for Option<T> {
    const TYPE: Type = T::TYPE;
}

impl<T: Described> Described for Vec<T> {
    const TYPE: Type = Type::List(&T::TYPE);
}

impl<T: Described> Described for BTreeSet<T> {
    const TYPE: Type = Type::Set(&T::TYPE);
}

impl<K: Described, V: Described> Described for BTreeMap<K, V> {
    const TYPE: Type = Type::Map { key: &K::TYPE, value: &V::TYPE };
}

macro_rules! described {
    ($($ty:ty => $value:expr),* $(,)?) => {$(
        impl Described for $ty {
            const TYPE: Type = $value;
        }
    )*};
}

described! {
    bool => Type::Bool,
    u8 => Type::Int { min: 0, max: 255 },
    u16 => Type::Int { min: 0, max: 65_535 },
    u32 => Type::Int { min: 0, max: 4_294_967_295 },
    u64 => Type::Int { min: 0, max: MAX_INT },
    i64 => Type::Int { min: -MAX_INT, max: MAX_INT },
    String => Type::String,
    std::net::IpAddr => Type::Semantic(Semantic::Ip),
    jiff::Timestamp => Type::Semantic(Semantic::Timestamp),
    serde_json::Map<String, serde_json::Value> => Type::Json,
}

/// Support for the output of the derive macro. Not for other code.
#[doc(hidden)]
pub mod private {
    use super::Field;
    use crate::schema::{Const, Effect, Presence, Schema, Stability, Type};
    use crate::values::{BadValue, ByteSize, Duration};
    use serde::Deserialize;
    use std::str::FromStr;

    pub use crate::openapi::shape::{Component, Shape, members, one_of, reference};
    pub use serde;
    pub use serde_json::Value;

    /// The fields of a flattened struct, then the struct's own fields.
    #[must_use]
    #[allow(clippy::indexing_slicing, reason = "runs at compile time")]
    pub const fn join<const N: usize>(base: &[Field], own: &[Field]) -> [Field; N] {
        let mut all = [BLANK; N];
        let mut at = 0;
        while at < N {
            all[at] = if at < base.len() { base[at] } else { own[at - base.len()] };
            at += 1;
        }
        all
    }

    const BLANK: Field = Field {
        name: "",
        doc: "",
        ty: Type::Object(&Schema { name: "", doc: "", fields: &[] }),
        presence: Presence::Default(Const::Empty),
        effect: Effect::None,
        immutable: false,
        sensitive: false,
        destination: None,
        stability: Stability::Stable,
        dormant: &[],
    };

    /// Parses the text of a `default = "…"`. A test parses every default, so the fallback value is never used.
    pub trait FromDefault: Sized {
        /// The value of this text.
        fn from_default(text: &'static str) -> Self;
    }

    impl FromDefault for String {
        fn from_default(text: &'static str) -> Self {
            text.to_owned()
        }
    }

    impl FromDefault for Duration {
        fn from_default(text: &'static str) -> Self {
            text.parse().unwrap_or_default()
        }
    }

    impl FromDefault for crate::values::Schedule {
        fn from_default(text: &'static str) -> Self {
            text.parse().unwrap_or_else(|_| Self::every(Duration::from_secs(3600)))
        }
    }

    impl FromDefault for ByteSize {
        fn from_default(text: &'static str) -> Self {
            text.parse().unwrap_or_default()
        }
    }

    /// Deserializes a text value; the error names a valid form.
    ///
    /// # Errors
    /// The value is not a text, or does not have this form.
    pub fn from_text<'de, D, T>(from: D) -> Result<T, D::Error>
    where
        D: serde::Deserializer<'de>,
        T: FromStr<Err = BadValue>,
    {
        use serde::de::Error;
        let text = String::deserialize(from)?;
        text.parse().map_err(|bad: BadValue| D::Error::custom(format!("{bad}; {}", bad.hint)))
    }
}
