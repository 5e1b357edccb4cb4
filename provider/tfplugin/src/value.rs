//! Terraform's values and their types, as a tree that the rest of the crate walks.
//!
//! A [`Val`] means something only together with a [`Type`]: a list, a set and a tuple are all
//! [`Val::List`], a map and an object are both [`Val::Map`].

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
}

impl Val {
    /// Whether it is [`Val::Null`].
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Whether it is itself [`Val::Unknown`]; its elements are not looked at.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown)
    }

    /// Whether nothing in it is unknown.
    #[must_use]
    pub fn is_wholly_known(&self) -> bool {
        match self {
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
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    /// The truth value, if this is one.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The number, if this is one that fits.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Num(Num::Int(value)) => Some(*value),
            _ => None,
        }
    }

    /// The elements of a list or set.
    #[must_use]
    pub fn as_list(&self) -> Option<&[Self]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    /// The content of a map or object.
    #[must_use]
    pub fn as_map(&self) -> Option<&Object> {
        match self {
            Self::Map(items) => Some(items),
            _ => None,
        }
    }

    /// The content of a map or object, to change it.
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
