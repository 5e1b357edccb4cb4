//! Logins, and the identity of a caller as the region knows it.

use crate::kinds::RoleBase;
use crate::values::{Timestamp, Uid};
use basalt_api_derive::Shape;
use serde::{Deserialize, Serialize};

/// Bytes of the longest ID token that is accepted. A token with many groups has some kilobytes.
pub const MAX_ID_TOKEN_BYTES: usize = 64 << 10;

/// Body of `POST /api/v1/login`: with a password, by OpenID Connect, or with a token or a code for a cookie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LoginRequest {
    /// With a password.
    Password(PasswordLogin),
    /// With an ID token of the OpenID Connect issuer that Settings name.
    OpenId(OpenIdLogin),
    /// With an existing token.
    Token(TokenLogin),
    /// With the code that an issuer gave a browser when it sent it back.
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
    /// The nonce that the client asked the issuer to repeat in the token; absent if it asked for none.
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
    /// The text that the region sent to the issuer, which the issuer must return.
    pub state: String,
    /// The issuer, if the response names it (RFC 9207 §2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iss: Option<String>,
}

impl std::fmt::Debug for CodeLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CodeLogin").finish_non_exhaustive()
    }
}

/// Answer to `GET /api/v1/login`: the ways to log in in a browser, besides passwords and tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginWays {
    /// The host of the issuer that Settings name. Absent: there is no browser login by OpenID Connect.
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
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Shape)]
pub struct LoginAnswer {
    /// The session's token, for `Authorization: Bearer`.
    pub token: String,
    /// Time when the session ends if it is not used. Each use moves it, up to 12 hours.
    pub expires_at: Timestamp,
}

impl std::fmt::Debug for LoginAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoginAnswer").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}

/// Body of `POST /api/v1/password`: changes the caller's own password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PasswordRequest {
    /// The present password.
    pub present: String,
    /// The new password.
    pub password: String,
}

impl std::fmt::Debug for PasswordRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PasswordRequest").finish_non_exhaustive()
    }
}

/// Answer to `GET /api/v1/whoami`: the identity of the caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
pub struct WhoAmI {
    /// The caller's name in the audit log: `user NAME`, `token NAME`, `peer uid 0`.
    pub actor: String,
    /// The credential that identifies the caller.
    pub by: KnownBy,
    /// Name of the session's User, or of the ApiToken; absent for a caller on the socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Uid of that User or ApiToken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<Uid>,
    /// The user on whose behalf the caller acts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Roles of the caller. A call is allowed if one of them allows it.
    pub roles: Vec<GrantedRole>,
    /// Scopes that limit the roles; empty: no limit.
    pub scopes: Vec<String>,
    /// Time when the credential ends. For a session: time when it ends if it is not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// The credential that identifies a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
#[serde(rename_all = "snake_case")]
pub enum KnownBy {
    /// By the token of a session.
    Session,
    /// By the text of an ApiToken.
    Token,
    /// By the region's socket.
    Socket,
}

/// A role, and the pools where it applies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Shape)]
pub struct GrantedRole {
    /// `admin`, `operator` or `viewer`.
    pub role: RoleBase,
    /// Pools where the role applies; absent: everywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pools: Option<Vec<String>>,
}
