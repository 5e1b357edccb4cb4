//! The region as the resources use it: reads, and changes that wait for their turn. [`refusal`](crate::refusal) reports the refusals.
//!
//! Terraform runs independent operations at the same time and in any order. For example, another range still holds the addresses of a new
//! one, or the predecessor of a range is still being deleted. A moment later the region may accept the change. So the provider retries such
//! a refusal for a while, if the object in the way is ours. If this same run wrote the object in the way, waiting does not help, and the
//! refusal is reported at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use basalt_api::client::{ClientError, DeleteOptions, ListOptions, Precondition};
use basalt_api::values::{Name, Naming, RunId, nearest};
use basalt_api::wire::{Layer, ObjectList, PutLayer, PutRequest};
use basalt_api::{FieldCode, Kind, Object, Problem, ProblemCode};
use tfplugin::{Cx, Diag, Diags, Path, Val};

use crate::activity::{Activity, UnderWay};
use crate::bounded::Bounded;
use crate::listing::{AsOf, Listings};
use crate::natural::NaturalKey;
use crate::pages::Pages;
use crate::patience;
use crate::run::Run;
use crate::snapshot::Snapshots;
use crate::{MANAGER, refusal};

/// Longest wait for another object of ours that is in the way; and for a referenced object that does not exist yet.
pub(crate) const IN_THE_WAY: Duration = Duration::from_secs(30);
pub(crate) const ON_ITS_WAY: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Largest number of objects in one page of a region's list.
pub(crate) const LARGEST_PAGE: u32 = 1000;
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Number of similar names that a message lists.
const NEAREST: usize = 5;

/// A change that waits for its turn: the time since it waits, and the pause before the next attempt.
#[derive(Debug)]
pub(crate) struct Turn {
    began: Instant,
    pause: Duration,
}

impl Default for Turn {
    fn default() -> Self {
        Self { began: Instant::now(), pause: FIRST_PAUSE }
    }
}

impl Turn {
    /// Waits for a moment, longer each time. False after `limit`, when no other change is under way that could help, or when the user
    /// interrupts Terraform.
    pub(crate) async fn wait(&mut self, cx: &Cx, region: &Region, limit: Duration) -> bool {
        let _waits = region.activity.waits();
        if self.began.elapsed() + self.pause > limit || region.activity.is_quiet() {
            return false;
        }
        tokio::select! {
            () = tokio::time::sleep(self.pause) => {}
            () = cx.cancelled() => return false,
        }
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        true
    }
}

/// A configured region. Terraform configures it once a run.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub(crate) client: Bounded,
    pub(crate) run: Run,
    written: Arc<Mutex<Written>>,
    pages: Arc<Pages>,
    snapshots: Arc<Snapshots>,
    listings: Arc<Listings>,
    activity: Activity,
}

/// The objects that this run has written, by kind and name, with the time of the region's answer.
type Written = BTreeMap<(&'static str, String), Instant>;

impl Region {
    pub(crate) fn new(client: Bounded) -> Self {
        let pages = Arc::<Pages>::default();
        let id = RunId::generate();
        let client = client.of_run(id);
        Self {
            run: Run::new(id, client.clone()),
            client,
            written: Arc::default(),
            snapshots: Arc::new(Snapshots::of(Arc::clone(&pages))),
            pages,
            listings: Arc::default(),
            activity: Activity::default(),
        }
    }

    /// Marks a change as under way until the result is dropped.
    pub(crate) fn begins(&self) -> UnderWay {
        self.activity.begins()
    }

    /// A failed call as diagnostics, each wrong field at its attribute.
    pub(crate) fn diags(&self, kind: &Kind, name: &str, error: &ClientError) -> Diags {
        self.diags_of(kind, name, error, &Val::Null)
    }

    /// The same for an error about a configuration. If no region answers, the first error gives the reason, and later ones are short.
    pub(crate) fn diags_of(&self, kind: &Kind, name: &str, error: &ClientError, config: &Val) -> Diags {
        let is_away = matches!(error, ClientError::Unreachable { .. } | ClientError::Distrusted { .. });
        if is_away && !self.client.misses() {
            let detail = "Still no region answers; another error of this run says in full why. Run this again once one does.";
            return Diag::error(format!("The region cannot be reached: {} {name:?}", kind.name), detail)
                .into();
        }
        refusal::diags_of(kind, name, error, config)
    }

    /// The object as it is now, by uid or name.
    pub(crate) async fn find(&self, kind: &'static Kind, key: &str) -> Result<Option<Object>, Diags> {
        self.client.call().await.find(kind, key).await.map_err(|error| self.diags(kind, key, &error))
    }

    /// The object as it was a moment ago, by uid or name; cheap if many objects of the kind are read. Messages contain its `name`.
    pub(crate) async fn refresh(
        &self,
        kind: &'static Kind,
        key: &str,
        name: &str,
    ) -> Result<Option<Object>, Diags> {
        self.snapshots.find(&self.client, kind, key).await.map_err(|error| self.diags(kind, name, &error))
    }

    /// The one object of a kind with a natural key. `at` is the path of the key. If the list has none or several,
    /// it is read again before the error.
    pub(crate) async fn find_by(
        &self,
        kind: &'static Kind,
        text: &str,
        key: &NaturalKey,
        at: Path,
        as_of: AsOf,
    ) -> Result<Object, Diags> {
        let mut all = self.all(kind, as_of).await?;
        if as_of != AsOf::Now && all.iter().filter(|object| key.is_of(object)).count() != 1 {
            all = self.all(kind, AsOf::Now).await?;
        }
        let mut found: Vec<_> = all.iter().filter(|object| key.is_of(object)).collect();
        let name = kind.name;
        let (title, detail) = match found.pop() {
            Some(object) if found.is_empty() => return Ok(object.clone()),
            Some(last) => {
                let names: Vec<_> =
                    found.iter().chain([&last]).map(|object| object.metadata.name.as_str()).collect();
                let detail = format!(
                    "There is more than one {name} with {text}: {}. Ask for what only one of them has, or for one by its name.",
                    names.join(", ")
                );
                ("Not one", detail)
            }
            None => {
                let values: BTreeSet<_> = all.iter().flat_map(|object| key.values(object)).collect();
                let near = nearest(key.value(), values.iter().map(String::as_str), NEAREST);
                let near = match (all.is_empty(), near.is_empty()) {
                    (true, _) => none_at_all(kind),
                    (_, true) => format!("Of the {} that there are, none has anything there.", all.len()),
                    _ => format!("The nearest that there is: {}.", near.join(", ")),
                };
                ("Not found", format!("There is no {name} with {text}. {near}"))
            }
        };
        Err(Diag::error(format!("{title}: {name} {text:?}"), detail).at(at).into())
    }

    /// Error: there is no object with this name. It lists similar names.
    pub(crate) async fn absent(&self, kind: &'static Kind, name: &str, at: Path) -> Diag {
        let title = format!("Not found: {} {name:?}", kind.name);
        let near = self.near(kind, name).await;
        Diag::error(title, format!("There is no {} {name:?}.{near}", kind.name)).at(at)
    }

    /// A sentence with similar names, to follow another sentence; empty if the region does not answer.
    pub(crate) async fn near(&self, kind: &'static Kind, name: &str) -> String {
        match self.all(kind, AsOf::Lately).await {
            // The object is absent anyway, even if the list failed.
            Err(_) => String::new(),
            Ok(all) if all.is_empty() => format!(" {}", none_at_all(kind)),
            Ok(all) => {
                let names = all.iter().map(|object| object.metadata.name.as_str());
                let near: Vec<_> =
                    nearest(name, names, NEAREST).iter().map(|near| format!("{near:?}")).collect();
                format!(" The nearest names that there are: {}.", near.join(", "))
            }
        }
    }

    /// All objects of a kind.
    pub(crate) async fn all(&self, kind: &'static Kind, as_of: AsOf) -> Result<Arc<Vec<Object>>, Diags> {
        let listed = self.listings.all(&self.client, kind, as_of).await;
        listed.map_err(|error| self.diags(kind, kind.plural, &error))
    }

    /// All objects of a kind that match.
    pub(crate) async fn list(
        &self,
        kind: &'static Kind,
        options: ListOptions,
    ) -> Result<Arc<Vec<Object>>, Diags> {
        if options == ListOptions::default() {
            return self.all(kind, AsOf::Now).await;
        }
        let options = ListOptions { limit: Some(LARGEST_PAGE), ..options };
        self.client
            .call()
            .await
            .list_all(kind, &options)
            .await
            .map(Arc::new)
            .map_err(|error| self.diags(kind, kind.plural, &error))
    }

    /// One page of the objects of a kind that match.
    pub(crate) async fn page(&self, kind: &'static Kind, options: &ListOptions) -> Result<ObjectList, Diags> {
        let page = self.pages.page(&self.client, kind, options).await;
        page.map_err(|error| self.diags(kind, kind.plural, &error))
    }

    /// The layers of an object, by manager. They came with the object, or need a request of their own.
    pub(crate) async fn layers(
        &self,
        kind: &'static Kind,
        object: &Object,
    ) -> Result<BTreeMap<String, Layer>, Diags> {
        if let Some(layers) = &object.metadata.layers {
            return Ok(layers.clone());
        }
        let key = format!("uid:{}", object.metadata.uid);
        match self.client.call().await.layers(kind, &key).await {
            Ok(layers) => Ok(layers.layers),
            // It was deleted in the meantime.
            Err(error) if error.is_not_found() => Ok(BTreeMap::new()),
            Err(error) => Err(self.diags(kind, object.metadata.name.as_str(), &error)),
        }
    }

    /// Replaces the layer of one manager.
    pub(crate) async fn put_layer(
        &self,
        kind: &'static Kind,
        key: &str,
        manager: &str,
        layer: PutLayer,
    ) -> Result<Object, ClientError> {
        let written = self.client.call().await.put_layer(kind, key, manager, layer).await;
        self.forget();
        written
    }

    /// Renames the object. The plan has warned if another manager declared the name.
    pub(crate) async fn rename(
        &self,
        kind: &'static Kind,
        key: &str,
        name: &Name,
    ) -> Result<Object, ClientError> {
        let renamed = self.client.call().await.rename(kind, key, name, true).await;
        self.forget();
        renamed
    }

    /// Writes a spec, once no object of ours is in its way.
    pub(crate) async fn put(
        &self,
        cx: &Cx,
        kind: &'static Kind,
        key: &str,
        request: &PutRequest,
        precondition: Precondition,
    ) -> Result<Object, ClientError> {
        let mut turn = Turn::default();
        loop {
            let asked = Instant::now();
            let written = self.client.call().await.put(kind, key, request, precondition).await;
            self.forget();
            match written {
                Ok(written) => {
                    let mut known = self.written.lock().unwrap_or_else(PoisonError::into_inner);
                    known.insert((kind.name, written.object.metadata.name.to_string()), Instant::now());
                    return Ok(written.object);
                }
                Err(error) => self.wait_turn(cx, &mut turn, asked, error).await?,
            }
        }
    }

    /// Deletes an object, once no object of ours needs it. `None` if it is already gone.
    pub(crate) async fn delete(
        &self,
        cx: &Cx,
        kind: &'static Kind,
        key: &str,
    ) -> Result<Option<Object>, ClientError> {
        let options = deletion(kind);
        let mut turn = Turn::default();
        loop {
            let asked = Instant::now();
            let deleted = self.client.call().await.delete(kind, key, options).await;
            self.forget();
            match deleted {
                Ok(object) => return Ok(object),
                Err(error) if error.is_not_found() => return Ok(None),
                Err(error) => self.wait_turn(cx, &mut turn, asked, error).await?,
            }
        }
    }

    /// Forgets earlier reads after a write.
    fn forget(&self) {
        self.snapshots.forget();
        self.listings.forget();
    }

    /// Waits a little if the refusal may pass; otherwise returns it. `asked` is the time of the refused request.
    async fn wait_turn(
        &self,
        cx: &Cx,
        turn: &mut Turn,
        asked: Instant,
        error: ClientError,
    ) -> Result<(), ClientError> {
        let Some(limit) = self.may_pass(&error, asked).await else { return Err(error) };
        tracing::info!(%error, "waiting for what is in the way");
        if turn.wait(cx, self, limit).await { Ok(()) } else { Err(error) }
    }

    /// True if an object of ours has this name, or no object has it any more.
    pub(crate) async fn has_ours(&self, kind: &'static Kind, name: &str) -> bool {
        match self.client.call().await.find(kind, name).await {
            Ok(Some(object)) => object.metadata.manager.as_deref() == Some(MANAGER),
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// How long to retry after this refusal. None if a retry is useless.
    async fn may_pass(&self, error: &ClientError, asked: Instant) -> Option<Duration> {
        let problem = error.problem()?;
        let all_are =
            |code| !problem.errors.is_empty() && problem.errors.iter().all(|error| error.code == code);
        match problem.code {
            ProblemCode::Deleting => Some(IN_THE_WAY),
            ProblemCode::ReferenceNotFound => Some(ON_ITS_WAY),
            _ if all_are(FieldCode::ReferenceNotFound) => Some(ON_ITS_WAY),
            ProblemCode::Overlap | ProblemCode::InUse if self.stays(problem, asked) => None,
            ProblemCode::Overlap | ProblemCode::InUse => self.is_ours(problem).await.then_some(IN_THE_WAY),
            _ if all_are(FieldCode::Overlap) && !self.stays(problem, asked) => {
                self.is_ours(problem).await.then_some(IN_THE_WAY)
            }
            _ => None,
        }
    }

    /// True if this run had already written an object that the refusal names, before the request at `asked`.
    fn stays(&self, problem: &Problem, asked: Instant) -> bool {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let mut named = texts(problem).flat_map(named);
        named.any(|(kind, name)| written.get(&(kind.name, name.to_owned())).is_some_and(|at| *at <= asked))
    }

    /// The objects in the refusal that another tool manages, in the refusal's words.
    pub(crate) async fn not_ours(&self, problem: &Problem) -> Vec<String> {
        let mut others = Vec::new();
        for (kind, name) in texts(problem).flat_map(named) {
            let found = self.snapshots.find(&self.client, kind, name).await;
            match found {
                Ok(Some(object)) if object.metadata.manager.as_deref() != Some(MANAGER) => {
                    others.push(format!("{} {name:?}", kind.name));
                }
                _ => {}
            }
        }
        others
    }

    /// True if the object exists and belongs to another manager.
    pub(crate) async fn is_theirs(&self, kind: &'static Kind, name: &str) -> bool {
        let found = self.client.call().await.find(kind, name).await;
        matches!(found, Ok(Some(object)) if object.metadata.manager.as_deref() != Some(MANAGER))
    }

    /// True if every object in the refusal is ours.
    async fn is_ours(&self, problem: &Problem) -> bool {
        for (kind, name) in texts(problem).flat_map(named) {
            let found = self.client.call().await.find(kind, name).await;
            match found {
                Ok(Some(object)) if object.metadata.manager.as_deref() != Some(MANAGER) => return false,
                _ => {}
            }
        }
        true
    }
}

/// Options for deleting an object of a kind. A kind without a delete timeout releases nothing by itself: it is deleted only if nothing
/// refers to it. Otherwise it would take no more changes, and would stay as long as it is referred to.
pub(crate) fn deletion(kind: &Kind) -> DeleteOptions {
    let if_unused = patience::timeouts(kind).delete.is_none();
    DeleteOptions { if_unused, adopt: true, ..DeleteOptions::default() }
}

fn none_at_all(kind: &Kind) -> String {
    if kind.naming == Naming::Singleton {
        return "Nobody has declared any yet: everything is at its default.".to_owned();
    }
    format!("There is no {} at all, or none that this token may see.", kind.name)
}

fn texts(problem: &Problem) -> impl Iterator<Item = &str> {
    problem.errors.iter().map(|error| error.message.as_str()).chain([problem.detail.as_str()])
}

/// The objects that a message names, as `IpRange "lab-dynamic"`.
pub(crate) fn named(text: &str) -> impl Iterator<Item = (&'static Kind, &str)> {
    let words = text.split_whitespace();
    words.clone().zip(words.skip(1)).filter_map(|(kind, name)| {
        let kind = Kind::find(kind)?;
        let name = name.strip_prefix('"')?.split('"').next()?;
        Some((kind, name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_objects_that_a_message_names() {
        let text = r#"10.0.0.1-10.0.0.9 overlaps 10.0.0.5-10.0.0.20 of IpRange "lab-a""#;
        let found: Vec<_> = named(text).map(|(kind, name)| (kind.name, name)).collect();
        assert_eq!(found, [("IpRange", "lab-a")]);
        assert_eq!(named("nothing is \"named\" here").count(), 0);
    }

    #[test]
    fn that_no_region_answers_is_told_in_full_once() {
        let endpoints = vec!["http://127.0.0.1:1".to_owned()];
        let config = basalt_api::client::ClientConfig { endpoints, ..Default::default() };
        let region = Region::new(Bounded::new(&config, None).expect("a client"));
        let kind = Kind::find("Zone").expect("a kind");
        let away = || ClientError::Unreachable { tried: vec!["it is off".to_owned()], patience: ON_ITS_WAY };
        let told = ["a", "b", "c"].map(|name| region.diags(kind, name, &away()).0.remove(0));
        assert!(told[0].detail.contains("it is off"), "{told:?}");
        for (diag, name) in told[1..].iter().zip(["b", "c"]) {
            assert_eq!(diag.summary, format!("The region cannot be reached: Zone {name:?}"));
            assert!(diag.detail.contains("another error of this run says in full why"), "{told:?}");
        }
    }
}
