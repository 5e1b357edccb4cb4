//! The part of a filter that a database can answer by columns.

use super::Filter;
use super::fields::Field;
use super::language::Wanted;

/// Necessary conditions for objects that fit; other objects may meet them too. Patterns of SQL's `like`, in lower case. `None`: no
/// condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Narrowing {
    /// The name of an object.
    pub names: Option<Vec<String>>,
    /// The zone of a machine.
    pub zones: Option<Vec<String>>,
    /// The pool of a machine.
    pub pools: Option<Vec<String>>,
    /// The key of a label, and patterns of its value.
    pub label: Option<(String, Vec<String>)>,
}

impl Filter {
    /// The conditions that a database can answer.
    #[must_use]
    pub fn narrowing(&self) -> Narrowing {
        let mut all = Narrowing::default();
        for test in &self.tests {
            let Some(patterns) = patterns(&test.values) else { continue };
            let place = match test.field.column() {
                Some("name") => &mut all.names,
                Some("zone") => &mut all.zones,
                Some("pool") => &mut all.pools,
                _ => {
                    if let Field::Label(key) = &test.field {
                        all.label.get_or_insert_with(|| (key.clone(), patterns));
                    }
                    continue;
                }
            };
            place.get_or_insert(patterns);
        }
        all
    }
}

/// Patterns of the wanted values. `None` if values are only excluded, or if the database may change case differently.
fn patterns(values: &[Wanted]) -> Option<Vec<String>> {
    let wanted: Vec<&Wanted> = values.iter().filter(|value| !value.not).collect();
    let is_ascii = wanted.iter().all(|value| value.text.is_ascii());
    (!wanted.is_empty() && is_ascii).then(|| wanted.into_iter().map(pattern).collect())
}

fn pattern(Wanted { text, exact, .. }: &Wanted) -> String {
    let mut escaped = String::with_capacity(text.len());
    for sign in text.to_lowercase().chars() {
        if matches!(sign, '%' | '_' | '\\') {
            escaped.push('\\');
        }
        escaped.push(sign);
    }
    if *exact { escaped } else { format!("%{escaped}%") }
}
