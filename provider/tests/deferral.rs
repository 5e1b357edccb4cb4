//! A provider that does not know its region yet defers operations, if Terraform allows that.

use terraform_provider_basalt::provider;
use tfplugin::Val;
use tfplugin::testing::MiniCore;

#[tokio::test]
async fn everything_is_put_off_while_the_region_is_not_known() {
    let block = Val::from([("endpoint", Val::Unknown), ("token", "of-no-region".into())]);
    let mut core = MiniCore::start(provider(), &block).await.expect("it starts");
    for (of, config) in [
        ("basalt_zone", Val::from([("name", "row-1".into())])),
        ("basalt_deployment", Val::from([("name", "web".into()), ("image", "debian-12".into())])),
    ] {
        core.put_off(of, &config).await.unwrap_or_else(|broken| panic!("{broken}"));
    }
    core.stop().await;
}
