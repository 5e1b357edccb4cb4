//! `basalt events`: events of the region.

use basalt_api::client::EventOptions;
use basalt_api::values::Timestamp;
use basalt_api::wire::EventEntry;

use crate::audit::moment;
use crate::output::{line, say, show};
use crate::region::{Connection, Failed};
use crate::subject::About;

/// Events of a page.
const PAGE: u32 = 500;

/// Arguments of `basalt events`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    about: About,
    /// Since then: 2026-01-31T12:00:00Z, or 30m, 12h, 7d ago
    #[arg(long)]
    since: Option<String>,
    /// The last so many
    #[arg(long, default_value_t = 50)]
    limit: u32,
    /// Go on with new ones as they come, until interrupted
    #[arg(long, short)]
    follow: bool,
    /// text for people, json for programs: one object a line
    #[arg(long, short, default_value = "text", value_parser = ["text", "json"])]
    output: String,
}

/// Runs the command.
pub(crate) async fn run(args: Args, connection: &Connection) -> Result<(), Failed> {
    let client = connection.client()?;
    let since = args.since.as_deref().map(|text| moment(text, Timestamp::now())).transpose()?;
    let mut options = EventOptions {
        object: args.about.filter()?,
        since,
        limit: Some(args.limit.clamp(1, PAGE)),
        ..EventOptions::default()
    };
    let tell = |event: &EventEntry| match args.output.as_str() {
        "json" => show(&format!("{}\n", serde_json::to_string(event).unwrap_or_default())),
        _ => show(&format!("{}\n", in_words(event))),
    };
    if args.follow {
        let mut followed = client.follow_events(&options);
        loop {
            tell(&followed.next().await?);
        }
    }
    let mut events = Vec::new();
    let wanted = usize::try_from(args.limit).unwrap_or(usize::MAX);
    while events.len() < wanted {
        let page = client.events(&options).await?;
        events.extend(page.items);
        match page.next {
            Some(next) => options.next = Some(next),
            None => break,
        }
    }
    events.truncate(wanted);
    if events.is_empty() {
        say("nothing has happened");
    }
    // The newest event last, as in a log.
    events.iter().rev().for_each(tell);
    Ok(())
}

fn in_words(event: &EventEntry) -> String {
    let at = event.at.strftime("%Y-%m-%d %H:%M:%S");
    let why = event.detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default();
    line(&format!("{at}  {} {}  {}{why}  ({})", event.kind, event.name, event.words, event.actor))
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stand_in;
    use axum::Json;
    use axum::extract::Request;
    use axum::response::IntoResponse;
    use serde_json::json;

    #[test]
    fn an_event_is_a_line_with_its_reason_and_who_did_it() {
        let event = json!({"id": "7", "at": "2026-01-31T12:00:00Z", "sort": "stalled", "kind": "Machine", "name": "web1",
            "words": "is stuck: WrongPassword", "detail": "the BMC refuses it", "actor": "region"});
        let event: EventEntry = serde_json::from_value(event).unwrap();
        let wanted =
            "2026-01-31 12:00:00  Machine web1  is stuck: WrongPassword: the BMC refuses it  (region)";
        assert_eq!(in_words(&event), wanted);
    }

    #[tokio::test]
    async fn pages_are_read_until_there_are_as_many_as_were_asked_for() {
        let answers = |request: &Request| {
            let query = request.uri().query().unwrap_or_default();
            assert!(query.starts_with("object=machine%2Fweb1&limit=50"), "{query}");
            // The second page has no `next`, so it is the last.
            let next = (!query.contains("continue")).then_some("7");
            Json(json!({"items": [], "continue": next})).into_response()
        };
        stand_in::run(&["events", "machine/web1"], answers).await.unwrap();
    }
}
