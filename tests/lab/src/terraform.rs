//! A user's directory with a configuration, and the real Terraform in it.
//!
//! Terraform finds the provider in a directory that mirrors a registry, as users do on a host without network access.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::LabError;
use crate::process::supervised;

/// The provider's address, as in the `source` of configurations.
const PROVIDER: &str = "registry.terraform.io/basalt-metal/basalt";

/// A directory with a configuration.
#[derive(Clone, Debug)]
pub struct Workspace {
    directory: PathBuf,
    environment: Vec<(String, OsString)>,
}

impl Workspace {
    /// Copies the configuration `example` to `base/NAME`, where NAME is the example's, with the provider in `base/mirror`.
    /// The region's address and token are in `base/env`, for a shell and for [`Workspace::command`].
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn create(
        base: &Path,
        example: &Path,
        provider: &Path,
        environment: &[(&str, &OsStr)],
        variables: &[(&str, &str)],
    ) -> Result<Self, LabError> {
        let settings = settings(base, provider)?;

        let directory = base.join(example.file_name().unwrap_or(OsStr::new("example")));
        make_directory(&directory)?;
        for entry in std::fs::read_dir(example).map_err(LabError::file(example))?.flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "tf") {
                std::fs::copy(&path, directory.join(entry.file_name())).map_err(LabError::file(&path))?;
            }
        }
        let lines: Vec<String> =
            variables.iter().map(|(name, value)| format!("{name} = {value:?}\n")).collect();
        write(&directory.join("terraform.tfvars"), &lines.concat())?;

        let mut all = vec![
            ("TF_CLI_CONFIG_FILE".to_owned(), settings.into_os_string()),
            ("CHECKPOINT_DISABLE".to_owned(), "1".into()),
        ];
        all.extend(environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let exports: Vec<String> = all
            .iter()
            .map(|(name, value)| format!("export {name}='{}'\n", value.to_string_lossy()))
            .collect();
        write(&base.join("env"), &exports.concat())?;
        Ok(Self { directory, environment: all })
    }

    /// Directory of the configuration.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// `terraform` with these arguments, without colours and questions. It ends with this process.
    ///
    /// # Errors
    /// [`LabError::NoProgram`].
    pub fn command(&self, arguments: &[&str]) -> Result<Command, LabError> {
        let line = [&["terraform"], arguments, &["-no-color"]].concat();
        let mut command = supervised(line)?;
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["TF_", "BASALT_ENDPOINT", "BASALT_TOKEN", "BASALT_CA_"]
                .iter()
                .any(|own| text.starts_with(own))
            {
                command.env_remove(&name);
            }
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.env("TF_IN_AUTOMATION", "1").current_dir(&self.directory).stdin(Stdio::null());
        Ok(command)
    }
}

/// Puts the provider into `base/mirror`, and Terraform's own configuration, which names that mirror, into
/// `base/terraform.rc`.
///
/// # Errors
/// A file cannot be read or written.
pub fn settings(base: &Path, provider: &Path) -> Result<PathBuf, LabError> {
    let version = env!("CARGO_PKG_VERSION");
    let mirror = base.join("mirror");
    let package = mirror.join(PROVIDER).join(version).join("linux_amd64");
    make_directory(&package)?;
    let binary = package.join(format!("terraform-provider-basalt_v{version}"));
    std::fs::copy(provider, &binary).map_err(LabError::file(provider))?;
    let settings = base.join("terraform.rc");
    let installation = format!(
        "provider_installation {{\n  filesystem_mirror {{\n    path = \"{}\"\n    include = [\"{PROVIDER}\"]\n  }}\n  direct {{\n    exclude = [\"{PROVIDER}\"]\n  }}\n}}\n",
        mirror.display()
    );
    write(&settings, &installation)?;
    Ok(settings)
}

fn make_directory(path: &Path) -> Result<(), LabError> {
    std::fs::create_dir_all(path).map_err(LabError::file(path))
}

fn write(path: &Path, text: &str) -> Result<(), LabError> {
    std::fs::write(path, text).map_err(LabError::file(path))
}
