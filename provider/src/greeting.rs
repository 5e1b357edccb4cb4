//! The first request to a region: it checks the connection and the token.
//!
//! Terraform asks for each object alone, so an error in the connection or the token would be reported once per object. The provider
//! therefore greets the region once, before any other request, and reports such an error in full: Terraform makes no more requests to
//! a provider whose configuration fails. Other refusals are reported by the requests that meet them. A region of another version
//! causes a warning: a field that only one of the two knows would look like an error in the configuration.

use basalt_api::client::ClientError;
use basalt_api::wire::Version;
use basalt_api::{KINDS, Kind, ProblemCode};
use tfplugin::{Diag, Diags, Path};

use crate::bounded::Bounded;
use crate::refusal::sentence;

/// Greets the region. `token_from` is the source of the token. Returns a warning if the region has another version than the provider.
///
/// # Errors
/// The region does not answer, the server is not a region, or the token is unknown.
pub(crate) async fn greet(client: &Bounded, token_from: Option<&str>) -> Result<Option<Diag>, Diags> {
    let known = client.call().await.whoami().await;
    if let Some(wrong) = known.err().and_then(|error| judge(&error, token_from)) {
        return Err(wrong.into());
    }
    let version = client.call().await.version().await;
    // A region that does not tell its version is used anyway.
    Ok(version.ok().and_then(|version| skew(&version, env!("CARGO_PKG_VERSION"))))
}

/// A warning if the region and the provider differ in their minor or major version.
fn skew(region: &Version, ours: &str) -> Option<Diag> {
    // Patch versions do not change the API.
    let line = |version: &str| version.split('.').take(2).map(str::to_owned).collect::<Vec<_>>();
    if line(&region.version) == line(ours) {
        return None;
    }
    let known = |kind: &&Kind| region.kinds.is_empty() || region.kinds.iter().any(|name| name == kind.name);
    let unknown: Vec<_> = KINDS.iter().copied().filter(|kind| !known(kind)).map(|kind| kind.name).collect();
    let theirs = &region.version;
    let lacks = match unknown.as_slice() {
        [] => String::new(),
        names => format!(" It does not know {}.", names.join(", ")),
    };
    let detail = format!(
        "The region is of version {theirs}, and this provider of {ours}.{lacks} What one of them does not know is refused, or not seen. The \
         region serves the provider that fits it: give required_providers the source \"HOST:PORT/basalt-metal/basalt\", with the region's \
         host and port, and run `terraform init -upgrade`."
    );
    Some(Diag::warning(format!("The region is of another version: {theirs}"), detail))
}

/// The error that makes every request useless, if this is one.
fn judge(error: &ClientError, token_from: Option<&str>) -> Option<Diag> {
    // Terraform shows the source line of an error; for the token's attribute, that line contains the token.
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
        (ClientError::Interrupted { .. }, ..) => {
            ("Interrupted", whole, "The region did not answer until then.".to_owned())
        }
        (ClientError::Distrusted { .. }, ..) => (
            "The region's certificate is not trusted",
            Path::root().attr("ca_file"),
            sentence(&error.to_string()),
        ),
        _ if error.is_outage() => ("No region can be reached", endpoint, sentence(&error.to_string())),
        // The region accepts unencrypted requests only from its own host.
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

    fn refusal(code: ProblemCode) -> axum::response::Response {
        let status = StatusCode::from_u16(code.status()).expect("a status");
        let head = [("content-type", "application/problem+json")];
        (status, head, axum::Json(Problem::new(code, "no"))).into_response()
    }

    /// The diagnostic when the region answers every request like this.
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

    #[test]
    fn a_region_of_another_version_is_told_with_what_it_lacks_and_what_to_do() {
        let kinds = || KINDS.iter().map(|kind| kind.name.to_owned());
        let region = |version: &str, kinds: Vec<String>| {
            let version =
                Version { version: version.to_owned(), api: "v1".to_owned(), incarnation: None, kinds };
            skew(&version, "1.2.3").map(|diag| diag.detail)
        };
        assert_eq!(region("1.2.9", kinds().collect()), None, "its API is the same");
        assert_eq!(region("1.2.3", Vec::new()), None, "the same");
        for version in ["1.1.0", "2.2.3", "1.3.0-rc.1"] {
            let told = region(version, kinds().collect()).expect("a warning");
            assert!(
                told.contains(&format!("of version {version}, and this provider of 1.2.3. What")),
                "{told}"
            );
            assert!(told.contains("terraform init -upgrade"), "{told}");
        }
        let told = region("1.1.0", kinds().filter(|kind| kind != "Zone").collect()).expect("a warning");
        assert!(told.contains("It does not know Zone."), "{told}");
    }

    #[tokio::test]
    async fn the_version_is_asked_for_by_whoever_is_greeted() {
        let app = Router::new().fallback(async |uri: axum::http::Uri| match uri.path() {
            "/api/v1/version" => {
                axum::Json(serde_json::json!({"version": "99.0.0", "api": "v1"})).into_response()
            }
            _ => refusal(ProblemCode::Forbidden),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoints = vec![format!("http://{}", listener.local_addr().expect("an address"))];
        let server = tokio::spawn(async move { axum::serve(listener, app).await.expect("it serves") });
        let config = ClientConfig { endpoints, patience: Duration::ZERO, ..ClientConfig::default() };
        let client = Bounded::new(&config, None).expect("a client");
        let warned = greet(&client, Some("token")).await;
        server.abort();
        let warning = warned.expect("it is a region").expect("a warning");
        assert_eq!(warning.summary, "The region is of another version: 99.0.0");
    }

    /// The answer of a rack (`rack/src/http/forward.rs`), which forwards the API only over TLS; and of a region to other hosts.
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
