//! The Machine that enlistment creates from an undeclared one. Pure.

use std::collections::BTreeSet;

use basalt_api::agent;
use basalt_api::kinds::{Architecture, EnlistRule, Enlistment, Inventory, ProposedMachine};
use basalt_api::values::Mac;

use crate::racks::stranger;

/// The longest name, in characters (RFC 1123 §2.1).
const LABEL: usize = 63;

/// An undeclared machine, from its agent's result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'a> {
    /// The interface from which the machine booted.
    pub boot_mac: Mac,
    /// The hardware, as the agent reported it.
    pub inventory: &'a agent::Inventory,
    /// The rack that reported the machine.
    pub rack: &'a str,
    /// The VLAN on which the machine booted, if it is declared.
    pub vlan: Option<&'a str>,
}

/// The Machine that Settings propose.
#[must_use]
pub(crate) fn proposed(found: Found<'_>, settings: &Enlistment) -> ProposedMachine {
    let own = found.inventory.nics.iter().filter_map(stranger::own_mac);
    let boot_macs: BTreeSet<Mac> = own.chain([found.boot_mac]).collect();
    let inventory = Inventory::from_agent(found.inventory, &Default::default());
    let rule = settings.rules.values().find(|rule| holds(rule, found, &inventory));
    ProposedMachine {
        name: name(found, &settings.name),
        architecture: inventory.architecture.unwrap_or(Architecture::Amd64),
        boot_macs,
        zone: rule.and_then(|rule| rule.zone.clone()),
        pool: rule.and_then(|rule| rule.pool.clone()),
        tags: rule.map(|rule| rule.tags.clone()).unwrap_or_default(),
    }
}

/// The name for a machine that is named by its MAC.
#[must_use]
pub(crate) fn name_by_mac(mac: Mac) -> String {
    format!("mac-{}", mac.to_string().replace(':', "-"))
}

fn holds(rule: &EnlistRule, found: Found<'_>, inventory: &Inventory) -> bool {
    let dmi = &found.inventory.dmi;
    let is_like = |pattern: &Option<String>, text: &str| {
        pattern.as_ref().is_none_or(|it| basalt_api::glob::matches(it, text))
    };
    rule.rack.as_ref().is_none_or(|rack| rack.as_str() == found.rack)
        && rule.vlan.as_ref().is_none_or(|vlan| Some(vlan.as_str()) == found.vlan)
        && is_like(&rule.vendor, &dmi.manufacturer)
        && is_like(&rule.product, &dmi.product)
        && rule.switch.as_ref().is_none_or(|switch| {
            inventory.interfaces.values().any(|it| basalt_engine::select::is_at_switch(switch, it))
        })
}

/// The name from the template. If the machine lacks a part of it, the name is made from the MAC.
fn name(found: Found<'_>, template: &str) -> String {
    let dmi = &found.inventory.dmi;
    let parts = [
        ("{vendor}", label(&dmi.manufacturer)),
        ("{product}", label(&dmi.product)),
        ("{serial}", label(stranger::serial(dmi).unwrap_or_default())),
        ("{mac}", name_by_mac(found.boot_mac)),
    ];
    let lacks = parts.iter().any(|(part, text)| template.contains(part) && text.is_empty());
    let name = parts.iter().fold(template.to_owned(), |name, (part, text)| name.replace(part, text));
    match label(&name) {
        name if lacks || name.is_empty() => name_by_mac(found.boot_mac),
        name => name,
    }
}

/// The text as a DNS label. Empty if it contains no letter or digit.
fn label(text: &str) -> String {
    let mut label = String::new();
    for letter in text.chars().map(|it| it.to_ascii_lowercase()) {
        match letter {
            'a'..='z' | '0'..='9' => label.push(letter),
            _ if label.ends_with('-') => {}
            _ => label.push('-'),
        }
    }
    let label: String = label.trim_start_matches('-').chars().take(LABEL).collect();
    label.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_api::agent::{Dmi, Nic};

    fn inventory(vendor: &str, serial: &str) -> agent::Inventory {
        let nic = |mac: &str| Nic { mac: mac.into(), hardware: Some(1), ..Nic::default() };
        agent::Inventory {
            architecture: "aarch64".into(),
            nics: vec![nic("52:54:00:00:00:01"), nic("52:54:00:00:00:02")],
            dmi: Dmi {
                manufacturer: vendor.into(),
                serial: serial.into(),
                product: "R640".into(),
                ..Dmi::default()
            },
            ..agent::Inventory::default()
        }
    }

    fn made(inventory: &agent::Inventory, settings: &Enlistment) -> ProposedMachine {
        let boot_mac = "52:54:00:00:00:02".parse().unwrap();
        proposed(Found { boot_mac, inventory, rack: "r1", vlan: Some("lab.0") }, settings)
    }

    #[test]
    fn a_machine_is_called_after_vendor_and_serial_number_or_after_its_mac() {
        let settings = Enlistment::default();
        let name = |vendor, serial| made(&inventory(vendor, serial), &settings).name;
        assert_eq!(name("Dell Inc.", "5BR47J2"), "dell-inc-5br47j2");
        assert_eq!(name("QEMU", ""), "mac-52-54-00-00-00-02");
        assert_eq!(name("QEMU", "Not Specified"), "mac-52-54-00-00-00-02");
        let mac = Enlistment { name: "node-{mac}".into(), ..Enlistment::default() };
        assert_eq!(made(&inventory("", ""), &mac).name, "node-mac-52-54-00-00-00-02");
        let long = made(&inventory(&"x".repeat(80), "1a"), &settings).name;
        assert_eq!(long, "x".repeat(63));
    }

    #[test]
    fn each_condition_of_a_rule_must_hold_and_it_says_zone_pool_and_tags() {
        let with = |condition: serde_json::Value| {
            let mut rule = serde_json::json!({"zone": "row-1", "pool": "new", "tags": ["new"]});
            rule.as_object_mut().unwrap().extend(condition.as_object().unwrap().clone());
            let rules = [("it".to_owned(), serde_json::from_value(rule).unwrap())].into();
            let made = made(&inventory("Dell Inc.", "1a"), &Enlistment { rules, ..Enlistment::default() });
            let tags: Vec<String> = made.tags.iter().map(ToString::to_string).collect();
            (made.zone.map(|it| it.to_string()), made.pool.map(|it| it.to_string()), tags.join(" "))
        };
        let given = (Some("row-1".to_owned()), Some("new".to_owned()), "new".to_owned());
        let nothing = (None, None, String::new());
        for (field, right, wrong) in [
            ("rack", "r1", "r2"),
            ("vlan", "lab.0", "lab.7"),
            ("vendor", "Dell*", "HP*"),
            ("product", "R6?0", "R7?0"),
        ] {
            assert_eq!(with(serde_json::json!({ (field): right })), given, "{field}");
            assert_eq!(with(serde_json::json!({ (field): wrong })), nothing, "{field}");
        }
    }

    #[test]
    fn all_interfaces_may_boot_it_and_the_first_rule_that_holds_says_where_it_belongs() {
        let rule = |vendor: &str, zone: &str| EnlistRule {
            vendor: Some(vendor.into()),
            zone: Some(zone.parse().unwrap()),
            ..EnlistRule::default()
        };
        let rules = [("a", rule("HP*", "row-1")), ("b", rule("Dell*", "row-2")), ("c", rule("*", "row-3"))];
        let rules = rules.map(|(name, rule)| (name.to_owned(), rule)).into();
        let settings = Enlistment { rules, ..Enlistment::default() };
        let dell = made(&inventory("Dell Inc.", "5BR47J2"), &settings);
        assert_eq!(dell.zone.unwrap().as_str(), "row-2");
        assert_eq!(dell.boot_macs.len(), 2);
        assert_eq!(dell.architecture, Architecture::Arm64);
        assert_eq!(made(&inventory("Other", "1a"), &settings).zone.unwrap().as_str(), "row-3");
    }
}
