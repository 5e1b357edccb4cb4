//! Package sources of the new system: its proxy and its repositories, for apt and for dnf.

use std::fs;
use std::path::Path;

use basalt_api::agent::{DnfRepository, FailureCode, Packages, Repository};

use crate::failure::Failure;

/// A file of the new system: its path below the root, and its text.
pub type TextFile = (String, String);

/// The configuration of dnf. Before version 5, dnf reads no drop-ins.
const DNF: &str = "etc/dnf/dnf.conf";

/// Package managers of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    /// It has apt.
    pub apt: bool,
    /// `VERSION_CODENAME` of os-release(5).
    pub codename: Option<String>,
    /// The text of [`DNF`].
    pub dnf: Option<String>,
}

impl Image {
    /// Reads the unpacked image. A link may lead out of the image, so links to files are not followed.
    #[must_use]
    pub fn of(target: &Path) -> Self {
        let text = |path: &str| {
            let path = target.join(path);
            let is_file = fs::symlink_metadata(&path).is_ok_and(|it| it.is_file());
            is_file.then(|| fs::read_to_string(path).ok()).flatten()
        };
        // /etc/os-release is a link to the other one.
        let release = text("etc/os-release").or_else(|| text("usr/lib/os-release"));
        Self {
            apt: target.join("etc/apt").is_dir(),
            codename: release.as_deref().and_then(codename),
            dnf: text(DNF),
        }
    }
}

fn codename(release: &str) -> Option<String> {
    let value = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    Some(value.trim_matches('"').to_owned()).filter(|it| !it.is_empty())
}

/// The files that an install adds.
///
/// # Errors
/// A repository names no suite, and neither does the image.
pub fn files(packages: &Packages, image: &Image) -> Result<Vec<TextFile>, Failure> {
    let mut files = Vec::new();
    if let Some(proxy) = &packages.proxy {
        if image.apt {
            // apt also uses this proxy for https (apt-transport-https(1)).
            files.push((
                "etc/apt/apt.conf.d/50basalt-proxy".to_owned(),
                format!("Acquire::http::Proxy \"{proxy}/\";\n"),
            ));
        }
        files.extend(image.dnf.as_deref().map(|text| (DNF.to_owned(), with_proxy(text, proxy))));
    }
    for repository in packages.repositories.iter().filter(|_| image.apt) {
        let key = format!("etc/apt/keyrings/basalt-{}.asc", repository.name);
        let sources = sources(repository, image.codename.as_deref(), &key)?;
        files.push((format!("etc/apt/sources.list.d/basalt-{}.sources", repository.name), sources));
        files.extend(repository.key.as_deref().map(|text| key_file(key, text)));
    }
    for repository in packages.dnf.iter().filter(|_| image.dnf.is_some()) {
        let key = format!("etc/pki/rpm-gpg/RPM-GPG-KEY-basalt-{}", repository.name);
        files.push((format!("etc/yum.repos.d/basalt-{}.repo", repository.name), section(repository, &key)));
        files.extend(repository.key.as_deref().map(|text| key_file(key, text)));
    }
    Ok(files)
}

fn key_file(path: String, text: &str) -> TextFile {
    (path, format!("{}\n", text.trim_end()))
}

/// Names the repositories that the image cannot use: one sentence for each package manager that is absent.
#[must_use]
pub fn left_out(packages: &Packages, image: &Image) -> Vec<String> {
    let apt: Vec<&str> = packages.repositories.iter().map(|it| it.name.as_str()).collect();
    let dnf: Vec<&str> = packages.dnf.iter().map(|it| it.name.as_str()).collect();
    [("apt", image.apt, "etc/apt", apt), ("dnf", image.dnf.is_some(), DNF, dnf)]
        .into_iter()
        .filter(|(_, has, _, names)| !has && !names.is_empty())
        .map(|(manager, _, path, names)| {
            let names = names.join(", ");
            format!(
                "the image has no {manager} (no /{path}); it does not get these PackageRepositories: {names}"
            )
        })
        .collect()
}

/// The stanza of a repository (sources.list(5), deb822).
fn sources(repository: &Repository, codename: Option<&str>, key: &str) -> Result<String, Failure> {
    let suites = match (&repository.suites[..], codename) {
        ([], Some(codename)) => codename.to_owned(),
        ([], None) => {
            let message = format!(
                "the PackageRepository {} names no suite, and the image has no VERSION_CODENAME; name its suites",
                repository.name
            );
            return Err(Failure::new(FailureCode::BadImage, message));
        }
        (suites, _) => suites.join(" "),
    };
    let mut text = format!("Types: deb\nURIs: {}\nSuites: {suites}\n", repository.url);
    if !repository.components.is_empty() {
        text.push_str(&format!("Components: {}\n", repository.components.join(" ")));
    }
    if !repository.architectures.is_empty() {
        text.push_str(&format!("Architectures: {}\n", repository.architectures.join(" ")));
    }
    if repository.key.is_some() {
        text.push_str(&format!("Signed-By: /{key}\n"));
    }
    if repository.disabled {
        text.push_str("Enabled: no\n");
    }
    Ok(text)
}

/// The section of a repository (dnf.conf(5)). Both checks are written, since their defaults differ between distributions.
fn section(repository: &DnfRepository, key: &str) -> String {
    let DnfRepository { name, url, disabled, unsigned_packages, signed_metadata, .. } = repository;
    let mut text = format!(
        "[basalt-{name}]\nname={name}\nbaseurl={url}\nenabled={}\ngpgcheck={}\nrepo_gpgcheck={}\n",
        u8::from(!disabled),
        u8::from(!unsigned_packages),
        u8::from(*signed_metadata),
    );
    if repository.key.is_some() {
        text.push_str(&format!("gpgkey=file:///{key}\n"));
    }
    text
}

/// dnf.conf(5) with this proxy in its section `main` and without other proxies.
fn with_proxy(text: &str, proxy: &str) -> String {
    let is_proxy = |line: &&str| line.split('=').next().is_some_and(|key| key.trim() == "proxy");
    let line = format!("proxy={proxy}");
    let mut lines: Vec<&str> = text.lines().filter(|it| !is_proxy(it)).collect();
    match lines.iter().position(|it| it.trim() == "[main]") {
        Some(main) => lines.insert(main + 1, &line),
        None => lines.extend(["[main]", &line]),
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROXY: &str = "http://lab.rack.basalt.internal:8000";

    fn debian() -> Image {
        Image { apt: true, codename: Some("bookworm".to_owned()), dnf: None }
    }

    fn repository() -> Repository {
        Repository {
            name: "lab".to_owned(),
            url: "http://deb.example.com/lab".to_owned(),
            components: vec!["main".to_owned()],
            ..Repository::default()
        }
    }

    fn of(repository: Repository) -> Packages {
        Packages { repositories: vec![repository], ..Packages::default() }
    }

    fn one(path: &str, text: &str) -> TextFile {
        (path.to_owned(), text.to_owned())
    }

    #[test]
    fn apt_and_dnf_are_told_the_proxy_where_the_image_has_them() {
        let packages = Packages { proxy: Some(PROXY.to_owned()), ..Packages::default() };
        let apt = one(
            "etc/apt/apt.conf.d/50basalt-proxy",
            "Acquire::http::Proxy \"http://lab.rack.basalt.internal:8000/\";\n",
        );
        assert_eq!(files(&packages, &debian()).unwrap(), [apt]);
        let fedora =
            Image { dnf: Some("[main]\ngpgcheck=1\nproxy = http://old\n".to_owned()), ..Image::default() };
        let dnf = one("etc/dnf/dnf.conf", &format!("[main]\nproxy={PROXY}\ngpgcheck=1\n"));
        assert_eq!(files(&packages, &fedora).unwrap(), [dnf]);
        assert_eq!(files(&packages, &Image::default()).unwrap(), []);
    }

    #[test]
    fn a_repository_has_the_suite_of_the_image_and_a_key_of_its_own() {
        let key = Some("-----BEGIN PGP PUBLIC KEY BLOCK-----\n".to_owned());
        let signed = Repository { key, ..repository() };
        let packages = of(signed);
        let stanza = "Types: deb\nURIs: http://deb.example.com/lab\nSuites: bookworm\nComponents: main\n\
                      Signed-By: /etc/apt/keyrings/basalt-lab.asc\n";
        let wanted = [
            one("etc/apt/sources.list.d/basalt-lab.sources", stanza),
            one("etc/apt/keyrings/basalt-lab.asc", "-----BEGIN PGP PUBLIC KEY BLOCK-----\n"),
        ];
        assert_eq!(files(&packages, &debian()).unwrap(), wanted);
        assert_eq!(files(&packages, &Image::default()).unwrap(), [], "it has no apt");
    }

    #[test]
    fn a_repository_without_a_suite_needs_an_image_that_says_its_own() {
        let unnamed = Image { codename: None, ..debian() };
        let told = files(&of(repository()), &unnamed).unwrap_err();
        assert!(told.to_string().contains("PackageRepository lab names no suite"), "{told}");
        let suites = vec!["lab".to_owned(), "lab-updates".to_owned()];
        let architectures = vec!["amd64".to_owned()];
        let named = Repository { suites, architectures, ..repository() };
        let files = files(&of(named), &unnamed).unwrap();
        assert!(
            files[0].1.contains("Suites: lab lab-updates\n") && files[0].1.contains("Architectures: amd64\n")
        );
    }

    #[test]
    fn a_repository_for_dnf_has_a_section_and_a_key_of_its_own() {
        let fedora = Image { dnf: Some("[main]\n".to_owned()), ..Image::default() };
        let key = Some("-----BEGIN PGP PUBLIC KEY BLOCK-----\n".to_owned());
        let url = "http://rpm.example.com/$releasever".to_owned();
        let plain = DnfRepository { name: "lab".to_owned(), url, ..DnfRepository::default() };
        let told = |repository: &DnfRepository, image| {
            let packages = Packages { dnf: vec![repository.clone()], ..Packages::default() };
            files(&packages, image).unwrap()
        };
        let section = "[basalt-lab]\nname=lab\nbaseurl=http://rpm.example.com/$releasever\nenabled=1\n\
                       gpgcheck=1\nrepo_gpgcheck=0\n";
        assert_eq!(told(&plain, &fedora), [one("etc/yum.repos.d/basalt-lab.repo", section)]);
        let signed = DnfRepository {
            key,
            disabled: true,
            unsigned_packages: true,
            signed_metadata: true,
            ..plain.clone()
        };
        let section = "[basalt-lab]\nname=lab\nbaseurl=http://rpm.example.com/$releasever\nenabled=0\n\
                       gpgcheck=0\nrepo_gpgcheck=1\n\
                       gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-basalt-lab\n";
        let wanted = [
            one("etc/yum.repos.d/basalt-lab.repo", section),
            one("etc/pki/rpm-gpg/RPM-GPG-KEY-basalt-lab", "-----BEGIN PGP PUBLIC KEY BLOCK-----\n"),
        ];
        assert_eq!(told(&signed, &fedora), wanted);
        assert_eq!(told(&plain, &debian()), [], "it has no dnf");
    }

    #[test]
    fn a_disabled_repository_for_apt_says_so_in_its_stanza() {
        let text = |repository| files(&of(repository), &debian()).unwrap().remove(0).1;
        assert!(!text(repository()).contains("Enabled"));
        assert!(text(Repository { disabled: true, ..repository() }).ends_with("\nEnabled: no\n"));
    }

    #[test]
    fn repositories_of_a_package_manager_that_the_image_lacks_are_named() {
        let dnf = ["rpms", "tools"]
            .map(|name| DnfRepository { name: name.to_owned(), ..DnfRepository::default() })
            .to_vec();
        let packages = Packages { dnf, ..of(repository()) };
        let fedora = Image { dnf: Some("[main]\n".to_owned()), ..Image::default() };
        let no_dnf = "the image has no dnf (no /etc/dnf/dnf.conf); it does not get these PackageRepositories: rpms, tools";
        let no_apt = "the image has no apt (no /etc/apt); it does not get these PackageRepositories: lab";
        assert_eq!(left_out(&packages, &debian()), [no_dnf]);
        assert_eq!(left_out(&packages, &fedora), [no_apt]);
        assert_eq!(left_out(&packages, &Image::default()), [no_apt, no_dnf]);
        assert_eq!(left_out(&packages, &Image { apt: true, ..fedora }), [""; 0]);
    }

    #[test]
    fn an_image_is_looked_at_without_following_its_links() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        for part in ["etc/apt", "etc/dnf", "usr/lib"] {
            fs::create_dir_all(target.join(part)).unwrap();
        }
        fs::write(target.join("usr/lib/os-release"), "ID=debian\nVERSION_CODENAME=\"bookworm\"\n").unwrap();
        std::os::unix::fs::symlink("../usr/lib/os-release", target.join("etc/os-release")).unwrap();
        fs::write(dir.path().join("outside"), "[main]\n").unwrap();
        std::os::unix::fs::symlink(dir.path().join("outside"), target.join(DNF)).unwrap();
        assert_eq!(Image::of(&target), debian());
    }
}
