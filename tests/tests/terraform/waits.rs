//! `basalt_wait`: an apply that fails if an object is not ready, without losing the object.

use std::process::Output;

use serde_json::json;

use crate::deployments::{condition, deployment, end_of};
use crate::world::{World, everything, flat, within};

/// Waits for the deployment of the same configuration.
const WAIT: &str = r#"
resource "basalt_wait" "web" {
  kind    = "Deployment"
  name    = basalt_deployment.web.name
  timeout = "1h"
}
"#;

impl World {
    /// Applies. When Terraform prints `line`, the region sets the deployment's status to `says`, at its generation at
    /// that time.
    async fn apply_while(&self, line: &str, says: serde_json::Value) -> Output {
        let (child, mut lines) = self.start(&["apply", "-auto-approve"]);
        let mut said = Vec::new();
        while let Some(told) = lines.next_line().await.expect("output") {
            if told.contains(line) {
                self.until_there("Deployment", "web-1").await;
                self.say("web-1", says.clone()).await;
            }
            said.extend([told.into_bytes(), vec![b'\n']].concat());
        }
        Output { stdout: said, ..end_of(child).await }
    }
}

#[test]
fn a_wait_fails_where_an_object_waits_for_somebody_and_taints_nothing() {
    within(async |world| {
        world.config(&format!("{}{WAIT}", deployment(&world, "")));
        let stalled = json!([condition("Stalled", "true", "ManualPower", "Switch it on.")]);
        let output = world.apply_while("basalt_deployment.web: Creating...", stalled).await;
        let said = everything(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        crate::errors::hold_to_rules(&said);
        let said = flat(&said);
        assert!(said.contains("Warning: It will not become ready by itself"), "{said}");
        assert!(said.contains("Error: It waits for somebody: Deployment \"web-1\""), "{said}");
        assert!(said.contains("Switch it on (ManualPower)"), "{said}");
        let made = world.get("Deployment", "web-1").await.metadata;
        let state = world.ok(&["state", "list"]).await;
        assert!(state.contains("basalt_deployment.web") && !state.contains("basalt_wait.web"), "{state}");

        // Both continue to wait, and no object is destroyed.
        let said = world.ok(&["plan"]).await;
        assert!(said.contains("Plan: 1 to add, 1 to change, 0 to destroy."), "{said}");
        world.say_ready("web-1").await;
        let said = world.apply().await;
        assert!(said.contains("1 added, 0 changed, 0 destroyed"), "{said}");
        assert_eq!(world.state("basalt_wait.web").await["met"], true);
        assert_eq!(world.get("Deployment", "web-1").await.metadata.uid, made.uid);
        let said = world.ok(&["destroy", "-auto-approve", "-target=basalt_wait.web"]).await;
        assert!(said.contains("1 destroyed"), "{said}");
        world.end().await;
    });
}

#[test]
fn a_wait_that_was_met_waits_again_for_what_changes_and_for_nothing_else() {
    within(async |world| {
        let described = |text: &str| {
            let more = format!("description = {text:?}\n  timeouts = {{ update = \"1s\" }}");
            format!("{}{}", deployment(&world, &more), WAIT.replace("1h", "1s"))
        };
        let ready = || json!([condition("Ready", "true", "Deployed", "It is deployed.")]);
        let busy = || json!([condition("Ready", "false", "Rebooting", "It reboots.")]);
        world.config(&described("one"));
        let output = world.apply_while("basalt_deployment.web: Creating...", ready()).await;
        assert!(output.status.success(), "{}", everything(&output));

        // It was ready once, and is busy now: that does not change the plan.
        world.say("web-1", busy()).await;
        world.ok(&["plan", "-detailed-exitcode"]).await;

        // A changed object is waited for again. The wait fails, and fails again.
        world.config(&described("two"));
        let said = flat(&world.ok(&["plan"]).await);
        assert!(said.contains("~ met = true -> (known after apply)"), "{said}");
        for _ in 0..2 {
            let said = flat(&world.fails(&["apply", "-auto-approve"]).await);
            assert!(said.contains("Error: It takes too long: Deployment \"web-1\""), "{said}");
            assert!(said.contains("is not Ready after 1 s: It reboots"), "{said}");
            assert_eq!(world.state("basalt_wait.web").await["met"], false);
        }
        world.say_ready("web-1").await;
        let said = world.apply().await;
        assert!(said.contains("0 added, 0 changed, 0 destroyed"), "it holds by now: {said}");

        // Another client changes it, and it does not reach the declared state.
        let mut spec = world.get("Deployment", "web-1").await.spec;
        spec["readiness"] = json!({"check": "installed"});
        world.put("cli", "Deployment", "web-1", spec).await;
        world.say("web-1", busy()).await;
        let said = flat(&world.ok(&["plan", "-refresh-only"]).await);
        assert!(said.contains("~ met = true -> false"), "{said}");
        world.end().await;
    });
}

#[test]
fn a_wait_for_what_is_not_there_or_cannot_be_says_so_at_its_attribute() {
    within(async |world| {
        let wait = |kind: &str, name: &str, more: &str| {
            let block = crate::world::provider(&world);
            let wait = format!("kind = {kind:?}\n  name = {name:?}\n  {more}");
            world.config(&format!("{block}resource \"basalt_wait\" \"it\" {{\n  {wait}\n}}\n"));
        };
        for (kind, name, more, says) in [
            (
                "Deploymnet",
                "web-1",
                "",
                "There is no kind \"Deploymnet\". The nearest that there are: Deployment",
            ),
            ("Deployment", "Web 1", "", "Not a name"),
            (
                "Deployment",
                "web-1",
                "condition = \"Done\"",
                "must be one of `Ready`, `Progressing`, `Stalled`",
            ),
            ("Deployment", "web-1", "timeout = \"soon\"", "must be a duration, like `90m`"),
        ] {
            wait(kind, name, more);
            let said = flat(&world.fails(&["validate"]).await);
            assert!(said.contains(says), "{says}: {said}");
        }
        wait("Zone", "nowhere", "");
        let said = flat(&world.fails(&["apply", "-auto-approve"]).await);
        assert!(
            said.contains("Not found: Zone \"nowhere\"") && said.contains("with basalt_wait.it"),
            "{said}"
        );
        // The object may be one that Terraform does not manage, and a read-only token is enough.
        world.put("cli", "Zone", "somewhere", json!({})).await;
        wait("zone", "somewhere", "");
        let said = flat(&world.fails(&["import", "basalt_wait.it", "somewhere"]).await);
        assert!(said.contains("It cannot be imported: \"somewhere\""), "{said}");
        world.apply().await;
        world.end().await;
    });
}
