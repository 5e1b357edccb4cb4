//! Deployments: waits, interruptions, stalls, and time limits.

use std::collections::BTreeMap;
use std::process::{Output, Stdio};
use std::time::Duration;

use basalt_api::Object;
use basalt_api::agent::{Disk, Inventory, Nic, Outcome, TaskResult};
use basalt_api::values::{Attempt, Generation, Timestamp, Uid};
use basalt_db::NewFact;
use basalt_engine::Policy;
use basalt_region::controller::Controller;
use basalt_region::racks::observed::Observed;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use crate::NETWORK;
use crate::gate::Gate;
use crate::world::{COMMAND, World, described, everything, flat, provider, provider_at, within};

/// A deployment whose progress only the test sets.
pub(crate) fn deployment(world: &World, more: &str) -> String {
    let image = NETWORK.split("resource \"basalt_image\"").nth(1).expect("an image");
    format!(
        "{}resource \"basalt_image\"{image}\nresource \"basalt_deployment\" \"web\" {{\n  name = \"web-1\"\n  \
         selector = {{}}\n  image = basalt_image.debian.name\n  {more}\n}}\n",
        provider(world)
    )
}

impl World {
    /// Sets conditions of a deployment, in place of the engine.
    pub(crate) async fn say(&self, name: &str, conditions: Value) {
        self.observe("Deployment", name, json!({"conditions": conditions})).await;
    }

    /// Sets the whole status of an object, in place of its observer.
    pub(crate) async fn observe(&self, kind: &str, name: &str, mut status: Value) {
        let object = self.get(kind, name).await;
        let store = self.region.store();
        let leases = store.claim(Uid::generate(), 100, Duration::from_secs(60)).await.expect("leases");
        let lease = leases.iter().find(|lease| lease.uid == object.metadata.uid).expect("it is due");
        let observed: Generation = object.metadata.generation;
        status["observed_generation"] = json!(observed);
        store.write_status(lease, observed, &status).await.expect("it is written");
        for lease in &leases {
            store.finish(lease, basalt_db::Requeue::After(Duration::ZERO)).await.expect("it is given back");
        }
    }

    /// Stores a machine's inventory, in place of the agent.
    async fn report(&self, machine: Uid, inventory: Inventory) {
        let result = TaskResult {
            attempt: 1,
            outcome: Outcome::Succeeded,
            inventory: Some(inventory),
            markers: BTreeMap::new(),
            timings: BTreeMap::new(),
            output: None,
            scripts: Vec::new(),
            bmc: None,
            logs: None,
        };
        let (kind, body) = Observed::Result(Box::new(result)).stored();
        let fact = NewFact {
            seq: 1,
            object: Some(machine),
            mac: None,
            kind,
            step_key: None,
            attempt: Some(Attempt::new(1)),
            body,
            observed_at: Timestamp::UNIX_EPOCH,
            wakes: true,
        };
        self.region.store().store_own_fact(&fact).await.expect("it is stored");
    }

    pub(crate) async fn say_ready(&self, name: &str) {
        self.say(name, json!([condition("Ready", "true", "Deployed", "It is deployed.")])).await;
    }

    /// Starts a command, and returns its output as lines.
    pub(crate) fn start(
        &self,
        args: &[&str],
    ) -> (Child, tokio::io::Lines<BufReader<tokio::process::ChildStdout>>) {
        let mut command = self.terraform(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("terraform");
        let stdout = child.stdout.take().expect("stdout");
        (child, BufReader::new(stdout).lines())
    }

    /// Waits until the object exists in the region.
    pub(crate) async fn until_there(&self, kind: &str, name: &str) -> Object {
        let client = self.client("test");
        let there = async {
            loop {
                if let Some(object) = client.find(described(kind), name).await.expect("an answer") {
                    return object;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(COMMAND, there).await.expect("terraform creates it")
    }
}

pub(crate) fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message, "since": "2026-01-31T12:00:00Z"})
}

pub(crate) async fn end_of(child: Child) -> Output {
    tokio::time::timeout(COMMAND, child.wait_with_output()).await.expect("it ends").expect("an end")
}

/// Sends SIGINT, like Ctrl-C.
pub(crate) fn interrupt(child: &Child) {
    let pid = i32::try_from(child.id().expect("it runs")).expect("a process id");
    let pid = rustix::process::Pid::from_raw(pid).expect("a process id");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("a signal");
}

#[test]
fn an_interrupted_wait_goes_on_at_the_next_apply_and_nothing_is_made_twice() {
    within(async |world| {
        world.config(&deployment(&world, ""));
        let (child, _lines) = world.start(&["apply", "-auto-approve"]);
        let made = world.until_there("Deployment", "web-1").await;
        interrupt(&child);
        end_of(child).await;
        let kept = world.state("basalt_deployment.web").await;
        assert_eq!(kept["uid"], json!(made.metadata.uid));
        assert_eq!(kept["ready"], false);

        let (child, mut lines) = world.start(&["apply", "-auto-approve"]);
        while let Some(line) = lines.next_line().await.expect("output") {
            assert!(!line.contains("Destroying..."), "{line}");
            if line.contains("Modifying...") {
                world.say_ready("web-1").await;
            }
        }
        let output = end_of(child).await;
        assert!(output.status.success(), "{}", everything(&output));
        assert_eq!(world.get("Deployment", "web-1").await.metadata.uid, made.metadata.uid);
        assert_eq!(world.get("Deployment", "web-1").await.metadata.generation, made.metadata.generation);
        world.apply().await;
        world.end().await;
    });
}

#[test]
fn a_storage_that_does_not_fit_the_machine_is_told_by_the_plan() {
    within(async |world| {
        let anywhere = ([127, 0, 0, 1], 0).into();
        let driver = Controller::start(&world.region, anywhere, Policy::default(), Vec::new());
        let driver = driver.await.expect("it starts");
        world.put("cli", "Zone", "row-1", json!({})).await;
        let spec = json!({"zone": "row-1", "commissioning": {"skip": true}});
        let machine = world.put("cli", "Machine", "m1", spec).await.metadata.uid;
        let disk = Disk { name: "vda".into(), size_bytes: 64_000_000_000, ..Disk::default() };
        let nic =
            Nic { name: "enp1s0".into(), mac: "52:54:00:00:00:01".into(), boot: true, ..Nic::default() };
        let inventory = Inventory { disks: vec![disk], nics: vec![nic], ..Inventory::default() };
        world.report(machine, inventory).await;
        let on = |disk: &str| {
            let text = deployment(&world, &format!("storage = {{ disk = \"{disk}\" }}"));
            text.replace("selector = {}", "machine = \"m1\"")
        };
        world.config(&on("vda")).ok(&["apply", "-auto-approve", "-target=basalt_image.debian"]).await;
        let said = flat(&world.config(&on("sdz")).ok(&["plan"]).await);
        assert!(said.contains("Warning: Its installation: Deployment \"web-1\""), "{said}");
        assert!(
            said.contains("the storage does not fit the disks of m1: no disk to install to: vda"),
            "{said}"
        );
        let said = flat(&world.config(&on("vda")).ok(&["plan"]).await);
        assert!(!said.contains("Its installation"), "{said}");
        world.region.begin_to_stop();
        driver.ended().await;
        world.end().await;
    });
}

#[test]
fn a_wait_outlives_its_region_for_as_long_as_its_own_time_lasts() {
    within(async |world| {
        let gate = Gate::before(world.region.address()).await;
        let through = provider_at(&format!("http://{}", gate.address), &world);
        let impatient = through.replace("{\n", "{\n  retry_timeout = \"1s\"\n");
        world.config(&deployment(&world, "").replace(&provider(&world), &impatient));
        let (child, _lines) = world.start(&["apply", "-auto-approve"]);
        let made = world.until_there("Deployment", "web-1").await;
        // Many more attempts than fit into its `retry_timeout`.
        gate.shut_for(40).await;
        world.say_ready("web-1").await;
        let output = end_of(child).await;
        assert!(output.status.success(), "{}", everything(&output));
        let kept = world.state("basalt_deployment.web").await;
        assert_eq!((&kept["uid"], &kept["ready"]), (&json!(made.metadata.uid), &json!(true)));
        world.end().await;
    });
}

#[test]
fn what_is_protected_is_not_destroyed() {
    within(async |world| {
        world.config(&deployment(&world, "deletion_protection = true"));
        let (child, _lines) = world.start(&["apply", "-auto-approve"]);
        world.until_there("Deployment", "web-1").await;
        world.say_ready("web-1").await;
        let output = end_of(child).await;
        assert!(output.status.success(), "{}", everything(&output));

        for args in
            [&["destroy", "-auto-approve"][..], &["apply", "-auto-approve", "-replace=basalt_deployment.web"]]
        {
            let said = flat(&world.fails(args).await);
            assert!(said.contains("deletion_protection"), "{args:?}: {said}");
            assert!(!said.contains("Destroying..."), "its plan says so already: {args:?}: {said}");
            let kept = world.get("Deployment", "web-1").await;
            assert_eq!(kept.metadata.deletion_requested_at, None, "{args:?}");
        }
        assert!(world.ok(&["state", "list"]).await.contains("basalt_deployment.web"));
        world.end().await;
    });
}

/// A configuration with more fields in its provider block.
fn with_block(world: &World, text: &str, more: &str) -> String {
    text.replace(&provider(world), &provider(world).replace("{\n", &format!("{{\n  {more}\n")))
}

#[test]
fn what_is_protected_and_was_tainted_for_its_time_can_be_kept() {
    within(async |world| {
        let text = deployment(&world, "deletion_protection = true\n  timeouts = { create = \"1s\" }");
        let text = with_block(&world, &text, "on_not_ready = \"error\"");
        let said = flat(&world.config(&text).fails(&["apply", "-auto-approve"]).await);
        assert!(said.contains("on_not_ready says so") && said.contains("`terraform untaint "), "{said}");
        let said = flat(&world.fails(&["plan"]).await);
        assert!(said.contains("deletion_protection") && said.contains("`terraform untaint`"), "{said}");
        world.ok(&["untaint", "basalt_deployment.web"]).await;
        world.ok(&["plan"]).await;
        // The removal of the protection must not wait for the deployment; a wait would exceed the test's time limit.
        world.config(&text.replace("= true", "= false"));
        let said = world.ok(&["apply", "-auto-approve"]).await;
        assert!(said.contains("0 added, 1 changed, 0 destroyed"), "{said}");
        let said = flat(&world.ok(&["plan"]).await);
        assert!(said.contains("~ ready = false -> (known after apply)"), "the next apply waits: {said}");
        world.end().await;
    });
}

#[test]
fn a_stalled_deployment_ends_the_wait_with_its_reason_and_the_next_apply_goes_on() {
    within(async |world| {
        world.config(&deployment(&world, ""));
        let (child, mut lines) = world.start(&["apply", "-auto-approve"]);
        let made = world.until_there("Deployment", "web-1").await;
        let stalled = json!([condition("Stalled", "true", "DiskTooSmall", "No disk has 10 GiB.")]);
        world.say("web-1", stalled).await;
        let mut said = String::new();
        while let Some(line) = lines.next_line().await.expect("output") {
            said += &format!("{line}\n");
        }
        assert!(end_of(child).await.status.success(), "{said}");
        let said = flat(&said);
        for told in [
            "Warning: It will not become ready by itself: Deployment \"web-1\"",
            "No disk has 10 GiB (DiskTooSmall)",
            "basalt explain deployment web-1",
            "declare a `basalt_wait`",
        ] {
            assert!(said.contains(told), "{told}: {said}");
        }
        assert_eq!(world.state("basalt_deployment.web").await["ready"], false);

        // It waits again, with the same result.
        let said = world.ok(&["apply", "-auto-approve"]).await;
        assert!(said.contains("0 added, 1 changed, 0 destroyed"), "{said}");
        assert!(said.contains("Warning: It will not become ready by itself"), "{said}");
        world.say_ready("web-1").await;
        let said = world.apply().await;
        assert!(said.contains("0 added, 0 changed, 0 destroyed"), "{said}");
        assert_eq!(world.state("basalt_deployment.web").await["ready"], true);
        assert_eq!(world.get("Deployment", "web-1").await.metadata.uid, made.metadata.uid);
        world.end().await;
    });
}

#[test]
fn time_that_is_up_is_told_and_can_be_configured() {
    within(async |world| {
        let text = deployment(&world, "timeouts = { create = \"1s\", delete = \"1s\" }");
        let said = flat(&world.config(&text).ok(&["apply", "-auto-approve"]).await);
        assert!(said.contains("Warning: It takes too long: Deployment \"web-1\""), "{said}");
        assert!(said.contains("is not ready after 1 s") && said.contains("timeouts.create"), "{said}");
        let said = flat(&world.ok(&["plan"]).await);
        assert!(said.contains("~ ready = false -> (known after apply)"), "the next apply waits: {said}");
        assert!(said.contains("0 to add, 1 to change, 0 to destroy"), "{said}");
        let said = flat(&world.fails(&["destroy", "-auto-approve"]).await);
        assert!(said.contains("is not gone after 1 s"), "{said}");
        let wrong = text.replace("create = \"1s\"", "create = \"soon\"");
        let said = flat(&world.config(&wrong).fails(&["validate"]).await);
        assert!(said.contains("timeouts.create") && said.contains("soon"), "{said}");
        let wrong = with_block(&world, &text, "on_not_ready = \"later\"");
        let said = flat(&world.config(&wrong).fails(&["validate"]).await);
        assert!(said.contains("\"later\" is no end of an apply; give warning or error."), "{said}");
        world.end().await;
    });
}

#[test]
fn what_changed_behind_terraforms_back_is_shown_attribute_by_attribute() {
    within(async |world| {
        world.config(&deployment(&world, ""));
        let ready = json!([condition("Ready", "true", "Deployed", "It is deployed.")]);
        let (child, _lines) = world.start(&["apply", "-auto-approve"]);
        world.until_there("Deployment", "web-1").await;
        world
            .observe(
                "Deployment",
                "web-1",
                json!({"conditions": ready, "address": "10.0.0.4", "disk": "vda"}),
            )
            .await;
        let output = end_of(child).await;
        assert!(output.status.success(), "{}", everything(&output));
        world.ok(&["plan", "-detailed-exitcode"]).await;

        let mut spec = world.get("Deployment", "web-1").await.spec;
        spec["description"] = json!("not by Terraform");
        world.put("cli", "Deployment", "web-1", spec).await;
        world
            .observe(
                "Deployment",
                "web-1",
                json!({"conditions": ready, "address": "10.0.0.9", "disk": "vda"}),
            )
            .await;
        let drift = flat(&world.ok(&["plan", "-refresh-only"]).await);
        assert!(drift.contains("~ address = \"10.0.0.4\" -> \"10.0.0.9\""), "{drift}");
        assert!(drift.contains("+ description = \"not by Terraform\""), "{drift}");
        assert!(!drift.contains("disk = \"vda\" ->"), "what is as it was is no drift: {drift}");
        let plan = flat(&world.ok(&["plan"]).await);
        assert!(plan.contains("- description = \"not by Terraform\""), "it is put right: {plan}");
        world.end().await;
    });
}
