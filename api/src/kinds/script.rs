//! Script: what is run on machines: when somebody asks for it, and while they are commissioned, tested, deployed and released.

use super::{CommonStatus, kind};
use crate::agent;
use crate::hardware::{Filter, MAX_FILTERS};
use crate::problem::{FieldCode, FieldError};
use crate::validate::Rule;
use crate::values::{Duration, Url};
use basalt_api_derive::Model;
use std::collections::{BTreeMap, BTreeSet};

kind! {
    /// A script that is run on machines.
    Script, "scripts", "basalt_script", Label, declarable: true, ScriptSpec, ScriptStatus, script_rules
}

/// A script, and when it is run.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct ScriptSpec {
    /// When it is run.
    #[field(name = "type")]
    pub when: ScriptType,
    /// The script, from `#!` on.
    #[field(text)]
    pub content: String,
    /// It is stopped when it runs longer.
    #[field(default = "10m")]
    pub timeout: Duration,
    /// What may run beside it.
    #[field(default = ScriptParallel::Disabled)]
    pub parallel: ScriptParallel,
    /// Hardware it is for: `modalias:`, `pci:`, `usb:`, `system_vendor:`, `system_product:`, `system_version:`,
    /// `mainboard_vendor:` or `mainboard_product:`, and a pattern. A single match is enough; on other hardware the script is skipped.
    /// Empty: any.
    pub hardware: BTreeSet<String>,
    /// What it can be given, by name.
    pub parameters: BTreeMap<String, ScriptParameter>,
    /// What it is, for people.
    #[field(none)]
    pub description: Option<String>,
}

/// Most bytes of one thing that a script is given.
pub const MAX_ARGUMENT_BYTES: usize = 4096;

impl ScriptSpec {
    /// Its runs on a machine. Each parameter that is given, or has a default, becomes an argument `--NAME=VALUE`, in the order of their
    /// names. A device that is not given makes a run for each of its kind.
    ///
    /// # Errors
    /// What is missing, unknown, or no value of its type; pointers begin at `/parameters`.
    pub fn run(
        &self,
        name: &str,
        given: &BTreeMap<String, String>,
    ) -> Result<agent::Script, Vec<FieldError>> {
        let mut errors: Vec<FieldError> = given
            .keys()
            .filter(|given| !self.parameters.contains_key(*given))
            .map(|unknown| self.unknown(name, unknown))
            .collect();
        let (mut arguments, mut per_device) = (Vec::new(), None);
        for (parameter, takes) in &self.parameters {
            let at = crate::pointer::child("/parameters", parameter);
            match given.get(parameter).or(takes.default.as_ref()) {
                Some(value) => match takes.check(value) {
                    Ok(()) => arguments.push(format!("--{parameter}={value}")),
                    Err((message, hint)) => errors.push(FieldError::new(at, FieldCode::Rule, message, hint)),
                },
                None if takes.required => {
                    let message = format!("script {name} cannot be run without {parameter}");
                    errors.push(FieldError::new(at, FieldCode::Required, message, takes.wants()));
                }
                None => {
                    let wanted = |kind| agent::PerDevice { parameter: parameter.clone(), kind };
                    per_device = takes.devices().map(wanted).or(per_device);
                }
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(agent::Script {
            name: name.to_owned(),
            content: self.content.clone(),
            arguments,
            timeout_seconds: self.timeout.as_secs(),
            repeats: false,
            test: self.when == ScriptType::Testing,
            hardware: self.hardware.iter().cloned().collect(),
            device: if per_device.is_none() { self.named_device(given) } else { None },
            per_device,
            parallel: self.parallel,
        })
    }

    /// The device that a person named: of several, the one of the first parameter.
    fn named_device(&self, given: &BTreeMap<String, String>) -> Option<String> {
        let mut takers = self.parameters.iter().filter(|(_, takes)| takes.kind().is_some());
        takers.find_map(|(parameter, _)| given.get(parameter).cloned())
    }

    fn unknown(&self, name: &str, parameter: &str) -> FieldError {
        let known: Vec<&str> = self.parameters.keys().map(String::as_str).collect();
        let hint = match known.is_empty() {
            true => "it takes none".to_owned(),
            false => format!("one of: {}", known.join(", ")),
        };
        let at = crate::pointer::child("/parameters", parameter);
        FieldError::new(
            at,
            FieldCode::UnknownField,
            format!("script {name} has no parameter {parameter:?}"),
            hint,
        )
    }
}

impl ScriptParameter {
    /// The devices that the script is run for, where no value is given.
    fn devices(&self) -> Option<agent::DeviceKind> {
        self.kind().filter(|_| self.default.is_none() && !self.required)
    }

    /// The kind of device that it takes.
    const fn kind(&self) -> Option<agent::DeviceKind> {
        match self.holds {
            ScriptParameterType::Storage => Some(agent::DeviceKind::Storage),
            ScriptParameterType::Interface => Some(agent::DeviceKind::Interface),
            _ => None,
        }
    }

    /// What is wrong with a value, and what would be right.
    fn check(&self, value: &str) -> Result<(), (String, String)> {
        use ScriptParameterType as Holds;
        let within = |number: i64| {
            self.min.is_none_or(|min| number >= min) && self.max.is_none_or(|max| number <= max)
        };
        let good = match self.holds {
            Holds::String => true,
            Holds::Boolean => matches!(value, "true" | "false"),
            Holds::Choice => self.choices.contains(value),
            Holds::Storage | Holds::Interface => !value.is_empty(),
            Holds::Url => value.parse::<Url>().is_ok(),
            Holds::Runtime => value.parse().is_ok_and(|seconds| seconds >= 0 && within(seconds)),
        };
        if value.len() > MAX_ARGUMENT_BYTES {
            return Err((
                format!("the value has {} bytes", value.len()),
                format!("at most {MAX_ARGUMENT_BYTES}"),
            ));
        }
        if !good || value.contains('\0') {
            return Err((format!("{value:?} is not such a value"), self.wants()));
        }
        Ok(())
    }

    /// What it takes, in words.
    fn wants(&self) -> String {
        use ScriptParameterType as Holds;
        match self.holds {
            Holds::String => "a text".to_owned(),
            Holds::Boolean => "true or false".to_owned(),
            Holds::Choice => {
                let words: Vec<&str> = self.choices.iter().map(String::as_str).collect();
                format!("one of: {}", words.join(", "))
            }
            Holds::Storage => "a disk, like vda".to_owned(),
            Holds::Interface => "a network interface, like eth0".to_owned(),
            Holds::Url => "a URL, like https://files.example.com/firmware.bin".to_owned(),
            Holds::Runtime => {
                let least = self.min.map(|min| format!(", {min} or more")).unwrap_or_default();
                let most = self.max.map(|max| format!(", {max} at most")).unwrap_or_default();
                format!("whole seconds{least}{most}")
            }
        }
    }
}

/// When a script is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum ScriptType {
    /// While the machine's hardware is read.
    Commissioning,
    /// While its hardware is tested.
    Testing,
    /// While it is given back.
    Release,
    /// While it is installed.
    Deployment,
}

/// What may run beside a script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum ScriptParallel {
    /// Nothing.
    #[default]
    Disabled,
    /// The same script for other devices.
    Instance,
    /// The same script for other devices, and other scripts with `any`.
    Any,
}

/// Something that a script can be given.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct ScriptParameter {
    /// What it holds.
    #[field(name = "type", default = ScriptParameterType::String)]
    pub holds: ScriptParameterType,
    /// Whether the script cannot be run without it.
    #[field(default = false)]
    pub required: bool,
    /// What it is when it is not given.
    pub default: Option<String>,
    /// Least number or length of time.
    pub min: Option<i64>,
    /// Largest number or length of time.
    pub max: Option<i64>,
    /// What it can be, where `type` is `choice`.
    pub choices: BTreeSet<String>,
    /// What it is, for people.
    #[field(none)]
    pub description: Option<String>,
}

/// What a parameter holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum ScriptParameterType {
    /// Text.
    String,
    /// True or false.
    Boolean,
    /// One of some words.
    Choice,
    /// A disk by its kernel name. Without a value the script is run for each disk.
    Storage,
    /// A network interface by its kernel name. Without a value the script is run for each physical one.
    Interface,
    /// A URL.
    Url,
    /// Seconds.
    Runtime,
}

/// How the script is. Its runs are among the operations and the test results of machines.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct ScriptStatus {
    /// What every kind reports.
    #[field(flatten)]
    pub common: CommonStatus,
}

/// The kernel looks at no more of a script's first line.
const FIRST_LINE_BYTES: usize = 255;

fn script_rules(spec: &ScriptSpec, rule: &mut Rule<'_>) {
    let first = spec.content.lines().next().unwrap_or_default();
    if !first.strip_prefix("#!").is_some_and(|rest| rest.trim_start().starts_with('/')) {
        rule.broken("/content", "the script's first line names no interpreter", "begin with #!/bin/sh");
    } else if first.len() > FIRST_LINE_BYTES {
        let message = format!("the script's first line has {} bytes", first.len());
        rule.broken("/content", message, format!("at most {FIRST_LINE_BYTES}"));
    }
    if spec.timeout.as_secs() == 0 {
        rule.broken("/timeout", format!("nothing ends within {}", spec.timeout), "1s or longer");
    }
    for bad in spec.hardware.iter().filter_map(|filter| Filter::parse(filter).err()) {
        rule.broken("/hardware", bad.message, bad.hint);
    }
    if spec.hardware.len() > MAX_FILTERS {
        let message = format!("{} hardware filters are declared", spec.hardware.len());
        rule.broken("/hardware", message, format!("at most {MAX_FILTERS}"));
    }
    let for_each = spec.parameters.iter().filter(|(_, parameter)| parameter.devices().is_some());
    let for_each: Vec<&str> = for_each.map(|(name, _)| name.as_str()).collect();
    if let [first, second, ..] = for_each[..] {
        let message = format!("the script would be run for each {first} and for each {second}");
        let at = crate::pointer::child("/parameters", second);
        rule.broken(at, message, "one such parameter; give the other a default, or say required = true");
    }
    for (name, parameter) in &spec.parameters {
        let at = crate::pointer::child("/parameters", name);
        let is_choice = parameter.holds == ScriptParameterType::Choice;
        if is_choice && parameter.choices.is_empty() {
            rule.missing(format!("{at}/choices"), "a choice needs words to choose from", "at least one word");
        }
        if !is_choice && !parameter.choices.is_empty() {
            let message = format!("a parameter of type {:?} has no choices", parameter.holds.as_str());
            rule.broken(format!("{at}/choices"), message, "leave them out, or say type = \"choice\"");
        }
        if let (Some(min), Some(max)) = (parameter.min, parameter.max)
            && min > max
        {
            rule.broken(
                format!("{at}/max"),
                format!("{max} is less than min, {min}"),
                format!("{min} or more"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, KindOf, dormant, validate};
    use serde_json::{Value, json};

    fn kind() -> &'static Kind {
        Script::KIND
    }

    fn spec(more: &Value) -> Value {
        let mut spec = json!({"type": "testing", "content": "#!/bin/sh\n"});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    }

    /// Pointer and message of each error.
    fn errors(more: &Value) -> Vec<String> {
        let errors = validate(kind(), &spec(more));
        errors.iter().map(|it| format!("{} {}", it.pointer, it.message)).collect()
    }

    fn run(more: &Value, given: &[(&str, &str)]) -> Result<agent::Script, Vec<FieldError>> {
        let spec: ScriptSpec = serde_json::from_value(spec(more)).unwrap();
        let given = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        spec.run("probe", &given.collect())
    }

    #[test]
    fn hardware_filters_are_checked_and_go_with_the_run() {
        let good = json!({"hardware": ["usb:0bda:8153", "pci:8086:*"]});
        assert_eq!((errors(&good), dormant(kind(), &spec(&good))), (vec![], vec![]));
        assert_eq!(run(&good, &[]).unwrap().hardware, ["pci:8086:*", "usb:0bda:8153"]);
        assert_eq!(
            errors(&json!({"hardware": ["pci:8086", "gpu:*"]})),
            [
                "/hardware \"gpu:*\" is not a hardware filter",
                "/hardware \"pci:8086\" does not name a vendor and a device",
            ]
        );
        let many: Vec<String> = (0..=MAX_FILTERS).map(|n| format!("pci:{n:04}:*")).collect();
        assert_eq!(errors(&json!({"hardware": many})), ["/hardware 65 hardware filters are declared"]);
    }

    #[test]
    fn a_run_knows_what_may_run_beside_it() {
        let parallel = |more: Value| {
            assert_eq!(dormant(kind(), &spec(&more)), []);
            run(&more, &[]).unwrap().parallel
        };
        assert_eq!(parallel(json!({})), ScriptParallel::Disabled);
        assert_eq!(parallel(json!({"parallel": "instance"})), ScriptParallel::Instance);
        assert_eq!(parallel(json!({"parallel": "any"})), ScriptParallel::Any);
    }

    #[test]
    fn a_device_without_a_value_makes_a_run_for_each() {
        let with = |more: Value| json!({"parameters": {"disk": more, "mode": {"default": "a"}}});
        let per_device = |more: Value, given: &[(&str, &str)]| {
            let run = run(&with(more), given).unwrap();
            (run.arguments.join(" "), run.per_device.map(|it| (it.parameter, it.kind)))
        };
        let each = |kind| Some(("disk".to_owned(), kind));
        let (storage, interface) = (agent::DeviceKind::Storage, agent::DeviceKind::Interface);
        assert_eq!(per_device(json!({"type": "storage"}), &[]), ("--mode=a".to_owned(), each(storage)));
        assert_eq!(per_device(json!({"type": "interface"}), &[]).1, each(interface));
        assert_eq!(per_device(json!({}), &[]).1, None, "a text");
        let given = ("--disk=sda --mode=a".to_owned(), None);
        assert_eq!(per_device(json!({"type": "storage"}), &[("disk", "sda")]), given);
        assert_eq!(per_device(json!({"type": "storage", "default": "sda"}), &[]), given);
        let named = |more: Value, given: &[(&str, &str)]| run(&with(more), given).unwrap().device;
        assert_eq!(named(json!({"type": "storage"}), &[("disk", "sda")]).as_deref(), Some("sda"));
        assert_eq!(named(json!({"type": "storage", "default": "sda"}), &[]), None, "nobody named it");
        assert_eq!(named(json!({}), &[("disk", "sda")]), None, "a text");
        let required = run(&with(json!({"type": "storage", "required": true})), &[]).unwrap_err();
        assert_eq!(required[0].message, "script probe cannot be run without disk");
    }

    #[test]
    fn a_run_has_the_content_and_the_time_of_its_script_and_values_within_bounds() {
        let run_of = run(&json!({"content": "#!/bin/sh\necho x\n", "timeout": "5m"}), &[]).unwrap();
        assert_eq!((run_of.content.as_str(), run_of.timeout_seconds), ("#!/bin/sh\necho x\n", 300));
        let seconds = json!({"parameters": {"seconds": {"type": "runtime", "min": 5, "max": 60}}});
        let with = |value: &str| run(&seconds, &[("seconds", value)]).map(|run| run.arguments.join(" "));
        assert_eq!(with("5").unwrap(), "--seconds=5");
        for outside in ["4", "61"] {
            let hint = with(outside).unwrap_err().remove(0).hint;
            assert_eq!(hint.as_deref(), Some("whole seconds, 5 or more, 60 at most"), "{outside}");
        }
    }

    #[test]
    fn a_script_is_run_for_each_device_of_one_parameter() {
        let two = |other: Value| errors(&json!({"parameters": {"disk": {"type": "storage"}, "nic": other}}));
        let refused = "/parameters/nic the script would be run for each disk and for each nic";
        assert_eq!(two(json!({"type": "interface"})), [refused]);
        assert_eq!(two(json!({"type": "interface", "default": "eth0"})), [""; 0]);
        assert_eq!(two(json!({"type": "interface", "required": true})), [""; 0]);
    }
}
