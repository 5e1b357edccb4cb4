//! A machine that announces another architecture than it is declared with: racks send it no program.

use basalt_api::kinds::Architecture;
use basalt_api::wire::{Boot, BootEntry, Judgement};

/// Firmware in the words of racks (option 93 of RFC 4578), and the architecture of its programs.
const FIRMWARE: [(&str, Architecture); 3] = [
    ("x86 BIOS", Architecture::Amd64),
    ("x86-64 UEFI", Architecture::Amd64),
    ("arm64 UEFI", Architecture::Arm64),
];

/// Says of boots whose firmware or iPXE is of another architecture than declared that this is why they failed. A boot whose agent came has
/// not failed.
pub(super) fn compare(declared: Architecture, boots: &mut [Boot]) {
    for boot in boots {
        let came = boot.entries.iter().any(|entry| entry.service == "agent");
        let other = boot.entries.iter().find_map(announced).filter(|(_, it)| !came && *it != declared);
        if let Some((client, architecture)) = other {
            boot.judgement = Some(judgement(&client, architecture, declared));
        }
    }
}

/// The client that asks, and its architecture, where a message says so.
fn announced(entry: &BootEntry) -> Option<(String, Architecture)> {
    let said = entry.asked.split(", ").nth(1).filter(|_| entry.service.starts_with("dhcp"))?;
    let (client, words) = match entry.client.as_deref()? {
        "firmware" => ("its firmware is", said),
        "ipxe" => ("its iPXE runs on", said.strip_prefix("iPXE on ")?),
        _ => return None,
    };
    let (firmware, architecture) = FIRMWARE.into_iter().find(|(firmware, _)| words.starts_with(firmware))?;
    Some((format!("{client} {firmware}"), architecture))
}

fn judgement(client: &str, architecture: Architecture, declared: Architecture) -> Judgement {
    Judgement {
        code: "other_architecture".to_owned(),
        message: format!(
            "{client}, so the machine is {architecture}, and it is declared as {declared}: it is sent no program, since no kernel for {declared} \
             starts there"
        ),
        to_do: format!(
            "set architecture of the Machine to {architecture}, and see that there is an ephemeral image for it; if the MAC is that of another \
             machine, correct boot_macs"
        ),
    }
}
