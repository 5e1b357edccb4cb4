//! Validation of labels.

use crate::problem::{FieldCode, FieldError};
use std::collections::BTreeMap;

/// Most labels of one manager on one object.
const MAX_LABELS: usize = 64;

/// Most bytes of a label's key.
const MAX_KEY_BYTES: usize = 63;

/// Most bytes of a label's value.
const MAX_VALUE_BYTES: usize = 255;

/// The errors in these labels. Pointers are into the labels.
#[must_use]
pub fn validate_labels(labels: &BTreeMap<String, String>) -> Vec<FieldError> {
    if labels.len() > MAX_LABELS {
        let message = format!("these are {} labels", labels.len());
        let hint = format!("at most {MAX_LABELS} of one manager");
        return vec![FieldError::new("", FieldCode::TooLarge, message, hint)];
    }
    labels.iter().filter_map(|(key, value)| wrong_key(key).or_else(|| wrong_value(key, value))).collect()
}

fn wrong_key(key: &str) -> Option<FieldError> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"._/-".contains(&b);
    let right = (1..=MAX_KEY_BYTES).contains(&key.len())
        && key.bytes().all(fits)
        && key.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
    (!right).then(|| {
        let start: String = key.chars().take(MAX_KEY_BYTES).collect();
        let message = format!("{start:?} is no key of a label");
        let hint = "1 to 63 letters, digits, '.', '_', '/' and '-', the first a letter or a digit";
        FieldError::new("", FieldCode::Format, message, hint)
    })
}

fn wrong_value(key: &str, value: &str) -> Option<FieldError> {
    let pointer = format!("/{}", key.replace('/', "~1"));
    if value.len() > MAX_VALUE_BYTES {
        let message = format!("the label {key} has {} bytes", value.len());
        return Some(FieldError::new(pointer, FieldCode::TooLarge, message, "at most 255 bytes"));
    }
    value.chars().any(|c| c.is_control() || c == ',').then(|| {
        let message = format!("the label {key} is {value:?}");
        FieldError::new(pointer, FieldCode::Format, message, "no commas, and no control characters")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(key: &str, value: &str) -> Option<String> {
        validate_labels(&BTreeMap::from([(key.to_owned(), value.to_owned())]))
            .pop()
            .map(|error| error.pointer)
    }

    #[test]
    fn labels_are_words_that_a_selector_can_name() {
        for (key, value) in [("a", ""), ("example.com/row-1", "Höhe 3 = oben"), ("9", &"x".repeat(255))] {
            assert_eq!(wrong(key, value), None, "{key} {value}");
        }
        for key in ["", "a b", "a=b", "a,b", "-a", "é", "a\0", &"x".repeat(64)] {
            assert_eq!(wrong(key, "").as_deref(), Some(""), "{key:?}");
        }
        for value in ["a,b", "a\0", "a\nb", &"x".repeat(256)] {
            assert_eq!(wrong("x/y", value).as_deref(), Some("/x~1y"), "{value:?}");
        }
        let many = (0..65).map(|n| (n.to_string(), String::new())).collect();
        assert_eq!(validate_labels(&many).len(), 1);
    }
}
