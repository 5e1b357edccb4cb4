//! Adds the state of DHCP to VLANs, subnets and IpAddresses when they are read. It depends on racks, and is stored nowhere.

use super::App;
use super::problem::Answer;
use super::utilisation::with;
use crate::driver::Machinery;
use crate::driver::answers::serving::Network;
use basalt_api::kinds::{IpAddressSpec, IpAddressStatus, VlanSpec};
use basalt_api::values::Timestamp;
use basalt_db::Object;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// The largest age of the networks that are read: thousands of objects may be read one by one, and each needs all networks.
const FRESH: Duration = Duration::from_millis(250);

/// The networks as they were last read.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<Option<(Instant, Arc<Network>)>>);

impl Recent {
    /// The networks, with everything that was written up to `written`.
    async fn read(&self, machinery: &Arc<dyn Machinery>, written: Timestamp) -> Answer<Arc<Network>> {
        let mut recent = self.0.lock().await;
        if let Some((at, network)) = &*recent
            && at.elapsed() < FRESH
            && network.now > written
        {
            return Ok(Arc::clone(network));
        }
        let network = Arc::new(machinery.network().await?);
        *recent = Some((Instant::now(), Arc::clone(&network)));
        Ok(network)
    }
}

/// Fills in the conditions of the VLANs, subnets and IpAddresses among these objects, and the serving racks of VLANs.
pub(super) async fn fill(app: &App, objects: &mut [Object]) -> Answer<()> {
    let these =
        objects.iter().filter(|object| ["Vlan", "Subnet", "IpAddress"].contains(&object.kind.as_str()));
    let Some(written) = these.map(|object| object.updated_at).max() else { return Ok(()) };
    let Some(machinery) = app.machinery() else { return Ok(()) };
    let network = app.networks().read(machinery, written).await?;
    for object in objects {
        match object.kind.as_str() {
            "Vlan" => vlan(object, &network)?,
            "Subnet" => subnet(object, &network)?,
            "IpAddress" => ip_address(object, &network)?,
            _ => {}
        }
    }
    Ok(())
}

fn vlan(object: &mut Object, network: &Network) -> Answer<()> {
    // If the spec cannot be read, the object has another condition.
    let Ok(spec) = serde_json::from_str::<VlanSpec>(object.spec.get()) else { return Ok(()) };
    let Some((word, racks)) = network.vlan(&object.name, &spec) else { return Ok(()) };
    let serving: BTreeSet<&str> = racks.iter().map(|rack| rack.name.as_str()).collect();
    let fields = [("conditions", json!(word.conditions(object.updated_at))), ("serving", json!(serving))];
    object.status = with(&object.status, fields)?;
    Ok(())
}

/// An IpAddress without a client is given to nobody: it may keep a rack's address from other objects.
fn ip_address(object: &mut Object, network: &Network) -> Answer<()> {
    let Ok(spec) = serde_json::from_str::<IpAddressSpec>(object.spec.get()) else { return Ok(()) };
    let Ok(status) = serde_json::from_str::<IpAddressStatus>(object.status.get()) else { return Ok(()) };
    let Some(address) = status.address.filter(|_| spec.mac.is_some() || spec.duid.is_some()) else {
        return Ok(());
    };
    if let Some(word) = network.reserved(spec.subnet.as_str(), address) {
        object.status = with(&object.status, [("conditions", json!(word.conditions(object.updated_at)))])?;
    }
    Ok(())
}

fn subnet(object: &mut Object, network: &Network) -> Answer<()> {
    let net = network.nets.iter().find(|net| net.uid == object.uid.into());
    if let Some(word) = net.and_then(|net| network.subnet(net)) {
        object.status = with(&object.status, [("conditions", json!(word.conditions(object.updated_at)))])?;
    }
    Ok(())
}
