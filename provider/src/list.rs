//! Lists objects of any kind that Terraform does not manage, for `terraform query`. It reads only the needed
//! pages.

use std::sync::Arc;

use basalt_api::Kind;
use basalt_api::client::ListOptions;
use tfplugin::{Cx, Diag, Diags, ListResource, Listed, Listing, Query, Schema, Val, async_trait};

use crate::filter::{self, Filter};
use crate::fresh;
use crate::map::{self, UID};
use crate::provider::Session;
use crate::region::LARGEST_PAGE;

/// The list resource of a kind.
pub(crate) struct KindList {
    kind: &'static Kind,
    schema: Schema,
    session: Arc<Session>,
}

impl KindList {
    pub(crate) fn new(kind: &'static Kind, session: Arc<Session>) -> Self {
        Self { kind, schema: map::query(kind), session }
    }

    /// Pushes the matching objects, page by page.
    async fn pages(&self, query: Query<'_>, found: &Listing<'_>) -> Result<(), Diags> {
        let region = self.session.region()?;
        let filter = Filter::new(self.kind, query.config)?;
        let wanted = query.limit.and_then(|limit| u32::try_from(limit).ok());
        let wanted = wanted.filter(|_| filter.is_all_the_regions()).unwrap_or(LARGEST_PAGE);
        let limit = Some(wanted.min(LARGEST_PAGE));
        let mut options = ListOptions { limit, layers: query.with_states, ..filter.options() };
        loop {
            let page = region.page(self.kind, &options).await?;
            for object in page.items.into_iter().filter(|object| filter.fits(object)) {
                let state = match query.with_states {
                    true => fresh::state(&region, self.kind, &object, &self.session.default_labels()).await?,
                    false => Val::from([(UID, object.metadata.uid.to_string().into())]),
                };
                let warnings = fresh::going(self.kind, &object).into_iter().collect();
                let name = object.metadata.name.to_string();
                if found.push(Listed { name, state, warnings }).await?.is_break() {
                    return Ok(());
                }
            }
            if page.next.is_none() {
                return Ok(());
            }
            options.next = page.next;
        }
    }
}

#[async_trait]
impl ListResource for KindList {
    fn type_name(&self) -> &str {
        self.kind.terraform_name
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    async fn validate(&self, config: &Val) -> Diags {
        filter::check(self.kind, config)
    }

    async fn list(&self, cx: &Cx, query: Query<'_>, found: &Listing<'_>) -> Result<(), Diags> {
        tokio::select! {
            biased;
            () = cx.cancelled() => {
                let detail = "There may be more than what was found until then. Run the query again.";
                Err(Diag::error(format!("Interrupted: {}", self.kind.terraform_name), detail).into())
            }
            all = self.pages(query, found) => all,
        }
    }
}
