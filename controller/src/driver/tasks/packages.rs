//! Package repositories of installed systems.

use basalt_api::agent::{DnfRepository, Packages, Repository};
use basalt_api::kinds::{Architecture, PackageRepositorySpec, RepositorySignatures, RepositoryType};
use basalt_db::{Store, StoreError};

use crate::driver::stored::readable;

/// The component of repositories without declared components.
const COMPONENT: &str = "main";

/// The repositories for an architecture, in order of name, without a proxy.
///
/// # Errors
/// Fails if the database cannot be read.
pub(crate) async fn repositories(store: &Store, architecture: Architecture) -> Result<Packages, StoreError> {
    let mut declared = store.all("PackageRepository").await?;
    declared.retain(|object| object.deletion_requested_at.is_none());
    let mut specs: Vec<(String, PackageRepositorySpec)> = readable::<PackageRepositorySpec>(declared)
        .map(|(object, spec)| (object.name, spec))
        .filter(|(_, spec)| spec.architectures.is_empty() || spec.architectures.contains(&architecture))
        .collect();
    specs.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(packages(specs))
}

fn packages(specs: Vec<(String, PackageRepositorySpec)>) -> Packages {
    let mut packages = Packages::default();
    for (name, spec) in specs {
        match spec.manager {
            RepositoryType::Apt => packages.repositories.push(apt(name, spec)),
            RepositoryType::Dnf => packages.dnf.push(dnf(name, spec)),
        }
    }
    packages
}

fn apt(name: String, spec: PackageRepositorySpec) -> Repository {
    let mut components: Vec<String> = spec.components.into_iter().collect();
    // If the suite is a path, there are no components (sources.list(5)).
    let is_flat = spec.suites.iter().any(|suite| suite.ends_with('/'));
    if components.is_empty() && !is_flat {
        components.push(COMPONENT.to_owned());
    }
    Repository {
        name,
        url: spec.url.to_string(),
        key: spec.key,
        suites: spec.suites.into_iter().collect(),
        components,
        architectures: spec.architectures.iter().map(ToString::to_string).collect(),
        disabled: !spec.enabled,
    }
}

fn dnf(name: String, spec: PackageRepositorySpec) -> DnfRepository {
    let signed = spec.signed.unwrap_or_default();
    DnfRepository {
        name,
        url: spec.url.to_string(),
        key: spec.key,
        disabled: !spec.enabled,
        unsigned_packages: signed == RepositorySignatures::Metadata,
        signed_metadata: signed != RepositorySignatures::Packages,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_has_the_component_main_unless_it_names_others() {
        let mut spec = PackageRepositorySpec::new("http://deb.example.com/lab".parse().unwrap());
        let told = |spec: &PackageRepositorySpec| apt("lab".to_owned(), spec.clone());
        spec.key = Some("-----BEGIN PGP PUBLIC KEY BLOCK-----".to_owned());
        assert_eq!(told(&spec).key, spec.key);
        spec.key = None;
        spec.architectures = [Architecture::Arm64].into();
        assert_eq!(told(&spec).architectures, ["arm64"]);
        spec.architectures.clear();
        let plain = Repository {
            name: "lab".to_owned(),
            url: "http://deb.example.com/lab".to_owned(),
            components: vec!["main".to_owned()],
            ..Repository::default()
        };
        assert_eq!(told(&spec), plain);
        spec.components = ["contrib".to_owned()].into();
        spec.suites = ["bookworm".to_owned()].into();
        spec.architectures = [Architecture::Amd64].into();
        let flat = PackageRepositorySpec { suites: ["./".to_owned()].into(), ..spec.clone() };
        let flat = PackageRepositorySpec { components: Default::default(), ..flat };
        assert!(told(&flat).components.is_empty());
        let named = Repository {
            components: vec!["contrib".to_owned()],
            suites: vec!["bookworm".to_owned()],
            architectures: vec!["amd64".to_owned()],
            ..plain
        };
        assert_eq!(told(&spec), named);
    }

    #[test]
    fn a_repository_goes_to_the_package_manager_of_its_type_with_its_signatures() {
        let mut spec = PackageRepositorySpec::new("http://rpm.example.com/lab".parse().unwrap());
        let told = |spec: &PackageRepositorySpec| packages(vec![("lab".to_owned(), spec.clone())]);
        let debian = told(&spec);
        assert_eq!((debian.repositories.len(), debian.dnf.len()), (1, 0));
        assert!(!debian.repositories[0].disabled);
        spec.enabled = false;
        assert!(told(&spec).repositories[0].disabled);
        spec.manager = RepositoryType::Dnf;
        spec.enabled = true;
        spec.key = Some("-----BEGIN PGP PUBLIC KEY BLOCK-----".to_owned());
        for (signed, unsigned_packages, signed_metadata) in [
            (None, false, false),
            (Some(RepositorySignatures::Packages), false, false),
            (Some(RepositorySignatures::Metadata), true, true),
            (Some(RepositorySignatures::Both), false, true),
        ] {
            spec.signed = signed;
            let wanted = DnfRepository {
                name: "lab".to_owned(),
                url: "http://rpm.example.com/lab".to_owned(),
                key: spec.key.clone(),
                disabled: false,
                unsigned_packages,
                signed_metadata,
            };
            assert_eq!(told(&spec), Packages { dnf: vec![wanted], ..Packages::default() }, "{signed:?}");
        }
        spec.enabled = false;
        assert!(told(&spec).dnf[0].disabled);
    }
}
