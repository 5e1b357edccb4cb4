//! Terraform's provider registry protocol: https://developer.hashicorp.com/terraform/internals/provider-registry-protocol

use super::App;
use super::problem::{Answer, Refusal};
use crate::registry::{NAMESPACE, Package, TYPE, VERSION, file_name, sums};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use basalt_api::ProblemCode;
use serde_json::{Value, json};
use std::sync::Arc;

/// The plugin protocol of the provider.
const PROTOCOLS: [&str; 1] = ["6.0"];
const SUMS: &str = "SHA256SUMS";
const SIGNATURE: &str = "SHA256SUMS.sig";

/// The address of the registry.
pub(super) async fn discovery() -> Json<Value> {
    Json(json!({"providers.v1": "/v1/providers/"}))
}

/// The versions of the provider, with their platforms.
pub(super) async fn versions(
    State(app): State<App>,
    Path((namespace, name)): Path<(String, String)>,
) -> Answer<Json<Value>> {
    let packages = packages(&app, &namespace, &name, VERSION).await?;
    let platforms: Vec<Value> =
        packages.iter().map(|package| json!({"os": package.os, "arch": package.arch})).collect();
    let version = json!({"version": VERSION, "protocols": PROTOCOLS, "platforms": platforms});
    Ok(Json(json!({ "versions": [version] })))
}

/// The address of one package, and its checksum.
pub(super) async fn download(
    State(app): State<App>,
    Path((namespace, name, version, os, arch)): Path<(String, String, String, String, String)>,
) -> Answer<Json<Value>> {
    let packages = packages(&app, &namespace, &name, &version).await?;
    let package = packages.iter().find(|package| package.os == os && package.arch == arch);
    let package = package.ok_or_else(|| {
        let has: Vec<&str> = packages.iter().map(|package| package.name.as_str()).collect();
        let detail = format!("there is no package of the provider for {os}_{arch}, only {}", has.join(", "));
        Refusal::new(ProblemCode::NotFound, detail)
    })?;
    let file = |name: &str| format!("/v1/providers/{NAMESPACE}/{TYPE}/{VERSION}/files/{name}");
    let signer = app.registry().signer();
    Ok(Json(json!({
        "protocols": PROTOCOLS,
        "os": os,
        "arch": arch,
        "filename": package.name,
        "download_url": file(&package.name),
        "shasums_url": file(&file_name(SUMS)),
        "shasums_signature_url": file(&file_name(SIGNATURE)),
        "shasum": package.sha256,
        "signing_keys": {
            "gpg_public_keys": [{"key_id": signer.key_id(), "ascii_armor": signer.public_key()}],
        },
    })))
}

/// A package, the checksums of all packages, or the signature of the checksums.
pub(super) async fn file(
    State(app): State<App>,
    Path((namespace, name, version, file)): Path<(String, String, String, String)>,
) -> Answer<Response> {
    let packages = packages(&app, &namespace, &name, &version).await?;
    if file == file_name(SUMS) {
        return Ok(sums(&packages).into_response());
    }
    if file == file_name(SIGNATURE) {
        return Ok(app.registry().signer().sign(sums(&packages).as_bytes()).into_response());
    }
    let Some(package) = packages.iter().find(|package| package.name == file) else {
        return Err(Refusal::new(ProblemCode::NotFound, format!("there is no file {file} of the provider")));
    };
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("application/zip"))];
    Ok((kind, package.content.clone()).into_response())
}

/// The packages, if the path names the registry's only provider and version.
async fn packages(app: &App, namespace: &str, name: &str, version: &str) -> Answer<Arc<Vec<Package>>> {
    if (namespace, name, version) != (NAMESPACE, TYPE, VERSION) {
        let detail = format!(
            "this region has the provider {NAMESPACE}/{TYPE} {VERSION}, and no {namespace}/{name} {version}"
        );
        return Err(Refusal::new(ProblemCode::NotFound, detail));
    }
    let packages = app.registry().packages().await.map_err(|error| unreadable(app, &error))?;
    if packages.is_empty() {
        let detail = format!(
            "there is no terraform-provider-basalt in {}; put it there, or say where it is with the setting provider-dir",
            app.registry().directory().display()
        );
        return Err(Refusal::new(ProblemCode::NotFound, detail));
    }
    Ok(packages)
}

fn unreadable(app: &App, error: &std::io::Error) -> Refusal {
    tracing::error!(%error, directory = %app.registry().directory().display(), "the provider cannot be packed or read");
    Refusal::unavailable("the region cannot read the provider; its log has more")
}
