//! `basalt rename`: gives an object another name; what refers to it goes on referring to it.

use basalt_api::values::Name;

use crate::dry_run;
use crate::output::show;
use crate::region::{Connection, Failed, kind};

/// Arguments of `basalt rename`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Kind: machine, zone, subnet, …
    kind: String,
    /// What it is called
    name: String,
    /// What it is to be called
    new_name: String,
    /// Store nothing, and say what would happen
    #[arg(long)]
    dry_run: bool,
}

/// Runs the command.
pub(crate) async fn run(args: Args, connection: &Connection) -> Result<(), Failed> {
    let (client, kind) = (connection.client()?, kind(&args.kind)?);
    let new_name: Name = args
        .new_name
        .parse()
        .map_err(|error| Failed::Words(format!("{:?} cannot be a name: {error}", args.new_name)))?;
    if args.dry_run {
        let dry = client.rename_dry_run(kind, &args.name, &new_name).await?;
        show(&dry_run::shown(&dry));
        return Ok(());
    }
    let object = client.rename(kind, &args.name, &new_name).await?;
    show(&format!("{} {} is called {}\n", object.kind, args.name, object.metadata.name));
    Ok(())
}
