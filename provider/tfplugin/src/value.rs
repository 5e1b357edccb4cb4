//! Terraform's values and their types, as a tree that the rest of the crate walks.
//!
//! A [`Val`] means something only together with a [`Type`]: a list, a set and a tuple are all
//! [`Val::List`], a map and an object are both [`Val::Map`]. Where the type is [`Type::Dynamic`], the value brings its own.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::json;

/// Values by name: the content of an object or of a map.
pub type Object = BTreeMap<String, Val>;

/// One value of a configuration, a plan or a state.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Val {
    /// Not set.
    #[default]
    Null,
    /// Known only after the apply.
    Unknown,
    /// `true` or `false`.
    Bool(bool),
    /// A number of any size.
    Num(Num),
    /// Text.
    Str(String),
    /// A list, or a set (in no meaningful order).
    List(Vec<Val>),
    /// A map, or an object with all its attributes.
    Map(Object),
    /// A value of any type, which it brings: see [`Val::dynamic`].
    Dynamic(Box<Dynamic>),
}

/// A value with its type, where a schema says [`Type::Dynamic`].
#[derive(Clone, Debug, PartialEq)]
pub struct Dynamic {
    /// What it is.
    pub of: Type,
    /// The value.
    pub value: Val,
}

impl Val {
    /// The same value, bringing its type: lists are tuples, and maps are objects.
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

    /// The value without the type that it brings.
    #[must_use]
    pub fn inner(&self) -> &Self {
        match self {
            Self::Dynamic(it) => &it.value,
            other => other,
        }
    }

    /// Whether it is [`Val::Null`], of whatever type.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self.inner(), Self::Null)
    }

    /// Whether it is itself [`Val::Unknown`]; its elements are not looked at.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(self.inner(), Self::Unknown)
    }

    /// Whether nothing in it is unknown.
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

    /// The content of a map or object, to change it; of none that brings its type.
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

    /// What kind of value this is, for messages.
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

/// A number: Terraform's have no limits, so whatever is not an `i64` is kept as exact decimal text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Num {
    /// A whole number that fits.
    Int(i64),
    /// Anything else, in one spelling per number: no exponent, no leading or trailing zeros.
    Dec(String),
}

/// A number's text is longer than this only if somebody means harm.
const MAX_DIGITS: usize = 4096;

impl Num {
    /// Reads decimal text such as `-12`, `0.10` or `1e-3`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(value) = text.parse::<i64>() {
            return Some(Self::Int(value));
        }
        if text.len() > MAX_DIGITS {
            return None;
        }
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (rest, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let point = i64::try_from(whole.len()).ok()? + i64::from(exponent);
        let len = i64::try_from(digits.len()).ok()?;
        if point.unsigned_abs() > MAX_DIGITS as u64 {
            return None;
        }
        let (whole, fraction) = if point <= 0 {
            let zeros = usize::try_from(-point).ok()?;
            (String::new(), format!("{}{digits}", "0".repeat(zeros)))
        } else if point >= len {
            let zeros = usize::try_from(point - len).ok()?;
            (format!("{digits}{}", "0".repeat(zeros)), String::new())
        } else {
            let (whole, fraction) = digits.split_at(usize::try_from(point).ok()?);
            (whole.to_owned(), fraction.to_owned())
        };
        let whole = whole.trim_start_matches('0');
        let fraction = fraction.trim_end_matches('0');
        let whole = if whole.is_empty() { "0" } else { whole };
        let sign = if negative { "-" } else { "" };
        let canonical =
            if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") };
        Some(canonical.parse::<i64>().map_or(Self::Dec(canonical), Self::Int))
    }

    /// The number that a binary floating point value stands for, exactly; not for infinities.
    #[must_use]
    pub fn from_f64(value: f64) -> Option<Self> {
        // The smallest double has 1074 decimal places, and every double ends there.
        value.is_finite().then(|| format!("{value:.1074}")).and_then(|text| Self::parse(&text))
    }
}

impl fmt::Display for Num {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => write!(f, "{value}"),
            Self::Dec(text) => f.write_str(text),
        }
    }
}

/// What a value may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// `true` or `false`.
    Bool,
    /// Any number.
    Number,
    /// Text.
    String,
    /// Elements in order.
    List(Box<Type>),
    /// Elements in no order; none twice.
    Set(Box<Type>),
    /// Elements by key.
    Map(Box<Type>),
    /// Attributes by name, always all of them.
    Object(BTreeMap<String, Type>),
    /// So many elements, each of its own type.
    Tuple(Vec<Type>),
    /// Whatever the value says: it is null, unknown or a [`Val::Dynamic`].
    Dynamic,
}

impl Type {
    /// A list of `element`.
    #[must_use]
    pub fn list(element: Self) -> Self {
        Self::List(Box::new(element))
    }

    /// A set of `element`.
    #[must_use]
    pub fn set(element: Self) -> Self {
        Self::Set(Box::new(element))
    }

    /// A map of `element`.
    #[must_use]
    pub fn map(element: Self) -> Self {
        Self::Map(Box::new(element))
    }

    /// The protocol's JSON spelling of the type, such as `["list","string"]`.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Bool => json!("bool"),
            Self::Number => json!("number"),
            Self::String => json!("string"),
            Self::List(element) => json!(["list", element.to_json()]),
            Self::Set(element) => json!(["set", element.to_json()]),
            Self::Map(element) => json!(["map", element.to_json()]),
            Self::Object(attributes) => {
                let attributes: serde_json::Map<_, _> =
                    attributes.iter().map(|(name, of)| (name.clone(), of.to_json())).collect();
                json!(["object", attributes])
            }
            Self::Tuple(elements) => json!(["tuple", elements.iter().map(Self::to_json).collect::<Vec<_>>()]),
            Self::Dynamic => json!("dynamic"),
        }
    }

    /// Reads the protocol's JSON spelling of a type; `None` for what is none.
    #[must_use]
    pub fn from_json(json: &serde_json::Value) -> Option<Self> {
        match json.as_str() {
            Some("bool") => return Some(Self::Bool),
            Some("number") => return Some(Self::Number),
            Some("string") => return Some(Self::String),
            Some("dynamic") => return Some(Self::Dynamic),
            _ => {}
        }
        let (sort, inner) = (json.get(0)?.as_str()?, json.get(1)?);
        Some(match sort {
            "list" => Self::list(Self::from_json(inner)?),
            "set" => Self::set(Self::from_json(inner)?),
            "map" => Self::map(Self::from_json(inner)?),
            "object" => {
                let attributes = inner.as_object()?.iter();
                let attributes = attributes.map(|(name, of)| Some((name.clone(), Self::from_json(of)?)));
                Self::Object(attributes.collect::<Option<_>>()?)
            }
            "tuple" => Self::Tuple(inner.as_array()?.iter().map(Self::from_json).collect::<Option<_>>()?),
            _ => return None,
        })
    }

    /// Whether there is a collection in it whose elements need not be of one type.
    pub(crate) fn has_open_elements(&self) -> bool {
        match self {
            Self::Bool | Self::Number | Self::String | Self::Dynamic => false,
            Self::List(of) | Self::Set(of) | Self::Map(of) => of.is_open(),
            Self::Object(attributes) => attributes.values().any(Self::has_open_elements),
            Self::Tuple(elements) => elements.iter().any(Self::has_open_elements),
        }
    }

    /// The value with its type, wherever this one leaves that to the value.
    pub(crate) fn lift(&self, value: Val) -> Val {
        match (self, value) {
            (Self::Dynamic, value) => value.dynamic(),
            (Self::Object(attributes), Val::Map(items)) => {
                let lifted = items.into_iter().map(|(name, item)| match attributes.get(&name) {
                    Some(of) => (name, of.lift(item)),
                    None => (name, item),
                });
                Val::Map(lifted.collect())
            }
            (Self::Tuple(elements), Val::List(items)) if elements.len() == items.len() => {
                Val::List(elements.iter().zip(items).map(|(of, item)| of.lift(item)).collect())
            }
            (_, value) => value,
        }
    }

    /// Whether a value of it is without a type somewhere, unless it brings one.
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Self::Bool | Self::Number | Self::String => false,
            Self::List(of) | Self::Set(of) | Self::Map(of) => of.is_open(),
            Self::Object(attributes) => attributes.values().any(Self::is_open),
            Self::Tuple(elements) => elements.iter().any(Self::is_open),
            Self::Dynamic => true,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("bool"),
            Self::Number => f.write_str("number"),
            Self::String => f.write_str("string"),
            Self::List(element) => write!(f, "list of {element}"),
            Self::Set(element) => write!(f, "set of {element}"),
            Self::Map(element) => write!(f, "map of {element}"),
            Self::Object(_) => f.write_str("object"),
            Self::Tuple(_) => f.write_str("tuple"),
            Self::Dynamic => f.write_str("any value with its type"),
        }
    }
}

/// Whether two lists hold the same elements, in whatever order: equality of sets.
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
    fn one_number_has_one_spelling() {
        for (text, want) in [
            ("7", "7"),
            ("-0", "0"),
            ("1e3", "1000"),
            ("1.50", "1.5"),
            ("0.10", "0.1"),
            ("00.25e1", "2.5"),
            ("25e-3", "0.025"),
            ("18446744073709551615", "18446744073709551615"),
        ] {
            assert_eq!(Num::parse(text).map(|n| n.to_string()).as_deref(), Some(want), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_number_is_refused() {
        for text in ["", "-", ".", "1.2.3", "0x10", "1e999999", "NaN", "ten"] {
            assert_eq!(Num::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_double_becomes_exactly_what_it_stands_for() {
        assert_eq!(Num::from_f64(0.5), Some(Num::Dec("0.5".into())));
        assert_eq!(Num::from_f64(-3.0), Some(Num::Int(-3)));
        assert_eq!(Num::from_f64(f64::INFINITY), None);
        assert_ne!(Num::from_f64(0.1), Num::parse("0.1"), "the nearest double is not 0.1");
    }

    #[test]
    fn a_type_is_read_as_it_is_written() {
        let object = Type::Object([("a".to_owned(), Type::set(Type::Number))].into());
        let tuple = Type::Tuple(vec![Type::Dynamic, object.clone()]);
        for whole in [Type::Bool, Type::list(Type::map(Type::String)), object, tuple] {
            assert_eq!(Type::from_json(&whole.to_json()), Some(whole));
        }
        for json in [json!("any"), json!(["list"]), json!(["bag", "string"]), json!(["tuple", "string"])] {
            assert_eq!(Type::from_json(&json), None, "{json}");
        }
    }

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
