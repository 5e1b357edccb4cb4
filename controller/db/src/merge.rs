//! JSON merge patch (RFC 7396) on a text. Values that the patch does not name keep every byte.

use crate::splice::{SpliceError, Text};
use serde_json::{Map, Value};
use std::ops::Range;

/// Applies `patch` to an object. A null removes its member, unless `stays(pointer)`: then the member becomes null.
///
/// # Errors
/// Fails if the text is not JSON.
pub fn merge(
    text: &Text,
    patch: &Map<String, Value>,
    stays: &dyn Fn(&str) -> bool,
) -> Result<Text, SpliceError> {
    let before: Value = serde_json::from_str(text.as_str()).map_err(|_| SpliceError::Syntax(0))?;
    let mut edits = Edits { text, stays, found: Vec::new() };
    if let Value::Object(before) = &before {
        edits.object("", before, patch).ok_or(SpliceError::Syntax(0))?;
    }
    let mut found = edits.found;
    found.sort_by_key(|(range, _)| (range.start, range.end));
    let (mut merged, mut at) = (String::with_capacity(text.as_str().len()), 0);
    for (range, new) in found {
        merged.push_str(text.as_str().get(at..range.start).unwrap_or_default());
        merged.push_str(&new);
        at = range.end;
    }
    merged.push_str(text.as_str().get(at..).unwrap_or_default());
    Text::parse(merged)
}

/// The edits of a text: each replaces a range of bytes.
struct Edits<'a> {
    text: &'a Text,
    stays: &'a dyn Fn(&str) -> bool,
    found: Vec<(Range<usize>, String)>,
}

/// The position of a member: from its name to its value's end.
#[derive(Clone, Copy)]
struct Member {
    start: usize,
    value: usize,
    end: usize,
}

impl Edits<'_> {
    /// Patches one object of the text. `None`: the text is not the one that was parsed.
    fn object(
        &mut self,
        pointer: &str,
        before: &Map<String, Value>,
        patch: &Map<String, Value>,
    ) -> Option<()> {
        let inside = self.text.span(pointer)?.start.checked_add(1)?;
        let mut members: Vec<Member> = Vec::with_capacity(before.len());
        let below = |key: &str| format!("{pointer}/{}", basalt_api::pointer::escape(key));
        for key in before.keys() {
            let value = self.text.span(&below(key))?;
            let from = members.last().map_or(inside, |member| member.end);
            let name = self.text.as_str().get(from..value.start)?.find('"')?;
            members.push(Member { start: from.checked_add(name)?, value: value.start, end: value.end });
        }
        let mut last_kept: Option<Member> = None;
        for (at, (key, old)) in before.iter().enumerate() {
            let member = *members.get(at)?;
            let pointer = below(key);
            match (patch.get(key), old) {
                (Some(Value::Null), _) if !(self.stays)(&pointer) => {
                    let range = match (last_kept, members.get(at.wrapping_sub(1)), members.get(at + 1)) {
                        (Some(_), Some(previous), _) => previous.end..member.end,
                        (_, _, Some(next)) => member.start..next.start,
                        _ => member.start..member.end,
                    };
                    self.found.push((range, String::new()));
                    continue;
                }
                (Some(Value::Object(patch)), Value::Object(old)) => self.object(&pointer, old, patch)?,
                (Some(new), old) => {
                    let new = without_nulls(new);
                    if new != *old {
                        self.found.push((member.value..member.end, new.to_string()));
                    }
                }
                (None, _) => {}
            }
            last_kept = Some(member);
        }
        let added = patch.iter().filter(|(key, new)| !before.contains_key(*key) && !new.is_null());
        let added: Vec<_> =
            added.map(|(key, new)| format!("{}:{}", Value::from(key.as_str()), without_nulls(new))).collect();
        if !added.is_empty() {
            let (at, comma) = last_kept.map_or((inside, ""), |member| (member.end, ","));
            self.found.push((at..at, format!("{comma}{}", added.join(","))));
        }
        Some(())
    }
}

/// The value of a patch in place of one that was no object (RFC 7396 §2): members with null are left out.
fn without_nulls(new: &Value) -> Value {
    match new {
        Value::Object(map) => {
            let there = map.iter().filter(|(_, value)| !value.is_null());
            Value::Object(there.map(|(key, value)| (key.clone(), without_nulls(value))).collect())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn merged(text: &str, patch: &Value) -> String {
        let text = Text::parse(text).unwrap();
        merge(&text, patch.as_object().unwrap(), &|_| false).unwrap().as_str().to_owned()
    }

    #[test]
    fn what_the_patch_does_not_name_keeps_every_byte() {
        let text = "{ \"a\" :1.50,\n  \"b\": {\"c\" : \"r\\u00e4ck\", \"d\":[1,  2]},\n  \"e\": null }";
        let patched = merged(text, &json!({"b": {"d": [3]}, "e": true}));
        assert_eq!(patched, text.replace("[1,  2]", "[3]").replace("null", "true"));
        assert_eq!(
            merged(text, &json!({"a": 1.5, "b": {"c": "räck"}})),
            text,
            "equal values are left as they stand"
        );
    }

    #[test]
    fn members_go_with_the_comma_that_is_theirs() {
        let text = r#"{ "a": 1, "b": 2, "c": 3 }"#;
        for (patch, wanted) in [
            (json!({"a": null}), r#"{ "b": 2, "c": 3 }"#),
            (json!({"b": null}), r#"{ "a": 1, "c": 3 }"#),
            (json!({"c": null}), r#"{ "a": 1, "b": 2 }"#),
            (json!({"a": null, "b": null}), r#"{ "c": 3 }"#),
            (json!({"b": null, "c": null, "d": 4}), r#"{ "a": 1,"d":4 }"#),
            (json!({"a": null, "b": null, "c": null}), "{  }"),
            (json!({"a": null, "b": null, "c": null, "d": {"e": null, "f": 1}}), r#"{"d":{"f":1}  }"#),
            (json!({"x": null}), text),
        ] {
            assert_eq!(merged(text, &patch), wanted, "{patch}");
        }
        assert_eq!(
            merged(r#"{"a/b": 1, "~": 2}"#, &json!({"~": null, "a/b": {"x": 1}})),
            r#"{"a/b": {"x":1}}"#
        );
    }

    /// The pseudocode of RFC 7396 §2, literally.
    fn by_the_book(target: &Value, patch: &Value) -> Value {
        let Value::Object(patch) = patch else { return patch.clone() };
        let mut target = target.as_object().cloned().unwrap_or_default();
        for (name, value) in patch {
            match value {
                Value::Null => drop(target.shift_remove(name)),
                value => {
                    let merged = by_the_book(target.get(name).unwrap_or(&Value::Null), value);
                    target.insert(name.clone(), merged);
                }
            }
        }
        Value::Object(target)
    }

    #[test]
    fn the_result_is_that_of_the_rfc_for_every_pair_of_small_objects() {
        let leaves =
            [json!(null), json!(1), json!([null, 1]), json!({}), json!({"x": null}), json!({"x": 2, "y": 3})];
        let mut objects = vec![json!({})];
        for a in &leaves {
            objects.push(json!({"a": a}));
            for b in &leaves {
                objects.push(json!({"b": b, "a": a}));
                objects.push(json!({"a": {"k": a}, "c": b}));
            }
        }
        for target in &objects {
            for patch in &objects {
                let text = serde_json::to_string_pretty(target).unwrap();
                let result: Value = serde_json::from_str(&merged(&text, patch)).unwrap();
                assert_eq!(result, by_the_book(target, patch), "{target} patched by {patch}");
            }
        }
    }

    #[test]
    fn a_null_that_stays_is_written() {
        let text = Text::parse(r#"{"password": {"set": true}, "user": "a"}"#).unwrap();
        let patch = json!({"password": null, "user": null});
        let merged = merge(&text, patch.as_object().unwrap(), &|pointer| pointer == "/password").unwrap();
        assert_eq!(merged.as_str(), r#"{"password": null}"#);
    }
}
