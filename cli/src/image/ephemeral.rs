//! The ephemeral environment: kernel, initrd and squashfs.
//!
//! Everything except the agent is built once and kept in the cache (the *base*). The agent is then added to the initrd, which takes a
//! second. The initrd has few files: the agent, busybox, the two modules for the compressed file system of drivers, and that file system. A
//! machine reads only the drivers that it needs from it.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::budgets::BUDGETS;
use super::drivers::Modules;
use super::host::{self, BuildError, io_error, step};
use super::manifest::{self, EPOCH, Manifest};
use super::{Site, packages};

const PROGRAMS: &host::Needed = &[
    ("mmdebstrap", "mmdebstrap"),
    ("mksquashfs", "squashfs-tools"),
    ("depmod", "kmod"),
    ("cpio", "cpio"),
    ("zstd", "zstd"),
    ("ldconfig", "libc-bin"),
];

const KERNEL: &str = "vmlinuz";
const INITRD: &str = "initrd.zst";
const SQUASHFS: &str = "root.squashfs";

/// Parts of the base that go into the initrd.
const DRIVERS: &str = "drivers.squashfs";
const BUSYBOX: &str = "busybox";
const EARLY: &str = "early";

/// Path of the agent in the squashfs. The initrd copies it there; other programs are links to it.
const AGENT: &str = "/usr/bin/basalt-agent";

/// Shell script with the new root as `$1`, run while the packages are present. It records the packages with their versions, and the
/// firmware and microcode packages that the release offers. The records stay in the image for later questions.
const RECORD: &str = r#"set -e
to="$1"/usr/share/basalt
mkdir -p "$to"
for deb in "$1"/var/cache/apt/archives/*.deb; do dpkg-deb --show "$deb"; done | LC_ALL=C sort > "$to"/packages
APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-cache pkgnames | grep -E 'firmware|microcode' | LC_ALL=C sort > "$to"/firmware-offered
"#;

/// Builds the image, or finds that it is up to date.
pub(super) fn build(site: &Site, agent: Option<PathBuf>) -> Result<(), BuildError> {
    let agent = find_agent(agent)?;
    let (agent_hash, _) =
        manifest::hash_file(&agent).map_err(io_error(format!("reading {}", agent.display())))?;
    let base_inputs = base_inputs(site);
    let inputs = manifest::digest([base_inputs.as_str(), &agent_hash]);
    if !site.refresh
        && let Some(manifest) = Manifest::up_to_date(&site.output, &inputs)
    {
        eprint!("basalt: {} is up to date\n{}", site.output.display(), manifest.summary());
        return Ok(());
    }
    host::check(PROGRAMS)?;
    let base = site.cache.join(format!("ephemeral-{}", &base_inputs[..16]));
    if site.refresh || !base.join("complete").exists() {
        build_base(site, &base)?;
    }
    for file in [KERNEL, SQUASHFS] {
        fs::copy(base.join(file), site.output.join(file))
            .map_err(io_error(format!("copying {file} to the output")))?;
    }
    step("packing the initrd", || pack_initrd(&base, &agent, &site.output.join(INITRD)))?;
    let files = [("kernel", KERNEL), ("initrd", INITRD), ("squashfs", SQUASHFS)];
    let manifest = Manifest::of("ephemeral", &site.release, &site.output, &files, inputs)?;
    for (what, budget) in BUDGETS {
        let size = manifest.files.get(what).map_or(0, |file| file.size);
        if size > budget {
            return Err(BuildError::OverBudget { what, size, budget });
        }
    }
    manifest.write(&site.output)?;
    eprint!("basalt: built {}\n{}", site.output.display(), manifest.summary());
    Ok(())
}

/// All inputs that decide the content of the base, with this recipe.
fn base_inputs(site: &Site) -> String {
    manifest::digest([
        include_str!("ephemeral.rs"),
        include_str!("packages.rs"),
        include_str!("drivers.rs"),
        &site.release,
        &site.sources.list,
    ])
}

fn find_agent(given: Option<PathBuf>) -> Result<PathBuf, BuildError> {
    let candidates = match given {
        Some(path) => vec![path],
        None => {
            let own = std::env::current_exe().map_err(io_error("finding this program"))?;
            let dir = own.parent().unwrap_or(Path::new("/"));
            // target/debug/basalt -> target/x86_64-unknown-linux-gnu/agent/basalt-agent
            vec![dir.join("basalt-agent"), dir.join("../x86_64-unknown-linux-gnu/agent/basalt-agent")]
        }
    };
    let mut dynamic = None;
    for path in &candidates {
        if let Ok(bytes) = fs::read(path) {
            if is_static_elf(&bytes) {
                return Ok(path.clone());
            }
            dynamic = Some(path.clone());
        }
    }
    if let Some(path) = dynamic {
        return Err(BuildError::NotStatic { path });
    }
    let looked: Vec<String> = candidates.iter().map(|path| path.display().to_string()).collect();
    Err(BuildError::NoAgent { looked: looked.join(", ") })
}

/// A 64-bit little-endian x86-64 ELF file without a program interpreter.
fn is_static_elf(bytes: &[u8]) -> bool {
    const X86_64: u16 = 62;
    const PT_INTERP: u32 = 3;
    let half = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let interpreted = || {
        let table = usize::try_from(u64::from_le_bytes(bytes.get(32..40)?.try_into().ok()?)).ok()?;
        let (size, count) = (usize::from(half(54)?), usize::from(half(56)?));
        let kind = |n: usize| {
            let at = table.checked_add(n * size)?;
            Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
        };
        Some((0..count).any(|n| kind(n) == Some(PT_INTERP)))
    };
    bytes.starts_with(b"\x7fELF\x02\x01") && half(18) == Some(X86_64) && interpreted() == Some(false)
}

/// Builds all parts except the agent. After a failure the base does not exist.
fn build_base(site: &Site, base: &Path) -> Result<(), BuildError> {
    let failed = |what: &str| io_error(format!("{what} in {}", site.cache.display()));
    let work = tempfile::Builder::new()
        .prefix("build-")
        .tempdir_in(&site.cache)
        .map_err(failed("making a directory"))?;
    let (root, new) = (work.path().join("root"), work.path().join("base"));
    fs::create_dir(&new).map_err(failed("making a directory"))?;

    step("unpacking Debian packages for the ephemeral root", || {
        let packages = [&packages::EPHEMERAL[..], &packages::FIRMWARE[..]].concat().join(",");
        let options = [
            "--variant=extract".to_owned(),
            format!("--include={packages}"),
            format!("--extract-hook={RECORD}"),
        ];
        super::debian::mmdebstrap(site, work.path(), &options, &root)
    })?;
    let modules = step("choosing drivers", || {
        prune(&root)?;
        depmod(&root)?;
        let modules = Modules::open(&root)?;
        take_kernel_parts(site, &root, &modules, &new)?;
        finish_root(&root).map_err(failed("finishing the root"))?;
        Ok(modules)
    })?;
    step("compressing drivers for the initrd", || {
        let stage = work.path().join("drivers");
        stage_initrd_drivers(&root, &modules, &stage)?;
        depmod(&stage)?;
        squash(&stage.join("lib"), &new.join(DRIVERS), 12)
    })?;
    step("compressing the ephemeral root", || squash(&root, &new.join(SQUASHFS), 9))?;
    File::create(new.join("complete")).map_err(failed("finishing"))?;
    let _ = fs::remove_dir_all(base);
    fs::rename(&new, base).map_err(failed("keeping the base"))
}

fn prune(root: &Path) -> Result<(), BuildError> {
    let modules = Modules::directory(root)?;
    let unread = packages::UNREAD.iter().map(|path| root.join(path));
    let unused = packages::UNUSED_MODULES.iter().map(|path| modules.join("kernel").join(path));
    let firmware = packages::UNUSED_FIRMWARE.iter().map(|path| root.join("lib/firmware").join(path));
    for path in unread.chain(unused).chain(firmware) {
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(io_error(format!("removing {}", path.display()))(error));
            }
            _ => {}
        }
    }
    Ok(())
}

fn depmod(root: &Path) -> Result<(), BuildError> {
    let release = Modules::directory(root)?;
    let release = release.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    host::run("depmod", ["--basedir", &root.display().to_string(), &release], Path::new("/")).map(drop)
}

/// Copies kernel, busybox and the first modules, which go into the initrd uncompressed.
fn take_kernel_parts(site: &Site, root: &Path, modules: &Modules, new: &Path) -> Result<(), BuildError> {
    let lacking = |what: &str| BuildError::Lacking { release: site.release.clone(), what: what.to_owned() };
    let copy =
        |from: PathBuf, to: PathBuf, what: &str| fs::copy(from, to).map(drop).map_err(|_| lacking(what));
    copy(root.join("boot").join(format!("vmlinuz-{}", modules.release)), new.join(KERNEL), "kernel")?;
    copy(root.join("bin/busybox"), new.join(BUSYBOX), "static busybox")?;
    fs::create_dir(new.join(EARLY)).map_err(io_error("making a directory"))?;
    for module in packages::EARLY_MODULES {
        let file = format!("kernel/{module}");
        let needed = modules.select(&[module]);
        if needed.len() != 1 {
            return Err(lacking(&format!("{module} that needs nothing else")));
        }
        let name = Path::new(module).file_name().unwrap_or_default();
        copy(modules.path(&file), new.join(EARLY).join(name), module)?;
    }
    Ok(())
}

fn finish_root(root: &Path) -> std::io::Result<()> {
    fs::remove_dir_all(root.join("boot"))?;
    for dir in ["proc", "sys", "dev", "run", "target", "tmp", "root", "etc", "boot", "usr/bin"] {
        fs::create_dir_all(root.join(dir))?;
    }
    let _ = fs::remove_file(root.join("bin/dhcp-event"));
    symlink(AGENT, root.join("bin/dhcp-event"))?;
    // busybox signals init, and the agent as init has nothing to end.
    for path in ["sbin/reboot", "bin/reboot", "usr/sbin/reboot", "usr/bin/reboot"] {
        let _ = fs::remove_file(root.join(path));
    }
    symlink(AGENT, root.join("bin/reboot"))?;
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n")?;
    fs::write(root.join("etc/group"), "root:x:0:\n")?;
    fs::write(
        root.join("etc/os-release"),
        "NAME=Basalt\nPRETTY_NAME=\"Basalt ephemeral environment\"\nID=basalt\n",
    )?;
    let _ = fs::remove_file(root.join("etc/mtab"));
    symlink("/proc/self/mounts", root.join("etc/mtab"))?;
    if !root.join("bin/sh").exists() {
        symlink("dash", root.join("bin/sh"))?;
    }
    // Packages are not configured, so the link for `awk` is missing.
    if !root.join("usr/bin/awk").exists() {
        symlink("mawk", root.join("usr/bin/awk"))?;
    }
    let _ = host::run("ldconfig", [std::ffi::OsStr::new("-r"), root.as_os_str()], Path::new("/"));
    Ok(())
}

/// Collects `lib/modules` and `lib/firmware` with everything that a machine may need to reach its rack.
fn stage_initrd_drivers(root: &Path, modules: &Modules, stage: &Path) -> Result<(), BuildError> {
    let chosen = modules.select(&packages::INITRD_MODULES);
    let to = stage.join("lib/modules").join(&modules.release);
    for file in &chosen {
        copy_with_parents(&modules.path(file), &to.join(file))?;
    }
    for list in ["modules.builtin", "modules.builtin.modinfo", "modules.order"] {
        copy_with_parents(&modules.path(list), &to.join(list))?;
    }
    fs::create_dir_all(stage.join("lib/firmware")).map_err(io_error("making a directory"))?;
    for name in modules.firmware(&chosen)? {
        // Some drivers name firmware that was never published.
        let from = root.join("lib/firmware").join(&name);
        if from.is_file() {
            copy_with_parents(&from, &stage.join("lib/firmware").join(&name))?;
        }
    }
    Ok(())
}

fn copy_with_parents(from: &Path, to: &Path) -> Result<(), BuildError> {
    let copy = || {
        fs::create_dir_all(to.parent().unwrap_or(to))?;
        fs::copy(from, to)
    };
    copy().map(drop).map_err(io_error(format!("copying {}", from.display())))
}

/// Makes a squashfs. `level` is higher for files that firmware and iPXE load, since they are slower than the agent.
fn squash(dir: &Path, to: &Path, level: u8) -> Result<(), BuildError> {
    let (dir, to, level) = (dir.display().to_string(), to.display().to_string(), level.to_string());
    let mut args =
        vec![dir.as_str(), &to, "-noappend", "-no-progress", "-comp", "zstd", "-Xcompression-level", &level];
    // Large blocks compress better. A machine reads few files, and each completely.
    args.extend(["-b", "256K", "-no-exports", "-xattrs"]);
    host::run("mksquashfs", args, Path::new("/")).map(drop)
}

/// Makes the initrd: a sorted archive in the kernel's format (cpio newc), in which all files have the same time.
fn pack_initrd(base: &Path, agent: &Path, to: &Path) -> Result<(), BuildError> {
    let work =
        tempfile::Builder::new().prefix("initrd-").tempdir().map_err(io_error("making a directory"))?;
    let tree = work.path();
    let failed = |error| io_error("staging the initrd")(error);
    for dir in ["bin", "sbin", "early"] {
        fs::create_dir(tree.join(dir)).map_err(failed)?;
    }
    let mut files = vec![
        (agent.to_owned(), "init".to_owned(), 0o755),
        (base.join(BUSYBOX), "bin/busybox".to_owned(), 0o755),
        (base.join(DRIVERS), DRIVERS.to_owned(), 0o644),
    ];
    for module in packages::EARLY_MODULES {
        let name = Path::new(module).file_name().unwrap_or_default().to_string_lossy().into_owned();
        files.push((base.join(EARLY).join(&name), format!("early/{name}"), 0o644));
    }
    for (from, name, mode) in &files {
        fs::copy(from, tree.join(name)).map_err(failed)?;
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(*mode)).map_err(failed)?;
    }
    for (link, target) in [("bin/sh", "busybox"), ("bin/dhcp-event", "/init"), ("sbin/modprobe", "/init")] {
        symlink(target, tree.join(link)).map_err(failed)?;
    }
    let mut names: Vec<String> =
        ["bin", "bin/sh", "bin/dhcp-event", "sbin", "sbin/modprobe", "early"].map(str::to_owned).to_vec();
    names.extend(files.into_iter().map(|(_, name, _)| name));
    names.sort();
    let date = format!("--date=@{EPOCH}");
    host::run(
        "touch",
        ["--no-dereference", &date].into_iter().chain(names.iter().map(String::as_str)),
        tree,
    )?;
    let mut list = names.join("\n");
    list.push('\n');

    let spawn =
        |command: &mut std::process::Command| command.spawn().map_err(io_error("starting cpio and zstd"));
    let mut cpio = spawn(
        host::program("cpio")
            .args(["--create", "--format=newc", "--reproducible", "--owner=0:0", "--quiet"])
            .current_dir(tree)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped()),
    )?;
    let archive = cpio
        .stdout
        .take()
        .ok_or_else(|| io_error("reading from cpio")(std::io::ErrorKind::BrokenPipe.into()))?;
    let out = File::create(to).map_err(io_error(format!("creating {}", to.display())))?;
    let mut zstd =
        spawn(host::program("zstd").args(["-q", "-9", "-T1", "--check", "-c"]).stdin(archive).stdout(out))?;
    if let Some(mut input) = cpio.stdin.take() {
        input.write_all(list.as_bytes()).map_err(io_error("writing to cpio"))?;
    }
    for (name, child) in [("cpio", &mut cpio), ("zstd", &mut zstd)] {
        let status = child.wait().map_err(io_error(format!("waiting for {name}")))?;
        if !status.success() {
            return Err(BuildError::Failed {
                command: name.to_owned(),
                status: status.to_string(),
                output: String::new(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_program_is_no_agent() {
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(!is_static_elf(&own));
        assert!(!is_static_elf(b"#!/bin/sh\n"));
        assert!(
            is_static_elf(&fs::read("/bin/busybox").unwrap()),
            "busybox-static is what the initrd is made of"
        );
    }
}
