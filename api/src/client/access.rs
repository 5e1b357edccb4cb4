//! Sessions, tokens and the audit log.

use super::transport::Call;
use super::{Client, ClientError};
use crate::values::Timestamp;
use crate::wire::{AuditPage, LoginAnswer, LoginRequest, PasswordRequest, TokenIssued, WhoAmI};
use reqwest::Method;

/// Selection and page of audit entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditOptions {
    /// Only entries since this time.
    pub since: Option<Timestamp>,
    /// Only entries of this object (`uid:UUID` or `KIND/NAME`), or of all objects of a kind (`KIND`).
    pub object: Option<String>,
    /// Only entries of this actor: `token NAME`, `user NAME`.
    pub actor: Option<String>,
    /// Most entries of a page. Absent: the region chooses.
    pub limit: Option<u32>,
    /// `next` of the previous page.
    pub next: Option<String>,
}

impl Client {
    /// Logs in. The token of the answer is valid for the other calls.
    ///
    /// # Errors
    /// `unauthenticated`, `rate_limited`, and see [`ClientError`].
    pub async fn login(&self, request: &LoginRequest) -> Result<LoginAnswer, ClientError> {
        self.transport.json(Call::new(Method::POST, "/api/v1/login").body(request)?).await
    }

    /// Ends the session of this client's token.
    ///
    /// # Errors
    /// `not_found` if the token is not one of a session, and see [`ClientError`].
    pub async fn logout(&self) -> Result<(), ClientError> {
        self.transport
            .json_with_status::<Option<()>>(Call::new(Method::POST, "/api/v1/logout"))
            .await
            .map(drop)
    }

    /// Changes the password of the session's user. This session ends; the answer has the token of a new one.
    ///
    /// # Errors
    /// `forbidden` if the present password is wrong or the caller has no session, `rate_limited`, and see [`ClientError`].
    pub async fn change_password(&self, request: &PasswordRequest) -> Result<LoginAnswer, ClientError> {
        self.transport.json(Call::new(Method::POST, "/api/v1/password").body(request)?).await
    }

    /// The identity of this client as the region knows it.
    ///
    /// # Errors
    /// `unauthenticated`, and see [`ClientError`].
    pub async fn whoami(&self) -> Result<WhoAmI, ClientError> {
        self.transport.json(Call::get("/api/v1/whoami")).await
    }

    /// Issues the text of an ApiToken. It is shown only once, and the previous text becomes invalid.
    ///
    /// # Errors
    /// `not_found`, `forbidden`, and see [`ClientError`].
    pub async fn issue_token(&self, name: &str) -> Result<String, ClientError> {
        let issued: TokenIssued =
            self.transport.json(Call::new(Method::POST, &token_path(name, "issue"))).await?;
        Ok(issued.token)
    }

    /// Makes the text of an ApiToken invalid.
    ///
    /// # Errors
    /// `not_found`, `forbidden`, and see [`ClientError`].
    pub async fn revoke_token(&self, name: &str) -> Result<(), ClientError> {
        let call = Call::new(Method::POST, &token_path(name, "revoke"));
        self.transport.json_with_status::<Option<()>>(call).await.map(drop)
    }

    /// A page of the audit log, the newest entry first.
    ///
    /// # Errors
    /// `forbidden` if the caller is not an admin, and see [`ClientError`].
    pub async fn audit(&self, options: &AuditOptions) -> Result<AuditPage, ClientError> {
        let mut call = Call::get("/api/v1/audit");
        let pairs = [
            ("since", options.since.map(|at| at.to_string())),
            ("object", options.object.clone()),
            ("actor", options.actor.clone()),
            ("limit", options.limit.map(|n| n.to_string())),
            ("continue", options.next.clone()),
        ];
        for (name, value) in pairs {
            if let Some(value) = value {
                call = call.query(name, &value);
            }
        }
        self.transport.json(call).await
    }
}

fn token_path(name: &str, what: &str) -> String {
    format!("/api/v1/api_tokens/{}/{what}", super::transport::encode(name))
}
