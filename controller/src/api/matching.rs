//! Lists with a filter. The database evaluates the part of the filter that concerns columns. The rest is evaluated here on each object as
//! the caller sees it, so a filter cannot match hidden values.

use super::App;
use super::names::{self, Names};
use super::objects;
use super::problem::{Answer, Refusal};
use super::render::Rendered;
use super::rights::Rights;
use basalt_api::filter::Filter;
use basalt_api::{Kind, ProblemCode};
use basalt_db::ListQuery;
use serde_json::Value;

/// The largest number of objects that one request examines. A page that stops there has a `continue`, and may have no items.
const LOOKED_AT: usize = 2000;

/// Objects in memory at a time. A machine with its inventory has tens of kilobytes.
const BATCH: i64 = 200;

/// A page of matching objects.
pub(super) struct Found {
    pub(super) items: Vec<Rendered>,
    /// The name after which the next page begins.
    pub(super) next: Option<String>,
}

/// The matching objects among at most [`LOOKED_AT`] objects of a query.
pub(super) async fn page(
    app: &App,
    rights: &Rights,
    kind: &'static Kind,
    query: &ListQuery<'_>,
    filter: &Filter,
) -> Answer<Found> {
    let wanted = usize::try_from(query.limit).unwrap_or_default();
    let mut after = query.after.map(str::to_owned);
    let (mut items, mut looked_at) = (Vec::new(), 0_usize);
    loop {
        let batch = ListQuery {
            after: after.as_deref(),
            limit: BATCH,
            narrowing: filter.narrowing(),
            ..query.clone()
        };
        let page = app.store().list(&batch).await?;
        let batch = objects::shown_all(app, rights, page.objects).await?;
        looked_at = looked_at.saturating_add(batch.len());
        let values = values(app, rights, kind, &batch).await?;
        let mut batch = batch.into_iter().zip(values).peekable();
        while let Some((item, value)) = batch.next() {
            // Let other tasks run: a filter with many terms takes a while for each object.
            tokio::task::yield_now().await;
            if !filter.fits(&value) {
                continue;
            }
            let more = batch.peek().is_some() || page.next.is_some();
            let next = more.then(|| item.name().to_owned());
            items.push(item);
            if items.len() >= wanted {
                return Ok(Found { items, next });
            }
        }
        match page.next {
            Some(next) if looked_at < LOOKED_AT => after = Some(next),
            next => return Ok(Found { items, next }),
        }
    }
}

/// The objects as JSON, without names that the caller must not see.
async fn values(app: &App, rights: &Rights, kind: &'static Kind, items: &[Rendered]) -> Answer<Vec<Value>> {
    let broken = |error: serde_json::Error| {
        Refusal::new(ProblemCode::Internal, format!("an object of a list is no JSON: {error}"))
    };
    let mut text = serde_json::to_string(items).map_err(broken)?;
    if rights.unlimited().is_none() && names::may_name(Some(kind), &text) {
        let names = Names::of(app.store(), Some(kind), &text).await?;
        text = names.reworded(&|pool| rights.over(pool).is_some(), &|_| false).unwrap_or(text);
    }
    serde_json::from_str(&text).map_err(broken)
}
