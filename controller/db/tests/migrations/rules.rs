//! The rules for migrations: regions of the version before use the same database during and after a migration.

use crate::sql::{Statement, statements};
use std::collections::BTreeSet;

/// Tables that grow with time, not with the inventory: to read or to lock all of one takes longer than a client waits.
pub(crate) const LARGE: [&str; 5] =
    ["audit", "change_log", "fact_history", "fact_history_rest", "step_record"];

/// The comment that allows a forbidden statement: `-- contract: REASON, unused since NNNN`, right before it.
const CONTRACT: &str = "-- contract: ";

/// The errors of a migration, each with its line. `earlier` are the numbers of the migrations before it.
pub(crate) fn lint(script: &str, earlier: &[u32]) -> Vec<String> {
    let statements = match statements(script) {
        Ok(statements) => statements,
        Err(error) => return vec![error],
    };
    let mut made = BTreeSet::new();
    let mut wrong = Vec::new();
    let in_transaction = !script.starts_with("-- no-transaction");
    for statement in &statements {
        let view = View { words: &statement.words, made: &made };
        let mut refused = view.refused();
        if view.has("concurrently") && (in_transaction || statements.len() > 1) {
            let why = "CONCURRENTLY works outside a transaction: a migration of its own, whose first line is `-- no-transaction`";
            refused.push(why.to_owned());
        }
        if let (false, Some(contract)) = (refused.is_empty(), contract(statement)) {
            refused = contract_is_wrong(contract, earlier).into_iter().collect();
        }
        wrong.extend(refused.into_iter().map(|why| format!("line {}: {why}", statement.line)));
        made.extend(view.makes());
    }
    wrong
}

fn contract(statement: &Statement) -> Option<&str> {
    statement.comments.last()?.strip_prefix(CONTRACT)
}

/// The error of a contract: it needs a reason, and an earlier migration since which the dropped thing is unused.
fn contract_is_wrong(text: &str, earlier: &[u32]) -> Option<String> {
    let form = || Some(format!("{CONTRACT}{text}: write `{CONTRACT}REASON, unused since NNNN`"));
    let Some((reason, number)) = text.rsplit_once(", unused since ") else { return form() };
    if reason.trim().is_empty() || number.len() != 4 {
        return form();
    }
    match number.parse() {
        Ok(number) if earlier.contains(&number) => None,
        _ => Some(format!("{CONTRACT}{text}: {number} is not the number of an earlier migration")),
    }
}

/// One statement, and the tables, functions and so on that the migration has created before it.
struct View<'a> {
    words: &'a [String],
    made: &'a BTreeSet<String>,
}

impl View<'_> {
    fn begins(&self, start: &[&str]) -> bool {
        self.words.len() >= start.len() && self.words.iter().zip(start).all(|(word, wanted)| word == wanted)
    }

    fn has(&self, word: &str) -> bool {
        self.words.iter().any(|w| w == word)
    }

    fn has_all(&self, run: &[&str]) -> bool {
        self.words
            .windows(run.len())
            .any(|window| window.iter().zip(run).all(|(word, wanted)| word == wanted))
    }

    /// The first name behind `keyword`, past the words that may stand between.
    fn name_after(&self, keyword: &str) -> Option<&str> {
        let fill = ["if", "not", "exists", "only", "concurrently"];
        let mut words = self.words.iter().skip_while(|word| *word != keyword).skip(1);
        words.find(|word| !fill.contains(&word.as_str())).map(String::as_str)
    }

    /// The name of the thing that the statement creates.
    fn makes(&self) -> Option<String> {
        let sorts = ["table", "view", "function", "trigger", "index", "type", "sequence"];
        let sort = self.words.iter().take(4).find(|word| sorts.contains(&word.as_str()))?;
        self.begins(&["create"]).then(|| self.name_after(sort).map(str::to_owned)).flatten()
    }

    fn is_new(&self, name: Option<&str>) -> bool {
        name.is_some_and(|name| self.made.contains(name))
    }

    fn is_large(name: Option<&str>) -> bool {
        name.is_some_and(|name| LARGE.contains(&name))
    }

    fn refused(&self) -> Vec<String> {
        match self.words.first().map(String::as_str) {
            Some("drop") => self.drop(),
            Some("alter") => self.alter(),
            Some("create") if self.has("index") => self.index(),
            Some("lock") => vec!["LOCK stops every region that works on the table".to_owned()],
            Some("truncate") => {
                vec!["TRUNCATE takes rows that regions of the version before need".to_owned()]
            }
            Some("cluster" | "vacuum" | "reindex") => {
                vec!["it stops every region that works on the table".to_owned()]
            }
            Some("update") => self.rows("update"),
            Some("delete") => self.rows("from"),
            Some("do") => self.block(),
            _ => Vec::new(),
        }
    }

    fn drop(&self) -> Vec<String> {
        let sort = self.words.get(1).map_or("", String::as_str);
        match self.is_new(self.name_after(sort)) {
            true => Vec::new(),
            false => vec![format!(
                "DROP {} takes what regions of the version before use",
                sort.to_ascii_uppercase()
            )],
        }
    }

    fn index(&self) -> Vec<String> {
        let table = self.name_after("on");
        if self.is_new(table) || !Self::is_large(table) || self.has("concurrently") {
            return Vec::new();
        }
        vec![format!(
            "CREATE INDEX stops writing to the large table {} until it is made: CREATE INDEX CONCURRENTLY",
            table.unwrap_or_default()
        )]
    }

    fn rows(&self, keyword: &str) -> Vec<String> {
        let table = self.name_after(keyword);
        let what = self.words.first().map(|w| w.to_ascii_uppercase()).unwrap_or_default();
        match (self.is_new(table), self.has("where"), Self::is_large(table)) {
            (true, ..) | (false, true, false) => Vec::new(),
            (_, false, _) => {
                vec![format!("{what} of a whole table locks every row of it: fill it as rows are used")]
            }
            (_, true, true) => vec![format!("{what} of a large table: do it in pieces, from the program")],
        }
    }

    fn alter(&self) -> Vec<String> {
        let sort = self.words.get(1).map_or("", String::as_str);
        let name = self.name_after(sort);
        if self.is_new(name) {
            return Vec::new();
        }
        let mut refused = Vec::new();
        let mut no = |why: String| refused.push(why);
        if self.has("rename") || self.has_all(&["set", "schema"]) {
            no("RENAME takes a name that regions of the version before use".to_owned());
        }
        if sort != "table" {
            return refused;
        }
        let dropped = self.words.windows(2).filter(|pair| pair.first().is_some_and(|w| w == "drop"));
        for what in dropped.filter_map(|pair| pair.get(1)).filter(|what| *what != "not") {
            no(format!("DROP {} takes what regions of the version before use", what.to_ascii_uppercase()));
        }
        if self.has_all(&["set", "not", "null"]) {
            no("SET NOT NULL: regions of the version before write no value there".to_owned());
        }
        for (at, pair) in self.words.windows(2).enumerate() {
            match [pair.first(), pair.get(1)].map(|w| w.map_or("", String::as_str)) {
                ["alter", verb] if verb != "table" => {
                    let action: Vec<&str> =
                        self.words.iter().skip(at + 1).take(5).map(String::as_str).collect();
                    if action.contains(&"type") && !action.contains(&",") {
                        no("ALTER TYPE writes the whole table anew: add a column, and fill it".to_owned());
                    }
                }
                ["add", what] => self.add(what, at, name, &mut no),
                _ => {}
            }
        }
        refused
    }

    /// One `add …` of an `alter table`, at this word.
    fn add(&self, what: &str, at: usize, table: Option<&str>, no: &mut impl FnMut(String)) {
        let action = self.action(at);
        let has = |run: &[&str]| action.windows(run.len()).any(|window| window == run);
        let constraints = ["constraint", "check", "foreign", "unique", "primary", "exclude"];
        if constraints.contains(&what) {
            if Self::is_large(table) && !has(&["not", "valid"]) {
                no(format!(
                    "ADD CONSTRAINT reads all of the large table {}: NOT VALID, and VALIDATE in a later migration",
                    table.unwrap_or_default()
                ));
            }
        } else if has(&["not", "null"]) && !has(&["default"]) && !has(&["generated"]) {
            no("ADD COLUMN … NOT NULL without DEFAULT: regions of the version before write no value there"
                .to_owned());
        }
    }

    /// The words of an action, up to the comma outside parentheses that ends it.
    fn action(&self, at: usize) -> Vec<&str> {
        let mut depth = 0;
        let words = self.words.iter().skip(at).map(String::as_str);
        words
            .take_while(|word| {
                depth += i32::from(*word == "(") - i32::from(*word == ")");
                depth > 0 || *word != ","
            })
            .collect()
    }

    /// The statements of a block that runs at once, wherever they stand in it.
    fn block(&self) -> Vec<String> {
        let Some(body) = self.words.iter().find(|word| word.starts_with('$')) else { return Vec::new() };
        let tag = body.get(1..).and_then(|rest| rest.find('$')).map_or(2, |end| end + 2);
        let inner = body.get(tag..body.len().saturating_sub(tag)).unwrap_or_default();
        let statements = match statements(inner) {
            Ok(statements) => statements,
            Err(error) => return vec![format!("in the block: {error}")],
        };
        let verbs = ["drop", "alter", "create", "lock", "truncate", "update", "delete"];
        let of = |statement: &Statement| {
            let start = statement.words.iter().position(|word| verbs.contains(&word.as_str()))?;
            Some(View { words: statement.words.get(start..)?, made: self.made }.refused())
        };
        statements.iter().filter_map(of).flatten().collect()
    }
}
