//! The ephemeral environment, from its kernel command line to its end. It calls the agent's library in the same
//! order as `basalt-agent`, without the programs that real machines run.

use std::io::Read;

use basalt_agent::blob::{BlobError, BlobReader};
use basalt_agent::cmdline::BootConfig;
use basalt_agent::http::Client;
use basalt_agent::rack::{self, Session};
use basalt_agent::tls;
use basalt_agent::work::{Clock, Context};
use basalt_api::agent::{ClaimReply, ClaimRequest, TaskResult, Then};

use crate::event::{Event, Speaker};
use crate::fault::{Fault, Stage};
use crate::life::{Life, Stop};
use crate::{dhcp, task};

/// Runs the environment. Returns the reason why it stops.
pub(crate) fn run(life: &Life, cmdline: &str) -> Stop {
    match environment(life, cmdline) {
        Ok(stop) | Err(stop) => stop,
    }
}

/// Shows the error on the console for a while, and resets the machine.
fn restart(life: &Life, why: impl std::fmt::Display) -> Result<Stop, Stop> {
    life.refused(why)?;
    life.linger()?;
    Ok(Stop::Reset)
}

fn environment(life: &Life, cmdline: &str) -> Result<Stop, Stop> {
    let boot = match BootConfig::parse(cmdline) {
        Ok(boot) => boot,
        Err(error) => return restart(life, error),
    };
    life.stage(0, Stage::Initrd)?;
    if dhcp::lease(life, Speaker::Agent)?.is_none() {
        return restart(life, "the initrd got no address");
    }
    let tls = tls::pinned(boot.spki).map_err(|error| error.to_string());
    let client = match tls.and_then(|tls| Client::new(&boot.url, tls).map_err(|error| error.to_string())) {
        Ok(client) => client,
        Err(error) => return restart(life, error),
    };
    if let Some(root) = boot.root
        && let Err(error) = blob(life, &client, root, |_| {})?
    {
        return restart(life, error);
    }
    life.stage(0, Stage::Claim)?;
    let reply = match claim(life, &boot, &client)? {
        Ok(reply) => reply,
        Err(why) => return restart(life, why),
    };
    let attempt = reply.attempt;
    life.event(Event::Claimed { attempt })?;
    life.stage(attempt, Stage::Task)?;
    let session = Session::new(client, reply.session);
    let task = match session.task() {
        Ok(task) => task,
        Err(error) => return restart(life, error),
    };
    let context = Context {
        task: &task,
        session: &session,
        boot: &boot,
        clock: Clock::set(reply.now_unix_ms),
        again: reply.again,
        checkpoint: reply.checkpoint.as_deref(),
    };
    let result = task::perform(life, &context)?;
    life.stage(attempt, Stage::Result)?;
    let delivered = deliver(life, &session, &result)?;
    // The stage follows in any case: a rack that was killed in between may not know this boot any more.
    life.stage(attempt, Stage::Leave)?;
    if let Err(why) = delivered {
        return restart(life, why);
    }
    Ok(match task.then {
        Then::PowerOff => Stop::PowerOff,
        Then::Reboot => Stop::Reset,
    })
}

fn claim(life: &Life, boot: &BootConfig, client: &Client) -> Result<Result<ClaimReply, String>, Stop> {
    // Each read returns a new id.
    let boot_id = match std::fs::read_to_string("/proc/sys/kernel/random/uuid") {
        Ok(text) => text.trim().to_owned(),
        Err(error) => return Ok(Err(format!("no boot id: {error}"))),
    };
    let request = ClaimRequest {
        token: boot.token.clone(),
        boot_id,
        mac: life.options().mac.to_string(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let mut reply = rack::claim(client, &request).map_err(|error| error.to_string());
    if life.fault(|fault| fault == Fault::DuplicateClaim)?.is_some() {
        reply = rack::claim(client, &request).map_err(|error| format!("the claim's repetition: {error}"));
    }
    life.check()?;
    Ok(reply)
}

fn deliver(life: &Life, session: &Session, result: &TaskResult) -> Result<Result<(), String>, Stop> {
    let mut delivered = session.result(result).map_err(|error| error.to_string());
    if life.fault(|fault| fault == Fault::DuplicateResult)?.is_some() {
        delivered = session.result(result).map_err(|error| format!("the result's repetition: {error}"));
    }
    if delivered.is_ok() {
        life.event(Event::Delivered { attempt: result.attempt, outcome: result.outcome.clone() })?;
    }
    life.check()?;
    Ok(delivered)
}

/// Fetches a blob, checks its hash, and shows its bytes.
pub(crate) fn blob(
    life: &Life,
    client: &Client,
    sha256: [u8; 32],
    mut show: impl FnMut(&[u8]),
) -> Result<Result<u64, BlobError>, Stop> {
    let mut reader = BlobReader::new(client, sha256);
    let mut buffer = vec![0; 256 << 10];
    loop {
        life.check()?;
        let read = reader.read(&mut buffer);
        life.check()?;
        match read {
            Ok(0) => return Ok(Ok(reader.position())),
            Ok(read) => show(buffer.get(..read).unwrap_or_default()),
            Err(error) => {
                let unsaid =
                    || BlobError::Unavailable { hash: hex::encode(sha256), reason: error.to_string() };
                return Ok(Err(reader.take_error().unwrap_or_else(unsaid)));
            }
        }
    }
}
