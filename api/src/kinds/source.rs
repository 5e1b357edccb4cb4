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
    /// A repository of packages for installed systems. A system gets it when it is installed: a change reaches only systems that are
    /// installed later.
    PackageRepository, "package_repositories", "basalt_package_repository", Label, declarable: true,
    PackageRepositorySpec, PackageRepositoryStatus, package_repository_rules
}

/// A repository of packages. An image that lacks its package manager is installed without the repository, and the log of the install names
/// it.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct PackageRepositorySpec {
    /// The package manager that reads the repository.
    #[field(name = "type", default = RepositoryType::Apt)]
    pub manager: RepositoryType,
    /// The URL of the repository. For dnf it is the folder that has `repodata`, and may have the variables of dnf: `$releasever`, `$basearch`.
    pub url: Url,
    /// OpenPGP public key for the signatures of the repository, ASCII-armoured. Absent: a key that the image trusts.
    #[field(text)]
    pub key: Option<String>,
    /// False: systems have the repository, and do not use it until a person enables it there.
    #[field(default = true)]
    pub enabled: bool,
    /// Suites of a repository for apt, like `bookworm`. Empty: the suite of the installed system.
    pub suites: BTreeSet<String>,
    /// Components of a repository for apt, like `main`. Empty: `main`.
    pub components: BTreeSet<String>,
    /// The signatures of a repository for dnf. Absent: `packages`. For apt, the lists of a repository are always signed.
    pub signed: Option<RepositorySignatures>,
    /// Processor architectures of the systems that use the repository. Empty: all.
    pub architectures: BTreeSet<Architecture>,
    /// A description for people. It has no effect.
    #[field(none)]
    pub description: Option<String>,
}

/// A package manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum RepositoryType {
    /// apt, for Debian and its relatives: a repository as in sources.list(5).
    #[default]
    Apt,
    /// dnf, for Fedora and its relatives: a repository as in dnf.conf(5).
    Dnf,
}

/// The parts of a repository for dnf that are signed. Systems refuse a part without its signature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum RepositorySignatures {
    /// Every package, as `gpgcheck` of dnf.conf(5).
    #[default]
    Packages,
    /// The metadata, as `repo_gpgcheck` of dnf.conf(5). It has the hashes of the packages.
    Metadata,
    /// Every package and the metadata.
    Both,
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
        if spec.manager == RepositoryType::Dnf && !words.is_empty() {
            let message = format!("a repository for dnf has no {what}s");
            rule.broken(pointer, message, "leave it out, or say type = \"apt\"");
            continue;
        }
        let fits = |c: char| c.is_ascii_alphanumeric() || "-._/+~".contains(c);
        for word in words.iter().filter(|word| word.is_empty() || !word.chars().all(fits)) {
            rule.broken(pointer, format!("{word:?} is not a {what}"), "letters, digits and - . _ / + ~");
        }
    }
    match spec.manager {
        RepositoryType::Apt if spec.signed.is_some() => {
            let message = "signed is for dnf; apt always checks the lists of a repository, which have the hashes of its packages";
            rule.broken("/signed", message, "leave it out, or say type = \"dnf\"");
        }
        RepositoryType::Dnf => dnf_rules(spec, rule),
        RepositoryType::Apt => {}
    }
}

fn dnf_rules(spec: &PackageRepositorySpec, rule: &mut Rule<'_>) {
    // dnf.conf(5): commas separate the URLs of a repository.
    if spec.url.as_str().contains(',') {
        rule.broken("/url", "for dnf, a comma begins another URL", "write the comma as %2C");
    }
    if let Some(signed @ (RepositorySignatures::Metadata | RepositorySignatures::Both)) = spec.signed
        && spec.key.is_none()
    {
        let message = format!(
            "dnf checks metadata by the repository's own key alone, and signed = \"{signed}\" has none"
        );
        rule.broken("/key", message, "give the public key, or say signed = \"packages\"");
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
