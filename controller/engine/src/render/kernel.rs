//! Joins kernel options from several sources.

/// Joins the options of all sources. The kernel prefers a later option to an earlier one.
///
/// If several sources name the same console, only the last option for that device is kept, at its place. Its speed applies, and the last
/// console becomes `/dev/console`.
#[must_use]
pub fn kernel_options<'a>(sources: impl IntoIterator<Item = Option<&'a str>>) -> String {
    let given: Vec<&str> = sources.into_iter().flatten().filter(|options| !options.is_empty()).collect();
    let all = given.join(" ");
    // A space between quotes does not end a word.
    let mut is_quoted = false;
    let ends_word = |it: char| {
        is_quoted ^= it == '"';
        it == ' ' && !is_quoted
    };
    let words: Vec<&str> = all.split(ends_word).collect();
    let comes_again = |at: usize, device: &str| {
        words.iter().skip(at + 1).any(|later| console_device(later) == Some(device))
    };
    let kept = words.iter().enumerate().filter(|(at, word)| {
        let device = console_device(word);
        !device.is_some_and(|device| comes_again(*at, device))
    });
    kept.map(|(_, word)| *word).collect::<Vec<_>>().join(" ")
}

/// The device of a console option: `ttyS0` for `console=ttyS0,115200n8`.
fn console_device(word: &str) -> Option<&str> {
    word.strip_prefix("console=")?.split(',').next()
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
    fn the_last_speed_of_a_console_counts() {
        let options = |image, machine| kernel_options([Some(image), Some(machine)]);
        assert_eq!(options("console=ttyS0", "console=ttyS0,115200n8"), "console=ttyS0,115200n8");
        assert_eq!(options("console=ttyS0,9600 quiet", "console=ttyS0"), "quiet console=ttyS0");
        assert_eq!(options("console=ttyS0", "console=ttyS01"), "console=ttyS0 console=ttyS01");
    }

    #[test]
    fn other_words_stay_as_they_are_given() {
        let sources = [Some("a=1 dyndbg=\"file x +p\""), Some("a=2  a=1 dyndbg=\"file y +p\"")];
        assert_eq!(kernel_options(sources), "a=1 dyndbg=\"file x +p\" a=2  a=1 dyndbg=\"file y +p\"");
        let quoted = "note=\"on console=ttyS0 it is\"";
        assert_eq!(kernel_options([Some(quoted), Some("console=ttyS0")]), format!("{quoted} console=ttyS0"));
    }
}
