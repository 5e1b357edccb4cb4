//! Reads headers and bodies of writes, and checks them before any other code does.

use super::problem::{Answer, Refusal};
use super::shape;
use axum::body::Bytes;
use axum::http::{HeaderMap, header};
use basalt_api::routes::BODY_BYTES;
use basalt_api::values::{Generation, Name, Uid};
use basalt_api::wire::{MANAGER_HEADER, PutMetadata, object};
use basalt_api::{FieldCode, FieldError, Kind, ProblemCode};
use basalt_db::splice::{SpliceError, Text};
use basalt_db::{Key, Precondition};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The longest name of a manager, in bytes.
const MANAGER_BYTES: usize = 63;

/// The kind in a path.
pub(super) fn kind(plural: &str) -> Answer<&'static Kind> {
    basalt_api::KINDS.iter().copied().find(|k| k.plural == plural).ok_or_else(|| {
        let plurals: Vec<&str> = basalt_api::KINDS.iter().map(|k| k.plural).collect();
        let detail = format!("there is no kind {plural:?}; the kinds are {}", plurals.join(", "));
        Refusal::new(ProblemCode::NoSuchPath, detail)
    })
}

/// The key of an object, from `NAME` or `uid:…`.
pub(super) fn key<'a>(kind: &Kind, name: &'a str) -> Answer<Key<'a>> {
    match name.strip_prefix("uid:") {
        Some(uid) => match uid.parse::<Uid>() {
            Ok(uid) => Ok(Key::Uid(uid)),
            Err(bad) => Err(Refusal::invalid(vec![FieldError::format("/metadata/uid", bad)])),
        },
        None => {
            check_name(kind, name)?;
            Ok(Key::Name(name))
        }
    }
}

/// Checks that an object of the kind can have this name.
pub(super) fn check_name(kind: &Kind, name: &str) -> Answer<()> {
    let bad = |bad| Refusal::invalid(vec![FieldError::format("/metadata/name", bad)]);
    kind.naming.check(name).map_err(bad)
}

/// The condition in `If-Match` or `If-None-Match`.
pub(super) fn precondition(headers: &HeaderMap) -> Answer<Precondition> {
    let text =
        |name: header::HeaderName| headers.get(&name).map(|v| v.to_str().unwrap_or("?").trim().to_owned());
    let bad = |value: &str, hint: &str| {
        Refusal::field("", FieldCode::Format, format!("the precondition {value:?} is not understood"), hint)
    };
    match (text(header::IF_MATCH), text(header::IF_NONE_MATCH)) {
        (None, None) => Ok(Precondition::None),
        (None, Some(any)) if any == "*" => Ok(Precondition::Absent),
        (Some(any), None) if any == "*" => Ok(Precondition::Present),
        (Some(tag), None) => {
            let number = tag.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(&tag);
            let number =
                number.parse().map_err(|_| bad(&tag, "If-Match: \"GENERATION\", as in the answer's ETag"))?;
            Ok(Precondition::Generation(Generation::new(number)))
        }
        (None, Some(other)) => Err(bad(&other, "If-None-Match: *")),
        (Some(_), Some(other)) => Err(bad(&other, "either If-Match or If-None-Match")),
    }
}

/// The manager that writes, from its header.
pub(super) fn manager(headers: &HeaderMap) -> Answer<Option<String>> {
    let Some(value) = headers.get(MANAGER_HEADER) else { return Ok(None) };
    let manager = value.to_str().unwrap_or_default();
    check_manager(manager)?;
    Ok(Some(manager.to_owned()))
}

/// Checks the name of a manager.
pub(super) fn check_manager(name: &str) -> Answer<()> {
    if (1..=MANAGER_BYTES).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic()) {
        return Ok(());
    }
    let message = format!("{name:?} is not the name of a tool that manages objects");
    Err(Refusal::field("", FieldCode::Format, message, "1 to 63 letters, digits and signs: terraform"))
}

/// The body of a PUT. The answer of a GET is valid as such a body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    kind: Option<String>,
    #[serde(default, deserialize_with = "object")]
    metadata: PutMetadata,
    spec: Box<RawValue>,
    #[serde(default, rename = "status")]
    _status: IgnoredAny,
}

/// A spec that is valid by itself.
pub(super) struct Written {
    pub(super) text: Text,
    pub(super) value: Value,
    pub(super) metadata: PutMetadata,
}

/// A JSON object of a known shape.
pub(super) fn json<T: DeserializeOwned>(body: &Bytes) -> Answer<T> {
    shape::read(body).map_err(|error| Refusal::invalid(vec![*error]))
}

/// Reads a PUT's body, and makes every check that needs nothing else.
pub(super) fn written(kind: &'static Kind, name: Option<&str>, body: &Bytes) -> Answer<Written> {
    let body: Body = json(body)?;
    let mut errors = Vec::new();
    if let Some(other) = body.kind.filter(|k| k != kind.name) {
        let message = format!("the body is a {other}, and the path is of {}", kind.plural);
        errors.push(FieldError::new("/kind", FieldCode::Rule, message, format!("write {:?}", kind.name)));
    }
    if let (Some(given), Some(name)) = (&body.metadata.name, name)
        && given.as_str() != name
    {
        let message = format!("the body names {:?}, and the path {name:?}", given.as_str());
        let hint = format!("POST /api/v1/{}/{name}/rename renames", kind.plural);
        errors.push(FieldError::new("/metadata/name", FieldCode::Rule, message, hint));
    }
    errors.extend(wrong_labels(body.metadata.labels.as_ref()));
    let spec = spec(kind, name, &body.spec);
    errors.extend(spec.as_ref().err().into_iter().flatten().cloned());
    match spec {
        Ok((text, value)) if errors.is_empty() => Ok(Written { text, value, metadata: body.metadata }),
        _ => Err(Refusal::invalid(errors)),
    }
}

/// A spec that is valid by itself. Errors have pointers into the request around it: `/spec/…`.
pub(super) fn spec(
    kind: &'static Kind,
    name: Option<&str>,
    raw: &RawValue,
) -> Result<(Text, Value), Vec<FieldError>> {
    let bytes = raw.get().len();
    if bytes > BODY_BYTES {
        let message = format!("the spec has {bytes} bytes");
        return Err(vec![FieldError::new(
            "/spec",
            FieldCode::TooLarge,
            message,
            format!("at most {BODY_BYTES}"),
        )]);
    }
    let text = Text::received(raw.get()).map_err(|error| {
        let pointer = match &error {
            SpliceError::Duplicate(pointer)
            | SpliceError::TooDeep(pointer)
            | SpliceError::TooLong(pointer) => format!("/spec{pointer}"),
            SpliceError::Syntax(_) => "/spec".to_owned(),
        };
        let (code, hint) = match error {
            SpliceError::TooDeep(_) => (FieldCode::TooLarge, "say each thing once"),
            SpliceError::TooLong(_) => (FieldCode::TooLarge, "shorten the names, or nest less"),
            _ => (FieldCode::Duplicate, "say each thing once"),
        };
        vec![FieldError::new(pointer, code, format!("in the spec, {error}"), hint)]
    })?;
    let value: Value = serde_json::from_str(text.as_str()).map_err(|error| {
        let message = format!("the spec cannot be read: {error}");
        vec![FieldError::new("/spec", FieldCode::Format, message, "")]
    })?;
    let mut errors: Vec<_> =
        basalt_api::validate(kind, &value).into_iter().map(|error| error.below("/spec")).collect();
    if let Some(name) = name.filter(|_| errors.is_empty()) {
        errors.extend(vlan_name(kind, name, &value));
    }
    if errors.is_empty() { Ok((text, value)) } else { Err(errors) }
}

/// The errors of the labels of a body or document.
pub(super) fn wrong_labels(labels: Option<&BTreeMap<String, String>>) -> Vec<FieldError> {
    let wrong = labels.map(basalt_api::validate_labels).unwrap_or_default();
    wrong.into_iter().map(|error| error.below("/metadata/labels")).collect()
}

/// The error of a VLAN whose name does not have its fabric and number.
fn vlan_name(kind: &Kind, name: &str, spec: &Value) -> Option<FieldError> {
    if kind.name != "Vlan" {
        return None;
    }
    let fabric: Name = spec.get("fabric")?.as_str()?.parse().ok()?;
    let right = Name::of_vlan(&fabric, u16::try_from(spec.get("vid")?.as_u64()?).ok()?);
    (right.as_str() != name).then(|| {
        let message = format!("the VLAN is called {name:?}, which is not its fabric and number");
        FieldError::new("/metadata/name", FieldCode::Rule, message, format!("call it {right}"))
    })
}
