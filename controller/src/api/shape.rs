//! Reads bodies of a known shape. Errors name the place and the problem in words for people.

use basalt_api::wire::object;
use basalt_api::{FieldCode, FieldError, pointer};
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use serde_path_to_error::{Path, Segment, Track};

/// The beginnings of serde's errors about members, before the member's name in backquotes.
const OF_MEMBERS: [(&str, FieldCode, &str); 3] = [
    ("missing field ", FieldCode::Required, "it is missing"),
    ("unknown field ", FieldCode::UnknownField, "there is no such member here"),
    ("duplicate field ", FieldCode::Duplicate, "it stands twice"),
];

/// The beginnings of serde's errors about values.
const OF_VALUES: [&str; 3] = ["invalid type: ", "invalid value: ", "invalid length "];

/// Serde's words for values, with JSON's words.
const WORDS: [(&str, &str); 9] = [
    ("map", "an object"),
    ("a map", "an object"),
    ("sequence", "a list"),
    ("a sequence", "a list"),
    ("u16", "a whole number"),
    ("u32", "a whole number"),
    ("u64", "a whole number"),
    ("usize", "a whole number"),
    ("i64", "a whole number"),
];

/// Reads a JSON object of a known shape, and nothing after it.
///
/// # Errors
/// Fails if the text is not JSON or has another shape. The pointer is into the text.
pub(super) fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, Box<FieldError>> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let mut track = Track::new();
    object(serde_path_to_error::Deserializer::new(&mut json, &mut track))
        .map_err(|error| wrong(&track.path(), &error))
        .and_then(|value| json.end().map(|()| value).map_err(|error| no_json(&error)))
}

fn no_json(error: &serde_json::Error) -> Box<FieldError> {
    let message = format!("this is no JSON: {error}");
    Box::new(FieldError::new("", FieldCode::Format, message, "one JSON object (RFC 8259)"))
}

fn wrong(path: &Path, error: &serde_json::Error) -> Box<FieldError> {
    if error.classify() != Category::Data {
        return no_json(error);
    }
    let told = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let told = told.strip_suffix(place.as_str()).unwrap_or(&told);
    Box::new(member(path, told).unwrap_or_else(|| value(path, told)))
}

/// The error of a missing, unknown or repeated member.
fn member(path: &Path, told: &str) -> Option<FieldError> {
    let (rest, code, message) = OF_MEMBERS
        .iter()
        .find_map(|(start, code, message)| Some((told.strip_prefix(start)?, *code, *message)))?;
    let (name, rest) = rest.strip_prefix('`')?.split_once('`')?;
    let mut at = path_of(path);
    let last = format!("/{}", pointer::escape(name));
    if !at.ends_with(&last) {
        at.push_str(&last);
    }
    let known = rest.strip_prefix(", expected ").unwrap_or_default().replace('`', "");
    Some(FieldError::new(at, code, format!("{name:?}: {message}"), known))
}

fn value(path: &Path, told: &str) -> FieldError {
    let of_value = OF_VALUES.iter().find_map(|start| told.strip_prefix(start));
    match of_value.and_then(|rest| rest.split_once(", expected ")) {
        Some((is, wanted)) => {
            let (is, wanted) = (in_json(&is.replace('`', "")), in_json(&wanted.replace('`', "")));
            FieldError::new(path_of(path), FieldCode::Type, format!("this is {is}, and must be {wanted}"), "")
        }
        None => FieldError::new(path_of(path), FieldCode::Format, told, ""),
    }
}

fn in_json(word: &str) -> String {
    let known = WORDS.iter().find(|(serde, _)| *serde == word);
    known.map_or_else(|| word.to_owned(), |(_, json)| (*json).to_owned())
}

fn path_of(path: &Path) -> String {
    path.iter().fold(String::new(), |mut at, segment| {
        match segment {
            Segment::Seq { index } => at.push_str(&format!("/{index}")),
            Segment::Map { key } => at.push_str(&format!("/{}", pointer::escape(key))),
            Segment::Enum { .. } | Segment::Unknown => {}
        }
        at
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_api::wire::{ApplyRequest, PasswordRequest, PutRequest};

    fn told<T: DeserializeOwned>(text: &str) -> String {
        let error = read::<T>(text.as_bytes()).err().expect("it has not the shape");
        let hint = error.hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
        format!("{} {:?}: {}{hint}", error.pointer, error.code, error.message)
    }

    #[test]
    fn a_wrong_body_is_told_where_it_is_wrong() {
        let put = told::<PutRequest>;
        assert_eq!(put(r#"{"metadata":{}}"#), r#"/spec Required: "spec": it is missing"#);
        assert_eq!(
            put(r#"{"spec":{},"spce":{}}"#),
            r#"/spce UnknownField: "spce": there is no such member here (one of kind, metadata, spec, status)"#
        );
        assert_eq!(put(r#"{"spec":{},"spec":{}}"#), r#"/spec Duplicate: "spec": it stands twice"#);
        assert_eq!(put(r#"{"kind":7,"spec":{}}"#), "/kind Type: this is integer 7, and must be a string");
        assert_eq!(
            put(r#"{"metadata":{"labels":{"a/b":[1]}},"spec":{}}"#),
            "/metadata/labels/a~1b Type: this is a list, and must be a string"
        );
        assert_eq!(
            put(r#"{"metadata":{"labels":{"a":"1","a":"2"}},"spec":{}}"#),
            r#"/metadata/labels Format: the label "a" stands twice"#
        );
        assert_eq!(
            told::<ApplyRequest>(r#"{"documents":{}}"#),
            "/documents Type: this is an object, and must be a list"
        );
        assert_eq!(told::<PasswordRequest>("[\"a\",\"b\"]"), " Type: this is a list, and must be an object");
    }

    #[test]
    fn what_is_no_json_is_told_by_line_and_column() {
        for (text, message) in [
            ("", "this is no JSON: EOF while parsing a value at line 1 column 0"),
            ("{\"spec\":\n{]}", "this is no JSON: key must be a string at line 2 column 2"),
            ("{\"spec\":{}} x", "this is no JSON: trailing characters at line 1 column 13"),
        ] {
            let error = read::<PutRequest>(text.as_bytes()).unwrap_err();
            assert_eq!(
                (error.pointer.as_str(), error.code, error.message.as_str()),
                ("", FieldCode::Format, message)
            );
        }
    }
}
