//! No apply takes an object of another state, and an apply adopts the objects of an interrupted one.
//!
//! Terraform starts the provider's program here, so that the provider notices its end, or Terraform's.

use std::collections::BTreeSet;
use std::process::Stdio;

use basalt_api::values::Uid;
use basalt_db::testing::clock::Hand;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::json;

use crate::gate::{At, Gate};
use crate::user::User;
use crate::world::{COMMAND, World, everything, flat, provider, provider_at, within};

const SOURCE: &str = "basalt-metal/basalt";
const APPLY: [&str; 2] = ["apply", "-auto-approve"];
/// It plans with the state as it is, without reading the objects again.
const APPLY_UNREAD: [&str; 3] = ["apply", "-auto-approve", "-refresh=false"];

fn zones(names: &[&str]) -> String {
    let zone = |name: &&str| format!("resource \"basalt_zone\" \"{name}\" {{\n  name = \"{name}\"\n}}\n");
    names.iter().map(zone).collect()
}

/// A user with the provider, in an initialised directory.
async fn user(rest: &str) -> User {
    let user = User::with_provider();
    user.configure(SOURCE, rest);
    user.ok(&["init"]).await;
    user
}

/// The same configuration in another directory, without the state.
async fn copy(of: &User, rest: &str) -> User {
    let copy = of.elsewhere();
    copy.configure(SOURCE, rest);
    copy.ok(&["init"]).await;
    copy
}

/// Names of the resources in a user's state.
async fn held(user: &User) -> BTreeSet<String> {
    let listed = everything(&user.terraform(&["state", "list"]).await);
    listed.lines().filter_map(|line| line.strip_prefix("basalt_zone.")).map(str::to_owned).collect()
}

impl World {
    async fn uid(&self, zone: &str) -> Uid {
        self.get("Zone", zone).await.metadata.uid
    }

    async fn sql(&self, text: &str) -> Vec<Vec<String>> {
        let url = self.settings.database_url.as_deref().expect("a database of its own");
        Hand::on(url).await.run(text).await
    }

    /// Number of unconfirmed creations.
    async fn unconfirmed(&self) -> usize {
        self.sql("select object from unconfirmed").await.len()
    }
}

#[test]
fn a_copied_directory_and_a_test_leave_alone_what_another_state_holds() {
    within(async |world| {
        let rest = format!("{}{}", provider(&world), zones(&["a", "b"]));
        let first = user(&rest).await;
        assert!(first.ok(&APPLY).await.contains("2 added"));
        assert_eq!(world.unconfirmed().await, 0, "the provider confirmed them at its end");
        let before = [world.uid("a").await, world.uid("b").await];

        let second = copy(&first, &rest).await;
        let planned = second.ok(&["plan"]).await;
        assert!(planned.contains("Warning: It exists already: Zone \"a\""), "{planned}");
        let refused = second.fails(&APPLY).await;
        for wanted in ["Error: It exists already: Zone \"b\"", "as it is declared here", "id = \"b\""] {
            assert!(refused.contains(wanted), "{wanted}: {refused}");
        }
        second.ok(&["destroy", "-auto-approve"]).await;

        let tests = second.dir.path().join("tests");
        std::fs::create_dir(&tests).expect("a directory");
        std::fs::write(tests.join("all.tftest.hcl"), "run \"all\" {\n  command = apply\n}\n")
            .expect("a test");
        let tested = second.terraform(&["test"]).await;
        assert!(!tested.status.success(), "{}", everything(&tested));

        assert_eq!([world.uid("a").await, world.uid("b").await], before);
        first.ok(&["plan", "-detailed-exitcode"]).await;
        world.end().await;
    });
}

#[test]
fn two_applies_at_once_make_each_object_once_and_for_one_state() {
    within(async |world| {
        let names = ["a", "b", "c", "d", "e", "f"];
        let rest = format!("{}{}", provider(&world), zones(&names));
        let first = user(&rest).await;
        let second = copy(&first, &rest).await;
        let ended = tokio::join!(first.terraform(&APPLY), second.terraform(&APPLY));
        let said = format!("{}\n{}", everything(&ended.0), everything(&ended.1));
        let (mine, theirs) = (held(&first).await, held(&second).await);
        assert_eq!(mine.intersection(&theirs).count(), 0, "{mine:?} {theirs:?}: {said}");
        assert_eq!(mine.len() + theirs.len(), names.len(), "{mine:?} {theirs:?}: {said}");
        for name in names {
            world.uid(name).await;
        }
        world.end().await;
    });
}

/// The process that dies between the creation and the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    /// Terraform alone, by SIGKILL: the provider sees that it is gone.
    Terraform,
    /// Terraform and the provider, by SIGKILL.
    Both,
    /// The provider alone, by SIGKILL: Terraform sees that it is gone, and writes its state without the object.
    Provider,
    /// No process dies: the user interrupts the apply.
    Interrupt,
}

/// The processes that this one has started.
fn children(of: Pid) -> Vec<Pid> {
    let tasks = std::fs::read_dir(format!("/proc/{of}/task")).expect("it runs");
    let text = tasks.flatten().map(|task| std::fs::read_to_string(task.path().join("children")));
    let text = text.flatten().collect::<Vec<_>>().join(" ");
    text.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

#[test]
fn what_an_apply_created_before_it_died_is_taken_up_by_the_next_one() {
    within(async |world| {
        let gate = Gate::before(world.region.address()).await;
        let head = provider_at(&format!("http://{}", gate.address), &world);
        let user = user(&head).await;
        let mut all = Vec::new();
        for (zone, death) in
            [("a", Death::Terraform), ("b", Death::Both), ("c", Death::Provider), ("d", Death::Interrupt)]
        {
            all.push(zone);
            user.configure(SOURCE, &format!("{head}{}", zones(&all)));
            let mut command = user.command(&APPLY);
            let child = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
            let child = child.expect("terraform");
            let held_answer = gate.hold(0, At::Answer).await.expect("the gate");
            let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)).expect("it runs");
            match death {
                Death::Terraform => kill_process(pid, Signal::KILL),
                Death::Both => kill_process_group(pid, Signal::KILL),
                Death::Provider => {
                    let providers = children(pid);
                    assert!(!providers.is_empty(), "Terraform has a provider");
                    providers.into_iter().try_for_each(|provider| kill_process(provider, Signal::KILL))
                }
                Death::Interrupt => kill_process(pid, Signal::INT),
            }
            .expect("it runs");
            let ended = tokio::time::timeout(COMMAND, child.wait_with_output()).await.expect("it ends");
            drop(held_answer);
            let before = world.uid(zone).await;
            assert!(!held(&user).await.contains(zone), "{death:?}: {ended:?}");
            if matches!(death, Death::Both | Death::Provider) {
                // Simulates that half a minute passes.
                world.sql("update run set renewed_at = renewed_at - interval '31 s'").await;
            }
            let next = if death == Death::Both { &APPLY_UNREAD[..] } else { &APPLY };
            let said = user.ok(next).await;
            assert!(said.contains("1 added, 0 changed, 0 destroyed"), "{death:?}: {said}");
            assert_eq!(world.uid(zone).await, before, "{death:?}");
            assert_eq!(world.unconfirmed().await, 0, "{death:?}");
        }
        user.ok(&["plan", "-detailed-exitcode"]).await;
        world.end().await;
    });
}

/// A provider that Terraform did not start does not learn of a run's end.
#[test]
fn a_later_read_or_plan_confirms_what_its_state_holds_also_as_a_viewer() {
    within(async |world| {
        world.put("test", "Role", "viewer", json!({"base": "viewer"})).await;
        world.put("test", "ApiToken", "looker", json!({"role": "viewer"})).await;
        let looker = world.client("test").issue_token("looker").await.expect("a token");
        let as_looker = |zones: &str| format!("{}{zones}", provider(&world).replace(&world.token, &looker));
        let as_admin = |zones: &str| format!("{}{zones}", provider(&world));
        for (names, plan) in [(&["a"][..], &["plan"][..]), (&["a", "b"], &["plan", "-refresh=false"])] {
            world.config(&as_admin(&zones(names))).ok(&APPLY).await;
            assert_eq!(world.unconfirmed().await, 1, "{plan:?}");
            world.config(&as_looker(&zones(names))).ok(plan).await;
            assert_eq!(world.unconfirmed().await, 0, "{plan:?}");
        }
        world.end().await;
    });
}

/// A configuration with one zone at this address.
fn row_at(address: &str, world: &World) -> String {
    let zone = format!("resource \"basalt_zone\" \"{address}\" {{\n  name = \"row-1\"\n}}\n");
    format!("{}{zone}", provider(world))
}

fn moved(from: &str, to: &str) -> String {
    format!("moved {{\n  from = basalt_zone.{from}\n  to = basalt_zone.{to}\n}}\n")
}

/// The moves of an object without a moved block: from, to, and how many operations Terraform runs at once.
const MOVES: [(&str, &str, &str); 2] = [("a", "b", "-parallelism=10"), ("b", "c", "-parallelism=1")];

#[test]
fn an_object_that_moves_between_addresses_without_a_word_is_there_afterwards_and_once() {
    within(async |world| {
        world.config(&row_at("a", &world)).apply().await;
        for (from, to, parallelism) in MOVES {
            let before = world.uid("row-1").await;
            let next = row_at(to, &world);
            let output = world.config(&next).run(&[&APPLY[..], &[parallelism]].concat()).await;
            let said = flat(&everything(&output));
            if !output.status.success() {
                assert_eq!(world.uid("row-1").await, before, "nothing is destroyed: {said}");
                assert!(said.contains("a moved block"), "{said}");
                world.config(&format!("{next}{}", moved(from, to)));
            }
            world.apply().await;
            world.uid("row-1").await;
        }
        world.end().await;
    });
}

/// The same with a provider that Terraform starts and ends.
#[test]
fn an_object_that_moves_between_addresses_after_its_provider_ended_is_there_afterwards_and_once() {
    within(async |world| {
        let user = user(&row_at("a", &world)).await;
        user.ok(&APPLY).await;
        for (from, to, parallelism) in MOVES {
            let before = world.uid("row-1").await;
            let next = row_at(to, &world);
            user.configure(SOURCE, &next);
            let output = user.terraform(&[&APPLY[..], &[parallelism]].concat()).await;
            let said = flat(&everything(&output));
            if !output.status.success() {
                assert_eq!(world.uid("row-1").await, before, "nothing is destroyed: {said}");
                assert!(said.contains("a moved block"), "{said}");
                user.configure(SOURCE, &format!("{next}{}", moved(from, to)));
            }
            user.ok(&APPLY).await;
            user.ok(&["plan", "-detailed-exitcode"]).await;
            assert_eq!(held(&user).await, BTreeSet::from([to.to_owned()]));
            world.uid("row-1").await;
        }
        world.end().await;
    });
}
