//! The steps that a plan announces are those that are done: tested with random changes of a settled machine, without faults.

use basalt_api::kinds::{EraseMethod, PowerPolicy, Readiness, Redeploy};
use proptest::prelude::*;

use crate::world::{World, ready};

/// A change of the declarations.
#[derive(Clone, Debug)]
enum Change {
    Deploy(Readiness, EraseMethod),
    Undeploy,
    RedeployInPlace,
    DescribeOnly,
    Recommission,
    Power(PowerPolicy),
    KeepPower(bool),
    Delete,
}

fn change() -> impl Strategy<Value = Change> {
    use Change as C;
    let readiness =
        prop_oneof![Just(Readiness::Installed), Just(Readiness::Booted), Just(Readiness::CloudInit)];
    let erase = prop_oneof![Just(EraseMethod::None), Just(EraseMethod::Quick), Just(EraseMethod::Full)];
    let power = prop_oneof![Just(PowerPolicy::Auto), Just(PowerPolicy::On), Just(PowerPolicy::Off)];
    prop_oneof![
        6 => (readiness, erase).prop_map(|(r, e)| C::Deploy(r, e)),
        4 => Just(C::Undeploy),
        3 => Just(C::RedeployInPlace),
        1 => Just(C::DescribeOnly),
        2 => Just(C::Recommission),
        2 => power.prop_map(C::Power),
        1 => any::<bool>().prop_map(C::KeepPower),
        1 => Just(C::Delete),
    ]
}

fn apply(world: &mut World, change: &Change) {
    match *change {
        Change::Deploy(check, erase) => world.deploy(|spec| {
            spec.readiness.check = check;
            spec.release.erase = erase;
        }),
        Change::Undeploy => world.undeploy(),
        Change::RedeployInPlace => world.respec(|spec| {
            spec.redeploy = Redeploy::InPlace;
            let more = spec.kernel_options.clone().unwrap_or_default();
            spec.kernel_options = Some(format!("{more} x"));
        }),
        Change::DescribeOnly => world.respec(|spec| spec.description = Some("other words".to_owned())),
        Change::Recommission if world.input.claim.is_none() => {
            world.input.recommission_requested_at = Some(world.now)
        }
        Change::Recommission => {}
        Change::Power(power) => world.remachine(|spec| spec.power = power),
        Change::KeepPower(keep) => world.remachine(|spec| spec.commissioning.keep_power = keep),
        Change::Delete if world.input.claim.is_none() => world.input.deletion_requested_at = Some(world.now),
        Change::Delete => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_announced_steps_are_the_recorded_steps(changes in proptest::collection::vec(change(), 1..8)) {
        let mut world = World::new();
        prop_assert!(world.run(4, ready));
        for change in &changes {
            if world.gone {
                break;
            }
            world.advance(30);
            apply(&mut world, change);
            world.recorded.clear();
            let announced = world.plan().announced();
            prop_assert!(world.run(8, ready), "{change:?}: {:?}", world.plan().waits);
            prop_assert_eq!(&world.recorded, &announced, "{:?}", change);
        }
        prop_assert_eq!(&world.violations, &Vec::<String>::new());
    }
}
