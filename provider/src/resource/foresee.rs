//! Values of a status that are known before the change. The plan then shows them as known, and so does every value that depends on them.

use basalt_api::{Effect, Kind, Semantic};
use tfplugin::{Object, Schema, Val};

use crate::map::{READY, STATUS};
use crate::patience;

/// The fields that determine a status, beside those whose change is a new installation.
const FOLLOWS: &[(&str, &[&str])] = &[("Image", &["files"]), ("IpAddress", &["address"])];

/// The status of a planned object, as far as it is known. `None` if no value is known.
pub(super) fn status(kind: &Kind, schema: &Schema, planned: &Object, prior: Option<&Object>) -> Option<Val> {
    let mut status = match prior {
        Some(prior) if is_kept(kind, schema, planned, prior) => prior.get(STATUS)?.clone(),
        _ => unknown(schema)?,
    };
    if let Some((field, value)) = given(kind, planned) {
        status.set(field, value);
    }
    let is_known = status.as_map()?.values().any(|value| *value != Val::Unknown);
    is_known.then_some(status)
}

/// True if the change does not affect the prior status.
fn is_kept(kind: &Kind, schema: &Schema, planned: &Object, prior: &Object) -> bool {
    // The status still grows while the last change is not done.
    if patience::is_awaited(kind) && prior.get(READY) != Some(&Val::Bool(true)) {
        return false;
    }
    let follows = FOLLOWS.iter().find(|(name, _)| *name == kind.name).map_or(&[][..], |(_, fields)| fields);
    let of_status = kind.spec.fields.iter().filter(|field| {
        matches!(field.effect, Effect::Redeploy | Effect::Replace)
            || field.immutable
            || follows.contains(&field.name)
    });
    let names: Vec<&str> = of_status.map(|field| field.name).collect();
    schema.attributes.iter().filter(|attribute| names.contains(&attribute.name.as_str())).all(|attribute| {
        match (planned.get(&attribute.name), prior.get(&attribute.name)) {
            (Some(planned), Some(prior)) => attribute.same(planned, prior),
            _ => false,
        }
    })
}

/// A status with only unknown values.
fn unknown(schema: &Schema) -> Option<Val> {
    let status = schema.attributes.iter().find(|attribute| attribute.name == STATUS)?;
    let tfplugin::Shape::Nested(_, fields) = &status.shape else { return None };
    Some(Val::Map(fields.iter().map(|field| (field.name.clone(), Val::Unknown)).collect()))
}

/// A value of the status that the specification determines.
fn given(kind: &Kind, planned: &Object) -> Option<(&'static str, Val)> {
    let text = |field: &str| planned.get(field).and_then(Val::as_str);
    match kind.name {
        "IpAddress" => {
            text("address").and_then(|it| Semantic::Ip.canonical(it).ok()).map(|it| ("address", it.into()))
        }
        "Deployment" => text("machine").map(|machine| ("machine", machine.into())),
        _ => None,
    }
}

/// Fills the unknown parts of a planned value from the result. Known parts stay, because the plan promised them to Terraform.
pub(super) fn fill(planned: Val, fresh: &Val) -> Val {
    match (planned, fresh) {
        (Val::Map(planned), Val::Map(_)) => {
            let each = planned.into_iter().map(|(name, value)| {
                let value = fill(value, fresh.get(&name));
                (name, value)
            });
            Val::Map(each.collect())
        }
        (Val::Unknown, fresh) => fresh.clone(),
        (planned, _) => planned,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map;

    fn object<const N: usize>(fields: [(&str, Val); N]) -> Object {
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn of(kind: &str, planned: &Object, prior: Option<&Object>) -> Option<Val> {
        let kind = Kind::find(kind).expect("a kind");
        let schema = map::resource(kind);
        // Terraform always passes every attribute.
        let whole = |given: &Object| -> Object {
            let all = schema.attributes.iter().map(|it| (it.name.clone(), Val::Null));
            all.chain(given.clone()).collect()
        };
        status(kind, &schema, &whole(planned), prior.map(whole).as_ref())
    }

    #[test]
    fn a_change_that_a_status_does_not_follow_from_leaves_it_known() {
        let before = object([("description", "a".into()), (STATUS, Val::from([("digest", "0".into())]))]);
        let described = object([("description", "b".into()), (STATUS, Val::Unknown)]);
        assert_eq!(of("Image", &described, Some(&before)), Some(Val::from([("digest", "0".into())])));
        let files = Val::from([("root_tarball", Val::from([("sha256", "1".into())]))]);
        let changed = object([("files", files), (STATUS, Val::Unknown)]);
        assert_eq!(of("Image", &changed, Some(&before)), None);
        assert_eq!(of("Image", &described, None), None, "it is new");
    }

    #[test]
    fn what_is_not_installed_yet_has_a_status_that_grows() {
        let status = Val::from([("machine", "m1".into())]);
        let before = |ready: bool| object([(READY, ready.into()), (STATUS, status.clone())]);
        let after = object([("description", "b".into()), (READY, Val::Unknown), (STATUS, Val::Unknown)]);
        assert_eq!(of("Deployment", &after, Some(&before(true))), Some(status.clone()));
        assert_eq!(of("Deployment", &after, Some(&before(false))), None);
        let image = object([("image", "trixie".into()), (STATUS, Val::Unknown)]);
        assert_eq!(of("Deployment", &image, Some(&before(true))), None);
    }

    #[test]
    fn what_is_declared_is_known_beforehand() {
        let address = object([("address", "2001:DB8::0:1".into()), (STATUS, Val::Unknown)]);
        assert_eq!(of("IpAddress", &address, None), Some(Val::from([("address", "2001:db8::1".into())])));
        let machine = object([("machine", "m1".into()), (STATUS, Val::Unknown)]);
        let status = of("Deployment", &machine, None).expect("something is known");
        assert_eq!((status.get("machine"), status.get("disk")), (&"m1".into(), &Val::Unknown));
        let filled = fill(status, &Val::from([("machine", "m2".into()), ("disk", "vda".into())]));
        assert_eq!(
            (filled.get("machine"), filled.get("disk")),
            (&"m1".into(), &"vda".into()),
            "Terraform was promised it"
        );
    }
}
