//! Installation of the provider: from a directory that `make install-provider` fills, and from a region.

use std::path::Path;

use tokio::process::Command;

use crate::user::{User, certificate, program};
use crate::world::{everything, within_region};

const ZONE: &str = "resource \"basalt_zone\" \"row\" {\n  name = \"row-1\"\n}\n";

#[tokio::test]
async fn what_make_installs_is_found_by_terraform_init() {
    let dir = tempfile::tempdir().expect("a directory");
    let plugins = dir.path().join("plugins");
    // The provider is already built, in the debug profile.
    let made = Command::new("make")
        .args(["--old-file=release-provider", "install-provider"])
        .arg(format!("PLUGINS={}", plugins.display()))
        .arg(format!("PROVIDER={}", program().display()))
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .output()
        .await
        .expect("make");
    assert!(made.status.success(), "{}", everything(&made));

    let mirror = format!("filesystem_mirror {{\n    path = {plugins:?}\n  }}");
    let user = User::new(&format!("provider_installation {{\n  {mirror}\n}}\n"));
    user.configure("basalt-metal/basalt", ZONE);
    let said = user.ok(&["init"]).await;
    let installed = format!("Installed basalt-metal/basalt v{} (unauthenticated)", env!("CARGO_PKG_VERSION"));
    assert!(said.contains(&installed), "{said}");
    user.ok(&["validate"]).await;
}

#[test]
fn a_region_gives_terraform_the_provider_of_its_own_version() {
    let tls = tempfile::tempdir().expect("a directory");
    let files = certificate(tls.path(), &["localhost"]);
    let authority = files.certificate.display().to_string();
    let change = |settings: &mut basalt_region::settings::Settings| {
        settings.tls = Some(files);
        settings.provider_dir = program().parent().map(Path::to_owned);
    };
    within_region(change, async |world| {
        let host = format!("localhost:{}", world.region.address().port());
        let mut user = User::new("");
        user.environment = vec![
            ("SSL_CERT_FILE", "authorities.pem".to_owned()),
            ("BASALT_ENDPOINT", format!("https://{host}")),
            ("BASALT_CA_FILE", authority.clone()),
            ("BASALT_TOKEN", world.token.clone()),
        ];
        let guide = include_str!("../../../docs/guides/install.md");
        let (_, joined) = guide.split_once("\ncat /etc/ssl/certs/").expect("the guide joins authorities");
        let (joined, init) = joined.split_once('\n').expect("two lines");
        assert!(init.starts_with("SSL_CERT_FILE=authorities.pem terraform init\n"), "{init}");
        std::fs::copy(&authority, user.dir.path().join("tls.pem")).expect("a certificate");
        let shell = Command::new("sh")
            .args(["-euc", &format!("cat /etc/ssl/certs/{joined}")])
            .current_dir(user.dir.path())
            .status();
        assert!(shell.await.expect("a shell").success(), "{joined}");
        user.configure(&format!("{host}/basalt-metal/basalt"), ZONE);
        let said = user.ok(&["init"]).await;
        let version = env!("CARGO_PKG_VERSION");
        let installed = format!("Installed {host}/basalt-metal/basalt v{version} (self-signed, key ID ");
        assert!(said.contains(&installed), "{said}");
        let lock = std::fs::read_to_string(user.dir.path().join(".terraform.lock.hcl")).expect("a lock");
        assert!(lock.contains("zh:"), "whoever locks it has the package's checksum: {lock}");
        let said = user.ok(&["apply", "-auto-approve"]).await;
        assert!(said.contains("1 added"), "{said}");
        world.get("Zone", "row-1").await;

        user.configure(&format!("{host}/basalt-metal/granite"), "");
        let said = user.fails(&["init"]).await;
        assert!(said.contains("does not have a provider named"), "{said}");
        world.end().await;
    });
}
