//! The object of a command: `KIND NAME`, or both in one word, `KIND/NAME`.

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
    /// The same as clap would parse from these words.
    #[cfg(test)]
    fn new(kind: &str, name: Option<&str>) -> Self {
        Self { kind: kind.to_owned(), name: name.map(str::to_owned) }
    }

    /// The word for the kind, the name, and the word after an object that is named by one word.
    pub(crate) fn words(&self) -> (&str, Option<&str>, Option<&str>) {
        match self.kind.split_once('/') {
            Some((kind, name)) => (kind, Some(name), self.name.as_deref()),
            None => (&self.kind, self.name.as_deref(), None),
        }
    }

    /// The object, and the word after it if the object is named by one word.
    pub(crate) fn first(&self) -> Result<(&'static Kind, &str, Option<&str>), Failed> {
        let (word, name, rest) = self.words();
        let kind = kind(word)?;
        Ok((kind, named(kind, name)?, rest))
    }

    /// The object. A further word is an error.
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

/// The words for entries of a log: those of one object, of a kind, or all.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct About {
    /// One object (KIND NAME, KIND/NAME or uid:UUID) or a kind; everything without it
    #[arg(value_name = "KIND[/NAME]", value_parser = Suggest(kinds), hide_possible_values = true)]
    object: Option<String>,
    /// The object's name, if the kind is a word of its own
    name: Option<String>,
}

impl About {
    /// `KIND/NAME`, `KIND` or `uid:UUID`, as in the API's parameter `object`.
    pub(crate) fn filter(self) -> Result<Option<String>, Failed> {
        match (self.object, self.name) {
            (Some(object), Some(rest)) if object.contains(['/', ':']) => Err(Failed::Words(format!(
                "{object} names the object, and {rest:?} is one word more; this command takes one object"
            ))),
            (Some(kind), Some(name)) => Ok(Some(format!("{kind}/{name}"))),
            (object, _) => Ok(object),
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

/// The name of an object of the kind `wanted`, with or without the kind before it.
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

/// A rack's name, or rack/NAME.
pub(crate) fn rack(text: &str) -> Result<String, String> {
    of_kind(text, "Rack")
}

/// A script's name, or script/NAME.
pub(crate) fn script(text: &str) -> Result<String, String> {
    of_kind(text, "Script")
}

/// A subnet's name, or subnet/NAME.
pub(crate) fn subnet(text: &str) -> Result<String, String> {
    of_kind(text, "Subnet")
}

/// A token's name, or `api_token/NAME`.
pub(crate) fn api_token(text: &str) -> Result<String, String> {
    of_kind(text, "ApiToken")
}

/// A webhook's name, or webhook/NAME.
pub(crate) fn webhook(text: &str) -> Result<String, String> {
    of_kind(text, "Webhook")
}

/// Accepts any text, and lets a shell complete some words.
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
    use axum::extract::Request;
    use axum::http::StatusCode;
    use axum::response::IntoResponse;
    use clap::CommandFactory;

    use super::*;
    use crate::{Cli, stand_in};

    /// Placeholder for a file with a public key.
    const KEY: &str = "KEY";

    /// Commands with an object in one word. Each has its request: method, path with query, and words of the body.
    const ASKED: &[(&str, &str, &str)] = &[
        ("get machine/web1", "GET /api/v1/machines/web1", ""),
        ("get addresses --subnet subnet/lab", "GET /api/v1/addresses?subnet=lab", ""),
        ("edit machine/web1", "GET /api/v1/machines/web1", ""),
        ("delete machine/web1 --yes", "DELETE /api/v1/machines/web1?dry_run=true", ""),
        ("rename machine/web1 web2", "POST /api/v1/machines/web1/rename", "web2"),
        ("wait machine/web1", "GET /api/v1/machines/web1", ""),
        ("patch machine/web1 --merge {} --yes", "PATCH /api/v1/machines/web1?dry_run=true", ""),
        ("label machine/web1 row=7", "GET /api/v1/machines/web1/layers", ""),
        ("watch machine/web1", "GET /api/v1/machines", ""),
        ("explain machine/web1", "GET /api/v1/machines/web1/plan", ""),
        ("explain boot machine/web1", "GET /api/v1/boots/web1", ""),
        ("explain clock rack/r1", "GET /api/v1/racks/r1", ""),
        ("explain name web1.lab.example", "GET /api/v1/names/web1.lab.example", ""),
        ("explain name fd00::9", "GET /api/v1/names/fd00::9", ""),
        ("logs machine/web1", "GET /api/v1/machines/web1/logs?limit=1000", ""),
        ("token issue api_token/ci", "POST /api/v1/api_tokens/ci/issue", ""),
        ("token revoke api_token/ci", "POST /api/v1/api_tokens/ci/revoke", ""),
        (
            "webhook deliveries webhook/chat --state dead",
            "GET /api/v1/webhooks/chat/deliveries?state=dead",
            "",
        ),
        ("webhook redeliver webhook/chat", "POST /api/v1/webhooks/chat/redeliver", "{}"),
        ("webhook discard webhook/chat --yes", "POST /api/v1/webhooks/chat/discard", "{}"),
        ("audit machine/web1", "GET /api/v1/audit?object=machine%2Fweb1&limit=50", ""),
        ("events machine/web1", "GET /api/v1/events?object=machine%2Fweb1&limit=50", ""),
        ("accept discovery/d1", "GET /api/v1/discoveries/d1", ""),
        ("power on machine/web1", "POST /api/v1/machines/web1/operations", ""),
        ("power on machine/a machine/b", "POST /api/v1/operations", r#"["a","b"]"#),
        ("recommission machine/web1 --yes", "POST /api/v1/machines/web1/operations", ""),
        (
            "run-script machine/web1 script/flash --yes",
            "POST /api/v1/machines/web1/operations",
            r#""script":"flash""#,
        ),
        (
            "test machine/web1 --test script/memory --yes",
            "POST /api/v1/machines/web1/operations",
            r#""tests":["memory"]"#,
        ),
        (
            "results machine/web1 --test script/memory",
            "GET /api/v1/machines/web1/results?latest=true&limit=2000&script=memory",
            "",
        ),
        ("override-tests machine/web1 --reason old", "POST /api/v1/machines/web1/operations", "old"),
        ("rescue machine/web1 --ssh-key KEY --yes", "POST /api/v1/machines/web1/operations", ""),
        ("abort machine/web1", "POST /api/v1/machines/web1/operations", ""),
        ("reset-bmc machine/web1 --yes", "POST /api/v1/machines/web1/operations", r#""verb":"reset_bmc""#),
        ("operations machine/web1", "GET /api/v1/machines/web1/operations", ""),
        ("rack join-token rack/r1", "POST /api/v1/join_tokens", r#"{"rack":"r1"}"#),
    ];

    /// Commands whose words are not objects: files, a user, a shell.
    const NO_OBJECTS: &[&str] = &["lint", "login", "image push", "completion", "script from"];

    #[tokio::test]
    async fn every_command_with_an_object_takes_it_in_one_word() {
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("key.pub");
        std::fs::write(&key, basalt_api::Semantic::SshPublicKey.example()).unwrap();
        let mut wrong = Vec::new();
        for (command, wanted, body) in ASKED {
            let words: Vec<_> = command
                .split(' ')
                .map(|word| if word == KEY { key.to_str().unwrap() } else { word })
                .collect();
            let (asked, _) = stand_in::run_at_nothing(&words).await;
            let is_wanted = |it: &String| it.starts_with(&format!("{wanted} ")) && it.contains(body);
            if !asked.iter().any(is_wanted) {
                wrong.push(format!("{command}: wants {wanted} {body}, and asked {asked:#?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// The names of all commands that take words, as `token issue`.
    fn with_words(command: &clap::Command, name: &str, found: &mut Vec<String>) {
        for below in command.get_subcommands() {
            let name = format!("{name} {}", below.get_name());
            with_words(below, &name, found);
        }
        if command.get_positionals().next().is_some() {
            found.push(name.trim_start().to_owned());
        }
    }

    #[test]
    fn every_command_that_takes_an_object_has_a_row() {
        let mut found = Vec::new();
        with_words(&Cli::command(), "", &mut found);
        let has_row = |name: &String| ASKED.iter().any(|row| row.0.starts_with(&format!("{name} ")));
        let missing: Vec<_> =
            found.iter().filter(|name| !NO_OBJECTS.contains(&name.as_str()) && !has_row(name)).collect();
        assert!(missing.is_empty(), "no row for {missing:?}");
        assert!(NO_OBJECTS.iter().all(|name| found.iter().any(|it| it == name)), "{found:?}");
    }

    #[test]
    fn entries_are_about_an_object_in_two_words_or_in_one() {
        let filter = |object: &str, name: Option<&str>| {
            About { object: Some(object.to_owned()), name: name.map(str::to_owned) }.filter()
        };
        assert_eq!(filter("machine", Some("web1")).unwrap().as_deref(), Some("machine/web1"));
        assert_eq!(filter("machine/web1", None).unwrap().as_deref(), Some("machine/web1"));
        assert_eq!(filter("racks", None).unwrap().as_deref(), Some("racks"));
        let refused = filter("machine/web1", Some("web2")).unwrap_err().to_string();
        assert!(refused.contains("\"web2\" is one word more"), "{refused}");
    }

    #[tokio::test]
    async fn one_object_is_watched_without_other_words() {
        for words in [["watch", "machine/web1,racks", "-ojson"], ["watch", "machine/web1", "--since=a:7"]] {
            let answer = |_: &Request| StatusCode::NOT_FOUND.into_response();
            let refused = stand_in::run(&words, answer).await.unwrap_err().to_string();
            assert!(refused.contains("machine/web1 is one object"), "{refused}");
        }
    }

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
