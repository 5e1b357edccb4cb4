//! The pages in `docs/` are generated from the schemas.
//!
//! After a change of a kind or of the provider: `UPDATE_DOCS=1 cargo test -p terraform-provider-basalt --test docs`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use basalt_api::values::Naming;
use basalt_api::{Field, KINDS, Kind, Type, examples, references};
use serde_json::Value;
use terraform_provider_basalt::provider;
use tfplugin::docs::{Example, Subject, pages};

const PROVIDER: &str = r#"terraform {
  required_providers {
    basalt = { source = "basalt-metal/basalt" }
  }
}

provider "basalt" {
  endpoint   = "https://region.example.com:5240"
  token_file = "/run/secrets/basalt-token"
}
"#;

/// An example of a token with fewer rights than the provider's own. Terraform opens it during the plan, so its role must exist
/// before. This one exists from the region's first start.
const TOKEN: &str = r#"# "region-admin" is the role of a new region, and here the scopes say how little of it is meant.
# A role of your own has to be there before this is planned:
# terraform apply -target=basalt_role.NAME, and then terraform apply.
ephemeral "basalt_token" "inventory" {
  role   = "region-admin"
  scopes = ["machines:read"]
}

resource "terraform_data" "inventory" {
  provisioner "local-exec" {
    command     = "basalt get machines > inventory.txt"
    environment = { BASALT_TOKEN = ephemeral.basalt_token.inventory.token }
  }
}
"#;

/// Tags of a machine that another resource, or another configuration, declares.
const MACHINE_TAGS: &str = r#"resource "basalt_machine_tags" "example" {
  machine = basalt_machine.example.name
  manager = "monitoring"
  tags    = ["scraped", "rack-sensors"]
}
"#;

/// An output of the disks of a machine that have not passed their test.
const TEST_RESULTS: &str = r#"data "basalt_test_results" "example" {
  machine = "m1"
}

output "disks_to_replace" {
  value = [for it in data.basalt_test_results.example.results : it.device if it.script == "basalt-disks" && it.verdict != "passed"]
}
"#;

/// A wait that fails a pipeline if a system is not ready in time.
const WAIT: &str = r#"resource "basalt_wait" "example" {
  kind    = "Deployment"
  name    = basalt_deployment.example.name
  timeout = "30m"
}
"#;

/// The registry's subcategories, with their kinds.
const SUBCATEGORIES: &[(&str, &[&str])] = &[
    ("Machines", &["Machine", "Deployment", "Image", "Script", "Tag", "ImageSource", "PackageRepository"]),
    (
        "Network",
        &["Fabric", "Vlan", "Subnet", "IpRange", "IpAddress", "StaticRoute", "Space", "Domain", "DnsRecord"],
    ),
    ("Network", &["Device", "Discovery"]),
    ("Places", &["Zone", "Pool"]),
    ("Access", &["User", "Role", "ApiToken", "SshKey"]),
    ("Region", &["Settings", "Rack", "Webhook"]),
];

/// The registry's subcategory of a page.
fn subcategory(subject: Subject<'_>) -> &'static str {
    let of = match subject {
        Subject::Provider | Subject::Function(_) => return "",
        Subject::Resource("basalt_machine_tags" | "basalt_wait")
        | Subject::DataSource("basalt_test_results")
        | Subject::Action(_) => return "Machines",
        Subject::Ephemeral(_) => return "Access",
        Subject::Resource(of) | Subject::DataSource(of) | Subject::ListResource(of) => of,
    };
    let kind = kind(of).expect("a kind");
    let found = SUBCATEGORIES.iter().find(|(_, kinds)| kinds.contains(&kind.name));
    match kind.name {
        "Sample" => "",
        name => found.unwrap_or_else(|| panic!("{name} is in no subcategory")).0,
    }
}

/// The kind of a resource, or of a data source of one or many objects.
fn kind(of: &str) -> Option<&'static Kind> {
    Kind::find(of).or_else(|| Kind::find(of.strip_prefix("basalt_")?))
}

/// A sentence for a kind that has no effect yet.
fn not_yet(subject: Subject<'_>) -> Option<String> {
    let (Subject::Resource(of) | Subject::DataSource(of) | Subject::ListResource(of)) = subject else {
        return None;
    };
    let kind = kind(of)?;
    let because = kind.dormant?;
    Some(format!(
        "Nothing acts on a declared {} yet: {because}. The region stores it and shows it, and that is all.",
        kind.name
    ))
}

fn example(subject: Subject<'_>) -> Example {
    Example { subcategory: subcategory(subject).to_owned(), not_yet: not_yet(subject), ..usage(subject) }
}

/// An example of each function.
const FUNCTIONS: &[(&str, &str)] = &[
    (
        "mac_normalize",
        "locals {\n  # { \"52:54:00:12:34:56\" = \"web-1\" }\n  by_mac = { for name, mac in var.machines : \
         provider::basalt::mac_normalize(mac) => name }\n}\n",
    ),
    (
        "cidr_contains",
        "variable \"gateway\" {\n  type = string\n  validation {\n    condition     = \
         provider::basalt::cidr_contains(\"10.77.0.0/24\", var.gateway)\n    error_message = \"The gateway lies in \
         10.77.0.0/24.\"\n  }\n}\n",
    ),
    (
        "cidr_overlaps",
        "check \"networks\" {\n  assert {\n    condition     = !provider::basalt::cidr_overlaps(var.lab, var.office)\n    \
         error_message = \"${var.lab} and ${var.office} share addresses.\"\n  }\n}\n",
    ),
    (
        "cloud_init_merge",
        "locals {\n  user_data = provider::basalt::cloud_init_merge(\n    file(\"base.yaml\"),\n    yamlencode({ packages = \
         [\"nginx\"] }),\n  )\n}\n",
    ),
];

fn usage(subject: Subject<'_>) -> Example {
    match subject {
        Subject::Provider => Example { usage: Some(PROVIDER.to_owned()), ..Example::default() },
        Subject::Resource("basalt_machine_tags") => Example {
            usage: Some(MACHINE_TAGS.to_owned()),
            import: ["web1", "web1/monitoring", "uid:UID/monitoring"].map(str::to_owned).to_vec(),
            ..Example::default()
        },
        Subject::Resource("basalt_wait") => Example { usage: Some(WAIT.to_owned()), ..Example::default() },
        Subject::Resource(of) => {
            let kind = Kind::find(of).expect("a kind");
            let name = name(kind);
            Example {
                usage: Some(resource(kind)),
                import: vec![name.to_owned(), "uid:UID".to_owned(), natural_key(kind)],
                ..Example::default()
            }
        }
        Subject::DataSource("basalt_test_results") => {
            Example { usage: Some(TEST_RESULTS.to_owned()), ..Example::default() }
        }
        Subject::DataSource(of) => {
            let usage = match KINDS.iter().find(|kind| kind.terraform_name == of) {
                Some(kind) => format!("data \"{of}\" \"example\" {{\n  name = {:?}\n}}\n", name(kind)),
                None => {
                    many(KINDS.iter().find(|kind| of == format!("basalt_{}", kind.plural)).expect("a kind"))
                }
            };
            Example { usage: Some(usage), ..Example::default() }
        }
        Subject::ListResource(of) => {
            let kind = Kind::find(of).expect("a kind");
            let filter = match kind.naming {
                Naming::Singleton => "",
                _ => "\n  config {\n    labels = { site = \"berlin\" }\n  }\n",
            };
            let usage = format!(
                "list \"{of}\" \"example\" {{\n  provider         = basalt\n  include_resource = true\n{filter}}}\n"
            );
            Example { usage: Some(usage), ..Example::default() }
        }
        Subject::Action(of) => {
            let more = match of {
                "basalt_run_script" => {
                    "\n    script  = basalt_script.example.name\n    parameters = {\n      mode = \"fast\"\n    }"
                }
                "basalt_test" => "\n    tests   = [\"basalt-memory\", \"basalt-disks\"]",
                "basalt_override_tests" => "\n    reason  = \"the slow fan is known, and ordered\"",
                "basalt_rescue" => {
                    "\n\n    ssh_keys = [basalt_ssh_key.example.public_key]\n    duration = \"90m\""
                }
                _ => "",
            };
            let usage = format!(
                "action \"{of}\" \"example\" {{\n  config {{\n    machine = basalt_machine.example.name{more}\n  }}\n}}\n\n\
                 # terraform apply -invoke=action.{of}.example\n"
            );
            Example { usage: Some(usage), ..Example::default() }
        }
        Subject::Ephemeral(_) => Example { usage: Some(TOKEN.to_owned()), ..Example::default() },
        Subject::Function(of) => {
            let usage = FUNCTIONS.iter().find(|(name, _)| *name == of);
            let (_, usage) = usage.unwrap_or_else(|| panic!("no example of {of}"));
            Example { usage: Some((*usage).to_owned()), ..Example::default() }
        }
    }
}

/// The key of the kind's example, from a field that identifies an object.
fn natural_key(kind: &Kind) -> String {
    const KNOWN_BY: &[&str] = &["cidr", "boot_macs", "macs", "address", "start", "public_key", "url"];
    let example = examples().into_iter().find(|example| example.kind == kind).expect("an example").spec;
    let text = |value: &Value| value.as_str().or_else(|| value.get(0)?.as_str()).map(str::to_owned);
    let known = KNOWN_BY.iter().find_map(|field| Some(format!("{field}={}", text(&example[*field])?)));
    // The key must need no quotes in a shell.
    known.filter(|key| !key.contains([' ', '?', '&'])).unwrap_or_else(|| "FIELD=VALUE".to_owned())
}

/// An example of a query for objects with the same value as the kind's first example.
fn many(kind: &Kind) -> String {
    let spec = examples().into_iter().find(|example| example.kind == kind).expect("an example").spec;
    let is_word = |field: &&Field| {
        !matches!(field.ty, Type::Secret) && spec[field.name].as_str().is_some_and(|text| text.len() < 40)
    };
    let words = kind.spec.fields.iter().filter(is_word);
    // The description is for readers, so it comes first.
    let word = words.min_by_key(|field| field.name == "description");
    let same = word.map_or(String::new(), |field| {
        format!("  where         = {{ {} = {} }}\n", field.name, spec[field.name])
    });
    format!(
        "data \"basalt_{}\" \"example\" {{\n  labels        = {{ site = \"berlin\" }}\n  name_contains = \"row-\"\n{same}}}\n",
        kind.plural
    )
}

fn name(kind: &Kind) -> &'static str {
    examples().into_iter().find(|example| example.kind == kind).expect("an example of every kind").name
}

/// A kind's first example as a block, with references in Terraform's syntax.
fn resource(kind: &Kind) -> String {
    let example = examples().into_iter().find(|example| example.kind == kind).expect("an example");
    let mut spec = example.spec.clone();
    for reference in references(kind, &example.spec) {
        // The first object of a kind is the example on its page.
        let to = Kind::find(reference.kind).filter(|to| to.declarable && name(to) == reference.name);
        if let (Some(to), Some(at @ Value::String(_))) = (to, spec.pointer_mut(&reference.pointer)) {
            *at = format!("${{{}.example.name}}", to.terraform_name).into();
        }
    }
    let mut fields: Vec<_> = spec
        .as_object()
        .expect("a spec")
        .iter()
        .map(|(field, value)| (field.clone(), value.clone()))
        .collect();
    if kind.naming != Naming::FabricVid {
        fields.insert(0, ("name".to_owned(), example.name.into()));
    }
    format!("resource \"{}\" \"example\" {{\n{}}}\n", kind.terraform_name, block(&fields, 1))
}

/// Fields as `terraform fmt` writes them: values on one line aligned, then the values on several lines.
fn block(fields: &[(String, Value)], depth: usize) -> String {
    let indent = "  ".repeat(depth);
    let key = |key: &str| {
        let is_word = key.starts_with(|c: char| c.is_ascii_lowercase())
            && key.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        if is_word { key.to_owned() } else { format!("{key:?}") }
    };
    let (long, short): (Vec<_>, Vec<_>) =
        fields.iter().partition(|(_, value)| value.as_object().is_some_and(|object| !object.is_empty()));
    let width = short.iter().map(|(name, _)| key(name).len()).max().unwrap_or_default();
    let mut text = String::new();
    for (name, value) in short {
        text.push_str(&format!("{indent}{:width$} = {}\n", key(name), scalar(value)));
    }
    for (name, value) in long {
        let object = value.as_object().expect("an object");
        let inner: Vec<_> = object.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        text.push_str(&format!("{indent}{} = {{\n{}{indent}}}\n", key(name), block(&inner, depth + 1)));
    }
    text
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => match text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')) {
            Some(expression) => expression.to_owned(),
            None => value.to_string(),
        },
        Value::Array(items) => format!("[{}]", items.iter().map(scalar).collect::<Vec<_>>().join(", ")),
        value => value.to_string(),
    }
}

/// The pages of a released provider: without the kind that only tests have.
fn wanted() -> BTreeMap<String, String> {
    let mut wanted = pages(&provider(), "basalt", example);
    wanted.retain(|file, _| !file.contains("/sample"));
    wanted
}

fn kept(root: &Path) -> BTreeMap<String, String> {
    let folders =
        ["", "resources", "data-sources", "ephemeral-resources", "list-resources", "actions", "functions"];
    let files = folders.iter().filter_map(|folder| fs::read_dir(root.join(folder)).ok()).flatten().flatten();
    let pages = files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|end| end == "md"));
    pages
        .map(|path| {
            let name = path.strip_prefix(root).expect("a page").to_string_lossy().into_owned();
            (name, fs::read_to_string(&path).expect("a text"))
        })
        .collect()
}

#[test]
fn the_pages_are_what_the_schemas_say() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs");
    let wanted = wanted();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        for file in kept(&root).keys().filter(|file| !wanted.contains_key(*file)) {
            fs::remove_file(root.join(file)).expect("it goes");
        }
        for (file, page) in &wanted {
            let path = root.join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, page).expect("it is written");
        }
    }
    let kept = kept(&root);
    let differ: Vec<_> =
        wanted.keys().chain(kept.keys()).filter(|file| wanted.get(*file) != kept.get(*file)).collect();
    assert!(
        differ.is_empty(),
        "{differ:?} in provider/docs are out of date; run UPDATE_DOCS=1 cargo test -p terraform-provider-basalt --test docs"
    );
}
