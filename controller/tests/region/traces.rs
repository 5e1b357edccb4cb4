//! Traces: who asked for something is known to whom it is told, and every request has a name.

use crate::receiver::{Behaviour, Receiver};
use crate::support::lab_with;
use basalt_region::webhooks::Options;
use std::time::Duration;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

#[tokio::test]
async fn a_trace_leads_from_a_request_to_the_webhook_that_is_told() {
    let receiver = Receiver::start(|_| Behaviour::Accept).await;
    let mut lab = lab_with(|_| ()).await;
    let options = Options {
        networks: vec!["127.0.0.0/8".parse().unwrap()],
        timeout: Duration::from_secs(10),
        patience: Duration::from_secs(3600),
        divisor: 1,
    };
    lab.region.deliver(options).unwrap();
    let hook = format!(r#"{{"url":"{}","events":["created"]}}"#, receiver.url());
    lab.api.declare("/api/v1/webhooks/chat", &hook).await;
    let traceparent = format!("00-{TRACE}-b7ad6b7169203331-01");
    let headers = [("traceparent", traceparent.as_str())];
    let answer = lab.api.send("PUT", "/api/v1/zones/a", &headers, r#"{"spec":{}}"#).await;
    lab.api.declare("/api/v1/zones/b", "{}").await;
    receiver
        .until("both zones", |came| came.iter().filter(|a| a.what().starts_with("Zone")).count() == 2)
        .await;
    let told =
        |what: &str| receiver.arrivals().into_iter().find(|a| a.what() == what).expect("it came").traceparent;
    let id = answer.headers["x-request-id"].to_str().unwrap();
    assert!(id.starts_with(TRACE), "{id}");
    assert_eq!(told("Zone a created"), Some(format!("00-{id}-01")), "the request's own span of that trace");
    assert_eq!(told("Zone b created"), None, "nobody asked for a trace");
}

#[tokio::test]
async fn a_problem_says_which_request_it_answers() {
    let lab = lab_with(|_| ()).await;
    let refused = lab.api.get("/api/v1/zones/nowhere").await;
    let id = refused.headers["x-request-id"].to_str().unwrap();
    assert_eq!(refused.json()["request_id"], id);
    let malformed = [("traceparent", "00-nothing-of-the-sort")];
    let answer = lab.api.send("GET", "/api/v1/zones", &malformed, "").await;
    assert_eq!((answer.status.as_u16(), answer.headers["x-request-id"].len()), (200, id.len()));
}
