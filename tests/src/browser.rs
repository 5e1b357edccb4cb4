//! A person's steps in Debian's Chromium: files of `controller/ui/tests/browser`, which Node runs.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The program that runs steps. Its arguments are those of Node, without the word `node`.
#[must_use]
pub fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../controller/ui/with-node")
}

/// Installs Node's packages and the browser while there is a network, and gives the browser's path to the
/// steps.
///
/// # Panics
/// An installation fails.
pub fn set_up(steps: &mut Command) {
    let ready = Command::new(program()).arg("true").status().expect("with-node runs");
    assert!(ready.success(), "with-node: {ready}");
    let (browser, libraries) = chromium();
    steps.env("CHROMIUM", browser).env("LD_LIBRARY_PATH", libraries);
    if let Some(folder) = std::env::var_os("BASALT_SCREENSHOTS") {
        steps.env("SCREENSHOTS", folder);
    }
}

/// The browser, and the directory of libraries that this host lacks.
fn chromium() -> (PathBuf, String) {
    let installed = PathBuf::from("/usr/bin/chromium");
    if installed.exists() {
        return (installed, String::new());
    }
    let peer = Path::new(env!("CARGO_MANIFEST_DIR")).join("lab/peer");
    let output = Command::new(&peer).arg("chromium").output().expect("tests/lab/peer");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let root = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let libraries = format!("{root}/usr/lib/x86_64-linux-gnu");
    (Path::new(&root).join("usr/lib/chromium/chromium"), format!("{libraries}:{libraries}/pulseaudio"))
}
