//! Drives a provider as Terraform does, one call after another.

use std::collections::BTreeMap;

use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};

use super::defer::put_off;
use super::{Broken, rules, wire};
use crate::codec;
use crate::path::Path;
use crate::pb;
use crate::pb::diagnostic::Severity;
use crate::pb::provider_client::ProviderClient;
use crate::provider::Provider;
use crate::schema::{Attribute, Mode, Schema};
use crate::server::Reattached;
use crate::types::Type;
use crate::value::Val;

/// Terraform's limit for the size of a message.
const MESSAGE_BYTES: usize = 256 << 20;

/// A configured provider under test.
#[derive(Debug)]
pub struct MiniCore {
    provider: Reattached,
    pub(super) client: ProviderClient<Channel>,
    /// The provider's block.
    block: Val,
    resources: BTreeMap<String, (Schema, Type)>,
    pub(super) lists: BTreeMap<String, (Schema, Type)>,
    pub(super) actions: BTreeMap<String, (Schema, Type)>,
    pub(super) data: BTreeMap<String, (Schema, Type)>,
    pub(super) ephemerals: BTreeMap<String, (Schema, Type)>,
    /// The type of each function's result.
    pub(super) functions: BTreeMap<String, Type>,
    identities: BTreeMap<String, wire::Identity>,
}

/// Terraform's record of an object: its attributes, its identity, and the private data of the provider.
#[derive(Default)]
pub(super) struct State {
    pub(super) value: Val,
    pub(super) identity: Option<pb::ResourceIdentityData>,
    private: Vec<u8>,
}

/// The key of an import.
pub(super) enum Key<'a> {
    Id(&'a str),
    Identity(&'a pb::ResourceIdentityData),
}

impl Key<'_> {
    fn shown(&self) -> &str {
        match self {
            Self::Id(id) => id,
            Self::Identity(_) => "by its identity",
        }
    }
}

/// The outcome of a series of configurations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lived {
    /// Number of configurations that failed validation.
    pub refused: usize,
    /// Number of objects that were created, replacements included.
    pub created: usize,
    /// Number of configurations that changed an object in place.
    pub updated: usize,
    /// Number of imports by id.
    pub imported: usize,
    /// Number of imports by identity.
    pub identified: usize,
}

/// A planned change.
struct Plan {
    planned: Val,
    identity: Option<pb::ResourceIdentityData>,
    private: Vec<u8>,
    replace: bool,
}

impl MiniCore {
    /// Serves the provider inside this process, asks for its schemas and configures it. Needs a Tokio runtime.
    ///
    /// # Errors
    /// A schema that Terraform refuses, or a configuration that the provider refuses.
    pub async fn start(provider: impl Provider, config: &Val) -> Result<Self, Broken> {
        let broken = |how: String| Broken { during: "start".to_owned(), how: vec![how] };
        let provider =
            Reattached::start(provider, "example.com/test/provider").map_err(|e| broken(e.to_string()))?;
        let endpoint = Endpoint::from_shared(format!("unix:{}", provider.path().display()));
        let channel = endpoint.map_err(|e| broken(e.to_string()))?.connect().await;
        let mut client = ProviderClient::new(channel.map_err(|e| broken(e.to_string()))?)
            .max_decoding_message_size(MESSAGE_BYTES)
            .max_encoding_message_size(MESSAGE_BYTES);
        let sent = client.get_provider_schema(pb::get_provider_schema::Request::default()).await;
        let sent = answered("GetProviderSchema", sent, |sent| &sent.diagnostics)?;
        let read = |name: &str, sent: &pb::Schema| {
            let schema = wire::schema(sent).map_err(|why| broken(format!("schema of {name}: {why}")))?;
            match schema.problems() {
                problems if problems.is_empty() => {
                    let of = schema.value_type();
                    Ok((schema, of))
                }
                problems => Err(Broken { during: format!("schema of {name}"), how: problems }),
            }
        };
        let own = sent.provider.as_ref().map(|sent| read("the provider", sent)).transpose()?;
        let block = own.map_or(Val::Null, |(schema, _)| filled(&schema.attributes, config));
        type Read = BTreeMap<String, (Schema, Type)>;
        let read_all = |all: &BTreeMap<String, pb::Schema>| -> Result<Read, Broken> {
            all.iter().map(|(name, sent)| Ok((name.clone(), read(name, sent)?))).collect()
        };
        let resources = read_all(&sent.resource_schemas)?;
        let lists = read_all(&sent.list_resource_schemas)?;
        let data = read_all(&sent.data_source_schemas)?;
        let ephemerals = read_all(&sent.ephemeral_resource_schemas)?;
        let functions = sent.functions.iter().map(|(name, function)| {
            let returns =
                wire::returned(function).map_err(|why| broken(format!("function {name}: {why}")))?;
            Ok((name.clone(), returns))
        });
        let functions = functions.collect::<Result<_, Broken>>()?;
        let actions = sent.action_schemas.iter();
        let actions = actions.map(|(name, action)| (name.clone(), action.schema.clone().unwrap_or_default()));
        let actions = read_all(&actions.collect())?;
        for (name, (schema, _)) in lists.iter().chain(&actions) {
            let during = format!("schema of what is configured of {name}");
            broken_at(&during, schema.problems_of_config())?;
        }
        let sent =
            client.get_resource_identity_schemas(pb::get_resource_identity_schemas::Request::default());
        let sent = answered("GetResourceIdentitySchemas", sent.await, |sent| &sent.diagnostics)?;
        let mut identities = BTreeMap::new();
        for (name, sent) in &sent.identity_schemas {
            let identity =
                wire::identity(sent).map_err(|why| broken(format!("identity of {name}: {why}")))?;
            if !resources.contains_key(name) {
                return Err(broken(format!("identity of {name}: there is no such resource")));
            }
            identities.insert(name.clone(), identity);
        }
        if let Some(name) = lists.keys().find(|name| !identities.contains_key(*name)) {
            return Err(broken(format!(
                "list of {name}: there is no resource of that name with an identity"
            )));
        }
        let mut core = Self {
            provider,
            client,
            block,
            resources,
            lists,
            actions,
            data,
            ephemerals,
            functions,
            identities,
        };
        let request = pb::validate_provider_config::Request { config: Some(codec::encode(&core.block)) };
        let checked = core.client.validate_provider_config(request).await;
        answered("ValidateProviderConfig", checked, |checked| &checked.diagnostics)?;
        core.configure().await?;
        Ok(core)
    }

    /// Configures the provider, as at the start of each command.
    pub(super) async fn configure(&mut self) -> Result<(), Broken> {
        let request = pb::configure_provider::Request {
            terraform_version: "1.15.0".to_owned(),
            config: Some(codec::encode(&self.block)),
            // Unknown values in the provider's block require deferral.
            client_capabilities: Some(pb::ClientCapabilities {
                deferral_allowed: !self.block.is_wholly_known(),
                ..Default::default()
            }),
        };
        let done = self.client.configure_provider(request).await;
        answered("ConfigureProvider", done, |done| &done.diagnostics).map(drop)
    }

    /// Ends the provider.
    pub async fn stop(self) {
        self.provider.stop().await;
    }

    /// The names of the resources.
    pub fn resources(&self) -> impl Iterator<Item = &str> {
        self.resources.keys().map(String::as_str)
    }

    /// The names of the data sources.
    pub fn data_sources(&self) -> impl Iterator<Item = &str> {
        self.data.keys().map(String::as_str)
    }

    /// The attributes of a resource.
    #[must_use]
    pub fn attributes(&self, type_name: &str) -> Option<&[Attribute]> {
        self.resources.get(type_name).map(|(schema, _)| schema.attributes.as_slice())
    }

    /// Takes an object through these configurations, and destroys it at the end. It checks every rule in the table of [this module](super).
    /// `id` gives the import id of a state, if it has one. Configurations that fail validation are skipped.
    ///
    /// # Errors
    /// A rule that was broken, or a change that failed.
    pub async fn live(
        &mut self,
        type_name: &str,
        configs: &[Val],
        id: impl Fn(&Val) -> Option<String>,
    ) -> Result<Lived, Broken> {
        let (mut state, mut lived) = (State::default(), Lived::default());
        for config in configs {
            let config = &filled(self.attributes(type_name).unwrap_or_default(), config);
            if !self.validate(type_name, config).await? {
                lived.refused += 1;
                continue;
            }
            let before = state.value.clone();
            let is_new;
            (state, is_new) = self.change(type_name, state, config).await?;
            match is_new {
                true => lived.created += 1,
                false => lived.updated += usize::from(state.value != before),
            }
            self.settled(type_name, &state, config).await?;
            if let Some(id) = id(&state.value) {
                self.import(type_name, Key::Id(&id), &state, config).await?;
                lived.imported += 1;
            }
            if let Some(identity) = &state.identity {
                self.import(type_name, Key::Identity(identity), &state, config).await?;
                lived.identified += 1;
            }
        }
        if !state.value.is_null() {
            self.destroy(type_name, state).await?;
        }
        Ok(lived)
    }

    /// Plans and applies. True if the object was created or replaced.
    async fn change(&mut self, type_name: &str, prior: State, config: &Val) -> Result<(State, bool), Broken> {
        let mut early = Vec::new();
        for is_first in [true, false] {
            early.push(self.early(type_name, &prior, config, is_first).await?);
        }
        let plan = self.plan(type_name, &prior, config).await?;
        for early in early.iter().filter(|early| early.replace == plan.replace) {
            let attributes = &self.schema(type_name)?.attributes;
            let wrong = rules::honoured(attributes, &early.planned, &plan.planned, &Path::root());
            broken_at(&format!("PlanResourceChange of {type_name}, once all is known"), wrong)?;
        }
        if prior.value.is_null() {
            return Ok((self.apply(type_name, &prior, config, plan).await?, true));
        }
        if !plan.replace {
            return Ok((self.apply(type_name, &prior, config, plan).await?, false));
        }
        self.destroy(type_name, prior).await?;
        let nothing = State::default();
        let plan = self.plan(type_name, &nothing, config).await?;
        Ok((self.apply(type_name, &nothing, config, plan).await?, true))
    }

    /// The plan while half of the configuration is unknown.
    async fn early(
        &mut self,
        type_name: &str,
        prior: &State,
        config: &Val,
        is_first: bool,
    ) -> Result<Plan, Broken> {
        let clouded = rules::cloud(&self.schema(type_name)?.attributes, config, is_first);
        if !self.validate(type_name, &clouded).await? {
            let during = format!("ValidateResourceConfig of {type_name}");
            return Err(Broken {
                during,
                how: vec![format!("it is refused while it is not all known: {clouded:?}")],
            });
        }
        self.plan(type_name, prior, &clouded).await
    }

    /// True if the configuration passes validation.
    async fn validate(&mut self, type_name: &str, config: &Val) -> Result<bool, Broken> {
        Ok(self.refused(type_name, config).await?.is_empty())
    }

    /// The errors of the validation of a configuration.
    async fn refused(&mut self, type_name: &str, config: &Val) -> Result<Vec<String>, Broken> {
        let request = pb::validate_resource_config::Request {
            type_name: type_name.to_owned(),
            config: Some(codec::encode(config)),
            ..Default::default()
        };
        let answer =
            self.client.validate_resource_config(request).await.map_err(|e| failed("Validate", &e))?;
        Ok(errors(&answer.into_inner().diagnostics))
    }

    /// Checks that the object has not changed, that its state is of the current version, and that the same configuration plans nothing.
    async fn settled(&mut self, type_name: &str, state: &State, config: &Val) -> Result<(), Broken> {
        let upgraded = self.upgrade(type_name, &state.value).await?;
        self.same(type_name, "UpgradeResourceState", &state.value, &upgraded)?;
        if let Some(identity) = &state.identity {
            let upgraded = self.upgrade_identity(type_name, identity).await?;
            self.same_identity(type_name, "UpgradeResourceIdentity", Some(identity), upgraded.as_ref())?;
        }
        let read = self.read(type_name, state).await?;
        self.same(type_name, "ReadResource", &state.value, &read.value)?;
        let plan = self.plan(type_name, &read, config).await?;
        self.same(type_name, "the second PlanResourceChange", &read.value, &plan.planned)?;
        self.generate(type_name, &read).await
    }

    /// Imports an existing object. Checks that it is the same object, that its configuration plans no change of readable values, and that
    /// the configuration generated from it is valid.
    async fn import(
        &mut self,
        type_name: &str,
        key: Key<'_>,
        known: &State,
        config: &Val,
    ) -> Result<(), Broken> {
        let during = format!("import of {type_name} {}", key.shown());
        let read = self.imported(type_name, key).await?;
        self.same_identity(type_name, &during, known.identity.as_ref(), read.identity.as_ref())?;
        let plan = self.plan(type_name, &read, config).await?;
        let replaced = plan.replace.then(|| "it would be replaced".to_owned());
        let unread = rules::unread(&self.schema(type_name)?.attributes, &read.value, &plan.planned);
        broken_at(&during, replaced.into_iter().chain(unread).collect())?;
        self.generate(type_name, &read).await
    }

    /// Imports an existing object and reads it.
    pub(super) async fn imported(&mut self, type_name: &str, key: Key<'_>) -> Result<State, Broken> {
        let during = format!("import of {type_name} {}", key.shown());
        let wrong = |how: String| Broken { during: during.clone(), how: vec![how] };
        let (id, identity) = match key {
            Key::Id(id) => (id.to_owned(), None),
            Key::Identity(identity) => (String::new(), Some(identity.clone())),
        };
        let request = pb::import_resource_state::Request {
            type_name: type_name.to_owned(),
            id,
            identity,
            ..Default::default()
        };
        let answer = self.client.import_resource_state(request).await;
        let answer = answered("ImportResourceState", answer, |answer| &answer.diagnostics)?;
        let [imported] = answer.imported_resources.as_slice() else {
            return Err(wrong(format!("{} objects came", answer.imported_resources.len())));
        };
        let value = self.decoded(type_name, imported.state.as_ref())?;
        let identity = imported.identity.clone();
        let read =
            self.read(type_name, &State { value, identity, private: imported.private.clone() }).await?;
        if read.value.is_null() { Err(wrong("it is not there".to_owned())) } else { Ok(read) }
    }

    /// Generates the configuration of an object. Checks that it is valid and plans nothing.
    pub(super) async fn generate(&mut self, type_name: &str, state: &State) -> Result<(), Broken> {
        let request = pb::generate_resource_config::Request {
            type_name: type_name.to_owned(),
            state: Some(codec::encode(&state.value)),
        };
        let made = self.client.generate_resource_config(request).await;
        let made = answered("GenerateResourceConfig", made, |made| &made.diagnostics)?;
        let config = self.decoded(type_name, made.config.as_ref())?;
        let during = format!("GenerateResourceConfig of {type_name}");
        let refused = self.refused(type_name, &config).await?;
        broken_at(&during, refused.iter().map(|why| format!("it is refused: {why}: {config:?}")).collect())?;
        let mut plan = self.plan(type_name, state, &config).await?;
        // Computed values may still change by themselves, so they are not compared.
        for attribute in self.schema(type_name)?.attributes.iter().filter(|it| it.mode == Mode::Computed) {
            plan.planned.set(&attribute.name, state.value.get(&attribute.name).clone());
        }
        self.same(type_name, "what is planned from the generated configuration", &state.value, &plan.planned)
    }

    /// The request for a plan.
    pub(super) fn planning(
        type_name: &str,
        attributes: &[Attribute],
        prior: &State,
        config: &Val,
    ) -> pb::plan_resource_change::Request {
        let proposed = rules::propose(attributes, &prior.value, config);
        pb::plan_resource_change::Request {
            type_name: type_name.to_owned(),
            prior_state: Some(codec::encode(&prior.value)),
            proposed_new_state: Some(codec::encode(&proposed)),
            config: Some(codec::encode(config)),
            prior_private: prior.private.clone(),
            prior_identity: prior.identity.clone(),
            ..Default::default()
        }
    }

    async fn plan(&mut self, type_name: &str, prior: &State, config: &Val) -> Result<Plan, Broken> {
        let request = Self::planning(type_name, &self.schema(type_name)?.attributes, prior, config);
        let first = self.client.plan_resource_change(request.clone()).await;
        let first = answered("PlanResourceChange", first, |first| &first.diagnostics)?;
        put_off(&format!("PlanResourceChange of {type_name}"), false, first.deferred)?;
        let planned = self.decoded(type_name, first.planned_state.as_ref())?;
        let schema = self.schema(type_name)?;
        let wrong = rules::plan(&schema.attributes, &prior.value, config, &planned, &Path::root());
        broken_at(&format!("PlanResourceChange of {type_name}"), wrong)?;
        if let Some(identity) = first.planned_identity.as_ref() {
            let before = prior.identity.as_ref().unwrap_or(identity);
            self.same_identity(type_name, "PlanResourceChange", Some(before), Some(identity))?;
        }
        let again = self.client.plan_resource_change(request).await;
        let again = answered("PlanResourceChange", again, |again| &again.diagnostics)?;
        let again = self.decoded(type_name, again.planned_state.as_ref())?;
        self.same(type_name, "PlanResourceChange, asked twice,", &planned, &again)?;
        Ok(Plan {
            planned,
            identity: first.planned_identity,
            private: first.planned_private,
            replace: !first.requires_replace.is_empty(),
        })
    }

    async fn apply(
        &mut self,
        type_name: &str,
        prior: &State,
        config: &Val,
        plan: Plan,
    ) -> Result<State, Broken> {
        let request = pb::apply_resource_change::Request {
            type_name: type_name.to_owned(),
            prior_state: Some(codec::encode(&prior.value)),
            planned_state: Some(codec::encode(&plan.planned)),
            config: Some(codec::encode(config)),
            planned_private: plan.private,
            planned_identity: plan.identity,
            ..Default::default()
        };
        let done = self.client.apply_resource_change(request).await;
        let done = answered("ApplyResourceChange", done, |done| &done.diagnostics)?;
        let value = self.decoded(type_name, done.new_state.as_ref())?;
        let schema = self.schema(type_name)?;
        let mut wrong = rules::honoured(&schema.attributes, &plan.planned, &value, &Path::root());
        wrong.extend(rules::unknown(&value, &Path::root()));
        broken_at(&format!("ApplyResourceChange of {type_name}"), wrong)?;
        if !value.is_null() {
            let before = prior.identity.as_ref().or(done.new_identity.as_ref());
            self.same_identity(type_name, "ApplyResourceChange", before, done.new_identity.as_ref())?;
        }
        Ok(State { value, identity: done.new_identity, private: done.private })
    }

    async fn destroy(&mut self, type_name: &str, state: State) -> Result<(), Broken> {
        let request = pb::plan_resource_change::Request {
            type_name: type_name.to_owned(),
            prior_state: Some(codec::encode(&state.value)),
            proposed_new_state: Some(codec::encode(&Val::Null)),
            config: Some(codec::encode(&Val::Null)),
            prior_private: state.private.clone(),
            prior_identity: state.identity.clone(),
            ..Default::default()
        };
        let planned = self.client.plan_resource_change(request).await;
        let planned =
            answered("PlanResourceChange of a destruction", planned, |planned| &planned.diagnostics)?;
        let nothing = self.decoded(type_name, planned.planned_state.as_ref())?;
        self.same(type_name, "PlanResourceChange of a destruction", &Val::Null, &nothing)?;
        let plan =
            Plan { planned: Val::Null, identity: None, private: planned.planned_private, replace: false };
        let gone = self.apply(type_name, &state, &Val::Null, plan).await?;
        self.same(type_name, "a destruction", &Val::Null, &gone.value)?;
        let read = self.read(type_name, &state).await?;
        self.same(type_name, "ReadResource of what was destroyed", &Val::Null, &read.value)
    }

    async fn read(&mut self, type_name: &str, state: &State) -> Result<State, Broken> {
        let request = pb::read_resource::Request {
            type_name: type_name.to_owned(),
            current_state: Some(codec::encode(&state.value)),
            private: state.private.clone(),
            current_identity: state.identity.clone(),
            ..Default::default()
        };
        let read =
            answered("ReadResource", self.client.read_resource(request).await, |read| &read.diagnostics)?;
        let value = self.decoded(type_name, read.new_state.as_ref())?;
        broken_at(&format!("ReadResource of {type_name}"), rules::unknown(&value, &Path::root()))?;
        if !value.is_null() {
            let before = state.identity.as_ref().or(read.new_identity.as_ref());
            self.same_identity(type_name, "ReadResource", before, read.new_identity.as_ref())?;
        }
        Ok(State { value, identity: read.new_identity, private: read.private })
    }

    async fn upgrade_identity(
        &mut self,
        type_name: &str,
        identity: &pb::ResourceIdentityData,
    ) -> Result<Option<pb::ResourceIdentityData>, Broken> {
        let Some(known) = self.identities.get(type_name) else { return Ok(None) };
        let broken = |how: String| Broken { during: format!("identity of {type_name}"), how: vec![how] };
        let value =
            codec::decode(identity.identity_data.as_ref(), &known.of).map_err(|e| broken(e.to_string()))?;
        let request = pb::upgrade_resource_identity::Request {
            type_name: type_name.to_owned(),
            version: known.version,
            raw_identity: Some(pb::RawState {
                json: wire::stored(&value).into_bytes(),
                ..Default::default()
            }),
        };
        let upgraded = self.client.upgrade_resource_identity(request).await;
        let upgraded = answered("UpgradeResourceIdentity", upgraded, |upgraded| &upgraded.diagnostics)?;
        Ok(upgraded.upgraded_identity)
    }

    /// Checks that an identity has not changed. It must be present if the resource has identities.
    pub(super) fn same_identity(
        &self,
        type_name: &str,
        what: &str,
        before: Option<&pb::ResourceIdentityData>,
        after: Option<&pb::ResourceIdentityData>,
    ) -> Result<(), Broken> {
        let wrong = match (self.identities.get(type_name), before, after) {
            (None, None, None) => Vec::new(),
            (None, ..) => vec!["there is an identity without a schema of it".to_owned()],
            (Some(_), _, None) => vec!["there is no identity".to_owned()],
            (Some(identity), before, Some(after)) => {
                let mut wrong = identity.wrong(after);
                wrong.extend(before.filter(|before| *before != after).map(|before| {
                    format!("the identity {} became {}", identity.read(before), identity.read(after))
                }));
                wrong
            }
        };
        broken_at(&format!("{what} of {type_name}"), wrong)
    }

    /// The value of an identity.
    pub(super) fn identity(
        &self,
        type_name: &str,
        identity: &pb::ResourceIdentityData,
    ) -> Result<Val, Broken> {
        let known = self.identities.get(type_name).ok_or_else(|| Broken {
            during: type_name.to_owned(),
            how: vec!["it has no identity".to_owned()],
        })?;
        Ok(known.read(identity))
    }

    async fn upgrade(&mut self, type_name: &str, state: &Val) -> Result<Val, Broken> {
        let json = wire::stored(state).into_bytes();
        let request = pb::upgrade_resource_state::Request {
            type_name: type_name.to_owned(),
            version: self.schema(type_name)?.version,
            raw_state: Some(pb::RawState { json, ..Default::default() }),
        };
        let upgraded = self.client.upgrade_resource_state(request).await;
        let upgraded = answered("UpgradeResourceState", upgraded, |upgraded| &upgraded.diagnostics)?;
        self.decoded(type_name, upgraded.upgraded_state.as_ref())
    }

    pub(super) fn schema(&self, type_name: &str) -> Result<&Schema, Broken> {
        let found = self.resources.get(type_name).map(|(schema, _)| schema);
        found.ok_or_else(|| Broken {
            during: type_name.to_owned(),
            how: vec!["there is no such resource".to_owned()],
        })
    }

    pub(super) fn decoded(&self, type_name: &str, value: Option<&pb::DynamicValue>) -> Result<Val, Broken> {
        let of = self.resources.get(type_name).map(|(_, of)| of);
        let Some(of) = of else { return self.schema(type_name).map(|_| Val::Null) };
        let during = || format!("an answer about {type_name}");
        codec::decode(value, of).map_err(|error| Broken { during: during(), how: vec![error.to_string()] })
    }

    /// Checks that two states are equal.
    pub(super) fn same(&self, type_name: &str, what: &str, before: &Val, after: &Val) -> Result<(), Broken> {
        let attributes = &self.schema(type_name)?.attributes;
        let how = match (before, after) {
            (Val::Map(_), Val::Map(_)) => attributes
                .iter()
                .filter(|attribute| !attribute.same(before.get(&attribute.name), after.get(&attribute.name)))
                .map(|attribute| {
                    let [was, is] = [before, after].map(|state| state.get(&attribute.name));
                    format!("{}: {was:?} became {is:?}", attribute.name)
                })
                .collect(),
            (before, after) if before == after => Vec::new(),
            (before, after) => vec![format!("{before:?} became {after:?}")],
        };
        broken_at(&format!("{what} of {type_name}"), how)
    }
}

/// A configuration with all attributes: those that are not given are null.
pub(super) fn filled(attributes: &[Attribute], config: &Val) -> Val {
    Val::Map(attributes.iter().map(|it| (it.name.clone(), config.get(&it.name).clone())).collect())
}

pub(super) fn broken_at(during: &str, how: Vec<String>) -> Result<(), Broken> {
    if how.is_empty() { Ok(()) } else { Err(Broken { during: during.to_owned(), how }) }
}

pub(super) fn failed(during: &str, status: &Status) -> Broken {
    Broken { during: during.to_owned(), how: vec![status.to_string()] }
}

pub(super) fn errors(diagnostics: &[pb::Diagnostic]) -> Vec<String> {
    let errors = diagnostics.iter().filter(|diagnostic| diagnostic.severity() == Severity::Error);
    errors.map(|error| format!("{}: {}", error.summary, error.detail)).collect()
}

/// The answer, if it contains no errors.
pub(super) fn answered<T>(
    during: &str,
    answer: Result<Response<T>, Status>,
    diagnostics: impl Fn(&T) -> &Vec<pb::Diagnostic>,
) -> Result<T, Broken> {
    let answer = answer.map_err(|status| failed(during, &status))?.into_inner();
    broken_at(during, errors(diagnostics(&answer)))?;
    Ok(answer)
}
