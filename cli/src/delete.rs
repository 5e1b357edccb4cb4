//! `basalt delete`: shows the effects of a deletion, asks, and makes the region delete exactly this object.

use basalt_api::client::DeleteOptions;

use crate::confirm::confirm;
use crate::dry_run;
use crate::output::show;
use crate::region::{Connection, Failed};
use crate::subject::Subject;
use crate::wait::{Goal, Patience, until};

/// Arguments of `basalt delete`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    subject: Subject,
    /// Wait for nothing: a deployment's machine is let go as it is, unwiped, and given to nobody
    #[arg(long)]
    force: bool,
    /// Leave it as it is where anybody refers to it, instead of waiting for them
    #[arg(long, conflicts_with = "force")]
    if_unused: bool,
    /// Also if another tool manages it
    #[arg(long)]
    adopt: bool,
    /// Only say what would happen
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Wait until it is gone, for so long: 90s, 45m
    #[arg(long, value_name = "TIME", conflicts_with = "dry_run")]
    wait: Option<basalt_api::values::Duration>,
}

/// Runs the command.
pub(crate) async fn run(args: Args, connection: &Connection) -> Result<(), Failed> {
    let (kind, name) = args.subject.object()?;
    let client = connection.client()?;
    let Args { force, if_unused, adopt, .. } = args;
    let options = |generation| DeleteOptions { generation, force, if_unused, adopt };
    let dry = client.delete_dry_run(kind, name, options(None)).await?;
    show(&dry_run::shown(&dry));
    if args.dry_run {
        return Ok(());
    }
    if !args.yes {
        confirm("Delete it?", "not deleted")?;
    }
    // Only this generation is deleted: a later one was not shown.
    let shown = Some(dry.object.metadata.generation);
    let leaving = client.delete(kind, name, options(shown)).await?;
    match (leaving, args.wait) {
        (None, _) => show("deleted\n"),
        (Some(_), Some(time)) => {
            until(&client, (kind, name), Goal::Gone, Patience::of(time.get()), false).await?;
            show("deleted\n");
        }
        (Some(object), None) => {
            let status = object.common_status();
            let says = status.condition("Progressing").map(|it| it.message.clone()).unwrap_or_default();
            let says = says.trim_end_matches('.');
            let says = if says.is_empty() { String::new() } else { format!(": {says}") };
            show(&format!("it leaves{says}; `basalt wait {} {name} --for Deleted`\n", kind.singular()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::Json;
    use axum::http::{Method, StatusCode};
    use axum::response::IntoResponse;
    use serde_json::json;
    use std::sync::{Arc, Mutex};

    use crate::stand_in::{self, zone};

    #[tokio::test]
    async fn only_what_was_shown_is_deleted_and_a_dry_run_deletes_nothing() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        let plan = json!({"summary": "row-1 goes", "digest": "0".repeat(64), "blast_radius": {}});
        let dry = json!({"object": zone("Ready"), "plan": plan});
        let answer = move |request: &axum::extract::Request| {
            assert_eq!(request.method(), Method::DELETE);
            let query = request.uri().query().unwrap_or_default().to_owned();
            let tried = query.contains("dry_run");
            let only = request.headers().get("if-match").map(|tag| tag.to_str().unwrap().to_owned());
            seen.lock().unwrap().push((query, only));
            if tried { Json(&dry).into_response() } else { StatusCode::NO_CONTENT.into_response() }
        };
        stand_in::run(&["delete", "zone", "row-1", "--dry-run"], answer.clone()).await.unwrap();
        stand_in::run(&["delete", "zone", "row-1", "--yes"], answer).await.unwrap();
        let asked = asked.lock().unwrap().clone();
        assert_eq!(asked.len(), 3, "{asked:?}");
        assert_eq!(asked[2], (String::new(), Some("\"3\"".to_owned())), "the generation that was shown");
    }
}
