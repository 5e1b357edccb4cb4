//! `basalt apply`: shows the effects of declarations in files, asks, and makes the region do exactly these.

pub(crate) mod documents;
mod plan;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use basalt_api::client::ClientError;
use basalt_api::kinds::Condition;
use basalt_api::plan::Advisory;
use basalt_api::wire::{ApplyAction, ApplyRequest, ApplyResponse};
use basalt_api::{FieldError, Problem};

use crate::confirm::confirm;
use crate::output::{show, show_json};
use crate::region::{Connection, Failed, kind};
use crate::wait::{Goal, Patience, until};
use documents::Declared;

/// What is declared, and by whom it may be.
#[derive(Debug, clap::Args)]
pub(crate) struct Declarations {
    /// YAML or JSON files, directories of them, or - for standard input
    #[arg(long = "file", short, required = true, num_args = 1.., value_name = "PATH")]
    files: Vec<PathBuf>,
    /// Delete what was applied with this label before and is not in the files any more
    #[arg(long, value_name = "LABEL=VALUE")]
    prune: Option<String>,
    /// Take over objects that another tool manages
    #[arg(long)]
    adopt: bool,
    /// text for people, json for programs
    #[arg(long, short, default_value = "text", value_parser = ["text", "json"])]
    output: String,
}

/// Arguments of `basalt apply`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    declarations: Declarations,
    /// Only say what would be done, as `basalt plan` does
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Wait until everything in the files is ready, for so long: 90s, 45m
    #[arg(long, value_name = "TIME")]
    wait: Option<basalt_api::values::Duration>,
}

/// Runs `basalt plan`.
pub(crate) async fn plan(declarations: Declarations, connection: &Connection) -> Result<(), Failed> {
    run(Args { declarations, dry_run: true, yes: false, wait: None }, connection).await
}

/// Runs the command.
pub(crate) async fn run(args: Args, connection: &Connection) -> Result<(), Failed> {
    let Declarations { files, prune, adopt, output } = args.declarations;
    let declared = documents::read(&files)?;
    let client = connection.client()?;
    let mut request = ApplyRequest {
        documents: declared.iter().map(|it| it.document.clone()).collect(),
        prune,
        digest: None,
        adopt,
    };
    let seen = client.apply(&request, true).await.map_err(|error| located(error, &declared))?;
    let json = output == "json";
    if !json {
        show(&plan::shown(&seen, &declared));
    }
    let refused = seen.advisories.iter().any(Advisory::refuses);
    let changes = seen.results.iter().any(|result| result.action != ApplyAction::Unchanged);
    if args.dry_run {
        if !json && refused {
            show("as things are now, the region would refuse this\n");
        }
        return print(json, &seen);
    }
    if !changes {
        if let Some(time) = args.wait {
            wait(connection, &seen, time.get(), json).await?;
        }
        return print(json, &seen);
    }
    if refused {
        return Err(Failed::Words(
            "as things are now, the region would refuse this; nothing was changed".into(),
        ));
    }
    if !args.yes {
        confirm("Apply this?", "not applied")?;
    }
    request.digest = Some(seen.digest);
    let done = client.apply(&request, false).await.map_err(|error| located(error, &declared))?;
    if !json {
        show(&format!("applied: {}\n", done.summary));
    }
    if let Some(time) = args.wait {
        wait(connection, &done, time.get(), json).await?;
    }
    print(json, &done)
}

fn print(json: bool, response: &ApplyResponse) -> Result<(), Failed> {
    if json {
        show_json(response);
    }
    Ok(())
}

/// Waits for every declared object, changed or not, and for the pruned ones. One after the other, all within one time limit.
async fn wait(
    connection: &Connection,
    done: &ApplyResponse,
    time: Duration,
    quiet: bool,
) -> Result<(), Failed> {
    let (client, patience) = (connection.client()?, Patience::of(time));
    for result in &done.results {
        let object = (kind(&result.kind)?, result.name.as_str());
        let goal = match (result.action, result.generation) {
            (ApplyAction::Deleted, _) | (_, None) => Goal::Gone,
            (_, Some(generation)) => Goal::Holds(Condition::READY.to_owned(), generation),
        };
        until(&client, object, goal, patience, quiet).await?;
    }
    Ok(())
}

/// The refusal, with places in files in place of pointers into the request.
fn located(error: ClientError, declared: &[Declared]) -> Failed {
    match error {
        ClientError::Problem(problem) if !problem.errors.is_empty() => {
            Failed::Words(refusal(&problem, declared))
        }
        other => other.into(),
    }
}

fn refusal(problem: &Problem, declared: &[Declared]) -> String {
    let mut text = format!("{}; nothing was changed", problem.title);
    for FieldError { pointer, message, hint, .. } in &problem.errors {
        let place = plan::place(pointer, declared);
        text.push_str(&format!("\n  {place}: {message}"));
        if let Some(hint) = hint.as_deref().filter(|hint| !hint.is_empty()) {
            text.push_str(&format!(" ({hint})"));
        }
    }
    text
}
