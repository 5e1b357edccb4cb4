//! Logins, and who the region takes a caller for.

use crate::values::{Timestamp, Uid};
use serde::{Deserialize, Serialize};

/// Bytes of the longest ID token that is read: one with many groups has some kilobytes.
pub const MAX_ID_TOKEN_BYTES: usize = 64 << 10;

/// Body of `POST /api/v1/login`: with a password, by OpenID Connect, or with a token or a code for a cookie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LoginRequest {
    /// With a password.
    Password(PasswordLogin),
    /// With what the issuer that Settings name says of somebody.
    OpenId(OpenIdLogin),
    /// With a token that is there already.
    Token(TokenLogin),
    /// With what an issuer sent a browser back with.
    Code(CodeLogin),
}

/// A login with a password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PasswordLogin {
    /// The user's name.
    pub user: String,
    /// The user's password.
    pub password: String,
}

impl std::fmt::Debug for PasswordLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PasswordLogin").field("user", &self.user).finish_non_exhaustive()
    }
}

/// A login with an ID token (OpenID Connect Core 1.0 §2).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenIdLogin {
    /// The token, as the issuer signed it.
    pub id_token: String,
    /// What the issuer was to repeat in it, where the client asked for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
}

impl std::fmt::Debug for OpenIdLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenIdLogin").finish_non_exhaustive()
    }
}

/// A login with the token of an ApiToken or a session, which a browser keeps as a cookie from then on.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenLogin {
    /// The token's text.
    pub token: String,
}

impl std::fmt::Debug for TokenLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenLogin").finish_non_exhaustive()
    }
}

/// A login in a browser that comes back from the issuer (OpenID Connect Core 1.0 §3.1.2.5). `GET /api/v1/login/openid` began it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodeLogin {
    /// The code, which the region exchanges for an ID token.
    pub code: String,
    /// The text that the region gave the issuer to repeat.
    pub state: String,
    /// The issuer, where it says so (RFC 9207 §2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iss: Option<String>,
}

impl std::fmt::Debug for CodeLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CodeLogin").finish_non_exhaustive()
    }
}

/// Answer to `GET /api/v1/login`: the ways to log in in a browser, beside passwords and tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginWays {
    /// The host of the issuer that Settings name; absent: people do not log in by OpenID Connect in a browser.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub openid: Option<String>,
}

/// Answer to `GET /api/v1/login/openid`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginBegun {
    /// The issuer's page, for the browser to go to.
    pub location: String,
}

/// Answer to `POST /api/v1/login`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginAnswer {
    /// The session's token, for `Authorization: Bearer`.
    pub token: String,
    /// When it ends if it is not used; use moves this on, up to 12 hours.
    pub expires_at: Timestamp,
}

impl std::fmt::Debug for LoginAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoginAnswer").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}

/// Body of `POST /api/v1/password`: the caller's own.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PasswordRequest {
    /// The one that is to be changed.
    pub present: String,
    /// The next one.
    pub password: String,
}

impl std::fmt::Debug for PasswordRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PasswordRequest").finish_non_exhaustive()
    }
}

/// Answer to `GET /api/v1/whoami`: who the region takes the caller for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhoAmI {
    /// As the audit log has it: `user NAME`, `token NAME`, `peer uid 0`.
    pub actor: String,
    /// By what it is known.
    pub by: KnownBy,
    /// The name of the session's User, or of the ApiToken; over the socket there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Of that object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<Uid>,
    /// The user for whom it speaks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What it may do: all that any of them allows.
    pub roles: Vec<GrantedRole>,
    /// To what of that it is limited; empty: it is not.
    pub scopes: Vec<String>,
    /// When it ends; a session: when it ends unless it is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// By what the region knows a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KnownBy {
    /// By the token of a session.
    Session,
    /// By the text of an ApiToken.
    Token,
    /// By the region's socket.
    Socket,
}

/// A role, and where it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantedRole {
    /// `admin`, `operator` or `viewer`.
    pub role: String,
    /// In these pools; absent: everywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pools: Option<Vec<String>>,
}
