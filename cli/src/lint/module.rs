//! The Terraform files of one directory: a module, as Terraform reads it.

use std::path::{Path, PathBuf};

use hcl_edit::expr::{Expression, ObjectKey};
use hcl_edit::parser::parse_body;
use hcl_edit::structure::{Block, Body};

use crate::region::Failed;

/// A file, and its syntax tree.
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) text: String,
    pub(super) body: Body,
}

/// The files of a directory: `*.tf`, and the values of variables in `*.tfvars`.
pub(super) struct Module {
    pub(super) directory: PathBuf,
    pub(super) files: Vec<File>,
    pub(super) values: Vec<File>,
}

/// A directory by its files.
pub(super) enum Directory {
    /// It has `*.tf`.
    Module(Module),
    /// Values of variables without `*.tf`: another directory declares the variables. Empty if the directory has neither.
    Values(Vec<PathBuf>),
}

impl Directory {
    /// Reads the files of a module, and only lists those of another directory.
    pub(super) fn read(directory: &Path) -> Result<Self, Failed> {
        let all = entries(directory)?;
        let with_end = |end: &str| {
            let of = all.iter().filter(|path| path.extension().is_some_and(|extension| extension == end));
            of.cloned().collect::<Vec<_>>()
        };
        let (files, values) = (with_end("tf"), with_end("tfvars"));
        if files.is_empty() {
            return Ok(Self::Values(values));
        }
        let read = |paths: Vec<PathBuf>| paths.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>();
        let directory = directory.to_owned();
        Ok(Self::Module(Module { directory, files: read(files)?, values: read(values)? }))
    }
}

impl Module {
    /// Blocks of a sort, with the file of each.
    pub(super) fn blocks<'a>(&'a self, sort: &'static str) -> impl Iterator<Item = (&'a File, &'a Block)> {
        self.files.iter().flat_map(move |file| file.body.get_blocks(sort).map(move |block| (file, block)))
    }

    /// The expression of a local value.
    pub(super) fn local(&self, name: &str) -> Option<(&File, &Expression)> {
        self.blocks("locals").find_map(|(file, block)| Some((file, &block.body.get_attribute(name)?.value)))
    }

    /// The declaration of a variable.
    pub(super) fn variable(&self, name: &str) -> Option<(&File, &Block)> {
        self.blocks("variable").find(|(_, block)| block.labels.first().is_some_and(|it| it.as_str() == name))
    }
}

/// The literal name of a key. `None` for a computed key in parentheses.
pub(super) fn key_name(key: &ObjectKey) -> Option<&str> {
    match key {
        ObjectKey::Ident(name) => Some(name.as_str()),
        ObjectKey::Expression(expression) => match expression {
            Expression::Variable(name) => Some(name.as_str()),
            expression => expression.as_str(),
        },
    }
}

fn read(path: &Path) -> Result<File, Failed> {
    let text =
        std::fs::read_to_string(path).map_err(|source| Failed::File { path: path.to_owned(), source })?;
    let body = parse_body(&text).map_err(|error| {
        let at = error.location();
        let place = format!("{}:{}:{}", path.display(), at.line(), at.column());
        Failed::Words(format!(
            "{place}: this is no HCL ({}); `terraform validate` says more",
            error.message()
        ))
    })?;
    Ok(File { path: path.to_owned(), text, body })
}

/// This directory and all below it, except hidden ones such as `.terraform`, which belong to tools.
pub(super) fn directories(top: &Path) -> Result<Vec<PathBuf>, Failed> {
    let mut found = vec![top.to_owned()];
    let mut next = 0;
    while let Some(directory) = found.get(next).cloned() {
        next += 1;
        found.extend(entries(&directory)?.into_iter().filter(|path| path.is_dir() && !path.is_symlink()));
    }
    Ok(found)
}

/// Entries of a directory, by name.
fn entries(directory: &Path) -> Result<Vec<PathBuf>, Failed> {
    let failed = |source| Failed::File { path: directory.to_owned(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if !entry.file_name().to_string_lossy().starts_with('.') {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}
