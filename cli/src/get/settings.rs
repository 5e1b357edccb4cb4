//! `basalt get settings`: the effective value of each setting, declared or not.

use basalt_api::kinds::{DEADLINES, Settings};
use basalt_api::values::Duration;
use basalt_api::{Kind, KindOf, Object, Presence, Schema, Type};
use serde_json::{Map, Value, json};

use super::columns::text;
use super::output::{table as columns, value};

/// The name of the only object.
const NAME: &str = "default";

/// True for the kind Settings.
pub(super) fn is_settings(kind: &Kind) -> bool {
    kind.name == Settings::NAME
}

/// True for the only object of the kind, which may be undeclared.
pub(super) fn is_one(kind: &Kind, name: &str) -> bool {
    is_settings(kind) && name == NAME
}

/// The objects. For the kind Settings without a declared object, the defaults.
pub(super) fn or_defaults(kind: &Kind, objects: Vec<Object>) -> Vec<Value> {
    match is_settings(kind) && objects.is_empty() {
        true => vec![unset(kind)],
        false => objects.iter().map(value).collect(),
    }
}

/// Undeclared Settings: an empty declaration with the defaults in its status.
pub(super) fn unset(kind: &Kind) -> Value {
    let effective = basalt_api::effective(kind, json!({})).unwrap_or_default();
    json!({"kind": kind.name, "metadata": {"name": NAME}, "spec": {}, "status": {"effective": effective}})
}

/// A row for each setting.
pub(super) fn table(kind: &Kind, object: &Value) -> String {
    let mut rows = vec![["SETTING", "VALUE", "FROM"].map(str::to_owned)];
    let nothing = Map::new();
    let spec = object.get("spec").and_then(Value::as_object).unwrap_or(&nothing);
    add(&mut rows, "", kind.spec, spec);
    columns(&rows)
}

fn add(rows: &mut Vec<[String; 3]>, above: &str, schema: &Schema, declared: &Map<String, Value>) {
    for field in schema.fields {
        let name = format!("{above}{}", field.name);
        let value = declared.get(field.name).filter(|value| !value.is_null());
        match (&field.ty, value.and_then(Value::as_object)) {
            (Type::Object(inner), Some(members)) => add(rows, &format!("{name}."), inner, members),
            (Type::Object(inner), None) if matches!(field.presence, Presence::Default(_)) => {
                add(rows, &format!("{name}."), inner, &Map::new());
            }
            _ if name == "deadlines" => deadlines(rows, value.and_then(Value::as_object)),
            _ => rows.push(match (value, field.presence) {
                (Some(value), _) => [name, text(value), "declared".to_owned()],
                (None, Presence::Default(constant)) => {
                    [name, text(&constant.json(&field.ty)), "default".to_owned()]
                }
                (None, _) => [name, "-".to_owned(), "default".to_owned()],
            }),
        }
    }
}

fn deadlines(rows: &mut Vec<[String; 3]>, declared: Option<&Map<String, Value>>) {
    for (name, seconds) in DEADLINES {
        let setting = format!("deadlines.{name}");
        rows.push(match declared.and_then(|declared| declared.get(name)) {
            Some(value) => [setting, text(value), "declared".to_owned()],
            None => [setting, Duration::from_secs(seconds).to_string(), "default".to_owned()],
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(spec: Value) -> Vec<String> {
        let object = json!({"kind": "Settings", "metadata": {"name": NAME}, "spec": spec});
        let table = table(Settings::KIND, &object);
        table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn every_setting_is_shown_with_what_is_in_force_and_where_that_comes_from() {
        let unset = shown(json!({}));
        for row in [
            "SETTING VALUE FROM",
            "loader ipxe default",
            "kernel_options - default",
            "proxy.enabled true default",
            "erase quick default",
            "deadlines.boot_request 10m default",
            "fleet_budget.max_unavailable - default",
            "openid - default",
        ] {
            assert!(unset.contains(&row.to_owned()), "{row}: {unset:#?}");
        }
        let set = shown(json!({
            "loader": "shim_grub", "deadlines": {"boot_request": "20m"}, "fleet_budget": {"max_unavailable": 7},
        }));
        for row in [
            "loader shim_grub declared",
            "deadlines.boot_request 20m declared",
            "deadlines.claim 5m default",
            "fleet_budget.max_unavailable 7 declared",
            "proxy.enabled true default",
        ] {
            assert!(set.contains(&row.to_owned()), "{row}: {set:#?}");
        }
    }

    #[test]
    fn settings_that_nobody_declared_are_a_declaration_with_the_defaults() {
        let unset = or_defaults(Settings::KIND, Vec::new());
        assert_eq!(
            (&unset[0]["spec"], &unset[0]["status"]["effective"]["loader"]),
            (&json!({}), &json!("ipxe"))
        );
        let zones = or_defaults(Kind::find("Zone").unwrap(), Vec::new());
        assert!(zones.is_empty());
    }
}
