//! A lab's full name: `bl.LABEL.PID.START`. It contains the lab's owner, so no other record is needed.

use std::fmt;
use std::str::FromStr;

use crate::error::LabError;
use crate::process::Owner;

const PREFIX: &str = "bl";

/// The name of a lab's namespace and directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LabName {
    pub(crate) label: String,
    pub(crate) owner: Owner,
}

impl LabName {
    pub(crate) fn new(label: &str, owner: Owner) -> Result<Self, LabError> {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if label.is_empty() || label.len() > 24 || !label.bytes().all(allowed) {
            return Err(LabError::BadName(label.to_owned()));
        }
        Ok(Self { label: label.to_owned(), owner })
    }
}

impl fmt::Display for LabName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}.{}.{}", self.label, self.owner)
    }
}

impl FromStr for LabName {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (prefix, rest) = text.split_once('.').ok_or(())?;
        let (label, owner) = rest.split_once('.').ok_or(())?;
        if prefix != PREFIX {
            return Err(());
        }
        Self::new(label, owner.parse()?).map_err(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_who_owns_it() {
        let name = LabName::new("demo", Owner { pid: 12, start: 3456 }).unwrap();
        assert_eq!(name.to_string(), "bl.demo.12.3456");
        assert_eq!("bl.demo.12.3456".parse(), Ok(name));
    }

    #[test]
    fn names_of_others_are_not_ours() {
        for other in ["lab", "bl.demo", "bl.demo.x.1", "bl.demo.1", "xx.demo.1.2", "bl.de/mo.1.2", "bl..1.2"]
        {
            assert!(other.parse::<LabName>().is_err(), "{other}");
        }
        assert!(LabName::new("Demo", Owner { pid: 1, start: 1 }).is_err());
    }
}
