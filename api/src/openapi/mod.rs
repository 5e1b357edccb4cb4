//! The OpenAPI 3.1 document of the REST API: paths from one table, everything about kinds from their descriptions.

mod wire;

use crate::schema::{Field, Kind, Presence, Schema, Semantic, Type};
use crate::watch::LAST_EVENT_ID;
use crate::wire::MANAGER_HEADER;
use serde_json::{Map, Value, json};

/// Which kinds an endpoint exists for.
enum For {
    /// One path, not about a kind.
    Itself,
    /// Every kind.
    All,
    /// Kinds that clients create and delete.
    Declarable,
    /// These.
    Named(&'static [&'static str]),
}

/// One operation. `{plural}` in a path, `{Kind}` in texts and schema names stand for the kind.
struct Endpoint {
    method: &'static str,
    path: &'static str,
    exists_for: For,
    id: &'static str,
    summary: &'static str,
    parameters: &'static [&'static str],
    request: Option<&'static str>,
    /// Status and schema of the good answers; no schema for an answer without JSON.
    answers: &'static [(&'static str, &'static str, Option<&'static str>)],
}

const LIVING: &[&str] = &["Machine", "Deployment"];

/// Every operation of the API.
const ENDPOINTS: &[Endpoint] = &[
    Endpoint {
        method: "get",
        path: "/api/v1/{plural}",
        exists_for: For::All,
        id: "list{Kind}",
        summary: "List objects of kind {Kind}, by name",
        parameters: &["limit", "continue", "labels"],
        request: None,
        answers: &[("200", "A page of them", Some("{Kind}List"))],
    },
    Endpoint {
        method: "get",
        path: "/api/v1/{plural}/{name}",
        exists_for: For::All,
        id: "get{Kind}",
        summary: "Read a {Kind}, at once or when a condition holds",
        parameters: &["name", "wait", "generation", "timeout"],
        request: None,
        answers: &[("200", "The object", Some("{Kind}"))],
    },
    Endpoint {
        method: "put",
        path: "/api/v1/{plural}/{name}",
        exists_for: For::All,
        id: "put{Kind}",
        summary: "Create a {Kind}, or replace its spec",
        parameters: &["name", "dry_run", "manager", "if_match", "if_none_match"],
        request: Some("{Kind}Put"),
        answers: &[
            ("200", "The object as it is now; with `dry_run` a DryRun", Some("{Kind}OrDryRun")),
            ("201", "The object, created", Some("{Kind}")),
        ],
    },
    Endpoint {
        method: "patch",
        path: "/api/v1/{plural}/{name}",
        exists_for: For::All,
        id: "patch{Kind}",
        summary: "Change some of a {Kind}'s spec: JSON merge patch (RFC 7396), whose document is the spec",
        parameters: &["name", "dry_run", "manager", "if_match"],
        request: Some("application/merge-patch+json"),
        answers: &[("200", "The object as it is now; with `dry_run` a DryRun", Some("{Kind}OrDryRun"))],
    },
    Endpoint {
        method: "delete",
        path: "/api/v1/{plural}/{name}",
        exists_for: For::Declarable,
        id: "delete{Kind}",
        summary: "Have a {Kind} go; repeating it is harmless",
        parameters: &["name", "dry_run", "force", "if_match"],
        request: None,
        answers: &[
            ("200", "With `dry_run`: what would happen", Some("DryRun")),
            ("202", "The object, which is on its way out", Some("{Kind}")),
            ("204", "It is gone", None),
        ],
    },
    Endpoint {
        method: "post",
        path: "/api/v1/{plural}/{name}/rename",
        exists_for: For::Declarable,
        id: "rename{Kind}",
        summary: "Give a {Kind} another name; what refers to it follows",
        parameters: &["name"],
        request: Some("RenameRequest"),
        answers: &[("200", "The object under its new name", Some("{Kind}"))],
    },
    Endpoint {
        method: "get",
        path: "/api/v1/{plural}/{name}/layers",
        exists_for: For::All,
        id: "layers{Kind}",
        summary: "Which manager gives a {Kind} which labels and tags",
        parameters: &["name"],
        request: None,
        answers: &[("200", "By manager", Some("Layers"))],
    },
    Endpoint {
        method: "put",
        path: "/api/v1/{plural}/{name}/layers/{manager}",
        exists_for: For::All,
        id: "putLayer{Kind}",
        summary: "Replace the labels and tags that one manager gives a {Kind}; its spec, generation and manager stay",
        parameters: &["name", "layer_manager", "dry_run"],
        request: Some("Layer"),
        answers: &[("200", "The object as it is now; with `dry_run` a DryRun", Some("{Kind}OrDryRun"))],
    },
    Endpoint {
        method: "get",
        path: "/api/v1/{plural}/{name}/plan",
        exists_for: For::Named(LIVING),
        id: "plan{Kind}",
        summary: "What will be done",
        parameters: &["name"],
        request: None,
        answers: &[("200", "The plan", Some("PlanReport"))],
    },
    Endpoint {
        method: "get",
        path: "/api/v1/{plural}/{name}/waits",
        exists_for: For::Named(LIVING),
        id: "waits{Kind}",
        summary: "What is waited for, until when, and what happens then",
        parameters: &["name"],
        request: None,
        answers: &[("200", "The waits", Some("Waits"))],
    },
    Endpoint {
        method: "get",
        path: "/api/v1/{plural}/{name}/timeline",
        exists_for: For::Named(LIVING),
        id: "timeline{Kind}",
        summary: "What has happened",
        parameters: &["name"],
        request: None,
        answers: &[("200", "The timeline", Some("Timeline"))],
    },
    Endpoint {
        method: "post",
        path: "/api/v1/{plural}/{name}/operations",
        exists_for: For::Named(&["Machine"]),
        id: "operate{Kind}",
        summary: "Ask for something to be done once",
        parameters: &["name"],
        request: Some("OperationRequest"),
        answers: &[("202", "Accepted", Some("OperationAccepted"))],
    },
    Endpoint {
        method: "post",
        path: "/api/v1/apply",
        exists_for: For::Itself,
        id: "apply",
        summary: "Write many objects in one transaction, in any order",
        parameters: &["dry_run", "manager"],
        request: Some("ApplyRequest"),
        answers: &[("200", "What became of each", Some("ApplyResponse"))],
    },
    Endpoint {
        method: "post",
        path: "/api/v1/login",
        exists_for: For::Itself,
        id: "login",
        summary: "Log in with a password, for a session's token",
        parameters: &[],
        request: Some("LoginRequest"),
        answers: &[("201", "The session's token", Some("LoginAnswer"))],
    },
    Endpoint {
        method: "post",
        path: "/api/v1/logout",
        exists_for: For::Itself,
        id: "logout",
        summary: "End the session whose token this is",
        parameters: &[],
        request: None,
        answers: &[("204", "It has ended", None)],
    },
    Endpoint {
        method: "post",
        path: "/api/v1/api_tokens/{name}/issue",
        exists_for: For::Itself,
        id: "issueApiToken",
        summary: "Make the token's text, which is shown this once; the one before is good no more",
        parameters: &["name"],
        request: None,
        answers: &[("201", "The token", Some("TokenIssued"))],
    },
    Endpoint {
        method: "post",
        path: "/api/v1/api_tokens/{name}/revoke",
        exists_for: For::Itself,
        id: "revokeApiToken",
        summary: "Make the token's text good no more",
        parameters: &["name"],
        request: None,
        answers: &[("204", "It is good no more", None)],
    },
    Endpoint {
        method: "get",
        path: "/api/v1/audit",
        exists_for: For::Itself,
        id: "audit",
        summary: "Who wrote what, the newest first",
        parameters: &["since", "object", "actor", "limit", "continue"],
        request: None,
        answers: &[("200", "A page of the log", Some("AuditPage"))],
    },
    Endpoint {
        method: "get",
        path: "/api/v1/watch",
        exists_for: For::Itself,
        id: "watch",
        summary: "What changes, as it changes: server-sent events `put`, `delete`, `bookmark` and, at the end, `cut`; each `id` is a position",
        parameters: &["position", "last_event_id", "kinds", "labels"],
        request: None,
        answers: &[(
            "200",
            "The events; their data are of the schema WatchEventData",
            Some("text/event-stream"),
        )],
    },
    Endpoint {
        method: "head",
        path: "/api/v1/blobs/{sha256}",
        exists_for: For::Itself,
        id: "headBlob",
        summary: "How much of a blob is there",
        parameters: &["sha256"],
        request: None,
        answers: &[
            ("200", "All of it; its length is in Content-Length", None),
            ("202", "The start of it; how many bytes that is, is in X-Basalt-Received", None),
        ],
    },
    Endpoint {
        method: "put",
        path: "/api/v1/blobs/{sha256}",
        exists_for: For::Itself,
        id: "putBlob",
        summary: "Upload a blob, or go on with it where Content-Range says",
        parameters: &["sha256", "content_range"],
        request: Some("application/octet-stream"),
        answers: &[
            ("201", "All of it is there, and its hash agrees", Some("BlobState")),
            ("202", "So much is there; go on from its end", Some("BlobState")),
        ],
    },
    Endpoint {
        method: "get",
        path: "/api/v1/version",
        exists_for: For::Itself,
        id: "version",
        summary: "Which program answers, and what it knows",
        parameters: &[],
        request: None,
        answers: &[("200", "The version", Some("Version"))],
    },
    Endpoint {
        method: "get",
        path: "/healthz",
        exists_for: For::Itself,
        id: "healthz",
        summary: "Whether the process runs",
        parameters: &[],
        request: None,
        answers: &[("200", "It runs", None)],
    },
    Endpoint {
        method: "get",
        path: "/readyz",
        exists_for: For::Itself,
        id: "readyz",
        summary: "Whether the region can serve requests",
        parameters: &[],
        request: None,
        answers: &[("200", "It can", None), ("503", "It cannot; the body says why", None)],
    },
];

/// The OpenAPI 3.1 document for these kinds.
#[must_use]
pub fn openapi(kinds: &[&Kind]) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for endpoint in ENDPOINTS {
        match endpoint.exists_for {
            For::Itself => add(&mut paths, endpoint, None),
            _ => kinds
                .iter()
                .filter(|kind| match endpoint.exists_for {
                    For::Named(names) => names.contains(&kind.name),
                    For::Declarable => kind.declarable,
                    For::All | For::Itself => true,
                })
                .for_each(|kind| add(&mut paths, endpoint, Some(kind))),
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Basalt",
            "version": "v1",
            "summary": "Bare metal, declared.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "parameters": parameters(),
            "responses": {"Problem": {
                "description": "Refused, and why",
                "content": {"application/problem+json": {"schema": reference("Problem")}},
            }},
            "schemas": schemas(kinds),
        },
    })
}

fn add(paths: &mut Map<String, Value>, endpoint: &Endpoint, kind: Option<&Kind>) {
    let named = |text: &str| text.replace("{Kind}", kind.map_or("", |k| k.name));
    let path = endpoint.path.replace("{plural}", kind.map_or("", |k| k.plural));
    let mut answers = Map::new();
    for (status, description, schema) in endpoint.answers {
        let mut answer = json!({ "description": description });
        if let (Some(schema), Some(answer)) = (schema, answer.as_object_mut()) {
            let content = match schema.contains('/') {
                true => json!({ (*schema): {"schema": {"type": "string"}} }),
                false => json!({"application/json": {"schema": reference(&named(schema))}}),
            };
            answer.insert("content".to_owned(), content);
        }
        answers.insert((*status).to_owned(), answer);
    }
    answers.insert("default".to_owned(), json!({"$ref": "#/components/responses/Problem"}));
    let mut operation = json!({
        "operationId": named(endpoint.id),
        "summary": named(endpoint.summary),
        "responses": answers,
    });
    if let Some(operation) = operation.as_object_mut() {
        if let Some(kind) = kind {
            operation.insert("tags".to_owned(), json!([kind.name]));
        }
        if !endpoint.parameters.is_empty() {
            let all =
                endpoint.parameters.iter().map(|p| json!({"$ref": format!("#/components/parameters/{p}")}));
            operation.insert("parameters".to_owned(), all.collect());
        }
        if let Some(body) = endpoint.request {
            let content = if body.contains('/') {
                json!({ body: {} })
            } else {
                json!({"application/json": {"schema": reference(&named(body))}})
            };
            operation.insert("requestBody".to_owned(), json!({"required": true, "content": content}));
        }
    }
    let entry = paths.entry(path).or_insert_with(|| json!({}));
    if let Some(entry) = entry.as_object_mut() {
        entry.insert(endpoint.method.to_owned(), operation);
    }
}

/// Name, place, schema and description of every parameter.
fn parameters() -> Value {
    let text = || json!({"type": "string"});
    let all = [
        ("name", "name", "path", text(), "The object's name, or `uid:` and its uid"),
        ("sha256", "sha256", "path", form(Semantic::Sha256), "The blob's SHA-256"),
        (
            "limit",
            "limit",
            "query",
            json!({"type": "integer", "minimum": 1, "maximum": 1000}),
            "Most objects of a page",
        ),
        ("continue", "continue", "query", text(), "`continue` of the page before"),
        ("labels", "labels", "query", text(), "Only objects with these labels: `a=b,c=d`"),
        ("since", "since", "query", form(Semantic::Timestamp), "Only what is not older than this"),
        ("object", "object", "query", text(), "Only of this object: `uid:UUID`, `KIND/NAME` or `KIND`"),
        ("actor", "actor", "query", text(), "Only by this actor: `token NAME`, `user NAME`, `peer uid 0`"),
        ("wait", "wait", "query", text(), "Answer when this condition is true, or Stalled is"),
        (
            "generation",
            "generation",
            "query",
            json!({"type": "integer", "minimum": 1}),
            "… and has observed this generation",
        ),
        ("timeout", "timeout", "query", form(Semantic::Duration), "… or when this time is up"),
        (
            "dry_run",
            "dry_run",
            "query",
            json!({"type": "boolean"}),
            "Store nothing, and answer what would happen",
        ),
        (
            "force",
            "force",
            "query",
            json!({"type": "boolean"}),
            "Let go at once; a machine stays Broken, unwiped",
        ),
        ("manager", MANAGER_HEADER, "header", text(), "Which tool writes; becomes `metadata.manager`"),
        ("layer_manager", "manager", "path", text(), "The tool whose labels and tags these are"),
        ("if_match", "If-Match", "header", text(), "Only if this is still the generation"),
        (
            "if_none_match",
            "If-None-Match",
            "header",
            json!({"const": "*"}),
            "Only if there is no such object",
        ),
        (
            "position",
            "since",
            "query",
            text(),
            "Go on from this position: of a list, or the `id` of an event",
        ),
        ("last_event_id", LAST_EVENT_ID, "header", text(), "The same, for clients that resume by themselves"),
        ("kinds", "kinds", "query", text(), "Only objects of these kinds: `machines,deployments`"),
        (
            "content_range",
            "Content-Range",
            "header",
            text(),
            "Which bytes of the blob follow: `bytes 0-99/100`",
        ),
    ];
    let entries = all.into_iter().map(|(key, name, place, schema, description)| {
        let parameter = json!({
            "name": name, "in": place, "required": place == "path", "schema": schema, "description": description,
        });
        (key.to_owned(), parameter)
    });
    Value::Object(entries.collect())
}

fn schemas(kinds: &[&Kind]) -> Map<String, Value> {
    let mut all = Map::new();
    for kind in kinds {
        component(kind.spec, &mut all);
        component(kind.status, &mut all);
        let name = kind.name;
        all.insert(
            name.to_owned(),
            json!({
                "type": "object",
                "description": kind.doc,
                "required": ["kind", "metadata", "spec", "status"],
                "properties": {
                    "kind": {"const": name},
                    "metadata": reference("Metadata"),
                    "spec": reference(kind.spec.name),
                    "status": reference(kind.status.name),
                },
            }),
        );
        all.insert(
            format!("{name}Put"),
            json!({
                "type": "object",
                "required": ["spec"],
                "properties": {
                    "kind": {"const": name},
                    "metadata": {
                        "type": "object",
                        "properties": {
                            "name": {"type": "string", "pattern": kind.naming.pattern()},
                            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                        },
                    },
                    "spec": reference(kind.spec.name),
                },
            }),
        );
        all.insert(
            format!("{name}List"),
            json!({
                "type": "object",
                "required": ["items"],
                "properties": {
                    "items": {"type": "array", "items": reference(name)},
                    "continue": {"type": "string", "description": "Goes into the next request; absent on the last page."},
                    "position": {"type": "string", "description": "The watch position that goes on from this list."},
                },
            }),
        );
        all.insert(format!("{name}OrDryRun"), json!({"anyOf": [reference(name), reference("DryRun")]}));
    }
    for (name, schema) in wire::components() {
        all.insert(name.to_owned(), schema);
    }
    all.sort_keys();
    all
}

/// Adds `schema` and those it is made of.
fn component(schema: &'static Schema, all: &mut Map<String, Value>) {
    if all.contains_key(schema.name) {
        return;
    }
    let mut properties = Map::new();
    all.insert(schema.name.to_owned(), Value::Null);
    for field in schema.fields {
        properties.insert(field.name.to_owned(), property(field, all));
    }
    let required: Vec<&str> =
        schema.fields.iter().filter(|f| f.presence == Presence::Required).map(|f| f.name).collect();
    let mut object = json!({
        "type": "object",
        "description": schema.doc,
        "properties": properties,
        "additionalProperties": false,
    });
    if let (false, Some(object)) = (required.is_empty(), object.as_object_mut()) {
        object.insert("required".to_owned(), json!(required));
    }
    all.insert(schema.name.to_owned(), object);
}

fn property(field: &'static Field, all: &mut Map<String, Value>) -> Value {
    let mut schema = type_schema(&field.ty, all);
    let Some(map) = schema.as_object_mut() else { return schema };
    map.insert("description".to_owned(), json!(field.doc));
    match field.presence {
        Presence::Default(constant) => {
            map.insert("default".to_owned(), constant.json(&field.ty));
        }
        Presence::ServerChosen => {
            map.insert("x-basalt-server-chosen".to_owned(), json!(true));
        }
        Presence::Required | Presence::Optional => {}
    }
    if field.immutable {
        map.insert("x-basalt-immutable".to_owned(), json!(true));
    }
    if field.sensitive {
        map.insert("x-basalt-sensitive".to_owned(), json!(true));
    }
    map.insert("x-basalt-effect".to_owned(), json!(field.effect));
    schema
}

fn type_schema(ty: &'static Type, all: &mut Map<String, Value>) -> Value {
    match ty {
        Type::Bool => json!({"type": "boolean"}),
        Type::Int { min, max } => json!({"type": "integer", "minimum": min, "maximum": max}),
        Type::String | Type::Text => json!({"type": "string"}),
        Type::Enum(words) => json!({"type": "string", "enum": words}),
        Type::Semantic(semantic) => form(*semantic),
        Type::Ref(kind) => {
            let pattern = Kind::find(kind).map(|k| k.naming.pattern());
            json!({"type": "string", "pattern": pattern, "x-basalt-refers-to": kind})
        }
        Type::Secret => reference("Secret"),
        Type::Object(schema) => {
            component(schema, all);
            reference(schema.name)
        }
        Type::List(item) => json!({"type": "array", "items": type_schema(item, all)}),
        Type::Set(item) => json!({"type": "array", "items": type_schema(item, all), "uniqueItems": true}),
        Type::Map { key, value } => json!({
            "type": "object",
            "propertyNames": type_schema(key, all),
            "additionalProperties": type_schema(value, all),
        }),
        Type::Json => json!({"type": "object"}),
    }
}

fn form(semantic: Semantic) -> Value {
    json!({"type": "string", "format": semantic.name(), "examples": [semantic.example()]})
}

/// A reference to a component.
fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn document() -> Value {
        openapi(crate::KINDS)
    }

    #[test]
    fn the_sample_kind_shows_everything_a_description_can_say() {
        let document = document();
        let schemas = &document["components"]["schemas"];
        insta::assert_json_snapshot!(
            "sample_kind",
            json!({
                "paths": document["paths"].as_object().unwrap().iter()
                    .filter(|(path, _)| path.contains("/samples")).collect::<std::collections::BTreeMap<_, _>>(),
                "schemas": schemas.as_object().unwrap().iter()
                    .filter(|(name, _)| name.starts_with("Sample")).collect::<std::collections::BTreeMap<_, _>>(),
            })
        );
    }

    #[test]
    fn every_path_and_operation_is_listed() {
        let kinds: Vec<_> = crate::KINDS.iter().copied().filter(|k| k.name != "Sample").collect();
        let lines: Vec<String> = openapi(&kinds)["paths"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(path, methods)| {
                let methods: Vec<_> = methods.as_object().unwrap().keys().map(String::as_str).collect();
                format!("{path} {}\n", methods.join(" "))
            })
            .collect();
        insta::assert_snapshot!("paths", lines.concat());
    }

    #[test]
    fn every_reference_leads_somewhere_and_every_id_is_unique() {
        fn walk(value: &Value, root: &Value, ids: &mut BTreeSet<String>) {
            match value {
                Value::Object(map) => {
                    if let Some(Value::String(to)) = map.get("$ref") {
                        let pointer = to.strip_prefix('#').expect("a reference into the document");
                        assert!(root.pointer(pointer).is_some_and(|v| !v.is_null()), "{to}");
                    }
                    if let Some(Value::String(id)) = map.get("operationId") {
                        assert!(ids.insert(id.clone()), "{id}");
                    }
                    map.values().for_each(|v| walk(v, root, ids));
                }
                Value::Array(items) => items.iter().for_each(|v| walk(v, root, ids)),
                _ => {}
            }
        }
        let document = document();
        walk(&document, &document, &mut BTreeSet::new());
    }

    #[test]
    fn every_parameter_of_a_path_is_declared() {
        for (path, methods) in document()["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                for word in ["name", "sha256"] {
                    let is_in_path = path.contains(&format!("{{{word}}}"));
                    let reference = json!({"$ref": format!("#/components/parameters/{word}")});
                    let is_declared =
                        operation["parameters"].as_array().is_some_and(|all| all.contains(&reference));
                    assert_eq!(is_in_path, is_declared, "{method} {path}");
                }
            }
        }
    }
}
