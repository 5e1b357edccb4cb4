//! The provider: its block; for each kind a resource, a list resource and two data sources; for each verb an action; and some parts without
//! a kind.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use basalt_api::wire::Verb;
use basalt_api::{KINDS, Kind};
use tfplugin::{
    Action, Cx, DataSource, Deferral, Diag, Diags, End, Ephemeral, Function, ListResource, Path, Provider,
    Resource, Schema, Val, async_trait,
};

use crate::action::Operate;
use crate::config::{self, OnNotReady};
use crate::data_source::{KindData, KindsData};
use crate::functions;
use crate::greeting::greet;
use crate::list::KindList;
use crate::memory::Memory;
use crate::region::Region;
use crate::resource::KindResource;
use crate::results::Results;
use crate::run::Kept;
use crate::tags::MachineTags;
use crate::token::Token;
use crate::wait::Wait;

/// The provider's source address, with the host that `required_providers` implies.
pub const ADDRESS: &str = "registry.terraform.io/basalt-metal/basalt";

/// The provider, ready to be served.
#[must_use]
pub fn provider() -> impl Provider {
    Basalt { session: Arc::default() }
}

struct Basalt {
    session: Arc<Session>,
}

/// State that all resources share, from one configuration of the provider to the next.
#[derive(Debug, Default)]
pub(crate) struct Session {
    region: RwLock<Option<Region>>,
    trouble: Mutex<Trouble>,
    default_labels: RwLock<Val>,
    on_not_ready: RwLock<OnNotReady>,
    /// Plans and results of this process.
    pub(crate) memory: Memory,
}

/// The reason why the region cannot be used, from one configuration of the provider to the next.
#[derive(Debug, Default)]
enum Trouble {
    #[default]
    None,
    New(Diags),
    /// The errors were reported in full. Only their titles are kept.
    Told(String),
}

impl Session {
    /// The labels of every resource, from the provider's block.
    pub(crate) fn default_labels(&self) -> Val {
        self.default_labels.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The end of an apply for an object that is stored and not ready.
    pub(crate) fn on_not_ready(&self) -> OnNotReady {
        *self.on_not_ready.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The errors of the greeting: in full for the first caller, and in one line for later ones.
    pub(crate) fn is_well(&self) -> Result<(), Diags> {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::take(&mut *trouble) {
            Trouble::None => Ok(()),
            Trouble::New(diags) => {
                let titles: Vec<&str> = diags.0.iter().map(|diag| diag.summary.as_str()).collect();
                *trouble = Trouble::Told(titles.join("; "));
                Err(diags)
            }
            Trouble::Told(titles) => {
                let detail = format!("{titles}. Another error says more.");
                *trouble = Trouble::Told(titles);
                Err(Diag::error("The region was not asked", detail).into())
            }
        }
    }

    /// The region, if the provider's block is known.
    pub(crate) fn region_if_known(&self) -> Option<Region> {
        self.region.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends the run, before the provider is configured again.
    async fn ends(&self, kept: Kept) {
        if let Some(region) = self.region_if_known() {
            region.run.end(kept).await;
        }
    }

    /// The region, or the reason why it cannot be used.
    pub(crate) fn region(&self) -> Result<Region, Diags> {
        self.is_well()?;
        self.region_if_known().ok_or_else(|| {
            Diag::error(
                "The provider is not configured",
                "A value of its block is known only after the apply. Apply what it depends on first, with -target.",
            )
            .into()
        })
    }
}

/// The kinds that Terraform can declare.
fn declarable() -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().copied().filter(|kind| kind.declarable)
}

#[async_trait]
impl Provider for Basalt {
    fn schema(&self) -> Schema {
        config::schema()
    }

    fn resources(&self) -> Vec<Box<dyn Resource>> {
        let session = || Arc::clone(&self.session);
        let of_kinds = declarable().map(|kind| Box::new(KindResource::new(kind, session())) as Box<_>);
        let others = [
            Box::new(MachineTags::new(session())) as Box<dyn Resource>,
            Box::new(Wait::new(session())) as Box<_>,
        ];
        of_kinds.chain(others).collect()
    }

    fn list_resources(&self) -> Vec<Box<dyn ListResource>> {
        let session = || Arc::clone(&self.session);
        declarable().map(|kind| Box::new(KindList::new(kind, session())) as Box<_>).collect()
    }

    fn actions(&self) -> Vec<Box<dyn Action>> {
        let session = || Arc::clone(&self.session);
        Verb::ALL.into_iter().map(|verb| Box::new(Operate::new(verb, session())) as Box<_>).collect()
    }

    fn data_sources(&self) -> Vec<Box<dyn DataSource>> {
        let session = || Arc::clone(&self.session);
        let one = KINDS.iter().map(|kind| Box::new(KindData::new(kind, session())) as Box<_>);
        let many = KINDS.iter().filter_map(|kind| Some(Box::new(KindsData::new(kind, session())?) as Box<_>));
        let results = Box::new(Results::new(session())) as Box<_>;
        one.chain(many).chain([results]).collect()
    }

    fn ephemerals(&self) -> Vec<Box<dyn Ephemeral>> {
        vec![Box::new(Token::new(Arc::clone(&self.session)))]
    }

    fn functions(&self) -> Vec<Box<dyn Function>> {
        functions::all()
    }

    async fn validate(&self, config: &Val) -> Diags {
        config::check(config)
    }

    async fn configure(&self, cx: &Cx, config: &Val) -> Result<(), Diags> {
        // A process that Terraform did not start serves many commands, and is not told when one ends.
        self.session.ends(Kept::Unknown).await;
        let mut trouble = Trouble::None;
        let mut on_not_ready = OnNotReady::default();
        let region = if config::says_where(config) {
            let env = |name: &str| std::env::var(name).ok();
            let client = config::client(config, cx.terraform_version(), env)?.until(cx.cancellation());
            let token_from = config::token_from(config, env);
            on_not_ready = config::on_not_ready(config, env)?;
            match greet(&client, token_from.as_deref()).await {
                Ok(warning) => warning.into_iter().for_each(|warning| cx.warn(warning)),
                Err(diags) if config::is_said(config) || cx.is_cancelled() => return Err(diags),
                // Without a block in the configuration, Terraform would ask for one. So the errors name no attribute.
                Err(diags) => {
                    trouble =
                        Trouble::New(Diags(diags.into_iter().map(|diag| diag.at(Path::root())).collect()));
                }
            }
            Some(Region::new(client))
        } else {
            cx.defer(Deferral::ProviderUnknown);
            None
        };
        let labels = config.get(config::DEFAULT_LABELS).clone();
        *self.session.default_labels.write().unwrap_or_else(PoisonError::into_inner) = labels;
        *self.session.on_not_ready.write().unwrap_or_else(PoisonError::into_inner) = on_not_ready;
        *self.session.region.write().unwrap_or_else(PoisonError::into_inner) = region;
        *self.session.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
        self.session.memory.forget();
        Ok(())
    }

    async fn end(&self, end: End) {
        let kept = match end {
            End::Asked => Kept::Yes,
            End::Orphaned => Kept::Unknown,
        };
        self.session.ends(kept).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_api::values::Naming;

    #[test]
    fn what_keeps_all_from_the_region_is_told_in_full_once() {
        let session = Session::default();
        assert_eq!(session.is_well(), Ok(()));
        assert_eq!(session.is_well(), Ok(()), "and stays so");
        *session.trouble.lock().expect("a lock") =
            Trouble::New(Diag::error("No region", "None answered.").into());
        let told = [(); 3].map(|()| session.region().expect_err("trouble").0.remove(0).summary);
        assert_eq!(told, ["No region", "The region was not asked", "The region was not asked"]);
    }

    #[test]
    fn terraform_accepts_every_schema() {
        let provider = provider();
        assert_eq!(provider.schema().problems(), Vec::<String>::new());
        for resource in provider.resources() {
            let (schema, name) = (resource.schema(), resource.type_name());
            assert_eq!(schema.problems(), Vec::<String>::new(), "{name}");
            assert_eq!(resource.identity().problems(schema), Vec::<String>::new(), "{name}");
        }
        for source in provider.data_sources() {
            assert_eq!(source.schema().problems(), Vec::<String>::new(), "{}", source.type_name());
        }
        for ephemeral in provider.ephemerals() {
            assert_eq!(ephemeral.schema().problems(), Vec::<String>::new(), "{}", ephemeral.type_name());
        }
        for list in provider.list_resources() {
            assert_eq!(list.schema().problems_of_config(), Vec::<String>::new(), "{}", list.type_name());
        }
        for action in provider.actions() {
            assert_eq!(action.schema().problems_of_config(), Vec::<String>::new(), "{}", action.type_name());
        }
    }

    #[test]
    fn every_declarable_kind_is_a_resource_with_a_list_and_every_kind_two_data_sources() {
        let provider = provider();
        let resources: Vec<_> = provider.resources().iter().map(|r| r.type_name().to_owned()).collect();
        let sources: Vec<_> = provider.data_sources().iter().map(|s| s.type_name().to_owned()).collect();
        let lists: Vec<_> = provider.list_resources().iter().map(|l| l.type_name().to_owned()).collect();
        // Tags are found with their machine, and a wait is not an object.
        let others = ["basalt_machine_tags", "basalt_wait"];
        let of_kinds: Vec<_> =
            resources.iter().filter(|name| !others.contains(&name.as_str())).cloned().collect();
        assert_eq!(lists, of_kinds);
        for kind in KINDS {
            let name = kind.terraform_name.to_owned();
            assert_eq!(resources.contains(&name), kind.declarable, "{name}");
            assert!(sources.contains(&name), "{name}");
            // There is only one Settings object, and its plural is the same word.
            let is_one = kind.naming == Naming::Singleton;
            let many = format!("basalt_{}", kind.plural);
            assert_eq!(sources.iter().filter(|source| **source == many).count(), 1, "{many}");
            assert_eq!(is_one, many == name, "{many}");
        }
    }
}
