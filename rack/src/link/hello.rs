//! The hello of a rack, repeated when its addresses change or when it can no longer write to its disk.
//!
//! Regions divide subnets among the racks that have addresses in them, so a change moves address blocks between racks.
//! Therefore the rack waits, at its start, for an interface without an address, and reports a change only after it has
//! lasted.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use basalt_proto::rack_v1::{FromRack, Hello, Serves, from_rack};
use tokio::sync::mpsc;

use super::Context;
use super::stream::{LinkError, Me, send};
use crate::facts::health;
use crate::interfaces;
use crate::settings::Settings;

/// The longest wait for interfaces without an address.
const READY: Duration = Duration::from_secs(10);
/// The interval of the checks during that wait.
const SOON: Duration = Duration::from_millis(250);
/// The interval of the checks for changed addresses. A change is reported when two checks in a row see it.
const LOOK: Duration = Duration::from_secs(5);

/// Ends when each served interface has an address, or when the wait is over.
pub(super) async fn ready(settings: &Settings) {
    let wait = async {
        while interfaces::addresses(&settings.interfaces).is_ok_and(|(_, each_has_one)| !each_has_one) {
            tokio::time::sleep(SOON).await;
        }
    };
    if tokio::time::timeout(READY, wait).await.is_err() {
        tracing::warn!(interfaces = ?settings.interfaces, "not each of them has an address: regions are told of what there is");
    }
}

/// The hello of this rack at this moment.
///
/// # Errors
/// `io::Error`: the interfaces cannot be listed; then no hello is sent.
pub(super) fn of(context: &Context, me: &Me) -> io::Result<Hello> {
    Ok(Hello {
        rack_uid: me.rack_uid.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        interfaces: interfaces::describe()?,
        held: context.concerns.held(),
        spki_sha256: context.identity.spki_sha256.clone(),
        name: me.name.clone(),
        serves: Some(serves(&context.settings)?),
        cannot_write: context.facts.disk().problem().unwrap_or_default(),
        gives_no_address: context.facts.disk().gives_no_address(),
    })
}

fn serves(settings: &Settings) -> io::Result<Serves> {
    let (clients, _) = interfaces::addresses(&settings.interfaces)?;
    Ok(Serves {
        clients: clients.iter().map(IpAddr::to_string).collect(),
        files: settings.addresses.iter().map(ToString::to_string).collect(),
    })
}

/// Sends a new hello whenever the addresses or the state of the disk differ from the last one, until the link ends.
pub(super) async fn again(
    context: &Context,
    me: &Me,
    mut told: Hello,
    outbox: &mpsc::Sender<FromRack>,
) -> Result<Infallible, LinkError> {
    let mut before = told.clone();
    loop {
        tokio::time::sleep(LOOK).await;
        if context.facts.disk().problem().is_some() {
            // The result of a write shows if facts can be written again.
            let _ = context.facts.record(health(basalt_proto::DISK, None)).await;
        }
        let now = match of(context, me) {
            Ok(now) => now,
            Err(error) => {
                tracing::warn!(%error, "this host's interfaces cannot be listed");
                continue;
            }
        };
        let has_lasted = are_equal(&now, &before);
        if has_lasted && !are_equal(&now, &told) {
            tracing::info!(serves = ?now.serves, cannot_write = now.cannot_write, "where it answers, or what it can write, has changed; the region is told");
            send(outbox, from_rack::Message::Hello(now.clone())).await?;
            told = now.clone();
        }
        before = now;
    }
}

fn are_equal(one: &Hello, other: &Hello) -> bool {
    let told = |it: &Hello| (it.interfaces.clone(), it.serves.clone(), it.cannot_write.clone());
    told(one) == told(other)
}
