//! Labels and tags by manager: several tools add theirs, and none disturbs another.

use crate::support::{Client, lab};
use serde_json::{Value, json};

async fn layer(api: &Client, path: &str, manager: &str, layer: Value) -> (u16, Value) {
    let answer = api.put(&format!("{path}/layers/{manager}"), &layer.to_string()).await;
    (answer.status.as_u16(), answer.json())
}

#[tokio::test]
async fn each_tool_has_labels_and_tags_of_its_own() {
    let lab = lab().await;
    let (api, path) = (&lab.api, "/api/v1/machines/m");
    let spec =
        r#"{"metadata":{"labels":{"row":"1","owner":"web"}},"spec":{"boot_macs":["52:54:00:00:00:01"]}}"#;
    let made = api.send("PUT", path, &[("x-basalt-manager", "terraform")], spec.to_owned()).await;
    let generation = made.json()["metadata"]["generation"].clone();

    let given = json!({"labels": {"row": "9", "asset": "A-77"}, "tags": ["rented"]});
    let (status, object) = layer(api, path, "cmdb", given.clone()).await;
    assert_eq!(status, 200, "{object}");
    assert_eq!(object["metadata"]["labels"], json!({"asset": "A-77", "owner": "web", "row": "1"}));
    assert_eq!(object["metadata"]["manager"], "terraform", "what is labelled is not taken over");
    assert_eq!(object["metadata"]["generation"], generation);
    let (_, other) = layer(api, path, "audit", json!({"labels": {"asset": "first"}})).await;
    assert_eq!(other["metadata"]["labels"]["asset"], "first", "the first by name counts");
    for (selector, count) in [("row=1", 1), ("row=9", 0), ("asset=first", 1), ("asset=A-77", 0)] {
        let found = api.get(&format!("/api/v1/machines?labels={selector}")).await.json();
        assert_eq!(found["items"].as_array().unwrap().len(), count, "{selector}");
    }

    // The first tool writes its own again, and takes nothing from the others.
    let again = spec.replace(r#","owner":"web""#, "");
    let again = api.send("PUT", path, &[("x-basalt-manager", "terraform")], again).await.json();
    assert_eq!(again["metadata"]["labels"], json!({"asset": "first", "row": "1"}));
    let layers = api.get(&format!("{path}/layers")).await.json();
    assert_eq!(
        layers["layers"],
        json!({"audit": {"labels": {"asset": "first"}, "tags": []}, "cmdb": given,
               "terraform": {"labels": {"row": "1"}, "tags": []}})
    );

    api.declare("/api/v1/machines/n", r#"{"boot_macs":["52:54:00:00:00:02"]}"#).await;
    let listed = api.get("/api/v1/machines?layers=true").await.json();
    let of = |index: usize| &listed["items"][index]["metadata"]["layers"];
    assert_eq!((of(0), of(1)), (&layers["layers"], &json!({})), "{listed}");
    let plain = api.get("/api/v1/machines").await.json();
    assert_eq!(plain["items"][0]["metadata"].get("layers"), None, "nobody asked: {plain}");

    assert_eq!(layer(api, path, "audit", json!({})).await.0, 200);
    assert_eq!(api.get(path).await.json()["metadata"]["labels"]["asset"], "A-77");
    let seen = api.get("/api/v1/audit?object=Machine/m").await.json();
    assert_eq!(
        seen["items"][2]["after"],
        json!({"layer": {"audit": {"labels": {"asset": "first"}, "tags": []}}}),
        "{seen}"
    );
}

#[tokio::test]
async fn a_layer_that_was_read_is_replaced_only_while_it_is_so() {
    let lab = lab().await;
    let (api, path) = (&lab.api, "/api/v1/machines/m");
    api.declare(path, r#"{"boot_macs":["52:54:00:00:00:01"]}"#).await;
    let wanted = json!({"labels": {"row": "1"}, "tags": ["gpu"]});
    let replacing =
        |replaces: Value, tags: Value| json!({"labels": {"row": "1"}, "tags": tags, "replaces": replaces});

    let (status, _) = layer(api, path, "cmdb", replacing(json!({}), json!(["gpu"]))).await;
    assert_eq!(status, 200, "there was none");
    let (status, problem) = layer(api, path, "cmdb", replacing(json!({}), json!(["fast"]))).await;
    assert_eq!((status, &problem["code"]), (409, &json!("conflict")), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("changed meanwhile"), "{problem}");
    let now = api.get(&format!("{path}/layers")).await.json();
    assert_eq!(now["layers"], json!({"cmdb": wanted}), "nothing changed");

    let (status, _) = layer(api, path, "cmdb", replacing(json!({}), json!(["gpu"]))).await;
    assert_eq!(status, 200, "the same request, sent again since its answer was lost");
    let (status, _) = layer(api, path, "cmdb", replacing(wanted, json!(["fast"]))).await;
    assert_eq!(status, 200);
    let (status, _) = layer(api, path, "audit", replacing(json!({}), json!(["gpu"]))).await;
    assert_eq!(status, 200, "layers of others do not count");
}

#[tokio::test]
async fn a_layer_that_cannot_be_changes_nothing() {
    let lab = lab().await;
    let api = &lab.api;
    api.declare("/api/v1/zones/a", "{}").await;
    api.declare("/api/v1/machines/m", r#"{"boot_macs":["52:54:00:00:00:01"]}"#).await;
    let wrong = [
        ("/api/v1/zones/a/layers/cmdb", r#"{"tags":["x"]}"#, "/tags"),
        ("/api/v1/zones/a/layers/cmdb", r#"{"labels":{"a b":"x"}}"#, "/labels"),
        ("/api/v1/zones/a/layers/cmdb", r#"{"labels":{"a":"\u0000"}}"#, "/labels/a"),
        ("/api/v1/zones/a/layers/cmdb", r#"{"lables":{}}"#, "/lables"),
        ("/api/v1/machines/m/layers/cmdb", r#"{"tags":["a b"]}"#, "/tags/0"),
        ("/api/v1/machines/m/layers/cmdb", r#"{"replaces":{"tags":["a b"]}}"#, "/replaces/tags/0"),
        ("/api/v1/zones/a/layers/c%20b", "{}", ""),
        ("/api/v1/zones/a", r#"{"metadata":{"labels":{"a":"x,y"}},"spec":{}}"#, "/metadata/labels/a"),
        ("/api/v1/zones/a", r#"{"metadata":{"lables":{}},"spec":{}}"#, "/metadata/lables"),
    ];
    for (path, body, pointer) in wrong {
        let answer = api.put(path, body).await;
        let (status, code, errors) = answer.problem();
        assert!(status == 400 || status == 422, "{path} {body}: {answer:?}");
        assert_eq!(code, "invalid");
        assert!(errors[0].starts_with(&format!("{pointer}: ")), "{path} {body}: {errors:?}");
    }
    let document = json!({"kind": "Zone", "metadata": {"name": "b", "labels": {"": ""}}, "spec": {}});
    let applied = api.send("POST", "/api/v1/apply", &[], json!({"documents": [document]}).to_string()).await;
    assert_eq!(applied.problem().2.len(), 1, "{applied:?}");
    assert_eq!(api.put("/api/v1/zones/nowhere/layers/cmdb", "{}").await.status.as_u16(), 404);

    let dry = api.put("/api/v1/zones/a/layers/cmdb?dry_run=true", r#"{"labels":{"a":"b"}}"#).await.json();
    assert_eq!(dry["object"]["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(api.get("/api/v1/zones/a").await.json()["metadata"]["labels"], json!({}));
}
