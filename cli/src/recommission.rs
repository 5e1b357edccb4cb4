//! `basalt recommission`: a person has changed a machine's hardware, or mended what was broken.

use basalt_api::wire::{OperationRequest, Verb};

use crate::output::show;
use crate::region::{Connection, Failed};

/// Arguments of `basalt recommission`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The machine's name
    machine: String,
}

/// Runs the command.
pub(crate) async fn run(args: Args, connection: &Connection) -> Result<(), Failed> {
    let request = OperationRequest { verb: Verb::Recommission };
    connection.client()?.operate(&args.machine, &request).await?;
    show(&format!("accepted; `basalt explain machine {}` says what follows\n", args.machine));
    Ok(())
}
