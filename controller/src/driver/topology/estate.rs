//! The estate: everything that is the same for all machines, as the topology's rows say it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use basalt_api::agent::BlobRef;
use basalt_api::kinds::{
    Architecture, DomainSpec, FabricSpec, FileRole, ImagePurpose, ImageSpec, MachineSpec, RackSpec,
    SettingsSpec, StaticRouteSpec, SubnetSpec, VlanSpec,
};
use basalt_api::values::{ImageId, RackId, Sha256, SubnetId, Uid};
use basalt_db::{FleetLimits, Object, Store, StoreError, TopologyRows};
use basalt_engine::Policy;
use basalt_engine::deadlines::DEADLINES;
use basalt_engine::input::{EphemeralImage, ResolvedImage};

use crate::driver::stored::{readable, spec};
use crate::driver::topology::network::{self, Net, RackSeen, RouteSeen};
use crate::driver::topology::services::{self, Said};
use crate::driver::topology::tags::TagSeen;
use crate::racks::observed::{Hello, Observed};
use crate::racks::sessions::Sessions;

/// Everything that is the same for all machines. A clone is cheap, except for the racks.
#[derive(Clone, Debug)]
pub struct Estate {
    /// The subnets with their VLANs.
    pub nets: Arc<[Net]>,
    /// Routes of subnets, in a fixed order.
    pub routes: Arc<[RouteSeen]>,
    /// The racks, each with its presence.
    pub racks: Vec<RackSeen>,
    /// The images, newest first.
    pub images: Arc<[Image]>,
    /// The declared tags, by name.
    pub tags: Arc<[TagSeen]>,
    /// The declared domains, by name.
    pub domains: Arc<[DomainSeen]>,
    /// The settings of the whole region.
    pub settings: Arc<SettingsSpec>,
    /// The uid of the Settings, if they are declared.
    pub settings_uid: Option<Uid>,
    /// The reason why the Settings cannot be read. No action may begin then: the Settings may forbid it.
    pub unread: Option<String>,
}

/// An image, with the files that the region holds.
#[derive(Debug)]
pub struct Image {
    /// The image's id.
    pub uid: ImageId,
    /// The image's name.
    pub name: String,
    /// The declared spec.
    pub spec: ImageSpec,
    /// The sizes of the files that the region holds, in bytes.
    pub held: BTreeMap<FileRole, u64>,
}

/// A domain that is declared.
#[derive(Clone, Debug)]
pub struct DomainSeen {
    /// The uid of the Domain.
    pub uid: Uid,
    /// The name of its apex.
    pub name: String,
    /// The declared spec.
    pub spec: DomainSpec,
}

impl Estate {
    /// The estate of these rows, without the racks' presence.
    #[must_use]
    pub fn of(mut rows: TopologyRows) -> Self {
        let nets = nets(&mut rows);
        let routes = routes(&mut rows, &nets);
        let racks: Vec<_> =
            readable(rows.take("Rack")).map(|(object, spec)| rack(&rows, &object, &spec)).collect();
        let mut images = Vec::new();
        for (object, spec) in readable::<ImageSpec>(rows.take("Image")) {
            let size = |sha256: &Sha256| rows.blobs.get(sha256.bytes()).copied();
            let held =
                spec.files.iter().filter_map(|(role, file)| Some((*role, size(&file.sha256)?))).collect();
            images.push((
                object.created_at,
                Image { uid: ImageId::from(object.uid), name: object.name.clone(), spec, held },
            ));
        }
        // Newest first.
        images.sort_by_key(|(created, image)| (std::cmp::Reverse(*created), image.uid));
        let images = images.into_iter().map(|(_, image)| image).collect();
        let tags = readable(rows.take("Tag")).map(|(object, spec)| TagSeen::new(&object, spec)).collect();
        let domains =
            readable(rows.take("Domain")).filter(|(object, _)| object.deletion_requested_at.is_none());
        let domains =
            domains.map(|(object, spec)| DomainSeen { uid: object.uid, name: object.name, spec }).collect();
        let declared = rows.take("Settings");
        let settings_uid = declared.first().map(|object| object.uid);
        let settings = declared.first().map(spec::<SettingsSpec>).transpose();
        let (settings, unread) = match settings {
            Ok(settings) => (settings.unwrap_or_default(), None),
            Err(error) => (SettingsSpec::default(), Some(error.to_string())),
        };
        let (nets, settings) = (nets.into(), Arc::new(settings));
        Self { nets, routes, racks, images, tags, domains, settings, settings_uid, unread }
    }

    /// Adds the presence of racks: their connections to this process, and when the others were last heard.
    ///
    /// Every fact of a rack counts as a sign of life, and racks send facts all the time. So the time is read only on demand, while a rack
    /// is away, and does not change the estate's position.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub(crate) async fn with_presence(
        mut self,
        store: &Store,
        sessions: &Sessions,
    ) -> Result<Self, StoreError> {
        let regions = sessions.regions().borrow().clone();
        let is_other =
            |region: &String| regions.living.contains(region) && regions.own.as_ref() != Some(region);
        let mut away = Vec::new();
        for rack in &mut self.racks {
            rack.elsewhere = rack.linked_to.iter().any(is_other);
            // The rack was there although it had no fact to send.
            rack.last_seen = rack.last_seen.max(sessions.left(rack.uid));
            rack.connected = sessions.since(rack.uid);
            if rack.connected.is_none() {
                away.push(rack.uid.into());
            }
        }
        if away.is_empty() {
            return Ok(self);
        }
        let heard = store.last_heard(&away).await?;
        for rack in self.racks.iter_mut().filter(|rack| rack.connected.is_none()) {
            if let Some(heard) = heard.get(&rack.uid.into()) {
                rack.last_seen = rack.last_seen.max(*heard);
            }
        }
        Ok(self)
    }

    /// A policy with the deadlines that are declared for the region.
    #[must_use]
    pub fn policy(&self, policy: &Policy) -> Policy {
        let declared = &self.settings.deadlines;
        let rows = DEADLINES.iter().filter_map(|row| Some((row.id, declared.get(row.name)?)));
        rows.fold(policy.clone(), |policy, (id, time)| policy.with(id, time.get()))
    }

    /// The limits of the fleet's budget.
    #[must_use]
    pub fn limits(&self) -> FleetLimits {
        let budget = &self.settings.fleet_budget;
        FleetLimits {
            per_zone: budget.max_unavailable_per_zone,
            at_once: budget.max_unavailable,
            per_hour: budget.destructive_per_hour,
            power_on_per_minute: budget.power_on_per_minute,
        }
    }

    /// The ephemeral environment for an architecture: the newest complete one.
    pub(crate) fn ephemeral(&self, architecture: Architecture) -> Option<EphemeralImage> {
        self.images.iter().find_map(|image| {
            let file = |role| image.held.contains_key(&role).then(|| image.spec.files.get(&role)).flatten();
            if image.spec.purpose != ImagePurpose::Ephemeral || image.spec.architecture != architecture {
                return None;
            }
            Some(EphemeralImage {
                kernel: file(FileRole::Kernel)?.sha256,
                initrd: file(FileRole::Initrd)?.sha256,
                squashfs: file(FileRole::Squashfs)?.sha256,
                kernel_options: image.spec.kernel_options.clone().unwrap_or_default(),
            })
        })
    }

    pub(crate) fn resolved(&self, uid: ImageId) -> Option<ResolvedImage> {
        let image = self.images.iter().find(|image| image.uid == uid)?;
        let root = image.spec.root()?;
        let held = image.held.get(&FileRole::RootTarball).copied();
        Some(ResolvedImage {
            uid,
            digest: digest(&image.spec),
            root: BlobRef { sha256: root.sha256.to_string(), size: held.or(root.size).unwrap_or(0) },
            available: held.is_some(),
            kernel_options: image.spec.kernel_options.clone().unwrap_or_default(),
        })
    }

    /// The rack that switches a machine's BMC; `holder` has done so until now.
    #[must_use]
    pub fn power_rack(&self, machine: &MachineSpec, holder: Option<RackId>) -> Option<&RackSeen> {
        let bmc = machine.bmc.as_ref().filter(|bmc| network::has_driver(bmc.driver))?;
        let address = bmc.address.as_ref().and_then(|host| host.to_string().parse().ok());
        network::power_rack(address, &self.nets, &self.racks, holder)
    }
}

/// One SHA-256 over all files of an image.
#[must_use]
pub fn digest(image: &ImageSpec) -> Sha256 {
    let mut text = String::new();
    for (role, file) in &image.files {
        text.push_str(&format!("{role} {}\n", file.sha256));
    }
    let mut bytes = [0; 32];
    bytes.copy_from_slice(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes()).as_ref());
    Sha256::new(bytes)
}

/// The subnets with their VLANs.
fn nets(rows: &mut TopologyRows) -> Vec<Net> {
    let vlans: BTreeMap<String, VlanSpec> =
        readable(rows.take("Vlan")).map(|(object, vlan)| (object.name, vlan)).collect();
    let classes: BTreeMap<String, String> = readable::<FabricSpec>(rows.take("Fabric"))
        .filter_map(|(object, fabric)| Some((object.name, fabric.class?)))
        .collect();
    let mut nets = Vec::new();
    for (object, subnet) in readable::<SubnetSpec>(rows.take("Subnet"))
        .filter(|(object, _)| object.deletion_requested_at.is_none())
    {
        if let Some(vlan) = vlans.get(subnet.vlan.as_str()) {
            let (uid, name) = (SubnetId::from(object.uid), object.name.clone());
            let fabric_class = classes.get(vlan.fabric.as_str()).cloned();
            nets.push(Net { uid, name, vlan: vlan.clone(), subnet, fabric_class });
        }
    }
    nets
}

/// The routes of the networks. If two lead from one subnet to the same network, the one with the lower metric.
fn routes(rows: &mut TopologyRows, nets: &[Net]) -> Arc<[RouteSeen]> {
    let net = |name: &str| nets.iter().find(|net| net.name == name);
    let mut routes: BTreeMap<(SubnetId, String), RouteSeen> = BTreeMap::new();
    for (object, spec) in readable::<StaticRouteSpec>(rows.take("StaticRoute")) {
        let leads_to = spec.destination.as_ref().and_then(|it| Some(net(it.as_str())?.subnet.cidr));
        let (Some(source), Some(destination)) =
            (net(spec.source.as_str()), spec.destination_cidr.or(leads_to))
        else {
            continue;
        };
        if object.deletion_requested_at.is_some() {
            continue;
        }
        let (source, gateway, metric) = (source.uid, spec.gateway, spec.metric);
        let route = RouteSeen { source, destination, gateway, metric };
        let first = routes.entry((source, destination.to_string())).or_insert_with(|| route.clone());
        if (metric, gateway) < (first.metric, first.gateway) {
            *first = route;
        }
    }
    routes.into_values().collect()
}

/// A rack, from its spec and from its reports.
fn rack(rows: &TopologyRows, object: &Object, spec: &RackSpec) -> RackSeen {
    let (mut hello, mut short, mut said) = (Hello::default(), BTreeMap::new(), Vec::new());
    for fact in rows.facts(object.uid) {
        match Observed::of(fact) {
            Some(Observed::Hello(it)) => hello = it,
            Some(observed) => {
                short.extend(services::short(&observed, fact.stored_at));
                if let Observed::Health(what) = observed {
                    said.push(Said { id: fact.id, stored_at: fact.stored_at, what });
                }
            }
            None => {}
        }
    }
    let served: Vec<IpAddr> = hello.served().collect();
    let answers_dns = services::answering(&said, basalt_proto::DNS).into_iter();
    let answers_dns = answers_dns.filter(|it| served.contains(it)).collect();
    let up = services::all_links(&said).filter(|link| link.problem.is_none());
    RackSeen {
        uid: RackId::from(object.uid),
        name: object.name.clone(),
        addresses: hello.addresses().collect(),
        served,
        reached: hello.reached().collect(),
        maintenance: spec.maintenance || object.deletion_requested_at.is_some(),
        connected: None,
        linked_to: up.map(|link| link.address).collect(),
        elsewhere: false,
        last_seen: object.created_at,
        answers_dns,
        serves_proxy: services::serves_proxy(&said),
        takes_logs: services::answering(&said, basalt_proto::SYSLOG),
        gives_no_address: hello.gives_no_address.then(|| hello.cannot_write.into()),
        short,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::topology::samples::estate;
    use std::time::Duration;

    #[test]
    fn each_deadline_that_is_declared_takes_the_place_of_the_usual_one() {
        let usual = Policy::default();
        let mut estate = estate(Vec::new(), Vec::new());
        let declared = DEADLINES.iter().map(|row| (row.name, "7h")).collect::<BTreeMap<_, _>>();
        let settings = serde_json::json!({ "deadlines": declared });
        estate.settings = Arc::new(serde_json::from_value(settings).unwrap());
        for row in DEADLINES {
            assert_ne!(usual.deadline(row.id), Duration::from_secs(7 * 3600), "{}", row.name);
            assert_eq!(estate.policy(&usual).deadline(row.id), Duration::from_secs(7 * 3600), "{}", row.name);
        }
    }
}
