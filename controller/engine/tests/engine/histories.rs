//! Random histories: people change declarations, hardware fails, racks disconnect, regions die at every step.
//!
//! The world checks that nothing forbidden happens on the way. From any end of a history, once its faults are repaired, the machine
//! must reach its declared state and stay there.

use basalt_api::kinds::{EraseMethod, MachineMode, PowerPolicy, Readiness, Redeploy, Wipe};
use basalt_api::wire::Verb;
use basalt_engine::machine::judge;
use proptest::prelude::*;

use crate::world::hardware::{FAULTS, Fault};
use crate::world::{Crash, World, image, ready};

/// An event of a history.
#[derive(Clone, Debug)]
enum Happening {
    /// The region reconciles, and may die.
    Reconcile(Crash),
    /// Seconds of time pass.
    Advance(i64),
    Deploy(Readiness, Redeploy, EraseMethod),
    Undeploy,
    /// The deployment's spec changes: in content that is written to disk, or in other fields.
    Respec(bool),
    NewImage(u8),
    Fault(Fault),
    Mend(Fault),
    RackGoes,
    RackComes {
        loses_spool: bool,
    },
    SecondRack(bool),
    Press(bool),
    Lock(bool),
    Mode(MachineMode),
    Power(PowerPolicy),
    Recommission,
    RunScript,
    Rescue,
    Delete,
}

fn happening() -> impl Strategy<Value = Happening> {
    use Happening as H;
    let crash = prop_oneof![
        6 => Just(Crash::Never),
        1 => Just(Crash::BeforeRecord),
        1 => Just(Crash::AfterRecord),
        1 => Just(Crash::AfterEffect),
    ];
    let fault = || proptest::sample::select(&FAULTS[..]);
    let readiness =
        prop_oneof![Just(Readiness::Installed), Just(Readiness::Booted), Just(Readiness::CloudInit)];
    let redeploy = prop_oneof![Just(Redeploy::Refuse), Just(Redeploy::InPlace)];
    let erase = prop_oneof![Just(EraseMethod::None), Just(EraseMethod::Quick), Just(EraseMethod::Full)];
    let mode = prop_oneof![
        4 => Just(MachineMode::Managed), 1 => Just(MachineMode::Rescue),
        1 => Just(MachineMode::Broken), 1 => Just(MachineMode::Retired)
    ];
    let power = prop_oneof![Just(PowerPolicy::Auto), Just(PowerPolicy::On), Just(PowerPolicy::Off)];
    prop_oneof![
        40 => crash.prop_map(H::Reconcile),
        30 => prop_oneof![Just(5), Just(30), Just(90), Just(600), Just(4000)].prop_map(H::Advance),
        6 => (readiness, redeploy, erase).prop_map(|(a, b, c)| H::Deploy(a, b, c)),
        4 => Just(H::Undeploy),
        4 => any::<bool>().prop_map(H::Respec),
        1 => any::<u8>().prop_map(H::NewImage),
        4 => fault().prop_map(H::Fault),
        6 => fault().prop_map(H::Mend),
        2 => Just(H::RackGoes),
        4 => any::<bool>().prop_map(|loses_spool| H::RackComes { loses_spool }),
        2 => any::<bool>().prop_map(H::SecondRack),
        2 => any::<bool>().prop_map(H::Press),
        1 => any::<bool>().prop_map(H::Lock),
        1 => mode.prop_map(H::Mode),
        2 => power.prop_map(H::Power),
        1 => Just(H::Recommission),
        3 => Just(H::RunScript),
        3 => Just(H::Rescue),
        1 => Just(H::Delete),
    ]
}

fn happen(world: &mut World, what: &Happening) {
    use Happening as H;
    match what.clone() {
        H::Reconcile(crash) => {
            world.reconcile(crash);
        }
        H::Advance(seconds) => world.advance(seconds),
        H::Deploy(check, redeploy, erase) => world.deploy(|spec| {
            spec.readiness.check = check;
            spec.redeploy = redeploy;
            spec.release.erase = erase;
        }),
        H::Undeploy => world.undeploy(),
        H::Respec(true) => world.respec(|spec| {
            let more = spec.kernel_options.clone().unwrap_or_default();
            spec.kernel_options = Some(format!("{more} x"));
        }),
        H::Respec(false) => world.respec(|spec| spec.description = Some("other words".to_owned())),
        H::NewImage(digest) => {
            if let Some(claim) = &mut world.input.claim {
                claim.image = Some(basalt_engine::input::ResolvedImage {
                    digest: basalt_api::values::Sha256::new([digest; 32]),
                    ..image()
                });
            }
        }
        H::Fault(fault) => {
            world.hardware.faults.insert(fault);
        }
        H::Mend(fault) => {
            world.hardware.faults.remove(&fault);
        }
        H::RackGoes => world.connect(false, false),
        H::RackComes { loses_spool } => world.connect(true, loses_spool),
        H::SecondRack(here) => world.second_rack(here),
        H::Press(on) => {
            // No person pulls the plug while the disk is being written.
            if !world.hardware.writing(&world.tasks) {
                world.press(on);
            }
        }
        H::Lock(locked) => world.remachine(|spec| spec.locked = locked),
        H::Mode(mode) => world.remachine(|spec| spec.mode = mode),
        H::Power(power) => world.remachine(|spec| spec.power = power),
        H::RunScript => run_script(world, Verb::RunScript),
        H::Rescue => run_script(world, Verb::Rescue),
        H::Recommission => world.input.recommission_requested_at = Some(world.now),
        H::Delete => {
            world.input.deletion_requested_at.get_or_insert(world.now);
        }
    }
}

/// Requests one script at a time, as the region accepts them.
fn run_script(world: &mut World, verb: Verb) {
    let runs = |verb| matches!(verb, Verb::RunScript | Verb::Rescue);
    let is_open = world.input.operations.iter().any(|it| runs(it.verb));
    if !is_open && judge(&world.input, &world.policy, world.now, verb).is_ok() {
        world.ask(verb);
    }
}

/// A person does what the waits ask for.
fn mend(world: &mut World) {
    world.hardware.faults.clear();
    world.connect(true, false);
    world.second_rack(true);
    world.remachine(|spec| {
        spec.locked = false;
        spec.mode = MachineMode::Managed;
    });
    world.respec(|spec| spec.wipe = Wipe::Always);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_history_is_safe_and_ends_as_declared(
        scripted in any::<bool>(),
        story in proptest::collection::vec(happening(), 1..120),
    ) {
        let mut world = if scripted { World::new().with_scripts() } else { World::new() };
        for what in &story {
            happen(&mut world, what);
            prop_assert_eq!(&world.violations, &Vec::<String>::new(), "after {:?}", what);
        }
        mend(&mut world);
        // All operations must have ended, too.
        let waits_for_owner = |world: &World, plan: &basalt_engine::Plan| {
            // A task that is no longer requested may still run.
            world.hardware.next_event().is_none()
                && plan.next.is_empty()
                && plan.operations.is_empty()
                && plan.waits.iter().all(|w| w.code == "Claimed")
        };
        let mut settled = world.run(72, waits_for_owner);
        if !settled && world.plan().waits.iter().all(|w| w.code == "NotReady") {
            // Only a person at the machine can repair this: the report of an installed system was lost.
            world.press(true);
            settled = world.run(72, waits_for_owner);
        }
        prop_assert!(settled, "{:#?}", world.plan());
        prop_assert_eq!(&world.violations, &Vec::<String>::new());
        if world.gone {
            return Ok(());
        }
        let plan = world.plan();
        let claimed = world.input.claim.as_ref();
        prop_assert_eq!(plan.report.deployed, claimed.is_some(), "{:?}", plan);
        if claimed.is_none() {
            prop_assert!(world.input.deletion_requested_at.is_none(), "a deleted machine is gone");
            prop_assert!(world.input.facts.inventory.is_some());
            // With `auto`, a machine stays as a person has switched it.
            let policy = world.input.spec.power;
            prop_assert!(policy == PowerPolicy::Auto || world.hardware.on == (policy == PowerPolicy::On));
        }
        // Another plan, now or much later, has no steps.
        let begun = world.recorded.len();
        world.run(48, |_, _| false);
        prop_assert_eq!(world.recorded.len(), begun, "{:?}", world.recorded);
        prop_assert!(ready(&world, &world.plan()) || plan.waits.iter().all(|w| w.code == "Claimed"));
        prop_assert_eq!(world.plan().digest, plan.digest, "time alone changes no digest");
    }
}
