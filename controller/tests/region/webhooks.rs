//! Webhooks: nothing is lost, the order is kept, and receivers can be as bad as they are.

use crate::audit::deployment_with;
use crate::process::{Program, command, data_dir, id, signal, start_with, wait};
use crate::receiver::{Arrival, Behaviour, Receiver};
use crate::support::{Client, Lab, lab_with};
use basalt_region::webhooks::Options;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const LOOPBACK: &str = "127.0.0.0/8";

/// A region that delivers to loopback.
async fn lab(change: impl FnOnce(&mut Options)) -> Lab {
    let mut options = Options {
        networks: vec![LOOPBACK.parse().unwrap()],
        timeout: Duration::from_secs(10),
        patience: Duration::from_secs(3600),
        divisor: 100,
    };
    change(&mut options);
    let mut lab = lab_with(|_| ()).await;
    lab.region.deliver(options).unwrap();
    lab
}

async fn declare(api: &Client, name: &str, url: &str, more: Value) {
    let mut spec = json!({"url": url});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    api.declare(&format!("/api/v1/webhooks/{name}"), &spec.to_string()).await;
}

async fn deliveries(api: &Client, name: &str, query: &str) -> Vec<Value> {
    let answer = api.get(&format!("/api/v1/webhooks/{name}/deliveries{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["items"].as_array().unwrap().clone()
}

/// Waits until the webhook's status is so: it is noted after the receiver has answered.
async fn status(api: &Client, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let wait = async {
        loop {
            let status = api.get(&format!("/api/v1/webhooks/{name}")).await.json()["status"].clone();
            if holds(&status) {
                return status;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.expect("the status in 60 s")
}

#[tokio::test]
async fn what_happens_is_delivered_signed_and_as_a_viewer_reads_it() {
    let lab = lab(|_| ()).await;
    let receiver = Receiver::start(|_| Behaviour::Accept).await;
    // The base64 of the bytes 0 to 23.
    let secret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";
    declare(&lab.api, "chat", &receiver.url(), json!({"secret": secret})).await;
    lab.api.declare("/api/v1/zones/a", r#"{"description":"one"}"#).await;
    lab.api.declare("/api/v1/zones/a", r#"{"description":"two"}"#).await;
    lab.api.declare("/api/v1/zones/a", r#"{"description":"two"}"#).await;
    lab.api.send("POST", "/api/v1/zones/a/rename", &[], r#"{"name":"b"}"#).await;
    lab.api.delete("/api/v1/zones/b").await;
    receiver
        .until("it is gone", |came| came.iter().any(|a| a.accepted && a.what() == "Zone b deleted"))
        .await;
    receiver.until("all of it", |came| came.iter().filter(|a| a.accepted).count() == 8).await;

    let accepted = receiver.accepted();
    let of_zone: Vec<_> =
        accepted.iter().map(Arrival::what).filter(|what| what.starts_with("Zone")).collect();
    // Renamed, then asked to go.
    let wanted = [
        "Zone a created",
        "Zone a ready",
        "Zone a changed",
        "Zone b changed",
        "Zone b changed",
        "Zone b deleted",
    ];
    assert_eq!(of_zone, wanted);
    let key: Vec<u8> = (0..24).collect();
    assert!(accepted.iter().all(|a| a.is_signed_with(&key)), "OpenSSL finds the same signatures");
    assert!(!accepted[0].is_signed_with(secret.as_bytes()));
    assert!(accepted.iter().all(|a| a.attempt == 1 && !a.text().contains("AAECAw")));

    let changed = accepted.iter().find(|a| a.what() == "Zone a changed").unwrap().json();
    assert_eq!(changed["type"], "Zone.changed");
    let object = &changed["data"]["object"];
    assert_eq!((&changed["data"]["generation"], &object["metadata"]["generation"]), (&json!(2), &json!(2)));
    assert_eq!((&object["kind"], &object["spec"]), (&json!("Zone"), &json!({"description": "two"})));
    assert_eq!(object["metadata"]["uid"], changed["data"]["uid"]);
    let own = accepted.iter().find(|a| a.what() == "Webhook chat created").unwrap().json();
    assert_eq!(own["data"]["object"]["spec"]["secret"], json!({"set": true, "revision": 1}));

    let status = status(&lab.api, "chat", |status| status["delivered"] == 8).await;
    assert_eq!((&status["waiting"], &status["failed"]), (&json!(0), &json!(0)));
    assert!(status["last_delivered_at"].is_string(), "{status}");
    assert_eq!(status["conditions"][0]["reason"], "Delivering");
    let listed = deliveries(&lab.api, "chat", "?state=delivered&limit=3").await;
    assert_eq!(
        (listed.len(), &listed[0]["event"], &listed[0]["attempts"]),
        (3, &json!("deleted"), &json!(1))
    );
}

#[tokio::test]
async fn a_receiver_is_not_told_a_deployments_user_data() {
    let lab = lab(|_| ()).await;
    let receiver = Receiver::start(|_| Behaviour::Accept).await;
    declare(&lab.api, "chat", &receiver.url(), json!({"events": ["created"]})).await;
    deployment_with(&lab.api, "#cloud-config\npassword: one\n").await;
    receiver.until("it is told", |came| came.iter().any(|a| a.what() == "Deployment d created")).await;
    let told = receiver.accepted().into_iter().find(|a| a.what() == "Deployment d created").unwrap();
    assert_eq!(told.json()["data"]["object"]["spec"]["user_data"], "(sensitive)");
}

#[tokio::test]
async fn only_what_is_asked_for_is_noted() {
    let lab = lab(|_| ()).await;
    lab.api.declare("/api/v1/zones/before", "{}").await;
    let receiver = Receiver::start(|_| Behaviour::AcceptAtLength).await;
    declare(&lab.api, "chat", &receiver.url(), json!({"events": ["deleted"]})).await;
    lab.api.declare("/api/v1/zones/a", "{}").await;
    lab.api.put("/api/v1/zones/c?dry_run=true", r#"{"spec":{}}"#).await;
    lab.api.delete("/api/v1/zones/a?dry_run=true").await;
    lab.api.delete("/api/v1/zones/a").await;
    lab.api.delete("/api/v1/zones/before").await;
    status(&lab.api, "chat", |status| status["delivered"] == 2).await;
    let accepted = receiver.accepted();
    assert_eq!(
        accepted.iter().map(Arrival::what).collect::<Vec<_>>(),
        ["Zone a deleted", "Zone before deleted"]
    );
    assert!(!accepted[0].is_signed_with(b""), "without a secret there is no signature");
    assert_eq!(deliveries(&lab.api, "chat", "").await.len(), 2);
    lab.api.delete("/api/v1/webhooks/chat").await;
    assert_eq!(lab.api.get("/api/v1/webhooks/chat/deliveries").await.status, 404);
}

#[tokio::test]
async fn each_event_is_delivered_to_who_asks_for_it_alone() {
    let mut lab = crate::support::driven_lab().await;
    let options = Options {
        networks: vec![LOOPBACK.parse().unwrap()],
        timeout: Duration::from_secs(10),
        patience: Duration::from_secs(3600),
        divisor: 100,
    };
    lab.region.deliver(options).unwrap();
    let receiver = Receiver::start(|_| Behaviour::Accept).await;
    let events = ["created", "changed", "ready", "stalled", "deleted"];
    for event in events {
        let url = format!("{}?{event}", receiver.url());
        declare(&lab.api, event, &url, json!({"events": [event]})).await;
    }
    // Nobody uploads its file: it stalls.
    let image = crate::allocation::image()["spec"].clone();
    lab.api.declare("/api/v1/images/debian", &image.to_string()).await;
    let file = json!({"root_tarball": {"sha256": "0".repeat(64)}});
    let stalled = json!({"os": "debian", "release": "12", "architecture": "amd64", "files": file});
    lab.api.declare("/api/v1/images/other", &stalled.to_string()).await;
    lab.api.declare("/api/v1/zones/a", "{}").await;
    lab.api.declare("/api/v1/zones/a", r#"{"description":"two"}"#).await;
    lab.api.delete("/api/v1/zones/a").await;
    let wanted =
        ["Zone a created", "Zone a changed", "Zone a ready", "Image other stalled", "Zone a deleted"];
    for (event, what) in events.iter().zip(wanted) {
        let came = |came: &[Arrival]| came.iter().any(|it| it.what() == what);
        receiver.until(what, came).await;
        assert!(what.ends_with(event));
    }
    for event in events {
        for delivery in deliveries(&lab.api, event, "").await {
            assert_eq!(delivery["event"], event, "{delivery}");
        }
    }
}

#[tokio::test]
async fn a_receiver_that_hangs_delays_nobody_else() {
    let lab = lab(|options| options.timeout = Duration::from_secs(60)).await;
    let hanging = Receiver::start(|_| Behaviour::Hang).await;
    let quick = Receiver::start(|_| Behaviour::Accept).await;
    declare(&lab.api, "hangs", &hanging.url(), json!({"events": ["created"]})).await;
    declare(&lab.api, "quick", &quick.url(), json!({"events": ["created", "deleted"]})).await;
    for n in 0..20 {
        lab.api.declare(&format!("/api/v1/zones/z{n}"), "{}").await;
    }
    quick.until("all zones", |came| came.iter().filter(|a| a.accepted).count() == 21).await;
    hanging.until("some", |came| came.len() == 4).await;
    assert_eq!(hanging.arrivals().len(), 4, "no more at once, and none has timed out");
    let waiting = deliveries(&lab.api, "hangs", "?state=pending").await;
    assert_eq!(waiting.len(), 22, "its own creation, the other webhook's, and the zones'");
}

#[tokio::test]
async fn a_dead_letter_is_seen_and_sent_again() {
    let healthy = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let shared = healthy.clone();
    let receiver = Receiver::start(move |_| match shared.load(std::sync::atomic::Ordering::SeqCst) {
        true => Behaviour::Accept,
        false => Behaviour::Answer(500),
    })
    .await;
    // The first attempt comes before a pause is over.
    let lab = lab(|options| options.patience = Duration::from_nanos(1)).await;
    declare(&lab.api, "chat", &receiver.url(), json!({"events": ["deleted"]})).await;
    for zone in ["a", "b"] {
        lab.api.declare(&format!("/api/v1/zones/{zone}"), "{}").await;
        lab.api.delete(&format!("/api/v1/zones/{zone}")).await;
    }
    let failed = status(&lab.api, "chat", |status| status["failed"] == 2).await;
    assert_eq!(failed["conditions"][0]["reason"], "Failing");
    let dead = deliveries(&lab.api, "chat", "?state=dead").await;
    assert_eq!(dead[0]["error"], "answered 500 Internal Server Error");
    assert_eq!((&dead[0]["name"], &dead[1]["name"]), (&json!("b"), &json!("a")));
    assert!(lab.api.get("/metrics").await.text().contains("basalt_webhook_dead 2\n"));

    healthy.store(true, std::sync::atomic::Ordering::SeqCst);
    let again = |body: Value| {
        let api = lab.api.clone();
        async move { api.send("POST", "/api/v1/webhooks/chat/redeliver", &[], body.to_string()).await }
    };
    assert_eq!(again(json!({"id": dead[1]["id"]})).await.json(), json!({"deliveries": 1}));
    status(&lab.api, "chat", |status| status["delivered"] == 1 && status["failed"] == 1).await;
    assert_eq!(receiver.accepted()[0].id, dead[1]["id"].as_str().unwrap());
    assert_eq!(again(json!({"id": dead[1]["id"]})).await.problem().1, "not_found", "it is dead no more");
    assert_eq!(again(json!({})).await.json(), json!({"deliveries": 1}));
    let done = status(&lab.api, "chat", |status| status["delivered"] == 2).await;
    assert_eq!((&done["failed"], &done["last_error"]), (&json!(0), &json!(null)));
}

#[tokio::test]
async fn a_dead_letter_that_is_deleted_is_never_sent() {
    let receiver = Receiver::start(|_| Behaviour::Answer(500)).await;
    let lab = lab(|options| options.patience = Duration::from_nanos(1)).await;
    declare(&lab.api, "chat", &receiver.url(), json!({"events": ["deleted"]})).await;
    for zone in ["a", "b", "c"] {
        lab.api.declare(&format!("/api/v1/zones/{zone}"), "{}").await;
        lab.api.delete(&format!("/api/v1/zones/{zone}")).await;
    }
    status(&lab.api, "chat", |status| status["failed"] == 3).await;
    let dead = deliveries(&lab.api, "chat", "?state=dead").await;
    let discard = async |query: &str, body: Value| {
        let path = format!("/api/v1/webhooks/chat/discard{query}");
        lab.api.send("POST", &path, &[], body.to_string()).await
    };
    let one = json!({"id": dead[1]["id"]});
    let plan = discard("?dry_run=true", one.clone()).await.json();
    let says = "1 dead letter of Webhook \"chat\" will be deleted, and cannot be sent again.";
    assert_eq!(plan["plan"]["summary"], says);
    assert_eq!(deliveries(&lab.api, "chat", "?state=dead").await.len(), 3, "a dry run deletes nothing");

    assert_eq!(discard("", one.clone()).await.json(), json!({"deliveries": 1}));
    let left: Vec<Value> =
        deliveries(&lab.api, "chat", "").await.iter().map(|letter| letter["name"].clone()).collect();
    assert_eq!(left, ["c", "a"]);
    assert_eq!(discard("", one).await.problem().1, "not_found", "it is there no more");
    let audit = lab.api.get("/api/v1/audit?object=webhooks/chat&limit=1").await.json();
    let entry = &audit["items"][0];
    assert_eq!((&entry["before"], &entry["after"]), (&json!({"failed": 3}), &json!({"failed": 2})));

    assert_eq!(discard("", json!({})).await.json(), json!({"deliveries": 2}));
    assert_eq!(deliveries(&lab.api, "chat", "").await.len(), 0);
    assert!(lab.api.get("/metrics").await.text().contains("basalt_webhook_dead 0\n"));
}

#[tokio::test]
async fn who_answers_410_is_asked_no_more_until_its_spec_changes() {
    let gone = Receiver::start(|_| Behaviour::Answer(410)).await;
    let lab = lab(|_| ()).await;
    declare(&lab.api, "chat", &gone.url(), json!({"events": ["deleted"]})).await;
    let zone = async |name: &str| {
        lab.api.declare(&format!("/api/v1/zones/{name}"), "{}").await;
        lab.api.delete(&format!("/api/v1/zones/{name}")).await;
    };
    zone("a").await;
    let status = status(&lab.api, "chat", |status| status["failed"] == 1).await;
    let stalled = &status["conditions"][2];
    assert_eq!((&stalled["type"], &stalled["status"]), (&json!("Stalled"), &json!("true")));
    assert!(stalled["message"].as_str().unwrap().contains("410"), "{stalled}");
    zone("b").await;
    assert_eq!(deliveries(&lab.api, "chat", "").await.len(), 1, "nothing new is noted");
    let other = Receiver::start(|_| Behaviour::Accept).await;
    declare(&lab.api, "chat", &other.url(), json!({"events": ["deleted"]})).await;
    zone("c").await;
    other.until("it goes on", |came| came.iter().any(|a| a.what() == "Zone c deleted")).await;
    assert_eq!(gone.arrivals().len(), 1);
}

#[tokio::test]
async fn this_host_is_not_reached_unless_it_is_named() {
    let receiver = Receiver::start(|_| Behaviour::Accept).await;
    let lab = lab(|options| options.networks.clear()).await;
    let port = receiver.address.port();
    for (name, url) in [
        ("literal", format!("http://127.0.0.1:{port}/")),
        ("name", format!("http://localhost:{port}/")),
        ("mapped", format!("http://[::ffff:127.0.0.1]:{port}/")),
    ] {
        declare(&lab.api, name, &url, json!({"events": ["created"]})).await;
        let failed = status(&lab.api, name, |status| status["last_error"].is_string()).await;
        let error = failed["last_error"].as_str().unwrap();
        assert!(error.contains("not allowed; the setting webhook-networks"), "{name}: {error}");
    }
    assert!(receiver.arrivals().is_empty());
}

/// Attempt 1 and 2 of a delivery fail in a way that its id chooses, and the third is accepted.
fn luckless(arrival: &Arrival) -> Behaviour {
    const FAULTS: [Behaviour; 5] =
        [Behaviour::Answer(503), Behaviour::Redirect, Behaviour::Slow(20), Behaviour::Hang, Behaviour::Cut];
    let dice = usize::from_str_radix(&arrival.id[..4], 16).expect("hexadecimal digits");
    match arrival.attempt {
        1 => FAULTS[dice % 5],
        2 => FAULTS[(dice / 5) % 5],
        _ => Behaviour::Accept,
    }
}

#[tokio::test]
async fn nothing_is_lost_and_order_is_kept_through_bad_receivers_and_kills() {
    const ZONES: usize = 8;
    let dir = data_dir();
    let receiver = Receiver::start(luckless).await;
    let (safe, certificate) = Receiver::start_tls(|_| Behaviour::Accept).await;
    let roots = dir.path().join("roots.pem");
    std::fs::write(&roots, certificate).unwrap();
    let start = || -> Program {
        let mut command = command(dir.path());
        command.args([
            "--webhook-networks",
            LOOPBACK,
            "--webhook-timeout",
            "200ms",
            "--deadline-divisor",
            "100",
        ]);
        command.env("SSL_CERT_FILE", &roots).env_remove("SSL_CERT_DIR");
        start_with(command, dir.path())
    };
    let mut region = start();
    declare(&region.api, "chat", &receiver.url(), json!({"secret": "signed in plain"})).await;
    let safe_url = format!("https://localhost:{}/", safe.address.port());
    declare(&region.api, "safe", &safe_url, json!({"events": ["deleted"]})).await;
    let mut kills = 0;
    for round in 0..4 {
        let seen = receiver.arrivals().len();
        for zone in 0..ZONES {
            let path = format!("/api/v1/zones/z{zone}");
            match round {
                3 => drop(region.api.delete(&path).await),
                _ => region.api.declare(&path, &format!(r#"{{"description":"{round}"}}"#)).await,
            }
        }
        // In the middle, mostly: some are under way, some wait for another attempt, some were never tried.
        receiver.until("it goes on", |came| came.len() >= seen + 5).await;
        if round < 3 {
            signal(id(&region.child), "KILL");
            wait(&mut region.child);
            region = start();
            kills += 1;
        }
    }
    let events = ["created", "ready", "changed", "changed", "changed", "deleted"];
    let total = ZONES * events.len() + 4; // Both webhooks were created, and ready.
    let done = |came: &[Arrival]| {
        let ids: std::collections::BTreeSet<_> = came.iter().filter(|a| a.accepted).map(|a| &a.id).collect();
        ids.len() == total
    };
    receiver.until("every event", done).await;
    // On a slow host, a delivery may time out and come again.
    let accepted = |came: &[Arrival]| {
        let ids = came.iter().filter(|a| a.accepted).map(|a| &a.id);
        ids.collect::<std::collections::BTreeSet<_>>().len()
    };
    safe.until("every event", |came| accepted(came) >= ZONES).await;

    let mut by_zone: BTreeMap<String, Vec<Arrival>> = BTreeMap::new();
    for arrival in receiver.accepted() {
        by_zone.entry(arrival.uid()).or_default().push(arrival);
    }
    for arrivals in by_zone.values().filter(|arrivals| arrivals[0].what().starts_with("Zone")) {
        let words: Vec<_> =
            arrivals.iter().map(|a| a.what().rsplit(' ').next().unwrap().to_owned()).collect();
        assert_eq!(words, events);
    }
    let mut last: BTreeMap<String, i64> = BTreeMap::new();
    for arrival in receiver.arrivals() {
        let before = last.insert(arrival.uid(), arrival.sequence()).unwrap_or_default();
        assert!(before <= arrival.sequence(), "{} came after {before}", arrival.what());
        assert_eq!(arrival.path, "/hook", "no redirect is followed");
        assert!(arrival.is_signed_with(b"signed in plain"), "{arrival:?}");
    }
    assert_eq!(safe.accepted().len(), ZONES);
    let faults = receiver.faults();
    eprintln!("{} requests for {total} deliveries, {kills} kills, {faults:?}", receiver.arrivals().len());
    assert!(kills > 0 && faults.len() == 6 && faults.values().all(|count| *count > 0), "{faults:?}");
    signal(id(&region.child), "TERM");
    assert_eq!(wait(&mut region.child), 0);
}
