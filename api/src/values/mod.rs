//! Typed values. No bare string crosses a boundary between modules.
//!
//! Parsing accepts several spellings (`00-1A-…` is a MAC address) and is strict about the meaning. A parsed value prints in one canonical
//! form. The canonical form is for comparisons and for machines. Specs are stored as clients declared them, so a user's text is never
//! rewritten.

mod cidr;
mod dns;
mod duid;
mod duration;
mod id;
mod mac;
mod name;
mod schedule;
mod secret;
mod sha256;
mod size;
mod ssh;
mod text;
mod untrusted;
mod url;

pub use cidr::{Cidr, Reach, is_link_local, is_unicast};
pub use dns::OwnerName;
pub(crate) use dns::{LONGEST_NAME, check_domain, check_owner, target as dns_target};
pub use duid::Duid;
pub use duration::Duration;
pub use id::{
    Attempt, DeploymentId, Epoch, Generation, ImageId, Incarnation, MachineId, OperationId, RackId, Revision,
    RunId, SubnetId, Uid, VlanId,
};
pub use mac::Mac;
pub use name::{Name, Naming};
pub use schedule::Schedule;
pub(crate) use schedule::canonical as canonical_schedule;
pub use secret::Secret;
pub use sha256::Sha256;
pub use size::ByteSize;
pub use ssh::SshPublicKey;
pub(crate) use ssh::{canonical as canonical_ssh_key, line as ssh_key_line};
pub use text::{Host, Hostname, Tag};
pub(crate) use text::{host as check_host, hostname as check_hostname, tag as check_tag};
pub use untrusted::{
    PrintableLog, UntrustedMessage, UntrustedName, UntrustedText, printable_line, printable_lines,
    untrusted_json,
};
pub use url::Url;
pub(crate) use url::canonical as canonical_url;

/// A point in time; RFC 3339 on the wire.
pub use jiff::Timestamp;

/// The reason why a text is not a valid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BadValue {
    /// The error with the value.
    pub message: String,
    /// A valid value, or a remedy.
    pub hint: String,
}

impl BadValue {
    /// An error with a remedy.
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }

    /// The error that `text` is none of the words of the closed list `what`.
    #[must_use]
    pub fn word(what: &str, text: &str, words: &[&str]) -> Self {
        let hint = match closest(text, words) {
            Some(near) => format!("did you mean {near:?}? The words are: {}", words.join(", ")),
            None => format!("one of: {}", words.join(", ")),
        };
        Self::new(format!("{} is none of the words for {what:?}", quoted(text)), hint)
    }
}

/// `text` in quotes for a message. A long text is cut.
pub(crate) fn quoted(text: &str) -> String {
    const SHOWN: usize = 80;
    if text.chars().count() <= SHOWN {
        return format!("{text:?}");
    }
    let start: String = text.chars().take(SHOWN).collect();
    format!("{start:?}… ({} bytes)", text.len())
}

/// The candidate nearest to `text`, if it is near enough to be the intended word.
#[must_use]
pub fn closest<'a>(text: &str, candidates: &[&'a str]) -> Option<&'a str> {
    const LONGEST: usize = 64;
    if text.len() > LONGEST {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    candidates
        .iter()
        .map(|c| (distance(&lower, &c.to_ascii_lowercase()), *c))
        .filter(|(d, c)| *d <= 1.max(c.len() / 3))
        .min()
        .map(|(_, c)| c)
}

/// At most `most` of the candidates, the nearest to `text` first.
#[must_use]
pub fn nearest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>, most: usize) -> Vec<&'a str> {
    let near = |candidate: &'a str| (distance(&text.to_lowercase(), &candidate.to_lowercase()), candidate);
    let mut all: Vec<_> = candidates.into_iter().map(near).collect();
    all.sort_unstable();
    all.into_iter().take(most).map(|(_, candidate)| candidate).collect()
}

/// Candidates for a typing error in `text`, the nearest first. At most one character in four differs, and one more.
#[must_use]
pub fn similar<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>, most: usize) -> Vec<&'a str> {
    let slips = 1 + text.chars().count() / 4;
    let is_near = |candidate: &&str| distance(&text.to_lowercase(), &candidate.to_lowercase()) <= slips;
    nearest(text, candidates.into_iter().filter(is_near), most)
}

/// Levenshtein distance between two texts, in characters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut next = Vec::with_capacity(row.len());
        next.push(i + 1);
        for (cb, (above_left, above)) in b.iter().zip(row.iter().zip(row.iter().skip(1))) {
            let left = next.last().copied().unwrap_or(i + 1);
            next.push((above_left + usize::from(ca != *cb)).min(above + 1).min(left + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

/// Implements serde as text and `Described` for a value with `Display` and `FromStr`.
macro_rules! text_value {
    ($type:ty, $semantic:ident) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::__private::from_text(from)
            }
        }
        impl $crate::Described for $type {
            const TYPE: $crate::Type = $crate::Type::Semantic($crate::Semantic::$semantic);
        }
    };
}
pub(crate) use text_value;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_the_word_that_was_meant() {
        assert_eq!(closest("gatway", &["cidr", "gateway", "vlan"]), Some("gateway"));
        assert_eq!(closest("GATEWAY", &["cidr", "gateway"]), Some("gateway"));
        assert_eq!(closest("colour", &["cidr", "gateway"]), None);
    }

    #[test]
    fn long_values_are_cut_in_messages() {
        assert_eq!(quoted(&"x".repeat(100)), format!("{:?}… (100 bytes)", "x".repeat(80)));
    }
}
