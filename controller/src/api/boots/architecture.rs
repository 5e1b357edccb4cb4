//! Firmware of another architecture than declared: the machine gets a loader for the one and a kernel for the other.

use basalt_api::kinds::Architecture;
use basalt_api::wire::{Boot, BootEntry, Judgement};

/// Firmware in the words of racks (option 93 of RFC 4578), and the architecture of its programs.
const FIRMWARE: [(&str, Architecture); 3] = [
    ("x86 BIOS", Architecture::Amd64),
    ("x86-64 UEFI", Architecture::Amd64),
    ("arm64 UEFI", Architecture::Arm64),
];

/// Says of boots whose firmware is of another architecture than declared that this is why they failed. A boot whose agent came has not
/// failed.
pub(super) fn compare(declared: Architecture, boots: &mut [Boot]) {
    for boot in boots {
        let came = boot.entries.iter().any(|entry| entry.service == "agent");
        let other = boot.entries.iter().find_map(announced).filter(|(_, it)| !came && *it != declared);
        if let Some((firmware, architecture)) = other {
            boot.judgement = Some(judgement(firmware, architecture, declared));
        }
    }
}

/// The firmware that asks, and its architecture, where a message says so.
fn announced(entry: &BootEntry) -> Option<(&'static str, Architecture)> {
    let asks = entry.service.starts_with("dhcp") && entry.client.as_deref() == Some("firmware");
    let words = entry.asked.split(", ").nth(1).filter(|_| asks)?;
    FIRMWARE.into_iter().find(|(firmware, _)| words.starts_with(firmware))
}

fn judgement(firmware: &str, architecture: Architecture, declared: Architecture) -> Judgement {
    Judgement {
        code: "other_architecture".to_owned(),
        message: format!(
            "its firmware is {firmware}, so the machine is {architecture}, and it is declared as {declared}: no kernel for {declared} starts there"
        ),
        to_do: format!(
            "set architecture of the Machine to {architecture}, and see that there is an ephemeral image for it; if the MAC is that of another \
             machine, correct boot_macs"
        ),
    }
}
