//! `basalt watch`, `basalt get --watch`: prints each change as a line, until interrupted.

use std::collections::BTreeMap;

use basalt_api::client::{Client, WatchOptions};
use basalt_api::watch::{Event, What};
use basalt_api::{Kind, Object};
use serde_json::{Value, json};

use crate::get::row;
use crate::output::{line, show, show_exactly};
use crate::region::{Connection, Failed, kind};

/// Arguments of `basalt watch`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Kinds, comma-separated: machines,deployments; every kind without it. Or one object, KIND/NAME
    #[arg(value_name = "KINDS", value_delimiter = ',')]
    words: Vec<String>,
    /// Only objects with these labels: env=lab,row=1
    #[arg(long, short = 'l', value_name = "LABELS", value_delimiter = ',', value_parser = label)]
    labels: Vec<(String, String)>,
    /// Go on from this position, which the output of json names
    #[arg(long, value_name = "POSITION")]
    since: Option<String>,
    /// text for people; json for programs, an event a line
    #[arg(long, short, default_value = "text", value_parser = ["text", "json"])]
    output: String,
}

/// Format of the printed events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// Text for people.
    Text,
    /// JSON for programs.
    Json,
}

impl Shown {
    /// The format for the value of `--output`.
    pub(crate) fn of(output: &str) -> Self {
        if output == "json" { Self::Json } else { Self::Text }
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("a label is key=value")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Runs the command.
pub(crate) async fn run(args: Args, connection: &Connection) -> Result<(), Failed> {
    let shown = Shown::of(&args.output);
    if let Some((word, name)) = args.words.iter().find_map(|word| word.split_once('/')) {
        if args.words.len() > 1 || args.since.is_some() || !args.labels.is_empty() {
            return Err(Failed::Words(format!(
                "{word}/{name} is one object: leave out other words, --since and --labels"
            )));
        }
        return follow(&connection.client()?, kind(word)?, Some(name), shown).await;
    }
    let kinds = args.words.iter().map(|word| kind(word)).collect::<Result<_, _>>()?;
    let options = WatchOptions {
        kinds,
        labels: args.labels.into_iter().collect::<BTreeMap<_, _>>(),
        since: args.since,
    };
    watch(&connection.client()?, options, None, shown).await
}

/// Prints the present objects, and then their changes.
pub(crate) async fn follow(
    client: &Client,
    kind: &'static Kind,
    name: Option<&str>,
    shown: Shown,
) -> Result<(), Failed> {
    let labels = BTreeMap::new();
    let (objects, since) = client.list_to_watch(kind, &labels).await?;
    for object in
        objects.iter().filter(|object| name.is_none_or(|name| object.metadata.name.as_str() == name))
    {
        match shown {
            Shown::Text => show(&of(object)),
            Shown::Json => show_exactly(&format!("{}\n", json!({"event": "put", "object": object}))),
        }
    }
    watch(client, WatchOptions { kinds: vec![kind], labels, since }, name, shown).await
}

async fn watch(
    client: &Client,
    options: WatchOptions,
    name: Option<&str>,
    shown: Shown,
) -> Result<(), Failed> {
    let mut watch = client.watch(options);
    loop {
        let event = watch.next().await?;
        if name.is_none_or(|name| name_of(&event) == Some(name)) {
            match shown {
                Shown::Text => show(&text(&event)),
                Shown::Json => show_exactly(&format!("{}\n", value(&event))),
            }
        }
    }
}

fn name_of(event: &Event) -> Option<&str> {
    match &event.what {
        What::Put(object) => Some(object.metadata.name.as_str()),
        What::Delete(gone) => Some(gone.metadata.name.as_str()),
        What::Bookmark | What::Cut(_) => None,
    }
}

fn text(event: &Event) -> String {
    match &event.what {
        What::Put(object) => of(object),
        What::Delete(gone) => format!("{} {}  gone\n", gone.kind, gone.metadata.name),
        What::Bookmark | What::Cut(_) => String::new(),
    }
}

fn of(object: &Object) -> String {
    let [name, phase, ready, message] = row(object);
    let generation = object.metadata.generation;
    let message = line(&message);
    format!("{} {name}  generation {generation}  {phase}  ready: {ready}  {message}\n", object.kind)
}

fn value(event: &Event) -> Value {
    let position = &event.position;
    match &event.what {
        What::Put(object) => json!({"event": "put", "position": position, "object": object}),
        What::Delete(gone) => json!({"event": "delete", "position": position, "object": gone}),
        What::Bookmark => json!({"event": "bookmark", "position": position}),
        What::Cut(cut) => json!({"event": "cut", "position": position, "cut": cut}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_api::watch::{Gone, GoneMetadata};

    #[test]
    fn a_deletion_is_a_line_for_people_and_an_object_for_programs() {
        let metadata = GoneMetadata {
            name: "row-1".parse().unwrap(),
            uid: "0197d3c4-5f6a-7b8c-9d0e-1f2a3b4c5d6e".parse().unwrap(),
        };
        let event = Event {
            position: "a:7".to_owned(),
            what: What::Delete(Gone { kind: "Zone".to_owned(), metadata }),
        };
        assert_eq!(text(&event), "Zone row-1  gone\n");
        assert_eq!(value(&event)["object"]["metadata"]["name"], "row-1");
        assert_eq!(name_of(&event), Some("row-1"));
    }
}
