//! Scripts that come with Basalt: hardware tests that the agent itself implements (docs/decisions/099-test-results.md).
//!
//! Each is an ordinary object, as if a person had declared it: references, plans and permissions need no exception. A region creates
//! missing Scripts when it starts. It renews a Script while its manager is `basalt`.

use basalt_api::kinds::Script;
use basalt_api::values::Timestamp;
use basalt_api::{Kind, KindOf};
use basalt_db::{Key, Precondition, Put, Store, StoreError, splice};
use serde_json::{Value, json};

/// The manager of these Scripts. A Script that is declared under another manager stays as it is.
const MANAGER: &str = "basalt";

/// A Script that comes with Basalt.
#[derive(Debug)]
pub struct BuiltIn {
    /// The name of the Script.
    pub name: &'static str,
    /// The agent's test that it runs.
    test: &'static str,
    /// The description, for people.
    description: &'static str,
    /// The time after which it is stopped.
    timeout: &'static str,
    parameters: &'static [Parameter],
}

/// A parameter of a test: a whole number.
#[derive(Debug)]
struct Parameter {
    name: &'static str,
    default: u64,
    /// The least and the largest number. Times end before the Script is stopped.
    range: [u64; 2],
    description: &'static str,
}

/// All Scripts that come with Basalt.
pub const SCRIPTS: [BuiltIn; 4] = [
    BuiltIn {
        name: "basalt-memory",
        test: "memory",
        description: "Writes patterns to the free memory and reads them back; looks at the error counters of the memory controllers.",
        timeout: "25h",
        parameters: &[
            Parameter {
                name: "percent",
                default: 90,
                range: [1, 98],
                description: "Percent of the available memory; 256 MiB stay free.",
            },
            Parameter {
                name: "passes",
                default: 1,
                range: [1, 1000],
                description: "How often all patterns are written and read back.",
            },
            Parameter {
                name: "seconds",
                default: 300,
                range: [1, 86_400],
                description: "The test ends after so many seconds, whatever is left.",
            },
        ],
    },
    BuiltIn {
        name: "basalt-cpu",
        test: "cpu",
        description: "Keeps all processors busy with work of a known result, and watches temperatures and throttling.",
        timeout: "25h",
        parameters: &[
            Parameter {
                name: "seconds",
                default: 60,
                range: [1, 86_400],
                description: "How long all processors work.",
            },
            Parameter {
                name: "celsius",
                default: 95,
                range: [30, 150],
                description: "The temperature that is too hot; a lower limit of the sensor counts.",
            },
        ],
    },
    BuiltIn {
        name: "basalt-disks",
        test: "disks",
        description: "Reads the health of each disk (SMART) and a sample of its data. Nothing is written.",
        timeout: "7d",
        parameters: &[Parameter {
            name: "megabytes",
            default: 1024,
            range: [0, 1_000_000_000],
            description: "Megabytes that are read of each disk, spread over it; 0 is the whole disk.",
        }],
    },
    BuiltIn {
        name: "basalt-network",
        test: "network",
        description: "Looks at link, speed and error counters of each interface, and reaches the gateway or the rack.",
        timeout: "2h",
        parameters: &[Parameter {
            name: "seconds",
            default: 5,
            range: [1, 3600],
            description: "How long error counters are watched.",
        }],
    },
];

impl BuiltIn {
    /// The spec of the Script.
    fn spec(&self) -> Value {
        let parameters = self.parameters.iter().map(|it| {
            let [min, max] = it.range;
            let default = it.default.to_string();
            let parameter = json!({
                "type": "runtime", "default": default, "min": min, "max": max, "description": it.description,
            });
            (it.name.to_owned(), parameter)
        });
        json!({
            "type": "testing",
            "content": format!("#!/bin/sh\nexec basalt-agent test {} \"$@\"\n", self.test),
            "timeout": self.timeout,
            "parameters": parameters.collect::<serde_json::Map<_, _>>(),
            "description": self.description,
        })
    }
}

/// Creates missing Scripts, and updates those that nobody has taken over.
///
/// # Errors
/// Fails if the database cannot be reached.
pub async fn keep(store: &Store) -> Result<(), StoreError> {
    let kind: &'static Kind = Script::KIND;
    let now = Timestamp::now();
    for script in &SCRIPTS {
        let spec = script.spec();
        let precondition = match store.get(kind.name, Key::Name(script.name)).await {
            Err(StoreError::NotFound { .. }) => Precondition::Absent,
            Ok(found) if found.manager.as_deref() != Some(MANAGER) => continue,
            Ok(found) => match serde_json::from_str::<Value>(found.spec.get()) {
                Ok(known) if known == spec => continue,
                _ => Precondition::Generation(found.generation),
            },
            Err(error) => return Err(error),
        };
        let text =
            splice::Text::parse(spec.to_string()).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let put = Put {
            kind,
            key: Key::Name(script.name),
            spec: &text,
            at: "",
            labels: None,
            manager: Some(MANAGER),
            adopt: false,
            precondition,
            first_status: &crate::api::first_status(kind.name, now),
        };
        match store.put(&put).await {
            // Another region of this database was faster.
            Ok(_) | Err(StoreError::Exists { .. } | StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_api::kinds::ScriptSpec;
    use std::collections::BTreeMap;

    #[test]
    fn each_is_a_good_script_that_runs_without_anything_given() {
        for script in &SCRIPTS {
            let spec: ScriptSpec = serde_json::from_value(script.spec()).unwrap();
            assert_eq!(basalt_api::validate(Script::KIND, &script.spec()), Vec::new(), "{}", script.name);
            let run = spec.run(script.name, &BTreeMap::new()).unwrap();
            assert!(run.test && run.arguments.len() == script.parameters.len(), "{}", script.name);
        }
    }
}
