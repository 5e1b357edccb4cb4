//! The desired state of a rack: one versioned message per concern.
//!
//! [`accept`] decides about an offered version and has no side effects. [`store::ConcernStore`] keeps the accepted
//! versions on disk and notifies their users. `concerns/NAME.pb` is the protobuf encoding of a [`ConcernVersion`],
//! exactly as a region sent it. `NAME.pb.old` is the previous one, read if `NAME.pb` is damaged.

use std::collections::BTreeSet;
use std::fmt;

use basalt_proto::delta;
use basalt_proto::rack_v1::concern_reply::Outcome;
use basalt_proto::rack_v1::{
    BootConcern, ConcernDelta, ConcernVersion, DhcpConcern, DnsConcern, ImagesConcern, KnownConcern,
    PowerConcern, ProxyConcern, TimeConcern,
};
use prost::Message;

use crate::dns::zones::Held;
use crate::hash::sha256;

mod sound;
pub mod store;

/// The most bytes of a body: a boot concern of a thousand machines with tasks has some megabytes.
pub const MOST_BYTES: usize = 64 << 20;

/// The concerns this rack knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Concern {
    /// Subnets whose clients get addresses.
    Dhcp,
    /// The declared machines.
    Known,
    /// The actions of machines that boot here.
    Boot,
    /// The blobs that are served.
    Images,
    /// The BMCs that this rack is the arbiter of.
    Power,
    /// The DNS zones.
    Dns,
    /// The NTP servers that the host's clock is compared with.
    Time,
    /// The caching proxy.
    Proxy,
}

impl Concern {
    /// Every concern, in the order of the enum.
    pub const ALL: [Self; 8] =
        [Self::Dhcp, Self::Known, Self::Boot, Self::Images, Self::Power, Self::Dns, Self::Time, Self::Proxy];

    /// The name on the wire and of the file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dhcp => "dhcp",
            Self::Known => "known",
            Self::Boot => "boot",
            Self::Images => "images",
            Self::Power => "power",
            Self::Dns => "dns",
            Self::Time => "time",
            Self::Proxy => "proxy",
        }
    }

    /// True for a concern with passwords, keys or tasks.
    #[must_use]
    pub const fn has_secrets(self) -> bool {
        matches!(self, Self::Boot | Self::Power | Self::Dns)
    }

    /// The concern with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|concern| concern.name() == name)
    }

    /// Decodes a body. Leaves out the parts that cannot be carried out, and returns the reason for each.
    ///
    /// # Errors
    /// The body cannot be decoded.
    pub fn read(self, body: &[u8]) -> Result<(Content, Vec<String>), BadBody> {
        Ok(match self {
            Self::Dhcp => {
                let (concern, left_out) = sound::dhcp(DhcpConcern::decode(body)?);
                (Content::Dhcp(concern), left_out)
            }
            Self::Known => {
                let (concern, left_out) = sound::known(KnownConcern::decode(body)?);
                (Content::Known(concern), left_out)
            }
            Self::Boot => {
                let (concern, left_out) = sound::boot(BootConcern::decode(body)?);
                (Content::Boot(concern), left_out)
            }
            Self::Images => (Content::Images(ImagesConcern::decode(body)?), Vec::new()),
            Self::Power => (Content::Power(PowerConcern::decode(body)?), Vec::new()),
            Self::Dns => {
                let concern = DnsConcern::decode(body)?;
                let left_out = Held::new(&concern, &Held::default()).1;
                (Content::Dns(concern), left_out)
            }
            Self::Time => (Content::Time(TimeConcern::decode(body)?), Vec::new()),
            Self::Proxy => {
                let (concern, left_out) = sound::proxy(ProxyConcern::decode(body)?);
                (Content::Proxy(concern), left_out)
            }
        })
    }
}

impl fmt::Display for Concern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A decoded body.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// The body of [`Concern::Dhcp`].
    Dhcp(DhcpConcern),
    /// The body of [`Concern::Known`].
    Known(KnownConcern),
    /// The body of [`Concern::Boot`].
    Boot(BootConcern),
    /// The body of [`Concern::Images`].
    Images(ImagesConcern),
    /// The body of [`Concern::Power`].
    Power(PowerConcern),
    /// The body of [`Concern::Dns`].
    Dns(DnsConcern),
    /// The body of [`Concern::Time`].
    Time(TimeConcern),
    /// The body of [`Concern::Proxy`].
    Proxy(ProxyConcern),
}

/// A body that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadBody {
    /// The body is not the concern's protobuf message.
    #[error("the body is not the concern's message: {0}")]
    Encoding(#[from] prost::DecodeError),
}

/// The decision about an offered version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It replaces the version that the rack had.
    Applied,
    /// The rack has exactly this version.
    AlreadyThere,
    /// The rack has a newer version, or the region's incarnation is retired.
    RefusedOlder {
        /// The generation that the rack has.
        mine: u64,
    },
    /// Same generation, other content: two regions disagree. Raises an alarm.
    RefusedConflict {
        /// The generation that the rack has.
        mine: u64,
    },
    /// The version is damaged or unreadable. The text says why.
    Failed(String),
}

impl Decision {
    /// The decision as the protocol encodes it.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        match self {
            Self::Applied => Outcome::Applied,
            Self::AlreadyThere => Outcome::AlreadyThere,
            Self::RefusedOlder { .. } => Outcome::RefusedOlder,
            Self::RefusedConflict { .. } => Outcome::RefusedConflict,
            Self::Failed(_) => Outcome::Failed,
        }
    }
}

/// Decides about an offered version. `retired` are the incarnations of the region's database that another one has
/// replaced on this rack: their versions are refused, whatever the generation.
///
/// | incarnation | generation | content | decision |
/// | --- | --- | --- | --- |
/// | retired | any | any | refused, older |
/// | new | any | any | applied |
/// | held | higher | any | applied |
/// | held | same | same | already there |
/// | held | same | other | refused, conflict |
/// | held | lower | any | refused, older |
///
/// Before all of that, a body with another hash, or one that cannot be decoded, fails.
#[must_use]
pub fn accept(
    current: Option<&ConcernVersion>,
    offered: &ConcernVersion,
    retired: &BTreeSet<String>,
) -> Decision {
    if let Err(reason) = verify(offered) {
        return Decision::Failed(reason);
    }
    let mine = current.map_or(0, |held| held.generation);
    if retired.contains(&offered.incarnation) {
        return Decision::RefusedOlder { mine };
    }
    let Some(held) = current.filter(|held| held.incarnation == offered.incarnation) else {
        return Decision::Applied;
    };
    match offered.generation.cmp(&held.generation) {
        std::cmp::Ordering::Greater => Decision::Applied,
        std::cmp::Ordering::Less => Decision::RefusedOlder { mine },
        std::cmp::Ordering::Equal if held.sha256 == offered.sha256 => Decision::AlreadyThere,
        std::cmp::Ordering::Equal => Decision::RefusedConflict { mine },
    }
}

/// Applies a delta to the version that the rack holds. Returns the new version.
///
/// # Errors
/// The delta is for another body than the rack holds, or the result has another hash than announced. The rack then needs
/// the whole body. The text says why.
pub fn changed(current: Option<&ConcernVersion>, delta: ConcernDelta) -> Result<ConcernVersion, String> {
    let ConcernDelta { version, base_sha256, parts } = delta;
    let mut version = version.unwrap_or_default();
    let held = current.filter(|held| held.incarnation == version.incarnation);
    let held = held.ok_or_else(|| "this rack holds no version of this incarnation".to_owned())?;
    if held.sha256 == version.sha256 {
        // Another region was faster.
        version.body = held.body.clone();
    } else if held.sha256 == base_sha256 {
        version.body = delta::apply(&held.body, &parts, MOST_BYTES).map_err(|error| error.to_string())?;
    } else {
        return Err(format!(
            "this rack holds SHA-256 {}, and the delta changes {}",
            hex::encode(&held.sha256),
            hex::encode(&base_sha256)
        ));
    }
    let actual = sha256(&version.body);
    if version.sha256 != actual {
        return Err(format!(
            "the changed body has SHA-256 {}, not {} as announced",
            hex::encode(actual),
            hex::encode(&version.sha256)
        ));
    }
    Ok(version)
}

/// A decoded version.
#[derive(Debug)]
pub struct Understood {
    /// The concern of the version.
    pub concern: Concern,
    /// The content that is carried out.
    pub content: Content,
    /// The reason for each part that was left out.
    pub left_out: Vec<String>,
}

/// Checks a version by itself: its concern's name, its hash and its body.
///
/// # Errors
/// The first fault, as text.
pub fn verify(version: &ConcernVersion) -> Result<Understood, String> {
    let Some(concern) = Concern::named(&version.concern) else {
        return Err(format!("this rack does not know the concern {:?}; upgrade it", version.concern));
    };
    let actual = sha256(&version.body);
    if version.sha256 != actual {
        return Err(format!(
            "the body of concern {concern} has SHA-256 {}, not {} as announced; send it again",
            hex::encode(actual),
            hex::encode(&version.sha256)
        ));
    }
    let (content, left_out) =
        concern.read(&version.body).map_err(|error| format!("concern {concern}: {error}"))?;
    Ok(Understood { concern, content, left_out })
}

/// Makes a version of a body, with its hash.
#[must_use]
pub fn version(
    concern: Concern,
    generation: u64,
    incarnation: &str,
    message: &impl Message,
) -> ConcernVersion {
    let body = message.encode_to_vec();
    ConcernVersion {
        concern: concern.name().to_owned(),
        generation,
        sha256: sha256(&body).to_vec(),
        incarnation: incarnation.to_owned(),
        body,
        traceparent: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(incarnation: &str, generation: u64, serve_unknown: bool) -> ConcernVersion {
        version(
            Concern::Dhcp,
            generation,
            incarnation,
            &DhcpConcern { subnets: vec![], serve_unknown, ..DhcpConcern::default() },
        )
    }

    #[test]
    fn every_case_of_the_table() {
        let retired = BTreeSet::from(["old".to_owned()]);
        let held = offer("now", 5, true);
        let cases = [
            (None, offer("now", 1, true), Decision::Applied),
            (None, offer("old", 9, true), Decision::RefusedOlder { mine: 0 }),
            (Some(&held), offer("old", 9, true), Decision::RefusedOlder { mine: 5 }),
            (Some(&held), offer("next", 1, true), Decision::Applied),
            (Some(&held), offer("next", 5, true), Decision::Applied),
            (Some(&held), offer("now", 6, true), Decision::Applied),
            (Some(&held), offer("now", 6, false), Decision::Applied),
            (Some(&held), offer("now", 5, true), Decision::AlreadyThere),
            (Some(&held), offer("now", 5, false), Decision::RefusedConflict { mine: 5 }),
            (Some(&held), offer("now", 4, true), Decision::RefusedOlder { mine: 5 }),
        ];
        for (current, offered, expected) in cases {
            let case = format!("{} {}", offered.incarnation, offered.generation);
            assert_eq!(accept(current, &offered, &retired), expected, "{case}");
        }
    }

    #[test]
    fn a_version_that_nobody_could_use_fails_before_anything_is_compared() {
        let nothing = BTreeSet::new();
        let mut wrong_hash = offer("now", 1, true);
        wrong_hash.body.push(0);
        let mut unknown = offer("now", 1, true);
        unknown.concern = "dance".into();
        let mut garbage = offer("now", 1, true);
        garbage.body = vec![0xff; 9];
        garbage.sha256 = sha256(&garbage.body).to_vec();
        for (offered, word) in
            [(wrong_hash, "SHA-256"), (unknown, "\"dance\""), (garbage, "not the concern's message")]
        {
            let Decision::Failed(reason) = accept(None, &offered, &nothing) else {
                panic!("accepted {offered:?}")
            };
            assert!(reason.contains(word), "{reason}");
        }
    }
}
