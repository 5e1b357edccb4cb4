//! The script of a machine: `GET /ipxe?mac=MAC`, and the files that GRUB and PXELINUX [request](crate::config).
//!
//! A script with a boot token is given under two conditions:
//!
//! 1. The client's address is the one in a boot exchange of the MAC that is less than two minutes old. If another
//!    DHCP server leased that address, this host's ARP table must have the MAC for it.
//! 2. The address is in a network of the machine, or the networks of the machine are unknown.
//!
//! Other clients get 403; boot loaders then go on to the next boot device.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use basalt_dhcp::Mac;
use http::{StatusCode, header};
use serde::Deserialize;

use super::{Ends, Problem, Web};
use crate::attempts::Over;
use crate::boot::{Armed, BootTable, Decision, Stranger, Why};
use crate::config::{self, Config};
use crate::facts::About;
use crate::neighbours;
use crate::presence::BootExchange;
use crate::script::{Language, Scene, Script, render};
use crate::strangers::Turn;
use crate::token::BootToken;
use crate::trace::{Asker, Entry, reason};

/// The longest time from a machine's script to its claim, in milliseconds. Slow firmware loads hundreds of megabytes
/// meanwhile.
const TOKEN_LIFE_MS: i64 = 30 * 60 * 1000;

/// A request for a script.
#[derive(Debug, Clone, Copy)]
pub struct Asks {
    /// The machine's hardware address, as the request names it.
    pub mac: Mac,
    /// The address of the client.
    pub peer: IpAddr,
    /// This rack's HTTP server, as the machine reaches it.
    pub rack: SocketAddr,
    /// The language of the boot loader.
    pub language: Language,
    /// The protocol of the request: `http` or `tftp`.
    pub service: &'static str,
}

/// The query of `GET /ipxe`.
#[derive(Debug, Deserialize)]
pub struct Asked {
    mac: String,
}

/// `GET /ipxe?mac=MAC`
pub async fn ipxe(
    State(web): State<Arc<Web>>,
    Extension(ends): Extension<Ends>,
    Query(asked): Query<Asked>,
) -> Result<Response, Problem> {
    let mac: Mac = asked.mac.parse().map_err(|error: basalt_dhcp::BadMac| {
        Problem::new(StatusCode::BAD_REQUEST, "invalid", error.to_string())
    })?;
    answer(&web, &ends, mac, Language::Ipxe)
}

/// `GET /grub/FILE`
pub async fn grub(
    State(web): State<Arc<Web>>,
    Extension(ends): Extension<Ends>,
    Path(file): Path<String>,
) -> Result<Response, Problem> {
    match config::named(&format!("grub/{file}")) {
        Some(Config::Grub) => Ok(plain(config::GRUB.to_owned())),
        Some(Config::Script(language, mac)) => answer(&web, &ends, mac, language),
        None => Err(Problem::new(StatusCode::NOT_FOUND, "not_found", "this rack has no such file")),
    }
}

fn answer(web: &Arc<Web>, ends: &Ends, mac: Mac, language: Language) -> Result<Response, Problem> {
    let asks = Asks { mac, peer: ends.peer.ip(), rack: ends.local, language, service: "http" };
    script(web, asks).map(plain).map_err(|reason| Problem::new(StatusCode::FORBIDDEN, "forbidden", reason))
}

fn plain(text: String) -> Response {
    let headers = [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::CACHE_CONTROL, "no-store")];
    (headers, text).into_response()
}

/// Renders a script, and reports the request.
///
/// # Errors
/// The code of the refusal.
pub fn script(web: &Web, asks: Asks) -> Result<String, &'static str> {
    let Asks { mac, rack, language, service, .. } = asks;
    let table = web.boot.borrow().clone().unwrap_or_default();
    let named = table.machine(mac).map(|machine| machine.name.clone()).filter(|name| !name.is_empty());
    let name = named.unwrap_or_else(|| mac.to_string());
    let scene = Scene { name: &name, mac, rack, spki: &web.spki_sha256 };
    let peer = asks.peer.to_string();
    web.facts.meters().asked(service);
    let trace = |answered: &str, reason| {
        let asked = format!("script for {}", language.name());
        let asker = if language == Language::Ipxe { Asker::Ipxe } else { Asker::Unknown };
        let address = Some(asks.peer);
        web.saw(
            mac,
            Entry {
                service,
                asker,
                asked: asked.into(),
                answered: answered.into(),
                reason,
                address,
                opens: false,
            },
        );
    };
    let clock = web.facts.clock();
    let firmware = web.presence.fresh(mac, asks.peer, clock.now()).and_then(|it| it.firmware);
    let decision = match table.decide(mac, asks.peer, firmware, &web.attempts, clock.unix_now()) {
        // Without an admitted boot exchange, the undeclared machine takes no turn.
        Decision::Stranger(stranger) if exchange(web, asks.peer, mac).is_err() => {
            Decision::Ephemeral(stranger.armed)
        }
        Decision::Stranger(stranger) => turn(web, mac, stranger),
        other => other,
    };
    let (about, answer, script) = match decision {
        Decision::Ephemeral(armed) => {
            let about = About::attempt(mac, &armed);
            match admitted(web, &table, asks.peer, mac, &armed) {
                Ok(token) => {
                    fetch_ahead(web, &armed);
                    trace(&format!("ephemeral environment, attempt {}", armed.boot.attempt), None);
                    let script = Script::Ephemeral { boot: armed.boot, token: &token };
                    (about, "ephemeral", render(language, scene, &script))
                }
                Err((code, reason)) => {
                    tracing::warn!(machine = %about.machine_uid, %mac, %peer, reason, "boot script refused");
                    web.facts.tell(about.requested(service, "script", &format!("refused: {reason}"), &peer));
                    trace(&format!("refused: {reason}"), Some(code));
                    return Err(reason);
                }
            }
        }
        Decision::Local(why) => {
            let script = Script::Local { why: why.words() };
            let reason = match why {
                Why::OtherArchitecture(_) => reason::OTHER_ARCHITECTURE,
                // The racks of the machine's own networks have its task, if there is one.
                _ if !table.may_be_at(mac, asks.peer) => reason::WRONG_NETWORK,
                _ => reason::NOTHING_TO_DO,
            };
            trace(&format!("{name} {}", why.words()), Some(reason));
            (About::mac(mac, Some(&table)), "local", render(language, scene, &script))
        }
        Decision::Stranger(_) | Decision::Wait => {
            trace("to ask again: other undeclared machines are inspected first", None);
            (About::mac(mac, Some(&table)), "wait", render(language, scene, &Script::Wait))
        }
        Decision::PowerOff => {
            trace("power off", None);
            (About::mac(mac, Some(&table)), "power_off", render(language, scene, &Script::PowerOff))
        }
    };
    tracing::info!(machine = %about.machine_uid, %mac, %peer, answer, "boot script");
    web.facts.tell(about.requested(service, "script", answer, &peer));
    Ok(script)
}

/// Decides for an undeclared machine by its turn.
fn turn<'a>(web: &Web, mac: Mac, stranger: Stranger<'a>) -> Decision<'a> {
    let Stranger { armed, vlan, at_once } = stranger;
    // Without a region, a result could not be delivered.
    if !web.regions.as_ref().is_some_and(|it| it.is_any_linked()) {
        return Decision::Local(Why::NoRegion);
    }
    match web.strangers.ask(mac, vlan, at_once, web.facts.clock().now()) {
        Turn::Begins => match web.attempts.renew(&armed.id) {
            Ok(()) => Decision::Ephemeral(armed),
            Err(error) => {
                tracing::error!(%mac, %error, "file `attempts` cannot be written; the machine boots its disk");
                Decision::Local(Why::LookedInto)
            }
        },
        Turn::GoesOn => match web.attempts.over(&armed.id) {
            Some(Over::Finished) => Decision::Local(Why::LookedInto),
            Some(Over::Fenced) => Decision::Local(Why::Fenced),
            None => Decision::Ephemeral(armed),
        },
        Turn::Waits => Decision::Wait,
        Turn::Had => Decision::Local(Why::LookedInto),
        Turn::GivesUp => Decision::Local(Why::TooMany),
    }
}

/// A token, if this client may have one; otherwise the code and the text of the refusal.
fn admitted(
    web: &Web,
    table: &BootTable,
    peer: IpAddr,
    mac: Mac,
    armed: &Armed<'_>,
) -> Result<String, (&'static str, &'static str)> {
    if !table.may_be_at(mac, peer) {
        return Err((reason::WRONG_NETWORK, "the machine does not stand in the network of this address"));
    }
    token(web, peer, mac, armed).map_err(|why| (reason::TOKEN_REFUSED, why))
}

/// The boot exchange of a MAC, if this client made it.
fn exchange(web: &Web, peer: IpAddr, mac: Mac) -> Result<BootExchange, &'static str> {
    let exchange = web
        .presence
        .fresh(mac, peer, web.facts.clock().now())
        .ok_or("no boot exchange by DHCP with this MAC in the last two minutes")?;
    if peer != exchange.address {
        return Err("the request does not come from the address leased to this MAC");
    }
    // Another server leased the address; this rack only saw the client's message about it. So the kernel's ARP table
    // must confirm it.
    if !exchange.leased && neighbours::mac_of(peer) != Some(mac) {
        return Err("the host at this address has another MAC");
    }
    Ok(exchange)
}

fn token(web: &Web, peer: IpAddr, mac: Mac, armed: &Armed<'_>) -> Result<String, &'static str> {
    let clock = web.facts.clock();
    let exchange = exchange(web, peer, mac)?;
    let boot = web.attempts.next_boot(&armed.id, exchange.number, clock.unix_now());
    // Counted from the exchange, so that a retry of the script gets exactly the same token.
    let expires = clock.unix(exchange.at).saturating_add(TOKEN_LIFE_MS).min(armed.boot.not_after_unix_ms);
    let expires_unix_ms = u64::try_from(expires).unwrap_or(0);
    Ok(BootToken { attempt: armed.boot.attempt, mac, boot, expires_unix_ms }.mint(&armed.boot.attempt_key))
}

/// Fetches the blobs that the machine will request next.
fn fetch_ahead(web: &Web, armed: &Armed<'_>) {
    for sha256 in [&armed.boot.kernel_sha256, &armed.boot.initrd_sha256, &armed.boot.squashfs_sha256] {
        let (blobs, sha256) = (Arc::clone(&web.blobs), sha256.clone());
        tokio::spawn(async move { blobs.get(&sha256).await.map(drop) });
    }
}
