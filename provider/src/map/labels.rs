//! Labels: each tool has a layer of its own, and reads return all layers together.
//!
//! | attribute | holds | comes from |
//! | --- | --- | --- |
//! | `labels` | what the resource declares | the configuration |
//! | `labels_all` | these, and the provider's `default_labels` with other keys | both, at every plan |
//!
//! The provider writes `labels_all`. That follows from the configuration alone. So a label that is both in the resource and
//! in the defaults, or that another tool also set in the region, never plans a change.

use std::collections::BTreeMap;

use basalt_api::pointer::steps;
use basalt_api::validate_labels;
use basalt_api::wire::PutMetadata;
use tfplugin::{Diag, Diags, Object, Path, Val};

use super::{LABELS, LABELS_ALL};

/// The labels for a request. `None`, which keeps the region's labels, if neither the plan nor the prior state has any. If
/// only the prior state has labels, they are removed.
pub(crate) fn metadata(planned: &Val, prior: &Val) -> PutMetadata {
    let (labels, before) = (planned.get(LABELS_ALL), prior.get(LABELS_ALL));
    let is_said = (!labels.is_null() || !before.is_null()) && labels.is_wholly_known();
    PutMetadata { labels: is_said.then(|| given(labels)), ..PutMetadata::default() }
}

/// The labels that are given and known.
pub(crate) fn given(labels: &Val) -> BTreeMap<String, String> {
    let labels = labels.as_map().into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// The labels of a resource together with the provider's defaults; null if there are none.
pub(crate) fn all(defaults: &Val, labels: &Val) -> Val {
    if defaults.is_unknown() || labels.is_unknown() {
        return Val::Unknown;
    }
    let both = [defaults, labels].into_iter().filter_map(Val::as_map).flatten();
    none_if_empty(both.filter(|(_, value)| !value.is_null()).map(|(k, v)| (k.clone(), v.clone())).collect())
}

/// The errors in the labels of an attribute.
pub(crate) fn check(config: &Val, attribute: &str) -> Diags {
    let wrong = validate_labels(&given(config.get(attribute))).into_iter().map(|error| {
        let at = Path::root().attr(attribute);
        let at = steps(&error.pointer).next().map_or(at.clone(), |key| at.key(&key));
        Diag::error("Not a label", format!("{error}.")).at(at)
    });
    Diags(wrong.collect())
}

/// Refreshes the labels of a state from `all` labels of the object. Only labels that the prior state had are kept.
pub(crate) fn refresh(prior: &Val, all: &BTreeMap<String, String>, now: &mut Val) {
    now.set(LABELS, still_there(prior.get(LABELS), all));
    let ours = still_there(prior.get(LABELS_ALL), all);
    now.set(LABELS_ALL, none_if_empty(ours.as_map().cloned().unwrap_or_default()));
}

fn still_there(prior: &Val, all: &BTreeMap<String, String>) -> Val {
    let Some(known) = prior.as_map() else { return Val::Null };
    let now: Object =
        known.keys().filter_map(|key| Some((key.clone(), all.get(key)?.as_str().into()))).collect();
    Val::Map(now)
}

/// The labels of an imported object, from our layer. Labels that equal the provider's defaults need no declaration.
pub(crate) fn import(ours: &BTreeMap<String, String>, defaults: &Val, now: &mut Val) {
    let of = |labels: &mut dyn Iterator<Item = (&String, &String)>| {
        none_if_empty(labels.map(|(key, value)| (key.clone(), value.as_str().into())).collect())
    };
    now.set(LABELS_ALL, of(&mut ours.iter()));
    let is_declared = |(key, value): &(&String, &String)| defaults.get(key).as_str() != Some(value.as_str());
    now.set(LABELS, of(&mut ours.iter().filter(is_declared)));
}

fn none_if_empty(labels: Object) -> Val {
    if labels.is_empty() { Val::Null } else { Val::Map(labels) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A state or plan of a resource with these values of `labels` and `labels_all`.
    fn labelled(labels: Val, all: Val) -> Val {
        Val::from([(LABELS, labels), (LABELS_ALL, all)])
    }

    fn hall(value: &str) -> Val {
        Val::from([("hall", value.into())])
    }

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn labels_that_nobody_ever_declared_are_let_alone() {
        let none = labelled(Val::Null, Val::Null);
        let east = labelled(hall("east"), hall("east"));
        assert_eq!(metadata(&none, &Val::Null).labels, None);
        assert_eq!(metadata(&none, &east).labels, Some(BTreeMap::new()), "declared no more");
        assert_eq!(metadata(&east, &none).labels, Some(map(&[("hall", "east")])));
        assert_eq!(metadata(&labelled(Val::Null, hall("x")), &none).labels, Some(map(&[("hall", "x")])));
        assert_eq!(metadata(&labelled(Val::Unknown, Val::Unknown), &none).labels, None, "not known yet");
    }

    #[test]
    fn a_resource_says_more_than_the_defaults() {
        let defaults = Val::from([("hall", "west".into()), ("team", "metal".into())]);
        let both = Val::from([("hall", "east".into()), ("team", "metal".into())]);
        assert_eq!(all(&defaults, &hall("east")), both);
        assert_eq!(all(&defaults, &Val::Null), defaults);
        assert_eq!(all(&Val::Null, &hall("east")), hall("east"));
        assert_eq!(all(&Val::Null, &Val::Map(Object::new())), Val::Null);
        assert_eq!(all(&Val::Unknown, &hall("east")), Val::Unknown);
        assert_eq!(all(&hall("west"), &Val::from([("hall", Val::Null)])), hall("west"));
    }

    #[test]
    fn of_the_labels_that_are_there_only_our_own_are_seen() {
        let seen = |prior: Val, there: &[(&str, &str)]| {
            let mut now = labelled(Val::Null, Val::Null);
            refresh(&prior, &map(there), &mut now);
            now
        };
        let east = || labelled(hall("east"), hall("east"));
        let changed = labelled(hall("west"), hall("west"));
        assert_eq!(seen(east(), &[("hall", "west"), ("theirs", "x")]), changed);
        assert_eq!(seen(east(), &[]), labelled(Val::Map(Object::new()), Val::Null), "gone");
        let none = || labelled(Val::Null, Val::Null);
        assert_eq!(seen(none(), &[("theirs", "x")]), none());
    }

    #[test]
    fn what_is_imported_knows_the_labels_that_are_ours() {
        let mut now = labelled(Val::Null, Val::Null);
        let ours = map(&[("hall", "east"), ("team", "metal")]);
        let defaults = Val::from([("team", "metal".into())]);
        import(&ours, &defaults, &mut now);
        let both = Val::from([("hall", "east".into()), ("team", "metal".into())]);
        assert_eq!(now, labelled(hall("east"), both));
        import(&BTreeMap::new(), &defaults, &mut now);
        assert_eq!(now, labelled(Val::Null, Val::Null));
    }
}
