//! One call of a program.

use std::fmt;

use crate::tool::{self, ToolError};

/// A program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Name of the program.
    pub program: &'static str,
    /// Arguments of the program.
    pub args: Vec<String>,
}

impl Call {
    /// A call of `program` with the words of `args`. [`Call::and`] adds more.
    #[must_use]
    pub(super) fn new(program: &'static str, args: &str) -> Self {
        Self { program, args: args.split_ascii_whitespace().map(str::to_owned).collect() }
    }

    /// Adds one argument.
    #[must_use]
    pub(super) fn and(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds several arguments.
    #[must_use]
    pub(super) fn all<T: Into<String>>(mut self, args: impl IntoIterator<Item = T>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Runs the program and waits for its end.
    ///
    /// # Errors
    /// The same as for [`tool::run`].
    pub fn run(&self) -> Result<String, ToolError> {
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        tool::run(self.program, &args)
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.program, self.args.join(" "))
    }
}
