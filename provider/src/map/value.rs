//! Conversion of values: a configuration or plan to a spec, and an object to a state.

use basalt_api::pointer::child;
use basalt_api::{Field, Kind, Presence, Schema as Described, Type as Kinds, diff};
use serde_json::{Map, Value};
use tfplugin::{Num, Object, Val, to_json};

use super::facts::Facts;
use super::{LABELS, NAME, READY, STATUS, TIMEOUTS, UID, version, write_only};

/// A spec from a configuration or plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Declared {
    /// The spec, without null and unknown values.
    pub(crate) spec: Value,
    /// Pointers to values of the spec that are known only after the apply.
    pub(crate) unknown: Vec<String>,
    /// Pointers to secrets that are given in both ways.
    pub(crate) twice: Vec<String>,
    /// Pointers to write-only secrets without a version: Terraform would not see their changes.
    pub(crate) unversioned: Vec<String>,
}

/// The spec in `planned`. Write-only secrets come from `config`. A secret whose version equals that of `prior` is omitted, so
/// the region keeps it.
pub(crate) fn declared(kind: &Kind, planned: &Val, config: &Val, prior: &Val) -> Declared {
    let mut declared = Declared::default();
    let spec = fields(kind.spec, planned, config, prior, "", &mut declared);
    declared.spec = Value::Object(spec);
    declared
}

fn fields(
    described: &'static Described,
    planned: &Val,
    config: &Val,
    prior: &Val,
    at: &str,
    out: &mut Declared,
) -> Map<String, Value> {
    let mut spec = Map::new();
    for field in described.fields {
        let at = child(at, field.name);
        let value = if matches!(field.ty, Kinds::Secret) {
            secret(field, planned, config, prior, &at, out)
        } else {
            let of = |value: &'_ Val| value.get(field.name).clone();
            let given = of(config);
            let value = value(&field.ty, &of(planned), &given, &of(prior), &at, out);
            // A default that a plan filled in is not declared.
            value.filter(|value| !given.is_null() || !is_default(field, value))
        };
        if let Some(value) = value {
            spec.insert(field.name.to_owned(), value);
        }
    }
    spec
}

fn value(
    ty: &'static Kinds,
    planned: &Val,
    config: &Val,
    prior: &Val,
    at: &str,
    out: &mut Declared,
) -> Option<Value> {
    match (ty, planned) {
        (_, Val::Null) => None,
        (_, Val::Unknown) => {
            out.unknown.push(at.to_owned());
            None
        }
        (Kinds::Object(described), planned) => {
            Some(Value::Object(fields(described, planned, config, prior, at, out)))
        }
        (Kinds::Map { value: item, .. }, Val::Map(items)) => {
            let mut map = Map::new();
            for (key, planned) in items {
                let at = child(at, key);
                if let Some(value) = value(item, planned, config.get(key), prior.get(key), &at, out) {
                    map.insert(key.clone(), value);
                }
            }
            Some(Value::Object(map))
        }
        (Kinds::List(item) | Kinds::Set(item), Val::List(items)) => {
            if !planned.is_wholly_known() {
                out.unknown.push(at.to_owned());
                return None;
            }
            let none = &Val::Null;
            let values = items
                .iter()
                .enumerate()
                .filter_map(|(i, planned)| value(item, planned, none, none, &child(at, &i.to_string()), out));
            Some(Value::Array(values.collect()))
        }
        (_, scalar) => Some(to_json(scalar)),
    }
}

/// The secret in the request: its text, `Null` to clear it, or `None` to keep it.
fn secret(
    field: &Field,
    planned: &Val,
    config: &Val,
    prior: &Val,
    at: &str,
    out: &mut Declared,
) -> Option<Value> {
    let (hidden, number) = (write_only(field.name), version(field.name));
    let (plain, hidden) = (planned.get(field.name), config.get(&hidden));
    if plain.as_str().is_some() && hidden.as_str().is_some() {
        out.twice.push(at.to_owned());
    }
    if hidden.as_str().is_some() && config.get(&number).is_null() {
        out.unversioned.push(at.to_owned());
    }
    if plain.is_unknown() || (plain.is_null() && hidden.is_unknown()) {
        out.unknown.push(at.to_owned());
        return None;
    }
    if let Some(text) = plain.as_str() {
        return Some(text.into());
    }
    let is_written = prior.get(field.name).is_null()
        && prior.as_map().is_some()
        && planned.get(&number) == prior.get(&number);
    match hidden.as_str() {
        Some(_) if is_written => None,
        Some(text) => Some(text.into()),
        // No secret is declared now. If the prior state declared one, clear it. Otherwise keep it: an imported object may have
        // one.
        None => [field.name, &number].iter().any(|name| !prior.get(name).is_null()).then_some(Value::Null),
    }
}

fn is_default(field: &Field, value: &Value) -> bool {
    matches!(field.presence, Presence::Default(default) if default.json(&field.ty) == *value)
}

/// The value of an absent field. For an object, all fields have their defaults.
pub(super) fn default(field: &'static Field) -> Option<Val> {
    match field.presence {
        Presence::Default(default) => {
            Some(read_value(&field.ty, &default.json(&field.ty), Absent::Default, Facts::Stable))
        }
        _ => None,
    }
}

/// The value for an absent field.
#[derive(Clone, Copy, PartialEq)]
enum Absent {
    Null,
    Default,
}

/// An object as a state. Secrets and attributes that only Terraform has are null. Defaults are filled in, as in every plan.
pub(crate) fn object(kind: &Kind, object: &basalt_api::Object) -> Val {
    with_facts(kind, object, Facts::Stable)
}

fn with_facts(kind: &Kind, object: &basalt_api::Object, facts: Facts) -> Val {
    let mut state = read(kind.spec, &object.spec, Absent::Default, Facts::Stable);
    state.insert(NAME.into(), object.metadata.name.as_str().into());
    state.insert(UID.into(), object.metadata.uid.to_string().into());
    if kind.status.fields.iter().any(|field| facts.has(field)) {
        state.insert(STATUS.into(), read(kind.status, &object.status, Absent::Null, facts).into());
    }
    Val::Map(state)
}

/// An object from a data source: also with its labels, which come from all managers, and with facts.
pub(crate) fn found(kind: &Kind, found: &basalt_api::Object) -> Val {
    let labels = found.metadata.labels.iter().map(|(key, value)| (key.clone(), value.as_str().into()));
    let mut value = with_facts(kind, found, Facts::of_found(kind));
    value.set(LABELS, Val::Map(labels.collect()));
    value
}

fn read(described: &'static Described, json: &Value, absent: Absent, facts: Facts) -> Object {
    let shown =
        described.fields.iter().filter(|field| facts.has(field) && !matches!(field.ty, Kinds::Secret));
    shown
        .map(|field| {
            let value = match json.get(field.name) {
                Some(value) if !value.is_null() => read_value(&field.ty, value, absent, facts.within(field)),
                _ if absent == Absent::Default => default(field).unwrap_or_default(),
                _ => Val::Null,
            };
            (field.name.to_owned(), value)
        })
        .collect()
}

/// Reads a value from the region. A value with the wrong type becomes null: it comes from another version of the API.
fn read_value(ty: &'static Kinds, json: &Value, absent: Absent, facts: Facts) -> Val {
    match (ty, json) {
        (Kinds::Object(described), Value::Object(_)) => Val::Map(read(described, json, absent, facts)),
        (Kinds::Map { value, .. }, Value::Object(items)) => {
            let one = |(key, item): (&String, _)| (key.clone(), read_value(value, item, absent, facts));
            Val::Map(items.iter().map(one).collect())
        }
        (Kinds::List(item) | Kinds::Set(item), Value::Array(items)) => {
            Val::List(items.iter().map(|json| read_value(item, json, absent, facts)).collect())
        }
        (Kinds::Bool, Value::Bool(value)) => Val::Bool(*value),
        (Kinds::Int { .. }, Value::Number(number)) => {
            Num::parse(&number.to_string()).map_or(Val::Null, Val::Num)
        }
        (ty, Value::String(text)) if ty.is_scalar() => Val::from(text.as_str()),
        _ => Val::Null,
    }
}

/// Keeps the parts of `prior` that are still valid in `now`, a fresh [`object`]: attributes that only Terraform has, secrets,
/// and each field whose value is equal for Basalt. A default equals an absent field.
pub(crate) fn keep_equal(kind: &Kind, prior: &Val, spec: &Value, now: &mut Val) {
    if prior.as_map().is_none() {
        return;
    }
    for name in [READY, TIMEOUTS] {
        if let Some(value) = prior.as_map().and_then(|prior| prior.get(name)) {
            now.set(name, value.clone());
        }
    }
    let before = declared(kind, prior, &Val::Null, &Val::Null).spec;
    let changed = diff(kind, &before, spec);
    keep_fields(kind.spec, prior, now, "", &|at| {
        changed.iter().any(|change| basalt_api::pointer::is_within(&change.pointer, at))
    });
}

fn keep_fields(
    described: &'static Described,
    prior: &Val,
    now: &mut Val,
    at: &str,
    is_changed: &dyn Fn(&str) -> bool,
) {
    for field in described.fields {
        let at = child(at, field.name);
        if matches!(field.ty, Kinds::Secret) {
            for name in [field.name.to_owned(), version(field.name)] {
                now.set(&name, prior.get(&name).clone());
            }
            continue;
        }
        let was = prior.get(field.name);
        // A secret in it counts as changed: a state may contain its text, a spec never does.
        if !is_changed(&at) {
            // The state of an older provider has no defaults.
            if !was.is_null() || default(field).is_none() {
                now.set(field.name, was.clone());
            }
            continue;
        }
        let mut is = now.get(field.name).clone();
        match (&field.ty, was, &mut is) {
            (Kinds::Object(described), Val::Map(_), Val::Map(_)) => {
                keep_fields(described, was, &mut is, &at, is_changed);
            }
            (Kinds::Map { value: Kinds::Object(described), .. }, Val::Map(was), Val::Map(items)) => {
                for (key, is) in items {
                    if let Some(was) = was.get(key) {
                        keep_fields(described, was, is, &child(&at, key), is_changed);
                    }
                }
            }
            _ => {}
        }
        now.set(field.name, is);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tfplugin::Val as V;

    fn sample() -> &'static Kind {
        Kind::find("Sample").expect("the kind with one of everything")
    }

    /// An object with all attributes: null in place of missing ones.
    fn val(given: Value) -> V {
        let of = super::super::resource(sample()).value_type();
        tfplugin::from_json(&given, &of).expect("a state")
    }

    fn stored(spec: Value) -> basalt_api::Object {
        serde_json::from_value(json!({
            "kind": "Sample",
            "metadata": {
                "name": "one", "uid": "0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6e", "generation": 1,
                "created_at": "2026-01-31T12:00:00Z", "updated_at": "2026-01-31T12:00:00Z"
            },
            "spec": spec,
            "status": {"address": "10.0.0.1", "temperature": 40}
        }))
        .expect("an object")
    }

    #[test]
    fn what_is_declared_is_sent_and_nothing_else() {
        let planned = val(json!({
            "name": "one", "serial": "s", "macs": ["52:54:00:aa:00:01"], "steps": [],
            "parts": {"lid": {"weight": 3}}, "detail": {"label": "x"}
        }));
        let declared = declared(sample(), &planned, &planned, &V::Null);
        assert_eq!(
            declared.spec,
            json!({
                "serial": "s", "detail": {"label": "x"}, "parts": {"lid": {"weight": 3}}, "steps": [],
                "macs": ["52:54:00:aa:00:01"]
            })
        );
        assert_eq!(declared.unknown, Vec::<String>::new());
    }

    #[test]
    fn a_default_is_sent_where_it_is_spelled_out_and_never_else() {
        let planned = val(json!({"serial": "s", "count_wanted": 3, "parts": {}, "macs": []}));
        let sent = |config: Value| declared(sample(), &planned, &val(config), &V::Null).spec;
        assert_eq!(sent(json!({"serial": "s"})), json!({"serial": "s"}));
        assert_eq!(
            sent(json!({"serial": "s", "count_wanted": 3})),
            json!({"serial": "s", "count_wanted": 3})
        );
    }

    #[test]
    fn what_is_left_out_reads_as_what_that_means() {
        let read = |spec: Value| object(sample(), &stored(spec));
        let spelled = json!({"serial": "s", "count_wanted": 3, "macs": []});
        assert_eq!(read(json!({"serial": "s"})), read(spelled));
        assert_eq!(read(json!({"serial": "s"})).get("mac"), &V::Null, "has no default");
    }

    #[test]
    fn what_is_unknown_is_told_by_pointer() {
        let mut planned = val(json!({"serial": "s", "detail": {"label": "x"}}));
        planned.set("zone", V::Unknown);
        planned.set("macs", vec![V::Unknown]);
        let declared = declared(sample(), &planned, &planned, &V::Null);
        assert_eq!(declared.unknown, ["/zone", "/macs"]);
    }

    #[test]
    fn a_write_only_secret_is_sent_when_its_version_changes() {
        let config = val(json!({"serial": "s", "password_wo": "hunter2", "password_wo_version": 2}));
        let mut planned = config.clone();
        planned.set("password_wo", V::Null);
        let sent = |prior: &V| declared(sample(), &planned, &config, prior).spec.get("password").cloned();
        assert_eq!(sent(&V::Null), Some(json!("hunter2")), "creation");
        assert_eq!(sent(&val(json!({"serial": "s", "password_wo_version": 1}))), Some(json!("hunter2")));
        assert_eq!(sent(&val(json!({"serial": "s", "password_wo_version": 2}))), None, "kept");
        assert_eq!(
            sent(&val(json!({"serial": "s", "password": "x", "password_wo_version": 2}))),
            Some(json!("hunter2"))
        );
    }

    #[test]
    fn a_secret_that_nothing_declares_any_more_is_cleared_and_one_that_nothing_declared_stays() {
        let planned = val(json!({"serial": "s"}));
        let sent = |prior: &V| declared(sample(), &planned, &planned, prior).spec.get("password").cloned();
        assert_eq!(sent(&V::Null), None, "there is none yet");
        assert_eq!(sent(&val(json!({"serial": "s", "password": "old"}))), Some(Value::Null));
        assert_eq!(sent(&val(json!({"serial": "s", "password_wo_version": 1}))), Some(Value::Null));
        assert_eq!(sent(&val(json!({"serial": "s"}))), None, "somebody else's");
    }

    #[test]
    fn an_object_becomes_a_state_of_the_schema() {
        let spec =
            json!({"serial": "s", "password": {"set": true, "revision": 1}, "parts": {"lid": {"weight": 3}}});
        let state = object(sample(), &stored(spec));
        assert_eq!(state.get("name"), &V::from("one"));
        assert_eq!(state.get("parts").get("lid").get("weight"), &V::from(3_i64));
        assert_eq!(state.get("status").get("address"), &V::from("10.0.0.1"));
        assert_eq!(state.get("status").get("temperature"), &V::Null, "volatile");
        assert_eq!(state.get("password"), &V::Null);
        assert_eq!(state.get("mac"), &V::Null);
    }

    #[test]
    fn what_means_the_same_stays_as_it_was_written() {
        let prior = val(
            json!({"name": "one", "serial": "s", "count_wanted": 3, "macs": ["52-54-00-AA-00-01"], "password": "x"}),
        );
        let spec = json!({"serial": "s", "enabled": true, "macs": ["52:54:00:aa:00:01"]});
        let mut now = object(sample(), &stored(spec.clone()));
        keep_equal(sample(), &prior, &spec, &mut now);
        assert_eq!(now.get("count_wanted"), &V::from(3_i64), "the default, and said");
        assert_eq!(now.get("macs"), prior.get("macs"));
        assert_eq!(now.get("password"), &V::from("x"));
        assert_eq!(now.get("enabled"), &V::from(true), "a change stays a change");
    }
}
