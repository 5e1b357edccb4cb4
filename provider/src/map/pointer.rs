//! JSON pointers of the API as paths into a Terraform configuration.

use basalt_api::pointer::steps;
use basalt_api::values::Naming;
use basalt_api::{Field, Kind, Presence, Schema, Type};
use tfplugin::{Path, Step, Val};

use super::{LABELS, NAME, version, write_only};

/// The place in a configuration for a part of a request.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) path: Path,
    /// The origin of the value, as a sentence, if it is not in the configuration.
    pub(crate) origin: Option<&'static str>,
}

const OF_DEFAULTS: &str = "It is one of the provider's default_labels.";
const MADE: &str = "The name is made of fabric and vid.";
const LEFT_OUT: &str = "The configuration leaves it out, and this is its default.";

/// The path of `pointer` in a resource of this kind. The pointer may be relative to a spec, or to a request with a spec. The
/// path ends before the first step that does not exist.
pub(crate) fn path(kind: &Kind, pointer: &str) -> Path {
    place(kind, pointer, &Val::Null).path
}

/// The same for a given configuration, which decides between the two attributes of a secret, and may leave out values.
pub(crate) fn place(kind: &Kind, pointer: &str, config: &Val) -> Place {
    let mut steps = steps(pointer).peekable();
    if steps.next_if(|step| step == "metadata").is_some() {
        return of_metadata(kind, steps, config);
    }
    if kind.spec.field("spec").is_none() {
        steps.next_if(|step| step == "spec");
    }
    let (path, last, said) = within(kind.spec, steps, config);
    let has_default = last.is_some_and(|field| matches!(field.presence, Presence::Default(_)));
    let is_left_out = !config.is_null() && said.is_null() && has_default;
    Place { path, origin: is_left_out.then_some(LEFT_OUT) }
}

/// The path and the name of the attribute with the version of a write-only secret. `None` if `secret` is not write-only.
pub(crate) fn version_of(secret: &Path) -> Option<(Path, String)> {
    let (last, above) = secret.0.split_last()?;
    let Step::Attr(name) = last else { return None };
    let version = version(name.strip_suffix("_wo")?);
    Some((Path(above.to_vec()).attr(&version), version))
}

fn of_metadata(kind: &Kind, mut steps: impl Iterator<Item = String>, config: &Val) -> Place {
    let label = if steps.next().is_some_and(|step| step == LABELS) { steps.next() } else { None };
    match label {
        Some(label) => {
            let is_said = config.is_null() || !config.get(LABELS).get(&label).is_null();
            let path = Path::root().attr(LABELS);
            match is_said {
                true => Place { path: path.key(&label), origin: None },
                false => Place { path, origin: Some(OF_DEFAULTS) },
            }
        }
        None => {
            let is_made = kind.naming == Naming::FabricVid && !config.is_null();
            Place { path: Path::root().attr(NAME), origin: is_made.then_some(MADE) }
        }
    }
}

/// The path, its last field, and the configuration's value there.
fn within<'a>(
    schema: &'static Schema,
    mut steps: impl Iterator<Item = String>,
    config: &'a Val,
) -> (Path, Option<&'static Field>, &'a Val) {
    let (mut at, mut last, mut said) = (Path::root(), None, config);
    let mut schema = schema;
    while let Some(field) = steps.next().and_then(|step| schema.field(&step)) {
        let hidden = write_only(field.name);
        let is_hidden = matches!(field.ty, Type::Secret) && !said.get(&hidden).is_null();
        let name = if is_hidden { hidden.as_str() } else { field.name };
        at = at.attr(name);
        said = said.get(name);
        last = Some(field);
        match field.ty {
            Type::Object(inner) => schema = inner,
            Type::Map { value, .. } => {
                let Some(key) = steps.next() else { break };
                at = at.key(&key);
                said = said.get(&key);
                match value {
                    Type::Object(inner) => schema = inner,
                    _ => break,
                }
            }
            Type::List(_) => {
                if let Some(index) = steps.next().and_then(|step| step.parse().ok()) {
                    at = at.index(index);
                }
                break;
            }
            // A path cannot name an element of a set.
            _ => break,
        }
    }
    (at, last, said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_leads_to_the_attribute_that_it_is_about() {
        let sample = Kind::find("Sample").expect("a kind");
        for (pointer, want) in [
            ("/spec/mac", "mac"),
            ("/mac", "mac"),
            ("/spec/parts/a~1b/weight", r#"parts["a/b"].weight"#),
            ("/spec/parts/lid/notes/2", r#"parts["lid"].notes[2]"#),
            ("/spec/detail/label", "detail.label"),
            ("/spec/macs/0", "macs"),
            ("/spec/colour_of_money", ""),
            ("/metadata/name", "name"),
            ("/metadata/labels/hall", r#"labels["hall"]"#),
            ("", ""),
        ] {
            assert_eq!(path(sample, pointer).to_string(), want, "{pointer}");
        }
    }

    #[test]
    fn a_secret_stands_where_the_configuration_says_it() {
        let sample = Kind::find("Sample").expect("a kind");
        let lid = |name: &str| Val::from([("lid", Val::from([(name, "x".into())]))]);
        for (config, want) in [
            (Val::from([("password_wo", "x".into())]), "password_wo"),
            (Val::from([("password_wo", Val::Unknown)]), "password_wo"),
            (Val::from([("password", "x".into()), ("password_wo", Val::Null)]), "password"),
        ] {
            let place = place(sample, "/spec/password", &config);
            assert_eq!((place.path.to_string().as_str(), place.origin), (want, None));
        }
        for (name, want) in [("key_wo", r#"parts["lid"].key_wo"#), ("key", r#"parts["lid"].key"#)] {
            let config = Val::from([("parts", lid(name))]);
            assert_eq!(place(sample, "/spec/parts/lid/key", &config).path.to_string(), want);
        }
    }

    #[test]
    fn what_the_configuration_does_not_say_is_told_with_where_it_comes_from() {
        let config = Val::from([("serial", "s".into()), ("labels", Val::from([("hall", "east".into())]))]);
        let of = |kind: &str, pointer: &str| {
            let place = place(Kind::find(kind).expect("a kind"), pointer, &config);
            (place.path.to_string(), place.origin)
        };
        assert_eq!(of("Sample", "/spec/serial"), ("serial".to_owned(), None));
        assert_eq!(of("Sample", "/spec/count_wanted"), ("count_wanted".to_owned(), Some(LEFT_OUT)));
        assert_eq!(of("Sample", "/metadata/labels/hall"), (r#"labels["hall"]"#.to_owned(), None));
        assert_eq!(of("Sample", "/metadata/labels/team"), ("labels".to_owned(), Some(OF_DEFAULTS)));
        assert_eq!(of("Vlan", "/metadata/name"), ("name".to_owned(), Some(MADE)));
        assert_eq!(of("Zone", "/metadata/name"), ("name".to_owned(), None));
    }
}
