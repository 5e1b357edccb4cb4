//! `DIR/admin-token`, which is an ordinary token.

use crate::process::{Program, command, data_dir, id, signal, start, wait};
use crate::support::{Client, admin_token, lab, region_beside};
use serde_json::{Value, json};
use std::path::Path;

fn end(mut region: Program) {
    signal(id(&region.child), "TERM");
    assert_eq!(wait(&mut region.child), 0);
}

/// Requests another token and returns the output.
fn another(dir: &Path) -> String {
    let output = command(dir).arg("admin-token").output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

async fn who(client: &Client) -> Value {
    let answer = client.get("/api/v1/whoami").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

#[tokio::test]
async fn the_first_token_is_listed_and_once_deleted_comes_back_only_when_it_is_asked_for() {
    let dir = data_dir();
    let region = start(dir.path());
    let first = who(&region.api).await;
    assert_eq!((&first["by"], &first["roles"]), (&json!("token"), &json!([{"role": "admin"}])));
    let list = region.api.get("/api/v1/api_tokens").await.json();
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        (&list["items"][0]["metadata"]["name"], &list["items"][0]["metadata"]["uid"]),
        (&first["name"], &first["uid"])
    );
    let path = format!("/api/v1/api_tokens/{}", first["name"].as_str().unwrap());
    assert!(region.api.get(&path).await.json()["status"]["last_used"].is_string());
    assert_eq!(region.api.delete(&path).await.status, 204);
    assert_eq!(region.api.get("/api/v1/whoami").await.status, 401);
    end(region);

    let region = start(dir.path());
    assert_eq!(region.api.get("/api/v1/whoami").await.status, 401, "a restart does not bring it back");
    assert!(another(dir.path()).contains("holds the text of another ApiToken (admin-"));
    let second = Client::new(region.api.address, Some(admin_token(dir.path())));
    let name = who(&second).await["name"].clone();
    assert_ne!(name, first["name"]);
    let log = second.get("/api/v1/audit?object=ApiToken&limit=1").await.json();
    assert_eq!(
        (&log["items"][0]["request"], &log["items"][0]["name"]),
        (&json!("basalt-region admin-token"), &name)
    );
    end(region);

    // The command starts the region's own database.
    another(dir.path());
    let region = start(dir.path());
    assert_ne!(who(&region.api).await["name"], name);
    assert_eq!(
        who(&Client::new(region.api.address, second.token)).await["name"],
        name,
        "the one before stays good"
    );
    end(region);

    std::fs::remove_file(dir.path().join("admin-token")).unwrap();
    let mut region = command(dir.path()).stdout(std::process::Stdio::piped()).spawn().expect("it runs");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(region.stdout.take().unwrap()));
    let said: Vec<String> = (0..2).map(|_| lines.next().unwrap().unwrap()).collect();
    assert_eq!(said[1], "admin token: none; `basalt-region admin-token` makes one");
    assert!(!dir.path().join("admin-token").exists());
    signal(id(&region), "TERM");
    assert_eq!(wait(&mut region), 0);
}

#[tokio::test]
async fn what_the_version_before_has_noted_becomes_a_token_like_any_other() {
    let lab = lab().await;
    lab.region.store().put_token("admin", "noted-long-ago", "admin", None).await.unwrap();
    let noted = Client::new(lab.region.address(), Some("noted-long-ago".to_owned()));
    assert_eq!(who(&noted).await["actor"], "token admin");
    let (_region, dir) = region_beside(&lab).await;
    let now = who(&noted).await;
    assert!(now["name"].as_str().unwrap().starts_with("admin-") && now["uid"].is_string(), "{now}");
    let list = lab.api.get("/api/v1/api_tokens").await.json();
    assert_eq!(list["items"].as_array().map(Vec::len), Some(3), "with those of the two regions");
    assert_eq!(
        lab.api.delete(&format!("/api/v1/api_tokens/{}", now["name"].as_str().unwrap())).await.status,
        204
    );
    assert_eq!(noted.get("/api/v1/whoami").await.status, 401);
    assert_ne!(admin_token(dir.path()), admin_token(lab.dir.path()));
}
