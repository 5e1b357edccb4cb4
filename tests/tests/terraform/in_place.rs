//! Changes of every kind: in place, or by replacement, as its description says.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use basalt_api::values::Generation;
use basalt_api::{Effect, KINDS, Kind};
use serde_json::Value;

use crate::another::Shape;
use crate::deployments::end_of;
use crate::kinds::{Declared, apart, declared, quick, text};
use crate::world::{COMMAND, World, everything, flat, provider, within};

/// The uid of every resource in the state.
fn uids(world: &World) -> BTreeMap<String, String> {
    let text = fs::read_to_string(world.dir.path().join("terraform.tfstate")).expect("a state");
    let state: Value = serde_json::from_str(&text).expect("JSON");
    let resources = state["resources"].as_array().expect("resources").iter();
    let each = resources.map(|it| {
        let address =
            format!("{}.{}", it["type"].as_str().expect("a type"), it["name"].as_str().expect("a name"));
        (address, it["instances"][0]["attributes"]["uid"].as_str().expect("a uid").to_owned())
    });
    each.collect()
}

impl World {
    /// Checks that the region has the declared values of these fields.
    async fn stores(&self, declared: &Declared, fields: &[(&'static str, Shape)]) {
        // A region never returns a secret.
        let bare = |spec| Declared { spec, ..*declared }.without_secrets().spec;
        let stored = bare(self.get(declared.kind.name, declared.name).await.spec);
        let want = bare(declared.spec.clone());
        for (field, _) in fields {
            assert_eq!(stored[*field], want[*field], "{} {field}", declared.address());
        }
    }

    /// Waits until a deployment has another generation than `before`.
    async fn until_written(&self, name: &str, before: Generation) {
        let written = async {
            while self.get("Deployment", name).await.metadata.generation == before {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(COMMAND, written).await.expect("terraform changes it");
    }
}

const SHAPES: [Shape; 6] =
    [Shape::Scalar, Shape::Reference, Shape::Object, Shape::List, Shape::Set, Shape::Map];

fn kinds_of(all: &[Declared]) -> BTreeSet<&'static str> {
    all.iter().map(|one| one.kind.name).collect()
}

#[test]
fn every_kind_is_changed_in_place_and_destroyed() {
    within(async |world| {
        // A new region already has some of them.
        let (there, missing) = apart(&world, quick()).await;
        let imports: String = there.iter().map(Declared::import).collect();
        let all = quick();
        world.config(&format!("{}{imports}", text(&world, &all))).apply().await;
        let before = uids(&world);

        let changed = quick().into_iter().map(|one| one.changed(&[Effect::None, Effect::Live]));
        let (changed, fields): (Vec<_>, Vec<_>) = changed.unzip();
        let (changed, fields): (Vec<_>, Vec<_>) =
            changed.into_iter().zip(fields).filter(|(_, fields)| !fields.is_empty()).unzip();
        assert_eq!(kinds_of(&changed), kinds_of(&all), "every kind has a field to change");
        let shapes: BTreeSet<_> = fields.iter().flatten().map(|(_, shape)| *shape).collect();
        assert_eq!(shapes, SHAPES.into());
        let whole: Vec<_> = quick()
            .into_iter()
            .map(|one| {
                let is_it = |it: &Declared| (it.kind, it.name) == (one.kind, one.name);
                let spec = changed.iter().find(|it| is_it(it)).map(|it| it.spec.clone());
                Declared { spec: spec.unwrap_or_else(|| one.spec.clone()), ..one }
            })
            .collect();
        let said = flat(&world.config(&text(&world, &whole)).ok(&["plan"]).await);
        let want = format!("Plan: 0 to add, {} to change, 0 to destroy.", changed.len());
        assert!(said.contains(&want), "{want} {said}");
        for one in &changed {
            let want = format!("# {} will be updated in-place", one.address());
            assert!(said.contains(&want), "{want} {said}");
        }
        let said = world.apply().await;
        let want = format!("0 added, {} changed, 0 destroyed", changed.len());
        assert!(said.contains(&want), "{want}: {said}");
        assert_eq!(uids(&world), before, "they are the same objects");
        for (one, fields) in changed.iter().zip(&fields) {
            world.stores(one, fields).await;
        }

        for one in &there {
            world.ok(&["state", "rm", &one.address()]).await;
        }
        let said = world.ok(&["destroy", "-auto-approve"]).await;
        assert!(said.contains(&format!("{} destroyed", missing.len())), "{said}");
        let (left, _) = apart(&world, missing).await;
        assert!(left.is_empty(), "{:?} are left", left.iter().map(Declared::address).collect::<Vec<_>>());
        world.end().await;
    });
}

#[test]
fn what_machinery_works_on_is_changed_in_place_too() {
    within(async |world| {
        let worked_on = |one: &Declared| ["Machine", "Deployment"].contains(&one.kind.name);
        let all = || declared().into_iter().map(Declared::without_references_to_others);
        for one in all() {
            world.put("cli", one.kind.name, one.name, one.spec).await;
            if one.kind.name == "Deployment" {
                world.say_ready(one.name).await;
            }
        }
        // With their secrets: a change of the BMC's address needs its password.
        let these: Vec<_> = all().filter(worked_on).collect();
        let imports: String = these.iter().map(Declared::import).collect();
        world.config(&format!("{}{imports}", text(&world, &these))).apply().await;
        let before = uids(&world);

        let changed = these.into_iter().map(|one| one.changed(&[Effect::None, Effect::Live]));
        let (whole, fields): (Vec<_>, Vec<_>) = changed.unzip();
        let (mut kinds, mut count, mut generations) = (BTreeSet::new(), 0, BTreeMap::new());
        for (one, _) in whole.iter().zip(&fields).filter(|(_, fields)| !fields.is_empty()) {
            count += 1;
            kinds.insert(one.kind.name);
            let there = world.get(one.kind.name, one.name).await;
            generations.insert(one.name, there.metadata.generation);
        }
        assert_eq!(kinds, BTreeSet::from(["Deployment", "Machine"]));
        let said = flat(&world.config(&text(&world, &whole)).ok(&["plan"]).await);
        let want = format!("Plan: 0 to add, {count} to change, 0 to destroy.");
        assert!(said.contains(&want), "{want} {said}");
        let (child, mut lines) = world.start(&["apply", "-auto-approve"]);
        while let Some(line) = lines.next_line().await.expect("output") {
            let deployment =
                line.strip_prefix("basalt_deployment.").filter(|_| line.contains("Modifying..."));
            if let Some(name) = deployment.and_then(|line| line.split(':').next()) {
                world.until_written(name, generations[name]).await;
                world.say_ready(name).await;
            }
        }
        let output = end_of(child).await;
        assert!(output.status.success(), "{}", everything(&output));
        assert_eq!(uids(&world), before, "they are the same objects");
        for (one, fields) in whole.iter().zip(&fields) {
            world.stores(one, fields).await;
        }
        let said = world.ok(&["plan"]).await;
        assert!(said.contains("No changes."), "{said}");
        world.end().await;
    });
}

/// The objects that the resources below refer to.
const GROUND: &str = r#"
locals {
  files = {
    root_tarball = {
      sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
      size   = 0
    }
  }
}
resource "basalt_fabric" "one" {
  name = "one"
}
resource "basalt_fabric" "two" {
  name = "two"
}
resource "basalt_vlan" "ground" {
  fabric = basalt_fabric.one.name
  vid    = 1
}
resource "basalt_subnet" "one" {
  name = "one"
  vlan = basalt_vlan.ground.name
  cidr = "10.1.0.0/24"
}
resource "basalt_subnet" "two" {
  name = "two"
  vlan = basalt_vlan.ground.name
  cidr = "10.2.0.0/24"
}
resource "basalt_domain" "one" {
  name = "one.example.com"
}
resource "basalt_domain" "two" {
  name = "two.example.com"
}
resource "basalt_role" "one" {
  name = "one"
  base = "viewer"
}
resource "basalt_role" "two" {
  name = "two"
  base = "viewer"
}
resource "basalt_user" "one" {
  name  = "one"
  roles = [basalt_role.one.name]
}
resource "basalt_user" "two" {
  name  = "two"
  roles = [basalt_role.one.name]
}
"#;

/// Fields whose change replaces the object: kind, field, and the declaration before and after, without the
/// name.
const REPLACED: &[(&str, &str, &str, &str)] = &[
    (
        "Vlan",
        "fabric",
        "fabric = basalt_fabric.one.name\nvid = 5",
        "fabric = basalt_fabric.two.name\nvid = 5",
    ),
    ("Vlan", "vid", "fabric = basalt_fabric.one.name\nvid = 7", "fabric = basalt_fabric.one.name\nvid = 8"),
    (
        "Subnet",
        "cidr",
        "vlan = basalt_vlan.ground.name\ncidr = \"10.3.0.0/24\"",
        "vlan = basalt_vlan.ground.name\ncidr = \"10.4.0.0/24\"",
    ),
    (
        "IpRange",
        "subnet",
        "subnet = basalt_subnet.one.name\nstart = \"10.1.0.50\"\nend = \"10.1.0.60\"",
        "subnet = basalt_subnet.two.name\nstart = \"10.2.0.50\"\nend = \"10.2.0.60\"",
    ),
    ("IpAddress", "subnet", "subnet = basalt_subnet.one.name", "subnet = basalt_subnet.two.name"),
    (
        "DnsRecord",
        "domain",
        "domain = basalt_domain.one.name\nowner_name = \"a\"\ntype = \"A\"\ndata = \"10.1.0.9\"",
        "domain = basalt_domain.two.name\nowner_name = \"a\"\ntype = \"A\"\ndata = \"10.1.0.9\"",
    ),
    (
        "DnsRecord",
        "owner_name",
        "domain = basalt_domain.one.name\nowner_name = \"b\"\ntype = \"A\"\ndata = \"10.1.0.9\"",
        "domain = basalt_domain.one.name\nowner_name = \"c\"\ntype = \"A\"\ndata = \"10.1.0.9\"",
    ),
    (
        "DnsRecord",
        "type",
        "domain = basalt_domain.one.name\nowner_name = \"d\"\ntype = \"A\"\ndata = \"10.1.0.9\"",
        "domain = basalt_domain.one.name\nowner_name = \"d\"\ntype = \"AAAA\"\ndata = \"2001:db8::9\"",
    ),
    (
        "Image",
        "os",
        "os = \"debian\"\nrelease = \"12\"\narchitecture = \"amd64\"\nfiles = local.files",
        "os = \"ubuntu\"\nrelease = \"12\"\narchitecture = \"amd64\"\nfiles = local.files",
    ),
    (
        "Image",
        "release",
        "os = \"debian\"\nrelease = \"12\"\narchitecture = \"amd64\"\nfiles = local.files",
        "os = \"debian\"\nrelease = \"13\"\narchitecture = \"amd64\"\nfiles = local.files",
    ),
    (
        "Image",
        "architecture",
        "os = \"debian\"\nrelease = \"12\"\narchitecture = \"amd64\"\nfiles = local.files",
        "os = \"debian\"\nrelease = \"12\"\narchitecture = \"arm64\"\nfiles = local.files",
    ),
    ("ApiToken", "user", "user = basalt_user.one.name", "user = basalt_user.two.name"),
    ("ApiToken", "role", "role = basalt_role.one.name", "role = basalt_role.two.name"),
];

/// A replacement that also installs, and so needs a machine.
const INSTALLED: (&str, &str) = ("Deployment", "machine");

/// All fields of declarable kinds that cannot change after the creation.
fn immutable() -> BTreeSet<(&'static str, &'static str)> {
    // The sample kind, which has a field of every type, is not for users.
    let kinds = KINDS.iter().filter(|kind| kind.declarable && kind.name != "Sample");
    let fields = |kind: &&'static Kind| {
        let fields = kind.spec.fields.iter();
        let name = kind.name;
        fields
            .filter(|field| field.immutable || field.effect == Effect::Replace)
            .map(move |it| (name, it.name))
            .collect::<Vec<_>>()
    };
    kinds.flat_map(fields).collect()
}

#[test]
fn what_is_set_at_creation_is_replaced_and_plans_to_nothing_then() {
    let named: BTreeSet<_> =
        REPLACED.iter().map(|(kind, field, ..)| (*kind, *field)).chain([INSTALLED]).collect();
    assert_eq!(named, immutable(), "a field that is set at creation has its line in the table");
    within(async |world| {
        let resource = |kind: &str, field: &str| {
            let kind = Kind::find(kind).expect("a kind");
            (format!("{}.{field}", kind.terraform_name), kind)
        };
        let block = |kind: &str, field: &str, fields: &str| {
            let (address, kind) = resource(kind, field);
            let name = format!("{}-{field}", kind.singular()).replace('_', "-");
            let name = if kind.name == "Vlan" { String::new() } else { format!("name = {name:?}\n") };
            format!("resource \"{}\" {{\n{name}{fields}\n}}\n", address.replace('.', "\" \""))
        };
        let before: String = REPLACED.iter().map(|(kind, field, it, _)| block(kind, field, it)).collect();
        let after: String = REPLACED.iter().map(|(kind, field, _, it)| block(kind, field, it)).collect();
        let head = format!("{}{GROUND}", provider(&world));
        world.config(&format!("{head}{before}")).apply().await;
        let old = uids(&world);

        let count = REPLACED.len();
        let said = flat(&world.config(&format!("{head}{after}")).ok(&["plan"]).await);
        let want = format!("Plan: {count} to add, 0 to change, {count} to destroy.");
        assert!(said.contains(&want), "{want} {said}");
        for (kind, field, ..) in REPLACED {
            let want = format!("# {} must be replaced", resource(kind, field).0);
            assert!(said.contains(&want), "{want} {said}");
        }
        let said = world.apply().await;
        let want = format!("{count} added, 0 changed, {count} destroyed");
        assert!(said.contains(&want), "{want}: {said}");
        let new = uids(&world);
        assert_eq!(new.len(), old.len());
        let replaced: BTreeSet<_> =
            REPLACED.iter().map(|(kind, field, ..)| resource(kind, field).0).collect();
        for (address, uid) in &new {
            assert_eq!(old[address] != *uid, replaced.contains(address), "{address}");
        }
        world.end().await;
    });
}
