//! Every fault of a deployment: the deployment itself reports what went wrong, where, the attempts so far, the next step
//! and its time limit. Removing the cause is enough; no restart is needed.
//!
//! All faults happen at the same time, each on its own machine. The reports are printed.

use basalt_tests::fleet::{Fleet, ImageFile, deployment_spec, machine_spec};
use std::sync::Arc;
use std::time::Duration;

use basalt_bmc::Fault as BmcFault;
use basalt_sim::{Event, Fault, Firmware, SimMachine, Stage};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Removes or changes a part of a spec.
type Change = fn(&mut Value);

/// One fault, with its report and its remedy.
struct BadLuck {
    name: &'static str,
    /// The error in a declaration.
    declared: Declared,
    /// The fault of the hardware.
    breaks: fn(&SimMachine),
    /// Words that the report must contain.
    says: &'static [&'static str],
    mending: Mending,
    /// The number of times that the hardware's fault fired.
    fired: Option<fn(&SimMachine) -> u64>,
}

/// The kind of spec with the error.
enum Declared {
    Well,
    Machine(Change),
    Deployment(Change),
}

/// The remedy for a fault.
enum Mending {
    /// None: Basalt retries by itself.
    Nothing,
    /// Repairs the hardware, without a message to Basalt.
    Hardware(fn(&SimMachine)),
    /// Repairs the hardware, and then runs `basalt recommission`.
    Recommission(fn(&SimMachine)),
    /// Declares the machine, or the deployment, correctly.
    Machine,
    Deployment(Change),
    /// Uploads the missing file.
    Upload,
}

/// An image that only one fault uses; its file is uploaded late.
const LATE_IMAGE: &str = "late";

fn no_fault(machine: &SimMachine) {
    machine.faults().set(&[]);
    machine.bmc_faults().set(&[]);
}

const HANG: Fault = Fault::HangsAt(Stage::Unpack);
const DEATH: Fault = Fault::DiesAt(Stage::Unpack);

const BAD_LUCK: &[BadLuck] = &[
    BadLuck {
        name: "never-boots-from-network",
        declared: Declared::Well,
        breaks: |m| m.faults().set(&[Fault::NeverPxeBoots]),
        says: &["waiting for sim1 to ask for DHCP", "of 3)"],
        mending: Mending::Hardware(no_fault),
        fired: Some(|m| m.faults().fired(Fault::NeverPxeBoots)),
    },
    BadLuck {
        name: "bmc-unreachable",
        declared: Declared::Well,
        breaks: |m| m.bmc_faults().set(&[BmcFault::Unreachable]),
        says: &["by its BMC at 10.77.0.102: the BMC does not answer", "it is tried again"],
        mending: Mending::Hardware(no_fault),
        fired: Some(|m| m.bmc_faults().fired(BmcFault::Unreachable)),
    },
    BadLuck {
        name: "bmc-password",
        declared: Declared::Machine(|spec| spec["bmc"]["password"] = json!("guessed")),
        breaks: |_| {},
        says: &["the BMC refuses the password", "set bmc.password"],
        mending: Mending::Machine,
        fired: None,
    },
    BadLuck {
        name: "power-lies",
        declared: Declared::Well,
        breaks: |m| m.bmc_faults().set(&[BmcFault::PowerLies]),
        says: &["the power reads as before", "it is tried again"],
        mending: Mending::Hardware(no_fault),
        fired: Some(|m| m.bmc_faults().fired(BmcFault::PowerLies)),
    },
    BadLuck {
        name: "blob-missing",
        declared: Declared::Deployment(|spec| spec["image"] = json!(LATE_IMAGE)),
        breaks: |_| {},
        says: &["waiting for the root tarball of image late", "upload it: PUT /api/v1/blobs/"],
        mending: Mending::Upload,
        fired: None,
    },
    BadLuck {
        name: "blob-damaged",
        declared: Declared::Well,
        breaks: |m| m.faults().set(&[Fault::WrongHash]),
        says: &["does not have its hash", "upload the image again"],
        mending: Mending::Hardware(no_fault),
        fired: Some(|m| m.faults().fired(Fault::WrongHash)),
    },
    BadLuck {
        name: "disk-too-small",
        declared: Declared::Well,
        breaks: |m| m.faults().set(&[Fault::DiskTooSmall]),
        says: &["no disk to install to", "basalt recommission"],
        mending: Mending::Recommission(no_fault),
        fired: Some(|m| m.faults().fired(Fault::DiskTooSmall)),
    },
    BadLuck {
        name: "too-few-disks",
        declared: Declared::Deployment(|spec| spec["storage"] = json!({"layout": "raid1"})),
        breaks: |_| {},
        says: &["does not fit the disks", "change the storage of deployment"],
        mending: Mending::Deployment(|spec| spec["storage"] = json!({"layout": "lvm"})),
        fired: None,
    },
    BadLuck {
        name: "foreign-data",
        declared: Declared::Well,
        breaks: |m| m.faults().set(&[Fault::ForeignData]),
        says: &["holds data that is not Basalt's", "wipe = \"always\""],
        mending: Mending::Deployment(|spec| spec["wipe"] = json!("always")),
        fired: Some(|m| m.faults().fired(Fault::ForeignData)),
    },
    BadLuck {
        name: "agent-hangs",
        declared: Declared::Well,
        breaks: |m| m.faults().times(HANG, 1),
        says: &["to install (unpack", "with a new attempt"],
        mending: Mending::Nothing,
        fired: Some(|m| m.faults().fired(HANG)),
    },
    BadLuck {
        name: "agent-dies",
        declared: Declared::Well,
        breaks: |m| {
            // Slow enough to read its stage before the new attempt begins.
            m.faults().times(Fault::Slow(Duration::from_secs(1)), u32::MAX);
            m.faults().times(DEATH, 1);
        },
        says: &["to install (unpack", "with a new attempt"],
        mending: Mending::Nothing,
        fired: Some(|m| m.faults().fired(DEATH)),
    },
];

#[tokio::test(flavor = "multi_thread")]
async fn every_bad_luck_is_named_and_mending_its_cause_is_enough() {
    let fleet = Arc::new(Fleet::start("luck", &[]).await);
    let late = Arc::new(fleet.image_without_its_file(LATE_IMAGE).await);
    let mut lives = JoinSet::new();
    for (number, luck) in (1..).zip(BAD_LUCK) {
        let machine = fleet.machine(number, Firmware::Uefi, |_| {});
        lives.spawn(suffer(luck, machine, fleet.clone(), late.clone()));
    }
    for said in lives.join_all().await {
        println!("{said}");
    }
}

/// Runs one machine with its fault, from its declaration to its deployment. Returns the report.
async fn suffer(
    luck: &'static BadLuck,
    machine: SimMachine,
    fleet: Arc<Fleet>,
    late: Arc<ImageFile>,
) -> String {
    (luck.breaks)(&machine);
    let name = &machine.options().name;
    let mut spec = machine_spec(&machine);
    let mut deployment = deployment_spec(name);
    match luck.declared {
        Declared::Well => {}
        Declared::Machine(change) => change(&mut spec),
        Declared::Deployment(change) => change(&mut deployment),
    }
    fleet.declare("machines", name, spec).await;
    fleet.declare("deployments", luck.name, deployment).await;
    let words = fleet.waits_saying("deployments", luck.name, luck.says).await;
    assert!(words.contains("until ") || words.contains("To do: "), "{}: {words}", luck.name);
    match luck.mending {
        Mending::Nothing => {}
        Mending::Hardware(mend) => mend(&machine),
        Mending::Recommission(mend) => {
            mend(&machine);
            fleet.recommission(name).await;
        }
        Mending::Machine => fleet.declare("machines", name, machine_spec(&machine)).await,
        Mending::Deployment(change) => {
            let mut spec = deployment_spec(name);
            change(&mut spec);
            fleet.declare("deployments", luck.name, spec).await;
        }
        Mending::Upload => fleet.upload(&late).await,
    }
    fleet.ready("deployments", luck.name).await;
    assert!(luck.fired.is_none_or(|fired| fired(&machine) > 0), "{}: it did not happen", luck.name);
    let installs = machine.count(|event| matches!(event, Event::Installed { .. }));
    assert_eq!(installs, 1, "{}\n{}", luck.name, machine.log());
    let times = luck.fired.map(|fired| format!(" ({} times)", fired(&machine))).unwrap_or_default();
    format!("{}{times}\n    {words}", luck.name)
}
