//! Labels: each tool's are a layer of their own, and what is read are all layers together.

use std::collections::BTreeMap;

use basalt_api::pointer::steps;
use basalt_api::validate_labels;
use basalt_api::wire::PutMetadata;
use tfplugin::{Diag, Diags, Object, Path, Val};

use super::LABELS;

/// What a configuration or plan says of the labels. Without any they stay as they are, unless there were some: then they go.
pub(crate) fn metadata(planned: &Val, prior: &Val) -> PutMetadata {
    let (labels, before) = (planned.get(LABELS), prior.get(LABELS));
    let is_said = (!labels.is_null() || !before.is_null()) && labels.is_wholly_known();
    PutMetadata { labels: is_said.then(|| given(planned)), ..PutMetadata::default() }
}

/// Those that are given and known.
pub(crate) fn given(config: &Val) -> BTreeMap<String, String> {
    let labels = config.get(LABELS).as_map().into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// What is wrong with those of a configuration.
pub(crate) fn check(config: &Val) -> Diags {
    let wrong = validate_labels(&given(config)).into_iter().map(|error| {
        let at = Path::root().attr(LABELS);
        let at = steps(&error.pointer).next().map_or(at.clone(), |key| at.key(&key));
        Diag::error("Not a label", format!("{error}.")).at(at)
    });
    Diags(wrong.collect())
}

/// Of the labels that an object has, those that a state knew.
pub(crate) fn still_there(prior: &Val, all: &BTreeMap<String, String>) -> Val {
    let Some(known) = prior.get(LABELS).as_map() else { return Val::Null };
    let now: Object =
        known.keys().filter_map(|key| Some((key.clone(), all.get(key)?.as_str().into()))).collect();
    Val::Map(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labelled(labels: Val) -> Val {
        Val::from([(LABELS, labels)])
    }

    fn hall(value: &str) -> Val {
        labelled(Val::from([("hall", value.into())]))
    }

    #[test]
    fn labels_that_nobody_ever_declared_are_let_alone() {
        let none = labelled(Val::Null);
        assert_eq!(metadata(&none, &Val::Null).labels, None);
        assert_eq!(metadata(&none, &hall("east")).labels, Some(BTreeMap::new()), "declared no more");
        let east = BTreeMap::from([("hall".to_owned(), "east".to_owned())]);
        assert_eq!(metadata(&hall("east"), &none).labels, Some(east));
        assert_eq!(metadata(&labelled(Val::Unknown), &none).labels, None, "not known yet");
    }

    #[test]
    fn of_the_labels_that_are_there_only_our_own_are_seen() {
        let all =
            BTreeMap::from([("hall".to_owned(), "west".to_owned()), ("theirs".to_owned(), "x".to_owned())]);
        assert_eq!(still_there(&hall("east"), &all), Val::from([("hall", "west".into())]), "changed");
        assert_eq!(still_there(&hall("east"), &BTreeMap::new()), Val::Map(Object::new()), "gone");
        assert_eq!(still_there(&labelled(Val::Null), &all), Val::Null);
    }
}
