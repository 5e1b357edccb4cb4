//! Performs actions as Terraform does.

use std::fmt::Debug;

use super::mini::{answered, broken_at, errors, failed, filled};
use super::{Broken, MiniCore, rules};
use crate::codec;
use crate::pb;
use crate::pb::invoke_action::event;
use crate::value::Val;

/// The outcome of an action.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acted {
    /// Its progress messages.
    pub said: Vec<String>,
    /// Its errors, if it failed.
    pub errors: Vec<String>,
}

impl MiniCore {
    /// Plans and performs an action, and checks the rules in the table of [this module](super). `look` reads the outside world,
    /// which no plan may change.
    ///
    /// # Errors
    /// A rule that was broken, or an action that was refused. A failed action does not break a rule.
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

    /// Performs an action that reports progress, and interrupts it at its first message.
    ///
    /// # Errors
    /// A rule that was broken: an interrupted action must still report its end.
    pub async fn interrupt(&mut self, type_name: &str, config: &Val) -> Result<Acted, Broken> {
        let (config, _) = self.action_configs(type_name, config)?;
        let acted = self.invoked(type_name, &config, true).await;
        self.configure().await?;
        acted
    }

    /// The whole configuration, and one with unknown values.
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
