//! The HTTP proxy of a task's scripts: variables of their environment, and settings of the package managers in the ephemeral environment.

use std::fs;
use std::io;
use std::path::Path;

use basalt_api::agent::{PROXY_VARIABLE, Packages};

use crate::install::packages::{self, Image};

/// Destinations that programs reach without the proxy: this machine, and BMCs on an interface of the machine (link-local). The racks, which
/// the proxy refuses as destinations, are added.
const DIRECT: &str = "localhost,127.0.0.1,::1,169.254.0.0/16";

/// The variables for a proxy `http://HOST:PORT`. Programs agree on the lower-case names alone: in CGI, `HTTP_PROXY` is a client's header.
#[must_use]
pub fn variables(proxy: &str) -> [(&'static str, String); 4] {
    let host = proxy.strip_prefix("http://").unwrap_or(proxy);
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host).trim_matches(['[', ']']);
    [
        (PROXY_VARIABLE, proxy.to_owned()),
        ("http_proxy", proxy.to_owned()),
        ("https_proxy", proxy.to_owned()),
        ("no_proxy", format!("{DIRECT},{host}")),
    ]
}

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
    fn programs_reach_this_machine_its_bmc_and_the_racks_without_the_proxy() {
        let told = |proxy| variables(proxy).map(|(name, value)| format!("{name}={value}")).join(" ");
        assert_eq!(
            told("http://lab.rack.basalt.internal:8000"),
            "BASALT_PROXY=http://lab.rack.basalt.internal:8000 http_proxy=http://lab.rack.basalt.internal:8000 \
             https_proxy=http://lab.rack.basalt.internal:8000 \
             no_proxy=localhost,127.0.0.1,::1,169.254.0.0/16,lab.rack.basalt.internal"
        );
        assert!(told("http://[2001:db8::2]:8000").ends_with(",2001:db8::2"));
    }

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
