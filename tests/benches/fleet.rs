//! Machines a minute from New to Ready and from Ready to Deployed, and what a machine costs, with one rack.
//!
//! `cargo bench -p basalt-tests --bench fleet -- 100 300 1000` prints two lines of JSON for each number of machines, and compares the cost
//! of a machine in the largest and the smallest fleet. It needs root and the release builds of all programs, in `BASALT_BIN_DIR`.
//!
//! The machines are simulated ([`basalt_sim`]) on the same host, so the rate includes the simulator's own work. The costs do not:
//!
//! | figure | is |
//! | --- | --- |
//! | `region_cpu_ms`, `postgres_cpu_ms` | CPU time of the region's program, and of its PostgreSQL, by machine |
//! | `rows` | rows that PostgreSQL's scans returned (`tup_returned`), by machine |
//! | `rack_bytes`, `rack_bytes_by_concern` | bytes of concerns that the rack was sent, by machine |
//!
//! The peer is the enrolment of 3,000 simulated hosts that Metal3 published: 146 hosts a minute.

mod support;

use basalt_sim::{Firmware, SimMachine};
use basalt_tests::fleet::{deployment_spec, machine_spec};
use support::{Cost, PEER, Result, document, phase, print};

#[tokio::main]
async fn main() -> Result<()> {
    let sizes: Vec<u16> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let mut whole = Vec::new();
    for machines in sizes {
        whole.push((machines, measure(machines).await?));
    }
    if let (Some((few, small)), Some((many, large))) = (whole.first(), whole.last())
        && few < many
    {
        let name = format!("fleet_cost_{many}");
        let peer = format!("{few} machines");
        print(
            &name,
            large.cpu_ms(),
            &peer,
            small.cpu_ms(),
            small.cpu_ms() / large.cpu_ms(),
            "CPU ms a machine",
            None,
        );
        print(&name, large.rows, &peer, small.rows, small.rows / large.rows, "rows a machine", None);
        let [few, many] = [small.rack_bytes(), large.rack_bytes()];
        print(&name, many, &peer, few, few / many, "bytes to the rack a machine", None);
    }
    Ok(())
}

/// The life of this number of machines from New to Deployed. Returns the cost of each.
async fn measure(count: u16) -> Result<Cost> {
    let fleet = support::start("fleet").await?;
    let machines: Vec<SimMachine> =
        (1..=count).map(|number| fleet.machine(number, Firmware::Uefi, |_| {})).collect();

    let began = Cost::so_far(&fleet).await?;
    let declared =
        machines.iter().map(|machine| document("Machine", &machine.options().name, machine_spec(machine)));
    let rate = phase(&fleet, "machines", declared.collect::<Result<_>>()?).await?;
    let ready = Cost::so_far(&fleet).await?;
    report(&format!("fleet_{count}_ready"), rate, &ready.of_each(&began, count));

    let declared = machines.iter().map(|machine| &machine.options().name);
    let declared = declared.map(|name| document("Deployment", name, deployment_spec(name)));
    let rate = phase(&fleet, "deployments", declared.collect::<Result<_>>()?).await?;
    let deployed = Cost::so_far(&fleet).await?;
    report(&format!("fleet_{count}_deployed"), rate, &deployed.of_each(&ready, count));
    Ok(deployed.of_each(&began, count))
}

fn report(bench: &str, rate: f64, cost: &Cost) {
    print(
        bench,
        rate,
        "Metal3's published enrolment of 3,000 hosts",
        PEER,
        rate / PEER,
        "machines/min",
        Some(cost),
    );
}
