//! The sources of an image's packages: Debian's archive of the image's release. The host's own sources lead to it, with the site's
//! mirror, proxy and keys.
//!
//! | the host | packages come from |
//! | --- | --- |
//! | has sources of the release | these |
//! | is Debian, of another release | the mirrors of that release, which hold every release |
//! | is another system, like Ubuntu | deb.debian.org, believed by the keys of the package debian-archive-keyring |
//! | any, with `--mirror` or `--keyring` | that mirror; that keyring |

use std::fs;
use std::path::Path;

use super::host::{self, BuildError, io_error};

/// Needed besides `main`: the firmware of network adapters and storage controllers.
const COMPONENTS: [&str; 2] = ["main", "non-free-firmware"];

/// Keys of all releases that Debian supports.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Suites of a release, after its name, and Debian's own servers for them.
const ARCHIVE: [(&str, &str); 3] = [
    ("", "http://deb.debian.org/debian"),
    ("-updates", "http://deb.debian.org/debian"),
    ("-security", "http://deb.debian.org/debian-security"),
];

/// Names for its own release that a Debian host may use in place of the code name.
const ALIASES: [&str; 5] = ["stable", "testing", "unstable", "sid", "oldstable"];

/// Package sources as one-line entries, and apt's settings to reach them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sources {
    /// `sources.list`
    pub(super) list: String,
    /// `apt.conf`: proxies, and the checks that the host has turned off for a frozen mirror.
    pub(super) conf: String,
}

/// Values from the command line, which replace the host's.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Given<'a> {
    /// URL of the archive.
    pub(super) mirror: Option<&'a str>,
    /// The file with the keys that the archive is signed with.
    pub(super) keyring: Option<&'a Path>,
}

/// One source: type, options, address, suite.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    options: Vec<String>,
    uri: String,
    suite: String,
}

impl Entry {
    fn signed_by(keyring: &Path, uri: &str, suite: String) -> Self {
        let options = vec![format!("signed-by={}", keyring.display())];
        Self { options, uri: uri.to_owned(), suite }
    }

    /// True if apt trusts the source by Debian's keys. Other vendors also use names of Debian's suites.
    fn is_debians(&self) -> bool {
        self.options.iter().all(|option| option.contains("debian-archive"))
    }

    /// The suite without the name of its release: empty, or like `-security`.
    fn part(&self, release: &str) -> Option<&'static str> {
        match self.suite.strip_prefix(release)? {
            "/updates" => Some("-security"),
            rest => ARCHIVE.iter().find(|(part, _)| *part == rest).map(|(part, _)| *part),
        }
    }
}

impl Sources {
    /// The sources from a host's `/etc`.
    ///
    /// # Errors
    /// A file cannot be read, or the keys are missing.
    pub(super) fn find(etc: &Path, release: &str, given: Given<'_>) -> Result<Self, BuildError> {
        let entries = entries(etc, release, given)?;
        let missing = entries.iter().flat_map(|entry| &entry.options).find_map(|option| {
            let files = option.strip_prefix("signed-by=")?;
            files.split(',').find(|file| file.starts_with('/') && !Path::new(file).exists())
        });
        if let Some(keyring) = missing {
            return Err(BuildError::NoKeyring { keyring: keyring.to_owned() });
        }
        let dump = host::run("apt-config", ["dump"], Path::new("/")).unwrap_or_default();
        Ok(Self { list: render(&entries), conf: settings(&String::from_utf8_lossy(&dump)) })
    }
}

fn entries(etc: &Path, release: &str, given: Given<'_>) -> Result<Vec<Entry>, BuildError> {
    let host_release = debian_release(etc);
    let mut entries = match given.mirror {
        // apt on Debian trusts its own archive and the keys that a site added, without an option.
        Some(uri) => [release.to_owned(), format!("{release}-updates")]
            .map(|suite| Entry { options: Vec::new(), uri: uri.to_owned(), suite })
            .to_vec(),
        None => host_entries(etc, release, host_release.as_deref())?,
    };
    if entries.is_empty() {
        let archive =
            |(part, uri): (&str, &str)| Entry::signed_by(Path::new(KEYRING), uri, format!("{release}{part}"));
        entries = ARCHIVE.map(archive).to_vec();
    }
    let keyring = given.keyring.or(match (given.mirror, host_release) {
        (Some(_), None) => Some(Path::new(KEYRING)),
        _ => None,
    });
    if let Some(keyring) = keyring {
        entries =
            entries.into_iter().map(|entry| Entry::signed_by(keyring, &entry.uri, entry.suite)).collect();
    }
    Ok(entries)
}

/// The host's sources of the release. A Debian host without such sources uses the sources of its own release: the mirrors have both releases.
fn host_entries(etc: &Path, release: &str, host_release: Option<&str>) -> Result<Vec<Entry>, BuildError> {
    let all = read_sources(&etc.join("apt"))?;
    let own = host_release.into_iter().flat_map(|codename| [codename].into_iter().chain(ALIASES));
    for name in [release].into_iter().chain(own) {
        let found = of_release(&all, name, release);
        if found.iter().any(|entry| entry.suite == release) {
            return Ok(found);
        }
    }
    Ok(Vec::new())
}

/// Entries of the release `name`, changed to the release `wanted`. If Debian signs a suite, other vendors' sources for it are dropped.
fn of_release(all: &[Entry], name: &str, wanted: &str) -> Vec<Entry> {
    let parts: Vec<(&Entry, &str)> =
        all.iter().filter_map(|entry| Some((entry, entry.part(name)?))).collect();
    let is_debians = |wanted: &str| parts.iter().any(|(entry, part)| *part == wanted && entry.is_debians());
    let kept = parts.iter().filter(|(entry, part)| entry.is_debians() || !is_debians(part));
    let renamed = kept.map(|(entry, part)| match name == wanted {
        true => (*entry).clone(),
        false => Entry { suite: format!("{wanted}{part}"), ..(*entry).clone() },
    });
    let mut found: Vec<Entry> = renamed.collect();
    found.dedup();
    found
}

/// The code name of a Debian host's release, from os-release(5). Testing and unstable have the code name of the next release.
fn debian_release(etc: &Path) -> Option<String> {
    let text = fs::read_to_string(etc.join("os-release")).ok()?;
    let field = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
        Some(value.trim_matches('"').to_owned())
    };
    (field("ID")? == "debian").then(|| field("VERSION_CODENAME").unwrap_or_default())
}

fn read_sources(etc_apt: &Path) -> Result<Vec<Entry>, BuildError> {
    let parts = etc_apt.join("sources.list.d");
    let mut files = vec![etc_apt.join("sources.list")];
    files.extend(fs::read_dir(&parts).into_iter().flatten().flatten().map(|entry| entry.path()));
    files.sort();
    let mut entries: Vec<Entry> = Vec::new();
    for file in files.iter().filter(|file| file.is_file()) {
        let text = fs::read_to_string(file).map_err(io_error(format!("reading {}", file.display())))?;
        entries.extend(match file.extension().and_then(|extension| extension.to_str()) {
            Some("sources") => deb822(&text),
            Some("list") => one_line(&text),
            _ => Vec::new(),
        });
    }
    for entry in &mut entries {
        entry.uri = first_mirror(&entry.uri);
    }
    Ok(entries)
}

/// The first mirror in a mirror file. Debian's cloud images use such a file, which the new image would not have.
fn first_mirror(uri: &str) -> String {
    let text = uri.strip_prefix("mirror+file:").and_then(|path| fs::read_to_string(path).ok());
    let first = text.as_deref().and_then(|text| {
        text.lines().filter(|line| !line.starts_with('#')).find_map(|line| line.split_whitespace().next())
    });
    first.unwrap_or(uri).to_owned()
}

fn one_line(text: &str) -> Vec<Entry> {
    let entry = |line: &str| {
        let rest = line.trim().strip_prefix("deb")?;
        let rest = rest.strip_prefix([' ', '\t'])?.trim_start();
        let (options, rest) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((options, rest)) => (options, rest),
            None => ("", rest),
        };
        let mut words = rest.split_whitespace();
        let options =
            options.split_whitespace().filter(|option| option.starts_with("signed-by=")).map(str::to_owned);
        Some(Entry {
            options: options.collect(),
            uri: words.next()?.to_owned(),
            suite: words.next()?.to_owned(),
        })
    };
    text.lines().filter_map(entry).collect()
}

fn deb822(text: &str) -> Vec<Entry> {
    let text: String =
        text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    let mut entries = Vec::new();
    for stanza in text.split("\n\n") {
        let field = |name: &str| {
            stanza.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then(|| value.trim())
            })
        };
        let words = |name| field(name).unwrap_or_default().split_whitespace();
        if !words("Types").any(|kind| kind == "deb") || field("Enabled") == Some("no") {
            continue;
        }
        // Only the path of a key file can be carried over, not an inline key. Debian's own keyring is trusted without an option.
        let key = field("Signed-By").filter(|key| key.starts_with('/'));
        for uri in words("URIs") {
            for suite in words("Suites") {
                let options = key.iter().map(|key| format!("signed-by={key}")).collect();
                entries.push(Entry { options, uri: uri.to_owned(), suite: suite.to_owned() });
            }
        }
    }
    entries
}

fn render(entries: &[Entry]) -> String {
    let line = |entry: &Entry| {
        let options =
            if entry.options.is_empty() { String::new() } else { format!("[{}] ", entry.options.join(" ")) };
        format!("deb {options}{} {} {}\n", entry.uri, entry.suite, COMPONENTS.join(" "))
    };
    entries.iter().map(line).collect()
}

/// The host's apt settings that affect connections to mirrors and their trust.
fn settings(dump: &str) -> String {
    const KEPT: [&str; 4] =
        ["Acquire::http::", "Acquire::https::", "Acquire::Check-Valid-Until", "Acquire::Check-Date"];
    let kept = |line: &&str| KEPT.iter().any(|prefix| line.starts_with(prefix)) && !line.ends_with("\"\";");
    dump.lines().filter(kept).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEB822: &str = "\
Types: deb deb-src
# a comment
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: https://vendor.example
Suites: nodistro
Components: main
";

    const DEBIAN_13: &str = "\
Types: deb
URIs: http://mirror.example/debian
Suites: trixie trixie-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/security
Suites: trixie-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
";

    /// A host's `/etc` with this os-release and these files in `apt`.
    fn etc(os_release: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("apt/sources.list.d")).unwrap();
        fs::write(dir.path().join("os-release"), os_release).unwrap();
        for (name, text) in files {
            fs::write(dir.path().join("apt").join(name), text).unwrap();
        }
        dir
    }

    fn list(etc: &tempfile::TempDir, release: &str, given: Given<'_>) -> String {
        render(&entries(etc.path(), release, given).unwrap())
    }

    const IS_DEBIAN_12: &str = "ID=debian\nVERSION_CODENAME=bookworm\n";
    const IS_DEBIAN_13: &str = "ID=debian\nVERSION_CODENAME=trixie\n";
    const IS_UBUNTU: &str = "ID=ubuntu\nVERSION_CODENAME=noble\nID_LIKE=debian\n";

    #[test]
    fn takes_debians_sources_and_adds_the_firmware_component() {
        let one_line = "# deb http://no.example bookworm main\n\
            deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/security bookworm-security main\n\
            deb http://vendor.example vendor-bookworm main\n";
        let host =
            etc(IS_DEBIAN_12, &[("sources.list.d/debian.sources", DEB822), ("sources.list", one_line)]);
        assert_eq!(
            list(&host, "bookworm", Given::default()),
            "deb [signed-by=/k.gpg] http://mirror.example/security bookworm-security main non-free-firmware\n\
             deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://mirror.example/debian bookworm main non-free-firmware\n\
             deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://mirror.example/debian bookworm-updates main non-free-firmware\n"
        );
    }

    #[test]
    fn a_vendor_whose_suite_has_debians_name_is_left_out() {
        let vendor = "deb [signed-by=/usr/share/keyrings/hashicorp-archive-keyring.gpg] https://apt.vendor.example bookworm main\n";
        let host = etc(
            IS_DEBIAN_12,
            &[("sources.list.d/debian.sources", DEB822), ("sources.list.d/vendor.list", vendor)],
        );
        let list = list(&host, "bookworm", Given::default());
        assert!(list.contains("mirror.example/debian bookworm main") && !list.contains("vendor"), "{list}");
    }

    #[test]
    fn another_debian_gives_its_mirrors_for_the_release() {
        let host = etc(IS_DEBIAN_13, &[("sources.list.d/debian.sources", DEBIAN_13)]);
        let signed = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]";
        assert_eq!(
            list(&host, "bookworm", Given::default()),
            format!(
                "deb {signed} http://mirror.example/debian bookworm main non-free-firmware\n\
                 deb {signed} http://mirror.example/debian bookworm-updates main non-free-firmware\n\
                 deb {signed} http://mirror.example/security bookworm-security main non-free-firmware\n"
            )
        );
        let named_stable =
            etc(IS_DEBIAN_13, &[("sources.list", "deb http://mirror.example/debian stable main\n")]);
        assert_eq!(
            list(&named_stable, "bookworm", Given::default()),
            "deb http://mirror.example/debian bookworm main non-free-firmware\n"
        );
    }

    #[test]
    fn a_host_that_is_not_debian_takes_debians_archive_and_its_keys() {
        let ubuntu = "Types: deb\nURIs: http://archive.ubuntu.com/ubuntu/\nSuites: noble noble-updates\nComponents: main universe\nSigned-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg\n";
        let host = etc(IS_UBUNTU, &[("sources.list.d/ubuntu.sources", ubuntu)]);
        let signed = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]";
        assert_eq!(
            list(&host, "bookworm", Given::default()),
            format!(
                "deb {signed} http://deb.debian.org/debian bookworm main non-free-firmware\n\
                 deb {signed} http://deb.debian.org/debian bookworm-updates main non-free-firmware\n\
                 deb {signed} http://deb.debian.org/debian-security bookworm-security main non-free-firmware\n"
            )
        );
    }

    #[test]
    fn a_mirror_is_believed_by_what_debian_trusts_elsewhere_by_debians_keys_or_by_the_given_ones() {
        let mirror = Given { mirror: Some("http://m.example/debian"), keyring: None };
        let first =
            |host: &str, given| list(&etc(host, &[]), "bookworm", given).lines().next().unwrap().to_owned();
        let rest = "http://m.example/debian bookworm main non-free-firmware";
        assert_eq!(first(IS_DEBIAN_13, mirror), format!("deb {rest}"));
        assert_eq!(first(IS_UBUNTU, mirror), format!("deb [signed-by={KEYRING}] {rest}"));
        let own = Given { keyring: Some(Path::new("/site.gpg")), ..mirror };
        assert_eq!(first(IS_UBUNTU, own), format!("deb [signed-by=/site.gpg] {rest}"));
    }

    #[test]
    fn a_missing_keyring_is_named_with_its_package() {
        let given = Given { mirror: None, keyring: Some(Path::new("/nowhere/keys.gpg")) };
        let error = Sources::find(etc(IS_UBUNTU, &[]).path(), "bookworm", given).unwrap_err().to_string();
        assert!(error.contains("/nowhere/keys.gpg") && error.contains("debian-archive-keyring"), "{error}");
    }

    #[test]
    fn a_file_of_mirrors_gives_its_first() {
        let host = etc(
            IS_DEBIAN_12,
            &[("mirrors.list", "# ours\nhttps://m.example/debian\tpriority:1\nhttps://n.example/debian\n")],
        );
        let file = host.path().join("apt/mirrors.list");
        let source = format!("deb mirror+file:{} bookworm main\n", file.display());
        fs::write(host.path().join("apt/sources.list"), source).unwrap();
        assert_eq!(
            list(&host, "bookworm", Given::default()),
            "deb https://m.example/debian bookworm main non-free-firmware\n"
        );
    }

    #[test]
    fn proxies_are_carried_over_and_other_settings_are_not() {
        let dump = "APT::Architecture \"amd64\";\nAcquire::http::Proxy \"http://proxy.example:3128\";\nAcquire::https::Proxy \"\";\nAcquire::Check-Date \"false\";\n";
        assert_eq!(
            settings(dump),
            "Acquire::http::Proxy \"http://proxy.example:3128\";\nAcquire::Check-Date \"false\";\n"
        );
    }
}
