//! basalt: the operator's command. One module a command.

mod image;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Bare metal, declared.
#[derive(Debug, Parser)]
#[command(name = "basalt", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Images: what machines boot and what is installed on them
    Image(image::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Image(args) => image::run(args),
    }
}
