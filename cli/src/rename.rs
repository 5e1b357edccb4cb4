//! `basalt rename`: gives an object another name. References to the object stay valid.

use basalt_api::values::Name;

use crate::dry_run;
use crate::output::show;
use crate::region::{Connection, Failed};
use crate::subject::Subject;

/// Arguments of `basalt rename`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    subject: Subject,
    /// Its new name
    new_name: Option<String>,
    /// Store nothing, and say what would happen
    #[arg(long)]
    dry_run: bool,
    /// Also if another manager declared it, such as Terraform
    #[arg(long)]
    adopt: bool,
}

/// Runs the command.
pub(crate) async fn run(args: Args, connection: &Connection) -> Result<(), Failed> {
    let (kind, name, rest) = args.subject.first()?;
    let new_name = match (rest, &args.new_name) {
        (Some(new_name), None) => new_name,
        (None, Some(new_name)) => new_name,
        (None, None) => {
            return Err(Failed::Words(format!("the new name of {} {name} is missing", kind.name)));
        }
        (Some(one), Some(other)) => {
            return Err(Failed::Words(format!("{one:?} and {other:?} are two new names; say one")));
        }
    };
    let bad = |error| Failed::Words(format!("{new_name:?} cannot be a name: {error}"));
    let new_name: Name = new_name.parse().map_err(bad)?;
    let client = connection.client()?;
    if args.dry_run {
        let dry = client.rename_dry_run(kind, name, &new_name, args.adopt).await?;
        show(&dry_run::shown(&dry));
        return Ok(());
    }
    let object = client.rename(kind, name, &new_name, args.adopt).await?;
    show(&format!("{} {name} is called {}\n", object.kind, object.metadata.name));
    Ok(())
}
