//! Applies are interrupted repeatedly until every object is as declared: by the user, or by the death of Terraform, the provider
//! or the region.
//!
//! Each time, a write or its answer is held on its way. So the interruption falls into the middle of an apply, on a machine of any
//! speed.

use std::collections::BTreeMap;
use std::process::{Output, Stdio};
use std::time::Duration;

use basalt_api::client::ListOptions;
use basalt_api::values::Uid;
use basalt_db::testing::clock::Hand;
use basalt_region::region::Region;
use basalt_region::settings::Settings;
use rustix::process::{Pid, Signal, kill_process};
use terraform_provider_basalt::MANAGER;
use tfplugin::Reattached;
use tfplugin::testing::Random;
use tokio::process::{Child, Command};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::NETWORK;
use crate::gate::{At, Gate};
use crate::world::{COMMAND, World, described, everything, provider_at, region, within};

/// Number of interruptions.
fn times() -> usize {
    if basalt_tests::soaks() { 50 } else { 16 }
}
/// Largest number of writes between two interruptions.
const PASS: u64 = 6;
/// Number of declared objects: those of the network, and zones without dependants.
const OBJECTS: usize = 7 + 30;
const KINDS: [&str; 7] = ["Zone", "Pool", "Fabric", "Vlan", "Subnet", "IpRange", "Image"];

/// The runtime of a provider or a region. Dropping it kills them.
struct Ground(Option<Runtime>);

impl Ground {
    fn new() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Self(Some(runtime.expect("a runtime")))
    }

    fn runtime(&self) -> &Runtime {
        self.0.as_ref().expect("it lives")
    }

    async fn region(&self, settings: &Settings) -> Region {
        let settings = settings.clone();
        let started = self.runtime().spawn(async move { region(&settings).await });
        started.await.expect("a region")
    }

    /// Ends every task on this runtime.
    async fn goes(mut self) {
        let runtime = self.0.take().expect("it lives");
        let ended = tokio::task::spawn_blocking(|| runtime.shutdown_timeout(Duration::from_secs(30)));
        ended.await.expect("it ends");
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// A provider that can be killed, and an idle process in its place: Terraform kills that one when it cannot reach the provider any
/// more.
struct Mortal {
    ground: Ground,
    process: Child,
}

impl Mortal {
    fn provider() -> (Self, Reattached) {
        let ground = Ground::new();
        let entered = ground.runtime().enter();
        let provider =
            Reattached::start(terraform_provider_basalt::provider(), terraform_provider_basalt::ADDRESS);
        drop(entered);
        let process = Command::new("sleep").arg("600").kill_on_drop(true).spawn().expect("a process");
        (Self { ground, process }, provider.expect("a provider"))
    }

    /// The variable with which Terraform finds the provider, and the process that it may kill.
    fn env(&self, provider: &Reattached) -> (&'static str, String) {
        let (name, value) = provider.env();
        let pid = |pid: u32| format!("\"Pid\":{pid}");
        let process = self.process.id().expect("it runs");
        (name, value.replace(&pid(std::process::id()), &pid(process)))
    }
}

impl World {
    /// The objects that Terraform made, by kind and name.
    async fn made(&self) -> Made {
        let mut made = Made::new();
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

    /// The same with the region on a runtime of its own.
    async fn with_region_on(self, ground: &Ground) -> Self {
        self.region.stop().await;
        Self { region: ground.region(&self.settings).await, ..self }
    }

    /// The same with a new region at the address of the dead one.
    async fn with_region_replaced(self, ground: &Ground) -> Self {
        drop(self.region);
        Self { region: ground.region(&self.settings).await, ..self }
    }
}

/// Lets the lease of every run expire: a provider that died does not end its run.
async fn expire_runs(world: &World) {
    let url = world.settings.database_url.as_deref().expect("a database of its own");
    Hand::on(url).await.run("update run set renewed_at = '-infinity'").await;
}

type Made = BTreeMap<(String, String), Uid>;

/// An apply in progress.
struct Apply {
    pid: Pid,
    ended: JoinHandle<std::io::Result<Output>>,
    /// True if the region of this apply died.
    lost_region: bool,
}

impl Apply {
    fn start(world: &World, mortal: &Mortal, parallelism: u8) -> Self {
        let parallelism = format!("-parallelism={parallelism}");
        let mut command = world.terraform(&["apply", "-auto-approve", &parallelism]);
        let (name, value) = mortal.env(&world.provider);
        let command = command.env(name, value).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("terraform");
        let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)).expect("it runs");
        Self { pid, ended: tokio::spawn(child.wait_with_output()), lost_region: false }
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).expect("it runs");
    }

    async fn ends(&mut self) -> Output {
        let ended = tokio::time::timeout(COMMAND, &mut self.ended).await.expect("it ends");
        ended.expect("no panic").expect("an end")
    }
}

/// The declared objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Everything,
    EverythingChanged,
    Nothing,
}

impl Stage {
    fn next(self) -> Self {
        match self {
            Self::Everything => Self::EverythingChanged,
            Self::EverythingChanged => Self::Nothing,
            Self::Nothing => Self::Everything,
        }
    }

    fn config(self) -> String {
        let described = match self {
            Self::Everything => "as it was made",
            Self::EverythingChanged => "changed since",
            Self::Nothing => return String::new(),
        };
        let zones = (0..OBJECTS - 7).map(|i| {
            format!("resource \"basalt_zone\" \"more-{i}\" {{\n  name = \"more-{i}\"\n  description = {described:?}\n}}\n")
        });
        format!("{}{}", NETWORK.replace("the first row", described), zones.collect::<String>())
    }

    /// Fails if an object was replaced, if a declared object is missing, or if an undeclared object was made.
    fn check(self, before: &Made, now: &Made) {
        let (less, more) = match self {
            Self::Everything => (before, now),
            Self::EverythingChanged => {
                assert_eq!(before.len(), now.len(), "{before:?} {now:?}");
                (before, now)
            }
            Self::Nothing => (now, before),
        };
        for (object, uid) in less {
            assert_eq!(more.get(object), Some(uid), "{object:?}, while this is declared: {self:?}");
        }
    }

    fn objects(self) -> usize {
        match self {
            Self::Everything | Self::EverythingChanged => OBJECTS,
            Self::Nothing => 0,
        }
    }
}

/// The process that ends an apply, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Interruption {
    /// The user, once (SIGINT): Terraform waits for operations in progress.
    User,
    /// The provider is killed.
    Provider,
    /// The region is killed and replaced: the apply continues, if it can.
    Region,
    /// Terraform is killed (SIGKILL), and has no record of the objects that it made last. Terraform writes its state in place. A
    /// kill during other work could truncate the state.
    TerraformAlone,
}

const INTERRUPTIONS: [Interruption; 4] =
    [Interruption::User, Interruption::Provider, Interruption::Region, Interruption::TerraformAlone];

/// One of these.
fn one_of<T: Copy>(all: &[T], random: &mut Random) -> T {
    let number = random.below(all.len().try_into().expect("a small number"));
    all[usize::try_from(number).expect("a small number")]
}

#[test]
fn applies_that_are_interrupted_again_and_again_make_nothing_twice_and_lose_nothing() {
    let seed = std::env::var("BASALT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(4);
    eprintln!("BASALT_SEED={seed}");
    within(async |mut world| {
        let mut random = Random::new(seed);
        let gate = Gate::before(world.region.address()).await;
        let head = provider_at(&format!("http://{}", gate.address), &world);
        let (mut mortal, fresh) = Mortal::provider();
        std::mem::replace(&mut world.provider, fresh).stop().await;
        let mut ground = Ground::new();
        world = world.with_region_on(&ground).await;

        let (mut stage, mut seen) = (Stage::Everything, Made::new());
        world.config(&format!("{head}{}", stage.config()));
        let mut fired: BTreeMap<Interruption, usize> = BTreeMap::new();
        let (mut number, mut failed, mut stages) = (0, 0, 0);
        let (mut parallelism, mut applying) = (1, None);
        while number < times() || applying.is_some() || stage != Stage::Everything || !seen.is_empty() {
            let mut apply: Apply = applying.take().unwrap_or_else(|| {
                parallelism = one_of(&[1, 4], &mut random);
                Apply::start(&world, &mortal, parallelism)
            });
            let at = one_of(&[At::Request, At::Answer], &mut random);
            let writes = if number < times() { random.below(PASS) } else { u64::MAX };
            let held = tokio::select! {
                held = gate.hold(writes, at) => held.expect("the gate"),
                output = apply.ends() => {
                    let now = world.made().await;
                    stage.check(&seen, &now);
                    seen = now;
                    if output.status.success() {
                        assert_eq!(seen.len(), stage.objects(), "{seen:?}");
                        let again = world.run(&["plan", "-detailed-exitcode"]).await;
                        assert_eq!(again.status.code(), Some(0), "{}", everything(&again));
                        (stage, stages) = (stage.next(), stages + 1);
                        world.config(&format!("{head}{}", stage.config()));
                    } else {
                        assert!(apply.lost_region, "nothing happened to it:\n{}", everything(&output));
                        failed += 1;
                    }
                    continue;
                }
            };
            let count = if parallelism == 1 { INTERRUPTIONS.len() } else { INTERRUPTIONS.len() - 1 };
            let how = one_of(&INTERRUPTIONS[..count], &mut random);
            match how {
                Interruption::User => apply.signal(Signal::INT),
                Interruption::TerraformAlone => apply.signal(Signal::KILL),
                Interruption::Provider => {
                    let dead;
                    (dead, (mortal, world.provider)) = (mortal, Mortal::provider());
                    dead.ground.goes().await;
                }
                Interruption::Region => {
                    std::mem::replace(&mut ground, Ground::new()).goes().await;
                    world = world.with_region_replaced(&ground).await;
                }
            }
            if one_of(&[true, false], &mut random) {
                held.go_on();
            } else {
                drop(held);
            }
            if how == Interruption::Region {
                apply.lost_region = true;
                applying = Some(apply);
            } else {
                let output = apply.ends().await;
                expire_runs(&world).await;
                assert!(how != Interruption::Provider || !output.status.success(), "{}", everything(&output));
            }
            let now = world.made().await;
            stage.check(&seen, &now);
            (seen, number) = (now, number + 1);
            *fired.entry(how).or_default() += 1;
        }
        eprintln!(
            "{number} interruptions in {stages} stages: {fired:?}; {failed} applies failed since their region died"
        );
        assert!(INTERRUPTIONS.iter().all(|how| fired.contains_key(how)), "{fired:?}");
        world.end().await;
    });
}

#[test]
fn an_apply_during_which_the_region_is_restarted_makes_nothing_twice_and_loses_nothing() {
    within(async |mut world| {
        let gate = Gate::before(world.region.address()).await;
        let head = provider_at(&format!("http://{}", gate.address), &world);
        world.config(&format!("{head}{}", Stage::Everything.config()));
        let mut command = world.terraform(&["apply", "-auto-approve", "-parallelism=2"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("terraform");
        let held = gate.hold(5, At::Answer).await.expect("the gate");
        world = world.with_region_restarted().await;
        held.go_on();
        let output = tokio::time::timeout(COMMAND, child.wait_with_output()).await;
        let output = output.expect("it ends").expect("an end");
        let before = world.made().await;
        assert!(!before.is_empty(), "{}", everything(&output));
        // A request that was sent when the region closed the connection is not repeated, because its outcome is unknown.
        world.apply().await;
        Stage::Everything.check(&before, &world.made().await);
        let again = world.run(&["plan", "-detailed-exitcode"]).await;
        assert_eq!(again.status.code(), Some(0), "{}{}", everything(&output), everything(&again));
        assert_eq!(world.made().await.len(), OBJECTS);
        world.end().await;
    });
}
