//! Sessions, the texts of tokens, and what admins ask: who wrote what.

use super::transport::Call;
use super::{Client, ClientError};
use crate::values::Timestamp;
use crate::wire::{AuditPage, LoginAnswer, LoginRequest, PasswordRequest, TokenIssued, WhoAmI};
use reqwest::Method;

/// Which entries of the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditOptions {
    /// Not older than this.
    pub since: Option<Timestamp>,
    /// Of this object: `uid:UUID`, `KIND/NAME`, or `KIND` for all of them.
    pub object: Option<String>,
    /// By this actor: `token NAME`, `user NAME`.
    pub actor: Option<String>,
    /// Most entries of a page; the region's choice when absent.
    pub limit: Option<u32>,
    /// `next` of the page before.
    pub next: Option<String>,
}

impl Client {
    /// Logs in; the answer's token is good for the other calls.
    ///
    /// # Errors
    /// `unauthenticated`, `rate_limited`, and see [`ClientError`].
    pub async fn login(&self, request: &LoginRequest) -> Result<LoginAnswer, ClientError> {
        self.transport.json(Call::new(Method::POST, "/api/v1/login").body(request)?).await
    }

    /// Ends the session whose token this client has.
    ///
    /// # Errors
    /// `not_found` when it is no session, and see [`ClientError`].
    pub async fn logout(&self) -> Result<(), ClientError> {
        self.transport
            .json_with_status::<Option<()>>(Call::new(Method::POST, "/api/v1/logout"))
            .await
            .map(drop)
    }

    /// Changes the password of the user whose session this is: that ends, and the answer's token is of the next one.
    ///
    /// # Errors
    /// `forbidden` when the present password is another one or this is no session, `rate_limited`, and see [`ClientError`].
    pub async fn change_password(&self, request: &PasswordRequest) -> Result<LoginAnswer, ClientError> {
        self.transport.json(Call::new(Method::POST, "/api/v1/password").body(request)?).await
    }

    /// Who the region takes this client for.
    ///
    /// # Errors
    /// `unauthenticated`, and see [`ClientError`].
    pub async fn whoami(&self) -> Result<WhoAmI, ClientError> {
        self.transport.json(Call::get("/api/v1/whoami")).await
    }

    /// Makes the text of an ApiToken, which is shown this once; the one before is good no more.
    ///
    /// # Errors
    /// `not_found`, `forbidden`, and see [`ClientError`].
    pub async fn issue_token(&self, name: &str) -> Result<String, ClientError> {
        let issued: TokenIssued =
            self.transport.json(Call::new(Method::POST, &token_path(name, "issue"))).await?;
        Ok(issued.token)
    }

    /// Makes the text of an ApiToken good no more.
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
    /// `forbidden` unless the caller is an admin, and see [`ClientError`].
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
