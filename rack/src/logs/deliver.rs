//! Delivery of lines to one region, beside its link. Every region process of the database gets all lines, so that
//! people can read a machine's log at any of them.

use std::convert::Infallible;
use std::time::Duration;

use basalt_proto::rack_v1::LogBatch;
use basalt_proto::rack_v1::rack_link_client::RackLinkClient;
use tonic::transport::Channel;

use super::Logs;
use crate::link::stream::words;

/// The most bytes of a batch without its last line. It is small, so that a fact on the same connection does not wait
/// long.
const BATCH: usize = 128 << 10;
/// The longest time for a region to store a batch.
const STORE: Duration = Duration::from_secs(60);
/// The pause before a region that did not store a batch is asked again.
const PAUSE: Duration = Duration::from_secs(2);

/// Delivers until the link ends. An error here never ends the link.
pub async fn deliver(logs: &Logs, region: &str, channel: Channel) -> Infallible {
    let linked = Linked { logs, region };
    let mut client = RackLinkClient::new(channel);
    // The region itself says which lines it has.
    let mut next: Option<u64> = None;
    let mut durable = logs.durable();
    loop {
        durable.borrow_and_update();
        let lines = match next {
            None => Vec::new(),
            Some(from) => match logs.read(from, BATCH).await {
                Ok(lines) => lines,
                Err(error) => {
                    tracing::error!(%error, "the spool of logs cannot be read");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            },
        };
        if next.is_some() && lines.is_empty() {
            if durable.changed().await.is_err() {
                // The rack is stopping.
                std::future::pending::<()>().await;
            }
            continue;
        }
        let batch = LogBatch { spool_uid: logs.uid().to_owned(), lines };
        match tokio::time::timeout(STORE, client.store_logs(batch)).await {
            Ok(Ok(ack)) => {
                let through = ack.into_inner().through_seq;
                linked.logs.stored(linked.region, Some(through));
                next = Some(through.saturating_add(1));
            }
            refused => {
                let error = match refused {
                    Ok(Err(status)) => words(&status).to_owned(),
                    _ => format!("no answer within {STORE:?}"),
                };
                tracing::warn!(region, error, "the region does not take lines of logs; asking again");
                next = None;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Notes that the region is no longer linked, however the delivery ends.
struct Linked<'a> {
    logs: &'a Logs,
    region: &'a str,
}

impl Drop for Linked<'_> {
    fn drop(&mut self) {
        self.logs.stored(self.region, None);
    }
}
