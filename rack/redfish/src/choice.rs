//! Which ResetType, and which boot override, of those that a BMC allows.

use serde_json::{Value, json};

use crate::core::{Boot, Device, Reset};
use crate::error::Failure;
use crate::resource::BootNow;

/// What does each, the best first. Where a BMC does not say what it allows, the first is tried.
const RESETS: [(Reset, &str, &[&str]); 4] = [
    (Reset::On, "power the system on", &["On", "ForceOn"]),
    (Reset::Off, "power the system off", &["ForceOff"]),
    // A button that is pressed for a moment asks the operating system, as ACPI has it.
    (Reset::SoftOff, "shut the system down", &["GracefulShutdown", "PushPowerButton"]),
    // All BMCs have ForceRestart; PowerCycle is of ComputerSystem 1.8, and also takes power from cards that hang.
    (Reset::Cycle, "power-cycle the system", &["PowerCycle", "ForceRestart"]),
];

/// The ResetType that does this.
pub(crate) fn reset_type(reset: Reset, allowed: Option<&[String]>) -> Result<&'static str, Failure> {
    let row = RESETS.iter().find(|(of, ..)| *of == reset);
    let (what, choices) = row.map_or(("reset the system", &[][..]), |(_, what, choices)| (*what, *choices));
    let chosen = match allowed {
        Some(allowed) => choices.iter().find(|choice| allowed.iter().any(|it| it == *choice)),
        // Not every BMC that lists nothing has PowerCycle.
        None if reset == Reset::Cycle => choices.last(),
        None => choices.first(),
    };
    chosen
        .copied()
        .ok_or_else(|| Failure::Unsupported { what, allowed: allowed.unwrap_or_default().to_vec() })
}

/// The body of the PATCH that has the system boot this once. The mode is named only where it has to change: BMCs refuse properties
/// that they do not have, and some refuse to be told what they know.
pub(crate) fn boot(boot: Boot, now: &BootNow) -> Result<Value, Failure> {
    let allows =
        |target: &str| now.targets.as_ref().is_none_or(|allowed| allowed.iter().any(|it| it == target));
    let (enabled, target) = match boot.device {
        Device::Network if allows("Pxe") => ("Once", "Pxe"),
        Device::Network => {
            let allowed = now.targets.clone().unwrap_or_default();
            return Err(Failure::Unsupported {
                what: "boot the system from the network once (Pxe)",
                allowed,
            });
        }
        Device::Disk if allows("Hdd") => ("Once", "Hdd"),
        // Its own order then: the disk is first there, or a rack sends it on to its disk.
        Device::Disk => ("Disabled", "None"),
    };
    let mut body = json!({"BootSourceOverrideEnabled": enabled, "BootSourceOverrideTarget": target});
    let legacy = now.mode.as_deref().is_some_and(|mode| mode != "UEFI");
    if let (true, true, Some(map)) = (boot.uefi && enabled == "Once", legacy, body.as_object_mut()) {
        map.insert("BootSourceOverrideMode".to_owned(), json!("UEFI"));
    }
    Ok(json!({ "Boot": body }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn the_best_of_what_is_allowed_is_chosen() {
        for (reset, allowed, chosen) in [
            (Reset::On, Some(&["ForceOn", "On"][..]), Some("On")),
            (Reset::On, Some(&["ForceOn"]), Some("ForceOn")),
            (Reset::On, None, Some("On")),
            (Reset::Off, Some(&["GracefulShutdown"]), None),
            (Reset::SoftOff, Some(&["On", "PushPowerButton"]), Some("PushPowerButton")),
            (Reset::Cycle, Some(&["ForceRestart", "PowerCycle"]), Some("PowerCycle")),
            (Reset::Cycle, Some(&["ForceRestart"]), Some("ForceRestart")),
            (Reset::Cycle, None, Some("ForceRestart")),
            (Reset::Cycle, Some(&[]), None),
        ] {
            let allowed = allowed.map(words);
            assert_eq!(reset_type(reset, allowed.as_deref()).ok(), chosen, "{reset:?} of {allowed:?}");
        }
    }

    #[test]
    fn the_mode_is_named_only_where_it_has_to_change() {
        let now = |mode: Option<&str>| BootNow { targets: None, mode: mode.map(str::to_owned) };
        let mode = |uefi, now: &BootNow| {
            let body = boot(Boot { device: Device::Network, uefi }, now).unwrap();
            body.pointer("/Boot/BootSourceOverrideMode").cloned()
        };
        assert_eq!(mode(true, &now(Some("Legacy"))), Some(json!("UEFI")));
        assert_eq!(mode(true, &now(Some("UEFI"))), None);
        assert_eq!(mode(true, &now(None)), None);
        assert_eq!(mode(false, &now(Some("Legacy"))), None);
    }

    #[test]
    fn what_has_no_disk_to_choose_goes_back_to_its_own_order_and_without_a_network_says_so() {
        let now = BootNow { targets: Some(words(&["Cd"])), mode: None };
        let disk = boot(Boot { device: Device::Disk, uefi: false }, &now).unwrap();
        assert_eq!(disk.pointer("/Boot/BootSourceOverrideEnabled"), Some(&json!("Disabled")));
        let error = boot(Boot { device: Device::Network, uefi: false }, &now).unwrap_err().to_string();
        assert!(error.ends_with("it allows: Cd"), "{error}");
    }
}
