//! How racks answer for a name, and why: `basalt explain name` (docs/decisions/108-explain-names.md).
//!
//! The region computes the answer with the same code as racks (`basalt_dns::answer`), from its stored zones. It reads the zone of the name,
//! the zones to which aliases lead, and the zones that have the names of a delegated domain's servers.

mod content;
mod racks;
mod wire;

use std::collections::BTreeSet;
use std::net::IpAddr;

use basalt_api::kinds::DnsRecordSpec;
use basalt_api::values::similar;
use basalt_api::wire::{AddressSource, NameOutcome, NameRecord, NameReport, NameSource};
use basalt_db::{AddressQuery, NameSources, StoreError};
use basalt_dns::{Name, Zones, document};
use basalt_proto::rack_v1::DnsZone;
use prost::Message;

use crate::driver::context::Driver;
use crate::driver::topology::estate::Estate;
use crate::driver::topology::internal_domain::{internal_domain, is_internal};
use crate::driver::zones::{catalog, networks, origins, reverse};
use content::{Content, Sources, of_answer};
use wire::{Ending, Step};

/// Aliases that are followed, as racks follow them.
const MAX_ALIASES: usize = 16;
/// Servers of a delegated domain whose zones are read.
const MOST_SERVERS: usize = 4;
/// Similar names that are told.
const MOST_NEAR: usize = 3;
/// The clients for which racks ask other servers.
const ON_BEHALF: &str = "on behalf of Subnets with allow_dns";

/// A name that is explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A whole name in lower case, without the final dot.
    Whole(String),
    /// A label in lower case: it is in the default domain.
    Label(String),
    /// An address: its reverse name.
    Address(IpAddr),
}

impl Asked {
    fn name(&self, estate: &Estate) -> String {
        match self {
            Self::Whole(name) => name.clone(),
            Self::Address(address) => reverse::pointer(*address),
            Self::Label(label) => {
                let default = estate.default_domain();
                default.map_or_else(|| label.clone(), |domain| format!("{label}.{}", domain.name))
            }
        }
    }
}

/// True if a name is a domain or below it.
fn is_below(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain).is_some_and(|above| above.is_empty() || above.ends_with('.'))
}

/// The longest of the domains that a name is in.
fn longest<'a>(name: &str, domains: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    domains.filter(|domain| is_below(name, domain)).max_by_key(|domain| domain.len())
}

/// The reader of an explanation: the pools whose machines and deployments may be named; `None`: all.
type Pools<'a> = Option<&'a [String]>;

/// Explains a name.
///
/// # Errors
/// Fails if the database cannot be read, or if a zone in it cannot be.
pub async fn explain(driver: &Driver, asked: &Asked, pools: Pools<'_>) -> Result<NameReport, StoreError> {
    let store = &driver.store;
    let estate = driver.estate().await?;
    let name = asked.name(&estate);
    let served = origins(&estate);
    let elsewhere: Vec<&str> = estate
        .domains
        .iter()
        .filter(|it| !it.spec.authoritative && !is_internal(&estate.settings, &it.name))
        .map(|it| it.name.as_str())
        .collect();
    let mut zones = Zones::default();
    for domain in &elsewhere {
        zones.leave(&whole(domain)?);
    }
    let mut contents: Vec<Content> = Vec::new();
    let (mut records, mut chain) = (Vec::new(), vec![name.clone()]);
    let (ending, last) = loop {
        let at = chain.last().cloned().unwrap_or_default();
        let candidates = served.iter().map(String::as_str).chain(elsewhere.iter().copied());
        let zone = longest(&at, candidates).filter(|it| !elsewhere.contains(it));
        if let Some(origin) = zone
            && !contents.iter().any(|content| content.origin == origin)
        {
            let Some(content) = load(driver, &estate, origin, pools).await? else {
                break (Ending::NotWritten(origin.to_owned()), at);
            };
            insert(&mut zones, &content)?;
            contents.push(content);
        }
        let mut step = wire::ask(&zones, &whole(&at)?);
        if let Step::End(Ending::Delegated(cut, servers), _) = &step
            && servers.is_empty()
        {
            // Racks find the addresses of a zone's servers in all zones that they hold.
            for origin in zones_of_servers(&contents, cut, &served) {
                if let Some(content) = load(driver, &estate, origin, pools).await? {
                    insert(&mut zones, &content)?;
                }
            }
            step = wire::ask(&zones, &whole(&at)?);
        }
        match step {
            Step::Alias(record) => {
                let target = record.data.trim_end_matches('.').to_ascii_lowercase();
                records.push(record);
                // Racks stop here as well, and answer the aliases.
                if chain.contains(&target) || chain.len() >= MAX_ALIASES {
                    break (Ending::AliasLoop(target), at);
                }
                chain.push(target);
            }
            Step::End(ending, found) => {
                records.extend(found);
                break (ending, at);
            }
        }
    };
    let mut told = Vec::new();
    for record in records {
        let zone = longest(&record.owner, contents.iter().map(|it| it.origin.as_str())).map(str::to_owned);
        let Some(content) = zone.and_then(|zone| contents.iter().find(|it| it.origin == zone)) else {
            continue;
        };
        let made = zones.get(&whole(&content.origin)?).map(|zone| zone.origin_of(&record.name));
        let mut from = content.sources(&record, made.as_ref(), &estate);
        if made == Some(basalt_dns::Origin::Computed) {
            from.extend(computed(driver, &record.owner, &record.data, pools).await?);
        }
        told.push(of_answer(record, content, made.as_ref(), from));
    }
    let near = near(&estate, &contents, &ending, &last, &elsewhere);
    let (outcome, words, servers) = words(&estate, &ending, &last, &elsewhere, &contents, &told);
    let mut message = String::new();
    for (alias, target) in chain.iter().zip(chain.iter().skip(1)) {
        message.push_str(&format!("{alias} is an alias of {target}; "));
    }
    message.push_str(&words);
    if !near.is_empty() {
        message.push_str(&format!("; there is {}", near.join(", ")));
    }
    if pools.is_some() {
        message.push_str("; names of machines and deployments that you do not see are left out");
    }
    let states = store.document_states("dns").await?;
    Ok(NameReport {
        name,
        outcome,
        message,
        records: told,
        racks: racks::states(&states, &estate.racks, &contents),
        zones: contents.iter().map(|content| content.zone(&estate)).collect(),
        servers,
        near,
    })
}

/// Adds a zone to those that the core is asked about.
fn insert(zones: &mut Zones, content: &Content) -> Result<(), StoreError> {
    let document = DnsZone { serial: content.serial, ..content.document.clone() };
    let zone = document::zone(&document)
        .map_err(|why| StoreError::Corrupt(format!("zone {}: {why}", content.origin)))?;
    zones.insert(zone.into());
    Ok(())
}

/// The origins of zones that are not read yet, and that have the names of a delegated domain's servers.
fn zones_of_servers<'a>(contents: &[Content], cut: &str, served: &'a [String]) -> BTreeSet<&'a str> {
    let servers = contents.iter().flat_map(|content| content.servers_of(cut));
    let origins = servers.filter_map(|server| longest(&server, served.iter().map(String::as_str)));
    let is_read = |origin: &str| contents.iter().any(|content| content.origin == origin);
    origins.filter(|origin| !is_read(origin)).take(MOST_SERVERS).collect()
}

fn whole(name: &str) -> Result<Name, StoreError> {
    document::name(name).map_err(StoreError::Corrupt)
}

/// A zone as it is written, with the objects that its names come from; `None` if it is not written. For a reader of some pools it has no
/// records of objects that the reader does not see.
async fn load(
    driver: &Driver,
    estate: &Estate,
    origin: &str,
    pools: Pools<'_>,
) -> Result<Option<Content>, StoreError> {
    let store = &driver.store;
    let Some(row) = store.zones(&[origin.to_owned()]).await?.pop() else { return Ok(None) };
    let document = DnsZone::decode(row.body.as_slice())
        .map_err(|error| StoreError::Corrupt(format!("zone {origin}: {error}")))?;
    let default = estate.default_domain().map(|domain| domain.name.as_str());
    let sources = if origin == internal_domain(&estate.settings) {
        Sources::Internal
    } else if origin == catalog(&estate.settings) {
        Sources::Catalog
    } else if let Some(domain) = estate.domains.iter().find(|domain| domain.name == origin) {
        let wanted = NameSources { domain: Some(origin), networks: None, default, pools };
        let names = store.name_sources(&wanted).await?;
        let mut declared = Vec::new();
        for record in store.records_of(domain.uid).await? {
            // A record that cannot be read is left out of the zone as well.
            if let Ok(spec) = serde_json::from_str::<DnsRecordSpec>(&record.spec) {
                declared.push((record.name, spec));
            }
        }
        Sources::Domain { names, declared }
    } else {
        let Some(zone) = estate.reverse_zones().into_iter().find(|zone| zone.origin == origin) else {
            return Ok(None);
        };
        let networks = networks(&zone, &estate.nets_of(&zone));
        let wanted = NameSources { domain: None, networks: Some(&networks), default, pools };
        Sources::Reverse { names: store.name_sources(&wanted).await?, zone }
    };
    let mut content =
        Content { origin: origin.to_owned(), serial: row.serial, since: row.updated_at, document, sources };
    if pools.is_some() {
        content.hide();
    }
    Ok(Some(content))
}

/// The dynamic range of a computed name, and the lease of its address.
async fn computed(
    driver: &Driver,
    owner: &str,
    data: &str,
    pools: Pools<'_>,
) -> Result<Vec<NameSource>, StoreError> {
    let address = data.parse().ok().or_else(|| wire::address_of(owner));
    let Some(address) = address else { return Ok(Vec::new()) };
    let Some(name) = driver.store.dynamic_range_of(address).await? else { return Ok(Vec::new()) };
    let lease = AddressQuery {
        subnet: None,
        address: Some(address),
        source: Some(AddressSource::Lease.as_str()),
        pools,
        after: None,
        limit: 1,
    };
    let lease = driver.store.taken_addresses(&lease).await?.entries.pop().map(|lease| {
        let client = lease.machine.or(lease.device).or(lease.mac).unwrap_or_default();
        let own = lease.hostname.map(|it| format!(", which calls itself {it:?}")).unwrap_or_default();
        format!("leased to {client}{own}")
    });
    Ok(vec![NameSource { kind: "IpRange".to_owned(), name, note: lease }])
}

/// Similar names that exist, for a name that may be misspelt.
fn near(
    estate: &Estate,
    contents: &[Content],
    ending: &Ending,
    name: &str,
    elsewhere: &[&str],
) -> Vec<String> {
    match ending {
        Ending::NoName => {
            let Some(origin) = longest(name, contents.iter().map(|it| it.origin.as_str())) else {
                return Vec::new();
            };
            let Some(content) = contents.iter().find(|it| it.origin == origin) else { return Vec::new() };
            let own = name.strip_suffix(origin).unwrap_or_default().trim_end_matches('.');
            let owners: BTreeSet<&str> = content.owners().filter(|it| *it != own).collect();
            let near = similar(own, owners, MOST_NEAR);
            near.into_iter().map(|near| format!("{near}.{origin}")).collect()
        }
        Ending::Elsewhere(_) if longest(name, elsewhere.iter().copied()).is_none() => {
            let mut rest = name;
            while let Some((_, domain)) = rest.split_once('.') {
                let near = similar(domain, estate.domains.iter().map(|it| it.name.as_str()), MOST_NEAR);
                // One label stands for too little.
                if !near.is_empty() && domain.contains('.') {
                    return near.into_iter().map(|it| format!("Domain {it}")).collect();
                }
                rest = domain;
            }
            Vec::new()
        }
        _ => Vec::new(),
    }
}

/// The sort of an answer, its words, and the servers that racks ask.
fn words(
    estate: &Estate,
    ending: &Ending,
    name: &str,
    elsewhere: &[&str],
    contents: &[Content],
    records: &[NameRecord],
) -> (NameOutcome, String, Vec<IpAddr>) {
    let zone = longest(name, contents.iter().map(|it| it.origin.as_str())).unwrap_or_default();
    let refused =
        estate.domains.iter().find(|it| is_internal(&estate.settings, &it.name) && is_below(name, &it.name));
    let refused = refused.map(|domain| {
        let internal = internal_domain(&estate.settings);
        format!("; Domain {} is not served, because {internal} is the region's own domain", domain.name)
    });
    let refused = refused.unwrap_or_default();
    let own = |outcome, words: String| (outcome, format!("{words}{refused}"), Vec::new());
    match ending {
        Ending::Answered => {
            let wildcard = records.iter().find(|it| it.owner == name).and_then(|it| it.wildcard.as_ref());
            let made = wildcard.map(|star| format!(", of the wildcard {star}")).unwrap_or_default();
            let has = |types: &[&str]| records.iter().any(|it| types.contains(&it.rtype.as_str()));
            let lacks = match has(&["A", "AAAA", "PTR"]) {
                true => "",
                false => "; it has no address, so queries for A and AAAA get no data",
            };
            own(NameOutcome::Answered, format!("zone {zone} answers for {name}{made}{lacks}"))
        }
        Ending::NoData => {
            let words = format!(
                "{name} is in zone {zone} and has no records, only names below it: queries get no data (NODATA)"
            );
            own(NameOutcome::NoData, words)
        }
        Ending::NoName => own(
            NameOutcome::NoName,
            format!("zone {zone} has no name {name}: queries get \"no such name\" (NXDOMAIN)"),
        ),
        Ending::AliasLoop(target) => own(
            NameOutcome::NoData,
            format!(
                "the alias of {name} leads to {target} again, so no address is found: change one of these records"
            ),
        ),
        Ending::Delegated(domain, servers) => {
            let asked = match servers.is_empty() {
                true => {
                    "the servers of upstream_dns, because the zone has no address of its servers".to_owned()
                }
                false => list(servers),
            };
            let words =
                format!("zone {zone} delegates {domain} to other servers: racks ask {asked}, {ON_BEHALF}");
            (NameOutcome::Delegated, words, servers.clone())
        }
        Ending::NotWritten(origin) => own(
            NameOutcome::NotWritten,
            format!(
                "racks answer for {origin}, and its zone is not written yet: ask again in a moment; if it stays so, see the region's log"
            ),
        ),
        Ending::Elsewhere(_) => match longest(name, elsewhere.iter().copied()) {
            Some(domain) => {
                let servers = estate.domains.iter().find(|it| it.name == domain);
                let servers: Vec<IpAddr> = servers.map(|it| it.spec.forward_to.to_vec()).unwrap_or_default();
                let words = format!(
                    "Domain {domain} is declared and is not authoritative: racks ask {} (its forward_to), {ON_BEHALF}",
                    list(&servers)
                );
                (NameOutcome::Forwarded, words, servers)
            }
            None => {
                let servers: Vec<IpAddr> = estate.settings.upstream_dns.iter().flatten().copied().collect();
                let asked = match servers.is_empty() {
                    true => "the servers in /etc/resolv.conf of their own hosts".to_owned(),
                    false => format!("{} (upstream_dns of the Settings)", list(&servers)),
                };
                let words = format!("{name} is in no declared Domain: racks ask {asked}, {ON_BEHALF}");
                (NameOutcome::Upstream, words, servers)
            }
        },
    }
}

fn list(servers: &[IpAddr]) -> String {
    servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
