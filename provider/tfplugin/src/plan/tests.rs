use super::*;
use crate::same::Semantics;
use crate::schema::Mode;
use crate::types::Type;
use proptest::prelude::*;

fn plan(schema: &Schema, prior: &Val, config: &Val) -> Planned {
    super::plan(schema, prior, config, |_| {})
}

fn schema() -> Schema {
    Schema {
        attributes: vec![
            Attribute::computed("uid", Type::String).use_state(),
            Attribute::computed("address", Type::String),
            Attribute::required("name", Type::String),
            Attribute::optional("fabric", Type::String).replace(),
            Attribute::optional("mac", Type::String).semantics(Semantics::Mac),
            Attribute::optional("tags", Type::set(Type::String)),
            Attribute::optional("size", Type::Number).default(4_i64),
            Attribute::plain("zone", Mode::OptionalComputed, Type::String),
            Attribute::optional("password_wo", Type::String).write_only(),
            Attribute::nested(
                "nics",
                Mode::Optional,
                Nesting::Map,
                vec![
                    Attribute::required("subnet", Type::String),
                    Attribute::optional("vlan", Type::Number).replace(),
                    Attribute::computed("address", Type::String),
                ],
            ),
        ],
        ..Schema::default()
    }
}

/// A whole configuration: attributes that are not given are null.
fn config<const N: usize>(given: [(&str, Val); N]) -> Val {
    let mut all: Object =
        schema().attributes.into_iter().map(|attribute| (attribute.name, Val::Null)).collect();
    for (name, value) in given {
        all.insert(name.to_owned(), value);
    }
    Val::Map(all)
}

fn nic(subnet: &str, vlan: Val, address: Val) -> Val {
    Val::from([("subnet", subnet.into()), ("vlan", vlan), ("address", address)])
}

fn prior() -> Val {
    config([
        ("uid", "u1".into()),
        ("address", "10.0.0.1".into()),
        ("name", "a".into()),
        ("size", 4_i64.into()),
        ("zone", "default".into()),
    ])
}

fn with(base: &Val, name: &str, value: impl Into<Val>) -> Val {
    let mut base = base.clone();
    base.set(name, value);
    base
}

#[test]
fn a_creation_knows_what_is_configured_and_what_has_a_default() {
    let planned = plan(&schema(), &Val::Null, &config([("name", "a".into())]));
    let want = config([
        ("uid", Val::Unknown),
        ("address", Val::Unknown),
        ("name", "a".into()),
        ("size", 4_i64.into()),
        ("zone", Val::Unknown),
    ]);
    assert_eq!(planned, Planned { state: want, replace: vec![] });
}

#[test]
fn nothing_changes_when_nothing_was_changed() {
    let planned = plan(&schema(), &prior(), &config([("name", "a".into())]));
    assert_eq!(planned, Planned { state: prior(), replace: vec![] });
}

#[test]
fn another_spelling_and_another_order_change_nothing() {
    let prior = with(&prior(), "mac", "aa:bb:cc:00:11:22");
    let prior = with(&prior, "tags", vec!["x".into(), "y".into()]);
    let config = config([
        ("name", "a".into()),
        ("mac", "AA-BB-CC-00-11-22".into()),
        ("tags", vec!["y".into(), "x".into()].into()),
    ]);
    assert_eq!(plan(&schema(), &prior, &config).state, prior);
}

#[test]
fn an_update_makes_computed_values_unknown_except_those_that_stay() {
    let planned = plan(&schema(), &prior(), &config([("name", "b".into())]));
    assert_eq!(planned.state.get("uid"), &Val::from("u1"));
    assert_eq!(planned.state.get("address"), &Val::Unknown);
    assert_eq!(planned.state.get("zone"), &Val::Unknown);
    assert_eq!(planned.replace, []);
}

#[test]
fn a_change_of_what_cannot_change_replaces() {
    let had = with(&prior(), "fabric", "f1");
    let planned = plan(&schema(), &had, &config([("name", "a".into()), ("fabric", "f2".into())]));
    assert_eq!(planned.replace, [Path::root().attr("fabric")]);
    let planned = plan(&schema(), &had, &config([("name", "a".into()), ("fabric", Val::Unknown)]));
    assert_eq!(planned.replace, [Path::root().attr("fabric")], "it may become anything");
}

#[test]
fn some_changes_replace_and_others_do_not() {
    let shrinks = |before: &Val, planned: &Val| planned.as_i64() < before.as_i64();
    let mut schema = schema();
    let size = schema.attributes.iter_mut().find(|it| it.name == "size").expect("an attribute");
    *size = size.clone().replace_if(shrinks);
    let had = with(&prior(), "size", 8_i64);
    for (size, replaces) in [(9_i64, false), (8, false), (7, true)] {
        let planned = plan(&schema, &had, &config([("name", "a".into()), ("size", size.into())]));
        let want = if replaces { vec![Path::root().attr("size")] } else { vec![] };
        assert_eq!(planned.replace, want, "{size}");
    }
}

#[test]
fn a_write_only_value_never_reaches_the_plan() {
    let given = config([("name", "a".into()), ("password_wo", "hunter2".into())]);
    assert_eq!(plan(&schema(), &Val::Null, &given).state.get("password_wo"), &Val::Null);
    assert_eq!(plan(&schema(), &prior(), &given).state, prior(), "nor is it a change");
}

#[test]
fn each_object_of_a_map_is_planned_with_its_own_prior() {
    let had = with(&prior(), "nics", Val::from([("eth0", nic("lab", 5_i64.into(), "10.0.0.7".into()))]));
    let given = config([
        ("name", "a".into()),
        (
            "nics",
            Val::from([
                ("eth0", nic("lab", 6_i64.into(), Val::Null)),
                ("eth1", nic("lab", Val::Null, Val::Null)),
            ]),
        ),
    ]);
    let planned = plan(&schema(), &had, &given);
    assert_eq!(
        planned.state.get("nics"),
        &Val::from([
            ("eth0", nic("lab", 6_i64.into(), Val::Unknown)),
            ("eth1", nic("lab", Val::Null, Val::Unknown)),
        ])
    );
    assert_eq!(planned.replace, [Path::root().attr("nics").key("eth0").attr("vlan")]);
}

#[test]
fn an_unchanged_map_keeps_the_computed_values_in_it() {
    let had = with(&prior(), "nics", Val::from([("eth0", nic("lab", Val::Null, "10.0.0.7".into()))]));
    let given =
        config([("name", "a".into()), ("nics", Val::from([("eth0", nic("lab", Val::Null, Val::Null))]))]);
    assert_eq!(plan(&schema(), &had, &given).state, had);
}

#[test]
fn what_is_removed_from_the_configuration_becomes_null() {
    let had = with(&prior(), "tags", vec!["x".into()]);
    let planned = plan(&schema(), &had, &config([("name", "a".into())]));
    assert_eq!(planned.state.get("tags"), &Val::Null);
}

#[test]
fn a_derived_value_is_known_when_what_it_follows_from_is() {
    let derive = |planned: &mut Object| {
        let address = match planned.get("name") {
            Some(Val::Str(name)) => Val::from(format!("{name}.example.com")),
            _ => Val::Unknown,
        };
        planned.insert("address".into(), address);
    };
    let planned = |prior: &Val, name: Val| super::plan(&schema(), prior, &config([("name", name)]), derive);
    let created = planned(&Val::Null, "a".into()).state;
    assert_eq!(created.get("address"), &Val::from("a.example.com"));
    assert_eq!(planned(&prior(), Val::Unknown).state.get("address"), &Val::Unknown);
    let had = with(&prior(), "address", "a.example.com");
    assert_eq!(planned(&had, "b".into()).state.get("address"), &Val::from("b.example.com"));
    assert_eq!(planned(&had, "a".into()).state, had);
}

fn text() -> impl Strategy<Value = Val> {
    prop_oneof![Just(Val::Null), Just(Val::Unknown), "[a-c]{1,2}".prop_map(Val::from),]
}

prop_compose! {
    fn configs()(
        name in "[a-c]",
        fabric in text(),
        zone in text(),
        mac in prop_oneof![Just(Val::Null), Just(Val::from("AA-BB-CC-00-11-22")), Just(Val::from("aa:bb:cc:00:11:22"))],
        tags in prop::collection::vec("[a-c]".prop_map(Val::from), 0..3),
        nics in prop::collection::btree_map("[ab]", "[ab]", 0..3),
    ) -> Val {
        let nics: Object = nics.into_iter().map(|(key, subnet)| (key, nic(&subnet, Val::Null, Val::Null))).collect();
        config([
            ("name", name.into()), ("fabric", fabric), ("zone", zone), ("mac", mac),
            ("tags", tags.into()), ("nics", nics.into()),
        ])
    }
}

/// The result of an apply that follows the plan: unknown values get a value.
fn applied(planned: &Val) -> Val {
    match planned {
        Val::Unknown => Val::from("given"),
        Val::Map(items) => Val::Map(items.iter().map(|(k, v)| (k.clone(), applied(v))).collect()),
        Val::List(items) => Val::List(items.iter().map(applied).collect()),
        other => other.clone(),
    }
}

/// The configuration as it is during an apply, with all values known.
fn resolved(config: &Val) -> Val {
    applied(config)
}

proptest! {
    #[test]
    fn planning_twice_says_the_same(before in configs(), after in configs()) {
        let prior = applied(&plan(&schema(), &Val::Null, &before).state);
        prop_assert_eq!(plan(&schema(), &prior, &after), plan(&schema(), &prior, &after));
    }

    #[test]
    fn after_an_apply_there_is_nothing_to_plan(before in configs(), after in configs()) {
        let prior = applied(&plan(&schema(), &Val::Null, &before).state);
        let state = applied(&plan(&schema(), &prior, &after).state);
        let again = plan(&schema(), &state, &resolved(&after));
        prop_assert_eq!(again, Planned { state, replace: vec![] });
    }

    #[test]
    fn a_plan_is_what_is_configured_or_what_was(before in configs(), after in configs()) {
        let prior = applied(&plan(&schema(), &Val::Null, &before).state);
        let planned = plan(&schema(), &prior, &after).state;
        for name in ["name", "fabric", "zone", "mac", "tags"] {
            let (is, want, was) = (planned.get(name), after.get(name), prior.get(name));
            prop_assert!(is == want || is == was || (want.is_null() && is.is_unknown()), "{}", name);
        }
    }

    #[test]
    fn what_the_first_plan_knows_the_second_does_not_change(before in configs(), after in configs()) {
        let prior = applied(&plan(&schema(), &Val::Null, &before).state);
        let first = plan(&schema(), &prior, &after).state;
        let second = plan(&schema(), &prior, &resolved(&after)).state;
        for name in ["uid", "name", "fabric", "zone", "mac", "tags", "size"] {
            let first = first.get(name);
            prop_assert!(first.is_unknown() || first == second.get(name), "{}", name);
        }
    }
}
