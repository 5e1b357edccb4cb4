//! Networks, racks and an estate for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use basalt_api::kinds::{SubnetSpec, VlanSpec};
use basalt_api::values::Timestamp;

use crate::driver::topology::estate::Estate;
use crate::driver::topology::network::{Net, RackSeen};

/// A rack that answers DNS at its one address, and perhaps serves the proxy.
pub(crate) fn rack(number: u128, served: &str, serves_proxy: bool) -> RackSeen {
    let rack = rack_at(number, &[served]);
    RackSeen { answers_dns: rack.served.iter().copied().collect(), serves_proxy, ..rack }
}

/// A rack without a link and without reports, with these addresses.
pub(crate) fn rack_at(number: u128, addresses: &[&str]) -> RackSeen {
    let served: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
    RackSeen {
        uid: uuid::Uuid::from_u128(number).into(),
        name: format!("r{number}"),
        addresses: served.clone(),
        reached: served.clone(),
        served,
        answers_dns: BTreeSet::new(),
        maintenance: false,
        connected: None,
        linked_to: BTreeSet::new(),
        elsewhere: false,
        last_seen: Timestamp::UNIX_EPOCH,
        serves_proxy: false,
        takes_logs: Default::default(),
        gives_no_address: None,
        short: BTreeMap::new(),
    }
}

pub(crate) fn net(number: u128, name: &str, cidr: &str) -> Net {
    Net {
        uid: uuid::Uuid::from_u128(number).into(),
        name: name.to_owned(),
        subnet: SubnetSpec::new("lab.0".parse().unwrap(), cidr.parse().unwrap()),
        vlan: VlanSpec::new("lab".parse().unwrap(), 0),
        fabric_class: None,
    }
}

pub(crate) fn estate(nets: Vec<Net>, racks: Vec<RackSeen>) -> Estate {
    Estate {
        nets: nets.into(),
        routes: Arc::new([]),
        racks,
        images: Arc::new([]),
        tags: Arc::new([]),
        domains: Arc::new([]),
        settings: Arc::default(),
        settings_uid: None,
        unread: None,
    }
}
