//! Identification of the machine, as its firmware says it (SMBIOS types 0 to 3).

use basalt_api::agent::Dmi;

use crate::root::Root;

pub(super) fn identification(root: &Root) -> Dmi {
    let id = |name: &str| root.text(format!("sys/class/dmi/id/{name}")).unwrap_or_default();
    Dmi {
        manufacturer: id("sys_vendor"),
        product: id("product_name"),
        serial: id("product_serial"),
        uuid: id("product_uuid"),
        bios_version: id("bios_version"),
    }
}
