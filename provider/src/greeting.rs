//! The first word to a region: who are we to you?
//!
//! Terraform asks for each object by itself. What is wrong with the way there, or with the token, would be told as often as there
//! are objects; so the region is greeted once, before anything else, and what is wrong then is told there and in full: Terraform
//! asks nothing more of a provider whose block fails. A refusal of another kind is for whoever asks.

use basalt_api::ProblemCode;
use basalt_api::client::ClientError;
use tfplugin::{Diag, Diags, Path};

use crate::bounded::Bounded;
use crate::region::sentence;

/// Greets the region, with the token that came from there.
///
/// # Errors
/// Nobody answers, or it is no region, or it does not know the token.
pub(crate) async fn greet(client: &Bounded, token_from: Option<&str>) -> Result<(), Diags> {
    match client.call().await.whoami().await {
        Ok(_) => Ok(()),
        Err(error) => judge(&error, token_from).map_or(Ok(()), |diag| Err(diag.into())),
    }
}

/// What is wrong before anything is asked for, if it is.
fn judge(error: &ClientError, token_from: Option<&str>) -> Option<Diag> {
    // Terraform shows the line that an error is at, and with that of the token the token.
    let (whole, endpoint) = (Path::root(), Path::root().attr("endpoint"));
    let (title, at, detail) = match (error, error.code(), token_from) {
        (_, Some(ProblemCode::Unauthenticated), None) => ("There is no token", whole, NO_TOKEN.to_owned()),
        (ClientError::Problem(problem), Some(ProblemCode::Unauthenticated), Some(from)) => {
            let why = problem.detail.trim_end_matches('.');
            let detail = format!(
                "The region refused the token that {from} gives: {why}. `basalt token issue NAME` makes another one for the ApiToken of that \
                 name, and `basalt whoami` says what a token is good for."
            );
            ("The token is not accepted", whole, detail)
        }
        (ClientError::Unexpected { .. }, ..) => {
            ("That is no region", endpoint, format!("{error}; look at the endpoint."))
        }
        _ if error.is_outage() => ("No region can be reached", endpoint, sentence(&error.to_string())),
        // From another host it is asked in the clear.
        (ClientError::Problem(problem), ..) if problem.status == 426 => {
            ("TLS is asked for", endpoint, sentence(&problem.detail))
        }
        _ => return None,
    };
    Some(Diag::error(title, detail).at(at))
}

const NO_TOKEN: &str = "The region answers nobody without a token, and none is given: not by token or token_file of the provider's block, \
                        and not by BASALT_TOKEN or BASALT_TOKEN_FILE of the environment. `basalt token issue NAME` makes one for the \
                        ApiToken of that name; that of a new region's first admin is in the file admin-token of its data directory. The \
                        session of `basalt login` is that command's alone. On a unix socket root needs none.";

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::http::StatusCode;
    use axum::response::IntoResponse;
    use basalt_api::Problem;
    use basalt_api::client::ClientConfig;
    use std::time::Duration;

    /// What is said where this answers everything.
    async fn said(code: ProblemCode, token_from: Option<&str>) -> Option<(String, String)> {
        let problem = serde_json::to_value(Problem::new(code, "this token is not known"));
        let diag = told(code.status(), problem.expect("JSON"), token_from).await?;
        Some((diag.path.to_string(), diag.detail))
    }

    async fn told(status: u16, problem: serde_json::Value, token_from: Option<&str>) -> Option<Diag> {
        let answer = move || {
            let status = StatusCode::from_u16(status).expect("a status");
            let answer =
                (status, [("content-type", "application/problem+json")], axum::Json(problem.clone()));
            async move { answer.into_response() }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoints = vec![format!("http://{}", listener.local_addr().expect("an address"))];
        let app = Router::new().fallback(answer);
        let server = tokio::spawn(async move { axum::serve(listener, app).await.expect("it serves") });
        let config = ClientConfig { endpoints, patience: Duration::ZERO, ..ClientConfig::default() };
        let client = Bounded::new(&config, None).expect("a client");
        let greeted = greet(&client, token_from).await;
        server.abort();
        greeted.err()?.0.pop()
    }

    /// As a rack says it (`rack/src/http/forward.rs`), which passes the API on over TLS alone, and a region to other hosts.
    #[tokio::test]
    async fn who_wants_tls_is_told_at_the_endpoint() {
        for (code, detail) in [
            ("tls_required", "the API is passed on over TLS only; ask for https://, and pin this rack's key"),
            ("forbidden", "10.0.0.9 speaks plain HTTP from another host; ask for https:// of a region"),
        ] {
            let problem = serde_json::json!({
                "type": format!("urn:basalt:problem:{code}"), "code": code, "status": 426, "title": "TLS", "detail": detail
            });
            let diag = told(426, problem, Some("token")).await.expect("an error");
            assert_eq!(
                (diag.summary.as_str(), diag.path.to_string().as_str()),
                ("TLS is asked for", "endpoint")
            );
            assert!(diag.detail.contains("ask for https://"), "{}", diag.detail);
        }
    }

    #[tokio::test]
    async fn a_token_that_is_refused_is_told_with_where_it_came_from() {
        let (at, detail) = said(ProblemCode::Unauthenticated, Some("BASALT_TOKEN")).await.expect("an error");
        assert!(
            at.is_empty() && detail.contains("the token that BASALT_TOKEN gives: this token is not known"),
            "{detail}"
        );
        let (at, detail) = said(ProblemCode::Unauthenticated, None).await.expect("an error");
        assert!(
            at.is_empty() && detail.contains("BASALT_TOKEN_FILE") && detail.contains("admin-token"),
            "{detail}"
        );
    }

    #[tokio::test]
    async fn what_is_refused_to_this_question_alone_is_no_matter() {
        for code in [ProblemCode::Forbidden, ProblemCode::NoSuchPath, ProblemCode::Internal] {
            assert_eq!(said(code, Some("token")).await, None, "{code:?}");
        }
        let (at, detail) = said(ProblemCode::Unavailable, Some("token")).await.expect("an error");
        assert!(at == "endpoint" && detail.ends_with('.'), "{detail}");
    }
}
