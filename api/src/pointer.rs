//! JSON pointers (RFC 6901), which name the place of an error or a change.

/// `word` as one step of a pointer.
#[must_use]
pub fn escape(word: &str) -> String {
    word.replace('~', "~0").replace('/', "~1")
}

/// The pointer to `word` below `parent`.
#[must_use]
pub fn child(parent: &str, word: &str) -> String {
    format!("{parent}/{}", escape(word))
}

/// The unescaped steps of a pointer.
pub fn steps(pointer: &str) -> impl Iterator<Item = String> + '_ {
    pointer.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~"))
}

/// True if `pointer` equals `ancestor` or lies below it.
#[must_use]
pub fn is_within(pointer: &str, ancestor: &str) -> bool {
    pointer.strip_prefix(ancestor).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_and_tildes_survive() {
        let pointer = child(&child("", "a/b"), "c~d");
        assert_eq!(pointer, "/a~1b/c~0d");
        assert_eq!(steps(&pointer).collect::<Vec<_>>(), ["a/b", "c~d"]);
        assert!(is_within("/a/b", "/a") && is_within("/a", "/a") && !is_within("/ab", "/a"));
    }
}
