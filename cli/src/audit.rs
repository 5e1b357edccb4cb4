//! `basalt audit`: writes of objects, with their actors and addresses.

use basalt_api::Kind;
use basalt_api::client::AuditOptions;
use basalt_api::values::Timestamp;
use basalt_api::wire::AuditEntry;
use serde_json::Value;

use crate::get::table;
use crate::output::{say, show, show_json};
use crate::region::{Connection, Failed, kind};
use crate::subject::About;

/// Arguments of `basalt audit`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    about: About,
    /// Since then: 2026-01-31T12:00:00Z, or 30m, 12h, 7d ago
    #[arg(long)]
    since: Option<String>,
    /// By one actor: \"token NAME\", \"user NAME\", \"peer uid 0\"
    #[arg(long)]
    actor: Option<String>,
    /// The last so many
    #[arg(long, default_value_t = 50)]
    limit: u32,
    /// table for people, json for programs
    #[arg(long, short, default_value = "table", value_parser = ["table", "json"])]
    output: String,
}

/// Runs the command.
pub(crate) async fn run(args: Args, connection: &Connection) -> Result<(), Failed> {
    let client = connection.client()?;
    let since = args.since.as_deref().map(|text| moment(text, Timestamp::now())).transpose()?;
    let object = args.about.filter()?;
    let mut options =
        AuditOptions { since, object: object.clone(), actor: args.actor, ..AuditOptions::default() };
    let mut entries = Vec::new();
    let mut left = args.limit;
    while left > 0 {
        options.limit = Some(left.min(500));
        let page = client.audit(&options).await?;
        left = left.saturating_sub(u32::try_from(page.items.len()).unwrap_or(u32::MAX));
        entries.extend(page.items);
        match page.next {
            Some(next) => options.next = Some(next),
            None => break,
        }
    }
    // The newest entry last, as in a log.
    entries.reverse();
    if args.output == "json" {
        show_json(&entries);
        return Ok(());
    }
    let of_all_time = options.since.is_none() && options.actor.is_none();
    if (entries.is_empty() && of_all_time)
        && let Some((kind, name)) = object.as_deref().and_then(named).transpose()?
        && let Err(error) = client.get(kind, name).await
    {
        return Err(match error.is_not_found() {
            true => Failed::Words(format!("there is no {} {name}, and nothing is logged of it", kind.name)),
            false => error.into(),
        });
    }
    if entries.is_empty() {
        say(&format!("nothing is logged of {}", object.as_deref().unwrap_or("that")));
    }
    let mut rows = vec![["WHEN", "WHO", "FROM", "WHAT", "OBJECT", "CHANGES"].map(str::to_owned)];
    rows.extend(entries.iter().map(row));
    show(&table(&rows));
    Ok(())
}

/// The object in the form KIND/NAME.
fn named(object: &str) -> Option<Result<(&'static Kind, &str), Failed>> {
    let (word, name) = object.split_once('/')?;
    Some(kind(word).map(|kind| (kind, name)))
}

/// Parses a point in time, or a duration before now.
pub(crate) fn moment(text: &str, now: Timestamp) -> Result<Timestamp, Failed> {
    let ago = |ago: basalt_api::values::Duration| now.checked_sub(ago.get()).ok();
    text.parse().ok().or_else(|| text.parse().ok().and_then(ago)).ok_or_else(|| {
        Failed::Words(format!("{text:?} is no time: write 2026-01-31T12:00:00Z, or 30m, 12h, 7d"))
    })
}

fn row(entry: &AuditEntry) -> [String; 6] {
    [
        entry.at.strftime("%Y-%m-%d %H:%M:%S").to_string(),
        entry.actor.clone(),
        entry.address.clone(),
        request(entry),
        format!("{}/{}", entry.kind, entry.name),
        changes(entry),
    ]
}

/// The request, with the object's name in its path.
fn request(entry: &AuditEntry) -> String {
    let plural = Kind::find(&entry.kind).map_or("{plural}", |kind| kind.plural);
    entry.request.replace("{plural}", plural).replace("{name}", &entry.name)
}

/// The changed fields of a spec by name. If no field of the spec changed: the other changes with their new values. For an entry without a
/// known kind or earlier spec: its content.
fn changes(entry: &AuditEntry) -> String {
    let kind = Kind::find(&entry.kind);
    match (kind, &entry.before, &entry.after) {
        (Some(kind), Some(before), Some(after)) => {
            let changed = basalt_api::diff(kind, before, after);
            let fields: Vec<_> = changed.iter().map(|c| c.pointer.trim_start_matches('/')).collect();
            if fields.is_empty() { beside(before, after) } else { fields.join(", ") }
        }
        (Some(_), Some(_), None) => "asked to go".to_owned(),
        (_, _, Some(after)) if entry.uid.is_none() || entry.request.starts_with("POST") => after.to_string(),
        (_, None, Some(_)) => "created".to_owned(),
        _ => String::new(),
    }
}

/// Changes outside of the spec: a name, a layer, a token.
fn beside(before: &Value, after: &Value) -> String {
    let changed = after.as_object().into_iter().flatten().filter(|(key, now)| before.get(key) != Some(*now));
    let said: Vec<_> = changed.map(|(key, now)| format!("{key}: {now}")).collect();
    if said.is_empty() { "nothing".to_owned() } else { said.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stand_in;
    use axum::http::{StatusCode, header};
    use axum::response::IntoResponse;
    use basalt_api::{Problem, ProblemCode};
    use serde_json::json;

    fn entry(before: Value, after: Value) -> AuditEntry {
        serde_json::from_value(json!({
            "at": "2026-01-31T12:00:00Z", "actor": "token ci", "address": "127.0.0.1",
            "request": "PUT /api/v1/{plural}/{name}", "kind": "Zone", "name": "a",
            "uid": "0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6e", "before": before, "after": after,
        }))
        .unwrap()
    }

    #[test]
    fn a_row_names_the_fields_that_changed() {
        assert_eq!(changes(&entry(json!({}), json!({"description": "x"}))), "description");
        assert_eq!(changes(&entry(json!({}), json!({}))), "nothing");
        assert_eq!(changes(&entry(json!({"name": "a"}), json!({"name": "b"}))), r#"name: "b""#);
        assert_eq!(changes(&entry(json!(null), json!({}))), "created");
        assert_eq!(changes(&entry(json!({}), json!(null))), "asked to go");
        let row = row(&entry(json!({}), json!({})));
        assert_eq!((row[3].as_str(), row[4].as_str()), ("PUT /api/v1/zones/a", "Zone/a"));
    }

    #[tokio::test]
    async fn an_object_that_is_not_and_of_which_nothing_is_logged_is_said() {
        let answer = |request: &axum::extract::Request| {
            if request.uri().path() == "/api/v1/audit" {
                return axum::Json(json!({"items": []})).into_response();
            }
            let problem = Problem::new(ProblemCode::NotFound, "there is no such Machine");
            let kind = [(header::CONTENT_TYPE, "application/problem+json")];
            (StatusCode::NOT_FOUND, kind, serde_json::to_string(&problem).unwrap()).into_response()
        };
        let failed = stand_in::run(&["audit", "Machine/nope"], answer).await.unwrap_err().to_string();
        assert_eq!(failed, "there is no Machine nope, and nothing is logged of it");
        let failed = stand_in::run(&["audit", "Nope/x"], answer).await.unwrap_err().to_string();
        assert!(failed.starts_with("there is no kind \"Nope\"; there are "), "{failed}");
        stand_in::run(&["audit"], answer).await.unwrap();
    }

    #[test]
    fn since_is_a_time_or_how_long_ago() {
        let now: Timestamp = "2026-01-31T12:00:00Z".parse().unwrap();
        assert_eq!(moment("2h", now).unwrap().to_string(), "2026-01-31T10:00:00Z");
        assert_eq!(moment("2026-01-01T00:00:00Z", now).unwrap().to_string(), "2026-01-01T00:00:00Z");
        assert!(moment("yesterday", now).is_err());
    }
}
