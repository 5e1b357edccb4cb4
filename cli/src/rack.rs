//! `basalt rack`: enrolling racks.

use crate::output::show;
use crate::region::{Connection, Failed};

/// Arguments of `basalt rack`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Print a one-time token for `basalt-rack --join`
    JoinToken {
        /// Name that the rack must have; any without it
        name: Option<String>,
    },
}

/// Runs the command.
pub(crate) async fn run(args: Args, connection: &Connection) -> Result<(), Failed> {
    let Command::JoinToken { name } = args.command;
    show(&format!("{}\n", connection.client()?.join_token(name.as_deref()).await?));
    Ok(())
}
