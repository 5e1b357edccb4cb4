//! Looking up an object of any kind.

use std::sync::Arc;

use basalt_api::Kind;
use tfplugin::{Cx, DataSource, Diag, Diags, Path, Schema, Val, async_trait};

use crate::map;
use crate::provider::Session;

/// The data source of a kind.
pub(crate) struct KindData {
    kind: &'static Kind,
    schema: Schema,
    session: Arc<Session>,
}

impl KindData {
    pub(crate) fn new(kind: &'static Kind, session: Arc<Session>) -> Self {
        Self { kind, schema: map::data_source(kind), session }
    }
}

#[async_trait]
impl DataSource for KindData {
    fn type_name(&self) -> &str {
        self.kind.terraform_name
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    async fn read(&self, _: &Cx, config: &Val) -> Result<Val, Diags> {
        let name = config.get(map::NAME).as_str().unwrap_or_default();
        match self.session.region()?.find(self.kind, name).await? {
            Some(object) => {
                let mut found = map::object(self.kind, &object);
                // What was asked for stays as it was asked.
                found.set(map::NAME, name);
                Ok(found)
            }
            None => {
                let detail = format!("There is no {} {name:?}.", self.kind.name);
                Err(Diag::error("Not found", detail).at(Path::root().attr(map::NAME)).into())
            }
        }
    }
}
