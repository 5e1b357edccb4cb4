//! The links to the regions: enrolment, one stream to each region process, facts out, concerns and commands in.
//!
//! The rack dials every region of its list, and dials it again with a growing pause when its link ends. All regions may
//! send concerns and power commands; old ones are refused by [`concern`](crate::concern) and [`epochs`](crate::epochs).
//! Facts leave on one link at a time, so that they arrive in order.
//!
//! A link to a region whose incarnation was replaced is ended at once. Facts that were not acknowledged stay in the
//! spool and leave on the next link. Acknowledged facts are lost with the old incarnation, and so are all of its
//! changes since the backup that the new one was made from.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use basalt_proto::LINK;
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;

use crate::concern::store::ConcernStore;
use crate::dhcp::Dhcp;
use crate::epochs::Epochs;
use crate::facts::health;
use crate::identity::{Identity, IdentityError, Membership};
use crate::logs::Logs;
use crate::power::Power;
use crate::settings::Settings;
use crate::spool::writer::Facts;

pub mod enrol;
mod hello;
pub mod join;
pub mod origin;
mod renew;
pub mod stream;
pub mod tls;

/// The pause before the first redial; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A link that lasted this long starts over with the shortest pause.
const LASTED: Duration = Duration::from_secs(5);

/// The services and state that links use.
#[derive(Debug)]
pub struct Context {
    /// The rack's identity.
    pub identity: Arc<Identity>,
    /// The rack's settings, with the interfaces and addresses that it serves.
    pub settings: Arc<Settings>,
    /// The rack's concerns.
    pub concerns: Arc<ConcernStore>,
    /// The incarnation in force, and the epochs of BMCs.
    pub epochs: Arc<Epochs>,
    /// The arbiter of the BMCs.
    pub power: Arc<Power>,
    /// The spool of facts.
    pub facts: Facts,
    /// The log lines that the rack received.
    pub logs: Logs,
    /// The DHCP server. It is told when a region has stored its leases.
    pub dhcp: Arc<Dhcp>,
    /// The source of blobs. It has the channels of all living links.
    pub origin: Arc<origin::RegionOrigin>,
    /// The rack's membership, as stored on disk.
    pub membership: Arc<Mutex<Membership>>,
    /// The lock of the link that sends facts: only one link does at a time. The value is the number of the next fact.
    pub delivery: Arc<Mutex<u64>>,
    /// Cancelled when a region says that this rack was deleted.
    pub deleted: CancellationToken,
}

/// Keeps links to all regions until cancelled.
pub async fn run(context: Arc<Context>, stop: CancellationToken) {
    let Membership { name, rack_uid, regions, .. } = context.membership.lock().await.clone();
    let (regions, mut changed) = watch::channel(regions.into_iter().collect::<BTreeSet<String>>());
    let regions = Arc::new(regions);
    let mut links: BTreeMap<String, CancellationToken> = BTreeMap::new();
    loop {
        let wanted = changed.borrow_and_update().clone();
        if let Err(error) = keep(&context, &wanted).await {
            tracing::warn!(%error, "the list of regions cannot be kept");
        }
        for address in &wanted {
            if !links.contains_key(address) {
                let ended = stop.child_token();
                links.insert(address.clone(), ended.clone());
                let me = stream::Me {
                    rack_uid: rack_uid.clone(),
                    name: name.clone(),
                    regions: Arc::clone(&regions),
                };
                tokio::spawn(redial(Arc::clone(&context), address.clone(), me, ended));
            }
        }
        links.retain(|address, ended| {
            let keep = wanted.contains(address);
            if !keep {
                ended.cancel();
            }
            keep
        });
        tokio::select! {
            () = stop.cancelled() => return,
            changed = changed.changed() => if changed.is_err() { return },
        }
    }
}

async fn keep(context: &Context, regions: &BTreeSet<String>) -> Result<(), IdentityError> {
    let mut membership = context.membership.lock().await;
    membership.regions = regions.iter().cloned().collect();
    context.identity.keep(&membership)
}

async fn redial(context: Arc<Context>, address: String, me: stream::Me, stop: CancellationToken) {
    let mut pause = FIRST_PAUSE;
    let (mut failing, mut is_told) = (false, false);
    tokio::select! {
        () = stop.cancelled() => return,
        () = hello::ready(&context.settings) => {}
    }
    while !stop.is_cancelled() {
        let started = tokio::time::Instant::now();
        let ended = tokio::select! {
            () = stop.cancelled() => break,
            ended = stream::run(&context, &address, &me) => ended,
        };
        let was_linked = context.origin.is_linked(&address);
        context.origin.remove(&address);
        let Err(error) = ended;
        if matches!(error, stream::LinkError::Deleted) {
            tracing::error!(region = %address, "{error}");
            context.deleted.cancel();
            return;
        }
        let lasted = started.elapsed() > LASTED;
        if lasted || !failing {
            tracing::warn!(region = %address, %error, "link to the region ended; dialling again");
        }
        // The time of the first failure shows since when the region does not answer.
        if was_linked || !is_told {
            context.facts.tell(health(&format!("{LINK}{address}"), Some(&error.to_string())));
            is_told = true;
        }
        failing = !lasted;
        pause = if lasted { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(spread(pause)) => {}
        }
    }
    context.origin.remove(&address);
}

/// A random part of the pause, between half and all of it, so that racks do not dial in step.
fn spread(pause: Duration) -> Duration {
    let mut byte = [0];
    aws_lc_rs::rand::fill(&mut byte).ok();
    pause / 2 + pause / 2 * u32::from(byte[0]) / 255
}
