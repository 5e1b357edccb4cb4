//! Pages of lists with the layers of each object, to avoid a request for each object's layers.
//!
//! Older regions refuse such a list. After the first refusal, no more such lists are requested.

use std::sync::atomic::{AtomicBool, Ordering};

use basalt_api::client::{ClientError, ListOptions};
use basalt_api::wire::ObjectList;
use basalt_api::{Kind, ProblemCode};

use crate::bounded::Bounded;

/// Remembers if the region cannot list objects with their layers.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    lacks_layers: AtomicBool,
}

impl Pages {
    /// A page of objects of a kind, with their layers if the region supports that.
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
