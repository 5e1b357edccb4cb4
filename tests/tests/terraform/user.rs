//! A user's directory, in which Terraform starts the provider's installed program.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use basalt_lab::site::Programs;
use basalt_region::api::CertificateFiles;
use tempfile::TempDir;
use tokio::process::Command;

use crate::world::{COMMAND, everything, flat};

/// A user, with their own configuration and environment.
pub(crate) struct User {
    pub(crate) dir: TempDir,
    settings: PathBuf,
    pub(crate) environment: Vec<(&'static str, String)>,
}

impl User {
    /// A user whose Terraform installs providers with these settings.
    pub(crate) fn new(settings: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("terraform.rc");
        std::fs::write(&path, settings).expect("a configuration");
        Self { dir, settings: path, environment: Vec::new() }
    }

    /// A user with the provider installed.
    pub(crate) fn with_provider() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let settings = basalt_lab::terraform::settings(dir.path(), &program()).expect("a mirror");
        Self { dir, settings, environment: Vec::new() }
    }

    /// The same user in another, empty directory.
    pub(crate) fn elsewhere(&self) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        Self { dir, settings: self.settings.clone(), environment: self.environment.clone() }
    }

    pub(crate) fn configure(&self, source: &str, rest: &str) {
        let head = format!(
            "terraform {{\n  required_providers {{\n    basalt = {{ source = {source:?} }}\n  }}\n}}\n{rest}"
        );
        std::fs::write(self.dir.path().join("main.tf"), head).expect("a configuration");
    }

    /// A command with its arguments, not started yet.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("terraform");
        command
            .args(args)
            .arg("-no-color")
            .current_dir(self.dir.path())
            .env("TF_CLI_CONFIG_FILE", &self.settings)
            .env("CHECKPOINT_DISABLE", "1")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env_remove("TF_LOG")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    pub(crate) async fn terraform(&self, args: &[&str]) -> Output {
        let output = tokio::time::timeout(COMMAND, self.command(args).output()).await;
        output.unwrap_or_else(|_| panic!("terraform {args:?} hangs")).expect("terraform on the PATH")
    }

    pub(crate) async fn ok(&self, args: &[&str]) -> String {
        let output = self.terraform(args).await;
        assert!(output.status.success(), "terraform {args:?}:\n{}", everything(&output));
        flat(&everything(&output))
    }

    pub(crate) async fn fails(&self, args: &[&str]) -> String {
        let output = self.terraform(args).await;
        assert!(!output.status.success(), "terraform {args:?}:\n{}", everything(&output));
        crate::errors::hold_to_rules(&everything(&output));
        flat(&everything(&output))
    }
}

/// The provider's program.
pub(crate) fn program() -> PathBuf {
    Programs::find().expect("the programs are built").path("terraform-provider-basalt")
}

/// A self-signed certificate for these names.
pub(crate) fn certificate(dir: &Path, names: &[&str]) -> CertificateFiles {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
    let files = CertificateFiles { certificate: dir.join("tls.pem"), key: dir.join("tls.key") };
    std::fs::write(&files.certificate, made.cert.pem()).expect("a file");
    std::fs::write(&files.key, made.signing_key.serialize_pem()).expect("a file");
    files
}
