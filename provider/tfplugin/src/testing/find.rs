//! Lists objects, as `terraform query` does.

use super::mini::{Key, answered, broken_at, errors, failed, filled};
use super::{Broken, MiniCore, rules};
use crate::codec;
use crate::path::Path;
use crate::pb;
use crate::value::Val;

/// A limit above the number of objects in any test.
const ALL: i64 = 1_000_000;

/// An object that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundObject {
    /// Name for the user.
    pub name: String,
    /// Identity, wholly known.
    pub identity: Val,
    /// State of the object.
    pub state: Val,
}

impl MiniCore {
    /// Lists objects, and checks the rules in the table of [this module](super).
    ///
    /// # Errors
    /// A rule that was broken, or a search that failed.
    pub async fn find(&mut self, type_name: &str, config: &Val) -> Result<Vec<FoundObject>, Broken> {
        let attributes = match self.lists.get(type_name) {
            Some((schema, _)) => schema.attributes.clone(),
            None => {
                return Err(Broken {
                    during: type_name.to_owned(),
                    how: vec!["there is no such list".to_owned()],
                });
            }
        };
        let config = &filled(&attributes, config);
        self.validate_list(type_name, config).await?;
        self.validate_list(type_name, &rules::cloud(&attributes, config, true)).await?;
        let found = self.listed(type_name, config, true, ALL).await?;
        let bare = self.listed(type_name, config, false, ALL).await?;
        let during = format!("ListResource of {type_name}");
        let identities = |all: &[Event]| all.iter().map(|it| it.identity.clone()).collect::<Vec<_>>();
        if identities(&bare) != identities(&found) {
            return Err(Broken { during, how: vec!["without states it finds something else".to_owned()] });
        }
        let half = i64::try_from(found.len() / 2).unwrap_or(ALL).max(1);
        self.listed(type_name, config, false, half).await?;
        let mut objects = Vec::new();
        for event in found {
            let state = self.decoded(type_name, event.state.as_ref())?;
            broken_at(&during, rules::unknown(&state, &Path::root()))?;
            let there = self.imported(type_name, Key::Identity(&event.identity)).await?;
            self.same_identity(type_name, &during, Some(&event.identity), there.identity.as_ref())?;
            self.same(type_name, "what was listed and imported", &state, &there.value)?;
            self.generate(type_name, &there).await?;
            objects.push(FoundObject { name: event.name, identity: event.known, state });
        }
        Ok(objects)
    }

    async fn validate_list(&mut self, type_name: &str, config: &Val) -> Result<(), Broken> {
        let request = pb::validate_list_resource_config::Request {
            type_name: type_name.to_owned(),
            config: Some(codec::encode(config)),
            ..Default::default()
        };
        let checked = self.client.validate_list_resource_config(request).await;
        answered("ValidateListResourceConfig", checked, |checked| &checked.diagnostics).map(drop)
    }

    /// Lists at most `limit` objects, each with a distinct identity.
    async fn listed(
        &mut self,
        type_name: &str,
        config: &Val,
        with_states: bool,
        limit: i64,
    ) -> Result<Vec<Event>, Broken> {
        let during = format!("ListResource of {type_name}");
        let wrong = |how: String| Broken { during: during.clone(), how: vec![how] };
        let request = pb::list_resource::Request {
            type_name: type_name.to_owned(),
            config: Some(codec::encode(config)),
            include_resource_object: with_states,
            limit,
        };
        let stream = self.client.list_resource(request).await.map_err(|e| failed(&during, &e))?;
        let mut stream = stream.into_inner();
        let mut all: Vec<Event> = Vec::new();
        while let Some(event) = stream.message().await.map_err(|e| failed(&during, &e))? {
            broken_at(&during, errors(&event.diagnostic))?;
            let Some(identity) = event.identity else {
                match event.diagnostic.is_empty() {
                    true => {
                        return Err(wrong("an event has neither an identity nor anything to say".to_owned()));
                    }
                    false => continue,
                }
            };
            self.same_identity(type_name, &during, None, Some(&identity))?;
            let known = self.identity(type_name, &identity)?;
            if all.iter().any(|it| it.known == known) {
                return Err(wrong(format!("{known} was found twice")));
            }
            if event.display_name.is_empty() {
                return Err(wrong(format!("{known} has no name")));
            }
            if event.resource_object.is_some() != with_states {
                let is = if with_states { "has no state" } else { "has a state that nobody asked for" };
                return Err(wrong(format!("{known} {is}")));
            }
            all.push(Event { name: event.display_name, identity, known, state: event.resource_object });
        }
        match i64::try_from(all.len()).is_ok_and(|found| found <= limit) {
            true => Ok(all),
            false => Err(wrong(format!("{} objects came, and {limit} were asked for", all.len()))),
        }
    }
}

/// One object of the list.
struct Event {
    name: String,
    identity: pb::ResourceIdentityData,
    /// The decoded identity.
    known: Val,
    state: Option<pb::DynamicValue>,
}
