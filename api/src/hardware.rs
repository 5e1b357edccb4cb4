//! Hardware filters of Scripts: a subject, a colon, and a pattern. Case does not count.
//!
//! | filter | is compared with |
//! | --- | --- |
//! | `modalias:pci:v00008086d*` | the modalias of each device; `*`, `?` and `[…]` |
//! | `pci:8086:15*`, `usb:0bda:8153` | vendor and device of each device on the bus, four hexadecimal digits each; `*` and `?` |
//! | `system_vendor:Dell*`, … ([`FIRMWARE`]) | a text of the firmware (SMBIOS types 1 and 2); `*` and `?` |

use std::collections::{BTreeMap, BTreeSet};

use crate::glob;

/// Most filters of a Script.
pub const MAX_FILTERS: usize = 64;
/// Most bytes of a filter.
pub const MAX_FILTER_BYTES: usize = 255;

/// Subjects that are texts of the firmware, with their files below `/sys/class/dmi/id`.
pub const FIRMWARE: [(&str, &str); 5] = [
    ("system_vendor", "sys_vendor"),
    ("system_product", "product_name"),
    ("system_version", "product_version"),
    ("mainboard_vendor", "board_vendor"),
    ("mainboard_product", "board_name"),
];

/// Buses, and the text before each identifier in a modalias of the bus.
const BUSES: [Bus; 2] = [
    Bus { name: "pci", vendor: "pci:v0000", device: "d0000" },
    Bus { name: "usb", vendor: "usb:v", device: "p" },
];
/// Hexadecimal digits of an identifier.
const DIGITS: usize = 4;

/// A machine as filters see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hardware {
    /// The modalias of each device, as the kernel writes it.
    pub modaliases: BTreeSet<String>,
    /// Texts of the firmware, by the subjects of [`FIRMWARE`].
    pub firmware: BTreeMap<&'static str, String>,
}

/// Says why a Script with these filters is not for a machine. None: one filter matches, or there is none. A filter that cannot be
/// read matches nothing.
#[must_use]
pub fn mismatch(filters: &[String], hardware: &Hardware) -> Option<String> {
    let matches = |filter: &String| Filter::parse(filter).is_ok_and(|filter| filter.matches(hardware));
    let is_for_it = filters.is_empty() || filters.iter().any(matches);
    (!is_for_it).then(|| format!("no hardware of the machine matches {}", filters.join(", ")))
}

/// A hardware filter. Its patterns are in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    subject: Subject,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    Modalias(String),
    Identifiers { bus: &'static Bus, vendor: String, device: String },
    Firmware { name: &'static str, pattern: String },
}

#[derive(Debug, PartialEq, Eq)]
struct Bus {
    name: &'static str,
    vendor: &'static str,
    device: &'static str,
}

impl Bus {
    /// Vendor and device in a modalias of this bus, in lower case.
    fn identifiers<'a>(&self, modalias: &'a str) -> Option<(&'a str, &'a str)> {
        let (vendor, rest) = modalias.strip_prefix(self.vendor)?.split_at_checked(DIGITS)?;
        Some((vendor, rest.strip_prefix(self.device)?.get(..DIGITS)?))
    }
}

/// A text that is no hardware filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadFilter {
    /// The cause, with the text.
    pub message: String,
    /// The right form.
    pub hint: String,
}

impl Filter {
    /// Reads a filter.
    ///
    /// # Errors
    /// Fails if the subject is unknown, or if the pattern could match nothing.
    pub fn parse(text: &str) -> Result<Self, BadFilter> {
        let bad = |message: String, hint: String| Err(BadFilter { message, hint });
        if text.len() > MAX_FILTER_BYTES {
            let message = format!("a hardware filter has {} bytes", text.len());
            return bad(message, format!("at most {MAX_FILTER_BYTES}"));
        }
        let (subject, pattern) = text.split_once(':').unwrap_or((text, ""));
        let pattern = pattern.to_lowercase();
        let bus = BUSES.iter().find(|bus| bus.name == subject);
        let firmware = FIRMWARE.iter().find(|(name, _)| *name == subject);
        let known = subject == "modalias" || bus.is_some() || firmware.is_some();
        if !known || pattern.is_empty() {
            let mut subjects = vec!["modalias"];
            subjects.extend(BUSES.iter().map(|bus| bus.name));
            subjects.extend(FIRMWARE.iter().map(|(name, _)| name));
            let hint = format!("one of {}, a colon, and a pattern", subjects.join(", "));
            return bad(format!("{text:?} is not a hardware filter"), hint);
        }
        if let Some(bus) = bus {
            let Some((vendor, device)) =
                pattern.split_once(':').filter(|(vendor, device)| identifies(vendor) && identifies(device))
            else {
                let name = bus.name;
                let message = format!("{text:?} does not name a vendor and a device");
                let hint = format!("{name}:VENDOR:DEVICE, four hexadecimal digits each, or *: {name}:8086:*");
                return bad(message, hint);
            };
            let (vendor, device) = (vendor.to_owned(), device.to_owned());
            return Ok(Self { subject: Subject::Identifiers { bus, vendor, device } });
        }
        if let Some((name, _)) = firmware {
            return Ok(Self { subject: Subject::Firmware { name, pattern } });
        }
        if pattern.split('[').skip(1).any(|set| !set.contains(']')) {
            return bad(format!("a set of {text:?} has no end"), "a ] for each [".to_owned());
        }
        Ok(Self { subject: Subject::Modalias(pattern) })
    }

    /// Tells if a machine has such hardware.
    #[must_use]
    pub fn matches(&self, hardware: &Hardware) -> bool {
        let mut aliases = hardware.modaliases.iter().map(|alias| alias.to_lowercase());
        match &self.subject {
            Subject::Modalias(pattern) => aliases.any(|alias| glob::fnmatch(pattern, &alias)),
            Subject::Identifiers { bus, vendor, device } => aliases.any(|alias| {
                bus.identifiers(&alias).is_some_and(|(has_vendor, has_device)| {
                    glob::matches(vendor, has_vendor) && glob::matches(device, has_device)
                })
            }),
            // A `[` is itself here: names of products have brackets, as in `ThinkSystem SR650 -[7X06]-`.
            Subject::Firmware { name, pattern } => {
                hardware.firmware.get(name).is_some_and(|text| glob::matches(pattern, &text.to_lowercase()))
            }
        }
    }
}

/// True: some identifier of four hexadecimal digits matches the pattern.
fn identifies(pattern: &str) -> bool {
    let digits = pattern.chars().filter(|digit| *digit != '*').count();
    let is_whole = if pattern.contains('*') { digits <= DIGITS } else { digits == DIGITS };
    is_whole && pattern.chars().all(|digit| digit.is_ascii_hexdigit() || matches!(digit, '*' | '?'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Hardware {
        let modaliases = [
            "pci:v00008086d000015A3sv00001028sd0000062Abc02sc00i00",
            "usb:v0BDAp8153d3100dc00dsc00dp00icFFiscFFip00in00",
            "acpi:IPI0001:",
        ];
        let firmware = BTreeMap::from([
            ("system_vendor", "Dell Inc.".to_owned()),
            ("system_product", "ThinkSystem SR650 -[7X06CTO1WW]-".to_owned()),
        ]);
        Hardware { modaliases: modaliases.map(ToOwned::to_owned).into(), firmware }
    }

    #[test]
    fn a_filter_matches_the_hardware_that_it_names() {
        for (filter, wanted) in [
            ("pci:8086:*", true),
            ("pci:8086:15a3", true),
            ("pci:8086:15??", true),
            ("pci:*:15A3", true),
            ("pci:8086:15a4", false),
            // Vendor and device of the subsystem are none of the device.
            ("pci:1028:*", false),
            ("pci:*:062a", false),
            ("pci:0bda:*", false),
            ("usb:0bda:8153", true),
            ("usb:0bda:31*", false),
            ("modalias:acpi:IPI000[1-3]:*", true),
            ("modalias:acpi:IPI000[4-6]:*", false),
            ("modalias:pci:v00008086d*bc02*", true),
            ("system_vendor:dell*", true),
            ("system_vendor:Dell", false),
            ("system_product:*[7x06cto1ww]-", true),
            ("system_product:*[7]*", false),
            ("system_version:*", false),
        ] {
            let parsed = Filter::parse(filter).unwrap();
            assert_eq!(parsed.matches(&machine()), wanted, "{filter}");
        }
    }

    #[test]
    fn a_filter_that_could_match_nothing_is_refused() {
        let long = format!("modalias:{}", "x".repeat(MAX_FILTER_BYTES));
        for (filter, says) in [
            ("gpu:*", "\"gpu:*\" is not a hardware filter"),
            ("pci", "\"pci\" is not a hardware filter"),
            ("system_vendor:", "\"system_vendor:\" is not a hardware filter"),
            ("pci:8086", "\"pci:8086\" does not name a vendor and a device"),
            ("pci:0x8086:*", "does not name a vendor and a device"),
            ("pci:808:*", "does not name a vendor and a device"),
            ("pci:80860*:*", "does not name a vendor and a device"),
            ("usb:0bda:", "does not name a vendor and a device"),
            ("usb:0bda:815g", "does not name a vendor and a device"),
            ("modalias:acpi:IPI000[1-3:*", "has no end"),
            (&long, "has 264 bytes"),
        ] {
            let bad = Filter::parse(filter).unwrap_err();
            assert!(bad.message.contains(says) && !bad.hint.is_empty(), "{filter}: {bad:?}");
        }
    }

    #[test]
    fn one_filter_that_matches_is_enough() {
        let filters = |texts: &[&str]| texts.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        assert_eq!(mismatch(&[], &Hardware::default()), None);
        assert_eq!(mismatch(&filters(&["pci:10de:*", "usb:0bda:*"]), &machine()), None);
        let why = mismatch(&filters(&["pci:10de:*", "gpu:*"]), &machine());
        assert_eq!(why.as_deref(), Some("no hardware of the machine matches pci:10de:*, gpu:*"));
    }
}
