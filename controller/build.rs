//! Collects the pages of the manual, which a region serves.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or(io::ErrorKind::NotFound)?);
    let top = manifest.join("..").canonicalize()?;
    let mut files = vec![top.join("README.md")];
    for folder in ["docs", "provider/docs"] {
        collect(&top.join(folder), &mut files)?;
    }
    files.sort();
    let mut pages = String::from("&[\n");
    for file in files {
        let path = file.strip_prefix(&top).map_err(io::Error::other)?.to_string_lossy().replace('\\', "/");
        let _infallible = writeln!(pages, "({path:?}, include_str!({file:?})),");
    }
    pages.push(']');
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?);
    fs::write(out.join("pages.rs"), pages)?;
    for changed in ["README.md", "docs", "provider/docs"] {
        tell(&format!("cargo::rerun-if-changed={}", top.join(changed).display()));
    }
    Ok(())
}

/// The Markdown files in a folder and below it.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|end| end == "md") {
            files.push(path);
        }
    }
    Ok(())
}

fn tell(cargo: &str) {
    println!("{cargo}");
}
