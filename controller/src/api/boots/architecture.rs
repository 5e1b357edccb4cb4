//! Boots of machines that announce another architecture than the declared one: racks do not send them a boot program.

use basalt_api::kinds::Architecture;
use basalt_api::wire::{Boot, BootEntry, Judgement};

/// Firmware types as racks name them (option 93, RFC 4578), and the architecture of their programs.
const FIRMWARE: [(&str, Architecture); 3] = [
    ("x86 BIOS", Architecture::Amd64),
    ("x86-64 UEFI", Architecture::Amd64),
    ("arm64 UEFI", Architecture::Arm64),
];

/// If the firmware or iPXE of a boot has another architecture than the declared one, sets this as the cause of the failure. A boot whose
/// agent has started did not fail.
pub(super) fn compare(declared: Architecture, boots: &mut [Boot]) {
    for boot in boots {
        let came = boot.entries.iter().any(|entry| entry.service == "agent");
        let other = boot.entries.iter().find_map(announced).filter(|(_, it)| !came && *it != declared);
        if let Some((client, architecture)) = other {
            boot.judgement = Some(judgement(&client, architecture, declared));
        }
    }
}

/// The client of a DHCP request and its architecture, if the request names one.
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
