//! Random configurations: the same for the same schema and seed.

use std::collections::BTreeMap;

use super::MiniCore;
use crate::check::Check;
use crate::schema::{Attribute, Mode, Nesting, Shape};
use crate::types::Type;
use crate::value::{Dynamic, Object, Val};

/// Largest number of elements of a collection.
const MOST: u64 = 3;

/// Makes configurations. Bounded: collections have up to three elements, texts are short.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
    choices: BTreeMap<String, Vec<Val>>,
}

impl Random {
    /// The configurations of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed, choices: BTreeMap::new() }
    }

    /// Sets the possible values of attributes of this name, at any depth.
    #[must_use]
    pub fn choose<const N: usize>(mut self, name: &str, values: [impl Into<Val>; N]) -> Self {
        self.choices.insert(name.to_owned(), values.into_iter().map(Into::into).collect());
        self
    }

    /// A configuration of a resource. It has all required attributes, and a random choice of the others. An attribute whose
    /// check has known good values gets one of them.
    pub fn config(&mut self, core: &MiniCore, type_name: &str) -> Val {
        let attributes = core.attributes(type_name).unwrap_or_default().to_vec();
        Val::Map(self.object(&attributes))
    }

    /// A copy of the configuration that omits some optional values.
    pub fn less(&mut self, core: &MiniCore, type_name: &str, config: &Val) -> Val {
        let attributes = core.attributes(type_name).unwrap_or_default().to_vec();
        Val::Map(self.some(&attributes, config))
    }

    fn some(&mut self, attributes: &[Attribute], config: &Val) -> Object {
        let mut kept = Object::new();
        for attribute in attributes {
            let value = config.get(&attribute.name);
            let stays = attribute.mode == Mode::Required || self.below(2) == 0;
            let value = match &attribute.shape {
                _ if !stays || value.is_null() => Val::Null,
                Shape::Nested(Nesting::Single, children) => Val::Map(self.some(children, value)),
                _ => value.clone(),
            };
            kept.insert(attribute.name.clone(), value);
        }
        kept
    }

    fn object(&mut self, attributes: &[Attribute]) -> Object {
        attributes.iter().map(|attribute| (attribute.name.clone(), self.attribute(attribute))).collect()
    }

    fn attribute(&mut self, attribute: &Attribute) -> Val {
        let is_there = match attribute.mode {
            Mode::Required => true,
            Mode::Optional | Mode::OptionalComputed => self.below(2) == 0,
            Mode::Computed => false,
        };
        if !is_there {
            return Val::Null;
        }
        let of_checks =
            || attribute.checks.iter().map(Check::samples).find(|it| !it.is_empty()).map(<[_]>::to_vec);
        if let Some(values) = self.choices.get(&attribute.name).cloned().or_else(of_checks) {
            let place = usize::try_from(self.below(values.len() as u64)).unwrap_or(0);
            return values.get(place).cloned().unwrap_or_default();
        }
        match &attribute.shape {
            Shape::Plain(of) => self.value(of),
            Shape::Nested(Nesting::Single, children) => Val::Map(self.object(children)),
            Shape::Nested(Nesting::Map, children) => {
                let keys = self.below(MOST + 1);
                Val::Map((0..keys).map(|i| (format!("key-{i}"), Val::Map(self.object(children)))).collect())
            }
            Shape::Nested(Nesting::List, children) => {
                let length = self.below(MOST + 1);
                Val::List((0..length).map(|_| Val::Map(self.object(children))).collect())
            }
            // One object only: two random objects of a set could be equal.
            Shape::Nested(Nesting::Set, children) => Val::List(vec![Val::Map(self.object(children))]),
        }
    }

    fn value(&mut self, of: &Type) -> Val {
        match of {
            Type::Bool => Val::Bool(self.below(2) == 0),
            Type::Number => Val::from(i64::try_from(self.below(100)).unwrap_or(0)),
            Type::String => Val::from(format!("text-{}", self.below(1000))),
            Type::List(of) => {
                let length = self.below(MOST + 1);
                Val::List((0..length).map(|_| self.value(of)).collect())
            }
            Type::Set(of) => {
                let mut all: Vec<Val> = Vec::new();
                for _ in 0..self.below(MOST + 1) {
                    let value = self.value(of);
                    if !all.contains(&value) {
                        all.push(value);
                    }
                }
                Val::List(all)
            }
            Type::Map(of) => {
                let keys = self.below(MOST + 1);
                Val::Map((0..keys).map(|i| (format!("key-{i}"), self.value(of))).collect())
            }
            Type::Object(attributes) => {
                Val::Map(attributes.iter().map(|(name, of)| (name.clone(), self.value(of))).collect())
            }
            Type::Tuple(elements) => Val::List(elements.iter().map(|of| self.value(of)).collect()),
            Type::Dynamic => {
                let types = [Type::Bool, Type::Number, Type::String, Type::list(Type::String)];
                let place = usize::try_from(self.below(types.len() as u64)).unwrap_or(0);
                let of = types.into_iter().nth(place).unwrap_or(Type::String);
                let value = self.value(&of);
                Val::Dynamic(Box::new(Dynamic { of, value }))
            }
        }
    }

    /// The next number, from 0 to below `limit` (SplitMix64).
    pub fn below(&mut self, limit: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit.max(1)
    }
}
