//! Functions for configurations: `provider::basalt::mac_normalize("52-54-00-12-34-56")`.
//!
//! They read texts like the region does. So they agree with it, for example, about valid MAC addresses and about
//! the addresses of a network.

mod addresses;
mod cloud_init;
mod yaml;

use tfplugin::{Function, Parameter, Refusal, Signature, Type, Val};

/// The functions of the provider.
pub(crate) fn all() -> Vec<Box<dyn Function>> {
    let all =
        [addresses::MAC_NORMALIZE, addresses::CIDR_CONTAINS, addresses::CIDR_OVERLAPS, cloud_init::MERGE];
    all.into_iter().map(|one| Box::new(one) as Box<dyn Function>).collect()
}

/// A function with text parameters, as data.
struct Texts {
    name: &'static str,
    summary: &'static str,
    description: &'static str,
    /// Names and descriptions of the parameters.
    parameters: &'static [(&'static str, &'static str)],
    /// The last parameter can be given any number of times.
    is_variadic: bool,
    returns: Type,
    call: fn(&[&str]) -> Result<Val, Refusal>,
}

impl Function for Texts {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> Signature {
        let mut parameters: Vec<_> =
            self.parameters.iter().map(|(name, doc)| Parameter::new(name, Type::String, doc)).collect();
        let rest = if self.is_variadic { parameters.pop() } else { None };
        Signature {
            summary: self.summary.to_owned(),
            description: self.description.to_owned(),
            parameters,
            rest,
            returns: self.returns.clone(),
            deprecated: None,
        }
    }

    fn call(&self, arguments: &[Val]) -> Result<Val, Refusal> {
        let texts: Vec<_> = arguments.iter().map(|argument| argument.as_str().unwrap_or_default()).collect();
        (self.call)(&texts)
    }
}
