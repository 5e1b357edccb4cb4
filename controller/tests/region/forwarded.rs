//! API requests that racks forward: through the racks' port, for callers with a rack's certificate.

use crate::enrolment::{NewRack, region};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use basalt_db::testing::clock::Hand;
use http_body_util::BodyExt;
use serde_json::Value;
use tonic::transport::Channel;
use tower::{Service, ServiceExt};

/// Sends a request as a rack does, for a client at 10.77.0.9.
async fn ask(
    rack: &mut Channel,
    method: &str,
    path: &str,
    token: Option<&str>,
    body: &'static str,
) -> (StatusCode, Value) {
    let request = Request::builder()
        .method(method)
        .uri(format!("https://region{path}"))
        .header("content-type", "application/json")
        .header("x-forwarded-for", "10.77.0.9");
    let request = match token {
        Some(token) => request.header("authorization", format!("Bearer {token}")),
        None => request,
    };
    let request = request.body(tonic::body::Body::new(Body::from(body))).expect("a request");
    let answer = rack.ready().await.expect("a connection").call(request).await.expect("an answer");
    let (status, body) = (answer.status(), answer.into_body().collect().await.expect("a body").to_bytes());
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

#[tokio::test]
async fn the_callers_token_decides_and_only_racks_are_believed_who_asked() {
    let (lab, controller) = region().await;
    let (rack, enrolled) = NewRack::new(&lab, controller.rpc_address(), "r1").await.enrol().await;
    let token = lab.api.token.as_deref();
    let mut passing = rack.dial(Some(&enrolled.certificate_der)).await;
    let (status, _) = ask(&mut passing, "GET", "/api/v1/zones", None, "").await;
    assert_eq!(status, 401, "a rack's certificate gives no rights");
    let (status, zone) = ask(&mut passing, "PUT", "/api/v1/zones/a", token, r#"{"spec":{}}"#).await;
    assert_eq!((status, &zone["metadata"]["name"]), (StatusCode::CREATED, &Value::from("a")));
    let newest = lab.api.get("/api/v1/audit?limit=1").await.json()["items"][0].clone();
    assert_eq!((&newest["name"], &newest["address"]), (&Value::from("a"), &Value::from("10.77.0.9")));
    let (status, _) = ask(&mut passing, "GET", "/nothing", token, "").await;
    assert_eq!(status, 404);

    let mut stranger = rack.dial(None).await;
    let (status, problem) = ask(&mut stranger, "GET", "/api/v1/zones", token, "").await;
    assert_eq!((status, &problem["code"]), (StatusCode::FORBIDDEN, &Value::from("forbidden")), "{problem}");

    Hand::on(&lab.url).await.run("update rack_enrolment set revoked_at = now()").await;
    let (status, _) = ask(&mut passing, "GET", "/api/v1/zones", token, "").await;
    assert_eq!(status, 403, "a rack that was removed");
}
