//! The scripts of a machine's commissioning, and of its deployment's install and release, as they are declared now.

use std::collections::{BTreeMap, BTreeSet};

use basalt_api::kinds::{DeploymentSpec, MachineSpec, Occasion, Script, ScriptSpec, ScriptType};
use basalt_api::{KindOf, Ref, agent};
use basalt_db::{Key, Store, StoreError};
use basalt_engine::input::{TaskScripts, restart_seconds};
use basalt_engine::plan::TaskKind;

/// Scripts, ready to be run, by the task that they belong to.
#[derive(Debug, Default)]
pub struct Scripts {
    /// Those of commissioning, then those of testing.
    pub inspection: Runs,
    /// Those of an install. The reasons why scripts of the first boot cannot be run are here too: they keep the install from beginning.
    pub install: Runs,
    /// Those of the first boot after an install.
    pub first_boot: Vec<agent::Script>,
    /// Those of a release.
    pub release: Runs,
}

/// Scripts of one task.
#[derive(Debug, Default)]
pub struct Runs {
    scripts: Vec<agent::Script>,
    first_boot: Vec<agent::Script>,
    unusable: Vec<String>,
}

impl Scripts {
    /// All that belong to a machine, and to the deployment that has it.
    ///
    /// # Errors
    /// The database.
    pub async fn load(
        store: &Store,
        machine: &MachineSpec,
        deployment: Option<&DeploymentSpec>,
    ) -> Result<Self, StoreError> {
        let mut all = Self::default();
        let of = &machine.commissioning;
        all.inspection.add(store, &of.scripts, ScriptType::Commissioning, "commissioning.scripts").await?;
        all.inspection.add(store, &of.testing, ScriptType::Testing, "commissioning.testing").await?;
        if let Some(deployment) = deployment {
            let runs = &mut all.install;
            runs.add(store, &deployment.scripts, ScriptType::Deployment, "scripts of a deployment").await?;
            all.first_boot = std::mem::take(&mut runs.first_boot);
            let declared = &deployment.release.scripts;
            all.release.add(store, declared, ScriptType::Release, "release.scripts").await?;
        }
        Ok(all)
    }

    /// What an attempt of this kind is to run.
    #[must_use]
    pub fn of(&self, task: TaskKind) -> &[agent::Script] {
        match task {
            TaskKind::Inventory => &self.inspection.scripts,
            TaskKind::Erase(_) => &self.release.scripts,
            TaskKind::Install => &self.install.scripts,
            TaskKind::Script | TaskKind::Rescue => &[],
        }
    }
}

impl Runs {
    /// For the planner.
    #[must_use]
    pub fn planned(&self) -> TaskScripts {
        let names = self.scripts.iter().map(|script| script.name.clone()).collect();
        let unusable = (!self.unusable.is_empty()).then(|| self.unusable.join("; "));
        TaskScripts { names, unusable, restart_seconds: restart_seconds(self.scripts.iter()) }
    }

    async fn add(
        &mut self,
        store: &Store,
        names: &BTreeSet<Ref<Script>>,
        when: ScriptType,
        field: &str,
    ) -> Result<(), StoreError> {
        for name in names {
            match one(store, name.as_str(), when, field).await? {
                Ok((Occasion::Install, script)) => self.scripts.push(script),
                Ok((Occasion::FirstBoot, script)) => self.first_boot.push(script),
                Err(why) => self.unusable.push(why),
            }
        }
        Ok(())
    }
}

/// One script with its occasion, or why it cannot be run.
async fn one(
    store: &Store,
    name: &str,
    when: ScriptType,
    field: &str,
) -> Result<Result<(Occasion, agent::Script), String>, StoreError> {
    let object = match store.get(Script::KIND.name, Key::Name(name)).await {
        Ok(object) => object,
        // In a dry run it may not be there yet.
        Err(StoreError::NotFound { .. }) => return Ok(Err(format!("there is no Script {name:?}"))),
        Err(error) => return Err(error),
    };
    let spec: ScriptSpec = match serde_json::from_str(object.spec.get()) {
        Ok(spec) => spec,
        Err(error) => return Ok(Err(format!("this region cannot read script {name}: {error}"))),
    };
    Ok(usable(name, &spec, when, field).map(|script| (spec.occasion, script)))
}

fn usable(name: &str, spec: &ScriptSpec, when: ScriptType, field: &str) -> Result<agent::Script, String> {
    if spec.when != when {
        return Err(format!(
            "script {name} is of type {}, and {field} takes those of type {when}",
            spec.when
        ));
    }
    // No person gives values here: each parameter takes its default.
    let run = spec.run(name, &BTreeMap::new());
    let run = run.map_err(|errors| {
        let errors: Vec<String> = errors.iter().map(|error| error.message.clone()).collect();
        format!("{}: give it a default", errors.join("; "))
    })?;
    // The script may run more than once: after a restart of the machine during the task, or in a new attempt after a lost one.
    Ok(agent::Script { repeats: true, ..run })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(json: serde_json::Value) -> ScriptSpec {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_script_of_another_type_is_not_run() {
        let spec = script(serde_json::json!({"type": "release", "content": "#!/bin/sh\n"}));
        assert_eq!(
            usable("leave", &spec, ScriptType::Testing, "commissioning.testing").unwrap_err(),
            "script leave is of type release, and commissioning.testing takes those of type testing"
        );
        let run = usable("leave", &spec, ScriptType::Release, "release.scripts").unwrap();
        assert!(run.repeats, "an agent that comes up again runs it again");
    }

    #[test]
    fn packages_go_with_the_run() {
        let spec =
            serde_json::json!({"type": "deployment", "content": "#!/bin/sh\n", "packages": ["jq", "curl"]});
        let run = usable("seed", &script(spec), ScriptType::Deployment, "scripts of a deployment").unwrap();
        assert_eq!(run.packages, ["curl", "jq"]);
    }

    #[test]
    fn a_parameter_without_a_default_is_named_because_nobody_gives_it() {
        let parameters = serde_json::json!({"minutes": {"required": true}, "mode": {"default": "short"}});
        let spec = serde_json::json!({"type": "testing", "content": "#!/bin/sh\n", "parameters": parameters});
        let mut spec = script(spec);
        let why = usable("burn-in", &spec, ScriptType::Testing, "commissioning.testing").unwrap_err();
        assert_eq!(why, "script burn-in cannot be run without minutes: give it a default");
        spec.parameters.remove("minutes");
        let run = usable("burn-in", &spec, ScriptType::Testing, "commissioning.testing").unwrap();
        assert_eq!(run.arguments, ["--mode=short"]);
    }
}
