use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

use super::Broken;
use crate::Reattached;

/// A command that takes longer hangs.
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
    /// In this directory, which holds the configuration and its state.
    #[must_use]
    pub fn within(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), providers: serde_json::Map::new(), deadline: DEADLINE }
    }

    /// With this provider, wherever a configuration asks for its source address.
    #[must_use]
    pub fn with(mut self, provider: &Reattached) -> Self {
        let (address, reattached) = provider.entry();
        self.providers.insert(address, reattached);
        self
    }

    /// A command that takes longer is ended: two minutes, if nothing else is said.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// The configuration from here on, in the place of any before.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn config(&self, text: &str) -> io::Result<()> {
        fs::write(self.directory.join("main.tf"), text)
    }

    /// A command with its arguments, to be changed before it runs.
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

    /// Runs a command to its end, whatever that is.
    ///
    /// # Errors
    /// `terraform` cannot be started, or takes too long.
    pub async fn run(&self, args: &[&str]) -> io::Result<Output> {
        let output = tokio::time::timeout(self.deadline, self.command(args).output()).await;
        output.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
    }

    /// What a command says that succeeds.
    ///
    /// # Errors
    /// It fails.
    pub async fn ok(&self, args: &[&str]) -> Result<String, Broken> {
        self.ends(args, 0).await
    }

    /// What a command says that fails.
    ///
    /// # Errors
    /// It succeeds.
    pub async fn fails(&self, args: &[&str]) -> Result<String, Broken> {
        self.ends(args, 1).await
    }

    /// Plans, and finds nothing to do.
    ///
    /// # Errors
    /// The plan, if it is not empty.
    pub async fn plans_nothing(&self) -> Result<(), Broken> {
        self.ends(&["plan", "-detailed-exitcode"], 0).await.map(drop)
    }

    /// Applies, and looks that there is nothing left to do; says what the apply said.
    ///
    /// # Errors
    /// The apply fails, or the second plan is not empty.
    pub async fn apply(&self) -> Result<String, Broken> {
        let said = self.ok(&["apply", "-auto-approve"]).await?;
        self.plans_nothing().await?;
        Ok(said)
    }

    /// Forgets a resource and imports it by its id, and finds that it is the very same: a plan changes nothing.
    ///
    /// # Errors
    /// It cannot be imported, or is another then.
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
    /// There is none.
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

/// What Terraform said, without the frames of its messages.
#[must_use]
pub fn said(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    let lines = text.lines().map(|line| line.trim_start_matches(['│', '╷', '╵', ' ']));
    lines.collect::<Vec<_>>().join("\n")
}
