//! Renders objects for answers. The spec is the exact text that was declared.

use super::problem::{Answer, Refusal};
use super::waiting::WaitsFor;
use crate::driver::{RECONCILED, unread};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use basalt_api::kinds::{Axes, Condition, ConditionStatus, phase};
use basalt_api::values::{Generation, Timestamp, Uid};
use basalt_api::wire::Layer;
use basalt_api::{Kind, ProblemCode};
use basalt_db::{Issued, Object};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// [`basalt_api::Object`], with the spec as text.
#[derive(Debug, Serialize)]
pub(super) struct Rendered {
    kind: String,
    metadata: Metadata,
    spec: Box<RawValue>,
    status: Status,
}

/// The members of an object's status. Members that do not change stay as stored texts.
#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Status(BTreeMap<String, Box<RawValue>>);

impl Status {
    fn of(object: &Object) -> Answer<Self> {
        let members = serde_json::from_str(object.status.get());
        members.map(Self).map_err(|error| internal("the stored status is no object", &error))
    }

    fn say(&mut self, name: &str, value: &impl Serialize) -> Answer<()> {
        let text = to_raw_value(value).map_err(|error| internal("a status is no JSON", &error))?;
        self.0.insert(name.to_owned(), text);
        Ok(())
    }
}

fn internal(what: &str, error: &serde_json::Error) -> Refusal {
    Refusal::new(ProblemCode::Internal, format!("{what}: {error}"))
}

/// [`basalt_api::Metadata`], whose names may be older than the present rules for names.
#[derive(Debug, Serialize)]
struct Metadata {
    name: String,
    uid: Uid,
    #[serde(skip_serializing_if = "Option::is_none")]
    manager: Option<String>,
    labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    layers: Option<BTreeMap<String, Layer>>,
    generation: Generation,
    created_at: Timestamp,
    updated_at: Timestamp,
    deletion_requested_at: Option<Timestamp>,
}

/// Renders an object. While it is being deleted, its conditions name the objects that it waits for.
pub(super) fn render(object: Object, waits_for: &WaitsFor) -> Answer<Rendered> {
    let mut status = Status::of(&object)?;
    status.say("observed_generation", &object.observed_generation)?;
    if let Some(effective) = effective(&object) {
        status.say("effective", &effective)?;
    }
    // The driver's own conditions of a deletion are shown once no object refers to the deleted one any more.
    if let Some(since) = object.deletion_requested_at
        && (!waits_for.is_nobody() || !Kind::is_planned(&object.kind))
    {
        status.say("conditions", &deleting(since, waits_for))?;
    } else if let Some(why) = unread::why(&object.kind, object.spec.get()) {
        status.say("conditions", &unreadable(&why, object.updated_at))?;
    }
    tell_dormant(&object.kind, object.spec.get(), &mut status)?;
    if status.0.contains_key("lifecycle")
        && let Ok(axes) = serde_json::from_str::<Axes>(object.status.get())
    {
        status.say("phase", &phase(&axes))?;
    }
    Ok(Rendered {
        kind: object.kind,
        metadata: Metadata {
            name: object.name,
            uid: object.uid,
            manager: object.manager,
            labels: object.labels,
            layers: None,
            generation: object.generation,
            created_at: object.created_at,
            updated_at: object.updated_at,
            deletion_requested_at: object.deletion_requested_at,
        },
        spec: object.spec,
        status,
    })
}

/// The spec with its defaults filled in. It is computed at each read, from the spec and this version's descriptions. `None` if the
/// spec cannot be read.
fn effective(object: &Object) -> Option<Map<String, Value>> {
    let kind = Kind::find(&object.kind)?;
    let effective = basalt_api::effective(kind, &mut serde_json::Deserializer::from_str(object.spec.get()));
    effective.ok()
}

/// The first status of a new object, with its conditions.
pub(crate) fn first_status(kind: &str, now: Timestamp) -> Value {
    let condition = |kind: &str, status, reason: &str, message: &str| Condition {
        kind: kind.to_owned(),
        status,
        reason: reason.to_owned(),
        message: message.to_owned(),
        since: now,
        deadline: None,
    };
    let done = (ConditionStatus::True, ConditionStatus::False);
    let ((ready, progressing), message) = if RECONCILED.contains(&kind) {
        ((ConditionStatus::False, ConditionStatus::True), "Stored; nothing has been done about it yet.")
    } else {
        (done, "Stored; there is nothing to do for it.")
    };
    let reason = "Stored";
    json!({"conditions": [
        condition(Condition::READY, ready, reason, message),
        condition(Condition::PROGRESSING, progressing, reason, message),
        condition(Condition::STALLED, ConditionStatus::False, reason, "Nothing is wrong."),
    ]})
}

/// Adds the declared fields without effect yet to the condition Ready. It is computed at each read: a stored message would be wrong once
/// a later version implements the field.
fn tell_dormant(kind: &str, spec: &str, status: &mut Status) -> Answer<()> {
    let Some(kind) = Kind::find(kind).filter(|kind| basalt_api::may_be_dormant(kind, spec)) else {
        return Ok(());
    };
    let Ok(spec) = serde_json::from_str::<Value>(spec) else { return Ok(()) };
    let dormant = basalt_api::dormant(kind, &spec);
    let stored = status.0.get("conditions").and_then(|text| serde_json::from_str(text.get()).ok());
    let mut conditions: Vec<Value> = stored.unwrap_or_default();
    let ready = conditions.iter_mut().find(|it| it.get("type").is_some_and(|it| it == Condition::READY));
    if let (false, Some(Value::String(message))) =
        (dormant.is_empty(), ready.and_then(|it| it.get_mut("message")))
    {
        let stop = if message.ends_with('.') { "" } else { "." };
        let words: Vec<String> = dormant.iter().map(|it| format!("{}: {it}", it.pointer)).collect();
        let told = match kind.dormant {
            Some(because) => format!("Nothing acts on it yet: {because}"),
            None => format!("Of what is declared, this is stored alone: {}", words.join("; ")),
        };
        message.push_str(&format!("{stop} {told}."));
        status.say("conditions", &conditions)?;
    }
    Ok(())
}

fn unreadable(why: &str, since: Timestamp) -> Vec<Condition> {
    let message = format!(
        "The region cannot read it: {why}. Whatever needs it waits, or goes on without it. \
         To do: declare it anew, as this version of the region reads it."
    );
    let condition = |kind: &str, holds| Condition {
        kind: kind.to_owned(),
        status: if holds { ConditionStatus::True } else { ConditionStatus::False },
        reason: "CannotBeRead".to_owned(),
        message: message.clone(),
        since,
        deadline: None,
    };
    vec![
        condition(Condition::READY, false),
        condition(Condition::PROGRESSING, false),
        condition(Condition::STALLED, true),
    ]
}

fn deleting(since: Timestamp, waits_for: &WaitsFor) -> Vec<Condition> {
    let who = waits_for.in_words(|r| format!("{} {:?} ({})", r.kind, r.name, r.pointer));
    let message = match &who {
        None => "It is being deleted.".to_owned(),
        Some(who) => format!("It is being deleted, and stays while others refer to it: {who}."),
    };
    let condition = |kind: &str, status| Condition {
        kind: kind.to_owned(),
        status,
        reason: if who.is_none() { "Deleting".to_owned() } else { "Referenced".to_owned() },
        message: message.clone(),
        since,
        deadline: None,
    };
    vec![
        condition(Condition::READY, ConditionStatus::False),
        condition(Condition::PROGRESSING, ConditionStatus::True),
        condition(Condition::STALLED, ConditionStatus::False),
    ]
}

impl Rendered {
    pub(super) fn name(&self) -> &str {
        &self.metadata.name
    }

    pub(super) const fn uid(&self) -> Uid {
        self.metadata.uid
    }

    /// Adds the time of issue and of the last use of a token.
    pub(super) fn issued(mut self, issued: &Issued) -> Answer<Self> {
        self.status.say("issued_at", &issued.at)?;
        self.status.say("last_used", &issued.last_used)?;
        Ok(self)
    }

    /// Adds the object's layers, taken from the layers of a list's objects.
    pub(super) fn layered(mut self, layers: &mut BTreeMap<Uid, BTreeMap<String, Layer>>) -> Self {
        self.metadata.layers = Some(layers.remove(&self.metadata.uid).unwrap_or_default());
        self
    }

    /// The whole object as a JSON text.
    pub(super) fn text(&self) -> Answer<String> {
        serde_json::to_string(self).map_err(|error| internal("the object is no JSON", &error))
    }

    /// The answer, with the generation as its ETag.
    pub(super) fn answer(&self, status: StatusCode) -> Response {
        let tag = format!("\"{}\"", self.metadata.generation);
        let mut response = (status, axum::Json(self)).into_response();
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            response.headers_mut().insert(header::ETAG, tag);
        }
        response
    }

    /// Only these members, like `metadata.name,status.conditions`. Members that do not exist are left out.
    pub(super) fn only(&self, fields: &str) -> Answer<Value> {
        let whole = serde_json::to_value(self).map_err(|error| {
            Refusal::new(ProblemCode::Internal, format!("the object is no JSON: {error}"))
        })?;
        Ok(sparse(&whole, fields))
    }
}

/// The same for an object that is already JSON.
pub(super) fn sparse(whole: &Value, fields: &str) -> Value {
    let mut sparse = Value::Object(Map::new());
    for path in fields.split(',').filter(|p| !p.is_empty()) {
        copy(whole, &mut sparse, path);
    }
    sparse
}

/// Copies one member, and creates the objects around it.
fn copy(from: &Value, to: &mut Value, path: &str) {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let (Some(value), Value::Object(map)) = (from.get(first), to) else { return };
    match rest {
        None => drop(map.insert(first.to_owned(), value.clone())),
        Some(rest) => copy(value, map.entry(first).or_insert_with(|| Value::Object(Map::new())), rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nothing_acts_on_says_so() {
        for kind in basalt_api::KINDS.iter().map(|kind| kind.name).filter(|kind| !RECONCILED.contains(kind)) {
            let first = first_status(kind, Timestamp::UNIX_EPOCH);
            let members = serde_json::from_value(first).expect("an object");
            let mut status = Status(members);
            tell_dormant(kind, "{}", &mut status).expect("it is told");
            let conditions: Value = serde_json::from_str(status.0["conditions"].get()).expect("conditions");
            let ready = &conditions[0];
            assert_eq!((&ready["type"], &ready["status"]), (&json!("Ready"), &json!("true")), "{kind}");
            let why = Kind::find(kind).and_then(|kind| kind.dormant);
            let more = why.map(|why| format!(" Nothing acts on it yet: {why}.")).unwrap_or_default();
            assert_eq!(ready["message"], format!("Stored; there is nothing to do for it.{more}"), "{kind}");
        }
        let machine = first_status("Machine", Timestamp::UNIX_EPOCH);
        assert_eq!(machine["conditions"][0]["status"], "false");
    }

    #[test]
    fn sparse_objects_have_only_what_was_asked_for() {
        let whole = json!({"a": {"b": 1, "c": {"d": 2, "e": 3}}, "f": 4});
        let mut sparse = json!({});
        for path in ["a.c.d", "a.b", "x.y", "f.g"] {
            copy(&whole, &mut sparse, path);
        }
        assert_eq!(sparse, json!({"a": {"b": 1, "c": {"d": 2}}, "f": {}}));
    }
}
