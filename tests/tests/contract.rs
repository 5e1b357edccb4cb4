//! Tests the OpenAPI document against a running region. One independent program validates the document. Another one sends
//! requests that the document allows and requests that it forbids, and checks that every answer is one of the documented ones.
//!
//! `tests/contract` has the versions of the programs and the settings of the runs.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use basalt_api::client::{Client, ClientConfig};
use basalt_api::wire::{ApplyRequest, Document};
use basalt_api::{Example, examples};
use basalt_db::splice::Text;
use basalt_db::{Key, Precondition, Put};
use basalt_engine::Policy;
use basalt_region::controller::Controller;
use basalt_region::region::Region;
use basalt_region::settings::Settings;
use serde_json::{Value, json};
use tempfile::TempDir;

struct World {
    dir: TempDir,
    region: Region,
    _controller: Controller,
    token: String,
}

impl World {
    /// A region with a running driver, and with every example of the document.
    async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let settings = Settings {
            database_url: Some(basalt_db::testing::database().await),
            listen: anywhere,
            rpc_listen: anywhere,
            watch_bookmark: std::time::Duration::from_millis(20),
            ..Settings::new(dir.path().join("region"))
        };
        let region = Box::pin(Region::start(settings)).await.expect("a region");
        let controller = Controller::start(&region, anywhere, Policy::default(), Vec::new()).await;
        let token = std::fs::read_to_string(dir.path().join("region/admin-token")).expect("a token");
        let token = token.trim().to_owned();
        let world = Self { dir, region, _controller: controller.expect("a driver"), token };
        let (enrolled, declared): (Vec<_>, Vec<_>) =
            examples().into_iter().partition(|example| !example.kind.declarable);
        // The kinds that clients cannot declare refer to some declarable ones, and others refer to them.
        let early = |example: &Example| example.kind.name == "Zone";
        world.apply(declared.iter().filter(|example| early(example))).await;
        for example in &enrolled {
            world.observe(example).await;
        }
        world.apply(declared.iter()).await;
        world
    }

    /// Applies all examples in one call, in any order.
    async fn apply<'a>(&self, examples: impl Iterator<Item = &'a Example>) {
        let client = Client::new(&ClientConfig {
            endpoints: vec![self.url()],
            token: Some(self.token.clone()),
            ..ClientConfig::default()
        });
        let document = |example: &Example| -> Document {
            let document =
                json!({"kind": example.kind.name, "metadata": {"name": example.name}, "spec": example.spec});
            serde_json::from_value(document).expect("a document")
        };
        let documents = examples.map(document).collect();
        let request = ApplyRequest { documents, ..ApplyRequest::default() };
        client.expect("a client").apply(&request, false).await.expect("the examples can be stored together");
    }

    async fn observe(&self, example: &Example) {
        let spec = Text::parse(example.spec.to_string()).expect("JSON");
        let put = Put {
            kind: example.kind,
            key: Key::Name(example.name),
            spec: &spec,
            at: "",
            labels: None,
            manager: None,
            adopt: false,
            precondition: Precondition::None,
            first_status: &json!({}),
        };
        self.region.store().put(&put).await.expect("it is stored");
    }

    fn url(&self) -> String {
        format!("http://{}", self.region.address())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs one of the programs; it has the token in its environment.
    async fn run(&self, program: &Path, args: &[&str]) -> Output {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.dir.path()).env("BASALT_TOKEN", &self.token);
        let ended = tokio::task::spawn_blocking(move || command.output()).await;
        ended.expect("it ends").unwrap_or_else(|error| panic!("{}: {error}", program.display()))
    }
}

/// The directory of the programs.
fn tools() -> PathBuf {
    let setup = Path::new(env!("CARGO_MANIFEST_DIR")).join("python-tools");
    let output = Command::new(&setup)
        .arg("contract")
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", setup.display()));
    assert!(output.status.success(), "{}: {}", setup.display(), said(&output));
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_region_does_what_its_document_says_and_nothing_else() {
    let tools = tools();
    let world = World::new().await;
    let document: Value = serde_json::from_str(&basalt_api::openapi_text()).expect("JSON");
    let file = world.file("openapi.json");
    std::fs::write(&file, document.to_string()).expect("the document");
    let file = file.to_str().expect("text");
    let valid = world.run(&tools.join("openapi-spec-validator"), &[file]).await;
    assert!(valid.status.success(), "the document is no OpenAPI: {}", said(&valid));

    let methods = document["paths"].as_object().expect("paths").values();
    let operations: usize = methods.map(|methods| methods.as_object().expect("methods").len()).sum();
    let (config, report) =
        (Path::new(env!("CARGO_MANIFEST_DIR")).join("contract/schemathesis.toml"), world.file("report.json"));
    let (url, config) = (world.url(), config.to_str().expect("text").to_owned());
    let report_path = report.to_str().expect("text");
    let args = ["--config-file", &config, "run", file, "--url", &url, "--no-color", "--report", "json"];
    let tried = world
        .run(&tools.join("schemathesis"), &[&args[..], &["--report-json-path", report_path]].concat())
        .await;
    let said = said(&tried);
    assert!(tried.status.success(), "{said}");
    let report = std::fs::read(&report).unwrap_or_else(|error| panic!("no report: {error}\n{said}"));
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    let counts = &report["operations"];
    assert_eq!(counts["tested"], json!(operations), "an operation was not tried: {counts}\n{said}");
    assert!(report["test_cases"]["generated"].as_u64() > Some(10 * operations as u64 / 3), "{said}");
    eprintln!(
        "{operations} operations, {} requests, {} s",
        report["test_cases"]["generated"], report["running_time"]
    );
}
