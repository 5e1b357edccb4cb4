//! Who may do what, and from where.

use crate::support::{Client, lab, over_unix};
use basalt_region::api::Role;
use basalt_region::api::endpoints::ENDPOINTS;

fn example(path: &str) -> String {
    path.replace("{plural}", "zones").replace("{name}", "a").replace("{sha256}", &"0".repeat(64))
}

#[tokio::test]
async fn every_endpoint_admits_exactly_the_roles_of_the_table() {
    let lab = lab().await;
    let mut callers = vec![(None, None), (None, Some("basalt_wrong".to_owned()))];
    for role in Role::ALL {
        let token = format!("token-of-{}", role.as_str());
        lab.region.store().put_token(role.as_str(), &token, role.as_str(), None).await.unwrap();
        callers.push((Some(role), Some(token)));
    }
    for endpoint in ENDPOINTS {
        let variants = [("", endpoint.role), ("?dry_run=true", endpoint.dry_run.or(endpoint.role))];
        let variants = if endpoint.dry_run.is_some() { &variants[..] } else { &variants[..1] };
        for (query, needed) in variants {
            for (role, token) in &callers {
                let client = Client::new(lab.region.address(), token.clone());
                let path = example(endpoint.path) + query;
                let status = client.send(endpoint.method, &path, &[], "").await.status.as_u16();
                let what = format!("{} {path} as {role:?}: {status}", endpoint.method);
                match (needed, role) {
                    (Some(_), None) => assert_eq!(status, 401, "{what}"),
                    (Some(needed), Some(role)) if role < needed => assert_eq!(status, 403, "{what}"),
                    _ => assert!(![401, 403].contains(&status), "{what}"),
                }
            }
        }
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
    // The kernel tells our uid, and only root's is admin.
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
    assert_eq!(lab.api.get("/nowhere").await.problem().1, "not_found");
    assert_eq!(lab.api.send("POST", "/api/v1/zones/a", &[], "").await.problem().1, "not_found");
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
