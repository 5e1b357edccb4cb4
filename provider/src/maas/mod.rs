//! `moved` blocks from the types of the MAAS provider: values of the old state find the object in the region.
//!
//! The object itself is read from the region, like an imported one; so the old state serves only to find it. If the region does not have
//! the object, its creation is planned, as the configuration declares it. Values of the old state that Basalt does not have cause a
//! warning.

mod sources;

use basalt_api::{Kind, Object};
use serde_json::Value;
use sources::{SOURCES, Source};
use tfplugin::{Attribute, Diag, Diags, Moved, Num, Path, Shape, Type, Val};

use crate::MANAGER;
use crate::listing::AsOf;
use crate::map::NAME;
use crate::natural::NaturalKey;
use crate::region::Region;

/// The namespaces of MAAS providers, in any registry: Canonical's, and the community's before it.
const PROVIDERS: [&str; 2] = ["canonical/maas", "maas/maas"];

/// A state of our type that identifies the object, from the state of a MAAS provider.
pub(crate) fn state(
    kind: &'static Kind,
    attributes: &[Attribute],
    from: &Moved<'_>,
) -> Result<(Val, Vec<Diag>), Diags> {
    let refused = |detail: String| {
        Diags::from(Diag::error(format!("It cannot be moved here: {:?}", from.type_name), detail))
    };
    let here = kind.terraform_name;
    let is_maas =
        PROVIDERS.iter().any(|known| from.provider.split_once('/').is_some_and(|(_, it)| it == *known));
    let source = SOURCES.iter().find(|source| is_maas && source.name == from.type_name);
    let Some(source) = source.filter(|source| source.kind == kind.name) else {
        let fitting: Vec<&str> =
            SOURCES.iter().filter(|source| source.kind == kind.name).map(|source| source.name).collect();
        let known = match fitting.as_slice() {
            [] => "nothing can be moved to it".to_owned(),
            names => format!("to it {} of canonical/maas can be moved", names.join(", ")),
        };
        let (theirs, provider) = (from.type_name, from.provider);
        return Err(refused(format!("{theirs} of {provider} is no {here}; {known}. Use an import block.")));
    };
    if from.version > source.version {
        return Err(refused(format!(
            "The state of {} has schema version {}; this version of the provider knows it up to {}. Use an import block, \
             or a newer version of the provider.",
            source.name, from.version, source.version
        )));
    }
    let known = (source.known_by)(from.state)
        .map_err(|why| refused(format!("{}: {why}. Use an import block instead.", source.name)))?;
    let mut state =
        Val::Map(attributes.iter().map(|attribute| (attribute.name.clone(), Val::Null)).collect());
    for (name, text) in &known {
        if *name == NAME
            && let Err(bad) = kind.naming.check(text)
        {
            return Err(refused(format!(
                "{}: {}; {}. Import it by the name that it has here.",
                source.name, bad.message, bad.hint
            )));
        }
        let attribute = attributes.iter().find(|attribute| attribute.name == *name);
        add(&mut state, name, text, attribute);
    }
    Ok((state, lost(source, from.state)))
}

/// Sets an attribute, or adds to it if it is a set.
fn add(state: &mut Val, name: &str, text: &str, attribute: Option<&Attribute>) {
    let value = match attribute.map(|attribute| &attribute.shape) {
        Some(Shape::Plain(Type::Number)) => Num::parse(text).map_or(Val::Null, Val::Num),
        Some(Shape::Plain(Type::Set(_) | Type::List(_))) => {
            let mut all = state.get(name).as_list().unwrap_or_default().to_vec();
            all.push(text.into());
            Val::List(all)
        }
        _ => text.into(),
    };
    state.set(name, value);
}

/// A warning about values of the old state that have no counterpart, if there are any.
fn lost(source: &Source, state: &Value) -> Vec<Diag> {
    let is_given = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    };
    let lines: Vec<String> = source
        .lost
        .iter()
        .filter(|(name, _)| is_given(&state[*name]))
        .map(|(name, advice)| format!("`{name}`: {advice}."))
        .collect();
    if lines.is_empty() {
        return Vec::new();
    }
    let detail = format!("Of {} this has no counterpart:\n{}", source.name, lines.join("\n"));
    vec![Diag::warning("Not everything is carried over", detail)]
}

/// A warning about an object that Terraform manages before this state has it. A copied directory with the old state would move the object
/// twice.
pub(crate) fn taken(object: &Object) -> Option<Diag> {
    (object.metadata.manager.as_deref() == Some(MANAGER)).then(|| {
        let (kind, name) = (&object.kind, &object.metadata.name);
        let detail = format!(
            "{kind} {name:?} was written by Terraform, so another state may have it. With both, each apply undoes the other, and a destroy of one \
             takes it from the other. If that state is in use, leave the resource out here; if an apply of this one was cut off, go on."
        );
        Diag::warning("Managed by Terraform already", detail)
    })
}

/// The one object with all values of a moved state.
pub(crate) async fn find(region: &Region, kind: &'static Kind, state: &Val) -> Result<Option<Object>, Diags> {
    let mut keys = Vec::new();
    for (name, value) in state.as_map().into_iter().flatten() {
        let texts: Vec<String> = match value {
            Val::List(items) => items.iter().filter_map(|item| Some(item.as_str()?.to_owned())).collect(),
            Val::Str(text) => vec![text.clone()],
            Val::Num(number) => vec![number.to_string()],
            _ => Vec::new(),
        };
        keys.extend(texts.into_iter().map(|text| format!("{name}={text}")));
    }
    let said = keys.join(", ");
    let keys: Result<Vec<_>, _> = keys.iter().filter_map(|key| NaturalKey::read(kind, key)).collect();
    let keys = keys.map_err(|why| Diag::error("Not a key", why))?;
    if keys.is_empty() {
        return Ok(None);
    }
    let all = region.all(kind, AsOf::Lately).await?;
    let found: Vec<_> = all.iter().filter(|object| keys.iter().all(|key| key.is_of(object))).collect();
    match found.len() {
        0 | 1 => Ok(found.first().copied().cloned()),
        _ => {
            let names: Vec<&str> = found.iter().map(|object| object.metadata.name.as_str()).collect();
            let detail = format!(
                "There is more than one {} with {said}: {}. Import the one that is meant by its name.",
                kind.name,
                names.join(", ")
            );
            Err(Diag::error("Not one", detail).at(Path::root()).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_api::KINDS;
    use serde_json::json;

    const CANONICAL: &str = "registry.terraform.io/canonical/maas";

    fn moved(
        kind: &str,
        provider: &str,
        type_name: &str,
        version: i64,
        old: Value,
    ) -> Result<(Val, String), String> {
        let kind = Kind::find(kind).expect("a kind");
        let schema = crate::map::resource(kind);
        let from = Moved { provider, type_name, version, state: &old };
        let told =
            |diags: &[Diag]| diags.iter().map(|diag| diag.detail.as_str()).collect::<Vec<_>>().join(" ");
        state(kind, &schema.attributes, &from)
            .map(|(state, warnings)| (state, told(&warnings)))
            .map_err(|diags| told(&diags.0))
    }

    #[test]
    fn every_source_leads_to_a_kind_that_has_what_it_is_known_by() {
        for source in SOURCES {
            assert!(KINDS.iter().any(|kind| kind.name == source.kind && kind.declarable), "{}", source.name);
        }
        let vlan = json!({"fabric": "core", "vid": 7, "name": "lab", "mtu": 9000});
        let (state, told) = moved("Vlan", CANONICAL, "maas_vlan", 0, vlan).expect("it is moved");
        assert_eq!((state.get("fabric").as_str(), state.get("vid").as_i64()), (Some("core"), Some(7)));
        assert!(state.get("mtu").is_null(), "it is read from the region");
        assert_eq!(
            told,
            "Of maas_vlan this has no counterpart:\n`name`: a VLAN is called by its fabric and number."
        );
        let record = json!({"fqdn": "www.lab.example.com", "type": "A/AAAA", "data": "fd00::1", "ttl": null});
        let (state, told) = moved("DnsRecord", CANONICAL, "maas_dns_record", 0, record).expect("it is moved");
        let known = ["owner_name", "domain", "type"].map(|name| state.get(name).as_str().unwrap_or_default());
        assert_eq!((known, told.as_str()), (["www", "lab.example.com", "AAAA"], ""));
        let setting = json!({"key": "ntp_servers", "value": "ntp.example.com"});
        let (state, told) =
            moved("Settings", CANONICAL, "maas_configuration", 0, setting).expect("it is moved");
        assert_eq!(state.get("name"), &"default".into());
        assert!(told.contains("`key`: one basalt_settings holds all of them"), "{told}");
        let machine = json!({"pxe_mac_address": "52:54:00:AA:00:01", "power_parameters": "{}"});
        let (state, _) = moved("Machine", CANONICAL, "maas_machine", 1, machine).expect("it is moved");
        assert_eq!(state.get("boot_macs"), &Val::List(vec!["52:54:00:AA:00:01".into()]));
    }

    #[test]
    fn what_cannot_be_moved_is_told_with_the_reason() {
        let fabric = || json!({"name": "core"});
        let other =
            moved("Fabric", "registry.terraform.io/someone/maas", "maas_fabric", 0, fabric()).unwrap_err();
        assert!(
            other.contains("maas_fabric of registry.terraform.io/someone/maas is no basalt_fabric"),
            "{other}"
        );
        let kind = moved("Fabric", CANONICAL, "maas_space", 0, fabric()).unwrap_err();
        assert!(kind.contains("to it maas_fabric of canonical/maas can be moved"), "{kind}");
        let newer = moved("Fabric", CANONICAL, "maas_fabric", 3, fabric()).unwrap_err();
        assert!(newer.contains("schema version 3") && newer.contains("up to 0"), "{newer}");
        let number = moved("Vlan", CANONICAL, "maas_vlan", 0, json!({"fabric": "12", "vid": 7})).unwrap_err();
        assert!(number.contains("by the number 12"), "{number}");
        let named = moved("Fabric", CANONICAL, "maas_fabric", 0, json!({"name": "Fabric 1"})).unwrap_err();
        assert!(named.contains("Import it by the name"), "{named}");
        let keys = moved("SshKey", CANONICAL, "maas_ssh_keys", 0, json!({"keys": ["a", "b"]})).unwrap_err();
        assert!(keys.contains("it holds several keys, each of which is a basalt_ssh_key"), "{keys}");
        let empty = moved("Subnet", CANONICAL, "maas_subnet", 0, json!({})).unwrap_err();
        assert!(empty.contains("its state has no cidr"), "{empty}");
    }
}
