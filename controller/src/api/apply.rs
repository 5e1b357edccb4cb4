//! Applies many objects in one transaction.

use super::announce::{self, Chosen};
use super::body;
use super::caller::Caller;
use super::guards::OwnerGuards;
use super::problem::{Answer, Refusal};
use super::query::{Flags, parameters};
use super::rights::Rights;
use super::shape;
use super::waiting::WaitsFor;
use super::{App, objects, render};
use crate::driver::Choices;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use basalt_api::kinds::Machine;
use basalt_api::plan::{Advisory, Consequences, PlanReport};
use basalt_api::values::{MachineId, Sha256};
use basalt_api::wire::{
    ApplyAction, ApplyResponse, ApplyResult, BlastRadius, MANAGER_HEADER, MAX_DOCUMENTS, PutMetadata, object,
};
use basalt_api::{FieldCode, FieldError, Kind, KindOf, ProblemCode, validate_labels};
use basalt_db::splice::Text;
use basalt_db::{Batch, Given, Key, Object, Overlay, Precondition, Prune, Pruned, Put, Stored, Written};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// [`basalt_api::wire::ApplyRequest`], with documents as text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    documents: Vec<Box<RawValue>>,
    #[serde(default)]
    prune: Option<String>,
    #[serde(default)]
    digest: Option<Sha256>,
    #[serde(default)]
    adopt: bool,
}

/// One document. The answer of a read is valid as such a document.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    kind: String,
    #[serde(deserialize_with = "object")]
    metadata: PutMetadata,
    spec: Box<RawValue>,
    #[serde(default, rename = "status")]
    _status: IgnoredAny,
}

/// A document that is valid by itself.
struct Document {
    kind: &'static Kind,
    name: String,
    labels: Option<BTreeMap<String, String>>,
    text: Text,
    value: Value,
    /// The pointer of its spec.
    at: String,
    first_status: Value,
}

pub(super) async fn apply(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Answer<axum::Json<ApplyResponse>> {
    let flags: Flags = parameters(&uri)?;
    let manager = body::manager(&headers)?;
    let request: Request = body::json(&body)?;
    if request.documents.len() > MAX_DOCUMENTS {
        let detail = format!("{} documents; at most {MAX_DOCUMENTS} in one apply", request.documents.len());
        return Err(Refusal::new(ProblemCode::TooLarge, detail));
    }
    let now = app.store().now().await?;
    let documents = documents(&caller, &request.documents, |kind| render::first_status(kind, now))?;
    let guards = caller.guards(flags.dry_run);
    let forbidden = documents.iter().filter_map(|it| Some(guards.kind(it.kind)?.below(it.whole())));
    let forbidden: Vec<FieldError> = forbidden.collect();
    if !forbidden.is_empty() {
        return Err(Refusal::refused(forbidden));
    }
    for document in documents.iter().filter(|document| !document.kind.declarable) {
        objects::enrolled(&app, document.kind, Key::Name(&document.name)).await?;
    }
    let prune = prune(request.prune.as_deref(), manager.as_deref(), &documents)?;
    let puts: Vec<Put<'_>> = documents.iter().map(|it| it.put(manager.as_deref(), request.adopt)).collect();
    let wanted: Vec<&Value> = documents.iter().map(|it| &it.value).collect();
    let tried =
        |expected| OwnerGuards { manager: manager.as_deref(), adopt: request.adopt, expected, guards };
    let dry = Batch { puts: &puts, prune, dry_run: true, judge: &tried(None), allocation: None };
    if flags.dry_run {
        let written = app.store().write(&dry).await?;
        return Ok(axum::Json(announced(&app, &caller.rights, &written, &wanted).await?.0));
    }
    let Some(approved) = request.digest else {
        let batch = Batch { puts: &puts, prune, dry_run: false, judge: &tried(None), allocation: None };
        return done(&caller.store(&app).write(&batch).await?, &Chosen::new());
    };
    // No other region can give machines away until this is committed, so the machines chosen now are those of the approved plan.
    let right = app.store().claiming().await?;
    let written = app.store().write(&dry).await?;
    let (now, chosen, choices) = announced(&app, &caller.rights, &written, &wanted).await?;
    if now.digest != approved {
        let detail = format!(
            "the plan that was approved is {approved}; now it would be {}: {} Look at it again, and send its digest",
            now.digest, now.summary
        );
        return Err(Refusal::new(ProblemCode::StalePlan, detail));
    }
    let mut allocation = choices.allocation(app.store().now().await?)?;
    let made = written.stored.iter().filter(|it| it.created && it.object.kind == Machine::KIND.name);
    allocation.made = made.map(|it| (MachineId::from(it.object.uid), it.object.name.clone())).collect();
    let expected = Some(announce::digest(&written, &Chosen::new()));
    let batch =
        Batch { puts: &puts, prune, dry_run: false, judge: &tried(expected), allocation: Some(&allocation) };
    let written = caller.store(&app).write(&batch).await?;
    drop(right);
    for Given { name, machine, .. } in &allocation.given {
        tracing::info!(deployment = name, %machine, "machine claimed: it was approved with the plan");
    }
    done(&written, &chosen)
}

fn done(written: &Written, chosen: &Chosen) -> Answer<axum::Json<ApplyResponse>> {
    Ok(axum::Json(response(
        written,
        changed(written),
        BlastRadius::default(),
        Consequences::default(),
        chosen,
    )?))
}

/// The largest number of errors of one apply: a document of some bytes can have a hundred, each with a hint.
const MAX_ERRORS: usize = 1000;

/// Reads every document. The errors of all documents are returned, up to [`MAX_ERRORS`].
fn documents(
    caller: &Caller,
    raw: &[Box<RawValue>],
    first_status: impl Fn(&str) -> Value,
) -> Answer<Vec<Document>> {
    let mut errors = Vec::new();
    let mut documents = Vec::with_capacity(raw.len());
    let mut seen: HashMap<(&str, String), usize> = HashMap::with_capacity(raw.len());
    for (index, raw) in raw.iter().enumerate() {
        if errors.len() >= MAX_ERRORS {
            break;
        }
        let here = format!("/documents/{index}");
        match document(raw, &here, &first_status) {
            Err(found) => errors.extend(found.into_iter().map(|error| error.below(&here))),
            Ok(document) => {
                if let Some(first) = seen.insert((document.kind.name, document.name.clone()), index) {
                    let message = format!(
                        "{} {:?} stands in /documents/{first} already",
                        document.kind.name, document.name
                    );
                    errors.push(FieldError::new(
                        here,
                        FieldCode::Duplicate,
                        message,
                        "declare each object once",
                    ));
                }
                documents.push(document);
            }
        }
    }
    caller.declare(seen.into_keys().map(|(kind, name)| (kind.to_owned(), name)));
    if errors.is_empty() { Ok(documents) } else { Err(Refusal::invalid(errors)) }
}

fn document(
    raw: &RawValue,
    here: &str,
    first_status: &impl Fn(&str) -> Value,
) -> Result<Document, Vec<FieldError>> {
    let Raw { kind, metadata, spec, .. } = shape::read(raw.get().as_bytes()).map_err(|error| vec![*error])?;
    let Some(kind) = Kind::find(&kind) else {
        let kinds: Vec<&str> = basalt_api::KINDS.iter().map(|k| k.name).collect();
        let message = format!("there is no kind {kind:?}");
        let hint = format!("one of {}", kinds.join(", "));
        return Err(vec![FieldError::new("/kind", FieldCode::Format, message, hint)]);
    };
    let Some(name) = metadata.name else {
        let message = "the document has no name".to_owned();
        return Err(vec![FieldError::new("/metadata/name", FieldCode::Required, message, "a DNS label")]);
    };
    kind.naming.check(name.as_str()).map_err(|bad| vec![FieldError::format("/metadata/name", bad)])?;
    let wrong = body::wrong_labels(metadata.labels.as_ref());
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let (text, value) = body::spec(kind, Some(name.as_str()), &spec)?;
    Ok(Document {
        kind,
        name: name.to_string(),
        labels: metadata.labels,
        text,
        value,
        at: format!("{here}/spec"),
        first_status: first_status(kind.name),
    })
}

impl Document {
    /// The pointer of the document.
    fn whole(&self) -> &str {
        self.at.strip_suffix("/spec").unwrap_or(&self.at)
    }

    fn put<'a>(&'a self, manager: Option<&'a str>, adopt: bool) -> Put<'a> {
        Put {
            kind: self.kind,
            key: Key::Name(&self.name),
            spec: &self.text,
            at: &self.at,
            labels: self.labels.as_ref(),
            manager,
            adopt,
            precondition: Precondition::None,
            first_status: &self.first_status,
        }
    }
}

/// The objects to prune have the label that all the documents have.
fn prune<'a>(
    label: Option<&'a str>,
    manager: Option<&'a str>,
    documents: &[Document],
) -> Answer<Option<Prune<'a>>> {
    let Some(text) = label else { return Ok(None) };
    let Some((label, value)) = text.split_once('=') else {
        let message = format!("{text:?} is no label with a value");
        return Err(Refusal::field("/prune", FieldCode::Format, message, "label=value"));
    };
    let wrong = validate_labels(&BTreeMap::from([(label.to_owned(), value.to_owned())]));
    if let Some(wrong) = wrong.into_iter().next() {
        let hint = wrong.hint.unwrap_or_default();
        return Err(Refusal::field("/prune", wrong.code, wrong.message, hint));
    }
    let Some(manager) = manager else {
        let message = "only what a manager declared itself is pruned, and the request does not say who asks";
        let hint = format!("send the header {MANAGER_HEADER}");
        return Err(Refusal::field("/prune", FieldCode::Rule, message, hint));
    };
    let unlabelled = documents.iter().enumerate().filter(|(_, document)| {
        document.labels.as_ref().and_then(|labels| labels.get(label)).map(String::as_str) != Some(value)
    });
    let errors: Vec<FieldError> = unlabelled
        .map(|(index, document)| {
            let pointer = format!("/documents/{index}/metadata/labels");
            let message = format!(
                "{} {:?} does not have the label {text}, by which it would be pruned one day",
                document.kind.name, document.name
            );
            FieldError::new(pointer, FieldCode::Rule, message, format!("{label:?}: {value:?}"))
        })
        .collect();
    if errors.is_empty() { Ok(Some(Prune { manager, label, value })) } else { Err(Refusal::invalid(errors)) }
}

/// The result of a dry run, and the machines that its deployments would get.
async fn announced(
    app: &App,
    rights: &Rights,
    written: &Written,
    wanted: &[&Value],
) -> Answer<(ApplyResponse, Chosen, Choices)> {
    let (mut plans, mut radius, mut chosen) = (Vec::new(), BlastRadius::default(), Chosen::new());
    let is_changed = |stored: &Stored| announce::action(stored) != ApplyAction::Unchanged;
    let changed: Vec<(&Stored, &Value)> =
        written.stored.iter().zip(wanted.iter().copied()).filter(|(stored, _)| is_changed(stored)).collect();
    let others = Arc::new(Overlay::of(written));
    let choices = announce::choices(app, changed.iter().copied(), &others).await?;
    let mut planned = announce::of_writes(app, rights, &changed, &choices, Some(&others)).await?.into_iter();
    for stored in &written.stored {
        let Some(plan) = is_changed(stored).then(|| planned.next()).flatten() else {
            plans.push(None);
            continue;
        };
        let Object { kind, name, .. } = &stored.object;
        announce::reach(&mut radius, kind, name, &plan);
        if let (Some(machine), "Deployment") = (&plan.machine, kind.as_str()) {
            chosen.insert(name.clone(), machine.clone());
        }
        plans.push(Some(plan));
    }
    for pruned in &written.pruned {
        let Pruned { object, gone, waits_for } = pruned;
        let waits_for = WaitsFor::seen(app, rights, waits_for.clone()).await?;
        let plan = announce::of_deletion(app, rights, object, *gone, &waits_for, Some(&others)).await?;
        announce::reach(&mut radius, &pruned.object.kind, &pruned.object.name, &plan);
        plans.push(Some(plan));
    }
    let consequences = announce::for_others(app, rights, &others).await?;
    announce::reach_others(&mut radius, &consequences);
    Ok((response(written, plans, radius, consequences, &chosen)?, chosen, choices))
}

/// The changes of a batch.
fn changed(written: &Written) -> Vec<Option<PlanReport>> {
    let of = |stored: &Stored| {
        let (changes, effect) = (stored.changes.clone(), announce::effect(stored));
        let changed = announce::action(stored) != ApplyAction::Unchanged;
        let taken_from = stored.taken_from.clone();
        changed.then(|| PlanReport { changes, effect, taken_from, ..PlanReport::default() })
    };
    let pruned = written.pruned.iter().map(|_| None);
    written.stored.iter().map(of).chain(pruned).collect()
}

fn response(
    written: &Written,
    plans: Vec<Option<PlanReport>>,
    blast_radius: BlastRadius,
    consequences: Consequences,
    chosen: &Chosen,
) -> Answer<ApplyResponse> {
    let name = |object: &Object| {
        let bad =
            |bad| Refusal::new(ProblemCode::Internal, format!("{} {:?}: {bad}", object.kind, object.name));
        object.name.parse().map_err(bad)
    };
    let mut results = Vec::with_capacity(plans.len());
    let mut plans = plans.into_iter();
    for stored in &written.stored {
        results.push(ApplyResult {
            kind: stored.object.kind.clone(),
            name: name(&stored.object)?,
            action: announce::action(stored),
            uid: Some(stored.object.uid),
            generation: Some(stored.object.generation),
            plan: plans.next().flatten(),
        });
    }
    for pruned in &written.pruned {
        results.push(ApplyResult {
            kind: pruned.object.kind.clone(),
            name: name(&pruned.object)?,
            action: ApplyAction::Deleted,
            uid: Some(pruned.object.uid),
            generation: None,
            plan: plans.next().flatten(),
        });
    }
    let advisories = written
        .stored
        .iter()
        .flat_map(|stored| stored.advisories.iter().cloned().map(Advisory::from))
        .collect();
    Ok(ApplyResponse {
        summary: summary(&results, &blast_radius),
        digest: announce::digest(written, chosen),
        blast_radius,
        consequences,
        results,
        advisories,
    })
}

fn summary(results: &[ApplyResult], radius: &BlastRadius) -> String {
    let count = |action| results.iter().filter(|result| result.action == action).count();
    let mut text = format!(
        "{} created, {} changed, {} deleted, {} unchanged",
        count(ApplyAction::Created),
        count(ApplyAction::Updated),
        count(ApplyAction::Deleted),
        count(ApplyAction::Unchanged)
    );
    if !radius.power.is_empty() {
        text.push_str(&format!("; the power of {} is switched", machines(radius.power.len())));
    }
    if !radius.disks.is_empty() {
        text.push_str(&format!("; the disks of {} are written", machines(radius.disks.len())));
    }
    text.push('.');
    text
}

fn machines(count: usize) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} machine{plural}")
}
