//! A token that is revoked while a pipeline plans and while it applies.

use basalt_api::client::DeleteOptions;
use serde_json::json;

use crate::NETWORK;
use crate::deployments::{deployment, end_of};
use crate::gate::{At, Gate};
use crate::world::{COMMAND, World, described, everything, flat, within};

/// Number of the network's objects that are made before the token is revoked.
const BEFORE: u64 = 3;

/// A configuration with this token, whose requests pass the gate.
fn config(gate: &Gate, token: &str) -> String {
    let endpoint = format!("http://{}", gate.address);
    format!("provider \"basalt\" {{\n  endpoint = {endpoint:?}\n  token = {token:?}\n}}\n{NETWORK}")
}

async fn issue(world: &World) -> String {
    world.put("cli", "ApiToken", "pipeline", json!({"role": "builder"})).await;
    world.client("cli").issue_token("pipeline").await.expect("a token")
}

async fn revoke(world: &World) {
    let gone = world.client("cli").delete(described("ApiToken"), "pipeline", DeleteOptions::default()).await;
    assert!(gone.expect("an answer").is_none(), "it is gone at once");
}

#[test]
fn an_apply_whose_token_is_revoked_keeps_what_it_made_and_goes_on_with_another() {
    within(async |world| {
        world.put("cli", "Role", "builder", json!({"base": "admin"})).await;
        let region = world.endpoint.strip_prefix("http://").and_then(|it| it.parse().ok());
        let gate = Gate::before(region.expect("an address")).await;
        world.config(&config(&gate, &issue(&world).await));

        let held = gate.hold(BEFORE, At::Request);
        let mut apply = world.terraform(&["apply", "-auto-approve", "-parallelism=1"]);
        let revoked = async {
            let held = held.await.expect("a write");
            revoke(&world).await;
            held.go_on();
        };
        let (output, ()) = tokio::time::timeout(COMMAND, async { tokio::join!(apply.output(), revoked) })
            .await
            .expect("it ends");
        let output = output.expect("terraform on the PATH");
        let said = flat(&everything(&output));
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("Who are you?") && said.contains("token"), "{said}");
        let state = world.ok(&["state", "list"]).await;
        assert_eq!(
            state.lines().filter(|line| line.starts_with("basalt_")).count() as u64,
            BEFORE,
            "{state}"
        );

        for command in ["plan", "refresh"] {
            let said = flat(&world.fails(&[command]).await);
            assert!(said.contains("The token is not accepted"), "{command}: {said}");
        }
        assert_eq!(world.ok(&["state", "list"]).await, state, "nothing is forgotten");

        world.config(&config(&gate, &issue(&world).await));
        let said = world.apply().await;
        assert!(said.contains("4 added, 0 changed, 0 destroyed"), "{said}");
        world.end().await;
    });
}

#[test]
fn a_deployment_whose_token_is_revoked_while_it_is_waited_for_is_not_installed_anew() {
    within(async |world| {
        world.put("cli", "Role", "builder", json!({"base": "admin"})).await;
        let token = issue(&world).await;
        world.config(&deployment(&world, "").replace(&world.token, &token));
        let (child, mut lines) = world.start(&["apply", "-auto-approve"]);
        let made = world.until_there("Deployment", "web-1").await;
        revoke(&world).await;
        let mut said = String::new();
        while let Some(line) = lines.next_line().await.expect("output") {
            said += &format!("{line}\n");
        }
        assert!(end_of(child).await.status.success(), "{said}");
        assert!(said.contains("It is not ready yet") && said.contains("Who are you?"), "{said}");
        assert_eq!(world.state("basalt_deployment.web").await["ready"], false);

        let token = issue(&world).await;
        world.config(&deployment(&world, "").replace(&world.token, &token));
        world.say_ready("web-1").await;
        let said = world.apply().await;
        assert!(said.contains("0 added, 0 changed, 0 destroyed"), "{said}");
        assert_eq!(world.state("basalt_deployment.web").await["ready"], true);
        assert_eq!(world.get("Deployment", "web-1").await.metadata.uid, made.metadata.uid);
        world.end().await;
    });
}
