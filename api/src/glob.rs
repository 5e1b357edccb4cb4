//! Patterns as fnmatch(3) knows them: `*`, `?` and `[…]`.

/// Tells if a pattern matches a whole text. The steps are at most the product of both lengths: an earlier `*` never has to take more
/// once a later one is reached. A `[` without its `]` matches nothing.
#[must_use]
pub fn matches(mut pattern: &[u8], mut text: &[u8]) -> bool {
    // After the last `*`: the rest of the pattern, and the text that it was tried at.
    let mut last: Option<(&[u8], &[u8])> = None;
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

/// The rests after the first byte of the text, if the first piece of the pattern matches it.
fn first<'p, 't>(pattern: &'p [u8], text: &'t [u8]) -> Option<(&'p [u8], &'t [u8])> {
    let (wanted, rest) = pattern.split_first()?;
    let (byte, text) = text.split_first()?;
    match wanted {
        b'?' => Some((rest, text)),
        b'[' => {
            let (set, rest) = rest.split_at(rest.iter().position(|it| *it == b']')?);
            in_set(set, *byte).then_some((rest.get(1..)?, text))
        }
        _ => (wanted == byte).then_some((rest, text)),
    }
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
    fn stars_questions_and_sets_match_as_in_fnmatch() {
        for (pattern, text, wanted) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("*ab", "aab", true),
            ("a?c", "abc", true),
            ("a?", "a", false),
            ("IPI000[1-3x]:*", "IPI0002:", true),
            ("IPI000[1-3x]:*", "IPI000x:", true),
            ("IPI000[1-3x]:*", "IPI0004:", false),
            ("a[b", "ab", false),
            ("[[]a]", "[a]", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), wanted, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_cost_no_more_than_their_length() {
        let began = Instant::now();
        assert!(!matches("*a".repeat(120).as_bytes(), "a".repeat(119).as_bytes()));
        assert!(!matches(format!("{}b", "*a".repeat(100)).as_bytes(), "a".repeat(4000).as_bytes()));
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}
