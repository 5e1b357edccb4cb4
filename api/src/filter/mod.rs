//! Filters of lists: one line of text that selects objects. `docs/concepts/filters.md` has the grammar.
//!
//! | module | is |
//! | --- | --- |
//! | [`language`] | the text as terms, each with its place |
//! | [`fields`] | the keys of each kind, and the values that an object has for them |
//! | [`state`] | the state of an object, in the words that people see |
//! | [`number`] | numbers and sizes |
//! | [`narrow`] | the part that a database can answer by columns |
//!
//! The console has the same in `controller/ui/src/filter`. `vectors.json` holds the cases that both are tested by.

mod fields;
mod language;
mod narrow;
mod number;
mod state;
#[cfg(test)]
mod tests;

pub use narrow::Narrowing;

use crate::schema::Kind;
use fields::Field;
use language::{Op, Term, Wanted};
use serde_json::Value;

/// Most bytes of a filter.
pub const MAX_FILTER_BYTES: usize = 2000;
/// Most terms of a filter. A term without a key searches the whole text of each object.
pub const MAX_TERMS: usize = 32;
/// Most values of all terms.
pub const MAX_VALUES: usize = 200;

/// An error in a filter, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Position of the error in characters, from 1.
    pub at: usize,
    /// The error at that position.
    pub message: String,
    /// A valid form.
    pub hint: String,
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "at character {}: {}; {}", self.at, self.message, self.hint)
    }
}

impl std::error::Error for Wrong {}

/// A filter of the objects of one kind.
#[derive(Debug)]
pub struct Filter {
    kind: &'static Kind,
    tests: Vec<Test>,
}

/// A term, and the field that its key names.
#[derive(Debug)]
struct Test {
    field: Field,
    op: Op,
    values: Vec<Wanted>,
}

impl Filter {
    /// Reads a filter.
    ///
    /// # Errors
    /// The first bad term: unfinished, of an unknown field, or a comparison without a number.
    pub fn new(kind: &'static Kind, text: &str) -> Result<Self, Wrong> {
        if text.len() > MAX_FILTER_BYTES {
            let message = format!("the filter has {} bytes", text.len());
            return Err(Wrong { at: 1, message, hint: format!("at most {MAX_FILTER_BYTES}") });
        }
        let terms = language::terms(text)?;
        let values = terms.iter().map(|term| term.values.len()).sum::<usize>();
        if terms.len() > MAX_TERMS || values > MAX_VALUES {
            let message = format!("the filter has {} terms and {values} values", terms.len());
            return Err(Wrong {
                at: 1,
                message,
                hint: format!("at most {MAX_TERMS} terms and {MAX_VALUES} values"),
            });
        }
        Ok(Self {
            kind,
            tests: terms.into_iter().map(|term| Test::new(kind, term)).collect::<Result<_, _>>()?,
        })
    }

    /// True if an object, in its API form, meets all terms of the filter.
    #[must_use]
    pub fn fits(&self, object: &Value) -> bool {
        self.tests.iter().all(|test| test.holds(self.kind, object))
    }
}

impl Test {
    fn new(kind: &'static Kind, term: Term) -> Result<Self, Wrong> {
        let Term { key, op, values, at } = term;
        let wrong = |message: String, hint: String| Wrong { at, message, hint };
        let Some(key) = key else { return Ok(Self { field: Field::Text, op, values }) };
        let field = fields::find(kind, &key).map_err(|(message, hint)| wrong(message, hint))?;
        if op.compares() && field.number().is_none() {
            return Err(wrong(format!("{key} is no number"), format!("{key}:VALUE, or {key}!=VALUE")));
        }
        if let Some(read) = field.number().filter(|_| op.compares() || field.is_number())
            && let Some(value) = values.iter().find(|value| read(&value.text).is_none())
        {
            let hint = format!("like {key}>=32, or {key}>=64GiB for a size");
            return Err(wrong(format!("{key} is a number, and {} is none", value.text), hint));
        }
        Ok(Self { field, op, values })
    }

    fn holds(&self, kind: &Kind, object: &Value) -> bool {
        let Self { field, op, values } = self;
        if matches!(field, Field::Text) {
            let text = fields::text(kind, object);
            return values.iter().all(|value| text.contains(&value.text.to_lowercase()));
        }
        if let Some(read) = field.number().filter(|_| op.compares() || field.is_number()) {
            let numbers = field.numbers(object);
            let has = |value: &Wanted| {
                let op = if value.exact { Op::Is } else { *op };
                read(&value.text).is_some_and(|wanted| numbers.iter().any(|is| op.compare(*is, wanted)))
            };
            return !numbers.is_empty() && one_of(values, has);
        }
        let found: Vec<String> = field.values(object).iter().map(|it| it.to_lowercase()).collect();
        one_of(values, |Wanted { text, exact, .. }| {
            let word = text.to_lowercase();
            found.iter().any(|it| if *exact { *it == word } else { it.contains(&word) })
        })
    }
}

/// True if at least one wanted value holds, or none is wanted, and no excluded value holds.
fn one_of(values: &[Wanted], has: impl Fn(&Wanted) -> bool) -> bool {
    let mut wanted = values.iter().filter(|value| !value.not).peekable();
    let is_one = wanted.peek().is_none() || wanted.any(&has);
    is_one && !values.iter().any(|value| value.not && has(value))
}
