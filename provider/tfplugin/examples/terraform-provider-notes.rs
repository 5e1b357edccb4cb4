//! A complete provider: notes, each a file in a directory. The README shows it, and the tests run it.

use std::sync::{Arc, OnceLock};
use std::{fs, io::ErrorKind::NotFound};

use tfplugin::{
    Attribute, Change, Check, Cx, Diag, Diags, Identity, Model, Options, Provider, Resource, Schema, Tf,
    Type, Val, async_trait,
};

fn main() -> std::process::ExitCode {
    tfplugin::serve(Notes::default(), Options::new("example.com/me/notes"))
}

/// A note.
#[derive(Model)]
struct Note {
    /// Another name is another note.
    #[tf(required, replace, check = Check::characters(1..=100))]
    name: String,
    /// What it says.
    #[tf(optional, default = "")]
    text: Tf<String>,
    /// How long it is.
    #[tf(computed)]
    bytes: Tf<u64>,
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
        vec![Box::new(Files(Arc::clone(&self.0), Note::schema()))]
    }
    async fn configure(&self, _: &Cx, config: &Val) -> Result<(), Diags> {
        self.0.get_or_init(|| config.get("directory").as_str().unwrap_or_default().to_owned());
        Ok(())
    }
}

struct Files(Arc<OnceLock<String>>, Schema);

impl Files {
    fn path(&self, note: &Note) -> String {
        format!("{}/{}.txt", self.0.get().map(String::as_str).unwrap_or_default(), note.name)
    }
}

#[async_trait]
impl Resource for Files {
    fn type_name(&self) -> &str {
        "notes_note"
    }
    fn schema(&self) -> &Schema {
        &self.1
    }
    async fn read(&self, _: &Cx, state: &Val) -> Result<Option<Val>, Diags> {
        let note = Note::from_val(state)?;
        let text = match fs::read_to_string(self.path(&note)) {
            Err(e) if e.kind() == NotFound => return Ok(None),
            text => text.map_err(|e| Diag::error("It cannot be read", e.to_string()))?,
        };
        Ok(Some(Note { bytes: (text.len() as u64).into(), text: text.into(), ..note }.to_val()))
    }
    async fn create(&self, _: &Cx, change: Change<'_>) -> Result<Val, Diags> {
        let note = Note::from_val(change.planned)?;
        let text = note.text.as_deref().unwrap_or_default();
        fs::write(self.path(&note), text).map_err(|e| Diag::error("It cannot be written", e.to_string()))?;
        Ok(Note { bytes: (text.len() as u64).into(), ..note }.to_val())
    }
    async fn update(&self, cx: &Cx, change: Change<'_>) -> Result<Val, Diags> {
        self.create(cx, change).await
    }
    async fn delete(&self, _: &Cx, state: &Val) -> Result<(), Diags> {
        match fs::remove_file(self.path(&Note::from_val(state)?)) {
            Err(e) if e.kind() != NotFound => Err(Diag::error("It stays", e.to_string()).into()),
            _ => Ok(()),
        }
    }
    fn identity(&self) -> Identity {
        Identity::default().required("name")
    }
}
