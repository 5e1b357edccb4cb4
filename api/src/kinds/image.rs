//! Image: an operating system to install, or the environment that machines run while they are worked on.

use super::{Architecture, CommonStatus, ImageSource, kind};
use crate::model::Ref;
use crate::validate::Rule;
use crate::values::Sha256;
use basalt_api_derive::Model;
use std::collections::{BTreeMap, BTreeSet};

kind! {
    /// An operating system to install on machines, or the ephemeral environment they boot to be worked on. Its files
    /// are blobs, uploaded before or after it is declared.
    Image, "images", "basalt_image", Label, declarable: true, ImageSpec, ImageStatus, image_rules
}

/// An image, by its files.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct ImageSpec {
    /// Distribution, as in `ID` of os-release(5), for people: `debian`.
    #[field(immutable)]
    pub os: String,
    /// Release, as in `VERSION_CODENAME` or `VERSION_ID`, for people: `bookworm`.
    #[field(immutable)]
    pub release: String,
    /// Processor architecture it runs on.
    #[field(immutable)]
    pub architecture: Architecture,
    /// What it is for.
    #[field(default = ImagePurpose::Deploy)]
    pub purpose: ImagePurpose,
    /// Its files by role. To be installed it needs `root_tarball`, `squashfs` or `disk_image`, of which only `root_tarball`
    /// can be installed yet; an ephemeral image needs `kernel`, `initrd` and `squashfs`.
    pub files: BTreeMap<FileRole, ImageFile>,
    /// Kernel parameters it needs wherever it boots.
    pub kernel_options: Option<String>,
    /// Where it came from.
    #[field(none, dormant = "no source is fetched from")]
    pub source: Option<Ref<ImageSource>>,
    /// What it is, for people.
    #[field(none)]
    pub description: Option<String>,
}

impl ImageSpec {
    /// What deployments install of it: its root tarball, the only form that is installed yet.
    #[must_use]
    pub fn root(&self) -> Option<&ImageFile> {
        self.files.get(&FileRole::RootTarball)
    }
}

/// What an image is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum ImagePurpose {
    /// Installed on disks by deployments.
    Deploy,
    /// Booted from the network to commission, install, erase and rescue machines of its architecture.
    Ephemeral,
}

/// What a file of an image is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum FileRole {
    /// Kernel to boot.
    Kernel,
    /// Initial RAM disk of that kernel.
    Initrd,
    /// Root file system as a squashfs.
    Squashfs,
    /// Root file system as a tar archive, compressed with zstd, gzip or xz.
    RootTarball,
    /// Whole disk, raw, compressed with zstd, gzip or xz.
    DiskImage,
}

/// A file, by its content.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct ImageFile {
    /// SHA-256 of its bytes: the name of the blob.
    pub sha256: Sha256,
    /// Its length in bytes. Absent: taken from the uploaded blob.
    pub size: Option<u64>,
}

/// Where the image is.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct ImageStatus {
    /// What every kind reports.
    #[field(flatten)]
    pub common: CommonStatus,
    /// One SHA-256 over all of its files: what a deployment records as installed.
    pub digest: Option<Sha256>,
    /// Files whose blob has not been uploaded.
    #[field(volatile)]
    pub missing: BTreeSet<FileRole>,
}

fn image_rules(spec: &ImageSpec, rule: &mut Rule<'_>) {
    super::kernel_options::rules(spec.kernel_options.as_deref(), rule);
    let has = |role| spec.files.contains_key(&role);
    match spec.purpose {
        ImagePurpose::Ephemeral => {
            for role in [FileRole::Kernel, FileRole::Initrd, FileRole::Squashfs] {
                if !has(role) {
                    rule.broken(
                        "/files",
                        format!("an ephemeral image is booted from the network, and this one has no {role}"),
                        "files kernel, initrd and squashfs",
                    );
                }
            }
        }
        ImagePurpose::Deploy => {
            let systems = [FileRole::RootTarball, FileRole::Squashfs, FileRole::DiskImage];
            if !systems.into_iter().any(has) {
                rule.broken(
                    "/files",
                    "the image has no file that could be installed",
                    "one of root_tarball, squashfs and disk_image",
                );
            }
        }
    }
}
