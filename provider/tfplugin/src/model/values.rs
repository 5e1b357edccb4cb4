//! The Rust types of values: numbers, text, types that are written as text, and collections.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::time::Duration;

use jiff::{SignedDuration, Span, SpanRelativeTo};

use super::net::{Cidr, Mac};
use super::{Model, Nested, Typed, wrong_kind, wrong_value};
use crate::diag::{Diag, Diags};
use crate::number::Num;
use crate::path::Path;
use crate::same::Semantics;
use crate::schema::Nesting;
use crate::types::Type;
use crate::value::Val;

impl Typed for bool {
    fn of() -> Type {
        Type::Bool
    }
    fn read(val: &Val, at: &Path) -> Result<Self, Diags> {
        val.as_bool().ok_or_else(|| wrong_kind("a bool", val, at))
    }
    fn write(&self) -> Val {
        Val::Bool(*self)
    }
}

/// A value of any type. It may itself be null or unknown, so it is never in an `Option` or a [`Tf`](crate::Tf).
impl Typed for Val {
    const NULLABLE: bool = true;
    fn of() -> Type {
        Type::Dynamic
    }
    fn read(val: &Val, _: &Path) -> Result<Self, Diags> {
        Ok(val.clone())
    }
    fn write(&self) -> Val {
        self.clone().dynamic()
    }
}

impl Typed for Num {
    fn of() -> Type {
        Type::Number
    }
    fn read(val: &Val, at: &Path) -> Result<Self, Diags> {
        number("a number", val, at).cloned()
    }
    fn write(&self) -> Val {
        Val::Num(self.clone())
    }
}

/// Infinities and NaN are written as null: Terraform has no such numbers.
impl Typed for f64 {
    fn of() -> Type {
        Type::Number
    }
    /// Accepts only a number that is written back unchanged: Terraform refuses an answer that differs from its own value.
    fn read(val: &Val, at: &Path) -> Result<Self, Diags> {
        const WANT: &str = "a number of 64 bits";
        let number = number(WANT, val, at)?.to_string();
        let read = number.parse::<Self>().ok().filter(|read| read.write() == *val);
        let why = || format!("{number}, which has more digits than are kept, or is too large");
        read.ok_or_else(|| wrong_value(WANT, &why(), at))
    }
    fn write(&self) -> Val {
        Num::parse(&self.to_string()).map_or(Val::Null, Val::Num)
    }
}

fn number<'a>(want: &str, val: &'a Val, at: &Path) -> Result<&'a Num, Diags> {
    match val {
        Val::Num(number) => Ok(number),
        other => Err(wrong_kind(want, other, at)),
    }
}

macro_rules! integers {
    ($($of:ty),*) => {$(
                impl Typed for $of {
            fn of() -> Type {
                Type::Number
            }
            fn read(val: &Val, at: &Path) -> Result<Self, Diags> {
                let want = || format!("a whole number from {} to {}", Self::MIN, Self::MAX);
                let number = number(&want(), val, at)?.to_string();
                number.parse().map_err(|_| wrong_value(&want(), &number, at))
            }
            fn write(&self) -> Val {
                Val::Num(i64::try_from(*self).map_or_else(|_| Num::Dec(self.to_string()), Num::Int))
            }
        }
    )*};
}

integers!(i8, i16, i32, i64, u8, u16, u32, u64, usize);

impl Typed for String {
    fn of() -> Type {
        Type::String
    }
    fn read(val: &Val, at: &Path) -> Result<Self, Diags> {
        text("a string", val, at).map(str::to_owned)
    }
    fn write(&self) -> Val {
        Val::Str(self.clone())
    }
}

fn text<'a>(want: &str, val: &'a Val, at: &Path) -> Result<&'a str, Diags> {
    val.as_str().ok_or_else(|| wrong_kind(want, val, at))
}

fn parsed<T: FromStr<Err: Display>>(want: &str, val: &Val, at: &Path) -> Result<T, Diags> {
    let text = text(want, val, at)?;
    text.parse().map_err(|error| wrong_value(want, &format!("{text:?}: {error}"), at))
}

/// A type that can be parsed and displayed, as text. Parsing must accept the displayed text. Two texts are equal if their
/// displayed forms are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text<T>(pub T);

impl<T: FromStr<Err: Display> + Display> Typed for Text<T> {
    const IS_SPELLED: bool = true;
    fn of() -> Type {
        Type::String
    }
    fn semantics() -> Semantics {
        Semantics::Canonical(|text| Some(text.parse::<T>().ok()?.to_string()))
    }
    fn read(val: &Val, at: &Path) -> Result<Self, Diags> {
        parsed("what belongs here", val, at).map(Self)
    }
    fn write(&self) -> Val {
        Val::Str(self.0.to_string())
    }
}

macro_rules! texts {
    ($($of:ty: $want:literal, $semantics:expr);*) => {$(
                impl Typed for $of {
            const IS_SPELLED: bool = true;
            fn of() -> Type {
                Type::String
            }
            fn semantics() -> Semantics {
                $semantics
            }
            fn read(val: &Val, at: &Path) -> Result<Self, Diags> {
                parsed($want, val, at)
            }
            fn write(&self) -> Val {
                Val::Str(self.to_string())
            }
        }
    )*};
}

texts! {
    IpAddr: "an IP address", Semantics::Ip;
    Ipv4Addr: "an IPv4 address", Semantics::Ip;
    Ipv6Addr: "an IPv6 address", Semantics::Ip;
    Mac: "a MAC address", Semantics::Mac;
    Cidr: "an address with a prefix length", Semantics::Cidr;
    serde_json::Value: "JSON", Semantics::Json
}

/// As `1h 30m`, `90m`, `2d` (of 24 hours) or `PT1H30M`. A longer time than 292 billion years is written as 292 billion years.
impl Typed for Duration {
    const IS_SPELLED: bool = true;
    fn of() -> Type {
        Type::String
    }
    fn semantics() -> Semantics {
        Semantics::Canonical(|text| Some(spelled(span(text).ok()?)))
    }
    fn read(val: &Val, at: &Path) -> Result<Self, Diags> {
        const WANT: &str = "a duration, like 1h 30m";
        let text = text(WANT, val, at)?;
        let read = span(text).map_err(|error| wrong_value(WANT, &format!("{text:?}: {error}"), at))?;
        Self::try_from(read)
            .map_err(|_| wrong_value(WANT, &format!("{}, which is negative", spelled(read)), at))
    }
    fn write(&self) -> Val {
        Val::Str(spelled(SignedDuration::try_from(*self).unwrap_or(SignedDuration::MAX)))
    }
}

/// Reads a length of time. A day has 24 hours, and `0` needs no unit.
fn span(text: &str) -> Result<SignedDuration, jiff::Error> {
    if text == "0" {
        return Ok(SignedDuration::ZERO);
    }
    text.parse().or_else(|_| text.parse::<Span>()?.to_duration(SpanRelativeTo::days_are_24_hours()))
}

fn spelled(duration: SignedDuration) -> String {
    format!("{duration:#}")
}

/// Reads all elements, and reports all errors.
fn elements<'a, K, T: Typed, C: FromIterator<(K, T)>>(
    items: impl Iterator<Item = (K, &'a Val, Path)>,
) -> Result<C, Diags> {
    let mut wrong = Diags::default();
    let read = items.filter_map(|(key, item, at)| match T::read(item, &at) {
        Ok(item) => Some((key, item)),
        Err(diags) => {
            wrong.extend(diags);
            None
        }
    });
    let read = read.collect();
    if wrong.is_empty() { Ok(read) } else { Err(wrong) }
}

fn listed<T: Typed>(want: &str, val: &Val, at: &Path) -> Result<Vec<T>, Diags> {
    let items = val.as_list().ok_or_else(|| wrong_kind(want, val, at))?;
    let items = items.iter().enumerate().map(|(i, item)| (i, item, at.index(i)));
    let read: Vec<(usize, T)> = elements(items)?;
    Ok(read.into_iter().map(|(_, item)| item).collect())
}

fn written<'a, T: Typed + 'a>(items: impl IntoIterator<Item = &'a T>) -> Val {
    Val::List(items.into_iter().map(T::write).collect())
}

impl<T: Typed> Typed for Vec<T> {
    const IS_SPELLED: bool = T::IS_SPELLED;
    const SAYS_MORE: bool = T::SAYS_MORE;
    fn of() -> Type {
        Type::list(T::of())
    }
    fn semantics() -> Semantics {
        T::semantics()
    }
    fn read(val: &Val, at: &Path) -> Result<Self, Diags> {
        listed("a list", val, at)
    }
    fn write(&self) -> Val {
        written(self)
    }
}

impl<T: Typed + Ord> Typed for BTreeSet<T> {
    const IS_SPELLED: bool = T::IS_SPELLED;
    const SAYS_MORE: bool = T::SAYS_MORE;
    const IS_SET: bool = true;
    fn of() -> Type {
        Type::set(T::of())
    }
    fn semantics() -> Semantics {
        T::semantics()
    }
    /// Two equal elements are an error: the set could not be written back unchanged.
    fn read(val: &Val, at: &Path) -> Result<Self, Diags> {
        let (mut set, mut wrong) = (Self::new(), Diags::default());
        for (i, item) in listed("a set", val, at)?.into_iter().enumerate() {
            if !set.insert(item) {
                let detail = "Another element of the set means the same. Leave one of them out.";
                wrong.push(Diag::error("Twice the same", detail).at(at.index(i)));
            }
        }
        if wrong.is_empty() { Ok(set) } else { Err(wrong) }
    }
    fn write(&self) -> Val {
        written(self)
    }
}

impl<T: Typed> Typed for BTreeMap<String, T> {
    const IS_SPELLED: bool = T::IS_SPELLED;
    const SAYS_MORE: bool = T::SAYS_MORE;
    fn of() -> Type {
        Type::map(T::of())
    }
    fn semantics() -> Semantics {
        T::semantics()
    }
    fn read(val: &Val, at: &Path) -> Result<Self, Diags> {
        let items = val.as_map().ok_or_else(|| wrong_kind("a map", val, at))?;
        elements(items.iter().map(|(key, item)| (key.clone(), item, at.key(key))))
    }
    fn write(&self) -> Val {
        Val::Map(self.iter().map(|(key, item)| (key.clone(), item.write())).collect())
    }
}

impl<M: Model> Nested for Vec<M> {
    type Of = M;
    const NESTING: Nesting = Nesting::List;
}

impl<M: Model + Ord> Nested for BTreeSet<M> {
    type Of = M;
    const NESTING: Nesting = Nesting::Set;
}

impl<M: Model> Nested for BTreeMap<String, M> {
    type Of = M;
    const NESTING: Nesting = Nesting::Map;
}
