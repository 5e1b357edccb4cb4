//! The parts of the document that are not about kinds: the shapes of [`crate::wire`], [`crate::plan`] and
//! [`crate::problem`].

use super::schemas::{form, nullable, reference};
use crate::kinds::MAX_ARGUMENT_BYTES;
use crate::problem::{FieldCode, ProblemCode};
use crate::schema::{MAX_INT, Semantic};
use crate::validate::MAX_STRING_BYTES;
use crate::values::Naming;
use crate::watch::CutReason;
use crate::wire::{
    AddressSource, DeliveryState, EventSort, MAX_CONFIRMED, MAX_DOCUMENTS, MAX_ID_TOKEN_BYTES,
    MAX_OPERATIONS, NameOutcome, OperationState, RESCUE_KEYS, Verb,
};
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
pub(super) fn components() -> [(&'static str, Value); 85] {
    let text = || json!({"type": "string"});
    let time = || form(Semantic::Timestamp);
    let number = || json!({"type": "integer", "minimum": 0, "maximum": MAX_INT});
    let list = |name: &str| json!({"type": "array", "items": reference(name)});
    let object = |required: &[&str], properties: Value| json!({"type": "object", "required": required, "properties": properties});
    let bounded = |longest: usize| json!({"type": "string", "maxLength": longest});
    let texts = || json!({"type": "array", "items": {"type": "string"}});
    let closed = |required: &[&str], properties: Value| json!({"type": "object", "required": required, "properties": properties, "additionalProperties": false});
    let problem_codes: Vec<_> = ProblemCode::ALL.iter().map(|c| c.as_str()).collect();
    let field_codes: Vec<_> = FieldCode::ALL.iter().map(|c| json!(c)).collect();
    let delivery_states = DeliveryState::ALL.map(DeliveryState::as_str);
    let cut_reasons: Vec<_> = CutReason::ALL.iter().map(|r| r.as_str()).collect();
    let effects = ["none", "live", "reboot", "redeploy", "replace"];
    let verbs = Verb::ALL.map(Verb::as_str);
    let operation_states = OperationState::ALL.map(OperationState::as_str);
    [
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
            "Problem",
            object(
                &["type", "code", "status", "title"],
                json!({
                    "type": text(), "code": {"type": "string", "enum": problem_codes},
                    "status": {"type": "integer"}, "title": text(), "detail": text(), "errors": list("FieldError"),
                    "request_id": text(), "retry_after": number(),
                }),
            ),
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
            "WhoAmI",
            object(
                &["actor", "by", "roles", "scopes"],
                json!({
                    "actor": text(), "by": {"type": "string", "enum": ["session", "token", "socket"]}, "name": text(),
                    "uid": form(Semantic::Uid), "user": text(), "roles": list("GrantedRole"), "scopes": texts(),
                    "expires_at": time(),
                }),
            ),
        ),
        (
            "GrantedRole",
            object(
                &["role"],
                json!({"role": {"type": "string", "enum": ["viewer", "operator", "admin"]}, "pools": texts()}),
            ),
        ),
        ("LoginAnswer", object(&["token", "expires_at"], json!({"token": text(), "expires_at": time()}))),
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
        ("TokenIssued", object(&["token"], json!({"token": text()}))),
        ("AddressPage", object(&["items"], json!({"items": list("AddressEntry"), "continue": text()}))),
        (
            "AddressEntry",
            object(
                &["address", "subnet", "source"],
                json!({
                    "address": form(Semantic::Ip), "subnet": text(),
                    "source": {"type": "string", "enum": AddressSource::ALL.map(AddressSource::as_str)},
                    "owner": text(), "interface": text(), "machine": text(), "device": text(),
                    "mac": form(Semantic::Mac), "duid": form(Semantic::Duid), "hostname": text(), "rack": text(),
                    "ends_at": time(),
                }),
            ),
        ),
        ("AuditPage", object(&["items"], json!({"items": list("AuditEntry"), "continue": text()}))),
        (
            "AuditEntry",
            object(
                &["at", "actor", "address", "request", "kind", "name"],
                json!({
                    "at": time(), "actor": text(), "address": text(), "request": text(), "kind": text(),
                    "uid": form(Semantic::Uid), "name": text(), "generation": number(), "before": {}, "after": {},
                }),
            ),
        ),
        ("DeliveryPage", object(&["items"], json!({"items": list("DeliveryInfo"), "continue": text()}))),
        (
            "DeliveryInfo",
            object(
                &["id", "state", "event", "at", "sequence", "kind", "name", "uid", "attempts"],
                json!({
                    "id": form(Semantic::Uid), "state": {"type": "string", "enum": delivery_states}, "event": text(),
                    "at": time(), "sequence": number(), "kind": text(), "name": text(), "uid": form(Semantic::Uid),
                    "attempts": number(), "due": time(), "ended_at": time(), "error": text(),
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
        ("RedeliverRequest", closed(&[], json!({"id": form(Semantic::Uid)}))),
        ("Redelivered", object(&["deliveries"], json!({"deliveries": number()}))),
        ("RedeliveredOrDryRun", json!({"anyOf": [reference("Redelivered"), reference("DryRun")]})),
        (
            "FieldError",
            object(
                &["pointer", "code", "message"],
                json!({"pointer": text(), "code": {"type": "string", "enum": field_codes}, "message": text(), "hint": text()}),
            ),
        ),
        (
            "FieldChange",
            object(
                &["pointer", "effect"],
                json!({"pointer": text(), "old": {}, "new": {}, "effect": {"type": "string", "enum": effects}}),
            ),
        ),
        (
            "Advisory",
            object(
                &["pointer", "code", "message"],
                json!({"pointer": text(), "code": {"type": "string", "enum": field_codes}, "message": text(), "hint": text()}),
            ),
        ),
        (
            "Consequences",
            object(
                &["machines", "not_told"],
                json!({
                    "machines": {"type": "array", "items": object(
                        &["machine", "summary", "steps"],
                        json!({"machine": text(), "summary": text(), "steps": list("Step")}),
                    )},
                    "not_told": number(),
                }),
            ),
        ),
        (
            "PlanReport",
            object(
                &["summary", "changes", "effect", "steps", "waits"],
                json!({
                    "summary": text(), "changes": list("FieldChange"), "effect": {"type": "string", "enum": effects},
                    "steps": list("Step"), "waits": list("Wait"), "machine": text(), "taken_from": text(),
                    "interrupts": text(),
                    "notes": {"type": "array", "items": text()}, "digest": form(Semantic::Sha256),
                }),
            ),
        ),
        (
            "Step",
            object(
                &["key", "message", "state", "destructive", "attempts"],
                json!({
                    "key": text(), "message": text(),
                    "state": {"type": "string", "enum": ["later", "next", "running", "done", "failed"]},
                    "destructive": {"type": "boolean"}, "power": {"type": "boolean"}, "attempts": number(), "started_at": time(),
                    "deadline": time(), "error": text(),
                }),
            ),
        ),
        (
            "Wait",
            object(
                &["cause", "message", "since"],
                json!({
                    "cause": text(), "message": text(), "since": time(), "deadline": time(), "human": text(),
                    "remedy": text(), "rule": text(),
                }),
            ),
        ),
        ("Waits", object(&["waits"], json!({"waits": list("Wait")}))),
        (
            "TimelineEntry",
            object(
                &["at", "kind", "reason", "message"],
                json!({
                    "at": time(), "kind": {"type": "string", "enum": ["change", "fact", "step", "condition"]},
                    "reason": text(), "message": text(), "source": text(), "took": form(Semantic::Duration),
                    "data": {"type": "object"},
                }),
            ),
        ),
        ("Timeline", object(&["entries"], json!({"entries": list("TimelineEntry")}))),
        (
            "Boots",
            object(
                &["macs", "boots", "racks"],
                json!({
                    "machine": text(), "macs": texts(), "boots": list("Boot"), "judgement": reference("Judgement"),
                    "racks": list("Listener"), "others_lost": number(),
                }),
            ),
        ),
        (
            "NameReport",
            object(
                &["name", "outcome", "message", "records", "zones", "servers", "near", "racks"],
                json!({
                    "name": text(), "outcome": {"type": "string", "enum": NameOutcome::ALL.map(NameOutcome::as_str)},
                    "message": text(), "records": list("NameRecord"), "zones": list("NameZone"),
                    "servers": {"type": "array", "items": form(Semantic::Ip)}, "near": texts(), "racks": list("NameRack"),
                }),
            ),
        ),
        (
            "NameRecord",
            object(
                &["owner", "type", "ttl", "data", "zone", "from"],
                json!({
                    "owner": text(), "type": text(), "ttl": number(), "data": text(), "zone": text(), "wildcard": text(),
                    "from": list("NameSource"),
                }),
            ),
        ),
        ("NameSource", object(&["kind", "name"], json!({"kind": text(), "name": text(), "note": text()}))),
        (
            "NameZone",
            object(
                &["origin", "serial", "since", "negative_ttl", "from"],
                json!({
                    "origin": text(), "serial": number(), "since": time(), "negative_ttl": number(),
                    "from": list("NameSource"),
                }),
            ),
        ),
        (
            "NameRack",
            object(
                &["rack", "holds", "addresses", "message"],
                json!({
                    "rack": text(), "holds": {"type": "boolean"}, "since": time(),
                    "addresses": {"type": "array", "items": form(Semantic::Ip)}, "message": text(),
                }),
            ),
        ),
        ("Logs", object(&["lines"], json!({"lines": list("LogLine"), "more": {"type": "boolean"}}))),
        (
            "LogLine",
            object(
                &["at", "facility", "severity", "text"],
                json!({
                    "at": time(), "facility": text(), "severity": text(), "time": text(), "host": text(), "app": text(),
                    "procid": text(), "msgid": text(), "structured": text(), "address": text(), "text": text(),
                }),
            ),
        ),
        (
            "EventEntry",
            object(
                &["id", "at", "sort", "kind", "name", "words", "actor"],
                json!({
                    "id": text(), "at": time(), "sort": {"type": "string", "enum": EventSort::ALL.map(EventSort::as_str)},
                    "kind": text(), "uid": form(Semantic::Uid), "name": text(), "words": text(), "detail": text(), "actor": text(),
                }),
            ),
        ),
        ("EventPage", object(&["items"], json!({"items": list("EventEntry"), "continue": text()}))),
        (
            "EventEvent",
            object(
                &["id", "event", "data"],
                json!({
                    "id": text(), "event": {"type": "string", "enum": ["event", "ping", "cut"]},
                    "data": {
                        "type": "string", "contentMediaType": "application/json",
                        "contentSchema": reference("EventEventData"),
                    },
                }),
            ),
        ),
        (
            "EventEventData",
            json!({
                "description": "Of `event` an EventEntry, of `ping` an empty object, of `cut` why.",
                "anyOf": [reference("EventEntry"), object(&["message"], json!({"message": text()})),
                    {"type": "object", "maxProperties": 0}],
            }),
        ),
        (
            "LogEvent",
            object(
                &["id", "event", "data"],
                json!({
                    "id": text(), "event": {"type": "string", "enum": ["line", "ping", "cut"]},
                    "data": {
                        "type": "string", "contentMediaType": "application/json",
                        "contentSchema": reference("LogEventData"),
                    },
                }),
            ),
        ),
        (
            "LogEventData",
            json!({
                "description": "Of `line` a LogLine, of `ping` an empty object, of `cut` why.",
                "anyOf": [reference("LogLine"), object(&["message"], json!({"message": text()})),
                    {"type": "object", "maxProperties": 0}],
            }),
        ),
        (
            "Boot",
            object(
                &["began", "mac", "entries"],
                json!({
                    "began": time(), "mac": text(), "entries": list("BootEntry"), "lost": number(), "judgement": reference("Judgement"),
                }),
            ),
        ),
        (
            "BootEntry",
            object(
                &["at", "rack", "service", "asked", "answered", "times"],
                json!({
                    "at": time(), "rack": text(), "service": text(), "client": text(), "asked": text(), "answered": text(),
                    "reason": text(), "address": text(), "times": number(), "opens": {"type": "boolean"},
                }),
            ),
        ),
        (
            "Judgement",
            object(
                &["code", "message", "to_do"],
                json!({"code": text(), "message": text(), "to_do": text()}),
            ),
        ),
        (
            "Listener",
            object(
                &["rack", "connected", "addresses"],
                json!({"rack": text(), "connected": {"type": "boolean"}, "addresses": texts()}),
            ),
        ),
        (
            "Decisions",
            object(&["decisions"], json!({"decisions": list("Decision"), "next": {"type": "integer"}})),
        ),
        (
            "Decision",
            object(
                &["id", "at", "message", "step_key", "epoch", "generation", "planner", "digest"],
                json!({
                    "id": {"type": "integer"}, "at": time(), "message": text(), "step_key": text(), "epoch": number(),
                    "generation": number(), "planner": text(), "digest": form(Semantic::Sha256),
                    "detail": reference("DecisionDetail"),
                }),
            ),
        ),
        (
            "DecisionDetail",
            object(
                &["now", "facts", "steps", "plan", "replay"],
                json!({
                    "now": time(), "facts": {"type": "array", "items": {"type": "integer"}},
                    "steps": {"type": "array", "items": {"type": "integer"}}, "plan": {"type": "object"},
                    "replay": reference("Replay"),
                }),
            ),
        ),
        (
            "Replay",
            object(
                &["verdict", "message", "planner"],
                json!({
                    "verdict": {"type": "string", "enum": ["same", "different", "impossible"]}, "message": text(),
                    "planner": text(), "differences": list("ReplayDifference"),
                }),
            ),
        ),
        (
            "ReplayDifference",
            object(
                &["pointer", "decided", "replayed"],
                json!({"pointer": text(), "decided": {}, "replayed": {}}),
            ),
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
            "DryRun",
            object(
                &["object", "plan", "advisories"],
                json!({
                    "object": reference("Object"), "plan": reference("PlanReport"),
                    "consequences": reference("Consequences"), "advisories": list("Advisory"),
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
            "ApplyResponse",
            object(
                &["summary", "digest", "results", "advisories"],
                json!({
                    "summary": text(), "digest": form(Semantic::Sha256),
                    "blast_radius": object(&["power", "disks"], json!({"power": texts(), "disks": texts()})),
                    "consequences": reference("Consequences"),
                    "results": {"type": "array", "items": object(
                        &["kind", "name", "action"],
                        json!({
                            "kind": text(), "name": text(),
                            "action": {"type": "string", "enum": ["created", "updated", "unchanged", "deleted"]},
                            "uid": form(Semantic::Uid), "generation": number(), "plan": reference("PlanReport"),
                        }),
                    )},
                    "advisories": list("Advisory"),
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
                    "verb": {"type": "string", "enum": verbs},
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
            "Operation",
            object(
                &["id", "machine", "verb", "state", "reason", "message", "accepted_at", "deadline", "path"],
                json!({
                    "id": form(Semantic::Uid), "machine": text(), "verb": {"type": "string", "enum": verbs},
                    "state": {"type": "string", "enum": operation_states}, "reason": text(), "message": text(),
                    "script": text(), "tests": texts(), "output": text(), "requested_by": text(), "accepted_at": time(),
                    "deadline": time(), "begun_at": time(), "finished_at": time(), "path": text(),
                }),
            ),
        ),
        (
            "TestResult",
            object(
                &["script", "verdict", "message", "seconds", "attempt", "at"],
                json!({
                    "script": text(), "device": text(), "verdict": {"type": "string", "enum": ["skipped", "passed", "degraded", "failed"]},
                    "message": text(), "figures": {"type": "object", "additionalProperties": {"type": "number"}},
                    "output": text(), "seconds": {"type": "number"}, "attempt": number(), "at": time(),
                }),
            ),
        ),
        ("TestResults", object(&["items"], json!({"items": list("TestResult")}))),
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
        (
            "OperationResult",
            object(
                &["machine"],
                json!({
                    "machine": text(), "operation": reference("Operation"), "plan": reference("PlanReport"),
                    "problem": reference("Problem"),
                }),
            ),
        ),
        ("OperationsAnswer", object(&["items"], json!({"items": list("OperationResult")}))),
        (
            "Action",
            object(
                &["verb"],
                json!({"verb": {"type": "string", "enum": verbs}, "problem": reference("Problem")}),
            ),
        ),
        ("Actions", object(&["items"], json!({"items": list("Action")}))),
        ("OperationList", object(&["items"], json!({"items": list("Operation")}))),
        (
            "Gone",
            object(
                &["kind", "metadata"],
                json!({"kind": text(), "metadata": object(&["name", "uid"], json!({"name": text(), "uid": form(Semantic::Uid)}))}),
            ),
        ),
        (
            "Cut",
            object(
                &["reason", "message"],
                json!({"reason": {"type": "string", "enum": cut_reasons}, "message": text()}),
            ),
        ),
        (
            "WatchEvent",
            object(
                &["id", "event", "data"],
                json!({
                    "id": text(), "event": {"type": "string", "enum": ["put", "delete", "bookmark", "cut"]},
                    "data": {
                        "type": "string", "contentMediaType": "application/json",
                        "contentSchema": reference("WatchEventData"),
                    },
                }),
            ),
        ),
        (
            "WatchEventData",
            json!({
                "description": "Of `put` an Object, of `delete` Gone, of `bookmark` an empty object, of `cut` Cut.",
                "anyOf": [reference("Object"), reference("Gone"), reference("Cut"), {"type": "object", "maxProperties": 0}],
            }),
        ),
        (
            "BlobState",
            object(&["received", "complete"], json!({"received": number(), "complete": {"type": "boolean"}})),
        ),
        (
            "Version",
            object(
                &["version", "api", "kinds"],
                json!({
                    "version": text(), "api": text(), "incarnation": form(Semantic::Uid),
                    "kinds": {"type": "array", "items": text()},
                }),
            ),
        ),
    ]
}
