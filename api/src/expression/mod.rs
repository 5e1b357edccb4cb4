//! What a tag asks of a machine, in CEL (the Common Expression Language): `cpu.cores >= 32 && gpu.count > 0`.
//!
//! An expression is a truth about one machine. It sees the [`variables`] and nothing else, and cannot change anything. Names,
//! fields and functions that do not exist are found when it is read, with their place; so are most mistakes of type, by trying it
//! on a machine that has one of everything.
//!
//! Whoever may write tags must not be able to hold up a region. So a text is short ([`MAX_BYTES`]), shallow ([`MAX_NESTING`],
//! [`MAX_LEVELS`]) and has few parts ([`MAX_SIGNS`]); macros loop over the lists of the inventory or what was made of them, at most two within
//! each other; there are no regular expressions; and what an evaluation can cost is counted before it begins ([`MAX_COST`]).

pub mod variables;
mod walk;

#[cfg(test)]
mod tests;

pub use variables::{MAX_LIST, Subject, VARIABLES};

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use cel::{Env, IdedExpr, Value};

/// Bytes of an expression.
pub const MAX_BYTES: usize = 1024;
/// Brackets within brackets.
pub const MAX_NESTING: usize = 12;
/// Parts within parts, of whatever sort: `1 + 1 + 1` is two levels deep.
pub const MAX_LEVELS: usize = 32;
/// Signs outside of texts: operators, dots, brackets, commas.
pub const MAX_SIGNS: usize = 128;
/// Steps of one evaluation, counted as nodes times elements.
pub const MAX_COST: u64 = 200_000;

static ENV: LazyLock<Arc<Env>> =
    LazyLock::new(|| Arc::new(Env::default().with_optional_support(false).with_stdlib()));
static PARSING: LazyLock<Env> = LazyLock::new(|| Env::stdlib().with_optional_support(false));

/// An expression that was found to be sound.
#[derive(Clone, Debug)]
pub struct Expression {
    root: Arc<IdedExpr>,
    found: walk::Found,
}

/// What is wrong with an expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    /// Too much of something.
    #[error("the expression has {has} {what}; at most {most}")]
    TooLarge {
        /// Of what.
        what: &'static str,
        /// How much.
        has: usize,
        /// How much it may have.
        most: usize,
    },
    /// It is not CEL.
    #[error("line {line}, column {column}: {message}")]
    Syntax {
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
        /// What the parser says.
        message: String,
    },
    /// A name, field or function that does not exist, or a loop that may not be.
    #[error("at character {at}: {message}")]
    Unknown {
        /// From 1.
        at: u32,
        /// What, and what there is instead.
        message: String,
    },
    /// It cannot be computed.
    #[error("{0}")]
    Type(String),
    /// Its value is no truth.
    #[error("its value is {0}, neither true nor false")]
    NoTruth(String),
}

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// It is not one, or is not sound.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        measure(text)?;
        let parsed = beside(|| PARSING.parser().max_recursion_depth(64).parse_with_source_info(text));
        let broken = || ExpressionError::Type("the parser cannot read it".to_owned());
        let (root, source) = parsed.ok_or_else(broken)?.map_err(|errors| syntax(&errors))?;
        let at = |id| source.offset_for(id).map_or(1, |(start, _)| start.saturating_add(1));
        let found = walk::walk(&root, &at)?;
        let this = Self { root: Arc::new(root), found };
        this.holds(&variables::sample())?;
        Ok(this)
    }

    /// Whether it is true of a machine. Where it asks for hardware and none is known, it is not.
    ///
    /// # Errors
    /// It cannot be computed for this machine, or that would cost too much.
    pub fn holds(&self, machine: &Subject<'_>) -> Result<bool, ExpressionError> {
        if self.found.hardware && machine.inventory.is_none() {
            return Ok(false);
        }
        let longest = variables::longest(machine);
        if longest > MAX_LIST {
            let what = "elements in a list of the machine's inventory";
            return Err(ExpressionError::TooLarge { what, has: longest, most: MAX_LIST });
        }
        let cost = self.found.cost(longest);
        if cost > MAX_COST {
            let has = usize::try_from(cost).unwrap_or(usize::MAX);
            let most = usize::try_from(MAX_COST).unwrap_or(usize::MAX);
            return Err(ExpressionError::TooLarge { what: "steps for this machine", has, most });
        }
        let mut context = cel::Context::with_env(ENV.clone());
        variables::bind(&mut context, machine, &self.found.roots);
        let resolved = catch_unwind(AssertUnwindSafe(|| Value::resolve(&self.root, &context)));
        let broken = || ExpressionError::Type("it cannot be computed".to_owned());
        match resolved.map_err(|_| broken())? {
            Ok(Value::Bool(truth)) => Ok(truth),
            Ok(other) => Err(ExpressionError::NoTruth(short(&format!("{other:?}")))),
            Err(error) => Err(ExpressionError::Type(short(&error.to_string()))),
        }
    }
}

/// What a parser that recurses through a dozen functions for each bracket may need.
const STACK: usize = 16 << 20;

/// Does something that may need much stack, or end badly: then there is no answer.
fn beside<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
        thread.ok()?.join().ok()
    })
}

/// Refuses what the parser, or whoever walks its tree, would need much stack or time for.
fn measure(text: &str) -> Result<(), ExpressionError> {
    let too_large = |what, has, most| Err(ExpressionError::TooLarge { what, has, most });
    if text.len() > MAX_BYTES {
        return too_large("bytes", text.len(), MAX_BYTES);
    }
    let (mut signs, mut depth, mut deepest, mut quote) = (0_usize, 0_usize, 0, None);
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match (c, quote) {
            ('\\', Some(_)) => drop(characters.next()),
            (_, Some(mark)) => quote = (c != mark).then_some(mark),
            ('"' | '\'', None) => quote = Some(c),
            ('(' | '[' | '{', None) => depth = depth.saturating_add(1),
            (')' | ']' | '}', None) => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
        let counts = quote.is_none() && !c.is_alphanumeric() && !c.is_whitespace() && c != '_';
        signs = signs.saturating_add(usize::from(counts));
    }
    if deepest > MAX_NESTING {
        return too_large("brackets within each other", deepest, MAX_NESTING);
    }
    if signs > MAX_SIGNS {
        return too_large("operators, dots and brackets", signs, MAX_SIGNS);
    }
    Ok(())
}

fn syntax(errors: &cel::ParseErrors) -> ExpressionError {
    let Some(first) = errors.errors.first() else {
        return ExpressionError::Type("the parser cannot read it".to_owned());
    };
    let from_one = |number: isize| usize::try_from(number.max(1)).unwrap_or(1);
    let (line, column) = (from_one(first.pos.0), from_one(first.pos.1));
    ExpressionError::Syntax { line, column, message: short(&first.msg) }
}

/// What others say, as far as one line has room.
fn short(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect();
    if line.chars().count() < text.chars().count() { format!("{line}…") } else { line }
}
