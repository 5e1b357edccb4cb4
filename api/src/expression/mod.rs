//! Conditions of tags on machines, in CEL (the Common Expression Language): `cpu.cores >= 32 && gpu.count > 0`.
//!
//! An expression is true or false for one machine. It reads the [`variables`] and nothing else, and changes nothing. The parser reports
//! unknown names, fields and functions with their position. For type errors, it evaluates the expression once on a sample machine that has
//! every sort of hardware.
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

/// Most bytes of an expression.
pub const MAX_BYTES: usize = 1024;
/// Most nested brackets.
pub const MAX_NESTING: usize = 12;
/// Most nested nodes of any sort: `1 + 1 + 1` is two levels deep.
pub const MAX_LEVELS: usize = 32;
/// Most signs outside of strings: operators, dots, brackets, commas.
pub const MAX_SIGNS: usize = 128;
/// Most steps of one evaluation. Each evaluated node is a step, and each 64 bytes of its value are one more. So no evaluation holds more
/// than 13 MB of memory.
pub const MAX_COST: u64 = 200_000;

static ENV: LazyLock<Arc<Env>> =
    LazyLock::new(|| Arc::new(Env::default().with_optional_support(false).with_stdlib()));
static PARSING: LazyLock<Env> = LazyLock::new(|| Env::stdlib().with_optional_support(false));

/// An expression that was checked.
#[derive(Clone, Debug)]
pub struct Expression {
    root: Arc<IdedExpr>,
    found: walk::Found,
}

/// An error in an expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    /// The expression or the machine exceeds a bound.
    #[error("the expression has {has} {what}; at most {most}")]
    TooLarge {
        /// The thing that is counted.
        what: &'static str,
        /// Its count or size.
        has: usize,
        /// The largest allowed number.
        most: usize,
    },
    /// The text is not CEL.
    #[error("line {line}, column {column}: {message}")]
    Syntax {
        /// Line, counted from 1.
        line: usize,
        /// Column, counted from 1.
        column: usize,
        /// The parser's message.
        message: String,
    },
    /// A name, field or function that does not exist, or a loop that is not allowed.
    #[error("at character {at}: {message}")]
    Unknown {
        /// Position in the text, counted from 1.
        at: u32,
        /// The unknown name, and the known ones.
        message: String,
    },
    /// An evaluation may take too many steps.
    #[error(
        "the expression may take {steps} steps for {machine}; at most {MAX_COST}. Make shorter lists and texts, and fewer loops within each other"
    )]
    Costly {
        /// Number of evaluated nodes, plus one for each 64 bytes of their values.
        steps: u64,
        /// The size of the machine.
        machine: String,
    },
    /// The expression cannot be evaluated.
    #[error("{0}")]
    Type(String),
    /// The value is not a boolean.
    #[error("its value is of type {0}, neither true nor false")]
    NoTruth(String),
}

impl Expression {
    /// Parses and checks an expression.
    ///
    /// # Errors
    /// The text is not an expression, or a check fails.
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

    /// True if the expression holds for a machine. False if it uses hardware and the machine's hardware is unknown.
    ///
    /// # Errors
    /// The expression cannot be evaluated for this machine, or would take too many steps.
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
        // For a machine within `LARGE` the expression was already found affordable when it was parsed.
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

/// Stack size for the parser, which recurses through a dozen functions for each bracket.
const STACK: usize = 16 << 20;

/// Runs `work` on a thread with a large stack. `None` if it panics.
fn beside<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
        thread.ok()?.join().ok()
    })
}

/// Refuses a text for which the parser, or a walk over its tree, would need much stack or time.
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

/// An error as one line of at most 200 characters. It may quote a value of megabytes, so the formatter stops there.
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
