//! Checks the commands of the manual against this program.

#[path = "../../tests/documented.rs"]
mod pages;

use clap::Parser;
use clap::error::ErrorKind;

use crate::Cli;

/// Errors that are allowed for a command within a sentence, which may be incomplete.
const INCOMPLETE: &[ErrorKind] = &[
    ErrorKind::MissingRequiredArgument,
    ErrorKind::MissingSubcommand,
    ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ErrorKind::DisplayHelp,
    ErrorKind::TooFewValues,
];

/// Programs in code blocks of the pages, and the tests that parse or run their lines.
const PROGRAMS: &[(&str, &str)] = &[
    ("basalt", "this file"),
    ("make", "this file"),
    ("cargo", "this file"),
    ("basalt-region", "controller/src/settings.rs"),
    ("basalt-rack", "rack/src/main.rs"),
    ("install", "rack/src/install_guide.rs, controller/tests/region/second_region.rs"),
    ("systemd-sysusers", "rack/src/install_guide.rs"),
    ("cat", "cli/src/image/manifest.rs, tests/tests/terraform/installation.rs"),
    ("openssl", "controller/tests/region/tls.rs, controller/tests/region/second_region.rs"),
    ("ansible-inventory", "controller/tests/region/inventory.rs"),
    ("ansible", "controller/tests/region/inventory.rs has its inventory"),
    ("curl", "controller/tests/region/inventory.rs, controller/tests/region/filters.rs"),
    ("jq", "controller/tests/region/inventory.rs"),
    (
        "fields=metadata.name,spec.zone,spec.pool,status.tags,status.deployment,status.addresses",
        "controller/tests/region/inventory.rs",
    ),
    ("terraform", "tests/tests/terraform"),
    ("mmdebstrap", "cli/src/image/debian.rs calls it with more options"),
    ("zstd", "cli/src/image/debian.rs"),
];

/// Programs of every host. Their lines are not checked.
const OF_THE_HOST: &[&str] = &["export", "source", "systemctl"];

/// A code block without a language contains commands. An excerpt has the language `text`, or `$ ` before its commands.
#[test]
fn every_program_of_a_code_block_is_known_to_a_test() {
    let known = |it: &str| PROGRAMS.iter().any(|(program, _)| *program == it) || OF_THE_HOST.contains(&it);
    let unknown = pages::commands(|it| !known(it));
    let wrong: Vec<_> = unknown
        .iter()
        .filter(|it| it.is_whole)
        .map(|it| format!("{}: {}", it.place, it.words.join(" ")))
        .collect();
    assert!(wrong.is_empty(), "mark an excerpt as `text`, or test the program:\n{}", wrong.join("\n"));
    for (program, _) in PROGRAMS {
        assert!(!pages::commands(|it| it == *program).is_empty(), "no page has {program} any more");
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

/// Targets of the Makefile, and packages in cargo commands.
#[test]
fn what_is_made_and_built_is_there() {
    let top = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
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
