//! The resource of a kind: create, read, update and delete.

mod adopt;
mod creation;
mod foresee;
mod look;
mod name;
mod settle;

use std::sync::Arc;

use basalt_api::client::{ClientError, Outcome, Precondition, WaitGone};
use basalt_api::values::{Generation, Naming, Uid};
use basalt_api::wire::PutRequest;
use basalt_api::{Effect, Kind, ProblemCode, Type, validate_partial};
use serde::{Deserialize, Serialize};
use tfplugin::{
    Change, Cx, Diag, Diags, Identity, Moved, Operation, Path, Resource, Schema, Val, async_trait,
};

use crate::MANAGER;
use crate::fresh;
use crate::listing::AsOf;
use crate::maas;
use crate::map::{self, Declared, LABELS, LABELS_ALL, NAME, READY, Revisions, STATUS, UID};
use crate::memory::Memory;
use crate::natural::{self, NaturalKey};
use crate::patience;
use crate::provider::Session;
use crate::refusal;

pub(crate) use settle::{ProgressLog, is_late, is_stalled};

/// The resource of a kind.
pub(crate) struct KindResource {
    kind: &'static Kind,
    schema: Schema,
    session: Arc<Session>,
}

/// Private data about an object, which Terraform stores beside its state.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Beside {
    /// The generation that was last read or written. A change requires that the region still has this one.
    #[serde(default)]
    generation: Option<Generation>,
    /// Revisions of the secrets that were written.
    #[serde(default)]
    secrets: Revisions,
    /// Another manager of the object: set after an import, and when another tool took the object over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shared: Option<String>,
    /// True from the creation until a read has seen the object in the state.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unconfirmed: bool,
    /// True for an import, until the object is read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    import: bool,
}

impl Beside {
    fn read(cx: &Cx) -> Self {
        serde_json::from_slice(&cx.private()).unwrap_or_default()
    }

    fn write(&self, cx: &Cx) {
        if let Ok(bytes) = serde_json::to_vec(self) {
            cx.set_private(bytes);
        }
    }
}

impl KindResource {
    pub(crate) fn new(kind: &'static Kind, session: Arc<Session>) -> Self {
        Self { kind, schema: map::resource(kind), session }
    }

    fn memory(&self) -> &Memory {
        &self.session.memory
    }

    /// The spec that the plan declares, checked.
    fn declared(&self, change: Change<'_>) -> Declared {
        map::declared(self.kind, change.planned, change.config, change.prior)
    }

    /// True if a declared reference still points to the same object, perhaps under a new name.
    fn is_same_reference(&self, field: &basalt_api::Field, before: &Val, after: &Val) -> bool {
        match (field.ty, before.as_str(), after.as_str()) {
            (Type::Ref(kind), Some(before), Some(after)) => self.memory().is_same(kind, before, after),
            _ => before == after,
        }
    }

    /// Records that an object of the state is destroyed or replaced.
    fn goes(&self, state: &Val) {
        self.memory().goes(self.kind.name, state.get(NAME).as_str().unwrap_or_default());
    }

    /// Refuses two resources with the same name: it would be chance which one gets the object.
    fn is_declared_once(&self, name: &str, is_new: bool, is_replacement: bool) -> Result<(), Diags> {
        if is_replacement {
            self.memory().goes(self.kind.name, name);
            return Ok(());
        }
        let is_alone = match is_new {
            true => self.memory().is_to_be(self.kind.name, name),
            false => self.memory().stays(self.kind.name, name),
        };
        if is_alone {
            return Ok(());
        }
        let detail = format!(
            "Another {} of this configuration has {} {name:?} already. Give this one another name, or leave one of them out. If it only \
             moves to another address, a moved block says so.",
            self.kind.terraform_name, self.kind.name
        );
        Err(Diag::error(self.of("It is declared twice", name), detail).at(Path::root().attr(NAME)).into())
    }

    /// True if the object of this state still has the state's name. Another object may have that name by now.
    async fn is_named(&self, state: &Val) -> Result<bool, Diags> {
        let Some(region) = self.session.region_if_known() else { return Ok(false) };
        let name = state.get(NAME).as_str().unwrap_or_default();
        let there = region.refresh(self.kind, &key(state), name).await?;
        Ok(there.is_some_and(|there| state.get(NAME).as_str() == Some(there.metadata.name.as_str())))
    }

    /// Refuses a plan in which an object stays and refers, as before, to one that is destroyed: the region keeps that one while it is
    /// referred to. For one that is replaced it warns only: Terraform may also replace this object, and does not tell the provider.
    fn holds(&self, cx: &Cx, before: &Val, after: &Val) -> Result<(), Diags> {
        let references = |state: &Val| {
            let spec = map::declared(self.kind, state, &Val::Null, &Val::Null).spec;
            basalt_api::references(self.kind, &spec)
        };
        let name = before.get(NAME).as_str().unwrap_or_default();
        let had = references(before);
        for reference in references(after).into_iter().filter(|reference| had.contains(reference)) {
            let (kind, to) = (reference.kind, reference.name.as_str());
            if !self.memory().holds(self.kind.name, name, (kind, to.to_owned())) {
                continue;
            }
            let at = map::path(self.kind, &reference.pointer);
            if !self.memory().is_replaced(kind, to) {
                return Err(held(kind, to, self.kind.name, name).at(at).into());
            }
            cx.warn(would_hold(kind, to, self.kind.name, name).at(at));
        }
        Ok(())
    }

    /// True if the planned object refers to one that is replaced. References whose change is a new installation do not count: a
    /// deployment is not replaced because its image changes.
    fn refers_to_replaced(&self, planned: &tfplugin::Object) -> bool {
        let planned = Val::Map(planned.clone());
        let spec = map::declared(self.kind, &planned, &Val::Null, &Val::Null).spec;
        basalt_api::references(self.kind, &spec).iter().any(|reference| {
            let field = basalt_api::pointer::steps(&reference.pointer)
                .next()
                .and_then(|name| self.kind.spec.field(&name));
            field.is_some_and(|field| field.effect != Effect::Redeploy)
                && self.memory().is_replaced(reference.kind, &reference.name)
        })
    }
}

/// Error: an object is to be destroyed, and another one needs it.
fn held(kind: &str, name: &str, by_kind: &str, by: &str) -> Diag {
    let detail = format!(
        "{kind} {name:?} is to be destroyed, and {by_kind} {by:?} stays and refers to it. The region would keep {kind} {name:?} until \
         nothing refers to it. Take {by_kind} {by:?} out of the configuration as well, have it refer to another {kind}, or leave {kind} \
         {name:?} in. If {kind} {name:?} only moves to another address, a moved block says so."
    );
    Diag::error(format!("It is still referred to: {kind} {name:?}"), detail)
}

/// Warning: an object is to be replaced, and another one needs the present one.
fn would_hold(kind: &str, name: &str, by_kind: &str, by: &str) -> Diag {
    let detail = format!(
        "{kind} {name:?} is to be replaced, which destroys the one that is there, and {by_kind} {by:?} refers to that. Unless {by_kind} \
         {by:?} is replaced in this plan as well, the apply fails halfway: what else refers to {kind} {name:?} is destroyed, and the \
         region keeps {kind} {name:?} itself until nothing refers to it. To keep {by_kind} {by:?}, leave {kind} {name:?} as it is, and \
         declare the new one beside it, under another name."
    );
    Diag::warning(format!("It is still referred to: {kind} {name:?}"), detail)
}

/// True if the plan is the second half of a replacement: Terraform then plans a creation without prior state, but passes on the private
/// data of the old object.
fn is_replacement(cx: &Cx, change: Change<'_>) -> bool {
    change.prior.is_null() && !cx.private().is_empty()
}

/// The request for a change.
fn request(spec: serde_json::Value, change: Change<'_>) -> PutRequest {
    let metadata = map::labels::metadata(change.planned, change.prior);
    PutRequest { metadata, spec, ..PutRequest::default() }
}

/// The key of this state's object at the region.
fn key(state: &Val) -> String {
    match state.get(UID).as_str() {
        Some(uid) => format!("uid:{uid}"),
        None => state.get(NAME).as_str().unwrap_or_default().to_owned(),
    }
}

#[async_trait]
impl Resource for KindResource {
    fn type_name(&self) -> &str {
        self.kind.terraform_name
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    async fn validate(&self, config: &Val) -> Diags {
        let declared = map::declared(self.kind, config, config, &Val::Null);
        let wrong = validate_partial(self.kind, &declared.spec, &declared.unknown);
        let mut diags =
            Diags(wrong.iter().map(|error| refusal::field(self.kind, error, "", config)).collect());
        for pointer in &declared.twice {
            let path = map::path(self.kind, pointer);
            diags.push(
                Diag::error(
                    "A secret is given twice",
                    "It is there plainly, and write-only as well; leave one of them out.",
                )
                .at(path),
            );
        }
        for pointer in &declared.unversioned {
            let (parent, secret) = pointer.rsplit_once('/').unwrap_or_default();
            let version = map::path(self.kind, parent).attr(&map::version(secret));
            let detail = "Terraform keeps no write-only secret, and so cannot see that it changes. Give it a version, and raise that \
                          to have the secret written again.";
            diags.push(Diag::error("A write-only secret has no version", detail).at(version));
        }
        if let Some(Err(bad)) = config.get(NAME).as_str().map(|name| self.kind.naming.check(name)) {
            let detail = format!("{}; {}.", bad.message, bad.hint);
            diags.push(Diag::error("Not a name", detail).at(Path::root().attr(NAME)));
        }
        diags.extend(map::labels::check(config, LABELS));
        diags
    }

    fn derive(&self, planned: &mut tfplugin::Object, prior: Option<&tfplugin::Object>) {
        let labels = planned.get(LABELS).unwrap_or(&Val::Null);
        let labels = map::labels::all(&self.session.default_labels(), labels);
        planned.insert(LABELS_ALL.to_owned(), labels);
        if self.kind.naming == Naming::FabricVid {
            let name = match (planned.get("fabric"), planned.get("vid")) {
                (Some(Val::Str(fabric)), Some(Val::Num(vid))) => Val::from(format!("{fabric}.{vid}")),
                _ => Val::Unknown,
            };
            planned.insert(NAME.to_owned(), name);
        }
        // An object that refers to a replaced one must itself be replaced: deleted before it and created after it. An unknown uid, as an
        // attribute with `replace`, causes that.
        if self.refers_to_replaced(planned) {
            planned.insert(UID.to_owned(), Val::Unknown);
        }
        // An object that is not ready yet is waited for in the apply.
        if planned.get(READY) == Some(&Val::Bool(false)) {
            planned.insert(READY.to_owned(), Val::Unknown);
        }
        if planned.get(STATUS) == Some(&Val::Unknown)
            && let Some(status) = foresee::status(self.kind, &self.schema, planned, prior)
        {
            planned.insert(STATUS.to_owned(), status);
        }
    }

    async fn read(&self, cx: &Cx, state: &Val) -> Result<Option<Val>, Diags> {
        let region = self.session.region()?;
        let is_moved = state.get(NAME).is_null() && state.get(UID).is_null();
        let found = if is_moved {
            maas::find(&region, self.kind, state).await?
        } else {
            let key = key(state);
            let name = state.get(NAME).as_str().unwrap_or(&key);
            region.refresh(self.kind, &key, name).await?
        };
        let Some(object) = found else {
            return match Beside::read(cx).import {
                true => Err(self.not_there(&region, state).await),
                false => Ok(None),
            };
        };
        self.memory().keeps(&object.metadata.uid.to_string());
        if let Some(warning) = maas::taken(&object).filter(|_| is_moved) {
            cx.warn(warning);
        }
        if let Some(warning) = fresh::going(self.kind, &object).or_else(|| fresh::held_up(self.kind, &object))
        {
            cx.warn(warning);
        }
        // An imported object has no prior state, so its state is the region's answer.
        let is_imported = state.get(NAME).is_null() || state.get(UID).is_null();
        let mut now = if is_imported {
            fresh::state(&region, self.kind, &object, &self.session.default_labels()).await?
        } else {
            let mut now = map::object(self.kind, &object);
            map::labels::refresh(state, &object.metadata.labels, &mut now);
            if patience::is_awaited(self.kind) {
                now.set(READY, fresh::is_ready(&object));
            }
            now
        };
        let was_ready = state.get(READY) == &Val::Bool(true);
        let is_ready = now.get(READY).clone();
        if !is_imported {
            map::keep_equal(self.kind, state, &object.spec, &mut now);
        }
        // It was ready once since its last change. Its readiness after that is not part of the state.
        if !was_ready && !is_ready.is_null() {
            now.set(READY, is_ready);
        }
        self.confirm(cx, &now).await;
        let mut beside = Beside { import: false, ..Beside::read(cx) };
        beside.secrets.forget_changed(&Revisions::of(self.kind, &object.spec), &mut now);
        beside.generation = Some(object.metadata.generation);
        beside.shared = object.metadata.manager.filter(|manager| manager != MANAGER);
        beside.write(cx);
        Ok(Some(now))
    }

    async fn review(&self, cx: &Cx, change: Change<'_>) -> Result<Vec<Path>, Diags> {
        self.session.is_well()?;
        self.confirm(cx, change.prior).await;
        let after = change.planned.get(NAME).as_str();
        if let Some(before) = change.prior.get(NAME).as_str() {
            self.memory().moves(self.kind.name, before);
        }
        match (change.prior.get(NAME).as_str(), after) {
            (None, Some(name)) => self.memory().comes(self.kind.name, name),
            (Some(before), Some(after)) if before != after => {
                self.memory().renames(self.kind.name, before, after);
            }
            _ => {}
        }
        let fixed = self.kind.spec.fields.iter().filter(|field| map::is_fixed_reference(field));
        let replace: Vec<_> = fixed
            .filter(|field| {
                !change.prior.is_null() && {
                    let (before, after) = (change.prior.get(field.name), change.planned.get(field.name));
                    !self.is_same_reference(field, before, after)
                }
            })
            .map(|field| Path::root().attr(field.name))
            .collect();
        if let Some(name) = after
            && !change.prior.is_null()
            && (!replace.is_empty() || !change.replace.is_empty())
        {
            self.goes(change.prior);
            self.gives_way(cx, change.prior, name).await?;
            return Ok(replace);
        }
        if let Some(name) = after {
            self.is_declared_once(name, change.prior.is_null(), is_replacement(cx, change))?;
        }
        if !change.prior.is_null() {
            self.holds(cx, change.prior, change.planned)?;
            if let (Some(manager), Some(name)) = (Beside::read(cx).shared, after) {
                cx.warn(self.is_taken_over(name, &manager));
            }
            if let Some(warning) = self.is_other_hardware(change) {
                cx.warn(warning);
            }
        }
        let declared = self.declared(change);
        if declared.unknown.is_empty()
            && let Some(region) = self.session.region_if_known()
        {
            self.dry_run(cx, &region, change, &declared).await?;
        }
        Ok(replace)
    }

    async fn review_unchanged(&self, cx: &Cx, state: &Val) -> Result<(), Diags> {
        self.confirm(cx, state).await;
        let name = state.get(NAME).as_str().unwrap_or_default();
        // Terraform shows no warnings of an import's read, so the plan shows this one.
        if let Some(manager) = Beside::read(cx).shared {
            cx.warn(self.is_shared(name, &manager));
        }
        self.memory().remains(self.kind.name, name);
        self.is_declared_once(name, false, false)?;
        self.holds(cx, state, state)
    }

    async fn review_destroy(&self, cx: &Cx, state: &Val) -> Result<(), Diags> {
        self.session.is_well()?;
        let name = state.get(NAME).as_str().unwrap_or_default();
        self.memory().moves(self.kind.name, name);
        self.goes(state);
        if self.is_named(state).await?
            && let Some((kind, holder)) = self.memory().leaves(self.kind.name, name).first()
        {
            return Err(held(self.kind.name, name, kind, holder).into());
        }
        self.look_at_destruction(cx, state).await
    }

    async fn create(&self, cx: &Cx, change: Change<'_>) -> Result<Val, Diags> {
        let region = self.session.region()?;
        let _under_way = region.begins();
        let name = change.planned.get(NAME).as_str().unwrap_or_default();
        let request = request(self.declared(change).spec, change);
        let object = self.make(cx, &region, name, &request, change.config).await?;
        let uid = object.metadata.uid;
        self.memory().comes(self.kind.name, name);
        self.memory().is_there(self.kind.name, name);
        let settled = self.settle(cx, &region, change.planned, object, Operation::Create).await;
        self.hand_over(cx, &region, uid);
        settled
    }

    async fn update(&self, cx: &Cx, change: Change<'_>) -> Result<Val, Diags> {
        let region = self.session.region()?;
        let _under_way = region.begins();
        let before = change.prior.get(NAME).as_str().unwrap_or_default();
        let name = change.planned.get(NAME).as_str().unwrap_or_default();
        let key = key(change.prior);
        let failed = |error: &ClientError| region.diags_of(self.kind, before, error, change.config);
        let mut generation = Beside::read(cx).generation;
        // A VLAN is renamed with its fabric.
        if before != name && self.kind.naming != Naming::FabricVid {
            generation = Some(self.rename(cx, &region, change.prior, name).await?.metadata.generation);
        }
        let request = request(self.declared(change).spec, change);
        let precondition = generation.map_or(Precondition::None, Precondition::Generation);
        let object = match region.put(cx, self.kind, &key, &request, precondition).await {
            Ok(object) => object,
            Err(error) if error.code() == Some(ProblemCode::Conflict) => {
                let caught_up = self.catch_up(cx, &region, &key, &request).await?;
                caught_up.ok_or_else(|| {
                    let how = error.problem().map(|problem| refusal::sentence(&problem.detail)).unwrap_or_default();
                    let detail = format!(
                        "{} {name:?} was changed by somebody else since this was planned. {how} Nothing was overwritten. Plan and apply again.",
                        self.kind.name
                    );
                    Diag::error(self.of("Changed since it was planned", name), detail)
                })?
            }
            Err(error) if error.is_not_found() => {
                let detail = format!(
                    "{} {name:?} was deleted by somebody else since this was planned. Plan and apply again: it is created anew then.",
                    self.kind.name
                );
                return Err(Diag::error(self.of("Gone since it was planned", name), detail).into());
            }
            Err(error) => return Err(failed(&error)),
        };
        if self.is_only_told(change) {
            return Ok(self.keep(cx, change.planned, &object, false));
        }
        self.settle(cx, &region, change.planned, object, Operation::Update).await
    }

    async fn delete(&self, cx: &Cx, state: &Val) -> Result<(), Diags> {
        self.goes(state);
        self.memory().left(self.kind.name, state.get(NAME).as_str().unwrap_or_default());
        let region = self.session.region()?;
        let _under_way = region.begins();
        let name = state.get(NAME).as_str().unwrap_or_default();
        let key = key(state);
        if let Some(wanted) = state.get(UID).as_str().and_then(|uid| self.memory().gives(uid)) {
            return self.is_wanted(cx, name, wanted);
        }
        match region.delete(cx, self.kind, &key).await {
            Ok(None) => return Ok(()),
            Ok(Some(_)) => {}
            Err(error) => return Err(region.diags(self.kind, name, &error)),
        }
        let timeout = patience::until_gone(self.kind, state);
        // Erasing takes hours, and continues while no region answers.
        let wait = WaitGone::within(timeout).through_outages();
        let mut log = ProgressLog::new(self.kind, name);
        let waited = tokio::select! {
            waited = region.client.for_waiting().wait_gone(self.kind, &key, wait, |object| log.see(object)) => waited,
            () = cx.cancelled() => {
                let detail = format!("{} {name:?} is being deleted; the next apply goes on waiting.", self.kind.name);
                return Err(Diag::error(self.of("Interrupted", name), detail).into());
            }
        };
        match waited.map_err(|error| region.diags(self.kind, name, &error))? {
            None => Ok(()),
            Some(Outcome::Stalled(_, condition)) => {
                let detail = format!(
                    "{} {name:?} cannot go: {} ({}).",
                    self.kind.name,
                    condition.message.trim_end_matches('.'),
                    condition.reason
                );
                Err(Diag::error(self.of("Its deletion is stalled", name), detail).into())
            }
            Some(Outcome::Met(object) | Outcome::TimedOut(object)) => {
                let detail = format!(
                    "{} {name:?} is not gone after {} s: {}. The region goes on by itself.",
                    self.kind.name,
                    timeout.as_secs(),
                    fresh::reason(&object)
                );
                Err(Diag::error(self.of("It takes too long", name), detail).into())
            }
        }
    }

    async fn take_over(&self, cx: &Cx, from: Moved<'_>) -> Result<Val, Diags> {
        let (state, warnings) = maas::state(self.kind, &self.schema.attributes, &from)?;
        warnings.into_iter().for_each(|warning| cx.warn(warning));
        Ok(state)
    }

    /// The uid alone: a name may change, and no two regions use the same uid.
    fn identity(&self) -> Identity {
        Identity::default().required(UID)
    }

    async fn import(&self, cx: &Cx, id: &str) -> Result<Val, Diags> {
        Beside { import: true, unconfirmed: true, ..Beside::default() }.write(cx);
        let id = id.strip_prefix("name=").or_else(|| id.strip_prefix("uid=")).unwrap_or(id);
        if let Some(key) = NaturalKey::read(self.kind, id) {
            let key = key.map_err(|why| Diag::error(self.of("Not a key", id), why))?;
            let found =
                self.session.region()?.find_by(self.kind, id, &key, Path::root(), AsOf::Lately).await?;
            return Ok(Val::from([(UID, found.metadata.uid.to_string().into())]));
        }
        let uid = id.strip_prefix("uid:").unwrap_or(id);
        if uid.parse::<Uid>().is_ok() {
            return Ok(Val::from([(UID, uid.into())]));
        }
        match self.kind.naming.check(id) {
            Ok(()) => Ok(Val::from([(NAME, id.into())])),
            Err(bad) => {
                let no_uid = uid.parse::<Uid>().err().filter(|_| uid != id);
                let detail = format!(
                    "{}. A {} is imported by its name ({}), by its uid, or by what it alone has, as {}.",
                    no_uid.map_or(bad.message, |wrong| wrong.message),
                    self.kind.name,
                    bad.hint,
                    natural::like(self.kind)
                );
                Err(Diag::error(self.of("Nothing is called so", id), detail).into())
            }
        }
    }
}
