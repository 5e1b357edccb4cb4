//! Plans a change: the inputs are the configuration and the prior state, the result is the planned state.
//!
//! Planning is pure. Terraform plans a change at least twice, once with some values unknown and
//! again during the apply, and refuses a provider whose second answer contradicts its first.
//!
//! 1. Write-only values become null. Defaults fill values that the configuration omits. A configured
//!    value that equals the prior one, spelled differently, keeps the prior spelling. Computed values stay.
//! 2. If the result equals the prior state, that is the plan: nothing changes.
//! 3. Otherwise each computed value that the configuration does not give becomes unknown, except
//!    values that no update changes (`use_state`) and values that follow from known ones.
//! 4. Attributes that have changed and cannot change in place require a replacement.
//!
//! Each nested object is planned with its own prior object: an object under a new map key has none.

use crate::path::Path;
use crate::same::same_object;
use crate::schema::{Attribute, Nesting, Schema, Shape};
use crate::value::{Object, Val};

/// A planned state, and the attributes that require a replacement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Planned {
    pub(crate) state: Val,
    pub(crate) replace: Vec<Path>,
}

/// Plans a creation (`prior` null) or an update. `config` is an object; `derive` is [`crate::Resource::derive`].
pub(crate) fn plan(schema: &Schema, prior: &Val, config: &Val, derive: impl Fn(&mut Object)) -> Planned {
    let none = Object::new();
    let config = config.as_map().unwrap_or(&none);
    let before = prior.as_map();
    let mut base = keep_what_stays(&schema.attributes, config, before);
    derive(&mut base);
    if let Some(before) = before
        && same_object(&schema.attributes, &base, before)
    {
        let mut state = prior.clone();
        // In a dynamic value, a null of one type differs from a null of another type for Terraform.
        for (name, value) in base.into_iter().filter(|(_, value)| value.is_null()) {
            state.set(&name, value);
        }
        return Planned { state, replace: Vec::new() };
    }
    let mut state = mark_unknown(&schema.attributes, base, config, before);
    derive(&mut state);
    let mut replace = Vec::new();
    if let Some(before) = before {
        find_replacements(&schema.attributes, &state, before, &Path::root(), &mut replace);
    }
    replace.sort();
    replace.dedup();
    Planned { state: Val::Map(state), replace }
}

fn member(object: Option<&Object>, name: &str) -> Val {
    object.and_then(|object| object.get(name)).cloned().unwrap_or_default()
}

fn keep_what_stays(attributes: &[Attribute], config: &Object, prior: Option<&Object>) -> Object {
    attributes
        .iter()
        .map(|attribute| {
            let want = member(Some(config), &attribute.name);
            let had = member(prior, &attribute.name);
            (attribute.name.clone(), keep_value(attribute, want, had))
        })
        .collect()
}

fn keep_value(attribute: &Attribute, want: Val, had: Val) -> Val {
    if attribute.write_only {
        return Val::Null;
    }
    match (&attribute.shape, want) {
        (_, want) if want.is_null() => match &attribute.default {
            Some(default) => default.clone(),
            None if attribute.is_computed() => had,
            None => want,
        },
        (Shape::Nested(nesting, children), want) => {
            map_elements(*nesting, want, &had, |want, had| keep_what_stays(children, &want, had))
        }
        (Shape::Plain(_), want) => {
            if attribute.same(&want, &had) {
                had
            } else {
                want
            }
        }
    }
}

/// Applies `each` to every object of a nested attribute, together with its prior object: the one with the same
/// map key or list position. Objects in sets have no prior object, because they have no key.
fn map_elements(
    nesting: Nesting,
    value: Val,
    prior: &Val,
    each: impl Fn(Object, Option<&Object>) -> Object,
) -> Val {
    let one = |value: Val, prior: Option<&Val>| match value {
        Val::Map(object) => Val::Map(each(object, prior.and_then(Val::as_map))),
        other => other,
    };
    match (nesting, value) {
        (Nesting::Single, value) => one(value, Some(prior)),
        (Nesting::Map, Val::Map(items)) => Val::Map(
            items
                .into_iter()
                .map(|(key, item)| {
                    let had = prior.as_map().and_then(|map| map.get(&key));
                    let item = one(item, had);
                    (key, item)
                })
                .collect(),
        ),
        (Nesting::List, Val::List(items)) => Val::List(
            items
                .into_iter()
                .enumerate()
                .map(|(i, item)| one(item, prior.as_list().and_then(|list| list.get(i))))
                .collect(),
        ),
        (Nesting::Set, Val::List(items)) => {
            Val::List(items.into_iter().map(|item| one(item, None)).collect())
        }
        (_, other) => other,
    }
}

fn mark_unknown(attributes: &[Attribute], base: Object, config: &Object, prior: Option<&Object>) -> Object {
    let mut planned = base;
    for attribute in attributes {
        let Some(value) = planned.get_mut(&attribute.name) else {
            continue;
        };
        let want = config.get(&attribute.name).unwrap_or(&Val::Null);
        if want.is_null() {
            let keeps = attribute.use_state && prior.is_some();
            if attribute.is_computed() && attribute.default.is_none() && !keeps {
                *value = Val::Unknown;
            }
        } else if let Shape::Nested(nesting, children) = &attribute.shape {
            let base = std::mem::take(value);
            *value = mark_elements(*nesting, children, base, want, &member(prior, &attribute.name));
        }
    }
    planned
}

fn mark_elements(nesting: Nesting, children: &[Attribute], base: Val, want: &Val, prior: &Val) -> Val {
    let none = Object::new();
    let one = |base: Val, want: Option<&Val>, prior: Option<&Val>| match base {
        Val::Map(object) => Val::Map(mark_unknown(
            children,
            object,
            want.and_then(Val::as_map).unwrap_or(&none),
            prior.and_then(Val::as_map),
        )),
        other => other,
    };
    match (nesting, base) {
        (Nesting::Single, base) => one(base, Some(want), Some(prior)),
        (Nesting::Map, Val::Map(items)) => Val::Map(
            items
                .into_iter()
                .map(|(key, item)| {
                    let at = |map: &'_ Val| map.as_map().and_then(|map| map.get(&key)).cloned();
                    let item = one(item, at(want).as_ref(), at(prior).as_ref());
                    (key, item)
                })
                .collect(),
        ),
        (Nesting::List | Nesting::Set, Val::List(items)) => Val::List(
            items
                .into_iter()
                .enumerate()
                .map(|(i, item)| {
                    let at = |list: &'_ Val| list.as_list().and_then(|list| list.get(i)).cloned();
                    let had = if nesting == Nesting::List { at(prior) } else { None };
                    one(item, at(want).as_ref(), had.as_ref())
                })
                .collect(),
        ),
        (_, other) => other,
    }
}

fn find_replacements(
    attributes: &[Attribute],
    planned: &Object,
    prior: &Object,
    at: &Path,
    found: &mut Vec<Path>,
) {
    for attribute in attributes {
        let at = at.attr(&attribute.name);
        let is = member(Some(planned), &attribute.name);
        let was = member(Some(prior), &attribute.name);
        if attribute.replaces(&was, &is) {
            found.push(at);
            continue;
        }
        let Shape::Nested(nesting, children) = &attribute.shape else {
            continue;
        };
        match (nesting, &is, &was) {
            (Nesting::Single, Val::Map(is), Val::Map(was)) => {
                find_replacements(children, is, was, &at, found);
            }
            (Nesting::Map, Val::Map(is), Val::Map(was)) => {
                for (key, is) in is {
                    if let (Val::Map(is), Some(Val::Map(was))) = (is, was.get(key)) {
                        find_replacements(children, is, was, &at.key(key), found);
                    }
                }
            }
            (Nesting::List, Val::List(is), Val::List(was)) => {
                for (i, (is, was)) in is.iter().zip(was).enumerate() {
                    if let (Val::Map(is), Val::Map(was)) = (is, was) {
                        find_replacements(children, is, was, &at.index(i), found);
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
