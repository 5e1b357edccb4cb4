//! Runs the steps of docs/guides/install.md in their order, with every path below a directory of the test.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use basalt_rack::link::join::JoinToken;
use basalt_rack::settings;

use crate::checked;

const GUIDE: &str = include_str!("../../docs/guides/install.md");
/// The programs of a region and its racks.
const PROGRAMS: [&str; 4] = ["basalt-region", "terraform-provider-basalt", "basalt-rack", "basalt"];
/// Stands for the text that a person writes into a file.
const EDITED: &str = "# edited by a person\n";

/// One step of the guide.
enum Step<'a> {
    /// The reader changes this file.
    Edit(&'a str),
    /// The reader runs this line.
    Run(&'a str),
}

fn steps() -> Vec<Step<'static>> {
    let mut steps = Vec::new();
    let mut is_code = false;
    for line in GUIDE.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        } else if is_code {
            steps.push(Step::Run(line));
        } else if let Some((_, rest)) = line.split_once("Edit `") {
            steps.push(Step::Edit(rest.split('`').next().unwrap_or_default()));
        }
    }
    steps
}

/// The line with its paths below `root` and without the group, which systemd-sysusers would create.
fn localised(line: &str, root: &Path, token: &str) -> String {
    let root = root.to_str().expect("text");
    line.replace(" target/release/", &format!(" {root}/built/"))
        .replace(" -g basalt-rack", "")
        .replace(" -g basalt", "")
        .replace("/etc/", &format!("{root}/etc/"))
        .replace("/usr/local/bin/", &format!("{root}/usr/local/bin/"))
        .replace("basalt rack join-token rack-1", &format!("echo {token}"))
}

/// Makes the accounts below `root`, from the file that the guide installs.
fn accounts(root: &Path) {
    let made = Command::new("systemd-sysusers").arg("--root").arg(root).output();
    let made = match made {
        Err(error) if error.kind() == ErrorKind::NotFound && std::env::var("CI").as_deref() != Ok("true") => {
            eprintln!("this host has no systemd-sysusers: the accounts of the install guide are not tried");
            return;
        }
        made => made.expect("systemd-sysusers, of the package systemd"),
    };
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let accounts = fs::read_to_string(root.join("etc/passwd")).expect("accounts");
    for (account, home) in [("basalt", "/var/lib/basalt"), ("basalt-rack", "/var/lib/basalt-rack")] {
        let line = accounts.lines().find(|line| line.starts_with(&format!("{account}:")));
        assert!(line.is_some_and(|line| line.split(':').nth(5) == Some(home)), "{account}: {accounts}");
        assert!(GUIDE.contains(&format!("| `{account}` |")), "the guide describes {account}");
    }
}

#[test]
fn no_step_of_the_guide_overwrites_a_file_that_an_earlier_step_says_to_edit() {
    let dir = tempfile::tempdir().expect("a directory");
    for made in ["etc/sysusers.d", "etc/systemd/system", "usr/local/bin", "built"] {
        fs::create_dir_all(dir.path().join(made)).expect("a directory");
    }
    for program in PROGRAMS {
        fs::write(dir.path().join("built").join(program), program).expect("a program");
    }
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let token = JoinToken {
        urls: vec!["https://10.0.0.1:5250".into()],
        ca_sha256: "a".repeat(64),
        secret: "s".into(),
    };
    let (mut edited, mut run) = (Vec::new(), 0);
    for step in steps() {
        match step {
            Step::Edit(file) => {
                let path = dir.path().join(file.trim_start_matches('/'));
                let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
                fs::write(&path, format!("{text}{EDITED}")).expect("a file");
                edited.push(path);
            }
            Step::Run(line) if line.starts_with("basalt-rack check") => {
                let file = line.rsplit(' ').next().unwrap_or_default();
                assert!(edited.iter().any(|path| path.ends_with(file.trim_start_matches('/'))), "{line}");
                let path = dir.path().join(file.trim_start_matches('/'));
                checked(settings::file(&path).expect("settings")).expect("a host that can be checked");
            }
            // No host of a test has systemd.
            Step::Run(line) if line.starts_with("systemctl enable --now ") => {
                let unit = line.rsplit(' ').next().unwrap_or_default();
                let unit = dir.path().join(format!("etc/systemd/system/{unit}.service"));
                assert!(unit.exists(), "{line}: no step before it installs the unit");
            }
            Step::Run(line) if line.starts_with("install ") || line.contains(" > /etc/") => {
                let line = localised(line, dir.path(), &token.render());
                let status =
                    Command::new("sh").args(["-c", &line]).current_dir(&top).status().expect("a shell");
                assert!(status.success(), "{line}");
                run += 1;
            }
            Step::Run("systemd-sysusers") => accounts(dir.path()),
            Step::Run(_) => {}
        }
    }
    for path in &edited {
        let text = fs::read_to_string(path).expect("a file");
        assert!(text.ends_with(EDITED), "{} was edited, and then overwritten", path.display());
    }
    assert_eq!((edited.len(), run), (2, 10), "files that are edited, and lines that are run");
    for program in PROGRAMS {
        assert!(dir.path().join("usr/local/bin").join(program).exists(), "{program} is not installed");
    }
    // The example names the file into which the guide writes the token.
    let text = fs::read_to_string(dir.path().join("etc/basalt/rack.toml")).expect("a file");
    let given: settings::Given =
        toml::from_str(&localised(&text, dir.path(), "")).expect("settings of a rack");
    assert_eq!(given.settle().expect("settings").join, Some(token.render()));
}
