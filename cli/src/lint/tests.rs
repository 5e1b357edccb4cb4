//! Findings in small configurations, in the examples and in the manual. Comparison of shapes with the provider's schemas.

use std::collections::BTreeMap;
use std::path::Path;

use basalt_api::{KINDS, Kind};
use tfplugin::{Attribute, Mode, Nesting, Provider, Shape as Described, Type};

use super::shape::{Shape, resource};
use super::{Args, Linted, lint, run};

/// A directory with these files.
fn written(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    directory
}

/// Findings in these files, without the directory.
fn findings(files: &[(&str, &str)]) -> Vec<String> {
    let directory = written(files);
    let linted = lint(directory.path()).unwrap();
    assert_eq!(linted.files, files.len(), "files that were read");
    let top = format!("{}/", directory.path().display());
    linted.findings.into_iter().map(|line| line.replace(&top, "")).collect()
}

#[test]
fn a_misspelt_nested_key_is_named_with_its_line() {
    let main = "resource \"basalt_deployment\" \"web\" {\n  name = \"web\"\n  selector = {\n    min_cors = 64\n  }\n}\n";
    assert_eq!(
        findings(&[("main.tf", main)]),
        [
            "main.tf:4:5: basalt_deployment.web: selector has no \"min_cors\", and Terraform drops it; did you mean \"min_cores\"?"
        ]
    );
}

#[test]
fn a_finding_and_a_directory_without_files_fail_the_command() {
    let directory = tempfile::tempdir().unwrap();
    let failed = || {
        let args = Args { directories: vec![directory.path().to_owned()] };
        run(args).map_err(|failed| failed.to_string())
    };
    assert!(failed().unwrap_err().starts_with("there is no *.tf in "));
    let write = |text: &str| std::fs::write(directory.path().join("main.tf"), text).unwrap();
    write("resource \"basalt_machine\" \"a\" {\n  bmc = { adress = \"10.0.0.1\" }\n}\n");
    assert_eq!(failed().unwrap_err(), "1 file: 1 key that is not known");
    write("resource \"basalt_machine\" \"a\" {\n  bmc = { address = \"10.0.0.1\" }\n}\n");
    assert_eq!(failed(), Ok(()));
    write("resource {");
    assert!(failed().unwrap_err().contains("main.tf:1:"), "the place of what is no HCL");
}

#[test]
fn keys_are_found_wherever_they_are_written_out() {
    let main = r#"
locals {
  bmc  = { driver = "ipmi", adress = "10.0.0.1" }
  both = { one = local.bmc }
}

variable "wanted" {
  type = object({ min_cores = number, min_memmory = optional(string) })
}

resource "basalt_machine" "one" {
  for_each = toset(["a"])
  name     = each.key
  bmc      = merge(local.both.one, { "usernam" = "admin", (each.key) = "computed", password_wo = "x" })
  timeouts = { delet = "1h" }
  labels   = { anything = "goes" }
}

resource "basalt_deployment" "web" {
  selector = var.wanted
  network = {
    interfaces = {
      for name in ["eth0"] : name => true ? { adressing = "auto" } : { addresses = { a = { adress = "10.0.0.2" } } }
    }
  }
}
"#;
    let found = findings(&[("main.tf", main)]);
    let places: Vec<_> = found.iter().map(|line| line.split(", and Terraform").next().unwrap()).collect();
    assert_eq!(
        places,
        [
            "main.tf:3:29: basalt_machine.one: bmc has no \"adress\"",
            "main.tf:8:39: basalt_deployment.web: selector has no \"min_memmory\"",
            "main.tf:14:38: basalt_machine.one: bmc has no \"usernam\"",
            "main.tf:15:16: basalt_machine.one: timeouts has no \"delet\"",
            "main.tf:23:47: basalt_deployment.web: network.interfaces has no \"adressing\"",
            "main.tf:23:92: basalt_deployment.web: network.interfaces.addresses.a has no \"adress\"",
        ]
    );
}

#[test]
fn values_of_variables_are_held_against_their_types() {
    let module =
        "variable \"machines\" {\n  type = map(object({ mac = string, bmc = optional(string) }))\n}\n";
    let main = "module \"servers\" {\n  source = \"./servers\"\n  machines = { web = { mac = \"x\", bcm = \"y\" } }\n}\n\
                variable \"site\" {\n  type = object({ vid = number })\n  default = { vdi = 7 }\n}\n";
    let found = findings(&[
        ("main.tf", main),
        ("servers/variables.tf", module),
        ("terraform.tfvars", "site = { vid = 7, gatway = \"10.0.0.1\" }\n"),
    ]);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].starts_with("main.tf:3:35: module.servers: machines.web has no \"bcm\""), "{found:?}");
    assert!(found[1].starts_with("main.tf:7:15: variable site: default has no \"vdi\""), "{found:?}");
    assert!(
        found[2].starts_with("terraform.tfvars:1:19: variable site: site has no \"gatway\""),
        "{found:?}"
    );
}

#[test]
fn values_without_a_module_beside_them_are_named() {
    let variable = "variable \"site\" {\n  type = object({ vid = number })\n}\n";
    let directory = written(&[("main.tf", variable), ("envs/prod.tfvars", "site = { vdi = 7 }\n")]);
    let (lines, sum) = lint(directory.path()).unwrap().told();
    let file = directory.path().join("envs/prod.tfvars");
    assert_eq!(lines, format!("{}: not compared: no module beside it\n", file.display()));
    assert_eq!(sum, "1 file: every key is known");
}

#[test]
fn the_examples_have_no_unknown_key() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let Linted { files, findings, alone } = lint(&examples).unwrap();
    assert!(files > 10, "{files} files");
    assert_eq!(findings, [] as [String; 0]);
    assert!(alone.is_empty(), "{alone:?}");
}

/// Code blocks of the manual and of the provider's pages.
#[test]
fn configurations_of_the_manual_have_no_unknown_key() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let directory = tempfile::tempdir().unwrap();
    let mut blocks = 0;
    for folder in [
        "",
        "docs/guides",
        "docs/concepts",
        "provider/docs",
        "provider/docs/guides",
        "provider/docs/resources",
    ] {
        for page in std::fs::read_dir(top.join(folder)).unwrap().flatten().map(|entry| entry.path()) {
            if page.extension().is_none_or(|end| end != "md") {
                continue;
            }
            let text = std::fs::read_to_string(&page).unwrap();
            for block in text.split("\n```terraform\n").skip(1).filter_map(|rest| rest.split("\n```").next())
            {
                blocks += 1;
                let name = page.file_stem().unwrap().to_str().unwrap();
                let folder = directory.path().join(format!("{name}-{blocks}"));
                std::fs::create_dir(&folder).unwrap();
                std::fs::write(folder.join("main.tf"), format!("{block}\n")).unwrap();
            }
        }
    }
    let Linted { files, findings, .. } = lint(directory.path()).unwrap();
    assert!(files == blocks && blocks > 40, "{blocks} blocks");
    assert_eq!(findings, [] as [String; 0]);
}

/// The keys that a configuration may set according to the provider's schema.
fn given(attributes: &[Attribute]) -> BTreeMap<String, Shape> {
    let can_be_given = attributes.iter().filter(|attribute| attribute.mode != Mode::Computed);
    let each = |shape| Shape::Each(Box::new(shape));
    can_be_given
        .map(|attribute| {
            let shape = match &attribute.shape {
                Described::Nested(Nesting::Single, children) => Shape::Object(given(children)),
                Described::Nested(_, children) => each(Shape::Object(given(children))),
                Described::Plain(Type::List(_) | Type::Set(_) | Type::Map(_)) => each(Shape::Any),
                Described::Plain(_) => Shape::Any,
            };
            (attribute.name.clone(), shape)
        })
        .collect()
}

#[test]
fn shapes_are_those_of_the_provider() {
    let resources = terraform_provider_basalt::provider().resources();
    let mut compared = 0;
    for kind in KINDS.iter().copied().filter(|kind: &&Kind| kind.declarable) {
        let of_kind = resources.iter().find(|resource| resource.type_name() == kind.terraform_name).unwrap();
        assert_eq!(resource(kind), Shape::Object(given(&of_kind.schema().attributes)), "{kind:?}");
        compared += 1;
    }
    assert!(compared > 20, "{compared} kinds");
}
