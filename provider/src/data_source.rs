//! Data sources: one object of a kind by its name, or many by a filter.

use std::sync::Arc;

use basalt_api::Kind;
use basalt_api::values::Naming;
use tfplugin::{Cx, DataSource, Diag, Diags, Path, Schema, Val, async_trait};

use crate::filter::{self, Filter};
use crate::listing::AsOf;
use crate::map::{self, FIND, NAME};
use crate::natural::{self, NaturalKey};
use crate::provider::Session;

/// The data source of one object of a kind.
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

impl KindData {
    /// Errors for fields that are set although they are only read.
    fn not_asked_by(&self, config: &Val) -> Diags {
        let given = self.kind.spec.fields.iter().filter(|field| !config.get(field.name).is_null());
        let each = given.map(|field| {
            let value = config.get(field.name).as_str().unwrap_or("VALUE");
            let detail = format!(
                "`{}` is read, and not asked for. To look for the {} that has it: {FIND} = \"{}={value}\".",
                field.name, self.kind.name, field.name
            );
            Diag::error("It is read-only", detail).at(Path::root().attr(field.name))
        });
        Diags(each.collect())
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

    async fn validate(&self, config: &Val) -> Diags {
        let (name, find) = (config.get(NAME), config.get(FIND));
        let mut diags = self.not_asked_by(config);
        if !diags.is_empty() {
            return diags;
        }
        if name.is_null() == find.is_null() && !name.is_unknown() && !find.is_unknown() {
            let title =
                if name.is_null() { "It is not said what to look for" } else { "Two things to look for" };
            let detail = format!("Give either {NAME} or {FIND}, as {}.", natural::like(self.kind));
            diags.push(Diag::error(title, detail).at(Path::root().attr(NAME)));
        }
        if let Some(Err(why)) = find.as_str().and_then(|find| NaturalKey::read(self.kind, find)) {
            diags.push(Diag::error("Not a key", why).at(Path::root().attr(FIND)));
        }
        diags
    }

    async fn read(&self, _: &Cx, config: &Val) -> Result<Val, Diags> {
        if let Some(find) = config.get(FIND).as_str() {
            let at = Path::root().attr(FIND);
            let key = NaturalKey::read(self.kind, find).unwrap_or_else(|| {
                let like = natural::like(self.kind);
                Err(format!("{find:?} has no field; write {like}, or give what is a name as {NAME}."))
            });
            let key = key.map_err(|why| Diag::error("Not a key", why).at(at.clone()))?;
            let object = self.session.region()?.find_by(self.kind, find, &key, at, AsOf::Now).await?;
            let mut found = map::found(self.kind, &object);
            found.set(FIND, find);
            return Ok(found);
        }
        let name = config.get(NAME).as_str().unwrap_or_default();
        let region = self.session.region()?;
        match region.find(self.kind, name).await? {
            Some(object) => {
                let mut found = map::found(self.kind, &object);
                // Keep the name in the configuration's form (it may be `uid:…`).
                found.set(NAME, name);
                Ok(found)
            }
            None => Err(region.absent(self.kind, name, Path::root().attr(NAME)).await.into()),
        }
    }
}

/// The data source of many objects of a kind.
pub(crate) struct KindsData {
    kind: &'static Kind,
    type_name: String,
    schema: Schema,
    session: Arc<Session>,
}

impl KindsData {
    /// `None` for a kind with only one object.
    pub(crate) fn new(kind: &'static Kind, session: Arc<Session>) -> Option<Self> {
        let type_name = format!("basalt_{}", kind.plural);
        (kind.naming != Naming::Singleton).then(|| Self { kind, type_name, schema: map::many(kind), session })
    }
}

#[async_trait]
impl DataSource for KindsData {
    fn type_name(&self) -> &str {
        &self.type_name
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    async fn validate(&self, config: &Val) -> Diags {
        filter::check(self.kind, config)
    }

    async fn read(&self, _: &Cx, config: &Val) -> Result<Val, Diags> {
        let filter = Filter::new(self.kind, config)?;
        let all = self.session.region()?.list(self.kind, filter.options()).await?;
        let by_name = all
            .iter()
            .filter(|object| filter.fits(object))
            .map(|object| (object.metadata.name.as_str().to_owned(), map::found(self.kind, object)))
            .collect();
        let mut found = config.clone();
        found.set(self.kind.plural, Val::Map(by_name));
        Ok(found)
    }
}
