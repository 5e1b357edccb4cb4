//! The treatment of undeclared machines that boot from the network.

use super::{Pool, Rack, Vlan, Zone};
use crate::model::Ref;
use crate::validate::Rule;
use crate::values::Tag;
use basalt_api_derive::Model;
use std::collections::{BTreeMap, BTreeSet};

/// The treatment of an undeclared machine that boots from the network. A machine is inspected at most once an hour, and while a
/// region is connected to its rack. Nothing is written to its disks or its firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum EnlistMode {
    /// The machine is not inspected, and boots its disk.
    Off,
    /// The machine is inspected, and boots its disk. The result is a Discovery. `basalt accept` makes a Machine from it.
    Discover,
    /// As `discover`; then the region makes a Machine with the hardware that was found. The machine is powered off.
    Create,
    /// As `create`; then the Machine is commissioned. It reboots for that.
    CreateAndCommission,
}

/// The inspection of undeclared machines, and the Machines that are made from the results.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Enlistment {
    /// The number of machines of one VLAN that one rack may inspect at the same time. Others ask again, and boot their disks
    /// after a quarter of an hour.
    #[field(none, default = 16, min = 1, max = 1000)]
    pub at_once: u32,
    /// The first octets of the MAC addresses that are inspected, like `52:54:00`. Empty: all.
    #[field(none)]
    pub allow: BTreeSet<String>,
    /// The first octets of MAC addresses that are not inspected: their machines boot their disks.
    #[field(none)]
    pub ignore: BTreeSet<String>,
    /// The pattern for the name of a Machine: `{vendor}`, `{product}`, `{serial}` and `{mac}` stand for the hardware that was
    /// found. If one of these parts was not found, or another Machine has the name, the name is `{mac}`.
    #[field(none, default = "{vendor}-{serial}")]
    pub name: String,
    /// Rules for the zone, pool and tags of these Machines, by name. The first rule that holds counts, in the order of the names.
    #[field(none)]
    pub rules: BTreeMap<String, EnlistRule>,
}

/// A rule for Machines that are made from discoveries. It holds if each given condition is true.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct EnlistRule {
    /// The rack that found the machine.
    #[field(none)]
    pub rack: Option<Ref<Rack>>,
    /// The VLAN on which the machine booted.
    #[field(none)]
    pub vlan: Option<Ref<Vlan>>,
    /// The manufacturer of the machine (SMBIOS); `*` stands for any text, `?` for any character.
    #[field(none)]
    pub vendor: Option<String>,
    /// The product name of the machine (SMBIOS), with `*` and `?` as in `vendor`.
    #[field(none)]
    pub product: Option<String>,
    /// The name of a switch at one of the machine's interfaces, as the switch announces it by LLDP or CDP, with `*` and `?` as in
    /// `vendor`.
    #[field(none)]
    pub switch: Option<String>,
    /// The zone that the Machine gets.
    #[field(none)]
    pub zone: Option<Ref<Zone>>,
    /// The pool that the Machine gets.
    #[field(none)]
    pub pool: Option<Ref<Pool>>,
    /// The tags that the Machine gets.
    #[field(none)]
    pub tags: BTreeSet<Tag>,
}

/// The words in braces that [`Enlistment::name`] may contain.
const PARTS: [&str; 4] = ["vendor", "product", "serial", "mac"];

pub(super) fn enlistment_rules(spec: &Enlistment, rule: &mut Rule<'_>) {
    for (list, prefixes) in [("allow", &spec.allow), ("ignore", &spec.ignore)] {
        for prefix in prefixes.iter().filter(|prefix| !is_prefix(prefix)) {
            rule.broken(
                format!("/enlistment/{list}"),
                format!("{prefix:?} is no beginning of a MAC address"),
                "one to six octets with colons between them, like 52:54:00",
            );
        }
    }
    let mut rest = spec.name.as_str();
    while let Some((_, after)) = rest.split_once('{') {
        let part = after.split_once('}').map(|(part, _)| part);
        if !part.is_some_and(|part| PARTS.contains(&part)) {
            rule.broken(
                "/enlistment/name",
                format!("{:?} has a brace that stands for nothing", spec.name),
                format!("one of {{{}}}", PARTS.join("}, {")),
            );
            return;
        }
        rest = after;
    }
    if !spec.name.contains('{') {
        rule.broken(
            "/enlistment/name",
            format!("{:?} is the same for all machines", spec.name),
            "a part that differs, like {serial} or {mac}",
        );
    }
}

fn is_prefix(text: &str) -> bool {
    let octets = text.split(':');
    octets.clone().count() <= 6
        && octets.into_iter().all(|octet| octet.len() == 2 && octet.bytes().all(|it| it.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_whole_octets() {
        assert!(["52", "52:54:00", "52:54:00:0A:0b:0c"].iter().all(|it| is_prefix(it)));
        assert!(["", "5", "52:5", "52-54", "52:54:00:0a:0b:0c:0d", "xx"].iter().all(|it| !is_prefix(it)));
    }
}
