//! Parameters in paths, queries and headers.

use super::examples;
use super::schemas::form;
use crate::routes::Route;
use crate::schema::{Kind, Semantic};
use crate::values::Naming;
use crate::watch::LAST_EVENT_ID;
use crate::wire::{
    AddressSource, DeliveryState, IDEMPOTENCY_HEADER, MANAGER_HEADER, MAX_TEST_RESULTS, RUN_HEADER,
};
use serde_json::{Map, Value, json};

/// A watch position: the incarnation of the database, and a sequence number.
const POSITION: &str = "^[0-9A-Fa-f-]{32,36}:[0-9]+$";

/// The parameter with this `key` in the table, for a route of this kind. Names have the form of their kind.
pub(super) fn reference(key: &str, route: &Route, kind: Option<&Kind>) -> Value {
    let key = match kind.or_else(|| route.kind()) {
        Some(kind) if key == "name" => format!("{}Name", kind.name),
        _ => key.to_owned(),
    };
    json!({"$ref": format!("#/components/parameters/{key}")})
}

/// All parameters, by the keys that the table uses.
pub(super) fn components(kinds: &[&Kind]) -> Value {
    let names = kinds.iter().map(|kind| (format!("{}Name", kind.name), name(kind)));
    let others = others().into_iter().map(|(key, name, place, schema, description)| {
        let parameter = json!({
            "name": name, "in": place, "required": place == "path", "description": description, "schema": schema,
        });
        (key.to_owned(), parameter)
    });
    let mut all: Map<String, Value> = names.chain(others).collect();
    all.sort_keys();
    Value::Object(all)
}

fn name(kind: &Kind) -> Value {
    let pattern = kind.naming.pattern();
    let name = pattern.trim_start_matches('^').trim_end_matches('$');
    let uid = "uid:[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}";
    let longest = if kind.naming == Naming::DomainName { 253 } else { 68 };
    let schema = json!({"type": "string", "pattern": format!("^({name}|{uid})$"), "maxLength": longest});
    let description = "The object's name, or `uid:` and its uid";
    let mut parameter =
        json!({"name": "name", "in": "path", "required": true, "description": description, "schema": schema});
    if let (Some(example), Some(map)) = (examples::example(kind), parameter.as_object_mut()) {
        map.insert("example".to_owned(), json!(example.name));
    }
    parameter
}

/// Key, name, place, schema and description.
fn others() -> Vec<(&'static str, &'static str, &'static str, Value, &'static str)> {
    let text = || json!({"type": "string"});
    let like = |pattern: &str| json!({"type": "string", "pattern": pattern});
    let truth = || json!({"type": "boolean"});
    vec![
        ("sha256", "sha256", "path", form(Semantic::Sha256), "The blob's SHA-256"),
        ("operation", "id", "path", form(Semantic::Uid), "The operation's id"),
        (
            "idempotency_key",
            IDEMPOTENCY_HEADER,
            "header",
            like("^[!-~]{1,128}$"),
            "A repeat with the same key is the same: it answers what the first one became",
        ),
        ("run", "run", "path", form(Semantic::Uid), "The run's id, which its client chose"),
        (
            "creating_run",
            RUN_HEADER,
            "header",
            form(Semantic::Uid),
            "The client's run: what it creates is unconfirmed until a report of a run confirms it",
        ),
        ("namespace", "namespace", "path", like("^basalt-metal$"), "The provider's namespace"),
        ("type", "type", "path", like("^basalt$"), "The provider"),
        ("version", "version", "path", text(), "The provider's version, which is the region's"),
        ("os", "os", "path", text(), "An operating system, as Terraform calls it: `linux`"),
        ("arch", "arch", "path", text(), "An architecture, as Terraform calls it: `amd64`"),
        ("file", "file", "path", text(), "The file's name"),
        (
            "page",
            "page",
            "path",
            like("^[0-9A-Za-z._-]+$"),
            "The page's name: its path in the repository, with full stops: `concepts.racks`, `provider.resources.machine`",
        ),
        ("path", "path", "path", text(), "What is behind /ui/, with slashes"),
        (
            "cookie",
            "cookie",
            "query",
            truth(),
            "The token comes as a cookie, for a browser, and not in the body; only to a page of the region",
        ),
        (
            "layer_manager",
            "manager",
            "path",
            like("^[!-~]{1,63}$"),
            "The tool whose labels and tags these are",
        ),
        (
            "limit",
            "limit",
            "query",
            json!({"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}),
            "Most objects of a page",
        ),
        ("continue", "continue", "query", text(), "`continue` of the page before"),
        (
            "state",
            "state",
            "query",
            json!({"type": "string", "enum": DeliveryState::ALL.map(DeliveryState::as_str)}),
            "Only deliveries of this state",
        ),
        ("entry", "continue", "query", like("^[0-9]{1,18}$"), "`continue` of the page before"),
        (
            "labels",
            "labels",
            "query",
            like("^([^,]*=[^,]*)?(,([^,]*=[^,]*)?)*$"),
            "Only objects with these labels: `a=b,c=d`",
        ),
        (
            "fields",
            "fields",
            "query",
            text(),
            "Only these members of each object: `metadata.name,status.conditions`",
        ),
        (
            "q",
            "q",
            "query",
            text(),
            "Only objects whose name, or any text in whose labels, spec or status contains this, in capitals or not",
        ),
        (
            "where",
            "where",
            "query",
            json!({"type": "string", "maxLength": crate::filter::MAX_FILTER_BYTES}),
            "Only objects that fit this filter: `zone:row-1 cores>=32 status:waiting`. A page may have fewer items than `limit`, or none, \
             and a `continue`: a request looks at 2,000 objects at most",
        ),
        (
            "layers",
            "layers",
            "query",
            truth(),
            "With every manager's labels and tags of each object, in `metadata.layers`",
        ),
        ("since", "since", "query", form(Semantic::Timestamp), "Only what is not older than this"),
        ("until", "until", "query", form(Semantic::Timestamp), "Only what is older than this"),
        (
            "boot",
            "boot",
            "query",
            json!({"type": "integer", "minimum": 0, "maximum": 1000}),
            "Only lines of this boot: 0 is the last one, 1 the one before",
        ),
        (
            "grep",
            "grep",
            "query",
            text(),
            "Only lines with this text in them, or in the name of their program or host",
        ),
        (
            "lines",
            "limit",
            "query",
            json!({"type": "integer", "minimum": 1, "maximum": 10000, "default": 1000}),
            "The last so many lines",
        ),
        ("script", "script", "query", text(), "Of this script alone"),
        ("latest", "latest", "query", truth(), "Of each script the latest run alone"),
        (
            "rows",
            "limit",
            "query",
            json!({"type": "integer", "minimum": 1, "maximum": MAX_TEST_RESULTS, "default": 200}),
            "Most rows",
        ),
        ("follow", "follow", "query", truth(), "Go on with what is new as it comes, as server-sent events"),
        (
            "last_event",
            LAST_EVENT_ID,
            "header",
            like("^[0-9]{1,18}$"),
            "With `follow`: go on after this event",
        ),
        (
            "last_line",
            LAST_EVENT_ID,
            "header",
            like("^[0-9]{1,18}:[0-9]{1,18}$"),
            "With `follow`: go on after this event of the same region",
        ),
        (
            "booted",
            "machine",
            "path",
            text(),
            "A machine's name or `uid:UUID`, or a MAC in any spelling, which nobody need have declared",
        ),
        (
            "host_name",
            "name",
            "path",
            text(),
            "A host name, or an address, which stands for its reverse name. A name without dots is in the default domain",
        ),
        ("object", "object", "query", text(), "Only of this object: `uid:UUID`, `KIND/NAME` or `KIND`"),
        ("subnet", "subnet", "query", text(), "Only in this Subnet: its name, or `uid:UUID`"),
        ("address", "address", "query", form(Semantic::Ip), "Only this address"),
        (
            "address_source",
            "source",
            "query",
            json!({"type": "string", "enum": AddressSource::ALL.map(AddressSource::as_str)}),
            "Only from this source",
        ),
        ("actor", "actor", "query", text(), "Only by this actor: `token NAME`, `user NAME`, `peer uid 0`"),
        ("wait", "wait", "query", text(), "Answer when this condition is true, or Stalled is"),
        (
            "generation",
            "generation",
            "query",
            json!({"type": "integer", "minimum": 0, "maximum": u64::MAX}),
            "… and has observed this generation",
        ),
        (
            "timeout",
            "timeout",
            "query",
            form(Semantic::Duration),
            "… or when this time is up: 1m where it is absent, 5m at most",
        ),
        (
            "before",
            "before",
            "query",
            json!({"type": "integer", "minimum": 0, "maximum": crate::schema::MAX_INT}),
            "`next` of the page before",
        ),
        (
            "replay",
            "replay",
            "query",
            truth(),
            "Each with all that it rested on, and decided again from that",
        ),
        ("dry_run", "dry_run", "query", truth(), "Store nothing, and answer what would happen"),
        (
            "force",
            "force",
            "query",
            truth(),
            "Do not wait until it is released: a deployment's machine is let go as it is, unwiped",
        ),
        (
            "if_unused",
            "if_unused",
            "query",
            truth(),
            "Only if nobody refers to it; otherwise it is refused as `in_use`, and nothing changes",
        ),
        (
            "adopt",
            "adopt",
            "query",
            truth(),
            "Also if another manager declared it; otherwise that is refused, and nothing changes",
        ),
        (
            "manager",
            MANAGER_HEADER,
            "header",
            like("^[!-~]{1,63}$"),
            "Which tool writes; becomes `metadata.manager`",
        ),
        (
            "if_match",
            "If-Match",
            "header",
            like(r#"^(\*|[0-9]{1,18}|"[0-9]{1,18}")$"#),
            "Only if this is still the generation: the ETag; `*`: only if it is there",
        ),
        (
            "if_none_match",
            "If-None-Match",
            "header",
            json!({"type": "string", "enum": ["*"]}),
            "Only if there is no such object",
        ),
        (
            "position",
            "since",
            "query",
            like(POSITION),
            "Go on from this position: of a list, or the `id` of an event",
        ),
        (
            "last_event_id",
            LAST_EVENT_ID,
            "header",
            like(POSITION),
            "The same, for clients that resume by themselves",
        ),
        ("kinds", "kinds", "query", text(), "Only objects of these kinds: `machines,deployments`"),
        (
            "content_range",
            "Content-Range",
            "header",
            like("^bytes [0-9]{1,18}-[0-9]{1,18}/[0-9]{1,18}$"),
            "Which bytes of the blob follow: `bytes 0-99/100`",
        ),
        (
            "range",
            "Range",
            "header",
            text(),
            "From which byte on: `bytes=100-`; anything else is answered with all of it",
        ),
    ]
}
