//! `basalt rack`: enrols racks.

use crate::output::show;
use crate::region::{Connection, Failed};
use crate::subject::rack;

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
        #[arg(value_parser = rack)]
        name: Option<String>,
        /// Where the rack reaches a region, https://ADDRESS:5250; can be given several times. Default: the region's --join-urls
        #[arg(long = "url")]
        urls: Vec<String>,
    },
}

/// Runs the command.
pub(crate) async fn run(args: Args, connection: &Connection) -> Result<(), Failed> {
    let Command::JoinToken { name, urls } = args.command;
    show(&format!("{}\n", connection.client()?.join_token(name.as_deref(), &urls).await?));
    Ok(())
}
