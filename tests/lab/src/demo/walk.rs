//! The part of the demo that the user watches, from the first check to the last line.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use basalt_api::client::{Client, ClientConfig};
use basalt_api::{Kind, Object};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::signal::unix::{SignalKind, signal};

use super::{
    DemoConfig, DemoError, check, example_name, keeper, keeper_log, link, progress, record, say, stop,
};
use crate::error::LabError;
use crate::images;
use crate::lab::{self, root};
use crate::process::{self, LabProcess, Owner};
use crate::site::{Programs, quickstart_machines, tail};
use crate::terraform::Workspace;

/// Time limit for the start of namespace, machines, region and rack.
const START: Duration = Duration::from_secs(180);
/// Time limit for `terraform init`, which only reads a directory.
const INIT: Duration = Duration::from_secs(60);
/// Time limit for two installations under emulation, on a slow host.
const APPLY: Duration = Duration::from_secs(3600);

/// Runs the demo. On success, two installed machines run, and continue to run afterwards.
///
/// # Errors
/// [`DemoError`]: an obstacle, or a failed step. The started parts are then still there, except after
/// [`DemoError::Interrupted`].
pub async fn run(config: DemoConfig) -> Result<(), DemoError> {
    check(&config)?;
    let programs = Programs::find()?;
    // Without handlers, Ctrl-C and `make demo-stop` would end this process at once, and leave the parts that it
    // started.
    let system = |source| LabError::System { what: "listen for signals", source };
    let mut interrupts = signal(SignalKind::interrupt()).map_err(system)?;
    let mut terminations = signal(SignalKind::terminate()).map_err(system)?;
    // The demo outlives its terminal: a broken SSH connection must not cost an installation.
    let _hangups = signal(SignalKind::hangup()).map_err(system)?;
    let interrupted = async {
        tokio::select! {
            _ = interrupts.recv() => {}
            _ = terminations.recv() => {}
        }
    };
    let directory = root();
    std::fs::create_dir_all(&directory).map_err(LabError::file(&directory))?;
    write_record(&record())?;
    let done = tokio::select! {
        done = walk(&config, &programs) => {
            if done.is_err() && lab::find(super::LABEL).is_ok() {
                say("What was started still runs, for a look: `basalt-lab list`. `make demo-stop` removes it.");
            }
            done
        }
        () = interrupted => {
            say("interrupted; ending the demo");
            stop().and(Err(DemoError::Interrupted))
        }
    };
    let _removed_already = std::fs::remove_file(record());
    done
}

/// From here on, `make demo-stop` can end this process, even if its `make` was killed.
fn write_record(path: &Path) -> Result<(), LabError> {
    std::fs::write(path, format!("{}\n", Owner::current()?)).map_err(LabError::file(path))
}

async fn walk(config: &DemoConfig, programs: &Programs) -> Result<(), DemoError> {
    let began = Instant::now();
    start_keeper(config.port, began).await?;
    let base = link();
    let token_file = base.join("region/admin-token");
    let token = std::fs::read_to_string(&token_file).map_err(LabError::file(&token_file))?;
    let endpoint = format!("http://127.0.0.1:{}", config.port);
    let client = Client::new(&ClientConfig {
        endpoints: vec![endpoint.clone()],
        token: Some(token.trim().to_owned()),
        ..ClientConfig::default()
    })?;
    for image in ["ephemeral", "debian"] {
        let bytes = images::upload(&client, &config.images.join(image)).await?;
        say(&format!("{}  image {image}: {} MiB uploaded", progress::clock(began), bytes >> 20));
    }

    let key = base.join("ssh_key");
    process::run(
        "ssh-keygen",
        &[
            "-q".as_ref(),
            "-t".as_ref(),
            "ed25519".as_ref(),
            "-N".as_ref(),
            "".as_ref(),
            "-f".as_ref(),
            key.as_os_str(),
        ],
    )?;
    let public = base.join("ssh_key.pub");
    let public = std::fs::read_to_string(&public).map_err(LabError::file(&public))?;
    let workspace = Workspace::create(
        &base,
        &config.example,
        &programs.path("terraform-provider-basalt"),
        &[("BASALT_ENDPOINT", OsStr::new(&endpoint)), ("BASALT_TOKEN_FILE", token_file.as_os_str())],
        &[
            ("image_dir", &config.images.to_string_lossy()),
            ("ssh_key", public.trim()),
            (
                "bmc_password",
                &quickstart_machines().first().map(|m| m.bmc_password.clone()).unwrap_or_default(),
            ),
        ],
    )?;
    terraform(&workspace, &["init"], &base, INIT).await?;
    say(&format!(
        "{}  terraform apply in {} (its output: {})",
        progress::clock(began),
        workspace.directory().display(),
        base.join("terraform.log").display()
    ));
    let names: Vec<String> = quickstart_machines().into_iter().map(|machine| machine.name).collect();
    tokio::select! {
        applied = terraform(&workspace, &["apply", "-auto-approve"], &base, APPLY) => applied?,
        () = progress::follow(&client, &names, began) => {}
    }

    let mut lines = Vec::new();
    for name in &names {
        lines.push(deployed(&client, name).await?);
    }
    say(&format!(
        "\nDone in {}. Both machines run Debian from their own disks:",
        progress::clock(began).trim_start()
    ));
    for (line, _) in &lines {
        say(line);
    }
    let address = lines.first().map_or("", |(_, address)| address.as_str());
    next_commands(config, programs, &base, address)
}

fn next_commands(
    config: &DemoConfig,
    programs: &Programs,
    base: &Path,
    address: &str,
) -> Result<(), DemoError> {
    let namespace = lab::find(super::LABEL)?;
    let base = base.display();
    let directory = Path::new(example_name(&config.example)).display();
    let basalt = programs.path("basalt");
    say(&format!(
        "
The API is at http://127.0.0.1:{port}; its token is in {base}/region/admin-token. As root:
  . {base}/env; cd {base}/{directory}    # where the region is, for Terraform and basalt
  terraform plan                                # nothing left to do
  {basalt} get machines
  ip netns exec {namespace} ssh -i {base}/ssh_key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null debian@{address}
  terraform destroy                             # gives both machines back: erased and powered off
Logs: {base}/region.log, rack-1.log, terraform.log, bios/serial.log, uefi/serial.log
`make demo-stop` removes all of this, and names what stays.",
        port = config.port,
        basalt = basalt.display(),
    ));
    Ok(())
}

/// Checks the system of this name once more from outside. Returns a line about it, and its address.
async fn deployed(client: &Client, name: &str) -> Result<(String, String), DemoError> {
    let object: Object = match Kind::find("Deployment") {
        Some(kind) => client.get(kind, name).await?,
        None => return Err(DemoError::NotThere("this build does not know deployments".to_owned())),
    };
    let status = &object.status;
    let text = |field: &str| status[field].as_str().unwrap_or("?").to_owned();
    if status["phase"] != "Deployed" || status["address"].is_null() {
        let said = format!(
            "deployment {name} is {} at {}, not Deployed at an address",
            text("phase"),
            text("address")
        );
        return Err(DemoError::NotThere(said));
    }
    let (hostname, address, disk) = (text("hostname"), text("address"), text("disk"));
    Ok((format!("  {name:<5} {hostname:<8} {address:<13} disk {disk}"), address))
}

async fn start_keeper(port: u16, began: Instant) -> Result<(), DemoError> {
    let directory = root();
    std::fs::create_dir_all(&directory).map_err(LabError::file(&directory))?;
    let log = keeper_log();
    let failed = |log: &Path| DemoError::Keeper { log: log.to_owned(), tail: tail(log) };
    let errors = File::create(&log).map_err(LabError::file(&log))?;
    let program = process::lab_program()?;
    let start = |source| LabError::Start { program: program.display().to_string(), source };
    let mut command = std::process::Command::new(&program);
    command.args(["keep-demo", "--port", &port.to_string(), "--owner", &Owner::current()?.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::from(errors));
    let mut child = tokio::process::Command::from(command).spawn().map_err(start)?;
    let Some(output) = child.stdout.take() else { return Err(failed(&log)) };
    let mut lines = BufReader::new(output).lines();
    let ready = async {
        while let Ok(Some(line)) = lines.next_line().await {
            if line == keeper::READY {
                return true;
            }
            say(&format!("{}  {line}", progress::clock(began)));
        }
        false
    };
    match tokio::time::timeout(START, ready).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(failed(&log)),
        Err(_elapsed) => {
            stop()?;
            Err(failed(&log))
        }
    }
}

/// Runs Terraform with its output in a log. Dropping the future kills it.
async fn terraform(
    workspace: &Workspace,
    arguments: &[&str],
    base: &Path,
    limit: Duration,
) -> Result<(), DemoError> {
    let log: PathBuf = base.join("terraform.log");
    let output =
        std::fs::OpenOptions::new().create(true).append(true).open(&log).map_err(LabError::file(&log))?;
    let errors = output.try_clone().map_err(LabError::file(&log))?;
    let mut command = workspace.command(arguments)?;
    command.stdout(Stdio::from(output)).stderr(Stdio::from(errors));
    let mut process = LabProcess::start(command)?;
    if matches!(process.wait(limit).await, Ok(status) if status.success()) {
        return Ok(());
    }
    let what = format!("terraform {}", arguments.join(" "));
    Err(DemoError::Failed { what, tail: tail(&log), log })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::LABEL;
    use crate::name::LabName;
    use std::process::Command;

    /// Runs `tests/lab/demo begin` in a directory with these files of a demo. Returns its output.
    fn begin(labs: &Path) -> String {
        let mut script = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/demo"));
        script.args(["begin", &std::process::id().to_string()]).env("BASALT_LAB_DIR", labs);
        String::from_utf8(script.output().unwrap().stderr).unwrap()
    }

    /// The script and this program find each other's demo by the same files.
    #[test]
    fn the_script_reads_the_record_and_the_keeper_s_directory() {
        let here = Owner::current().unwrap();
        let said = format!("demo: there is a demo already (process {});", here.pid);
        let labs = tempfile::tempdir().unwrap();
        let at = |path: PathBuf| labs.path().join(path.file_name().unwrap());
        write_record(&at(record())).unwrap();
        assert!(begin(labs.path()).contains(&said));
        std::fs::remove_file(at(record())).unwrap();
        let directory = labs.path().join(LabName::new(LABEL, here).unwrap().to_string());
        std::os::unix::fs::symlink(directory, at(link())).unwrap();
        assert!(begin(labs.path()).contains(&said));
        std::fs::remove_file(at(link())).unwrap();
        assert_eq!(begin(labs.path()), "");
    }
}
