//! The types of the MAAS provider, and the values that identify their objects.

use serde_json::Value;

use crate::map::NAME;

/// The attributes of our type, with values, that identify an object.
type Known = Vec<(&'static str, String)>;

/// A type of the MAAS provider.
pub(super) struct Source {
    pub(super) name: &'static str,
    /// The newest schema version that is understood.
    pub(super) version: i64,
    pub(super) kind: &'static str,
    pub(super) known_by: fn(&Value) -> Result<Known, String>,
    /// Attributes without a counterpart, each with advice.
    pub(super) lost: &'static [(&'static str, &'static str)],
}

pub(super) const SOURCES: &[Source] = &[
    Source { name: "maas_fabric", version: 0, kind: "Fabric", known_by: name, lost: &[] },
    Source { name: "maas_space", version: 0, kind: "Space", known_by: name, lost: &[] },
    Source { name: "maas_resource_pool", version: 0, kind: "Pool", known_by: name, lost: &[] },
    Source { name: "maas_zone", version: 0, kind: "Zone", known_by: name, lost: &[] },
    Source {
        name: "maas_tag",
        version: 0,
        kind: "Tag",
        known_by: name,
        lost: &[
            ("definition", "it is XPath; write the same as a CEL expression in `expression`"),
            ("machines", "give it to each of them by a basalt_machine_tags"),
        ],
    },
    Source {
        name: "maas_user",
        version: 0,
        kind: "User",
        known_by: name,
        lost: &[
            ("is_admin", "name a role of base admin in `roles`"),
            ("password", "declare it in `password_wo`"),
        ],
    },
    Source {
        name: "maas_dns_domain",
        version: 0,
        kind: "Domain",
        known_by: name,
        lost: &[("is_default", "no domain is the default one; name it where it is meant")],
    },
    Source { name: "maas_dns_record", version: 0, kind: "DnsRecord", known_by: record, lost: &[] },
    Source {
        name: "maas_vlan",
        version: 0,
        kind: "Vlan",
        known_by: |state| Ok(vec![("fabric", by_name(state, "fabric")?), ("vid", text(state, "vid")?)]),
        lost: &[("name", "a VLAN is called by its fabric and number")],
    },
    Source {
        name: "maas_subnet",
        version: 0,
        kind: "Subnet",
        known_by: |state| Ok(vec![("cidr", text(state, "cidr")?)]),
        lost: &[("ip_ranges", "declare each as a basalt_ip_range")],
    },
    Source {
        name: "maas_subnet_ip_range",
        version: 0,
        kind: "IpRange",
        known_by: |state| Ok(vec![("start", text(state, "start_ip")?), ("end", text(state, "end_ip")?)]),
        lost: &[],
    },
    Source {
        name: "maas_reserved_ip",
        version: 0,
        kind: "IpAddress",
        known_by: |state| Ok(vec![("address", text(state, "ip")?)]),
        lost: &[],
    },
    Source {
        name: "maas_static_route",
        version: 0,
        kind: "StaticRoute",
        known_by: |_| {
            Err("its source and destination are given by numbers, which only MAAS can tell the subnets of"
                .to_owned())
        },
        lost: &[],
    },
    Source {
        name: "maas_device",
        version: 0,
        kind: "Device",
        known_by: |state| {
            let cards = state["network_interfaces"].as_array().map(Vec::as_slice).unwrap_or_default();
            let macs: Known = cards
                .iter()
                .filter_map(|card| Some(("macs", card["mac_address"].as_str()?.to_owned())))
                .collect();
            if macs.is_empty() { name_of_host(state) } else { Ok(macs) }
        },
        lost: &[],
    },
    Source {
        name: "maas_machine",
        version: 1,
        kind: "Machine",
        known_by: |state| Ok(vec![("boot_macs", text(state, "pxe_mac_address")?)]),
        lost: &[
            ("power_parameters", "declare the account in `bmc`, its password in `bmc.password_wo`"),
            ("min_hwe_kernel", "the kernel comes with the image of a basalt_deployment"),
        ],
    },
    Source {
        name: "maas_instance",
        version: 0,
        kind: "Deployment",
        known_by: |state| Ok(vec![("machine", name_of_host(state)?.remove(0).1)]),
        lost: &[
            ("allocate_params", "declare `machine`, or the same as `selector`"),
            ("deploy_params", "declare `image` and `user_data`"),
            ("release_params", "declare `release`"),
            ("network_interfaces", "declare `network`"),
        ],
    },
    Source {
        name: "maas_boot_source",
        version: 0,
        kind: "ImageSource",
        known_by: |state| Ok(vec![("url", text(state, "url")?)]),
        lost: &[
            ("keyring_data", "declare the key in `keyring`, as text"),
            ("keyring_filename", "declare what is in the file in `keyring`"),
        ],
    },
    Source {
        name: "maas_boot_source_selection",
        version: 0,
        kind: "ImageSource",
        known_by: |_| {
            Err("it is one of the `selections` of its basalt_image_source, and no object of its own"
                .to_owned())
        },
        lost: &[],
    },
    Source {
        name: "maas_package_repository",
        version: 0,
        kind: "PackageRepository",
        known_by: |state| Ok(vec![("url", text(state, "url")?)]),
        lost: &[
            ("disabled_pockets", "name the suites that are wanted in `suites`"),
            ("disabled_components", "name the components that are wanted in `components`"),
            ("distributions", "name the suites in `suites`"),
        ],
    },
    Source {
        name: "maas_node_script",
        version: 0,
        kind: "Script",
        known_by: name,
        lost: &[("script", "declare it in `content`, as text and not in base64")],
    },
    Source {
        name: "maas_ssh_keys",
        version: 0,
        kind: "SshKey",
        known_by: |_| Err("it holds several keys, each of which is a basalt_ssh_key".to_owned()),
        lost: &[],
    },
    Source {
        name: "maas_api_key",
        version: 0,
        kind: "ApiToken",
        known_by: name,
        lost: &[("api_key", "it opens nothing here; `basalt token issue NAME` makes another")],
    },
    Source {
        name: "maas_configuration",
        version: 0,
        kind: "Settings",
        known_by: |_| Ok(vec![(NAME, "default".to_owned())]),
        lost: &[(
            "key",
            "one basalt_settings holds all of them: declare its value in the field that means the same",
        )],
    },
];

fn text(state: &Value, name: &str) -> Result<String, String> {
    match &state[name] {
        Value::String(text) if !text.is_empty() => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        _ => Err(format!("its state has no {name}")),
    }
}

/// The name in a reference. An error if it is a number: MAAS uses numbers, which mean nothing here.
fn by_name(state: &Value, name: &str) -> Result<String, String> {
    let text = text(state, name)?;
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!(
            "its {name} is given by the number {text}, which only MAAS can tell the name of"
        ));
    }
    Ok(text)
}

fn name(state: &Value) -> Result<Known, String> {
    Ok(vec![(NAME, text(state, "name")?)])
}

fn name_of_host(state: &Value) -> Result<Known, String> {
    let host = text(state, "hostname").or_else(|_| text(state, "fqdn"))?;
    Ok(vec![(NAME, host.split('.').next().unwrap_or_default().to_owned())])
}

fn record(state: &Value) -> Result<Known, String> {
    let (owner, domain) = match text(state, "name") {
        Ok(owner) => (owner, by_name(state, "domain")?),
        Err(_) => {
            let whole = text(state, "fqdn")?;
            let (owner, domain) =
                whole.split_once('.').ok_or_else(|| format!("its fqdn {whole} has no domain"))?;
            (owner.to_owned(), domain.to_owned())
        }
    };
    Ok(vec![("domain", domain), ("owner_name", owner), ("type", record_type(state)?)])
}

/// MAAS has one type `A/AAAA`. The record's data decides between A and AAAA.
fn record_type(state: &Value) -> Result<String, String> {
    let (sort, data) = (text(state, "type")?, text(state, "data")?);
    Ok(match sort.as_str() {
        "A/AAAA" if data.contains(':') => "AAAA".to_owned(),
        "A/AAAA" => "A".to_owned(),
        _ => sort,
    })
}
