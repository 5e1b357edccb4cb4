//! The example of the README, under the mini core; and providers that break its rules, which it notices.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use tfplugin::testing::{Broken, Lived, MiniCore, Random};
use tfplugin::{
    Attribute, Change, Cx, DataSource, Diags, Identity, Provider, Resource, Schema, Type, Val, async_trait,
};

#[allow(dead_code, unreachable_pub, reason = "a program of its own, of which only the provider is used here")]
#[path = "../examples/terraform-provider-notes.rs"]
mod notes;

#[test]
fn the_provider_in_the_readme_is_the_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| std::fs::read_to_string(root.join(name)).expect("a file");
    let example = read("examples/terraform-provider-notes.rs");
    assert!(read("README.md").contains(&format!("```rust\n{example}```\n")), "copy the example to README.md");
}

#[tokio::test]
async fn the_example_keeps_the_contract_with_random_configurations() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = Val::from([("directory", dir.path().display().to_string().into())]);
    let mut core = MiniCore::start(notes::Notes::default(), &config).await.expect("it starts");
    let mut all = Lived::default();
    for seed in 0..50 {
        let mut random = Random::new(seed).choose("name", ["one", "two"]);
        let configs: Vec<Val> = (0..4).map(|_| random.config(&core, "notes_note")).collect();
        let name = |state: &Val| state.get("name").as_str().map(str::to_owned);
        let lived = core.live("notes_note", &configs, name).await;
        let lived = lived.unwrap_or_else(|broken| panic!("seed {seed}: {broken}\n{configs:?}"));
        all.created += lived.created;
        all.updated += lived.updated;
        all.imported += lived.imported;
        all.identified += lived.identified;
    }
    assert!(all.created > 50 && all.updated > 20 && all.imported == 200, "{all:?}");
    assert_eq!(all.identified, all.imported, "{all:?}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 0, "all are destroyed");
    core.stop().await;
}

/// A provider of one thing, which does one thing wrong.
struct Wrong(Rule);

#[derive(Clone, Copy, PartialEq)]
enum Rule {
    /// What was read is not what was applied.
    Read,
    /// Another value after the apply than planned.
    Apply,
    /// Planning is not the same twice.
    Plan,
    /// What was destroyed is there still.
    Destroy,
    /// What identifies it changes.
    Identity,
    /// What identifies it is not there.
    Unidentified,
    /// Its identity is of what cannot identify anything.
    NoIdentity,
}

struct Thing {
    rule: Rule,
    schema: Schema,
    there: std::sync::Mutex<Option<Val>>,
    planned: AtomicUsize,
}

#[async_trait]
impl Provider for Wrong {
    fn schema(&self) -> Schema {
        Schema::default()
    }
    fn resources(&self) -> Vec<Box<dyn Resource>> {
        let attributes = vec![
            Attribute::required("name", Type::String),
            Attribute::computed("number", Type::Number),
            Attribute::optional("words", Type::map(Type::String)),
        ];
        let schema = Schema { attributes, ..Schema::default() };
        let (there, planned) = Default::default();
        vec![Box::new(Thing { rule: self.0, schema, there, planned })]
    }
    fn data_sources(&self) -> Vec<Box<dyn DataSource>> {
        Vec::new()
    }
    async fn configure(&self, _: &Cx, _: &Val) -> Result<(), Diags> {
        Ok(())
    }
}

#[async_trait]
impl Resource for Thing {
    fn type_name(&self) -> &str {
        "wrong_thing"
    }
    fn schema(&self) -> &Schema {
        &self.schema
    }
    fn derive(&self, planned: &mut tfplugin::Object) {
        if self.rule == Rule::Plan {
            let number = self.planned.fetch_add(1, Ordering::Relaxed);
            planned.insert("number".to_owned(), i64::try_from(number).unwrap_or_default().into());
        }
    }
    async fn read(&self, _: &Cx, _: &Val) -> Result<Option<Val>, Diags> {
        let mut there = self.there.lock().expect("a lock").clone();
        if let (Rule::Read | Rule::Identity, Some(thing)) = (self.rule, &mut there) {
            thing.set("number", 8_i64);
        }
        Ok(there)
    }
    async fn create(&self, _: &Cx, change: Change<'_>) -> Result<Val, Diags> {
        let mut thing = change.planned.clone();
        thing.set("number", if self.rule == Rule::Unidentified { Val::Null } else { 7_i64.into() });
        if self.rule == Rule::Apply {
            thing.set("name", "another");
        }
        *self.there.lock().expect("a lock") = Some(thing.clone());
        Ok(thing)
    }
    async fn update(&self, cx: &Cx, change: Change<'_>) -> Result<Val, Diags> {
        self.create(cx, change).await
    }
    async fn delete(&self, _: &Cx, _: &Val) -> Result<(), Diags> {
        if self.rule != Rule::Destroy {
            *self.there.lock().expect("a lock") = None;
        }
        Ok(())
    }
    async fn import(&self, _: &Cx, id: &str) -> Result<Val, Diags> {
        Ok(Val::from([("name", id.into())]))
    }
    fn identity(&self) -> Identity {
        match self.rule {
            Rule::Identity | Rule::Unidentified => Identity::default().required("number"),
            Rule::NoIdentity => Identity::default().required("words"),
            _ => Identity::default(),
        }
    }
}

async fn broken(rule: Rule) -> Broken {
    let mut core = match MiniCore::start(Wrong(rule), &Val::Null).await {
        Ok(core) => core,
        Err(broken) => return broken,
    };
    let config = Val::from([("name", "it".into())]);
    core.live("wrong_thing", &[config], |_| None).await.expect_err("it breaks a rule")
}

#[tokio::test]
async fn every_broken_rule_is_told_with_its_place() {
    let read = broken(Rule::Read).await.to_string();
    assert!(read.starts_with("ReadResource of wrong_thing: number: ") && read.contains('8'), "{read}");
    let apply = broken(Rule::Apply).await.to_string();
    assert!(apply.contains("ApplyResourceChange") && apply.contains("not what was planned"), "{apply}");
    let plan = broken(Rule::Plan).await.to_string();
    assert!(plan.contains("asked twice") && plan.contains("number"), "{plan}");
    let destroy = broken(Rule::Destroy).await.to_string();
    assert!(destroy.contains("what was destroyed"), "{destroy}");
    let changed = broken(Rule::Identity).await.to_string();
    assert!(changed.contains("It is another object now") && changed.contains('8'), "{changed}");
    let unidentified = broken(Rule::Unidentified).await.to_string();
    assert_eq!(unidentified, "ApplyResourceChange of wrong_thing: there is no identity");
    let none = broken(Rule::NoIdentity).await.to_string();
    assert_eq!(none, "start: identity of wrong_thing: words: map of string identifies nothing");
}
