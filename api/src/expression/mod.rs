//! What a tag asks of a machine, in CEL (the Common Expression Language): `cpu.cores >= 32 && gpu.count > 0`.
//!
//! An expression is a truth about one machine. It sees the [`variables`] and nothing else, and cannot change anything. Names,
//! fields and functions that do not exist are found when it is read, with their place; so are most mistakes of type, by trying it
//! on a machine that has one of everything.
//!
//! A person who may write tags must not be able to hold up a region. These bounds stand before an evaluation:
//!
//! 1. A text is short ([`MAX_BYTES`]), shallow ([`MAX_NESTING`], [`MAX_LEVELS`]) and has few parts ([`MAX_SIGNS`]).
//! 2. Macros loop over the lists of the inventory, or over lists made of these, at most two within each other.
//! 3. There are no regular expressions.
//! 4. The steps of an evaluation are [counted](size) before it begins ([`MAX_COST`]). The bytes that it makes count as steps.
//!    This is done for a large machine when an expression is declared, and for each machine that is larger.

mod size;
pub mod variables;
mod walk;

#[cfg(test)]
mod tests;

pub use variables::{MAX_LIST, MAX_TEXT, Subject, VARIABLES};

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use cel::common::types::CelBool;
use cel::{Env, IdedExpr, Value};
use size::Limits;

/// Bytes of an expression.
pub const MAX_BYTES: usize = 1024;
/// Brackets within brackets.
pub const MAX_NESTING: usize = 12;
/// Parts within parts, of whatever sort: `1 + 1 + 1` is two levels deep.
pub const MAX_LEVELS: usize = 32;
/// Signs outside of texts: operators, dots, brackets, commas.
pub const MAX_SIGNS: usize = 128;
/// Steps of one evaluation. Each evaluated part is a step, and so are each 64 bytes of its value. No evaluation holds more memory than
/// these bytes, 13 MB.
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
    /// An evaluation may take too long, or too much memory.
    #[error(
        "the expression may take {steps} steps for {machine}; at most {MAX_COST}. Make shorter lists and texts, and fewer loops within each other"
    )]
    Costly {
        /// Evaluated parts, and each 64 bytes of their values.
        steps: u64,
        /// The size of the machine.
        machine: String,
    },
    /// It cannot be computed.
    #[error("{0}")]
    Type(String),
    /// Its value is no truth.
    #[error("its value is of type {0}, neither true nor false")]
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
        this.affordable(&variables::LARGE)?;
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
        let limits = variables::limits(machine);
        for (what, has, most) in [
            ("elements in a list of the machine's inventory", limits.list, MAX_LIST),
            ("bytes in a text of the machine's inventory", limits.text, MAX_TEXT),
        ] {
            if has > most {
                return Err(ExpressionError::TooLarge { what, has, most });
            }
        }
        // A smaller machine takes fewer steps than the one that was supposed when the expression was read.
        if limits.list > variables::LARGE.list || limits.text > variables::LARGE.text {
            self.affordable(&limits)?;
        }
        let mut context = cel::Context::with_env(ENV.clone());
        variables::bind(&mut context, machine, &self.found.roots);
        let evaluated = catch_unwind(AssertUnwindSafe(|| match Value::resolve_val(&self.root, &context) {
            Ok(value) => match value.downcast_ref::<CelBool>() {
                Some(truth) => Ok(*truth.inner()),
                None => Err(ExpressionError::NoTruth(value.get_type().name().to_owned())),
            },
            Err(error) => Err(ExpressionError::Type(short(&error))),
        }));
        evaluated.unwrap_or_else(|_| Err(ExpressionError::Type("it cannot be computed".to_owned())))
    }

    /// Refuses an expression whose evaluation may exceed [`MAX_COST`] for a machine within these limits.
    fn affordable(&self, limits: &Limits) -> Result<(), ExpressionError> {
        let (steps, _) = size::count(&self.root, &self.found.roots, limits);
        if steps <= MAX_COST {
            return Ok(());
        }
        let machine = format!("a machine with lists of {} and texts of {} bytes", limits.list, limits.text);
        Err(ExpressionError::Costly { steps, machine })
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

/// An error in one line of 200 characters. It may quote a value of megabytes: the rest is not even written.
fn short(error: &impl std::fmt::Display) -> String {
    struct Line(String, usize);
    impl std::fmt::Write for Line {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            for c in text.chars() {
                self.1 = self.1.checked_sub(1).ok_or(std::fmt::Error)?;
                self.0.push(if c.is_control() { ' ' } else { c });
            }
            Ok(())
        }
    }
    let mut line = Line(String::new(), 200);
    let is_whole = std::fmt::Write::write_fmt(&mut line, format_args!("{error}")).is_ok();
    if is_whole { line.0 } else { line.0 + "…" }
}
