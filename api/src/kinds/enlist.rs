//! How undeclared machines are treated that boot from the network.

use super::{Pool, Rack, Vlan, Zone};
use crate::model::Ref;
use crate::validate::Rule;
use crate::values::Tag;
use basalt_api_derive::Model;
use std::collections::{BTreeMap, BTreeSet};

/// How an undeclared machine is treated that boots from the network. It is inspected at most once an hour, and while a
/// region is connected to its rack. Nothing is written to its disks or its firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum EnlistMode {
    /// Nothing: it boots its disk.
    Off,
    /// It is inspected, and boots its disk. The result is a Discovery, which `basalt accept` makes a Machine of.
    Discover,
    /// As `discover`; then the region makes a Machine of it, with the hardware that was found. It is powered off.
    Create,
    /// As `create`; then the Machine is commissioned with a boot of its own, for which it reboots.
    CreateAndCommission,
}

/// How undeclared machines are inspected, and what is made of them.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct Enlistment {
    /// Machines of one VLAN that one rack may inspect at the same time. Others ask again, and boot their disks after a quarter of an hour.
    #[field(none, default = 16, min = 1, max = 1000)]
    pub at_once: u32,
    /// Only MAC addresses that begin with one of these octets: `52:54:00`. Empty: all.
    #[field(none)]
    pub allow: BTreeSet<String>,
    /// MAC addresses that begin with one of these octets boot their disks.
    #[field(none)]
    pub ignore: BTreeSet<String>,
    /// The name of a Machine that is made of one: `{vendor}`, `{product}`, `{serial}` and `{mac}` stand for what was found. When a part of it was
    /// not found, or another Machine has the name, it is `{mac}`.
    #[field(none, default = "{vendor}-{serial}")]
    pub name: String,
    /// Zone, pool and tags of Machines that are made of them, by name: the first rule that holds, in the order of the names.
    #[field(none)]
    pub rules: BTreeMap<String, EnlistRule>,
}

/// A rule. It holds if each given condition is true.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct EnlistRule {
    /// The rack that found it.
    #[field(none)]
    pub rack: Option<Ref<Rack>>,
    /// The VLAN that it booted on.
    #[field(none)]
    pub vlan: Option<Ref<Vlan>>,
    /// Its manufacturer (SMBIOS), with `*` for any text and `?` for any character.
    #[field(none)]
    pub vendor: Option<String>,
    /// Its product name (SMBIOS), likewise.
    #[field(none)]
    pub product: Option<String>,
    /// The name of a switch at one of its interfaces, as the switch announces it by LLDP or CDP, likewise.
    #[field(none)]
    pub switch: Option<String>,
    /// The zone of the Machine.
    #[field(none)]
    pub zone: Option<Ref<Zone>>,
    /// The pool of the Machine.
    #[field(none)]
    pub pool: Option<Ref<Pool>>,
    /// Tags of the Machine.
    #[field(none)]
    pub tags: BTreeSet<Tag>,
}

/// The words in braces that [`Enlistment::name`] may have.
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
