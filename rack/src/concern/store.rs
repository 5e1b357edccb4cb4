//! The rack's concerns: on disk, and as views for the services that apply them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use basalt_proto::rack_v1::concern_reply::Outcome;
use basalt_proto::rack_v1::{
    BootConcern, ConcernDelta, ConcernReply, ConcernVersion, DhcpConcern, DnsConcern, HeldConcern,
    ImagesConcern, KnownConcern, PowerConcern, ProxyConcern, TimeConcern,
};
use prost::Message;
use tokio::sync::watch;

use super::{Concern, Content, Decision, Understood, accept, changed, verify};
use crate::boot::BootTable;
use crate::durable;
use crate::epochs::Epochs;

/// The decoded concerns, as their users see them. `None` until there is one.
#[derive(Debug)]
pub struct Views {
    /// Subnets, addresses and reservations.
    pub dhcp: watch::Sender<Option<Arc<DhcpConcern>>>,
    /// The machines and their boot actions, from two concerns.
    pub boot: watch::Sender<Option<Arc<BootTable>>>,
    machines: Mutex<(KnownConcern, BootConcern)>,
    /// The blobs that are served.
    pub images: watch::Sender<Option<Arc<ImagesConcern>>>,
    /// The BMCs that this rack controls.
    pub power: watch::Sender<Option<Arc<PowerConcern>>>,
    /// The DNS zones, and the servers for other names.
    pub dns: watch::Sender<Option<Arc<DnsConcern>>>,
    /// NTP servers that the host's clock is compared with.
    pub time: watch::Sender<Option<Arc<TimeConcern>>>,
    /// Clients of the caching proxy.
    pub proxy: watch::Sender<Option<Arc<ProxyConcern>>>,
}

impl Views {
    fn publish(&self, content: Content) {
        match content {
            Content::Dhcp(it) => drop(self.dhcp.send_replace(Some(Arc::new(it)))),
            Content::Known(it) => self.publish_machines(|machines| machines.0 = it),
            Content::Boot(it) => self.publish_machines(|machines| machines.1 = it),
            Content::Images(it) => drop(self.images.send_replace(Some(Arc::new(it)))),
            Content::Dns(it) => drop(self.dns.send_replace(Some(Arc::new(it)))),
            Content::Power(it) => drop(self.power.send_replace(Some(Arc::new(it)))),
            Content::Time(it) => drop(self.time.send_replace(Some(Arc::new(it)))),
            Content::Proxy(it) => drop(self.proxy.send_replace(Some(Arc::new(it)))),
        }
    }

    fn publish_machines(&self, change: impl FnOnce(&mut (KnownConcern, BootConcern))) {
        let mut machines = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut machines);
        let table = BootTable::new(&machines.0, machines.1.clone());
        self.boot.send_replace(Some(Arc::new(table)));
    }
}

/// Concerns on disk and in memory.
#[derive(Debug)]
pub struct ConcernStore {
    dir: PathBuf,
    epochs: Arc<Epochs>,
    held: Mutex<Vec<ConcernVersion>>,
    /// The decoded content of the concerns.
    pub views: Views,
}

/// A concern file that could not be used when the store was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// The concern of the file.
    pub concern: Concern,
    /// The fault, and the version that is used instead.
    pub message: String,
}

impl ConcernStore {
    /// Reads `DIR/concerns`. Also returns the damaged files; their previous versions are used instead.
    ///
    /// # Errors
    /// `io::Error`: the directory cannot be made or read.
    pub fn open(data_dir: &Path, epochs: Arc<Epochs>) -> io::Result<(Self, Vec<Damaged>)> {
        let dir = data_dir.join("concerns");
        durable::private_dir(&dir)?;
        let views = Views {
            dhcp: watch::Sender::new(None),
            boot: watch::Sender::new(None),
            machines: Mutex::default(),
            images: watch::Sender::new(None),
            power: watch::Sender::new(None),
            dns: watch::Sender::new(None),
            time: watch::Sender::new(None),
            proxy: watch::Sender::new(None),
        };
        let store = Self { dir, epochs, held: Mutex::new(Vec::new()), views };
        let mut damaged = Vec::new();
        for concern in Concern::ALL {
            let path = store.path(concern);
            let current = load(&path, concern);
            let found = match current {
                Ok(found) => found,
                Err(reason) => {
                    let previous = load(&durable::beside(&path, "old"), concern).ok().flatten();
                    let instead = match &previous {
                        Some((version, _)) => format!("generation {} is used instead", version.generation),
                        None => "there is no earlier one: this concern is empty until a region sends it"
                            .to_owned(),
                    };
                    damaged.push(Damaged {
                        concern,
                        message: format!("{}: {reason}; {instead}", path.display()),
                    });
                    previous
                }
            };
            if let Some((version, content)) = found {
                store.hold(version);
                store.views.publish(content);
            }
        }
        Ok((store, damaged))
    }

    /// Applies a version, or replies why not. An accepted version is durable when this returns. Blocks on the disk.
    pub fn apply(&self, offered: &ConcernVersion) -> ConcernReply {
        self.decide(&mut self.held.lock().unwrap_or_else(PoisonError::into_inner), offered)
    }

    /// Applies a delta to the present version, or replies that the rack needs the whole concern. Blocks on the disk.
    pub fn apply_delta(&self, delta: ConcernDelta) -> ConcernReply {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let version = delta.version.as_ref();
        let (name, generation) = version.map(|it| (it.concern.clone(), it.generation)).unwrap_or_default();
        let current = held.iter().find(|it| it.concern == name);
        let mine = current.map_or(0, |it| it.generation);
        match changed(current, delta) {
            Ok(version) => self.decide(&mut held, &version),
            Err(message) => {
                tracing::warn!(concern = %name, generation, mine, %message, "delta not applied; the whole concern is asked for");
                let (concern, outcome) = (name, Outcome::NeedsWhole.into());
                ConcernReply { concern, generation, outcome, mine, message }
            }
        }
    }

    fn decide(&self, held: &mut Vec<ConcernVersion>, offered: &ConcernVersion) -> ConcernReply {
        let current = held.iter().find(|it| it.concern == offered.concern);
        let decision = match accept(current, offered, &self.epochs.retired()) {
            Decision::Applied => match self.take(offered) {
                Ok(()) => Decision::Applied,
                Err(error) => {
                    Decision::Failed(format!("concern {:?} could not be kept: {error}", offered.concern))
                }
            },
            other => other,
        };
        if decision == Decision::Applied {
            held.retain(|it| it.concern != offered.concern);
            held.push(offered.clone());
        }
        let mine = held.iter().find(|it| it.concern == offered.concern).map_or(0, |it| it.generation);
        let message = match &decision {
            Decision::Applied | Decision::AlreadyThere => {
                let left_out = verify(offered).map(|it| it.left_out).unwrap_or_default();
                if left_out.is_empty() { String::new() } else { format!("left out: {}", left_out.join("; ")) }
            }
            Decision::RefusedOlder { .. } => format!("this rack holds generation {mine}"),
            Decision::RefusedConflict { .. } => {
                format!("this rack holds other content under generation {mine}: two regions disagree")
            }
            Decision::Failed(reason) => reason.clone(),
        };
        match decision {
            Decision::Applied if !message.is_empty() => {
                tracing::error!(concern = %offered.concern, generation = offered.generation, %message, "concern applied in part");
            }
            Decision::Applied => {
                tracing::info!(concern = %offered.concern, generation = offered.generation, "concern applied");
            }
            Decision::AlreadyThere => {}
            _ => {
                tracing::warn!(concern = %offered.concern, generation = offered.generation, %message, "concern refused")
            }
        }
        ConcernReply {
            concern: offered.concern.clone(),
            generation: offered.generation,
            outcome: decision.outcome().into(),
            mine,
            message,
        }
    }

    /// Finds files that another process has replaced (`basalt-rack concern put`), and applies them by the same rules.
    /// Blocks on the disk.
    pub fn reread(&self) {
        for concern in Concern::ALL {
            let path = self.path(concern);
            match load(&path, concern) {
                Ok(Some((version, content))) => {
                    let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
                    let current = held.iter().find(|it| it.concern == version.concern);
                    if current == Some(&version) {
                        continue;
                    }
                    if accept(current, &version, &self.epochs.retired()) != Decision::Applied {
                        let mine = current.map_or(0, |it| it.generation);
                        tracing::warn!(%concern, generation = version.generation, mine, "file is not newer than what is held");
                        continue;
                    }
                    if let Err(error) = self.epochs.enter(&version.incarnation) {
                        tracing::error!(%concern, %error, "file could not be taken over");
                        continue;
                    }
                    tracing::info!(%concern, generation = version.generation, "concern taken from its file");
                    held.retain(|it| it.concern != version.concern);
                    held.push(version);
                    self.views.publish(content);
                }
                Ok(None) => {}
                Err(reason) => {
                    tracing::warn!(%concern, %reason, "file is damaged; what is held stays in force")
                }
            }
        }
    }

    /// When each file was last changed, and its size. If two results differ, call [`ConcernStore::reread`].
    #[must_use]
    pub fn stamp(&self) -> Vec<Option<(std::time::SystemTime, u64)>> {
        let of =
            |concern| fs::metadata(self.path(concern)).and_then(|it| Ok((it.modified()?, it.len()))).ok();
        Concern::ALL.into_iter().map(of).collect()
    }

    /// The concerns that the rack has, for its hello.
    pub fn held(&self) -> Vec<HeldConcern> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let describe = |it: &ConcernVersion| HeldConcern {
            concern: it.concern.clone(),
            generation: it.generation,
            sha256: it.sha256.clone(),
            incarnation: it.incarnation.clone(),
        };
        held.iter().map(describe).collect()
    }

    fn take(&self, offered: &ConcernVersion) -> Result<(), String> {
        crate::kill::instructed(offered);
        let Understood { concern, content, .. } = verify(offered)?;
        let path = self.path(concern);
        // Store the incarnation first: after a crash in between, versions of the old one must not be accepted.
        self.epochs.enter(&offered.incarnation).map_err(|error| error.to_string())?;
        keep(&path, concern, &offered.encode_to_vec())
            .map_err(|error| format!("{}: {error}", path.display()))?;
        self.views.publish(content);
        Ok(())
    }

    fn hold(&self, version: ConcernVersion) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).push(version);
    }

    fn path(&self, concern: Concern) -> PathBuf {
        path(&self.dir, concern)
    }
}

/// Writes a concern's file. For a concern with secrets no previous version is kept, so that a withdrawn secret
/// disappears from the disk.
fn keep(path: &Path, concern: Concern, bytes: &[u8]) -> io::Result<()> {
    if !concern.has_secrets() {
        return durable::replace_keeping_old(path, bytes);
    }
    durable::replace(path, bytes)?;
    match fs::remove_file(durable::beside(path, "old")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => durable::sync_parent(path),
    }
}

fn path(dir: &Path, concern: Concern) -> PathBuf {
    dir.join(format!("{concern}.pb"))
}

fn load(path: &Path, concern: Concern) -> Result<Option<(ConcernVersion, Content)>, String> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let version =
        ConcernVersion::decode(bytes.as_slice()).map_err(|error| format!("not a concern file: {error}"))?;
    let understood = verify(&version)?;
    if understood.concern != concern {
        return Err(format!("holds concern {}", understood.concern));
    }
    Ok(Some((version, understood.content)))
}

/// Writes a concern into a rack's data directory without a region, as `basalt-rack concern put` and tests do. A running
/// rack applies it within a second if it is newer than the rack's version.
///
/// # Errors
/// `io::Error`: the version is not usable (kind `InvalidInput`), or the file cannot be written.
pub fn write_concern(data_dir: &Path, version: &ConcernVersion) -> io::Result<()> {
    let invalid = |reason| io::Error::new(io::ErrorKind::InvalidInput, reason);
    let Understood { concern, left_out, .. } = verify(version).map_err(invalid)?;
    // A person who writes a concern by hand learns of unusable parts at once.
    if !left_out.is_empty() {
        return Err(invalid(left_out.join("; ")));
    }
    let dir = data_dir.join("concerns");
    durable::private_dir(&dir)?;
    keep(&path(&dir, concern), concern, &version.encode_to_vec())
}

/// Reads a concern from a rack's data directory.
///
/// # Errors
/// The file is damaged; the text says how.
pub fn read_concern(data_dir: &Path, concern: Concern) -> Result<Option<(ConcernVersion, Content)>, String> {
    load(&path(&data_dir.join("concerns"), concern), concern)
}

#[cfg(test)]
mod tests {
    use super::super::version;
    use super::*;
    use basalt_proto::delta;
    use basalt_proto::rack_v1::{Blob, Bmc, DhcpSubnet};

    fn open(dir: &Path) -> (ConcernStore, Vec<Damaged>) {
        ConcernStore::open(dir, Arc::new(Epochs::open(dir).unwrap())).unwrap()
    }

    fn dhcp(generation: u64, incarnation: &str) -> ConcernVersion {
        version(
            Concern::Dhcp,
            generation,
            incarnation,
            &DhcpConcern {
                subnets: vec![],
                serve_unknown: generation.is_multiple_of(2),
                ..DhcpConcern::default()
            },
        )
    }

    #[test]
    fn what_is_left_out_of_a_concern_is_told_whenever_it_is_offered_and_a_person_is_refused_it() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = open(dir.path());
        let subnet = |cidr: &str, lease_seconds| DhcpSubnet {
            subnet_uid: cidr.into(),
            cidr: cidr.into(),
            lease_seconds,
            ..DhcpSubnet::default()
        };
        let subnets = vec![subnet("10.77.0.0/24", 600), subnet("10.78.0.0/24", 30)];
        let offered = version(Concern::Dhcp, 1, "a", &DhcpConcern { subnets, ..DhcpConcern::default() });
        for outcome in [Outcome::Applied, Outcome::AlreadyThere] {
            let reply = store.apply(&offered);
            assert_eq!(reply.outcome(), outcome);
            assert!(reply.message.starts_with("left out: ") && reply.message.contains("30 s"), "{reply:?}");
        }
        let held = store.views.dhcp.subscribe();
        assert_eq!(held.borrow().as_ref().unwrap().subnets.len(), 1);
        let refused = write_concern(dir.path(), &offered).unwrap_err();
        assert!(refused.to_string().contains("30 s"), "{refused}");
    }

    #[test]
    fn keeps_an_applied_concern_over_a_restart_and_tells_its_users() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = open(dir.path());
        let mut users = store.views.dhcp.subscribe();
        assert_eq!(store.apply(&dhcp(2, "a")).outcome(), Outcome::Applied);
        assert!(users.has_changed().unwrap());
        assert!(users.borrow_and_update().as_ref().unwrap().serve_unknown);
        assert_eq!(store.apply(&dhcp(2, "a")).outcome(), Outcome::AlreadyThere);
        assert!(!users.has_changed().unwrap());

        let (store, damaged) = open(dir.path());
        assert!(damaged.is_empty());
        assert_eq!(store.held()[0].generation, 2);
        let reply = store.apply(&dhcp(1, "a"));
        assert_eq!((reply.outcome(), reply.mine), (Outcome::RefusedOlder, 2));
    }

    /// A version of [`Concern::Images`] with this many blobs.
    fn images(generation: u64, incarnation: &str, blobs: usize) -> ConcernVersion {
        let blob = |number| Blob { sha256: format!("{number:064}"), size: 1, prefetch: false };
        let blobs = (0..blobs).map(blob).collect();
        version(Concern::Images, generation, incarnation, &ImagesConcern { blobs })
    }

    fn between(old: &ConcernVersion, new: &ConcernVersion) -> ConcernDelta {
        let version = ConcernVersion { body: Vec::new(), ..new.clone() };
        let parts = delta::between(&old.body, &new.body);
        ConcernDelta { version: Some(version), base_sha256: old.sha256.clone(), parts }
    }

    #[test]
    fn a_delta_makes_the_next_version_and_is_durable() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = open(dir.path());
        let [one, two] = [images(1, "a", 3), images(2, "a", 4)];
        assert_eq!(store.apply(&one).outcome(), Outcome::Applied);
        let reply = store.apply_delta(between(&one, &two));
        assert_eq!((reply.outcome(), reply.generation, reply.mine), (Outcome::Applied, 2, 2));
        assert_eq!(store.views.images.borrow().as_ref().unwrap().blobs.len(), 4);
        // The same delta from another region.
        assert_eq!(store.apply_delta(between(&one, &two)).outcome(), Outcome::AlreadyThere);
        let (store, damaged) = open(dir.path());
        assert!(damaged.is_empty());
        assert_eq!(store.held.lock().unwrap()[..], [two]);
    }

    #[test]
    fn a_delta_of_another_body_or_another_incarnation_changes_nothing_and_the_whole_heals() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = open(dir.path());
        let [one, two, three] = [images(1, "a", 3), images(2, "a", 4), images(3, "a", 5)];
        let next = images(1, "b", 5);
        assert_eq!(store.apply_delta(between(&one, &two)).outcome(), Outcome::NeedsWhole, "it holds none");
        store.apply(&one);
        for (delta, words) in
            [(between(&two, &three), "and the delta changes"), (between(&one, &next), "incarnation")]
        {
            let reply = store.apply_delta(delta);
            assert_eq!((reply.outcome(), reply.mine), (Outcome::NeedsWhole, 1));
            assert!(reply.message.contains(words), "{reply:?}");
        }
        assert_eq!(store.held.lock().unwrap()[..], [one]);
        assert_eq!(store.apply(&three).outcome(), Outcome::Applied);
    }

    #[test]
    fn a_damaged_entry_is_noticed_by_the_hash_of_the_result() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = open(dir.path());
        let [one, two] = [images(1, "a", 3), images(2, "a", 4)];
        store.apply(&one);
        // In memory, or on the way.
        store.held.lock().unwrap()[0].body[10] ^= 1;
        let mut on_the_way = between(&one, &two);
        let part = on_the_way.parts.iter_mut().find(|part| !part.insert.is_empty()).unwrap();
        part.insert[0] ^= 1;
        for damaged in [between(&one, &two), on_the_way] {
            let reply = store.apply_delta(damaged);
            assert_eq!(reply.outcome(), Outcome::NeedsWhole);
            assert!(reply.message.contains("as announced"), "{reply:?}");
            store.held.lock().unwrap()[0] = one.clone();
        }
        assert_eq!(store.apply(&two).outcome(), Outcome::Applied);
    }

    #[test]
    fn an_incarnation_that_was_replaced_never_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = open(dir.path());
        assert_eq!(store.apply(&dhcp(7, "before")).outcome(), Outcome::Applied);
        assert_eq!(store.apply(&dhcp(1, "after")).outcome(), Outcome::Applied);
        let (store, _) = open(dir.path());
        assert_eq!(store.apply(&dhcp(9, "before")).outcome(), Outcome::RefusedOlder);
    }

    #[test]
    fn a_torn_file_is_detected_and_the_previous_version_used() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = open(dir.path());
        store.apply(&dhcp(1, "a"));
        store.apply(&dhcp(2, "a"));
        let file = dir.path().join("concerns/dhcp.pb");
        let bytes = fs::read(&file).unwrap();
        for cut in 0..bytes.len() {
            fs::write(&file, &bytes[..cut]).unwrap();
            let (store, damaged) = open(dir.path());
            assert_eq!(damaged.len(), 1, "cut at {cut}");
            assert!(damaged[0].message.contains("generation 1 is used instead"), "{}", damaged[0].message);
            assert_eq!(store.held()[0].generation, 1);
        }
    }

    #[test]
    fn what_a_rack_gives_up_is_gone_from_its_disk() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = open(dir.path());
        let bmc = Bmc { password: "a-marker".to_owned(), ..Bmc::default() };
        let told = PowerConcern { bmcs: vec![bmc], ..PowerConcern::default() };
        store.apply(&version(Concern::Power, 1, "a", &told));
        let files = || {
            let files = fs::read_dir(dir.path().join("concerns")).unwrap();
            files.map(|file| fs::read(file.unwrap().path()).unwrap()).collect::<Vec<_>>()
        };
        let has_marker = |file: &Vec<u8>| file.windows(8).any(|part| part == b"a-marker");
        assert!(files().iter().any(has_marker));
        store.apply(&version(Concern::Power, 2, "a", &PowerConcern::default()));
        assert!(!files().iter().any(has_marker));
    }

    #[test]
    fn a_file_written_beside_a_running_rack_is_taken_if_newer() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = open(dir.path());
        let before = store.stamp();
        write_concern(dir.path(), &dhcp(3, "local")).unwrap();
        assert_ne!(store.stamp(), before);
        store.reread();
        assert_eq!(store.held()[0].generation, 3);
        write_concern(dir.path(), &dhcp(2, "local")).unwrap();
        store.reread();
        assert_eq!(store.held()[0].generation, 3);
    }

    #[test]
    fn an_unusable_concern_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut bad = dhcp(1, "a");
        bad.body.push(1);
        let error = write_concern(dir.path(), &bad).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(!dir.path().join("concerns/dhcp.pb").exists());
    }
}
