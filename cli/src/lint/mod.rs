//! `basalt lint`: names the keys in Terraform files that Terraform would drop.
//!
//! Terraform converts an object to the type of its attribute, and drops every key that the type lacks. So `terraform validate` accepts
//! `selector = { min_cors = 64 }`, and the provider never sees the key. Only the files themselves show it.
//!
//! | read | compared with |
//! | --- | --- |
//! | resources of Basalt | the attributes that the provider has for the kind ([`shape`]) |
//! | defaults of variables, `*.tfvars`, arguments of modules in the same repository | `type` of the variable |
//!
//! Values are followed through conditions, `for`, `merge` and the like, and local values ([`walk`]).

mod module;
mod shape;
#[cfg(test)]
mod tests;
mod walk;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::output::show;
use crate::region::Failed;
use module::{Directory, File};
use walk::Walk;

/// Arguments of `basalt lint`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directories with *.tf and *.tfvars; those below them are read as well. No region is asked
    #[arg(value_name = "DIR", default_value = ".")]
    directories: Vec<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<(), Failed> {
    let mut all = Linted::default();
    for top in &args.directories {
        let Linted { files, findings, alone } = lint(top)?;
        if files == 0 {
            let top = top.display();
            return Err(Failed::Words(format!(
                "there is no *.tf in {top}, nor below it: name the directory"
            )));
        }
        all.files += files;
        all.findings.extend(findings);
        all.alone.extend(alone);
    }
    let (lines, sum) = all.told();
    show(&lines);
    if all.findings.is_empty() {
        show(&format!("{sum}\n"));
        return Ok(());
    }
    Err(Failed::Words(sum))
}

/// The result of a run.
#[derive(Default)]
struct Linted {
    /// Number of compared files.
    files: usize,
    /// A line for each unknown key in them.
    findings: Vec<String>,
    /// Files of values that were not compared, because their directory has no module.
    alone: Vec<PathBuf>,
}

impl Linted {
    /// First: a line for each finding and each uncompared file. Second: a summary.
    fn told(&self) -> (String, String) {
        let Self { files, findings, alone } = self;
        let alone = alone.iter().map(|path| format!("{}: not compared: no module beside it", path.display()));
        let lines = findings.iter().cloned().chain(alone).map(|line| format!("{line}\n")).collect();
        let files = format!("{files} file{}", if *files == 1 { "" } else { "s" });
        let sum = match findings.len() {
            0 => format!("{files}: every key is known"),
            1 => format!("{files}: 1 key that is not known"),
            keys => format!("{files}: {keys} keys that are not known"),
        };
        (lines, sum)
    }
}

/// Compares the files of a directory and of all directories below it.
fn lint(top: &Path) -> Result<Linted, Failed> {
    let mut modules = BTreeMap::new();
    let mut alone = Vec::new();
    for directory in module::directories(top)? {
        match Directory::read(&directory)? {
            Directory::Module(module) => {
                modules.insert(resolved(&directory), module);
            }
            Directory::Values(values) => alone.extend(values),
        }
    }
    let mut findings = Vec::new();
    for module in modules.values() {
        let called = |source: &str| {
            let is_local = source.starts_with("./") || source.starts_with("../");
            is_local.then(|| modules.get(&resolved(&module.directory.join(source))))?
        };
        let found = Walk::all(module, called).findings;
        for file in module.files.iter().chain(&module.values) {
            let of_file = found.get(file.path.as_path()).into_iter().flatten();
            findings.extend(of_file.map(|(offset, text)| line(file, *offset, text)));
        }
    }
    let files = modules.values().map(|module| module.files.len() + module.values.len()).sum();
    Ok(Linted { files, findings, alone })
}

/// The canonical path, which is the same for all paths of one directory.
fn resolved(directory: &Path) -> PathBuf {
    directory.canonicalize().unwrap_or_else(|_| directory.to_owned())
}

/// `main.tf:12:3: …`, a form that editors can open.
fn line(file: &File, offset: usize, text: &str) -> String {
    let before = file.text.get(..offset).unwrap_or_default();
    let row = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("{}:{row}:{column}: {text}", file.path.display())
}
