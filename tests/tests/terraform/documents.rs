//! The examples of the provider's documentation, read by Terraform.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use basalt_api::KINDS;
use serde_json::{Value, json};

use crate::deployments::{condition, end_of};
use crate::kinds::{Declared, declared};
use crate::user::User;
use crate::world::{COMMAND, World, everything, flat, provider, within};

/// Folders with features that Terraform 1.11 does not have.
const LATER: [&str; 2] = ["list-resources", "actions"];

fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            pages(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// The configuration under "Example Usage".
fn example(page: &str) -> Option<&str> {
    let usage = page.split("## Example Usage\n\n```terraform\n").nth(1)?;
    usage.split("\n```").next()
}

/// The names that follow `before` in a text.
fn names<'a>(text: &'a str, before: &'a str) -> impl Iterator<Item = &'a str> {
    let is_of_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-');
    text.split(before).skip(1).filter_map(move |rest| rest.split(|c| !is_of_name(c)).next())
}

/// The page and its example, for every page of a folder of the documentation.
fn read(folder: &str) -> Vec<(PathBuf, String)> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../provider/docs").join(folder);
    let mut found = Vec::new();
    pages(&docs, &mut found);
    let text = |path: &PathBuf| std::fs::read_to_string(path).expect("a page");
    let example = |path: &PathBuf| {
        let text = text(path);
        example(&text).unwrap_or_else(|| panic!("{} has no example", path.display())).to_owned()
    };
    found.into_iter().map(|path| (path.clone(), example(&path))).collect()
}

#[test]
fn every_example_of_a_resource_is_planned() {
    within(async |world| {
        let resources = read("resources");
        let text: String = resources.iter().map(|(_, example)| format!("{example}\n")).collect();
        std::fs::write(world.dir.path().join("user-data.yaml"), "#cloud-config\n").expect("a file");
        let said = world.config(&format!("{}{text}", provider(&world))).ok(&["plan"]).await;
        let want = format!("Plan: {} to add, 0 to change, 0 to destroy.", resources.len());
        assert!(said.contains(&want), "{want}\n{said}");
        world.end().await;
    });
}

#[test]
fn the_quickstart_is_planned() {
    within(async |world| {
        let images = world.dir.path().join("images");
        for (image, roles) in
            [("ephemeral", &["kernel", "initrd", "squashfs"][..]), ("debian", &["root_tarball"])]
        {
            let file = json!({"sha256": "0".repeat(64), "size": 1, "file": "x"});
            let files: BTreeMap<_, _> = roles.iter().map(|role| (role, file.clone())).collect();
            let manifest = json!({"os": "debian", "release": "12", "architecture": "amd64", "files": files});
            std::fs::create_dir_all(images.join(image)).expect("a folder");
            std::fs::write(images.join(image).join("image.json"), manifest.to_string()).expect("a file");
        }
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/quickstart");
        let text = ["main.tf", "outputs.tf", "variables.tf"]
            .map(|file| std::fs::read_to_string(example.join(file)).expect("a file"));
        let [images, key] = [
            format!("-var=image_dir={}", images.display()),
            "-var=ssh_key=ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJYtHm5Uyq6UbgMSAkeyXXEN6Cmm5WWOCWzBtRIwxMSg a@b".to_owned(),
        ];
        let plan = ["plan", &images, &key, "-var=bmc_password=secret"];
        let said = world.config(&format!("{}{}", provider(&world), text.concat())).ok(&plan).await;
        assert!(said.contains("to add, 0 to change, 0 to destroy."), "{said}");
        world.end().await;
    });
}

impl World {
    /// Applies the configuration to the end; its deployments become ready with these statuses.
    pub(crate) async fn deploy(&self, deployments: &[(&str, Value)]) -> String {
        let (child, mut lines) = self.start(&["apply", "-auto-approve"]);
        let installed = async {
            for (name, status) in deployments {
                self.until_there("Deployment", name).await;
                let mut status = status.clone();
                status["conditions"] = json!([condition("Ready", "true", "Deployed", "It is deployed.")]);
                self.observe("Deployment", name, status).await;
            }
            std::future::pending::<()>().await;
        };
        let said = async {
            let mut said = String::new();
            while let Some(line) = lines.next_line().await.expect("output") {
                said.push_str(&format!("{line}\n"));
            }
            said
        };
        let ends = tokio::time::timeout(COMMAND, async {
            tokio::select! {
                said = said => said,
                () = installed => unreachable!("it says nothing of its end"),
            }
        });
        let said = ends.await.expect("it ends");
        let output = end_of(child).await;
        assert!(output.status.success(), "{said}{}", everything(&output));
        self.ok(&["plan", "-detailed-exitcode"]).await;
        said
    }
}

#[test]
fn a_deployment_with_addresses_of_both_families_is_applied() {
    within(async |world| {
        let example = include_str!("../../../examples/dual-stack/main.tf");
        world.config(&format!("{}{example}", provider(&world)));
        let status = json!({
            "addresses": {"bond0": "10.78.0.20", "bond0.7": "2001:db8:7::20"},
            "further_addresses": {"bond0/ipv6": "2001:db8:78::20", "bond0/service": "2001:db8:78::80"},
        });
        let said = world.deploy(&[("web-1", status)]).await;
        let resources = example.matches("\nresource ").count();
        assert!(said.contains(&format!("{resources} added, 0 changed, 0 destroyed")), "{said}");
        let addresses = ["address = \"10.78.0.20\"", "ipv6_address = \"2001:db8:78::20\""];
        assert!(addresses.iter().all(|it| said.contains(it)), "{said}");
        world.end().await;
    });
}

#[test]
fn the_examples_of_network_services_and_of_enlistment_are_applied_and_need_no_change_then() {
    let examples = [
        include_str!("../../../examples/network-services/main.tf"),
        include_str!("../../../examples/enlistment/main.tf"),
    ];
    for example in examples {
        within(async |world| {
            let secret = "tsig_secret = \"AAAAAAAAAAAAAAAAAAAAAA==\"\n";
            std::fs::write(world.dir.path().join("terraform.tfvars"), secret).expect("values");
            world.config(&format!("{}{example}", provider(&world)));
            let said = world.ok(&["apply", "-auto-approve"]).await;
            let resources = example.matches("\nresource ").count();
            assert!(said.contains(&format!("{resources} added, 0 changed, 0 destroyed")), "{said}");
            world.ok(&["plan", "-detailed-exitcode"]).await;
            world.end().await;
        });
    }
}

#[test]
fn the_folders_of_examples_are_valid_as_they_are() {
    within(async |world| {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
        for example in ["dual-stack", "enlistment", "network-services", "quickstart", "storage"] {
            world.ok(&[&format!("-chdir={}", examples.join(example).display()), "validate"]).await;
        }
        world.end().await;
    });
}

#[test]
fn the_example_of_storage_is_applied_and_what_does_not_fit_together_is_refused_by_the_plan() {
    within(async |world| {
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/storage/main.tf");
        let text = provider(&world) + &std::fs::read_to_string(example).expect("a file");
        let files = json!({"root_tarball": {"sha256": "a".repeat(64), "size": 1024}});
        for (kind, name, spec) in [
            ("Pool", "web", json!({})),
            ("Machine", "web1", json!({"boot_macs": ["52:54:00:00:00:01"]})),
            ("Machine", "db1", json!({"boot_macs": ["52:54:00:00:00:02"]})),
            (
                "Image",
                "debian-12",
                json!({"os": "debian", "release": "12", "architecture": "amd64", "files": files}),
            ),
        ] {
            world.put("cli", kind, name, spec).await;
        }
        let ready = ["database", "mirrored", "volumes"].map(|name| (name, json!({})));
        let said = world.config(&text).deploy(&ready).await;
        assert!(said.contains("3 added, 0 changed, 0 destroyed"), "{said}");
        let stored = world.get("Deployment", "database").await.spec;
        assert_eq!(stored["storage"]["raids"]["bulk"]["spares"], json!(["bulk4"]));
        let broken = text.replace(r#"device = "left-swap""#, r#"device = "left-root""#);
        let said = world.config(&broken).fails(&["plan"]).await;
        let said = flat(&said);
        assert!(said.contains(r#""left-root" is used by RAID "system" and by file system "swap""#), "{said}");
        world.end().await;
    });
}

#[test]
fn every_example_of_a_data_source_and_of_a_function_is_read() {
    within(async |world| {
        for one in declared().into_iter().map(Declared::without_references_to_others) {
            world.put("cli", one.kind.name, one.name, one.spec).await;
        }
        let (mut sources, functions) = (read("data-sources"), read("functions"));
        // A kind that cannot be declared has no objects here.
        let undeclared = KINDS.iter().filter(|kind| !kind.declarable);
        for name in undeclared.map(|kind| format!("data \"{}\" ", kind.terraform_name)) {
            sources.retain(|(_, text)| !text.contains(&name));
        }
        assert!(sources.len() > 40 && functions.len() > 3, "{} and {}", sources.len(), functions.len());
        let text: String = sources.iter().chain(&functions).map(|(_, text)| format!("{text}\n")).collect();
        let given = [
            ("machines", json!({"web-1": "52-54-00-12-34-56"})),
            ("lab", json!("10.77.0.0/24")),
            ("office", json!("10.78.0.0/24")),
            ("gateway", json!("10.77.0.1")),
        ];
        let missing = given.iter().filter(|(name, _)| !text.contains(&format!("variable \"{name}\"")));
        let variables: String = missing.map(|(name, _)| format!("variable \"{name}\" {{}}\n")).collect();
        let values: String = given.iter().map(|(name, value)| format!("{name} = {value}\n")).collect();
        std::fs::write(world.dir.path().join("terraform.tfvars"), values).expect("values");
        std::fs::write(world.dir.path().join("base.yaml"), "packages: [curl]\n").expect("a file");
        let outputs = "output \"by_mac\" {\n value = local.by_mac\n}\noutput \"user_data\" {\n value = local.user_data\n}\n";
        let said =
            world.config(&format!("{}{text}{variables}{outputs}", provider(&world))).ok(&["plan"]).await;
        let read = said.matches(": Read complete after").count();
        assert_eq!(read, sources.len(), "{said}");
        assert!(said.contains("\"52:54:00:12:34:56\" = \"web-1\""), "{said}");
        assert!(said.contains("curl") && said.contains("nginx"), "{said}");
        world.end().await;
    });
}

/// The pieces of configuration on a page.
fn pieces(page: &str) -> Vec<&str> {
    let of = |rest| str::split(rest, "```").next().map(str::trim_end);
    page.split("```terraform\n").skip(1).filter_map(of).collect()
}

/// The configuration on a page of a guide, without the other provider in it, which is not installed here.
fn guide(page: &str) -> String {
    let ours = |line: &&str| !line.contains("canonical/maas");
    pieces(page).join("\n").lines().filter(ours).map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_tests_of_the_guide_pass_and_fail_without_what_it_says_to_mock() {
    within(async |world| {
        let [module, test] = pieces(include_str!("../../../provider/docs/guides/testing.md"))[..] else {
            panic!("a module and its test");
        };
        let folder = world.dir.path().join("tests");
        std::fs::create_dir(&folder).expect("a folder");
        let write = |text: &str| std::fs::write(folder.join("network.tftest.hcl"), text).expect("a test");
        world.config(&format!("{module}\n"));
        write(test);
        let said = world.ok(&["test"]).await;
        assert!(said.contains("Success! 2 passed, 0 failed."), "{said}");

        let start = test.find("  override_resource").expect("it overrides");
        let end = test.find("  # The same for every address").expect("and mocks");
        write(&format!("{}{}", &test[..start], &test[end..]));
        let said = flat(&world.fails(&["test"]).await);
        assert!(said.contains("is not the name of a VLAN") && said.contains("1 passed, 1 failed"), "{said}");
        world.end().await;
    });
}

#[tokio::test]
async fn every_example_of_the_documentation_is_valid() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../provider/docs");
    let mut found = Vec::new();
    pages(&docs, &mut found);
    // Examples of resources refer to each other; all other examples stand alone.
    let mut modules = BTreeMap::<String, String>::new();
    for path in &found {
        let page = path.strip_prefix(&docs).expect("a page").with_extension("").display().to_string();
        // The guide about tests has a test of its own.
        if LATER.iter().any(|folder| page.starts_with(folder)) || page == "guides/testing" {
            continue;
        }
        let text = std::fs::read_to_string(path).expect("a page");
        let example = match page.starts_with("guides/") {
            true => guide(&text),
            false => example(&text).unwrap_or_else(|| panic!("{page} has no example")).to_owned(),
        };
        let module =
            if page.starts_with("resources/") { "resources".to_owned() } else { page.replace('/', "-") };
        *modules.entry(module).or_default() += &format!("{example}\n");
    }
    assert!(found.len() > 60 && modules.len() > 40, "{} pages", found.len());

    let user = User::with_provider();
    let mut root = String::new();
    for (module, text) in &modules {
        let folder = user.dir.path().join(module);
        std::fs::create_dir(&folder).expect("a folder");
        let mut whole = text.clone();
        if !text.contains("required_providers") {
            whole += "terraform {\n  required_providers {\n    basalt = { source = \"basalt-metal/basalt\" }\n  }\n}\n";
        }
        // Variables that an example uses without declaring them.
        let variables: BTreeSet<_> =
            names(text, "var.").map(|it| it.split('.').next().unwrap_or(it)).collect();
        for variable in variables.iter().filter(|name| !text.contains(&format!("variable \"{name}\""))) {
            writeln!(whole, "variable \"{variable}\" {{}}").expect("text");
        }
        for file in names(text, "file(\"") {
            std::fs::write(user.dir.path().join(file), "").expect("a file");
        }
        std::fs::write(folder.join("main.tf"), whole).expect("a module");
        writeln!(root, "module \"{module}\" {{\n  source = \"./{module}\"").expect("text");
        for variable in variables.iter().copied().chain(names(text, "variable \"")).collect::<BTreeSet<_>>() {
            writeln!(root, "  {variable} = var.anything").expect("text");
        }
        root.push_str("}\n");
    }
    root.push_str("variable \"anything\" {}\n");
    user.configure("basalt-metal/basalt", &root);
    user.ok(&["init"]).await;
    user.ok(&["validate"]).await;
}
