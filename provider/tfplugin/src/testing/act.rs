//! Has actions done, as Terraform does.

use std::fmt::Debug;

use super::mini::{answered, broken_at, errors, failed, filled};
use super::{Broken, MiniCore, rules};
use crate::codec;
use crate::pb;
use crate::pb::invoke_action::event;
use crate::value::Val;

/// How an action went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acted {
    /// What it said meanwhile.
    pub said: Vec<String>,
    /// Why it failed, if it did.
    pub errors: Vec<String>,
}

impl MiniCore {
    /// Has an action planned and done, and checks what is in the table of [this module](super) about it. `look` is what there is
    /// outside: no plan changes it.
    ///
    /// # Errors
    /// A rule that was broken, or an action that was refused. One that fails is no broken rule.
    pub async fn act<T: PartialEq + Debug>(
        &mut self,
        type_name: &str,
        config: &Val,
        mut look: impl AsyncFnMut() -> T,
    ) -> Result<Acted, Broken> {
        let (config, clouded) = self.action_configs(type_name, config)?;
        for config in [&config, &clouded] {
            let request = pb::validate_action_config::Request {
                action_type: type_name.to_owned(),
                config: Some(codec::encode(config)),
            };
            let checked = self.client.validate_action_config(request).await;
            answered("ValidateActionConfig", checked, |checked| &checked.diagnostics)?;
        }
        let before = look().await;
        for config in [&clouded, &config, &config] {
            let request = pb::plan_action::Request {
                action_type: type_name.to_owned(),
                config: Some(codec::encode(config)),
                ..Default::default()
            };
            let planned = self.client.plan_action(request).await;
            answered("PlanAction", planned, |planned| &planned.diagnostics)?;
        }
        let after = look().await;
        let changed = (before != after).then(|| format!("{before:?} became {after:?}"));
        broken_at(&format!("PlanAction of {type_name}"), changed.into_iter().collect())?;
        self.invoked(type_name, &config, false).await
    }

    /// Has an action done that tells how it goes, and interrupts it as soon as it does.
    ///
    /// # Errors
    /// A rule that was broken: an action also ends where it is interrupted.
    pub async fn interrupt(&mut self, type_name: &str, config: &Val) -> Result<Acted, Broken> {
        let (config, _) = self.action_configs(type_name, config)?;
        let acted = self.invoked(type_name, &config, true).await;
        self.configure().await?;
        acted
    }

    /// The whole configuration, and one of which some is not known yet.
    fn action_configs(&self, type_name: &str, config: &Val) -> Result<(Val, Val), Broken> {
        let Some((schema, _)) = self.actions.get(type_name) else {
            return Err(Broken {
                during: type_name.to_owned(),
                how: vec!["there is no such action".to_owned()],
            });
        };
        let config = filled(&schema.attributes, config);
        let clouded = rules::cloud(&schema.attributes, &config, true);
        Ok((config, clouded))
    }

    async fn invoked(&mut self, type_name: &str, config: &Val, interrupt: bool) -> Result<Acted, Broken> {
        let during = format!("InvokeAction of {type_name}");
        let wrong = |how: &str| Broken { during: during.clone(), how: vec![how.to_owned()] };
        let request = pb::invoke_action::Request {
            action_type: type_name.to_owned(),
            config: Some(codec::encode(config)),
            ..Default::default()
        };
        let stream = self.client.invoke_action(request).await.map_err(|e| failed(&during, &e))?;
        let mut stream = stream.into_inner();
        let (mut acted, mut is_over) = (Acted::default(), false);
        while let Some(event) = stream.message().await.map_err(|e| failed(&during, &e))? {
            match event.r#type {
                _ if is_over => return Err(wrong("something came after its end")),
                Some(event::Type::Progress(progress)) => {
                    if interrupt && acted.said.is_empty() {
                        let stopped = self.client.stop_provider(pb::stop_provider::Request {}).await;
                        stopped.map_err(|e| failed("StopProvider", &e))?;
                    }
                    acted.said.push(progress.message);
                }
                Some(event::Type::Completed(completed)) => {
                    is_over = true;
                    acted.errors = errors(&completed.diagnostics);
                }
                None => return Err(wrong("an event says nothing")),
            }
        }
        if is_over { Ok(acted) } else { Err(wrong("it did not say that it is over")) }
    }
}
