//! The concerns that every rack receives with the same bytes. They are rendered and stored once for all racks.
//!
//! | concern | content | read from the database at a change |
//! | --- | --- | --- |
//! | `known` | name, MACs and networks of each machine | the entries that changed |
//! | `dns` | the zones, and the servers to forward to | the zones that changed |
//! | `images` | the stored files of images | nothing: the topology is in memory |
//! | `proxy` | clients and forbidden destinations | nothing |
//!
//! Each reconciliation of a rack writes them. So a change of a common concern wakes any one rack.

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use basalt_api::kinds::ImagePurpose;
use basalt_api::values::{Generation, Uid};
use basalt_db::{ConcernWrite, KnownNews, Store, StoreError};
use basalt_proto::rack_v1::{Blob, BootMachine, ImagesConcern};
use prost::Message;

use crate::driver::entries::dns::{self, PublishedZones};
use crate::driver::entries::{TRIES, append, proxy};
use crate::driver::machine::entries::KNOWN;
use crate::driver::meters::Meters;
use crate::driver::topology::Topology;
use crate::driver::topology::estate::Estate;

/// The entries and zones that this process has read for the common concerns. Cheap to clone; the clones share it.
#[derive(Clone, Debug, Default)]
pub struct Common(Arc<tokio::sync::Mutex<Read>>);

#[derive(Debug, Default)]
struct Read {
    known: Known,
    zones: PublishedZones,
}

impl Common {
    /// Writes each common concern whose content differs from the stored one.
    ///
    /// # Errors
    /// Fails if the database cannot be read or written.
    pub async fn write(&self, store: &Store, topology: &Topology, meters: &Meters) -> Result<(), StoreError> {
        let mut read = self.0.lock().await;
        for _ in 0..TRIES {
            // The generations are read before the data: a process that renders newer data wins.
            let heads = store.common_heads().await?;
            let mut is_stale = false;
            for (name, body) in read.render(store, topology).await? {
                let head = heads.iter().find(|head| head.name == name);
                if head.is_some_and(|head| head.sha256 == digest(&SHA256, &body).as_ref()) {
                    continue;
                }
                let base = head.map_or(Generation::new(0), |head| head.generation);
                if matches!(store.put_common(name, base, &body).await?, ConcernWrite::Stale(_)) {
                    is_stale = true;
                    meters.conflict("concern");
                }
            }
            if !is_stale {
                break;
            }
        }
        Ok(())
    }
}

impl Read {
    /// The present bytes of each common concern.
    async fn render(
        &mut self,
        store: &Store,
        topology: &Topology,
    ) -> Result<[(&'static str, Vec<u8>); 4], StoreError> {
        self.known.follow(store).await?;
        let dns = dns::concern(store, topology, &mut self.zones).await?;
        let estate = topology.estate(store).await?;
        Ok([
            ("dns", dns),
            ("images", images(&estate).encode_to_vec()),
            (KNOWN, self.known.body()),
            ("proxy", proxy::concern(&estate, &store.region_addresses().await?).encode_to_vec()),
        ])
    }
}

/// The `known` entries of all machines, as of a position of their log.
#[derive(Debug, Default)]
struct Known {
    position: Option<i64>,
    machines: BTreeMap<Uid, Vec<u8>>,
}

impl Known {
    async fn follow(&mut self, store: &Store) -> Result<(), StoreError> {
        let Some(news) = store.known_since(self.position).await? else { return Ok(()) };
        let position = news.position;
        self.position = None;
        self.apply(news)?;
        self.position = Some(position);
        Ok(())
    }

    fn apply(&mut self, news: KnownNews) -> Result<(), StoreError> {
        let KnownNews { is_whole, entries, gone, .. } = news;
        if is_whole {
            self.machines.clear();
        }
        for machine in gone {
            self.machines.remove(&machine);
        }
        for entry in entries {
            BootMachine::decode(entry.body.as_slice())
                .map_err(|error| StoreError::Corrupt(format!("an entry of {}: {error}", entry.object)))?;
            self.machines.insert(entry.object, entry.body);
        }
        Ok(())
    }

    /// The encoded `KnownConcern`, in order of uid.
    fn body(&self) -> Vec<u8> {
        let mut body = Vec::new();
        self.machines.values().for_each(|machine| append(machine, &mut body));
        body
    }
}

fn images(estate: &Estate) -> ImagesConcern {
    let mut blobs = BTreeMap::new();
    for image in estate.images.iter() {
        for (role, file) in &image.spec.files {
            if let Some(size) = image.held.get(role) {
                let prefetch = image.spec.purpose == ImagePurpose::Ephemeral;
                let sha256 = file.sha256.to_string();
                blobs.insert(sha256.clone(), Blob { sha256, size: *size, prefetch });
            }
        }
    }
    ImagesConcern { blobs: blobs.into_values().collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_db::Entry;
    use basalt_proto::rack_v1::KnownConcern;

    fn machine(name: &str) -> BootMachine {
        BootMachine { name: name.to_owned(), ..BootMachine::default() }
    }

    fn news(is_whole: bool, entries: &[(&Uid, &str)], gone: &[&Uid]) -> KnownNews {
        let entry = |(uid, name): &(&Uid, &str)| Entry {
            object: **uid,
            version: 1,
            body: machine(name).encode_to_vec(),
        };
        let gone = gone.iter().map(|uid| **uid).collect();
        KnownNews { position: 1, is_whole, entries: entries.iter().map(entry).collect(), gone }
    }

    #[test]
    fn the_body_is_the_message_with_all_machines_after_each_change() {
        let mut uids = [(); 3].map(|()| Uid::generate());
        uids.sort_unstable();
        let [a, b, c] = &uids;
        let mut known = Known::default();
        let mut after = |news, names: &[&str]| {
            known.apply(news).unwrap();
            let machines = names.iter().map(|name| machine(name)).collect();
            assert_eq!(known.body(), KnownConcern { machines }.encode_to_vec());
        };
        after(news(true, &[(b, "b"), (a, "a")], &[]), &["a", "b"]);
        after(news(false, &[(a, "other"), (c, "c")], &[]), &["other", "b", "c"]);
        after(news(false, &[], &[b]), &["other", "c"]);
        after(news(true, &[(b, "b")], &[]), &["b"]);
    }
}
