//! Collects what a region serves to people: the pages of the manual, and the files of the console.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or(io::ErrorKind::NotFound)?);
    let top = manifest.join("..").canonicalize()?;
    let mut files = vec![top.join("README.md")];
    for folder in ["docs", "provider/docs"] {
        collect(&top.join(folder), &|path| path.extension().is_some_and(|end| end == "md"), &mut files)?;
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
    fs::write(out.join("console.rs"), console(&manifest.join("ui/dist"))?)?;
    for changed in ["README.md", "docs", "provider/docs", "controller/ui/dist"] {
        tell(&format!("cargo::rerun-if-changed={}", top.join(changed).display()));
    }
    Ok(())
}

/// The files of the console's build, each by its path in there.
fn console(dist: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    collect(dist, &|_| true, &mut files)?;
    files.sort();
    let mut all = String::from("&[\n");
    for file in files {
        let path = file.strip_prefix(dist).map_err(io::Error::other)?.to_string_lossy().replace('\\', "/");
        let _infallible = writeln!(all, "({path:?}, include_bytes!({file:?})),");
    }
    all.push(']');
    Ok(all)
}

/// The files that are wanted, in a folder and below it.
fn collect(folder: &Path, is_wanted: &dyn Fn(&Path) -> bool, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, is_wanted, files)?;
        } else if is_wanted(&path) {
            files.push(path);
        }
    }
    Ok(())
}

fn tell(cargo: &str) {
    println!("{cargo}");
}
