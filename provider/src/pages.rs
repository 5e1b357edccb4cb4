//! Pages of lists with the layers of each object, so that nobody has to ask for those one by one.
//!
//! Older regions refuse such a list, and are not asked for another one.

use std::sync::atomic::{AtomicBool, Ordering};

use basalt_api::client::{ClientError, ListOptions};
use basalt_api::wire::ObjectList;
use basalt_api::{Kind, ProblemCode};

use crate::bounded::Bounded;

/// Whether a region lists objects with their layers.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    lacks_layers: AtomicBool,
}

impl Pages {
    /// A page of objects of a kind; with their layers only where the region has such lists.
    pub(crate) async fn page(
        &self,
        client: &Bounded,
        kind: &'static Kind,
        options: &ListOptions,
    ) -> Result<ObjectList, ClientError> {
        let asks = options.layers && !self.lacks_layers.load(Ordering::Relaxed);
        if asks {
            let page = client.call().await.list(kind, options).await;
            match page {
                Err(error) if error.code() == Some(ProblemCode::Invalid) => {}
                answered => return answered,
            }
        }
        let plain = ListOptions { layers: false, ..options.clone() };
        let page = client.call().await.list(kind, &plain).await?;
        if asks {
            self.lacks_layers.store(true, Ordering::Relaxed);
        }
        Ok(page)
    }
}
