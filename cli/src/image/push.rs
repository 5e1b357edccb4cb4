//! `basalt image push`: uploads an image's files. Terraform or `basalt apply` declare the image.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::manifest::{Manifest, NAME};
use crate::region::{Connection, Failed};

/// Uploads each file of the image in `dir` that the region lacks.
pub(crate) async fn push(dir: &Path, connection: &Connection) -> Result<(), Failed> {
    let path: PathBuf = dir.join(NAME);
    let text =
        std::fs::read_to_string(&path).map_err(|source| Failed::File { path: path.clone(), source })?;
    let manifest: Manifest = serde_json::from_str(&text)
        .map_err(|error| Failed::Words(format!("{} is not an image's manifest: {error}", path.display())))?;
    let client = connection.client()?;
    for (role, file) in &manifest.files {
        let sha256 = file
            .sha256
            .parse()
            .map_err(|error| Failed::Words(format!("{}: the SHA-256 of {role}: {error}", path.display())))?;
        let mut shown = None;
        client
            .put_blob(&sha256, &dir.join(&file.file), |progress| {
                let percent = progress.received * 100 / progress.total.max(1);
                if shown != Some(percent) {
                    shown = Some(percent);
                    eprint!("\r{role}: {percent} %");
                    let _ = std::io::stderr().flush();
                }
            })
            .await?;
        eprintln!("\r{role}: {} bytes are there", file.size);
    }
    Ok(())
}
