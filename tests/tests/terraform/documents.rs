//! The examples of the provider's documentation, as Terraform reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::user::User;

/// What Terraform 1.11 does not read yet.
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

/// The names that stand behind this in a text.
fn names<'a>(text: &'a str, before: &'a str) -> impl Iterator<Item = &'a str> {
    let is_of_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-');
    text.split(before).skip(1).filter_map(move |rest| rest.split(|c| !is_of_name(c)).next())
}

#[tokio::test]
async fn every_example_of_the_documentation_is_valid() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../provider/docs");
    let mut found = Vec::new();
    pages(&docs, &mut found);
    // Resources refer to one another's examples; everything else stands alone.
    let mut modules = BTreeMap::<String, String>::new();
    for path in &found {
        let page = path.strip_prefix(&docs).expect("a page").with_extension("").display().to_string();
        if LATER.iter().any(|folder| page.starts_with(folder)) {
            continue;
        }
        let text = std::fs::read_to_string(path).expect("a page");
        let example = example(&text).unwrap_or_else(|| panic!("{page} has no example"));
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
        // What an example takes from its surroundings.
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
