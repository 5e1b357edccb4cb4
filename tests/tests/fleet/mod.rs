//! A site whose machines are simulated, and what a person would do with it.

use std::time::{Duration, Instant};

use basalt_api::Kind;
use basalt_api::client::{Client, ClientConfig, ClientError, DeleteOptions, Precondition};
use basalt_api::wire::{PutMetadata, PutRequest};
use basalt_lab::site::Site;
use basalt_sim::{Firmware, MachineOptions, SimMachine};
use serde_json::{Value, json};

/// For everything that takes a few seconds when nothing else runs.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);
/// Between two looks at something that becomes.
const LOOK: Duration = Duration::from_millis(100);
/// Deadlines are minutes for real firmware; simulated firmware takes a second.
const DIVISOR: &str = "30";

/// A region, a rack, images, a network; and the machines that a test adds.
pub(crate) struct Fleet {
    pub(crate) site: Site,
    client: Client,
}

fn kind(plural: &str) -> &'static Kind {
    Kind::find(plural).expect("a kind")
}

/// A deployment of the image on a machine.
pub(crate) fn deployment_spec(machine: &str) -> Value {
    json!({ "machine": machine, "image": "debian-12", "readiness": { "check": "cloud_init" } })
}

/// A machine as it is declared.
pub(crate) fn machine_spec(machine: &SimMachine) -> Value {
    let options = machine.options();
    json!({
        "boot_macs": [options.mac.to_string()],
        "bmc": {
            "driver": "ipmi",
            "address": options.bmc_address.to_string(),
            "username": options.bmc_user,
            "password": options.bmc_password,
            "options": { "cipher_suite": 3 },
        },
    })
}

impl Fleet {
    /// Everything but machines.
    pub(crate) async fn start(label: &str, variables: &[(&str, &str)]) -> Self {
        let mut site = Site::create(label).expect("a lab; the tests run as root");
        site.set_region_variables(&with_divisor(variables));
        site.start_region().await.expect("the region starts");
        site.start_rack().await.expect("the rack joins");
        // A region that was killed is started again by the test, not waited for.
        let patience = Duration::from_millis(100);
        let endpoints = vec![site.endpoint()];
        let client =
            Client::new(&ClientConfig { endpoints, patience, ..ClientConfig::default() }).expect("a client");
        let fleet = Self { site, client };
        fleet.network().await;
        fleet.images().await;
        fleet
    }

    async fn network(&self) {
        self.declare("fabrics", "lab", json!({})).await;
        let vlan = json!({ "fabric": "lab", "vid": 0, "dhcp": { "enabled": true } });
        self.declare("vlans", "lab.0", vlan).await;
        let subnet = json!({ "vlan": "lab.0", "cidr": "10.77.0.0/24", "gateway": "10.77.0.1" });
        self.declare("subnets", "lab", subnet).await;
        let range = json!({ "subnet": "lab", "start": "10.77.0.150", "end": "10.77.0.199" });
        self.declare("ip_ranges", "lab", range).await;
    }

    /// Simulated machines fetch images and look at nothing but their hashes.
    async fn images(&self) {
        let mut files = serde_json::Map::new();
        for (role, length) in
            [("kernel", 3 << 20), ("initrd", 5 << 20), ("squashfs", 2 << 20), ("root_tarball", 9 << 20)]
        {
            let bytes: Vec<u8> = role.bytes().cycle().take(length).collect();
            let path = self.site.directory().join(role);
            std::fs::write(&path, &bytes).expect("a blob is written");
            let sha256: String = {
                use sha2::Digest;
                hex::encode(sha2::Sha256::digest(&bytes))
            };
            self.client
                .put_blob(&sha256.parse().expect("a hash"), &path, |_| {})
                .await
                .expect("a blob is uploaded");
            files.insert(role.to_owned(), json!({ "sha256": sha256, "size": length }));
        }
        let root = files.remove("root_tarball");
        let common = json!({ "os": "debian", "release": "bookworm", "architecture": "amd64" });
        let image = |purpose: &str, files: Value| {
            let mut spec = common.clone();
            spec["purpose"] = json!(purpose);
            spec["files"] = files;
            spec
        };
        self.declare("images", "ephemeral", image("ephemeral", json!(files))).await;
        self.declare("images", "debian-12", image("deploy", json!({ "root_tarball": root }))).await;
    }

    /// A machine with empty disks, powered off.
    pub(crate) fn machine(
        &self,
        number: u8,
        firmware: Firmware,
        change: impl FnOnce(&mut MachineOptions),
    ) -> SimMachine {
        let mut options = MachineOptions::numbered(number, firmware);
        change(&mut options);
        SimMachine::start(self.site.lab(), options).expect("a simulated machine")
    }

    /// Puts a spec.
    pub(crate) async fn declare(&self, plural: &str, name: &str, spec: Value) {
        let request = PutRequest { kind: None, metadata: PutMetadata::default(), spec, status: None };
        let put = self.client.put(kind(plural), name, &request, Precondition::None).await;
        put.unwrap_or_else(|error| panic!("{plural}/{name} is refused: {error}"));
    }

    /// Deploys the image to a machine.
    pub(crate) async fn deploy(&self, name: &str, machine: &str) {
        self.declare("deployments", name, deployment_spec(machine)).await;
    }

    /// Puts a spec, while the region may be killed.
    pub(crate) async fn declare_through_kills(&mut self, plural: &str, name: &str, spec: Value) {
        self.revive().await;
        self.declare(plural, name, spec).await;
    }

    /// The object's status.
    pub(crate) async fn status(&self, plural: &str, name: &str) -> Value {
        self.client.get(kind(plural), name).await.expect("the object").status
    }

    /// Waits until the object is ready; a stall that mends itself is waited out.
    pub(crate) async fn ready(&mut self, plural: &str, name: &str) {
        self.ready_through_kills(plural, name).await;
    }

    /// The same, while the region may be killed; it is started again then.
    pub(crate) async fn ready_through_kills(&mut self, plural: &str, name: &str) {
        let mut end = Instant::now() + LIMIT;
        loop {
            if self.revive().await {
                end = Instant::now() + LIMIT;
            }
            if let Ok(object) = self.client.get(kind(plural), name).await
                && is_ready(&object.status)
                && object.status["observed_generation"] == json!(object.metadata.generation)
            {
                return;
            }
            assert!(
                Instant::now() < end,
                "{plural}/{name} is not ready:\n{}",
                self.story(plural, name).await
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Deletes, and waits until the object is gone.
    pub(crate) async fn delete(&mut self, plural: &str, name: &str) {
        self.delete_through_kills(plural, name).await;
    }

    /// The same, while the region may be killed.
    pub(crate) async fn delete_through_kills(&mut self, plural: &str, name: &str) {
        let mut end = Instant::now() + LIMIT;
        loop {
            if self.revive().await {
                end = Instant::now() + LIMIT;
            }
            match self.client.delete(kind(plural), name, DeleteOptions::default()).await {
                Ok(None) => return,
                Err(error) if error.is_not_found() => return,
                Ok(Some(_)) | Err(_) => {}
            }
            assert!(Instant::now() < end, "{plural}/{name} does not go:\n{}", self.story(plural, name).await);
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Starts the region again where it was killed; says whether it was.
    async fn revive(&mut self) -> bool {
        if self.site.region_runs() {
            return false;
        }
        self.site.start_region().await.expect("the region starts again");
        true
    }

    /// Stops the region where it runs, and starts it with these variables.
    pub(crate) async fn restart_region(&mut self, variables: &[(&str, &str)]) {
        self.site.stop_region().await.expect("the region drains");
        self.site.set_region_variables(&with_divisor(variables));
        self.site.start_region().await.expect("the region starts again");
    }

    /// Waits until the deployment says these words among its waits; all it says then.
    pub(crate) async fn waits_saying(&self, name: &str, words: &str) -> String {
        let end = Instant::now() + LIMIT;
        loop {
            let waits = self.client.waits(kind("deployments"), name).await.expect("waits").waits;
            let said: Vec<String> = waits
                .iter()
                .map(|w| {
                    let until = w.deadline.map(|d| format!(", until {d}")).unwrap_or_default();
                    let to_do = w.human.as_ref().map(|h| format!(". To do: {h}")).unwrap_or_default();
                    format!("{}{until}; then: {}{to_do}", w.message, w.remedy.clone().unwrap_or_default())
                })
                .collect();
            if let Some(found) = said.iter().find(|said| said.contains(words)) {
                return found.clone();
            }
            assert!(Instant::now() < end, "nothing of {words:?} in {said:?}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits for something outside of the region.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let end = Instant::now() + LIMIT;
        while !holds() {
            assert!(Instant::now() < end, "{what}: not within {} s", LIMIT.as_secs());
            tokio::time::sleep(LOOK).await;
        }
    }

    /// What the region says of an object, for a failed test.
    async fn story(&self, plural: &str, name: &str) -> String {
        let status = self.client.get(kind(plural), name).await.map(|o| o.status);
        let plan = self.client.plan(kind(plural), name).await.map(|p| p.summary);
        let timeline: Result<Vec<String>, ClientError> = self
            .client
            .timeline(kind(plural), name)
            .await
            .map(|t| t.entries.iter().map(|e| format!("{} {}", e.at, e.message)).collect());
        format!("{status:?}\n{plan:?}\n{}", timeline.map_or_else(|e| e.to_string(), |lines| lines.join("\n")))
    }
}

fn is_ready(status: &Value) -> bool {
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "true")
}

fn with_divisor<'a>(variables: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut all = vec![("BASALT_DEADLINE_DIVISOR", DIVISOR)];
    all.extend_from_slice(variables);
    all
}
