//! Whether racks serve VLANs and subnets, put into their status as they go out: it depends on racks, and is stored nowhere.

use super::App;
use super::problem::Answer;
use super::utilisation::with;
use crate::driver::serving::Network;
use basalt_api::kinds::VlanSpec;
use basalt_db::Object;
use serde_json::json;
use std::collections::BTreeSet;

/// Fills in what is to be known of the VLANs and subnets among these.
pub(super) async fn fill(app: &App, objects: &mut [Object]) -> Answer<()> {
    let has_some = objects.iter().any(|object| ["Vlan", "Subnet"].contains(&object.kind.as_str()));
    let Some(machinery) = app.machinery().filter(|_| has_some) else { return Ok(()) };
    let network = machinery.network().await?;
    for object in objects {
        match object.kind.as_str() {
            "Vlan" => vlan(object, &network)?,
            "Subnet" => subnet(object, &network)?,
            _ => {}
        }
    }
    Ok(())
}

fn vlan(object: &mut Object, network: &Network) -> Answer<()> {
    // Of one that cannot be read another thing is said.
    let Ok(spec) = serde_json::from_str::<VlanSpec>(object.spec.get()) else { return Ok(()) };
    let Some((word, racks)) = network.vlan(&object.name, &spec) else { return Ok(()) };
    let serving: BTreeSet<&str> = racks.iter().map(|rack| rack.name.as_str()).collect();
    let fields = [("conditions", json!(word.conditions(object.updated_at))), ("serving", json!(serving))];
    object.status = with(&object.status, fields)?;
    Ok(())
}

fn subnet(object: &mut Object, network: &Network) -> Answer<()> {
    let net = network.nets.iter().find(|net| net.uid == object.uid.into());
    if let Some(word) = net.and_then(|net| network.subnet(net)) {
        object.status = with(&object.status, [("conditions", json!(word.conditions(object.updated_at)))])?;
    }
    Ok(())
}
