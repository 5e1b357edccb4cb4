//! The text of a filter as terms.

use super::Wrong;

/// How a term compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// `:`. A text contains it; a number is at least this.
    Has,
    /// `=`
    Is,
    /// `!=`
    IsNot,
    /// `>`
    Above,
    /// `>=`
    AtLeast,
    /// `<`
    Below,
    /// `<=`
    AtMost,
}

/// Signs of comparisons. A longer sign stands before its own beginning: `>=` before `>`.
const OPS: [(&str, Op); 7] = [
    (">=", Op::AtLeast),
    ("<=", Op::AtMost),
    ("!=", Op::IsNot),
    (":", Op::Has),
    ("=", Op::Is),
    (">", Op::Above),
    ("<", Op::Below),
];

impl Op {
    /// True if the operator is only for numbers.
    pub(super) const fn compares(self) -> bool {
        matches!(self, Self::Above | Self::AtLeast | Self::Below | Self::AtMost)
    }

    pub(super) fn compare(self, is: f64, wanted: f64) -> bool {
        match self {
            Self::Is | Self::IsNot => is == wanted,
            Self::Above => is > wanted,
            Self::Below => is < wanted,
            Self::AtMost => is <= wanted,
            Self::Has | Self::AtLeast => is >= wanted,
        }
    }
}

/// A value of a term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) text: String,
    /// The whole value must be equal, not only a part.
    pub(super) exact: bool,
    /// The value excludes an object.
    pub(super) not: bool,
}

/// One condition of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Term {
    /// `None` for words without a key. In lower case, except for paths and labels.
    pub(super) key: Option<String>,
    pub(super) op: Op,
    pub(super) values: Vec<Wanted>,
    /// Position of its first character, from 1.
    pub(super) at: usize,
}

/// Prefixes of keys that are case-sensitive.
const AS_WRITTEN: [&str; 5] = ["label-", "label.", "metadata.", "spec.", "status."];

struct Reader {
    signs: Vec<char>,
    at: usize,
}

/// The terms of a text.
pub(super) fn terms(text: &str) -> Result<Vec<Term>, Wrong> {
    let mut reader = Reader { signs: text.chars().collect(), at: 0 };
    let mut terms = Vec::new();
    while let Some(sign) = reader.sign() {
        if sign.is_whitespace() {
            reader.at = reader.at.saturating_add(1);
            continue;
        }
        terms.push(reader.term()?);
    }
    Ok(terms)
}

impl Reader {
    fn sign(&self) -> Option<char> {
        self.signs.get(self.at).copied()
    }

    fn takes(&mut self, text: &str) -> bool {
        let is_there = text
            .chars()
            .enumerate()
            .all(|(i, sign)| self.signs.get(self.at.saturating_add(i)) == Some(&sign));
        if is_there {
            self.at = self.at.saturating_add(text.chars().count());
        }
        is_there
    }

    /// The position of a character, counted from 1.
    const fn place(at: usize) -> usize {
        at.saturating_add(1)
    }

    fn term(&mut self) -> Result<Term, Wrong> {
        let start = self.at;
        let key = self.key();
        let op = match key.is_empty() {
            true => None,
            false => OPS.iter().find(|(sign, _)| self.takes(sign)).map(|(_, op)| *op),
        };
        let at = Self::place(start);
        let Some(op) = op else {
            self.at = start;
            let text = self.quoted(char::is_whitespace)?;
            let word = Wanted { text, exact: false, not: false };
            let values = Some(word).filter(|word| !word.text.is_empty()).into_iter().collect();
            return Ok(Term { key: None, op: Op::Has, values, at });
        };
        let key = match AS_WRITTEN.iter().any(|head| key.starts_with(head)) {
            true => key,
            false => key.to_lowercase(),
        };
        let values = self.values(op)?;
        if values.is_empty() {
            let message = format!("{key} has no value");
            return Err(Wrong { at, message, hint: format!("like {key}:VALUE, without a space between") });
        }
        Ok(Term { key: Some(key), op, values, at })
    }

    /// The key at this position, if there is one.
    fn key(&mut self) -> String {
        let start = self.at;
        let is_first = |sign: char| sign.is_ascii_alphabetic() || sign == '_';
        let is_of_key = |sign: char| sign.is_ascii_alphanumeric() || "_./*-".contains(sign);
        if self.sign().is_some_and(is_first) {
            while self.sign().is_some_and(is_of_key) {
                self.at = self.at.saturating_add(1);
            }
        }
        self.signs.get(start..self.at).unwrap_or_default().iter().collect()
    }

    fn values(&mut self, op: Op) -> Result<Vec<Wanted>, Wrong> {
        let not = self.takes("!");
        let group = self.at;
        let is_group = self.takes("(");
        let mut values = Vec::new();
        loop {
            while is_group && self.sign().is_some_and(char::is_whitespace) {
                self.at = self.at.saturating_add(1);
            }
            let mut value = Wanted {
                text: String::new(),
                exact: matches!(op, Op::Is | Op::IsNot),
                not: not || op == Op::IsNot,
            };
            loop {
                if self.takes("=") {
                    value.exact = true;
                } else if self.takes("!") {
                    value.not = true;
                } else {
                    break;
                }
            }
            let text = match is_group {
                true => self.quoted(|sign| sign == ',' || sign == ')')?,
                false => self.quoted(|sign| sign == ',' || sign.is_whitespace())?,
            };
            text.trim().clone_into(&mut value.text);
            if !value.text.is_empty() {
                values.push(value);
            }
            if !self.takes(",") {
                break;
            }
        }
        if is_group && !self.takes(")") {
            let message = "the parenthesis that opens here is not closed".to_owned();
            return Err(Wrong {
                at: Self::place(group),
                message,
                hint: "like zone:(row-1,row-2)".to_owned(),
            });
        }
        Ok(values)
    }

    /// Text up to one of `stops` outside of quotes.
    fn quoted(&mut self, stops: impl Fn(char) -> bool) -> Result<String, Wrong> {
        let (mut said, mut opened) = (String::new(), None);
        while let Some(sign) = self.sign() {
            match sign {
                '"' => opened = if opened.is_some() { None } else { Some(self.at) },
                _ if opened.is_none() && stops(sign) => break,
                _ => said.push(sign),
            }
            self.at = self.at.saturating_add(1);
        }
        match opened {
            None => Ok(said),
            Some(at) => Err(Wrong {
                at: Self::place(at),
                message: "the quote that opens here is not closed".to_owned(),
                hint: "like \"two words\"".to_owned(),
            }),
        }
    }
}
