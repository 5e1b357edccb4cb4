//! The part of the concern `boot` about undeclared machines: the networks whose machines a rack may inspect, and the task.

use std::collections::BTreeMap;

use basalt_api::agent::{Task, TaskAction, Then as Afterwards};
use basalt_api::kinds::{Architecture, EnlistMode};
use basalt_api::values::Attempt;
use basalt_db::{Store, StoreError};
use basalt_proto::rack_v1::{Enlist, EnlistTask, EphemeralBoot};

use crate::driver::status::to_json;
use crate::driver::topology::estate::Estate;
use crate::driver::topology::network::{self, Net, RackSeen};

/// The architectures of machines.
const ARCHITECTURES: [Architecture; 2] = [Architecture::Amd64, Architecture::Arm64];

/// The enlistment mode of a network.
pub(crate) fn mode(estate: &Estate, net: &Net) -> EnlistMode {
    net.vlan.enlist.unwrap_or(estate.settings.enlist)
}

/// The networks whose machines a rack may inspect, and the task. `None`: it must not inspect any.
///
/// # Errors
/// Fails if the database cannot be read.
pub(crate) async fn concern(
    store: &Store,
    estate: &Estate,
    rack: &RackSeen,
) -> Result<Option<Enlist>, StoreError> {
    let mut networks: BTreeMap<&str, (EnlistMode, Vec<String>)> = BTreeMap::new();
    for net in estate.nets.iter().filter(|net| net.boots() && mode(estate, net) != EnlistMode::Off) {
        let serving = network::racks_of(net, &estate.nets, &estate.racks);
        if serving.iter().any(|other| other.uid == rack.uid) {
            let of_vlan = networks.entry(net.subnet.vlan.as_str());
            of_vlan.or_insert((mode(estate, net), Vec::new())).1.push(net.subnet.cidr.to_string());
        }
    }
    let images: Vec<_> = ARCHITECTURES.iter().filter_map(|it| Some((*it, estate.ephemeral(*it)?))).collect();
    if networks.is_empty() || images.is_empty() {
        return Ok(None);
    }
    let mut key = [0; 32];
    aws_lc_rs::rand::fill(&mut key)
        .map_err(|_| StoreError::Corrupt("the system gives no random bytes".to_owned()))?;
    let (attempt, key) = store.stranger_attempt(&key).await?;
    let mut tasks = Vec::new();
    for (mode, networks) in networks.into_values() {
        for (architecture, image) in &images {
            let options = [Some(image.kernel_options.as_str()), estate.settings.kernel_options.as_deref()];
            tasks.push(EnlistTask {
                networks: networks.clone(),
                architecture: architecture.to_string(),
                boot: Some(EphemeralBoot {
                    attempt: attempt.get(),
                    not_after_unix_ms: i64::MAX,
                    kernel_sha256: image.kernel.to_string(),
                    initrd_sha256: image.initrd.to_string(),
                    squashfs_sha256: image.squashfs.to_string(),
                    kernel_options: basalt_engine::render::kernel_options(options),
                    attempt_key: key.to_vec(),
                    task_json: to_json(&task(attempt, mode))?.to_string().into_bytes(),
                    step_key: String::new(),
                    claimed_by: String::new(),
                    checkpoint: Vec::new(),
                }),
            });
        }
    }
    let settings = &estate.settings.enlistment;
    Ok(Some(Enlist {
        tasks,
        allow: settings.allow.iter().cloned().collect(),
        ignore: settings.ignore.iter().cloned().collect(),
        at_once: settings.at_once,
    }))
}

/// The task, which reads the hardware and writes nothing.
fn task(attempt: Attempt, mode: EnlistMode) -> Task {
    Task {
        attempt: attempt.get(),
        not_after_unix_ms: i64::MAX,
        machine_uid: String::new(),
        scripts: Vec::new(),
        proxy: None,
        bmc: None,
        action: TaskAction::Inventory,
        then: match mode {
            EnlistMode::Create => Afterwards::PowerOff,
            EnlistMode::Off | EnlistMode::Discover | EnlistMode::CreateAndCommission => Afterwards::Reboot,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_task_writes_nothing_and_only_a_machine_that_is_created_is_powered_off() {
        let then = |mode| {
            let task = task(Attempt::new(4), mode);
            assert!(!task.changes_machine());
            task.then
        };
        assert_eq!(then(EnlistMode::Discover), Afterwards::Reboot);
        assert_eq!(then(EnlistMode::Create), Afterwards::PowerOff);
        assert_eq!(then(EnlistMode::CreateAndCommission), Afterwards::Reboot);
    }
}
