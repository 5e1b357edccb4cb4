//! The checked-in code is what the `.proto` files generate.

use std::{env, fs, path::Path};

const SOURCES: [&str; 4] = [
    "basalt/rack/v1/concerns.proto",
    "basalt/rack/v1/facts.proto",
    "basalt/rack/v1/link.proto",
    "basalt/rack/v1/logs.proto",
];
const GENERATED: &str = "basalt.rack.v1.rs";

#[test]
fn checked_in_code_is_what_the_proto_files_generate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let descriptors = protox::compile(SOURCES, [root]).expect("the .proto files compile");
    let out = tempfile::tempdir().expect("a temporary directory");
    tonic_prost_build::configure().out_dir(out.path()).compile_fds(descriptors).expect("code is generated");
    let generated = fs::read_to_string(out.path().join(GENERATED)).expect("generated code");
    let checked_in = root.join("src/gen").join(GENERATED);
    if env::var_os("UPDATE_GENERATED").is_some() {
        fs::write(&checked_in, &generated).expect("generated code is written");
    }
    assert!(
        fs::read_to_string(&checked_in).is_ok_and(|text| text == generated),
        "{GENERATED} is not what the .proto files generate: run `UPDATE_GENERATED=1 cargo test -p basalt-proto`"
    );
}
