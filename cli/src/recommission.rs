//! `basalt recommission`: a person has changed a machine's hardware, or mended what was broken.

use basalt_api::wire::{OperationRequest, Verb};

use crate::output::show;
use crate::region::{Connection, Failed};

/// Arguments of `basalt recommission`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The machine's name
    machine: String,
    /// Ask for nothing, and say what would follow
    #[arg(long)]
    dry_run: bool,
}

/// Runs the command.
pub(crate) async fn run(args: Args, connection: &Connection) -> Result<(), Failed> {
    let request = OperationRequest { verb: Verb::Recommission };
    let client = connection.client()?;
    if args.dry_run {
        let plan = client.operate_dry_run(&args.machine, &request).await?.plan;
        let mut text = format!("{}\n", plan.summary);
        for step in &plan.steps {
            text.push_str(&format!("  {}\n", step.message));
        }
        show(&text);
        return Ok(());
    }
    client.operate(&args.machine, &request).await?;
    show(&format!("accepted; `basalt explain machine {}` says what follows\n", args.machine));
    Ok(())
}
