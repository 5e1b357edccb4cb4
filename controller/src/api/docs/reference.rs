//! Renders the OpenAPI document as an HTML page.

use super::markdown::inline;
use super::{escaped, layout};
use crate::api::system;
use basalt_api::{Kind, ProblemCode, examples};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::LazyLock;

/// The greatest depth of nested fields.
const DEEPEST: usize = 6;

/// Suffixes of the schemas that the section of their kind describes.
const OF_KINDS: &[&str] = &["", "Spec", "Status", "List", "OrDryRun", "Patch", "Put"];

/// The section of endpoints without a kind.
const REGION: &str = "Region";

const AUTHENTICATION: &str = "<h2 id=\"authentication\">Authentication</h2>\
<p>Each request has a token in a header, unless the table of the endpoint says that it needs none:</p>\
<pre>curl --header 'Authorization: Bearer TOKEN' https://HOST:5240/api/v1/machines</pre>\
<ul><li><b>ApiToken</b>: <code>basalt token issue NAME</code> shows its text once. The first one is in <code>DIR/admin-token</code> on the region's host.\
<li><b>Session</b>: <code>POST /api/v1/login</code> takes a name and a password, or an ID token of OpenID Connect, and answers a token.\
<li><b>Root on the region's host</b> needs no token on the socket <code>DIR/api.sock</code>.</ul>\
<p>The port speaks TLS and plain HTTP. Plain HTTP is answered to the region's own host alone; others get 426. \
<code>GET /api/v1/whoami</code> says who the caller is and may do.</p>";

const WRITING: &str = "<h2 id=\"writing\">Reading and writing</h2>\
<p>An object has <code>kind</code>, <code>metadata</code>, a <code>spec</code> that clients declare, and a <code>status</code> that the region reports. \
PUT replaces the whole spec, PATCH is a JSON merge patch of it (RFC 7396), and <code>POST /api/v1/apply</code> writes many objects in one transaction. \
With <code>?dry_run=true</code> a write says what would follow, and changes nothing. <code>If-Match</code> with the <code>ETag</code> of an answer refuses a write \
over somebody else's change.</p>";

/// The page at `/docs`, rendered once.
pub(super) fn page() -> &'static str {
    static PAGE: LazyLock<String> = LazyLock::new(|| rendered(system::document()));
    &PAGE
}

fn rendered(document: &Value) -> String {
    let by_tag = endpoints(document);
    let version = text(at(document, "/info"), "version");
    let mut page = format!(
        "<h1>Basalt API {}</h1><p>The same as a document for programs: <a href=\"/openapi.json\">/openapi.json</a>.</p>\
         <nav><a href=\"#authentication\">Authentication</a><a href=\"#writing\">Reading and writing</a>\
         <a href=\"#errors\">Errors</a><a href=\"#parameters\">Parameters</a><a href=\"#bodies\">Other bodies</a></nav><h2>Kinds</h2><nav>",
        escaped(&version)
    );
    for tag in by_tag.keys() {
        let _ = write!(page, "<a href=\"#{0}\">{0}</a>", escaped(tag));
    }
    page.push_str("</nav>");
    page.push_str(AUTHENTICATION);
    page.push_str(WRITING);
    errors(&mut page, document);
    for (tag, rows) in &by_tag {
        section(&mut page, document, tag, rows);
    }
    parameters(&mut page, document);
    bodies(&mut page, document);
    layout("Basalt API", &page)
}

/// All codes of refusals, and an example.
fn errors(page: &mut String, document: &Value) {
    page.push_str(
        "<h2 id=\"errors\">Errors</h2><p>A refusal is <code>application/problem+json</code> (RFC 9457). <code>code</code> is for programs, \
         <code>detail</code> says what is wrong, with what value, and what to do. <code>errors</code> names each wrong field.</p>\
         <table><tr><th>status<th>code<th>title<th>means",
    );
    for code in ProblemCode::ALL {
        let _ = write!(
            page,
            "<tr><td>{}<td><code>{}</code><td>{}<td>{}",
            code.status(),
            code.as_str(),
            escaped(code.title()),
            inline(code.doc())
        );
    }
    let example = json!({"type": "urn:basalt:problem:invalid", "code": "invalid", "status": 422, "title": ProblemCode::Invalid.title(),
        "errors": [{"pointer": "/spec/vid", "code": "out_of_range", "message": "5000 is above 4094", "hint": "between 0 and 4094"}],
        "request_id": "4bf92f3577b34da6a3ce929d0e0e4736"});
    let _ = write!(page, "</table>{}", json_block(&example));
    let mut fields = String::new();
    for name in ["Problem", "FieldError"] {
        let schema = at(document, &format!("/components/schemas/{name}"));
        describe(&mut fields, document, schema, &format!("{name}."), 0);
    }
    let _ = write!(page, "<table><tr><th>field<th>type<th>default<th>a change<th>is{fields}</table>");
}

/// Rows of endpoints, by section.
fn endpoints(document: &Value) -> BTreeMap<String, Vec<String>> {
    let mut by_tag: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, methods) in object(at(document, "/paths")) {
        for (method, endpoint) in object(methods) {
            let tag = at(endpoint, "/tags/0").as_str().unwrap_or(REGION).to_owned();
            let parameters = list(at(endpoint, "/parameters")).map(|parameter| {
                let place = parameter_place(reference(parameter).unwrap_or_default());
                let name = text(resolved(document, parameter), "name");
                format!("<a href=\"#{}\"><code>{}</code></a>", escaped(place), escaped(&name))
            });
            let needs = match at(endpoint, "/security") {
                Value::Array(none) if none.is_empty() => "; needs no token",
                _ => "",
            };
            let row = format!(
                "<tr><td><code>{}</code><td><code>{}</code><td>{}{needs}<td>{}<td>{}<td>{}",
                escaped(&method.to_uppercase()),
                escaped(path),
                inline(&text(endpoint, "summary")),
                parameters.collect::<Vec<_>>().join(" "),
                body_name(at(endpoint, "/requestBody")),
                answers(document, at(endpoint, "/responses")),
            );
            by_tag.entry(tag).or_default().push(row);
        }
    }
    by_tag
}

/// The anchor of a parameter. Parameters named `name` of all kinds share one.
fn parameter_place(reference: &str) -> &str {
    let key = reference.rsplit('/').next().unwrap_or(reference);
    let is_name = key.strip_suffix("Name").is_some_and(|kind| Kind::find(kind).is_some());
    if is_name { "parameter-name" } else { key }
}

/// Each parameter, once.
fn parameters(page: &mut String, document: &Value) {
    let head = "<table><tr><th>name<th>in<th>type<th>is";
    let _ = write!(page, "<h2 id=\"parameters\">Parameters</h2>{head}");
    let mut told = BTreeSet::new();
    for (key, parameter) in object(at(document, "/components/parameters")) {
        let place = parameter_place(key);
        if told.insert(place) {
            let _ = write!(
                page,
                "<tr id=\"{}\"><td><code>{}</code><td>{}<td>{}<td>{}",
                escaped(place),
                escaped(&text(parameter, "name")),
                escaped(&text(parameter, "in")),
                kind_of(at(parameter, "/schema")),
                inline(&text(parameter, "description"))
            );
        }
    }
    page.push_str("</table>");
}

/// The answers of an endpoint: successes with their bodies, refusals by status.
fn answers(document: &Value, responses: &Value) -> String {
    let told = object(responses).map(|(status, answer)| {
        let answer = resolved(document, answer);
        let what = escaped(&text(answer, "description").replace('`', ""));
        if status.starts_with('2') {
            format!("<span title=\"{what}\">{}</span> {}", escaped(status), body_name(answer))
        } else {
            format!("<a href=\"#errors\" title=\"{what}\">{}</a>", escaped(status))
        }
    });
    told.collect::<Vec<_>>().join(" ")
}

/// The schema of a body, as a link to its section.
fn body_name(body: &Value) -> String {
    let Some((media_type, content)) = object(at(body, "/content")).next() else { return String::new() };
    let reference = at(content, "/schema/$ref").as_str().and_then(|to| to.rsplit('/').next());
    reference.map_or_else(|| format!("<code>{}</code>", escaped(media_type)), |name| linked(&escaped(name)))
}

/// A schema's name, as a link to its section.
fn linked(name: &str) -> String {
    let of_kind = basalt_api::KINDS
        .iter()
        .filter(|kind| name.strip_prefix(kind.name).is_some_and(|end| OF_KINDS.contains(&end)))
        .max_by_key(|kind| kind.name.len());
    format!("<a href=\"#{}\">{name}</a>", of_kind.map_or(name, |kind| kind.name))
}

fn section(page: &mut String, document: &Value, tag: &str, rows: &[String]) {
    let name = escaped(tag);
    let _ = write!(page, "<h2 id=\"{name}\">{name}</h2>");
    let schema = |part: &str| at(document, &format!("/components/schemas/{tag}{part}"));
    let what = text(schema(""), "description");
    if !what.is_empty() {
        let _ = write!(page, "<p>{}</p>", inline(&what));
    }
    let head = "<table><tr><th>method<th>path<th>does<th>parameters<th>body<th>answers";
    let _ = write!(page, "{head}{}</table>", rows.concat());
    for (part, whose) in [("Spec", "spec"), ("Status", "status")] {
        let mut fields = String::new();
        describe(&mut fields, document, schema(part), "", DEEPEST);
        if !fields.is_empty() {
            let head = format!(
                "<h3 id=\"{name}{part}\">Fields of the {whose}</h3><table><tr><th>field<th>type<th>default<th>a change<th>is"
            );
            let _ = write!(page, "{head}{fields}</table>");
        }
    }
    if let Some(kind) = Kind::find(tag) {
        examples_of(page, kind);
    }
}

/// Examples of request bodies.
fn examples_of(page: &mut String, kind: &Kind) {
    for example in examples().into_iter().filter(|example| example.kind == kind) {
        let _ = write!(
            page,
            "<details><summary>Example: <code>PUT /api/v1/{}/{}</code></summary>{}</details>",
            kind.plural,
            escaped(example.name),
            json_block(&json!({"spec": example.spec}))
        );
    }
}

/// Schemas without a kind: metadata, plans, operations, logins.
fn bodies(page: &mut String, document: &Value) {
    let of_kinds: BTreeSet<String> = basalt_api::KINDS
        .iter()
        .flat_map(|kind| OF_KINDS.iter().map(move |end| format!("{}{end}", kind.name)))
        .collect();
    page.push_str("<h2 id=\"bodies\">Other bodies</h2>");
    for (name, schema) in object(at(document, "/components/schemas")) {
        if of_kinds.contains(name) {
            continue;
        }
        let mut fields = String::new();
        describe(&mut fields, document, schema, "", 0);
        let name = escaped(name);
        let _ = write!(page, "<h3 id=\"{name}\">{name}</h3><p>{}</p>", inline(&text(schema, "description")));
        if !fields.is_empty() {
            let _ = write!(page, "<table><tr><th>field<th>type<th>default<th>a change<th>is{fields}</table>");
        }
    }
}

/// Rows of a schema's fields, including nested ones.
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
            kind_of(field),
            escaped(&text(field, "x-basalt-effect")),
            inline(&text(field, "description"))
        );
        let field = resolved(document, field);
        if deep > 0 {
            describe(rows, document, field, &format!("{path}."), deep - 1);
            describe(rows, document, at(field, "/items"), &format!("{path}[]."), deep - 1);
            describe(rows, document, at(field, "/additionalProperties"), &format!("{path}.*."), deep - 1);
        }
    }
}

/// The type of a field, with links to kinds and schemas.
fn kind_of(field: &Value) -> String {
    if let Some(kind) = at(field, "/x-basalt-refers-to").as_str() {
        return format!("name of a {}", linked(&escaped(kind)));
    }
    let words: Vec<&str> = list(at(field, "/enum")).filter_map(Value::as_str).collect();
    if !words.is_empty() {
        return escaped(&words.join(" | "));
    }
    if let Some(name) = reference(field).and_then(|to| to.rsplit('/').next()) {
        return linked(&escaped(name));
    }
    let name = match at(field, "/type") {
        Value::String(name) => name.as_str(),
        names => list(names).filter_map(Value::as_str).find(|name| *name != "null").unwrap_or("any"),
    };
    match (name, at(field, "/format").as_str()) {
        ("array", _) => format!("list of {}", kind_of(at(field, "/items"))),
        ("object", _) if at(field, "/additionalProperties").is_object() => {
            format!("by name: {}", kind_of(at(field, "/additionalProperties")))
        }
        (_, Some(format)) => escaped(format),
        _ => escaped(name),
    }
}

fn json_block(value: &Value) -> String {
    format!("<pre>{}</pre>", escaped(&serde_json::to_string_pretty(value).unwrap_or_default()))
}

/// The target of a `$ref`, also inside a nullable field.
fn reference(value: &Value) -> Option<&str> {
    value.get("$ref").or_else(|| value.pointer("/anyOf/0/$ref"))?.as_str()
}

fn resolved<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    let named = reference(value).and_then(|name| document.pointer(name.strip_prefix('#')?));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_endpoint_and_every_field_is_on_the_page() {
        let document = system::document();
        let page = page();
        for path in document["paths"].as_object().unwrap().keys() {
            assert!(page.contains(&format!("<code>{}</code>", escaped(path))), "{path}");
        }
        for kind in basalt_api::KINDS {
            for field in kind.spec.fields.iter().chain(kind.status.fields) {
                let cell = format!("<td><code>{}</code>", field.name);
                assert!(page.contains(&cell), "{}.{}", kind.name, field.name);
            }
            assert!(
                page.contains(&format!("<code>PUT /api/v1/{}/", kind.plural)),
                "an example of {}",
                kind.name
            );
        }
        assert!(
            page.contains("<code>bmc.password</code>")
                && page.contains("name of a <a href=\"#Zone\">Zone</a>")
        );
        assert!(page.contains("<code>inventory.cpu.cores</code>"), "fields in fields of the status");
    }

    #[test]
    fn answers_errors_and_authentication_are_on_the_page() {
        let page = page();
        for code in ProblemCode::ALL {
            assert!(page.contains(&format!("<td><code>{}</code>", code.as_str())), "{}", code.as_str());
        }
        assert!(page.contains("Authorization: Bearer"));
        assert!(page.contains("<a href=\"#errors\" title=\"Not allowed\">403</a>"), "refusals of endpoints");
        assert!(
            page.contains("<h3 id=\"DryRun\">") && page.contains("<a href=\"#PlanReport\">PlanReport</a>")
        );
        assert!(page.contains("needs no token"));
    }

    #[test]
    fn every_link_on_the_page_leads_to_a_place_on_it() {
        let page = page();
        let links = page.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next());
        let links: BTreeSet<&str> = links.collect();
        assert!(links.len() > 50, "{} links", links.len());
        for link in links {
            assert!(page.contains(&format!("id=\"{link}\"")), "#{link}");
        }
    }

    #[test]
    fn descriptions_are_read_as_markdown() {
        let page = page();
        let cells = page.split("<td>").filter(|cell| cell.contains('`'));
        assert_eq!(cells.take(3).collect::<Vec<_>>(), [] as [&str; 0], "a backtick is left");
    }
}
