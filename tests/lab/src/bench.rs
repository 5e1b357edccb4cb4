//! The time from power-on of a BIOS machine that boots over the network. Machine, firmware, rack and the transport of files are the same
//! each time, and each machine boots alone.
//!
//! | line | machine | image | until | peer |
//! | --- | --- | --- | --- | --- |
//! | `boot_to_ready` | declared | ours | its inventory is stored | Debian's live system, until its cloud-init has finished |
//! | `boot_to_discovery` | undeclared | ours | its Discovery has its inventory | the first line |

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use basalt_api::Kind;
use basalt_api::client::{Client, ListOptions, Precondition};
use basalt_api::values::{Sha256, Timestamp};
use basalt_api::wire::PutRequest;
use basalt_bmc::PowerVerb;
use serde_json::{Value, json};

use crate::error::LabError;
use crate::machine::{Machine, MachineConfig};
use crate::process::{read_from, run};
use crate::site::{Site, SiteError, quickstart_machines};

/// Time limit of a measurement.
const LIMIT: Duration = Duration::from_secs(900);
/// Pause between two checks of the machine.
const INTERVAL: Duration = Duration::from_millis(500);
/// Part of cloud-init's last line on the console.
const CLOUD_INIT_ENDS: &str = " finished at ";

/// A system to boot.
struct Live {
    label: &'static str,
    /// Image files by role.
    files: BTreeMap<&'static str, PathBuf>,
    /// Kernel options beside those that the rack gives every machine.
    kernel_options: fn(&Files) -> String,
    /// The time when it was ready.
    ready: fn(&Seen<'_>) -> Option<Timestamp>,
}

/// Hash and size of each file, by role.
type Files = BTreeMap<&'static str, (Sha256, u64)>;

/// Observations of a booting machine.
struct Seen<'a> {
    timeline: &'a [basalt_api::plan::TimelineEntry],
    machine: &'a Machine,
}

/// Measures all. Returns the lines; each ratio is the peer's time divided by ours.
///
/// # Errors
/// [`SiteError`], also if a machine does not become ready.
pub async fn boots(images: &Path, stock: &Path) -> Result<[Value; 2], SiteError> {
    let file = |directory: &Path, name: &str| directory.join(name);
    let ephemeral = images.join("ephemeral");
    let ours = Live {
        label: "bench",
        files: [("kernel", "vmlinuz"), ("initrd", "initrd.zst"), ("squashfs", "root.squashfs")]
            .map(|(role, name)| (role, file(&ephemeral, name)))
            .into(),
        kernel_options: |_| "console=ttyS0".to_owned(),
        ready: |seen| seen.timeline.iter().find(|entry| entry.reason == "result").map(|entry| entry.at),
    };
    let stock = Live {
        label: "bench-stock",
        files: [("kernel", "vmlinuz"), ("initrd", "initrd.img"), ("squashfs", "filesystem.squashfs")]
            .map(|(role, name)| (role, file(stock, name)))
            .into(),
        // live-boot recognises a file by the end of its URL.
        kernel_options: |files| {
            let squashfs = files.get("squashfs").map(|(sha256, _)| sha256.to_string()).unwrap_or_default();
            format!("boot=live fetch=http://10.77.0.1:5248/blobs/{squashfs}?as=.squashfs console=ttyS0")
        },
        ready: |seen| {
            let log = read_from(&seen.machine.serial_log_path(), 0);
            log.contains(CLOUD_INIT_ENDS).then(Timestamp::now)
        },
    };
    let (ready, discovery) = (until_ready(&ours).await?, until_discovery(&ours).await?);
    let stock = until_ready(&stock).await?;
    let line = |bench: &str, ours: f64, peer: &str, value: f64| {
        json!({
            "bench": bench, "basalt": ours, "peer": peer, "peer_value": value, "ratio": round(value / ours, 100.0), "unit": "s",
        })
    };
    Ok([
        line("boot_to_ready", ready, "Debian 12 live, standard packages, cloud-init", stock),
        line("boot_to_discovery", discovery, "a declared machine until Ready", ready),
    ])
}

fn round(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

/// A region, a rack, a network with an image, and one machine without power.
struct Served {
    site: Site,
    client: Client,
    config: MachineConfig,
    files: Files,
}

/// Starts all that a machine boots from.
async fn serve(live: &Live) -> Result<Served, SiteError> {
    let mut site = Site::create(live.label)?;
    let mut configs = quickstart_machines();
    configs.truncate(1);
    let Some(config) = configs.first().cloned() else { return Err(late(&site)) };
    site.add_machines(configs).await?;
    site.start_region().await?;
    site.start_rack(1).await?;
    let client = site.client()?;
    let mut files = Files::new();
    for (role, path) in &live.files {
        let sha256 = hash(path)?;
        let mut size = 0;
        client.put_blob(&sha256, path, |progress| size = progress.total).await?;
        files.insert(role, (sha256, size));
    }
    let declared: serde_json::Map<String, Value> = files
        .iter()
        .map(|(role, (sha256, size))| ((*role).to_owned(), json!({"sha256": sha256, "size": size})))
        .collect();
    let objects = [
        ("Fabric", "lab", json!({})),
        ("Vlan", "lab.0", json!({"fabric": "lab", "vid": 0, "dhcp": {"enabled": true}})),
        ("Subnet", "lab", json!({"vlan": "lab.0", "cidr": "10.77.0.0/24", "gateway": "10.77.0.1"})),
        ("IpRange", "lab", json!({"subnet": "lab", "start": "10.77.0.150", "end": "10.77.0.199"})),
        (
            "Image",
            "live",
            json!({
                "os": "debian", "release": "bookworm", "architecture": "amd64", "purpose": "ephemeral",
                "files": declared,
            }),
        ),
    ];
    for (kind, name, spec) in objects {
        declare(&client, kind, name, spec).await?;
    }
    Ok(Served { site, client, config, files })
}

async fn declare(client: &Client, kind: &str, name: &str, spec: Value) -> Result<(), SiteError> {
    if let Some(kind) = Kind::find(kind) {
        let request = PutRequest { spec, ..PutRequest::default() };
        client.put(kind, name, &request, Precondition::None).await?;
    }
    Ok(())
}

impl Served {
    fn machine(&self) -> Result<&Machine, SiteError> {
        self.site.machine(&self.config.name).ok_or_else(|| late(&self.site))
    }

    /// Looks until `seconds` has a value, and stops all.
    async fn ends(
        self,
        seconds: impl AsyncFn(&Self) -> Result<Option<f64>, SiteError>,
    ) -> Result<f64, SiteError> {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(seconds) = seconds(&self).await? {
                let Self { mut site, .. } = self;
                site.stop_rack(1).await?;
                site.stop_region().await?;
                return Ok(round(seconds, 10.0));
            }
            if Instant::now() > deadline {
                return Err(late(&self.site));
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }
}

/// Declares the machine. Seconds from its power command until it is ready.
async fn until_ready(live: &Live) -> Result<f64, SiteError> {
    let served = serve(live).await?;
    let config = &served.config;
    let bmc = json!({
        "driver": "ipmi", "address": config.bmc_address, "username": config.bmc_user, "password": config.bmc_password,
        "options": {"cipher_suite": 3},
    });
    let machine = json!({
        "boot_macs": [config.mac.to_string()], "kernel_options": (live.kernel_options)(&served.files), "bmc": bmc,
    });
    declare(&served.client, "Machine", &config.name, machine).await?;
    served.ends(async |served| since_power_on(&served.client, served.machine()?, live.ready).await).await
}

/// Switches the machine on, which nobody has declared. Seconds until a Discovery has its inventory.
async fn until_discovery(live: &Live) -> Result<f64, SiteError> {
    let served = serve(live).await?;
    served.site.rack_holds(1, "boot", "enlist").await?;
    let began = Instant::now();
    served.machine()?.power(PowerVerb::On).await?;
    let Some(kind) = Kind::find("Discovery") else { return Err(late(&served.site)) };
    let is_found = async |served: &Served| {
        let found = served.client.list_all(kind, &ListOptions::default()).await?;
        let is_found = found.iter().any(|it| it.status["inventory"].is_object());
        Ok(is_found.then(|| began.elapsed().as_secs_f64()))
    };
    served.ends(is_found).await
}

/// Seconds from the last power-on step until the machine was ready. A power cycle restarts the measurement.
async fn since_power_on(
    client: &Client,
    machine: &Machine,
    ready: fn(&Seen<'_>) -> Option<Timestamp>,
) -> Result<Option<f64>, SiteError> {
    let Some(kind) = Kind::find("Machine") else { return Ok(None) };
    let timeline = client.timeline(kind, &machine.config().name).await?.entries;
    let began = timeline.iter().rev().find(|entry| entry.reason.contains("netboot-inventory"));
    Ok(began
        .zip(ready(&Seen { timeline: &timeline, machine }))
        .map(|(began, ended)| ended.duration_since(began.at).as_secs_f64()))
}

fn hash(path: &Path) -> Result<Sha256, SiteError> {
    let output = run("sha256sum", &[path.as_os_str()])?;
    let text = output.split_whitespace().next().unwrap_or_default();
    text.parse().map_err(|_| LabError::file(path)(std::io::Error::other("it has no SHA-256")).into())
}

fn late(site: &Site) -> SiteError {
    let log = site.directory().join("rack-1.log");
    SiteError::Late { what: "a machine that is ready", limit: LIMIT, tail: crate::site::tail(&log), log }
}
