//! The provider under the mini core, which checks Terraform's rules with many random configurations.

use std::collections::BTreeMap;

use basalt_api::Kind;
use tfplugin::testing::{Lived, MiniCore, Random};
use tfplugin::{Val, from_json};

use crate::kinds::{Declared, declared};
use crate::world::within;

/// Number of configurations of each example.
const CONFIGS: usize = 6;
const SEEDS: u64 = 3;

/// True for kinds that need no convergence. Nothing converges machines here, and the deletion of machines and deployments
/// would wait for that.
fn lives(kind: &Kind) -> bool {
    kind.declarable && !["Machine", "Deployment"].contains(&kind.name)
}

/// An example as a configuration.
fn config(core: &MiniCore, example: &Declared) -> Val {
    let attributes = core.attributes(example.kind.terraform_name).expect("a resource");
    let given = attributes.iter().map(|attribute| {
        let value = match example.spec.get(&attribute.name) {
            Some(value) => from_json(value, &attribute.value_type()).expect("a value of its type"),
            None if attribute.name == "name" && !attribute.is_computed() => example.name.into(),
            None => Val::Null,
        };
        (attribute.name.clone(), value)
    });
    Val::Map(given.collect())
}

/// An example with other values, with fewer values, or both.
fn configured(core: &MiniCore, random: &mut Random, example: &Declared) -> Val {
    let mut below = |limit: usize| usize::try_from(random.below(limit as u64)).expect("an index");
    let (is_varied, is_less) = [(true, false), (false, true), (true, true)][below(3)];
    let varied = if is_varied { example.clone().varied(below) } else { example.clone() };
    let whole = config(core, &varied);
    if is_less { random.less(core, example.kind.terraform_name, &whole) } else { whole }
}

#[test]
fn every_kind_keeps_the_contract_with_whatever_values_and_whatever_is_left_out() {
    within(async |world| {
        let block = [("endpoint", world.endpoint.clone().into()), ("token", world.token.clone().into())];
        let block = Val::from(block);
        let mut all: BTreeMap<&str, Lived> = BTreeMap::new();
        for example in declared().into_iter().map(Declared::without_references_to_others) {
            let there = world.client("test").find(example.kind, example.name).await.expect("an answer");
            if lives(example.kind) && there.is_none() {
                // A separate run for each object, because its replacement also replaces objects that refer to it.
                let provider = terraform_provider_basalt::provider();
                let mut core = MiniCore::start(provider, &block).await.expect("it starts");
                for seed in 0..SEEDS {
                    let mut random = Random::new(seed);
                    let configs: Vec<Val> =
                        (0..CONFIGS).map(|_| configured(&core, &mut random, &example)).collect();
                    let name = |state: &Val| state.get("name").as_str().map(str::to_owned);
                    let lived = core.live(example.kind.terraform_name, &configs, name).await;
                    let lived = lived.unwrap_or_else(|broken| {
                        panic!("{} {}, seed {seed}: {broken}\n{configs:#?}", example.kind.name, example.name)
                    });
                    let sum = all.entry(example.kind.name).or_default();
                    sum.refused += lived.refused;
                    sum.created += lived.created;
                    sum.updated += lived.updated;
                    sum.imported += lived.imported;
                    sum.identified += lived.identified;
                }
                core.stop().await;
            }
            world.put("cli", example.kind.name, example.name, example.spec).await;
        }
        eprintln!("{all:#?}");
        for (kind, lived) in &all {
            assert!(lived.created > 0 && lived.updated > 0, "{kind}: {lived:?}");
            assert!(lived.imported > 0 && lived.identified > 0, "{kind}: {lived:?}");
        }
        assert!(all.len() > 12, "{all:?}");
        world.end().await;
    });
}
