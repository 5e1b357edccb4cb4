//! The OpenAPI 3.1 document of the REST API: paths from one table, everything about kinds from their descriptions.
//!
//! | module | is |
//! | --- | --- |
//! | [`answers`] | what each operation answers; its refusals, by rules |
//! | [`parameters`] | parameters, each described once |
//! | [`schemas`], [`wire`] | the schemas of kinds; those that are not about kinds |
//! | [`examples`] | an object of every kind |
//!
//! `docs/reference/openapi.json` is this document; `make openapi` writes it.

mod answers;
#[cfg(test)]
mod compatibility;
mod examples;
mod parameters;
mod schemas;
#[cfg(test)]
mod tests;
mod text;
mod wire;

pub use examples::{Example, examples};
pub use text::openapi_text;

use crate::schema::Kind;
use crate::wire::MERGE_PATCH;
use serde_json::{Map, Value, json};

/// The version of the document. A change that breaks clients must raise it: see `compatibility`.
const VERSION: &str = "0.6";

/// The kinds for which an endpoint exists.
enum For {
    /// One path that is not for a kind.
    Itself,
    /// Every kind.
    All,
    /// The kinds with these names.
    Named(&'static [&'static str]),
}

/// One operation. `{plural}` in a path and `{Kind}` in texts and schema names are replaced by the kind's.
struct Endpoint {
    method: &'static str,
    path: &'static str,
    exists_for: For,
    id: &'static str,
    summary: &'static str,
    parameters: &'static [&'static str],
    request: Option<&'static str>,
    /// Status, description and schema of the successful answers. No schema for an answer without JSON.
    answers: &'static [(&'static str, &'static str, Option<&'static str>)],
}

const LIVING: &[&str] = &["Machine", "Deployment"];

/// Operations that need no token, in addition to those of the provider's registry.
const OPEN: &[&str] = &[
    "home",
    "console",
    "docs",
    "pages",
    "page",
    "openapi",
    "version",
    "versionAtTheRoot",
    "healthz",
    "readyz",
    "login",
    "loginWays",
    "beginLogin",
    "registry",
];

/// Operations that answer without the database and without checks of the request. They never fail with 422, 500 or 503.
const CONSTANT: &[&str] =
    &["home", "console", "docs", "pages", "openapi", "version", "versionAtTheRoot", "healthz", "registry"];

/// Every operation of the API.
const ENDPOINTS: &[Endpoint] = &[
    Endpoint {
        method: "get",
        path: "/api/v1/{plural}",
        exists_for: For::All,
        id: "list{Kind}",
        summary: "List objects of kind {Kind}, by name",
        parameters: &["limit", "continue", "labels", "fields", "q", "where", "layers"],
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
        parameters: &["name", "dry_run", "manager", "creating_run", "if_match", "if_none_match"],
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
        parameters: &["name", "dry_run", "adopt", "manager", "if_match"],
        request: Some("application/merge-patch+json"),
        answers: &[("200", "The object as it is now; with `dry_run` a DryRun", Some("{Kind}OrDryRun"))],
    },
    Endpoint {
        method: "delete",
        path: "/api/v1/{plural}/{name}",
        exists_for: For::All,
        id: "delete{Kind}",
        summary: "Have a {Kind} go; repeating it is harmless",
        parameters: &["name", "dry_run", "force", "if_unused", "adopt", "manager", "if_match"],
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
        exists_for: For::All,
        id: "rename{Kind}",
        summary: "Give a {Kind} another name; what refers to it follows",
        parameters: &["name", "dry_run", "adopt", "manager"],
        request: Some("RenameRequest"),
        answers: &[("200", "The object under its new name; with `dry_run` a DryRun", Some("{Kind}OrDryRun"))],
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
        request: Some("PutLayer"),
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
        method: "get",
        path: "/api/v1/{plural}/{name}/decisions",
        exists_for: For::Named(LIVING),
        id: "decisions{Kind}",
        summary: "Why steps were begun, and whether the same would be decided again",
        parameters: &["name", "before", "replay"],
        request: None,
        answers: &[("200", "The decisions, the newest first", Some("Decisions"))],
    },
    Endpoint {
        method: "post",
        path: "/api/v1/{plural}/{name}/operations",
        exists_for: For::Named(&["Machine"]),
        id: "operate{Kind}",
        summary: "Ask for something to be done once",
        parameters: &["name", "dry_run", "idempotency_key"],
        request: Some("OperationRequest"),
        answers: &[
            ("200", "With `dry_run`: what would happen", Some("DryRun")),
            ("202", "Accepted: `path` says what becomes of it", Some("Operation")),
        ],
    },
    Endpoint {
        method: "get",
        path: "/api/v1/{plural}/{name}/operations",
        exists_for: For::Named(&["Machine"]),
        id: "list{Kind}Operations",
        summary: "What was asked for once, and what became of it",
        parameters: &["name"],
        request: None,
        answers: &[("200", "The newest hundred, the newest first", Some("OperationList"))],
    },
    Endpoint {
        method: "get",
        path: "/api/v1/{plural}/{name}/operations/{id}",
        exists_for: For::Named(&["Machine"]),
        id: "read{Kind}Operation",
        summary: "What became of something that was asked for once",
        parameters: &["name", "operation"],
        request: None,
        answers: &[("200", "The operation", Some("Operation"))],
    },
    Endpoint {
        method: "get",
        path: "/api/v1/{plural}/{name}/actions",
        exists_for: For::Named(&["Machine"]),
        id: "actions{Kind}",
        summary: "What can be asked of a {Kind} now; of the rest, why not",
        parameters: &["name"],
        request: None,
        answers: &[("200", "Every verb", Some("Actions"))],
    },
    Endpoint {
        method: "post",
        path: "/api/v1/operations",
        exists_for: For::Itself,
        id: "operateMany",
        summary: "Ask many machines for the same, each by itself: those that are named, or all that fit a filter",
        parameters: &["dry_run", "idempotency_key"],
        request: Some("OperationsRequest"),
        answers: &[(
            "200",
            "What became of each machine; with `dry_run` what would happen",
            Some("OperationsAnswer"),
        )],
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
        path: "/api/v1/runs/{run}",
        exists_for: For::Itself,
        id: "reportRun",
        summary: "Say that a run of this client goes on or ends, and which objects the client keeps",
        parameters: &["run"],
        request: Some("RunReport"),
        answers: &[("204", "Noted", None)],
    },
    Endpoint {
        method: "post",
        path: "/api/v1/login",
        exists_for: For::Itself,
        id: "login",
        summary: "Log in, with a password or by OpenID Connect, for a session's token",
        parameters: &["cookie"],
        request: Some("LoginRequest"),
        answers: &[
            ("201", "The session's token", Some("LoginAnswer")),
            ("204", "The same as a cookie", None),
        ],
    },
    Endpoint {
        method: "get",
        path: "/api/v1/login",
        exists_for: For::Itself,
        id: "loginWays",
        summary: "Which ways to log in there are in a browser, beside a password and a token",
        parameters: &[],
        request: None,
        answers: &[("200", "The ways", Some("LoginWays"))],
    },
    Endpoint {
        method: "get",
        path: "/api/v1/login/openid",
        exists_for: For::Itself,
        id: "beginLogin",
        summary: "Begin a login by OpenID Connect in a browser: the issuer's page, and the cookie that the login is bound to",
        parameters: &[],
        request: None,
        answers: &[("200", "The issuer's page", Some("LoginBegun"))],
    },
    Endpoint {
        method: "post",
        path: "/api/v1/logout",
        exists_for: For::Itself,
        id: "logout",
        summary: "End the session whose token this is, and the cookie",
        parameters: &[],
        request: None,
        answers: &[("204", "It has ended", None)],
    },
    Endpoint {
        method: "post",
        path: "/api/v1/password",
        exists_for: For::Itself,
        id: "changePassword",
        summary: "Change one's own password, in a session: all of the user's end, and another one begins",
        parameters: &[],
        request: Some("PasswordRequest"),
        answers: &[
            ("201", "The next session's token", Some("LoginAnswer")),
            ("204", "The same as a cookie, where a cookie said who asks", None),
        ],
    },
    Endpoint {
        method: "get",
        path: "/api/v1/whoami",
        exists_for: For::Itself,
        id: "whoami",
        summary: "Who the region takes the caller for, and what that one may do",
        parameters: &[],
        request: None,
        answers: &[("200", "The caller", Some("WhoAmI"))],
    },
    Endpoint {
        method: "post",
        path: "/api/v1/api_tokens/{name}/issue",
        exists_for: For::Itself,
        id: "issueApiToken",
        summary: "Make the token's text, which is shown this once; the one before is good no more",
        parameters: &["name", "dry_run"],
        request: None,
        answers: &[
            ("200", "With `dry_run`: what would happen", Some("DryRun")),
            ("201", "The token", Some("TokenIssued")),
        ],
    },
    Endpoint {
        method: "post",
        path: "/api/v1/api_tokens/{name}/revoke",
        exists_for: For::Itself,
        id: "revokeApiToken",
        summary: "Make the token's text good no more",
        parameters: &["name", "dry_run"],
        request: None,
        answers: &[
            ("200", "With `dry_run`: what would happen", Some("DryRun")),
            ("204", "It is good no more", None),
        ],
    },
    Endpoint {
        method: "post",
        path: "/api/v1/join_tokens",
        exists_for: For::Itself,
        id: "joinToken",
        summary: "Make a token with which one rack enrols",
        parameters: &[],
        request: Some("JoinRequest"),
        answers: &[("201", "The token, for `basalt-rack --join`", Some("JoinAnswer"))],
    },
    Endpoint {
        method: "get",
        path: "/api/v1/webhooks/{name}/deliveries",
        exists_for: For::Itself,
        id: "listDeliveries",
        summary: "Deliveries of a webhook, the newest event first",
        parameters: &["name", "state", "limit", "entry"],
        request: None,
        answers: &[("200", "A page of them", Some("DeliveryPage"))],
    },
    Endpoint {
        method: "post",
        path: "/api/v1/webhooks/{name}/redeliver",
        exists_for: For::Itself,
        id: "redeliver",
        summary: "Send dead letters of a webhook again: one, or all",
        parameters: &["name", "dry_run"],
        request: Some("RedeliverRequest"),
        answers: &[("200", "How many are sent again; with `dry_run` a DryRun", Some("RedeliveredOrDryRun"))],
    },
    Endpoint {
        method: "get",
        path: "/api/v1/boots/{machine}",
        exists_for: For::Itself,
        id: "boots",
        summary: "What a machine asked of racks as it booted, the newest boot first, and why one went no further",
        parameters: &["booted"],
        request: None,
        answers: &[("200", "Its boots", Some("Boots"))],
    },
    Endpoint {
        method: "get",
        path: "/api/v1/names/{name}",
        exists_for: For::Itself,
        id: "name",
        summary: "How racks answer for a host name or an address: the records and their objects, the zones, and the racks that hold them",
        parameters: &["host_name"],
        request: None,
        answers: &[("200", "The answer", Some("NameReport"))],
    },
    Endpoint {
        method: "get",
        path: "/api/v1/machines/{name}/logs",
        exists_for: For::Itself,
        id: "logs",
        summary: "What a machine said by syslog, and what its agent and scripts said; with `follow` as server-sent events `line`, `ping` and, at the end, `cut`",
        parameters: &["name", "since", "until", "boot", "grep", "lines", "follow", "last_line"],
        request: None,
        answers: &[("200", "The last lines that are asked for", Some("Logs"))],
    },
    Endpoint {
        method: "get",
        path: "/api/v1/machines/{name}/results",
        exists_for: For::Itself,
        id: "testResults",
        summary: "Findings of the tests of a machine's hardware, one for each device",
        parameters: &["name", "script", "latest", "rows"],
        request: None,
        answers: &[("200", "The findings, the newest run first", Some("TestResults"))],
    },
    Endpoint {
        method: "get",
        path: "/api/v1/addresses",
        exists_for: For::Itself,
        id: "addresses",
        summary: "Who has which address, from every source, by subnet and address",
        parameters: &["subnet", "address", "address_source", "limit", "continue"],
        request: None,
        answers: &[("200", "A page of them", Some("AddressPage"))],
    },
    Endpoint {
        method: "get",
        path: "/api/v1/audit",
        exists_for: For::Itself,
        id: "audit",
        summary: "Who wrote what, the newest first",
        parameters: &["since", "object", "actor", "limit", "entry"],
        request: None,
        answers: &[("200", "A page of the log", Some("AuditPage"))],
    },
    Endpoint {
        method: "get",
        path: "/api/v1/events",
        exists_for: For::Itself,
        id: "events",
        summary: "What happens in the region, the newest first; with `follow` the last ones and what comes, as server-sent events `event`, `ping` and, at the end, `cut`",
        parameters: &["kinds", "object", "since", "limit", "entry", "follow", "last_event"],
        request: None,
        answers: &[("200", "A page of events", Some("EventPage"))],
    },
    Endpoint {
        method: "get",
        path: "/api/v1/watch",
        exists_for: For::Itself,
        id: "watch",
        summary: "What changes, as it changes: server-sent events `put`, `delete`, `bookmark` and, at the end, `cut`; each `id` is a position",
        parameters: &["position", "last_event_id", "kinds", "labels", "fields"],
        request: None,
        answers: &[("200", "The events, without end", Some("text/event-stream"))],
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
        method: "get",
        path: "/api/v1/blobs/{sha256}",
        exists_for: For::Itself,
        id: "getBlob",
        summary: "Download a blob, or the rest of it",
        parameters: &["sha256", "range"],
        request: None,
        answers: &[
            ("200", "All of it", Some("application/octet-stream")),
            ("206", "From there to its end", Some("application/octet-stream")),
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
            ("200", "It was all there already", Some("BlobState")),
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
        path: "/version",
        exists_for: For::Itself,
        id: "versionAtTheRoot",
        summary: "The same, at a path that every version of the API has",
        parameters: &[],
        request: None,
        answers: &[("200", "The version", Some("Version"))],
    },
    Endpoint {
        method: "get",
        path: "/openapi.json",
        exists_for: For::Itself,
        id: "openapi",
        summary: "This document",
        parameters: &[],
        request: None,
        answers: &[("200", "The document", Some("OpenApi"))],
    },
    Endpoint {
        method: "get",
        path: "/docs",
        exists_for: For::Itself,
        id: "docs",
        summary: "This document as a page for people",
        parameters: &[],
        request: None,
        answers: &[("200", "The page", Some("text/html"))],
    },
    Endpoint {
        method: "get",
        path: "/",
        exists_for: For::Itself,
        id: "home",
        summary: "The console",
        parameters: &[],
        request: None,
        answers: &[("200", "The page", Some("text/html"))],
    },
    Endpoint {
        method: "get",
        path: "/ui/{path}",
        exists_for: For::Itself,
        id: "console",
        summary: "The console's own pages and files",
        parameters: &["path"],
        request: None,
        answers: &[("200", "The page, or the file", Some("text/html"))],
    },
    Endpoint {
        method: "get",
        path: "/pages",
        exists_for: For::Itself,
        id: "pages",
        summary: "The pages of the manual, those of the Terraform provider among them",
        parameters: &[],
        request: None,
        answers: &[("200", "Their list, as a page for people", Some("text/html"))],
    },
    Endpoint {
        method: "get",
        path: "/pages/{page}",
        exists_for: For::Itself,
        id: "page",
        summary: "A page of the manual",
        parameters: &["page"],
        request: None,
        answers: &[("200", "The page", Some("text/html"))],
    },
    Endpoint {
        method: "get",
        path: "/.well-known/terraform.json",
        exists_for: For::Itself,
        id: "registry",
        summary: "Where Terraform finds the registry of the Basalt provider (remote service discovery)",
        parameters: &[],
        request: None,
        answers: &[("200", "Its path", Some("Registry"))],
    },
    Endpoint {
        method: "get",
        path: "/v1/providers/{namespace}/{type}/versions",
        exists_for: For::Itself,
        id: "providerVersions",
        summary: "Which version of the provider there is: the region's own",
        parameters: &["namespace", "type"],
        request: None,
        answers: &[("200", "The version, and its platforms", Some("ProviderVersions"))],
    },
    Endpoint {
        method: "get",
        path: "/v1/providers/{namespace}/{type}/{version}/download/{os}/{arch}",
        exists_for: For::Itself,
        id: "providerPackage",
        summary: "Where the provider's package for a platform is, and what it has to be",
        parameters: &["namespace", "type", "version", "os", "arch"],
        request: None,
        answers: &[("200", "The package", Some("ProviderPackage"))],
    },
    Endpoint {
        method: "get",
        path: "/v1/providers/{namespace}/{type}/{version}/files/{file}",
        exists_for: For::Itself,
        id: "providerFile",
        summary: "A package of the provider, the packages' checksums, or the signature of those",
        parameters: &["namespace", "type", "version", "file"],
        request: None,
        answers: &[("200", "The file", Some("application/octet-stream"))],
    },
    Endpoint {
        method: "get",
        path: "/metrics",
        exists_for: For::Itself,
        id: "metrics",
        summary: "What is counted, for Prometheus (exposition format 0.0.4)",
        parameters: &[],
        request: None,
        answers: &[("200", "The counts", Some("text/plain"))],
    },
    Endpoint {
        method: "get",
        path: "/healthz",
        exists_for: For::Itself,
        id: "healthz",
        summary: "Whether the process runs",
        parameters: &[],
        request: None,
        answers: &[("200", "It runs", Some("text/plain"))],
    },
    Endpoint {
        method: "get",
        path: "/readyz",
        exists_for: For::Itself,
        id: "readyz",
        summary: "Whether the region can serve requests",
        parameters: &[],
        request: None,
        answers: &[("200", "It can", Some("text/plain"))],
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
                    For::All | For::Itself => true,
                })
                .for_each(|kind| add(&mut paths, endpoint, Some(kind))),
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Basalt",
            "version": VERSION,
            "summary": "Bare metal, declared.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {
                "type": "http",
                "scheme": "bearer",
                "description": "The text of an ApiToken or of a session. Over DIR/api.sock, root needs none.",
            }},
            "parameters": parameters::components(kinds),
            "headers": answers::headers(),
            "responses": answers::refusals(),
            "schemas": schemas::components(kinds),
        },
    })
}

fn add(paths: &mut Map<String, Value>, endpoint: &Endpoint, kind: Option<&Kind>) {
    let path = endpoint.path.replace("{plural}", kind.map_or("", |k| k.plural));
    let mut operation = Map::new();
    operation.insert("operationId".to_owned(), json!(named(endpoint.id, kind)));
    operation.insert("summary".to_owned(), json!(named(endpoint.summary, kind)));
    if let Some(kind) = kind {
        operation.insert("tags".to_owned(), json!([kind.name]));
    }
    if endpoint.is_open() {
        operation.insert("security".to_owned(), json!([]));
    }
    if !endpoint.parameters.is_empty() {
        let of = |key: &&str| parameters::reference(key, endpoint, kind);
        operation.insert("parameters".to_owned(), endpoint.parameters.iter().map(of).collect());
    }
    if let Some(body) = endpoint.request {
        let content = json!({ (media_type(body)): content(body, endpoint, kind) });
        operation.insert("requestBody".to_owned(), json!({"required": true, "content": content}));
    }
    operation.insert("responses".to_owned(), answers::of(endpoint, kind));
    let entry = paths.entry(path).or_insert_with(|| json!({}));
    if let Some(entry) = entry.as_object_mut() {
        entry.insert(endpoint.method.to_owned(), Value::Object(operation));
    }
}

/// A text of the table with the kind's name filled in.
fn named(text: &str, kind: Option<&Kind>) -> String {
    text.replace("{Kind}", kind.map_or("", |k| k.name))
}

/// The media type of a body. The table names a body by its schema, or by its media type if it is not JSON.
fn media_type(body: &str) -> &str {
    if body.contains('/') { body } else { "application/json" }
}

/// Schema and example of a request body.
fn content(body: &str, endpoint: &Endpoint, kind: Option<&Kind>) -> Value {
    let schema = match body {
        MERGE_PATCH => schemas::reference(&named("{Kind}Patch", kind)),
        media_type if media_type.contains('/') => return json!({}),
        name => schemas::reference(&named(name, kind)),
    };
    let example = kind.and_then(examples::example).and_then(|example| match endpoint.method {
        "put" if endpoint.id == "put{Kind}" => Some(json!({"spec": example.spec})),
        "patch" => Some(json!({"description": example.spec.get("description")?})),
        _ => None,
    });
    match example {
        Some(example) => json!({"schema": schema, "example": example}),
        None => json!({ "schema": schema }),
    }
}

impl Endpoint {
    /// True if the operation needs no token.
    fn is_open(&self) -> bool {
        self.id.starts_with("provider") || OPEN.contains(&self.id)
    }

    /// True if the operation's answer is constant.
    fn is_constant(&self) -> bool {
        CONSTANT.contains(&self.id)
    }
}
