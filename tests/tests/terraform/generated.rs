//! Configurations that Terraform generates for existing objects: `plan -generate-config-out`.

use std::fs;

use crate::kinds::{Declared, declared};
use crate::world::{World, flat, provider, within};

impl Declared {
    /// The same without sensitive values: Terraform writes null for each of them.
    fn without_sensitive(mut self) -> Self {
        let hidden = self.kind.spec.fields.iter().filter(|field| field.sensitive);
        let spec = self.spec.as_object_mut().expect("a spec");
        hidden.for_each(|field| drop(spec.remove(field.name)));
        self
    }
}

impl World {
    /// Creates the objects with another tool, and completes their deployments.
    async fn has(&self, all: &[Declared]) {
        for one in all {
            self.put("cli", one.kind.name, one.name, one.spec.clone()).await;
            if one.kind.name == "Deployment" {
                self.say_ready(one.name).await;
            }
        }
    }

    /// The output of a plan that imports existing objects, and generates their configuration.
    async fn plan_generated(&self, imports: &str) -> String {
        self.config(&format!("{}{imports}", provider(self)));
        flat(&self.ok(&["plan", "-generate-config-out=generated.tf"]).await)
    }
}

#[test]
fn what_terraform_writes_for_objects_of_every_kind_plans_to_nothing() {
    within(async |world| {
        let all = declared().into_iter().map(Declared::without_references_to_others);
        let all: Vec<_> = all.map(Declared::without_sensitive).collect();
        world.has(&all).await;
        let said = world.plan_generated(&all.iter().map(Declared::import).collect::<String>()).await;
        let want = format!("Plan: {} to import, 0 to add, 0 to change, 0 to destroy.", all.len());
        assert!(said.contains(&want), "{want} {said}");
        let said = flat(&world.apply().await);
        let want = format!("{} imported, 0 added, 0 changed, 0 destroyed", all.len());
        assert!(said.contains(&want), "{want} {said}");
        world.end().await;
    });
}

#[test]
fn what_terraform_does_not_write_is_shown_with_what_its_loss_means() {
    within(async |world| {
        let all: Vec<_> = declared().into_iter().map(Declared::without_references_to_others).collect();
        world.has(&all).await;
        let has_user_data =
            |one: &&Declared| one.kind.name == "Deployment" && one.spec.get("user_data").is_some();
        let deployment = all.iter().find(has_user_data).expect("an example with user data");
        let said = world.plan_generated(&deployment.import()).await;
        assert!(said.contains("1 to import, 0 to add, 1 to change, 0 to destroy."), "{said}");
        assert!(said.contains("- user_data = (sensitive value)"), "{said}");

        // The generated text, copied into the configuration, changes nothing.
        let path = world.dir.path().join("generated.tf");
        let written = fs::read_to_string(&path).expect("a configuration");
        let whole = written.replace("= null # sensitive", &format!("= {}", deployment.spec["user_data"]));
        assert_ne!(whole, written);
        fs::write(path, whole).expect("a configuration");
        let said = flat(&world.ok(&["plan"]).await);
        assert!(said.contains("1 to import, 0 to add, 0 to change, 0 to destroy."), "{said}");
        world.end().await;
    });
}
