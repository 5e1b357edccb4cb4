//! The authorization code flow of a browser (OpenID Connect Core 1.0 §3.1) with PKCE (RFC 7636). Pure: the secret is an argument.
//!
//! | value | goes to | purpose |
//! | --- | --- | --- |
//! | secret | the browser's cookie | binds the login to this browser; the region stores its hash, and accepts it once |
//! | state | the issuer, and back | the answer belongs to this browser's request |
//! | nonce | the issuer, and back in the ID token | the token belongs to this login |
//! | verifier | the issuer, with the code | only the region can use the code; the issuer received the verifier's hash before |
//!
//! State, nonce and verifier are hashes of the secret, each with its own word. None can be computed from another.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use std::fmt::Write;

/// Scopes of every login. `groups` is added if the issuer supports it.
const SCOPES: &str = "openid profile";
const GROUPS: &str = "groups";

/// The endpoints of an issuer (OpenID Connect Discovery 1.0 §3).
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
pub(crate) struct Endpoints {
    #[serde(default, rename = "authorization_endpoint")]
    pub(crate) authorization: Option<String>,
    #[serde(default, rename = "token_endpoint")]
    pub(crate) token: Option<String>,
    #[serde(default, rename = "scopes_supported")]
    scopes: Vec<String>,
    #[serde(default, rename = "token_endpoint_auth_methods_supported")]
    methods: Vec<String>,
}

/// A request for an ID token.
#[derive(PartialEq, Eq)]
pub(crate) struct Exchange {
    pub(crate) form: String,
    /// The value of the `Authorization` header.
    pub(crate) basic: Option<String>,
}

/// Hides the content: it has a code and a secret.
impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").finish_non_exhaustive()
    }
}

/// The region as a client of the issuer, and the URL to which browsers are redirected.
#[derive(Clone, Copy)]
pub(crate) struct Client<'a> {
    pub(crate) id: &'a str,
    pub(crate) secret: Option<&'a str>,
    pub(crate) back: &'a str,
}

impl std::fmt::Debug for Client<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("id", &self.id).field("back", &self.back).finish_non_exhaustive()
    }
}

/// A login of a browser.
#[derive(Clone, Copy)]
pub(crate) struct Attempt<'a> {
    secret: &'a str,
}

impl std::fmt::Debug for Attempt<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attempt").finish_non_exhaustive()
    }
}

impl<'a> Attempt<'a> {
    /// A login with this secret, which must be unguessable.
    pub(crate) const fn new(secret: &'a str) -> Self {
        Self { secret }
    }

    fn derived(self, word: &str) -> String {
        hashed(&format!("{word} {}", self.secret))
    }

    /// The `state` parameter, which the issuer returns unchanged (RFC 6749 §4.1.1).
    pub(crate) fn state(self) -> String {
        self.derived("state")
    }

    /// The `nonce`, which the issuer repeats in the ID token.
    pub(crate) fn nonce(self) -> String {
        self.derived("nonce")
    }

    fn verifier(self) -> String {
        self.derived("verifier")
    }

    /// The URL of the issuer's page for this login.
    pub(crate) fn location(self, endpoint: &str, known: &Endpoints, client: Client<'_>) -> String {
        let scope = match known.scopes.iter().any(|scope| scope == GROUPS) {
            true => format!("{SCOPES} {GROUPS}"),
            false => SCOPES.to_owned(),
        };
        let question = form(&[
            ("response_type", "code"),
            ("client_id", client.id),
            ("redirect_uri", client.back),
            ("scope", &scope),
            ("state", &self.state()),
            ("nonce", &self.nonce()),
            ("code_challenge_method", "S256"),
            ("code_challenge", &hashed(&self.verifier())),
        ]);
        let sign = if endpoint.contains('?') { '&' } else { '?' };
        format!("{endpoint}{sign}{question}")
    }

    /// The request that exchanges a code for an ID token (RFC 6749 §4.1.3). The secret goes in the `Authorization` header, which every
    /// issuer accepts unless it declares other methods (OpenID Connect Core 1.0 §9).
    pub(crate) fn exchange(self, code: &str, known: &Endpoints, client: Client<'_>) -> Exchange {
        let verifier = self.verifier();
        let mut pairs = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", client.back),
            ("client_id", client.id),
            ("code_verifier", &verifier),
        ];
        let knows = |method: &str| known.methods.iter().any(|known| known == method);
        let in_form = knows("client_secret_post") && !knows("client_secret_basic");
        let basic = client.secret.filter(|_| !in_form).map(|secret| {
            let account = format!("{}:{}", escaped(client.id), escaped(secret));
            format!("Basic {}", STANDARD.encode(account))
        });
        if let Some(secret) = client.secret.filter(|_| in_form) {
            pairs.push(("client_secret", secret));
        }
        Exchange { form: form(&pairs), basic }
    }
}

fn hashed(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, text.as_bytes()))
}

/// Encodes pairs as `application/x-www-form-urlencoded`.
fn form(pairs: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
    pairs.join("&")
}

fn escaped(value: &str) -> String {
    let mut text = String::new();
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(byte))
            }
            // Writing to a `String` cannot fail.
            _ => drop(write!(text, "%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: Client<'_> =
        Client { id: "basalt ui", secret: Some("a:b"), back: "https://basalt.example.com:5240/ui/login" };

    #[test]
    fn the_issuer_is_asked_with_a_challenge_and_told_the_verifier_later() {
        let attempt = Attempt::new("secret");
        let known = Endpoints { scopes: vec!["openid".into(), "groups".into()], ..Endpoints::default() };
        let location = attempt.location("https://id/a?tenant=1", &known, CLIENT);
        let expected = format!(
            "https://id/a?tenant=1&response_type=code&client_id=basalt%20ui\
             &redirect_uri=https%3A%2F%2Fbasalt.example.com%3A5240%2Fui%2Flogin&scope=openid%20profile%20groups\
             &state={}&nonce={}&code_challenge_method=S256&code_challenge={}",
            attempt.state(),
            attempt.nonce(),
            hashed(&attempt.verifier())
        );
        assert_eq!(location, expected);
        assert!(!location.contains(&attempt.verifier()) && !location.contains("secret"));
        let Exchange { form, basic } = attempt.exchange("a/b", &known, CLIENT);
        assert!(
            form.contains("&code=a%2Fb&") && form.ends_with(&format!("={}", attempt.verifier())),
            "{form}"
        );
        assert_eq!(basic, Some(format!("Basic {}", STANDARD.encode("basalt%20ui:a%3Ab"))));
    }

    #[test]
    fn a_secret_goes_in_the_form_where_the_issuer_takes_it_nowhere_else_and_a_public_client_has_none() {
        let of = |methods: &[&str], client| {
            let methods = methods.iter().map(|it| (*it).to_owned()).collect();
            let Exchange { form, basic } =
                Attempt::new("s").exchange("c", &Endpoints { methods, ..Endpoints::default() }, client);
            (form.contains("client_secret=a%3Ab"), basic.is_some())
        };
        assert_eq!(of(&["client_secret_post"], CLIENT), (true, false));
        assert_eq!(of(&["client_secret_post", "client_secret_basic"], CLIENT), (false, true));
        assert_eq!(of(&["client_secret_post"], Client { secret: None, ..CLIENT }), (false, false));
    }

    #[test]
    fn values_of_one_login_tell_nothing_of_each_other_and_none_is_like_another_login() {
        let of = |secret| {
            let attempt = Attempt::new(secret);
            [attempt.state(), attempt.nonce(), attempt.verifier()]
        };
        let all: std::collections::BTreeSet<_> = of("a").into_iter().chain(of("b")).collect();
        assert_eq!(all.len(), 6);
        // RFC 7636 §4.1: 43 to 128 characters.
        assert!(all.iter().all(|value| value.len() == 43));
    }

    #[test]
    fn scopes_that_an_issuer_does_not_name_are_not_asked_for() {
        let known: Endpoints = serde_json::from_str(r#"{"issuer": "https://id"}"#).unwrap();
        assert_eq!(known, Endpoints::default());
        assert!(
            Attempt::new("s").location("https://id/a", &known, CLIENT).contains("scope=openid%20profile&")
        );
    }
}
