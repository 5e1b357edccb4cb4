//! Options of a kernel, of all who give some.

/// Joins the options of all sources. A kernel lets a later option count before an earlier one.
///
/// Several sources may name the same console. The last place counts, since the last console is `/dev/console`; the others are left out.
#[must_use]
pub fn kernel_options<'a>(sources: impl IntoIterator<Item = Option<&'a str>>) -> String {
    let given: Vec<&str> = sources.into_iter().flatten().filter(|options| !options.is_empty()).collect();
    let all = given.join(" ");
    // Words in quotes may contain spaces: every other word stays as it is.
    let words: Vec<&str> = all.split(' ').collect();
    let comes_again = |at: usize, word: &str| {
        word.starts_with("console=") && words.iter().skip(at + 1).any(|later| *later == word)
    };
    let kept = words.iter().enumerate().filter(|(at, word)| !comes_again(*at, word)).map(|(_, word)| *word);
    kept.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::kernel_options;

    #[test]
    fn a_console_is_named_once_and_the_last_place_counts() {
        let sources = [Some("console=ttyS0 quiet"), None, Some(""), Some("console=tty0 console=ttyS0")];
        assert_eq!(kernel_options(sources), "quiet console=tty0 console=ttyS0");
    }

    #[test]
    fn other_words_stay_as_they_are_given() {
        let sources = [Some("a=1 dyndbg=\"file x +p\""), Some("a=2  a=1 dyndbg=\"file y +p\"")];
        assert_eq!(kernel_options(sources), "a=1 dyndbg=\"file x +p\" a=2  a=1 dyndbg=\"file y +p\"");
    }
}
