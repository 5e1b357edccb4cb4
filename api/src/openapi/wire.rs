//! The parts of the document that are not about kinds: the shapes of [`crate::wire`], [`crate::plan`] and
//! [`crate::problem`].

use super::schemas::{form, nullable, reference};
use super::shape::{Component, Shape, one_of};
use crate::kinds::MAX_ARGUMENT_BYTES;
use crate::schema::{MAX_INT, Semantic};
use crate::validate::MAX_STRING_BYTES;
use crate::values::Naming;
use crate::wire::{MAX_CONFIRMED, MAX_DOCUMENTS, MAX_ID_TOKEN_BYTES, MAX_OPERATIONS, RESCUE_KEYS, Verb};
use serde_json::{Value, json};

/// Labels, as they are written and read.
pub(super) fn labels() -> Value {
    json!({
        "type": "object",
        "maxProperties": 64,
        "propertyNames": {"pattern": "^[0-9A-Za-z][0-9A-Za-z._/-]{0,62}$"},
        "additionalProperties": {"type": "string", "maxLength": 255, "pattern": r"^[^,\u0000-\u001f\u007f-\u009f]*$"},
    })
}

/// The metadata of a write. The region's own fields in it are ignored.
pub(super) fn given_metadata(name: &str, required: &[&str]) -> Value {
    let ignored = || json!({"description": "Ignored"});
    json!({
        "type": "object",
        "required": required,
        "properties": {
            "name": {"type": ["string", "null"], "pattern": name},
            "labels": nullable(labels()),
            "uid": ignored(), "manager": ignored(), "generation": ignored(), "created_at": ignored(),
            "updated_at": ignored(), "deletion_requested_at": ignored(),
        },
        "additionalProperties": false,
    })
}

/// The components that are not about kinds, by name.
pub(super) fn components() -> Vec<(&'static str, Value)> {
    let text = || json!({"type": "string"});
    let time = || form(Semantic::Timestamp);
    let number = || json!({"type": "integer", "minimum": 0, "maximum": MAX_INT});
    let object = |required: &[&str], properties: Value| json!({"type": "object", "required": required, "properties": properties});
    let bounded = |longest: usize| json!({"type": "string", "maxLength": longest});
    let texts = || json!({"type": "array", "items": {"type": "string"}});
    let closed = |required: &[&str], properties: Value| json!({"type": "object", "required": required, "properties": properties, "additionalProperties": false});
    let verbs = Verb::shape();
    let event = |words: &[&str], data: &str| {
        let data = json!({
            "type": "string", "contentMediaType": "application/json", "contentSchema": reference(data),
        });
        object(&["id", "event", "data"], json!({"id": text(), "event": one_of(words), "data": data}))
    };
    let written = [
        (
            "Metadata",
            object(
                &["name", "uid", "generation", "created_at", "updated_at"],
                json!({
                    "name": text(), "uid": form(Semantic::Uid), "manager": text(), "labels": labels(),
                    "layers": {
                        "description": "The layers by their managers, where they were asked for",
                        "type": "object", "additionalProperties": reference("Layer"),
                    },
                    "generation": number(), "created_at": time(), "updated_at": time(),
                    "deletion_requested_at": {"anyOf": [time(), {"type": "null"}]},
                }),
            ),
        ),
        (
            "Layer",
            json!({
                "type": "object", "additionalProperties": false,
                "properties": {
                    "labels": labels(),
                    "tags": {"type": "array", "uniqueItems": true, "items": form(Semantic::Tag)},
                },
            }),
        ),
        (
            "PutLayer",
            json!({
                "type": "object", "additionalProperties": false,
                "properties": {
                    "labels": labels(),
                    "tags": {"type": "array", "uniqueItems": true, "items": form(Semantic::Tag)},
                    "replaces": {
                        "description": "The layer as it was read; an empty one where there was none. If it is another by now, and not yet as \
                                        it is to be, the answer is `conflict`, and nothing changes.",
                        "anyOf": [reference("Layer"), {"type": "null"}],
                    },
                },
            }),
        ),
        (
            "Layers",
            object(
                &["layers"],
                json!({"layers": {"type": "object", "additionalProperties": reference("Layer")}}),
            ),
        ),
        (
            "Secret",
            json!({
                "description": "Written as text; read as `{\"set\": true, \"revision\": 4}`, which, written back, keeps it. Null clears it.",
                "anyOf": [
                    {"type": "string", "maxLength": MAX_STRING_BYTES, "writeOnly": true},
                    closed(&["set"], json!({"set": {"const": true}, "revision": number()})),
                    {"type": "null"},
                ],
            }),
        ),
        (
            "LoginRequest",
            json!({
                "type": "object", "additionalProperties": false,
                "properties": {
                    "user": bounded(1024),
                    "password": {"type": "string", "maxLength": 1024, "writeOnly": true},
                    "id_token": {"type": "string", "maxLength": MAX_ID_TOKEN_BYTES, "writeOnly": true},
                    "nonce": {"type": ["string", "null"], "maxLength": 1024},
                    "token": {"type": "string", "maxLength": 1024, "writeOnly": true},
                    "code": {"type": "string", "maxLength": 4096, "writeOnly": true},
                    "state": {"type": "string", "maxLength": 1024},
                    "iss": {"type": ["string", "null"], "maxLength": 4096},
                },
                "oneOf": [
                    {
                        "title": "With a password", "required": ["user", "password"],
                        "properties": {"id_token": false, "nonce": false, "token": false, "code": false, "state": false, "iss": false},
                    },
                    {
                        "title": "With an ID token of the issuer that Settings name", "required": ["id_token"],
                        "properties": {"user": false, "password": false, "token": false, "code": false, "state": false, "iss": false},
                    },
                    {
                        "title": "With a token that is there already, for a cookie", "required": ["token"],
                        "properties": {"user": false, "password": false, "id_token": false, "nonce": false, "code": false, "state": false, "iss": false},
                    },
                    {
                        "title": "With what the issuer sent a browser back with, for a cookie", "required": ["code", "state"],
                        "properties": {"user": false, "password": false, "id_token": false, "nonce": false, "token": false},
                    },
                ],
            }),
        ),
        (
            "LoginWays",
            object(
                &[],
                json!({"openid": {"type": "string", "description": "The issuer's host, where people log in by OpenID Connect"}}),
            ),
        ),
        ("LoginBegun", object(&["location"], json!({"location": form(Semantic::Url)}))),
        (
            "PasswordRequest",
            closed(
                &["present", "password"],
                json!({
                    "present": {"type": "string", "maxLength": 1024, "writeOnly": true},
                    "password": {"type": "string", "minLength": 10, "maxLength": 1024, "writeOnly": true},
                }),
            ),
        ),
        (
            "JoinRequest",
            closed(
                &[],
                json!({
                    "rack": {"type": ["string", "null"], "pattern": Naming::Label.pattern()},
                    "lifetime": nullable(form(Semantic::Duration)),
                    "urls": {"type": ["array", "null"], "minItems": 1, "items": {"type": "string", "maxLength": 1024}},
                }),
            ),
        ),
        ("JoinAnswer", object(&["token"], json!({"token": text()}))),
        ("OpenApi", object(&["openapi", "paths"], json!({"openapi": text(), "paths": {"type": "object"}}))),
        ("Registry", object(&["providers.v1"], json!({"providers.v1": text()}))),
        (
            "ProviderVersions",
            object(
                &["versions"],
                json!({"versions": {"type": "array", "items": object(
                    &["version", "protocols", "platforms"],
                    json!({
                        "version": text(), "protocols": texts(),
                        "platforms": {"type": "array", "items": object(
                            &["os", "arch"], json!({"os": text(), "arch": text()}),
                        )},
                    }),
                )}}),
            ),
        ),
        (
            "ProviderPackage",
            object(
                &["protocols", "os", "arch", "filename", "download_url", "shasum", "signing_keys"],
                json!({
                    "protocols": texts(), "os": text(), "arch": text(), "filename": text(), "download_url": text(),
                    "shasums_url": text(), "shasums_signature_url": text(), "shasum": form(Semantic::Sha256),
                    "signing_keys": {"type": "object"},
                }),
            ),
        ),
        (
            "RunReport",
            closed(
                &[],
                json!({
                    "confirms": {
                        "description": "Objects that the client keeps, whichever run made them",
                        "type": "array", "maxItems": MAX_CONFIRMED, "items": form(Semantic::Uid),
                    },
                    "ends": {
                        "description": "The run has ended: what it has created and not confirmed may be taken up at once",
                        "type": "boolean",
                    },
                }),
            ),
        ),
        ("DiscardedOrDryRun", json!({"anyOf": [reference("Discarded"), reference("DryRun")]})),
        ("RedeliveredOrDryRun", json!({"anyOf": [reference("Redelivered"), reference("DryRun")]})),
        ("EventEvent", event(&["event", "ping", "cut"], "EventEventData")),
        (
            "EventEventData",
            json!({
                "description": "Of `event` an EventEntry, of `ping` an empty object, of `cut` why.",
                "anyOf": [reference("EventEntry"), object(&["message"], json!({"message": text()})),
                    {"type": "object", "maxProperties": 0}],
            }),
        ),
        ("LogEvent", event(&["line", "ping", "cut"], "LogEventData")),
        (
            "LogEventData",
            json!({
                "description": "Of `line` a LogLine, of `ping` an empty object, of `cut` why.",
                "anyOf": [reference("LogLine"), object(&["message"], json!({"message": text()})),
                    {"type": "object", "maxProperties": 0}],
            }),
        ),
        (
            "Object",
            object(
                &["kind", "metadata", "spec", "status"],
                json!({
                    "kind": text(), "metadata": reference("Metadata"), "spec": {"type": "object"},
                    "status": {"type": "object"},
                }),
            ),
        ),
        (
            "Document",
            closed(
                &["kind", "metadata", "spec"],
                json!({
                    "kind": text(),
                    "metadata": given_metadata(Naming::DomainName.pattern(), &["name"]),
                    "spec": {"type": "object"},
                    "status": {"description": "Ignored"},
                }),
            ),
        ),
        (
            "ApplyRequest",
            closed(
                &["documents"],
                json!({
                    "documents": {"type": "array", "items": reference("Document"), "maxItems": MAX_DOCUMENTS},
                    "prune": {"type": ["string", "null"], "pattern": "="}, "digest": nullable(form(Semantic::Sha256)),
                    "adopt": {"type": "boolean"},
                }),
            ),
        ),
        (
            "RenameRequest",
            closed(&["name"], json!({"name": {"type": "string", "pattern": Naming::DomainName.pattern()}})),
        ),
        (
            "OperationRequest",
            closed(
                &["verb"],
                json!({
                    "verb": verbs,
                    "script": {"type": ["string", "null"], "description": "Which Script, where the verb is `run_script`."},
                    "parameters": {
                        "type": "object", "additionalProperties": bounded(MAX_ARGUMENT_BYTES),
                        "description": "What the script is given, by the names of its parameters.",
                    },
                    "ssh_keys": {
                        "type": "array", "items": form(Semantic::SshPublicKey), "maxItems": RESCUE_KEYS,
                        "description": "Who may come in, where the verb is `rescue`.",
                    },
                    "duration": nullable(form(Semantic::Duration)),
                    "tests": {
                        "type": "array", "items": text(),
                        "description": "Scripts of type `testing`, where the verb is `test`. Empty: those of `commissioning.testing`.",
                    },
                    "reason": {"type": ["string", "null"], "description": "The reason for `override_tests`, for the audit log."},
                }),
            ),
        ),
        (
            "OperationsRequest",
            json!({
                "type": "object", "additionalProperties": false, "required": ["operation"],
                "properties": {
                    "names": {
                        "type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_OPERATIONS,
                        "description": "The machines: names, or `uid:UUID`.",
                    },
                    "where": {
                        "type": "string", "maxLength": crate::filter::MAX_FILTER_BYTES,
                        "description": "All machines that fit this filter.",
                    },
                    "operation": reference("OperationRequest"),
                },
                "oneOf": [
                    {"title": "By names", "required": ["names"], "properties": {"where": false}},
                    {"title": "By a filter", "required": ["where"], "properties": {"names": false}},
                ],
            }),
        ),
        ("WatchEvent", event(&["put", "delete", "bookmark", "cut"], "WatchEventData")),
        (
            "WatchEventData",
            json!({
                "description": "Of `put` an Object, of `delete` Gone, of `bookmark` an empty object, of `cut` Cut.",
                "anyOf": [reference("Object"), reference("Gone"), reference("Cut"), {"type": "object", "maxProperties": 0}],
            }),
        ),
    ];
    written.into_iter().chain(derived()).collect()
}

/// The schemas of types that derive them.
fn derived() -> impl Iterator<Item = (&'static str, Value)> {
    macro_rules! of {
        ($($module:ident: $($ty:ident)+;)+) => {
            [$($((crate::$module::$ty::NAME, crate::$module::$ty::component as fn() -> Value)),+),+]
        };
    }
    let all = of! {
        wire:
            Action Actions AddressEntry AddressPage ApplyResponse ApplyResult AuditEntry AuditPage
            BlastRadius BlobState Boot BootEntry Boots Decision DecisionDetail Decisions DeliveryInfo
            DeliveryPage DiscardRequest Discarded DryRun EventEntry EventPage GrantedRole Judgement Listener LogLine LoginAnswer Logs
            NameRack NameRecord NameReport NameSource NameZone Operation OperationList OperationResult
            OperationsAnswer RedeliverRequest Redelivered Replay ReplayDifference TestResult TestResults
            Timeline TokenIssued Version Waits WhoAmI;
        plan:
            Advisory Consequence Consequences PlanReport Step TagChange TimelineEntry Wait;
        problem:
            FieldError Problem;
        diff:
            FieldChange;
        watch:
            Cut Gone GoneMetadata;
    };
    all.into_iter().map(|(name, component)| (name, component()))
}
