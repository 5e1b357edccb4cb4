//! Networks, racks and an estate for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use basalt_api::kinds::{SubnetSpec, VlanSpec};
use basalt_api::values::Timestamp;

use crate::driver::topology::estate::Estate;
use crate::driver::topology::network::{Net, RackSeen};

pub(crate) fn rack(number: u128, served: &str, serves_proxy: bool) -> RackSeen {
    let served: Vec<IpAddr> = vec![served.parse().unwrap()];
    RackSeen {
        uid: uuid::Uuid::from_u128(number).into(),
        name: format!("r{number}"),
        addresses: served.clone(),
        reached: served.clone(),
        answers_dns: served.iter().copied().collect(),
        served,
        maintenance: false,
        connected: None,
        linked_to: BTreeSet::new(),
        elsewhere: false,
        last_seen: Timestamp::UNIX_EPOCH,
        serves_proxy,
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
