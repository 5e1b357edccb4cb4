//! The whole life of the README's example, with the real Terraform, inside this process.

#[allow(dead_code, unreachable_pub, reason = "a program of its own, of which only the provider is used here")]
#[path = "../examples/terraform-provider-notes.rs"]
mod notes;

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use tfplugin::Reattached;
use tfplugin::testing::{Broken, Terraform};

/// A user's directory with the configuration of one note.
struct User {
    dir: TempDir,
    provider: Reattached,
    terraform: Terraform,
}

impl User {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let provider =
            Reattached::start(notes::Notes::default(), "example.com/me/notes").expect("a provider");
        let terraform = Terraform::within(dir.path()).with(&provider);
        Self { dir, provider, terraform }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn note(&self, fields: &str) -> &Terraform {
        let text = format!(
            "terraform {{\n  required_providers {{\n    notes = {{ source = \"example.com/me/notes\" }}\n  }}\n}}\n\
             provider \"notes\" {{\n  directory = {:?}\n}}\nresource \"notes_note\" \"it\" {{\n{fields}}}\n",
            self.path()
        );
        self.terraform.config(&text).expect("a configuration");
        &self.terraform
    }
}

fn done<T>(result: Result<T, Broken>) -> T {
    result.unwrap_or_else(|broken| panic!("{broken}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resource_lives_its_whole_life() {
    let user = User::new();
    let (one, two) = (user.path().join("one.txt"), user.path().join("two.txt"));

    let said = done(user.note("  name = \"one\"\n  text = \"hello\"\n").apply().await);
    assert!(said.contains("1 added, 0 changed, 0 destroyed"), "{said}");
    assert_eq!(done(user.terraform.state("notes_note.it").await)["bytes"], 5);
    let said = done(user.note("  name = \"one\"\n  text = \"hello you\"\n").apply().await);
    assert!(said.contains("0 added, 1 changed, 0 destroyed"), "{said}");
    assert_eq!(fs::read_to_string(&one).expect("a note"), "hello you");
    done(user.terraform.imports("notes_note.it", "one").await);
    let said = done(user.note("  name = \"two\"\n").apply().await);
    assert!(said.contains("1 added, 0 changed, 1 destroyed"), "{said}");
    assert!(!one.exists());

    fs::remove_file(&two).expect("a note");
    let said = done(user.terraform.apply().await);
    assert!(said.contains("1 added, 0 changed, 0 destroyed"), "it had disappeared: {said}");
    let said = done(user.note("  name = \"\"\n").fails(&["validate"]).await);
    assert!(said.contains("name"), "{said}");
    done(user.note("  name = \"two\"\n").ok(&["destroy", "-auto-approve"]).await);
    assert!(!two.exists());
    user.provider.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_breaks_a_rule_is_told_with_what_terraform_said() {
    let user = User::new();
    let terraform = user.note("  name = \"one\"\n");
    let broken = terraform.plans_nothing().await.expect_err("there is something to do");
    assert!(broken.to_string().contains("Plan: 1 to add"), "{broken}");
    let broken = terraform.fails(&["validate"]).await.expect_err("it is valid");
    assert!(broken.to_string().contains("The configuration is valid"), "{broken}");
    let broken = terraform.state("notes_note.it").await.expect_err("nothing is there");
    assert!(broken.during.contains("notes_note.it"), "{broken}");

    done(terraform.apply().await);
    // The import's id belongs to another object, so the states differ.
    fs::write(user.path().join("other.txt"), "something else").expect("a note");
    let broken = terraform.imports("notes_note.it", "other").await.expect_err("another note");
    assert!(broken.during.contains("import of notes_note.it by \"other\""), "{broken}");
    assert!(!user.path().join("import.tf").exists());
    let late = terraform.clone().deadline(std::time::Duration::ZERO).ok(&["version"]).await;
    assert!(late.expect_err("no time at all").to_string().contains("timed out"));
    user.provider.stop().await;
}
