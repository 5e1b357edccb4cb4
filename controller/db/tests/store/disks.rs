//! Names of disks, judged by the inventory of the machine that they are on.

use crate::common::{machine, open, put};
use basalt_db::{Store, StoreError};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};

async fn refused(store: &Store, kind: &str, name: &str, spec: Value) -> Vec<String> {
    match put(store, kind, name, spec).await {
        Err(StoreError::Refused { errors }) => {
            errors.into_iter().map(|error| format!("{}: {}", error.pointer, error.message)).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_name_that_several_disks_of_the_machine_have_is_refused_where_it_stands() {
    let url = basalt_db::testing::database().await;
    let store = open(&url, [7; 32]).await.unwrap();
    let image = json!({"os": "debian", "release": "12", "architecture": "amd64", "files": {}});
    put(&store, "Image", "debian", image).await.unwrap();
    let spec = machine("52:54:00:00:00:01");
    put(&store, "Machine", "m", spec.clone()).await.unwrap();
    let on = |storage: Value| json!({"image": "debian", "machine": "m", "storage": storage});
    let one = json!({"disk": "S1"});
    put(&store, "Deployment", "early", on(one.clone())).await.expect("the hardware is not known yet");

    let disk = |serial: &str| json!({"size_bytes": 4_000_000_000_u64, "serial": serial, "ids": [format!("ata-{serial}")]});
    let disks = json!({"sda": disk("S1"), "sdb": disk("S1"), "sdc": {"size_bytes": 1}});
    let mut db = PgConnection::connect(&url).await.unwrap();
    sqlx::query("update object set status = $1 where kind = 'Machine'")
        .bind(json!({"inventory": {"disks": disks}}))
        .execute(&mut db)
        .await
        .unwrap();
    let several = |name: &str| {
        format!("{name:?} is the name of several disks: sda of 4000 MB (ata-S1), sdb of 4000 MB (ata-S1)")
    };
    for name in ["S1", "/dev/disk/by-id/ata-S1"] {
        let expected = [format!("/storage/disk: {}", several(name))];
        assert_eq!(refused(&store, "Deployment", "web", on(json!({"disk": name}))).await, expected);
        let mut own = spec.clone();
        own["storage"] = json!({"disk": name});
        assert_eq!(refused(&store, "Machine", "m", own).await, expected);
    }
    let mirror = json!({"layout": "raid1", "disks": {"a": {"id": "sda"}, "b": {"id": "S1"}}});
    assert_eq!(
        refused(&store, "Deployment", "web", on(mirror)).await,
        [format!("/storage/disks/b/id: {}", several("S1"))]
    );
    let mut early = on(one);
    early["hostname"] = json!("early");
    put(&store, "Deployment", "early", early).await.expect("its storage is as it was");
    for storage in [json!({"disk": "sda"}), json!({"disk": "not-plugged-in-yet"}), json!({})] {
        put(&store, "Deployment", "web", on(storage)).await.unwrap();
    }
}
