//! Random histories, against a model of what a subnet should hold.

use super::{delete, gaps, has, new_subnet};
use crate::common::{machine, open, put};
use crate::dice::Dice;
use basalt_db::{Store, StoreError};
use serde_json::json;
use sqlx::{Connection, PgConnection};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

/// The expected content of the subnet 10.99.0.0/27, by the last byte.
#[derive(Default, Debug)]
struct World {
    gateway: Option<u8>,
    /// Addresses of IpAddresses by name.
    addresses: BTreeMap<String, u8>,
    /// Addresses of Machines by name.
    machines: BTreeMap<String, u8>,
    /// Ranges by name: first, last, and true if dynamic.
    ranges: BTreeMap<String, (u8, u8, bool)>,
}

impl World {
    fn ip(byte: u8) -> String {
        Ipv4Addr::new(10, 99, 0, byte).to_string()
    }

    fn range_of(&self, byte: u8) -> Option<&(u8, u8, bool)> {
        self.ranges.values().find(|(first, last, _)| (*first..=*last).contains(&byte))
    }

    fn owner(&self, byte: u8) -> Option<&str> {
        let gateway = (self.gateway == Some(byte)).then_some("gateway");
        let mut owners = self.addresses.iter().chain(&self.machines);
        gateway.or_else(|| owners.find(|(_, b)| **b == byte).map(|(name, _)| name.as_str()))
    }

    fn free(&self) -> impl Iterator<Item = u8> {
        (1..31).filter(|byte| self.owner(*byte).is_none() && self.range_of(*byte).is_none())
    }

    /// True if `who` can have that address.
    fn can_have(&self, who: &str, byte: u8) -> bool {
        (1..31).contains(&byte)
            && self.owner(byte).is_none_or(|owner| owner == who)
            && self.range_of(byte).is_none_or(|(_, _, dynamic)| !dynamic)
    }

    fn can_be(&self, name: &str, range: (u8, u8, bool)) -> bool {
        let (first, last, dynamic) = range;
        let apart = |(other, (f, l, _)): (&String, &(u8, u8, bool))| other == name || last < *f || *l < first;
        let mut bytes = first..=last;
        first <= last
            && last < 32
            && self.ranges.iter().all(apart)
            && (!dynamic || bytes.all(|byte| (1..31).contains(&byte) && self.owner(byte).is_none()))
    }
}

/// Makes one random change in the store and in the world. Either both accept it, or neither.
async fn change(store: &Store, world: &mut World, dice: &mut Dice) {
    let name = |dice: &mut Dice| format!("n{}", dice.roll(12));
    let byte = |dice: &mut Dice| u8::try_from(dice.roll(34)).unwrap();
    let ok = |result: Result<_, StoreError>| match result {
        Ok(_) => true,
        Err(StoreError::Refused { .. }) => false,
        Err(other) => panic!("{other:?}"),
    };
    match dice.roll(10) {
        0..=2 => {
            let (who, free) = (name(dice), world.free().next());
            let stored = ok(put(store, "IpAddress", &who, json!({"subnet": "lab"})).await);
            match (world.addresses.get(&who), free) {
                (None, None) => assert!(!stored, "{who}: nothing is free: {world:?}"),
                (had, free) => {
                    let expected = had.copied().or(free).unwrap();
                    assert!(stored);
                    assert_eq!(has(store, &who).await, World::ip(expected), "{who}: {world:?}");
                    world.addresses.insert(who, expected);
                }
            }
        }
        3 => {
            let (who, byte) = (name(dice), byte(dice));
            let spec = json!({"subnet": "lab", "address": World::ip(byte)});
            let stored = ok(put(store, "IpAddress", &who, spec).await);
            assert_eq!(stored, world.can_have(&who, byte), "{who} wants {byte}: {world:?}");
            if stored {
                world.addresses.insert(who, byte);
            }
        }
        4 => {
            let who = name(dice);
            if world.addresses.remove(&who).is_some() {
                delete(store, "IpAddress", &who).await;
            }
        }
        5 => {
            let (which, first) = (format!("r{}", dice.roll(4)), byte(dice));
            let range = (first, first.saturating_add(u8::try_from(dice.roll(8)).unwrap()), dice.roll(2) == 0);
            let purpose = if range.2 { "dynamic" } else { "reserved" };
            let spec = json!({"subnet": "lab", "start": World::ip(range.0), "end": World::ip(range.1), "purpose": purpose});
            let stored = ok(put(store, "IpRange", &which, spec).await);
            assert_eq!(stored, world.can_be(&which, range), "{which} {range:?}: {world:?}");
            if stored {
                world.ranges.insert(which, range);
            }
        }
        6 => {
            let (n, byte) = (dice.roll(4), byte(dice));
            let (who, mut spec) = (format!("m{n}"), machine(&format!("52:54:00:00:00:0{n}")));
            spec["network"] = json!({"interfaces": {"eth0": {
                "addressing": "static", "subnet": "lab", "address": World::ip(byte)}}});
            let stored = ok(put(store, "Machine", &who, spec).await);
            assert_eq!(stored, world.can_have(&who, byte), "{who} wants {byte}: {world:?}");
            if stored {
                world.machines.insert(who, byte);
            }
        }
        7 => {
            let n = dice.roll(4);
            if world.machines.remove(&format!("m{n}")).is_some() {
                let spec = machine(&format!("52:54:00:00:00:0{n}"));
                put(store, "Machine", &format!("m{n}"), spec).await.unwrap();
            }
        }
        8 => {
            let which = format!("r{}", dice.roll(4));
            if world.ranges.remove(&which).is_some() {
                delete(store, "IpRange", &which).await;
            }
        }
        _ => {
            let byte = Some(byte(dice)).filter(|_| dice.roll(3) > 0);
            let mut spec = json!({"vlan": "default.0", "cidr": "10.99.0.0/27"});
            if let Some(byte) = byte {
                spec["gateway"] = json!(World::ip(byte));
            }
            // Outside of the network it would be refused before it came to the store.
            let fits = byte.is_none_or(|byte| (1..31).contains(&byte));
            if fits {
                let stored = ok(put(store, "Subnet", "lab", spec).await);
                assert_eq!(
                    stored,
                    byte.is_none_or(|byte| world.can_have("gateway", byte)),
                    "{byte:?}: {world:?}"
                );
                if stored {
                    world.gateway = byte;
                }
            }
        }
    }
}

#[tokio::test]
async fn whatever_happens_every_usable_address_is_free_or_taken_and_never_both() {
    for seed in 1..=4 {
        let url = basalt_db::testing::database().await;
        let store = open(&url, [7; 32]).await.unwrap();
        put(&store, "Fabric", "default", json!({})).await.unwrap();
        put(&store, "Vlan", "default.0", json!({"fabric": "default", "vid": 0})).await.unwrap();
        let lab = new_subnet(&store, "lab", "10.99.0.0/27").await;
        let mut db = PgConnection::connect(&url).await.unwrap();
        let (mut world, mut dice) = (World::default(), Dice(seed));
        let mut most = (0, 0);
        for step in 0..250 {
            change(&store, &mut world, &mut dice).await;
            most = (most.0.max(world.addresses.len()), most.1.max(world.ranges.len()));
            let mut expected: Vec<(u8, u8)> = Vec::new();
            for byte in world.free() {
                match expected.last_mut() {
                    Some((_, last)) if *last + 1 == byte => *last = byte,
                    _ => expected.push((byte, byte)),
                }
            }
            let ip = |byte: u8| IpAddr::from(Ipv4Addr::new(10, 99, 0, byte));
            let expected: Vec<_> = expected.into_iter().map(|(f, l)| (ip(f), ip(l))).collect();
            assert_eq!(gaps(&mut db, lab).await, expected, "seed {seed}, step {step}: {world:?}");
            let taken: BTreeSet<String> =
                super::addresses(&store).await.into_iter().map(|a| a.address.to_string()).collect();
            let ours = world.addresses.values().copied().chain(world.gateway).map(World::ip);
            assert_eq!(taken, ours.collect(), "seed {seed}, step {step}");
        }
        assert!(most.0 > 5 && most.1 > 1, "the history did something: {most:?}");
    }
}
