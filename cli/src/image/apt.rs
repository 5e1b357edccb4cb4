//! Where packages come from: the host's own sources for the release, so that a site's mirror and proxy are used
//! without being asked for again.

use std::fs;
use std::path::Path;

use super::host::{self, BuildError, io_error};

/// Needed besides `main`: the firmware of network adapters and storage controllers.
const COMPONENTS: [&str; 2] = ["main", "non-free-firmware"];

/// Package sources as one-line entries, and apt's settings for reaching them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sources {
    /// `sources.list`
    pub(super) list: String,
    /// `apt.conf`: proxies, and the checks that the host has turned off for a frozen mirror.
    pub(super) conf: String,
}

/// One source: type, options, address, suite.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    options: Vec<String>,
    uri: String,
    suite: String,
}

impl Sources {
    /// From `/etc/apt`, or of one mirror.
    pub(super) fn find(etc_apt: &Path, release: &str, mirror: Option<&str>) -> Result<Self, BuildError> {
        let entries = match mirror {
            Some(uri) => [release.to_owned(), format!("{release}-updates")]
                .map(|suite| Entry { options: Vec::new(), uri: uri.to_owned(), suite })
                .to_vec(),
            None => host_entries(etc_apt, release)?,
        };
        if entries.is_empty() {
            return Err(BuildError::NoSources { release: release.to_owned() });
        }
        let dump = host::run("apt-config", ["dump"], Path::new("/")).unwrap_or_default();
        Ok(Self { list: render(&entries), conf: settings(&String::from_utf8_lossy(&dump)) })
    }
}

fn host_entries(etc_apt: &Path, release: &str) -> Result<Vec<Entry>, BuildError> {
    let parts = etc_apt.join("sources.list.d");
    let mut files = vec![etc_apt.join("sources.list")];
    files.extend(fs::read_dir(&parts).into_iter().flatten().flatten().map(|entry| entry.path()));
    files.sort();
    let mut entries: Vec<Entry> = Vec::new();
    for file in files.iter().filter(|file| file.is_file()) {
        let text = fs::read_to_string(file).map_err(io_error(format!("reading {}", file.display())))?;
        let found = match file.extension().and_then(|extension| extension.to_str()) {
            Some("sources") => deb822(&text),
            Some("list") => one_line(&text),
            _ => Vec::new(),
        };
        entries.extend(found.into_iter().filter(|entry| belongs(&entry.suite, release)));
    }
    entries.dedup();
    Ok(entries)
}

/// Other vendors' sources have suites of their own; these are Debian's for one release.
fn belongs(suite: &str, release: &str) -> bool {
    suite.strip_prefix(release).is_some_and(|rest| matches!(rest, "" | "-updates" | "-security" | "/updates"))
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
        // A key given in place of a file cannot be carried over; Debian's own keyring is trusted without it.
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

/// Of the host's apt settings those that decide whether a mirror can be reached and believed.
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

    #[test]
    fn takes_debians_sources_and_adds_the_firmware_component() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sources.list.d")).unwrap();
        fs::write(dir.path().join("sources.list.d/debian.sources"), DEB822).unwrap();
        fs::write(
            dir.path().join("sources.list"),
            "# deb http://no.example bookworm main\ndeb [arch=amd64 signed-by=/k.gpg] http://mirror.example/security bookworm-security main\ndeb http://vendor.example vendor-bookworm main\n",
        )
        .unwrap();
        let entries = host_entries(dir.path(), "bookworm").unwrap();
        assert_eq!(
            render(&entries),
            "deb [signed-by=/k.gpg] http://mirror.example/security bookworm-security main non-free-firmware\n\
             deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://mirror.example/debian bookworm main non-free-firmware\n\
             deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://mirror.example/debian bookworm-updates main non-free-firmware\n"
        );
    }

    #[test]
    fn a_host_without_the_release_is_told_to_name_a_mirror() {
        let dir = tempfile::tempdir().unwrap();
        let error = Sources::find(dir.path(), "trixie", None).unwrap_err().to_string();
        assert!(error.contains("trixie") && error.contains("--mirror"), "{error}");
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
