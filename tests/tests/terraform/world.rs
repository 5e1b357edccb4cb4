//! A region, a provider and a user's directory, inside the test.

use std::process::Output;
use std::time::Duration;

use basalt_api::client::{Client, ClientConfig, Precondition};
use basalt_api::wire::PutRequest;
use basalt_api::{Kind, Object};
use basalt_db::{Key, Put, splice};
use basalt_region::region::Region;
use basalt_region::settings::Settings;
use serde_json::{Value, json};
use tempfile::TempDir;
use tfplugin::Reattached;
use tfplugin::testing::Terraform;
use tokio::process::Command;

/// Time limit of a Terraform command; a longer one counts as hung.
pub(crate) const COMMAND: Duration = Duration::from_secs(120);

/// A region, a provider, and a user's directory.
pub(crate) struct World {
    pub(crate) dir: TempDir,
    pub(crate) region: Region,
    pub(crate) settings: Settings,
    pub(crate) provider: Reattached,
    /// Providers of other makers.
    pub(crate) others: Vec<Reattached>,
    pub(crate) endpoint: String,
    pub(crate) token: String,
}

impl World {
    /// A world whose region has changed settings.
    async fn new(change: impl FnOnce(&mut Settings)) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut settings = Settings::new(dir.path().join("region"));
        settings.database_url = Some(basalt_db::testing::database().await);
        settings.listen = ([127, 0, 0, 1], 0).into();
        change(&mut settings);
        let region = region(&settings).await;
        settings.listen = region.address();
        let token = std::fs::read_to_string(dir.path().join("region/admin-token")).expect("a token");
        let provider =
            Reattached::start(terraform_provider_basalt::provider(), terraform_provider_basalt::ADDRESS)
                .expect("a provider");
        let endpoint = format!("http://{}", region.address());
        Self { dir, region, settings, provider, others: Vec::new(), endpoint, token: token.trim().to_owned() }
    }

    /// The same after a restart of the region at the same address.
    pub(crate) async fn with_region_restarted(self) -> Self {
        self.region.stop().await;
        let region = region(&self.settings).await;
        Self { region, ..self }
    }

    pub(crate) async fn end(self) {
        for provider in self.others {
            provider.stop().await;
        }
        self.provider.stop().await;
        self.region.stop().await;
    }

    /// A client of the region in the name of another tool.
    pub(crate) fn client(&self, manager: &str) -> Client {
        Client::new(&ClientConfig {
            endpoints: vec![self.endpoint.clone()],
            token: Some(self.token.clone()),
            manager: Some(manager.to_owned()),
            ..ClientConfig::default()
        })
        .expect("a client")
    }

    pub(crate) async fn get(&self, kind: &str, name: &str) -> Object {
        self.client("test").get(described(kind), name).await.expect("an object")
    }

    pub(crate) async fn put(&self, manager: &str, kind: &str, name: &str, spec: Value) -> Object {
        let request = PutRequest { spec, ..PutRequest::default() };
        let written = self.client(manager).put(described(kind), name, &request, Precondition::None).await;
        written.expect("it is stored").object
    }

    /// Creates an object of a kind that clients cannot create.
    pub(crate) async fn enrol(&self, kind: &str, name: &str) {
        let spec = splice::Text::parse("{}").expect("a spec");
        let put = Put {
            kind: described(kind),
            key: Key::Name(name),
            spec: &spec,
            at: "",
            labels: None,
            manager: Some("region"),
            adopt: true,
            precondition: basalt_db::Precondition::Absent,
            first_status: &json!({}),
        };
        self.region.store().put(&put).await.expect("it is stored");
    }

    /// Sets the user's configuration from here on.
    pub(crate) fn config(&self, text: &str) -> &Self {
        let head = "terraform {\n  required_providers {\n    basalt = { source = \"basalt-metal/basalt\" }\n  }\n}\n";
        std::fs::write(self.dir.path().join("main.tf"), format!("{head}{text}")).expect("a configuration");
        self
    }

    pub(crate) fn user(&self) -> Terraform {
        let user = Terraform::within(self.dir.path()).with(&self.provider);
        self.others.iter().fold(user, Terraform::with)
    }

    pub(crate) fn terraform(&self, args: &[&str]) -> Command {
        self.user().command(args)
    }

    pub(crate) async fn run(&self, args: &[&str]) -> Output {
        let output = self.user().run(args).await;
        output.unwrap_or_else(|error| panic!("terraform {args:?}: {error}"))
    }

    pub(crate) async fn ok(&self, args: &[&str]) -> String {
        self.user().ok(args).await.unwrap_or_else(|broken| panic!("{broken}"))
    }

    /// Applies, and checks that the next plan is empty.
    pub(crate) async fn apply(&self) -> String {
        self.user().apply().await.unwrap_or_else(|broken| panic!("{broken}"))
    }

    /// The output of a command that must fail. Each error in it must follow the rules of `errors`.
    pub(crate) async fn fails(&self, args: &[&str]) -> String {
        let said = self.user().fails(args).await.unwrap_or_else(|broken| panic!("{broken}"));
        crate::errors::hold_to_rules(&said);
        said
    }

    /// The values of a resource in the state.
    pub(crate) async fn state(&self, address: &str) -> Value {
        self.user().state(address).await.unwrap_or_else(|broken| panic!("{broken}"))
    }
}

pub(crate) async fn region(settings: &Settings) -> Region {
    Box::pin(Region::start(settings.clone())).await.expect("a region")
}

pub(crate) fn described(kind: &str) -> &'static Kind {
    Kind::find(kind).unwrap_or_else(|| panic!("no kind {kind}"))
}

pub(crate) use tfplugin::testing::said as everything;

/// The text on one line, because Terraform wraps sentences.
pub(crate) fn flat(said: &str) -> String {
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Runs a test on a runtime that serves region and provider while Terraform runs.
pub(crate) fn within(test: impl AsyncFnOnce(World)) {
    within_region(|_| (), test);
}

/// The same with a region whose settings are changed.
pub(crate) fn within_region(change: impl FnOnce(&mut Settings), test: impl AsyncFnOnce(World)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        // The region's default tokens and addresses, unless the test changes them.
        let world = World::new(change).await;
        test(world).await;
    });
}

pub(crate) fn provider(world: &World) -> String {
    provider_at(&world.endpoint, world)
}

/// A provider block with this endpoint.
pub(crate) fn provider_at(endpoint: &str, world: &World) -> String {
    format!("provider \"basalt\" {{\n  endpoint = {endpoint:?}\n  token = {:?}\n}}\n", world.token)
}
