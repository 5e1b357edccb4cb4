//! Checks Terraform's rules for the state after an apply, before it is sent.
//!
//! If a result contradicts the plan, Terraform reports a bug in the provider without the cause. The
//! check here names the attribute. A value that equals the planned one, spelled differently, gets
//! the planned spelling.

use crate::diag::Diag;
use crate::path::Path;
use crate::schema::{Attribute, Nesting, Schema, Shape};
use crate::types::Type;
use crate::value::{Object, Val};

/// Brings `value` into the schema's shape: every attribute is present, write-only ones are null,
/// and each value has its type.
pub(crate) fn conform(schema: &Schema, value: Val) -> Result<Val, Diag> {
    match value {
        Val::Map(object) => conform_object(&schema.attributes, object, &Path::root()).map(Val::Map),
        Val::Null => Ok(Val::Null),
        other => Err(wrong_type(&Path::root(), "an object", &other)),
    }
}

/// The parts of `value` that fit the schema. Other parts become null, and are logged.
pub(crate) fn salvage(schema: &Schema, value: Val) -> Val {
    let Val::Map(mut object) = value else { return Val::Null };
    let salvaged = schema.attributes.iter().map(|attribute| {
        let value = object.remove(&attribute.name).unwrap_or_default();
        let value = if attribute.write_only { Val::Null } else { value };
        let value = conform_value(attribute, value, &Path::root().attr(&attribute.name));
        let value = value.unwrap_or_else(|diag| {
            tracing::error!(problem = diag.detail, path = %diag.path, "a committed state is not of the schema");
            Val::Null
        });
        (attribute.name.clone(), value)
    });
    Val::Map(salvaged.collect())
}

fn conform_object(attributes: &[Attribute], mut object: Object, at: &Path) -> Result<Object, Diag> {
    let mut conformed = Object::new();
    for attribute in attributes {
        let value = object.remove(&attribute.name).unwrap_or_default();
        let value = if attribute.write_only {
            Val::Null
        } else {
            conform_value(attribute, value, &at.attr(&attribute.name))?
        };
        conformed.insert(attribute.name.clone(), value);
    }
    match object.into_keys().next() {
        None => Ok(conformed),
        Some(name) => {
            Err(bug(&at.attr(&name), "The provider returned an attribute that its schema does not have."))
        }
    }
}

fn conform_value(attribute: &Attribute, value: Val, at: &Path) -> Result<Val, Diag> {
    let (nesting, children) = match &attribute.shape {
        Shape::Plain(of) => {
            let value = of.lift(value);
            check_type(of, &value, at)?;
            return Ok(value);
        }
        Shape::Nested(nesting, children) => (nesting, children),
    };
    let one = |value: Val, at: &Path| match value {
        Val::Map(object) => conform_object(children, object, at).map(Val::Map),
        Val::Null | Val::Unknown => Ok(value),
        other => Err(wrong_type(at, "an object", &other)),
    };
    match (nesting, value) {
        (_, value @ (Val::Null | Val::Unknown)) => Ok(value),
        (Nesting::Single, value) => one(value, at),
        (Nesting::Map, Val::Map(items)) => items
            .into_iter()
            .map(|(key, item)| {
                let item = one(item, &at.key(&key))?;
                Ok((key, item))
            })
            .collect::<Result<_, _>>()
            .map(Val::Map),
        (Nesting::List | Nesting::Set, Val::List(items)) => items
            .into_iter()
            .enumerate()
            .map(|(i, item)| one(item, &at.index(i)))
            .collect::<Result<_, _>>()
            .map(Val::List),
        (_, other) => Err(wrong_type(at, "a collection of objects", &other)),
    }
}

pub(crate) fn check_type(of: &Type, value: &Val, at: &Path) -> Result<(), Diag> {
    match (of, value) {
        (_, Val::Null | Val::Unknown)
        | (Type::Bool, Val::Bool(_))
        | (Type::Number, Val::Num(_))
        | (Type::String, Val::Str(_)) => Ok(()),
        (Type::List(element) | Type::Set(element), Val::List(items)) => {
            items.iter().enumerate().try_for_each(|(i, item)| check_type(element, item, &at.index(i)))
        }
        (Type::Map(element), Val::Map(items)) => {
            items.iter().try_for_each(|(key, item)| check_type(element, item, &at.key(key)))
        }
        (Type::Object(attributes), Val::Map(items)) if attributes.keys().eq(items.keys()) => attributes
            .iter()
            .zip(items.values())
            .try_for_each(|((name, of), item)| check_type(of, item, &at.attr(name))),
        (Type::Tuple(elements), Val::List(items)) if elements.len() == items.len() => {
            let mut items = elements.iter().zip(items).enumerate();
            items.try_for_each(|(i, (of, item))| check_type(of, item, &at.index(i)))
        }
        (Type::Dynamic, Val::Dynamic(it)) => check_type(&it.of, &it.value, at),
        (of, other) => Err(wrong_type(at, &of.to_string(), other)),
    }
}

/// Compares the result of an apply with its plan. Returns the result, with the planned spelling of
/// equal values, and one error for each contradiction.
pub(crate) fn honour(schema: &Schema, planned: &Val, result: Val) -> (Val, Vec<Diag>) {
    let mut errors = Vec::new();
    let result = match (planned, result) {
        (Val::Map(planned), Val::Map(result)) => {
            Val::Map(honour_object(&schema.attributes, planned, result, &Path::root(), false, &mut errors))
        }
        (_, other) => other,
    };
    (result, errors)
}

fn honour_object(
    attributes: &[Attribute],
    planned: &Object,
    mut result: Object,
    at: &Path,
    in_secret: bool,
    errors: &mut Vec<Diag>,
) -> Object {
    for attribute in attributes {
        let (Some(planned), Some(value)) = (planned.get(&attribute.name), result.get_mut(&attribute.name))
        else {
            continue;
        };
        let at = at.attr(&attribute.name);
        let found = std::mem::take(value);
        let is_secret = in_secret || attribute.sensitive;
        *value = honour_value(attribute, planned, found, &at, is_secret, errors);
    }
    result
}

fn honour_value(
    attribute: &Attribute,
    planned: &Val,
    found: Val,
    at: &Path,
    is_secret: bool,
    errors: &mut Vec<Diag>,
) -> Val {
    if planned.is_unknown() {
        if !found.is_wholly_known() {
            errors.push(bug(at, "The provider left it unknown after the apply."));
            return found.without_unknowns();
        }
        return found;
    }
    if planned.is_wholly_known() && attribute.same(planned, &found) {
        return planned.clone();
    }
    let Shape::Nested(nesting, children) = &attribute.shape else {
        errors.push(differs(is_secret, at, planned, &found));
        return found;
    };
    let mut one = |planned: &Val, found: Val, at: &Path| match (planned, found) {
        (Val::Map(planned), Val::Map(found)) => {
            Val::Map(honour_object(children, planned, found, at, is_secret, errors))
        }
        (planned, found) => {
            if *planned != found {
                errors.push(differs(is_secret, at, planned, &found));
            }
            found
        }
    };
    match (nesting, planned, found) {
        (Nesting::Single, planned, found) => one(planned, found, at),
        (Nesting::Map, Val::Map(planned), Val::Map(found)) if planned.keys().eq(found.keys()) => {
            let honoured = found.into_iter().map(|(key, found)| {
                let planned = planned.get(&key).unwrap_or(&Val::Null);
                let found = one(planned, found, &at.key(&key));
                (key, found)
            });
            Val::Map(honoured.collect())
        }
        (Nesting::List, Val::List(planned), Val::List(found)) if planned.len() == found.len() => {
            let honoured = planned
                .iter()
                .zip(found)
                .enumerate()
                .map(|(i, (planned, found))| one(planned, found, &at.index(i)));
            Val::List(honoured.collect())
        }
        // Objects of a set have no key. Terraform itself only compares their number.
        (Nesting::Set, Val::List(planned), found @ Val::List(_))
            if found.as_list().map(<[Val]>::len) == Some(planned.len()) =>
        {
            found
        }
        (_, planned, found) => {
            errors.push(differs(is_secret, at, planned, &found));
            found
        }
    }
}

fn differs(is_secret: bool, at: &Path, planned: &Val, found: &Val) -> Diag {
    let values = if is_secret {
        "Its value is not the planned one.".to_owned()
    } else {
        format!("Planned was {planned}, and it is {found}.")
    };
    Diag::error(
        "The result is not what was planned",
        format!(
            "{values} The object was changed by someone else meanwhile, or this is a bug in the provider."
        ),
    )
    .at(at.clone())
}

fn wrong_type(at: &Path, want: &str, found: &Val) -> Diag {
    bug(at, &format!("The provider returned {} where {want} belongs.", found.kind()))
}

fn bug(at: &Path, detail: &str) -> Diag {
    Diag::error("Bug in the provider", detail).at(at.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::same::Semantics;
    use crate::schema::Mode;

    fn schema() -> Schema {
        Schema {
            attributes: vec![
                Attribute::required("mac", Type::String).semantics(Semantics::Mac),
                Attribute::computed("uid", Type::String),
                Attribute::optional("password", Type::String).sensitive(),
                Attribute::nested(
                    "nics",
                    Mode::Optional,
                    Nesting::Map,
                    vec![
                        Attribute::required("subnet", Type::String),
                        Attribute::computed("address", Type::String),
                    ],
                ),
            ],
            ..Schema::default()
        }
    }

    fn state(mac: &str, uid: Val, subnet: &str, address: Val) -> Val {
        Val::from([
            ("mac", mac.into()),
            ("uid", uid),
            ("password", Val::Null),
            ("nics", Val::from([("eth0", Val::from([("subnet", subnet.into()), ("address", address)]))])),
        ])
    }

    #[test]
    fn what_was_unknown_may_become_anything() {
        let planned = state("aa:bb:cc:00:11:22", Val::Unknown, "lab", Val::Unknown);
        let result = state("aa:bb:cc:00:11:22", "u1".into(), "lab", "10.0.0.7".into());
        assert_eq!(honour(&schema(), &planned, result.clone()), (result, vec![]));
    }

    #[test]
    fn the_planned_spelling_is_put_back() {
        let planned = state("AA-BB-CC-00-11-22", Val::Unknown, "lab", Val::Unknown);
        let result = state("aa:bb:cc:00:11:22", "u1".into(), "lab", Val::Null);
        let (result, errors) = honour(&schema(), &planned, result);
        assert_eq!(errors, []);
        assert_eq!(result.get("mac"), &Val::from("AA-BB-CC-00-11-22"));
    }

    #[test]
    fn a_contradiction_names_the_attribute() {
        let planned = state("aa:bb:cc:00:11:22", "u1".into(), "lab", Val::Unknown);
        let result = state("aa:bb:cc:00:11:22", "u1".into(), "other", Val::Null);
        let (_, errors) = honour(&schema(), &planned, result);
        let [error] = errors.as_slice() else {
            panic!("one error expected: {errors:?}");
        };
        assert_eq!(error.path.to_string(), r#"nics["eth0"].subnet"#);
        assert!(error.detail.starts_with(r#"Planned was "lab", and it is "other"."#));
    }

    #[test]
    fn a_secret_is_not_quoted() {
        let planned = Val::from([("password", "hunter2".into())]);
        let (_, errors) = honour(&schema(), &planned, Val::from([("password", Val::Null)]));
        assert!(errors.iter().all(|error| !error.detail.contains("hunter2")) && errors.len() == 1);
    }

    #[test]
    fn nothing_within_a_secret_is_quoted_and_what_is_of_the_schema_is_kept_of_what_is_not() {
        let login = vec![Attribute::optional("password", Type::String)];
        let schema = Schema {
            attributes: vec![
                Attribute::nested("login", Mode::Optional, Nesting::Single, login).sensitive(),
                Attribute::computed("size", Type::Number),
            ],
            ..Schema::default()
        };
        let state = |password: &str, size: Val| {
            Val::from([("login", Val::from([("password", password.into())])), ("size", size)])
        };
        let (_, errors) = honour(&schema, &state("hunter2", 1.into()), state("hunter3", 1.into()));
        let [error] = errors.as_slice() else { panic!("{errors:?}") };
        assert!(!error.detail.contains("hunter"), "{error:?}");
        assert_eq!(salvage(&schema, state("hunter2", "big".into())), state("hunter2", Val::Null));
    }

    #[test]
    fn what_is_still_unknown_is_an_error_and_becomes_null() {
        let planned = state("m", Val::Unknown, "lab", Val::Unknown);
        let (result, errors) = honour(&schema(), &planned, planned.clone());
        assert_eq!(errors.len(), 2);
        assert!(result.is_wholly_known());
    }

    #[test]
    fn a_result_gets_its_missing_attributes_and_loses_nothing_silently() {
        let conformed = conform(&schema(), Val::from([("mac", "m".into())])).expect("a state");
        assert_eq!(conformed.get("nics"), &Val::Null);
        assert_eq!(conformed.as_map().map(Object::len), Some(4));
        let error = conform(&schema(), Val::from([("colour", "red".into())])).expect_err("unknown");
        assert_eq!(error.path.to_string(), "colour");
        let error = conform(&schema(), Val::from([("mac", true.into())])).expect_err("wrong type");
        assert_eq!(error.detail, "The provider returned a bool where string belongs.");
    }
}
