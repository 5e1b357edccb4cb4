//! The lab's scripts: the packages that a host lacks.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

const SCRIPTS: &str = env!("CARGO_MANIFEST_DIR");
/// The releases that README promises.
const RELEASES: [&str; 4] = ["debian:12", "debian:13", "ubuntu:22.04", "ubuntu:24.04"];

/// Rows of tests/lab/packages: proof, and a name for each release.
fn table() -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(Path::new(SCRIPTS).join("packages")).unwrap();
    let rows = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    rows.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn the_table_of_packages_has_a_name_for_each_release() {
    let table = table();
    let (head, rows) = table.split_first().unwrap();
    assert_eq!(head[1..], RELEASES, "the releases that README names");
    let (mut proofs, mut names) = (BTreeSet::new(), BTreeSet::new());
    for row in rows {
        assert_eq!(row.len(), head.len(), "{row:?}");
        assert!(proofs.insert(&row[0]) && names.insert(&row[1]), "{row:?} is there twice");
        for (name, release) in row[1..].iter().zip(RELEASES) {
            let is_name = name.len() > 1
                && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-.".contains(&b));
            let refers = release != "debian:12" && ["=", "-"].contains(&name.as_str());
            assert!(is_name || refers, "{name:?} of {release} in {row:?}");
        }
    }
}

#[test]
fn on_this_host_each_proof_belongs_to_the_package_that_the_table_names() {
    let os_release = std::fs::read_to_string("/etc/os-release").unwrap();
    let field = |name: &str| {
        let value = os_release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or_default().trim_matches('"').to_owned()
    };
    let this = format!("{}:{}", field("ID"), field("VERSION_ID"));
    // The table says nothing of another system.
    let Some(column) = RELEASES.iter().position(|release| *release == this) else { return };
    let mut compared = 0;
    for row in table().iter().skip(1) {
        let name = if row[column + 1] == "=" { &row[1] } else { &row[column + 1] };
        // Packages that only depend on the one with the files, and links that alternatives(8) made.
        if ["gcc", "postgresql", "python3-venv"].contains(&name.as_str()) {
            continue;
        }
        let places = ["/usr/bin/", "/bin/", "/usr/sbin/", "/sbin/"];
        let paths = row[0].split('|').flat_map(|proof| match proof.starts_with('/') {
            true => vec![proof.to_owned()],
            false => places.map(|place| format!("{place}{proof}")).to_vec(),
        });
        let output = Command::new("dpkg-query").arg("--search").args(paths).output().unwrap();
        // A program that did not come as a package belongs to none.
        for line in
            String::from_utf8_lossy(&output.stdout).lines().filter(|line| !line.starts_with("diversion"))
        {
            let owner = line.split([':', ',']).next().unwrap();
            assert_eq!(owner, name, "{line}");
            compared += 1;
        }
    }
    assert!(compared > 0, "dpkg knows none of the proofs");
}

/// `setup --dry-run` on a host with this os-release, which lacks one package.
fn setup(os_release: &str) -> Output {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(Path::new(SCRIPTS).join("setup"), dir.path().join("setup")).unwrap();
    let rows = format!(
        "proof {}\nsh dash = = =\n/nowhere/loader|/nowhere/*.efi loader = loader-bin -\n",
        RELEASES.join(" ")
    );
    std::fs::write(dir.path().join("packages"), rows).unwrap();
    let file = dir.path().join("os-release");
    std::fs::write(&file, os_release).unwrap();
    let mut command = Command::new(dir.path().join("setup"));
    command.arg("--dry-run").env("BASALT_OS_RELEASE", &file).output().unwrap()
}

#[test]
fn what_is_missing_is_named_with_the_command_that_installs_it() {
    let install = "apt-get install --no-install-recommends ";
    for (os_release, said) in [
        ("ID=debian\nVERSION_ID=\"13\"\n", "loader\n"),
        ("ID=ubuntu\nID_LIKE=debian\nVERSION_ID=\"22.04\"\n", "loader-bin\n"),
        // Debian's testing has no number: the newest Debian is nearest.
        ("ID=debian\n", "loader\n"),
    ] {
        let output = setup(os_release);
        let said = format!("{install}{said}");
        assert!(output.status.success() && text(&output).contains(&said), "{os_release}: {}", text(&output));
    }
    let none = text(&setup("ID=ubuntu\nVERSION_ID=\"24.04\"\nPRETTY_NAME=\"Ubuntu 24.04 LTS\"\n"));
    assert!(
        none.contains("Ubuntu 24.04 LTS has no package for /nowhere/loader") && !none.contains(install),
        "{none}"
    );
    let other = setup("ID=fedora\nVERSION_ID=40\n");
    assert!(
        !other.status.success() && text(&other).contains("neither Debian nor Ubuntu"),
        "{}",
        text(&other)
    );
}
