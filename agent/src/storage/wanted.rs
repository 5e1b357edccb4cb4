//! The layout of a task, and the conditions for its disks.

use std::collections::BTreeMap;

use basalt_api::agent::{DiskSelector, Install};
use basalt_api::disk::least_bytes;
use basalt_api::kinds::StorageConfig;

/// The layout to build, and its disks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The layout, in `custom`'s terms.
    pub storage: StorageConfig,
    /// Conditions for the disks, by their names in the layout.
    pub disks: BTreeMap<String, DiskSelector>,
}

/// The layout of a task. A task without a storage layout gets the layout `flat` on its disk.
#[must_use]
pub fn wanted(install: &Install) -> Wanted {
    let Some(storage) = &install.storage else {
        let storage = StorageConfig::default().expanded();
        let mut selector = install.disk.clone();
        selector.min_bytes = Some(least_bytes(install.image.size).max(selector.min_bytes.unwrap_or(0)));
        let disks = storage.disks.keys().map(|name| (name.clone(), selector.clone())).collect();
        return Wanted { storage, disks };
    };
    let storage = storage.expanded();
    let disks = storage.wanted_disks(install.image.size);
    Wanted { storage, disks }
}

#[cfg(test)]
mod tests {
    use basalt_api::agent::{BlobRef, NoCloudSeed, Wipe};
    use serde_json::{Value, json};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn install(storage: Option<Value>) -> Install {
        Install {
            image: BlobRef { sha256: String::new(), size: 100 * MIB },
            disk: DiskSelector { name: Some("vdb".to_owned()), ..DiskSelector::default() },
            storage: storage.map(|storage| serde_json::from_value(storage).unwrap()),
            wipe: Wipe::IfOurs,
            hostname: "m".to_owned(),
            kernel_options: String::new(),
            netplan: String::new(),
            ntp_servers: Vec::new(),
            packages: None,
            log_to: None,
            log_receivers: Vec::new(),
            seed: NoCloudSeed::default(),
            first_boot: None,
        }
    }

    fn disks(storage: Option<Value>) -> Vec<String> {
        let wanted = wanted(&install(storage));
        let text = |(name, it): (&String, &DiskSelector)| {
            format!("{name} {} {}", it.name.as_deref().unwrap_or("any"), it.min_bytes.unwrap_or(0) / MIB)
        };
        wanted.disks.iter().map(text).collect()
    }

    #[test]
    fn a_task_of_an_older_region_wants_one_flat_disk() {
        assert_eq!(disks(None), ["disk vdb 1424"]);
    }

    #[test]
    fn disks_have_room_for_what_is_built_on_them_and_for_the_system_where_it_takes_the_rest() {
        assert_eq!(disks(Some(json!({"layout": "flat", "disk": "S1"}))), ["disk S1 1424"]);
        assert_eq!(disks(Some(json!({"layout": "flat", "root_size": "3GiB"}))), ["disk any 3588"]);
        assert_eq!(disks(Some(json!({"layout": "lvm", "root_size": "3GiB"}))), ["disk any 3596"]);
        assert_eq!(disks(Some(json!({"layout": "raid1"}))), ["disk1 any 1424", "disk2 any 1424"]);
        let custom = json!({"layout": "custom", "disks": {"a": {}, "b": {"id": "wwn-1"}, "c": {"min_size": "1TiB"}},
            "partitions": {"root": {"disk": "a", "size": "2GiB"}, "b1": {"disk": "b", "size": "1GiB"}},
            "filesystems": {"root": {"device": "root", "mount": "/"}, "c": {"device": "c", "mount": "/c"}}});
        assert_eq!(disks(Some(custom)), ["a any 2564", "b wwn-1 1027", "c any 1048576"]);
    }
}
