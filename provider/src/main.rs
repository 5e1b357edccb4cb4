//! The program that Terraform starts.

use std::process::ExitCode;

fn main() -> ExitCode {
    let options = tfplugin::Options::new(terraform_provider_basalt::ADDRESS)
        .log_targets(&["terraform_provider_basalt", "basalt_api"]);
    tfplugin::serve(terraform_provider_basalt::provider(), options)
}
