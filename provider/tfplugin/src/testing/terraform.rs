use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

use super::Broken;
use crate::Reattached;

/// A command that takes longer counts as hung.
const DEADLINE: Duration = Duration::from_secs(120);

/// The real `terraform`, in a directory of its own, with providers that live in this process.
///
/// ```no_run
/// # async fn test(provider: impl tfplugin::Provider) -> Result<(), Box<dyn std::error::Error>> {
/// use tfplugin::Reattached;
/// use tfplugin::testing::Terraform;
///
/// let provider = Reattached::start(provider, "example.com/me/notes")?;
/// let terraform = Terraform::within("/tmp/a-test").with(&provider);
/// terraform.config("resource \"notes_note\" \"it\" {\n  name = \"it\"\n}\n")?;
/// terraform.apply().await?;
/// assert_eq!(terraform.state("notes_note.it").await?["bytes"], 0);
/// terraform.imports("notes_note.it", "it").await?;
/// terraform.ok(&["destroy", "-auto-approve"]).await?;
/// provider.stop().await;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Terraform {
    directory: PathBuf,
    providers: serde_json::Map<String, Value>,
    deadline: Duration,
}

impl Terraform {
    /// Runs in this directory, which holds the configuration and its state.
    #[must_use]
    pub fn within(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), providers: serde_json::Map::new(), deadline: DEADLINE }
    }

    /// Adds a provider for the configurations that use its source address.
    #[must_use]
    pub fn with(mut self, provider: &Reattached) -> Self {
        let (address, reattached) = provider.entry();
        self.providers.insert(address, reattached);
        self
    }

    /// Sets the time limit of a command. The default is two minutes.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Writes the configuration, in place of the one before.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn config(&self, text: &str) -> io::Result<()> {
        fs::write(self.directory.join("main.tf"), text)
    }

    /// A command with its arguments, which the caller may change before it runs.
    #[must_use]
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("terraform");
        command
            .args(args)
            .arg("-no-color")
            .current_dir(&self.directory)
            .env("TF_REATTACH_PROVIDERS", Value::Object(self.providers.clone()).to_string())
            .env("TF_IN_AUTOMATION", "1")
            .env("CHECKPOINT_DISABLE", "1")
            .env("TF_CLI_CONFIG_FILE", "/dev/null")
            .env_remove("TF_LOG")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Runs a command to its end, successful or not.
    ///
    /// # Errors
    /// `terraform` cannot be started, or takes too long.
    pub async fn run(&self, args: &[&str]) -> io::Result<Output> {
        let output = tokio::time::timeout(self.deadline, self.command(args).output()).await;
        output.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
    }

    /// Runs a command that must succeed, and returns its output.
    ///
    /// # Errors
    /// The command fails.
    pub async fn ok(&self, args: &[&str]) -> Result<String, Broken> {
        self.ends(args, 0).await
    }

    /// Runs a command that must fail, and returns its output.
    ///
    /// # Errors
    /// The command succeeds.
    pub async fn fails(&self, args: &[&str]) -> Result<String, Broken> {
        self.ends(args, 1).await
    }

    /// Plans, and checks that the plan is empty.
    ///
    /// # Errors
    /// The plan, if it is not empty.
    pub async fn plans_nothing(&self) -> Result<(), Broken> {
        self.ends(&["plan", "-detailed-exitcode"], 0).await.map(drop)
    }

    /// Applies, and checks that the next plan is empty. Returns the output of the apply.
    ///
    /// # Errors
    /// The apply fails, or the second plan is not empty.
    pub async fn apply(&self) -> Result<String, Broken> {
        let said = self.ok(&["apply", "-auto-approve"]).await?;
        self.plans_nothing().await?;
        Ok(said)
    }

    /// Removes a resource from the state and imports it by its id. Checks that its state is the same, and that
    /// a plan changes nothing.
    ///
    /// # Errors
    /// The import fails, or the state differs.
    pub async fn imports(&self, address: &str, id: &str) -> Result<(), Broken> {
        let broken =
            |how: String| Broken { during: format!("import of {address} by {id:?}"), how: vec![how] };
        self.ok(&["state", "rm", address]).await?;
        let block = self.directory.join("import.tf");
        fs::write(&block, format!("import {{\n  to = {address}\n  id = {id:?}\n}}\n"))
            .map_err(|error| broken(error.to_string()))?;
        let said = self.ok(&["plan", "-out=import.tfplan"]).await;
        let gone = fs::remove_file(&block);
        let said = said?;
        gone.map_err(|error| broken(error.to_string()))?;
        if !said.contains("Plan: 1 to import, 0 to add, 0 to change, 0 to destroy.") {
            return Err(broken(said));
        }
        self.ok(&["apply", "import.tfplan"]).await?;
        self.plans_nothing().await
    }

    /// The values of a resource of the root module in the state.
    ///
    /// # Errors
    /// The state has no such resource.
    pub async fn state(&self, address: &str) -> Result<Value, Broken> {
        let broken = |how: String| Broken { during: format!("state of {address}"), how: vec![how] };
        let shown = self.run(&["show", "-json"]).await.map_err(|error| broken(error.to_string()))?;
        let shown: Value =
            serde_json::from_slice(&shown.stdout).map_err(|error| broken(error.to_string()))?;
        let resources = shown.pointer("/values/root_module/resources").and_then(Value::as_array);
        let mut found = resources
            .into_iter()
            .flatten()
            .filter(|resource| resource.get("address").is_some_and(|it| it == address));
        found
            .next()
            .and_then(|it| it.get("values").cloned())
            .ok_or_else(|| broken(format!("it is not in {shown}")))
    }

    async fn ends(&self, args: &[&str], code: i32) -> Result<String, Broken> {
        let broken = |how: String| Broken { during: format!("terraform {args:?}"), how: vec![how] };
        let output = self.run(args).await.map_err(|error| broken(error.to_string()))?;
        let said = said(&output);
        if output.status.code() == Some(code) {
            Ok(said)
        } else {
            Err(broken(format!("{}\n{said}", output.status)))
        }
    }
}

/// The output of Terraform without the frames around its messages.
#[must_use]
pub fn said(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    let lines = text.lines().map(|line| line.trim_start_matches(['│', '╷', '╵', ' ']));
    lines.collect::<Vec<_>>().join("\n")
}
