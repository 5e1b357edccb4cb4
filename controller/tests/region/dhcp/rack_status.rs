//! The status of a rack, from its own reports and from the records of the region.

use super::{PATIENCE, Played, fact, has, served};
use basalt_db::{ConcernAck, Key, NewFact};
use basalt_region::racks::observed::{Cache, Hello, Lease, Observed};
use serde_json::json;

#[tokio::test]
async fn a_rack_shows_what_it_said_of_itself_and_what_it_holds() {
    let lab = served().await;
    let rack = Played::come(&lab, "r1", "10.77.0.2/24").await;
    let spki = "0a".repeat(32);
    let hello = Hello {
        version: "9.8".into(),
        addresses: vec!["10.77.0.2/24".into()],
        spki_sha256: spki.as_str().into(),
        ..Hello::default()
    };
    rack.introduce_as(&lab, hello).await;
    let told = rack.told(&lab, has(&["10.77.0.100-10.77.0.199"])).await;
    assert!(!told.subnets.is_empty());
    let store = lab.region.store();
    let dhcp = store.concern(rack.uid, "dhcp").await.expect("a concern").expect("it was told");
    let ack = |concern: &str, outcome: &str, message: &str| ConcernAck {
        concern: concern.to_owned(),
        generation: dhcp.generation,
        outcome: outcome.to_owned(),
        message: message.to_owned(),
    };
    let acks = [ack("dhcp", "applied", ""), ack("dns", "failed", "no zone is read")];
    for ack in &acks {
        store.put_concern_ack(rack.uid, ack).await.expect("it is stored");
    }
    let mut woken = store.woken();
    let shown = async {
        loop {
            let status = lab.api.get("/api/v1/racks/r1").await.json()["status"].clone();
            if status["version"] == "9.8" && status["concerns"]["dns"]["error"] == "no zone is read" {
                return status;
            }
            woken.changed().await.expect("the store lives");
        }
    };
    let status = tokio::time::timeout(PATIENCE, shown).await.expect("the rack shows it");
    assert_eq!((&status["addresses"], &status["vlans"]), (&json!(["10.77.0.2"]), &json!(["default.0"])));
    assert_eq!(status["spki_sha256"], json!(spki));
    let of = &status["concerns"]["dhcp"];
    let sha256 = of["sha256"].as_str().map(str::len);
    assert_eq!((of["applied"].as_u64(), sha256), (Some(dhcp.generation.get()), Some(64)), "{of}");
}

#[tokio::test]
async fn a_rack_shows_the_images_that_its_cache_holds_and_how_many_of_its_addresses_are_leased() {
    let lab = served().await;
    let hash = |letter: &str| letter.repeat(64);
    let files = |letters: &[(&str, &str)]| {
        let files =
            letters.iter().map(|(role, letter)| ((*role).to_owned(), json!({"sha256": hash(letter)})));
        json!({"os": "debian", "release": "12", "architecture": "amd64", "files": serde_json::Map::from_iter(files)})
    };
    for (name, held) in [
        ("whole", files(&[("root_tarball", "a")])),
        ("part", files(&[("root_tarball", "a"), ("squashfs", "b")])),
        ("elsewhere", files(&[("root_tarball", "c")])),
    ] {
        lab.api.declare(&format!("/api/v1/images/{name}"), &held.to_string()).await;
    }
    // Three leases of the rack: two run. Another rack has one there too.
    let subnet = lab.region.store().get("Subnet", Key::Name("lab")).await.expect("a subnet").uid;
    let mut rack = Played::come(&lab, "r1", "10.77.0.2/24").await;
    let lease = |last: u8, ends_in_ms: i64| {
        Observed::Lease(Lease {
            address: format!("10.77.0.{last}").into(),
            hostname: "".into(),
            expires_unix_ms: 0,
            released: false,
            subnet_uid: subnet.to_string().into(),
            ends_in_ms,
            kept_for_ms: None,
        })
    };
    let leases = [(100, 600_000), (101, 600_000), (102, -1)].map(|(last, ends)| lease(last, ends));
    for (number, lease) in (1..).zip(&leases) {
        rack.seq += 1;
        let said = NewFact {
            object: None,
            mac: Some(format!("52:54:00:00:00:{number:02x}")),
            ..fact(rack.seq, rack.uid.into(), lease)
        };
        lab.region
            .store()
            .store_facts(rack.uid, "r1", uuid::Uuid::from_u128(1), &[said])
            .await
            .expect("it is stored");
    }
    rack.told(&lab, has(&["10.77.0.100-10.77.0.199"])).await;
    let held = ["a", "f"].map(|letter| hash(letter).parse().expect("a hash")).to_vec();
    rack.says(
        &lab,
        &Observed::Cache(Cache { files: 3, bytes: 7 << 20, limit_bytes: 1 << 30, held, more: 1 }),
    )
    .await;
    let mut woken = lab.region.store().woken();
    let shown = async {
        loop {
            let status = lab.api.get("/api/v1/racks/r1").await.json()["status"].clone();
            if status["cache"].is_object() && status["leases"]["lab"].is_object() {
                return status;
            }
            woken.changed().await.expect("the store lives");
        }
    };
    let mut status = tokio::time::timeout(PATIENCE, shown).await.expect("the rack shows it");
    let reported_at = status["cache"]["reported_at"].take();
    assert!(reported_at.is_string(), "{reported_at}");
    let images = json!({"whole": {"held": 1, "files": 1}, "part": {"held": 1, "files": 2}});
    let cache = json!({"files": 3, "bytes": 7 << 20, "limit_bytes": 1 << 30, "unnamed": 1, "reported_at": null, "images": images});
    assert_eq!(status["cache"], cache);
    assert_eq!(status["leases"], json!({"lab": {"running": 2, "addresses": 100}}));
}
