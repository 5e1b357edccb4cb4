//! Names that pass from one object to another within one apply.

use crate::world::{World, provider, within};
use serde_json::json;

/// A zone for each address and name.
fn zones(world: &World, each: &[(&str, &str)]) -> String {
    let zone = |(address, name): &(&str, &str)| {
        format!(
            "resource \"basalt_zone\" \"{address}\" {{\n  name = \"{name}\"\n  description = \"{address}\"\n}}\n"
        )
    };
    provider(world) + &each.iter().map(zone).collect::<String>()
}

#[test]
fn objects_that_swap_or_hand_on_their_names_stay_what_they_are() {
    within(async |world| {
        world.config(&zones(&world, &[("one", "a"), ("two", "b"), ("three", "c"), ("four", "d")]));
        world.apply().await;
        let uid = async |name: &str| world.get("Zone", name).await.metadata.uid;
        let (one, two, three, four) = (uid("a").await, uid("b").await, uid("c").await, uid("d").await);

        // Two zones swap their names, and one takes the name of a renamed one.
        world.config(&zones(&world, &[("one", "b"), ("two", "a"), ("three", "d"), ("four", "e")]));
        let said = world.apply().await;
        assert!(said.contains("0 added, 4 changed, 0 destroyed"), "{said}");
        assert_eq!([uid("b").await, uid("a").await, uid("d").await, uid("e").await], [one, two, three, four]);

        // A new zone takes the name of a renamed one, and another zone takes the name of a deleted
        // one.
        world.config(&zones(&world, &[("one", "z"), ("new", "b"), ("three", "a"), ("four", "e")]));
        let said = world.apply().await;
        assert!(said.contains("1 added, 2 changed, 1 destroyed"), "{said}");
        assert_eq!([uid("z").await, uid("a").await], [one, three]);
        assert_eq!(world.get("Zone", "b").await.spec, json!({"description": "new"}));
        world.end().await;
    });
}

#[test]
fn a_name_that_another_tool_s_object_has_is_refused_and_nothing_is_renamed() {
    within(async |world| {
        world.config(&zones(&world, &[("one", "a")])).apply().await;
        world.put("cli", "Zone", "b", json!({})).await;
        world.config(&zones(&world, &[("one", "b")]));
        let said = crate::world::flat(&world.fails(&["apply", "-auto-approve"]).await);
        assert!(said.contains("Another Zone is called \"b\", and keeps that name"), "{said}");
        assert_eq!(world.get("Zone", "a").await.spec, json!({"description": "one"}));
        world.end().await;
    });
}

#[test]
fn names_that_are_swapped_one_change_at_a_time_are_told_how_and_kept() {
    within(async |world| {
        world.config(&zones(&world, &[("one", "a"), ("two", "b")])).apply().await;
        let uid = async |name: &str| world.get("Zone", name).await.metadata.uid;
        let (one, two) = (uid("a").await, uid("b").await);
        world.config(&zones(&world, &[("one", "b"), ("two", "a")]));
        let said = crate::world::flat(&world.fails(&["apply", "-auto-approve", "-parallelism=1"]).await);
        assert!(said.contains("Error: The name is taken: Zone"), "{said}");
        assert!(said.contains("-parallelism=2 or more"), "{said}");
        assert_eq!([uid("a").await, uid("b").await], [one, two]);
        world.apply().await;
        assert_eq!([uid("b").await, uid("a").await], [one, two]);
        world.end().await;
    });
}

#[test]
fn what_has_another_address_and_no_moved_block_is_warned_of_and_kept_with_one() {
    within(async |world| {
        world.config(&zones(&world, &[("one", "a")])).apply().await;
        let uid = world.get("Zone", "a").await.metadata.uid;
        let elsewhere = zones(&world, &[("two", "a")]);
        let said = crate::world::flat(&world.config(&elsewhere).ok(&["plan"]).await);
        assert!(said.contains("Plan: 1 to add, 0 to change, 1 to destroy."), "{said}");
        assert!(said.contains("A `moved` block with both addresses keeps it"), "{said}");
        let moved = "moved {\n  from = basalt_zone.one\n  to   = basalt_zone.two\n}\n";
        let said = world.config(&format!("{elsewhere}{moved}")).apply().await;
        assert!(said.contains("0 added") && said.contains("0 destroyed"), "{said}");
        assert_eq!(world.get("Zone", "a").await.metadata.uid, uid);
        world.end().await;
    });
}

#[test]
fn machines_whose_instances_have_shifted_are_said_to_be_other_hardware() {
    within(async |world| {
        let machines = |numbers: &[u8]| {
            format!(
                "{}resource \"basalt_machine\" \"m\" {{\n  count = {}\n  name = \"m${{{numbers:?}[count.index]}}\"\n  \
                 boot_macs = [\"52:54:00:00:00:0${{{numbers:?}[count.index]}}\"]\n}}\n",
                provider(&world),
                numbers.len()
            )
        };
        world.config(&machines(&[1, 2, 3])).apply().await;
        let said = crate::world::flat(&world.config(&machines(&[2, 3])).ok(&["plan"]).await);
        for machine in ["m2", "m3"] {
            let warns = format!("Warning: It would be other hardware: Machine {machine:?}");
            assert!(said.contains(&warns), "{warns}: {said}");
        }
        // A new name with the same MAC address is not other hardware, and neither is a new MAC address with the same name.
        let renamed = machines(&[1, 2, 3]).replace("\"m$", "\"n$");
        let said = world.config(&renamed).ok(&["plan"]).await;
        assert!(said.contains("3 to change") && !said.contains("other hardware"), "{said}");
        let exchanged = machines(&[1, 2, 3]).replace(":00:0$", ":01:0$");
        let said = world.config(&exchanged).ok(&["plan"]).await;
        assert!(said.contains("3 to change") && !said.contains("other hardware"), "{said}");
        world.end().await;
    });
}
