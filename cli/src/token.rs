//! `basalt token`: issues and revokes the texts of declared API tokens.

use crate::output::show;
use crate::region::{Connection, Failed};
use crate::subject::api_token;

/// Arguments of `basalt token`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Print a new text for a declared token, this once; the one before is good no more
    Issue {
        /// The ApiToken
        #[arg(value_parser = api_token)]
        name: String,
    },
    /// Make a token's text good no more
    Revoke {
        /// The ApiToken
        #[arg(value_parser = api_token)]
        name: String,
    },
}

/// Runs the command.
pub(crate) async fn run(args: Args, connection: &Connection) -> Result<(), Failed> {
    let client = connection.client()?;
    match args.command {
        Command::Issue { name } => show(&format!("{}\n", client.issue_token(&name).await?)),
        Command::Revoke { name } => {
            client.revoke_token(&name).await?;
            show(&format!("the text of {name} is good no more\n"));
        }
    }
    Ok(())
}
