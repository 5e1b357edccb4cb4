//! `examples/repository` in a team's pipeline: planned with a read-only token, applied as approved, and checked at night.
//! Terraform starts the provider's program here, from a mirror of a registry.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use basalt_api::client::ListOptions;
use basalt_lab::site::Programs;
use serde_json::json;
use tokio::process::Command;

use crate::deployments::condition;
use crate::world::{COMMAND, World, described, everything, within};

const PASSWORD: &str = "bmc-password-6Jt2";

/// A checkout of the repository, with Terraform's settings for the provider.
struct Checkout<'a> {
    world: &'a World,
    directory: PathBuf,
    settings: PathBuf,
}

impl<'a> Checkout<'a> {
    fn new(world: &'a World) -> Self {
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/repository");
        let directory = world.dir.path().join("repository");
        let copied = std::process::Command::new("cp").arg("-r").args([&example, &directory]).status();
        assert!(copied.expect("cp").success());
        let provider = Programs::find().expect("the programs are built").path("terraform-provider-basalt");
        let settings = basalt_lab::terraform::settings(world.dir.path(), &provider).expect("a mirror");
        Self { world, directory, settings }
    }

    /// A step of the pipeline, with this token.
    async fn ci(&self, step: &[&str], token: &str) -> Output {
        let programs = Programs::find().expect("the programs are built").path("basalt");
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", programs.parent().expect("a directory").display());
        let mut command = Command::new(self.directory.join("ci"));
        command
            .args(step)
            .env("PATH", path)
            .env("TF_CLI_CONFIG_FILE", &self.settings)
            .env("CHECKPOINT_DISABLE", "1")
            // The first endpoint does not answer.
            .env("BASALT_ENDPOINT", format!("http://127.0.0.1:1,{}", self.world.endpoint))
            .env("BASALT_TOKEN", token)
            .env("TF_VAR_bmc_password", PASSWORD)
            .env_remove("TF_LOG")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = tokio::time::timeout(COMMAND, command.output()).await;
        output.unwrap_or_else(|_| panic!("ci {step:?} hangs")).expect("the script runs")
    }

    /// Runs a step that must end with this exit code.
    async fn ends(&self, code: i32, step: &[&str], token: &str) -> String {
        let output = self.ci(step, token).await;
        let said = everything(&output);
        assert_eq!(output.status.code(), Some(code), "ci {step:?}:\n{said}");
        said
    }
}

impl World {
    /// A read-only token.
    async fn viewer(&self) -> String {
        self.put("cli", "Role", "looker", json!({"base": "viewer"})).await;
        self.put("cli", "ApiToken", "pipeline", json!({"role": "looker"})).await;
        self.client("cli").issue_token("pipeline").await.expect("a token")
    }
}

#[test]
fn a_repository_is_planned_approved_applied_and_looked_after() {
    within(async |world| {
        let (checkout, viewer) = (Checkout::new(&world), world.viewer().await);
        let files = json!({"root_tarball": {
            "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "size": 0}});
        let image = json!({"os": "debian", "release": "bookworm", "architecture": "amd64", "files": files});
        world.put("cli", "Image", "debian-12", image).await;
        let said = checkout.ends(0, &["check"], "").await;
        assert_eq!(
            said.matches("Success! 3 passed, 0 failed.").count(),
            2,
            "of each module, with mocks:\n{said}"
        );
        assert!(said.contains("every key is known"), "by basalt lint:\n{said}");

        let said = checkout.ends(0, &["plan", "staging"], &viewer).await;
        assert!(said.contains("to be approved: environments/staging/plan.tfplan"), "{said}");
        let said = checkout.ends(1, &["apply", "staging"], &viewer).await;
        assert!(said.contains("Not allowed"), "{said}");
        let machines = world.client("test").list_all(described("Machine"), &ListOptions::default()).await;
        assert_eq!(machines.expect("a list"), Vec::new(), "who may only look has made nothing");

        checkout.ends(0, &["plan", "staging"], &viewer).await;
        let become_ready = async {
            for name in ["staging-web-1", "staging-web-2"] {
                world.until_there("Deployment", name).await;
                world.say_ready(name).await;
            }
        };
        let apply = ["apply", "staging"];
        let (said, ()) = tokio::join!(checkout.ends(0, &apply, &world.token), become_ready);
        assert!(said.contains("13 added, 0 changed, 0 destroyed"), "{said}");
        let machine = world.get("Machine", "staging-web-1").await;
        assert_eq!(machine.metadata.labels["environment"], "staging");
        assert_eq!(machine.spec["bmc"]["password"]["set"], true);
        let state = checkout.directory.join("environments/staging/terraform.tfstate");
        assert!(!std::fs::read_to_string(state).expect("a state").contains(PASSWORD));

        // The other environment is independent of it.
        checkout.ends(0, &["plan", "production"], &viewer).await;
        let become_ready = async {
            for number in 1..=4 {
                let name = format!("production-web-{number}");
                world.until_there("Deployment", &name).await;
                world.say_ready(&name).await;
            }
        };
        let apply = ["apply", "production"];
        let (said, ()) = tokio::join!(checkout.ends(0, &apply, &world.token), become_ready);
        assert!(said.contains("19 added, 0 changed, 0 destroyed"), "{said}");
        let said = checkout.ends(0, &["drift", "production"], &viewer).await;
        assert!(said.contains("No changes."), "{said}");

        // A busy machine does not change the plan.
        let busy = [
            condition("Ready", "false", "Rebooting", "It reboots."),
            condition("Progressing", "true", "", ""),
        ];
        world.say("staging-web-1", json!(busy)).await;
        let said = checkout.ends(0, &["drift", "staging"], &viewer).await;
        assert!(said.contains("No changes."), "{said}");

        world.put("cli", "Zone", "staging", json!({"description": "by hand"})).await;
        let said = checkout.ends(2, &["drift", "staging"], &viewer).await;
        assert!(said.contains("\"by hand\" -> null"), "{said}");
        world.end().await;
    });
}
