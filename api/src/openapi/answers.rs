//! Answers of operations. The table lists their successes; rules over the table give their refusals.

use super::schemas::reference;
use super::{media_type, named};
use crate::problem::{PROBLEM_JSON, Problem, ProblemCode};
use crate::routes::{Route, RouteId};
use crate::schema::{Kind, MAX_INT};
use crate::watch::EVENT_STREAM;
use crate::wire::RECEIVED_HEADER;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Answer to plain HTTP from another host.
const UPGRADE_REQUIRED: u16 = 426;

/// Headers of successful answers: operation, status, headers. Answers with one object also have its ETag.
const HEADERS: &[(RouteId, u16, &[&str])] = &[
    (RouteId::HeadBlob, 200, &["Content-Length"]),
    (RouteId::HeadBlob, 202, &[RECEIVED_HEADER]),
    (RouteId::GetBlob, 200, &["Content-Length"]),
    (RouteId::Login, 204, &["Set-Cookie"]),
    (RouteId::BeginLogin, 200, &["Set-Cookie"]),
    (RouteId::ChangePassword, 204, &["Set-Cookie"]),
    (RouteId::GetBlob, 206, &["Content-Length", "Content-Range"]),
];

/// All answers of an operation, by status.
pub(super) fn of(route: &Route, kind: Option<&Kind>) -> Value {
    let mut all = Map::new();
    for (status, description, body) in route.answers {
        // Objects of this kind enrol themselves, so PUT does not create them.
        if *status == 201 && kind.is_some_and(|kind| !kind.declarable) {
            continue;
        }
        all.insert(status.to_string(), good(route, kind, *status, description, *body));
    }
    for status in refused(route) {
        let refusal = match route.method {
            // An answer to HEAD has no body that could hold a problem.
            "HEAD" => json!({"description": "Refused, as GET would be"}),
            _ => json!({"$ref": format!("#/components/responses/Refused{status}")}),
        };
        all.insert(status.to_string(), refusal);
    }
    Value::Object(all)
}

fn good(route: &Route, kind: Option<&Kind>, status: u16, description: &str, body: Option<&str>) -> Value {
    let mut answer = Map::new();
    answer.insert("description".to_owned(), json!(named(description, kind)));
    let mut headers: Vec<&str> = HEADERS
        .iter()
        .filter(|(id, of, _)| (*id, *of) == (route.id, status))
        .flat_map(|(.., headers)| headers.iter().copied())
        .collect();
    if body.is_some_and(|body| ["{Kind}", "{Kind}OrDryRun"].contains(&body)) && status != 202 {
        headers.push("ETag");
    }
    if !headers.is_empty() {
        let of = |name: &&str| ((*name).to_owned(), json!({"$ref": format!("#/components/headers/{name}")}));
        answer.insert("headers".to_owned(), headers.iter().map(of).collect());
    }
    if let Some(body) = body {
        let schema = match media_type(body) {
            "application/json" => reference(&named(body, kind)),
            // The schema describes each event.
            EVENT_STREAM => reference("WatchEvent"),
            _ => json!({"type": "string"}),
        };
        let mut content = json!({ (media_type(body)): {"schema": schema} });
        if let (Some(content), Some(event)) = (content.as_object_mut(), route.events) {
            content.insert(EVENT_STREAM.to_owned(), json!({"schema": reference(event)}));
        }
        answer.insert("content".to_owned(), content);
    }
    Value::Object(answer)
}

/// The statuses with which an operation may be refused.
fn refused(route: &Route) -> BTreeSet<u16> {
    let mut all = BTreeSet::from([UPGRADE_REQUIRED]);
    if !route.constant {
        all.extend([500, 503]);
    }
    if route.role.is_some() {
        all.extend([401, 403]);
    }
    if route.path.starts_with("/api/v1/") && !route.constant {
        all.insert(422);
    }
    let is_of_one = route.path.trim_start_matches("/api/v1/{plural}").contains('{');
    if is_of_one {
        all.insert(404);
    }
    if is_of_one && !route.is_read() {
        all.insert(409);
    }
    if route.request.is_some() {
        all.extend([408, 413]);
    }
    all.extend(route.refusals);
    all
}

/// The refusals as components: one per status, with its codes.
pub(super) fn refusals() -> Value {
    let statuses: BTreeSet<u16> = ProblemCode::ALL.iter().map(|code| code.status()).collect();
    let by_code = statuses.into_iter().filter(|status| *status != 405).map(|status| {
        let codes = ProblemCode::ALL.iter().copied().filter(|code| code.status() == status);
        (status, codes.map(|code| (code, Problem::new(code, ""))).collect::<Vec<_>>())
    });
    let upgrade = Problem { status: UPGRADE_REQUIRED, ..Problem::new(ProblemCode::Forbidden, "") };
    let all = by_code.chain([(UPGRADE_REQUIRED, vec![(ProblemCode::Forbidden, upgrade)])]);
    Value::Object(
        all.map(|(status, problems)| (format!("Refused{status}"), refusal(status, &problems))).collect(),
    )
}

fn refusal(status: u16, problems: &[(ProblemCode, Problem)]) -> Value {
    let codes: Vec<&str> = problems.iter().map(|(code, _)| code.as_str()).collect();
    let titles: BTreeSet<&str> = problems.iter().map(|(_, problem)| problem.title.as_str()).collect();
    let description = match status {
        UPGRADE_REQUIRED => "Plain HTTP from another host".to_owned(),
        _ => titles.into_iter().collect::<Vec<_>>().join("; "),
    };
    let headers: &[&str] = match status {
        401 => &["WWW-Authenticate"],
        429 | 503 => &["Retry-After"],
        UPGRADE_REQUIRED => &["Upgrade"],
        _ => &[],
    };
    let schema = json!({"allOf": [
        reference("Problem"),
        {"type": "object", "properties": {"status": {"const": status}, "code": {"enum": codes}}},
    ]});
    let examples: Map<String, Value> = problems
        .iter()
        .map(|(code, problem)| (code.as_str().to_owned(), json!({ "value": problem })))
        .collect();
    let mut answer = json!({
        "description": description,
        "content": {PROBLEM_JSON: {"schema": schema, "examples": examples}},
    });
    if let (false, Some(answer)) = (headers.is_empty(), answer.as_object_mut()) {
        let of = |name: &&str| ((*name).to_owned(), json!({"$ref": format!("#/components/headers/{name}")}));
        answer.insert("headers".to_owned(), headers.iter().map(of).collect());
    }
    answer
}

/// Headers of answers, as components.
pub(super) fn headers() -> Value {
    let text = |pattern: &str| json!({"type": "string", "pattern": pattern});
    let number = || json!({"type": "integer", "minimum": 0, "maximum": MAX_INT});
    let all = [
        ("ETag", text("^\"[0-9]+\"$"), "The generation, for `If-Match`; a dry run has none", false),
        ("Content-Length", number(), "Its bytes", true),
        ("Content-Range", text("^bytes [0-9]+-[0-9]+/[0-9]+$"), "Which bytes of it these are", true),
        (RECEIVED_HEADER, number(), "Bytes that are there, from the start: go on behind them", true),
        ("Set-Cookie", json!({"type": "string"}), "The session's token, which no script reads", true),
        ("Retry-After", number(), "Seconds after which to try again", true),
        ("WWW-Authenticate", json!({"const": "Bearer"}), "How to say who asks", true),
        ("Upgrade", json!({"type": "string"}), "What to speak instead", true),
    ];
    let of = |(name, schema, description, required): (&str, Value, &str, bool)| {
        (name.to_owned(), json!({"description": description, "required": required, "schema": schema}))
    };
    let mut all: Map<String, Value> = all.into_iter().map(of).collect();
    all.sort_keys();
    Value::Object(all)
}
