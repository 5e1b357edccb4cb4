//! Pages for people: where things are, the API, and the manual. They have no script, and load nothing from elsewhere.
//!
//! | path | module | page |
//! | --- | --- | --- |
//! | `/` | this one | where things are |
//! | `/docs` | [`reference`] | the OpenAPI document |
//! | `/pages`, `/pages/NAME` | [`manual`] | README, `docs/` and `provider/docs` of the repository |

mod manual;
mod markdown;
mod reference;

use axum::extract::Path;
use axum::response::Html;

use super::problem::Answer;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b}\
table{border-collapse:collapse;width:100%;margin:.5rem 0 1.5rem}td,th{border-bottom:1px solid #ddd;padding:.25rem .5rem;\
text-align:left;vertical-align:top}code{font:13px ui-monospace,monospace}pre{background:#f4f4f4;padding:.75rem;overflow-x:auto}\
nav{display:flex;flex-wrap:wrap;gap:.25rem .75rem}.wide{overflow-x:auto}\
@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}a{color:#8ab4f8}td,th{border-color:#444}pre{background:#222}}";

/// The page at `/`.
pub(super) async fn home() -> Html<String> {
    let version = env!("CARGO_PKG_VERSION");
    let body = format!(
        "<h1>Basalt region {version}</h1>\
         <p>Bare metal, declared. There is no console yet: people use the command <code>basalt</code>, or Terraform.</p>\
         <table>\
         <tr><th>where<th>what\
         <tr><td><a href=\"/docs\">/docs</a><td>the API: each endpoint, field, answer and error, with examples\
         <tr><td><a href=\"/openapi.json\">/openapi.json</a><td>the same for programs (OpenAPI 3.1)\
         <tr><td><a href=\"/pages\">/pages</a><td>the manual: set-up, concepts, troubleshooting, decisions\
         <tr><td><a href=\"{provider}\">{provider}</a><td>the Terraform provider; <a href=\"/pages#provider/docs\">the manual</a> lists its resources, data sources, actions, functions and guides\
         <tr><td><a href=\"/version\">/version</a>, <a href=\"/healthz\">/healthz</a>, <a href=\"/readyz\">/readyz</a><td>\
         the version; whether the process runs, and can serve requests\
         <tr><td><code>/metrics</code><td>counts for Prometheus; needs a token\
         <tr><td><code>/api/v1</code><td>the API itself; needs a token\
         </table>\
         <h2>To begin with</h2>\
         <pre>export BASALT_ENDPOINT=https://HOST:5240\nbasalt login NAME\nbasalt get machines</pre>\
         <p>Terraform installs the provider from here, where the region has a certificate:</p>\
         <pre>terraform {{\n  required_providers {{\n    basalt = {{ source = \"HOST:5240/basalt-metal/basalt\" }}\n  }}\n}}</pre>",
        provider = manual::PROVIDER,
    );
    Html(layout("Basalt region", &body))
}

/// The page at `/docs`.
pub(super) async fn docs() -> Html<&'static str> {
    Html(reference::page())
}

/// The page at `/pages`.
pub(super) async fn pages() -> Html<String> {
    Html(manual::contents())
}

/// A page of the manual.
pub(super) async fn page(Path(name): Path<String>) -> Answer<Html<String>> {
    manual::page(&name).map(Html)
}

/// A whole page.
fn layout(title: &str, body: &str) -> String {
    let title = escaped(title);
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style></head><body>\
         <nav><a href=\"/\">Region</a><a href=\"/docs\">API</a><a href=\"/pages\">Manual</a>\
         <a href=\"{}\">Terraform provider</a></nav>{body}</body></html>",
        manual::PROVIDER
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_page_leads_to_the_others() {
        let Html(home) = home().await;
        for path in ["/docs", "/openapi.json", "/pages", manual::PROVIDER, "/healthz"] {
            assert!(home.contains(&format!("href=\"{path}\"")), "{path}");
        }
    }

    #[test]
    fn words_are_no_markup() {
        assert_eq!(escaped(r#"a<b>&"c""#), "a&lt;b&gt;&amp;&quot;c&quot;");
    }
}
