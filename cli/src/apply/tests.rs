//! Tests of the wait of `basalt apply`.

use axum::extract::Request;
use axum::http::Method;
use axum::response::IntoResponse;
use serde_json::{Value, json};

use crate::region::Failed;
use crate::stand_in::{self, zone};

const ZONE: &str = "kind: Zone\nmetadata: {name: row-1}\nspec: {}\n";

/// Applies [`ZONE`] with these flags, at a region that already has it as declared.
async fn applied(flags: &[&str], zone: Value) -> Result<(), Failed> {
    let unchanged = json!({"summary": "", "digest": "0".repeat(64), "blast_radius": {}, "results": [
        {"kind": "Zone", "name": "row-1", "action": "unchanged", "generation": 3}]});
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("zone.yaml");
    std::fs::write(&file, ZONE).unwrap();
    let words = [&["apply", "--yes", "--file", file.to_str().unwrap()], flags].concat();
    let answer = move |request: &Request| {
        axum::Json(if request.method() == Method::POST { &unchanged } else { &zone }).into_response()
    };
    stand_in::run(&words, answer).await
}

#[tokio::test]
async fn what_did_not_change_is_waited_for_as_well() {
    applied(&[], zone("Stalled")).await.unwrap();
    applied(&["--wait", "5s"], zone("Ready")).await.unwrap();
    let failed = applied(&["--wait", "5s"], zone("Stalled")).await.unwrap_err().to_string();
    assert!(failed.starts_with("Zone row-1: the door is shut"), "{failed}");
}
