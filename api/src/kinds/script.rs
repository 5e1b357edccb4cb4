//! Script: a program that runs on machines: on request, and while they are commissioned, tested, deployed and released.

use super::{CommonStatus, kind};
use crate::agent;
use crate::hardware::{Filter, MAX_FILTERS};
use crate::problem::{FieldCode, FieldError};
use crate::validate::Rule;
use crate::values::{Duration, Url};
use basalt_api_derive::Model;
use std::collections::{BTreeMap, BTreeSet};

kind! {
    /// A script that runs on machines.
    Script, "scripts", "basalt_script", Label, declarable: true, ScriptSpec, ScriptStatus, script_rules
}

/// A script, and the occasion on which it runs.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct ScriptSpec {
    /// The occasion on which the script runs.
    #[field(name = "type")]
    pub when: ScriptType,
    /// The text of the script, from `#!` on.
    #[field(text)]
    pub content: String,
    /// When a script of type `deployment` runs: at the end of the installation, or at the first boot of the new system.
    #[field(name = "when", default = Occasion::Install)]
    pub occasion: Occasion,
    /// Packages that are installed before the script runs, by apt-get or dnf: the name alone, or with a version as the package
    /// manager reads it (`curl=7.88.1-10`). They come from the repositories of the system in which the script runs.
    pub packages: BTreeSet<String>,
    /// The longest time that a run may take. A longer run is stopped.
    #[field(default = "10m")]
    pub timeout: Duration,
    /// The scripts that may run at the same time as this one.
    #[field(default = ScriptParallel::Disabled)]
    pub parallel: ScriptParallel,
    /// True: the script may restart the machine. Its run begins again after the restart. A script of type `commissioning` or `testing` that
    /// runs alone may have it.
    #[field(default = false)]
    pub may_reboot: bool,
    /// Filters for the hardware that the script is for: `modalias:`, `pci:`, `usb:`, `system_vendor:`, `system_product:`,
    /// `system_version:`, `mainboard_vendor:` or `mainboard_product:`, and a pattern. A single match is enough; on other hardware
    /// the script is skipped. Empty: any hardware.
    pub hardware: BTreeSet<String>,
    /// Parameters of the script, by name.
    pub parameters: BTreeMap<String, ScriptParameter>,
    /// A description for people. It has no effect.
    #[field(none)]
    pub description: Option<String>,
}

/// Most packages of a script.
pub const MAX_PACKAGES: usize = 100;
/// Most bytes in the name of a package.
const MAX_PACKAGE_BYTES: usize = 128;

/// Most bytes in the value of a script's parameter.
pub const MAX_ARGUMENT_BYTES: usize = 4096;

impl ScriptSpec {
    /// Prepares the runs of the script on a machine. Each parameter with a given value or a default becomes an argument
    /// `--NAME=VALUE`, in the order of the names. For a device parameter without a value, the script runs once for each device of
    /// that kind.
    ///
    /// # Errors
    /// A parameter is missing or unknown, or a value does not fit its type. Pointers begin at `/parameters`.
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
            may_reboot: self.may_reboot,
            packages: self.packages.iter().cloned().collect(),
        })
    }

    /// The device that a person named. If several were named, the device of the first parameter.
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
    /// The kind of devices that the script runs for, once for each, if no value is given.
    fn devices(&self) -> Option<agent::DeviceKind> {
        self.kind().filter(|_| self.default.is_none() && !self.required)
    }

    /// The kind of device that the parameter names.
    const fn kind(&self) -> Option<agent::DeviceKind> {
        match self.holds {
            ScriptParameterType::Storage => Some(agent::DeviceKind::Storage),
            ScriptParameterType::Interface => Some(agent::DeviceKind::Interface),
            _ => None,
        }
    }

    /// Checks a value. The error has the fault and a hint.
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

    /// The accepted values, in words.
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

/// The occasion on which a script runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum ScriptType {
    /// The commissioning of a machine, when its hardware is read.
    Commissioning,
    /// A test of a machine's hardware.
    Testing,
    /// The release of a machine from its deployment.
    Release,
    /// The installation of a system.
    Deployment,
}

/// The time at which a script of a deployment runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum Occasion {
    /// At the end of the installation, in the new system, before its first boot.
    Install,
    /// Once at the first boot of the new system, after cloud-init has finished.
    FirstBoot,
}

/// The scripts that may run at the same time as a script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum ScriptParallel {
    /// No other script.
    #[default]
    Disabled,
    /// The same script, for other devices.
    Instance,
    /// The same script for other devices, and other scripts with `any`.
    Any,
}

/// A parameter of a script.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct ScriptParameter {
    /// The type of the parameter's value.
    #[field(name = "type", default = ScriptParameterType::String)]
    pub holds: ScriptParameterType,
    /// True: the script cannot run without a value.
    #[field(default = false)]
    pub required: bool,
    /// The value to use if none is given.
    pub default: Option<String>,
    /// The least number of seconds, if `type` is `runtime`. Absent: 0.
    pub min: Option<i64>,
    /// The largest number of seconds, if `type` is `runtime`. Absent: no limit.
    pub max: Option<i64>,
    /// The allowed values, if `type` is `choice`.
    pub choices: BTreeSet<String>,
    /// A description for people. It has no effect.
    #[field(none)]
    pub description: Option<String>,
}

/// The type of a parameter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Model)]
pub enum ScriptParameterType {
    /// A text of any form.
    String,
    /// The word `true` or `false`.
    Boolean,
    /// One of several words.
    Choice,
    /// A disk, by its kernel name. Without a value the script runs once for each disk.
    Storage,
    /// A network interface, by its kernel name. Without a value the script runs once for each physical interface.
    Interface,
    /// A URL, like `https://files.example.com/a.bin`.
    Url,
    /// A time, in whole seconds.
    Runtime,
}

/// The state of the script. The operations and the test results of machines contain its runs.
#[derive(Clone, Debug, PartialEq, Model)]
pub struct ScriptStatus {
    /// The fields that every status has.
    #[field(flatten)]
    pub common: CommonStatus,
}

/// The longest first line of a script, in bytes: the kernel reads no more of it.
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
    if spec.may_reboot && !matches!(spec.when, ScriptType::Commissioning | ScriptType::Testing) {
        let message = format!("a script of type {} may not restart the machine", spec.when);
        rule.broken("/may_reboot", message, "leave it out, or say type = \"commissioning\" or \"testing\"");
    }
    if spec.may_reboot && spec.parallel != ScriptParallel::Disabled {
        let message = "a script that may restart the machine runs alone";
        rule.broken("/may_reboot", message, "leave it out, or say parallel = \"disabled\"");
    }
    first_boot_rules(spec, rule);
    for bad in spec.packages.iter().filter(|name| !is_package(name)) {
        let hint = format!(
            "a letter or digit, then letters, digits and the characters +-._:=~, and no - at the end; at most {MAX_PACKAGE_BYTES} bytes"
        );
        rule.broken("/packages", format!("{bad:?} is no name of a package"), hint);
    }
    if spec.packages.len() > MAX_PACKAGES {
        let message = format!("{} packages are declared", spec.packages.len());
        rule.broken("/packages", message, format!("at most {MAX_PACKAGES}"));
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

/// True for a name that a package manager takes as an argument. A first `-` would make it an option, and apt-get removes packages whose
/// names have a last `-`.
fn is_package(name: &str) -> bool {
    let is_first = |c: char| c.is_ascii_alphanumeric();
    let is_other = |c: char| is_first(c) || "+-._:=~".contains(c);
    name.len() <= MAX_PACKAGE_BYTES
        && name.starts_with(is_first)
        && name.chars().all(is_other)
        && !name.ends_with('-')
}

/// Rules for scripts of the first boot. They run one after the other, without the agent, which knows the names of devices.
fn first_boot_rules(spec: &ScriptSpec, rule: &mut Rule<'_>) {
    if spec.occasion != Occasion::FirstBoot {
        return;
    }
    if spec.when != ScriptType::Deployment {
        let message = format!("a script of type {} has no first boot", spec.when);
        rule.broken("/when", message, "leave it out, or say type = \"deployment\"");
    }
    if spec.parallel != ScriptParallel::Disabled {
        let message = "scripts of the first boot run one after the other";
        rule.broken("/parallel", message, "leave it out, or say when = \"install\"");
    }
    for (name, _) in spec.parameters.iter().filter(|(_, parameter)| parameter.devices().is_some()) {
        let at = crate::pointer::child("/parameters", name);
        let message =
            format!("the script would be run for each {name}, which scripts of the first boot cannot");
        rule.broken(at, message, "give it a default, or list the devices in the script");
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
    fn packages_are_names_that_no_package_manager_reads_as_options_or_removals() {
        let good = [
            "g++",
            "linux-image-6.1",
            "curl=7.88.1-10+deb12u8",
            "libc6:i386",
            "python3.11",
            "NetworkManager",
        ];
        assert_eq!(errors(&json!({ "packages": good })), Vec::<String>::new());
        let sorted: BTreeSet<String> = good.map(ToOwned::to_owned).into();
        assert_eq!(run(&json!({ "packages": good }), &[]).unwrap().packages, Vec::from_iter(sorted));
        for bad in ["", "-y", "curl-", "a b", "a;b", "../a.deb", "http://x/a.deb", "ü", &"a".repeat(129)] {
            let expected = format!("/packages {bad:?} is no name of a package");
            assert_eq!(errors(&json!({ "packages": [bad] })), [expected]);
        }
        let many: Vec<String> = (0..=MAX_PACKAGES).map(|number| format!("p{number}")).collect();
        assert_eq!(errors(&json!({ "packages": many })), ["/packages 101 packages are declared"]);
    }

    #[test]
    fn a_script_of_the_first_boot_belongs_to_a_deployment_and_runs_alone() {
        let first = |more: &Value| {
            let mut all = json!({"type": "deployment", "when": "first_boot"});
            all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            errors(&all)
        };
        assert_eq!(first(&json!({"hardware": ["usb:0bda:8153"], "packages": ["jq"]})), Vec::<String>::new());
        assert_eq!(first(&json!({"type": "release"})), ["/when a script of type release has no first boot"]);
        assert_eq!(
            first(&json!({"parallel": "any"})),
            ["/parallel scripts of the first boot run one after the other"]
        );
        let disk = json!({"parameters": {"disk": {"type": "storage"}}});
        assert_eq!(
            first(&disk),
            [
                "/parameters/disk the script would be run for each disk, which scripts of the first boot cannot"
            ]
        );
        assert_eq!(
            first(&json!({"parameters": {"disk": {"type": "storage", "default": "sda"}}})),
            Vec::<String>::new()
        );
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
    fn a_script_that_may_restart_the_machine_runs_alone_and_before_a_system_is_there() {
        let with = |when: &str, parallel: &str| {
            errors(&json!({"type": when, "parallel": parallel, "may_reboot": true}))
        };
        for when in ["commissioning", "testing"] {
            assert_eq!(with(when, "disabled"), [""; 0]);
            assert_eq!(
                with(when, "instance"),
                ["/may_reboot a script that may restart the machine runs alone"]
            );
        }
        for when in ["release", "deployment"] {
            let refused = format!("/may_reboot a script of type {when} may not restart the machine");
            assert_eq!(with(when, "disabled"), [refused]);
        }
        let run_of = |more| run(&more, &[]).unwrap().may_reboot;
        assert_eq!((run_of(json!({"may_reboot": true})), run_of(json!({}))), (true, false));
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
