//! The object that a command is about: `KIND NAME`, or both in one word, `KIND/NAME`.

use std::ffi::OsStr;

use basalt_api::values::Naming;
use basalt_api::{KINDS, Kind};
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};

use crate::region::{Failed, kind};

/// The words that name one object.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Subject {
    /// Kind: machine, deployment, subnet, …; or KIND/NAME
    #[arg(value_name = "KIND[/NAME]", value_parser = Suggest(kinds), hide_possible_values = true)]
    kind: String,
    /// Its name, if the kind is a word of its own
    name: Option<String>,
}

impl Subject {
    /// As clap would parse these words.
    #[cfg(test)]
    fn new(kind: &str, name: Option<&str>) -> Self {
        Self { kind: kind.to_owned(), name: name.map(str::to_owned) }
    }

    /// The word for the kind, the name, and the word behind an object that is named by one word.
    pub(crate) fn words(&self) -> (&str, Option<&str>, Option<&str>) {
        match self.kind.split_once('/') {
            Some((kind, name)) => (kind, Some(name), self.name.as_deref()),
            None => (&self.kind, self.name.as_deref(), None),
        }
    }

    /// The object, and the word behind it if the object is named by one word.
    pub(crate) fn first(&self) -> Result<(&'static Kind, &str, Option<&str>), Failed> {
        let (word, name, rest) = self.words();
        let kind = kind(word)?;
        Ok((kind, named(kind, name)?, rest))
    }

    /// The object, of which there is one.
    pub(crate) fn object(&self) -> Result<(&'static Kind, &str), Failed> {
        let (kind, name, rest) = self.first()?;
        match rest {
            None => Ok((kind, name)),
            Some(rest) => Err(Failed::Words(format!(
                "{} names the object, and {rest:?} is one word more; this command takes one object",
                self.kind
            ))),
        }
    }
}

fn named<'a>(kind: &Kind, name: Option<&'a str>) -> Result<&'a str, Failed> {
    match name {
        Some("") | None if kind.naming == Naming::Singleton => Ok("default"),
        Some("") | None => {
            let singular = kind.singular();
            let words =
                format!("the name of the {} is missing: say {singular} NAME, or {singular}/NAME", kind.name);
            Err(Failed::Words(words))
        }
        Some(name) => Ok(name),
    }
}

/// The name of an object of one kind, with the kind before it or without.
fn of_kind(text: &str, wanted: &str) -> Result<String, String> {
    let Some((word, name)) = text.split_once('/') else { return Ok(text.to_owned()) };
    match kind(word) {
        Ok(kind) if kind.name == wanted => Ok(name.to_owned()),
        Ok(kind) => Err(format!("it is a {}, and this is for a {wanted}", kind.name)),
        Err(error) => Err(error.to_string()),
    }
}

/// A discovery's name, or discovery/NAME.
pub(crate) fn discovery(text: &str) -> Result<String, String> {
    of_kind(text, "Discovery")
}

/// A machine's name, or machine/NAME.
pub(crate) fn machine(text: &str) -> Result<String, String> {
    of_kind(text, "Machine")
}

/// A token's name, or `api_token/NAME`.
pub(crate) fn api_token(text: &str) -> Result<String, String> {
    of_kind(text, "ApiToken")
}

/// Takes any text, and lets a shell complete some words.
#[derive(Clone, Copy)]
pub(crate) struct Suggest(pub(crate) fn() -> Vec<&'static str>);

impl TypedValueParser for Suggest {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.0)().into_iter().map(PossibleValue::new)))
    }
}

/// The plurals of all kinds.
pub(crate) fn kinds() -> Vec<&'static str> {
    KINDS.iter().map(|kind| kind.plural).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_named_by_two_words_or_by_one() {
        for (kind, name) in [("machine", Some("web1")), ("machines/web1", None), ("Machine/web1", None)] {
            let subject = Subject::new(kind, name);
            let (kind, name) = subject.object().unwrap();
            assert_eq!((kind.name, name), ("Machine", "web1"));
        }
        assert_eq!(Subject::new("settings", None).object().unwrap().1, "default");
        let labelled = Subject::new("machine/web1", Some("row=7"));
        assert_eq!(labelled.first().unwrap().2, Some("row=7"));
        let refused = |kind: &str, name| Subject::new(kind, name).object().unwrap_err().to_string();
        assert!(refused("machine", None).contains("say machine NAME, or machine/NAME"));
        assert!(refused("machine/web1", Some("web2")).contains("\"web2\" is one word more"));
        assert!(refused("web1", None).contains("there is no kind \"web1\""));
    }

    #[test]
    fn a_machine_may_have_its_kind_before_its_name() {
        assert_eq!((machine("web1"), machine("machine/web1")), (Ok("web1".into()), Ok("web1".into())));
        assert_eq!(machine("zone/a").unwrap_err(), "it is a Zone, and this is for a Machine");
        assert!(machine("nope/a").unwrap_err().contains("there is no kind"));
    }
}
