//! Uploads the images that `basalt image build` made.

use std::collections::BTreeMap;
use std::path::Path;

use basalt_api::client::{Client, ClientError};
use basalt_api::values::Sha256;
use serde::Deserialize;

/// The needed part of `image.json`.
#[derive(Deserialize)]
struct Manifest {
    files: BTreeMap<String, File>,
}

#[derive(Deserialize)]
struct File {
    file: String,
    sha256: Sha256,
}

/// Uploads the files of the image in `directory` that the region does not have. Returns the size of the image
/// in bytes.
///
/// # Errors
/// An error of the region; a manifest or file that cannot be read.
pub async fn upload(client: &Client, directory: &Path) -> Result<u64, ClientError> {
    let path = directory.join("image.json");
    let failed = |source| ClientError::File { path: path.clone(), source };
    let text = std::fs::read(&path).map_err(failed)?;
    let manifest: Manifest = serde_json::from_slice(&text).map_err(|error| failed(error.into()))?;
    let mut bytes = 0;
    for file in manifest.files.values() {
        let mut total = 0;
        client.put_blob(&file.sha256, &directory.join(&file.file), |progress| total = progress.total).await?;
        bytes += total;
    }
    Ok(bytes)
}
