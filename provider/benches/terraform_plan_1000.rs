//! A plan of 1,000 machines of which none changes, against the same plan of Terraform's own `terraform_data`, for which no
//! provider is started and nobody is asked.
//!
//! Real Terraform, this provider's program and a region's, which must lie beside it. Prints one line of JSON:
//! `cargo build --release -p basalt-region && cargo bench -p terraform-provider-basalt --bench terraform_plan_1000`.

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const MACHINES: usize = 1000;
const RUNS: usize = 3;

/// A machine as it is declared, by its number.
const MACHINE: &str = r#"{
    name         = "machine-${count.index}"
    architecture = "amd64"
    description  = "row ${count.index % 10}"
    boot_macs    = [format("52:54:00:%02x:%02x:00", floor(count.index / 256), count.index % 256)]
    labels       = { row = "row-${count.index % 10}" }
    bmc = {
      driver   = "ipmi"
      address  = "10.9.${floor(count.index / 256)}.${count.index % 256}"
      username = "admin"
      password = "a-secret-of-${count.index}"
      options  = { cipher_suite = 3 }
    }
  }"#;

/// A region's program, which ends with its database when this does.
struct Region(Child);

impl Drop for Region {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.0.wait();
    }
}

/// A user's directory.
struct User {
    directory: PathBuf,
    /// Terraform's own configuration: where the provider's program is.
    settings: PathBuf,
}

fn main() -> Result<(), Box<dyn Error>> {
    // Where the account that PostgreSQL runs under gets to.
    let dir = tempfile::Builder::new().prefix("basalt-bench-").tempdir_in("/var/tmp")?;
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
    let provider = Path::new(env!("CARGO_BIN_EXE_terraform-provider-basalt"));
    let settings = dir.path().join("terraform.rc");
    let programs = provider.parent().ok_or("the provider lies nowhere")?;
    let overrides = format!("dev_overrides {{ \"basalt-metal/basalt\" = {programs:?} }}");
    fs::write(&settings, format!("provider_installation {{\n  {overrides}\n  direct {{}}\n}}\n"))?;

    let data = dir.path().join("region");
    let mut region = Region(start(&provider.with_file_name("basalt-region"), &data)?);
    let endpoint = endpoint(&mut region.0)?;
    let token = fs::read_to_string(data.join("admin-token"))?;
    let provider =
        format!("provider \"basalt\" {{\n  endpoint = {endpoint:?}\n  token    = {:?}\n}}\n", token.trim());
    let fields = MACHINE.trim_start_matches('{');
    let ours = User::new(
        dir.path().join("ours"),
        &settings,
        &format!("{provider}resource \"basalt_machine\" \"m\" {{\n  count = {MACHINES}\n{fields}\n"),
    )?;
    let theirs = User::new(
        dir.path().join("theirs"),
        &settings,
        &format!("resource \"terraform_data\" \"m\" {{\n  count = {MACHINES}\n  input = {MACHINE}\n}}\n"),
    )?;
    for user in [&ours, &theirs] {
        user.run(&["apply", "-auto-approve"])?;
        user.plan()?;
    }
    let (mut our_times, mut their_times) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        our_times.push(ours.plan()?);
        their_times.push(theirs.plan()?);
    }
    let (ours, theirs) = (median(our_times), median(their_times));
    let line = serde_json::json!({
        "bench": "terraform_plan_1000",
        "basalt": rounded(ours),
        "peer": "terraform_data",
        "peer_value": rounded(theirs),
        "ratio": rounded(theirs / ours),
        "unit": "s",
    });
    #[allow(clippy::print_stdout, reason = "the result")]
    {
        println!("{line}");
    }
    Ok(())
}

fn start(program: &Path, data: &Path) -> Result<Child, String> {
    let mut command = Command::new(program);
    command.arg("--data-dir").arg(data).args(["--log", "error"]);
    command.args(["--listen", "127.0.0.1:0", "--rpc-listen", "127.0.0.1:0"]);
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    started
        .map_err(|error| format!("{}: {error}; build basalt-region with the same profile", program.display()))
}

/// Where a region answers, which it says first.
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

    fn run(&self, args: &[&str]) -> Result<Output, Box<dyn Error>> {
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

    /// How long a plan takes that has nothing to do.
    fn plan(&self) -> Result<Duration, Box<dyn Error>> {
        let began = Instant::now();
        self.run(&["plan", "-detailed-exitcode"])?;
        Ok(began.elapsed())
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default().as_secs_f64()
}

fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}
