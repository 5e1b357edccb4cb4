//! The configuration that a user would have written for an existing object.
//!
//! Terraform 1.14 and later ask for it when they import an object without a configuration. It omits computed attributes,
//! write-only ones, and values that equal the default.

use crate::schema::{Attribute, Mode, Nesting, Schema, Shape};
use crate::value::{Object, Val};

/// A configuration for an object of this state. A plan with it is empty.
pub(crate) fn configuration(schema: &Schema, state: &Val) -> Val {
    match state {
        Val::Map(state) => Val::Map(object(&schema.attributes, state)),
        other => other.clone(),
    }
}

fn object(attributes: &[Attribute], state: &Object) -> Object {
    let one = |attribute: &Attribute| {
        let value = state.get(&attribute.name).unwrap_or(&Val::Null);
        (attribute.name.clone(), declared(attribute, value))
    };
    attributes.iter().map(one).collect()
}

fn declared(attribute: &Attribute, value: &Val) -> Val {
    let is_default = attribute.default.as_ref().is_some_and(|default| attribute.same(default, value));
    let is_old = attribute.deprecated.is_some() && attribute.mode != Mode::Required;
    if attribute.mode == Mode::Computed || attribute.write_only || is_default || is_old {
        return Val::Null;
    }
    let Shape::Nested(nesting, children) = &attribute.shape else { return value.clone() };
    let one = |value: &Val| match value {
        Val::Map(state) => Val::Map(object(children, state)),
        other => other.clone(),
    };
    match (nesting, value) {
        (Nesting::Single, value) => one(value),
        (Nesting::Map, Val::Map(items)) => {
            Val::Map(items.iter().map(|(key, item)| (key.clone(), one(item))).collect())
        }
        (Nesting::List | Nesting::Set, Val::List(items)) => Val::List(items.iter().map(one).collect()),
        (_, other) => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Type;

    #[test]
    fn what_follows_by_itself_is_left_out() {
        let toy = vec![
            Attribute::required("colour", Type::String),
            Attribute::computed("shelf", Type::Number),
            Attribute::optional("loud", Type::Bool).default(false),
        ];
        let old = Attribute::optional("age", Type::Number).deprecated("Pets are as old as they are.");
        let schema = Schema {
            attributes: vec![
                Attribute::required("name", Type::String),
                Attribute::computed("uid", Type::String),
                Attribute::optional("legs", Type::Number).default(4_i64),
                Attribute::optional("tags", Type::set(Type::String)).default(Vec::<Val>::new()),
                Attribute::optional("door_wo", Type::String).write_only(),
                Attribute::nested("toys", Mode::Optional, Nesting::Map, toy),
                old,
            ],
            ..Schema::default()
        };
        let toy = |shelf: Val, loud: Val| {
            let toy = Val::from([("colour", "red".into()), ("shelf", shelf), ("loud", loud)]);
            Val::from([("ball", toy)])
        };
        let pet = |uid: Val, legs: Val, tags: Val, toys: Val, age: Val| {
            Val::from([
                ("name", "tom".into()),
                ("uid", uid),
                ("legs", legs),
                ("tags", tags),
                ("door_wo", Val::Null),
                ("toys", toys),
                ("age", age),
            ])
        };
        let state = pet(
            "1".into(),
            3_i64.into(),
            Vec::<Val>::new().into(),
            toy(7_i64.into(), false.into()),
            9_i64.into(),
        );
        let want = pet(Val::Null, 3_i64.into(), Val::Null, toy(Val::Null, Val::Null), Val::Null);
        assert_eq!(configuration(&schema, &state), want);
    }
}
