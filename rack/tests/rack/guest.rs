//! Tests that need kernel features which the host's kernel may lack: they run under Debian's kernel, in an emulated
//! machine.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::namespace::{INSIDE, peer};

/// Runs the test with this name again under a kernel with these modules, as root and alone; true if it already runs
/// there.
pub(crate) fn is_inside(name: &str, modules: &[&str]) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let kernel = peer("linux");
    let again = std::env::current_exe().unwrap();
    let guest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/lab/guest");
    let Output { status, stdout, stderr } = Command::new(guest)
        .arg(kernel)
        .args(modules)
        .arg("--")
        .arg(again)
        .args(["--exact", name, "--show-output"])
        .env(INSIDE, "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&stdout) + String::from_utf8_lossy(&stderr);
    assert!(status.success() && said.contains("1 passed"), "under Debian's kernel: {said}");
    println!("{said}");
    false
}
