//! ImageSource and PackageRepository: the servers of images and of packages.

use super::{Architecture, CommonStatus, kind};
use crate::validate::Rule;
use crate::values::{Schedule, Timestamp, Url};
use basalt_api_derive::Model;
use std::collections::{BTreeMap, BTreeSet};

kind! {
    /// A server that images are fetched from.
    #[dormant = "nothing is fetched from sources"]
    ImageSource, "image_sources", "basalt_image_source", Label, declarable: true, ImageSourceSpec, ImageSourceStatus,
    image_source_rules
}

/// A server of images, the images to fetch, and the times of fetching.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct ImageSourceSpec {
    /// The URL of the source's index.
    pub url: Url,
    /// OpenPGP public keys for the signature of the index, ASCII-armoured.
    #[field(text)]
    pub keyring: Option<String>,
    /// The images to fetch, by names of your own.
    pub selections: BTreeMap<String, ImageSelection>,
    /// The times at which the index is read: an interval, like `6h`, or the five fields of crontab(5), in UTC.
    #[field(default = "6h")]
    pub schedule: Schedule,
    /// A description for people. It has no effect.
    #[field(none)]
    pub description: Option<String>,
}

/// A set of images of a source.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct ImageSelection {
    /// Distribution, as in `ID` of os-release(5): `debian`.
    pub os: String,
    /// Release, as in `VERSION_CODENAME` or `VERSION_ID`: `bookworm`.
    pub release: String,
    /// Processor architectures. Empty: all architectures of the source.
    pub architectures: BTreeSet<Architecture>,
}

/// The result of the last fetches.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct ImageSourceStatus {
    /// The fields that every status has.
    #[field(flatten)]
    pub common: CommonStatus,
    /// The time at which the index was last read.
    #[field(volatile)]
    pub last_sync_at: Option<Timestamp>,
    /// The size of everything that was fetched, in bytes.
    #[field(volatile)]
    pub bytes: Option<u64>,
    /// Errors of the last attempt.
    #[field(volatile)]
    pub errors: Vec<String>,
}

fn image_source_rules(spec: &ImageSourceSpec, rule: &mut Rule<'_>) {
    public_key("/keyring", spec.keyring.as_deref(), rule);
    for (name, selection) in &spec.selections {
        let at = crate::pointer::child("/selections", name);
        for (field, text) in [("os", &selection.os), ("release", &selection.release)] {
            if text.trim().is_empty() {
                let message = format!("{field} of the selection {name:?} is empty");
                rule.broken(format!("{at}/{field}"), message, "like debian and bookworm");
            }
        }
    }
}

kind! {
    /// A repository of Debian packages for installed systems. A system gets it when it is installed: a change reaches only
    /// systems that are installed later.
    PackageRepository, "package_repositories", "basalt_package_repository", Label, declarable: true,
    PackageRepositorySpec, PackageRepositoryStatus, package_repository_rules
}

/// A repository of Debian packages, as in sources.list(5). Images without apt are installed without the repository.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct PackageRepositorySpec {
    /// The URL of the repository.
    pub url: Url,
    /// OpenPGP public key for the signature of the repository, ASCII-armoured. Absent: a key that the image trusts.
    #[field(text)]
    pub key: Option<String>,
    /// Suites, like `bookworm`. Empty: the suite of the installed system.
    pub suites: BTreeSet<String>,
    /// Components, like `main`. Empty: `main`.
    pub components: BTreeSet<String>,
    /// Processor architectures of the systems that use the repository. Empty: all.
    pub architectures: BTreeSet<Architecture>,
    /// A description for people. It has no effect.
    #[field(none)]
    pub description: Option<String>,
}

/// The state of the repository.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct PackageRepositoryStatus {
    /// The fields that every status has.
    #[field(flatten)]
    pub common: CommonStatus,
}

fn package_repository_rules(spec: &PackageRepositorySpec, rule: &mut Rule<'_>) {
    public_key("/key", spec.key.as_deref(), rule);
    for (pointer, what, words) in
        [("/suites", "suite", &spec.suites), ("/components", "component", &spec.components)]
    {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-._/+~".contains(c);
        for word in words.iter().filter(|word| word.is_empty() || !word.chars().all(fits)) {
            rule.broken(pointer, format!("{word:?} is not a {what}"), "letters, digits and - . _ / + ~");
        }
    }
}

/// Refuses a text that is no armoured public key (RFC 9580 §6.2). The key itself is not decoded.
fn public_key(pointer: &str, text: Option<&str>, rule: &mut Rule<'_>) {
    let Some(text) = text.map(str::trim) else { return };
    if text.contains("PRIVATE KEY BLOCK") {
        rule.broken(pointer, "this is a private key; it must not leave its owner", "the public key");
    } else if !(text.starts_with("-----BEGIN PGP PUBLIC KEY BLOCK-----")
        && text.ends_with("-----END PGP PUBLIC KEY BLOCK-----"))
    {
        rule.broken(
            pointer,
            "this is not an ASCII-armoured OpenPGP public key",
            "what gpg --armor --export prints, from -----BEGIN PGP PUBLIC KEY BLOCK----- to its end",
        );
    }
}
