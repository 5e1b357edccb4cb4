//! Output formats: a table, a wide table, JSON, YAML, names, or columns that a person names.

use std::borrow::Cow;
use std::collections::BTreeMap;

use basalt_api::client::{Client, ListOptions};
use basalt_api::kinds::{Deployment, Machine};
use basalt_api::{Kind, KindOf, Object, ProblemCode};
use serde::Serialize;
use serde_json::Value;

use super::{columns, none, settings};
use crate::output::{line, show as print, show_exactly, show_json};
use crate::region::Failed;

/// Prefix of an output format with named columns.
const COLUMNS: &str = "custom-columns=";

/// An output format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// The default columns of the kind.
    Table,
    /// Every column of the kind.
    Wide,
    /// The objects in the API's JSON form.
    Json,
    /// The objects in YAML, for programs and for `basalt apply`.
    Yaml,
    /// `KIND/NAME`, a line each.
    Name,
    /// Headings and paths, as in `ZONE:spec.zone`.
    Columns(Vec<(String, String)>),
}

/// Words for the completion of a shell.
pub(super) fn words() -> Vec<&'static str> {
    vec!["table", "wide", "json", "yaml", "name", COLUMNS]
}

impl Output {
    /// Parses the value of `--output`.
    pub(super) fn parse(text: &str) -> Result<Self, Failed> {
        match text {
            "table" => Ok(Self::Table),
            "wide" => Ok(Self::Wide),
            "json" => Ok(Self::Json),
            "yaml" => Ok(Self::Yaml),
            "name" => Ok(Self::Name),
            _ => {
                let named = text.strip_prefix(COLUMNS).ok_or_else(|| {
                    let known = "table, wide, json, yaml, name, custom-columns=HEAD:PATH,…";
                    Failed::Words(format!("there is no output {text:?}; there are {known}"))
                })?;
                let column = |word: &str| {
                    let (head, path) = word.split_once(':').filter(|(head, path)| {
                        !head.is_empty() && !path.trim_start_matches('.').is_empty()
                    })?;
                    Some((head.to_owned(), path.trim_start_matches('.').to_owned()))
                };
                let columns = named.split(',').map(|word| {
                    column(word).ok_or_else(|| {
                        let words = format!(
                            "{word:?} in custom-columns is no column: say HEAD:PATH, as in ZONE:spec.zone"
                        );
                        Failed::Words(words)
                    })
                });
                columns.collect::<Result<_, _>>().map(Self::Columns)
            }
        }
    }
}

/// Refuses columns for paths that no object of the kind can have.
pub(super) fn check(kind: &Kind, columns: &[(String, String)]) -> Result<(), Failed> {
    for (_, path) in columns {
        if !columns::is_member(kind, path) {
            return Err(Failed::Words(format!(
                "{path:?} in custom-columns is no member of a {}; `basalt get {} -o yaml` shows what there is",
                kind.name, kind.plural
            )));
        }
    }
    Ok(())
}

/// An object in the API's JSON form.
pub(super) fn value(object: &Object) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

/// Prints objects, kind by kind.
pub(super) async fn show(
    client: &Client,
    found: &[(&'static Kind, Vec<Value>)],
    is_named: bool,
    output: &Output,
) -> Result<(), Failed> {
    let all: Vec<&Value> = found.iter().flat_map(|(_, objects)| objects).collect();
    match output {
        Output::Json => match all.as_slice() {
            [one] if is_named => show_json(one),
            _ => show_json(&all),
        },
        Output::Yaml => show_exactly(&yaml(&all)?),
        Output::Name => print(&names(found)),
        Output::Columns(named) => {
            let heads: Vec<String> = named.iter().map(|(head, _)| head.clone()).collect();
            let cells = |object: &&Value| named.iter().map(|(_, path)| columns::at(object, path)).collect();
            let rows: Vec<Vec<String>> = [heads].into_iter().chain(all.iter().map(cells)).collect();
            print(&table(&rows));
        }
        Output::Table | Output::Wide => {
            let mut tables = Vec::new();
            for (kind, objects) in found {
                if objects.is_empty() && !is_named {
                    none(&kind.plural.replace('_', " "));
                    continue;
                }
                tables.push(match settings::is_settings(kind) {
                    true => objects.iter().map(|object| settings::table(kind, object)).collect(),
                    false => {
                        let images = images(client, kind, objects).await?;
                        table(&columns::rows(kind, objects, &images, *output == Output::Wide))
                    }
                });
            }
            print(&tables.join("\n"));
        }
    }
    Ok(())
}

/// YAML documents that `basalt apply` accepts.
pub(crate) fn yaml(values: &[impl Serialize]) -> Result<String, Failed> {
    let mut text = String::new();
    for (place, value) in values.iter().enumerate() {
        if place > 0 {
            text.push_str("---\n");
        }
        let document = serde_saphyr::to_string(value);
        text.push_str(
            &document.map_err(|error| Failed::Words(format!("it cannot be written as YAML: {error}")))?,
        );
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    Ok(text)
}

fn names(found: &[(&'static Kind, Vec<Value>)]) -> String {
    let of_kind = |(kind, objects): &(&'static Kind, Vec<Value>)| {
        let name = |object: &Value| format!("{}/{}\n", kind.singular(), columns::at(object, "metadata.name"));
        objects.iter().map(name).collect::<String>()
    };
    found.iter().map(of_kind).collect()
}

/// The image of each deployment on these machines. Empty for a caller that may not read deployments.
async fn images(client: &Client, kind: &Kind, objects: &[Value]) -> Result<BTreeMap<String, String>, Failed> {
    /// Most deployments that are requested one by one.
    const FEW: usize = 10;
    let mut names: Vec<&str> =
        objects.iter().filter_map(|it| it.pointer("/status/deployment")?.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    if kind.name != Machine::NAME || names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let deployments = match names.len() > FEW {
        true => client.list_all(Deployment::KIND, &ListOptions::default()).await,
        false => {
            let mut found = Vec::new();
            for name in names {
                found.push(client.find(Deployment::KIND, name).await);
            }
            found.into_iter().filter_map(Result::transpose).collect()
        }
    };
    let deployments = match deployments {
        Err(error) if error.code() == Some(ProblemCode::Forbidden) => Vec::new(),
        other => other?,
    };
    let image = |it: Object| Some((it.metadata.name.to_string(), it.spec.get("image")?.as_str()?.to_owned()));
    Ok(deployments.into_iter().filter_map(image).collect())
}

/// A table. Each column except the last is as wide as its longest cell. A cell is one printable line.
pub(crate) fn table<R: AsRef<[String]>>(rows: &[R]) -> String {
    let rows: Vec<Vec<Cow<'_, str>>> =
        rows.iter().map(|row| row.as_ref().iter().map(|cell| line(cell)).collect()).collect();
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
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
    use serde_json::json;

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

    #[test]
    fn an_output_that_is_not_known_is_told_with_those_that_are() {
        let columns = Output::parse("custom-columns=NAME:.metadata.name,ZONE:spec.zone").unwrap();
        let wanted = [("NAME", "metadata.name"), ("ZONE", "spec.zone")];
        let wanted = wanted.map(|(head, path)| (head.to_owned(), path.to_owned())).to_vec();
        assert_eq!(columns, Output::Columns(wanted));
        let refused = |text: &str| Output::parse(text).unwrap_err().to_string();
        assert!(refused("xml").contains("there is no output \"xml\"; there are table, wide"));
        for wrong in
            ["custom-columns=", "custom-columns=NAME", "custom-columns=NAME:", "custom-columns=A:spec,"]
        {
            assert!(refused(wrong).contains("say HEAD:PATH"), "{wrong}");
        }
        let check = |path: &str| check(Machine::KIND, &[("X".to_owned(), path.to_owned())]);
        assert!(check("spec.zoen").unwrap_err().to_string().contains("is no member of a Machine"));
        check("status.inventory.cpu.cores").unwrap();
    }

    #[test]
    fn names_are_written_as_other_commands_take_them() {
        let named = |name: &str| json!({"metadata": {"name": name}});
        let found = [(Machine::KIND, vec![named("a"), named("b")]), (Deployment::KIND, vec![named("web")])];
        assert_eq!(names(&found), "machine/a\nmachine/b\ndeployment/web\n");
    }

    #[test]
    fn yaml_reads_back_as_it_was_whatever_its_texts_look_like() {
        let text = "#cloud-config\nruncmd:\n  - echo \"1: two\"\n\n";
        let texts =
            ["off", "no", "1e3", "0x10", "~", "null", "- a", "a: b", "10.0", "", " x ", "2026-01-31", text];
        let values = [
            json!({"kind": "Zone", "spec": {"texts": texts, "on": true, "n": 7}}),
            json!({"a": null, "b": {}}),
        ];
        let written = yaml(&values).unwrap();
        let read: Vec<Value> = serde_saphyr::from_multiple(&written).unwrap();
        assert_eq!(read, values, "{written}");
    }
}
