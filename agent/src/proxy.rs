//! The HTTP proxy of a task's scripts: a variable of their environment, and settings of the package managers in the ephemeral environment.
//!
//! `http_proxy` is not set. The proxy refuses racks, regions, BMCs and most ports as destinations, and scripts use all of these.

use std::fs;
use std::io;
use std::path::Path;

use basalt_api::agent::Packages;

use crate::install::packages::{self, Image};

/// Has apt and dnf of the system at `root` use the proxy.
///
/// # Errors
/// `io::Error`: a file cannot be written.
pub fn configure(root: &Path, proxy: &str) -> io::Result<()> {
    let wanted = Packages { proxy: Some(proxy.to_owned()), ..Packages::default() };
    let files =
        packages::files(&wanted, &Image::of(root)).map_err(|failure| io::Error::other(failure.message))?;
    for (path, text) in files {
        let path = root.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_managers_of_the_environment_use_the_proxy() {
        let dir = tempfile::tempdir().unwrap();
        for part in ["etc/apt", "etc/dnf"] {
            fs::create_dir_all(dir.path().join(part)).unwrap();
        }
        fs::write(dir.path().join("etc/dnf/dnf.conf"), "[main]\n").unwrap();
        configure(dir.path(), "http://10.77.0.2:8000").unwrap();
        let text = |path: &str| fs::read_to_string(dir.path().join(path)).unwrap();
        assert_eq!(text("etc/dnf/dnf.conf"), "[main]\nproxy=http://10.77.0.2:8000\n");
        let asked = std::process::Command::new("apt-config")
            .args(["shell", "PROXY", "Acquire::http::Proxy"])
            .env("APT_CONFIG", dir.path().join("etc/apt/apt.conf.d/50basalt-proxy"))
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&asked.stdout), "PROXY='http://10.77.0.2:8000/'\n");
    }
}
