//! Errors in one line.

use std::error::Error;

/// Text that rustls puts before an error from Basalt's own code.
const EMPTY_WORDS: &str = "unexpected error: ";

/// An error with all its causes in order. A cause whose text is already in the line is not repeated.
#[must_use]
pub fn in_one_line(error: &dyn Error) -> String {
    let mut line = error.to_string().replace(EMPTY_WORDS, "");
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string().replace(EMPTY_WORDS, "");
        if !line.contains(&words) {
            line.push_str(": ");
            line.push_str(&words);
        }
        next = cause.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{words}")]
    struct Told {
        words: &'static str,
        source: Option<Box<Self>>,
    }

    fn told(words: &[&'static str]) -> String {
        let chain = words.iter().rev().fold(None, |source, words| Some(Box::new(Told { words, source })));
        in_one_line(&*chain.expect("an error"))
    }

    #[test]
    fn a_cause_is_told_once() {
        assert_eq!(
            told(&["cannot start", "no key", "the file is empty"]),
            "cannot start: no key: the file is empty"
        );
        assert_eq!(
            told(&["TLS cannot be spoken: unexpected error: no key", "unexpected error: no key"]),
            "TLS cannot be spoken: no key"
        );
        assert_eq!(
            told(&["no key", "unexpected error: no key", "the file is empty"]),
            "no key: the file is empty"
        );
    }
}
