//! Rules for the descriptions of all kinds.

use super::KINDS;
use crate::schema::{Const, Effect, Field, Kind, MAX_INT, Presence, Schema, Stability, Type};
use crate::values::Naming;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Terraform's meta-arguments: no attribute of a resource can have one of these names.
const RESERVED: [&str; 7] =
    ["count", "for_each", "provider", "lifecycle", "connection", "provisioner", "depends_on"];

/// A field of a kind, with its path.
struct Found {
    path: String,
    field: &'static Field,
    is_spec: bool,
    /// True if the field, or an object that contains it, changes by itself.
    is_volatile: bool,
    is_root: bool,
}

fn every_field() -> Vec<Found> {
    let mut found = Vec::new();
    for kind in KINDS {
        collect(kind.name, kind.spec, true, false, 0, &mut found);
        collect(&format!("{}.status", kind.name), kind.status, false, false, 0, &mut found);
    }
    found
}

fn collect(
    at: &str,
    schema: &'static Schema,
    is_spec: bool,
    is_volatile: bool,
    depth: usize,
    found: &mut Vec<Found>,
) {
    assert!(depth < 8, "{at}: descriptions do not recurse");
    for field in schema.fields {
        let path = format!("{at}.{}", field.name);
        let is_volatile = is_volatile || field.stability == Stability::Volatile;
        if let Type::Object(inner) = innermost(&field.ty) {
            collect(&path, inner, is_spec, is_volatile, depth + 1, found);
        }
        found.push(Found { path, field, is_spec, is_volatile, is_root: depth == 0 });
    }
}

fn innermost(mut ty: &'static Type) -> &'static Type {
    while let Type::List(item) | Type::Set(item) | Type::Map { value: item, .. } = ty {
        ty = item;
    }
    ty
}

#[test]
fn names_of_kinds_are_unique_in_every_spelling() {
    let mut seen = BTreeSet::new();
    for kind in KINDS {
        assert!(seen.insert(kind.name) && seen.insert(kind.plural) && seen.insert(kind.terraform_name));
        assert!(!kind.doc.is_empty(), "{}", kind.name);
        for spelling in [kind.name, kind.plural, kind.terraform_name, kind.singular()] {
            assert_eq!(Kind::find(spelling), Some(*kind), "{spelling}");
        }
    }
}

#[test]
fn names_of_fields_are_words_that_terraform_can_have() {
    for Found { path, field, is_root, .. } in every_field() {
        let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(field.name.chars().all(is_word), "{path}: a-z, 0-9 and _");
        assert!(field.name.starts_with(|c: char| c.is_ascii_lowercase()), "{path}");
        assert!(!(is_root && RESERVED.contains(&field.name)), "{path} is reserved by Terraform");
    }
}

#[test]
fn objects_are_collected_in_maps_and_only_scalars_in_lists_and_sets() {
    for Found { path, field, is_volatile, .. } in every_field() {
        match &field.ty {
            // Conditions are a list on the wire, as controllers of this field have them. Terraform never sees them.
            Type::List(_) if field.name == "conditions" => assert!(is_volatile, "{path}"),
            Type::List(item) | Type::Set(item) => {
                assert!(item.is_scalar() && !matches!(item, Type::Secret), "{path}");
            }
            Type::Map { key, value } => {
                let is_key = matches!(key, Type::String | Type::Enum(_) | Type::Semantic(_) | Type::Ref(_));
                assert!(is_key, "{path}: keys are texts");
                assert!(value.is_scalar() || matches!(value, Type::Object(_)), "{path}");
            }
            Type::Json => assert!(is_volatile, "{path}: Terraform cannot type it"),
            _ => {}
        }
    }
}

#[test]
fn numbers_stay_below_two_to_the_53rd() {
    for Found { path, field, .. } in every_field() {
        if let Type::Int { min, max } = innermost(&field.ty) {
            assert!(min <= max && *max <= MAX_INT && *min >= -MAX_INT, "{path}: {min}..={max}");
        }
    }
}

#[test]
fn references_are_to_kinds_that_exist() {
    for Found { path, field, .. } in every_field() {
        if let Type::Ref(kind) = innermost(&field.ty) {
            assert!(Kind::find(kind).is_some(), "{path}: {kind}");
        }
    }
}

#[test]
fn every_default_is_a_value_of_its_field() {
    for Found { path, field, .. } in every_field() {
        let Presence::Default(constant) = field.presence else { continue };
        let value = constant.json(&field.ty);
        let is_value = match (&field.ty, constant) {
            (Type::Bool, Const::Bool(_)) | (Type::String | Type::Text, Const::Str(_)) => true,
            (Type::Int { min, max }, Const::Int(n)) => (*min..=*max).contains(&n),
            (Type::Enum(words), Const::Str(word)) => words.contains(&word),
            (Type::Semantic(semantic), Const::Str(text)) => semantic.canonical(text).is_ok(),
            (Type::List(_) | Type::Set(_) | Type::Map { .. }, Const::Empty) => true,
            // An object that is the default of its field has no required fields.
            (Type::Object(schema), Const::Empty) => {
                schema.fields.iter().all(|f| f.presence != Presence::Required)
            }
            _ => false,
        };
        assert!(is_value, "{path}: default {value}");
    }
}

#[test]
fn what_a_field_says_of_itself_agrees() {
    for kind in KINDS {
        assert!(kind.doc.ends_with('.') && kind.doc.trim() == kind.doc, "{}: {:?}", kind.name, kind.doc);
        assert!(kind.dormant.is_none_or(|why| !why.ends_with('.') && !why.is_empty()), "{}", kind.name);
        assert!(kind.dormant.is_none() || kind.declarable, "{}: what is reported is not declared", kind.name);
    }
    for Found { path, field, is_spec, .. } in every_field() {
        assert!(field.doc.ends_with(['.', '…']), "{path}: {:?} is a sentence", field.doc);
        if field.immutable {
            assert_eq!(field.effect, Effect::Replace, "{path}: an immutable field changes by replacement");
        }
        for it in field.dormant {
            assert!(is_spec, "{path}: what is reported is not declared");
            assert!(!it.because.ends_with('.') && !it.because.is_empty(), "{path}: {:?}", it.because);
            let is_word = |word: &str| matches!(&field.ty, Type::Enum(words) if words.contains(&word));
            assert!(it.word.is_none_or(is_word), "{path}: {:?} is no word of it", it.word);
        }
        if is_spec {
            assert_eq!(field.stability, Stability::Stable, "{path}: nothing in a spec changes by itself");
        } else {
            assert!(field.presence != Presence::ServerChosen, "{path}");
            assert!(!matches!(innermost(&field.ty), Type::Secret), "{path}: a status has no secrets");
        }
        if let Type::Enum(words) = innermost(&field.ty) {
            assert!(
                !words.is_empty() && words.iter().collect::<BTreeSet<_>>().len() == words.len(),
                "{path}"
            );
        }
    }
}

#[test]
fn a_secret_says_which_fields_beside_it_decide_where_it_is_sent() {
    fn visit(path: &str, schema: &'static Schema) {
        for field in schema.fields {
            let path = format!("{path}.{}", field.name);
            let is_secret = matches!(field.ty, Type::Secret);
            assert_eq!(field.destination.is_some(), is_secret, "{path}: sent_to(…) or sent_nowhere");
            for name in field.destination.unwrap_or_default() {
                let is_beside = schema.field(name).is_some_and(|beside| !matches!(beside.ty, Type::Secret));
                assert!(is_beside, "{path} is sent to {name:?}, which is no field beside it");
            }
            if let Type::Object(inner) = innermost(&field.ty) {
                visit(&path, inner);
            }
        }
    }
    KINDS.iter().for_each(|kind| visit(kind.name, kind.spec));
}

#[test]
fn a_description_s_name_means_one_description() {
    fn visit(schema: &'static Schema, seen: &mut BTreeMap<&'static str, &'static Schema>) {
        let first = *seen.entry(schema.name).or_insert(schema);
        let fields = |s: &Schema| s.fields.iter().map(|f| f.name).collect::<Vec<_>>();
        assert_eq!(fields(first), fields(schema), "{}", schema.name);
        for field in schema.fields {
            if let Type::Object(inner) = innermost(&field.ty) {
                visit(inner, seen);
            }
        }
    }
    let mut seen = BTreeMap::new();
    for kind in KINDS {
        visit(kind.spec, &mut seen);
        visit(kind.status, &mut seen);
    }
}

#[test]
fn no_field_is_described_twice() {
    for kind in KINDS {
        for schema in [kind.spec, kind.status] {
            let names: BTreeSet<_> = schema.fields.iter().map(|f| f.name).collect();
            assert_eq!(names.len(), schema.fields.len(), "{}", schema.name);
        }
        assert_eq!(kind.status.fields.first().map(|f| f.name), Some("observed_generation"), "{}", kind.name);
    }
}

#[test]
fn kinds_come_after_those_they_need() {
    let position = |name: &str| KINDS.iter().position(|k| k.name == name);
    for kind in KINDS {
        for field in kind.spec.fields.iter().filter(|f| f.presence == Presence::Required) {
            if let Type::Ref(needed) = &field.ty {
                assert!(position(needed) < position(kind.name), "{} needs {needed}", kind.name);
            }
        }
    }
}

#[test]
fn a_vlan_is_the_one_kind_named_by_two_fields() {
    let named: Vec<_> = KINDS.iter().filter(|k| k.naming == Naming::FabricVid).map(|k| k.name).collect();
    assert_eq!(named, ["Vlan"]);
}

#[test]
fn absence_is_its_constant_in_the_typed_spec() {
    let vlan: super::VlanSpec =
        serde_json::from_value(json!({"fabric": "a", "vid": 0, "dhcp": null})).unwrap();
    assert_eq!((vlan.mtu, vlan.dhcp.enabled, vlan.dhcp.lease_time.as_secs()), (1500, false, 600));
    assert_eq!(vlan, super::VlanSpec::new("a".parse().unwrap(), 0));
    let error = serde_json::from_value::<super::VlanSpec>(json!({"vid": 0})).unwrap_err();
    assert_eq!(error.to_string(), "missing field `fabric`");
}

#[test]
fn a_status_has_the_common_fields_and_its_own_in_one_object() {
    let status = super::ZoneStatus { machines: Some(3), ..Default::default() };
    assert_eq!(serde_json::to_value(&status).unwrap(), json!({"observed_generation": 0, "machines": 3}));
    let read: super::ZoneStatus = serde_json::from_value(json!({"observed_generation": 2, "conditions": [{
            "type": "Ready", "status": "true", "reason": "AsDeclared", "message": "",
            "since": "2026-01-01T00:00:00Z", "deadline": null}]}))
    .unwrap();
    assert_eq!(read.common.observed_generation.get(), 2);
    assert!(read.common.condition("Ready").is_some_and(|c| c.status == super::ConditionStatus::True));
}

#[test]
fn secondaries_have_addresses_of_their_own_and_secrets_of_tsig_keygen() {
    let broken = |spec: Value| -> Vec<String> {
        let kind = Kind::find("Domain").expect("a kind");
        crate::validate(kind, &spec).into_iter().map(|error| error.pointer).collect()
    };
    let with = |address: &str, key: &str| json!({"address": address, "key_name": "k.example", "key": key});
    let secret = "AAAAAAAAAAAAAAAAAAAAAA==";
    let of = |secondaries: Value| json!({"secondaries": secondaries});
    assert!(broken(of(json!({"a": with("192.0.2.1", secret), "b": with("fd00::1", secret)}))).is_empty());
    assert!(broken(of(json!({"a": {"address": "192.0.2.1", "key_name": "k.example"}}))).is_empty(), "kept");
    for bad in ["", "hunter2", "AAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAA"] {
        assert_eq!(broken(of(json!({"a": with("192.0.2.1", bad)}))), ["/secondaries/a/key"], "{bad:?}");
    }
    let twice = json!({"a": with("192.0.2.1", secret), "b": with("::ffff:192.0.2.1", secret)});
    assert_eq!(broken(of(twice)), ["/secondaries/b/address"]);
    for bad in ["0.0.0.0", "224.0.0.1", "::", "ff02::1"] {
        assert_eq!(broken(of(json!({"a": with(bad, secret)}))), ["/secondaries/a/address"], "{bad}");
    }
    assert_eq!(broken(of(json!({"A b": with("192.0.2.1", secret)}))), ["/secondaries/A b"]);
    let many: serde_json::Map<_, _> =
        (1..=17).map(|n| (format!("s{n}"), with(&format!("192.0.2.{n}"), secret))).collect();
    assert_eq!(broken(of(Value::Object(many))), ["/secondaries"]);
    let other = json!({"authoritative": false, "forward_to": ["192.0.2.1"], "secondaries": {"a": with("192.0.2.1", secret)}});
    assert_eq!(broken(other), ["/secondaries"]);
    let settings = Kind::find("Settings").expect("a kind");
    let of_all = crate::validate(settings, &json!({"dns_secondaries": {"a": with("192.0.2.1", "hunter2")}}));
    assert_eq!(of_all[0].pointer, "/dns_secondaries/a/key");
}

#[test]
fn a_deployment_that_would_leave_the_disks_alone_is_refused() {
    let kind = Kind::find("Deployment").unwrap();
    let errors = |ephemeral: bool| {
        let spec = json!({"image": "debian", "machine": "m", "ephemeral": ephemeral});
        let errors = crate::validate(kind, &spec);
        errors.iter().map(|it| it.pointer.clone()).collect::<Vec<_>>()
    };
    assert_eq!((errors(false), errors(true)), (vec![], vec!["/ephemeral".to_owned()]));
}

#[test]
fn an_image_to_install_has_one_of_the_forms_of_a_system() {
    let kind = Kind::find("Image").unwrap();
    let is_taken = |role: &str| {
        let files = json!({ (role): {"sha256": "0".repeat(64)} });
        let spec = json!({"os": "debian", "release": "12", "architecture": "arm64", "files": files});
        crate::validate(kind, &spec).is_empty()
    };
    let taken = ["root_tarball", "squashfs", "disk_image", "kernel", "initrd"].map(is_taken);
    assert_eq!(taken, [true, true, true, false, false]);
}
