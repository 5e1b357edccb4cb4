//! Reads the metadata comment of MAAS scripts as fields of a Script.
//!
//! Nothing acts on the comment: the spec of the Script is the only source. [`untold`] compares both. A plan names each setting of the comment
//! that the spec does not have.
//!
//! | key of the comment | here |
//! | --- | --- |
//! | `script_type`, `timeout`, `parallel`, `may_reboot`, `for_hardware`, `packages` of `apt`, `parameters` | compared with the spec |
//! | `name`, `title`, `description`, `comment`, `hardware_type`, `destructive`, `results` | for people, or true of every Script |
//! | others | reported |

use super::{ScriptParallel, ScriptParameter, ScriptParameterType, ScriptSpec, ScriptType};
use crate::values::{Duration, UntrustedText};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The text in the first line of each such comment.
pub(crate) const MARK: &str = "Start MAAS 1.0 script metadata";
const END: &str = "End MAAS 1.0 script metadata";
/// Most bytes of a comment.
const COMMENT_BYTES: usize = 16 * 1024;
/// Most findings about a comment.
const FINDINGS: usize = 20;
/// Most characters of a text that a finding quotes.
const QUOTED: usize = 80;
/// Keys without an effect: they are for people, or true of every Script here.
const FOR_PEOPLE: [&str; 7] =
    ["name", "title", "description", "comment", "hardware_type", "destructive", "results"];
/// Keys without a counterpart here, and the way to get the same effect.
const WITHOUT_COUNTERPART: [(&str, &str); 3] = [
    ("tags", "name the script in commissioning.scripts, commissioning.testing or release.scripts"),
    ("recommission", "`basalt recommission` reads the hardware again"),
    ("apply_configured_networking", "the ephemeral environment has its address by DHCP"),
];

/// The content of a metadata comment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScriptComment {
    /// The key `name`: the name of the script in MAAS.
    pub name: Option<String>,
    /// Fields of a Script, under their names in a spec, without `content`.
    pub spec: Map<String, Value>,
    /// Sentences about the keys that have no counterpart, and about values that cannot be read.
    pub notes: Vec<String>,
}

impl ScriptComment {
    /// Reads the comment of a script. `None`: the script has no such comment.
    ///
    /// # Errors
    /// The comment is too long, does not end, or is no YAML mapping.
    pub fn of(content: &str) -> Option<Result<Self, String>> {
        Some(block(content)?.and_then(|text| {
            let read = serde_saphyr::from_str::<Value>(&text);
            match read.map_err(|error| error.to_string()) {
                Ok(Value::Object(map)) => Ok(Self::read(&map)),
                Ok(_) => Err("it is no YAML mapping".to_owned()),
                Err(error) => Err(format!("it is no YAML: {}", shown(&error))),
            }
        }))
    }

    fn read(map: &Map<String, Value>) -> Self {
        let mut comment = Self::default();
        // The order of a map depends on how this crate is built.
        for (key, value) in map.iter().collect::<BTreeMap<_, _>>() {
            comment.take(key, value);
        }
        if let Some(description) = ["description", "title"].iter().find_map(|key| map.get(*key)?.as_str()) {
            comment.spec.insert("description".to_owned(), description.trim().into());
        }
        comment
    }

    fn take(&mut self, key: &str, value: &Value) {
        let taken = match key {
            "name" => {
                self.name = value.as_str().map(ToOwned::to_owned);
                return;
            }
            "script_type" => script_type(value).map(|it| ("type", it.as_str().into())),
            "timeout" => timeout(value).map(|it| ("timeout", it.to_string().into())),
            "parallel" => parallel(value).map(|it| ("parallel", it.as_str().into())),
            // The default needs no declaration.
            "may_reboot" if *value == Value::Bool(false) => return,
            "may_reboot" => value.as_bool().map(|it| ("may_reboot", it.into())),
            "packages" => match self.packages(value) {
                Some(packages) if packages.is_empty() => return,
                packages => packages.map(|it| ("packages", json!(it))),
            },
            "for_hardware" => texts(value).map(|it| ("hardware", json!(it))),
            "parameters" => value.as_object().map(|all| ("parameters", self.parameters(all))),
            _ if FOR_PEOPLE.contains(&key) => return,
            _ => {
                let known = WITHOUT_COUNTERPART.iter().find(|(name, _)| *name == key);
                let asks = !matches!(value, Value::Null | Value::Bool(false))
                    && value.as_array().is_none_or(|it| !it.is_empty());
                match known {
                    Some((_, hint)) if asks => self.note(format!("{key} has no counterpart: {hint}")),
                    Some(_) => {}
                    None => self.note(format!("{} is no known key", shown(key))),
                }
                return;
            }
        };
        match taken {
            Some((field, value)) => {
                self.spec.insert(field.to_owned(), value);
            }
            None => self.note(format!("{key} cannot be read: {}", shown(&value.to_string()))),
        }
    }

    /// Reads the packages of apt. Those of other sources have no counterpart.
    fn packages(&mut self, value: &Value) -> Option<BTreeSet<String>> {
        let mut packages = BTreeSet::new();
        for (source, names) in value.as_object()?.iter().collect::<BTreeMap<_, _>>() {
            match source.as_str() {
                "apt" => packages = texts(names)?,
                _ => self.note(format!(
                    "packages.{} has no counterpart: packages are those of apt-get or dnf",
                    shown(source)
                )),
            }
        }
        Some(packages)
    }

    fn parameters(&mut self, all: &Map<String, Value>) -> Value {
        let mut parameters = Map::new();
        for (name, of) in all.iter().collect::<BTreeMap<_, _>>() {
            match of.as_object().and_then(|of| self.parameter(name, of)) {
                Some(parameter) => {
                    parameters.insert(name.clone(), parameter);
                }
                None => self.note(format!("parameter {} cannot be read", shown(name))),
            }
        }
        Value::Object(parameters)
    }

    /// Reads a parameter. In MAAS a parameter is required unless it says otherwise. A disk or interface parameter without a value means all
    /// devices.
    fn parameter(&mut self, name: &str, of: &Map<String, Value>) -> Option<Value> {
        use ScriptParameterType as Holds;
        let holds = match of.get("type")?.as_str()? {
            "password" => Holds::String,
            word => {
                [Holds::String, Holds::Boolean, Holds::Choice, Holds::Storage, Holds::Interface, Holds::Url]
                    .into_iter()
                    .chain([Holds::Runtime])
                    .find(|it| it.as_str() == word)?
            }
        };
        let is_device = matches!(holds, Holds::Storage | Holds::Interface);
        let default = of.get("default").filter(|it| !it.is_null()).map(text_of);
        let default = default.filter(|it| !(is_device && it == "all"));
        let is_required = of.get("required").and_then(Value::as_bool).unwrap_or(true);
        let mut parameter = Map::new();
        parameter.insert("type".to_owned(), holds.as_str().into());
        if is_required && default.is_none() && !is_device {
            parameter.insert("required".to_owned(), true.into());
        }
        parameter.extend(default.map(|it| ("default".to_owned(), it.into())));
        let bounds = ["min", "max"].into_iter().filter_map(|key| Some((key, of.get(key)?.as_i64()?)));
        parameter.extend(bounds.map(|(key, bound)| (key.to_owned(), bound.into())));
        let choices = of.get("choices").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let words: BTreeSet<String> = choices.iter().map(|it| text_of(it.get(0).unwrap_or(it))).collect();
        if !words.is_empty() {
            parameter.insert("choices".to_owned(), json!(words));
        }
        if let Some(format) = of.get("argument_format").and_then(Value::as_str) {
            let given = format!("--{name}=");
            let is_same =
                format.strip_prefix(&given).is_some_and(|it| it.starts_with('{') && it.ends_with('}'));
            if !is_same {
                let format = shown(format);
                self.note(format!(
                    "argument_format {format} has no counterpart: the script gets {given}VALUE"
                ));
            }
        }
        if is_device {
            self.note(format!(
                "parameter {} of type {} is given as the name of the kernel, like {}, and not as a path or an address",
                shown(name),
                holds.as_str(),
                if holds == Holds::Storage { "sda" } else { "eth0" }
            ));
        }
        Some(Value::Object(parameter))
    }

    fn note(&mut self, note: String) {
        if self.notes.len() < FINDINGS {
            self.notes.push(note);
        }
    }
}

/// Compares the comment of a script with its spec. The result has a sentence and a hint for each difference, and for each key without a
/// counterpart.
pub(crate) fn untold(spec: &Value) -> Vec<(String, String)> {
    let content = spec.get("content").and_then(Value::as_str).unwrap_or_default();
    let comment = match ScriptComment::of(content) {
        None => return Vec::new(),
        Some(Ok(comment)) => comment,
        Some(Err(why)) => {
            return vec![(
                format!("the script's comment with metadata cannot be read: {why}"),
                String::new(),
            )];
        }
    };
    let says = |what: String| format!("the script's comment says {what}, and the spec alone counts");
    let mut found: Vec<(String, String)> = Vec::new();
    let declared = serde_json::from_value::<ScriptSpec>(spec.clone());
    let mut as_commented = spec.clone();
    if let Some(all) = as_commented.as_object_mut() {
        all.extend(comment.spec.clone());
    }
    match (declared, serde_json::from_value::<ScriptSpec>(as_commented)) {
        (Ok(declared), Ok(commented)) => {
            for (field, is, would_be) in differences(&declared, &commented) {
                let what = format!("{field} {}: it is {}", shown(&would_be), shown(&is));
                found.push((says(what), format!("declare {field}, or take it out of the comment")));
            }
        }
        // The spec has errors of its own, which validation reports.
        (Err(_), _) => {}
        (Ok(_), Err(error)) => {
            found.push((
                format!(
                    "the script's comment has a value that no Script takes: {}",
                    shown(&error.to_string())
                ),
                String::new(),
            ));
        }
    }
    found.extend(
        comment.notes.into_iter().map(|note| (format!("in the script's comment, {note}"), String::new())),
    );
    found.truncate(FINDINGS);
    found
}

/// The fields that differ: name, declared value, value of the comment.
fn differences(declared: &ScriptSpec, commented: &ScriptSpec) -> Vec<(String, String, String)> {
    let words = |set: &BTreeSet<String>| match set.is_empty() {
        true => "empty".to_owned(),
        false => set.iter().map(String::as_str).collect::<Vec<_>>().join(", "),
    };
    let pairs = [
        ("type", declared.when.to_string(), commented.when.to_string()),
        ("timeout", declared.timeout.to_string(), commented.timeout.to_string()),
        ("parallel", declared.parallel.to_string(), commented.parallel.to_string()),
        ("may_reboot", declared.may_reboot.to_string(), commented.may_reboot.to_string()),
        ("hardware", words(&declared.hardware), words(&commented.hardware)),
        ("packages", words(&declared.packages), words(&commented.packages)),
    ];
    let fields = pairs.into_iter().map(|(field, is, would_be)| (field.to_owned(), is, would_be));
    let parameters = commented.parameters.iter().map(|(name, would_be)| {
        let is = declared.parameters.get(name).map_or_else(|| "not declared".to_owned(), parameter_in_words);
        (format!("parameters.{}", shown(name)), is, parameter_in_words(would_be))
    });
    fields.chain(parameters).filter(|(_, is, would_be)| is != would_be).collect()
}

fn parameter_in_words(parameter: &ScriptParameter) -> String {
    let bound = |name: &str, bound: Option<i64>| bound.map(|it| format!(", {name} {it}")).unwrap_or_default();
    let default = parameter.default.as_ref().map(|it| format!(", default {it:?}")).unwrap_or_default();
    let choices: Vec<&str> = parameter.choices.iter().map(String::as_str).collect();
    let choices = if choices.is_empty() { String::new() } else { format!(", choices {}", choices.join(" ")) };
    let required = if parameter.required { ", required" } else { "" };
    let bounds = bound("min", parameter.min) + &bound("max", parameter.max);
    format!("{}{required}{default}{bounds}{choices}", parameter.holds.as_str())
}

/// The YAML of the comment, without the `#` of each line. `None`: the script has no such comment.
fn block(content: &str) -> Option<Result<String, String>> {
    let is = |line: &str, mark: &str| {
        let words = line.trim().strip_prefix('#').map(|it| it.trim().trim_matches('-').trim());
        words == Some(mark)
    };
    let mut lines = content.lines().skip_while(|line| !is(line, MARK));
    lines.next()?;
    let mut text = String::new();
    for line in lines {
        if is(line, END) {
            return Some(Ok(text));
        }
        let Some(line) = line.trim_start().strip_prefix('#') else {
            return Some(Err(format!("the line {} is no comment, and no line says {END:?}", shown(line))));
        };
        text.push_str(line.strip_prefix(' ').unwrap_or(line));
        text.push('\n');
        if text.len() > COMMENT_BYTES {
            return Some(Err(format!("it has more than {COMMENT_BYTES} bytes")));
        }
    }
    Some(Err(format!("no line says {END:?}")))
}

fn script_type(value: &Value) -> Option<ScriptType> {
    use ScriptType::{Commissioning, Deployment, Release, Testing};
    let word = value.as_str()?;
    [Commissioning, Testing, Release, Deployment].into_iter().find(|it| it.as_str() == word)
}

/// Reads a word, or its number in MAAS.
fn parallel(value: &Value) -> Option<ScriptParallel> {
    let all = [ScriptParallel::Disabled, ScriptParallel::Instance, ScriptParallel::Any];
    match value {
        Value::Number(number) => all.get(usize::try_from(number.as_u64()?).ok()?).copied(),
        value => all.into_iter().find(|it| Some(it.as_str()) == value.as_str()),
    }
}

/// Reads seconds, or `HH:MM:SS`. Zero means no time limit in MAAS, and is refused: every Script has a limit here.
fn timeout(value: &Value) -> Option<Duration> {
    let seconds = match value {
        Value::Number(number) => number.as_u64()?,
        value => {
            let parts = value.as_str()?.split(':').map(|part| part.trim().parse::<u64>().ok());
            let parts: Vec<u64> = parts.collect::<Option<_>>()?;
            if parts.len() > 3 {
                return None;
            }
            parts.into_iter().try_fold(0_u64, |sum, part| sum.checked_mul(60)?.checked_add(part))?
        }
    };
    // A longer time cannot be expressed in milliseconds.
    (1..=u64::from(u32::MAX)).contains(&seconds).then(|| Duration::from_secs(seconds))
}

/// Reads a text, or a list of texts.
fn texts(value: &Value) -> Option<BTreeSet<String>> {
    match value {
        Value::String(text) => Some([text.trim().to_owned()].into()),
        Value::Array(texts) => texts.iter().map(|it| Some(it.as_str()?.trim().to_owned())).collect(),
        _ => None,
    }
}

/// A scalar as text.
fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

/// The first characters of a text, made printable.
fn shown(text: &str) -> String {
    UntrustedText::<QUOTED>::new(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "#!/bin/bash
# --- Start MAAS 1.0 script metadata ---
# name: surface
# title: Reads each sector
# script_type: testing
# hardware_type: storage
# timeout: 00:20:00
# parallel: instance
# for_hardware: [\"pci:8086:*\"]
# may_reboot: false
# parameters:
#   storage: {type: storage, argument_format: '{path}'}
#   passes: {type: runtime, min: 1, max: 9, default: 2}
# --- End MAAS 1.0 script metadata ---
exit 0
";

    fn with(lines: &str) -> String {
        let block: String = lines.lines().map(|line| format!("# {line}\n")).collect();
        format!("#!/bin/sh\n# --- {MARK} ---\n{block}# --- {END} ---\n")
    }

    fn told(content: &str, more: &Value) -> Vec<String> {
        let mut spec = json!({"type": "testing", "content": content});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        untold(&spec).into_iter().map(|(message, _)| message).collect()
    }

    #[test]
    fn a_comment_is_the_spec_of_a_script() {
        let comment = ScriptComment::of(SCRIPT).unwrap().unwrap();
        assert_eq!(comment.name.as_deref(), Some("surface"));
        let wanted = json!({"type": "testing", "timeout": "20m", "parallel": "instance", "hardware": ["pci:8086:*"],
            "description": "Reads each sector",
            "parameters": {"storage": {"type": "storage"}, "passes": {"type": "runtime", "default": "2", "min": 1, "max": 9}}});
        assert_eq!(Value::Object(comment.spec), wanted);
        assert_eq!(
            comment.notes,
            [
                "argument_format {path} has no counterpart: the script gets --storage=VALUE",
                "parameter storage of type storage is given as the name of the kernel, like sda, and not as a path or an address",
            ]
        );
        assert_eq!(ScriptComment::of("#!/bin/sh\n"), None);
    }

    #[test]
    fn each_setting_that_the_spec_does_not_have_is_named() {
        let says = |what: &str| format!("the script's comment says {what}, and the spec alone counts");
        let content = with(
            "timeout: 1200\nparallel: 2\nmay_reboot: true\nfor_hardware: usb:0bda:8153\npackages: {apt: [jq, curl]}\nparameters: {mode: {type: string}}",
        );
        let all = [
            "timeout 20m: it is 10m",
            "parallel any: it is disabled",
            "may_reboot true: it is false",
            "hardware usb:0bda:8153: it is empty",
            "packages curl, jq: it is empty",
        ];
        let mode = "parameters.mode string, required: it is not declared";
        assert_eq!(told(&content, &json!({})), all.into_iter().chain([mode]).map(says).collect::<Vec<_>>());
        let same = json!({"timeout": "1200s", "parallel": "any", "may_reboot": true, "hardware": ["usb:0bda:8153"],
            "packages": ["curl", "jq"], "parameters": {"mode": {"required": true, "description": "a word"}}});
        assert_eq!(told(&content, &same), [""; 0]);
        assert_eq!(told("#!/bin/sh\n", &json!({})), [""; 0], "no comment");
    }

    #[test]
    fn keys_without_a_counterpart_and_unknown_ones_are_told() {
        let content = with(
            "tags: [noauto]\nmay_reboot: maybe\nrecommission: false\nspeed: 9\ntimeout: [1]\nname: x\npackages: {snap: [lxd]}",
        );
        assert_eq!(
            told(&content, &json!({})),
            [
                "in the script's comment, may_reboot cannot be read: \"maybe\"",
                "in the script's comment, packages.snap has no counterpart: packages are those of apt-get or dnf",
                "in the script's comment, speed is no known key",
                "in the script's comment, tags has no counterpart: name the script in commissioning.scripts, commissioning.testing or release.scripts",
                "in the script's comment, timeout cannot be read: [1]",
            ]
        );
    }

    #[test]
    fn times_are_seconds_or_hours_minutes_and_seconds() {
        let read = |value: Value| timeout(&value).map(|it| it.to_string());
        assert_eq!(read(json!(90)).as_deref(), Some("1m30s"));
        assert_eq!(read(json!("01:30:00")).as_deref(), Some("1h30m"));
        assert_eq!(read(json!("5:00")).as_deref(), Some("5m"));
        for bad in [
            json!(0),
            json!(-1),
            json!("1:2:3:4"),
            json!("x"),
            json!("99999999999999999999:0"),
            json!(u64::MAX),
        ] {
            assert_eq!(read(bad.clone()), None, "{bad}");
        }
    }

    #[test]
    fn a_hostile_comment_is_told_in_few_words() {
        let start = format!("# --- {MARK} ---\n");
        let bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned()
            + &(b'b'..b'p')
                .map(|c| {
                    format!(
                        "{0}: &{0} [*{1}, *{1}, *{1}, *{1}, *{1}, *{1}, *{1}, *{1}]\n",
                        c as char,
                        (c - 1) as char
                    )
                })
                .collect::<String>();
        let many: String = (0..1000).map(|n| format!("key{n}: 1\n")).collect();
        let long = format!("{}: 1", "k".repeat(9000));
        let hostile = [
            start.clone(),
            format!("{start}echo x\n"),
            format!("{start}{}", "# a: b\n".repeat(100_000)),
            with("a: [1\n"),
            with("- a\n"),
            with(&"[".repeat(9000)),
            with("a: 1\na: 2\n"),
            with("timeout: \"\\e[2J\"\n"),
            with(&bomb),
            with(&many),
            with(&long),
        ];
        for content in hostile {
            let told = told(&content, &json!({}));
            assert!((1..=FINDINGS).contains(&told.len()), "{told:?}");
            assert!(told.iter().all(|it| it.len() < 600 && !it.contains(char::is_control)), "{told:?}");
        }
    }
}
