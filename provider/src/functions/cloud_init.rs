//! Merges cloud-configs of several authors into one.

use serde_json::{Map, Value};
use tfplugin::{Refusal, Type, Val};

use super::{Texts, yaml};

/// The first line of a cloud-config, by which cloud-init recognises it.
const HEADER: &str = "#cloud-config";

/// The function that merges cloud-configs.
pub(super) const MERGE: Texts = Texts {
    name: "cloud_init_merge",
    summary: "One cloud-config of several",
    description: "Merges cloud-configs, for `user_data` of a deployment: maps are merged, lists are joined in the order of \
                  the arguments, and of other values the last one counts. An empty text adds nothing. The answer is JSON \
                  behind `#cloud-config`, which cloud-init reads as YAML. Words count as YAML 1.1 and cloud-init have them: an unquoted \
                  `yes` is `true`, `0644` is 420, and what is quoted stays a text.",
    parameters: &[(
        "config",
        "A cloud-config: YAML that begins with `#cloud-config`, or a map of YAML or JSON.",
    )],
    is_variadic: true,
    returns: Type::String,
    call: |texts| {
        let mut merged = Map::new();
        for (i, text) in texts.iter().enumerate() {
            merge(&mut merged, read(i, text)?);
        }
        Ok(Val::from(format!("{HEADER}\n{}\n", yaml::write(&Value::Object(merged)))))
    },
};

fn read(argument: usize, text: &str) -> Result<Map<String, Value>, Refusal> {
    let first = text.trim_start().lines().next().unwrap_or_default().trim_end();
    if first.starts_with("#!") || first.starts_with("Content-Type:") || first.starts_with("## template") {
        let why = format!(
            "It begins with {first:?} and is no cloud-config. Give a script as runcmd or write_files of a cloud-config."
        );
        return Err(Refusal::of(argument, why));
    }
    // A text with only comments is empty.
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(Map::new());
    }
    match yaml::read(text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(other) => {
            let what = match other {
                Value::Array(_) => "a list",
                _ => "a single value",
            };
            Err(Refusal::of(
                argument,
                format!("It is {what}. A cloud-config is a map, such as packages: [curl]."),
            ))
        }
        Err(error) => Err(Refusal::of(argument, format!("It is no YAML that can be read: {error}."))),
    }
}

fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(into)), Value::Object(from)) => merge(into, from),
            (Some(Value::Array(into)), Value::Array(from)) => into.extend(from),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn merged(texts: &[&str]) -> Value {
        let answer = (MERGE.call)(texts).expect("an answer");
        let text = answer.as_str().expect("a text").strip_prefix("#cloud-config\n").expect("the header");
        serde_json::from_str(text).expect("JSON")
    }

    #[test]
    fn maps_are_merged_lists_joined_and_the_last_value_counts() {
        let base =
            "#cloud-config\npackages: [curl]\nusers:\n  - name: ada\nntp:\n  enabled: true\n  servers: [a]\n";
        let team = "#cloud-config\npackages:\n  - jq\nntp:\n  enabled: false\ntimezone: UTC\n";
        assert_eq!(
            merged(&[base, "", "# nothing\n", team]),
            json!({
                "packages": ["curl", "jq"], "users": [{"name": "ada"}],
                "ntp": {"enabled": false, "servers": ["a"]}, "timezone": "UTC"
            })
        );
    }

    #[test]
    fn json_is_taken_as_well_and_the_answer_can_be_merged_again() {
        let first = (MERGE.call)(&["{\"runcmd\": [[\"true\"]]}"]).expect("an answer");
        assert_eq!(
            merged(&[first.as_str().expect("a text"), "runcmd: [ls]"]),
            json!({"runcmd": [["true"], "ls"]})
        );
        assert_eq!(merged(&[]), json!({}));
    }

    #[test]
    fn numbers_are_those_that_cloud_init_reads() {
        let files = "write_files:\n  - {path: /a, permissions: 0644}\n  - {path: /b, permissions: '0644'}\n";
        let read =
            [json!({"path": "/a", "permissions": 0o644}), json!({"path": "/b", "permissions": "0644"})];
        assert_eq!(merged(&[files]), json!({ "write_files": read }));
    }

    #[test]
    fn an_unquoted_no_is_no_text_that_would_count_as_true() {
        let users = "users:\n  - {name: ada, lock_passwd: no, shell: 'on'}\n";
        assert_eq!(
            merged(&[users]),
            json!({"users": [{"name": "ada", "lock_passwd": false, "shell": "on"}]})
        );
        let answer = (MERGE.call)(&["a: 'yes'\nb: '0644'\nc: '~'\n"]).expect("an answer");
        assert_eq!(
            answer.as_str(),
            Some("#cloud-config\n{\n  \"a\": \"yes\",\n  \"b\": \"0644\",\n  \"c\": \"~\"\n}\n")
        );
    }

    #[test]
    fn what_is_no_cloud_config_is_refused_by_its_place() {
        for (text, want) in [
            ("#!/bin/sh\nls\n", "#!/bin/sh"),
            ("- a\n- b\n", "a list"),
            ("a: [", "no YAML"),
            ("just words", "a single value"),
        ] {
            let refusal = (MERGE.call)(&["a: 1", text]).expect_err(text);
            assert!(refusal.argument == Some(1) && refusal.why.contains(want), "{text:?}: {refusal}");
        }
    }
}
