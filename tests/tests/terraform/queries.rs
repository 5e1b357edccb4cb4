//! Features that Terraform has since 1.14, under the mini core: lists of objects that nothing manages, their generated
//! configuration, and actions.

use std::collections::{BTreeMap, BTreeSet};

use basalt_api::client::Precondition;
use basalt_api::wire::{PutMetadata, PutRequest};
use basalt_api::{KINDS, Kind};
use serde_json::json;
use tfplugin::Val;
use tfplugin::testing::MiniCore;

use crate::kinds::{Declared, declared};
use crate::world::{World, within};

async fn core(world: &World) -> MiniCore {
    let provider = terraform_provider_basalt::provider();
    let block = [("endpoint", world.endpoint.clone().into()), ("token", world.token.clone().into())];
    MiniCore::start(provider, &Val::from(block)).await.expect("it starts")
}

#[test]
fn every_kind_is_found_as_it_is_imported_and_its_generated_configuration_plans_nothing() {
    within(async |world| {
        let mut core = core(&world).await;
        let mut names: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for example in declared().into_iter().map(Declared::without_references_to_others) {
            names.entry(example.kind.name).or_default().insert(example.name);
            world.put("cli", example.kind.name, example.name, example.spec).await;
        }
        for kind in KINDS.iter().filter(|kind| kind.declarable) {
            let found = core.find(kind.terraform_name, &Val::Null).await;
            let found = found.unwrap_or_else(|broken| panic!("{broken}"));
            let found: BTreeSet<_> = found.iter().map(|object| object.name.as_str()).collect();
            let wanted = names.get(kind.name).expect("an example of every kind");
            assert!(wanted.is_subset(&found), "{}: {found:?}, and not {wanted:?}", kind.name);
        }
        core.stop().await;
        world.end().await;
    });
}

#[test]
fn a_query_is_narrowed_down_and_knows_whose_the_labels_are() {
    within(async |world| {
        let mut core = core(&world).await;
        let zone = Kind::find("Zone").expect("a kind");
        for (manager, name, label) in [
            ("terraform", "row-1", "site"),
            ("cli", "row-1", "owner"),
            ("cli", "row-2", "owner"),
            ("cli", "hall", "x"),
        ] {
            let labels = Some([(label.to_owned(), "berlin".to_owned())].into());
            let metadata = PutMetadata { labels, ..PutMetadata::default() };
            let spec = json!({"description": format!("the {name}")});
            let request = PutRequest { metadata, spec, ..PutRequest::default() };
            let put = world.client(manager).put(zone, name, &request, Precondition::None).await;
            put.expect("it is stored");
        }
        let rows = core.find("basalt_zone", &Val::from([("name_contains", "row-".into())])).await;
        let rows = rows.expect("they are found");
        assert_eq!(rows.iter().map(|zone| zone.name.as_str()).collect::<Vec<_>>(), ["row-1", "row-2"]);
        assert_eq!(
            rows[0].state.get("labels"),
            &Val::from([("site", "berlin".into())]),
            "those of others stay theirs"
        );
        assert_eq!(rows[1].state.get("labels"), &Val::Null);
        let labels = Val::from([("labels", Val::from([("site", "berlin".into())]))]);
        let labelled = core.find("basalt_zone", &labels).await.expect("they are found");
        assert_eq!(labelled.iter().map(|zone| zone.name.as_str()).collect::<Vec<_>>(), ["row-1"]);
        let described = Val::from([("where", Val::from([("description", "the hall".into())]))]);
        let described = core.find("basalt_zone", &described).await.expect("they are found");
        assert_eq!(described.iter().map(|zone| zone.name.as_str()).collect::<Vec<_>>(), ["hall"]);
        core.stop().await;
        world.end().await;
    });
}

#[test]
fn an_action_asks_once_and_its_interruption_ends_only_the_waiting() {
    within(async |world| {
        let mut core = core(&world).await;
        let bmc = json!({"driver": "ipmi", "address": "10.9.0.1", "username": "admin", "password": "secret"});
        world.put("cli", "Machine", "one", json!({"boot_macs": ["52:54:00:12:34:02"], "bmc": bmc})).await;
        let asked = async || world.client("test").operations("one").await.expect("an answer").items.len();
        let of = |machine: &str, wait: bool| Val::from([("machine", machine.into()), ("wait", wait.into())]);

        let nobody = core.act("basalt_recommission", &of("nobody", true), asked).await.expect("it ends");
        assert!(nobody.errors[0].contains("\"nobody\""), "{nobody:?}");
        let accepted = core.act("basalt_power_cycle", &of("one", false), asked).await.expect("it ends");
        assert_eq!(accepted.errors, Vec::<String>::new(), "{accepted:?}");
        assert_eq!(asked().await, 1, "it is not waited for");
        // No rack is there that could switch it.
        let waited = core.interrupt("basalt_power_cycle", &of("one", true)).await.expect("it ends");
        assert!(waited.errors[0].contains("basalt operations one"), "{waited:?}");
        assert_eq!(asked().await, 2);
        core.stop().await;
        world.end().await;
    });
}
