//! The trait for a function: a pure computation that configurations call as
//! `provider::NAME::FUNCTION(…)`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tracing::error;

use crate::codec;
use crate::contract::check_type;
use crate::path::Path;
use crate::pb;
use crate::types::Type;
use crate::value::Val;

/// A function. Terraform calls it in a process that is never configured, and expects the same
/// answer to the same question every time.
pub trait Function: Send + Sync + 'static {
    /// Its name, such as `chip_number`: lower-case letters, digits and underscores.
    fn name(&self) -> &str;

    /// The parameters and the result. Asked once.
    fn signature(&self) -> Signature;

    /// Computes the answer, of [`Signature::returns`]. There are as many arguments as the signature
    /// says, each of its type; none is null, or in any part unknown.
    ///
    /// # Errors
    /// The error in the arguments.
    fn call(&self, arguments: &[Val]) -> Result<Val, Refusal>;
}

/// The parameters and the result of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// Summary of one sentence.
    pub summary: String,
    /// Description in Markdown.
    pub description: String,
    /// Parameters in order.
    pub parameters: Vec<Parameter>,
    /// Type of any number of further arguments, after the `parameters`.
    pub rest: Option<Parameter>,
    /// Type of the result.
    pub returns: Type,
    /// Reason for the deprecation, and the replacement. Terraform shows it as a warning.
    pub deprecated: Option<String>,
}

/// One parameter of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Name in the documentation and in errors.
    pub name: String,
    /// Description in Markdown.
    pub description: String,
    /// Type of the argument.
    pub of: Type,
}

impl Parameter {
    /// A parameter of a type.
    #[must_use]
    pub fn new(name: &str, of: Type, description: &str) -> Self {
        Self { name: name.to_owned(), description: description.to_owned(), of }
    }

    fn to_pb(&self) -> pb::function::Parameter {
        pb::function::Parameter {
            name: self.name.clone(),
            r#type: self.of.to_json().to_string().into_bytes(),
            allow_null_value: false,
            allow_unknown_values: false,
            description: self.description.clone(),
            description_kind: pb::StringKind::Markdown.into(),
        }
    }
}

/// Why a function gives no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Refusal {
    /// The index of the wrong argument, from 0.
    pub argument: Option<usize>,
    /// The error: the wrong value, and the right form.
    pub why: String,
}

impl Refusal {
    /// An argument is wrong.
    pub fn of(argument: usize, why: impl Into<String>) -> Self {
        Self { argument: Some(argument), why: why.into() }
    }

    /// The call is wrong as a whole.
    pub fn whole(why: impl Into<String>) -> Self {
        Self { argument: None, why: why.into() }
    }

    pub(crate) fn to_pb(&self) -> pb::FunctionError {
        pb::FunctionError {
            // Terraform makes it the end of a sentence.
            text: self.why.trim_end_matches('.').to_owned(),
            function_argument: self.argument.and_then(|argument| i64::try_from(argument).ok()),
        }
    }
}

impl Signature {
    pub(crate) fn to_pb(&self) -> pb::Function {
        pb::Function {
            parameters: self.parameters.iter().map(Parameter::to_pb).collect(),
            variadic_parameter: self.rest.as_ref().map(Parameter::to_pb),
            r#return: Some(pb::function::Return { r#type: self.returns.to_json().to_string().into_bytes() }),
            summary: self.summary.clone(),
            description: self.description.clone(),
            description_kind: pb::StringKind::Markdown.into(),
            deprecation_message: self.deprecated.clone().unwrap_or_default(),
        }
    }

    /// The arguments as values of their types.
    fn read(&self, arguments: &[pb::DynamicValue]) -> Result<Vec<Val>, Refusal> {
        let (least, given) = (self.parameters.len(), arguments.len());
        if given < least || (given > least && self.rest.is_none()) {
            return Err(Refusal::whole(format!("{given} arguments are given, and {least} are taken")));
        }
        let parameters = self.parameters.iter().chain(self.rest.iter().cycle());
        let read = arguments.iter().zip(parameters).enumerate().map(|(i, (argument, parameter))| {
            codec::decode(Some(argument), &parameter.of).map_err(|error| Refusal::of(i, error.to_string()))
        });
        read.collect()
    }
}

/// Calls a function; its panic becomes a refusal.
pub(crate) fn call(
    function: &dyn Function,
    signature: &Signature,
    arguments: &[pb::DynamicValue],
) -> Result<Val, Refusal> {
    let arguments = signature.read(arguments)?;
    if !arguments.iter().all(Val::is_wholly_known) {
        return Ok(Val::Unknown);
    }
    let called = catch_unwind(AssertUnwindSafe(|| function.call(&arguments))).unwrap_or_else(|_| {
        error!(function = function.name(), "the provider panicked");
        let why = format!(
            "Bug in the provider: {} panicked. Please report it with the log (TF_LOG=debug).",
            function.name()
        );
        Err(Refusal::whole(why))
    });
    let answer = signature.returns.lift(called?);
    let wrong = check_type(&signature.returns, &answer, &Path::root());
    wrong.map_err(|diag| Refusal::whole(format!("{}: {}", diag.summary, diag.detail)))?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Joins texts; panics at `!`, and refuses an empty one.
    struct Join;

    impl Function for Join {
        fn name(&self) -> &str {
            "join"
        }

        fn signature(&self) -> Signature {
            Signature {
                summary: "Joins texts".to_owned(),
                description: "Joins texts.".to_owned(),
                parameters: vec![Parameter::new("first", Type::String, "The first one.")],
                rest: Some(Parameter::new("more", Type::list(Type::String), "More.")),
                returns: Type::String,
                deprecated: None,
            }
        }

        fn call(&self, arguments: &[Val]) -> Result<Val, Refusal> {
            let mut joined = String::new();
            for (i, argument) in arguments.iter().enumerate() {
                let texts = argument.as_list().unwrap_or(std::slice::from_ref(argument));
                for text in texts.iter().filter_map(Val::as_str) {
                    assert_ne!(text, "!", "asked to panic");
                    if text.is_empty() {
                        return Err(Refusal::of(i, "it is empty"));
                    }
                    joined.push_str(text);
                }
            }
            Ok(joined.into())
        }
    }

    #[test]
    fn a_refusal_ends_without_a_full_stop_for_terraform_sets_one() {
        for why in ["it is empty", "it is empty."] {
            assert_eq!(Refusal::of(0, why).to_pb().text, "it is empty");
        }
    }

    fn answer(arguments: &[Val]) -> Result<Val, Refusal> {
        let arguments: Vec<_> = arguments.iter().map(codec::encode).collect();
        call(&Join, &Join.signature(), &arguments)
    }

    #[test]
    fn arguments_are_read_by_their_types_and_more_of_the_last_are_taken() {
        let more = Val::from(vec![Val::from("b"), Val::from("c")]);
        assert_eq!(answer(&["a".into(), more.clone(), more]), Ok("abcbc".into()));
        assert_eq!(answer(&["a".into()]), Ok("a".into()));
    }

    #[test]
    fn what_is_unknown_anywhere_has_an_unknown_answer() {
        assert_eq!(answer(&["a".into(), vec![Val::Unknown].into()]), Ok(Val::Unknown));
    }

    #[test]
    fn a_wrong_argument_is_told_by_its_place() {
        assert_eq!(answer(&["a".into(), vec![Val::from("")].into()]), Err(Refusal::of(1, "it is empty")));
        assert_eq!(answer(&[true.into()]).map_err(|refusal| refusal.argument), Err(Some(0)));
        let none = answer(&[]).expect_err("one is needed");
        assert_eq!(none.why, "0 arguments are given, and 1 are taken");
    }

    #[test]
    fn a_panic_is_told_as_a_bug() {
        let refusal = answer(&["!".into()]).expect_err("a panic");
        assert!(refusal.why.contains("join panicked"), "{refusal}");
    }
}
