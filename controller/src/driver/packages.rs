//! Package repositories of installed systems.

use basalt_api::agent::Repository;
use basalt_api::kinds::{Architecture, PackageRepositorySpec};
use basalt_db::{Store, StoreError};

use super::load::readable;

/// The component of repositories without declared components.
const COMPONENT: &str = "main";

/// The repositories for an architecture, in order of name.
///
/// # Errors
/// Fails if the database cannot be read.
pub(super) async fn repositories(
    store: &Store,
    architecture: Architecture,
) -> Result<Vec<Repository>, StoreError> {
    let mut declared = store.all("PackageRepository").await?;
    declared.retain(|object| object.deletion_requested_at.is_none());
    let mut repositories: Vec<Repository> = readable::<PackageRepositorySpec>(declared)
        .filter(|(_, spec)| spec.architectures.is_empty() || spec.architectures.contains(&architecture))
        .map(|(object, spec)| repository(object.name, spec))
        .collect();
    repositories.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(repositories)
}

fn repository(name: String, spec: PackageRepositorySpec) -> Repository {
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_has_the_component_main_unless_it_names_others() {
        let mut spec = PackageRepositorySpec::new("http://deb.example.com/lab".parse().unwrap());
        let told = |spec: &PackageRepositorySpec| repository("lab".to_owned(), spec.clone());
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
}
