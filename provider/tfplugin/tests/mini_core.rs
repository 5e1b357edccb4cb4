//! The example of the README under the mini core; and providers that break its rules, which the core must report.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tfplugin::testing::{Broken, Lived, MiniCore, Random};
use tfplugin::{
    Action, Attribute, Change, Cx, DataSource, Diag, Diags, Function, Identity, ListResource, Listed,
    Listing, Progress, Provider, Query, Refusal, Resource, Schema, Signature, Type, Val, async_trait,
};

#[allow(dead_code, unreachable_pub, reason = "a program of its own, of which only the provider is used here")]
#[path = "../examples/terraform-provider-notes.rs"]
mod notes;

#[allow(dead_code, unreachable_pub, reason = "a program of its own, of which only the provider is used here")]
#[path = "../examples/terraform-provider-pets.rs"]
mod pets;

#[test]
fn the_provider_in_the_readme_is_the_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| std::fs::read_to_string(root.join(name)).expect("a file");
    let example = read("examples/terraform-provider-notes.rs");
    assert!(read("README.md").contains(&format!("```rust\n{example}```\n")), "copy the example to README.md");
    let lines = example.lines().filter(|line| !line.trim().is_empty()).count();
    assert!(lines <= 80, "a whole provider fits on a page: {lines} lines");
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

#[tokio::test]
async fn a_value_may_be_larger_than_what_grpc_takes_by_itself() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = Val::from([("directory", dir.path().display().to_string().into())]);
    let mut core = MiniCore::start(notes::Notes::default(), &config).await.expect("it starts");
    let text = |letter: &str| Val::from([("name", "one".into()), ("text", letter.repeat(5 << 20).into())]);
    let name = |state: &Val| state.get("name").as_str().map(str::to_owned);
    let lived = core.live("notes_note", &[text("a"), text("b")], name).await;
    let lived = lived.unwrap_or_else(|broken| panic!("{broken}"));
    assert_eq!((lived.created, lived.updated), (1, 1), "{lived:?}");
    core.stop().await;
}

/// Terraform sends the prior state, the proposed one and the configuration of a change in one message, of at most 256 MiB.
#[tokio::test]
async fn a_message_may_be_of_more_than_a_hundred_mebibytes() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = Val::from([("directory", dir.path().display().to_string().into())]);
    let mut core = MiniCore::start(notes::Notes::default(), &config).await.expect("it starts");
    let note = Val::from([("name", "one".into()), ("text", "a".repeat(48 << 20).into())]);
    let lived = core.live("notes_note", &[note], |_| None).await;
    assert_eq!(lived.unwrap_or_else(|broken| panic!("{broken}")).created, 1);
    core.stop().await;
}

/// A configured provider over a directory with these pets.
async fn kennel(pets: &[(&str, &str)]) -> (tempfile::TempDir, MiniCore) {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, species) in pets {
        let pet =
            format!(r#"{{"uid": "uid-of-{name}", "name": "{name}", "species": "{species}", "legs": 4}}"#);
        std::fs::write(dir.path().join(format!("{name}.json")), pet).expect("a file");
    }
    let config = Val::from([("directory", dir.path().display().to_string().into())]);
    let core = MiniCore::start(pets::Pets::default(), &config).await.expect("it starts");
    (dir, core)
}

#[tokio::test]
async fn what_is_there_is_found_with_its_state_and_by_what_it_is() {
    let (_dir, mut core) = kennel(&[("rex", "dog"), ("tom", "cat"), ("bella", "dog")]).await;
    let all = core.find("pets_pet", &Val::Null).await.expect("they are found");
    assert_eq!(all.iter().map(|pet| pet.name.as_str()).collect::<Vec<_>>(), ["bella", "rex", "tom"]);
    assert_eq!(all[1].identity.get("uid"), &Val::from("uid-of-rex"));
    assert_eq!(all[1].state.get("species"), &Val::from("dog"));
    let dogs = core.find("pets_pet", &Val::from([("species", "dog".into())])).await.expect("they are found");
    assert_eq!(dogs.len(), 2);
    core.stop().await;
}

#[tokio::test]
async fn what_is_asked_for_comes_and_what_lives_for_a_run_is_closed() {
    let (dir, mut core) = kennel(&[("rex", "dog")]).await;
    let rex = Val::from([("name", "rex".into())]);
    let found = core.data("pets_pet", &rex).await.expect("it is read");
    assert_eq!(found.get("species"), &Val::from("dog"));
    let nobody = core.data("pets_pet", &Val::from([("name", "lassie".into())])).await.expect_err("nobody");
    assert!(nobody.to_string().starts_with("ReadDataSource of pets_pet: No such pet"), "{nobody}");

    let called = core.call("call", &["rex".into(), "bella".into()]).await.expect("it keeps the rules");
    assert_eq!(called, Ok("rex! bella!".into()));
    let refused = core.call("call", &["tom".into()]).await.expect("it keeps the rules");
    assert_eq!(refused, Err("Cats like \"tom\" do not come. Carry them".to_owned()));

    let leash = core.open("pets_leash", &rex).await.expect("it is opened, renewed and closed");
    assert_eq!(leash.get("knot"), &Val::from("the knot of rex"));
    assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 1, "the pet alone is left");
    core.stop().await;
}

#[tokio::test]
async fn all_is_put_off_while_the_provider_is_not_known() {
    let config = Val::from([("directory", Val::Unknown)]);
    let mut core = MiniCore::start(pets::Pets::default(), &config).await.expect("it starts");
    let rex = Val::from([("name", "rex".into()), ("species", "dog".into())]);
    core.put_off("pets_pet", &rex).await.expect("it is put off");
    core.stop().await;
    let (_dir, mut core) = kennel(&[]).await;
    let broken = core.put_off("pets_pet", &rex).await.expect_err("all is known");
    assert_eq!(broken.to_string(), "PlanResourceChange of pets_pet: it is not put off");
    core.stop().await;
}

#[tokio::test]
async fn an_action_tells_how_it_goes_and_how_it_ended() {
    let (dir, mut core) = kennel(&[("rex", "dog"), ("slow", "snail")]).await;
    let bowls = async || std::fs::read_dir(dir.path()).expect("a directory").count();
    let feed = |name: &str| Val::from([("name", name.into()), ("meals", 2_i64.into())]);
    let fed = core.act("pets_feed", &feed("rex"), bowls).await.expect("it is done");
    assert_eq!(
        (fed.said.as_slice(), fed.errors.len()),
        (&["rex eats meal 1".into(), "rex eats meal 2".into()][..], 0)
    );
    assert!(dir.path().join("rex.fed").exists());
    let nobody = core.act("pets_feed", &feed("lassie"), bowls).await.expect("it ends");
    assert!(nobody.errors[0].contains("no pet called \"lassie\""), "{nobody:?}");
    let slow = core.interrupt("pets_feed", &feed("slow")).await.expect("it ends");
    assert_eq!(slow.errors, ["Interrupted: It is still hungry."]);
    let again =
        core.act("pets_feed", &feed("rex"), bowls).await.expect("the next command is not interrupted");
    assert_eq!(again.errors, Vec::<String>::new());
    core.stop().await;
}

/// A provider with one resource, which breaks one rule.
struct Wrong(Rule, Arc<AtomicUsize>);

#[derive(Clone, Copy, PartialEq)]
enum Rule {
    /// A read returns something else than was applied.
    Read,
    /// An apply returns another value than planned.
    Apply,
    /// Two plans of one change differ.
    Plan,
    /// A destroyed object still exists.
    Destroy,
    /// The identity changes.
    Identity,
    /// The identity is missing.
    Unidentified,
    /// The identity is of an attribute that cannot identify anything.
    NoIdentity,
    /// A list finds the same object twice.
    ListTwice,
    /// A listed object has no identity.
    ListUnidentified,
    /// A listed object differs from the one that exists.
    ListOther,
    /// An import loses declared values.
    Import,
    /// The plan of an action performs it.
    ActionPlan,
    /// An action panics.
    ActionPanic,
    /// The schema of an action has a computed attribute.
    ActionSchema,
    /// A data source finds another object than the one asked for.
    DataOther,
    /// A data source finds something else at each read.
    DataTwice,
    /// A function returns something else at each call.
    FunctionTwice,
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
    fn list_resources(&self) -> Vec<Box<dyn ListResource>> {
        let listed = matches!(self.0, Rule::ListTwice | Rule::ListUnidentified | Rule::ListOther);
        if listed { vec![Box::new(Things(self.0, Schema::default()))] } else { Vec::new() }
    }
    fn actions(&self) -> Vec<Box<dyn Action>> {
        let attributes = match self.0 {
            Rule::ActionSchema => vec![Attribute::computed("result", Type::String)],
            _ => Vec::new(),
        };
        let schema = Schema { attributes, ..Schema::default() };
        vec![Box::new(Deed { rule: self.0, schema, done: Arc::clone(&self.1) })]
    }
    fn data_sources(&self) -> Vec<Box<dyn DataSource>> {
        let attributes =
            vec![Attribute::required("name", Type::String), Attribute::computed("number", Type::Number)];
        let schema = Schema { attributes, ..Schema::default() };
        vec![Box::new(Fact { rule: self.0, schema, asked: Arc::clone(&self.1) })]
    }
    fn functions(&self) -> Vec<Box<dyn Function>> {
        vec![Box::new(Count(Arc::clone(&self.1)))]
    }
    async fn configure(&self, _: &Cx, _: &Val) -> Result<(), Diags> {
        Ok(())
    }
}

/// A data source that breaks a rule.
struct Fact {
    rule: Rule,
    schema: Schema,
    asked: Arc<AtomicUsize>,
}

#[async_trait]
impl DataSource for Fact {
    fn type_name(&self) -> &str {
        "wrong_fact"
    }
    fn schema(&self) -> &Schema {
        &self.schema
    }
    async fn read(&self, _: &Cx, config: &Val) -> Result<Val, Diags> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        let number = match self.rule {
            Rule::DataTwice => i64::try_from(asked).unwrap_or_default().into(),
            _ => 7_i64.into(),
        };
        let name = if self.rule == Rule::DataOther { "other".into() } else { config.get("name").clone() };
        Ok(Val::from([("name", name), ("number", number)]))
    }
}

/// Returns the number of its calls, which does not depend on the arguments.
struct Count(Arc<AtomicUsize>);

impl Function for Count {
    fn name(&self) -> &str {
        "count"
    }
    fn signature(&self) -> Signature {
        let (summary, description) = ("Counts".into(), "How often this was called.".into());
        Signature {
            summary,
            description,
            parameters: vec![],
            rest: None,
            returns: Type::Number,
            deprecated: None,
        }
    }
    fn call(&self, _: &[Val]) -> Result<Val, Refusal> {
        Ok(i64::try_from(self.0.fetch_add(1, Ordering::Relaxed)).unwrap_or_default().into())
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
    fn derive(&self, planned: &mut tfplugin::Object, _: Option<&tfplugin::Object>) {
        if self.rule == Rule::Plan {
            let number = self.planned.fetch_add(1, Ordering::Relaxed);
            planned.insert("number".to_owned(), i64::try_from(number).unwrap_or_default().into());
        }
    }
    async fn read(&self, _: &Cx, state: &Val) -> Result<Option<Val>, Diags> {
        let mut there = self.there.lock().expect("a lock").clone();
        if let (Rule::Import, true, Some(thing)) = (self.rule, state.get("number").is_null(), &mut there) {
            thing.set("words", Val::Null);
        }
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
            Rule::ListTwice | Rule::ListUnidentified | Rule::ListOther => {
                Identity::default().required("name")
            }
            Rule::NoIdentity => Identity::default().required("words"),
            _ => Identity::default(),
        }
    }
}

/// A list resource that breaks a rule.
struct Things(Rule, Schema);

#[async_trait]
impl ListResource for Things {
    fn type_name(&self) -> &str {
        "wrong_thing"
    }
    fn schema(&self) -> &Schema {
        &self.1
    }
    async fn list(&self, _: &Cx, _: Query<'_>, found: &Listing<'_>) -> Result<(), Diags> {
        for name in ["it", "other"] {
            let name = match self.0 {
                Rule::ListTwice => "it".into(),
                Rule::ListUnidentified => Val::Null,
                _ => Val::from(name),
            };
            let state = Val::from([("name", name), ("number", 7_i64.into())]);
            // It ignores the answer.
            let _ = found.push(Listed { name: "a thing".into(), state, warnings: vec![] }).await?;
        }
        Ok(())
    }
}

/// An action that breaks a rule.
struct Deed {
    rule: Rule,
    schema: Schema,
    done: Arc<AtomicUsize>,
}

#[async_trait]
impl Action for Deed {
    fn type_name(&self) -> &str {
        "wrong_deed"
    }
    fn schema(&self) -> &Schema {
        &self.schema
    }
    async fn plan(&self, _: &Cx, _: &Val) -> Result<(), Diags> {
        if self.rule == Rule::ActionPlan {
            self.done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
    async fn invoke(&self, _: &Cx, _: &Val, _: &Progress<'_>) -> Result<(), Diags> {
        assert!(self.rule != Rule::ActionPanic, "not this one");
        Err(Diag::error("No", "Not this one.").into())
    }
}

async fn broken(rule: Rule) -> Broken {
    let done = Arc::new(AtomicUsize::new(0));
    let mut core = match MiniCore::start(Wrong(rule, Arc::clone(&done)), &Val::Null).await {
        Ok(core) => core,
        Err(broken) => return broken,
    };
    let broken = match rule {
        Rule::ListTwice | Rule::ListUnidentified | Rule::ListOther => {
            core.find("wrong_thing", &Val::Null).await.err()
        }
        Rule::ActionPlan => {
            core.act("wrong_deed", &Val::Null, async || done.load(Ordering::Relaxed)).await.err()
        }
        Rule::DataOther | Rule::DataTwice => {
            core.data("wrong_fact", &Val::from([("name", "it".into())])).await.err()
        }
        Rule::FunctionTwice => core.call("count", &[]).await.err(),
        _ => {
            let words = Val::from([("a", "b".into())]);
            let config = Val::from([("name", "it".into()), ("words", words)]);
            let id = (rule == Rule::Import).then(|| "it".to_owned());
            core.live("wrong_thing", &[config], |_| id.clone()).await.err()
        }
    };
    broken.expect("it breaks a rule")
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
    let lost = broken(Rule::Import).await.to_string();
    assert!(lost.starts_with("import of wrong_thing it: words: ") && lost.contains("was read"), "{lost}");
    let twice = broken(Rule::ListTwice).await.to_string();
    assert_eq!(twice, "ListResource of wrong_thing: {name = \"it\"} was found twice");
    let nobody = broken(Rule::ListUnidentified).await.to_string();
    assert!(nobody.contains("found without all that identifies it"), "{nobody}");
    let other = broken(Rule::ListOther).await.to_string();
    assert_eq!(other, "import of wrong_thing by its identity: it is not there");
    let planned = broken(Rule::ActionPlan).await.to_string();
    assert_eq!(planned, "PlanAction of wrong_deed: 0 became 3");
    let other = broken(Rule::DataOther).await.to_string();
    assert!(other.starts_with("ReadDataSource of wrong_fact: name: ") && other.contains("other"), "{other}");
    let fickle = broken(Rule::DataTwice).await.to_string();
    assert!(fickle.starts_with("ReadDataSource of wrong_fact: ") && fickle.contains("and then"), "{fickle}");
    let counted = broken(Rule::FunctionTwice).await.to_string();
    assert!(counted.starts_with("CallFunction of count: ") && counted.contains("and then"), "{counted}");
    let computed = broken(Rule::ActionSchema).await.to_string();
    assert_eq!(computed, "schema of what is configured of wrong_deed: result: nothing here is computed");
}

#[tokio::test]
async fn an_action_that_panics_ends_and_says_so() {
    let mut core =
        MiniCore::start(Wrong(Rule::ActionPanic, Arc::default()), &Val::Null).await.expect("it starts");
    let acted = core.act("wrong_deed", &Val::Null, async || ()).await.expect("it ends");
    assert!(acted.errors[0].contains("InvokeAction wrong_deed panicked: not this one"), "{acted:?}");
    core.stop().await;
}
