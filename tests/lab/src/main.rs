//! `basalt-lab`: labs by hand, and the programs that a lab starts.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use basalt_lab::demo::{self, DemoConfig, DemoError};
use basalt_lab::process::{self, Owner};
use basalt_lab::program::{self, BmcProgramConfig};
use basalt_lab::{Firmware, Lab, LabError, MachineConfig, lab};
use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

/// Emulated machines with BMCs, in a network namespace.
#[derive(Parser)]
#[command(name = "basalt-lab", version)]
struct Arguments {
    #[command(subcommand)]
    command: What,
}

#[derive(Subcommand)]
enum What {
    /// Make a lab and keep it until Ctrl-C, SIGTERM, or `down`
    Up {
        /// Its name
        name: String,
        /// A JSON list of machines; without it, m1 (BIOS) and m2 (UEFI)
        #[arg(long)]
        machines: Option<PathBuf>,
    },
    /// End everything in a lab and remove it
    Down {
        /// Its name
        name: String,
    },
    /// Show every lab
    List,
    /// Run a command inside a lab's network
    Exec {
        /// The lab's name
        name: String,
        /// The command
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Install two machines with Terraform, and leave them running (see `make demo`)
    Demo {
        /// A folder with ephemeral/image.json and debian/image.json
        #[arg(long)]
        images: PathBuf,
        /// The Terraform configuration
        #[arg(long, default_value = "examples/quickstart")]
        example: PathBuf,
        /// The API's port on 127.0.0.1 of this host
        #[arg(long, default_value_t = 5240)]
        port: u16,
    },
    /// End the demo and remove it (see `make demo-stop`)
    DemoStop,
    /// Measure how long a machine takes from power-on to Ready, and an undeclared one to its Discovery (see `make bench-boot_to_ready`)
    BenchBootToReady {
        /// A folder with ephemeral/image.json
        #[arg(long)]
        images: PathBuf,
        /// What `stock-live` built
        #[arg(long)]
        stock: PathBuf,
    },
    /// Own the demo's processes (started by `demo`)
    #[command(hide = true)]
    KeepDemo {
        /// The API's port on 127.0.0.1 of this host
        #[arg(long)]
        port: u16,
        /// The `demo` that started it, as PID.START
        #[arg(long, value_parser = parse_owner)]
        owner: Owner,
    },
    /// Be a machine's BMC (started by a lab)
    #[command(hide = true)]
    Bmc {
        /// Its configuration
        #[arg(long)]
        config: PathBuf,
    },
    /// Run a command until it ends or its owner is gone (started by a lab)
    #[command(hide = true)]
    Supervise {
        /// The owner, as PID.START
        #[arg(value_parser = parse_owner)]
        owner: Owner,
        /// The command
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}

fn parse_owner(text: &str) -> Result<Owner, String> {
    text.parse().map_err(|()| format!("{text:?} is not of the form PID.START"))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(colours).with_target(false).init();
    match run(Arguments::parse().command).await {
        Ok(code) => code,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(what: What) -> Result<ExitCode, DemoError> {
    match what {
        What::Demo { images, example, port } => {
            let absolute = |path: PathBuf| path.canonicalize().unwrap_or(path);
            demo::run(DemoConfig { images: absolute(images), example: absolute(example), port }).await?;
        }
        What::DemoStop => say(if demo::stop()? {
            "the demo is gone: its machines, their network, region, rack and all files of these"
        } else {
            "no demo runs, and nothing of one is left"
        }),
        What::BenchBootToReady { images, stock } => {
            for line in basalt_lab::bench::boots(&images, &stock).await? {
                say(&line.to_string());
            }
        }
        What::KeepDemo { port, owner } => {
            // Closing the terminal must not end the demo.
            let _a_leader_already = rustix::process::setsid();
            demo::keeper::keep(port, owner).await?;
        }
        What::Up { name, machines } => up(&name, machines.as_deref()).await?,
        What::Down { name } => {
            for removed in lab::take_down(&name)? {
                say(&format!("removed {removed}"));
            }
        }
        What::List => {
            for (name, alive) in lab::list()? {
                say(&format!("{name} {}", if alive { "running" } else { "left over" }));
            }
        }
        What::Exec { name, command } => {
            let source = Command::new("ip").args(["netns", "exec", &lab::find(&name)?]).args(command).exec();
            return Err(LabError::Start { program: "ip".to_owned(), source }.into());
        }
        What::Bmc { config } => program::run(BmcProgramConfig::load(&config)?).await?,
        What::Supervise { owner, command } => return Ok(process::supervise(owner, &command).await?),
    }
    Ok(ExitCode::SUCCESS)
}

async fn up(name: &str, machines: Option<&Path>) -> Result<(), LabError> {
    let system = |source| LabError::System { what: "listen for signals", source };
    let mut terminated = signal(SignalKind::terminate()).map_err(system)?;
    let mut interrupted = signal(SignalKind::interrupt()).map_err(system)?;
    let configs = match machines {
        Some(path) => read_machines(path)?,
        None => vec![MachineConfig::numbered(1, Firmware::Bios), MachineConfig::numbered(2, Firmware::Uefi)],
    };
    let mut lab = Lab::create(name)?;
    let namespace = PathBuf::from("/run/netns").join(lab.namespace());
    say(&format!("lab {name}: namespace {}, bridge br0 10.77.0.1/24", lab.namespace()));
    let mut running = Vec::new();
    for config in configs {
        let machine = lab.add_machine(config).await?;
        let config = machine.config();
        let (user, bmc, mac) = (&config.bmc_user, config.bmc_address, config.mac);
        say(&format!(
            "machine {}: NIC {mac}, BMC {bmc} user {user}, {}",
            config.name,
            machine.directory().display()
        ));
        running.push(machine);
    }
    say(&format!("ready; in another terminal: basalt-lab exec {name} -- COMMAND; Ctrl-C removes it"));
    let taken_down = async {
        while namespace.exists() {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::select! {
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
        () = taken_down => {}
    }
    Ok(())
}

fn read_machines(path: &Path) -> Result<Vec<MachineConfig>, LabError> {
    let file = |source| LabError::File { path: path.to_owned(), source };
    let text = std::fs::read(path).map_err(file)?;
    serde_json::from_slice(&text).map_err(|error| file(error.into()))
}

/// Prints a line to the terminal, which may be closed.
fn say(line: &str) {
    let _unheard = writeln!(std::io::stdout(), "{line}");
}
