//! `basalt get addresses`, `basalt get leases`: who has which address.

use std::net::IpAddr;

use basalt_api::client::{AddressOptions, Client};
use basalt_api::wire::{AddressEntry, AddressSource};

use super::none;
use super::output::{Output, table, yaml};
use crate::output::{show as print, show_exactly, show_json};
use crate::region::Failed;

/// Words for addresses that have a source, and for those that are leased.
pub(super) const WORDS: &[&str] = &["addresses", "leases"];

/// A head, and the text of its cells.
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

/// Shows addresses: all, those that are named, those of a subnet.
pub(super) async fn show(
    client: &Client,
    (what, named): (&str, &[String]),
    subnet: Option<String>,
    output: &Output,
) -> Result<(), Failed> {
    let leases = what != "addresses";
    if let Output::Columns(_) = output {
        return Err(Failed::Words(format!("get {what} has no custom columns; -o json has all of them")));
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
    // Pages come by subnet.
    entries.sort_by_key(|entry| (entry.address, entry.source));
    match output {
        Output::Json => show_json(&entries),
        Output::Yaml => show_exactly(&yaml(&entries)?),
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
    use serde_json::json;

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
