//! Filters of data sources and queries: by labels, by a part of the name, and by field values.

use basalt_api::client::ListOptions;
use basalt_api::{Kind, Object, filter};
use tfplugin::{Attribute, Diag, Diags, Path, Type, Val};

use crate::map::{self, FILTER, LABELS, NAME_CONTAINS, WHERE};
use crate::natural::NaturalKey;

/// The filter of a configuration.
pub(crate) struct Filter {
    options: ListOptions,
    keys: Vec<NaturalKey>,
}

/// The attributes of the filter.
pub(crate) fn attributes() -> Vec<Attribute> {
    vec![
        Attribute::optional(LABELS, Type::map(Type::String)).doc("Only those that have all of these labels."),
        Attribute::optional(NAME_CONTAINS, Type::String).doc("Only those whose name contains this text."),
        Attribute::optional(FILTER, Type::String).doc(
            "Only those that fit this filter, which the region evaluates: `zone:row-1 cores>=32 status:waiting`. The console and \
             `basalt get --where` take the same.",
        ),
        Attribute::optional(WHERE, Type::map(Type::String)).doc(
            "Only those of which all of this holds: a field of the spec, or of the status as `status.FIELD`, and its value; those of \
             an object in it behind a dot. In a list, set or map any element may have it.",
        ),
    ]
}

/// The errors in the filter.
pub(crate) fn check(kind: &'static Kind, config: &Val) -> Diags {
    let mut diags = map::labels::check(config, LABELS);
    if let Err(wrong) = keys(kind, config) {
        diags.extend(wrong);
    }
    if let Some(Err(wrong)) = config.get(FILTER).as_str().map(|text| filter::Filter::new(kind, text)) {
        diags.push(Diag::error("Not a filter", format!("{wrong}.")).at(Path::root().attr(FILTER)));
    }
    diags
}

impl Filter {
    /// Reads the filter from its configuration.
    ///
    /// # Errors
    /// A name that is not a field of the kind.
    pub(crate) fn new(kind: &'static Kind, config: &Val) -> Result<Self, Diags> {
        let options = ListOptions {
            labels: map::labels::given(config.get(LABELS)),
            text: config.get(NAME_CONTAINS).as_str().map(str::to_owned),
            filter: config.get(FILTER).as_str().map(str::to_owned),
            ..ListOptions::default()
        };
        Ok(Self { options, keys: keys(kind, config)? })
    }

    /// The part of the filter that the region evaluates.
    pub(crate) fn options(&self) -> ListOptions {
        self.options.clone()
    }

    /// True if the region evaluates the whole filter.
    pub(crate) fn is_all_the_regions(&self) -> bool {
        self.keys.is_empty()
    }

    /// The part of the filter that the provider evaluates.
    pub(crate) fn fits(&self, object: &Object) -> bool {
        self.keys.iter().all(|key| key.is_of(object))
    }
}

fn keys(kind: &'static Kind, config: &Val) -> Result<Vec<NaturalKey>, Diags> {
    let (mut keys, mut diags) = (Vec::new(), Diags::default());
    for (path, value) in config.get(WHERE).as_map().into_iter().flatten() {
        match NaturalKey::of(kind, path, value.as_str().unwrap_or_default()) {
            Ok(key) => keys.push(key),
            Err(why) => diags.push(Diag::error("Not a field", why).at(Path::root().attr(WHERE).key(path))),
        }
    }
    if diags.is_empty() { Ok(keys) } else { Err(diags) }
}
