//! The OpenAPI document as a page for people: no script, and nothing from elsewhere.

use super::system;
use axum::response::Html;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::LazyLock;

/// Fields in fields, at most.
const DEEPEST: usize = 6;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b}\
table{border-collapse:collapse;width:100%;margin:.5rem 0 1.5rem}td,th{border-bottom:1px solid #ddd;padding:.25rem .5rem;\
text-align:left;vertical-align:top}code{font:13px ui-monospace,monospace}nav a{margin-right:.75rem;white-space:nowrap}\
@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}a{color:#8ab4f8}td,th{border-color:#444}}";

pub(super) async fn docs() -> Html<&'static str> {
    static PAGE: LazyLock<String> = LazyLock::new(|| page(system::document()));
    Html(&PAGE)
}

fn page(document: &Value) -> String {
    let by_tag = endpoints(document);
    let version = text(at(document, "/info"), "version");
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Basalt API</title><style>{STYLE}</style></head>\
         <body><h1>Basalt API {}</h1><p>The same as a document for programs: <a href=\"/openapi.json\">/openapi.json</a>.</p><nav>",
        escaped(&version)
    );
    for tag in by_tag.keys() {
        let _ = write!(page, "<a href=\"#{0}\">{0}</a>", escaped(tag));
    }
    page.push_str("</nav>");
    for (tag, rows) in &by_tag {
        section(&mut page, document, tag, rows);
    }
    page.push_str("</body></html>");
    page
}

/// Rows of endpoints, by what they are about.
fn endpoints(document: &Value) -> BTreeMap<String, Vec<String>> {
    let mut by_tag: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, methods) in object(at(document, "/paths")) {
        for (method, endpoint) in object(methods) {
            let tag = at(endpoint, "/tags/0").as_str().unwrap_or("Region").to_owned();
            let parameters = list(at(endpoint, "/parameters")).map(|parameter| {
                let parameter = resolved(document, parameter);
                let (name, what) = (text(parameter, "name"), text(parameter, "description"));
                format!("<code title=\"{}\">{}</code>", escaped(&what), escaped(&name))
            });
            let row = format!(
                "<tr><td><code>{}</code><td><code>{}</code><td>{}<td>{}",
                escaped(&method.to_uppercase()),
                escaped(path),
                escaped(&text(endpoint, "summary")),
                parameters.collect::<Vec<_>>().join(" ")
            );
            by_tag.entry(tag).or_default().push(row);
        }
    }
    by_tag
}

fn section(page: &mut String, document: &Value, tag: &str, rows: &[String]) {
    let tag = escaped(tag);
    let _ = write!(page, "<h2 id=\"{tag}\">{tag}</h2>");
    let spec = at(document, &format!("/components/schemas/{tag}Spec"));
    if spec.is_object() {
        let _ = write!(page, "<p>{}</p>", escaped(&text(spec, "description")));
    }
    let _ = write!(page, "<table><tr><th>method<th>path<th>does<th>parameters{}</table>", rows.concat());
    let mut fields = String::new();
    describe(&mut fields, document, spec, "", DEEPEST);
    if !fields.is_empty() {
        let head = "<table><tr><th>field of the spec<th>type<th>default<th>a change<th>is";
        let _ = write!(page, "{head}{fields}</table>");
    }
}

/// Rows of a schema's fields, those of fields in them included.
fn describe(rows: &mut String, document: &Value, schema: &Value, above: &str, deep: usize) {
    let schema = resolved(document, schema);
    for (name, field) in object(at(schema, "/properties")) {
        let path = format!("{above}{name}");
        let required = list(at(schema, "/required")).any(|it| it == name.as_str());
        let default = match field.get("default") {
            Some(default) => format!("<code>{}</code>", escaped(&default.to_string())),
            None if required => "required".to_owned(),
            None => String::new(),
        };
        let _ = write!(
            rows,
            "<tr><td><code>{}</code><td>{}<td>{default}<td>{}<td>{}",
            escaped(&path),
            escaped(&kind_of(document, field)),
            escaped(&text(field, "x-basalt-effect")),
            escaped(&text(field, "description"))
        );
        let field = resolved(document, field);
        if deep > 0 {
            describe(rows, document, field, &format!("{path}."), deep - 1);
            describe(rows, document, at(field, "/items"), &format!("{path}[]."), deep - 1);
            describe(rows, document, at(field, "/additionalProperties"), &format!("{path}.*."), deep - 1);
        }
    }
}

fn kind_of(document: &Value, field: &Value) -> String {
    if let Some(kind) = at(field, "/x-basalt-refers-to").as_str() {
        return format!("name of a {kind}");
    }
    let words: Vec<&str> = list(at(field, "/enum")).filter_map(Value::as_str).collect();
    if !words.is_empty() {
        return words.join(" | ");
    }
    let field = resolved(document, field);
    let name = match at(field, "/type") {
        Value::String(name) => name.clone(),
        names => {
            list(names).filter_map(Value::as_str).find(|name| *name != "null").unwrap_or("any").to_owned()
        }
    };
    match (name.as_str(), at(field, "/format").as_str()) {
        ("array", _) => format!("list of {}", kind_of(document, resolved(document, at(field, "/items")))),
        (_, Some(format)) => format.to_owned(),
        _ => name,
    }
}

/// What a `$ref` names, also where null is allowed beside it.
fn resolved<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    let reference = value.get("$ref").or_else(|| value.pointer("/anyOf/0/$ref"));
    let named = reference.and_then(|name| document.pointer(name.as_str()?.strip_prefix('#')?));
    named.unwrap_or(value)
}

fn at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    value.pointer(pointer).unwrap_or(&Value::Null)
}

fn object(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value, member: &str) -> String {
    value.get(member).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_endpoint_and_every_field_is_on_the_page() {
        let document = system::document();
        let page = page(document);
        for path in document["paths"].as_object().unwrap().keys() {
            assert!(page.contains(&format!("<code>{}</code>", escaped(path))), "{path}");
        }
        for kind in basalt_api::KINDS {
            for field in kind.spec.fields {
                assert!(
                    page.contains(&format!("<td><code>{}</code>", field.name)),
                    "{}.{}",
                    kind.name,
                    field.name
                );
            }
        }
        assert!(page.contains("<code>bmc.password</code>") && page.contains("name of a Zone"));
    }

    #[test]
    fn words_are_no_markup() {
        assert_eq!(escaped(r#"a<b>&"c""#), "a&lt;b&gt;&amp;&quot;c&quot;");
    }
}
