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
use module::{File, Module};
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
    let mut found = Vec::new();
    let mut files = 0;
    for top in &args.directories {
        let (read, findings) = lint(top)?;
        if read == 0 {
            let top = top.display();
            return Err(Failed::Words(format!(
                "there is no *.tf in {top}, nor below it: name the directory"
            )));
        }
        files += read;
        found.extend(findings);
    }
    let files = format!("{files} file{}", if files == 1 { "" } else { "s" });
    if found.is_empty() {
        show(&format!("{files}: every key is known\n"));
        return Ok(());
    }
    show(&format!("{}\n", found.join("\n")));
    let keys =
        if found.len() == 1 { "1 key that is".to_owned() } else { format!("{} keys that are", found.len()) };
    Err(Failed::Words(format!("{files}: {keys} not known")))
}

/// How many files lie in a directory and below it, and a line for each unknown key in them.
fn lint(top: &Path) -> Result<(usize, Vec<String>), Failed> {
    let mut modules = BTreeMap::new();
    for directory in module::directories(top)? {
        if let Some(module) = Module::read(&directory)? {
            modules.insert(resolved(&directory), module);
        }
    }
    let mut lines = Vec::new();
    for module in modules.values() {
        let called = |source: &str| {
            let is_local = source.starts_with("./") || source.starts_with("../");
            is_local.then(|| modules.get(&resolved(&module.directory.join(source))))?
        };
        let found = Walk::all(module, called).findings;
        for file in module.files.iter().chain(&module.values) {
            let findings = found.get(file.path.as_path()).into_iter().flatten();
            lines.extend(findings.map(|(offset, text)| line(file, *offset, text)));
        }
    }
    let files = modules.values().map(|module| module.files.len() + module.values.len()).sum();
    Ok((files, lines))
}

/// One path for one directory.
fn resolved(directory: &Path) -> PathBuf {
    directory.canonicalize().unwrap_or_else(|_| directory.to_owned())
}

/// `main.tf:12:3: …`, which editors follow.
fn line(file: &File, offset: usize, text: &str) -> String {
    let before = file.text.get(..offset).unwrap_or_default();
    let row = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("{}:{row}:{column}: {text}", file.path.display())
}
