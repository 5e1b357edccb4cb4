//! Parameters of a test: `--NAME=VALUE`, each with a default.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

/// A parameter of a test.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) takes: Takes,
    /// The effect of the value, in the usage text.
    pub(super) meaning: &'static str,
}

/// The values of a parameter.
pub(super) enum Takes {
    /// A whole number.
    Number { default: u64, range: RangeInclusive<u64> },
    /// A name. The default is the empty name.
    Name,
}

impl fmt::Display for Parameter {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.takes {
            Takes::Number { default, .. } => write!(to, "--{}={default}", self.name)?,
            Takes::Name => write!(to, "--{}=", self.name)?,
        }
        write!(to, "   {}", self.meaning)
    }
}

/// The values that a test is run with.
#[derive(Debug)]
pub(super) struct Parameters {
    numbers: BTreeMap<&'static str, u64>,
    names: BTreeMap<&'static str, String>,
}

impl Parameters {
    /// Parses arguments. A missing parameter has its default. If one occurs twice, the last counts.
    pub(super) fn parse(known: &'static [Parameter], args: &[String]) -> Result<Self, String> {
        let mut parameters = Self { numbers: BTreeMap::new(), names: BTreeMap::new() };
        for parameter in known {
            if let Takes::Number { default, .. } = parameter.takes {
                parameters.numbers.insert(parameter.name, default);
            }
        }
        for arg in args {
            let pair = arg.strip_prefix("--").and_then(|arg| arg.split_once('='));
            let (name, value) = pair.ok_or_else(|| format!("{arg:?} is not --PARAMETER=VALUE"))?;
            let parameter = known.iter().find(|parameter| parameter.name == name);
            let parameter = parameter.ok_or_else(|| format!("there is no parameter --{name}"))?;
            match &parameter.takes {
                Takes::Number { range, .. } => {
                    let number = value.parse().ok().filter(|number| range.contains(number));
                    let number = number.ok_or_else(|| {
                        format!("{arg} is not a whole number from {} to {}", range.start(), range.end())
                    })?;
                    parameters.numbers.insert(parameter.name, number);
                }
                Takes::Name => {
                    parameters.names.insert(parameter.name, value.to_owned());
                }
            }
        }
        Ok(parameters)
    }

    /// A number that the test knows.
    pub(super) fn number(&self, name: &str) -> u64 {
        self.numbers.get(name).copied().unwrap_or_default()
    }

    /// A name, if one is given.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.names.get(name).map(String::as_str).filter(|name| !name.is_empty())
    }
}
