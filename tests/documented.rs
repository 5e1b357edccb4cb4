//! Commands in README, the manual and the examples. The tests of each program parse them, so that no documented command is refused.
//!
//! | a page has | it is |
//! | --- | --- |
//! | a line in a code block | whole commands: those of a pipe or a list, and of `$(…)` and `<(…)` |
//! | a code block with lines that begin with `$ ` | an excerpt of a session: those lines are commands, the others are output |
//! | a code block with the language `text` | an excerpt: output, or commands that no test runs |
//! | a code block with another language | no command |
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
    /// True in a code block that is no excerpt, where a command is complete.
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
            let of_spans = spans.flat_map(of_line);
            found.extend(of_spans.map(|words| Documented { place: place(number), words, is_whole: false }));
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
                    let is_whole = ["", "sh", "shell", "bash"].contains(&language);
                    let line = std::mem::take(&mut command);
                    if is_whole || language == "text" {
                        let place = place(number + at + 1);
                        let of_line = of_line(&line).into_iter();
                        found.extend(of_line.map(|words| Documented {
                            place: place.clone(),
                            words,
                            is_whole,
                        }));
                    }
                }
            }
        }
        number += block.len() + 1;
    }
    found
}

/// The commands of a line, each with its words: without variables before them, redirections and comments.
fn of_line(line: &str) -> Vec<Vec<String>> {
    let mut commands = Vec::new();
    let mut words = Vec::new();
    let (mut word, mut quote, mut is_word, mut is_file) = (String::new(), None, false, false);
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        let is_nested = matches!(c, '$' | '<') && quote != Some('\'') && rest.as_str().starts_with('(');
        match (quote, c) {
            _ if is_nested => {
                let (within, after) = nested(rest.as_str());
                commands.extend(of_line(within));
                rest = after.chars();
                word.push('…');
                is_word = true;
            }
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => (quote, is_word) = (Some(c), true),
            (None, '#') if !is_word => break,
            (None, '|' | ';' | '&') => {
                end(&mut word, &mut is_word, &mut is_file, &mut words);
                commands.push(std::mem::take(&mut words));
            }
            (None, '>' | '<') if !is_word => is_file = true,
            (None, c) if c.is_whitespace() => end(&mut word, &mut is_word, &mut is_file, &mut words),
            (_, c) => {
                word.push(c);
                is_word = true;
            }
        }
    }
    end(&mut word, &mut is_word, &mut is_file, &mut words);
    commands.push(words);
    let commands = commands.into_iter().map(|words| words.into_iter().skip_while(is_before).collect());
    commands.filter(|words: &Vec<String>| !words.is_empty()).collect()
}

/// Ends a word. The file of a redirection is no word of the command.
fn end(word: &mut String, is_word: &mut bool, is_file: &mut bool, words: &mut Vec<String>) {
    if std::mem::take(is_word) {
        let word = std::mem::take(word);
        if !std::mem::take(is_file) {
            words.push(word);
        }
    }
}

/// The text between these parentheses, and the text after them.
fn nested(text: &str) -> (&str, &str) {
    let mut depth = 0_u32;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 1 => {
                return (text.get(1..at).unwrap_or_default(), text.get(at + 1..).unwrap_or_default());
            }
            ')' => depth -= 1,
            _ => {}
        }
    }
    (text, "")
}

/// True for what stands before a command.
fn is_before(word: &String) -> bool {
    let is_of_name = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    word == "sudo"
        || word.split_once('=').is_some_and(|(name, _)| !name.is_empty() && name.bytes().all(is_of_name))
}

#[test]
fn every_command_of_a_line_is_found() {
    let found = |line: &str| of_line(line).iter().map(|words| words.join(" ")).collect::<Vec<_>>();
    for (line, commands) in [
        ("a b   # c | d", &["a b"][..]),
        ("A=1 sudo a 'b | c' > file", &["a b | c"]),
        ("a | b && c; d", &["a", "b", "c", "d"]),
        ("source <(a b | c)", &["a b", "c", "source …"]),
        ("b -H \"x $(a $(c y)) z\" '$(d)'", &["c y", "a …", "b -H x … z $(d)"]),
        ("fields=a,b", &[]),
    ] {
        assert_eq!(found(line), commands, "{line}");
    }
}
