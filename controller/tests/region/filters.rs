//! Lists with `where`: matches, pages, limits, and only what the caller sees.

use crate::accounts::issue;
use crate::allocation::apply;
use crate::support::{Client, Lab, lab};
use serde_json::{Value, json};

/// The path of a list with a filter.
pub(crate) fn filtered(plural: &str, filter: &str) -> String {
    let encoded: String = filter.bytes().map(|byte| format!("%{byte:02x}")).collect();
    format!("/api/v1/{plural}?where={encoded}")
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap_or_else(|| panic!("no list: {list}"));
    items.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect()
}

/// All names of a filtered list, read in pages of `limit`, and the number of pages.
async fn all(client: &Client, path: &str, limit: usize) -> (Vec<String>, usize) {
    let (mut found, mut pages, mut after) = (Vec::new(), 0, String::new());
    loop {
        let page = client.get(&format!("{path}&limit={limit}{after}")).await.json();
        found.extend(names(&page).into_iter().map(str::to_owned));
        pages += 1;
        match page["continue"].as_str() {
            Some(next) => after = format!("&continue={next}"),
            None => return (found, pages),
        }
    }
}

async fn fleet(lab: &Lab) {
    let machine = |at: usize| {
        let spec = json!({"zone": format!("row-{}", at % 3), "boot_macs": [format!("52:54:00:00:{:02x}:{:02x}", at / 256, at % 256)], "description": format!("number {at}"), "locked": at.is_multiple_of(10)});
        json!({"kind": "Machine", "metadata": {"name": format!("m{at:03}"), "labels": {"Half": if at < 225 { "First" } else { "Second" }}}, "spec": spec})
    };
    let zone = |at: usize| json!({"kind": "Zone", "metadata": {"name": format!("row-{at}")}, "spec": {}});
    apply(&lab.api, (0..3).map(zone).chain((0..450).map(machine)).collect()).await;
}

#[tokio::test]
async fn a_filter_is_answered_page_by_page() {
    let lab = lab().await;
    fleet(&lab).await;
    let found = async |filter: &str, limit: usize| all(&lab.api, &filtered("machines", filter), limit).await;
    let (row, pages) = found("zone:row-1", 40).await;
    assert_eq!((row.len(), pages, row[0].as_str()), (150, 4, "m001"));
    assert_eq!(found("zone:row-1 locked=true", 100).await.0.len(), 15);
    assert_eq!(found("\"number 449\"", 100).await.0, ["m449"]);
    assert_eq!(found("label-Half=first zone!=row-0", 1000).await.0.len(), 150);
    assert_eq!(
        found("name:m00 zone:(row-1,row-2)", 3).await.0,
        ["m001", "m002", "m004", "m005", "m007", "m008"]
    );
    assert_eq!(found("spec.description:\"number 44\"", 2).await.0.len(), 11);
    assert_eq!(found("pool:default", 1000).await.0.len(), 450);
    assert_eq!(found("pool:other", 1000).await.0.len(), 0);
    let sparse =
        lab.api.get(&format!("{}&fields=metadata.name", filtered("machines", "name=m007"))).await.json();
    assert_eq!(sparse["items"], json!([{"metadata": {"name": "m007"}}]));
    let both = lab.api.get(&format!("{}&q=449", filtered("machines", "zone:row"))).await.json();
    assert_eq!(names(&both), ["m449"]);
}

#[tokio::test]
async fn one_request_looks_at_two_thousand_objects_and_no_more() {
    let lab = lab().await;
    let zone = |at: usize| {
        let words = if at == 2099 { "the last" } else { "another" };
        json!({"kind": "Zone", "metadata": {"name": format!("z{at:04}")}, "spec": {"description": words}})
    };
    apply(&lab.api, (0..2100).map(zone).collect()).await;
    let path = filtered("zones", "description:last");
    let first = lab.api.get(&path).await.json();
    assert_eq!((names(&first).len(), first["continue"].as_str()), (0, Some("z1999")));
    assert_eq!(all(&lab.api, &path, 100).await, (vec!["z2099".to_owned()], 2));
    // The database evaluates the name.
    assert_eq!(all(&lab.api, &filtered("zones", "description:last name:z2"), 100).await.1, 1);
}

#[tokio::test]
async fn a_filter_that_is_wrong_is_refused_at_its_place() {
    let lab = lab().await;
    for (filter, wanted) in [
        ("zone:row-1 colour:red", "at character 12 of where: there is no colour to filter by"),
        ("cores>many", "at character 1 of where: cores is a number, and many is none"),
        ("zone:(a", "at character 6 of where: the parenthesis that opens here is not closed"),
        ("spec.zon:a", "at character 1 of where: a Machine has no spec.zon"),
    ] {
        let (status, code, errors) = lab.api.get(&filtered("machines", filter)).await.problem();
        assert_eq!((status, code.as_str()), (422, "invalid"));
        assert!(errors[0].contains(wanted), "{errors:?}");
    }
    assert_eq!(lab.api.get(&filtered("machines", &"x".repeat(2001))).await.problem().0, 422);
}

#[tokio::test]
async fn what_is_hidden_fits_no_filter() {
    let lab = lab().await;
    for path in ["pools/blue", "pools/red"] {
        lab.api.declare(&format!("/api/v1/{path}"), "{}").await;
    }
    lab.api
        .declare("/api/v1/machines/elsewhere", r#"{"pool":"red","boot_macs":["52:54:00:00:0f:01"]}"#)
        .await;
    lab.api
        .declare("/api/v1/machines/own", r#"{"pool":"blue","boot_macs":["52:54:00:00:0b:01"],"bmc":{"driver":"ipmi","address":"10.0.0.9","username":"u","password":"zqxsecret"}}"#)
        .await;
    lab.api.declare("/api/v1/devices/found", r#"{"macs":["52:54:00:00:0c:03"],"parent":"elsewhere"}"#).await;
    lab.api.declare("/api/v1/roles/blue", r#"{"base":"viewer","pools":["blue"]}"#).await;
    let blue = Client::new(lab.region.address(), Some(issue(&lab, "blue", r#"{"role":"blue"}"#).await));
    for (plural, filter, of_all, of_blue) in [
        ("machines", "name:e", 1, 0),
        ("machines", "pool:blue,red", 2, 1),
        ("devices", "spec.parent:elsewhere", 1, 0),
        ("devices", "parent=elsewhere", 1, 0),
        ("devices", "elsewhere", 1, 0),
        ("devices", "found", 1, 1),
        // A password is never visible, to any caller.
        ("machines", "zqxsecret", 0, 0),
        ("machines", "spec.bmc:zqxsecret", 0, 0),
        ("machines", "spec.bmc.password.set:true", 1, 1),
    ] {
        let path = filtered(plural, filter);
        let counts =
            (names(&lab.api.get(&path).await.json()).len(), names(&blue.get(&path).await.json()).len());
        assert_eq!(counts, (of_all, of_blue), "{plural} {filter}");
    }
}
