//! The announcement of a dry run matches the later work: 200 random changes of machines and deployments, each first sent
//! with `?dry_run=true`, then made, without faults.
//!
//! The test compares the steps with an effect, in order. A plan also lists events that are only observed (a machine asks for
//! DHCP), which are recorded as facts and not as steps. Machines are not deleted, because a deleted object has no timeline.
//! `BASALT_SEED` repeats a run.

use std::collections::BTreeMap;
use std::sync::Arc;

use basalt_engine::steps::{EffectKind, STEPS};
use basalt_sim::{Firmware, SimMachine};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use basalt_tests::fleet::{Fleet, deployment_spec, machine_spec};

const MACHINES: u16 = 5;

/// Number of changes of each machine.
fn changes() -> usize {
    if basalt_tests::soaks() { 40 } else { 14 }
}

/// A change of a declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Deploy,
    Undeploy,
    Redeploy,
    Describe,
    Power,
    KeepPower,
}

/// The weight of each change in the draw.
const CHANGES_DRAWN: [(Change, u64); 6] = [
    (Change::Deploy, 6),
    (Change::Undeploy, 4),
    (Change::Redeploy, 3),
    (Change::Describe, 1),
    (Change::Power, 2),
    (Change::KeepPower, 1),
];

/// A random generator (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn one_of(&mut self, words: &[&str]) -> Value {
        let index = usize::try_from(self.below(words.len() as u64)).unwrap_or(0);
        json!(words[index])
    }

    fn change(&mut self) -> Change {
        let total = CHANGES_DRAWN.iter().map(|(_, weight)| weight).sum();
        let mut drawn = self.below(total);
        for (change, weight) in CHANGES_DRAWN {
            match drawn.checked_sub(weight) {
                Some(rest) => drawn = rest,
                None => return change,
            }
        }
        Change::Deploy
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_changes_do_what_their_dry_runs_announced() {
    let seed = std::env::var("BASALT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    println!("BASALT_SEED={seed}");
    let fleet = Arc::new(Fleet::start("announced", &[]).await);
    let mut lives = JoinSet::new();
    for number in 1..=MACHINES {
        let machine = fleet.machine(number, Firmware::Uefi, |_| {});
        lives.spawn(live(fleet.clone(), machine, Dice(seed + u64::from(number))));
    }
    let mut made: BTreeMap<Change, (usize, usize)> = BTreeMap::new();
    for (change, steps) in lives.join_all().await.into_iter().flatten() {
        let (times, total) = made.entry(change).or_default();
        (*times, *total) = (*times + 1, *total + steps);
    }
    println!("{:<12} {:>7} {:>7}", "change", "times", "steps");
    for (change, (times, steps)) in &made {
        println!("{:<12} {times:>7} {steps:>7}", format!("{change:?}"));
    }
    assert_eq!(made.values().map(|(times, _)| times).sum::<usize>(), usize::from(MACHINES) * changes());
    for (change, _) in CHANGES_DRAWN {
        let (times, steps) = made.get(&change).copied().unwrap_or_default();
        assert!(times > 0, "{change:?} never came");
        let idle = matches!(change, Change::Describe | Change::KeepPower);
        assert_eq!(steps == 0, idle, "{change:?} announced {steps} steps");
    }
}

/// Makes one machine's changes. Returns the number of announced steps of each.
async fn live(fleet: Arc<Fleet>, machine: SimMachine, mut dice: Dice) -> Vec<(Change, usize)> {
    let name = machine.options().name.clone();
    let mut spec = machine_spec(&machine);
    fleet.declare("machines", &name, spec.clone()).await;
    fleet.ready("machines", &name).await;
    let mut deployment: Option<Value> = None;
    let mut made = Vec::new();
    while made.len() < changes() {
        fleet.settled(&name).await;
        let change = dice.change();
        let deployed = deployment.clone();
        let (plural, wanted) = match (change, deployed) {
            (Change::Deploy, None) => {
                let mut deployment = deployment_spec(&name);
                deployment["readiness"]["check"] = dice.one_of(&["installed", "booted", "cloud_init"]);
                deployment["release"] = json!({ "erase": dice.one_of(&["none", "quick", "full"]) });
                ("deployments", Some(deployment))
            }
            (Change::Undeploy, Some(_)) => ("deployments", None),
            (Change::Redeploy, Some(mut deployment)) => {
                deployment["redeploy"] = json!("in_place");
                deployment["kernel_options"] = json!(format!("change={}", made.len()));
                ("deployments", Some(deployment))
            }
            (Change::Describe, Some(mut deployment)) => {
                deployment["description"] = json!(format!("change {}", made.len()));
                ("deployments", Some(deployment))
            }
            (Change::Power, _) => {
                spec["power"] = dice.one_of(&["auto", "on", "off"]);
                ("machines", Some(spec.clone()))
            }
            (Change::KeepPower, _) => {
                spec["commissioning"] = json!({ "keep_power": dice.below(2) == 1 });
                ("machines", Some(spec.clone()))
            }
            // This change is not possible now.
            (Change::Deploy, Some(_)) | (Change::Undeploy | Change::Redeploy | Change::Describe, None) => {
                continue;
            }
        };
        let announced = fleet.dry_run(plural, &name, wanted.as_ref()).await;
        let announced: Vec<String> = announced.into_iter().filter(|step| has_effect(step)).collect();
        let before = fleet.recorded(&name).await.len();
        match &wanted {
            Some(wanted) => fleet.declare(plural, &name, wanted.clone()).await,
            None => fleet.gone(plural, &name).await,
        }
        if plural == "deployments" {
            deployment.clone_from(&wanted);
        }
        if deployment.is_some() {
            fleet.ready("deployments", &name).await;
        }
        fleet.settled(&name).await;
        let recorded = fleet.recorded(&name).await.split_off(before);
        if recorded != announced {
            let story = fleet.story("machines", &name).await;
            panic!(
                "{name}, change {}: {change:?} to {wanted:?} did {recorded:?}, and announced {announced:?}\n{story}",
                made.len()
            );
        }
        made.push((change, announced.len()));
    }
    made
}

fn has_effect(step: &str) -> bool {
    STEPS.iter().any(|row| row.name == step && row.effect != EffectKind::Observe)
}
