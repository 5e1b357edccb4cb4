//! Image: an operating system to install, or the ephemeral environment that machines run while Basalt works on them.

use super::{Architecture, CommonStatus, ImageSource, kind};
use crate::model::Ref;
use crate::validate::Rule;
use crate::values::Sha256;
use basalt_api_derive::Model;
use std::collections::{BTreeMap, BTreeSet};

kind! {
    /// An operating system to install on machines, or the ephemeral environment that machines boot while Basalt works on them.
    /// The files of an image are blobs, uploaded before or after the image is declared.
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
    /// Processor architecture of the image.
    #[field(immutable)]
    pub architecture: Architecture,
    /// The use of the image.
    #[field(default = ImagePurpose::Deploy)]
    pub purpose: ImagePurpose,
    /// The files of the image, by role. An image to install needs `root_tarball`, `squashfs` or `disk_image`; Basalt can only
    /// install `root_tarball` yet. An ephemeral image needs `kernel`, `initrd` and `squashfs`.
    pub files: BTreeMap<FileRole, ImageFile>,
    /// Kernel parameters that the image needs on every machine.
    pub kernel_options: Option<String>,
    /// The source that the image was fetched from.
    #[field(none, dormant = "no source is fetched from")]
    pub source: Option<Ref<ImageSource>>,
    /// A description for people. It has no effect.
    #[field(none)]
    pub description: Option<String>,
}

impl ImageSpec {
    /// The file that deployments install: the root tarball, the only form that Basalt can install yet.
    #[must_use]
    pub fn root(&self) -> Option<&ImageFile> {
        self.files.get(&FileRole::RootTarball)
    }
}

/// The use of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum ImagePurpose {
    /// Deployments install the image on disks.
    Deploy,
    /// Machines of the image's architecture boot it from the network, to be commissioned, installed, erased and rescued.
    Ephemeral,
}

/// The role of a file in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum FileRole {
    /// Kernel that the loader boots.
    Kernel,
    /// Initial RAM disk for that kernel.
    Initrd,
    /// Root file system as a squashfs.
    Squashfs,
    /// Root file system as a tar archive, compressed with zstd, gzip or xz.
    RootTarball,
    /// Raw image of a whole disk, compressed with zstd, gzip or xz.
    DiskImage,
}

/// A file of an image, identified by its content.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct ImageFile {
    /// SHA-256 of the file, which is also the name of the blob.
    pub sha256: Sha256,
    /// Length of the file in bytes. Absent: the length of the uploaded blob.
    pub size: Option<u64>,
}

/// The state of the image's files.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct ImageStatus {
    /// The fields that every status has.
    #[field(flatten)]
    pub common: CommonStatus,
    /// One SHA-256 over all files of the image. A deployment records it as the installed image.
    pub digest: Option<Sha256>,
    /// Files whose blobs have not been uploaded.
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
