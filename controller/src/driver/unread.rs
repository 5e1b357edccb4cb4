//! What the driver reads for others, and does not work on by itself: no handling of it fails, so its own status would never
//! say that its spec cannot be read, because another version wrote it. Whoever looks at it is told so all the same.

use basalt_api::kinds::{ScriptSpec, SettingsSpec, SubnetSpec, VlanSpec};
use serde::de::DeserializeOwned;

type Read = fn(&str) -> Result<(), serde_json::Error>;

/// How each of these kinds is read.
const READ: &[(&str, Read)] = &[
    ("Vlan", reads::<VlanSpec>),
    ("Subnet", reads::<SubnetSpec>),
    ("Settings", reads::<SettingsSpec>),
    ("Script", reads::<ScriptSpec>),
];

fn reads<T: DeserializeOwned>(spec: &str) -> Result<(), serde_json::Error> {
    serde_json::from_str::<T>(spec).map(drop)
}

/// Why the driver cannot read an object with this spec; nothing where it can, or does not read its kind.
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
