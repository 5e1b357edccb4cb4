//! `boot_to_ready`: from power-on to Ready, for a BIOS machine that boots our own ephemeral image.

use std::path::Path;
use std::time::{Duration, Instant};

use basalt_api::Kind;
use basalt_api::client::{Client, Precondition};
use basalt_api::wire::PutRequest;
use serde_json::{Value, json};

use crate::error::LabError;
use crate::images;
use crate::site::{Site, SiteError, quickstart_machines};

/// A machine that takes longer is not measured.
const LIMIT: Duration = Duration::from_secs(600);
/// Pause between two looks at the machine.
const INTERVAL: Duration = Duration::from_millis(500);

/// Declares one machine and measures, by the region's own timeline, how long it takes from the power command to its
/// inventory. One line of JSON; there is no peer yet.
///
/// # Errors
/// [`SiteError`]; the machine does not become ready.
pub async fn boot_to_ready(images: &Path) -> Result<Value, SiteError> {
    let mut site = Site::create("bench")?;
    let mut machines = quickstart_machines();
    machines.truncate(1);
    let Some(config) = machines.first().cloned() else { return Err(late(&site)) };
    site.add_machines(machines).await?;
    site.start_region().await?;
    site.start_rack(1).await?;
    let client = site.client()?;
    let image = images.join("ephemeral");
    images::upload(&client, &image).await?;
    let path = image.join("image.json");
    let text = std::fs::read(&path).map_err(LabError::file(&path))?;
    let manifest: Value =
        serde_json::from_slice(&text).map_err(|error| LabError::file(&path)(error.into()))?;
    let files: serde_json::Map<String, Value> = manifest["files"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(role, file)| (role.clone(), json!({"sha256": file["sha256"], "size": file["size"]})))
        .collect();
    let bmc = json!({
        "driver": "ipmi", "address": config.bmc_address, "username": config.bmc_user, "password": config.bmc_password,
        "options": {"cipher_suite": 3},
    });
    let objects = [
        ("Fabric", "lab", json!({})),
        ("Vlan", "lab.0", json!({"fabric": "lab", "vid": 0, "dhcp": {"enabled": true}})),
        ("Subnet", "lab", json!({"vlan": "lab.0", "cidr": "10.77.0.0/24", "gateway": "10.77.0.1"})),
        (
            "IpRange",
            "lab",
            json!({"subnet": "lab", "start": "10.77.0.150", "end": "10.77.0.199", "purpose": "dynamic"}),
        ),
        (
            "Image",
            "ephemeral",
            json!({
                "os": manifest["os"], "release": manifest["release"], "architecture": manifest["architecture"],
                "purpose": "ephemeral", "files": files,
            }),
        ),
        (
            "Machine",
            config.name.as_str(),
            json!({
                "boot_macs": [config.mac.to_string()], "kernel_options": "console=ttyS0", "bmc": bmc,
            }),
        ),
    ];
    for (kind, name, spec) in objects {
        if let Some(kind) = Kind::find(kind) {
            let request = PutRequest { spec, ..PutRequest::default() };
            client.put(kind, name, &request, Precondition::None).await?;
        }
    }
    let deadline = Instant::now() + LIMIT;
    let seconds = loop {
        if let Some(seconds) = measured(&client, &config.name).await? {
            break seconds;
        }
        if Instant::now() > deadline {
            return Err(late(&site));
        }
        tokio::time::sleep(INTERVAL).await;
    };
    site.stop_rack(1).await?;
    site.stop_region().await?;
    Ok(
        json!({"bench": "boot_to_ready", "basalt": seconds, "peer": null, "peer_value": null, "ratio": null, "unit": "s"}),
    )
}

/// Seconds from the step that powers the machine on to the fact that ends its task.
async fn measured(client: &Client, name: &str) -> Result<Option<f64>, SiteError> {
    let Some(kind) = Kind::find("Machine") else { return Ok(None) };
    let entries = client.timeline(kind, name).await?.entries;
    let began = entries.iter().find(|entry| entry.reason.contains("netboot-inventory")).map(|entry| entry.at);
    let ended = entries.iter().find(|entry| entry.reason == "result").map(|entry| entry.at);
    let took = began.zip(ended).map(|(began, ended)| ended.duration_since(began).as_secs_f64());
    Ok(took.map(|seconds| (seconds * 10.0).round() / 10.0))
}

fn late(site: &Site) -> SiteError {
    let log = site.directory().join("rack-1.log");
    SiteError::Late { what: "the machine's inventory", limit: LIMIT, tail: crate::site::tail(&log), log }
}
