//! Pages for people: where things are, the API, and the manual. They have no script, and load nothing from elsewhere.
//!
//! | path | module | page |
//! | --- | --- | --- |
//! | `/docs` | [`reference`] | the OpenAPI document |
//! | `/pages`, `/pages/NAME` | [`manual`] | where things are; README, `docs/` and `provider/docs` of the repository |

mod manual;
mod markdown;
mod reference;

use axum::extract::Path;
use axum::response::Html;

use super::problem::Answer;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b}\
table{border-collapse:collapse;width:100%;margin:.5rem 0 1.5rem}td,th{border-bottom:1px solid #ddd;padding:.25rem .5rem;\
text-align:left;vertical-align:top}code{font:13px ui-monospace,monospace}pre{background:#f4f4f4;padding:.75rem;overflow-x:auto}\
nav{display:flex;flex-wrap:wrap;gap:.25rem .75rem}.box{overflow-x:auto}h1,h2,h3,p,li,a{overflow-wrap:anywhere}\
@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}a{color:#8ab4f8}td,th{border-color:#444}pre{background:#222}}";

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
    let (title, body) = (escaped(title), boxed(body));
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style></head><body>\
         <nav><a href=\"/\">Console</a><a href=\"/docs\">API</a><a href=\"/pages\">Manual</a>\
         <a href=\"{}\">Terraform provider</a></nav>{body}</body></html>",
        manual::PROVIDER
    )
}

/// The body with each table in a box of its own, which scrolls sideways on a narrow screen. The keyboard scrolls it too.
fn boxed(body: &str) -> String {
    body.replace("<table>", "<div class=\"box\" tabindex=\"0\"><table>").replace("</table>", "</table></div>")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_of_a_page_scrolls_in_its_own_box() {
        for page in [reference::page(), &manual::contents()] {
            assert!(page.contains("<table>"));
            let boxes = page.matches("<div class=\"box\" tabindex=\"0\"><table>").count();
            assert_eq!([page.matches("<table>").count(), page.matches("</table></div>").count()], [boxes; 2]);
        }
    }

    #[test]
    fn the_list_of_kinds_wraps() {
        assert!(reference::page().contains("<nav>"));
        assert!(STYLE.contains("nav{display:flex;flex-wrap:wrap;"));
    }

    #[test]
    fn words_are_no_markup() {
        assert_eq!(escaped(r#"a<b>&"c""#), "a&lt;b&gt;&amp;&quot;c&quot;");
    }
}
