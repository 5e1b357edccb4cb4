//! `basalt_machine_tags`: tags that one configuration gives a machine, beside the tags of others.
//!
//! ```text
//! create   GET machines/NAME/layers; PUT machines/NAME/layers/MANAGER, in place of one without tags
//! read     GET machines/uid:UID/layers, or one list of many machines with theirs: all tags of the manager
//! update   PUT, in place of what was planned from
//! delete   PUT without these tags
//! ```
//!
//! One resource owns the tags of a manager's layer: a layer that already has tags must be imported. Each write names the layer that it
//! replaces, so that no write removes another writer's change. The layer's labels stay.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use basalt_api::client::ClientError;
use basalt_api::kinds::Machine;
use basalt_api::values::Tag;
use basalt_api::wire::{Layer, PutLayer};
use basalt_api::{Kind, KindOf, Object, ProblemCode};
use tfplugin::{
    Attribute, Change, Cx, Diag, Diags, Identity, Path, Resource, Schema, Type, Val, async_trait,
};

use crate::provider::Session;
use crate::region::{IN_THE_WAY, ON_ITS_WAY, Region, Turn};

const KIND: &Kind = Machine::KIND;
const TYPE: &str = "basalt_machine_tags";

const MACHINE: &str = "machine";
const MANAGER: &str = "manager";
const TAGS: &str = "tags";
const MACHINE_UID: &str = "machine_uid";

/// The default manager. The provider's own layer has the labels of `basalt_machine`.
const DEFAULT_MANAGER: &str = "terraform-tags";
const LONGEST_MANAGER: usize = 63;

/// The resource `basalt_machine_tags`.
pub(crate) struct MachineTags {
    schema: Schema,
    session: Arc<Session>,
}

impl MachineTags {
    pub(crate) fn new(session: Arc<Session>) -> Self {
        Self { schema: schema(), session }
    }
}

fn schema() -> Schema {
    let attributes = vec![
        Attribute::required(MACHINE, Type::String)
            .doc("Of which machine, by name. Refers to `basalt_machine` by name. If the machine is renamed, this follows; another machine \
                  replaces this."),
        Attribute::optional(MANAGER, Type::String)
            .default(DEFAULT_MANAGER)
            .replace()
            .doc(format!(
                "Under which name the region keeps these tags apart from those that others give the machine. Of each machine one manager's \
                 tags are one resource's: a second configuration that gives a machine tags, or a second resource of this one, has a name \
                 of its own here, such as `\"monitoring\"`. Where the manager has given the machine tags already, this is not created. \
                 Default: `{DEFAULT_MANAGER}`."
            )),
        Attribute::required(TAGS, Type::set(Type::String)).doc("The tags that the machine is to have by this: one or more, each 1 to 63 of `a-z`, `A-Z`, `0-9`, `-`, `_` and `.`."),
        Attribute::computed(MACHINE_UID, Type::String)
            .use_state()
            .replace()
            .doc("The identity of the machine. It never changes."),
    ];
    let description = "Tags that this configuration gives a machine, beside those of its `basalt_machine` and those that other \
                       configurations and tools give it: none of them sees a difference, and what goes with this are these tags alone. \
                       `tags` of a `basalt_machine` are for whoever declares the machine, and a `basalt_tag` for what follows from \
                       a machine's hardware.";
    Schema { description: description.to_owned(), attributes, ..Schema::default() }
}

fn is_manager(name: &str) -> bool {
    (1..=LONGEST_MANAGER).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic())
}

/// The tags of a configuration or a state. `None` if one of them is not a valid tag.
fn read(tags: &Val) -> Option<BTreeSet<Tag>> {
    tags.as_list().unwrap_or_default().iter().map(|tag| tag.as_str()?.parse().ok()).collect()
}

fn text<'a>(state: &'a Val, attribute: &str) -> &'a str {
    state.get(attribute).as_str().unwrap_or_default()
}

/// The key of this state's machine at the region.
fn key(state: &Val) -> String {
    match state.get(MACHINE_UID).as_str() {
        Some(uid) => format!("uid:{uid}"),
        None => text(state, MACHINE).to_owned(),
    }
}

/// The state for these tags of a machine.
fn state(machine: &Object, manager: &str, tags: &BTreeSet<Tag>) -> Val {
    Val::from([
        (MACHINE, machine.metadata.name.as_str().into()),
        (MANAGER, manager.into()),
        (TAGS, Val::List(tags.iter().map(|tag| tag.as_str().into()).collect())),
        (MACHINE_UID, machine.metadata.uid.to_string().into()),
    ])
}

/// Tags as part of a sentence.
fn shown(tags: &BTreeSet<Tag>) -> String {
    tags.iter().map(Tag::as_str).collect::<Vec<_>>().join(", ")
}

fn of(title: &str, machine: &str) -> String {
    format!("{title}: tags of Machine {machine:?}")
}

impl MachineTags {
    /// The manager's layer of the machine. `None` if there is no such machine.
    async fn layer(&self, region: &Region, key: &str, manager: &str) -> Result<Option<Layer>, Diags> {
        match region.client.call().await.layers(KIND, key).await {
            Ok(mut all) => Ok(Some(all.layers.remove(manager).unwrap_or_default())),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(region.diags(KIND, key, &error)),
        }
    }

    /// Replaces the tags of the layer, even if its labels change in the meantime. `None` if the layer has other tags than `before` by now.
    async fn write(
        &self,
        region: &Region,
        state: &Val,
        mut before: Layer,
        tags: &BTreeSet<Tag>,
    ) -> Result<Option<Object>, ClientError> {
        let (key, manager) = (key(state), text(state, MANAGER));
        loop {
            let had = before.tags.clone();
            let layer =
                PutLayer { labels: before.labels.clone(), tags: tags.clone(), replaces: Some(before) };
            match region.put_layer(KIND, &key, manager, layer).await {
                Ok(machine) => return Ok(Some(machine)),
                Err(error) if error.code() == Some(ProblemCode::Conflict) => {
                    let now = region.client.call().await.layers(KIND, &key).await;
                    before = now?.layers.remove(manager).unwrap_or_default();
                    if before.tags != had {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The machine that gets the tags. It may be created at this moment.
    async fn machine(&self, cx: &Cx, region: &Region, name: &str) -> Result<Object, Diags> {
        let mut turn = Turn::default();
        loop {
            if let Some(machine) = region.find(KIND, name).await? {
                return Ok(machine);
            }
            if !turn.wait(cx, region, ON_ITS_WAY).await {
                return Err(region.absent(KIND, name, Path::root().attr(MACHINE)).await.into());
            }
        }
    }

    /// The manager's layer, once it has no tags: a resource of the same configuration may be about to remove them.
    async fn free_layer(
        &self,
        cx: &Cx,
        region: &Region,
        machine: &Object,
        manager: &str,
    ) -> Result<Layer, Diags> {
        let (name, uid) = (machine.metadata.name.as_str(), machine.metadata.uid.to_string());
        let mut turn = Turn::default();
        loop {
            let layer = self.layer(region, &format!("uid:{uid}"), manager).await?.unwrap_or_default();
            let may_go = self.session.memory.is_kept(&id(&uid, manager));
            if layer.tags.is_empty() {
                return Ok(layer);
            }
            if !may_go || !turn.wait(cx, region, IN_THE_WAY).await {
                return Err(Diag {
                    severity: tfplugin::Severity::Error,
                    ..taken(name, manager, &layer.tags)
                }
                .into());
            }
        }
    }

    /// Commits the planned state if the outcome of the write is unknown.
    fn commit_if_unsure(cx: &Cx, error: &ClientError, planned: &Val, uid: &str) {
        let is_done_by_nobody =
            error.problem().is_some() || matches!(error, ClientError::Interrupted { may_be_done: false });
        if !is_done_by_nobody {
            let mut state = planned.clone();
            state.set(MACHINE_UID, uid);
            cx.commit(state);
        }
    }
}

/// The key of these tags in the memory of the run.
fn id(machine_uid: &str, manager: &str) -> String {
    format!("tags of {machine_uid} by {manager}")
}

/// Error: a manager has already given a machine tags.
fn taken(machine: &str, manager: &str, tags: &BTreeSet<Tag>) -> Diag {
    let detail = format!(
        "{manager:?} has given Machine {machine:?} tags already: {}. If another configuration, resource or tool does that, give this one a \
         manager of its own: both would take away what the other gives. If they are those of this resource, import them, with NAME \
         being what it is called:\n\n    import {{\n      to = {TYPE}.NAME\n      id = \"{machine}/{manager}\"\n    }}\n\nor: terraform \
         import {TYPE}.NAME {machine}/{manager}",
        shown(tags)
    );
    Diag::warning(of("There are some already", machine), detail).at(Path::root().attr(MANAGER))
}

/// Error: the tags were changed by somebody else after the plan.
fn changed(machine: &str, manager: &str) -> Diags {
    let detail = format!(
        "The tags that {manager:?} gives Machine {machine:?} were changed by somebody else since this was planned. Nothing was overwritten. \
         Plan and apply again."
    );
    Diag::error(of("Changed since it was planned", machine), detail).into()
}

#[async_trait]
impl Resource for MachineTags {
    fn type_name(&self) -> &str {
        TYPE
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    async fn validate(&self, config: &Val) -> Diags {
        let wrong = |attribute: &str, detail: String| {
            Diag::error("The value is wrong", detail).at(Path::root().attr(attribute))
        };
        let mut diags = Diags::default();
        if let Some(Err(bad)) = config.get(MACHINE).as_str().map(|name| KIND.naming.check(name)) {
            diags.push(wrong(MACHINE, format!("{}; {}.", bad.message, bad.hint)));
        }
        if let Some(manager) = config.get(MANAGER).as_str().filter(|manager| !is_manager(manager)) {
            let hint = format!("1 to {LONGEST_MANAGER} letters, digits and signs, like monitoring");
            diags.push(wrong(MANAGER, format!("{manager:?} is not the name of a manager; {hint}.")));
        }
        let tags = config.get(TAGS).as_list();
        if tags.is_some_and(<[Val]>::is_empty) {
            diags.push(wrong(
                TAGS,
                "There are no tags in it; to have none, leave the resource out.".to_owned(),
            ));
        }
        for tag in tags.into_iter().flatten().filter_map(Val::as_str) {
            if let Err(bad) = tag.parse::<Tag>() {
                diags.push(wrong(TAGS, format!("{}; {}.", bad.message, bad.hint)));
            }
        }
        diags
    }

    /// The tags of a replaced machine are created again on the new one.
    fn derive(&self, planned: &mut tfplugin::Object, prior: Option<&tfplugin::Object>) {
        let named = |object: &tfplugin::Object| object.get(MACHINE).and_then(Val::as_str).map(str::to_owned);
        let Some(before) = prior.and_then(named) else { return };
        let is_same = named(planned).is_some_and(|after| {
            self.session.memory.is_same(KIND.name, &before, &after)
                && !self.session.memory.is_replaced(KIND.name, &after)
        });
        if !is_same {
            planned.insert(MACHINE_UID.to_owned(), Val::Unknown);
        }
    }

    async fn read(&self, cx: &Cx, prior: &Val) -> Result<Option<Val>, Diags> {
        let region = self.session.region()?;
        let (key, manager, name) = (key(prior), text(prior, MANAGER), text(prior, MACHINE));
        let is_imported = prior.get(TAGS).is_null();
        let Some(machine) = region.refresh(KIND, &key, name).await? else {
            return match is_imported {
                true => Err(region
                    .absent(KIND, if name.is_empty() { &key } else { name }, Path::root())
                    .await
                    .into()),
                false => Ok(None),
            };
        };
        let (name, uid) = (machine.metadata.name.as_str(), machine.metadata.uid.to_string());
        let layer = region.layers(KIND, &machine).await?.remove(manager).unwrap_or_default();
        if layer.tags.is_empty() {
            if is_imported {
                let detail = format!(
                    "{manager:?} gives Machine {name:?} no tags. `basalt label machine {name}` shows who gives it which."
                );
                return Err(Diag::error(of("Not found", name), detail).into());
            }
            return Ok(None);
        }
        self.session.memory.keeps(&id(&uid, manager));
        cx.set_private(b"{}".to_vec());
        Ok(Some(state(&machine, manager, &layer.tags)))
    }

    async fn review(&self, cx: &Cx, change: Change<'_>) -> Result<Vec<Path>, Diags> {
        self.session.is_well()?;
        let (machine, manager) = (change.planned.get(MACHINE).as_str(), change.planned.get(MANAGER).as_str());
        // A selector may select by these tags.
        for machine in [change.prior, change.planned].map(|it| it.get(MACHINE).as_str()).into_iter().flatten()
        {
            self.session.memory.moves(KIND.name, machine);
        }
        // In a replacement, the old tags are removed first.
        let is_new = change.prior.is_null() && cx.private().is_empty();
        if let (true, Some(machine), Some(manager)) = (is_new, machine, manager)
            && let Some(region) = self.session.region_if_known()
            && let Some(there) = region.refresh(KIND, machine, machine).await?
            && !self.session.memory.is_kept(&id(&there.metadata.uid.to_string(), manager))
            && let Some(layer) = region.layers(KIND, &there).await?.remove(manager)
            && !layer.tags.is_empty()
        {
            let mut warning = taken(machine, manager, &layer.tags);
            warning.detail.push_str("\n\nAs things are now, the apply would fail.");
            cx.warn(warning);
        }
        Ok(Vec::new())
    }

    async fn review_destroy(&self, _: &Cx, _: &Val) -> Result<(), Diags> {
        self.session.memory.tags();
        Ok(())
    }

    async fn create(&self, cx: &Cx, change: Change<'_>) -> Result<Val, Diags> {
        let region = self.session.region()?;
        let _under_way = region.begins();
        let (name, manager) = (text(change.planned, MACHINE), text(change.planned, MANAGER));
        let tags = read(change.planned.get(TAGS)).unwrap_or_default();
        let machine = self.machine(cx, &region, name).await?;
        let before = self.free_layer(cx, &region, &machine, manager).await?;
        let wanted = state(&machine, manager, &tags);
        cx.set_private(b"{}".to_vec());
        match self.write(&region, &wanted, before, &tags).await {
            Ok(Some(_)) => Ok(wanted),
            Ok(None) => Err(changed(name, manager)),
            Err(error) => {
                Self::commit_if_unsure(cx, &error, change.planned, &machine.metadata.uid.to_string());
                Err(region.diags(KIND, name, &error))
            }
        }
    }

    async fn update(&self, cx: &Cx, change: Change<'_>) -> Result<Val, Diags> {
        let region = self.session.region()?;
        let _under_way = region.begins();
        let (name, manager) = (text(change.planned, MACHINE), text(change.planned, MANAGER));
        let [had, tags] =
            [change.prior, change.planned].map(|state| read(state.get(TAGS)).unwrap_or_default());
        let before = self.layer(&region, &key(change.prior), manager).await?;
        let before = before.filter(|layer| layer.tags == had || layer.tags == tags);
        let Some(before) = before else { return Err(changed(name, manager)) };
        match self.write(&region, change.prior, before, &tags).await {
            Ok(Some(_)) => Ok(change.planned.clone()),
            Ok(None) => Err(changed(name, manager)),
            Err(error) => {
                Self::commit_if_unsure(cx, &error, change.planned, text(change.prior, MACHINE_UID));
                Err(region.diags(KIND, name, &error))
            }
        }
    }

    async fn delete(&self, _cx: &Cx, state: &Val) -> Result<(), Diags> {
        let region = self.session.region()?;
        let _under_way = region.begins();
        let (name, manager) = (text(state, MACHINE), text(state, MANAGER));
        let ours = read(state.get(TAGS)).unwrap_or_default();
        let Some(before) = self.layer(&region, &key(state), manager).await? else { return Ok(()) };
        let rest = before.tags.difference(&ours).cloned().collect();
        match self.write(&region, state, before, &rest).await {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(changed(name, manager)),
            // The tags are deleted with the machine.
            Err(error) if error.is_not_found() || error.code() == Some(ProblemCode::Deleting) => Ok(()),
            Err(error) => Err(region.diags(KIND, name, &error)),
        }
    }

    fn identity(&self) -> Identity {
        Identity::default().required(MACHINE_UID).required(MANAGER)
    }

    async fn import(&self, _cx: &Cx, id: &str) -> Result<Val, Diags> {
        let (machine, manager) = id.split_once('/').unwrap_or((id, DEFAULT_MANAGER));
        let machine = match machine.strip_prefix("uid:") {
            Some(uid) => (MACHINE_UID, uid),
            None => (MACHINE, machine),
        };
        if machine.1.is_empty() || !is_manager(manager) {
            let detail = format!(
                "Tags of a machine are imported by MACHINE/MANAGER: its name, or `uid:` and its uid, and who gives it the tags; without a \
                 manager, those of {DEFAULT_MANAGER:?}."
            );
            return Err(Diag::error(format!("Nothing is called so: {id:?}"), detail).into());
        }
        let known = BTreeMap::from([machine, (MANAGER, manager)]);
        Ok(Val::Map(known.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()))
    }
}
