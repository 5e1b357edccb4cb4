//! `basalt edit`: opens an object's spec in an editor, and then changes the object like `basalt patch`.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use basalt_api::Kind;
use basalt_api::client::{PatchOptions, Precondition};
use basalt_api::values::Generation;
use basalt_api::wire::{Document, PutRequest};
use serde_json::{Map, Value, json};

use crate::apply::documents;
use crate::confirm::confirm;
use crate::dry_run;
use crate::get::yaml;
use crate::output::{say, show};
use crate::patch::{self, Consent};
use crate::region::{Connection, Failed};
use crate::subject::Subject;

/// Arguments of `basalt edit`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    subject: Subject,
    /// Take it over if another tool manages it
    #[arg(long)]
    adopt: bool,
    /// Store nothing, and say what would happen
    #[arg(long)]
    dry_run: bool,
    /// Do not ask, even if disks are written or power is switched
    #[arg(long, short)]
    yes: bool,
}

/// Runs the command.
pub(crate) async fn run(args: Args, connection: &Connection) -> Result<(), Failed> {
    let (kind, name) = args.subject.object()?;
    let client = connection.client()?;
    let object = match client.find(kind, name).await? {
        None if kind.naming != basalt_api::values::Naming::Singleton => {
            client.get(kind, name).await?;
            None
        }
        found => found,
    };
    let spec = object.as_ref().map_or_else(|| json!({}), |object| object.spec.clone());
    let file = tempfile::Builder::new().prefix("basalt-edit-").suffix(".yaml").tempfile();
    let place = std::env::temp_dir();
    let mut file = file.map_err(|source| Failed::File { path: place, source })?;
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Failed::File { path, source }
    };
    let text = declaration(kind, name, &spec)?;
    file.write_all(text.as_bytes()).map_err(failed(file.path()))?;
    edit(file.path())?;
    // Read by path, since an editor may have replaced the file by another one.
    let edited = match std::fs::read_to_string(file.path()) {
        Ok(edited) => edited,
        Err(error) => return Err(failed(file.path())(error)),
    };
    if edited == text {
        show("nothing was changed\n");
        return Ok(());
    }
    let done = async {
        let wanted = read(file.path(), (kind, name))?;
        let change = merge_patch(&spec, &wanted);
        if change == json!({}) {
            show("nothing was changed\n");
            return Ok(());
        }
        let consent = Consent { dry_run: args.dry_run, yes: args.yes };
        let Some(object) = &object else {
            let request = PutRequest { spec: wanted, ..PutRequest::default() };
            let dry = client.put_dry_run(kind, name, &request, Precondition::Absent).await?;
            show(&dry_run::shown(&dry));
            if args.dry_run {
                return Ok(());
            }
            if !args.yes {
                confirm("Declare it?", "not declared")?;
            }
            let object = client.put(kind, name, &request, Precondition::Absent).await?.object;
            show(&patch::said(&object, &dry));
            return Ok(());
        };
        // Refuse if another caller has changed the object: the editor did not show that change.
        let seen: Generation = object.metadata.generation;
        let options = PatchOptions { precondition: Precondition::Generation(seen), adopt: args.adopt };
        patch::make(&client, (kind, name), &change, options, consent).await
    };
    let done: Result<(), Failed> = done.await;
    if done.is_err()
        && let Ok((_, path)) = file.keep()
    {
        let path = path.display();
        say(&format!("what you wrote is in {path}; `basalt apply -f {path}` declares it as it is there"));
    }
    done
}

/// A declaration with the editable part of the object.
fn declaration(kind: &Kind, name: &str, spec: &Value) -> Result<String, Failed> {
    let document = json!({"kind": kind.name, "metadata": {"name": name}, "spec": spec});
    let head = "# Change the spec, and leave the editor; leave it without a change to change nothing. Labels: `basalt label`.\n";
    Ok(format!("{head}{}", yaml(&[document])?))
}

/// Opens a file in the person's editor.
fn edit(path: &Path) -> Result<(), Failed> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let editor = set("VISUAL").or_else(|| set("EDITOR")).unwrap_or_else(|| "vi".to_owned());
    // The variable may contain arguments for the editor.
    let status = Command::new("sh").arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(path).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failed::Words(format!(
            "the editor {editor:?} failed ({status}); nothing was changed; EDITOR names another one"
        ))),
        Err(source) => Err(Failed::File { path: "sh".into(), source }),
    }
}

/// The spec in the edited file. The file must still name the same object.
fn read(path: &Path, (kind, name): (&Kind, &str)) -> Result<Value, Failed> {
    let mut documents = documents::read(&[path.to_owned()])?;
    let only = documents.pop().filter(|_| documents.is_empty());
    let Some(Document { kind: of, metadata, spec }) = only.map(|declared| declared.document) else {
        return Err(Failed::Words("there are several documents now, and one object is edited".into()));
    };
    if (of.as_str(), metadata.name.as_str()) != (kind.name, name) {
        let words = format!(
            "it is {of} {} now, and {} {name} is edited; `basalt rename` gives another name",
            metadata.name, kind.name
        );
        return Err(Failed::Words(words));
    }
    Ok(spec)
}

/// The difference of two values, as a JSON merge patch (RFC 7396).
fn merge_patch(before: &Value, after: &Value) -> Value {
    let (Some(old), Some(new)) = (before.as_object(), after.as_object()) else { return after.clone() };
    let gone = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let mut patch: Map<String, Value> = gone.collect();
    for (key, value) in new {
        match old.get(key) {
            Some(same) if same == value => {}
            Some(other) if other.is_object() && value.is_object() => {
                patch.insert(key.clone(), merge_patch(other, value));
            }
            _ => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_says_what_is_other_and_what_is_gone_and_nothing_else() {
        let before = json!({"zone": "a", "tags": ["x"], "bmc": {"driver": "ipmi", "password": {"set": true}}, "locked": true});
        let after =
            json!({"zone": "b", "tags": ["x"], "bmc": {"driver": "redfish", "password": {"set": true}}});
        assert_eq!(
            merge_patch(&before, &after),
            json!({"locked": null, "zone": "b", "bmc": {"driver": "redfish"}})
        );
        assert_eq!(merge_patch(&before, &before), json!({}));
    }

    #[test]
    fn what_is_edited_stays_the_object_that_it_is() {
        let zone = Kind::find("Zone").unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("zone.yaml");
        let spec = json!({"description": "off"});
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read(&path, (zone, "row-1")).map_err(|error| error.to_string())
        };
        let text = declaration(zone, "row-1", &spec).unwrap();
        assert_eq!(read(&text).unwrap(), spec);
        assert!(
            read(&text.replace("row-1", "row-2")).unwrap_err().contains("`basalt rename` gives another name")
        );
        assert!(read(&format!("{text}---\n{text}")).unwrap_err().contains("several documents"));
        assert!(read(&text.replace("spec:", "speck:")).unwrap_err().contains("speck"));
    }
}
