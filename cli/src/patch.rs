//! `basalt patch`: changes some fields of an object's spec.

use std::collections::BTreeSet;

use basalt_api::client::{Client, PatchOptions, Precondition};
use basalt_api::plan::Step;
use basalt_api::wire::DryRun;
use basalt_api::{Kind, Object};
use serde_json::Value;

use crate::confirm::confirm;
use crate::dry_run;
use crate::output::{line, show};
use crate::region::{Connection, Failed};
use crate::subject::Subject;

/// Arguments of `basalt patch`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    subject: Subject,
    /// JSON merge patch of the spec: '{"description": "row 1", "pool": null}'; null removes a field
    #[arg(long, value_name = "JSON")]
    merge: String,
    /// Only if the object is still of this generation
    #[arg(long, value_name = "N")]
    generation: Option<u64>,
    /// Take it over if another tool manages it
    #[arg(long)]
    adopt: bool,
    /// Store nothing, and say what would happen
    #[arg(long)]
    dry_run: bool,
    /// Do not ask, even if disks are written or power is switched
    #[arg(long, short)]
    yes: bool,
}

/// The answers that a person gave in advance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Consent {
    /// Change nothing, and report the effects.
    pub(crate) dry_run: bool,
    /// Do not ask, whatever the effects are.
    pub(crate) yes: bool,
}

/// Runs the command.
pub(crate) async fn run(args: Args, connection: &Connection) -> Result<(), Failed> {
    let object = args.subject.object()?;
    let client = connection.client()?;
    let patch: Value = serde_json::from_str(&args.merge)
        .map_err(|error| Failed::Words(format!("--merge {:?} is not JSON: {error}", args.merge)))?;
    let generation = |number| Precondition::Generation(basalt_api::values::Generation::new(number));
    let precondition = args.generation.map_or(Precondition::None, generation);
    let options = PatchOptions { precondition, adopt: args.adopt };
    let consent = Consent { dry_run: args.dry_run, yes: args.yes };
    make(&client, object, &patch, options, consent).await
}

/// Changes an object, and asks first if that writes disks or switches power.
pub(crate) async fn make(
    client: &Client,
    (kind, name): (&Kind, &str),
    patch: &Value,
    options: PatchOptions,
    consent: Consent,
) -> Result<(), Failed> {
    let dry = client.patch_dry_run(kind, name, patch, options).await?;
    if consent.dry_run {
        show(&dry_run::shown(&dry));
        return Ok(());
    }
    if !consent.yes && harms(client, kind, name, &dry).await? {
        show(&dry_run::shown(&dry));
        confirm("Change it?", "not changed")?;
    }
    show(&said(&client.patch(kind, name, patch, options).await?, &dry));
    Ok(())
}

/// The line for a changed object, with the fields that changed.
pub(crate) fn said(object: &Object, dry: &DryRun) -> String {
    let Object { kind, metadata, .. } = object;
    let mut changed: Vec<String> = dry.plan.changes.iter().map(|change| change.pointer.clone()).collect();
    changed
        .extend(dry.plan.taken_from.as_ref().map(|manager| format!("(taken over from {})", line(manager))));
    let changed = if changed.is_empty() { "nothing was changed".to_owned() } else { changed.join(" ") };
    format!("{kind} {}  generation {}  {changed}\n", metadata.name, metadata.generation)
}

/// True if the patch adds steps that write disks or switch power.
async fn harms(client: &Client, kind: &Kind, name: &str, dry: &DryRun) -> Result<bool, Failed> {
    let harmful = |step: &&Step| step.destructive || step.power;
    let mut elsewhere = dry.consequences.machines.iter().flat_map(|machine| &machine.steps);
    if elsewhere.any(|step| harmful(&step)) {
        return Ok(true);
    }
    if !dry.plan.steps.iter().any(|step| harmful(&step)) {
        return Ok(false);
    }
    let now = client.plan(kind, name).await?;
    let known: BTreeSet<&str> = now.steps.iter().map(|step| rule(&step.key)).collect();
    Ok(dry.plan.steps.iter().filter(harmful).any(|step| !known.contains(rule(&step.key))))
}

/// The name of the step in its key: `install` in `m1/web/3/install/1`. The key has a generation, which rises with every change.
fn rule(key: &str) -> &str {
    key.split('/').nth(3).unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use axum::Json;
    use axum::extract::Request;
    use axum::http::Method;
    use axum::response::{IntoResponse, Response};
    use serde_json::{Value, json};
    use std::sync::{Arc, Mutex};

    use super::said;
    use crate::stand_in::{self, zone};

    fn step(key: &str) -> Value {
        json!({"key": key, "message": "install", "state": "next", "destructive": true})
    }

    /// A region that answers with the plan now, the plan with the patch, and the patched object. It stores the patches.
    fn region(now: Value, then: Value) -> (Arc<Mutex<Vec<String>>>, impl Fn(&Request) -> Response + Clone) {
        let patched = Arc::new(Mutex::new(Vec::new()));
        let seen = patched.clone();
        let answer = move |request: &Request| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            if request.method() == Method::GET {
                return Json(json!({"summary": "", "steps": now})).into_response();
            }
            if query.contains("dry_run") {
                let plan = json!({"summary": "", "steps": then});
                return Json(json!({"object": zone("Ready"), "plan": plan})).into_response();
            }
            seen.lock().unwrap().push(query);
            Json(zone("Ready")).into_response()
        };
        (patched, answer)
    }

    #[test]
    fn a_changed_object_is_shown_with_the_fields_that_changed() {
        let object = serde_json::from_value(zone("Ready")).unwrap();
        let said = |changes: Value| {
            let plan = json!({"summary": "", "changes": changes});
            said(&object, &serde_json::from_value(json!({"object": zone("Ready"), "plan": plan})).unwrap())
        };
        let change = |pointer: &str| json!({"pointer": pointer, "old": 1, "new": 2, "effect": "live"});
        assert_eq!(
            said(json!([change("/description"), change("/bmc/address")])),
            "Zone row-1  generation 3  /description /bmc/address\n"
        );
        assert_eq!(said(json!([])), "Zone row-1  generation 3  nothing was changed\n");
    }

    #[tokio::test]
    async fn a_patch_that_leads_to_an_install_is_not_made_without_a_yes() {
        let words = ["patch", "zone", "row-1", "--merge", "{}"];
        let (patched, answer) = region(json!([]), json!([step("m1/web/4/run-install/1")]));
        let refused = stand_in::run(&words, answer.clone()).await.unwrap_err().to_string();
        assert!(refused.contains("--yes goes on without asking"), "{refused}");
        assert!(patched.lock().unwrap().is_empty());
        stand_in::run(&[&words[..], &["--yes", "--adopt"]].concat(), answer).await.unwrap();
        assert_eq!(*patched.lock().unwrap(), ["adopt=true"]);
        // The install continues with or without the patch.
        let (patched, answer) =
            region(json!([step("m1/web/3/run-install/1")]), json!([step("m1/web/4/run-install/1")]));
        stand_in::run(&words, answer).await.unwrap();
        assert_eq!(*patched.lock().unwrap(), [""]);
    }
}
