//! The region for browsers: the console's page, a session in a cookie, writes only from the region's pages, and a watch with few fields.

use crate::accounts::issue;
use crate::support::{Answer, Client, Lab, lab};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The header that a browser sends from a page of the region.
const OWN: (&str, &str) = ("sec-fetch-site", "same-origin");

const PASSWORD: &str = "correct horse battery";

fn anybody(lab: &Lab) -> Client {
    Client::new(lab.region.address(), None)
}

/// A region with the operator alice.
async fn with_alice() -> Lab {
    let lab = lab().await;
    lab.api.declare("/api/v1/roles/operator", r#"{"base":"operator"}"#).await;
    let alice = json!({"password": PASSWORD, "roles": ["operator"]});
    lab.api.declare("/api/v1/users/alice", &alice.to_string()).await;
    lab
}

async fn login(lab: &Lab, headers: &[(&str, &str)], body: Value) -> Answer {
    anybody(lab).send("POST", "/api/v1/login?cookie=true", headers, body.to_string()).await
}

fn alice() -> Value {
    json!({"user": "alice", "password": PASSWORD})
}

/// The cookie of an answer, as the browser sends it back.
fn cookie(answer: &Answer) -> String {
    assert_eq!((answer.status.as_u16(), answer.text()), (204, ""), "the token is in no body");
    let set = answer.headers["set-cookie"].to_str().unwrap();
    for attribute in ["; HttpOnly", "; SameSite=Strict", "; Path=/"] {
        assert!(set.contains(attribute), "{set}");
    }
    set.split(';').next().unwrap().to_owned()
}

async fn send(lab: &Lab, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let body = if method == "PUT" { r#"{"spec":{}}"# } else { "" };
    anybody(lab).send(method, path, headers, body).await
}

#[tokio::test]
async fn the_page_loads_nothing_from_elsewhere_and_its_files_are_kept() {
    let lab = lab().await;
    for path in ["/", "/ui/machines", "/ui/machines/web1/timeline"] {
        let page = anybody(&lab).get(path).await;
        assert_eq!(page.status, 200, "{path}");
        assert!(page.text().starts_with("<!doctype html>"), "{path}: {}", page.text());
        assert!(!page.text().contains("<style") && !page.text().contains("://"), "{path}: {}", page.text());
        assert_eq!(page.headers["cache-control"], "no-store");
        assert_eq!(page.headers["x-content-type-options"], "nosniff");
        let policy = page.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'self'; frame-ancestors 'none'"), "{policy}");
    }
    let page = anybody(&lab).get("/").await;
    let script = page.text().split('"').find(|word| word.ends_with(".js")).unwrap();
    let script = anybody(&lab).get(script).await;
    assert_eq!(script.headers["content-type"], "text/javascript; charset=utf-8");
    assert_eq!(script.headers["cache-control"], "public, max-age=31536000, immutable");
    assert_eq!(anybody(&lab).get("/ui/assets/gone-0.js").await.problem().0, 404);
}

#[tokio::test]
async fn a_browser_is_known_by_its_cookie_until_it_logs_out() {
    let lab = with_alice().await;
    let cookie = cookie(&login(&lab, &[OWN], alice()).await);
    let session = [("cookie", cookie.as_str()), OWN];
    let whoami = send(&lab, "GET", "/api/v1/whoami", &session).await.json();
    assert_eq!((&whoami["actor"], &whoami["by"]), (&json!("user alice"), &json!("session")));
    assert_eq!(send(&lab, "PUT", "/api/v1/zones/a", &session).await.status, 201);

    let out = send(&lab, "POST", "/api/v1/logout", &session).await;
    assert_eq!(out.status, 204);
    assert!(out.headers["set-cookie"].to_str().unwrap().ends_with("; Max-Age=0"), "{out:?}");
    assert_eq!(send(&lab, "GET", "/api/v1/whoami", &session).await.problem().0, 401, "the session has ended");
}

#[tokio::test]
async fn what_a_cookie_writes_comes_from_a_page_of_the_region() {
    let lab = with_alice().await;
    let cookie = cookie(&login(&lab, &[OWN], alice()).await);
    let host = "region";
    let refused: [&[(&str, &str)]; 5] = [
        &[],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "cross-site"), ("origin", "http://region")],
        &[("origin", "http://elsewhere")],
        &[("origin", "null")],
    ];
    for (method, path) in [
        ("PUT", "/api/v1/zones/a"),
        ("DELETE", "/api/v1/zones/a"),
        ("POST", "/api/v1/logout"),
        ("POST", "/api/v1/apply?dry_run=true"),
    ] {
        for headers in refused {
            let headers = [&[("cookie", cookie.as_str())], headers].concat();
            let (status, code, _) = send(&lab, method, path, &headers).await.problem();
            assert_eq!((status, code.as_str()), (403, "forbidden"), "{method} {path} {headers:?}");
        }
    }
    let read = send(&lab, "GET", "/api/v1/zones", &[("cookie", &cookie)]).await;
    assert_eq!(read.status, 200, "a read changes nothing");
    let origin = format!("http://{host}");
    let own = [("cookie", cookie.as_str()), ("origin", &origin)];
    assert_eq!(
        send(&lab, "PUT", "/api/v1/zones/a", &own).await.status,
        201,
        "over plain HTTP browsers say Origin alone"
    );
}

#[tokio::test]
async fn no_other_site_logs_a_browser_in() {
    let lab = with_alice().await;
    for headers in [&[][..], &[("sec-fetch-site", "cross-site")]] {
        let refused = login(&lab, headers, alice()).await;
        assert_eq!(refused.problem().0, 403);
        assert!(!refused.headers.contains_key("set-cookie"));
    }
    let wrong = login(&lab, &[OWN], json!({"user": "alice", "password": "wrong horse battery"})).await;
    assert_eq!((wrong.problem().0, wrong.headers.contains_key("set-cookie")), (401, false));
}

#[tokio::test]
async fn a_pasted_token_becomes_a_cookie_and_outlives_it() {
    let lab = lab().await;
    lab.api.declare("/api/v1/roles/viewer", r#"{"base":"viewer"}"#).await;
    let token = issue(&lab, "ann", r#"{"role":"viewer"}"#).await;
    let pasted = login(&lab, &[OWN], json!({"token": token})).await;
    let cookie = cookie(&pasted);
    let session = [("cookie", cookie.as_str()), OWN];
    assert_eq!(send(&lab, "GET", "/api/v1/whoami", &session).await.json()["actor"], "token ann");
    assert_eq!(send(&lab, "PUT", "/api/v1/zones/a", &session).await.problem().0, 403, "a viewer stays one");
    assert_eq!(send(&lab, "POST", "/api/v1/logout", &session).await.status, 204);
    let elsewhere = Client::new(lab.region.address(), Some(token.clone()));
    assert_eq!(elsewhere.get("/api/v1/whoami").await.status, 200);

    assert_eq!(login(&lab, &[OWN], json!({"token": "basalt_made_up"})).await.problem().0, 401);
    let body = json!({"token": token}).to_string();
    let (status, _, errors) = anybody(&lab).send("POST", "/api/v1/login", &[], body).await.problem();
    assert_eq!(status, 422);
    assert!(errors[0].starts_with("/cookie: "), "{errors:?}");
}

#[tokio::test]
async fn the_header_authorization_counts_before_a_cookie() {
    let lab = with_alice().await;
    let cookie = cookie(&login(&lab, &[OWN], alice()).await);
    let both = lab.api.send("PUT", "/api/v1/zones/a", &[("cookie", &cookie)], r#"{"spec":{}}"#).await;
    assert_eq!(both.status, 201, "a program says so by itself, and no browser sends it along");
    let unreadable = [("cookie", cookie.as_str()), ("authorization", "Basic YTpi"), OWN];
    assert_eq!(send(&lab, "GET", "/api/v1/whoami", &unreadable).await.problem().0, 401);
}

#[tokio::test]
async fn another_password_is_another_cookie() {
    let lab = with_alice().await;
    let before = cookie(&login(&lab, &[OWN], alice()).await);
    let body = json!({"present": PASSWORD, "password": "another horse altogether"}).to_string();
    let changed = anybody(&lab).send("POST", "/api/v1/password", &[("cookie", &before), OWN], body).await;
    let after = cookie(&changed);
    assert_eq!(send(&lab, "GET", "/api/v1/whoami", &[("cookie", &after)]).await.status, 200);
    assert_eq!(send(&lab, "GET", "/api/v1/whoami", &[("cookie", &before)]).await.status, 401);
}

/// Reads a watch until the first `put` event.
async fn first_put(lab: &Lab, query: &str, cookie: &str) -> String {
    let mut stream = TcpStream::connect(lab.region.address()).await.unwrap();
    let request = format!("GET /api/v1/watch?{query} HTTP/1.1\r\nhost: region\r\ncookie: {cookie}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut said = Vec::new();
    let read = async {
        loop {
            stream.read_buf(&mut said).await.unwrap();
            let text = String::from_utf8_lossy(&said);
            if text.split_once("event: put").is_some_and(|(_, rest)| rest.contains("\n\n")) {
                return text.into_owned();
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), read).await.expect("an event")
}

#[tokio::test]
async fn a_watch_tells_the_fields_that_it_was_asked_for() {
    let lab = with_alice().await;
    let cookie = cookie(&login(&lab, &[OWN], alice()).await);
    let position = lab.api.get("/api/v1/zones").await.json()["position"].as_str().unwrap().to_owned();
    lab.api.declare("/api/v1/zones/a", r#"{"description":"long"}"#).await;
    let fields = "kind,metadata.name,spec.fabric,status.phase";
    let said = first_put(&lab, &format!("since={position}&fields={fields}"), &cookie).await;
    assert!(
        said.contains(r#"data: {"kind":"Zone","metadata":{"name":"a"},"spec":{},"status":{}}"#),
        "{said}"
    );

    let watch = |query: &str| format!("/api/v1/watch?{query}");
    let (status, _, errors) = lab.api.get(&watch("kinds=zones&fields=status.phase")).await.problem();
    assert_eq!(
        (status, errors),
        (422, vec!["/fields: \"status.phase\" in fields is no member of a Zone".to_owned()])
    );
    let (_, _, errors) = lab.api.get(&watch("fields=status.nothing")).await.problem();
    assert_eq!(errors, ["/fields: \"status.nothing\" in fields is no member of any kind"]);
}
