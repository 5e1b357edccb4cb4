//! Questions to a person before data is destroyed, a system is cut off or an object is taken over.

use std::io::{BufRead, IsTerminal};

use crate::region::Failed;

/// Asks, and continues only after `yes`.
pub(crate) fn confirm(question: &str, otherwise: &str) -> Result<(), Failed> {
    // Tests must not ask, even if a person runs them at a terminal.
    if cfg!(test) || !std::io::stdin().is_terminal() {
        return Err(Failed::Words("nobody is there to ask; --yes goes on without asking".to_owned()));
    }
    eprint!("{question} Only yes does: ");
    let mut answer = String::new();
    let _nothing_is_no = std::io::stdin().lock().read_line(&mut answer);
    match answer.trim() {
        "yes" => Ok(()),
        _ => Err(Failed::Words(otherwise.to_owned())),
    }
}
