//! Applies that are killed in the middle: Terraform itself, which then knows nothing of what it made, or the provider.

use std::collections::BTreeMap;
use std::process::Stdio;

use basalt_api::client::ListOptions;
use basalt_api::values::Uid;
use terraform_provider_basalt::MANAGER;
use tfplugin::Reattached;
use tokio::process::{Child, Command};
use tokio::runtime::{Builder, Runtime};

use crate::NETWORK;
use crate::world::{COMMAND, World, described, everything, provider, within};

const KILLS: usize = 10;
/// Objects of the network, and others that nothing depends on.
const OBJECTS: usize = 7 + 25;
const KINDS: [&str; 7] = ["Zone", "Pool", "Fabric", "Vlan", "Subnet", "IpRange", "Image"];

/// What a provider runs on. Without it, it is dead. Terraform kills the process of a provider that it can no longer reach:
/// that is one that does nothing else.
struct Ground {
    runtime: Option<Runtime>,
    process: Child,
}

impl Ground {
    fn with_a_provider() -> (Self, Reattached) {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let entered = runtime.enter();
        let provider =
            Reattached::start(terraform_provider_basalt::provider(), terraform_provider_basalt::ADDRESS);
        drop(entered);
        let process = Command::new("sleep").arg("600").kill_on_drop(true).spawn().expect("a process");
        (Self { runtime: Some(runtime), process }, provider.expect("a provider"))
    }

    /// How Terraform finds the provider, with the process that it may kill.
    fn env(&self, provider: &Reattached) -> (&'static str, String) {
        let (name, value) = provider.env();
        let pid = |pid: u32| format!("\"Pid\":{pid}");
        let process = self.process.id().expect("it runs");
        (name, value.replace(&pid(std::process::id()), &pid(process)))
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn whole(world: &World) -> String {
    let zones = (0..OBJECTS - 7)
        .map(|i| format!("resource \"basalt_zone\" \"more-{i}\" {{\n  name = \"more-{i}\"\n}}\n"));
    format!("{}{NETWORK}{}", provider(world), zones.collect::<String>())
}

impl World {
    /// What Terraform made, by kind and name.
    async fn made(&self) -> BTreeMap<(String, String), Uid> {
        let mut made = BTreeMap::new();
        for kind in KINDS {
            let all = self.client("test").list_all(described(kind), &ListOptions::default()).await;
            let ours = all.expect("a list").into_iter();
            let ours = ours.filter(|object| object.metadata.manager.as_deref() == Some(MANAGER));
            made.extend(
                ours.map(|object| ((object.kind, object.metadata.name.to_string()), object.metadata.uid)),
            );
        }
        made
    }

    /// Waits until so many objects are there, or the command has ended by itself.
    async fn until_made(&self, number: usize, child: &mut Child) {
        let made = async {
            while child.try_wait().expect("a child").is_none() && self.made().await.len() < number {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(COMMAND, made).await.expect("terraform makes it");
    }
}

#[test]
fn an_apply_that_is_killed_ten_times_makes_nothing_twice_and_loses_nothing() {
    within(async |mut world| {
        world.config(&whole(&world));
        let (mut ground, fresh) = Ground::with_a_provider();
        std::mem::replace(&mut world.provider, fresh).stop().await;

        let mut seen = BTreeMap::new();
        for kill in 0..KILLS {
            let mut command = world.terraform(&["apply", "-auto-approve", "-parallelism=2"]);
            let (name, value) = ground.env(&world.provider);
            let mut child = command
                .env(name, value)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("terraform");
            world.until_made(1 + kill * OBJECTS / KILLS, &mut child).await;
            if kill % 2 == 0 {
                child.start_kill().expect("it is killed");
            } else {
                (ground, world.provider) = Ground::with_a_provider();
            }
            tokio::time::timeout(COMMAND, child.wait()).await.expect("it ends").expect("an end");
            let made = world.made().await;
            for (object, uid) in &seen {
                assert_eq!(made.get(object), Some(uid), "{object:?} after kill {kill}");
            }
            seen = made;
        }
        world.apply().await;

        let made = world.made().await;
        assert_eq!(made.len(), OBJECTS, "{made:?}");
        assert!(seen.iter().all(|(object, uid)| made.get(object) == Some(uid)), "{seen:?} {made:?}");
        let said = world.ok(&["destroy", "-auto-approve"]).await;
        assert!(said.contains(&format!("{OBJECTS} destroyed")), "{said}");
        assert_eq!(world.made().await, BTreeMap::new());
        world.end().await;
        drop(ground);
    });
}

#[test]
fn an_apply_during_which_the_region_is_restarted_makes_nothing_twice_and_loses_nothing() {
    within(async |mut world| {
        world.config(&whole(&world));
        let mut command = world.terraform(&["apply", "-auto-approve", "-parallelism=2"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("terraform");
        world.until_made(5, &mut child).await;
        world = world.with_region_restarted().await;
        let output = tokio::time::timeout(COMMAND, child.wait_with_output()).await;
        let output = output.expect("it ends").expect("an end");
        // A request that was on its way when the region closed the connection is not repeated: nobody knows what became of it.
        world.apply().await;
        let again = world.run(&["plan", "-detailed-exitcode"]).await;
        assert_eq!(again.status.code(), Some(0), "{}{}", everything(&output), everything(&again));
        assert_eq!(world.made().await.len(), OBJECTS);
        world.end().await;
    });
}
