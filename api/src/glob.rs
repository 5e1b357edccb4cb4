//! Patterns of texts: `*` stands for any text and `?` for one byte. fnmatch(3) knows sets, `[a-z]`, as well.

/// True if the pattern matches the whole text.
#[must_use]
pub fn matches(pattern: &str, text: &str) -> bool {
    walk(pattern.as_bytes(), text.as_bytes(), one)
}

/// True if the pattern matches the whole text. `[…]` stands for one byte of a set. A `[` without its `]` matches nothing.
#[must_use]
pub fn fnmatch(pattern: &str, text: &str) -> bool {
    walk(pattern.as_bytes(), text.as_bytes(), one_or_set)
}

/// The rests of the pattern and of the text.
type Rests<'p, 't> = (&'p [u8], &'t [u8]);

/// Compares piece by piece. The number of steps is at most the product of both lengths: once a later `*` is reached, an earlier one is
/// never tried again.
fn walk(
    mut pattern: &[u8],
    mut text: &[u8],
    first: for<'p, 't> fn(&'p [u8], &'t [u8]) -> Option<Rests<'p, 't>>,
) -> bool {
    // After the last `*`: the rest of the pattern, and the text that it was tried at.
    let mut last: Option<Rests<'_, '_>> = None;
    loop {
        if let Some((b'*', rest)) = pattern.split_first() {
            pattern = rest;
            last = Some((rest, text));
        } else if pattern.is_empty() && text.is_empty() {
            return true;
        } else if let Some(rests) = first(pattern, text) {
            (pattern, text) = rests;
        } else {
            let Some((rest, (_, shorter))) = last.and_then(|(rest, at)| Some((rest, at.split_first()?)))
            else {
                return false;
            };
            last = Some((rest, shorter));
            (pattern, text) = (rest, shorter);
        }
    }
}

/// The rests after the first byte of both, if it is the same or `?`.
fn one<'p, 't>(pattern: &'p [u8], text: &'t [u8]) -> Option<Rests<'p, 't>> {
    let (wanted, pattern) = pattern.split_first()?;
    let (byte, text) = text.split_first()?;
    (*wanted == b'?' || wanted == byte).then_some((pattern, text))
}

/// As [`one`], with sets.
fn one_or_set<'p, 't>(pattern: &'p [u8], text: &'t [u8]) -> Option<Rests<'p, 't>> {
    let Some((b'[', rest)) = pattern.split_first() else { return one(pattern, text) };
    let (byte, text) = text.split_first()?;
    let (set, rest) = rest.split_at(rest.iter().position(|it| *it == b']')?);
    in_set(set, *byte).then_some((rest.get(1..)?, text))
}

fn in_set(set: &[u8], byte: u8) -> bool {
    match set {
        [low, b'-', high, rest @ ..] => (*low..=*high).contains(&byte) || in_set(rest, byte),
        [one, rest @ ..] => *one == byte || in_set(rest, byte),
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_pattern_is_the_whole_text() {
        for (pattern, text, wanted) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("?", "", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("*ab", "aab", true),
            ("a?c", "abc", true),
            ("a?", "a", false),
            ("web", "web-1", false),
            ("web-*", "web-", true),
            ("ACME [OEM]*", "ACME [OEM] 3", true),
        ] {
            assert_eq!(matches(pattern, text), wanted, "{pattern} {text}");
        }
    }

    #[test]
    fn fnmatch_knows_sets() {
        for (pattern, text, wanted) in [
            ("a*b?c", "aXbYbZc", true),
            ("IPI000[1-3x]:*", "IPI0002:", true),
            ("IPI000[1-3x]:*", "IPI000x:", true),
            ("IPI000[1-3x]:*", "IPI0004:", false),
            ("a[b", "ab", false),
            ("[[]a]", "[a]", true),
        ] {
            assert_eq!(fnmatch(pattern, text), wanted, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_cost_no_more_than_their_length() {
        let began = Instant::now();
        assert!(!matches(&"*a".repeat(120), &"a".repeat(119)));
        assert!(!fnmatch(&format!("{}b", "*a".repeat(100)), &"a".repeat(4000)));
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}
