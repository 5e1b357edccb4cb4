//! `basalt get`: declarations and states of objects.
//!
//! | module | is |
//! | --- | --- |
//! | [`columns`] | which columns people need, kind by kind |
//! | [`output`] | tables, JSON, YAML, names, columns that somebody names |
//! | [`addresses`] | `get addresses`, `get leases` |
//! | [`settings`] | `get settings`: what is in force, and what of it is a default |

mod addresses;
mod columns;
pub(crate) mod output;
mod settings;

pub(crate) use output::{table, yaml};

use std::collections::BTreeSet;

use basalt_api::client::{Client, ListOptions};
use basalt_api::kinds::{Condition, ConditionStatus};
use basalt_api::values::Name;
use basalt_api::{Kind, Object};
use serde_json::Value;

use crate::output::say;
use crate::region::{Connection, Failed, kind};
use crate::subject::{Suggest, kinds, subnet};
use crate::watch::{self, Shown};
use output::Output;

/// Arguments of `basalt get`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A kind, and names for some of its objects; or KIND/NAME, several of them; or addresses, or leases
    #[arg(
        required = true,
        value_name = "WHAT",
        value_parser = Suggest(words),
        hide_possible_values = true
    )]
    what: Vec<String>,
    /// Only those in which some text contains this: a name, a MAC, a serial number. An IP address also finds the Machine or Device that has it
    #[arg(long, short, conflicts_with = "watch")]
    search: Option<String>,
    /// Only those that fit this filter, as in 'zone:row-1 cores>=32 status:waiting'; spec.FIELD and status.FIELD are keys as well
    #[arg(long = "where", short = 'f', value_name = "FILTER", conflicts_with = "watch")]
    filter: Option<String>,
    /// Only those with this label; can be given several times
    #[arg(long, short, value_name = "KEY=VALUE", value_parser = label, conflicts_with = "watch")]
    label: Vec<(String, String)>,
    /// Only addresses or leases in this Subnet
    #[arg(long, value_name = "NAME", value_parser = subnet)]
    subnet: Option<String>,
    /// table or wide for people, json or yaml for programs, name, or custom-columns=HEAD:PATH,… as in ZONE:spec.zone
    #[arg(long, short, default_value = "table", value_parser = Suggest(output::words), hide_possible_values = true)]
    output: String,
    /// Go on showing what changes, until interrupted
    #[arg(long, short)]
    watch: bool,
}

impl Args {
    /// Says if they choose among all of a kind.
    fn chooses(&self) -> bool {
        self.search.is_some() || self.filter.is_some() || !self.label.is_empty()
    }
}

/// Words for the completion of a shell.
fn words() -> Vec<&'static str> {
    [kinds(), addresses::WORDS.to_vec()].concat()
}

/// A kind, and the names of the wanted objects. No names: all objects of the kind.
type Wanted<'a> = (&'static Kind, Vec<&'a str>);

/// Runs the command.
pub(crate) async fn run(args: Args, connection: &Connection) -> Result<(), Failed> {
    let output = Output::parse(&args.output)?;
    let (first, rest) = args.what.split_first().ok_or_else(|| Failed::Words("name a kind".into()))?;
    if addresses::WORDS.contains(&first.as_str()) {
        if args.watch || args.chooses() {
            let words = format!(
                "get {first} takes addresses and --subnet, and not --watch, --search, --where or --label"
            );
            return Err(Failed::Words(words));
        }
        return addresses::show(&connection.client()?, (first, rest), args.subnet, &output).await;
    }
    if args.subnet.is_some() {
        return Err(Failed::Words("--subnet is for `basalt get addresses` and `basalt get leases`".into()));
    }
    let wanted = wanted(&args.what)?;
    if let Output::Columns(columns) = &output {
        wanted.iter().try_for_each(|(kind, _)| output::check(kind, columns))?;
    }
    let client = connection.client()?;
    let is_named = wanted.iter().any(|(_, names)| !names.is_empty());
    if is_named && args.chooses() {
        return Err(Failed::Words(
            "--search, --where and --label choose among all of a kind; leave out the names".into(),
        ));
    }
    if args.watch {
        return match wanted.as_slice() {
            [(kind, names)] if names.len() < 2 => {
                watch::follow(&client, kind, names.first().copied(), Shown::of(&args.output)).await
            }
            _ => Err(Failed::Words("--watch follows one kind or one object; see also `basalt watch`".into())),
        };
    }
    let options = ListOptions {
        labels: args.label.into_iter().collect(),
        text: args.search,
        filter: args.filter,
        ..ListOptions::default()
    };
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for (kind, names) in &wanted {
        let objects = match names.is_empty() {
            true => settings::or_defaults(kind, all(&client, kind, &options).await?),
            false => some(&client, kind, names, &mut missing).await?,
        };
        found.push((*kind, objects));
    }
    output::show(&client, &found, is_named, &output).await?;
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Failed::Words(missing.join("; "))),
    }
}

/// All objects of a kind that fit. An IP address as text also finds the Machines and Devices that hold it by a lease, an IpAddress or a
/// Deployment: their own fields need not have it.
async fn all(client: &Client, kind: &'static Kind, options: &ListOptions) -> Result<Vec<Object>, Failed> {
    let mut found = client.list_all(kind, options).await?;
    let text = options.text.as_deref().unwrap_or_default();
    if let (Ok(address), "Machine" | "Device") = (text.parse(), kind.name) {
        let holders = addresses::holders(client, kind, address).await?;
        let missing = |name: &Name| !found.iter().any(|object| object.metadata.name == *name);
        let holders: BTreeSet<Name> = holders.into_iter().filter(missing).collect();
        if !holders.is_empty() {
            let options = ListOptions { text: None, ..options.clone() };
            let others = client.list_all(kind, &options).await?;
            found.extend(others.into_iter().filter(|object| holders.contains(&object.metadata.name)));
        }
    }
    Ok(found)
}

/// The objects with these names. Names without an object are added to `missing`.
async fn some(
    client: &Client,
    kind: &'static Kind,
    names: &[&str],
    missing: &mut Vec<String>,
) -> Result<Vec<Value>, Failed> {
    let mut objects = Vec::new();
    for name in names {
        match client.get(kind, name).await {
            Ok(object) => objects.push(output::value(&object)),
            Err(error) if error.is_not_found() && !settings::is_one(kind, name) => {
                missing.push(error.to_string())
            }
            Err(error) if error.is_not_found() => objects.push(settings::unset(kind)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(objects)
}

/// The kinds and names in the words. Consecutive objects of one kind form one table.
fn wanted(words: &[String]) -> Result<Vec<Wanted<'_>>, Failed> {
    let mut wanted: Vec<Wanted<'_>> = Vec::new();
    for (place, word) in words.iter().enumerate() {
        match (word.split_once('/'), wanted.last_mut()) {
            (Some((of, name)), last) => {
                let kind = kind(of)?;
                match last {
                    Some((before, names)) if before.name == kind.name => names.push(name),
                    _ => wanted.push((kind, vec![name])),
                }
            }
            (None, _) if place == 0 => wanted.push((kind(word)?, Vec::new())),
            (None, Some((_, names))) => names.push(word),
            (None, None) => {}
        }
    }
    Ok(wanted)
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("a label is KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Name, phase, readiness, and the present work or wait.
pub(crate) fn row(object: &Object) -> [String; 4] {
    let status = object.common_status();
    let ready = status.condition(Condition::READY);
    let word = match ready.map(|condition| condition.status) {
        Some(ConditionStatus::True) => "yes",
        Some(ConditionStatus::False) => "no",
        _ => "?",
    };
    let phase = object.status.get("phase").and_then(Value::as_str).unwrap_or("-");
    let message = ready.map(|condition| condition.message.clone()).unwrap_or_default();
    [object.metadata.name.to_string(), phase.to_owned(), word.to_owned(), message]
}

/// Reports that there is none.
fn none(of: &str) {
    say(&format!("there are no {of}"));
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::Json;
    use axum::extract::Request;
    use axum::response::IntoResponse;
    use serde_json::json;

    use super::*;
    use crate::stand_in;

    fn said(words: &[&str]) -> Result<Vec<String>, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let wanted = wanted(&words).map_err(|error| error.to_string())?;
        Ok(wanted.into_iter().map(|(kind, names)| format!("{} {}", kind.name, names.join(","))).collect())
    }

    #[test]
    fn names_follow_their_kind_or_stand_behind_it() {
        assert_eq!(said(&["machines"]).unwrap(), ["Machine "]);
        assert_eq!(said(&["machine", "a", "b"]).unwrap(), ["Machine a,b"]);
        assert_eq!(said(&["machine/a", "machine/b", "zone/c"]).unwrap(), ["Machine a,b", "Zone c"]);
        assert_eq!(said(&["machine/a", "b"]).unwrap(), ["Machine a,b"]);
        assert!(said(&["nope"]).unwrap_err().starts_with("there is no kind \"nope\""));
    }

    #[tokio::test]
    async fn a_filter_goes_to_the_region_and_chooses_among_all() {
        let answers = |request: &Request| {
            assert_eq!(request.uri().path(), "/api/v1/machines");
            assert_eq!(request.uri().query(), Some("where=zone%3Arow-1+cores%3E%3D32"));
            Json(json!({"items": [], "position": "x:1"})).into_response()
        };
        stand_in::run(&["get", "machines", "--where", "zone:row-1 cores>=32"], answers).await.unwrap();
        let refused =
            stand_in::run(&["get", "machines", "web1", "--where", "web"], answers).await.unwrap_err();
        assert!(refused.to_string().contains("leave out the names"), "{refused}");
    }

    #[tokio::test]
    async fn an_address_finds_the_machine_whose_lease_it_is() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let answers = move |request: &Request| {
            let uri = request.uri().to_string();
            seen.lock().unwrap().push(uri.clone());
            let items = match uri.as_str() {
                "/api/v1/machines?labels=row%3D7&q=10.77.0.100" => json!([]),
                "/api/v1/addresses?address=10.77.0.100" => json!([
                    {"address": "10.77.0.100", "subnet": "lab", "source": "lease", "machine": "row-1", "rack": "r1"},
                ]),
                "/api/v1/machines?labels=row%3D7" => json!([stand_in::zone("Ready")]),
                other => panic!("{other} is asked"),
            };
            Json(json!({"items": items, "position": "x:1"})).into_response()
        };
        stand_in::run(&["get", "machines", "-s", "10.77.0.100", "-l", "row=7"], answers).await.unwrap();
        assert_eq!(asked.lock().unwrap().len(), 3, "{asked:?}");
        let texts = |request: &Request| {
            assert_eq!(request.uri().to_string(), "/api/v1/machines?q=10.77");
            Json(json!({"items": [], "position": "x:1"})).into_response()
        };
        stand_in::run(&["get", "machines", "-s", "10.77"], texts).await.unwrap();
    }
}
