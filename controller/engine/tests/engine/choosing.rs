//! The choice of machines for deployments, and the messages while there is none.

use std::collections::BTreeMap;

use basalt_api::kinds::{
    Architecture, Condition, ConditionStatus, Cpu, DeploymentSpec, Disk, DiskWish, Gpu, GpuWish, Interface,
    InterfaceWish, Inventory, Lifecycle, MachineMode, Neighbour, NeighbourProtocol, Preference, Selector,
    SpreadBy, StorageDisk, StorageLayout,
};
use basalt_api::values::{ByteSize, DeploymentId, MachineId};
use basalt_engine::deployment::{DeploymentAction, DeploymentInput, DeploymentPlan, plan_deployment};
use basalt_engine::select::{
    Attached, Candidate, Choice, Ground, MachineRequest, Placed, allocate, lacks, selector,
};
use proptest::prelude::*;

use crate::world::{World, at, deployment_spec, ready, uuid};

fn candidate(n: u128, cores: u32, zone: &str) -> Candidate {
    let mut inventory = Inventory { memory_bytes: 8 << 30, ..Inventory::default() };
    inventory.cpu = Cpu { cores, ..Cpu::default() };
    Candidate {
        uid: MachineId::from(uuid(n)),
        name: format!("m{n}"),
        architecture: Architecture::Amd64,
        zone: zone.to_owned(),
        pool: "default".to_owned(),
        rack: None,
        tags: ["ssd".to_owned()].into(),
        inventory: Some(inventory),
        attached: BTreeMap::new(),
        lifecycle: Lifecycle::Ready,
        mode: MachineMode::Managed,
        locked: false,
        owner: None,
        deleting: false,
        unwiped: false,
        obstructed: None,
    }
}

fn fleet() -> Vec<Candidate> {
    let mut taken = candidate(4, 8, "b");
    taken.owner = Some("db".to_owned());
    vec![candidate(1, 32, "a"), candidate(2, 8, "a"), candidate(3, 8, "b"), taken]
}

fn wish(n: u128, selector: &Selector) -> MachineRequest {
    MachineRequest {
        uid: DeploymentId::from(uuid(1000 + n)),
        name: format!("web-{n}"),
        created_at: at(0),
        machine: None,
        selector: selector.clone(),
        architecture: None,
        not_installable: false,
        inherits_network: false,
    }
}

/// The machine that each wish got.
fn given(wishes: &[MachineRequest], candidates: &[Candidate]) -> Vec<Option<String>> {
    let choices = allocate(wishes, &[], candidates);
    let name = |machine| candidates.iter().find(|c| c.uid == machine).map(|c| c.name.clone());
    let of = |wish: &MachineRequest| match &choices[&wish.uid] {
        Choice::Chosen { machine, .. } => name(*machine),
        Choice::None(_) => None,
    };
    wishes.iter().map(of).collect()
}

fn chosen(selector: &Selector, candidates: &[Candidate]) -> Option<String> {
    given(&[wish(1, selector)], candidates).remove(0)
}

#[test]
fn the_least_machine_that_suffices_is_chosen_whatever_the_order() {
    let selector = Selector { min_cores: Some(8), ..Selector::default() };
    let mut machines = fleet();
    assert_eq!(chosen(&selector, &machines).as_deref(), Some("m2"));
    machines.reverse();
    assert_eq!(chosen(&selector, &machines).as_deref(), Some("m2"));
    let elsewhere = Selector { not_zone: ["a".parse().unwrap()].into(), ..selector };
    assert_eq!(chosen(&elsewhere, &machines).as_deref(), Some("m3"));
    let named = Selector { name: Some("*1".to_owned()), ..Selector::default() };
    assert_eq!(chosen(&named, &machines).as_deref(), Some("m1"));
}

#[test]
fn preferences_are_weighed_and_never_needed() {
    let prefer = |weight, zone: &str| {
        let zone = Some(zone.parse().unwrap());
        Preference { weight, zone, ..Preference::default() }
    };
    let large = Preference { weight: 3, min_cores: Some(32), ..Preference::default() };
    let mut selector = Selector::default();
    selector.preferences.insert("b".to_owned(), prefer(2, "b"));
    assert_eq!(chosen(&selector, &fleet()).as_deref(), Some("m3"));
    selector.preferences.insert("large".to_owned(), large);
    assert_eq!(chosen(&selector, &fleet()).as_deref(), Some("m1"), "3 is more than 2");
    selector.preferences.insert("nowhere".to_owned(), prefer(1000, "c"));
    assert_eq!(chosen(&selector, &fleet()).as_deref(), Some("m1"));
}

#[test]
fn each_disk_that_is_asked_for_is_another_one() {
    let mut machine = candidate(1, 8, "a");
    let disks = &mut machine.inventory.as_mut().unwrap().disks;
    let disk = |size: u64, rotational| Disk { rotational, ..Disk::new(size) };
    disks.insert("sda".to_owned(), disk(1_000, false));
    disks.insert("sdb".to_owned(), disk(4_000, true));
    let asks = |wishes: &[(&str, u64, Option<bool>)]| {
        let wish = |size, rotational| DiskWish {
            min_size: Some(ByteSize::new(size)),
            rotational,
            ..DiskWish::default()
        };
        let disks =
            wishes.iter().map(|(name, size, spins)| ((*name).to_owned(), wish(*size, *spins))).collect();
        Selector { disks, ..Selector::default() }
    };
    let does = |selector: &Selector| chosen(selector, std::slice::from_ref(&machine)).is_some();
    // Both disks fit "a", which leaves the large one to "b".
    assert!(does(&asks(&[("a", 500, None), ("b", 2_000, None)])));
    assert!(!does(&asks(&[("a", 2_000, None), ("b", 2_000, None)])), "there is one large disk");
    assert!(!does(&asks(&[("a", 2_000, Some(false))])), "the large one spins");
}

#[test]
fn storage_on_several_disks_needs_a_machine_that_has_them_unless_the_selector_speaks_of_disks_itself() {
    let mut machine = candidate(1, 8, "a");
    machine.inventory.as_mut().unwrap().disks.insert("sda".to_owned(), Disk::new(4_000));
    let mut declared = DeploymentSpec::new("debian".parse().unwrap());
    let gets_it = |declared: &DeploymentSpec, machine: &Candidate| {
        chosen(&selector(declared), std::slice::from_ref(machine)).is_some()
    };
    assert!(gets_it(&declared, &machine), "one disk will do");
    declared.storage.layout = StorageLayout::Raid1;
    assert!(!gets_it(&declared, &machine), "a mirror has two");
    machine.inventory.as_mut().unwrap().disks.insert("sdb".to_owned(), Disk::new(1_000));
    assert!(gets_it(&declared, &machine));
    for name in ["left", "right"] {
        let disk = StorageDisk { min_size: Some(ByteSize::new(2_000)), ..StorageDisk::default() };
        declared.storage.disks.insert(name.to_owned(), disk);
    }
    assert!(!gets_it(&declared, &machine), "one of them is too small");
    let disks = [("any".to_owned(), DiskWish::default())].into();
    declared.selector = Some(Selector { disks, ..Selector::default() });
    assert!(gets_it(&declared, &machine));
}

#[test]
fn one_interface_meets_all_of_its_conditions() {
    let mut machine = candidate(1, 8, "a");
    let on = |vid: u32| Attached {
        subnet: format!("lab{vid}"),
        vlan: format!("lab.{vid}"),
        fabric: "lab".to_owned(),
        fabric_class: Some("10g".to_owned()),
        space: Some("inside".to_owned()),
    };
    for (name, speed, vid) in [("eth0", 1_000, 1), ("eth1", 25_000, 2)] {
        let mut interface = Interface::new("52:54:00:00:00:01".parse().unwrap());
        interface.speed_mbps = Some(speed);
        let name_of_switch = format!("leaf-{vid}.example.com");
        let mut switch = Neighbour::new(NeighbourProtocol::Lldp, "00:1c:73:0a:0b:0c".into(), "Eth7".into());
        switch.system_name = Some(name_of_switch.clone());
        interface.neighbours.insert(name_of_switch, switch);
        machine.inventory.as_mut().unwrap().interfaces.insert(name.to_owned(), interface);
        machine.attached.insert(name.to_owned(), vec![on(vid)]);
    }
    let asks = |vlan: &str, min_speed| InterfaceWish {
        vlan: Some(vlan.parse().unwrap()),
        fabric: Some("lab".parse().unwrap()),
        fabric_class: Some("10g".to_owned()),
        space: Some("inside".parse().unwrap()),
        min_speed: Some(min_speed),
        ..InterfaceWish::default()
    };
    let does = |wishes: &[InterfaceWish]| {
        let interfaces = wishes.iter().enumerate().map(|(n, wish)| (n.to_string(), wish.clone())).collect();
        chosen(&Selector { interfaces, ..Selector::default() }, std::slice::from_ref(&machine)).is_some()
    };
    assert!(does(&[asks("lab.2", 10_000)]));
    assert!(!does(&[asks("lab.1", 10_000)]), "the fast one is on another VLAN");
    assert!(does(&[asks("lab.1", 100), asks("lab.2", 100)]));
    assert!(!does(&[asks("lab.2", 100), asks("lab.2", 100)]), "one interface is not two");
    let slow = InterfaceWish { fabric_class: Some("1g".to_owned()), ..InterfaceWish::default() };
    assert!(!does(&[slow]), "there is no fabric of that class");
    let at = |switch: &str, wish: InterfaceWish| InterfaceWish { switch: Some(switch.to_owned()), ..wish };
    assert!(does(&[at("leaf-1.*", InterfaceWish::default()), at("leaf-?.*", InterfaceWish::default())]));
    assert!(!does(&[at("leaf-1.*", asks("lab.2", 100))]), "that interface is at another switch");
    assert!(!does(&[at("leaf-1", InterfaceWish::default())]), "the pattern is of the whole name");
}

#[test]
fn gpus_are_counted_by_vendor_and_model() {
    let mut machine = candidate(1, 8, "a");
    for (at, vendor, model) in [("3b", "nvidia", "20b5"), ("3c", "nvidia", "20b5"), ("3d", "amd", "740f")] {
        let gpu = Gpu::new(vendor.to_owned(), model.to_owned());
        machine.inventory.as_mut().unwrap().gpus.insert(at.to_owned(), gpu);
    }
    let does = |vendor: Option<&str>, min_count| {
        let gpus = GpuWish { vendor: vendor.map(str::to_owned), min_count, ..GpuWish::default() };
        chosen(&Selector { gpus: Some(gpus), ..Selector::default() }, std::slice::from_ref(&machine))
            .is_some()
    };
    assert!(does(Some("NVIDIA"), 2) && does(None, 3));
    assert!(!does(Some("nvidia"), 3));
}

#[test]
fn each_condition_of_a_selector_leaves_out_the_machine_that_does_not_meet_it() {
    let mut machine = candidate(1, 8, "a");
    let inventory = machine.inventory.as_mut().unwrap();
    let mut disk = Disk::new(4_000_000_000);
    disk.transport = Some("nvme".to_owned());
    inventory.disks.insert("nvme0n1".to_owned(), disk);
    inventory.cpu.x86_64_level = Some(3);
    inventory.cpu.flags = ["avx2", "fma"].map(str::to_owned).into();
    inventory.interfaces.insert("eth0".to_owned(), Interface::new("52:54:00:00:00:01".parse().unwrap()));
    inventory.gpus.insert("3b".to_owned(), Gpu::new("nvidia".to_owned(), "20b5".to_owned()));
    let on = Attached {
        subnet: "lab".to_owned(),
        vlan: "lab.0".to_owned(),
        fabric: "lab".to_owned(),
        fabric_class: None,
        space: Some("inside".to_owned()),
    };
    machine.attached.insert("eth0".to_owned(), vec![on]);
    let cases = serde_json::json!([
        [{"architecture": "amd64"}, {"architecture": "arm64"}],
        [{"name": "m?"}, {"name": "n*"}],
        [{"zone": "a"}, {"zone": "b"}],
        [{"not_zone": ["b"]}, {"not_zone": ["a"]}],
        [{"pool": "default"}, {"pool": "web"}],
        [{"tags": ["ssd"]}, {"tags": ["gpu"]}],
        [{"not_tags": ["gpu"]}, {"not_tags": ["ssd"]}],
        [{"min_cores": 8}, {"min_cores": 9}],
        [{"min_x86_64_level": 3}, {"min_x86_64_level": 4}],
        [{"cpu_flags": ["avx2", "fma"]}, {"cpu_flags": ["avx2", "amx_tile"]}],
        [{"min_memory": "8GiB"}, {"min_memory": "9GiB"}],
        [{"min_disk": "4GB"}, {"min_disk": "5GB"}],
        [{"disks": {"a": {"transport": "nvme"}}}, {"disks": {"a": {"transport": "sata"}}}],
        [{"interfaces": {"a": {"subnet": "lab"}}}, {"interfaces": {"a": {"subnet": "other"}}}],
        [{"interfaces": {"a": {"vlan": "lab.0"}}}, {"interfaces": {"a": {"vlan": "lab.1"}}}],
        [{"interfaces": {"a": {"fabric": "lab"}}}, {"interfaces": {"a": {"fabric": "other"}}}],
        [{"interfaces": {"a": {"space": "inside"}}}, {"interfaces": {"a": {"space": "outside"}}}],
        [{"gpus": {"model": "20b5"}}, {"gpus": {"model": "20b6"}}],
    ]);
    for case in cases.as_array().unwrap() {
        let does = |of: usize| {
            let selector: Selector = serde_json::from_value(case[of].clone()).unwrap();
            chosen(&selector, std::slice::from_ref(&machine)).is_some()
        };
        assert_eq!((does(0), does(1)), (true, false), "{case}");
    }
    machine.architecture = Architecture::Arm64;
    let arm = Selector { architecture: Some(Architecture::Arm64), ..Selector::default() };
    assert!(chosen(&arm, std::slice::from_ref(&machine)).is_some());
}

#[test]
fn each_preference_chooses_between_machines_that_are_equal_else() {
    // The first one is taken where nothing is preferred.
    let first = candidate(1, 8, "a");
    let mut second = candidate(2, 8, "b");
    second.pool = "web".to_owned();
    second.tags = ["gpu".to_owned()].into();
    let inventory = second.inventory.as_mut().unwrap();
    (inventory.cpu.cores, inventory.memory_bytes) = (9, 9 << 30);
    let machines = [first, second];
    let prefers = |preference: serde_json::Value| {
        let selector = serde_json::json!({"preferences": {"it": preference}});
        chosen(&serde_json::from_value(selector).unwrap(), &machines)
    };
    assert_eq!(prefers(serde_json::json!({})).as_deref(), Some("m1"));
    for preference in [
        serde_json::json!({"zone": "b"}),
        serde_json::json!({"pool": "web"}),
        serde_json::json!({"tags": ["gpu"]}),
        serde_json::json!({"not_tags": ["ssd"]}),
        serde_json::json!({"min_cores": 9}),
        serde_json::json!({"min_memory": "9GiB"}),
    ] {
        assert_eq!(prefers(preference.clone()).as_deref(), Some("m2"), "{preference}");
    }
}

#[test]
fn deployments_of_one_spread_group_count_whatever_else_they_ask_for() {
    let machines = [candidate(1, 8, "a"), candidate(2, 8, "b")];
    let of = |group: Option<&str>, min_cores| Selector {
        spread_by: Some(SpreadBy::Zone),
        spread_group: group.map(str::to_owned),
        min_cores: Some(min_cores),
        ..Selector::default()
    };
    let next = |group| {
        let placed = [Placed { selector: of(group, 1), machine: machines[0].uid }];
        let choices = allocate(&[wish(1, &of(group, 2))], &placed, &machines);
        choices.into_values().next().unwrap()
    };
    let zone = |choice| match choice {
        Choice::Chosen { why, .. } => why,
        Choice::None(_) => panic!("there are machines"),
    };
    let (grouped, alone) = (zone(next(Some("web"))), zone(next(None)));
    assert!(grouped.contains("zone b holds 0 of its group"), "{grouped}");
    assert!(alone.contains("zone a holds 0 of its group"), "another selector is another group: {alone}");
}

#[test]
fn who_could_take_anything_does_not_starve_a_picky_one() {
    let machines = [candidate(1, 8, "a"), candidate(2, 16, "a")];
    let anything = wish(1, &Selector::default());
    let mut picky =
        wish(2, &Selector { min_cores: Some(4), name: Some("m1".to_owned()), ..Selector::default() });
    picky.created_at = at(60);
    let names = given(&[anything.clone(), picky], &machines);
    assert_eq!(names, [Some("m2".to_owned()), Some("m1".to_owned())]);
    // A wish for a machine by name has only one match.
    let mut named = wish(3, &Selector::default());
    named.machine = Some("m1".to_owned());
    assert_eq!(given(&[anything, named], &machines), [Some("m2".to_owned()), Some("m1".to_owned())]);
}

#[test]
fn a_group_is_spread_together_with_those_that_have_machines() {
    let machines: Vec<_> = (1..=9).map(|n| candidate(n, 8, ["a", "b", "c"][(n % 3) as usize])).collect();
    let spread = Selector { spread_by: Some(SpreadBy::Zone), ..Selector::default() };
    let zone = |choice: &Choice| match choice {
        Choice::Chosen { machine, .. } => machines.iter().find(|m| m.uid == *machine).unwrap().zone.clone(),
        Choice::None(_) => panic!("there are machines"),
    };
    let wishes = [wish(1, &spread), wish(2, &spread), wish(3, &spread)];
    let mut zones: Vec<_> = allocate(&wishes, &[], &machines).values().map(zone).collect();
    zones.sort();
    assert_eq!(zones, ["a", "b", "c"]);
    let placed = |n| Placed { selector: spread.clone(), machine: MachineId::from(uuid(n)) };
    let choices = allocate(&wishes[..1], &[placed(3), placed(1)], &machines);
    assert_eq!(choices.values().map(zone).collect::<Vec<_>>(), ["c"], "a and b have one each");
    let Some(Choice::Chosen { why, .. }) = choices.values().next() else { panic!("there are machines") };
    assert_eq!(why, "the best of 9 that match; zone c holds 0 of its group");
}

fn plan_of(spec: DeploymentSpec, machines: &[Candidate]) -> DeploymentPlan {
    let mut wish = wish(1, &spec.selector.clone().unwrap_or_default());
    wish.machine = spec.machine.as_ref().map(ToString::to_string);
    let choices = allocate(&[wish], &[], machines);
    let input = DeploymentInput {
        name: "web".to_owned(),
        spec,
        deletion_requested_at: None,
        claimed: None,
        choice: choices.values().next(),
        since: at(0),
    };
    plan_deployment(&input, at(60))
}

#[test]
fn misses_are_told_of_the_selector_s_pool_alone() {
    let mut machines = fleet();
    machines[2].pool = "blue".to_owned();
    let mut spec = deployment_spec();
    let pool = Some("blue".parse().unwrap());
    spec.selector = Some(Selector { min_cores: Some(16), pool, ..Selector::default() });
    let plan = plan_of(spec.clone(), &machines);
    insta::assert_snapshot!(plan.waits[0].message, @r#"waiting for a machine that matches the selector: none of 1 does (cores: 1); nearest: Machine "m3": 8 cores, 16 asked"#);
    machines.remove(2);
    let plan = plan_of(spec, &machines);
    insta::assert_snapshot!(plan.waits[0].message, @"waiting for a machine that matches the selector: there are no machines in pool blue");
}

#[test]
fn a_spread_group_counts_the_deployments_of_its_pool_alone() {
    let mut machines = vec![candidate(1, 8, "a"), candidate(2, 8, "b"), candidate(3, 8, "a")];
    machines[2].pool = "red".to_owned();
    let of = |pool: &str| Selector {
        pool: Some(pool.parse().unwrap()),
        spread_by: Some(SpreadBy::Zone),
        spread_group: Some("web".to_owned()),
        ..Selector::default()
    };
    let placed = [Placed { selector: of("red"), machine: machines[2].uid }];
    let choices = allocate(&[wish(1, &of("default"))], &placed, &machines);
    let Some(Choice::Chosen { machine, why }) = choices.into_values().next() else { panic!("none") };
    assert_eq!((machine, why.contains("zone a holds 0 of its group")), (machines[0].uid, true), "{why}");
}

#[test]
fn no_match_is_a_wait_that_names_the_nearest_misses() {
    let mut spec = deployment_spec();
    let tags = ["gpu".parse().unwrap()].into();
    spec.selector =
        Some(Selector { min_cores: Some(16), zone: Some("b".parse().unwrap()), tags, ..Selector::default() });
    let plan = plan_of(spec, &fleet());
    assert_eq!(plan.action, DeploymentAction::None);
    insta::assert_snapshot!(plan.waits[0].message, @r#"waiting for a machine that matches the selector: none of 4 does (not free: 1, zone: 2, tags: 4, cores: 3); nearest: Machine "m1": zone a, b asked, no tag gpu; Machine "m3": no tag gpu, 8 cores, 16 asked; Machine "m2": zone a, b asked, no tag gpu, 8 cores, 16 asked"#);
    assert!(plan.waits[0].human.is_some());
}

#[test]
fn whose_image_cannot_be_installed_gets_no_machine_and_is_told_so() {
    let mut wishes = [wish(1, &Selector::default()), wish(2, &Selector::default())];
    wishes[0].not_installable = true;
    assert_eq!(given(&wishes, &fleet()[1..2]), [None, Some("m2".to_owned())]);
    let choices = allocate(&wishes, &[], &fleet());
    let input = DeploymentInput {
        name: "web".to_owned(),
        spec: deployment_spec(),
        deletion_requested_at: None,
        claimed: None,
        choice: choices.values().next(),
        since: at(0),
    };
    let plan = plan_deployment(&input, at(60));
    assert_eq!(plan.action, DeploymentAction::None);
    let stalled = plan.conditions.iter().find(|c| c.kind == Condition::STALLED).unwrap();
    insta::assert_snapshot!(format!("{}: {}", stalled.reason, stalled.message), @"NotInstallable: waiting for image debian-12 to have a root_tarball: nothing installs another form of it yet. To do: declare a root_tarball among the files of image debian-12, or name another image");
}

#[test]
fn who_came_too_late_is_told_who_has_the_machine() {
    let choices =
        allocate(&[wish(1, &Selector::default()), wish(2, &Selector::default())], &[], &fleet()[1..2]);
    let Some(Choice::None(misses)) = choices.get(&DeploymentId::from(uuid(1002))) else {
        panic!("one is left")
    };
    assert_eq!(misses.nearest[0].lacks, ["Deployment \"web-1\" has it"]);
}

#[test]
fn a_machine_has_one_owner() {
    let mut spec = deployment_spec();
    spec.machine = Some("m4".parse().unwrap());
    let plan = plan_of(spec.clone(), &fleet());
    assert_eq!(plan.action, DeploymentAction::None);
    assert_eq!(plan.waits[0].message, "waiting for Machine \"m4\": Deployment \"db\" has it");
    spec.machine = Some("m3".parse().unwrap());
    assert_eq!(plan_of(spec, &fleet()).action, DeploymentAction::Claim(MachineId::from(uuid(3))));
}

#[test]
fn a_deployment_is_ready_when_its_machine_says_so_and_leaves_when_it_has_none() {
    let mut world = World::new();
    world.deploy(|_| {});
    let plan_with = |world: &World, claimed: bool, deleted: bool| {
        let machine = world.plan();
        let input = DeploymentInput {
            name: "web".to_owned(),
            spec: deployment_spec(),
            deletion_requested_at: deleted.then_some(world.now),
            claimed: claimed.then_some((world.input.uid, &machine)),
            choice: None,
            since: at(0),
        };
        plan_deployment(&input, world.now)
    };
    let holds = |plan: &DeploymentPlan, kind| {
        plan.conditions.iter().any(|c| c.kind == kind && c.status == ConditionStatus::True)
    };
    assert!(holds(&plan_with(&world, true, false), Condition::PROGRESSING));
    assert!(world.run(3, ready));
    assert!(holds(&plan_with(&world, true, false), Condition::READY));
    assert!(!holds(&plan_with(&world, true, true), Condition::READY));
    assert_eq!(plan_with(&world, false, true).action, DeploymentAction::Delete);
}

fn some_machine(n: usize) -> impl Strategy<Value = Candidate> {
    (1..5_u32, 0..3_usize, any::<bool>(), 0..8_u8).prop_map(move |(cores, zone, ssd, state)| {
        let mut machine = candidate(1 + n as u128, cores * 8, ["a", "b", "c"][zone]);
        machine.rack = (zone > 0).then(|| format!("r{zone}"));
        if !ssd {
            machine.tags.clear();
        }
        match state {
            0 => machine.owner = Some("db".to_owned()),
            1 => machine.lifecycle = Lifecycle::Commissioning,
            2 => machine.inventory = None,
            _ => {}
        }
        machine
    })
}

fn some_selector() -> impl Strategy<Value = Selector> {
    let zones = prop::option::of(prop::sample::select(vec!["a", "b", "c"]));
    let spread = prop::option::of(prop::sample::select(vec![SpreadBy::Zone, SpreadBy::Rack]));
    (zones.clone(), zones, any::<bool>(), prop::option::of(1..40_u32), spread).prop_map(
        |(zone, preferred, ssd, min_cores, spread_by)| {
            let mut selector = Selector { min_cores, spread_by, ..Selector::default() };
            selector.zone = zone.map(|zone| zone.parse().unwrap());
            if ssd {
                selector.tags.insert("ssd".parse().unwrap());
            }
            if let Some(zone) = preferred {
                let zone = Some(zone.parse().unwrap());
                selector.preferences.insert("near".to_owned(), Preference { zone, ..Preference::default() });
            }
            selector
        },
    )
}

fn some_machines() -> impl Strategy<Value = Vec<Candidate>> {
    (0..12_usize).prop_flat_map(|count| (0..count).map(some_machine).collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn what_is_left_of_the_ground_gives_the_same_machines_for_the_same_reasons(
        candidates in some_machines(),
        selectors in prop::collection::vec(some_selector(), 0..10),
        has in prop::collection::vec((some_selector(), 0..14_u128), 0..6),
    ) {
        let wishes = selectors.iter().enumerate().map(|(n, s)| wish(n as u128, s)).collect();
        let placed = |(selector, machine)| Placed { selector, machine: MachineId::from(uuid(machine)) };
        let whole = Ground { wishes, placed: has.into_iter().map(placed).collect(), candidates };
        let looked_at = whole.candidates.len();
        let (mut choices, left) = whole.decide();
        choices.retain(|_, choice| matches!(choice, Choice::Chosen { .. }));
        prop_assert!(left.candidates.len() <= looked_at);
        let kept: Ground = serde_json::from_str(&serde_json::to_string(&left).unwrap()).unwrap();
        prop_assert_eq!(kept.decide().0, choices);
    }

    #[test]
    fn no_machine_is_given_twice_or_to_whom_it_does_not_do_whatever_the_order(
        machines in some_machines(),
        selectors in prop::collection::vec(some_selector(), 0..10),
    ) {
        let wishes: Vec<_> = selectors.iter().enumerate().map(|(n, s)| wish(n as u128, s)).collect();
        let choices = allocate(&wishes, &[], &machines);
        prop_assert_eq!(choices.len(), wishes.len());
        let mut taken = std::collections::BTreeSet::new();
        for wish in &wishes {
            if let Choice::Chosen { machine, .. } = &choices[&wish.uid] {
                let candidate = machines.iter().find(|m| m.uid == *machine).unwrap();
                prop_assert_eq!(lacks(&wish.selector, None, candidate, candidate.owner.as_deref()), vec![]);
                prop_assert!(taken.insert(*machine), "{} is given twice", candidate.name);
            }
        }
        for wish in &wishes {
            if let Choice::None(_) = &choices[&wish.uid] {
                let left = machines.iter().find(|m| {
                    !taken.contains(&m.uid) && lacks(&wish.selector, None, m, m.owner.as_deref()).is_empty()
                });
                prop_assert!(left.is_none(), "{} waits beside {:?}", wish.name, left.map(|m| &m.name));
            }
        }
        let (mut others, mut backwards) = (wishes, machines);
        others.reverse();
        backwards.reverse();
        prop_assert_eq!(allocate(&others, &[], &backwards), choices);
    }

    #[test]
    fn preferences_change_who_is_chosen_and_never_whether(machines in some_machines(), selector in some_selector()) {
        let indifferent = Selector { preferences: BTreeMap::new(), ..selector.clone() };
        let (with, without) = (chosen(&selector, &machines), chosen(&indifferent, &machines));
        prop_assert_eq!(with.is_some(), without.is_some());
        if let (Some(name), None) = (without, indifferent.spread_by) {
            let size = |m: &Candidate| m.inventory.as_ref().map_or(0, |found| found.cpu.cores);
            let one = machines.iter().find(|m| m.name == name).unwrap();
            let fits = machines.iter().filter(|m| lacks(&selector, None, m, m.owner.as_deref()).is_empty());
            prop_assert_eq!(fits.map(size).min(), Some(size(one)), "the least that suffices");
        }
    }

    #[test]
    fn a_group_is_balanced_over_the_domains_that_have_machines_left(
        machines in some_machines(),
        selector in some_selector(),
        count in 0..12_u128,
        by in prop::sample::select(vec![SpreadBy::Zone, SpreadBy::Rack]),
    ) {
        let selector = Selector { spread_by: Some(by), ..selector };
        let wishes: Vec<_> = (0..count).map(|n| wish(n, &selector)).collect();
        let given: Vec<_> = given(&wishes, &machines).into_iter().flatten().collect();
        let domain = |m: &Candidate| match by {
            SpreadBy::Zone => m.zone.clone(),
            SpreadBy::Rack => m.rack.clone().unwrap_or_default(),
        };
        let (mut fill, mut left) = (BTreeMap::<String, usize>::new(), BTreeMap::<String, usize>::new());
        for machine in machines.iter().filter(|m| lacks(&selector, None, m, m.owner.as_deref()).is_empty()) {
            let is_given = given.contains(&machine.name);
            *fill.entry(domain(machine)).or_default() += usize::from(is_given);
            *left.entry(domain(machine)).or_default() += usize::from(!is_given);
        }
        let fullest = fill.values().max().copied().unwrap_or(0);
        for (domain, _) in left.iter().filter(|(_, left)| **left > 0) {
            prop_assert!(fullest - fill[domain] <= 1, "{domain} holds {} of {fill:?}", fill[domain]);
        }
    }
}

#[test]
fn a_machine_whose_address_another_object_has_is_only_for_deployments_with_a_network() {
    let taken = "10.77.0.9 is the address of another Deployment already";
    let mut machine = candidate(1, 8, "a");
    machine.obstructed = Some(taken.to_owned());
    let mut inherits = wish(1, &Selector::default());
    inherits.inherits_network = true;
    let own = wish(2, &Selector::default());
    let wishes = [inherits.clone(), own];
    assert_eq!(given(&wishes, std::slice::from_ref(&machine)), [None, Some("m1".to_owned())]);

    let mut named = inherits.clone();
    named.machine = Some("m1".to_owned());
    for wish in [inherits, named] {
        let choice = allocate(std::slice::from_ref(&wish), &[], std::slice::from_ref(&machine));
        let Choice::None(misses) = &choice[&wish.uid] else { panic!("{choice:?}") };
        assert_eq!(
            (misses.nearest[0].lacks.as_slice(), misses.nearest[0].only_address),
            (&[taken.to_owned()][..], true)
        );
        let mut also_owned = machine.clone();
        also_owned.owner = Some("db".to_owned());
        let choice = allocate(std::slice::from_ref(&wish), &[], &[also_owned]);
        let Choice::None(misses) = &choice[&wish.uid] else { panic!("{choice:?}") };
        assert!(!misses.nearest[0].only_address, "{misses:?}");
    }
}
