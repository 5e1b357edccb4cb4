//! `basalt get`: what is declared and how it is.

use std::borrow::Cow;

use basalt_api::Object;
use basalt_api::client::ListOptions;
use basalt_api::kinds::{Condition, ConditionStatus};
use serde_json::Value;

use crate::output::{line, show, show_json};
use crate::region::{Connection, Failed, kind};
use crate::watch::{self, Shown};

/// Arguments of `basalt get`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Kind: machines, deployments, racks, …
    kind: String,
    /// One object; all of the kind without it
    name: Option<String>,
    /// Only those in which some text contains this: a name, an address, a MAC, a serial number
    #[arg(long, short, conflicts_with_all = ["name", "watch"])]
    search: Option<String>,
    /// Only those with this label; can be given several times
    #[arg(long, short, value_name = "KEY=VALUE", value_parser = label, conflicts_with_all = ["name", "watch"])]
    label: Vec<(String, String)>,
    /// table for people, json for programs
    #[arg(long, short, default_value = "table", value_parser = ["table", "json"])]
    output: String,
    /// Go on showing what changes, until interrupted
    #[arg(long, short)]
    watch: bool,
}

/// Runs the command.
pub(crate) async fn run(args: Args, connection: &Connection) -> Result<(), Failed> {
    let (client, kind) = (connection.client()?, kind(&args.kind)?);
    if args.watch {
        return watch::follow(&client, kind, args.name.as_deref(), Shown::of(&args.output)).await;
    }
    let objects = match &args.name {
        Some(name) => vec![client.get(kind, name).await?],
        None => {
            let labels = args.label.into_iter().collect();
            let options = ListOptions { labels, text: args.search, ..ListOptions::default() };
            client.list_all(kind, &options).await?
        }
    };
    if args.output == "json" {
        match (&args.name, objects.as_slice()) {
            (Some(_), [one]) => show_json(one),
            _ => show_json(&objects),
        }
        return Ok(());
    }
    let mut rows = vec![["NAME", "PHASE", "READY", "WHAT IT DOES OR WAITS FOR"].map(str::to_owned)];
    rows.extend(objects.iter().map(row));
    show(&table(&rows));
    Ok(())
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("a label is KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

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

/// Columns as wide as their longest cell; the last one as it is. A cell is one printable line.
pub(crate) fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let rows: Vec<[Cow<'_, str>; N]> =
        rows.iter().map(|row| std::array::from_fn(|column| line(&row[column]))).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let mut cells = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            cells.push_str(&format!("{cell:width$}  "));
        }
        text.push_str(cells.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_end_where_their_text_ends() {
        let rows = [["NAME".to_owned(), "PHASE".to_owned()], ["web-server".to_owned(), "Ready".to_owned()]];
        assert_eq!(table(&rows), "NAME        PHASE\nweb-server  Ready\n");
    }

    #[test]
    fn a_cell_cannot_forge_a_row_nor_move_the_cursor() {
        let rows = [["a".to_owned(), "x\nb  Ready\u{1b}[A".to_owned()]];
        assert_eq!(table(&rows), "a  x<U+000A>b  Ready<U+001B>[A\n");
    }
}
