//! Undeclared machines that are all switched on at once, with two racks: until they are Machines, and what declared machines notice.
//!
//! `cargo bench -p basalt-tests --bench strangers -- 200` prints two lines of JSON for each number of undeclared machines. It needs root and
//! the release builds of all programs, in `BASALT_BIN_DIR`.
//!
//! | line | is | peer |
//! | --- | --- | --- |
//! | `strangers_200_ready` | Machines a minute from power-on to Ready, with `enlist: create`. A rack inspects 16 at once | the enrolment of 3,000 simulated hosts that Metal3 published |
//! | `strangers_200_beside` | deployments a minute of declared machines meanwhile | the same number of deployments before |

mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use basalt_sim::{Firmware, SimMachine};
use basalt_tests::fleet::{Fleet, deployment_spec, machine_spec};
use serde_json::json;
use support::{Awaited, Cost, PEER, Result, document, phase, print, run};

/// The machines that are deployed before, and those that are deployed meanwhile.
const DECLARED: u16 = 20;
/// iPXE's `sleep` of a machine that waits for its turn. Racks say ten seconds.
const PAUSE: Duration = Duration::from_secs(2);
/// Lines about machines that were left behind.
const LINES: usize = 200;
/// The first pause of DHCP, as of real firmware (PXE 2.1 §2.2.5). With the short one of tests, a machine on a busy host gives up.
const FIRMWARE: Duration = Duration::from_secs(4);

#[tokio::main]
async fn main() -> Result<()> {
    for strangers in std::env::args().filter_map(|argument| argument.parse().ok()) {
        measure(strangers).await?;
    }
    Ok(())
}

async fn measure(count: u16) -> Result<()> {
    let mut fleet = support::start("crowd").await?;
    second_rack(&mut fleet).await?;
    let settings = json!({"enlist": "create", "enlistment": {"name": "{serial}"}});
    fleet.declare("settings", "default", settings).await;
    for rack in [1, 2] {
        fleet.site.rack_holds(rack, "boot", "16 at once").await?;
    }

    let declared = machines(&fleet, 1, 2 * DECLARED);
    let specs = declared.iter().map(|it| document("Machine", &it.options().name, machine_spec(it)));
    phase(&fleet, "machines", specs.collect::<Result<_>>()?).await?;
    let (before, meanwhile) = declared.split_at(DECLARED.into());
    let alone = deploy(&fleet, before).await?;

    let strangers = machines(&fleet, 2 * DECLARED + 1, count);
    let began = Cost::so_far(&fleet).await?;
    let names = strangers.iter().map(|it| it.options().serial.to_lowercase());
    let awaited = Awaited::new(&fleet, "machines", names).await?;
    strangers.iter().for_each(SimMachine::press_power);
    let (ready, beside) = tokio::join!(awaited.ready(&fleet), deploy(&fleet, meanwhile));
    let ready = match ready {
        Ok(ready) => ready,
        Err(error) => return Err(format!("{error}\n{}", behind(&fleet, &strangers).await).into()),
    };
    let beside = beside?;
    let cost = Cost::so_far(&fleet).await?.of_each(&began, count);
    let name = |what: &str| format!("strangers_{count}_{what}");
    let peer = "Metal3's published enrolment of 3,000 hosts";
    print(&name("ready"), ready, peer, PEER, ready / PEER, "machines/min", Some(&cost));
    print(
        &name("beside"),
        beside,
        "the same without undeclared machines",
        alone,
        beside / alone,
        "deployments/min",
        None,
    );
    Ok(())
}

/// The events of the first machines that became no Machine.
async fn behind(fleet: &Fleet, strangers: &[SimMachine]) -> String {
    let known: BTreeSet<String> =
        fleet.list("machines").await.iter().map(|machine| machine.metadata.name.to_string()).collect();
    let name = |stranger: &SimMachine| stranger.options().serial.to_lowercase();
    let left = strangers.iter().filter(|stranger| !known.contains(&name(stranger)));
    let told: Vec<String> = left.map(|stranger| format!("{}:\n{}", name(stranger), stranger.log())).collect();
    told.join("\n").lines().take(LINES).collect::<Vec<_>>().join("\n")
}

/// Starts a second rack on a host of its own.
async fn second_rack(fleet: &mut Fleet) -> Result<()> {
    for [verb, address] in [["add", "10.77.0.2/16"], ["delete", "10.77.0.2/24"]] {
        let mut command = fleet.site.host(2)?.command("ip")?;
        command.args(["address", verb, address, "dev", basalt_lab::host::INTERFACE]);
        run(fleet, command).await?;
    }
    fleet.site.start_rack(2).await?;
    fleet.leases("lab", "rack-2").await;
    Ok(())
}

fn machines(fleet: &Fleet, first: u16, count: u16) -> Vec<SimMachine> {
    let numbers = first..first + count;
    numbers
        .map(|number| {
            fleet.machine(number, Firmware::Uefi, |options| {
                options.dhcp_patience = FIRMWARE;
                options.pause = PAUSE;
            })
        })
        .collect()
}

/// Deploys machines. Returns deployments a minute.
async fn deploy(fleet: &Fleet, machines: &[SimMachine]) -> Result<f64> {
    let names = machines.iter().map(|it| &it.options().name);
    let documents = names.map(|name| document("Deployment", name, deployment_spec(name)));
    phase(fleet, "deployments", documents.collect::<Result<_>>()?).await
}
