//! `basalt image build`: the ephemeral environment and a Debian system, from Debian's packages.
//!
//! | file | content |
//! | --- | --- |
//! | [`packages`] | packages, modules and firmware of each image, as tables with reasons |
//! | [`budgets`] | size limits |
//! | [`drivers`] | selects kernel modules with their dependencies and firmware |
//! | [`ephemeral`], [`debian`] | the two recipes |
//! | [`apt`] | package sources, from those of the host |
//! | [`host`] | runs programs of the host |
//! | [`push`] | uploads an image |
//! | [`manifest`] | `image.json`, and the check if a build is up to date |

mod apt;
mod budgets;
mod debian;
mod drivers;
mod ephemeral;
mod host;
mod manifest;
mod packages;
mod push;

use std::fs::File;
use std::path::{Path, PathBuf};

use clap::Subcommand;

use crate::region::{Connection, Failed};
use host::BuildError;

/// Prefix of the names of a build's own directories in the cache.
const WORK: &str = "build-";

/// Arguments of `basalt image`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build an image from Debian packages (as root)
    #[command(subcommand)]
    Build(Build),
    /// Upload an image's files to the region
    Push {
        /// Directory with image.json, as `basalt image build` made it
        dir: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
enum Build {
    /// The environment that machines boot from the network: kernel, initrd and squashfs
    Ephemeral {
        #[command(flatten)]
        common: Common,
        /// The agent, linked statically [default: basalt-agent beside this program, or the workspace's build of it]
        #[arg(long, env = "BASALT_AGENT", value_name = "PATH")]
        agent: Option<PathBuf>,
    },
    /// A Debian system to install: a root tarball with cloud-init, OpenSSH and netplan
    Debian {
        #[command(flatten)]
        common: Common,
    },
}

/// Arguments of both builds.
#[derive(Debug, clap::Args)]
struct Common {
    /// Directory for the image's files and image.json
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// Directory for what later builds can use again [default: ~/.cache/basalt/images]
    #[arg(long, env = "BASALT_IMAGE_CACHE", value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// Debian release
    #[arg(long, default_value = "bookworm")]
    release: String,
    /// Package mirror [default: the sources in /etc/apt if this host is Debian, of whichever release, else deb.debian.org]
    #[arg(long, value_name = "URL")]
    mirror: Option<String>,
    /// Keys that the archive is signed with [default: on Debian apt's own trust, elsewhere the package debian-archive-keyring]
    #[arg(long, value_name = "FILE")]
    keyring: Option<PathBuf>,
    /// Build anew with the packages of today, although nothing has changed here
    #[arg(long)]
    refresh: bool,
}

/// The checked environment of a build.
#[derive(Debug)]
struct Site {
    output: PathBuf,
    cache: PathBuf,
    release: String,
    sources: apt::Sources,
    refresh: bool,
    /// Held while this build works in the cache.
    _lock: File,
}

impl Site {
    fn prepare(common: Common) -> Result<Self, BuildError> {
        let cache = match common.cache_dir {
            Some(dir) => dir,
            None => default_cache()?,
        };
        for dir in [&common.output, &cache] {
            std::fs::create_dir_all(dir).map_err(host::io_error(format!("creating {}", dir.display())))?;
        }
        let given = apt::Given { mirror: common.mirror.as_deref(), keyring: common.keyring.as_deref() };
        let sources = apt::Sources::find(Path::new("/etc"), &common.release, given)?;
        let lock = lock(&cache)?;
        Ok(Self {
            output: common.output,
            cache,
            release: common.release,
            sources,
            refresh: common.refresh,
            _lock: lock,
        })
    }
}

/// Locks a cache for one build. Removes directories of killed builds, each of which is as large as an image.
fn lock(cache: &Path) -> Result<File, BuildError> {
    let failed = || host::io_error(format!("locking {}", cache.display()));
    let lock = File::create(cache.join("lock")).map_err(failed())?;
    if lock.try_lock().is_err() {
        eprintln!("basalt: waiting for another build with the cache {}", cache.display());
        lock.lock().map_err(failed())?;
    }
    for entry in std::fs::read_dir(cache).map_err(failed())?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(WORK) {
            let path = entry.path();
            std::fs::remove_dir_all(&path).map_err(host::io_error(format!("removing {}", path.display())))?;
        }
    }
    Ok(lock)
}

fn default_cache() -> Result<PathBuf, BuildError> {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let base = base.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    Ok(base.ok_or(BuildError::NoCache)?.join("basalt/images"))
}

/// Runs the command. A build blocks the thread, which does nothing else.
pub(crate) async fn run(args: Args, connection: &Connection) -> Result<(), Failed> {
    let build = match args.command {
        Command::Build(build) => build,
        Command::Push { dir } => return push::push(&dir, connection).await,
    };
    let built = match build {
        Build::Ephemeral { common, agent } => {
            Site::prepare(common).and_then(|site| ephemeral::build(&site, agent))
        }
        Build::Debian { common } => Site::prepare(common).and_then(|site| debian::build(&site)),
    };
    built.map_err(|error| Failed::Words(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_removes_what_a_killed_one_left_and_nothing_else() {
        let cache = tempfile::tempdir().unwrap();
        for name in ["build-4rdP8L/root/etc", "ephemeral-bd089ad79d02626d"] {
            std::fs::create_dir_all(cache.path().join(name)).unwrap();
        }
        let _lock = lock(cache.path()).unwrap();
        assert!(!cache.path().join("build-4rdP8L").exists());
        assert!(cache.path().join("ephemeral-bd089ad79d02626d").exists());
    }
}
