//! The NTP servers in the configuration of this host's own NTP daemon. The rack asks them if the Settings name none.
//!
//! | daemon | files | servers |
//! | --- | --- | --- |
//! | chrony | /etc/chrony/chrony.conf, /etc/chrony.conf, /etc/chrony/sources.d/*.sources | `server`, `pool`, `peer` |
//! | ntpd, ntpsec | /etc/ntpsec/ntp.conf, /etc/ntp.conf | `server`, `pool`, `peer` |
//! | systemd-timesyncd | /etc/systemd/timesyncd.conf, /etc/systemd/timesyncd.conf.d/*.conf | `NTP=`, else `FallbackNTP=` |

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The most servers that are asked.
const MOST: usize = 8;

/// The servers of the first daemon in the table that has some.
#[must_use]
pub fn servers() -> Vec<String> {
    found(Path::new("/etc"))
}

fn found(etc: &Path) -> Vec<String> {
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    let text = |files: &[&str], folder: &str, extension: &str| {
        let mut parts: Vec<PathBuf> = fs::read_dir(etc.join(folder))
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|it| it == extension))
            .collect();
        parts.sort();
        let all = files.iter().map(|file| etc.join(file)).chain(parts);
        all.map(read).collect::<Vec<_>>().join("\n")
    };
    let chrony = text(&["chrony/chrony.conf", "chrony.conf"], "chrony/sources.d", "sources");
    let ntpd = text(&["ntpsec/ntp.conf", "ntp.conf"], "ntp.d", "conf");
    let timesyncd = text(&["systemd/timesyncd.conf"], "systemd/timesyncd.conf.d", "conf");
    let mut each = [directives(&chrony), directives(&ntpd), keys(&timesyncd)].into_iter();
    let mut servers = each.find(|servers| !servers.is_empty()).unwrap_or_default();
    servers.truncate(MOST);
    servers
}

/// The servers of chrony and ntpd. A reference clock of ntpd has an address in 127.127.0.0/16.
fn directives(text: &str) -> Vec<String> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        let is_one = matches!(words.next()?, "server" | "pool" | "peer");
        let name = words.find(|word| !word.starts_with('-'))?;
        (is_one && is_remote(name)).then(|| name.to_owned())
    };
    text.lines().filter_map(server).collect()
}

/// The servers of systemd-timesyncd. An empty assignment clears the earlier ones.
fn keys(text: &str) -> Vec<String> {
    let of = |key: &str| {
        let mut servers: Vec<String> = Vec::new();
        for line in text.lines() {
            let Some(value) = line.trim().strip_prefix(key).and_then(|it| it.strip_prefix('=')) else {
                continue;
            };
            if value.trim().is_empty() {
                servers.clear();
            }
            servers.extend(value.split_whitespace().filter(|it| is_remote(it)).map(str::to_owned));
        }
        servers
    };
    let servers = of("NTP");
    if servers.is_empty() { of("FallbackNTP") } else { servers }
}

fn is_remote(name: &str) -> bool {
    !name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_of_the_first_daemon_that_has_some_are_asked() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let found = || found(dir.path()).join(" ");
        assert_eq!(found(), "");
        write("systemd/timesyncd.conf", "[Time]\n#NTP=\nFallbackNTP=f1.example f2.example\n");
        assert_eq!(found(), "f1.example f2.example");
        write("systemd/timesyncd.conf.d/b.conf", "[Time]\nNTP=t1.example\nNTP=\nNTP=t2.example ::1\n");
        write("systemd/timesyncd.conf.d/not-read.txt", "NTP=t3.example\n");
        assert_eq!(found(), "t2.example");
        write(
            "ntpsec/ntp.conf",
            "driftfile x\nserver 127.127.1.0\npool -4 n1.example iburst\n#server n2.example\n",
        );
        assert_eq!(found(), "n1.example");
        write(
            "chrony/chrony.conf",
            "# server c0.example\npool c1.example iburst maxsources 4\nserver 192.0.2.1\n",
        );
        write("chrony/sources.d/a.sources", "peer c2.example\n");
        assert_eq!(found(), "c1.example 192.0.2.1 c2.example");
    }
}
