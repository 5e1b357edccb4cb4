//! Finds changes between two OpenAPI documents that break clients.
//!
//! | of | is broken by |
//! | --- | --- |
//! | an operation | its leaving; of its good answers, a status, media type or header that leaves |
//! | what is sent | a parameter, field, word or type that is taken no more; one that must be sent now; tighter bounds |
//! | what is answered | a field that may be absent now, that leaves, or that has another type |
//!
//! New operations, fields of answers, words and optional parameters are no news to a client that does not know them.

use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Direction of a value between client and region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Sent,
    Answered,
}

/// The changes from `old` to `new` that break clients of `old`; empty if there is none.
pub(super) fn broken(old: &Value, new: &Value) -> Vec<String> {
    let mut compared = Comparison { old, new, seen: BTreeSet::new(), broken: Vec::new() };
    for (path, methods) in members(old, "paths") {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            let at = format!("{} {path}", method.to_ascii_uppercase());
            match new["paths"][path].get(method) {
                Some(now) => compared.operation(&at, operation, now),
                None => compared.say(&at, "is gone"),
            }
        }
    }
    compared.broken
}

fn members<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value.get(key).and_then(Value::as_object).into_iter().flatten()
}

fn words<'a>(value: &'a Value, key: &str) -> Vec<&'a Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten().collect()
}

/// The types of a schema, as a list.
fn types(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

struct Comparison<'a> {
    old: &'a Value,
    new: &'a Value,
    /// References that were followed, so that recursive schemas end.
    seen: BTreeSet<(Way, String, String)>,
    broken: Vec<String>,
}

impl<'a> Comparison<'a> {
    fn say(&mut self, at: &str, what: &str) {
        self.broken.push(format!("{at}: {what}"));
    }

    /// The targets of two references. `None` if this pair was already compared in this direction.
    fn follow(&mut self, way: Way, old: &'a Value, new: &'a Value) -> Option<(&'a Value, &'a Value)> {
        let (from, to) = (old.get("$ref").and_then(Value::as_str), new.get("$ref").and_then(Value::as_str));
        if let (Some(from), Some(to)) = (from, to)
            && !self.seen.insert((way, from.to_owned(), to.to_owned()))
        {
            return None;
        }
        let target = |root: &'a Value, value: &'a Value, reference: Option<&str>| match reference {
            Some(reference) => root.pointer(reference.trim_start_matches('#')).unwrap_or(value),
            None => value,
        };
        Some((target(self.old, old, from), target(self.new, new, to)))
    }

    fn operation(&mut self, at: &str, old: &'a Value, new: &'a Value) {
        self.parameters(at, old, new);
        let (before, now) = (old.get("requestBody"), new.get("requestBody"));
        match (before, now) {
            (Some(before), Some(now)) => self.content(&format!("{at}, what is sent"), Way::Sent, before, now),
            (None, Some(now)) if now["required"] == true => self.say(at, "a body must be sent now"),
            (Some(_), None) => self.say(at, "a body is taken no more"),
            _ => {}
        }
        for (status, answer) in members(old, "responses").filter(|(status, _)| status.starts_with('2')) {
            let at = format!("{at}, answer {status}");
            let Some(now) = new["responses"].get(status) else {
                self.say(&at, "is gone");
                continue;
            };
            for (header, _) in members(answer, "headers") {
                if now["headers"].get(header).is_none() {
                    self.say(&at, &format!("the header {header} is gone"));
                }
            }
            self.content(&at, Way::Answered, answer, now);
        }
    }

    fn parameters(&mut self, at: &str, old: &'a Value, new: &'a Value) {
        let resolved = |root: &'a Value, operation: &'a Value| -> Vec<&'a Value> {
            let target = |p: &'a Value| match p.get("$ref").and_then(Value::as_str) {
                Some(reference) => root.pointer(reference.trim_start_matches('#')).unwrap_or(p),
                None => p,
            };
            words(operation, "parameters").into_iter().map(target).collect()
        };
        let (before, now) = (resolved(self.old, old), resolved(self.new, new));
        let same = |a: &Value, b: &Value| a["name"] == b["name"] && a["in"] == b["in"];
        for parameter in &before {
            let name = format!("{at}, parameter {}", parameter["name"].as_str().unwrap_or_default());
            match now.iter().find(|p| same(p, parameter)) {
                None => self.say(&name, "is taken no more"),
                Some(now) => {
                    if now["required"] == true && parameter["required"] != true {
                        self.say(&name, "must be sent now");
                    }
                    self.schema(&name, Way::Sent, &parameter["schema"], &now["schema"]);
                }
            }
        }
        for parameter in now.iter().filter(|p| p["required"] == true) {
            if !before.iter().any(|p| same(p, parameter)) {
                let name = parameter["name"].as_str().unwrap_or_default();
                self.say(&format!("{at}, parameter {name}"), "must be sent now");
            }
        }
    }

    fn content(&mut self, at: &str, way: Way, old: &'a Value, new: &'a Value) {
        for (media_type, body) in members(old, "content") {
            match new["content"].get(media_type) {
                None => self.say(at, &format!("{media_type} is gone")),
                Some(now) => match (body.get("schema"), now.get("schema")) {
                    (Some(before), Some(now)) => self.schema(at, way, before, now),
                    (None, Some(_)) if way == Way::Sent => self.say(at, "it has to have a form now"),
                    _ => {}
                },
            }
        }
    }

    fn schema(&mut self, at: &str, way: Way, old: &'a Value, new: &'a Value) {
        let Some((old, new)) = self.follow(way, old, new) else { return };
        self.types(at, way, old, new);
        if way == Way::Sent {
            self.bounds(at, old, new);
        }
        for (name, before) in members(old, "properties") {
            let at = format!("{at}/{name}");
            match new["properties"].get(name) {
                Some(now) => self.schema(&at, way, before, now),
                None => self.say(&at, if way == Way::Sent { "is taken no more" } else { "is gone" }),
            }
        }
        let (before, now) = (words(old, "required"), words(new, "required"));
        let (from, to, what) = match way {
            Way::Sent => (now, before, "must be sent now"),
            Way::Answered => (before, now, "may be absent now"),
        };
        for name in from.iter().filter(|name| !to.contains(name)) {
            self.say(&format!("{at}/{}", name.as_str().unwrap_or_default()), what);
        }
        for inner in ["items", "additionalProperties", "propertyNames"] {
            if let (Some(before @ Value::Object(_)), Some(now @ Value::Object(_))) =
                (old.get(inner), new.get(inner))
            {
                self.schema(&format!("{at}/*"), way, before, now);
            }
        }
        let may_be_more = |schema: &Value| schema.get("additionalProperties") != Some(&Value::Bool(false));
        if way == Way::Sent && may_be_more(old) && !may_be_more(new) && types(old).contains(&"object") {
            self.say(at, "other fields are taken no more");
        }
        self.variants(at, way, old, new);
    }

    fn types(&mut self, at: &str, way: Way, old: &Value, new: &Value) {
        let (before, now) = (types(old), types(new));
        let (from, to) = if way == Way::Sent { (before, now) } else { (now, before) };
        // No type is every type.
        if !to.is_empty() && (from.is_empty() || from.iter().any(|ty| !to.contains(ty))) {
            self.say(at, &format!("was of type {}, and is of type {}", old["type"], new["type"]));
        }
        let (before, now) = (words(old, "enum"), words(new, "enum"));
        if way == Way::Sent && !now.is_empty() {
            for word in before.iter().filter(|word| !now.contains(word)) {
                self.say(at, &format!("{word} is taken no more"));
            }
            if before.is_empty() {
                self.say(at, "takes only some words now");
            }
        }
    }

    /// Bounds of what is sent: none may be tighter, or new.
    fn bounds(&mut self, at: &str, old: &Value, new: &Value) {
        let number = |schema: &Value, key: &str| schema.get(key).and_then(Value::as_f64);
        for (key, is_upper) in [
            ("minimum", false),
            ("minLength", false),
            ("minItems", false),
            ("maximum", true),
            ("maxLength", true),
            ("maxItems", true),
            ("maxProperties", true),
        ] {
            let tighter = match (number(old, key), number(new, key)) {
                (_, None) => false,
                (None, Some(_)) => true,
                (Some(before), Some(now)) => {
                    if is_upper {
                        now < before
                    } else {
                        now > before
                    }
                }
            };
            if tighter {
                self.say(at, &format!("{key} was {}, and is {}", old[key], new[key]));
            }
        }
        for key in ["pattern", "const", "uniqueItems"] {
            if new.get(key).is_some() && new.get(key) != old.get(key) {
                self.say(at, &format!("{key} was {}, and is {}", old[key], new[key]));
            }
        }
    }

    /// Compares variants in their order. A sent value may get more variants, an answered value fewer.
    fn variants(&mut self, at: &str, way: Way, old: &'a Value, new: &'a Value) {
        for key in ["anyOf", "oneOf", "allOf"] {
            let (before, now) = (words(old, key), words(new, key));
            let lost = if way == Way::Sent { before.len() > now.len() } else { before.len() < now.len() };
            if lost && key != "allOf" {
                self.say(at, &format!("was one of {} forms, and is one of {}", before.len(), now.len()));
            }
            for (before, now) in before.iter().zip(&now) {
                self.schema(at, way, before, now);
            }
        }
    }
}

/// A document with one operation, which takes and answers `Thing`.
fn document() -> Value {
    let thing = serde_json::json!({
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "maxLength": 9},
            "colour": {"type": "string", "enum": ["red", "blue"]},
            "inner": {"$ref": "#/components/schemas/Thing"},
        },
        "additionalProperties": false,
    });
    let body = serde_json::json!({"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}});
    serde_json::json!({
        "paths": {"/things": {"put": {
            "parameters": [{"$ref": "#/components/parameters/q"}],
            "requestBody": {"required": true, "content": body},
            "responses": {"200": {"headers": {"ETag": {}}, "content": body}, "404": {}},
        }}},
        "components": {
            "parameters": {"q": {"name": "q", "in": "query", "schema": {"type": "integer", "maximum": 9}}},
            "schemas": {"Thing": thing},
        },
    })
}

/// Pointer to a place, the new JSON there (empty: it is removed), and the expected findings.
const CHANGES: &[(&str, &str, &[&str])] = &[
    ("/paths/~1things/get", r#"{"responses": {"200": {}}}"#, &[]),
    ("/paths/~1things/put/responses/404", "", &[]),
    ("/components/parameters/q/schema/maximum", "10", &[]),
    ("/components/schemas/Thing/properties/new", r#"{"type": "string"}"#, &[]),
    ("/components/schemas/Thing/properties/colour/enum", r#"["red", "blue", "green"]"#, &[]),
    ("/paths/~1things/put", "", &["PUT /things: is gone"]),
    ("/paths/~1things/put/parameters", "", &["PUT /things, parameter q: is taken no more"]),
    ("/components/parameters/q/required", "true", &["PUT /things, parameter q: must be sent now"]),
    ("/components/parameters/q/schema/maximum", "8", &["PUT /things, parameter q: maximum was 9, and is 8"]),
    ("/paths/~1things/put/responses/200", "", &["PUT /things, answer 200: is gone"]),
    ("/paths/~1things/put/responses/200/headers", "", &["PUT /things, answer 200: the header ETag is gone"]),
    (
        "/components/schemas/Thing/properties/colour",
        "",
        &["PUT /things, what is sent/colour: is taken no more", "PUT /things, answer 200/colour: is gone"],
    ),
    (
        "/components/schemas/Thing/properties/colour/enum",
        r#"["red"]"#,
        &[r#"PUT /things, what is sent/colour: "blue" is taken no more"#],
    ),
    (
        "/components/schemas/Thing/required",
        r#"["name", "colour"]"#,
        &["PUT /things, what is sent/colour: must be sent now"],
    ),
    ("/components/schemas/Thing/required", "[]", &["PUT /things, answer 200/name: may be absent now"]),
    (
        "/components/schemas/Thing/properties/name/type",
        r#""integer""#,
        &[
            r#"PUT /things, what is sent/name: was of type "string", and is of type "integer""#,
            r#"PUT /things, answer 200/name: was of type "string", and is of type "integer""#,
        ],
    ),
    (
        "/components/schemas/Thing/properties/name/type",
        r#"["string", "null"]"#,
        &[r#"PUT /things, answer 200/name: was of type "string", and is of type ["string","null"]"#],
    ),
];

#[test]
fn what_clients_would_notice_is_said_and_nothing_else() {
    let old = document();
    assert_eq!(broken(&old, &old), Vec::<String>::new());
    for (at, what, wanted) in CHANGES {
        let mut new = document();
        let (parent, key) = at.rsplit_once('/').unwrap();
        let parent: &mut Map<String, Value> = new.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        match what.is_empty() {
            true => drop(parent.remove(&key.replace("~1", "/"))),
            false => drop(parent.insert(key.replace("~1", "/"), serde_json::from_str(what).unwrap())),
        }
        assert_eq!(broken(&old, &new), *wanted, "{at} {what}");
    }
}
