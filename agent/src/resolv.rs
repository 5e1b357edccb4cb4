//! `/etc/resolv.conf`. DHCP and DHCPv6 each write their part of it.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::net::IpAddr;
use std::path::Path;

/// Replaces the servers of one address family by `servers`, and the search domains by `search` if it is not empty. Two processes may call
/// it at once.
///
/// # Errors
/// An error of the file system.
pub fn set(path: &Path, is_v6: bool, servers: &[IpAddr], search: &[String]) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    file.lock()?;
    let mut before = String::new();
    file.read_to_string(&mut before)?;
    let after = merged(&before, is_v6, servers, search);
    file.rewind()?;
    file.set_len(0)?;
    file.write_all(after.as_bytes())
}

fn merged(before: &str, is_v6: bool, servers: &[IpAddr], search: &[String]) -> String {
    let is_of_another = |line: &&str| match line.split_once(' ') {
        Some(("nameserver", server)) => server.parse().is_ok_and(|it: IpAddr| it.is_ipv6() != is_v6),
        Some(("search", _)) => search.is_empty(),
        _ => true,
    };
    let mut lines: Vec<String> = before.lines().filter(is_of_another).map(str::to_owned).collect();
    if !search.is_empty() {
        lines.push(format!("search {}", search.join(" ")));
    }
    lines.extend(servers.iter().map(|server| format!("nameserver {server}")));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_family_replaces_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("etc/resolv.conf");
        let [four, five, six] = ["10.0.0.4", "10.0.0.5", "2001:db8::6"].map(|it| it.parse().unwrap());
        let read = || fs::read_to_string(&path).unwrap();
        set(&path, false, &[four], &[]).unwrap();
        set(&path, true, &[six], &["lab.example".to_owned(), "example".to_owned()]).unwrap();
        assert_eq!(read(), "nameserver 10.0.0.4\nsearch lab.example example\nnameserver 2001:db8::6\n");
        set(&path, false, &[five], &[]).unwrap();
        assert_eq!(read(), "search lab.example example\nnameserver 2001:db8::6\nnameserver 10.0.0.5\n");
        set(&path, true, &[], &[]).unwrap();
        assert_eq!(read(), "search lab.example example\nnameserver 10.0.0.5\n");
    }
}
