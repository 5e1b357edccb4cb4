//! Kinds that the driver reads only for other objects. They have no reconciliation that could fail, so no stored status would report
//! that a spec of another version cannot be read. The API adds that error at each read.

use basalt_api::kinds::{ScriptSpec, SettingsSpec, SubnetSpec, VlanSpec};
use serde::de::DeserializeOwned;

type Read = fn(&str) -> Result<(), serde_json::Error>;

/// The parser of each of these kinds.
const READ: &[(&str, Read)] = &[
    ("Vlan", reads::<VlanSpec>),
    ("Subnet", reads::<SubnetSpec>),
    ("Settings", reads::<SettingsSpec>),
    ("Script", reads::<ScriptSpec>),
];

fn reads<T: DeserializeOwned>(spec: &str) -> Result<(), serde_json::Error> {
    serde_json::from_str::<T>(spec).map(drop)
}

/// The reason why the driver cannot read this spec. `None` if it can, or if it does not read this kind.
#[must_use]
pub fn why(kind: &str, spec: &str) -> Option<String> {
    let (_, reads) = READ.iter().find(|(name, _)| *name == kind)?;
    reads(spec).err().map(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_said_of_kinds_that_are_read() {
        assert_eq!(why("Vlan", r#"{"fabric":"default","vid":0}"#), None);
        assert!(why("Vlan", r#"{"fabric":"default","vid":"none"}"#).is_some());
        assert!(why("Subnet", "{}").is_some());
        assert_eq!(why("Settings", "{}"), None);
        assert_eq!(why("Zone", "[]"), None);
    }
}
