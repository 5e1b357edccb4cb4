//! `basalt-rack`: the rack controller.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use basalt_api::values::PrintableLog;
use basalt_proto::rack_v1::ConcernVersion;
use basalt_rack::check::{Table, check};
use basalt_rack::concern::{Concern, Content, store};
use basalt_rack::daemon::Daemon;
use basalt_rack::hash::sha256;
use basalt_rack::log_limit::LogLimit;
use basalt_rack::settings::{self, BadSetting, Given, Settings};
use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// The rack controller: DHCP, TFTP, HTTP and BMCs next to the machines
///
/// Every option can also be set by its environment variable, or under its name with _ for - in the file of --config.
#[derive(Debug, Parser)]
#[command(name = "basalt-rack", version, args_conflicts_with_subcommands = false)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    given: Given,
    /// A TOML file with settings
    #[arg(long, env = "BASALT_RACK_CONFIG", value_name = "FILE", global = true)]
    config: Option<PathBuf>,
}

/// The data directory that the manual names.
const USUAL_DATA_DIR: &str = "/var/lib/basalt-rack";

#[derive(Debug, Subcommand)]
enum Command {
    /// Say what this host lacks; exit code 1 if anything. Without --data-dir it looks at /var/lib/basalt-rack
    Check,
    /// Look at the concerns that this rack holds, or replace one without a region
    Concern {
        #[command(subcommand)]
        command: ConcernCommand,
    },
}

#[derive(Debug, Subcommand)]
enum ConcernCommand {
    /// Replace a concern; a running rack takes it within a second
    Put {
        /// dhcp, known, boot, images, power, dns, time or proxy
        name: String,
        /// The concern's message, protobuf-encoded; - for standard input
        file: PathBuf,
        /// Its generation [default: one more than the rack holds]
        #[arg(long)]
        generation: Option<u64>,
    },
    /// Print what the rack holds
    Show {
        /// dhcp, known, boot, images, power, dns, time or proxy [default: all]
        name: Option<String>,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(message) => {
            // Standard error may be closed; there is no other place for the message.
            writeln!(std::io::stderr(), "basalt-rack: {message}").ok();
            ExitCode::from(2)
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode, String> {
    let given = match &cli.config {
        Some(path) => cli.given.or(settings::file(path).map_err(|error| error.to_string())?),
        None => cli.given,
    };
    match cli.command {
        None => daemon(given),
        Some(Command::Check) => {
            let findings = check(&checked(given).map_err(|error| error.to_string())?);
            print(&Table(&findings).to_string())?;
            let fine = findings.iter().all(|finding| finding.problem.is_none());
            Ok(if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Some(Command::Concern { command }) => {
            let data_dir = given.data_dir().map_err(|error| error.to_string())?;
            concern(&data_dir, command)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The settings for `check`. A rack that is not set up yet has no data directory and no join token.
fn checked(given: Given) -> Result<Settings, BadSetting> {
    let usual = Given { data_dir: Some(USUAL_DATA_DIR.into()), ..Given::default() };
    Given { join: None, join_file: None, ..given.or(usual) }.settle()
}

fn daemon(given: Given) -> Result<ExitCode, String> {
    let settings = given.settle().map_err(|error| error.to_string())?;
    let filter = EnvFilter::try_new(&settings.log).map_err(|error| error.to_string())?;
    let limit = LogLimit::default();
    // Colours are escape sequences. The log contains text from strangers, so escape sequences are not allowed in it.
    let layer =
        tracing_subscriber::fmt::layer().with_ansi(false).with_writer(|| PrintableLog(std::io::stderr()));
    let log = tracing_subscriber::registry().with(filter);
    if std::io::stderr().is_terminal() {
        log.with(layer.with_filter(limit.clone())).init();
    } else {
        log.with(layer.json().flatten_event(true).with_filter(limit.clone())).init();
    }
    if let Err(error) = basalt_proto::open_files::raise_limit() {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    runtime.spawn(limit.run());
    runtime.block_on(async {
        let handle = |kind| signal(kind).map_err(|error| error.to_string());
        let (mut terminate, mut interrupt) =
            (handle(SignalKind::terminate())?, handle(SignalKind::interrupt())?);
        let daemon = tokio::select! {
            started = Daemon::start(settings) => started.map_err(|error| error.to_string())?,
            _ = terminate.recv() => return Ok(ExitCode::SUCCESS),
            _ = interrupt.recv() => return Ok(ExitCode::SUCCESS),
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = daemon.deleted() => {
                daemon.forget().await.map_err(|error| {
                    format!("the region has deleted this rack, and {error}; remove the data directory by hand, it holds passwords")
                })?;
                return Err(
                    "the region has deleted this rack: its key, passwords, tasks and images are erased. A rack of this host \
                     enrols anew with --join and a token of `basalt rack join-token`"
                        .to_owned(),
                );
            }
        }
        daemon.stop().await;
        Ok(ExitCode::SUCCESS)
    })
}

fn concern(data_dir: &Path, command: ConcernCommand) -> Result<(), String> {
    let named = |name: &str| {
        let known = || Concern::ALL.map(Concern::name).join(", ");
        Concern::named(name).ok_or_else(|| format!("no concern {name:?}; there are {}", known()))
    };
    match command {
        ConcernCommand::Put { name, file, generation } => {
            let concern = named(&name)?;
            let body = read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
            let (generation, incarnation) = next(data_dir, concern, generation);
            let version = ConcernVersion {
                concern: name,
                generation,
                sha256: sha256(&body).to_vec(),
                incarnation,
                body,
                traceparent: String::new(),
            };
            store::write_concern(data_dir, &version).map_err(|error| error.to_string())?;
            print(&format!("{concern}: generation {generation}\n"))
        }
        ConcernCommand::Show { name } => {
            let wanted = match name {
                Some(name) => vec![named(&name)?],
                None => Concern::ALL.to_vec(),
            };
            for concern in wanted {
                match store::read_concern(data_dir, concern)? {
                    None => print(&format!("{concern}: none\n"))?,
                    Some((version, content)) => {
                        let (generation, incarnation) = (version.generation, &version.incarnation);
                        print(&format!(
                            "{concern}: generation {generation}, incarnation {incarnation}\n{}\n",
                            describe(&content)
                        ))?;
                    }
                }
            }
            Ok(())
        }
    }
}

/// The generation and incarnation of a version that follows the rack's current one.
fn next(data_dir: &Path, concern: Concern, generation: Option<u64>) -> (u64, String) {
    let held = |concern| store::read_concern(data_dir, concern).ok().flatten().map(|(version, _)| version);
    let same = held(concern);
    let generation = generation.unwrap_or_else(|| same.as_ref().map_or(1, |it| it.generation + 1));
    let incarnation = same.or_else(|| Concern::ALL.into_iter().find_map(held)).map(|it| it.incarnation);
    (generation, incarnation.unwrap_or_else(|| "local".to_owned()))
}

fn read(file: &Path) -> std::io::Result<Vec<u8>> {
    if file == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    std::fs::read(file)
}

/// Describes the content without keys and passwords.
fn describe(content: &Content) -> String {
    match content {
        Content::Dhcp(it) => format!("{it:#?}"),
        Content::Images(it) => format!("{it:#?}"),
        Content::Dns(it) => {
            let zone = |it: &basalt_proto::rack_v1::DnsZone| {
                format!("  {}: serial {}, {} records", it.origin, it.serial, it.records.len())
            };
            it.zones.iter().map(zone).collect::<Vec<_>>().join("\n")
        }
        Content::Time(it) => format!("{it:#?}"),
        Content::Proxy(it) => format!("{it:#?}"),
        Content::Known(it) => {
            let machine = |it: &basalt_proto::rack_v1::BootMachine| {
                format!("  {} {} {}", it.name, it.macs.join(" "), it.networks.join(" "))
            };
            it.machines.iter().map(machine).collect::<Vec<_>>().join("\n")
        }
        Content::Boot(it) => {
            let machine = |it: &basalt_proto::rack_v1::BootMachine| {
                let action = match &it.action {
                    Some(basalt_proto::rack_v1::boot_machine::Action::Ephemeral(boot)) => {
                        format!("ephemeral, attempt {}", boot.attempt)
                    }
                    Some(basalt_proto::rack_v1::boot_machine::Action::PowerOff(_)) => "power off".to_owned(),
                    _ => "local disk".to_owned(),
                };
                format!("  {} {}: {action}", it.name, it.macs.join(" "))
            };
            let tasks = it.enlist.iter().flat_map(|it| it.tasks.iter().map(|task| (it.at_once, task)));
            let enlist = tasks.map(|(at_once, task)| {
                let (networks, architecture) = (task.networks.join(", "), &task.architecture);
                format!("  undeclared machines of {networks} ({architecture}): enlist, {at_once} at once")
            });
            it.machines.iter().map(machine).chain(enlist).collect::<Vec<_>>().join("\n")
        }
        Content::Power(it) => {
            let bmc = |it: &basalt_proto::rack_v1::Bmc| {
                format!("  {}: {} {}@{}:{}", it.machine_uid, it.driver, it.username, it.address, it.port)
            };
            let readings = match it.reading_ms {
                0 => "  power is read after commands alone".to_owned(),
                ms => format!("  power is read each {} s", ms / 1000),
            };
            it.bmcs.iter().map(bmc).chain([readings]).collect::<Vec<_>>().join("\n")
        }
    }
}

fn print(text: &str) -> Result<(), String> {
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| error.to_string())
}

#[cfg(test)]
#[path = "../../tests/documented.rs"]
mod documented;
#[cfg(test)]
mod install_guide;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_the_manual_is_understood() {
        let commands = documented::commands(|it| it == "basalt-rack");
        assert!(commands.iter().any(|it| it.is_whole), "{commands:?}");
        for it in commands {
            let parsed = Cli::try_parse_from(&it.words);
            assert!(parsed.is_ok() || !it.is_whole, "{}: {:?}", it.place, parsed.err());
        }
    }

    #[test]
    fn a_host_can_be_checked_before_anything_is_set_up() {
        let cli = Cli::try_parse_from(["basalt-rack", "check", "--interface", "eth1"]).unwrap();
        let settings = checked(cli.given).unwrap();
        assert_eq!(settings.data_dir.to_str(), Some("/var/lib/basalt-rack"));
        assert_eq!(settings.interfaces, ["eth1"]);
    }

    #[test]
    fn the_file_and_the_unit_of_the_manual_are_good() {
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
        let settings = checked(settings::file(&deploy.join("rack.toml")).unwrap()).unwrap();
        assert_eq!(settings.data_dir.to_str(), Some("/var/lib/basalt-rack"), "the unit's StateDirectory");
        let unit = std::fs::read_to_string(deploy.join("systemd/basalt-rack.service")).unwrap();
        let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        let cli = Cli::try_parse_from(start.split(' ')).unwrap();
        assert_eq!(cli.config.unwrap().to_str(), Some("/etc/basalt/rack.toml"));
        for needed in
            ["StateDirectory=basalt-rack\n", "AmbientCapabilities=CAP_NET_BIND_SERVICE CAP_NET_RAW\n"]
        {
            assert!(unit.contains(needed), "{needed}");
        }
    }
}
