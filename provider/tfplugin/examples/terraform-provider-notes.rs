//! A complete provider: notes, each a file in a directory. The README shows it, and the tests run it.

use std::sync::{Arc, OnceLock};
use std::{fs, io::ErrorKind::NotFound};

use tfplugin::{
    Attribute, Change, Cx, Diag, Diags, Identity, Options, Provider, Resource, Schema, Type, Val, async_trait,
};

/// Serves Terraform, which starts this program.
pub fn main() -> std::process::ExitCode {
    tfplugin::serve(Notes::default(), Options::new("example.com/me/notes"))
}

/// The provider, and the directory once it is known.
#[derive(Default)]
pub struct Notes(Arc<OnceLock<String>>);

#[async_trait]
impl Provider for Notes {
    fn schema(&self) -> Schema {
        Schema { attributes: vec![Attribute::required("directory", Type::String)], ..Schema::default() }
    }
    fn resources(&self) -> Vec<Box<dyn Resource>> {
        let attributes = vec![
            Attribute::required("name", Type::String).replace().doc("Another name is another note."),
            Attribute::optional("text", Type::String).default("").doc("What it says."),
            Attribute::computed("bytes", Type::Number).doc("How long it is."),
        ];
        let schema = Schema { description: "A note.".into(), attributes, ..Schema::default() };
        vec![Box::new(Note { directory: Arc::clone(&self.0), schema })]
    }
    async fn configure(&self, _: &Cx, config: &Val) -> Result<(), Diags> {
        self.0.get_or_init(|| config.get("directory").as_str().unwrap_or_default().to_owned());
        Ok(())
    }
}

struct Note {
    directory: Arc<OnceLock<String>>,
    schema: Schema,
}

impl Note {
    fn path(&self, note: &Val) -> String {
        let directory = self.directory.get().map(String::as_str).unwrap_or_default();
        format!("{directory}/{}.txt", note.get("name").as_str().unwrap_or_default())
    }
    fn state(name: &Val, text: &str) -> Val {
        Val::from([("name", name.clone()), ("text", text.into()), ("bytes", (text.len() as i64).into())])
    }
    fn write(&self, note: &Val) -> Result<Val, Diags> {
        let text = note.get("text").as_str().unwrap_or_default();
        fs::write(self.path(note), text).map_err(|e| Diag::error("It cannot be written", e.to_string()))?;
        Ok(Self::state(note.get("name"), text))
    }
}

#[async_trait]
impl Resource for Note {
    fn type_name(&self) -> &str {
        "notes_note"
    }
    fn schema(&self) -> &Schema {
        &self.schema
    }
    async fn read(&self, _: &Cx, state: &Val) -> Result<Option<Val>, Diags> {
        match fs::read_to_string(self.path(state)) {
            Ok(text) => Ok(Some(Self::state(state.get("name"), &text))),
            Err(e) if e.kind() == NotFound => Ok(None),
            Err(e) => Err(Diag::error("It cannot be read", e.to_string()).into()),
        }
    }
    async fn create(&self, _: &Cx, change: Change<'_>) -> Result<Val, Diags> {
        self.write(change.planned)
    }
    async fn update(&self, _: &Cx, change: Change<'_>) -> Result<Val, Diags> {
        self.write(change.planned)
    }
    async fn delete(&self, _: &Cx, state: &Val) -> Result<(), Diags> {
        match fs::remove_file(self.path(state)) {
            Err(e) if e.kind() != NotFound => Err(Diag::error("It stays", e.to_string()).into()),
            _ => Ok(()),
        }
    }
    async fn import(&self, _: &Cx, id: &str) -> Result<Val, Diags> {
        Ok(Val::from([("name", id.into())]))
    }
    fn identity(&self) -> Identity {
        Identity::default().required("name")
    }
}
