//! `basalt patch`: changes some fields of an object's spec.

use basalt_api::client::Precondition;
use serde_json::Value;

use crate::dry_run;
use crate::output::show;
use crate::region::{Connection, Failed, kind};

/// Arguments of `basalt patch`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Kind: machine, deployment, subnet, …
    kind: String,
    /// Which one
    name: String,
    /// JSON merge patch of the spec: '{"description": "row 1", "pool": null}'; null removes a field
    #[arg(long, value_name = "JSON")]
    merge: String,
    /// Only if the object is still of this generation
    #[arg(long, value_name = "N")]
    generation: Option<u64>,
    /// Store nothing, and say what would happen
    #[arg(long)]
    dry_run: bool,
}

/// Runs the command.
pub(crate) async fn run(args: Args, connection: &Connection) -> Result<(), Failed> {
    let (client, kind) = (connection.client()?, kind(&args.kind)?);
    let patch: Value = serde_json::from_str(&args.merge)
        .map_err(|error| Failed::Words(format!("--merge {:?} is not JSON: {error}", args.merge)))?;
    let generation = |number| Precondition::Generation(basalt_api::values::Generation::new(number));
    let precondition = args.generation.map_or(Precondition::None, generation);
    if args.dry_run {
        let dry = client.patch_dry_run(kind, &args.name, &patch, precondition).await?;
        show(&dry_run::shown(&dry));
        return Ok(());
    }
    let object = client.patch(kind, &args.name, &patch, precondition).await?;
    show(&format!("{} {}  generation {}\n", object.kind, object.metadata.name, object.metadata.generation));
    Ok(())
}
