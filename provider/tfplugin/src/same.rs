//! Equality of values: sets in any order, text by its semantics, and dynamic values by their content.

use std::net::IpAddr;

use crate::model::{Cidr, Mac};
use crate::schema::Attribute;
use crate::types::Type;
use crate::value::{Object, Val, same_elements};

/// The rule that decides which spellings of a text are equal.
#[derive(Clone, Copy, Debug, Default)]
pub enum Semantics {
    /// Every text equals only itself.
    #[default]
    Exact,
    /// A MAC address: `AA-BB-CC-00-11-22` is `aa:bb:cc:00:11:22`.
    Mac,
    /// An IP address: `2001:DB8::0` is `2001:db8::`.
    Ip,
    /// An address and a prefix length.
    Cidr,
    /// JSON text: white space and the order of keys mean nothing.
    Json,
    /// Texts with the same canonical spelling are equal. `None` for a text without one; it equals only itself.
    Canonical(fn(&str) -> Option<String>),
}

impl Semantics {
    /// True if the text is of this kind.
    #[must_use]
    pub fn reads(self, text: &str) -> bool {
        match self {
            Self::Exact => true,
            Self::Mac => mac(text).is_some(),
            Self::Ip => text.parse::<IpAddr>().is_ok(),
            Self::Cidr => cidr(text).is_some(),
            Self::Json => serde_json::from_str::<serde_json::Value>(text).is_ok(),
            Self::Canonical(spell) => spell(text).is_some(),
        }
    }

    /// True if two texts are equal. A text that is not of this kind equals only itself.
    #[must_use]
    pub fn same(self, a: &str, b: &str) -> bool {
        fn by<T: PartialEq>(a: &str, b: &str, read: impl Fn(&str) -> Option<T>) -> bool {
            matches!((read(a), read(b)), (Some(a), Some(b)) if a == b)
        }
        a == b
            || match self {
                Self::Exact => false,
                Self::Mac => by(a, b, mac),
                Self::Ip => by(a, b, |text| text.parse::<IpAddr>().ok()),
                Self::Cidr => by(a, b, cidr),
                Self::Canonical(spell) => by(a, b, spell),
                Self::Json => by(a, b, |text| serde_json::from_str::<serde_json::Value>(text).ok()),
            }
    }
}

fn cidr(text: &str) -> Option<Cidr> {
    text.parse().ok()
}

fn mac(text: &str) -> Option<Mac> {
    text.parse().ok()
}

pub(crate) fn same_element(attributes: &[Attribute], a: &Val, b: &Val) -> bool {
    match (a, b) {
        (Val::Map(a), Val::Map(b)) => same_object(attributes, a, b),
        (a, b) => a == b,
    }
}

pub(crate) fn same_object(attributes: &[Attribute], a: &Object, b: &Object) -> bool {
    attributes.iter().all(|attribute| {
        let of = |object: &Object| object.get(&attribute.name).cloned().unwrap_or_default();
        attribute.same(&of(a), &of(b))
    })
}

pub(crate) fn same_plain(of: &Type, semantics: Semantics, a: &Val, b: &Val) -> bool {
    match (of, a, b) {
        // A null of any type.
        (Type::Dynamic, a, b) if a.is_null() && b.is_null() => true,
        (_, Val::Str(a), Val::Str(b)) => a == b || semantics.same(a, b),
        (Type::List(element), Val::List(a), Val::List(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_plain(element, semantics, a, b))
        }
        (Type::Set(element), Val::List(a), Val::List(b)) => {
            same_elements(a, b, |a, b| same_plain(element, semantics, a, b))
        }
        (Type::Map(element), Val::Map(a), Val::Map(b)) => {
            a.len() == b.len()
                && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same_plain(element, semantics, a, b)))
        }
        (Type::Object(attributes), Val::Map(a), Val::Map(b)) => {
            attributes.iter().all(|(name, of)| match (a.get(name), b.get(name)) {
                (Some(a), Some(b)) => same_plain(of, semantics, a, b),
                (a, b) => a == b,
            })
        }
        (Type::Dynamic, Val::Dynamic(a), Val::Dynamic(b)) if a.of != b.of => {
            same_of_two((&a.of, &a.value), (&b.of, &b.value))
        }
        (Type::Dynamic, Val::Dynamic(a), Val::Dynamic(b)) => same_plain(&a.of, semantics, &a.value, &b.value),
        (_, a, b) => a == b,
    }
}

/// True if values of two types are equal. A list or a set, which has no order, may have become a tuple.
fn same_of_two((a_of, a): (&Type, &Val), (b_of, b): (&Type, &Val)) -> bool {
    fn part<'a>(of: &'a Type, name: &str, place: usize) -> &'a Type {
        match of {
            Type::List(of) | Type::Set(of) | Type::Map(of) => of,
            Type::Object(attributes) => attributes.get(name).unwrap_or(&Type::Dynamic),
            Type::Tuple(elements) => elements.get(place).unwrap_or(&Type::Dynamic),
            Type::Bool | Type::Number | Type::String | Type::Dynamic => &Type::Dynamic,
        }
    }
    match (a, b) {
        (Val::List(a), Val::List(b)) if matches!(a_of, Type::Set(_)) || matches!(b_of, Type::Set(_)) => {
            same_elements(a, b, |a, b| a == b)
        }
        (Val::List(a), Val::List(b)) => {
            let mut pairs = a.iter().zip(b).enumerate();
            a.len() == b.len()
                && pairs.all(|(i, (a, b))| same_of_two((part(a_of, "", i), a), (part(b_of, "", i), b)))
        }
        (Val::Map(a), Val::Map(b)) => {
            let mut pairs = a.iter().zip(b.values());
            a.keys().eq(b.keys())
                && pairs.all(|((name, a), b)| same_of_two((part(a_of, name, 0), a), (part(b_of, name, 0), b)))
        }
        (a, b) => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Dynamic;

    #[test]
    fn spellings_of_one_address_are_the_same() {
        assert!(Semantics::Mac.same("AA-BB-CC-00-11-22", "aa:bb:cc:00:11:22"));
        assert!(Semantics::Mac.same("aabb.cc00.1122", "aa:bb:cc:00:11:22"));
        assert!(Semantics::Ip.same("2001:DB8:0::1", "2001:db8::1"));
        assert!(Semantics::Cidr.same("2001:DB8::/32", "2001:db8::/32"));
        assert!(Semantics::Json.same("{\"a\":1, \"b\":2}", "{ \"b\":2,\"a\":1 }"));
    }

    #[test]
    fn different_values_stay_different() {
        assert!(!Semantics::Mac.same("aa:bb:cc:00:11:22", "aa:bb:cc:00:11:23"));
        assert!(!Semantics::Cidr.same("10.0.0.1/24", "10.0.0.0/24"), "an address in a network");
        assert!(!Semantics::Mac.same("not a mac", "NOT A MAC"));
        assert!(!Semantics::Exact.same("a", "A"));
    }

    #[test]
    fn a_value_that_brings_its_type_may_come_back_with_another_that_says_the_same() {
        let any = Attribute::optional("any", Type::Dynamic);
        let of = |of: Type, value: &Val| Val::Dynamic(Box::new(Dynamic { of, value: value.clone() }));
        let [ab, ba] = [["a", "b"], ["b", "a"]].map(|it| Val::from(it.map(Val::from).to_vec()));
        let texts = || Type::set(Type::String);
        assert!(any.same(&of(texts(), &ab), &ba.clone().dynamic()), "a set has no order");
        assert!(any.same(&of(Type::list(Type::String), &ab), &ab.clone().dynamic()));
        assert!(!any.same(&of(Type::list(Type::String), &ab), &ba.clone().dynamic()), "a list has one");
        let [tags, others] = [&ab, &ba].map(|it| Val::from([("tags", it.clone())]));
        let with_set = of(Type::Object([("tags".to_owned(), texts())].into()), &tags);
        assert!(any.same(&with_set, &others.dynamic()) && !any.same(&with_set, &Val::from("a").dynamic()));
        assert!(any.same(&of(Type::String, &Val::Null), &Val::Null), "null is null");
        assert!(!any.same(&of(Type::String, &Val::Unknown), &Val::Null));
    }
}
