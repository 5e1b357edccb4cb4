//! A whole provider in one file: pets, each a JSON file in a directory.
//!
//! It shows every part of a resource and every other part of a provider, and the tests drive it with the real Terraform. Some pets
//! exist only for tests: the creation of a pet called `slow` runs until it is cancelled, one called `fragile` fails halfway, and one
//! called `buggy` makes the provider panic.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use tfplugin::{
    Action, Attribute, Change, Check, Cx, DataSource, Deferral, Diag, Diags, Ephemeral, Function, Identity,
    ListResource, Listed, Listing, Mode, Moved, Nesting, Opened, Operation, Options, Parameter, Path,
    Progress, Provider, Query, Refusal, Resource, Schema, Semantics, Signature, Timeouts, Type, Val,
    async_trait, from_json, to_json,
};

/// Serves Terraform, which starts this program.
pub fn main() -> ExitCode {
    let options = Options::new("example.com/test/pets").log_targets(&["terraform_provider_pets"]);
    let tcp = std::env::var_os("PETS_OVER_TCP").is_some();
    tfplugin::serve(Pets::default(), if tcp { options.over_tcp() } else { options })
}

/// The directory of the pets, set once the provider is configured.
type Home = Arc<OnceLock<PathBuf>>;

/// The provider of pets.
#[derive(Default)]
pub struct Pets {
    home: Home,
}

#[async_trait]
impl Provider for Pets {
    fn schema(&self) -> Schema {
        Schema {
            description: "Pets in a directory.".into(),
            attributes: vec![Attribute::required("directory", Type::String).doc("Where they live.")],
            ..Schema::default()
        }
    }

    fn resources(&self) -> Vec<Box<dyn Resource>> {
        vec![Box::new(Pet { home: Arc::clone(&self.home), schema: schema() })]
    }

    fn data_sources(&self) -> Vec<Box<dyn DataSource>> {
        let attributes = vec![
            Attribute::required("name", Type::String),
            Attribute::computed("species", Type::String),
            Attribute::computed("tags", Type::set(Type::String)),
        ];
        let schema = Schema { attributes, ..Schema::default() };
        vec![Box::new(FindPet { home: Arc::clone(&self.home), schema })]
    }

    fn ephemerals(&self) -> Vec<Box<dyn Ephemeral>> {
        let attributes = vec![
            Attribute::required("name", Type::String),
            Attribute::computed("knot", Type::String).sensitive(),
        ];
        let schema = Schema { attributes, ..Schema::default() };
        vec![Box::new(Leash { home: Arc::clone(&self.home), schema })]
    }

    fn functions(&self) -> Vec<Box<dyn Function>> {
        vec![Box::new(Call)]
    }

    fn list_resources(&self) -> Vec<Box<dyn ListResource>> {
        let attributes = vec![Attribute::optional("species", Type::String).doc("Only those of it.")];
        let schema = Schema { description: "Finds pets.".into(), attributes, ..Schema::default() };
        vec![Box::new(ListPets { home: Arc::clone(&self.home), schema })]
    }

    fn actions(&self) -> Vec<Box<dyn Action>> {
        let attributes = vec![
            Attribute::required("name", Type::String).doc("Who is hungry."),
            Attribute::optional("meals", Type::Number).doc("How many; 1 unless said."),
        ];
        let schema = Schema { description: "Feeds a pet.".into(), attributes, ..Schema::default() };
        vec![Box::new(Feed { home: Arc::clone(&self.home), schema })]
    }

    async fn configure(&self, cx: &Cx, config: &Val) -> Result<(), Diags> {
        if config.get("directory").is_unknown() {
            cx.defer(Deferral::ProviderUnknown);
        }
        if let Some(directory) = config.get("directory").as_str() {
            let _ = self.home.set(PathBuf::from(directory));
        }
        Ok(())
    }
}

/// The time limits for pets.
const PATIENCE: Timeouts = Timeouts { create: Some(Duration::from_secs(60)), ..Timeouts::NONE };

fn schema() -> Schema {
    let toy = vec![
        Attribute::required("colour", Type::String)
            .check(Check::new("what can be seen", |colour| colour.as_str() != Some("invisible"))),
        Attribute::computed("shelf", Type::Number).doc("Where it is kept."),
    ];
    let mut schema = Schema {
        version: 2,
        description: "A pet.".into(),
        attributes: vec![
            Attribute::computed("uid", Type::String).use_state().doc("Never changes."),
            Attribute::required("name", Type::String).doc("How it is called."),
            Attribute::required("species", Type::String).replace().doc("Cannot be changed."),
            Attribute::optional("legs", Type::Number).default(4_i64).doc("How many it has."),
            Attribute::optional("chip", Type::String).semantics(Semantics::Mac).doc("Its radio chip."),
            Attribute::optional("weight", Type::Number).doc("In kilograms."),
            Attribute::optional("tags", Type::set(Type::String)).doc("Words for it."),
            Attribute::optional("likes", Type::Dynamic).doc("Whatever it likes."),
            Attribute::nested("toys", Mode::Optional, Nesting::Map, toy).doc("Its toys by name."),
            Attribute::optional("password_wo", Type::String).write_only().doc("What opens its door."),
            Attribute::optional("password_wo_version", Type::Number).doc("Raise it to change the password."),
            Attribute::computed("mood", Type::String).doc("Changes with everything."),
        ],
        ..Schema::default()
    };
    schema.attributes.extend(PATIENCE.attribute());
    schema
}

fn file(home: &Home, name: &str) -> Result<PathBuf, Diags> {
    match home.get() {
        Some(home) => Ok(home.join(format!("{name}.json"))),
        None => Err(Diag::error("No directory", "The provider's directory is not known yet.").into()),
    }
}

fn failed(what: &str, error: &io::Error) -> Diags {
    Diag::error("The pet cannot be reached", format!("{what}: {error}")).into()
}

fn load(home: &Home, name: &str) -> Result<Option<Val>, Diags> {
    let text = match fs::read(file(home, name)?) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(name, &error)),
    };
    let json = serde_json::from_slice(&text).map_err(|e| failed(name, &e.into()))?;
    let pet = from_json(&json, &schema().value_type())
        .map_err(|e| Diag::error("The pet's file is not a pet", e.to_string()))?;
    Ok(Some(pet))
}

/// All pets, in the order of their names.
fn everybody(home: &Home) -> Result<Vec<Val>, Diags> {
    let directory = file(home, "x")?.parent().map(PathBuf::from).unwrap_or_default();
    let files = fs::read_dir(directory).map_err(|e| failed("directory", &e))?;
    let mut names: Vec<_> = files
        .flatten()
        .filter_map(|file| file.file_name().to_str()?.strip_suffix(".json").map(str::to_owned))
        .collect();
    names.sort();
    Ok(names
        .iter()
        .map(|name| load(home, name))
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .flatten()
        .collect())
}

struct Pet {
    home: Home,
    schema: Schema,
}

impl Pet {
    /// Fills in the values that the provider chooses.
    fn complete(change: Change<'_>) -> Val {
        let mut pet = change.planned.clone();
        let name = pet.get("name").as_str().unwrap_or_default().to_owned();
        if pet.get("uid").is_unknown() {
            pet.set("uid", format!("uid-of-{name}"));
        }
        let secret = change.config.get("password_wo").as_str().map_or(0, str::len);
        pet.set("mood", format!("{name} knows a password of {secret} letters"));
        let mut toys = pet.get("toys").clone();
        for (shelf, toy) in toys.as_map_mut().into_iter().flat_map(|toys| toys.values_mut()).enumerate() {
            if toy.get("shelf").is_unknown() {
                toy.set("shelf", i64::try_from(shelf).unwrap_or_default());
            }
        }
        pet.set("toys", toys);
        pet
    }

    fn store(&self, pet: &Val) -> Result<(), Diags> {
        let name = pet.get("name").as_str().unwrap_or_default();
        fs::write(file(&self.home, name)?, to_json(pet).to_string()).map_err(|e| failed(name, &e))
    }
}

#[async_trait]
impl Resource for Pet {
    fn type_name(&self) -> &str {
        "pets_pet"
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    async fn validate(&self, config: &Val) -> Diags {
        let is_kept = config.get("password_wo").is_null() && !config.get("password_wo_version").is_null();
        if is_kept {
            let path = Path::root().attr("password_wo_version");
            return Diag::error("No password", "A version is of a password, and there is none.")
                .at(path)
                .into();
        }
        Diags::default()
    }

    async fn read(&self, _: &Cx, state: &Val) -> Result<Option<Val>, Diags> {
        load(&self.home, state.get("name").as_str().unwrap_or_default())
    }

    fn upgrade(&self, version: i64, mut pet: serde_json::Value) -> Result<serde_json::Value, Diags> {
        let (was, is) = if version == 0 { ("feet", "legs") } else { ("kind", "species") };
        if let Some(pet) = pet.as_object_mut()
            && let Some(value) = pet.remove(was)
        {
            pet.insert(is.to_owned(), value);
        }
        Ok(pet)
    }

    async fn review(&self, cx: &Cx, change: Change<'_>) -> Result<Vec<Path>, Diags> {
        if change.planned.get("legs").as_i64().is_some_and(|legs| legs > 100) {
            cx.warn(Diag::warning("Many legs", "The vet will be expensive.").at(Path::root().attr("legs")));
        }
        Ok(Vec::new())
    }

    async fn create(&self, cx: &Cx, change: Change<'_>) -> Result<Val, Diags> {
        let name = change.planned.get("name").as_str().unwrap_or_default();
        assert_ne!(name, "buggy", "a pet to test with");
        let pet = Self::complete(change);
        if name == "slow" || name == "fragile" {
            cx.commit(pet.clone());
            self.store(&pet)?;
        }
        if name == "slow" {
            tracing::info!("waiting for the pet to arrive");
            let patience = PATIENCE.of(Operation::Create, change.planned).unwrap_or_default();
            let why = tokio::select! {
                () = cx.cancelled() => "Interrupted",
                () = tokio::time::sleep(patience) => "It takes too long",
            };
            return Err(Diag::error(why, "The pet is still on its way.").into());
        }
        if name == "fragile" {
            return Err(Diag::error("It broke", "The pet arrived in two parts.").into());
        }
        self.store(&pet)?;
        Ok(pet)
    }

    async fn update(&self, _: &Cx, change: Change<'_>) -> Result<Val, Diags> {
        let pet = Self::complete(change);
        self.store(&pet)?;
        let old = change.prior.get("name").as_str().unwrap_or_default();
        if change.prior.get("name") != pet.get("name") {
            fs::remove_file(file(&self.home, old)?).map_err(|e| failed(old, &e))?;
        }
        Ok(pet)
    }

    async fn delete(&self, _: &Cx, state: &Val) -> Result<(), Diags> {
        let name = state.get("name").as_str().unwrap_or_default();
        match fs::remove_file(file(&self.home, name)?) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(name, &error)),
            _ => Ok(()),
        }
    }

    async fn import(&self, _: &Cx, id: &str) -> Result<Val, Diags> {
        Ok(Val::from([("name", id.into())]))
    }

    /// Takes over a `terraform_data` resource whose input is the name of a pet.
    async fn take_over(&self, _: &Cx, from: Moved<'_>) -> Result<Val, Diags> {
        let name = from.state.pointer("/input/value").and_then(serde_json::Value::as_str);
        match (from.type_name, name) {
            ("terraform_data", Some(name)) => Ok(Val::from([("name", name.into())])),
            (other, _) => {
                let detail = format!(
                    "Only a terraform_data whose input is a name becomes a pet, and not this {other}."
                );
                Err(Diag::error("No pet", detail).into())
            }
        }
    }

    fn identity(&self) -> Identity {
        Identity::default().required("uid")
    }

    async fn import_identity(&self, _: &Cx, identity: &Val) -> Result<Val, Diags> {
        let found = everybody(&self.home)?.into_iter().find(|pet| pet.get("uid") == identity.get("uid"));
        found.ok_or_else(|| Diag::error("No such pet", "Nobody has this uid.").into())
    }
}

/// Finds pets that Terraform does not manage.
struct ListPets {
    home: Home,
    schema: Schema,
}

#[async_trait]
impl ListResource for ListPets {
    fn type_name(&self) -> &str {
        "pets_pet"
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    async fn list(&self, _: &Cx, query: Query<'_>, found: &Listing<'_>) -> Result<(), Diags> {
        let species = query.config.get("species");
        for pet in everybody(&self.home)? {
            if species.is_null() || species == pet.get("species") {
                let name = pet.get("name").as_str().unwrap_or_default().to_owned();
                if found.push(Listed { name, state: pet, warnings: vec![] }).await?.is_break() {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Feeds a pet. Feeding one that is called `slow` runs until it is cancelled.
struct Feed {
    home: Home,
    schema: Schema,
}

#[async_trait]
impl Action for Feed {
    fn type_name(&self) -> &str {
        "pets_feed"
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    async fn plan(&self, cx: &Cx, config: &Val) -> Result<(), Diags> {
        if config.get("meals").as_i64().is_some_and(|meals| meals > 3) {
            cx.warn(Diag::warning("Many meals", "It will not move today.").at(Path::root().attr("meals")));
        }
        Ok(())
    }

    async fn invoke(&self, cx: &Cx, config: &Val, progress: &Progress<'_>) -> Result<(), Diags> {
        let name = config.get("name").as_str().unwrap_or_default();
        if load(&self.home, name)?.is_none() {
            let detail = format!("There is no pet called {name:?}.");
            return Err(Diag::error("No such pet", detail).at(Path::root().attr("name")).into());
        }
        for meal in 1..=config.get("meals").as_i64().unwrap_or(1) {
            progress.say(format!("{name} eats meal {meal}")).await;
        }
        if name == "slow" {
            cx.cancelled().await;
            return Err(Diag::error("Interrupted", "It is still hungry.").into());
        }
        let bowl = file(&self.home, name)?.with_extension("fed");
        fs::write(bowl, "").map_err(|e| failed(name, &e))
    }
}

struct FindPet {
    home: Home,
    schema: Schema,
}

#[async_trait]
impl DataSource for FindPet {
    fn type_name(&self) -> &str {
        "pets_pet"
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    async fn read(&self, _: &Cx, config: &Val) -> Result<Val, Diags> {
        let name = config.get("name").as_str().unwrap_or_default();
        let Some(pet) = load(&self.home, name)? else {
            let detail = format!("There is no pet called {name:?}.");
            return Err(Diag::error("No such pet", detail).at(Path::root().attr("name")).into());
        };
        Ok(Val::from([
            ("name", name.into()),
            ("species", pet.get("species").clone()),
            ("tags", pet.get("tags").clone()),
        ]))
    }
}

/// A file that exists while Terraform runs, and records its renewals.
struct Leash {
    home: Home,
    schema: Schema,
}

impl Leash {
    fn file(&self, cx: &Cx) -> Result<PathBuf, Diags> {
        file(&self.home, &format!("leash-of-{}", String::from_utf8_lossy(&cx.private())))
    }

    fn write(&self, cx: &Cx, text: &str) -> Result<(), Diags> {
        fs::write(self.file(cx)?, text).map_err(|e| failed("leash", &e))
    }
}

#[async_trait]
impl Ephemeral for Leash {
    fn type_name(&self) -> &str {
        "pets_leash"
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    async fn open(&self, cx: &Cx, config: &Val) -> Result<Opened, Diags> {
        let name = config.get("name").as_str().unwrap_or_default();
        cx.set_private(name.into());
        self.write(cx, "new")?;
        let value = Val::from([("name", name.into()), ("knot", format!("the knot of {name}").into())]);
        Ok(Opened { value, renew_at: Some(SystemTime::now() + Duration::from_secs(1)) })
    }

    async fn renew(&self, cx: &Cx) -> Result<Option<SystemTime>, Diags> {
        self.write(cx, "renewed")?;
        Ok(None)
    }

    async fn close(&self, cx: &Cx) -> Result<(), Diags> {
        fs::remove_file(self.file(cx)?).map_err(|e| failed("leash", &e))
    }
}

/// `provider::pets::call("rex", "bella")` is `"rex! bella!"`.
struct Call;

impl Function for Call {
    fn name(&self) -> &str {
        "call"
    }

    fn signature(&self) -> Signature {
        Signature {
            summary: "Calls pets".into(),
            description: "What to shout so that these pets come.".into(),
            parameters: vec![],
            rest: Some(Parameter::new("name", Type::String, "Who is to come.")),
            returns: Type::String,
            deprecated: None,
        }
    }

    fn call(&self, arguments: &[Val]) -> Result<Val, Refusal> {
        let mut shouts = Vec::new();
        for (i, name) in arguments.iter().enumerate() {
            match name.as_str() {
                Some("tom") => return Err(Refusal::of(i, "Cats like \"tom\" do not come. Carry them.")),
                name => shouts.push(format!("{}!", name.unwrap_or_default())),
            }
        }
        Ok(shouts.join(" ").into())
    }
}
