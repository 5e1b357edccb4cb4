//! Checks the commands of the manual against this program.

#[path = "../../tests/documented.rs"]
mod pages;

use std::path::Path;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use crate::Cli;
use crate::stand_in::{NOTHING, run_at_nothing};

/// Errors that are allowed for a command within a sentence, which may be incomplete.
const INCOMPLETE: &[ErrorKind] = &[
    ErrorKind::MissingRequiredArgument,
    ErrorKind::MissingSubcommand,
    ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ErrorKind::DisplayHelp,
    ErrorKind::TooFewValues,
];

/// Programs in code blocks of the pages, and the tests that run their lines, or parse them if a line starts a service.
const PROGRAMS: &[(&str, &str)] = &[
    ("basalt", "this file"),
    (
        "basalt-region",
        "controller/tests/region/process.rs, controller/tests/region/backup.rs, controller/tests/region/second_region.rs",
    ),
    ("basalt-rack", "rack/src/main.rs, rack/src/install_guide.rs"),
    ("export", "this file"),
    ("source", "cli/src/completion.rs"),
    ("install", "rack/src/install_guide.rs, controller/tests/region/second_region.rs"),
    ("systemd-sysusers", "rack/src/install_guide.rs"),
    (
        "cat",
        "cli/src/image/manifest.rs, tests/tests/terraform/installation.rs, controller/tests/region/inventory.rs",
    ),
    ("openssl", "controller/tests/region/tls.rs, controller/tests/region/second_region.rs"),
    ("ansible-inventory", "controller/tests/region/inventory.rs"),
    ("ansible", "controller/tests/region/inventory.rs"),
    ("curl", "controller/tests/region/inventory.rs"),
    ("jq", "controller/tests/region/inventory.rs"),
    ("terraform", "tests/tests/quickstart.rs, tests/tests/terraform"),
];

/// A code block without a language contains commands. An excerpt has the language `text`, or `$ ` before its commands.
#[test]
fn every_program_of_a_code_block_is_run_by_a_test() {
    let known = |it: &str| PROGRAMS.iter().any(|(program, _)| *program == it);
    let unknown = pages::commands(|it| !known(it));
    let wrong: Vec<_> = unknown
        .iter()
        .filter(|it| it.is_whole)
        .map(|it| format!("{}: {}", it.place, it.words.join(" ")))
        .collect();
    assert!(wrong.is_empty(), "mark an excerpt as `text`, or test the program:\n{}", wrong.join("\n"));
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (program, tests) in PROGRAMS {
        let is_there = pages::commands(|it| it == *program).iter().any(|it| it.is_whole);
        assert!(is_there, "no page has {program} any more");
        for test in tests.split(", ").filter(|test| *test != "this file") {
            assert!(top.join(test).exists(), "{program}: there is no {test}");
        }
    }
}

#[test]
fn every_command_of_the_manual_is_understood() {
    let commands = pages::commands(|it| it == "basalt");
    assert!(commands.iter().filter(|it| it.is_whole).count() > 20, "{commands:?}");
    let wrong: Vec<_> = commands
        .iter()
        .filter_map(|it| {
            let error = Cli::try_parse_from(&it.words).err()?;
            let is_begun = !it.is_whole && INCOMPLETE.contains(&error.kind());
            (!is_begun).then(|| format!("{}: {}\n{error}", it.place, it.words.join(" ")))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Commands that this test does not run. `make images` builds images, as root, and `cli/src/completion.rs` runs the script.
const NOT_HERE: [&[&str]; 2] = [&["image", "build"], &["completion"]];

/// Files that commands of the pages read, each with what stands for it. `IMAGE` is the folder of an image.
const FILES: &[(&str, &str)] = &[
    ("examples/apply", "../examples/apply"),
    ("site/", "../examples/apply"),
    (".", "../examples/quickstart"),
    ("images/ephemeral", "IMAGE"),
    ("images/debian", "IMAGE"),
    ("DIR", "IMAGE"),
];

/// A folder with an image that can be pushed.
fn image() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("root.tar.zst"), "a tarball").unwrap();
    let file = serde_json::json!({"file": "root.tar.zst", "sha256": "0".repeat(64), "size": 9});
    let manifest = serde_json::json!({"kind": "system", "os": "debian", "release": "trixie",
        "architecture": "amd64", "files": {"root_tarball": file}});
    std::fs::write(dir.path().join("image.json"), manifest.to_string()).unwrap();
    dir
}

#[tokio::test]
async fn every_whole_command_of_the_manual_runs() {
    let image = image();
    let key = image.path().join("key.pub");
    std::fs::write(&key, basalt_api::Semantic::SshPublicKey.example()).unwrap();
    let commands = pages::commands(|it| it == "basalt");
    let (mut wrong, mut run_here) = (Vec::new(), 0);
    for it in commands.iter().filter(|it| it.is_whole) {
        let words: Vec<_> = it.words.iter().skip(1).map(String::as_str).collect();
        if NOT_HERE.iter().any(|begun| words.starts_with(begun)) {
            continue;
        }
        let mut words: Vec<_> = words
            .into_iter()
            .map(|word| match FILES.iter().find(|(file, _)| *file == word) {
                Some((_, "IMAGE")) => image.path().to_str().unwrap(),
                Some((_, file)) => file,
                None => word,
            })
            .collect();
        if words[0] == "rescue" {
            // It reads a key of the user, who may have none here.
            words.extend(["--ssh-key", key.to_str().unwrap()]);
        }
        run_here += 1;
        let (asked, ended) = run_at_nothing(&words).await;
        let is_as_answered = ended.as_ref().err().is_none_or(|error| error.to_string().contains(NOTHING));
        let asks = words[0] != "lint";
        if !is_as_answered || asks == asked.is_empty() {
            wrong.push(format!("{}: {}: {ended:?}, asked {asked:?}", it.place, words.join(" ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(run_here > 30, "{run_here}");
}

#[test]
fn every_variable_that_a_page_exports_is_read() {
    let command = Cli::command();
    let known: Vec<_> = command.get_arguments().filter_map(|argument| argument.get_env()?.to_str()).collect();
    let exports = pages::commands(|it| it == "export");
    for it in exports.iter().filter(|it| it.is_whole) {
        assert!(it.words.len() > 1, "{}: it exports nothing", it.place);
        for word in it.words.iter().skip(1) {
            let name = word.split_once('=').map(|(name, _)| name);
            assert!(name.is_some_and(|name| known.contains(&name)), "{}: {word}: {known:?}", it.place);
        }
    }
}

/// Targets of the Makefile, and packages in cargo commands.
#[test]
fn what_is_made_and_built_is_there() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let makefile = std::fs::read_to_string(top.join("Makefile")).unwrap();
    let benches = makefile.lines().find(|line| line.starts_with("BENCHES :=")).unwrap();
    for it in pages::commands(|it| it == "make") {
        let Some(target) = it.words.get(1).filter(|target| !target.contains('=')) else { continue };
        let is_bench = target
            .strip_prefix("bench-")
            .is_some_and(|bench| benches.contains(bench) || makefile.contains(bench));
        let is_there = makefile.lines().any(|line| line.starts_with(&format!("{target}:")));
        assert!(is_there || is_bench, "{}: there is no target {target:?}", it.place);
    }
    let lock = std::fs::read_to_string(top.join("Cargo.lock")).unwrap();
    for it in pages::commands(|it| it == "cargo") {
        for package in
            it.words.iter().zip(it.words.iter().skip(1)).filter(|(flag, _)| *flag == "-p").map(|(_, it)| it)
        {
            assert!(
                lock.contains(&format!("name = \"{package}\"")),
                "{}: there is no package {package:?}",
                it.place
            );
        }
    }
}
