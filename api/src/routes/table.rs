//! The rows. `{Kind}` in words and schema names stands for the name of the kind.

use super::{APPLY_BYTES, Kinds, LOGIN_BYTES, Route};
use crate::kinds::RoleBase::{Admin, Operator, Viewer};

/// Makes [`RouteId`] and [`ROUTES`]. A row: id, method, path, `operationId`, words, and what differs from [`Route::new`].
macro_rules! routes {
    ($($id:ident $method:ident $path:literal $operation:literal { $words:literal $($more:tt)* })+) => {
        /// The name of a route.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum RouteId {
            $(#[doc = $words] $id,)+
        }

        impl RouteId {
            /// The route with this id.
            #[must_use]
            pub const fn route(self) -> Route {
                match self {
                    $(Self::$id => Route::new(self, stringify!($method), $path, $operation, $words) $($more)*,)+
                }
            }
        }

        /// All routes of the API. A write without `dry_run` creates or ends something of the caller's own: sessions, runs, tokens
        /// for racks, bytes of blobs. A dry run of such a write would show nothing.
        pub const ROUTES: &[Route] = &[$(RouteId::$id.route()),+];
    };
}

routes! {
    List GET "/api/v1/{plural}" "list{Kind}" {
        "List objects of kind {Kind}, by name"
        .of(Kinds::All).role(Viewer)
        .takes(&["limit", "continue", "labels", "fields", "q", "where", "layers"])
        .answers(&[(200, "A page of them", Some("{Kind}List"))])
    }
    Read GET "/api/v1/{plural}/{name}" "get{Kind}" {
        "Read a {Kind}, at once or when a condition holds"
        .of(Kinds::All).role(Viewer)
        .takes(&["name", "wait", "generation", "timeout"]).answers(&[(200, "The object", Some("{Kind}"))])
    }
    Write PUT "/api/v1/{plural}/{name}" "put{Kind}" {
        "Create a {Kind}, or replace its spec"
        .of(Kinds::All).role(Operator).dry_run(Viewer)
        .takes(&["name", "dry_run", "manager", "creating_run", "if_match", "if_none_match"])
        .reads("{Kind}Put").answers(&[
            (200, "The object as it is now; with `dry_run` a DryRun", Some("{Kind}OrDryRun")),
            (201, "The object, created", Some("{Kind}")),
        ]).refuses(&[412])
    }
    Patch PATCH "/api/v1/{plural}/{name}" "patch{Kind}" {
        "Change some of a {Kind}'s spec: JSON merge patch (RFC 7396), whose document is the spec"
        .of(Kinds::All).role(Operator).dry_run(Viewer)
        .takes(&["name", "dry_run", "adopt", "manager", "if_match"]).reads("application/merge-patch+json")
        .answers(&[(200, "The object as it is now; with `dry_run` a DryRun", Some("{Kind}OrDryRun"))])
        .refuses(&[412, 415])
    }
    Delete DELETE "/api/v1/{plural}/{name}" "delete{Kind}" {
        "Have a {Kind} go; repeating it is harmless"
        .of(Kinds::All).role(Operator).dry_run(Viewer)
        .takes(&["name", "dry_run", "force", "if_unused", "adopt", "manager", "if_match"]).answers(&[
            (200, "With `dry_run`: what would happen", Some("DryRun")),
            (202, "The object, which is on its way out", Some("{Kind}")),
            (204, "It is gone", None),
        ]).refuses(&[412])
    }
    Rename POST "/api/v1/{plural}/{name}/rename" "rename{Kind}" {
        "Give a {Kind} another name; what refers to it follows"
        .of(Kinds::All).role(Operator).dry_run(Viewer)
        .takes(&["name", "dry_run", "adopt", "manager"]).reads("RenameRequest")
        .answers(&[(200, "The object under its new name; with `dry_run` a DryRun", Some("{Kind}OrDryRun"))])
        .refuses(&[412])
    }
    ReadLayers GET "/api/v1/{plural}/{name}/layers" "layers{Kind}" {
        "Which manager gives a {Kind} which labels and tags"
        .of(Kinds::All).role(Viewer).takes(&["name"]).answers(&[(200, "By manager", Some("Layers"))])
    }
    WriteLayer PUT "/api/v1/{plural}/{name}/layers/{manager}" "putLayer{Kind}" {
        "Replace the labels and tags that one manager gives a {Kind}; its spec, generation and manager stay"
        .of(Kinds::All).role(Operator)
        .dry_run(Viewer).takes(&["name", "layer_manager", "dry_run"]).reads("PutLayer")
        .answers(&[(200, "The object as it is now; with `dry_run` a DryRun", Some("{Kind}OrDryRun"))])
    }
    Plan GET "/api/v1/{plural}/{name}/plan" "plan{Kind}" {
        "What will be done"
        .of(Kinds::Planned).role(Viewer).takes(&["name"]).answers(&[(200, "The plan", Some("PlanReport"))])
    }
    Waits GET "/api/v1/{plural}/{name}/waits" "waits{Kind}" {
        "What is waited for, until when, and what happens then"
        .of(Kinds::Planned).role(Viewer).takes(&["name"]).answers(&[(200, "The waits", Some("Waits"))])
    }
    Timeline GET "/api/v1/{plural}/{name}/timeline" "timeline{Kind}" {
        "What has happened"
        .of(Kinds::Planned).role(Viewer)
        .takes(&["name"]).answers(&[(200, "The timeline", Some("Timeline"))])
    }
    Decisions GET "/api/v1/{plural}/{name}/decisions" "decisions{Kind}" {
        "Why steps were begun, and whether the same would be decided again"
        .of(Kinds::Planned).role(Viewer).takes(&["name", "before", "replay"])
        .answers(&[(200, "The decisions, the newest first", Some("Decisions"))])
    }
    Operate POST "/api/v1/{plural}/{name}/operations" "operate{Kind}" {
        "Ask for something to be done once"
        .of(Kinds::Only("Machine"))
        .role(Operator).dry_run(Viewer).takes(&["name", "dry_run", "idempotency_key"])
        .reads("OperationRequest").answers(&[
            (200, "With `dry_run`: what would happen", Some("DryRun")),
            (202, "Accepted: `path` says what becomes of it", Some("Operation")),
        ])
    }
    ListOperations GET "/api/v1/{plural}/{name}/operations" "list{Kind}Operations" {
        "What was asked for once, and what became of it"
        .of(Kinds::Only("Machine")).role(Viewer).takes(&["name"])
        .answers(&[(200, "The newest hundred, the newest first", Some("OperationList"))])
    }
    ReadOperation GET "/api/v1/{plural}/{name}/operations/{id}" "read{Kind}Operation" {
        "What became of something that was asked for once"
        .of(Kinds::Only("Machine"))
        .role(Viewer).takes(&["name", "operation"]).answers(&[(200, "The operation", Some("Operation"))])
    }
    Actions GET "/api/v1/{plural}/{name}/actions" "actions{Kind}" {
        "What can be asked of a {Kind} now; of the rest, why not"
        .of(Kinds::Only("Machine")).role(Viewer)
        .takes(&["name"]).answers(&[(200, "Every verb", Some("Actions"))])
    }
    // Not below /api/v1/machines, because a machine may have the name `operations`.
    OperateMany POST "/api/v1/operations" "operateMany" {
        "Ask many machines for the same, each by itself: those that are named, or all that fit a filter"
        .role(Operator).dry_run(Viewer).judged().about("machines")
        .takes(&["dry_run", "idempotency_key"]).reads("OperationsRequest").answers(&[
            (200, "What became of each machine; with `dry_run` what would happen", Some("OperationsAnswer")),
        ])
    }
    Apply POST "/api/v1/apply" "apply" {
        "Write many objects in one transaction, in any order"
        .role(Operator).dry_run(Viewer).judged().body(Some(APPLY_BYTES))
        .takes(&["dry_run", "manager"]).reads("ApplyRequest")
        .answers(&[(200, "What became of each", Some("ApplyResponse"))]).refuses(&[404, 409])
    }
    ReportRun POST "/api/v1/runs/{run}" "reportRun" {
        "Say that a run of this client goes on or ends, and which objects the client keeps"
        .role(Viewer).own().takes(&["run"]).reads("RunReport").answers(&[(204, "Noted", None)])
    }
    Login POST "/api/v1/login" "login" {
        "Log in, with a password or by OpenID Connect, for a session's token"
        .body(Some(LOGIN_BYTES)).takes(&["cookie"]).reads("LoginRequest")
        .answers(&[(201, "The session's token", Some("LoginAnswer")), (204, "The same as a cookie", None)])
        .refuses(&[401, 403, 429])
    }
    LoginWays GET "/api/v1/login" "loginWays" {
        "Which ways to log in there are in a browser, beside a password and a token"
        .answers(&[(200, "The ways", Some("LoginWays"))])
    }
    BeginLogin GET "/api/v1/login/openid" "beginLogin" {
        "Begin a login by OpenID Connect in a browser: the issuer's page, and the cookie that the login is bound to"
        .answers(&[(200, "The issuer's page", Some("LoginBegun"))]).refuses(&[401, 403, 429])
    }
    Logout POST "/api/v1/logout" "logout" {
        "End the session whose token this is, and the cookie"
        .role(Viewer).own().answers(&[(204, "It has ended", None)]).refuses(&[404])
    }
    ChangePassword POST "/api/v1/password" "changePassword" {
        "Change one's own password, in a session: all of the user's end, and another one begins"
        .role(Viewer).own().body(Some(LOGIN_BYTES)).reads("PasswordRequest").answers(&[
            (201, "The next session's token", Some("LoginAnswer")),
            (204, "The same as a cookie, where a cookie said who asks", None),
        ]).refuses(&[404, 409, 429])
    }
    WhoAmI GET "/api/v1/whoami" "whoami" {
        "Who the region takes the caller for, and what that one may do"
        .role(Viewer).own().answers(&[(200, "The caller", Some("WhoAmI"))])
    }
    IssueApiToken POST "/api/v1/api_tokens/{name}/issue" "issueApiToken" {
        "Make the token's text, which is shown this once; the one before is good no more"
        .role(Admin).dry_run(Admin).takes(&["name", "dry_run"]).answers(&[
            (200, "With `dry_run`: what would happen", Some("DryRun")),
            (201, "The token", Some("TokenIssued")),
        ])
    }
    RevokeApiToken POST "/api/v1/api_tokens/{name}/revoke" "revokeApiToken" {
        "Make the token's text good no more"
        .role(Admin).dry_run(Admin).takes(&["name", "dry_run"]).answers(&[
            (200, "With `dry_run`: what would happen", Some("DryRun")),
            (204, "It is good no more", None),
        ])
    }
    MakeJoinToken POST "/api/v1/join_tokens" "joinToken" {
        "Make a token with which one rack enrols"
        .role(Admin).reads("JoinRequest")
        .answers(&[(201, "The token, for `basalt-rack --join`", Some("JoinAnswer"))])
    }
    ListDeliveries GET "/api/v1/webhooks/{name}/deliveries" "listDeliveries" {
        "Deliveries of a webhook, the newest event first"
        .role(Viewer).takes(&["name", "state", "limit", "entry"])
        .answers(&[(200, "A page of them", Some("DeliveryPage"))])
    }
    Redeliver POST "/api/v1/webhooks/{name}/redeliver" "redeliver" {
        "Send dead letters of a webhook again: one, or all"
        .role(Admin).dry_run(Admin).takes(&["name", "dry_run"]).reads("RedeliverRequest")
        .answers(&[(200, "How many are sent again; with `dry_run` a DryRun", Some("RedeliveredOrDryRun"))])
    }
    Discard POST "/api/v1/webhooks/{name}/discard" "discard" {
        "Delete dead letters of a webhook: one, or all"
        .role(Admin).dry_run(Admin).takes(&["name", "dry_run"]).reads("DiscardRequest")
        .answers(&[(200, "How many are deleted; with `dry_run` a DryRun", Some("DiscardedOrDryRun"))])
    }
    Boots GET "/api/v1/boots/{machine}" "boots" {
        "What a machine asked of racks as it booted, the newest boot first, and why one went no further"
        .role(Viewer).takes(&["booted"]).answers(&[(200, "Its boots", Some("Boots"))])
    }
    HostName GET "/api/v1/names/{name}" "name" {
        "How racks answer for a host name or an address: the records and their objects, the zones, and the racks that hold them"
        .role(Viewer).takes(&["host_name"]).answers(&[(200, "The answer", Some("NameReport"))])
    }
    Logs GET "/api/v1/machines/{name}/logs" "logs" {
        "What a machine said by syslog, and what its agent and scripts said; with `follow` as server-sent events `line`, `ping` and, at the end, `cut`"
        .role(Viewer).takes(&["name", "since", "until", "boot", "grep", "lines", "follow", "last_line"])
        .answers(&[(200, "The last lines that are asked for", Some("Logs"))]).streams("LogEvent")
    }
    TestResults GET "/api/v1/machines/{name}/results" "testResults" {
        "Findings of the tests of a machine's hardware, one for each device"
        .role(Viewer).takes(&["name", "script", "latest", "rows"])
        .answers(&[(200, "The findings, the newest run first", Some("TestResults"))])
    }
    Addresses GET "/api/v1/addresses" "addresses" {
        "Who has which address, from every source, by subnet and address"
        .role(Viewer).takes(&["subnet", "address", "address_source", "limit", "continue"])
        .answers(&[(200, "A page of them", Some("AddressPage"))]).refuses(&[404])
    }
    Audit GET "/api/v1/audit" "audit" {
        "Who wrote what, the newest first"
        .role(Admin).takes(&["since", "object", "actor", "limit", "entry"])
        .answers(&[(200, "A page of the log", Some("AuditPage"))])
    }
    Events GET "/api/v1/events" "events" {
        "What happens in the region, the newest first; with `follow` the last ones and what comes, as server-sent events `event`, `ping` and, at the end, `cut`"
        .role(Viewer).takes(&["kinds", "object", "since", "limit", "entry", "follow", "last_event"])
        .answers(&[(200, "A page of events", Some("EventPage"))]).refuses(&[404]).streams("EventEvent")
    }
    Watch GET "/api/v1/watch" "watch" {
        "What changes, as it changes: server-sent events `put`, `delete`, `bookmark` and, at the end, `cut`; each `id` is a position"
        .role(Viewer).takes(&["position", "last_event_id", "kinds", "labels", "fields"])
        .answers(&[(200, "The events, without end", Some("text/event-stream"))]).refuses(&[404, 410])
    }
    HeadBlob HEAD "/api/v1/blobs/{sha256}" "headBlob" {
        "How much of a blob is there"
        .role(Viewer).takes(&["sha256"]).answers(&[
            (200, "All of it; its length is in Content-Length", None),
            (202, "The start of it; how many bytes that is, is in X-Basalt-Received", None),
        ])
    }
    GetBlob GET "/api/v1/blobs/{sha256}" "getBlob" {
        "Download a blob, or the rest of it"
        .role(Viewer).takes(&["sha256", "range"]).answers(&[
            (200, "All of it", Some("application/octet-stream")),
            (206, "From there to its end", Some("application/octet-stream")),
        ])
    }
    PutBlob PUT "/api/v1/blobs/{sha256}" "putBlob" {
        "Upload a blob, or go on with it where Content-Range says"
        .role(Operator).body(None).takes(&["sha256", "content_range"]).reads("application/octet-stream")
        .answers(&[
            (200, "It was all there already", Some("BlobState")),
            (201, "All of it is there, and its hash agrees", Some("BlobState")),
            (202, "So much is there; go on from its end", Some("BlobState")),
        ])
    }
    Version GET "/api/v1/version" "version" {
        "Which program answers, and what it knows"
        .constant().answers(&[(200, "The version", Some("Version"))])
    }
    RootVersion GET "/version" "versionAtTheRoot" {
        "The same, at a path that every version of the API has"
        .constant().answers(&[(200, "The version", Some("Version"))])
    }
    OpenApi GET "/openapi.json" "openapi" {
        "This document"
        .constant().answers(&[(200, "The document", Some("OpenApi"))])
    }
    Docs GET "/docs" "docs" {
        "This document as a page for people"
        .constant().answers(&[(200, "The page", Some("text/html"))])
    }
    Home GET "/" "home" {
        "The console"
        .constant().answers(&[(200, "The page", Some("text/html"))])
    }
    Console GET "/ui/{path}" "console" {
        "The console's own pages and files"
        .constant().takes(&["path"]).answers(&[(200, "The page, or the file", Some("text/html"))])
    }
    Pages GET "/pages" "pages" {
        "The pages of the manual, those of the Terraform provider among them"
        .constant().answers(&[(200, "Their list, as a page for people", Some("text/html"))])
    }
    Page GET "/pages/{page}" "page" {
        "A page of the manual"
        .takes(&["page"]).answers(&[(200, "The page", Some("text/html"))])
    }
    Registry GET "/.well-known/terraform.json" "registry" {
        "Where Terraform finds the registry of the Basalt provider (remote service discovery)"
        .constant().answers(&[(200, "Its path", Some("Registry"))])
    }
    ProviderVersions GET "/v1/providers/{namespace}/{type}/versions" "providerVersions" {
        "Which version of the provider there is: the region's own"
        .takes(&["namespace", "type"])
        .answers(&[(200, "The version, and its platforms", Some("ProviderVersions"))])
    }
    ProviderPackage GET "/v1/providers/{namespace}/{type}/{version}/download/{os}/{arch}" "providerPackage" {
        "Where the provider's package for a platform is, and what it has to be"
        .takes(&["namespace", "type", "version", "os", "arch"])
        .answers(&[(200, "The package", Some("ProviderPackage"))])
    }
    ProviderFile GET "/v1/providers/{namespace}/{type}/{version}/files/{file}" "providerFile" {
        "A package of the provider, the packages' checksums, or the signature of those"
        .takes(&["namespace", "type", "version", "file"])
        .answers(&[(200, "The file", Some("application/octet-stream"))])
    }
    Metrics GET "/metrics" "metrics" {
        "What is counted, for Prometheus (exposition format 0.0.4)"
        .role(Viewer).answers(&[(200, "The counts", Some("text/plain"))])
    }
    Health GET "/healthz" "healthz" {
        "Whether the process runs"
        .constant().answers(&[(200, "It runs", Some("text/plain"))])
    }
    Readiness GET "/readyz" "readyz" {
        "Whether the region can serve requests"
        .answers(&[(200, "It can", Some("text/plain"))])
    }
}
