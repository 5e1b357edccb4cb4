//! The rights of each role, and the refusal of plain HTTP.

use crate::accounts::{issue, pools};
use crate::support::{Client, Lab, lab, over_unix};
use crate::tried::{WRITES, furnished, headers};
use basalt_api::kinds::RoleBase;
use basalt_api::routes::{ROUTES, RouteId as Id};
use basalt_api::values::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;

/// The callers: without a token, with an expired one, with a revoked one, with each role, and as an operator of the pool `blue`
/// only.
const CALLERS: [&str; 7] = ["nobody", "expired", "revoked", "viewer", "operator", "admin", "blue"];

/// The answers for each caller: `-` 401, `x` 403, `.` 404, `+` allowed.
const ANYBODY: &str = "+++++++";
const KNOWN: &str = "---++++";
const LOOK: &str = "---++++";
const LOOK_EVERYWHERE: &str = "---+++x";
const LOOK_ELSEWHERE: &str = "---+++.";
const CHANGE: &str = "---x++x";
const CHANGE_OWN: &str = "---x+++";
const CHANGE_ELSEWHERE: &str = "---x++.";
const GOVERN: &str = "---xx+x";
/// Endpoints for the region's own pages; the requests here are not from such a page.
const PAGE: &str = "xxxxxxx";

/// Every endpoint, with an example of its path: `red` and `blue` are machines of these pools.
const TABLE: &[(Id, &str, &str)] = &[
    (Id::Health, "/healthz", ANYBODY),
    (Id::Readiness, "/readyz", ANYBODY),
    (Id::RootVersion, "/version", ANYBODY),
    (Id::OpenApi, "/openapi.json", ANYBODY),
    (Id::Home, "/", ANYBODY),
    (Id::Console, "/ui/machines/web1", ANYBODY),
    (Id::Docs, "/docs", ANYBODY),
    (Id::Pages, "/pages", ANYBODY),
    (Id::Page, "/pages/provider.index", ANYBODY),
    (Id::Registry, "/.well-known/terraform.json", ANYBODY),
    (Id::ProviderVersions, "/v1/providers/basalt-metal/basalt/versions", ANYBODY),
    (Id::ProviderPackage, "/v1/providers/basalt-metal/basalt/1.2.3/download/plan9/386", ANYBODY),
    (
        Id::ProviderFile,
        "/v1/providers/basalt-metal/basalt/1.2.3/files/terraform-provider-basalt.zip",
        ANYBODY,
    ),
    (Id::Metrics, "/metrics", LOOK),
    (Id::Version, "/api/v1/version", ANYBODY),
    (Id::List, "/api/v1/zones", LOOK),
    (Id::List, "/api/v1/machines", LOOK),
    (Id::List, "/api/v1/users", LOOK_EVERYWHERE),
    (Id::Read, "/api/v1/zones/a", LOOK),
    (Id::Read, "/api/v1/machines/blue", LOOK),
    (Id::Read, "/api/v1/machines/red", LOOK_ELSEWHERE),
    (Id::Read, "/api/v1/deployments/red", LOOK_ELSEWHERE),
    (Id::Read, "/api/v1/roles/admin", LOOK_EVERYWHERE),
    (Id::Write, "/api/v1/zones/a", CHANGE),
    (Id::Write, "/api/v1/machines/blue", CHANGE_OWN),
    (Id::Write, "/api/v1/machines/red", CHANGE_ELSEWHERE),
    (Id::Write, "/api/v1/users/someone", GOVERN),
    (Id::Write, "/api/v1/zones/a?dry_run=true", LOOK),
    (Id::Write, "/api/v1/machines/red?dry_run=true", LOOK_ELSEWHERE),
    (Id::Write, "/api/v1/roles/admin?dry_run=true", GOVERN),
    (Id::Patch, "/api/v1/zones/a", CHANGE),
    (Id::Patch, "/api/v1/machines/blue", CHANGE_OWN),
    (Id::Patch, "/api/v1/machines/red", CHANGE_ELSEWHERE),
    (Id::Patch, "/api/v1/machines/red?dry_run=true", LOOK_ELSEWHERE),
    (Id::Patch, "/api/v1/roles/admin?dry_run=true", GOVERN),
    (Id::Delete, "/api/v1/zones/a", CHANGE),
    (Id::Delete, "/api/v1/machines/blue", CHANGE_OWN),
    (Id::Delete, "/api/v1/machines/red", CHANGE_ELSEWHERE),
    (Id::Delete, "/api/v1/api_tokens/spare", GOVERN),
    (Id::Delete, "/api/v1/machines/red?dry_run=true", LOOK_ELSEWHERE),
    (Id::Delete, "/api/v1/machines/red?dry_run=true&force=true", LOOK_ELSEWHERE),
    (Id::Rename, "/api/v1/zones/a/rename", CHANGE),
    (Id::Rename, "/api/v1/machines/blue/rename", CHANGE_OWN),
    (Id::Rename, "/api/v1/machines/red/rename", CHANGE_ELSEWHERE),
    (Id::Rename, "/api/v1/roles/admin/rename", GOVERN),
    (Id::Rename, "/api/v1/zones/a/rename?dry_run=true", LOOK),
    (Id::Rename, "/api/v1/machines/red/rename?dry_run=true", LOOK_ELSEWHERE),
    (Id::ReadLayers, "/api/v1/zones/a/layers", LOOK),
    (Id::ReadLayers, "/api/v1/machines/red/layers", LOOK_ELSEWHERE),
    (Id::WriteLayer, "/api/v1/zones/a/layers/cmdb", CHANGE),
    (Id::WriteLayer, "/api/v1/machines/blue/layers/cmdb", CHANGE_OWN),
    (Id::WriteLayer, "/api/v1/machines/red/layers/cmdb", CHANGE_ELSEWHERE),
    (Id::WriteLayer, "/api/v1/machines/red/layers/cmdb?dry_run=true", LOOK_ELSEWHERE),
    (Id::WriteLayer, "/api/v1/roles/admin/layers/cmdb", GOVERN),
    (Id::Plan, "/api/v1/machines/blue/plan", LOOK),
    (Id::Plan, "/api/v1/machines/red/plan", LOOK_ELSEWHERE),
    (Id::Waits, "/api/v1/machines/blue/waits", LOOK),
    (Id::Waits, "/api/v1/machines/red/waits", LOOK_ELSEWHERE),
    (Id::Logs, "/api/v1/machines/blue/logs", LOOK),
    (Id::Logs, "/api/v1/machines/red/logs", LOOK_ELSEWHERE),
    (Id::TestResults, "/api/v1/machines/blue/results", LOOK),
    (Id::TestResults, "/api/v1/machines/red/results", LOOK_ELSEWHERE),
    (Id::Boots, "/api/v1/boots/blue", LOOK),
    (Id::Boots, "/api/v1/boots/red", LOOK_ELSEWHERE),
    (Id::Boots, "/api/v1/boots/52:54:00:99:99:99", LOOK_ELSEWHERE),
    (Id::HostName, "/api/v1/names/web1.lab.example", LOOK),
    (Id::Timeline, "/api/v1/machines/blue/timeline", LOOK),
    (Id::Timeline, "/api/v1/machines/red/timeline", LOOK_ELSEWHERE),
    (Id::Decisions, "/api/v1/machines/blue/decisions", LOOK),
    (Id::Decisions, "/api/v1/machines/red/decisions?replay=true", LOOK_ELSEWHERE),
    (Id::Operate, "/api/v1/machines/blue/operations", CHANGE_OWN),
    (Id::Operate, "/api/v1/machines/red/operations", CHANGE_ELSEWHERE),
    (Id::Operate, "/api/v1/machines/red/operations?dry_run=true", LOOK_ELSEWHERE),
    (Id::ListOperations, "/api/v1/machines/blue/operations", LOOK),
    (Id::ListOperations, "/api/v1/machines/red/operations", LOOK_ELSEWHERE),
    (Id::ReadOperation, "/api/v1/machines/blue/operations/00000000-0000-0000-0000-000000000001", LOOK),
    (Id::Actions, "/api/v1/machines/blue/actions", LOOK),
    (Id::Actions, "/api/v1/machines/red/actions", LOOK_ELSEWHERE),
    (Id::OperateMany, "/api/v1/operations", CHANGE_OWN),
    (Id::OperateMany, "/api/v1/operations?dry_run=true", LOOK),
    (Id::Write, "/api/v1/settings/default", GOVERN),
    (Id::Write, "/api/v1/settings/default?dry_run=true", LOOK_EVERYWHERE),
    (Id::Patch, "/api/v1/settings/default", GOVERN),
    (Id::Delete, "/api/v1/settings/default", GOVERN),
    (Id::Apply, "/api/v1/apply", CHANGE_OWN),
    (Id::Apply, "/api/v1/apply?dry_run=true", LOOK),
    (Id::Watch, "/api/v1/watch?since=nowhere", LOOK),
    (Id::Watch, "/api/v1/watch?since=nowhere&kinds=users", LOOK_EVERYWHERE),
    (Id::ReportRun, "/api/v1/runs/0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6e", KNOWN),
    (Id::LoginWays, "/api/v1/login", ANYBODY),
    (Id::BeginLogin, "/api/v1/login/openid", PAGE),
    (Id::Login, "/api/v1/login", ANYBODY),
    (Id::Logout, "/api/v1/logout", KNOWN),
    (Id::ChangePassword, "/api/v1/password", KNOWN),
    (Id::WhoAmI, "/api/v1/whoami", KNOWN),
    (Id::IssueApiToken, "/api/v1/api_tokens/spare/issue", GOVERN),
    (Id::RevokeApiToken, "/api/v1/api_tokens/spare/revoke", GOVERN),
    (Id::IssueApiToken, "/api/v1/api_tokens/spare/issue?dry_run=true", GOVERN),
    (Id::RevokeApiToken, "/api/v1/api_tokens/spare/revoke?dry_run=true", GOVERN),
    (Id::Write, "/api/v1/webhooks/chat", GOVERN),
    (Id::ListDeliveries, "/api/v1/webhooks/chat/deliveries", LOOK_EVERYWHERE),
    (Id::Redeliver, "/api/v1/webhooks/chat/redeliver", GOVERN),
    (Id::Redeliver, "/api/v1/webhooks/chat/redeliver?dry_run=true", GOVERN),
    (Id::Discard, "/api/v1/webhooks/chat/discard", GOVERN),
    (Id::Discard, "/api/v1/webhooks/chat/discard?dry_run=true", GOVERN),
    (Id::Addresses, "/api/v1/addresses", LOOK),
    (Id::Events, "/api/v1/events", LOOK),
    (Id::Events, "/api/v1/events?object=machines/red", LOOK_ELSEWHERE),
    (Id::Audit, "/api/v1/audit", GOVERN),
    (Id::MakeJoinToken, "/api/v1/join_tokens", GOVERN),
    (Id::HeadBlob, "/api/v1/blobs/SHA256", LOOK),
    (Id::GetBlob, "/api/v1/blobs/SHA256", LOOK),
    (Id::PutBlob, "/api/v1/blobs/SHA256", CHANGE),
];

#[tokio::test]
async fn a_route_is_served_for_the_kinds_that_the_document_has_it_for() {
    let lab = lab().await;
    let document = basalt_api::openapi(basalt_api::KINDS);
    let uid = "0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6e";
    for route in ROUTES.iter().filter(|route| route.is_read() && route.path.contains("{plural}/{name}/")) {
        for kind in basalt_api::KINDS {
            let path = route.path.replace("{plural}", kind.plural);
            let is_described = document["paths"][&path]["get"].is_object();
            let path = path.replace("{name}", &format!("uid:{uid}")).replace("{id}", uid);
            let answer = lab.api.get(&path).await.json();
            let detail = answer["detail"].as_str().unwrap_or_default();
            let is_of_others =
                ["no plan is made", "operations are asked"].iter().any(|it| detail.starts_with(it));
            assert_eq!(is_described, !is_of_others, "{path}: {answer}");
            assert!(!answer["status"].is_null(), "{path}: nothing is there, and {answer}");
        }
    }
}

#[tokio::test]
async fn every_endpoint_answers_everybody_as_the_table_says() {
    let of_table: BTreeSet<_> = TABLE.iter().map(|row| row.0).collect();
    for route in ROUTES {
        assert!(of_table.contains(&route.id), "{route} is not in the table");
        let tried = TABLE.iter().any(|row| row.0 == route.id && row.1.contains("dry_run"));
        assert_eq!(route.dry_run.is_some(), tried, "{route} is tried out");
    }

    let lab = lab().await;
    pools(&lab.api).await;
    lab.api.declare("/api/v1/zones/a", "{}").await;
    let mut clients = Vec::new();
    for caller in CALLERS {
        let spec = match caller {
            // Valid for a moment: a token that has already expired is refused at creation.
            "expired" => {
                let ends = Timestamp::now() + Duration::from_secs(3);
                format!("{{\"role\":\"admin\",\"expires_at\":\"{ends}\"}}")
            }
            "revoked" => r#"{"role":"admin"}"#.to_owned(),
            role => format!("{{\"role\":\"{role}\"}}"),
        };
        let token = match caller {
            "nobody" => None,
            caller => Some(issue(&lab, caller, &spec).await),
        };
        clients.push(Client::new(lab.region.address(), token));
    }
    let revoked = lab.api.send("POST", "/api/v1/api_tokens/revoked/revoke", &[], "").await;
    assert_eq!(revoked.status.as_u16(), 204);
    issue(&lab, "spare", r#"{"role":"viewer"}"#).await;
    while clients[1].get("/api/v1/whoami").await.status != 401 {
        tokio::task::yield_now().await;
    }

    let mut wrong = Vec::new();
    for (id, path, wanted) in TABLE {
        let method = id.route().method;
        let path = path.replace("SHA256", &"0".repeat(64));
        let mut found = String::new();
        for client in &clients {
            // An allowed request changes nothing: its body is empty, and its generation is wrong.
            let status = client.send(method, &path, &[("if-match", "\"99\"")], "").await.status.as_u16();
            if id.route().is_read() && ![401, 403, 404].contains(&status) {
                assert_eq!(status, looked(&path), "{method} {path}: who may look is shown it");
            }
            found.push(match status {
                401 => '-',
                403 => 'x',
                404 if wanted.ends_with('.') => '.',
                _ => '+',
            });
        }
        if found != *wanted {
            wrong.push(format!("{method} {path}: {found} and not {wanted}"));
        }
    }
    assert!(wrong.is_empty(), "{CALLERS:?}\n{}", wrong.join("\n"));
}

/// The status of an allowed read: this region has no driver, and `nowhere` is no position.
fn looked(path: &str) -> u16 {
    match path.split('?').next().and_then(|path| path.rsplit('/').next()) {
        Some("plan" | "waits" | "timeline" | "decisions" | "web1.lab.example") => 503,
        Some("watch") => 422,
        _ => 200,
    }
}

/// Sends a write. Returns true if it was done; the audit log must then have it, with this caller.
async fn done(lab: &Lab, caller: &Client, name: &str, (id, at, body): Write<'_>) -> bool {
    let (method, request) = (id.route().method, id.route().to_string());
    let answer = caller.send(method, at, headers(method), body.to_owned()).await;
    let newest = lab.api.get("/api/v1/audit?limit=1").await.json()["items"][0].clone();
    let is_its_own = newest["actor"] == format!("token {name}") && newest["request"] == request;
    match answer.status.as_u16() {
        403 => false,
        _ => {
            assert!(answer.status.is_success(), "{name}: {method} {at}: {answer:?}");
            assert!(is_its_own, "{name}: {method} {at} was answered, and not done: {newest}");
            true
        }
    }
}

/// Route, path, body.
type Write<'a> = (Id, &'a str, &'a str);

#[tokio::test]
async fn a_role_does_what_it_may_and_nothing_else() {
    for role in ["viewer", "operator", "admin"] {
        let lab = furnished().await;
        lab.api.declare(&format!("/api/v1/roles/{role}"), &format!("{{\"base\":\"{role}\"}}")).await;
        let token = issue(&lab, role, &format!("{{\"role\":\"{role}\"}}")).await;
        let caller = Client::new(lab.region.address(), Some(token));
        // Sessions and runs belong to their users.
        let of_tokens = WRITES.iter().filter(|row| !row.0.route().own && row.0 != Id::Login);
        for (id, at, body) in of_tokens {
            let (route, method) = (id.route(), id.route().method);
            let governs = route.role == Some(RoleBase::Admin) || at.contains("/users/");
            let wanted = role == "admin" || (role == "operator" && !governs);
            if route.dry_run.is_some() && !governs {
                let tried = caller.send(method, &format!("{at}?dry_run=true"), headers(method), *body).await;
                assert_eq!(tried.status, 200, "{role} tries {method} {at}: {tried:?}");
            }
            let done = done(&lab, &caller, role, (*id, at, body)).await;
            assert_eq!(done, wanted, "{role}: {method} {at}");
        }
    }
}

#[tokio::test]
async fn an_operator_of_a_pool_gets_done_what_is_of_the_pool() {
    let lab = lab().await;
    pools(&lab.api).await;
    let token = issue(&lab, "ci", r#"{"role":"blue"}"#).await;
    let caller = Client::new(lab.region.address(), Some(token));
    let rows: [Write<'_>; 9] = [
        (Id::Write, "/api/v1/machines/new", r#"{"spec":{"pool":"blue","boot_macs":["52:54:00:00:05:01"]}}"#),
        (Id::Patch, "/api/v1/machines/new", r#"{"description":"ours"}"#),
        (Id::WriteLayer, "/api/v1/machines/new/layers/cmdb", r#"{"tags":["x"]}"#),
        (Id::Operate, "/api/v1/machines/new/operations", r#"{"verb":"recommission"}"#),
        (
            Id::OperateMany,
            "/api/v1/operations",
            r#"{"where":"name:new","operation":{"verb":"recommission"}}"#,
        ),
        (Id::Rename, "/api/v1/machines/new/rename", r#"{"name":"newer"}"#),
        (
            Id::Apply,
            "/api/v1/apply",
            r#"{"documents":[{"kind":"Deployment","metadata":{"name":"d"},"spec":{"image":"debian","machine":"newer"}}]}"#,
        ),
        (Id::Delete, "/api/v1/deployments/d", ""),
        (Id::Delete, "/api/v1/machines/newer", ""),
    ];
    for row in rows {
        assert!(done(&lab, &caller, "ci", row).await, "{row:?} is refused");
    }
}

#[tokio::test]
async fn an_expired_token_is_nobody() {
    let lab = lab().await;
    let past = "2020-01-01T00:00:00Z".parse().unwrap();
    lab.region.store().put_token("old", "old-token", "admin", Some(past)).await.unwrap();
    let client = Client::new(lab.region.address(), Some("old-token".to_owned()));
    let answer = client.get("/api/v1/zones").await;
    assert_eq!((answer.problem().0, answer.problem().1.as_str()), (401, "unauthenticated"));
    assert_eq!(answer.headers["www-authenticate"], "Bearer");
}

#[tokio::test]
async fn root_on_this_host_is_admin_over_the_unix_socket() {
    let lab = lab().await;
    let answer = over_unix(&lab.region.socket(), "GET", "/api/v1/zones").await;
    // The kernel reports this process's uid, and only root is an admin.
    let root = std::fs::metadata("/proc/self").map(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0).unwrap();
    assert_eq!(answer.status.as_u16(), if root { 200 } else { 401 });
}

#[tokio::test]
async fn health_is_open_and_says_when_the_database_is_there() {
    let lab = lab().await;
    let anybody = Client::new(lab.region.address(), None);
    assert_eq!(anybody.get("/healthz").await.text(), "ok\n");
    assert_eq!(anybody.get("/readyz").await.text(), "ok\n");
    let version = anybody.get("/version").await.json();
    assert_eq!(version["incarnation"], lab.region.store().incarnation().to_string());
    assert!(lab.api.get("/metrics").await.text().contains("basalt_api_answers_total{class=\"2xx\"}"));
    assert_eq!(lab.api.get("/nowhere").await.problem().1, "no_such_path");
    assert_eq!(lab.api.send("POST", "/api/v1/zones/a", &[], "").await.problem().1, "method_not_allowed");
}

#[tokio::test]
async fn a_region_that_stops_ends_waits_and_its_socket() {
    let lab = lab().await;
    lab.api.declare("/api/v1/zones/a", "{}").await;
    let (api, socket, dir) = (lab.api.clone(), lab.region.socket(), lab.dir);
    let waiting =
        tokio::spawn(async move { api.get("/api/v1/zones/a?wait=Ready&generation=9&timeout=60s").await });
    while !lab.api.get("/metrics").await.text().contains("under_way 2") {
        tokio::task::yield_now().await;
    }
    lab.region.stop().await;
    assert_eq!(waiting.await.unwrap().problem().1, "unavailable");
    assert!(!socket.exists());
    drop(dir);
}
