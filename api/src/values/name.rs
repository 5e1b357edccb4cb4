//! Names of objects.

use super::{BadValue, check_domain, quoted};
use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

/// The form of the names of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// A DNS label (RFC 1123 §2.1): `web-1`.
    Label,
    /// A VLAN's name: its fabric, a dot, its number: `default.0`.
    FabricVid,
    /// The name of a domain of the DNS, in lower case: `lab.example.com`.
    DomainName,
    /// The name of the only object of a kind: `default`.
    Singleton,
}

/// The name of the only object of its kind.
const ONLY: &str = "default";

impl Naming {
    /// Checks that `text` is a name of this form.
    ///
    /// # Errors
    /// The text does not have this form.
    pub fn check(self, text: &str) -> Result<(), BadValue> {
        match self {
            Self::Label => label(text),
            Self::FabricVid => fabric_vid(text),
            Self::DomainName => check_domain(text),
            Self::Singleton if text == ONLY => Ok(()),
            Self::Singleton => Err(BadValue::new(
                format!("there is one object of this kind, and it is not called {}", quoted(text)),
                format!("call it {ONLY:?}"),
            )),
        }
    }

    /// The form as a regular expression (ECMA-262, as in JSON Schema).
    #[must_use]
    pub const fn pattern(self) -> &'static str {
        match self {
            Self::Label => "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
            Self::FabricVid => r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.(0|[1-9][0-9]{0,3})$",
            Self::DomainName => {
                r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$"
            }
            Self::Singleton => "^default$",
        }
    }
}

/// An object's name, of any form. Names are unique within a kind and can change; see `Uid` for a constant identifier.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// Prints the name in quotes, for messages.
impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Name {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of VLAN `vid` on `fabric`.
    #[must_use]
    pub fn of_vlan(fabric: &Self, vid: u16) -> Self {
        Self(format!("{fabric}.{vid}"))
    }
}

pub(crate) fn label(text: &str) -> Result<(), BadValue> {
    let bad = |why: &str, hint: String| {
        Err(BadValue::new(format!("{} is not a DNS label: {why}", quoted(text)), hint))
    };
    let plain = "1 to 63 of a-z, 0-9 and -, not starting or ending with -".to_owned();
    if text.is_empty() {
        return bad("it is empty", plain);
    }
    if text.len() > 63 {
        return bad("it is longer than 63 bytes", plain);
    }
    if let Some(c) = text.chars().find(|c| !matches!(c, 'a'..='z' | '0'..='9' | '-')) {
        let lower = text.to_ascii_lowercase().replace('_', "-");
        let hint = if lower != text && label(&lower).is_ok() { format!("write {lower:?}") } else { plain };
        return bad(&format!("it contains {c:?}"), hint);
    }
    if text.starts_with('-') || text.ends_with('-') {
        return bad("it starts or ends with '-'", plain);
    }
    Ok(())
}

fn fabric_vid(text: &str) -> Result<(), BadValue> {
    let bad = || {
        Err(BadValue::new(
            format!("{} is not the name of a VLAN", quoted(text)),
            "the fabric's name, a dot and the VLAN's number, like default.0",
        ))
    };
    let Some((fabric, vid)) = text.rsplit_once('.') else { return bad() };
    let is_plain = vid.bytes().all(|b| b.is_ascii_digit()) && (vid == "0" || !vid.starts_with('0'));
    if label(fabric).is_err() || !is_plain {
        return bad();
    }
    match vid.parse::<u16>() {
        Ok(0..=4094) => Ok(()),
        _ => bad(),
    }
}

impl FromStr for Name {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        // The name of a VLAN is a domain name as well.
        if text.contains('.') {
            check_domain(text)?
        } else {
            label(text)?
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for Name {
    type Error = BadValue;

    fn try_from(text: String) -> Result<Self, BadValue> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_shown_in_quotes_and_never_as_a_value_of_this_language() {
        let name: Name = "web-1".parse().unwrap();
        assert_eq!(format!("Machine {name:?}"), r#"Machine "web-1""#);
    }

    #[test]
    fn objects_are_named_by_dns_labels() {
        for good in ["a", "web-1", "10g", &"x".repeat(63)] {
            assert_eq!(Naming::Label.check(good), Ok(()), "{good}");
        }
        for bad in ["", "-a", "a-", "web_1", "Web", "a.b", "é", &"x".repeat(64)] {
            assert!(Naming::Label.check(bad).is_err(), "{bad}");
        }
        assert_eq!(label("Web_1").unwrap_err().hint, r#"write "web-1""#);
    }

    #[test]
    fn the_only_object_of_its_kind_has_one_name() {
        assert_eq!(Naming::Singleton.check("default"), Ok(()));
        let bad = Naming::Singleton.check("main").unwrap_err();
        assert_eq!(bad.message, r#"there is one object of this kind, and it is not called "main""#);
        assert_eq!(bad.hint, r#"call it "default""#);
    }

    #[test]
    fn a_domain_is_named_by_its_name() {
        for good in ["lab.example.com", "maas", "default.0"] {
            assert_eq!(Naming::DomainName.check(good), Ok(()), "{good}");
            assert!(good.parse::<Name>().is_ok(), "{good}");
        }
        assert!(Naming::DomainName.check("Lab.example.com").is_err());
    }

    #[test]
    fn a_vlan_is_named_by_its_fabric_and_number() {
        for good in ["default.0", "a-1.4094"] {
            assert_eq!(Naming::FabricVid.check(good), Ok(()), "{good}");
        }
        for bad in
            ["default", "default.", ".0", "default.4095", "default.01", "a.b.1", "default.-1", "default.+1"]
        {
            assert!(Naming::FabricVid.check(bad).is_err(), "{bad}");
        }
    }
}
