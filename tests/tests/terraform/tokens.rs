//! Tokens that are valid while Terraform runs.

use std::collections::BTreeMap;
use std::time::Duration;

use basalt_api::client::{AuditOptions, Client, ClientConfig, ListOptions, Precondition};
use basalt_api::values::Timestamp;
use basalt_api::wire::{PutMetadata, PutRequest};
use serde_json::json;
use tfplugin::Reattached;

use crate::world::{COMMAND, World, described, everything, flat, provider, within};

/// A token that a provisioner writes to a file. The provisioner then waits until the test allows it
/// to end.
const TOLD: &str = r#"
ephemeral "basalt_token" "reader" {
  role   = "looker"
  scopes = ["zones:read"]
}
resource "terraform_data" "reader" {
  provisioner "local-exec" {
    command     = "printf %s $TOKEN > told && cat heard"
    environment = { TOKEN = ephemeral.basalt_token.reader.token }
  }
}
"#;

fn with_token(world: &World, token: &str) -> Client {
    let endpoints = vec![world.endpoint.clone()];
    let token = Some(token.to_owned());
    Client::new(&ClientConfig { endpoints, token, ..ClientConfig::default() }).expect("a client")
}

async fn tokens(world: &World) -> Vec<String> {
    let labels = BTreeMap::from([("ephemeral".to_owned(), "terraform".to_owned())]);
    let options = ListOptions { labels, ..ListOptions::default() };
    let all = world.client("test").list_all(described("ApiToken"), &options).await.expect("a list");
    all.into_iter().map(|token| token.metadata.name.to_string()).collect()
}

#[test]
fn a_token_is_good_while_terraform_runs_and_kept_nowhere() {
    within(async |world| {
        world.put("cli", "Role", "looker", json!({"base": "viewer"})).await;
        world.put("cli", "Zone", "row-1", json!({})).await;
        world.config(&format!("{}{TOLD}", provider(&world)));
        world.ok(&["plan", "-out=saved"]).await;
        assert_eq!(tokens(&world).await, Vec::<String>::new(), "a plan has one of its own");

        let path = |name: &str| world.dir.path().join(name);
        for fifo in ["told", "heard"] {
            let made = std::process::Command::new("mkfifo").arg(path(fifo)).status().expect("mkfifo");
            assert!(made.success());
        }
        let mut apply = world.terraform(&["apply"]);
        let apply = apply.arg("saved").output();
        let test = async {
            let told = tokio::fs::read_to_string(path("told")).await.expect("a token");
            let reader = with_token(&world, &told);
            reader.get(described("Zone"), "row-1").await.expect("it may look at zones");
            let refused = reader.get(described("Fabric"), "core").await.expect_err("another kind");
            assert_eq!(refused.problem().map(|problem| problem.status), Some(403), "{refused}");
            assert_eq!(tokens(&world).await.len(), 1);
            tokio::fs::write(path("heard"), "").await.expect("it is heard");
            told
        };
        let (output, told) = tokio::time::timeout(COMMAND, async { tokio::join!(apply, test) })
            .await
            .expect("the apply comes to its end");
        let output = output.expect("terraform on the PATH");
        assert!(output.status.success(), "{}", everything(&output));

        assert_eq!(tokens(&world).await, Vec::<String>::new(), "deleted at the end");
        let refused = with_token(&world, &told).get(described("Zone"), "row-1").await;
        assert_eq!(refused.expect_err("good no more").problem().map(|problem| problem.status), Some(401));
        let state = std::fs::read_to_string(path("terraform.tfstate")).expect("a state");
        let plan = world.terraform(&["show", "-json"]).arg("saved").output().await.expect("a plan");
        assert!(plan.status.success(), "{}", everything(&plan));
        let plan = everything(&plan);
        let audit = AuditOptions { object: Some("ApiToken".to_owned()), ..AuditOptions::default() };
        let audit = world.client("test").audit(&audit).await.expect("the log");
        let deleted = audit.items.iter().filter(|entry| entry.request.starts_with("DELETE ")).count();
        assert_eq!(deleted, 2, "of the plan and of the apply: {audit:?}");
        let audit = serde_json::to_string(&audit).expect("JSON");
        for kept in [state, plan, audit] {
            assert!(!kept.contains(&told), "{kept}");
        }
        world.end().await;
    });
}

#[test]
fn what_terraform_leaves_open_is_closed_with_the_provider() {
    within(async |mut world| {
        world.put("cli", "Role", "looker", json!({"base": "viewer"})).await;
        let failing = TOLD.replace("printf %s $TOKEN > told && cat heard", "test -z $TOKEN");
        let text = format!("{}{failing}", provider(&world));
        world.config(&text).fails(&["apply", "-auto-approve"]).await;
        assert_eq!(tokens(&world).await.len(), 1, "Terraform does not close what somebody used who failed");
        let another =
            Reattached::start(terraform_provider_basalt::provider(), terraform_provider_basalt::ADDRESS);
        std::mem::replace(&mut world.provider, another.expect("a provider")).stop().await;
        assert_eq!(tokens(&world).await, Vec::<String>::new());
        world.end().await;
    });
}

#[test]
fn what_a_killed_terraform_left_is_cleared_away_once_it_has_ended() {
    within(async |world| {
        world.put("cli", "Role", "looker", json!({"base": "viewer"})).await;
        let ends = Timestamp::now() + Duration::from_secs(2);
        for (name, expires_at) in [("ended", ends.to_string()), ("going", "2126-01-31T12:00:00Z".to_owned())]
        {
            let labels = BTreeMap::from([("ephemeral".to_owned(), "terraform".to_owned())]);
            let metadata = PutMetadata { labels: Some(labels), ..PutMetadata::default() };
            let spec = json!({"role": "looker", "expires_at": expires_at});
            let request = PutRequest { metadata, spec, ..PutRequest::default() };
            let client = world.client("terraform");
            let put = client.put(described("ApiToken"), name, &request, Precondition::Absent).await;
            put.expect("it is stored");
        }
        while Timestamp::now() <= ends {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        world.config(&format!("{}{TOLD}", provider(&world))).ok(&["plan"]).await;
        assert_eq!(tokens(&world).await, ["going"]);

        let wrong = TOLD.replace("role   = \"looker\"", "lifetime = \"10s\"");
        let said = flat(&world.config(&format!("{}{wrong}", provider(&world))).fails(&["validate"]).await);
        assert!(said.contains("the token speaks for nobody"), "{said}");
        assert!(said.contains("\"10s\" is too short"), "{said}");

        let wrong = TOLD.replace("\"looker\"", "\"nobody\"");
        let said = flat(&world.config(&format!("{}{wrong}", provider(&world))).fails(&["plan"]).await);
        assert!(said.contains("It refers to something that does not exist: this \"basalt_token\""), "{said}");
        assert!(
            said.contains("role = \"nobody\"") && !said.contains("terraform-"),
            "at its attribute: {said}"
        );
        world.end().await;
    });
}
