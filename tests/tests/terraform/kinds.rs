//! Every declarable kind, from its description alone: this file contains no list of kinds.

use std::collections::BTreeSet;

use std::time::Duration;

use basalt_api::client::{DeleteOptions, WaitGone};
use basalt_api::values::Naming;
use basalt_api::{Example, KINDS, Kind, Presence, Schema, Type, examples, references, secrets, validate};
use serde_json::Value;

use crate::world::{World, flat, provider, within};

/// Time limit of a deletion, which is quick for these kinds.
const GONE: Duration = Duration::from_secs(30);

/// A resource of an example, in Terraform's form.
#[derive(Clone)]
pub(crate) struct Declared {
    pub(crate) kind: &'static Kind,
    pub(crate) name: &'static str,
    pub(crate) spec: Value,
}

impl Declared {
    fn new(Example { kind, name, spec }: Example) -> Self {
        Self { kind, name, spec }
    }

    /// The same without optional values.
    fn minimal(mut self) -> Self {
        for field in self.kind.spec.fields {
            let mut less = self.spec.clone();
            less.as_object_mut().expect("a spec").remove(field.name);
            if validate(self.kind, &less).is_empty() {
                self.spec = less;
            }
        }
        self
    }

    /// The same without secrets, which a region never returns.
    pub(crate) fn without_secrets(mut self) -> Self {
        for secret in secrets(self.kind, &self.spec) {
            remove(&mut self.spec, &secret.pointer);
        }
        self
    }

    /// The same without references to kinds that Terraform cannot declare, such as racks.
    pub(crate) fn without_references_to_others(self) -> Self {
        self.referring_to(|kind| Kind::find(kind).is_some_and(|kind| kind.declarable))
    }

    /// The same with references to these kinds only.
    fn referring_to(mut self, these: impl Fn(&str) -> bool) -> Self {
        for reference in references(self.kind, &self.spec).iter().rev() {
            if !these(reference.kind) {
                remove(&mut self.spec, &reference.pointer);
            }
        }
        self
    }

    /// The same with all defaults written out, also those of nested objects.
    fn with_defaults(mut self) -> Self {
        spell_defaults(self.kind.spec, &mut self.spec);
        self
    }

    pub(crate) fn address(&self) -> String {
        address(self.kind, self.name)
    }

    /// The addresses of the resources in `all` that it refers to.
    pub(crate) fn refers_to(&self, all: &[Self]) -> Vec<String> {
        let references = references(self.kind, &self.spec);
        let is_meant =
            |one: &&Self| references.iter().any(|it| it.kind == one.kind.name && it.name == one.name);
        all.iter().filter(is_meant).map(Self::address).collect()
    }

    /// Its block in a configuration, with these fields.
    pub(crate) fn with_fields(&self, fields: &str) -> String {
        let address = self.address().replace('.', "\" \"");
        format!("resource \"{address}\" {{\n{fields}}}\n")
    }

    /// True if the configuration gives the name.
    pub(crate) fn has_name(&self) -> bool {
        !matches!(self.kind.naming, Naming::FabricVid)
    }

    /// Its block. References to declared resources are expressions, as users write them.
    fn block(&self, all: &[Self]) -> String {
        let mut spec = self.spec.clone();
        for reference in references(self.kind, &self.spec) {
            let to = all.iter().find(|d| d.kind.name == reference.kind && d.name == reference.name);
            if let (Some(to), Some(at @ Value::String(_))) = (to, spec.pointer_mut(&reference.pointer)) {
                *at = format!("${{{}.name}}", to.address()).into();
            }
        }
        let name = if self.has_name() { format!("  name = {:?}\n", self.name) } else { String::new() };
        let fields = spec.as_object().expect("a spec").iter();
        let fields: String = fields.map(|(field, value)| format!("  {field} = {value}\n")).collect();
        self.with_fields(&format!("{name}{fields}"))
    }

    pub(crate) fn import(&self) -> String {
        format!("import {{\n  to = {}\n  id = {:?}\n}}\n", self.address(), self.name)
    }
}

fn address(kind: &Kind, name: &str) -> String {
    format!("{}.{}", kind.terraform_name, name.replace('.', "_"))
}

fn spell_defaults(described: &'static Schema, spec: &mut Value) {
    let Some(spec) = spec.as_object_mut() else { return };
    for field in described.fields {
        if let Presence::Default(default) = field.presence {
            spec.entry(field.name).or_insert_with(|| default.json(&field.ty));
        }
        match (&field.ty, spec.get_mut(field.name)) {
            (Type::Object(described), Some(inner)) => spell_defaults(described, inner),
            (Type::Map { value: Type::Object(described), .. }, Some(Value::Object(items))) => {
                items.values_mut().for_each(|item| spell_defaults(described, item));
            }
            _ => {}
        }
    }
}

/// Removes one value of the spec.
fn remove(spec: &mut Value, pointer: &str) {
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer to a value");
    match spec.pointer_mut(parent) {
        Some(Value::Object(fields)) => drop(fields.remove(name)),
        Some(Value::Array(items)) => drop(items.remove(name.parse().expect("an index"))),
        _ => panic!("{pointer} leads nowhere"),
    }
}

/// Examples of every kind that can be declared.
pub(crate) fn declared() -> Vec<Declared> {
    let all: Vec<_> = examples().into_iter().filter(|one| one.kind.declarable).map(Declared::new).collect();
    let shown: BTreeSet<_> = all.iter().map(|one| one.kind.name).collect();
    let declarable: BTreeSet<_> = KINDS.iter().filter(|kind| kind.declarable).map(|kind| kind.name).collect();
    assert_eq!(shown, declarable);
    all
}

fn is_quick(kind: &str) -> bool {
    Kind::find(kind).is_some_and(|kind| kind.declarable && !matches!(kind.name, "Machine" | "Deployment"))
}

/// Examples of kinds that nothing has to converge.
pub(crate) fn quick() -> Vec<Declared> {
    declared()
        .into_iter()
        .filter(|one| is_quick(one.kind.name))
        .map(|one| one.referring_to(is_quick))
        .collect()
}

/// The examples that a new region already has, and the others.
pub(crate) async fn apart(world: &World, all: Vec<Declared>) -> (Vec<Declared>, Vec<Declared>) {
    let (mut there, mut missing) = (Vec::new(), Vec::new());
    for one in all {
        let found = world.client("test").find(one.kind, one.name).await.expect("an answer");
        if found.is_some() { there.push(one) } else { missing.push(one) }
    }
    (there, missing)
}

pub(crate) fn text(world: &World, all: &[Declared]) -> String {
    let blocks: String = all.iter().map(|one| one.block(all)).collect();
    format!("{}{blocks}", provider(world))
}

#[test]
fn the_least_that_can_be_said_of_every_kind_is_valid_and_plans() {
    within(async |world| {
        let all: Vec<_> = declared().into_iter().map(Declared::minimal).collect();
        world.config(&text(&world, &all));
        world.ok(&["validate"]).await;
        let said = world.ok(&["plan"]).await;
        let want = format!("Plan: {} to add, 0 to change, 0 to destroy.", all.len());
        assert!(said.contains(&want), "{want} {said}");
        world.end().await;
    });
}

#[test]
fn of_each_object_of_a_kind_that_nothing_acts_on_its_plan_warns() {
    within(async |world| {
        let all: Vec<_> = quick().into_iter().map(Declared::minimal).collect();
        let said = flat(&world.config(&text(&world, &all)).ok(&["plan"]).await);
        assert!(all.iter().any(|one| one.kind.dormant.is_some()));
        for one in &all {
            let title = format!("Warning: Nothing acts on it: {} {:?}", one.kind.name, one.name);
            assert_eq!(said.contains(&title), one.kind.dormant.is_some(), "{title}: {said}");
            let why = one.kind.dormant.map(|why| format!("{} is not acted on yet: {why}.", one.kind.name));
            assert!(why.as_ref().is_none_or(|why| said.contains(why)), "{why:?}: {said}");
        }
        world.end().await;
    });
}

#[test]
fn every_kind_is_created_planned_to_nothing_and_imported_as_it_is() {
    within(async |world| {
        let all = quick();
        let mut whole = text(&world, &all);
        let mut there = 0;
        for one in &all {
            // A new region already has some of them.
            if world.client("test").find(one.kind, one.name).await.expect("an answer").is_some() {
                whole.push_str(&one.import());
                there += 1;
            }
        }
        let said = world.config(&whole).apply().await;
        let want = format!("{} added", all.len() - there);
        assert!(said.contains(&want), "{want}: {said}");

        std::fs::remove_file(world.dir.path().join("terraform.tfstate")).expect("a state");
        let all: Vec<_> = all.into_iter().map(Declared::without_secrets).collect();
        let imports: String = all.iter().map(Declared::import).collect();
        let said = flat(&world.config(&format!("{}{imports}", text(&world, &all))).ok(&["plan"]).await);
        let want = format!("Plan: {} to import, 0 to add, 0 to change, 0 to destroy.", all.len());
        assert!(said.contains(&want), "{want} {said}");

        // The stored spec omits the defaults.
        let spelled: Vec<_> = all.into_iter().map(Declared::with_defaults).collect();
        let said = flat(&world.config(&format!("{}{imports}", text(&world, &spelled))).ok(&["plan"]).await);
        assert!(said.contains(&want), "with all defaults spelled out: {want} {said}");
        world.end().await;
    });
}

#[test]
fn what_somebody_deletes_of_any_kind_is_planned_and_made_again() {
    within(async |world| {
        let (there, missing) = apart(&world, quick()).await;
        let (made, imports) = (missing.len(), there.iter().map(Declared::import).collect::<String>());
        let all: Vec<_> = quick();
        let whole = format!("{}{imports}", text(&world, &all));
        world.config(&whole).apply().await;

        let cli = world.client("cli");
        for one in &missing {
            let options = DeleteOptions { adopt: true, ..DeleteOptions::default() };
            cli.delete(one.kind, one.name, options).await.expect("it is to go");
        }
        // Each is deleted once nothing refers to it any more.
        for one in &missing {
            let gone =
                cli.wait_gone(one.kind, one.name, WaitGone::within(GONE), |_| {}).await.expect("an answer");
            assert!(gone.is_none(), "{} stays: {gone:?}", one.address());
        }

        let want = format!("Plan: {made} to add, 0 to change, 0 to destroy.");
        let said = flat(&world.ok(&["plan"]).await);
        assert!(said.contains(&want), "{want} {said}");
        let want = format!("{made} added, 0 changed, 0 destroyed");
        let said = world.apply().await;
        assert!(said.contains(&want), "{want} {said}");
        world.end().await;
    });
}
