//! `basalt get addresses`, `basalt get leases`: addresses and their owners.

use std::net::IpAddr;

use basalt_api::Kind;
use basalt_api::client::{AddressOptions, Client};
use basalt_api::values::Name;
use basalt_api::wire::{AddressEntry, AddressSource};

use super::columns::at;
use super::none;
use super::output::{Output, table, yaml};
use crate::output::{show as print, show_exactly, show_json};
use crate::region::Failed;

/// Words for all addresses in use, and for leases only.
pub(super) const WORDS: &[&str] = &["addresses", "leases"];

/// Members of an entry on the wire, for named columns.
const MEMBERS: &[&str] = &[
    "address",
    "subnet",
    "source",
    "owner",
    "interface",
    "machine",
    "device",
    "mac",
    "duid",
    "hostname",
    "rack",
    "ends_at",
];

/// A heading, and the function for the text of a cell.
type Column = (&'static str, fn(&AddressEntry) -> Option<String>);

const ADDRESSES: &[Column] = &[
    ("ADDRESS", |it| Some(it.address.to_string())),
    ("SUBNET", |it| Some(it.subnet.to_string())),
    ("SOURCE", |it| Some(it.source.as_str().to_owned())),
    ("OWNER", owner),
    ("MAC", |it| it.mac.map(|mac| mac.to_string())),
    ("HOSTNAME", |it| it.hostname.clone()),
    ("UNTIL", until),
];

const LEASES: &[Column] = &[
    ("ADDRESS", |it| Some(it.address.to_string())),
    ("MAC", |it| it.mac.map(|mac| mac.to_string())),
    ("HOSTNAME", |it| it.hostname.clone()),
    ("OF", host),
    ("SUBNET", |it| Some(it.subnet.to_string())),
    ("RACK", |it| it.rack.as_ref().map(ToString::to_string)),
    ("UNTIL", until),
];

/// The object that has the address, and the machine behind it.
fn owner(entry: &AddressEntry) -> Option<String> {
    let Some(owner) = &entry.owner else { return host(entry) };
    let owner = match entry.source {
        AddressSource::Gateway => format!("subnet/{owner}"),
        source => format!("{}/{owner}", source.as_str()),
    };
    let interface = entry.interface.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
    let host = host(entry).map(|host| format!(" ({host})")).unwrap_or_default();
    Some(format!("{owner}{interface}{host}"))
}

/// The machine or device whose MAC it is.
fn host(entry: &AddressEntry) -> Option<String> {
    let machine = entry.machine.as_ref().map(|name| format!("machine/{name}"));
    machine.or_else(|| entry.device.as_ref().map(|name| format!("device/{name}")))
}

fn until(entry: &AddressEntry) -> Option<String> {
    entry.ends_at.map(|at| at.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

/// Prints addresses: all, the named ones, or those of a subnet.
pub(super) async fn show(
    client: &Client,
    (what, named): (&str, &[String]),
    subnet: Option<String>,
    output: &Output,
) -> Result<(), Failed> {
    let leases = what != "addresses";
    if let Output::Columns(columns) = output
        && let Some((_, path)) = columns.iter().find(|(_, path)| !MEMBERS.contains(&path.as_str()))
    {
        let members = MEMBERS.join(", ");
        return Err(Failed::Words(format!(
            "{path:?} in custom-columns is no member of an address; there are {members}"
        )));
    }
    let address = |text: &String| {
        let bad =
            |_| Failed::Words(format!("{text:?} is no address; `basalt get {what} 10.77.0.1` shows one"));
        text.parse::<IpAddr>().map_err(bad)
    };
    let addresses = named.iter().map(address).collect::<Result<Vec<_>, _>>()?;
    let options = AddressOptions {
        subnet,
        source: leases.then_some(AddressSource::Lease),
        ..AddressOptions::default()
    };
    let mut entries = Vec::new();
    for address in &addresses {
        let options = AddressOptions { address: Some(*address), ..options.clone() };
        entries.extend(client.all_addresses(&options).await?);
    }
    if addresses.is_empty() {
        entries = client.all_addresses(&options).await?;
    }
    // The region sorts by subnet; people expect the order of the addresses.
    entries.sort_by_key(|entry| (entry.address, entry.source));
    match output {
        Output::Json => show_json(&entries),
        Output::Yaml => show_exactly(&yaml(&entries)?),
        Output::Columns(columns) => print(&table(&columns_of(columns, &entries))),
        Output::Name => {
            print(&entries.iter().map(|entry| format!("{}\n", entry.address)).collect::<String>())
        }
        _ if entries.is_empty() => none(&match addresses.is_empty() {
            true => what.to_owned(),
            false => format!("{what} of that: {} is free, or in no subnet", named.join(", ")),
        }),
        _ => print(&table(&rows(if leases { LEASES } else { ADDRESSES }, &entries))),
    }
    Ok(())
}

/// The columns that a person named, from the JSON of the entries.
fn columns_of(columns: &[(String, String)], entries: &[AddressEntry]) -> Vec<Vec<String>> {
    let heads = columns.iter().map(|(head, _)| head.clone()).collect();
    let row = |entry: &AddressEntry| {
        let entry = serde_json::to_value(entry).unwrap_or_default();
        columns.iter().map(|(_, path)| at(&entry, path)).collect()
    };
    [heads].into_iter().chain(entries.iter().map(row)).collect()
}

/// The Machines, or Devices, that have an address by any source.
pub(super) async fn holders(client: &Client, kind: &Kind, address: IpAddr) -> Result<Vec<Name>, Failed> {
    let options = AddressOptions { address: Some(address), ..AddressOptions::default() };
    let entries = client.all_addresses(&options).await?;
    let holder = |entry: AddressEntry| if kind.name == "Device" { entry.device } else { entry.machine };
    Ok(entries.into_iter().filter_map(holder).collect())
}

fn rows(columns: &[Column], entries: &[AddressEntry]) -> Vec<Vec<String>> {
    let heads = columns.iter().map(|(head, _)| (*head).to_owned()).collect();
    let row = |entry: &AddressEntry| {
        columns.iter().map(|(_, cell)| cell(entry).unwrap_or_else(|| "-".to_owned())).collect()
    };
    [heads].into_iter().chain(entries.iter().map(row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stand_in;
    use axum::Json;
    use axum::extract::Request;
    use axum::response::IntoResponse;
    use serde_json::{Value, json};
    use std::collections::BTreeSet;

    /// A lease with all members set.
    fn whole() -> Value {
        json!({"address": "10.77.0.100", "subnet": "lab", "source": "lease", "owner": "web", "interface": "eth0",
            "machine": "m1", "device": "d1", "mac": "52:54:00:00:00:01", "duid": "00:03:00:01:52:54:00:00:00:01",
            "hostname": "m1", "rack": "r1", "ends_at": "2026-01-31T12:00:00Z"})
    }

    #[tokio::test]
    async fn named_columns_are_members_of_the_entry() {
        let entry: AddressEntry = serde_json::from_value(whole()).unwrap();
        let written = serde_json::to_value(&entry).unwrap();
        let members: BTreeSet<&str> = written.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(members, MEMBERS.iter().copied().collect(), "every member can be named");
        let named = |text: &str| match Output::parse(text).unwrap() {
            Output::Columns(columns) => columns,
            other => panic!("{other:?}"),
        };
        let lease: AddressEntry = serde_json::from_value(
            json!({"address": "10.77.0.100", "subnet": "lab", "source": "lease", "rack": "r1"}),
        )
        .unwrap();
        assert_eq!(
            table(&columns_of(&named("custom-columns=IP:address,BY:rack,MAC:.mac"), &[entry, lease])),
            "IP           BY  MAC\n10.77.0.100  r1  52:54:00:00:00:01\n10.77.0.100  r1  -\n"
        );
        let answer = |_: &Request| Json(json!({"items": [whole()]})).into_response();
        for what in ["addresses", "leases"] {
            stand_in::run(&["get", what, "-ocustom-columns=IP:address,UNTIL:ends_at"], answer).await.unwrap();
            let wrong = stand_in::run(&["get", what, "-ocustom-columns=ZONE:spec.zone"], answer).await;
            let said = wrong.unwrap_err().to_string();
            assert!(said.starts_with("\"spec.zone\" in custom-columns is no member of an address"), "{said}");
        }
    }

    #[test]
    fn an_address_is_told_with_its_owner_and_the_machine_behind_it() {
        let entries = json!([
            {"address": "10.77.0.1", "subnet": "lab", "source": "gateway", "owner": "lab"},
            {"address": "10.77.0.9", "subnet": "lab", "source": "deployment", "owner": "web", "interface": "eth0", "machine": "m1"},
            {"address": "10.77.0.100", "subnet": "lab", "source": "lease", "mac": "52:54:00:00:00:01", "machine": "m1",
             "hostname": "m1", "rack": "r1", "ends_at": "2026-01-31T12:00:00Z"},
        ]);
        let entries: Vec<AddressEntry> = serde_json::from_value(entries).unwrap();
        assert_eq!(
            table(&rows(ADDRESSES, &entries)),
            "ADDRESS      SUBNET  SOURCE      OWNER                             MAC                HOSTNAME  UNTIL\n\
             10.77.0.1    lab     gateway     subnet/lab                        -                  -         -\n\
             10.77.0.9    lab     deployment  deployment/web eth0 (machine/m1)  -                  -         -\n\
             10.77.0.100  lab     lease       machine/m1                        52:54:00:00:00:01  m1        2026-01-31 12:00:00\n"
        );
        assert_eq!(
            table(&rows(LEASES, &entries[2..])),
            "ADDRESS      MAC                HOSTNAME  OF          SUBNET  RACK  UNTIL\n\
             10.77.0.100  52:54:00:00:00:01  m1        machine/m1  lab     r1    2026-01-31 12:00:00\n"
        );
    }
}
