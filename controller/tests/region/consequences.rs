//! The effects of a write on machines that it does not name.

use crate::accounts::{issue, pools};
use crate::support::{Client, Lab, driven_lab};
use serde_json::{Value, json};

const IMAGE: &str = "/api/v1/images/ephemeral";

/// An ephemeral image, complete as soon as it is declared.
async fn ephemeral(api: &Client) -> Value {
    let mut files = json!({});
    for role in ["kernel", "initrd", "squashfs"] {
        let sha256 = hex::encode(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, role.as_bytes()));
        assert_eq!(api.send("PUT", &format!("/api/v1/blobs/{sha256}"), &[], role).await.status, 201);
        files[role] = json!({"sha256": sha256});
    }
    json!({"os": "debian", "release": "bookworm", "architecture": "amd64", "purpose": "ephemeral", "files": files})
}

async fn tried(api: &Client, method: &str, path: &str, spec: &Value) -> Value {
    let body = if method == "DELETE" { String::new() } else { json!({"spec": spec}).to_string() };
    let answer = api.send(method, &format!("{path}?dry_run=true"), &[], body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// The summaries of affected machines, and the number of further ones.
fn others(answer: &Value) -> (Vec<&str>, u64) {
    let told = answer["consequences"]["machines"].as_array().map(Vec::as_slice).unwrap_or_default();
    let words = told.iter().map(|it| it["summary"].as_str().expect("words")).collect();
    (words, answer["consequences"]["not_told"].as_u64().unwrap_or_default())
}

async fn site() -> (Lab, Value) {
    let lab = driven_lab().await;
    pools(&lab.api).await;
    let image = ephemeral(&lab.api).await;
    (lab, image)
}

/// The wait of a machine that comes next.
fn unserved(machine: &str) -> String {
    format!("{machine}: waiting for a rack that serves the network of {machine}: there is none")
}

#[tokio::test]
async fn the_first_ephemeral_image_says_what_it_means_to_the_machines_that_wait_for_one() {
    let (lab, image) = site().await;
    let answer = tried(&lab.api, "PUT", IMAGE, &image).await;
    let (words, more) = others(&answer);
    assert_eq!(more, 0, "{answer}");
    assert_eq!(words, [unserved("blue"), unserved("red")]);
    assert!(!answer["consequences"]["machines"][0]["steps"].as_array().expect("steps").is_empty());

    let documents = json!({"documents": [
        {"kind": "Image", "metadata": {"name": "ephemeral"}, "spec": image},
        {"kind": "Machine", "metadata": {"name": "red"}, "spec": {"pool": "red", "boot_macs": ["52:54:00:00:00:09"]}},
    ]});
    let answer = lab.api.send("POST", "/api/v1/apply?dry_run=true", &[], documents.to_string()).await.json();
    let (words, more) = others(&answer);
    assert_eq!((words, more), (vec![unserved("blue").as_str()], 0), "red speaks for itself");

    lab.api.declare(IMAGE, &image.to_string()).await;
    let mut described = image.clone();
    described["description"] = json!("for work on machines");
    assert_eq!(
        others(&tried(&lab.api, "PUT", IMAGE, &described).await),
        (vec![], 0),
        "they go on as they do"
    );
    let answer = tried(&lab.api, "DELETE", IMAGE, &json!({})).await;
    let (words, _) = others(&answer);
    assert!(words.iter().all(|it| it.contains("waiting for an ephemeral image for amd64")), "{answer}");
    assert_eq!(words.len(), 2);
}

#[tokio::test]
async fn of_machines_that_the_caller_does_not_see_there_is_only_the_number() {
    let (lab, image) = site().await;
    let token = issue(&lab, "of-blue", r#"{"role":"blue"}"#).await;
    let blue = Client::new(lab.region.address(), Some(token));
    let answer = tried(&blue, "PUT", IMAGE, &image).await;
    assert_eq!(others(&answer), (vec![unserved("blue").as_str()], 1));
}

#[tokio::test]
async fn of_what_nothing_decides_from_nothing_follows() {
    let (lab, _) = site().await;
    let answer = tried(&lab.api, "PUT", "/api/v1/zones/a", &json!({})).await;
    assert_eq!(answer.get("consequences"), None);
}
