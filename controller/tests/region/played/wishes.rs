//! The wishes of people in a history. The site has m0 in zone a; a site with two machines has m1 in zone b too. Deployments name a
//! machine, ask for a zone, or ask for a tag, which moves between the machines.
//!
//! Wishes are drawn so that all of them can be granted at the same time: no deployment waits for ever.

use super::world::{World, deployment, machine};
use basalt_api::wire::Verb;
use basalt_db::testing::churn::Dice;
use basalt_db::{Key, NewOperation, NoJudge, StoreError};
use serde_json::{Value, json};
use std::time::Duration;

/// The tag that moves.
const TAG: &str = "chosen";

/// The requirement of a deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    /// The machine m0, by name.
    Name,
    /// A machine of zone b, which is m1.
    Zone,
    /// The machine with the tag.
    Tag,
}

impl Asks {
    /// The possible requirements with this number of machines.
    const fn of(machines: usize) -> &'static [Self] {
        if machines == 1 { &[Self::Name] } else { &[Self::Name, Self::Zone, Self::Tag] }
    }

    fn spec(self) -> Value {
        let mut spec = deployment("m0");
        let selector = match self {
            Self::Name => return spec,
            Self::Zone => json!({"zone": "b"}),
            Self::Tag => json!({"tags": [TAG]}),
        };
        spec.as_object_mut().expect("an object").remove("machine");
        spec["selector"] = selector;
        spec
    }
}

/// An action of a person. The undisturbed run has the same actions.
#[derive(Clone, Debug)]
enum Wish {
    Deploy(String, Asks),
    Undeploy(String),
    Redeploy(String, Asks, usize),
    Power(usize, &'static str),
    Lock(usize, bool),
    /// The tag moves to the other machine.
    Wander,
    Recommission(usize),
    /// m1 is deleted, and declared again once it is gone.
    Replace,
}

/// The wishes so far.
#[derive(Clone, Debug, Default)]
struct Wanted {
    deployments: Vec<(String, Asks)>,
    /// The machine with the tag.
    tagged: usize,
    /// True if the tag moved while a deployment asked for it: the deployment may have either machine.
    wandered: bool,
    locked: Option<usize>,
}

impl Wanted {
    fn by(&self, asks: Asks) -> Option<&String> {
        self.deployments.iter().find(|(_, how)| *how == asks).map(|(name, _)| name)
    }

    /// True if a deployment has the machine, or may have it.
    fn taken(&self, machine: usize) -> bool {
        let by_tag = self.by(Asks::Tag).is_some() && (self.wandered || self.tagged == machine);
        let own = [Asks::Name, Asks::Zone][machine];
        by_tag || self.by(own).is_some()
    }

    /// All wishes that are possible next.
    fn possible(&self, number: usize, machines: usize) -> Vec<Wish> {
        let mut possible = Vec::new();
        for asks in Asks::of(machines).iter().copied() {
            let machine = [0, 1, self.tagged][asks as usize];
            match self.by(asks) {
                Some(name) => {
                    possible.push(Wish::Undeploy(name.clone()));
                    possible.push(Wish::Redeploy(name.clone(), asks, number));
                }
                None if !self.taken(machine) => possible.push(Wish::Deploy(format!("d{number}"), asks)),
                None => {}
            }
        }
        let other = 1 - self.tagged;
        if machines > 1 && (self.by(Asks::Tag).is_none() || self.wandered || !self.taken(other)) {
            possible.push(Wish::Wander);
        }
        for machine in 0..machines {
            possible.push(Wish::Power(machine, ["auto", "on", "off"][number % 3]));
            possible.push(Wish::Recommission(machine));
            if self.locked.is_none_or(|locked| locked == machine) {
                possible.push(Wish::Lock(machine, self.locked.is_none()));
            }
        }
        if machines > 1 && !self.taken(1) && self.locked != Some(1) {
            possible.push(Wish::Replace);
        }
        possible
    }

    fn want(&mut self, wish: &Wish) {
        match wish {
            Wish::Deploy(name, asks) => self.deployments.push((name.clone(), *asks)),
            Wish::Undeploy(name) => {
                self.deployments.retain(|(other, _)| other != name);
                self.wandered &= self.by(Asks::Tag).is_some();
            }
            Wish::Lock(machine, lock) => self.locked = lock.then_some(*machine),
            Wish::Wander => {
                self.tagged = 1 - self.tagged;
                self.wandered |= self.by(Asks::Tag).is_some();
            }
            _ => {}
        }
    }
}

/// The wishes of one history.
#[derive(Clone, Debug)]
pub(crate) struct Wishes {
    wishes: Vec<Wish>,
    /// True if the order of events decides which deployment gets which machine.
    pub(crate) open: bool,
}

impl Wishes {
    pub(crate) fn draw(dice: &mut Dice, number: usize, machines: usize) -> Self {
        let (mut wanted, mut wishes, mut open) = (Wanted::default(), Vec::new(), false);
        for number in 0..number {
            let possible = wanted.possible(number, machines);
            let drawn = usize::try_from(dice.below(possible.len() as u64)).expect("small");
            wanted.want(&possible[drawn]);
            open |= wanted.wandered;
            wishes.push(possible[drawn].clone());
        }
        wishes.extend(wanted.locked.map(|machine| Wish::Lock(machine, false)));
        Self { wishes, open }
    }

    pub(crate) fn count(&self) -> usize {
        self.wishes.len()
    }
}

/// Grants wishes one after the other.
#[derive(Clone)]
pub(crate) struct Granting {
    wishes: std::vec::IntoIter<Wish>,
    machines: Vec<Value>,
    tagged: usize,
    locked: bool,
}

impl Granting {
    pub(crate) async fn begin(wishes: &Wishes, world: &mut World) -> Self {
        let wishes = wishes.wishes.clone().into_iter();
        let machines = (0..world.names.len()).map(machine).collect();
        let granting = Self { wishes, machines, tagged: 0, locked: false };
        granting.declare(world, 0, true).await;
        granting
    }

    /// True if no machine is locked, so that everything can come to rest.
    pub(crate) fn settles(&self) -> bool {
        !self.locked
    }

    fn spec(&self, machine: usize) -> Value {
        let mut spec = self.machines[machine].clone();
        if self.tagged == machine {
            spec["tags"] = json!([TAG]);
        }
        spec
    }

    async fn declare(&self, world: &mut World, machine: usize, wakes: bool) {
        world.declare_machine(&format!("m{machine}"), &self.spec(machine), wakes).await;
    }

    /// Grants the next wish, and returns its description. `None` when there are no more.
    pub(crate) async fn grant(&mut self, world: &mut World, wakes: bool) -> Option<String> {
        let wish = self.wishes.next()?;
        match &wish {
            Wish::Deploy(name, asks) => world.declare("Deployment", name, &asks.spec(), wakes).await,
            Wish::Undeploy(name) => world.delete("Deployment", name).await,
            Wish::Redeploy(name, asks, number) => {
                let mut spec = asks.spec();
                spec["kernel_options"] = json!(format!("n={number}"));
                world.declare("Deployment", name, &spec, wakes).await;
            }
            Wish::Power(machine, power) => {
                self.machines[*machine]["power"] = json!(power);
                self.declare(world, *machine, wakes).await;
            }
            Wish::Lock(machine, lock) => {
                self.locked = *lock;
                self.machines[*machine]["locked"] = json!(lock);
                self.declare(world, *machine, wakes).await;
            }
            Wish::Wander => {
                self.tagged = 1 - self.tagged;
                self.declare(world, 0, wakes).await;
                self.declare(world, 1, wakes).await;
            }
            Wish::Recommission(machine) => {
                let uid = world.names[&format!("m{machine}")];
                let new = NewOperation {
                    verb: Verb::Recommission,
                    script: None,
                    tests: &[],
                    because: None,
                    lasts: Duration::from_secs(3600),
                    request_key: None,
                };
                let asked =
                    world.store().request_operation(Key::Uid(uid.into()), &new, (false, &NoJudge)).await;
                assert!(matches!(asked, Ok(_) | Err(StoreError::NotFound { .. })), "{asked:?}");
            }
            Wish::Replace => world.replace("m1", &self.spec(1)).await,
        }
        Some(format!("{wish:?}"))
    }
}
