//! `basalt_wait`: waits until a condition of an object is true, and fails if it does not become true.
//!
//! ```text
//! create, update   GET KIND/NAME, then GET KIND/NAME?wait=CONDITION until it holds, the object is stalled, or the time is up
//! read             GET KIND/uid:UID
//! delete           nothing
//! ```
//!
//! A failed wait is in no state, or has `met = false` there: the next apply waits again, and only the wait is replaced. A successful wait
//! waits again when its object changes: in the plan that changes the object, and after a change by somebody else.

use std::sync::Arc;
use std::time::Duration;

use basalt_api::client::{Outcome, WaitFor};
use basalt_api::kinds::Condition;
use basalt_api::values::{Generation, Uid, nearest};
use basalt_api::{KINDS, Kind, Object};
use serde::{Deserialize, Serialize};
use tfplugin::{
    Attribute, Change, Check, Cx, Diag, Diags, Path, Resource, Schema, Type, Typed, Val, async_trait,
};

use crate::fresh;
use crate::provider::Session;
use crate::region::{ON_ITS_WAY, Region, Turn};
use crate::resource::{ProgressLog, is_late, is_stalled};

const TYPE: &str = "basalt_wait";

const KIND: &str = "kind";
const NAME: &str = "name";
const CONDITION: &str = "condition";
const TIMEOUT: &str = "timeout";
const MET: &str = "met";

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Number of kinds that an error lists.
const NEAREST: usize = 5;

/// The resource `basalt_wait`.
pub(crate) struct Wait {
    schema: Schema,
    session: Arc<Session>,
}

/// The object of the wait, and its generation at that time.
#[derive(Serialize, Deserialize)]
struct Seen {
    uid: Uid,
    generation: Generation,
}

impl Seen {
    fn of(object: &Object) -> Self {
        Self { uid: object.metadata.uid, generation: object.metadata.generation }
    }

    fn read(cx: &Cx) -> Option<Self> {
        serde_json::from_slice(&cx.private()).ok()
    }

    fn write(&self, cx: &Cx) {
        if let Ok(bytes) = serde_json::to_vec(self) {
            cx.set_private(bytes);
        }
    }
}

fn schema() -> Schema {
    let conditions = [Condition::READY, Condition::PROGRESSING, Condition::STALLED];
    let timeout = DEFAULT_TIMEOUT.write();
    let until = format!("How long to wait, like `90m`. Default: `{}`.", timeout.as_str().unwrap_or_default());
    let attributes = vec![
        Attribute::required(KIND, Type::String)
            .doc("The kind of the object, such as `Deployment`, `Machine`, `Image` or `Rack`."),
        Attribute::required(NAME, Type::String).doc(
            "The name of the object. Take it from its resource, so that this waits after that was applied: \
             `basalt_deployment.web.name`.",
        ),
        Attribute::optional(CONDITION, Type::String)
            .default(Condition::READY)
            .check(Check::one_of(conditions))
            .doc(format!("The condition that is to hold. Default: `{}`.", Condition::READY)),
        Attribute::optional(TIMEOUT, Type::String)
            .default(timeout)
            .semantics(Duration::semantics())
            .check(Check::is::<Duration>("a duration, like `90m`"))
            .doc(until),
        Attribute::computed(MET, Type::Bool)
            .doc("Whether the condition was seen to hold since the last change of the object. While it was not, an apply waits."),
    ];
    let description = "Waits for an object, and fails if the condition does not hold in time, or if the object waits for a person. An apply \
                       ends with a warning where a `basalt_deployment` is not ready, since Terraform replaces what it created with an error. \
                       This fails in its place: nothing is lost, and the next apply waits again. It also waits again when the object is \
                       changed. What depends on this comes after the object is ready. Whoever may read the object may wait for it, and \
                       destroying this does nothing.";
    Schema { description: description.to_owned(), attributes, ..Schema::default() }
}

fn text<'a>(state: &'a Val, attribute: &str) -> &'a str {
    state.get(attribute).as_str().unwrap_or_default()
}

/// The kind that a configuration or a state names.
fn kind(state: &Val) -> Option<&'static Kind> {
    Kind::find(state.get(KIND).as_str()?)
}

/// The error about an unknown kind, with the nearest kinds.
fn no_kind(word: &str) -> Diag {
    let near = nearest(word, KINDS.iter().map(|kind| kind.name), NEAREST).join(", ");
    let detail = format!("There is no kind {word:?}. The nearest that there are: {near}.");
    Diag::error("Not a kind", detail).at(Path::root().attr(KIND))
}

impl Wait {
    pub(crate) fn new(session: Arc<Session>) -> Self {
        Self { schema: schema(), session }
    }

    /// Finds the object, which may be created at this moment.
    async fn object(
        &self,
        cx: &Cx,
        region: &Region,
        kind: &'static Kind,
        name: &str,
    ) -> Result<Object, Diags> {
        let _under_way = region.begins();
        let mut turn = Turn::default();
        loop {
            if let Some(object) = region.find(kind, name).await? {
                return Ok(object);
            }
            if !turn.wait(cx, region, ON_ITS_WAY).await {
                return Err(region.absent(kind, name, Path::root().attr(NAME)).await.into());
            }
        }
    }

    /// Waits as planned.
    async fn wait(&self, cx: &Cx, planned: &Val) -> Result<Val, Diags> {
        let region = self.session.region()?;
        let kind = kind(planned).ok_or_else(|| no_kind(text(planned, KIND)))?;
        let condition = text(planned, CONDITION);
        let timeout = Duration::read(planned.get(TIMEOUT), &Path::root()).unwrap_or(DEFAULT_TIMEOUT);
        let object = self.object(cx, &region, kind, text(planned, NAME)).await?;
        let name = object.metadata.name.as_str();
        let failed = |title: &str, why: String| {
            let detail = format!("{why} The next apply waits again.");
            Diags::from(Diag::error(format!("{title}: {} {name:?}", kind.name), detail))
        };
        let wait = WaitFor {
            condition: condition.to_owned(),
            ..WaitFor::ready(object.metadata.generation, timeout)
        };
        let wait = wait.through_outages();
        let key = format!("uid:{}", object.metadata.uid);
        let mut log = ProgressLog::new(kind, name);
        let waited = tokio::select! {
            waited = region.client.for_waiting().wait(kind, &key, &wait, |object| log.see(object)) => waited,
            () = cx.cancelled() => {
                return Err(failed("Interrupted", format!("The wait for {} {name:?} was interrupted.", kind.name)));
            }
        };
        match waited.map_err(|error| region.diags(kind, name, &error))? {
            Outcome::Met(now) => {
                Seen::of(&now).write(cx);
                let mut state = planned.clone();
                state.set(MET, true);
                Ok(state)
            }
            Outcome::Stalled(_, stalled) => {
                Err(failed("It waits for somebody", is_stalled(kind, name, &stalled)))
            }
            Outcome::TimedOut(now) => {
                let late = is_late(&now, kind, condition, timeout);
                Err(failed("It takes too long", format!("{late} More time can be given in {TIMEOUT}.")))
            }
        }
    }
}

#[async_trait]
impl Resource for Wait {
    fn type_name(&self) -> &str {
        TYPE
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    async fn validate(&self, config: &Val) -> Diags {
        let Some(word) = config.get(KIND).as_str() else { return Diags::default() };
        let Some(kind) = Kind::find(word) else { return no_kind(word).into() };
        match config.get(NAME).as_str().map(|name| kind.naming.check(name)) {
            Some(Err(bad)) => {
                let detail = format!("{}; {}.", bad.message, bad.hint);
                Diag::error("Not a name", detail).at(Path::root().attr(NAME)).into()
            }
            _ => Diags::default(),
        }
    }

    /// Plans another wait after an unmet one, and for an object that this run changes.
    fn derive(&self, planned: &mut tfplugin::Object, _prior: Option<&tfplugin::Object>) {
        let given = |name: &str| planned.get(name).and_then(Val::as_str);
        let is_changed = given(KIND).and_then(Kind::find).zip(given(NAME));
        let is_changed =
            is_changed.is_some_and(|(kind, name)| self.session.memory.is_moving(kind.name, name));
        if is_changed || planned.get(MET) == Some(&Val::Bool(false)) {
            planned.insert(MET.to_owned(), Val::Unknown);
        }
    }

    async fn read(&self, cx: &Cx, prior: &Val) -> Result<Option<Val>, Diags> {
        let region = self.session.region()?;
        let (Some(kind), name) = (kind(prior), text(prior, NAME)) else { return Ok(None) };
        let seen = Seen::read(cx);
        let key = seen.as_ref().map_or(name.to_owned(), |seen| format!("uid:{}", seen.uid));
        let Some(object) = region.refresh(kind, &key, name).await? else { return Ok(None) };
        let mut now = prior.clone();
        // The condition was true once since the last change of the object. Later changes of the condition do not concern an apply.
        let is_unchanged = seen.is_some_and(|seen| seen.generation == object.metadata.generation);
        if fresh::holds(&object, text(prior, CONDITION)) {
            Seen::of(&object).write(cx);
            now.set(MET, true);
        } else if !is_unchanged {
            now.set(MET, false);
        }
        Ok(Some(now))
    }

    async fn review(&self, _cx: &Cx, _change: Change<'_>) -> Result<Vec<Path>, Diags> {
        self.session.is_well().map(|()| Vec::new())
    }

    /// A failed wait leaves no state: Terraform then has nothing to taint, and creates the wait in the next apply.
    async fn create(&self, cx: &Cx, change: Change<'_>) -> Result<Val, Diags> {
        self.wait(cx, change.planned).await
    }

    async fn update(&self, cx: &Cx, change: Change<'_>) -> Result<Val, Diags> {
        let mut unmet = change.planned.clone();
        unmet.set(MET, false);
        cx.commit(unmet);
        self.wait(cx, change.planned).await
    }

    async fn delete(&self, _cx: &Cx, _state: &Val) -> Result<(), Diags> {
        Ok(())
    }

    async fn import(&self, _cx: &Cx, id: &str) -> Result<Val, Diags> {
        let detail = "A wait is nothing that is there. Declare it without an import: the apply waits.";
        Err(Diag::error(format!("It cannot be imported: {id:?}"), detail).into())
    }
}
