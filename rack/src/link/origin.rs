//! Fetches blobs from the linked regions.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use basalt_proto::rack_v1::FetchBlobRequest;
use basalt_proto::rack_v1::rack_link_client::RackLinkClient;
use bytes::Bytes;
use tokio_stream::StreamExt;
use tonic::Code;
use tonic::transport::Channel;

use super::stream::words;
use crate::blobs::{BlobOrigin, BlobStream, OriginError};

/// The living links, by the region's address.
#[derive(Debug, Default)]
pub struct RegionOrigin {
    channels: Mutex<BTreeMap<String, Channel>>,
    /// Since when each other region is not linked.
    unlinked: Mutex<HashMap<String, Instant>>,
}

impl RegionOrigin {
    /// Adds the channel of a new link.
    pub fn insert(&self, address: &str, channel: Channel) {
        self.unlinked.lock().unwrap_or_else(PoisonError::into_inner).remove(address);
        self.channels.lock().unwrap_or_else(PoisonError::into_inner).insert(address.to_owned(), channel);
    }

    /// Removes the channel of a link that ended.
    pub fn remove(&self, address: &str) {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner).remove(address);
        let mut unlinked = self.unlinked.lock().unwrap_or_else(PoisonError::into_inner);
        unlinked.entry(address.to_owned()).or_insert_with(Instant::now);
    }

    /// True if there is a link to the region at this address.
    #[must_use]
    pub fn is_linked(&self, address: &str) -> bool {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner).contains_key(address)
    }

    /// True if there is a link to a region.
    #[must_use]
    pub fn is_any_linked(&self) -> bool {
        !self.channels.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// How long the region has not been linked. `None` if it is linked, or was never tried.
    #[must_use]
    pub fn unlinked_for(&self, address: &str) -> Option<Duration> {
        self.unlinked.lock().unwrap_or_else(PoisonError::into_inner).get(address).map(Instant::elapsed)
    }

    async fn ask_all(&self, sha256: &str, offset: u64) -> Result<BlobStream, OriginError> {
        let channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut error = OriginError::Unavailable("no region is connected".to_owned());
        for (address, channel) in channels {
            let request = FetchBlobRequest { sha256: sha256.to_owned(), offset };
            match RackLinkClient::new(channel).fetch_blob(request).await {
                Ok(answer) => {
                    let chunks = answer.into_inner().map(|chunk| {
                        chunk.map(|chunk| Bytes::from(chunk.data)).map_err(|status| unavailable(&status))
                    });
                    return Ok(Box::pin(chunks));
                }
                Err(status) if status.code() == Code::NotFound => error = OriginError::NotFound,
                Err(status) => {
                    error = OriginError::Unavailable(format!("region {address}: {}", status.message()))
                }
            }
        }
        Err(error)
    }
}

fn unavailable(status: &tonic::Status) -> OriginError {
    OriginError::Unavailable(words(status).to_owned())
}

impl BlobOrigin for RegionOrigin {
    fn fetch<'a>(
        &'a self,
        sha256: &'a str,
        offset: u64,
    ) -> Pin<Box<dyn Future<Output = Result<BlobStream, OriginError>> + Send + 'a>> {
        Box::pin(self.ask_all(sha256, offset))
    }
}
