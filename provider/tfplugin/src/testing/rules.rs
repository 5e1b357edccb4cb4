//! Terraform's rules for plans and results, as functions of values.

use crate::path::Path;
use crate::schema::{Attribute, Mode, Nesting, Shape};
use crate::types::Type;
use crate::value::{Object, Val, same_elements};

/// The state that Terraform proposes: the configuration, and the prior values of attributes that it leaves to the provider.
pub(super) fn propose(attributes: &[Attribute], prior: &Val, config: &Val) -> Val {
    let Val::Map(config) = config else { return config.clone() };
    let propose_one = |attribute: &Attribute| {
        let (had, want) = (prior.get(&attribute.name), member(config, &attribute.name));
        let value = match (&attribute.shape, want) {
            (_, want) if want.is_null() && attribute.is_computed() => had.clone(),
            (Shape::Nested(nesting, children), want) => {
                elements(*nesting, want, had, |want, had| propose(children, had, want))
            }
            (_, want) => want.clone(),
        };
        (attribute.name.clone(), value)
    };
    Val::Map(attributes.iter().map(propose_one).collect())
}

/// Applies `each` to every object of a nested value and its prior object. Objects in sets have no prior one.
fn elements(nesting: Nesting, want: &Val, had: &Val, each: impl Fn(&Val, &Val) -> Val) -> Val {
    match (nesting, want) {
        (Nesting::Single, Val::Map(_)) => each(want, had),
        (Nesting::Map, Val::Map(items)) => {
            Val::Map(items.iter().map(|(key, want)| (key.clone(), each(want, had.get(key)))).collect())
        }
        (_, Val::List(items)) => {
            let had = had.as_list().filter(|_| nesting == Nesting::List).unwrap_or_default();
            let one = |(i, want)| each(want, had.get(i).unwrap_or(&Val::Null));
            Val::List(items.iter().enumerate().map(one).collect())
        }
        (_, other) => other.clone(),
    }
}

fn member<'a>(object: &'a Object, name: &str) -> &'a Val {
    object.get(name).unwrap_or(&Val::Null)
}

/// The errors in a planned object.
pub(super) fn plan(
    attributes: &[Attribute],
    prior: &Val,
    config: &Val,
    planned: &Val,
    at: &Path,
) -> Vec<String> {
    let Val::Map(planned) = planned else {
        return vec![format!("{at}: planned is {planned:?}, and no object")];
    };
    let one = |attribute: &Attribute| {
        let at = at.attr(&attribute.name);
        let (had, want) = (prior.get(&attribute.name), config.get(&attribute.name));
        plan_value(attribute, had, want, member(planned, &attribute.name), &at)
    };
    attributes.iter().flat_map(one).collect()
}

fn plan_value(attribute: &Attribute, had: &Val, want: &Val, planned: &Val, at: &Path) -> Vec<String> {
    if attribute.write_only {
        return if planned.is_null() {
            Vec::new()
        } else {
            vec![format!("{at}: a write-only value is planned")]
        };
    }
    if want.is_null() {
        let may = attribute.is_computed() || planned.is_null();
        return if may {
            Vec::new()
        } else {
            vec![format!("{at}: {planned:?} is planned for what nobody gives")]
        };
    }
    let is_wanted = attribute.same(planned, want);
    let is_prior = !had.is_null() && attribute.same(planned, had);
    let Shape::Nested(nesting, children) = &attribute.shape else {
        return if is_wanted || is_prior {
            Vec::new()
        } else {
            vec![format!("{at}: {planned:?} is planned, configured {want:?}, prior {had:?}")]
        };
    };
    let other_elements =
        || vec![format!("{at}: {planned:?} is planned, which has other elements than {want:?}")];
    match (nesting, want, planned) {
        (_, want, planned) if want.is_unknown() || planned.is_unknown() => {
            if is_wanted {
                Vec::new()
            } else {
                other_elements()
            }
        }
        (Nesting::Single, want, planned) => plan(children, had, want, planned, at),
        (Nesting::Map, Val::Map(want), Val::Map(planned)) if want.keys().eq(planned.keys()) => want
            .iter()
            .zip(planned.values())
            .flat_map(|((key, want), planned)| plan(children, had.get(key), want, planned, &at.key(key)))
            .collect(),
        (Nesting::List, Val::List(want), Val::List(planned)) if want.len() == planned.len() => {
            let had = had.as_list().unwrap_or_default();
            let pairs = want.iter().zip(planned).enumerate();
            pairs
                .flat_map(|(i, (want, planned))| {
                    plan(children, had.get(i).unwrap_or(&Val::Null), want, planned, &at.index(i))
                })
                .collect()
        }
        (Nesting::Set, Val::List(want), Val::List(planned)) if want.len() == planned.len() => {
            let fits = |planned: &Val, want: &Val| plan(children, &Val::Null, want, planned, at).is_empty();
            if same_elements(planned, want, fits) { Vec::new() } else { other_elements() }
        }
        _ => other_elements(),
    }
}

/// The differences between a result and the plan.
pub(super) fn honoured(attributes: &[Attribute], planned: &Val, result: &Val, at: &Path) -> Vec<String> {
    match (planned, result) {
        (Val::Null, Val::Null) => Vec::new(),
        (Val::Map(planned), Val::Map(result)) => attributes
            .iter()
            .flat_map(|attribute| {
                let at = at.attr(&attribute.name);
                let (planned, result) = (member(planned, &attribute.name), member(result, &attribute.name));
                match &attribute.shape {
                    Shape::Plain(of) => honoured_plain(of, planned, result, &at),
                    Shape::Nested(nesting, children) => {
                        honoured_nested(*nesting, children, planned, result, &at)
                    }
                }
            })
            .collect(),
        _ => vec![format!("{at}: {planned:?} was planned, and is {result:?}")],
    }
}

fn honoured_nested(
    nesting: Nesting,
    children: &[Attribute],
    planned: &Val,
    result: &Val,
    at: &Path,
) -> Vec<String> {
    let contradiction = || vec![format!("{at}: {planned:?} was planned, and is {result:?}")];
    match (nesting, planned, result) {
        (_, Val::Unknown, _) => Vec::new(),
        (_, Val::Null, Val::Null) => Vec::new(),
        (Nesting::Single, planned, result) => honoured(children, planned, result, at),
        (Nesting::Map, Val::Map(planned), Val::Map(result)) if planned.keys().eq(result.keys()) => planned
            .iter()
            .zip(result.values())
            .flat_map(|((key, planned), result)| honoured(children, planned, result, &at.key(key)))
            .collect(),
        (Nesting::List, Val::List(planned), Val::List(result)) if planned.len() == result.len() => planned
            .iter()
            .zip(result)
            .enumerate()
            .flat_map(|(i, (planned, result))| honoured(children, planned, result, &at.index(i)))
            .collect(),
        (Nesting::Set, Val::List(planned), Val::List(result)) => {
            let fits = |planned: &Val, result: &Val| honoured(children, planned, result, at).is_empty();
            if same_elements(planned, result, fits) { Vec::new() } else { contradiction() }
        }
        _ => contradiction(),
    }
}

fn honoured_plain(of: &Type, planned: &Val, result: &Val, at: &Path) -> Vec<String> {
    let contradiction = || vec![format!("{at}: {planned:?} was planned, and is {result:?}")];
    match (of, planned, result) {
        (_, Val::Unknown, _) => Vec::new(),
        (Type::List(of), Val::List(planned), Val::List(result)) if planned.len() == result.len() => planned
            .iter()
            .zip(result)
            .enumerate()
            .flat_map(|(i, (planned, result))| honoured_plain(of, planned, result, &at.index(i)))
            .collect(),
        (Type::Map(of), Val::Map(planned), Val::Map(result)) if planned.keys().eq(result.keys()) => planned
            .iter()
            .zip(result.values())
            .flat_map(|((key, planned), result)| honoured_plain(of, planned, result, &at.key(key)))
            .collect(),
        (Type::Set(of), Val::List(planned), Val::List(result)) => {
            let fits = |planned: &Val, result: &Val| honoured_plain(of, planned, result, at).is_empty();
            if same_elements(planned, result, fits) { Vec::new() } else { contradiction() }
        }
        (Type::Dynamic, Val::Dynamic(planned), Val::Dynamic(result)) if planned.of == result.of => {
            honoured_plain(&planned.of, &planned.value, &result.value, at)
        }
        (_, planned, result) if planned == result => Vec::new(),
        _ => contradiction(),
    }
}

/// The unknown parts of a value.
pub(super) fn unknown(value: &Val, at: &Path) -> Vec<String> {
    match value {
        Val::Unknown => vec![format!("{at}: it is not known")],
        Val::Map(items) => items.iter().flat_map(|(name, item)| unknown(item, &at.attr(name))).collect(),
        Val::List(items) => {
            items.iter().enumerate().flat_map(|(i, item)| unknown(item, &at.index(i))).collect()
        }
        Val::Dynamic(it) => unknown(&it.value, at),
        _ => Vec::new(),
    }
}

/// The changes that a plan makes to an object right after its import. Sensitive and write-only attributes are not compared, because a read
/// need not return them; nor are the versions of write-only attributes.
pub(super) fn unread(attributes: &[Attribute], read: &Val, planned: &Val) -> Vec<String> {
    let hidden: Vec<&str> = attributes.iter().filter(|it| it.write_only).map(|it| it.name.as_str()).collect();
    let versions = |name: &str| hidden.iter().any(|hidden| name.starts_with(hidden));
    let told = attributes.iter().filter(|it| it.mode != Mode::Computed && !hides(it) && !versions(&it.name));
    told.filter(|it| read.get(&it.name) != planned.get(&it.name))
        .map(|it| {
            let (read, planned) = (read.get(&it.name), planned.get(&it.name));
            format!("{}: {read:?} was read, and {planned:?} is planned", it.name)
        })
        .collect()
}

/// True if the attribute, or one inside it, is sensitive or write-only.
fn hides(attribute: &Attribute) -> bool {
    let within = match &attribute.shape {
        Shape::Nested(_, attributes) => attributes.iter().any(hides),
        Shape::Plain(_) => false,
    };
    attribute.sensitive || attribute.write_only || within
}

/// A configuration in which every second given value is unknown, also in nested objects. `is_first` decides whether the first one is.
pub(super) fn cloud(attributes: &[Attribute], config: &Val, is_first: bool) -> Val {
    let Val::Map(config) = config else { return config.clone() };
    let mut clouded = config.clone();
    let mut is_next = is_first;
    for attribute in attributes {
        let given = member(config, &attribute.name);
        if given.is_null() {
            continue;
        }
        let hidden = match &attribute.shape {
            Shape::Nested(nesting, children) => {
                elements(*nesting, given, &Val::Null, |given, _| cloud(children, given, is_first))
            }
            Shape::Plain(_) if is_next => Val::Unknown,
            Shape::Plain(_) => given.clone(),
        };
        is_next ^= matches!(attribute.shape, Shape::Plain(_));
        clouded.insert(attribute.name.clone(), hidden);
    }
    Val::Map(clouded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Vec<Attribute> {
        let toy =
            vec![Attribute::required("colour", Type::String), Attribute::computed("shelf", Type::Number)];
        vec![
            Attribute::required("name", Type::String),
            Attribute::computed("uid", Type::String),
            Attribute::optional("tags", Type::set(Type::String)),
            Attribute::nested("toys", Mode::Optional, Nesting::Map, toy),
        ]
    }

    fn pet(name: &str, uid: Val, shelf: Val) -> Val {
        let toys = Val::from([("ball", Val::from([("colour", "red".into()), ("shelf", shelf)]))]);
        Val::from([("name", name.into()), ("uid", uid), ("tags", Val::Null), ("toys", toys)])
    }

    #[test]
    fn a_plan_is_the_configuration_and_what_only_the_provider_knows() {
        let config = pet("tom", Val::Null, Val::Null);
        let wrong = |planned: Val| plan(&schema(), &Val::Null, &config, &planned, &Path::root());
        assert_eq!(wrong(pet("tom", Val::Unknown, Val::Unknown)), Vec::<String>::new());
        assert_eq!(wrong(pet("tom", "1".into(), 3_i64.into())), Vec::<String>::new());
        assert!(wrong(pet("Tom", Val::Unknown, Val::Unknown))[0].starts_with("name: "));
        let mut tagged = pet("tom", Val::Unknown, Val::Unknown);
        tagged.set("tags", vec![Val::from("a")]);
        assert!(wrong(tagged)[0].starts_with("tags: "));
    }

    #[test]
    fn a_result_is_what_was_planned_and_wholly_known() {
        let planned = pet("tom", Val::Unknown, Val::Unknown);
        let wrong = |result: Val| honoured(&schema(), &planned, &result, &Path::root());
        assert_eq!(wrong(pet("tom", "1".into(), 2_i64.into())), Vec::<String>::new());
        assert!(wrong(pet("tim", "1".into(), 2_i64.into()))[0].starts_with("name: "));
        let unknown = unknown(&pet("tom", Val::Unknown, 2_i64.into()), &Path::root());
        assert_eq!(unknown, ["uid: it is not known"]);
    }

    #[test]
    fn what_is_computed_stays_proposed() {
        let prior = pet("tom", "1".into(), 2_i64.into());
        let config = pet("tim", Val::Null, Val::Null);
        assert_eq!(propose(&schema(), &prior, &config), pet("tim", "1".into(), 2_i64.into()));
    }
}
