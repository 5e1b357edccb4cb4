//! `#[derive(Model)]`: the schema, the conversion from a value and back, and the errors in wrong values.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::time::Duration;

use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use serde_json::json;
use tfplugin::testing::{Lived, MiniCore, Random};
use tfplugin::{
    Attribute, Change, Cidr, Cx, Diags, Mac, Mode, Model, Nesting, Num, Path, Provider, Resource, Schema,
    Semantics, Text, Tf, Type, Typed, Val, async_trait,
};

/// A host.
///
/// It has all that can be in a model.
#[derive(Model, Clone, Debug, PartialEq)]
#[tf(version = 3, deprecated = "Use a machine.")]
struct Host {
    /// How it is called.
    #[tf(required, replace)]
    name: String,
    #[tf(optional, default = 22)]
    port: Tf<u16>,
    #[tf(optional, computed, deprecated = "It is on the lid.")]
    serial: Tf<u64>,
    #[tf(optional, conflicts_with = ["weight"])]
    shift: Tf<i64>,
    #[tf(optional)]
    weight: Option<f64>,
    #[tf(optional)]
    exact: Tf<Num>,
    #[tf(optional, default = true)]
    up: bool,
    #[tf(optional, semantics = Semantics::Mac)]
    mac: Tf<String>,
    #[tf(optional)]
    chip: Tf<Mac>,
    #[tf(optional)]
    network: Tf<Cidr>,
    #[tf(optional)]
    address: Tf<IpAddr>,
    #[tf(optional)]
    listen: Tf<Text<SocketAddr>>,
    #[tf(optional, default = Duration::from_secs(90))]
    patience: Tf<Duration>,
    #[tf(optional)]
    settings: Option<serde_json::Value>,
    #[tf(optional, default = BTreeSet::<String>::new())]
    tags: Tf<BTreeSet<Tf<String>>>,
    #[tf(optional)]
    servers: Tf<Vec<IpAddr>>,
    #[tf(optional)]
    labels: Tf<BTreeMap<String, Tf<String>>>,
    #[tf(optional)]
    place: Option<Place>,
    #[tf(optional, nested)]
    owner: Tf<Owner>,
    #[tf(optional, nested)]
    disks: Option<Vec<Disk>>,
    #[tf(optional, nested)]
    nics: Tf<BTreeMap<String, Nic>>,
    #[tf(optional, nested)]
    keys: Tf<BTreeSet<Key>>,
    #[tf(optional, write_only, sensitive)]
    password: Tf<String>,
    #[tf(optional, sensitive)]
    pins: Option<BTreeMap<String, u16>>,
    #[tf(computed, use_state)]
    id: Tf<String>,
    #[tf(computed, name = "type")]
    kind: Tf<String>,
}

/// Where it stands, which is given as a whole.
#[derive(Model, Clone, Debug, PartialEq)]
struct Place {
    #[tf(required)]
    rack: String,
    #[tf(required)]
    unit: u8,
}

#[derive(Model, Clone, Debug, PartialEq)]
struct Owner {
    #[tf(required)]
    name: Tf<String>,
    #[tf(optional)]
    age: Tf<u8>,
}

#[derive(Model, Clone, Debug, PartialEq)]
struct Disk {
    #[tf(required)]
    size: u32,
    #[tf(computed)]
    path: Tf<String>,
}

#[derive(Model, Clone, Debug, PartialEq)]
struct Nic {
    /// In which network.
    #[tf(required)]
    network: String,
    #[tf(optional, computed)]
    address: Tf<IpAddr>,
}

#[derive(Model, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    #[tf(required)]
    text: String,
}

/// The schema of `Host` without the macro.
fn by_hand() -> Schema {
    let text = |name: &str| Attribute::optional(name, Type::String);
    let number = |name: &str| Attribute::optional(name, Type::Number);
    let place = [("rack".to_owned(), Type::String), ("unit".to_owned(), Type::Number)];
    let mut serial = number("serial").deprecated("It is on the lid.");
    serial.mode = Mode::OptionalComputed;
    let mut nic_address = text("address").semantics(Semantics::Ip);
    nic_address.mode = Mode::OptionalComputed;
    let nested =
        |name: &str, nesting, attributes| Attribute::nested(name, Mode::Optional, nesting, attributes);
    let attributes = vec![
        Attribute::required("name", Type::String).replace().doc("How it is called."),
        number("port").default(22_i64),
        serial,
        number("shift").conflicts_with(["weight"]),
        number("weight"),
        number("exact"),
        Attribute::optional("up", Type::Bool).default(true),
        text("mac").semantics(Semantics::Mac),
        text("chip").semantics(Semantics::Mac),
        text("network").semantics(Semantics::Cidr),
        text("address").semantics(Semantics::Ip),
        text("listen"),
        text("patience").default("1m 30s"),
        text("settings").semantics(Semantics::Json),
        Attribute::optional("tags", Type::set(Type::String)).default(Vec::<Val>::new()),
        Attribute::optional("servers", Type::list(Type::String)).semantics(Semantics::Ip),
        Attribute::optional("labels", Type::map(Type::String)),
        Attribute::optional("place", Type::Object(place.into())),
        nested(
            "owner",
            Nesting::Single,
            vec![Attribute::required("name", Type::String), Attribute::optional("age", Type::Number)],
        ),
        nested(
            "disks",
            Nesting::List,
            vec![Attribute::required("size", Type::Number), Attribute::computed("path", Type::String)],
        ),
        nested(
            "nics",
            Nesting::Map,
            vec![Attribute::required("network", Type::String).doc("In which network."), nic_address],
        ),
        nested("keys", Nesting::Set, vec![Attribute::required("text", Type::String)]),
        text("password").write_only().sensitive(),
        Attribute::optional("pins", Type::map(Type::Number)).sensitive(),
        Attribute::computed("id", Type::String).use_state(),
        Attribute::computed("type", Type::String),
    ];
    Schema {
        version: 3,
        description: "A host.\n\nIt has all that can be in a model.".into(),
        deprecated: Some("Use a machine.".into()),
        attributes,
    }
}

#[test]
fn the_schema_is_the_one_that_is_written_by_hand() {
    let mut schema = Host::schema();
    assert_eq!(schema.problems(), Vec::<String>::new());
    // `Canonical` holds a function, and functions cannot be compared.
    for attribute in &mut schema.attributes {
        if matches!(attribute.semantics, Semantics::Canonical(_)) {
            attribute.semantics = Semantics::Exact;
        }
    }
    let by_hand = by_hand();
    for (derived, written) in schema.attributes.iter().zip(&by_hand.attributes) {
        assert_eq!(format!("{derived:#?}"), format!("{written:#?}"));
    }
    assert_eq!(format!("{schema:?}"), format!("{by_hand:?}"));
}

#[test]
fn spellings_that_are_read_alike_mean_the_same() {
    let same = |name: &str, a: &str, b: &str| {
        let schema = Host::schema();
        let attribute = schema.attributes.iter().find(|it| it.name == name).expect("an attribute");
        attribute.same(&a.into(), &b.into())
    };
    assert!(same("patience", "90m", "1h 30m") && same("patience", "PT1H30M", "1h30m"));
    assert!(!same("patience", "90m", "90s") && !same("patience", "soon", "later"));
    assert!(same("listen", "[2001:DB8::1]:80", "[2001:db8:0::1]:80"));
    assert!(same("address", "2001:DB8::1", "2001:db8::1") && same("settings", "{ }", "{}"));
    assert!(
        same("chip", "AABB.CC00.1122", "aa:bb:cc:00:11:22")
            && same("network", "2001:DB8::/32", "2001:db8::/32")
    );
    assert!(!same("name", "A", "a"));
}

/// Known, null or unknown.
fn tf<T: Clone + std::fmt::Debug + 'static>(of: impl Strategy<Value = T> + 'static) -> BoxedStrategy<Tf<T>> {
    prop_oneof![3 => of.prop_map(Tf::Known), 1 => Just(Tf::Null), 1 => Just(Tf::Unknown)].boxed()
}

fn some<T: Clone + std::fmt::Debug + 'static>(
    of: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<Option<T>> {
    proptest::option::of(of).boxed()
}

fn num() -> impl Strategy<Value = Num> {
    (any::<i128>(), any::<u64>())
        .prop_map(|(whole, part)| Num::parse(&format!("{whole}.{part}")).expect("a number"))
}

fn host() -> impl Strategy<Value = Host> {
    let text = any::<String>;
    let place = (text(), any::<u8>()).prop_map(|(rack, unit)| Place { rack, unit });
    let owner = (tf(text()), tf(any::<u8>())).prop_map(|(name, age)| Owner { name, age });
    let disk = (any::<u32>(), tf(text())).prop_map(|(size, path)| Disk { size, path });
    let nic = (text(), tf(any::<IpAddr>())).prop_map(|(network, address)| Nic { network, address });
    let listen = (any::<IpAddr>(), any::<u16>()).prop_map(|(ip, port)| Text(SocketAddr::new(ip, port)));
    let patience = (any::<u32>(), 0..1_000_000_000_u32).prop_map(|(s, ns)| Duration::new(s.into(), ns));
    let settings = (text(), any::<i64>()).prop_map(|(key, number)| json!({ key: [number, null, true] }));
    let numbers = (
        tf(any::<u16>()),
        tf(any::<u64>()),
        tf(any::<i64>()),
        some(any::<f64>().prop_filter("a number", |it| it.is_finite())),
        tf(num()),
        any::<bool>(),
    );
    let texts = (text(), tf(text()), tf(any::<IpAddr>()), tf(listen), tf(patience), some(settings));
    let plain = (
        tf(btree_set(prop_oneof![text().prop_map(Tf::Known), Just(Tf::Unknown)], 0..3)),
        tf(vec(any::<IpAddr>(), 0..3)),
        tf(btree_map(text(), tf(text()), 0..3)),
        some(place),
    );
    let nested = (
        tf(owner),
        some(vec(disk, 0..3)),
        tf(btree_map(text(), nic, 0..3)),
        tf(btree_set(text().prop_map(|text| Key { text }), 0..3)),
    );
    let rest = (tf(text()), some(btree_map(text(), any::<u16>(), 0..3)), tf(text()), tf(text()));
    let cidr = (any::<IpAddr>(), 0..=32_u8).prop_map(|(address, length)| Cidr { address, length });
    let net = (tf(any::<[u8; 6]>().prop_map(Mac)), tf(cidr));
    (numbers, texts, plain, nested, rest, net).prop_map(|(numbers, texts, plain, nested, rest, net)| {
        let (port, serial, shift, weight, exact, up) = numbers;
        let (name, mac, address, listen, patience, settings) = texts;
        let (tags, servers, labels, place) = plain;
        let (owner, disks, nics, keys) = nested;
        let (password, pins, id, kind) = rest;
        let (chip, network) = net;
        Host {
            name,
            port,
            serial,
            shift,
            weight,
            exact,
            up,
            mac,
            chip,
            network,
            address,
            listen,
            patience,
            settings,
            tags,
            servers,
            labels,
            place,
            owner,
            disks,
            nics,
            keys,
            password,
            pins,
            id,
            kind,
        }
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_as_it_was(host in host()) {
        prop_assert_eq!(Host::from_val(&host.to_val()), Ok(host));
    }

    #[test]
    fn a_number_is_written_as_it_was_read_or_refused(number in num()) {
        let val = Val::Num(number);
        let at = Path::root();
        if let Ok(read) = f64::read(&val, &at) {
            prop_assert_eq!(read.write(), val.clone());
        }
        if let Ok(read) = u64::read(&val, &at) {
            prop_assert_eq!(read.write(), val);
        }
    }
}

/// The smallest valid host.
fn least() -> Val {
    Val::from([("name", "web".into()), ("up", true.into())])
}

/// The errors of a host in which `name` has this value.
fn told(name: &str, val: impl Into<Val>) -> Vec<String> {
    let mut host = least();
    host.set(name, val);
    let wrong = Host::from_val(&host).expect_err(name);
    wrong.into_iter().map(|diag| format!("{}: {}: {}", diag.path, diag.summary, diag.detail)).collect()
}

fn dec(text: &str) -> Val {
    Val::Num(Num::parse(text).expect("a number"))
}

#[test]
fn attributes_that_are_not_there_are_null_and_others_are_passed_over() {
    let mut val = least();
    val.set("colour", "red");
    let host = Host::from_val(&val).expect("a host");
    assert!(host.port.is_null() && host.owner.is_null() && host.weight.is_none());
}

#[test]
fn what_is_wrong_is_told_at_its_attribute() {
    let object = |name: &str, val: Val| Val::from([(name, val)]);
    for (name, val, want) in [
        ("name", Val::Null, "name: No value: `name` is null, and a string is needed."),
        (
            "name",
            Val::Unknown,
            "name: Not known yet: `name` is known only after the apply, and is needed before.",
        ),
        ("name", true.into(), "name: Not a string: `name` is a bool."),
        ("up", "yes".into(), "up: Not a bool: `up` is a string."),
        (
            "weight",
            Val::Unknown,
            "weight: Not known yet: `weight` is known only after the apply, and is needed before.",
        ),
        ("port", (-1_i64).into(), "port: Not a whole number from 0 to 65535: `port` is -1."),
        ("port", dec("65536"), "port: Not a whole number from 0 to 65535: `port` is 65536."),
        ("port", dec("1.5"), "port: Not a whole number from 0 to 65535: `port` is 1.5."),
        ("port", "22".into(), "port: Not a whole number from 0 to 65535: `port` is a string."),
        (
            "serial",
            dec("18446744073709551616"),
            "serial: Not a whole number from 0 to 18446744073709551615: `serial` is 18446744073709551616.",
        ),
        (
            "shift",
            dec("9223372036854775808"),
            "shift: Not a whole number from -9223372036854775808 to 9223372036854775807: `shift` is 9223372036854775808.",
        ),
        (
            "weight",
            dec("9007199254740993"),
            "weight: Not a number of 64 bits: `weight` is 9007199254740993, which has more digits than are kept, or is too large.",
        ),
        ("exact", "1".into(), "exact: Not a number: `exact` is a string."),
        (
            "address",
            "10.0.0".into(),
            "address: Not an IP address: `address` is \"10.0.0\": invalid IP address syntax.",
        ),
        (
            "listen",
            "10.0.0.1".into(),
            "listen: Not what belongs here: `listen` is \"10.0.0.1\": invalid socket address syntax.",
        ),
        (
            "patience",
            "-1s".into(),
            "patience: Not a duration, like 1h 30m: `patience` is 1s ago, which is negative.",
        ),
        ("tags", object("a", Val::Null), "tags: Not a set: `tags` is an object."),
        (
            "tags",
            vec![Val::from("a"), Val::from("a")].into(),
            "tags[1]: Twice the same: Another element of the set means the same. Leave one of them out.",
        ),
        (
            "servers",
            vec![Val::Null].into(),
            "servers[0]: No value: An element is null, and an IP address is needed.",
        ),
        ("labels", Val::List(vec![]), "labels: Not a map: `labels` is a list."),
        ("labels", object("a", true.into()), "labels[\"a\"]: Not a string: An element is a bool."),
        (
            "place",
            object("rack", "a".into()),
            "place.unit: No value: `unit` is null, and a whole number from 0 to 255 is needed.",
        ),
        ("owner", object("age", dec("256")), "owner.age: Not a whole number from 0 to 255: `age` is 256."),
        (
            "disks",
            vec![object("size", 1_i64.into()), Val::Unknown].into(),
            "disks[1]: Not known yet: An element is known only after the apply, and is needed before.",
        ),
        (
            "nics",
            object("eth0", Val::from([])),
            "nics[\"eth0\"].network: No value: `network` is null, and a string is needed.",
        ),
        ("keys", vec![object("text", true.into())].into(), "keys[0].text: Not a string: `text` is a bool."),
    ] {
        assert_eq!(told(name, val), [want]);
    }
    let whole = Host::from_val(&Val::Unknown).expect_err("unknown");
    assert_eq!(whole.0[0].detail, "The whole is known only after the apply, and is needed before.");
    assert!(told("settings", "{")[0].starts_with("settings: Not JSON: `settings` is \"{\": EOF"));
    assert!(
        told("patience", "soon")[0]
            .starts_with("patience: Not a duration, like 1h 30m: `patience` is \"soon\": ")
    );
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let mut host = least();
    host.set("port", true);
    host.set("servers", vec![Val::from("x"), "10.0.0.1".into(), "y".into()]);
    let wrong = Host::from_val(&host).expect_err("three of it");
    let paths: Vec<_> = wrong.0.iter().map(|diag| diag.path.to_string()).collect();
    assert_eq!(paths, ["port", "servers[0]", "servers[2]"]);
}

#[test]
fn nothing_is_told_of_a_secret_but_that_it_is_wrong() {
    let pins = Val::from([("of-the-safe", 123_456_i64.into())]);
    let want = "pins: Not a whole number from 0 to 65535: `pins` is sensitive, and so not shown.";
    assert_eq!(told("pins", pins), [want]);
}

#[test]
fn a_number_that_terraform_has_not_is_written_as_null() {
    assert_eq!((f64::NAN.write(), f64::INFINITY.write()), (Val::Null, Val::Null));
    assert_eq!(0.1.write(), dec("0.1"));
}

#[test]
fn what_may_be_there_is_asked_for_what_it_is() {
    let known: Tf<String> = "a".to_owned().into();
    assert_eq!((known.as_deref(), known.known().map(String::len)), (Some("a"), Some(1)));
    assert!(!known.is_null() && !known.is_unknown());
    assert_eq!(known.into_known().as_deref(), Some("a"));
    assert_eq!((Tf::<u8>::from(None), Tf::default()), (Tf::Null, Tf::<u8>::Null));
    assert_eq!((Tf::<String>::Unknown.as_deref(), Tf::<u8>::from(Some(1))), (None, Tf::Known(1)));
}

#[test]
fn the_models_in_the_readme_are_those_of_the_documentation_which_are_compiled() {
    let readme = include_str!("../README.md");
    let (_, from) = readme.split_once("```rust\n/// A file.").expect("the models");
    let (models, _) = from.split_once("```").expect("their end");
    let documented = include_str!("../src/model/mod.rs").lines().filter_map(|line| line.strip_prefix("///"));
    let documented: Vec<_> = documented.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    assert!(documented.join("\n").contains(models), "copy them");
}

/// A resource for hosts, in memory.
struct Hosts(Schema, Mutex<BTreeMap<String, Host>>);

struct Memory;

#[async_trait]
impl Provider for Memory {
    fn schema(&self) -> Schema {
        Schema::default()
    }
    fn resources(&self) -> Vec<Box<dyn Resource>> {
        vec![Box::new(Hosts(Host::schema(), Mutex::default()))]
    }
    async fn configure(&self, _: &Cx, _: &Val) -> Result<(), Diags> {
        Ok(())
    }
}

#[async_trait]
impl Resource for Hosts {
    fn type_name(&self) -> &str {
        "memory_host"
    }
    fn schema(&self) -> &Schema {
        &self.0
    }
    async fn read(&self, _: &Cx, state: &Val) -> Result<Option<Val>, Diags> {
        let hosts = self.1.lock().expect("a lock");
        Ok(state.get("name").as_str().and_then(|name| hosts.get(name)).map(Host::to_val))
    }
    async fn create(&self, _: &Cx, change: Change<'_>) -> Result<Val, Diags> {
        let mut host = Host::from_val(change.planned)?;
        let secret = Host::from_val(&with_defaults(change.config))?.password;
        if host.id.is_unknown() {
            host.id = format!("id-of-{}", host.name).into();
        }
        if host.serial.is_unknown() {
            host.serial = u64::MAX.into();
        }
        host.kind = format!("knows {} letters", secret.as_deref().map_or(0, str::len)).into();
        for disk in host.disks.iter_mut().flatten().filter(|disk| disk.path.is_unknown()) {
            disk.path = format!("/dev/disk-of-{}", disk.size).into();
        }
        if let Tf::Known(nics) = &mut host.nics {
            for nic in nics.values_mut().filter(|nic| nic.address.is_unknown()) {
                nic.address = Tf::Known([10, 0, 0, 1].into());
            }
        }
        self.1.lock().expect("a lock").insert(host.name.clone(), host.clone());
        Ok(host.to_val())
    }
    async fn update(&self, cx: &Cx, change: Change<'_>) -> Result<Val, Diags> {
        self.create(cx, change).await
    }
    async fn delete(&self, _: &Cx, state: &Val) -> Result<(), Diags> {
        self.1.lock().expect("a lock").remove(&Host::from_val(state)?.name);
        Ok(())
    }
    async fn import(&self, _: &Cx, id: &str) -> Result<Val, Diags> {
        Ok(Val::from([("name", id.into())]))
    }
}

/// A configuration may set an attribute with a default to null; the model's field `up` does not accept null.
fn with_defaults(config: &Val) -> Val {
    let mut config = config.clone();
    if config.get("up").is_null() {
        config.set("up", true);
    }
    config
}

#[tokio::test]
async fn a_resource_of_models_keeps_the_contract() {
    let mut core = MiniCore::start(Memory, &Val::Null).await.expect("it starts");
    let mut all = Lived::default();
    for seed in 0..25 {
        let lists = [vec![Val::from("2001:DB8::1")], vec!["2001:db8:0::1".into()], vec![]];
        let mut random = Random::new(seed)
            .choose("name", ["web", "db"])
            .choose("mac", ["AA-BB-CC-00-11-22", "aa:bb:cc:00:11:22"])
            .choose("chip", ["AABB.CC00.1122", "aa:bb:cc:00:11:22"])
            .choose("network", ["2001:DB8::/32", "2001:db8::/32", "10.0.0.1/24"])
            .choose("address", ["2001:DB8::1", "2001:db8::1", "10.0.0.7"])
            .choose("listen", ["[2001:DB8::1]:80", "[2001:db8::1]:80", "10.0.0.7:80"])
            .choose("patience", ["90m", "1h 30m", "PT2H", "0s"])
            .choose("settings", ["{\"b\": 1, \"a\": [2]}", "{\"a\":[2],\"b\":1}", "[]"])
            .choose("serial", [dec("18446744073709551615"), dec("7")])
            .choose("weight", [dec("0.1"), dec("75"), dec("-0.25")])
            .choose("exact", [dec("0.1234567890123456789"), dec("36893488147419103233")])
            .choose("servers", lists);
        let configs: Vec<Val> = (0..4).map(|_| random.config(&core, "memory_host")).collect();
        let name = |state: &Val| state.get("name").as_str().map(str::to_owned);
        let lived = core.live("memory_host", &configs, name).await;
        let lived = lived.unwrap_or_else(|broken| panic!("seed {seed}: {broken}\n{configs:?}"));
        all.created += lived.created;
        all.updated += lived.updated;
        all.imported += lived.imported;
        all.refused += lived.refused;
    }
    assert!(all.created > 20 && all.updated > 10 && all.imported + all.refused == 100, "{all:?}");
    assert!(all.refused > 0, "what excludes each other was given together: {all:?}");
    core.stop().await;
}

#[test]
fn a_set_of_two_that_are_not_known_is_not_known() {
    let read = |items: &[Val]| Tf::<BTreeSet<Tf<String>>>::read(&Val::List(items.to_vec()), &Path::root());
    let known = Val::from("a");
    assert!(matches!(read(&[known.clone(), Val::Unknown]).unwrap(), Tf::Known(set) if set.len() == 2));
    assert_eq!(read(&[Val::Unknown, Val::Unknown]).unwrap(), Tf::Unknown);
    assert!(read(&[known.clone(), known]).is_err(), "twice the same");
}
