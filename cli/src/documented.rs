//! Commands of the manual, as this program understands them.

#[path = "../../tests/documented.rs"]
mod pages;

use clap::Parser;
use clap::error::ErrorKind;

use crate::Cli;

/// Errors that a command within a sentence may have: it lacks words.
const INCOMPLETE: &[ErrorKind] = &[
    ErrorKind::MissingRequiredArgument,
    ErrorKind::MissingSubcommand,
    ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ErrorKind::DisplayHelp,
    ErrorKind::TooFewValues,
];

#[test]
fn every_command_of_the_manual_is_understood() {
    let commands = pages::commands("basalt");
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

/// Targets of the Makefile, and packages that cargo is to build.
#[test]
fn what_is_made_and_built_is_there() {
    let top = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let makefile = std::fs::read_to_string(top.join("Makefile")).unwrap();
    let benches = makefile.lines().find(|line| line.starts_with("BENCHES :=")).unwrap();
    for it in pages::commands("make") {
        let Some(target) = it.words.get(1).filter(|target| !target.contains('=')) else { continue };
        let is_bench = target
            .strip_prefix("bench-")
            .is_some_and(|bench| benches.contains(bench) || makefile.contains(bench));
        let is_there = makefile.lines().any(|line| line.starts_with(&format!("{target}:")));
        assert!(is_there || is_bench, "{}: there is no target {target:?}", it.place);
    }
    let lock = std::fs::read_to_string(top.join("Cargo.lock")).unwrap();
    for it in pages::commands("cargo") {
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
