//! Shared parts of the benchmarks with Terraform: a region, a user's directory, and numbers.

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The process of a region. Dropping it ends the region and its database.
struct Region(Child);

impl Drop for Region {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.0.wait();
    }
}

/// A region, and Terraform settings that point to the provider's program.
pub(crate) struct Site {
    /// The `provider` block for this region.
    pub(crate) provider: String,
    settings: PathBuf,
    _region: Region,
    dir: TempDir,
}

impl Site {
    /// Starts the region's program from the same directory as the provider's.
    pub(crate) fn start(provider: &Path) -> Result<Self, Box<dyn Error>> {
        // The account of PostgreSQL needs access to this directory.
        let dir = tempfile::Builder::new().prefix("basalt-bench-").tempdir_in("/var/tmp")?;
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
        let settings = dir.path().join("terraform.rc");
        let programs = provider.parent().ok_or("the provider lies nowhere")?;
        let overrides = format!("dev_overrides {{ \"basalt-metal/basalt\" = {programs:?} }}");
        fs::write(&settings, format!("provider_installation {{\n  {overrides}\n  direct {{}}\n}}\n"))?;
        let data = dir.path().join("region");
        let mut region = Region(start(&provider.with_file_name("basalt-region"), &data)?);
        let endpoint = endpoint(&mut region.0)?;
        let token = fs::read_to_string(data.join("admin-token"))?;
        let provider = format!(
            "provider \"basalt\" {{\n  endpoint = {endpoint:?}\n  token    = {:?}\n}}\n",
            token.trim()
        );
        Ok(Self { provider, settings, _region: region, dir })
    }

    /// A user with this configuration.
    pub(crate) fn user(&self, name: &str, text: &str) -> std::io::Result<User> {
        User::new(self.dir.path().join(name), &self.settings, text)
    }
}

/// A user's directory.
pub(crate) struct User {
    directory: PathBuf,
    /// Terraform's own configuration, with the path of the provider's program.
    settings: PathBuf,
}

fn start(program: &Path, data: &Path) -> Result<Child, String> {
    let mut command = Command::new(program);
    command.arg("--data-dir").arg(data).args(["--log", "error"]);
    command.args(["--listen", "127.0.0.1:0", "--rpc-listen", "127.0.0.1:0"]);
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    started
        .map_err(|error| format!("{}: {error}; build basalt-region with the same profile", program.display()))
}

/// The region's address, from the first line of its output.
fn endpoint(region: &mut Child) -> Result<String, Box<dyn Error>> {
    let output = region.stdout.take().ok_or("the region has no output")?;
    let first = BufReader::new(output).lines().next().ok_or("the region did not start")??;
    Ok(first.trim_start_matches("API: ").to_owned())
}

impl User {
    fn new(directory: PathBuf, settings: &Path, text: &str) -> std::io::Result<Self> {
        const HEAD: &str = "terraform {\n  required_providers {\n    basalt = { source = \"basalt-metal/basalt\" }\n  }\n}\n";
        fs::create_dir(&directory)?;
        fs::write(directory.join("main.tf"), format!("{HEAD}{text}"))?;
        Ok(Self { directory, settings: settings.to_owned() })
    }

    /// Runs Terraform in this directory.
    pub(crate) fn run(&self, args: &[&str]) -> Result<Output, Box<dyn Error>> {
        let output = Command::new("terraform")
            .args(args)
            .args(["-no-color", "-input=false"])
            .current_dir(&self.directory)
            .env("TF_CLI_CONFIG_FILE", &self.settings)
            .env("CHECKPOINT_DISABLE", "1")
            .env_remove("TF_LOG")
            .stdin(Stdio::null())
            .output()?;
        if output.status.success() {
            return Ok(output);
        }
        let said = [output.stdout, output.stderr].concat();
        Err(format!("terraform {args:?}: {}: {}", output.status, String::from_utf8_lossy(&said)).into())
    }
}

/// The median, in seconds.
pub(crate) fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default().as_secs_f64()
}

/// Rounded to three decimal places.
pub(crate) fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}
