//! The code in `src/gen` is generated from the files in `proto/`.
//!
//! It is checked in so that a build of this crate needs neither a protobuf compiler nor its crates.
//! After a change in `proto/`: `UPDATE_GENERATED=1 cargo test -p tfplugin --test generated`.

use std::error::Error;
use std::fs;
use std::path::Path;

#[test]
fn generated_code_matches_the_proto_files() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let proto = root.join("proto");
    let fresh = tempfile::tempdir()?;
    let descriptors = protox::compile([proto.join("tfplugin6.proto"), proto.join("plugin.proto")], [&proto])?;
    tonic_prost_build::configure()
        .out_dir(fresh.path())
        .build_transport(false)
        .btree_map(".")
        .generate_default_stubs(true)
        .client_mod_attribute(".", "#[cfg(any(test, feature = \"testing\"))]")
        .emit_rerun_if_changed(false)
        .compile_fds(descriptors)?;

    for name in ["tfplugin6.rs", "plugin.rs"] {
        let want = fs::read_to_string(fresh.path().join(name))?;
        let kept = root.join("src/gen").join(name);
        if std::env::var_os("UPDATE_GENERATED").is_some() {
            fs::write(&kept, &want)?;
        }
        let have = fs::read_to_string(&kept).unwrap_or_default();
        assert!(
            have == want,
            "{} is not what proto/ generates; run UPDATE_GENERATED=1 cargo test -p tfplugin --test generated",
            kept.display()
        );
    }
    Ok(())
}
