//! SQL as words: enough of PostgreSQL's lexical structure to tell statements apart and to see what each of them begins with.

/// One statement of a script.
#[derive(Debug, Default)]
pub(crate) struct Statement {
    /// The line it begins on, from 1.
    pub(crate) line: usize,
    /// The comment lines right before it.
    pub(crate) comments: Vec<String>,
    /// Words in lower case, and signs, each by itself. A quotation is one word, quotes included.
    pub(crate) words: Vec<String>,
}

/// The statements of a script, in order. An unclosed quotation or comment is an error.
pub(crate) fn statements(script: &str) -> Result<Vec<Statement>, String> {
    let (mut rest, mut line) = (script, 1);
    let (mut found, mut current) = (Vec::new(), Statement::default());
    while let Some(first) = rest.chars().next() {
        let (token, sort) =
            token(rest, first).map_err(|open| format!("line {line}: {open} is not closed"))?;
        match sort {
            Sort::Space => {}
            Sort::Comment if current.words.is_empty() => current.comments.push(token.trim_end().to_owned()),
            Sort::Comment => {}
            Sort::End => found.extend(Some(std::mem::take(&mut current)).filter(|s| !s.words.is_empty())),
            Sort::Word => {
                if current.words.is_empty() {
                    current.line = line;
                }
                current.words.push(token.to_ascii_lowercase());
            }
        }
        line += token.matches('\n').count();
        rest = rest.get(token.len()..).unwrap_or_default();
        // An empty line separates comments from the next statement.
        if sort == Sort::Space && current.words.is_empty() && token.matches('\n').count() > 1 {
            current.comments.clear();
        }
    }
    found.extend(Some(current).filter(|s| !s.words.is_empty()));
    Ok(found)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Space,
    Comment,
    Word,
    End,
}

/// The next token of `rest`, which begins with `first`; or the name of the construct that is not closed.
fn token(rest: &str, first: char) -> Result<(&str, Sort), &'static str> {
    let until = |end: usize, sort| Ok((rest.get(..end).unwrap_or(rest), sort));
    let run = |belongs: fn(char) -> bool| rest.find(|c| !belongs(c)).unwrap_or(rest.len());
    if first.is_whitespace() {
        // Up to the line's end and the empty lines after it.
        return until(run(char::is_whitespace), Sort::Space);
    }
    if rest.starts_with("--") {
        return until(rest.find('\n').unwrap_or(rest.len()), Sort::Comment);
    }
    if rest.starts_with("/*") {
        return rest.find("*/").map(|end| (&rest[..end + 2], Sort::Comment)).ok_or("a comment");
    }
    match first {
        ';' => until(1, Sort::End),
        '\'' | '"' => closing(rest, first).map(|end| (&rest[..end], Sort::Word)).ok_or("a quotation"),
        '$' => match rest[1..].find('$').map(|end| &rest[..end + 2]).filter(|tag| is_tag(tag)) {
            Some(tag) => rest[tag.len()..]
                .find(tag)
                .map(|end| (&rest[..end + 2 * tag.len()], Sort::Word))
                .ok_or("a dollar-quoted text"),
            None => until(1, Sort::Word),
        },
        c if is_word(c) => until(run(is_word), Sort::Word),
        c => until(c.len_utf8(), Sort::Word),
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_tag(text: &str) -> bool {
    text.trim_matches('$').chars().all(is_word)
}

/// The end of a quotation; a doubled quote stands for itself.
fn closing(rest: &str, quote: char) -> Option<usize> {
    let mut at = 1;
    loop {
        let end = at + rest.get(at..)?.find(quote)? + 1;
        if !rest.get(end..).unwrap_or_default().starts_with(quote) {
            return Some(end);
        }
        at = end + 1;
    }
}

#[test]
fn statements_end_where_postgresql_ends_them() {
    let script = "-- One; two\n\n-- why\nselect 'a;''b', $$x; y$$ ; /* ; */ create table \"T;t\" (a int);\ndo $x$ $$;$$ $x$";
    let found = statements(script).unwrap();
    let shown: Vec<_> = found.iter().map(|s| (s.line, s.comments.len(), s.words.join(" "))).collect();
    assert_eq!(
        shown,
        [
            (4, 1, "select 'a;''b' , $$x; y$$".to_owned()),
            (4, 1, "create table \"t;t\" ( a int )".to_owned()),
            (5, 0, "do $x$ $$;$$ $x$".to_owned()),
        ]
    );
    assert_eq!(statements("select 1;\n'open").unwrap_err(), "line 2: a quotation is not closed");
}
