//! A site with simulated machines, and the operations of its user.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use basalt_api::client::{Client, ClientConfig, ClientError, DeleteOptions, ListOptions, Precondition};
use basalt_api::plan::TimelineKind;
use basalt_api::wire::{Operation, OperationRequest, OperationState, PutMetadata, PutRequest, Verb};
use basalt_api::{Kind, ProblemCode};
use basalt_lab::site::{Site, SiteError};
use basalt_sim::{Firmware, MachineOptions, SimMachine};
use serde_json::{Value, json};
use sha2::Digest;

/// Time limit of operations that take a few seconds on an idle host.
pub const LIMIT: Duration = Duration::from_secs(120);
/// Pause between two checks of a condition.
pub const LOOK: Duration = Duration::from_millis(100);
/// Divides deadlines. They are minutes for real firmware; simulated firmware takes a second.
const DIVISOR: &str = "30";

/// A region, a rack, images and a network; a test adds machines.
#[derive(Debug)]
pub struct Fleet {
    /// The programs of the region and the rack, in a lab.
    pub site: Site,
    client: Client,
    revivals: u32,
}

fn kind(plural: &str) -> &'static Kind {
    Kind::find(plural).expect("a kind")
}

/// A request to run this script.
pub fn run_script(script: &str) -> OperationRequest {
    OperationRequest { script: Some(script.to_owned()), ..OperationRequest::from(Verb::RunScript) }
}

/// A deployment of the image on a machine.
pub fn deployment_spec(machine: &str) -> Value {
    json!({ "machine": machine, "image": "debian-12", "readiness": { "check": "cloud_init" } })
}

/// The network of the machines.
#[derive(Clone, Copy, Debug)]
pub struct Net {
    /// The subnet, `10.77.0.0/24`. The region's host is 10.77.0.1.
    pub cidr: &'static str,
    /// The addresses of the rack's dynamic range, first and last.
    pub range: [&'static str; 2],
}

impl Net {
    /// A network for up to 50 machines.
    pub const SMALL: Self = Self { cidr: "10.77.0.0/24", range: ["10.77.0.150", "10.77.0.199"] };
}

/// A file of an image, before it is uploaded.
#[derive(Debug)]
pub struct ImageFile {
    path: PathBuf,
    sha256: String,
    length: usize,
}

impl ImageFile {
    /// The file's entry in an image's spec.
    fn declared(&self) -> Value {
        json!({ "sha256": self.sha256, "size": self.length })
    }
}

fn image(purpose: &str, files: Value) -> Value {
    json!({ "os": "debian", "release": "bookworm", "architecture": "amd64", "purpose": purpose, "files": files })
}

/// The spec of a machine.
pub fn machine_spec(machine: &SimMachine) -> Value {
    let options = machine.options();
    json!({
        "boot_macs": [options.mac.to_string()],
        "bmc": {
            "driver": "ipmi",
            "address": options.bmc_address.to_string(),
            "username": options.bmc_user,
            "password": options.bmc_password,
            "k_g": options.bmc_key,
            "options": { "cipher_suite": 3 },
        },
    })
}

impl Fleet {
    /// Starts everything except machines.
    pub async fn start(label: &str, variables: &[(&str, &str)]) -> Self {
        Self::start_in(label, variables, Net::SMALL).await
    }

    /// Starts everything except machines, which will be in this network.
    pub async fn start_in(label: &str, variables: &[(&str, &str)], net: Net) -> Self {
        let mut site = Site::create(label).expect("a lab; the tests run as root");
        site.set_region_variables(&with_divisor(variables));
        site.start_region().await.expect("the region starts");
        site.start_rack(1).await.expect("the rack joins");
        // A test restarts a killed region itself, so the client must not wait for it.
        let patience = Duration::from_millis(100);
        let endpoints = vec![site.endpoint()];
        let client =
            Client::new(&ClientConfig { endpoints, patience, ..ClientConfig::default() }).expect("a client");
        let fleet = Self { site, client, revivals: 0 };
        fleet.network(net).await;
        fleet.images().await;
        fleet
    }

    async fn network(&self, net: Net) {
        self.declare("fabrics", "lab", json!({})).await;
        let vlan = json!({ "fabric": "lab", "vid": 0, "dhcp": { "enabled": true } });
        self.declare("vlans", "lab.0", vlan).await;
        let subnet = json!({ "vlan": "lab.0", "cidr": net.cidr, "gateway": "10.77.0.1" });
        self.declare("subnets", "lab", subnet).await;
        let [start, end] = net.range;
        let range = json!({ "subnet": "lab", "start": start, "end": end });
        self.declare("ip_ranges", "lab", range).await;
    }

    /// Images whose files are arbitrary bytes: simulated machines check only their hashes.
    async fn images(&self) {
        let mut files = serde_json::Map::new();
        for (role, length) in [("kernel", 3 << 20), ("initrd", 5 << 20), ("squashfs", 2 << 20)] {
            let file = self.file(role, length);
            self.upload(&file).await;
            files.insert(role.to_owned(), file.declared());
        }
        self.declare("images", "ephemeral", image("ephemeral", json!(files))).await;
        let root = self.file("root_tarball", 9 << 20);
        self.upload(&root).await;
        self.declare("images", "debian-12", image("deploy", json!({ "root_tarball": root.declared() })))
            .await;
    }

    /// Declares an image for deployments, without its file.
    pub async fn image_without_its_file(&self, name: &str) -> ImageFile {
        let root = self.file(name, 7 << 20);
        self.declare("images", name, image("deploy", json!({ "root_tarball": root.declared() }))).await;
        root
    }

    /// A file of an image, only on this host.
    fn file(&self, name: &str, length: usize) -> ImageFile {
        let bytes: Vec<u8> = name.bytes().cycle().take(length).collect();
        let path = self.site.directory().join(name);
        std::fs::write(&path, &bytes).expect("a file is written");
        ImageFile { path, sha256: hex::encode(sha2::Sha256::digest(&bytes)), length }
    }

    /// Uploads a file of an image.
    pub async fn upload(&self, file: &ImageFile) {
        let sha256 = file.sha256.parse().expect("a hash");
        self.client.put_blob(&sha256, &file.path, |_| {}).await.expect("a blob is uploaded");
    }

    /// Asks for a new commissioning, as a person does after a repair of the hardware.
    pub async fn recommission(&self, machine: &str) {
        self.ask(machine, &Verb::Recommission.into()).await;
    }

    /// A client of the region.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// A machine with empty disks, powered off.
    pub fn machine(
        &self,
        number: u16,
        firmware: Firmware,
        change: impl FnOnce(&mut MachineOptions),
    ) -> SimMachine {
        let mut options = MachineOptions::numbered(number, firmware);
        change(&mut options);
        SimMachine::start(self.site.lab(), options).expect("a simulated machine")
    }

    /// Puts a spec.
    pub async fn declare(&self, plural: &str, name: &str, spec: Value) {
        let request = PutRequest { kind: None, metadata: PutMetadata::default(), spec, status: None };
        let put = self.client.put(kind(plural), name, &request, Precondition::None).await;
        put.unwrap_or_else(|error| panic!("{plural}/{name} is refused: {error}"));
    }

    /// Puts a spec that must be refused. Returns the wrong fields.
    pub async fn refused(&self, plural: &str, name: &str, spec: Value) -> Vec<String> {
        let request = PutRequest { kind: None, metadata: PutMetadata::default(), spec, status: None };
        let put = self.client.put(kind(plural), name, &request, Precondition::None).await;
        let problem = put.expect_err("it is refused");
        let errors = problem.problem().map(|problem| problem.errors.clone()).unwrap_or_default();
        errors.into_iter().map(|error| error.pointer).collect()
    }

    /// Deploys the image to a machine.
    pub async fn deploy(&self, name: &str, machine: &str) {
        self.declare("deployments", name, deployment_spec(machine)).await;
    }

    /// Puts a spec while region and rack may be killed. A put without an answer is repeated.
    pub async fn declare_through_kills(&mut self, plural: &str, name: &str, spec: Value) {
        let request = PutRequest { kind: None, metadata: PutMetadata::default(), spec, status: None };
        let end = Instant::now() + LIMIT;
        loop {
            self.revive().await;
            match self.client.put(kind(plural), name, &request, Precondition::None).await {
                Ok(_) => return,
                Err(error) => assert!(
                    matches!(error.code(), None | Some(ProblemCode::Unavailable)) && Instant::now() < end,
                    "{plural}/{name} is refused: {error}"
                ),
            }
        }
    }

    /// Requests a script on the machine.
    pub async fn run_script(&self, machine: &str, script: &str) {
        self.ask(machine, &run_script(script)).await;
    }

    /// Requests an operation on a machine.
    pub async fn ask(&self, machine: &str, request: &OperationRequest) {
        self.client.operate(machine, request).await.expect("it is accepted");
    }

    /// Waits until the machine's last operation is in this state.
    pub async fn operation_is(&self, machine: &str, state: OperationState) -> Operation {
        let end = Instant::now() + LIMIT;
        loop {
            let all = self.client.operations(machine).await.expect("what was asked of the machine");
            let last = all.items.into_iter().next().expect("something was asked of the machine");
            if last.state == state {
                return last;
            }
            let waits = Instant::now() < end && !last.state.is_over();
            assert!(waits, "it is not {state:?}: {last:?}\n{}", self.story("machines", machine).await);
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Requests an operation on the machine once, and waits for its end, while region and rack may be killed: a request
    /// without an answer may have been accepted. In a rescue, the person leaves at once.
    pub async fn operate_through_kills(
        &mut self,
        machine: &SimMachine,
        request: &OperationRequest,
    ) -> Operation {
        let name = machine.options().name.as_str();
        let mut end = Instant::now() + LIMIT;
        loop {
            if self.revive().await {
                end = Instant::now() + LIMIT;
            }
            let last = self.client.operations(name).await.map(|all| all.items.into_iter().next());
            match last.map(|last| last.filter(|operation| operation.verb == request.verb)) {
                Ok(Some(operation)) if operation.state.is_over() => return operation,
                Ok(Some(operation)) if operation.reason == OperationState::OPEN => machine.leave(),
                Ok(None) => drop(self.client.operate(name, request).await),
                Ok(Some(_)) | Err(_) => {}
            }
            assert!(
                Instant::now() < end,
                "{} does not end:\n{}",
                request.verb,
                self.story("machines", name).await
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until the machine has no planned steps and no waits, while region and rack may be killed.
    pub async fn settled_through_kills(&mut self, machine: &str) {
        let mut end = Instant::now() + LIMIT;
        loop {
            if self.revive().await {
                end = Instant::now() + LIMIT;
            }
            let plan = self.client.plan(kind("machines"), machine).await;
            if plan.is_ok_and(|plan| plan.steps.is_empty() && plan.waits.is_empty()) {
                return;
            }
            assert!(
                Instant::now() < end,
                "{machine} does not come to rest:\n{}",
                self.story("machines", machine).await
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The object's status.
    pub async fn status(&self, plural: &str, name: &str) -> Value {
        self.client.get(kind(plural), name).await.expect("the object").status
    }

    /// All objects of a kind.
    pub async fn list(&self, plural: &str) -> Vec<basalt_api::Object> {
        self.client.list_all(kind(plural), &ListOptions::default()).await.expect("a list")
    }

    /// The names of the steps that a put of this spec, or a deletion of the object, would cause.
    pub async fn dry_run(&self, plural: &str, name: &str, spec: Option<&Value>) -> Vec<String> {
        let answer = match spec {
            Some(spec) => {
                let request = PutRequest {
                    kind: None,
                    metadata: PutMetadata::default(),
                    spec: spec.clone(),
                    status: None,
                };
                self.client.put_dry_run(kind(plural), name, &request, Precondition::None).await
            }
            None => self.client.delete_dry_run(kind(plural), name, DeleteOptions::default()).await,
        };
        let plan = answer.unwrap_or_else(|error| panic!("a dry run of {plural}/{name} fails: {error}")).plan;
        plan.steps.iter().filter_map(|step| step_name(&step.key)).collect()
    }

    /// The names of the steps that have begun for a machine so far.
    pub async fn recorded(&self, machine: &str) -> Vec<String> {
        let timeline = self.client.timeline(kind("machines"), machine).await.expect("a timeline");
        let steps = timeline.entries.iter().filter(|entry| entry.kind == TimelineKind::Step);
        steps.filter_map(|step| step_name(&step.reason)).collect()
    }

    /// Waits until the machine has no planned steps and no waits.
    pub async fn settled(&self, machine: &str) {
        let end = Instant::now() + LIMIT;
        loop {
            let plan = self.client.plan(kind("machines"), machine).await.expect("a plan");
            if plan.steps.is_empty() && plan.waits.is_empty() {
                return;
            }
            assert!(
                Instant::now() < end,
                "{machine} does not come to rest:\n{}",
                self.story("machines", machine).await
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Deletes the object, and waits until it is gone. Nothing is killed meanwhile.
    pub async fn gone(&self, plural: &str, name: &str) {
        let end = Instant::now() + LIMIT;
        let options = || DeleteOptions { adopt: true, ..DeleteOptions::default() };
        loop {
            match self.client.delete(kind(plural), name, options()).await {
                Ok(None) => return,
                Err(error) if error.is_not_found() => return,
                Err(error) => panic!("{plural}/{name} does not go: {error}"),
                Ok(Some(_)) => {}
            }
            assert!(Instant::now() < end, "{plural}/{name} does not go:\n{}", self.story(plural, name).await);
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Deletes the object at once, without the effects on machines.
    pub async fn let_go(&self, plural: &str, name: &str) {
        let options = DeleteOptions { force: true, ..DeleteOptions::default() };
        self.client.delete(kind(plural), name, options).await.expect("it is let go");
    }

    /// Waits until the object is ready, also through a stall that ends by itself.
    pub async fn ready(&self, plural: &str, name: &str) {
        let end = Instant::now() + LIMIT;
        while !self.is_ready(plural, name).await {
            assert!(
                Instant::now() < end,
                "{plural}/{name} is not ready:\n{}",
                self.story(plural, name).await
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until the rack leases from a part of this dynamic range, after the other racks have confirmed that they no
    /// longer use it.
    pub async fn leases(&self, range: &str, rack: &str) {
        let end = Instant::now() + LIMIT;
        loop {
            let blocks = self.status("ip_ranges", range).await["blocks"].take();
            let mut parts = blocks.as_object().into_iter().flat_map(|blocks| blocks.values());
            if parts.any(|block| block["rack"] == rack && block["state"] == "leased") {
                return;
            }
            assert!(Instant::now() < end, "{rack} has no part of {range}: {blocks:?}");
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn is_ready(&self, plural: &str, name: &str) -> bool {
        let object = self.client.get(kind(plural), name).await;
        object.is_ok_and(|object| {
            let seen = &object.status["observed_generation"];
            is_ready(&object.status) && *seen == json!(object.metadata.generation)
        })
    }

    /// The same, while the region may be killed; it is then started again.
    pub async fn ready_through_kills(&mut self, plural: &str, name: &str) {
        let mut end = Instant::now() + LIMIT;
        loop {
            if self.revive().await {
                end = Instant::now() + LIMIT;
            }
            if self.is_ready(plural, name).await {
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

    /// Deletes the object, and waits until it is gone.
    pub async fn delete(&mut self, plural: &str, name: &str) {
        self.delete_through_kills(plural, name).await;
    }

    /// The same, while the region may be killed.
    pub async fn delete_through_kills(&mut self, plural: &str, name: &str) {
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

    /// Starts the region and the rack again if they were killed. True if one was.
    async fn revive(&mut self) -> bool {
        if !self.site.region_runs() {
            self.site.start_region().await.expect("the region starts again");
        } else if !self.site.rack_runs(1) {
            match self.site.start_rack(1).await {
                // The new process may also be killed before it is connected.
                Ok(()) | Err(SiteError::Ended { .. }) => {}
                Err(error) => panic!("the rack does not start again: {error}"),
            }
        } else {
            return false;
        }
        self.revivals += 1;
        assert!(self.revivals < 200, "something ends again and again");
        true
    }

    /// Stops the rack, and starts it with these variables.
    pub async fn restart_rack(&mut self, variables: &[(&str, &str)]) {
        self.site.stop_rack(1).await.expect("the rack drains");
        self.site.set_rack_variables(variables);
        self.site.start_rack(1).await.expect("the rack starts again");
    }

    /// Stops the region if it runs, and starts it with these variables.
    pub async fn restart_region(&mut self, variables: &[(&str, &str)]) {
        self.site.stop_region().await.expect("the region drains");
        self.site.set_region_variables(&with_divisor(variables));
        self.site.start_region().await.expect("the region starts again");
    }

    /// Waits until the object's waits contain all of these words. Returns their text.
    pub async fn waits_saying(&self, plural: &str, name: &str, words: &[&str]) -> String {
        let end = Instant::now() + LIMIT;
        loop {
            let waits = self.client.waits(kind(plural), name).await.expect("waits").waits;
            let said: Vec<String> = waits
                .iter()
                .map(|w| {
                    let until = w.deadline.map(|d| format!(", until {d}")).unwrap_or_default();
                    let to_do = w.human.as_ref().map(|h| format!(". To do: {h}")).unwrap_or_default();
                    format!("{}{until}; then: {}{to_do}", w.message, w.remedy.clone().unwrap_or_default())
                })
                .collect();
            if let Some(found) = said.iter().find(|said| words.iter().all(|words| said.contains(words))) {
                return found.clone();
            }
            if Instant::now() >= end {
                let story = self.story(plural, name).await;
                panic!("{name}: nothing of {words:?} in {said:#?}\n{story}");
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until the object is stalled and needs a person.
    pub async fn stalled(&self, plural: &str, name: &str) {
        let end = Instant::now() + LIMIT;
        let holds = |condition: &Value| condition["type"] == "Stalled" && condition["status"] == "true";
        loop {
            let status = self.status(plural, name).await;
            if status["conditions"].as_array().is_some_and(|all| all.iter().any(holds)) {
                return;
            }
            assert!(Instant::now() < end, "{}", self.story(plural, name).await);
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The region's information about an object, for the message of a failed test.
    pub async fn story(&self, plural: &str, name: &str) -> String {
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

/// The step in a key `MACHINE/SCOPE/GENERATION/STEP/TRY`.
fn step_name(key: &str) -> Option<String> {
    key.rsplit('/').nth(1).map(str::to_owned)
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
