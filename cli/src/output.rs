//! Standard output and standard error. They escape text from the API, so that no such text can move the cursor or forge a line.
//!
//! | text | on a terminal | in a pipe |
//! | --- | --- | --- |
//! | tables and sentences ([`show`], [`say`]) | printable | printable |
//! | JSON, and outputs of scripts ([`show_exactly`]) | printable | as it is |
//!
//! Line breaks and tabs stay in all of them. One cell or one sentence is a line: [`line`] escapes its line breaks too.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};

pub(crate) use basalt_api::values::printable_line as line;
use basalt_api::values::printable_lines;

/// Writes tables and sentences to standard output. A reader that ends early (`basalt explain … | head`) is no failure.
pub(crate) fn show(text: &str) {
    let _read_enough = std::io::stdout().write_all(printable_lines(text).as_bytes());
}

/// Writes text for programs to standard output: byte for byte, except on a terminal.
pub(crate) fn show_exactly(text: &str) {
    let mut output = std::io::stdout();
    let text = exactly(text, output.is_terminal());
    let _read_enough = output.write_all(text.as_bytes());
}

/// Writes JSON for programs, over several lines.
pub(crate) fn show_json(value: &impl serde::Serialize) {
    show_exactly(&format!("{}\n", serde_json::to_string_pretty(value).unwrap_or_default()));
}

/// Writes a sentence to standard error.
pub(crate) fn say(text: &str) {
    let _nobody_listens = writeln!(std::io::stderr(), "{}", printable_lines(text));
}

fn exactly(text: &str, is_terminal: bool) -> Cow<'_, str> {
    if is_terminal { printable_lines(text) } else { Cow::Borrowed(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_script_said_is_raw_in_a_pipe_alone() {
        let said = "1 %\r\u{1b}[31mred\u{1b}[0m\tdone\n";
        assert_eq!(exactly(said, false), said);
        assert_eq!(exactly(said, true), "1 %<U+000D><U+001B>[31mred<U+001B>[0m\tdone\n");
    }
}
