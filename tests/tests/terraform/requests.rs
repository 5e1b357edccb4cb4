//! The requests of a run to the region, and their number.

use crate::NETWORK;
use crate::gate::Gate;
use crate::world::{provider, provider_at, within};

fn dry_runs(asked: &[String]) -> Vec<&str> {
    asked.iter().map(String::as_str).filter(|request| request.contains("dry_run=true")).collect()
}

#[test]
fn nothing_is_tried_out_of_what_does_not_differ() {
    within(async |world| {
        world.config(&format!("{}{NETWORK}", provider(&world))).apply().await;
        let gate = Gate::before(world.region.address()).await;
        let through = format!("{}{NETWORK}", provider_at(&format!("http://{}", gate.address), &world));
        world.config(&through).ok(&["plan"]).await;
        let asked = gate.asked();
        assert!(asked.iter().any(|request| request.starts_with("GET /api/v1/zones")), "{asked:?}");
        assert_eq!(dry_runs(&asked), [""; 0]);

        let changed = through.replace("the first row", "the last row");
        world.config(&changed).ok(&["plan"]).await;
        let asked = gate.asked();
        assert_eq!(dry_runs(&asked).len(), 1, "the zone's alone: {asked:?}");
        world.end().await;
    });
}

#[test]
fn labels_and_tags_of_many_are_read_in_a_few_lists() {
    const MANY: usize = 30;
    let machines = format!(
        "resource \"basalt_machine\" \"m\" {{
          count     = {MANY}
          name      = \"m-${{count.index}}\"
          boot_macs = [format(\"52:54:00:00:00:%02x\", count.index)]
          labels    = {{ row = \"1\" }}
        }}
        resource \"basalt_machine_tags\" \"m\" {{
          count   = {MANY}
          machine = basalt_machine.m[count.index].name
          tags    = [\"rented\"]
        }}\n"
    );
    within(async |world| {
        world.config(&format!("{}{machines}", provider(&world))).apply().await;
        let gate = Gate::before(world.region.address()).await;
        let through = provider_at(&format!("http://{}", gate.address), &world);
        world.config(&format!("{through}{machines}")).ok(&["plan", "-detailed-exitcode"]).await;
        // The first plan after a creation also confirms it. Objects that are read at the same time
        // are confirmed in one call.
        let (runs, asked): (Vec<_>, Vec<_>) =
            gate.asked().into_iter().partition(|request| request.contains("/api/v1/runs/"));
        assert!(runs.len() < MANY, "{} reports: {runs:?}", runs.len());
        assert!(asked.iter().any(|request| request.contains("layers=true")), "{asked:?}");
        assert!(asked.len() < MANY / 3, "{} requests: {asked:?}", asked.len());
        world.end().await;
    });
}
