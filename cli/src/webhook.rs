//! `basalt webhook`: deliveries of a webhook, and its dead letters.

use basalt_api::values::Uid;
use basalt_api::wire::{DeliveryInfo, DeliveryState};

use crate::confirm::confirm;
use crate::dry_run;
use crate::output::{line, show, show_json};
use crate::region::{Connection, Failed};
use crate::subject::webhook;

/// Arguments of `basalt webhook`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show deliveries, the newest event first
    Deliveries {
        /// The Webhook
        #[arg(value_parser = webhook)]
        name: String,
        /// Only deliveries in this state
        #[arg(long, value_parser = ["pending", "delivered", "dead"])]
        state: Option<String>,
        /// text for people, json for programs
        #[arg(long, short, default_value = "text", value_parser = ["text", "json"])]
        output: String,
    },
    /// Send dead letters again: one, or all
    Redeliver {
        /// The Webhook
        #[arg(value_parser = webhook)]
        name: String,
        /// The id of one dead letter; all without it
        id: Option<Uid>,
    },
    /// Delete dead letters: one, or all
    Discard {
        /// The Webhook
        #[arg(value_parser = webhook)]
        name: String,
        /// The id of one dead letter; all without it
        id: Option<Uid>,
        /// Delete nothing, and say what would happen
        #[arg(long)]
        dry_run: bool,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
}

/// Runs the command.
pub(crate) async fn run(args: Args, connection: &Connection) -> Result<(), Failed> {
    let client = connection.client()?;
    match args.command {
        Command::Deliveries { name, state, output } => {
            let state = state.as_deref().map(DeliveryState::parse);
            let mut found = client.deliveries(&name, state, None).await?;
            while let Some(after) = found.next.take() {
                let more = client.deliveries(&name, state, Some(&after)).await?;
                found.items.extend(more.items);
                found.next = more.next;
            }
            if output == "json" {
                show_json(&found);
            } else if found.items.is_empty() {
                show(&format!("webhook {name} has no such delivery\n"));
            } else {
                show(&found.items.iter().map(row).collect::<String>());
            }
        }
        Command::Redeliver { name, id } => {
            let again = client.redeliver(&name, id).await?;
            show(&format!("{} of webhook {name} sent again\n", letters(again.deliveries)));
        }
        Command::Discard { name, id, dry_run, yes } => {
            if dry_run || !yes {
                show(&dry_run::shown(&client.discard_dry_run(&name, id).await?));
            }
            if dry_run {
                return Ok(());
            }
            if !yes {
                confirm("Delete them?", "nothing was deleted")?;
            }
            let gone = client.discard(&name, id).await?;
            show(&format!("{} of webhook {name} deleted\n", letters(gone.deliveries)));
        }
    }
    Ok(())
}

fn letters(count: u64) -> String {
    format!("{count} dead {}", if count == 1 { "letter" } else { "letters" })
}

/// One delivery as a line: when, its id, its state, the event, and the error.
fn row(it: &DeliveryInfo) -> String {
    let at = it.at.strftime("%Y-%m-%d %H:%M:%S");
    let error = it.error.as_deref().map(|error| format!("  {}", line(error))).unwrap_or_default();
    let (state, object) = (it.state.as_str(), format!("{} {}", it.kind, it.name));
    format!("{at}  {}  {state:9}  {:8}  {}{error}\n", it.id, it.event, line(&object))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_line_has_the_id_that_other_commands_take_and_the_reason() {
        let letter = json!({"id": "0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6e", "state": "dead", "event": "deleted",
            "at": "2026-01-31T12:00:00Z", "sequence": 7, "kind": "Zone", "name": "hall",
            "uid": "0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6f", "attempts": 9, "error": "answered 500\nagain"});
        let letter: DeliveryInfo = serde_json::from_value(letter).unwrap();
        assert_eq!(
            row(&letter),
            "2026-01-31 12:00:00  0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6e  dead       deleted   Zone hall  answered 500<U+000A>again\n"
        );
    }
}
