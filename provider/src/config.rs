//! The provider block: the address of the region, and our credentials. Each value has an environment variable, which
//! applies if the block does not have the value.

use std::num::NonZeroU16;
use std::time::Duration;

use basalt_api::client::{
    ClientConfig, ClientError, ClientIdentity, DEFAULT_PATIENCE, DEFAULT_TIMEOUT, Proxies,
};
use basalt_api::values;
use tfplugin::{Attribute, Diag, Diags, Path, Schema, Type, Val};

use crate::MANAGER;
use crate::bounded::Bounded;
use crate::map::labels;
use crate::refusal::sentence;

/// The block's attributes, with their environment variables.
const SETTINGS: &[(&str, &str)] = &[
    ("endpoint", "BASALT_ENDPOINT"),
    ("token", "BASALT_TOKEN"),
    ("token_file", "BASALT_TOKEN_FILE"),
    ("ca_file", "BASALT_CA_FILE"),
    (CLIENT_CERTIFICATE, "BASALT_CLIENT_CERTIFICATE"),
    (CLIENT_KEY, "BASALT_CLIENT_KEY"),
    (REQUEST_TIMEOUT, "BASALT_REQUEST_TIMEOUT"),
    (RETRY_TIMEOUT, "BASALT_RETRY_TIMEOUT"),
    (MAX_PARALLEL, "BASALT_MAX_PARALLEL"),
    (ON_NOT_READY, "BASALT_ON_NOT_READY"),
];

const CLIENT_CERTIFICATE: &str = "client_certificate";
const CLIENT_KEY: &str = "client_key";
const REQUEST_TIMEOUT: &str = "request_timeout";
const RETRY_TIMEOUT: &str = "retry_timeout";
const MAX_PARALLEL: &str = "max_parallel";
const ON_NOT_READY: &str = "on_not_ready";

const BLOCK_IS_WRONG: &str = "The provider's block is wrong";

/// The end of an apply whose object is stored but not ready when its time is up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OnNotReady {
    /// A warning. The next apply continues to wait.
    #[default]
    Warning,
    /// An error. Terraform taints a created object.
    Error,
}

/// The labels that every resource gets.
pub(crate) const DEFAULT_LABELS: &str = "default_labels";

pub(crate) fn schema() -> Schema {
    let text = |name: &str| Attribute::optional(name, Type::String);
    let description =
        "Declares bare metal: networks, machines and what runs on them, on a Basalt region.".to_owned();
    let attributes = vec![
        text("endpoint").doc(
            "The region: `https://HOST:5240`, `http://127.0.0.1:5240` or `unix:/PATH/api.sock`; or a rack, which passes on to any \
             region that runs, known by its `status.spki_sha256`: `https://RACK:5248#spki=HEX`. Several, separated by \
             commas, are tried in turn. By default the environment's `BASALT_ENDPOINT`. Those on other hosts are reached through \
             the proxy that the environment names in `HTTPS_PROXY` (`HTTP_PROXY` for `http://`), unless `NO_PROXY` names them.",
        ),
        text("token")
            .sensitive()
            .doc("An API token. By default the environment's `BASALT_TOKEN`. Not needed by root on a unix socket."),
        text("token_file").doc("A file that has the token. By default the environment's `BASALT_TOKEN_FILE`."),
        text("ca_file").doc(
            "Certificates (PEM) of which one signed the region's. By default the environment's `BASALT_CA_FILE`, then \
             those that the system trusts. `terraform init`, which installs this provider from a region, reads \
             `SSL_CERT_FILE` instead.",
        ),
        text(CLIENT_CERTIFICATE).doc(
            "A certificate (PEM: its text, as `file(\"client.pem\")` reads it) for whoever asks for one, like a proxy before \
             the region that speaks TLS in its place. By default the environment's `BASALT_CLIENT_CERTIFICATE`.",
        ),
        text(CLIENT_KEY).sensitive().doc(
            "The private key of `client_certificate` (PEM, not encrypted). By default the environment's `BASALT_CLIENT_KEY`.",
        ),
        text(REQUEST_TIMEOUT).doc(
            "How long one request may take. Waiting for machines has limits of its own. By default the environment's \
             `BASALT_REQUEST_TIMEOUT`, then `30s`.",
        ),
        text(RETRY_TIMEOUT).doc(
            "For how long a request is tried again while no region can be reached, or says that it cannot answer now; after one \
             that was tried in vain, the next ones are tried once. By default the environment's `BASALT_RETRY_TIMEOUT`, then `10s`.",
        ),
        Attribute::optional(MAX_PARALLEL, Type::Number).doc(
            "How many requests may be under way at once. Requests that wait for machines do not count. By default the \
             environment's `BASALT_MAX_PARALLEL`, then as many as Terraform's `-parallelism` lets come.",
        ),
        text(ON_NOT_READY).doc(
            "How an apply ends for an object that the region has stored, and that is not ready when its time is up or when it waits for a \
             person. `warning`: with a warning and `ready = false`; the next apply goes on waiting. `error`: with an error; Terraform then taints \
             what it created, and its next apply replaces it, which erases a machine. By default the environment's `BASALT_ON_NOT_READY`, then \
             `warning`. A `basalt_wait` fails without that.",
        ),
        Attribute::optional(DEFAULT_LABELS, Type::map(Type::String)).doc(
            "Labels of every resource; its own `labels` count before them. What both come to is in its `labels_all`.",
        ),
    ];
    Schema { description, attributes, ..Schema::default() }
}

/// True if every setting for a connection to the region is known.
pub(crate) fn says_where(config: &Val) -> bool {
    SETTINGS.iter().all(|(name, _)| config.get(name).is_wholly_known())
}

/// True if the block has any value. Otherwise all settings come from the environment.
pub(crate) fn is_said(config: &Val) -> bool {
    config.as_map().is_some_and(|config| config.values().any(|value| !value.is_null()))
}

/// The errors in the block, without a look at the region.
pub(crate) fn check(config: &Val) -> Diags {
    let mut diags = labels::check(config, DEFAULT_LABELS);
    for name in [REQUEST_TIMEOUT, RETRY_TIMEOUT] {
        let given = config.get(name).as_str();
        diags.extend(given.and_then(|text| duration(name, text).err()).into_iter().flatten());
    }
    let most = text(config, MAX_PARALLEL);
    diags.extend(most.and_then(|text| parallel(&text).err()).into_iter().flatten());
    let end = config.get(ON_NOT_READY).as_str();
    diags.extend(end.and_then(|text| end_of_wait(text).err()).into_iter().flatten());
    // An unknown value may still become null.
    if ["token", "token_file"].iter().all(|name| config.get(name).as_str().is_some()) {
        let detail = "token and token_file are both given. Leave one of them out.";
        diags.push(Diag::error("Two tokens", detail).at(Path::root().attr("token_file")));
    }
    diags
}

/// A value of the block as text.
fn text(config: &Val, name: &str) -> Option<String> {
    match config.get(name) {
        Val::Str(text) => Some(text.clone()),
        Val::Num(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The source of the token, for messages. None if there is no token.
pub(crate) fn token_from(config: &Val, env: impl Fn(&str) -> Option<String>) -> Option<String> {
    let is_set = |variable: &str| env(variable).is_some_and(|value| !value.is_empty());
    let path = |variable: &str| env(variable).filter(|value| !value.is_empty());
    let of_block = |name: &str| text(config, name).filter(|value| !value.is_empty());
    if let Some(path) = of_block("token_file") {
        return Some(format!("the file {path:?} of token_file"));
    }
    if of_block("token").is_some() {
        return Some("the attribute token".to_owned());
    }
    if is_set("BASALT_TOKEN") {
        return Some("BASALT_TOKEN in the environment".to_owned());
    }
    path("BASALT_TOKEN_FILE").map(|path| format!("the file {path:?} of BASALT_TOKEN_FILE"))
}

/// A client with the settings of the block and the environment.
pub(crate) fn client(
    config: &Val,
    terraform: &str,
    env: impl Fn(&str) -> Option<String>,
) -> Result<Bounded, Diags> {
    made(config, terraform, &env)
        .map_err(|wrong| Diags(wrong.into_iter().map(|diag| from_where(config, &env, diag)).collect()))
}

/// The end of an apply whose object is not ready, from the block or the environment.
pub(crate) fn on_not_ready(config: &Val, env: impl Fn(&str) -> Option<String>) -> Result<OnNotReady, Diags> {
    let said = setting(config, &env, ON_NOT_READY);
    let end = said.map_or(Ok(OnNotReady::default()), |text| end_of_wait(&text));
    end.map_err(|wrong| Diags(wrong.into_iter().map(|diag| from_where(config, &env, diag)).collect()))
}

/// A setting of the block, or of the environment if the block does not have it.
fn setting(config: &Val, env: impl Fn(&str) -> Option<String>, name: &str) -> Option<String> {
    let variable = SETTINGS.iter().find(|(known, _)| *known == name).map(|(_, variable)| *variable);
    text(config, name).or_else(|| env(variable?)).filter(|value| !value.is_empty())
}

/// Adds the variable's name to the error if the wrong value comes from the environment.
fn from_where(config: &Val, env: impl Fn(&str) -> Option<String>, mut wrong: Diag) -> Diag {
    let at = wrong.path.to_string();
    let says = |(name, variable): &&(&str, &str)| {
        *name == at && config.get(name).is_null() && env(variable).is_some()
    };
    if let Some((_, variable)) = SETTINGS.iter().find(says) {
        wrong.detail.push_str(&format!(" {variable} of the environment says it."));
        if wrong.summary == BLOCK_IS_WRONG {
            wrong.summary = "The provider's environment is wrong".to_owned();
        }
    }
    wrong
}

fn made(config: &Val, terraform: &str, env: impl Fn(&str) -> Option<String>) -> Result<Bounded, Diags> {
    let setting = |name: &str| setting(config, &env, name);
    let Some(endpoint) = setting("endpoint") else {
        let detail = "The provider does not know where the region is. Set endpoint in its block, or BASALT_ENDPOINT in \
                      the environment: https://HOST:5240, http://127.0.0.1:5240 or unix:/PATH/api.sock.";
        return Err(Diag::error("No endpoint", detail).at(Path::root().attr("endpoint")).into());
    };
    let file = |name: &str| setting(name).map(|path| read(name, &path)).transpose();
    // A token in the block takes precedence over a file in the environment, and the other way round: see `token_from`.
    let token = match (config.get("token_file").as_str(), setting("token")) {
        (None, Some(token)) => Some(token),
        _ => file("token_file")?.map(|text| text.trim().to_owned()),
    };
    if token.as_ref().is_some_and(String::is_empty) {
        let path = setting("token_file").unwrap_or_default();
        let detail = format!("The file {path:?} is empty. Write the token into it, or name another file.");
        return Err(Diag::error("There is no token", detail).at(Path::root().attr("token_file")).into());
    }
    let identity = match (setting(CLIENT_CERTIFICATE), setting(CLIENT_KEY)) {
        (Some(certificate), Some(key)) => Some(ClientIdentity { certificate, key }),
        (None, None) => None,
        (given, _) => {
            let (there, missing) = if given.is_some() {
                (CLIENT_CERTIFICATE, CLIENT_KEY)
            } else {
                (CLIENT_KEY, CLIENT_CERTIFICATE)
            };
            let detail = format!("{there} is given without {missing}. Give both, or neither.");
            return Err(Diag::error("Half of a certificate", detail).at(Path::root().attr(missing)).into());
        }
    };
    let duration = |name: &str| setting(name).map(|text| duration(name, &text)).transpose();
    let most = setting(MAX_PARALLEL).map(|text| parallel(&text)).transpose()?;
    let config = ClientConfig {
        timeout: duration(REQUEST_TIMEOUT)?.unwrap_or(DEFAULT_TIMEOUT),
        patience: duration(RETRY_TIMEOUT)?.unwrap_or(DEFAULT_PATIENCE),
        endpoints: endpoint.split(',').map(|one| one.trim().to_owned()).collect(),
        token,
        ca_pem: file("ca_file")?,
        identity,
        proxies: Proxies::from_env(&env),
        manager: Some(MANAGER.to_owned()),
        user_agent: Some(format!(
            "terraform-provider-basalt/{} terraform/{terraform}",
            env!("CARGO_PKG_VERSION")
        )),
        ..ClientConfig::default()
    };
    Bounded::new(&config, most).map_err(|error| {
        let at = match &error {
            ClientError::Config { setting: CLIENT_CERTIFICATE, .. } => Path::root().attr(CLIENT_CERTIFICATE),
            ClientError::Config { setting: CLIENT_KEY, .. } => Path::root().attr(CLIENT_KEY),
            ClientError::Config { setting, .. } if setting.contains("ca") => Path::root().attr("ca_file"),
            ClientError::Config { setting, .. } if setting.contains("token") => Path::root(),
            _ => Path::root().attr("endpoint"),
        };
        Diag::error(BLOCK_IS_WRONG, sentence(&error.to_string())).at(at).into()
    })
}

fn parallel(text: &str) -> Result<NonZeroU16, Diags> {
    text.parse().map_err(|_| {
        let detail = format!("{text} is not a whole number from 1 to {}; like 10.", NonZeroU16::MAX);
        Diag::error("Not a number of requests", detail).at(Path::root().attr(MAX_PARALLEL)).into()
    })
}

fn end_of_wait(text: &str) -> Result<OnNotReady, Diags> {
    match text {
        "warning" => Ok(OnNotReady::Warning),
        "error" => Ok(OnNotReady::Error),
        _ => {
            let detail = format!("{text:?} is no end of an apply; give warning or error.");
            Err(Diag::error("Neither warning nor error", detail).at(Path::root().attr(ON_NOT_READY)).into())
        }
    }
}

fn duration(setting: &str, text: &str) -> Result<Duration, Diags> {
    let parsed: Result<values::Duration, _> = text.parse();
    parsed.map(values::Duration::get).map_err(|bad| {
        let detail = format!("{}; {}.", bad.message, bad.hint);
        Diag::error("Not a duration", detail).at(Path::root().attr(setting)).into()
    })
}

fn read(setting: &str, path: &str) -> Result<String, Diags> {
    std::fs::read_to_string(path).map_err(|error| {
        let detail = format!(
            "{path:?} cannot be read: {error}. Name another file, or let whoever runs Terraform read it."
        );
        Diag::error("A file cannot be read", detail).at(Path::root().attr(setting)).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tfplugin::Num;

    fn block(given: &[(&str, &str)]) -> Val {
        let mut block: tfplugin::Object =
            SETTINGS.iter().map(|(name, _)| ((*name).to_owned(), Val::Null)).collect();
        for (name, value) in given {
            block.insert((*name).to_owned(), (*value).into());
        }
        block.into()
    }

    fn env(name: &str) -> Option<String> {
        (name == "BASALT_ENDPOINT").then(|| "http://127.0.0.1:5240".to_owned())
    }

    #[test]
    fn authorities_that_cannot_be_read_or_are_none_are_told_at_their_attribute() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "no certificate").expect("it is written");
        for path in ["/nowhere/at/all", &file.path().display().to_string()] {
            let given = block(&[("endpoint", "https://lab:5240"), ("ca_file", path)]);
            let wrong = client(&given, "1.11.4", |_| None).expect_err(path).0.remove(0);
            assert_eq!(wrong.path.to_string(), "ca_file", "{}", wrong.detail);
        }
    }

    #[test]
    fn what_is_wrong_with_the_environment_is_said_of_it() {
        let env = |name: &str| (name == "BASALT_ENDPOINT").then(|| "127.0.0.1:5240".to_owned());
        let wrong = client(&block(&[]), "1.11.4", env).expect_err("it has no scheme").0.remove(0);
        assert_eq!(wrong.summary, "The provider's environment is wrong");
        assert!(wrong.detail.ends_with(" BASALT_ENDPOINT of the environment says it."), "{}", wrong.detail);
        assert!(wrong.detail.contains("; http://127.0.0.1:5240, or unix:/PATH"), "{}", wrong.detail);
        let wrong =
            client(&block(&[("endpoint", "lab:5240")]), "1.11.4", env).expect_err("likewise").0.remove(0);
        assert_eq!(wrong.summary, BLOCK_IS_WRONG);
        assert!(wrong.detail.contains("; https://lab:5240, or unix:/PATH"), "{}", wrong.detail);
        let env = |name: &str| match name {
            "BASALT_ENDPOINT" => Some("http://127.0.0.1:5240".to_owned()),
            "BASALT_TOKEN_FILE" => Some("/nowhere/at/all".to_owned()),
            _ => None,
        };
        let wrong = client(&block(&[]), "1.11.4", env).expect_err("there is no such file").0.remove(0);
        assert!(wrong.detail.ends_with(" BASALT_TOKEN_FILE of the environment says it."), "{}", wrong.detail);
    }

    #[test]
    fn the_environment_fills_what_the_block_leaves_out() {
        assert!(client(&block(&[]), "1.11.4", env).is_ok());
        let error = client(&block(&[]), "1.11.4", |_| None).expect_err("no endpoint");
        assert_eq!(error.0[0].summary, "No endpoint");
    }

    #[test]
    fn a_wrong_endpoint_is_refused_with_its_value() {
        let error = client(&block(&[("endpoint", "gopher://x")]), "1.11.4", env).expect_err("no such scheme");
        assert!(error.0[0].detail.contains("gopher://x"), "{error:?}");
        assert_eq!(error.0[0].path.to_string(), "endpoint");
    }

    #[test]
    fn a_token_file_that_is_not_there_is_named() {
        let config = block(&[("token_file", "/nowhere/token")]);
        let error = client(&config, "1.11.4", env).expect_err("no such file");
        assert!(error.0[0].detail.starts_with("\"/nowhere/token\" cannot be read: "), "{error:?}");
    }

    #[test]
    fn the_token_that_counts_is_named_by_where_it_comes_from() {
        let tokens = |name: &str| match name {
            "BASALT_TOKEN" => Some("a".to_owned()),
            "BASALT_TOKEN_FILE" => Some("/file".to_owned()),
            _ => None,
        };
        let file = |name: &str| tokens(name).filter(|_| name == "BASALT_TOKEN_FILE");
        let from = |given: &[(&str, &str)]| token_from(&block(given), tokens).expect("a token");
        assert_eq!(from(&[("token_file", "/other")]), "the file \"/other\" of token_file");
        assert_eq!(from(&[("token", "x")]), "the attribute token");
        assert_eq!(from(&[]), "BASALT_TOKEN in the environment");
        assert_eq!(token_from(&block(&[]), file).as_deref(), Some("the file \"/file\" of BASALT_TOKEN_FILE"));
        assert_eq!(token_from(&block(&[]), |_| None), None);
    }

    #[test]
    fn a_token_file_with_nothing_in_it_is_named() {
        let empty = tempfile::NamedTempFile::new().expect("a file");
        let path = empty.path().to_str().expect("a path");
        let error = client(&block(&[("token_file", path)]), "1.11.4", env).expect_err("no token");
        assert!(error.0[0].detail.contains(path) && error.0[0].path.to_string() == "token_file", "{error:?}");
    }

    #[test]
    fn a_wrong_duration_is_told_at_its_attribute_wherever_it_comes_from() {
        assert!(client(&block(&[("retry_timeout", "2m")]), "1.11.4", env).is_ok());
        let wrong = check(&block(&[("retry_timeout", "soon")]));
        assert_eq!(wrong.0[0].path.to_string(), "retry_timeout");
        let of_environment =
            |name: &str| if name == "BASALT_REQUEST_TIMEOUT" { Some("soon".to_owned()) } else { env(name) };
        let error = client(&block(&[]), "1.11.4", of_environment).expect_err("no duration");
        assert!(error.0[0].detail.contains("soon"), "{error:?}");
    }

    #[test]
    fn what_is_not_ready_is_a_warning_unless_the_block_or_the_environment_says_error() {
        let says = |name: &str| (name == "BASALT_ON_NOT_READY").then(|| "error".to_owned());
        let end = |given: &[(&str, &str)]| on_not_ready(&block(given), says);
        assert_eq!(on_not_ready(&block(&[]), env), Ok(OnNotReady::Warning));
        assert_eq!(end(&[]), Ok(OnNotReady::Error));
        assert_eq!(end(&[("on_not_ready", "warning")]), Ok(OnNotReady::Warning));
        assert_eq!(check(&block(&[("on_not_ready", "later")])).0[0].path.to_string(), "on_not_ready");
        let wrong = on_not_ready(&block(&[]), |_| Some("later".to_owned())).expect_err("neither").0.remove(0);
        assert!(wrong.detail.starts_with("\"later\" is no end"), "{}", wrong.detail);
        assert!(
            wrong.detail.ends_with("BASALT_ON_NOT_READY of the environment says it."),
            "{}",
            wrong.detail
        );
    }

    #[test]
    fn a_number_of_requests_is_a_whole_one_from_one_on() {
        let with = |number: Val| {
            let mut block = block(&[]);
            block.set("max_parallel", number);
            block
        };
        for good in [Val::Num(Num::Int(1)), Val::Num(Num::Int(65_535)), Val::Null] {
            assert!(!check(&with(good)).has_errors());
        }
        for bad in [Num::Int(0), Num::Int(-1), Num::Int(65_536), Num::Dec("1.5".to_owned())] {
            let wrong = check(&with(Val::Num(bad.clone())));
            assert_eq!(wrong.0[0].path.to_string(), "max_parallel", "{bad}");
            assert!(wrong.0[0].detail.starts_with(&bad.to_string()), "{wrong:?}");
        }
        let of_environment =
            |name: &str| if name == "BASALT_MAX_PARALLEL" { Some("many".to_owned()) } else { env(name) };
        let error = client(&block(&[]), "1.11.4", of_environment).expect_err("no number");
        assert!(error.0[0].detail.starts_with("many is not"), "{error:?}");
    }

    #[test]
    fn half_a_certificate_and_what_is_none_are_told_at_their_attributes() {
        let told = |given: &[(&str, &str)]| {
            let error = client(&block(given), "1.11.4", env).expect_err("it cannot be shown");
            (error.0[0].path.to_string(), error.0[0].detail.clone())
        };
        let remote = ("endpoint", "https://region.example.com:5240");
        let (path, detail) = told(&[remote, ("client_certificate", "x")]);
        assert_eq!(
            (path.as_str(), detail.starts_with("client_certificate is given without")),
            ("client_key", true)
        );
        let (path, detail) = told(&[remote, ("client_key", "x")]);
        assert_eq!(
            (path.as_str(), detail.starts_with("client_key is given without")),
            ("client_certificate", true)
        );
        let (path, detail) =
            told(&[remote, ("client_certificate", "client.pem"), ("client_key", "client.key")]);
        assert_eq!(path, "client_certificate");
        assert!(detail.contains("not its path"), "{detail}");
    }

    #[test]
    fn a_proxy_that_is_none_is_told_by_its_variable() {
        let of_environment = |name: &str| match name {
            "HTTPS_PROXY" => Some("socks5://proxy:1080".to_owned()),
            other => env(other),
        };
        let remote = block(&[("endpoint", "https://region.example.com:5240")]);
        let error = client(&remote, "1.11.4", of_environment).expect_err("no proxy");
        assert!(error.0[0].detail.contains("HTTPS_PROXY: \"socks5\""), "{error:?}");
        assert!(client(&block(&[]), "1.11.4", of_environment).is_ok(), "this host needs none");
    }

    #[test]
    fn two_tokens_are_one_too_many() {
        assert!(check(&block(&[("token", "a"), ("token_file", "b")])).has_errors());
    }
}
