//! Commands in README, the manual and the examples. The tests of each program parse them, so that no documented command is refused.
//!
//! | a page has | it is |
//! | --- | --- |
//! | a line in a code block | a whole command |
//! | a code block with lines that begin with `$ ` | an excerpt of a session: those lines are commands, the others are output |
//! | a code block with another language, or `text` | no command |
//! | lines from `<<WORD` to `WORD` | a file that a command reads |
//! | code within a sentence | a command that may lack words |
//!
//! Decisions are not read, because they describe the past.

use std::path::{Path, PathBuf};

/// A command of a page.
#[derive(Debug)]
pub(crate) struct Documented {
    /// File and line, for messages.
    pub(crate) place: String,
    /// The program and its words.
    pub(crate) words: Vec<String>,
    /// True in a code block, where a command is complete.
    pub(crate) is_whole: bool,
}

/// The commands of programs.
pub(crate) fn commands(is_program: impl Fn(&str) -> bool) -> Vec<Documented> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|dir| dir.join("Cargo.lock").exists());
    let top = top.expect("the repository");
    let found: Vec<_> = pages(top).iter().flat_map(|page| of_page(top, page)).collect();
    let is_meant = |it: &Documented| {
        // `basalt = { … }` is no command.
        it.words.first().is_some_and(|word| is_program(word))
            && it.words.get(1).is_none_or(|word| word != "=")
    };
    found.into_iter().filter(is_meant).collect()
}

fn pages(top: &Path) -> Vec<PathBuf> {
    let folders = ["", "docs", "docs/concepts", "docs/guides", "provider/docs", "provider/docs/guides"];
    let mut folders: Vec<_> = folders.iter().map(|folder| top.join(folder)).collect();
    folders.extend(entries(&top.join("examples")));
    let files = folders.iter().flat_map(|folder| entries(folder));
    files.filter(|path| path.extension().is_some_and(|end| end == "md")).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|it| it.path()).collect();
    found.sort();
    found
}

fn of_page(top: &Path, page: &Path) -> Vec<Documented> {
    let text = std::fs::read_to_string(page).expect("a page");
    let name = page.strip_prefix(top).expect("a page of the repository").display();
    let lines: Vec<_> = text.lines().collect();
    let mut found = Vec::new();
    let mut number = 0;
    while let Some(line) = lines.get(number) {
        number += 1;
        let place = |number: usize| format!("{name}:{number}");
        let Some(language) = line.strip_prefix("```") else {
            let spans = line.split('`').skip(1).step_by(2);
            // Code with alternatives stands for several commands.
            let spans = spans.filter(|span| !span.contains(['|', '…', '[']));
            found.extend(spans.map(|span| Documented {
                place: place(number),
                words: words(span),
                is_whole: false,
            }));
            continue;
        };
        let block: Vec<_> = lines.iter().skip(number).take_while(|line| !line.starts_with("```")).collect();
        let is_session = block.iter().any(|line| line.starts_with("$ "));
        let mut command = String::new();
        let mut document = None;
        for (at, line) in block.iter().enumerate() {
            if let Some(end) = document {
                document = (**line != end).then_some(end);
                continue;
            }
            document = line.split_once("<<").map(|(_, end)| end);
            let line = match (is_session, line.strip_prefix("$ ")) {
                (true, None) if command.is_empty() => continue,
                (_, rest) => rest.unwrap_or(line),
            };
            match line.strip_suffix('\\') {
                Some(begun) => command.push_str(begun),
                None => {
                    command.push_str(line);
                    let words = words(&std::mem::take(&mut command));
                    if ["", "sh", "shell", "bash"].contains(&language) {
                        found.push(Documented { place: place(number + at + 1), words, is_whole: true });
                    }
                }
            }
        }
        number += block.len() + 1;
    }
    found
}

/// The words of a command, without variables before it and redirections after it.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quote, mut is_word) = (String::new(), None, false);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => (quote, is_word) = (Some(c), true),
            (None, '#' | '|' | '>' | ';' | '&') if !is_word => break,
            (None, c) if c.is_whitespace() => {
                if std::mem::take(&mut is_word) {
                    words.push(std::mem::take(&mut word));
                }
            }
            (_, c) => {
                word.push(c);
                is_word = true;
            }
        }
    }
    if is_word {
        words.push(word);
    }
    let is_before = |word: &String| {
        word == "sudo"
            || word
                .split_once('=')
                .is_some_and(|(name, _)| name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'))
    };
    words.into_iter().skip_while(is_before).collect()
}
