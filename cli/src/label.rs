//! `basalt label`: labels and tags from this command, in addition to those of other managers.

use basalt_api::values::Tag;
use basalt_api::wire::{Layer, Layers};

use crate::output::show;
use crate::region::{Connection, Failed, MANAGER};
use crate::subject::Subject;

/// Arguments of `basalt label`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    subject: Subject,
    /// Labels to give, and to take: row=7 decommission-; none shows who gives which
    #[arg(value_name = "KEY=VALUE|KEY-")]
    labels: Vec<String>,
    /// Tag to give
    #[arg(long, value_name = "TAG")]
    tag: Vec<Tag>,
    /// Tag to take
    #[arg(long, value_name = "TAG")]
    untag: Vec<Tag>,
}

/// Runs the command.
pub(crate) async fn run(args: Args, connection: &Connection) -> Result<(), Failed> {
    let (kind, name, first) = args.subject.first()?;
    let labels: Vec<&str> = first.into_iter().chain(args.labels.iter().map(String::as_str)).collect();
    let client = connection.client()?;
    let mut layers = client.layers(kind, name).await?;
    if labels.is_empty() && args.tag.is_empty() && args.untag.is_empty() {
        show(&table(&layers));
        return Ok(());
    }
    let mut layer = layers.layers.remove(MANAGER).unwrap_or_default();
    for label in labels {
        change(&mut layer, label)?;
    }
    layer.tags.extend(args.tag);
    layer.tags.retain(|tag| !args.untag.contains(tag));
    client.put_layer(kind, name, MANAGER, layer.clone()).await?;
    layers.layers.insert(MANAGER.to_owned(), layer);
    show(&table(&layers));
    Ok(())
}

fn change(layer: &mut Layer, label: &str) -> Result<(), Failed> {
    match (label.split_once('='), label.strip_suffix('-')) {
        (Some((key, value)), _) => layer.labels.insert(key.to_owned(), value.to_owned()),
        (None, Some(key)) => layer.labels.remove(key),
        (None, None) => {
            let hint = "KEY=VALUE gives a label, KEY- takes one";
            return Err(Failed::Words(format!("{label:?} is no label; {hint}")));
        }
    };
    Ok(())
}

fn table(layers: &Layers) -> String {
    let mut text = String::new();
    for (manager, layer) in &layers.layers {
        let manager = if manager.is_empty() { "(nobody)" } else { manager };
        for (key, value) in &layer.labels {
            text.push_str(&format!("{manager:<16} {key}={value}\n"));
        }
        for tag in &layer.tags {
            text.push_str(&format!("{manager:<16} tag {tag}\n"));
        }
    }
    if text.is_empty() { "No labels, and no tags but those of its spec.\n".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_given_and_taken() {
        let mut layer = Layer::default();
        for label in ["row=7", "a=b=c", "old=1", "old-", "gone-"] {
            change(&mut layer, label).unwrap();
        }
        let labels: Vec<_> = layer.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(labels, ["a=b=c", "row=7"]);
        assert!(change(&mut layer, "row").unwrap_err().to_string().contains("KEY=VALUE"));
    }
}
