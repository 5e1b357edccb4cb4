//! The choice of the ResetType and of the boot override among those that a BMC allows.

use serde_json::{Value, json};

use crate::core::{Boot, Device, Reset};
use crate::error::{Failure, told};
use crate::resource::{BootNow, Objection};

/// The ResetTypes for each action, the best first. If a BMC does not list the allowed ones, the first is tried.
const RESETS: [(Reset, &str, &[&str]); 4] = [
    (Reset::On, "power the system on", &["On", "ForceOn"]),
    (Reset::Off, "power the system off", &["ForceOff"]),
    // A short press of the button asks the operating system to shut down, by ACPI.
    (Reset::SoftOff, "shut the system down", &["GracefulShutdown", "PushPowerButton"]),
    // All BMCs have ForceRestart. PowerCycle comes from ComputerSystem 1.8; it also cuts the power of cards that hang.
    (Reset::Cycle, "power-cycle the system", &["PowerCycle", "ForceRestart"]),
];

/// The ResetType for an action.
pub(crate) fn reset_type(reset: Reset, allowed: Option<&[String]>) -> Result<&'static str, Failure> {
    let row = RESETS.iter().find(|(of, ..)| *of == reset);
    let (what, choices) = row.map_or(("reset the system", &[][..]), |(_, what, choices)| (*what, *choices));
    let chosen = match allowed {
        Some(allowed) => choices.iter().find(|choice| allowed.iter().any(|it| it == *choice)),
        // Not every BMC that lists no allowed types has PowerCycle.
        None if reset == Reset::Cycle => choices.last(),
        None => choices.first(),
    };
    chosen
        .copied()
        .ok_or_else(|| Failure::Unsupported { what, allowed: allowed.unwrap_or_default().to_vec() })
}

/// The restart of a BMC, for errors.
pub(crate) const RESTART: &str = "restart itself";
/// The ResetTypes of Manager.Reset, the best first: a BMC that is stuck may never end a graceful restart.
const RESTARTS: [&str; 2] = ["ForceRestart", "GracefulRestart"];

/// The ResetType for the restart of a BMC. A BMC that lists no types is sent the graceful one, which schema Manager 1.0 had first.
pub(crate) fn restart_type(allowed: Option<&[String]>) -> Result<&'static str, Failure> {
    let [_, graceful] = RESTARTS;
    let Some(allowed) = allowed else { return Ok(graceful) };
    let chosen = RESTARTS.into_iter().find(|choice| allowed.iter().any(|it| it == choice));
    chosen.ok_or_else(|| Failure::Unsupported { what: RESTART, allowed: allowed.to_vec() })
}

/// Boot targets that start the network, the best first. The rack serves UEFI HTTP boot as well as PXE.
const NETWORK: [&str; 2] = ["Pxe", "UefiHttp"];
/// The property whose rules differ most between BMCs.
const MODE: &str = "BootSourceOverrideMode";
const TARGET: &str = "BootSourceOverrideTarget";
/// Messages (DMTF registry Base) that refuse a property or its value.
const REFUSED: [&str; 5] = [
    "PropertyUnknown",
    "PropertyNotWritable",
    "PropertyValueNotInList",
    "PropertyValueConflict",
    "PropertyValueIncorrect",
];

/// A boot override to set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Override {
    boot: Boot,
    enabled: &'static str,
    target: &'static str,
    mode: Option<String>,
}

impl Override {
    /// The override with which the system boots this once. It names the mode only if the mode must change: BMCs refuse
    /// unknown properties, and some refuse a mode that is set already.
    pub(crate) fn choose(boot: Boot, now: &BootNow) -> Result<Self, Failure> {
        let allows =
            |target: &&str| now.targets.as_ref().is_none_or(|allowed| allowed.iter().any(|it| it == *target));
        let (enabled, target) = match boot.device {
            Device::Network => match NETWORK.iter().find(|it| allows(it)) {
                Some(target) => ("Once", *target),
                None => {
                    let allowed = now.targets.clone().unwrap_or_default();
                    let what = "boot the system from the network once (Pxe or UefiHttp)";
                    return Err(Failure::Unsupported { what, allowed });
                }
            },
            Device::Disk if allows(&"Hdd") => ("Once", "Hdd"),
            // With the system's own boot order the disk comes first, or a rack makes the machine go on to its disk.
            Device::Disk => ("Disabled", "None"),
        };
        let mut it = Self { boot, enabled, target, mode: None };
        let legacy = now.mode.as_deref().is_some_and(|mode| mode != "UEFI");
        it.mode = (it.by_uefi() && enabled == "Once" && legacy).then(|| "UEFI".to_owned());
        Ok(it)
    }

    /// The body of the PATCH that sets it.
    pub(crate) fn body(&self) -> Value {
        let mut body = json!({"BootSourceOverrideEnabled": self.enabled, TARGET: self.target});
        if let (Some(mode), Some(map)) = (&self.mode, body.as_object_mut()) {
            map.insert(MODE.to_owned(), json!(mode));
        }
        json!({ "Boot": body })
    }

    /// The override to try after the BMC refused this one for these reasons. `None`: another request does not help.
    ///
    /// | reason | about | next try |
    /// | --- | --- | --- |
    /// | PropertyMissing | the mode | the mode is named |
    /// | no such property or value | the mode | the mode is left out |
    /// | no such value | the target, if the BMC lists none | the next target that starts the network |
    pub(crate) fn mended(&self, objections: &[Objection], now: &BootNow) -> Option<Self> {
        let missing = |it: &Objection| it.id == "PropertyMissing" && it.names(MODE);
        let refused = |it: &Objection, property| REFUSED.contains(&it.id.as_str()) && it.names(property);
        let mut other = self.clone();
        if self.mode.is_none() && objections.iter().any(missing) {
            other.mode = Some(self.mode_by(now));
        } else if self.mode.is_some() && objections.iter().any(|it| refused(it, MODE)) {
            other.mode = None;
        } else if now.targets.is_none() && objections.iter().any(|it| refused(it, TARGET)) {
            let mut from_this_one = NETWORK.iter().skip_while(|it| **it != self.target);
            other.target = from_this_one.nth(1)?;
        }
        (other != *self).then_some(other)
    }

    /// The override that the system has instead, if it has another one. A missing property is no contradiction.
    pub(crate) fn contradicted(&self, now: &BootNow) -> Option<String> {
        let reads = |property: Option<&String>, wanted: &[&str]| {
            property.is_none_or(|it| wanted.contains(&it.as_str()))
        };
        // A continuous override starts the network next time as well.
        let kept = match self.enabled {
            "Once" => {
                reads(now.enabled.as_ref(), &["Once", "Continuous"])
                    && reads(now.target.as_ref(), &[self.target])
            }
            _ => reads(now.enabled.as_ref(), &["Disabled"]) || reads(now.target.as_ref(), &["None"]),
        };
        let word = |it: &Option<String>| it.as_deref().map_or_else(|| "null".to_owned(), told);
        (!kept).then(|| format!("target {}, enabled {}", word(&now.target), word(&now.enabled)))
    }

    /// The mode to use if the override must name one.
    fn mode_by(&self, now: &BootNow) -> String {
        let allows = |mode: &str| now.modes.as_ref().is_none_or(|modes| modes.iter().any(|it| it == mode));
        let present = now.mode.clone().filter(|_| !self.by_uefi());
        let only = || now.modes.as_ref().and_then(|modes| modes.first()).filter(|_| !allows("UEFI"));
        present.or_else(|| only().cloned()).unwrap_or_else(|| "UEFI".to_owned())
    }

    fn by_uefi(&self) -> bool {
        self.boot.uefi || self.target == "UefiHttp"
    }
}

impl std::fmt::Display for Override {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "target {}, enabled {}", self.target, self.enabled)
    }
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
        let now = |mode: Option<&str>| BootNow { mode: mode.map(str::to_owned), ..BootNow::default() };
        let mode = |uefi, now: &BootNow| {
            let body = Override::choose(Boot { device: Device::Network, uefi }, now).unwrap().body();
            body.pointer("/Boot/BootSourceOverrideMode").cloned()
        };
        assert_eq!(mode(true, &now(Some("Legacy"))), Some(json!("UEFI")));
        assert_eq!(mode(true, &now(Some("UEFI"))), None);
        assert_eq!(mode(true, &now(None)), None);
        assert_eq!(mode(false, &now(Some("Legacy"))), None);
    }

    #[test]
    fn what_has_no_disk_to_choose_goes_back_to_its_own_order_and_without_a_network_says_so() {
        let now = BootNow { targets: Some(words(&["Cd"])), ..BootNow::default() };
        let disk = Override::choose(Boot { device: Device::Disk, uefi: false }, &now).unwrap().body();
        assert_eq!(disk.pointer("/Boot/BootSourceOverrideEnabled"), Some(&json!("Disabled")));
        let error = Override::choose(NETWORK_BOOT, &now).unwrap_err().to_string();
        assert!(error.ends_with("it allows: Cd"), "{error}");
    }

    const NETWORK_BOOT: Boot = Boot { device: Device::Network, uefi: false };

    #[test]
    fn without_pxe_the_network_is_booted_by_http_under_uefi() {
        let (targets, mode) = (Some(words(&["None", "UefiHttp", "Hdd"])), Some("Legacy".to_owned()));
        let now = BootNow { targets, mode, ..BootNow::default() };
        let body = Override::choose(NETWORK_BOOT, &now).unwrap().body();
        let wanted = json!({"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "UefiHttp", "BootSourceOverrideMode": "UEFI"});
        assert_eq!(body, json!({ "Boot": wanted }));
    }

    fn objection(id: &str, text: &str) -> [Objection; 1] {
        [Objection { id: id.to_owned(), text: text.to_owned() }]
    }

    #[test]
    fn a_refusal_is_mended_by_what_it_and_the_resource_say() {
        let modes = |modes: &[&str]| Some(words(modes));
        let now = |mode: Option<&str>, modes| BootNow {
            mode: mode.map(str::to_owned),
            modes,
            ..BootNow::default()
        };
        let missing = objection("PropertyMissing", "Boot/BootSourceOverrideMode");
        for (uefi, now, mode) in [
            (true, now(Some("UEFI"), None), "UEFI"),
            (false, now(Some("Legacy"), None), "Legacy"),
            (false, now(None, modes(&["Legacy"])), "Legacy"),
            (false, now(None, modes(&["Legacy", "UEFI"])), "UEFI"),
            (false, now(None, None), "UEFI"),
        ] {
            let first = Override::choose(Boot { device: Device::Network, uefi }, &now).unwrap();
            let second = first.mended(&missing, &now).unwrap();
            assert_eq!(second.mode.as_deref(), Some(mode), "{now:?}");
            assert_eq!(second.mended(&missing, &now), None, "it was named: another request does not help");
            let unknown = objection("PropertyUnknown", "BootSourceOverrideMode");
            assert_eq!(second.mended(&unknown, &now).unwrap().mode, None);
        }
        let now = now(Some("UEFI"), None);
        let first = Override::choose(NETWORK_BOOT, &now).unwrap();
        let http =
            first.mended(&objection("PropertyValueNotInList", "Pxe BootSourceOverrideTarget"), &now).unwrap();
        assert_eq!(http.target, "UefiHttp");
        assert_eq!(first.mended(&objection("GeneralError", "BootSourceOverrideMode"), &now), None);
    }

    #[test]
    fn a_system_that_reads_another_override_contradicts_it() {
        let reads = |enabled: &str, target: &str| BootNow {
            enabled: Some(enabled.to_owned()),
            target: Some(target.to_owned()),
            ..BootNow::default()
        };
        let network = Override::choose(NETWORK_BOOT, &BootNow::default()).unwrap();
        for (now, contradicts) in [
            (reads("Once", "Pxe"), false),
            (reads("Continuous", "Pxe"), false),
            (BootNow::default(), false),
            (reads("Disabled", "Pxe"), true),
            (reads("Once", "Hdd"), true),
            (reads("Disabled", "None"), true),
        ] {
            assert_eq!(network.contradicted(&now).is_some(), contradicts, "{now:?}");
        }
        let (targets, disk) = (Some(words(&["Pxe"])), Boot { device: Device::Disk, uefi: true });
        let own = Override::choose(disk, &BootNow { targets, ..BootNow::default() }).unwrap();
        assert_eq!(own.contradicted(&reads("Disabled", "Pxe")), None);
        assert!(own.contradicted(&reads("Once", "Pxe")).is_some());
    }
}
