//! The rights of each role, and the refusal of plain HTTP.

use crate::accounts::{issue, pools};
use crate::support::{Client, Lab, lab, over_unix};
use crate::tried::{OF_USERS, RUNS, WRITES, furnished, headers};
use basalt_api::values::Timestamp;
use basalt_region::api::Role;
use basalt_region::api::endpoints::ENDPOINTS;
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
const TABLE: &[(&str, &str, &str, &str)] = &[
    ("GET", "/healthz", "/healthz", ANYBODY),
    ("GET", "/readyz", "/readyz", ANYBODY),
    ("GET", "/version", "/version", ANYBODY),
    ("GET", "/openapi.json", "/openapi.json", ANYBODY),
    ("GET", "/", "/", ANYBODY),
    ("GET", "/ui/{path}", "/ui/machines/web1", ANYBODY),
    ("GET", "/docs", "/docs", ANYBODY),
    ("GET", "/pages", "/pages", ANYBODY),
    ("GET", "/pages/{page}", "/pages/provider.index", ANYBODY),
    ("GET", "/.well-known/terraform.json", "/.well-known/terraform.json", ANYBODY),
    (
        "GET",
        "/v1/providers/{namespace}/{type}/versions",
        "/v1/providers/basalt-metal/basalt/versions",
        ANYBODY,
    ),
    (
        "GET",
        "/v1/providers/{namespace}/{type}/{version}/download/{os}/{arch}",
        "/v1/providers/basalt-metal/basalt/1.2.3/download/plan9/386",
        ANYBODY,
    ),
    (
        "GET",
        "/v1/providers/{namespace}/{type}/{version}/files/{file}",
        "/v1/providers/basalt-metal/basalt/1.2.3/files/terraform-provider-basalt.zip",
        ANYBODY,
    ),
    ("GET", "/metrics", "/metrics", LOOK),
    ("GET", "/api/v1/version", "/api/v1/version", ANYBODY),
    ("GET", "/api/v1/{plural}", "/api/v1/zones", LOOK),
    ("GET", "/api/v1/{plural}", "/api/v1/machines", LOOK),
    ("GET", "/api/v1/{plural}", "/api/v1/users", LOOK_EVERYWHERE),
    ("GET", "/api/v1/{plural}/{name}", "/api/v1/zones/a", LOOK),
    ("GET", "/api/v1/{plural}/{name}", "/api/v1/machines/blue", LOOK),
    ("GET", "/api/v1/{plural}/{name}", "/api/v1/machines/red", LOOK_ELSEWHERE),
    ("GET", "/api/v1/{plural}/{name}", "/api/v1/deployments/red", LOOK_ELSEWHERE),
    ("GET", "/api/v1/{plural}/{name}", "/api/v1/roles/admin", LOOK_EVERYWHERE),
    ("PUT", "/api/v1/{plural}/{name}", "/api/v1/zones/a", CHANGE),
    ("PUT", "/api/v1/{plural}/{name}", "/api/v1/machines/blue", CHANGE_OWN),
    ("PUT", "/api/v1/{plural}/{name}", "/api/v1/machines/red", CHANGE_ELSEWHERE),
    ("PUT", "/api/v1/{plural}/{name}", "/api/v1/users/someone", GOVERN),
    ("PUT", "/api/v1/{plural}/{name}", "/api/v1/zones/a?dry_run=true", LOOK),
    ("PUT", "/api/v1/{plural}/{name}", "/api/v1/machines/red?dry_run=true", LOOK_ELSEWHERE),
    ("PUT", "/api/v1/{plural}/{name}", "/api/v1/roles/admin?dry_run=true", GOVERN),
    ("PATCH", "/api/v1/{plural}/{name}", "/api/v1/zones/a", CHANGE),
    ("PATCH", "/api/v1/{plural}/{name}", "/api/v1/machines/blue", CHANGE_OWN),
    ("PATCH", "/api/v1/{plural}/{name}", "/api/v1/machines/red", CHANGE_ELSEWHERE),
    ("PATCH", "/api/v1/{plural}/{name}", "/api/v1/machines/red?dry_run=true", LOOK_ELSEWHERE),
    ("PATCH", "/api/v1/{plural}/{name}", "/api/v1/roles/admin?dry_run=true", GOVERN),
    ("DELETE", "/api/v1/{plural}/{name}", "/api/v1/zones/a", CHANGE),
    ("DELETE", "/api/v1/{plural}/{name}", "/api/v1/machines/blue", CHANGE_OWN),
    ("DELETE", "/api/v1/{plural}/{name}", "/api/v1/machines/red", CHANGE_ELSEWHERE),
    ("DELETE", "/api/v1/{plural}/{name}", "/api/v1/api_tokens/spare", GOVERN),
    ("DELETE", "/api/v1/{plural}/{name}", "/api/v1/machines/red?dry_run=true", LOOK_ELSEWHERE),
    ("DELETE", "/api/v1/{plural}/{name}", "/api/v1/machines/red?dry_run=true&force=true", LOOK_ELSEWHERE),
    ("POST", "/api/v1/{plural}/{name}/rename", "/api/v1/zones/a/rename", CHANGE),
    ("POST", "/api/v1/{plural}/{name}/rename", "/api/v1/machines/blue/rename", CHANGE_OWN),
    ("POST", "/api/v1/{plural}/{name}/rename", "/api/v1/machines/red/rename", CHANGE_ELSEWHERE),
    ("POST", "/api/v1/{plural}/{name}/rename", "/api/v1/roles/admin/rename", GOVERN),
    ("POST", "/api/v1/{plural}/{name}/rename", "/api/v1/zones/a/rename?dry_run=true", LOOK),
    ("POST", "/api/v1/{plural}/{name}/rename", "/api/v1/machines/red/rename?dry_run=true", LOOK_ELSEWHERE),
    ("GET", "/api/v1/{plural}/{name}/layers", "/api/v1/zones/a/layers", LOOK),
    ("GET", "/api/v1/{plural}/{name}/layers", "/api/v1/machines/red/layers", LOOK_ELSEWHERE),
    ("PUT", "/api/v1/{plural}/{name}/layers/{manager}", "/api/v1/zones/a/layers/cmdb", CHANGE),
    ("PUT", "/api/v1/{plural}/{name}/layers/{manager}", "/api/v1/machines/blue/layers/cmdb", CHANGE_OWN),
    ("PUT", "/api/v1/{plural}/{name}/layers/{manager}", "/api/v1/machines/red/layers/cmdb", CHANGE_ELSEWHERE),
    (
        "PUT",
        "/api/v1/{plural}/{name}/layers/{manager}",
        "/api/v1/machines/red/layers/cmdb?dry_run=true",
        LOOK_ELSEWHERE,
    ),
    ("PUT", "/api/v1/{plural}/{name}/layers/{manager}", "/api/v1/roles/admin/layers/cmdb", GOVERN),
    ("GET", "/api/v1/{plural}/{name}/plan", "/api/v1/machines/blue/plan", LOOK),
    ("GET", "/api/v1/{plural}/{name}/plan", "/api/v1/machines/red/plan", LOOK_ELSEWHERE),
    ("GET", "/api/v1/{plural}/{name}/waits", "/api/v1/machines/blue/waits", LOOK),
    ("GET", "/api/v1/{plural}/{name}/waits", "/api/v1/machines/red/waits", LOOK_ELSEWHERE),
    ("GET", "/api/v1/machines/{name}/logs", "/api/v1/machines/blue/logs", LOOK),
    ("GET", "/api/v1/machines/{name}/logs", "/api/v1/machines/red/logs", LOOK_ELSEWHERE),
    ("GET", "/api/v1/machines/{name}/results", "/api/v1/machines/blue/results", LOOK),
    ("GET", "/api/v1/machines/{name}/results", "/api/v1/machines/red/results", LOOK_ELSEWHERE),
    ("GET", "/api/v1/boots/{machine}", "/api/v1/boots/blue", LOOK),
    ("GET", "/api/v1/boots/{machine}", "/api/v1/boots/red", LOOK_ELSEWHERE),
    ("GET", "/api/v1/boots/{machine}", "/api/v1/boots/52:54:00:99:99:99", LOOK_ELSEWHERE),
    ("GET", "/api/v1/names/{name}", "/api/v1/names/web1.lab.example", LOOK),
    ("GET", "/api/v1/{plural}/{name}/timeline", "/api/v1/machines/blue/timeline", LOOK),
    ("GET", "/api/v1/{plural}/{name}/timeline", "/api/v1/machines/red/timeline", LOOK_ELSEWHERE),
    ("GET", "/api/v1/{plural}/{name}/decisions", "/api/v1/machines/blue/decisions", LOOK),
    (
        "GET",
        "/api/v1/{plural}/{name}/decisions",
        "/api/v1/machines/red/decisions?replay=true",
        LOOK_ELSEWHERE,
    ),
    ("POST", "/api/v1/{plural}/{name}/operations", "/api/v1/machines/blue/operations", CHANGE_OWN),
    ("POST", "/api/v1/{plural}/{name}/operations", "/api/v1/machines/red/operations", CHANGE_ELSEWHERE),
    (
        "POST",
        "/api/v1/{plural}/{name}/operations",
        "/api/v1/machines/red/operations?dry_run=true",
        LOOK_ELSEWHERE,
    ),
    ("GET", "/api/v1/{plural}/{name}/operations", "/api/v1/machines/blue/operations", LOOK),
    ("GET", "/api/v1/{plural}/{name}/operations", "/api/v1/machines/red/operations", LOOK_ELSEWHERE),
    (
        "GET",
        "/api/v1/{plural}/{name}/operations/{id}",
        "/api/v1/machines/blue/operations/00000000-0000-0000-0000-000000000001",
        LOOK,
    ),
    ("GET", "/api/v1/{plural}/{name}/actions", "/api/v1/machines/blue/actions", LOOK),
    ("GET", "/api/v1/{plural}/{name}/actions", "/api/v1/machines/red/actions", LOOK_ELSEWHERE),
    ("POST", "/api/v1/operations", "/api/v1/operations", CHANGE_OWN),
    ("POST", "/api/v1/operations", "/api/v1/operations?dry_run=true", LOOK),
    ("PUT", "/api/v1/{plural}/{name}", "/api/v1/settings/default", GOVERN),
    ("PUT", "/api/v1/{plural}/{name}", "/api/v1/settings/default?dry_run=true", LOOK_EVERYWHERE),
    ("PATCH", "/api/v1/{plural}/{name}", "/api/v1/settings/default", GOVERN),
    ("DELETE", "/api/v1/{plural}/{name}", "/api/v1/settings/default", GOVERN),
    ("POST", "/api/v1/apply", "/api/v1/apply", CHANGE_OWN),
    ("POST", "/api/v1/apply", "/api/v1/apply?dry_run=true", LOOK),
    ("GET", "/api/v1/watch", "/api/v1/watch?since=nowhere", LOOK),
    ("GET", "/api/v1/watch", "/api/v1/watch?since=nowhere&kinds=users", LOOK_EVERYWHERE),
    ("POST", "/api/v1/runs/{run}", "/api/v1/runs/0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6e", KNOWN),
    ("GET", "/api/v1/login", "/api/v1/login", ANYBODY),
    ("GET", "/api/v1/login/openid", "/api/v1/login/openid", PAGE),
    ("POST", "/api/v1/login", "/api/v1/login", ANYBODY),
    ("POST", "/api/v1/logout", "/api/v1/logout", KNOWN),
    ("POST", "/api/v1/password", "/api/v1/password", KNOWN),
    ("GET", "/api/v1/whoami", "/api/v1/whoami", KNOWN),
    ("POST", "/api/v1/api_tokens/{name}/issue", "/api/v1/api_tokens/spare/issue", GOVERN),
    ("POST", "/api/v1/api_tokens/{name}/revoke", "/api/v1/api_tokens/spare/revoke", GOVERN),
    ("POST", "/api/v1/api_tokens/{name}/issue", "/api/v1/api_tokens/spare/issue?dry_run=true", GOVERN),
    ("POST", "/api/v1/api_tokens/{name}/revoke", "/api/v1/api_tokens/spare/revoke?dry_run=true", GOVERN),
    ("PUT", "/api/v1/{plural}/{name}", "/api/v1/webhooks/chat", GOVERN),
    ("GET", "/api/v1/webhooks/{name}/deliveries", "/api/v1/webhooks/chat/deliveries", LOOK_EVERYWHERE),
    ("POST", "/api/v1/webhooks/{name}/redeliver", "/api/v1/webhooks/chat/redeliver", GOVERN),
    ("POST", "/api/v1/webhooks/{name}/redeliver", "/api/v1/webhooks/chat/redeliver?dry_run=true", GOVERN),
    ("GET", "/api/v1/addresses", "/api/v1/addresses", LOOK),
    ("GET", "/api/v1/events", "/api/v1/events", LOOK),
    ("GET", "/api/v1/events", "/api/v1/events?object=machines/red", LOOK_ELSEWHERE),
    ("GET", "/api/v1/audit", "/api/v1/audit", GOVERN),
    ("POST", "/api/v1/join_tokens", "/api/v1/join_tokens", GOVERN),
    ("HEAD", "/api/v1/blobs/{sha256}", "/api/v1/blobs/SHA256", LOOK),
    ("GET", "/api/v1/blobs/{sha256}", "/api/v1/blobs/SHA256", LOOK),
    ("PUT", "/api/v1/blobs/{sha256}", "/api/v1/blobs/SHA256", CHANGE),
];

#[test]
fn the_document_describes_every_endpoint_and_nothing_else() {
    let document = basalt_api::openapi(basalt_api::KINDS);
    let plurals: BTreeSet<&str> = basalt_api::KINDS.iter().map(|kind| kind.plural).collect();
    let mut described = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for method in methods.as_object().expect("methods").keys() {
            let method = method.to_ascii_uppercase();
            let is_itself = ENDPOINTS.iter().any(|e| (e.method, e.path) == (&method, path));
            let plural = path.split('/').nth(3).filter(|word| !is_itself && plurals.contains(word));
            let path = plural.map_or(path.clone(), |plural| path.replacen(plural, "{plural}", 1));
            described.insert((method, path));
        }
    }
    let served: BTreeSet<_> = ENDPOINTS.iter().map(|e| (e.method.to_owned(), e.path.to_owned())).collect();
    let (missing, made_up) = (served.difference(&described), described.difference(&served));
    let (missing, made_up): (Vec<_>, Vec<_>) = (missing.collect(), made_up.collect());
    assert!(missing.is_empty(), "add these to ENDPOINTS in api/src/openapi: {missing:?}");
    assert!(made_up.is_empty(), "nothing answers these of api/src/openapi: {made_up:?}");
}

#[tokio::test]
async fn every_endpoint_answers_everybody_as_the_table_says() {
    let of_endpoints: BTreeSet<_> = ENDPOINTS.iter().map(|e| (e.method, e.path)).collect();
    let of_table: BTreeSet<_> = TABLE.iter().map(|row| (row.0, row.1)).collect();
    assert_eq!(of_endpoints, of_table, "the table has every endpoint, and nothing else");
    for endpoint in ENDPOINTS.iter().filter(|e| e.dry_run.is_some()) {
        let tried = |row: &&(&str, &str, &str, &str)| (row.0, row.1) == (endpoint.method, endpoint.path);
        assert!(
            TABLE.iter().filter(tried).any(|row| row.2.contains("dry_run")),
            "{} is tried out",
            endpoint.path
        );
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
    for (method, _, path, wanted) in TABLE {
        let path = path.replace("SHA256", &"0".repeat(64));
        let mut found = String::new();
        for client in &clients {
            // An allowed request changes nothing: its body is empty, and its generation is wrong.
            let status = client.send(method, &path, &[("if-match", "\"99\"")], "").await.status.as_u16();
            if ["GET", "HEAD"].contains(method) && ![401, 403, 404].contains(&status) {
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
async fn done(lab: &Lab, caller: &Client, name: &str, (method, path, at, body): Write<'_>) -> bool {
    let answer = caller.send(method, at, headers(method), body.to_owned()).await;
    let newest = lab.api.get("/api/v1/audit?limit=1").await.json()["items"][0].clone();
    let is_its_own =
        newest["actor"] == format!("token {name}") && newest["request"] == format!("{method} {path}");
    match answer.status.as_u16() {
        403 => false,
        _ => {
            assert!(answer.status.is_success(), "{name}: {method} {at}: {answer:?}");
            assert!(is_its_own, "{name}: {method} {at} was answered, and not done: {newest}");
            true
        }
    }
}

/// Method, path in the table, path, body.
type Write<'a> = (&'a str, &'a str, &'a str, &'a str);

#[tokio::test]
async fn a_role_does_what_it_may_and_nothing_else() {
    for role in ["viewer", "operator", "admin"] {
        let lab = furnished().await;
        lab.api.declare(&format!("/api/v1/roles/{role}"), &format!("{{\"base\":\"{role}\"}}")).await;
        let token = issue(&lab, role, &format!("{{\"role\":\"{role}\"}}")).await;
        let caller = Client::new(lab.region.address(), Some(token));
        // Sessions and runs belong to their users.
        let of_tokens = WRITES.iter().filter(|row| !OF_USERS.contains(&row.1) && row.1 != RUNS);
        for (method, path, at, body) in of_tokens {
            let endpoint = ENDPOINTS.iter().find(|e| (e.method, e.path) == (*method, *path)).expect("a row");
            let governs = endpoint.role == Some(Role::Admin) || at.contains("/users/");
            let wanted = role == "admin" || (role == "operator" && !governs);
            if endpoint.dry_run.is_some() && !governs {
                let tried = caller.send(method, &format!("{at}?dry_run=true"), headers(method), *body).await;
                assert_eq!(tried.status, 200, "{role} tries {method} {at}: {tried:?}");
            }
            let done = done(&lab, &caller, role, (method, path, at, body)).await;
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
    let object = "/api/v1/{plural}/{name}";
    let rows: [Write<'_>; 9] = [
        (
            "PUT",
            object,
            "/api/v1/machines/new",
            r#"{"spec":{"pool":"blue","boot_macs":["52:54:00:00:05:01"]}}"#,
        ),
        ("PATCH", object, "/api/v1/machines/new", r#"{"description":"ours"}"#),
        (
            "PUT",
            "/api/v1/{plural}/{name}/layers/{manager}",
            "/api/v1/machines/new/layers/cmdb",
            r#"{"tags":["x"]}"#,
        ),
        (
            "POST",
            "/api/v1/{plural}/{name}/operations",
            "/api/v1/machines/new/operations",
            r#"{"verb":"recommission"}"#,
        ),
        (
            "POST",
            "/api/v1/operations",
            "/api/v1/operations",
            r#"{"where":"name:new","operation":{"verb":"recommission"}}"#,
        ),
        ("POST", "/api/v1/{plural}/{name}/rename", "/api/v1/machines/new/rename", r#"{"name":"newer"}"#),
        (
            "POST",
            "/api/v1/apply",
            "/api/v1/apply",
            r#"{"documents":[{"kind":"Deployment","metadata":{"name":"d"},"spec":{"image":"debian","machine":"newer"}}]}"#,
        ),
        ("DELETE", object, "/api/v1/deployments/d", ""),
        ("DELETE", object, "/api/v1/machines/newer", ""),
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
