//! `basalt_test_results`: findings of the tests of a machine's hardware.

use std::sync::Arc;

use basalt_api::KindOf;
use basalt_api::agent::Verdict;
use basalt_api::kinds::Machine;
use basalt_api::wire::TestResult;
use tfplugin::{Attribute, Cx, DataSource, Diags, Mode, Nesting, Num, Path, Schema, Type, Val, async_trait};

use crate::provider::Session;
use crate::refusal;

const TYPE: &str = "basalt_test_results";
const MACHINE: &str = "machine";
const SCRIPT: &str = "script";
const HISTORY: &str = "history";
const RESULTS: &str = "results";

/// The data source `basalt_test_results`.
pub(crate) struct Results {
    schema: Schema,
    session: Arc<Session>,
}

impl Results {
    pub(crate) fn new(session: Arc<Session>) -> Self {
        let finding = vec![
            Attribute::computed("script", Type::String).doc("The name of the Script when it ran."),
            Attribute::computed("device", Type::String)
                .doc("The part of the hardware, like `sda`. Null: the whole machine."),
            Attribute::computed("verdict", Type::String)
                .doc("`passed`, `degraded`, `failed`, or `skipped`: the test was not for this hardware."),
            Attribute::computed("message", Type::String)
                .doc("One sentence: the cause, or the work that was done."),
            Attribute::computed("figures", Type::map(Type::Number))
                .doc("Measured values. A name ends with the unit, like `read_mb_per_s`."),
            Attribute::computed("at", Type::String).doc("The end of the run, as RFC 3339 writes it."),
        ];
        let attributes = vec![
            Attribute::required(MACHINE, Type::String).doc(
                "Of which machine: its name, or `uid:` and its uid. Refers to `basalt_machine` by name.",
            ),
            Attribute::optional(SCRIPT, Type::String).doc("Of this Script alone."),
            Attribute::optional(HISTORY, Type::Bool)
                .doc("Earlier runs too. `false` unless it is said: of each Script the latest run."),
            Attribute::nested(RESULTS, Mode::Computed, Nesting::List, finding)
                .doc("The findings, the newest run first."),
        ];
        let description = "Findings of the tests of a machine's hardware, one for each device. Tests run while a machine is commissioned \
                           (`commissioning.testing`), and by the action `basalt_test`."
            .to_owned();
        Self { schema: Schema { description, attributes, ..Schema::default() }, session }
    }
}

#[async_trait]
impl DataSource for Results {
    fn type_name(&self) -> &str {
        TYPE
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    async fn read(&self, _: &Cx, config: &Val) -> Result<Val, Diags> {
        let region = self.session.region()?;
        let machine = config.get(MACHINE).as_str().unwrap_or_default();
        let latest = config.get(HISTORY) != &Val::Bool(true);
        let asked =
            region.client.call().await.test_results(machine, config.get(SCRIPT).as_str(), latest).await;
        let found = match asked {
            Ok(found) => found,
            Err(error) if error.is_not_found() => {
                return Err(region.absent(Machine::KIND, machine, Path::root().attr(MACHINE)).await.into());
            }
            Err(error) => return Err(refusal::diags(Machine::KIND, machine, &error)),
        };
        let mut answer = config.clone();
        answer.set(RESULTS, found.items.into_iter().map(value).collect::<Vec<Val>>());
        Ok(answer)
    }
}

fn value(row: TestResult) -> Val {
    let verdict = match row.verdict {
        Verdict::Skipped => "skipped",
        Verdict::Passed => "passed",
        Verdict::Degraded => "degraded",
        Verdict::Failed => "failed",
    };
    let figures =
        row.figures.into_iter().map(|(name, value)| (name, Num::from_f64(value).map_or(Val::Null, Val::Num)));
    Val::from([
        ("script", row.script.into()),
        ("device", row.device.into()),
        ("verdict", verdict.into()),
        ("message", row.message.into()),
        ("figures", Val::Map(figures.collect())),
        ("at", row.at.to_string().into()),
    ])
}
