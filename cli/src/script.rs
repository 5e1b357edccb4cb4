//! `basalt script`: makes a Script from a file. The metadata comment that scripts of MAAS have is turned into fields.

use std::path::{Path, PathBuf};

use basalt_api::KindOf;
use basalt_api::kinds::{Script, ScriptComment};
use basalt_api::values::Naming;
use serde_json::{Map, Value, json};

use crate::get::output::yaml;
use crate::output::show_exactly;
use crate::region::Failed;

/// Arguments of `basalt script`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Print the declaration of a Script, with the settings of its comment with metadata. No region is asked
    From {
        /// The file with the script
        file: PathBuf,
        /// The Script's name; otherwise the name in the comment, or of the file
        #[arg(long)]
        name: Option<String>,
        /// The type, where the comment says none
        #[arg(long = "type", default_value = "testing", value_parser = ["commissioning", "testing", "release", "deployment"])]
        when: String,
        /// The form: YAML for `basalt apply`, or HCL for Terraform
        #[arg(short, long, value_enum, default_value = "yaml")]
        output: Output,
    },
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Output {
    Yaml,
    Hcl,
}

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<(), Failed> {
    let Command::From { file, name, when, output } = args.command;
    let content = std::fs::read_to_string(&file);
    let content = content.map_err(|source| Failed::File { path: file.clone(), source })?;
    let text = match output {
        Output::Yaml => as_yaml(&declared(&file, &content, name, &when)?, &content)?,
        Output::Hcl => as_hcl(&declared(&file, &content, name, &when)?, &file),
    };
    show_exactly(&text);
    Ok(())
}

/// The fields of a Script from its file, without the content.
struct Declared {
    name: String,
    spec: Map<String, Value>,
    notes: Vec<String>,
}

fn declared(file: &Path, content: &str, name: Option<String>, when: &str) -> Result<Declared, Failed> {
    let read = ScriptComment::of(content).unwrap_or_else(|| Ok(ScriptComment::default()));
    let comment = read.map_err(|why| {
        let file = file.display();
        Failed::Words(format!("the comment with metadata in {file} cannot be read: {why}"))
    })?;
    let name = match name {
        Some(name) => label(&name)?,
        None => {
            let stem = file.file_stem().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default();
            label(&comment.name.unwrap_or(stem))?
        }
    };
    let mut spec = Map::new();
    spec.insert("type".to_owned(), when.into());
    spec.extend(comment.spec);
    Ok(Declared { name, spec, notes: comment.notes })
}

/// Turns a name into a label: lower case, with hyphens for other characters.
fn label(name: &str) -> Result<String, Failed> {
    let hyphen = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let label: String = name.chars().map(hyphen).collect();
    let label = label.trim_matches('-').to_owned();
    match Naming::Label.check(&label) {
        Ok(()) => Ok(label),
        Err(bad) => Err(Failed::Words(format!(
            "{name:?} is no name of a Script: {}; give one by --name",
            bad.message
        ))),
    }
}

/// The notes of a declaration, as comments.
fn notes(declared: &Declared) -> String {
    declared.notes.iter().map(|note| format!("# {note}\n")).collect()
}

fn as_yaml(declared: &Declared, content: &str) -> Result<String, Failed> {
    let mut spec = declared.spec.clone();
    spec.insert("content".to_owned(), content.into());
    let document = json!({"kind": Script::NAME, "metadata": {"name": declared.name}, "spec": spec});
    Ok(notes(declared) + &yaml(&[document])?)
}

fn as_hcl(declared: &Declared, file: &Path) -> String {
    // A Terraform identifier must not begin with a digit.
    let first = if declared.name.starts_with(|c: char| c.is_ascii_digit()) { "script_" } else { "" };
    let label = format!("{first}{}", declared.name.replace('-', "_"));
    let mut text = notes(declared);
    text += &format!("resource \"{}\" {} {{\n", Script::KIND.terraform_name, quoted(&label));
    let name: Value = declared.name.as_str().into();
    let content = format!("file({})", quoted(&file.to_string_lossy()));
    let own = [("name".to_owned(), literal(&name, 1)), ("content".to_owned(), content)];
    let fields = declared.spec.iter().map(|(field, value)| (field.clone(), literal(value, 1)));
    text += &own
        .into_iter()
        .chain(fields)
        .map(|(field, value)| format!("  {field} = {value}\n"))
        .collect::<String>();
    text + "}\n"
}

/// A value as HCL, with at most `depth` levels.
fn literal(value: &Value, depth: usize) -> String {
    let indent = "  ".repeat(depth);
    match value {
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(|item| literal(item, depth)).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| {
                format!("{indent}  {} = {}\n", quoted(name), literal(value, depth + 1))
            };
            format!("{{\n{}{indent}}}", fields.iter().map(field).collect::<String>())
        }
        other => other.to_string(),
    }
}

/// A quoted template without interpolations, by HCL's syntax specification.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '$' | '%' if characters.peek() == Some(&'{') => quoted.extend([c, c]),
            '\n' => quoted.push_str("\\n"),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTENT: &str = "#!/bin/sh
# --- Start MAAS 1.0 script metadata ---
# name: 50_Surface
# title: Reads ${each} sector
# script_type: commissioning
# timeout: 60
# for_hardware: [pci:8086:*]
# parameters: {disk: {type: storage}}
# --- End MAAS 1.0 script metadata ---
";

    fn of(content: &str) -> Declared {
        declared(Path::new("x/Burn in.sh"), content, None, "testing").unwrap()
    }

    #[test]
    fn a_comment_becomes_the_fields_of_a_resource() {
        let text = as_hcl(&of(CONTENT), Path::new("surface.sh"));
        let body = hcl_edit::parser::parse_body(&text).unwrap();
        let resource = body.get_blocks("resource").next().unwrap();
        let labels: Vec<&str> = resource.labels.iter().map(|label| label.as_str()).collect();
        assert_eq!(labels, ["basalt_script", "script_50_surface"]);
        for line in [
            "# parameter disk of type storage is given",
            "  name = \"50-surface\"\n",
            "  content = file(\"surface.sh\")\n",
            "  type = \"commissioning\"\n",
            "  timeout = \"1m\"\n",
            "  hardware = [\"pci:8086:*\"]\n",
            "  description = \"Reads $${each} sector\"\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn a_document_is_what_apply_takes() {
        let text = as_yaml(&of(CONTENT), CONTENT).unwrap();
        let read: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(read["metadata"]["name"], "50-surface");
        assert_eq!(basalt_api::validate(Script::KIND, &read["spec"]), []);
        let differences = basalt_api::dormant(Script::KIND, &read["spec"]);
        assert!(
            differences.iter().all(|it| it.message.starts_with("in the script's comment, ")),
            "{differences:?}"
        );
    }

    #[test]
    fn a_script_without_a_comment_has_the_name_of_its_file() {
        let plain = of("#!/bin/sh\n");
        assert_eq!((plain.name.as_str(), &plain.spec["type"]), ("burn-in", &json!("testing")));
        let named = declared(Path::new("é"), "", None, "testing").err().unwrap();
        assert!(named.to_string().contains("--name"), "{named}");
        let broken = declared(Path::new("a"), "# --- Start MAAS 1.0 script metadata ---\n", None, "testing");
        assert!(
            broken.err().unwrap().to_string().starts_with("the comment with metadata in a cannot be read")
        );
    }
}
