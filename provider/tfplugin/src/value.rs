//! Terraform's values and their types, as a tree that the rest of the crate walks.
//!
//! A [`Val`] needs a [`Type`] to be understood: a list, a set and a tuple are all [`Val::List`], a map and an object are
//! both [`Val::Map`]. A value of [`Type::Dynamic`] contains its own type.

use std::collections::BTreeMap;
use std::fmt;

use crate::number::Num;
use crate::types::Type;

/// Values by name: the content of an object or of a map.
pub type Object = BTreeMap<String, Val>;

/// One value of a configuration, a plan or a state.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Val {
    /// The value is not set.
    #[default]
    Null,
    /// Known only after the apply.
    Unknown,
    /// `true` or `false`.
    Bool(bool),
    /// A number of any size.
    Num(Num),
    /// A text of any length.
    Str(String),
    /// A list, or a set (in no meaningful order).
    List(Vec<Val>),
    /// A map, or an object with all its attributes.
    Map(Object),
    /// A value of any type, with its type: see [`Val::dynamic`].
    Dynamic(Box<Dynamic>),
}

/// A value with its type, where a schema says [`Type::Dynamic`].
#[derive(Clone, Debug, PartialEq)]
pub struct Dynamic {
    /// Type of the value.
    pub of: Type,
    /// The value itself, in the form of `of`.
    pub value: Val,
}

impl Val {
    /// The same value with its type: lists become tuples, and maps become objects.
    #[must_use]
    pub fn dynamic(self) -> Self {
        match self {
            Self::Null | Self::Unknown | Self::Dynamic(_) => self,
            other => {
                let (of, value) = other.typed();
                Self::Dynamic(Box::new(Dynamic { of, value }))
            }
        }
    }

    /// The type that follows from the value, and the value without types of its own.
    fn typed(self) -> (Type, Self) {
        match self {
            Self::Null | Self::Unknown => (Type::Dynamic, self),
            Self::Bool(_) => (Type::Bool, self),
            Self::Num(_) => (Type::Number, self),
            Self::Str(_) => (Type::String, self),
            Self::List(items) => {
                let (types, items) = items.into_iter().map(Self::typed).unzip();
                (Type::Tuple(types), Self::List(items))
            }
            Self::Map(items) => {
                let items = items.into_iter().map(|(name, item)| (name, item.typed()));
                let items = items.map(|(name, (of, item))| ((name.clone(), of), (name, item)));
                let (types, items) = items.unzip();
                (Type::Object(types), Self::Map(items))
            }
            Self::Dynamic(it) => (it.of, it.value),
        }
    }

    /// The value without the type that it contains.
    #[must_use]
    pub fn inner(&self) -> &Self {
        match self {
            Self::Dynamic(it) => &it.value,
            other => other,
        }
    }

    /// True for [`Val::Null`], of any type.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self.inner(), Self::Null)
    }

    /// True for [`Val::Unknown`]. Elements are not examined.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(self.inner(), Self::Unknown)
    }

    /// True if neither the value nor any element is unknown.
    #[must_use]
    pub fn is_wholly_known(&self) -> bool {
        match self.inner() {
            Self::Unknown => false,
            Self::List(items) => items.iter().all(Self::is_wholly_known),
            Self::Map(items) => items.values().all(Self::is_wholly_known),
            _ => true,
        }
    }

    /// The attribute or element with this name; [`Val::Null`] where there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> &Self {
        const NULL: &Val = &Val::Null;
        self.as_map().and_then(|map| map.get(name)).unwrap_or(NULL)
    }

    /// The text, if this is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self.inner() {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    /// The truth value, if this is one.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self.inner() {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The number, if this is one that fits.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        match self.inner() {
            Self::Num(Num::Int(value)) => Some(*value),
            _ => None,
        }
    }

    /// The elements of a list or set.
    #[must_use]
    pub fn as_list(&self) -> Option<&[Self]> {
        match self.inner() {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    /// The content of a map or object.
    #[must_use]
    pub fn as_map(&self) -> Option<&Object> {
        match self.inner() {
            Self::Map(items) => Some(items),
            _ => None,
        }
    }

    /// The content of a map or object, for changes. None for [`Val::Dynamic`].
    #[must_use]
    pub fn as_map_mut(&mut self) -> Option<&mut Object> {
        match self {
            Self::Map(items) => Some(items),
            _ => None,
        }
    }

    /// Sets an attribute of an object; does nothing to a value that is not one.
    pub fn set(&mut self, name: &str, value: impl Into<Self>) {
        if let Self::Map(items) = self {
            items.insert(name.to_owned(), value.into());
        }
    }

    /// The same value with everything unknown in it replaced by null.
    #[must_use]
    pub fn without_unknowns(self) -> Self {
        match self {
            Self::Unknown => Self::Null,
            Self::List(items) => Self::List(items.into_iter().map(Self::without_unknowns).collect()),
            Self::Map(items) => {
                Self::Map(items.into_iter().map(|(name, value)| (name, value.without_unknowns())).collect())
            }
            Self::Dynamic(mut it) => {
                it.value = std::mem::take(&mut it.value).without_unknowns();
                Self::Dynamic(it)
            }
            other => other,
        }
    }

    /// The kind of this value, for messages.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Unknown => "an unknown value",
            Self::Bool(_) => "a bool",
            Self::Num(_) => "a number",
            Self::Str(_) => "a string",
            Self::List(_) => "a list",
            Self::Map(_) => "an object",
            Self::Dynamic(it) => it.value.kind(),
        }
    }
}

impl From<&str> for Val {
    fn from(value: &str) -> Self {
        Self::Str(value.to_owned())
    }
}

impl From<String> for Val {
    fn from(value: String) -> Self {
        Self::Str(value)
    }
}

impl From<bool> for Val {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Val {
    fn from(value: i64) -> Self {
        Self::Num(Num::Int(value))
    }
}

impl From<Object> for Val {
    fn from(value: Object) -> Self {
        Self::Map(value)
    }
}

impl From<Vec<Val>> for Val {
    fn from(value: Vec<Val>) -> Self {
        Self::List(value)
    }
}

impl<T: Into<Self>> From<Option<T>> for Val {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl<const N: usize> From<[(&str, Val); N]> for Val {
    fn from(items: [(&str, Val); N]) -> Self {
        Self::Map(items.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }
}

impl fmt::Display for Val {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Unknown => f.write_str("(known after apply)"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Num(value) => write!(f, "{value}"),
            Self::Str(value) => write!(f, "{value:?}"),
            Self::List(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
            Self::Map(items) => {
                f.write_str("{")?;
                for (i, (name, item)) in items.iter().enumerate() {
                    write!(f, "{}{name} = {item}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str("}")
            }
            Self::Dynamic(it) => write!(f, "{}", it.value),
        }
    }
}

/// True if two lists have the same elements in any order: equality of sets.
pub(crate) fn same_elements(a: &[Val], b: &[Val], same: impl Fn(&Val, &Val) -> bool) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut taken = vec![false; b.len()];
    a.iter().all(|left| {
        let found = b.iter().zip(taken.iter_mut()).find(|(right, taken)| !**taken && same(left, right));
        match found {
            Some((_, taken)) => {
                *taken = true;
                true
            }
            None => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_brings_its_type_is_read_as_if_it_brought_none() {
        let inside = Val::from([("ports", vec![7_i64.into(), "http".into(), Val::Null].into())]);
        let dynamic = Val::from([("web", inside.clone().dynamic())]).dynamic();
        assert_eq!(dynamic.get("web").get("ports").as_list().map(<[Val]>::len), Some(3));
        let Val::Dynamic(it) = &dynamic else { panic!("{dynamic:?}") };
        let ports = Type::Tuple(vec![Type::Number, Type::String, Type::Dynamic]);
        let web = Type::Object([("ports".to_owned(), ports)].into());
        assert_eq!(it.of, Type::Object([("web".to_owned(), web)].into()));
        assert_eq!(it.value, Val::from([("web", inside)]), "one type is enough");
        assert_eq!(dynamic.clone().dynamic(), dynamic);
        assert!(Val::Null.dynamic().is_null() && Val::Unknown.dynamic().is_unknown());
    }

    #[test]
    fn sets_are_equal_in_any_order_and_count_their_elements() {
        let [a, b] = [Val::from("a"), Val::from("b")];
        let same = |left: &[&Val], right: &[&Val]| {
            let own = |items: &[&Val]| items.iter().map(|v| (*v).clone()).collect::<Vec<_>>();
            same_elements(&own(left), &own(right), |x, y| x == y)
        };
        assert!(same(&[&a, &b], &[&b, &a]));
        assert!(!same(&[&a, &a, &b], &[&a, &b, &b]));
        assert!(!same(&[&a], &[&a, &a]));
    }
}
