//! Finds the fields of a spec that nothing acts on yet. Fields and whole kinds are marked in their declaration (`#[field(dormant = "…")]`,
//! `#[dormant = "…"]`); documentation, advisories and conditions use the marks.

use crate::diff::{equal_values, present};
#[cfg(feature = "comments")]
use crate::kinds::script_comment;
use crate::kinds::{KINDS, user_data};
use crate::pointer;
use crate::problem::{FieldCode, FieldError};
use crate::schema::{Field, Kind, Presence, Schema, Type};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// A kind with a field that is dormant for some values only.
const DEPLOYMENT: &str = "Deployment";
const USER_DATA: &str = "user_data";
/// A kind whose content may hold a comment with metadata.
#[cfg(feature = "comments")]
const SCRIPT: &str = "Script";

/// The fields of `spec` that nothing acts on yet, in the order of the description. Only declared fields count, and only if their value
/// differs from that of an absent field. For a dormant kind it is the whole spec. Pointers are into the spec; the messages show no values.
#[must_use]
pub fn dormant(kind: &Kind, spec: &Value) -> Vec<FieldError> {
    if let Some(because) = kind.dormant {
        let message = format!("{} is not acted on yet: {because}", kind.name);
        return vec![FieldError::new("", FieldCode::Dormant, message, "")];
    }
    let mut found = Vec::new();
    if let Value::Object(map) = spec {
        fields(kind.spec, map, "", &mut found);
    }
    if let (true, Some(data)) = (kind.name == DEPLOYMENT, spec.get(USER_DATA).and_then(Value::as_str))
        && let Some(because) = user_data::idle(data)
    {
        found.push(FieldError::new(pointer::child("", USER_DATA), FieldCode::Dormant, because, ""));
    }
    #[cfg(feature = "comments")]
    if kind.name == SCRIPT {
        let told = script_comment::untold(spec).into_iter();
        found.extend(
            told.map(|(message, hint)| FieldError::new("/content", FieldCode::Dormant, message, hint)),
        );
    }
    found
}

/// False if this text of a spec certainly has no dormant field. A quick check, which may be true in doubt.
#[must_use]
pub fn may_be_dormant(kind: &Kind, spec: &str) -> bool {
    static WORDS: LazyLock<BTreeMap<&'static str, BTreeSet<String>>> = LazyLock::new(|| {
        let of = |kind: &Kind| {
            let mut words = BTreeSet::new();
            quoted(&Type::Object(kind.spec), &mut words);
            if kind.name == DEPLOYMENT {
                words.insert(format!("{USER_DATA:?}"));
            }
            words
        };
        KINDS.iter().map(|kind| (kind.name, of(kind))).collect()
    });
    if kind.dormant.is_some() {
        return true;
    }
    #[cfg(feature = "comments")]
    if kind.name == SCRIPT && spec.contains(script_comment::MARK) {
        return true;
    }
    let Some(words) = WORDS.get(kind.name).filter(|words| !words.is_empty()) else { return false };
    // The JSON may spell letters as `\u` escapes.
    spec.contains("\\u") || words.iter().any(|word| spec.contains(word.as_str()))
}

/// Collects the quoted names of dormant fields and the quoted dormant words of enums.
fn quoted(ty: &Type, words: &mut BTreeSet<String>) {
    match ty {
        Type::Object(schema) => {
            for field in schema.fields {
                let named = field.dormant.iter().map(|it| it.word.unwrap_or(field.name));
                words.extend(named.map(|word| format!("\"{word}\"")));
                quoted(&field.ty, words);
            }
        }
        Type::Map { value: item, .. } => quoted(item, words),
        _ => {}
    }
}

fn fields(schema: &Schema, map: &Map<String, Value>, at: &str, found: &mut Vec<FieldError>) {
    for field in schema.fields {
        let Some(value) = map.get(field.name).filter(|value| !value.is_null()) else { continue };
        let here = pointer::child(at, field.name);
        match field.dormant.iter().find(|it| it.word.is_none_or(|word| value == word)) {
            Some(it) if differs(field, value) => {
                let message = match it.word {
                    None => format!("{:?} is not acted on yet: {}", field.name, it.because),
                    Some(word) => format!("{} {word:?} is not acted on yet: {}", field.name, it.because),
                };
                found.push(FieldError::new(here, FieldCode::Dormant, message, ""));
            }
            _ => below(&field.ty, value, &here, found),
        }
    }
}

fn below(ty: &Type, value: &Value, at: &str, found: &mut Vec<FieldError>) {
    match (ty, value) {
        (Type::Object(schema), Value::Object(map)) => fields(schema, map, at, found),
        (Type::Map { value: item, .. }, Value::Object(map)) => {
            map.iter().for_each(|(key, value)| below(item, value, &pointer::child(at, key), found));
        }
        _ => {}
    }
}

/// True if `value` differs from the value of an absent field.
fn differs(field: &Field, value: &Value) -> bool {
    match field.presence {
        Presence::Default(_) => {
            present(field, &Map::new()).is_none_or(|default| !equal_values(&field.ty, &default, value))
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(kind: &str, spec: &Value) -> Vec<String> {
        let kind = Kind::find(kind).unwrap();
        let some = dormant(kind, spec);
        assert!(some.is_empty() || may_be_dormant(kind, &spec.to_string()));
        dormant(kind, spec).iter().map(|it| format!("{}: {it}", it.pointer)).collect()
    }

    #[test]
    fn a_field_a_word_and_an_entry_of_a_map_are_told_with_their_reasons() {
        let spec = json!({"serial": "1", "network": "10.0.0.0/8", "colour": "dark_green",
            "parts": {"a": {"weight": 1, "height": 2}, "b": {"weight": 1}}});
        assert_eq!(
            found("Sample", &spec),
            [
                r#"/network: "network" is not acted on yet: no packet leaves"#,
                r#"/colour: colour "dark_green" is not acted on yet: nobody can see it"#,
                r#"/parts/a/height: "height" is not acted on yet: nothing is stacked"#,
            ]
        );
    }

    #[test]
    fn what_absence_stands_for_anyway_is_nothing_to_tell() {
        let spec = json!({"serial": "1", "network": null, "colour": "red",
            "parts": {"a": {"weight": 1, "height": null}}});
        assert_eq!(found("Sample", &spec), [""; 0]);
        assert_eq!(found("Settings", &json!({"erase": "quick"})), [""; 0]);
        assert_eq!(
            found("Settings", &json!({"erase": "full"})),
            [r#"/erase: "erase" is not acted on yet: each deployment says it, or is erased quickly"#]
        );
    }

    #[test]
    fn user_data_that_cloud_init_would_ignore_are_told_and_not_repeated() {
        let of = |data: &str| found("Deployment", &json!({"image": "debian", "user_data": data}));
        assert_eq!(of("#cloud-config\n"), [""; 0]);
        let told = of("hello");
        assert!(told[0].starts_with("/user_data: cloud-init does nothing with"), "{told:?}");
        assert!(told.len() == 1 && !told[0].contains("hello"), "{told:?}");
    }

    #[test]
    fn a_text_that_names_nothing_of_the_sort_need_not_be_read() {
        let machine = Kind::find("Machine").unwrap();
        assert!(!may_be_dormant(machine, r#"{"zone":"row-1","description":"an observed one"}"#));
        assert!(may_be_dormant(machine, r#"{"ownership":{"os":"observed"}}"#));
        assert!(may_be_dormant(machine, r#"{"boot\u005forder":"disk_first"}"#));
        assert!(!may_be_dormant(Kind::find("Zone").unwrap(), "{}"));
    }

    #[test]
    fn all_that_a_kind_on_which_nothing_acts_declares_is_told_once() {
        let told = [": SshKey is not acted on yet: machines get the keys that their deployment spells out"];
        assert_eq!(found("SshKey", &json!({"key": "ssh-ed25519 …", "user": ["x"]})), told);
        assert_eq!(found("SshKey", &json!({})), told);
    }

    #[test]
    fn the_documentation_of_a_field_and_of_a_kind_says_so_too() {
        let doc = |kind: &str, field: &str| Kind::find(kind).unwrap().spec.field(field).unwrap().doc;
        assert!(
            doc("Machine", "boot_order")
                .ends_with("Not acted on yet: its BMC is asked for one network boot whenever one is needed.")
        );
        assert_eq!(doc("Sample", "colour"), "A word. `dark_green` is not acted on yet: nobody can see it.");
        let whole = "Stored alone, and not acted on yet: nothing is fetched from sources.";
        assert!(Kind::find("ImageSource").unwrap().doc.ends_with(whole));
    }
}
