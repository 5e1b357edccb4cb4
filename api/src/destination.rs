//! Destinations of secrets: a stored secret does not follow a change of its destination.

use crate::diff::FieldChange;
use crate::pointer;
use crate::schema::{Field, Kind, Type};

/// The changed fields that decide where the secret at `pointer` is sent, as JSON pointers. Empty: the destination stays the same.
#[must_use]
pub fn redirections(kind: &Kind, pointer: &str, changes: &[FieldChange]) -> Vec<String> {
    let Some((parent, _)) = pointer.rsplit_once('/') else { return Vec::new() };
    let fields = secret(kind, pointer).and_then(|field| field.destination).unwrap_or_default();
    let deciding = fields.iter().map(|name| pointer::child(parent, name));
    let is_changed = |deciding: &String| {
        changes.iter().any(|change| {
            pointer::is_within(&change.pointer, deciding) || pointer::is_within(deciding, &change.pointer)
        })
    };
    deciding.filter(is_changed).collect()
}

/// The description of the secret at `pointer`.
fn secret(kind: &Kind, pointer: &str) -> Option<&'static Field> {
    let mut schema = kind.spec;
    let mut steps = pointer::steps(pointer);
    loop {
        let field = schema.field(&steps.next()?)?;
        let mut ty = &field.ty;
        while let Type::Map { value: item, .. } | Type::List(item) | Type::Set(item) = ty {
            steps.next()?;
            ty = item;
        }
        match ty {
            Type::Object(inner) => schema = inner,
            Type::Secret => return Some(field),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff;
    use serde_json::{Value, json};

    fn redirected(pointer: &str, old: Value, new: Value) -> Vec<String> {
        let sample = Kind::find("Sample").expect("a kind");
        redirections(sample, pointer, &diff(sample, &old, &new))
    }

    #[test]
    fn a_field_that_decides_where_a_secret_goes_is_named_when_it_changes() {
        let spec = json!({"serial": "s", "mac": "52:54:00:00:00:0a", "detail": {"label": "x"}});
        let with = |name: &str, value: Value| {
            let mut spec = spec.clone();
            spec[name] = value;
            redirected(
                "/password",
                json!({"serial": "s", "mac": "52:54:00:00:00:0a", "detail": {"label": "x"}}),
                spec,
            )
        };
        assert_eq!(with("mac", json!("52:54:00:00:00:0b")), ["/mac"]);
        assert_eq!(with("mac", Value::Null), ["/mac"], "it goes");
        assert_eq!(with("detail", json!({"label": "x", "size": 2})), ["/detail"], "a field in it is another");
        let nothing: [&str; 0] = [];
        assert_eq!(with("mac", json!("52-54-00-00-00-0A")), nothing, "the same, spelled otherwise");
        assert_eq!(with("enabled", json!(true)), nothing, "it decides nothing");
    }

    #[test]
    fn a_secret_in_a_map_goes_where_the_fields_of_its_own_item_say() {
        let parts = |lid: u64, box_: u64| json!({"serial": "s", "parts": {"lid": {"weight": 1, "height": lid}, "a/b": {"weight": 1, "height": box_}}});
        assert_eq!(redirected("/parts/lid/key", parts(1, 1), parts(2, 1)), ["/parts/lid/height"]);
        assert_eq!(redirected("/parts/a~1b/key", parts(1, 1), parts(1, 2)), ["/parts/a~1b/height"]);
        assert!(redirected("/parts/lid/key", parts(1, 1), parts(1, 2)).is_empty());
    }
}
