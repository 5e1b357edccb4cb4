//! Entries of a machine. An entry is a machine's part of one concern. Its scope is the set of racks that receive it.
//!
//! | entry | content | scope |
//! | --- | --- | --- |
//! | `known` | name, MACs, networks; no secret | every rack |
//! | `boot` | the armed attempt with task and key, or a power-off order | the racks of the machine's networks; if unknown, all boot racks |
//! | `power` | the BMC with its password | the one rack that controls the BMC |
//!
//! A machine without a `boot` entry boots from its disk.

use std::collections::BTreeSet;
use std::net::IpAddr;

use basalt_api::kinds::{self, Architecture, BmcTls};
use basalt_api::values::{Attempt, MachineId, RackId};
use basalt_db::{BootClaim, EntryState, NewEntry, Store, StoreError, WorkLease};
use basalt_engine::Plan;
use basalt_engine::plan::BootAction;
use basalt_engine::steps::StepId;
use basalt_proto::rack_v1::bmc::Trust;
use basalt_proto::rack_v1::{Bmc, BmcWebhook, BootMachine, EphemeralBoot, PowerOffBoot, boot_machine};
use prost::Message;
use serde_json::{Map, Value, json};

use crate::driver::machine::Loaded;
use crate::driver::machine::entries::{BOOT, KNOWN, POWER, action_of, power_holder};
use crate::driver::status::to_json;
use crate::driver::topology::estate::Estate;
use crate::driver::topology::network::{self, Net};

/// An entry that the plan wants.
struct Wanted {
    concern: &'static str,
    says: Value,
    body: Option<Vec<u8>>,
    racks: BTreeSet<RackId>,
}

/// Writes the entries of a machine that differ from the plan's. Returns true if the boot action has changed and no rack holds the entry:
/// then no rack's answer would wake the machine, so the caller must plan again.
///
/// # Errors
/// Fails if the database cannot be read or written.
pub async fn write(
    store: &Store,
    lease: &WorkLease,
    estate: &Estate,
    loaded: &Loaded,
    planned: &Plan,
) -> Result<bool, StoreError> {
    let object = loaded.input.uid.into();
    let known = known(estate, loaded)?;
    let is_news = differs(loaded, KNOWN, &known.says, &known.racks);
    let told = loaded.entries.get(KNOWN).map(|state| &state.says);
    let has_options = told.into_iter().chain([&known.says]).any(|says| says.get("dhcp").is_some());
    let mut wanted = Vec::new();
    wanted.extend(is_news.then_some(known));
    wanted.extend(power(store, estate, loaded).await?);
    wanted.extend(boot(store, estate, loaded, planned).await?);
    for Wanted { concern, says, body, racks } in &wanted {
        let (says, body) = (says, body.as_deref());
        store.put_entry(&NewEntry { concern, object, epoch: lease.epoch, says, body, racks }).await?;
    }
    match (is_news, has_options) {
        // Each rack's own concern has the DHCP options of these MACs.
        (true, true) => store.enqueue_kind("Rack").await?,
        (true, false) => store.enqueue_any("Rack").await?,
        (false, _) => {}
    }
    let has_holder = loaded.entries.get(BOOT).is_some_and(|state| !state.holders.is_empty());
    Ok(wanted.iter().any(|it| it.concern == BOOT && it.racks.is_empty()) && !has_holder)
}

fn differs(loaded: &Loaded, concern: &str, says: &Value, racks: &BTreeSet<RackId>) -> bool {
    loaded.entries.get(concern).is_none_or(|state| state.says != *says || state.scope() != *racks)
}

/// The racks that had the entry when its attempt was claimed. The agent ends its session with the rack where it began, even when that rack
/// no longer serves the network.
fn of_claimed(loaded: &Loaded, boot: BootAction) -> BTreeSet<RackId> {
    let BootAction::Ephemeral(attempt) = boot else { return BTreeSet::new() };
    let state = loaded.entries.get(BOOT).filter(|state| action_of(state) == Some(boot));
    let claimed = loaded.input.facts.claims.contains_key(&attempt);
    state.filter(|_| claimed).map(EntryState::scope).unwrap_or_default()
}

/// The part of a machine's entries that all racks receive. It has no action.
fn identity(estate: &Estate, loaded: &Loaded) -> BootMachine {
    let input = &loaded.input;
    BootMachine {
        machine_uid: input.uid.to_string(),
        name: input.name.clone(),
        macs: input.spec.boot_macs.iter().map(ToString::to_string).collect(),
        networks: networks(&estate.nets, &loaded.stands_at),
        architecture: input.spec.architecture.to_string(),
        action: None,
    }
}

fn said(machine: &BootMachine) -> Map<String, Value> {
    let BootMachine { name, macs, networks, architecture, .. } = machine;
    let says: [(&str, Value); 4] = [
        ("name", name.as_str().into()),
        ("macs", macs.as_slice().into()),
        ("networks", networks.as_slice().into()),
        ("architecture", architecture.as_str().into()),
    ];
    says.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn known(estate: &Estate, loaded: &Loaded) -> Result<Wanted, StoreError> {
    let machine = identity(estate, loaded);
    let mut says = said(&machine);
    let options = &loaded.input.spec.dhcp_options;
    if !options.is_empty() {
        let found =
            loaded.inventory.iter().flat_map(|it| it.interfaces.values()).map(|it| it.mac.to_string());
        let found: BTreeSet<String> = found.collect();
        says.insert("dhcp".to_owned(), json!({ "options": to_json(options)?, "found": found }));
    }
    Ok(Wanted {
        concern: KNOWN,
        says: says.into(),
        body: Some(machine.encode_to_vec()),
        racks: BTreeSet::new(),
    })
}

/// The `boot` entry, if it differs from the stored one.
async fn boot(
    store: &Store,
    estate: &Estate,
    loaded: &Loaded,
    planned: &Plan,
) -> Result<Option<Wanted>, StoreError> {
    let (uid, machine) = (loaded.input.uid, identity(estate, loaded));
    let claim = claim_to_tell(loaded, planned.boot);
    let (mut says, mut racks) = (Map::new(), BTreeSet::new());
    if planned.boot != BootAction::Local {
        says = said(&machine);
        racks = network::boot_racks(&estate.nets, &estate.racks, &loaded.stands_at)
            .into_iter()
            .map(|rack| rack.uid)
            .collect();
        racks.extend(of_claimed(loaded, planned.boot));
    }
    says.insert("action".to_owned(), to_json(&planned.boot)?);
    if let Some(claim) = &claim {
        says.insert("claim".to_owned(), to_json(claim)?);
    }
    let checkpoint = checkpoint_to_tell(loaded, planned.boot);
    if let Some((seq, _)) = checkpoint {
        says.insert("checkpoint".to_owned(), seq.into());
    }
    let says = Value::from(says);
    if !differs(loaded, BOOT, &says, &racks) {
        return Ok(None);
    }
    let action = match planned.boot {
        BootAction::Local => return Ok(Some(Wanted { concern: BOOT, says, body: None, racks })),
        BootAction::PowerOff => boot_machine::Action::PowerOff(PowerOffBoot {}),
        BootAction::Ephemeral(attempt) => {
            match ephemeral(store, uid, loaded.input.spec.architecture, attempt, claim.as_ref()).await? {
                Some(boot) => {
                    let checkpoint = checkpoint.map(|(_, content)| content.to_string().into_bytes());
                    let boot = EphemeralBoot { checkpoint: checkpoint.unwrap_or_default(), ..boot };
                    boot_machine::Action::Ephemeral(boot)
                }
                None => return Ok(Some(Wanted { concern: BOOT, says, body: None, racks })),
            }
        }
    };
    let body = Some(BootMachine { action: Some(action), ..machine }.encode_to_vec());
    Ok(Some(Wanted { concern: BOOT, says, body, racks }))
}

/// The claim on the script that is booted. Without it, a rack that did not grant the claim would let the script run a second time.
fn claim_to_tell(loaded: &Loaded, boot: BootAction) -> Option<BootClaim> {
    let BootAction::Ephemeral(attempt) = boot else { return None };
    let mut scripts = loaded.input.records.iter().filter(|record| record.step == StepId::ArmScript);
    let claimed = loaded.input.facts.claims.get(&attempt)?;
    scripts
        .any(|record| record.attempt == Some(attempt))
        .then(|| BootClaim { attempt, boot_id: claimed.boot_id.clone() })
}

/// The latest checkpoint of the attempt that is booted, with its number. A rack that has not stored the
/// checkpoint itself needs it: otherwise the task would begin from its start.
fn checkpoint_to_tell(loaded: &Loaded, boot: BootAction) -> Option<(u64, &Value)> {
    let BootAction::Ephemeral(attempt) = boot else { return None };
    let seq = loaded.input.facts.checkpoints.get(&attempt)?.seq;
    let fact = loaded.facts.iter().find(|fact| fact.kind == "checkpoint" && fact.attempt == Some(attempt))?;
    Some((seq, &fact.body))
}

/// An attempt as it was armed, with its claim. `None` if the machine's declared architecture has changed since: no rack sends the armed
/// kernel, and the machine boots from its disk until the attempt is over.
async fn ephemeral(
    store: &Store,
    machine: MachineId,
    declared: Architecture,
    attempt: Attempt,
    claim: Option<&BootClaim>,
) -> Result<Option<EphemeralBoot>, StoreError> {
    let missing = || StoreError::Corrupt(format!("attempt {attempt} of machine {machine} has no record"));
    let rows = store.steps(machine.into(), 1000).await?;
    let row = rows.into_iter().find(|row| row.attempt == Some(attempt) && row.detail.get("task").is_some());
    let row = row.ok_or_else(missing)?;
    let armed = row.detail.get("architecture").and_then(|it| it.as_str());
    if armed.is_some_and(|armed| armed != declared.to_string()) {
        return Ok(None);
    }
    let key = store.attempt_key(machine, attempt).await?.ok_or_else(missing)?;
    let text = |part: &str| row.detail.get(part).and_then(|v| v.as_str()).unwrap_or_default().to_owned();
    let task = row.detail.get("task").ok_or_else(missing)?;
    let not_after = task.get("not_after_unix_ms").and_then(Value::as_i64).unwrap_or_default();
    Ok(Some(EphemeralBoot {
        attempt: attempt.get(),
        not_after_unix_ms: not_after,
        kernel_sha256: text("kernel"),
        initrd_sha256: text("initrd"),
        squashfs_sha256: text("squashfs"),
        kernel_options: text("kernel_options"),
        attempt_key: key.to_vec(),
        task_json: task.to_string().into_bytes(),
        step_key: row.step_key,
        claimed_by: claim.map(|claim| claim.boot_id.clone()).unwrap_or_default(),
        checkpoint: Vec::new(),
    }))
}

/// The `power` entry, if it differs from the stored one.
async fn power(store: &Store, estate: &Estate, loaded: &Loaded) -> Result<Option<Wanted>, StoreError> {
    let input = &loaded.input;
    let bmc = input.spec.bmc.clone().filter(|bmc| network::has_driver(bmc.driver));
    let Some(bmc) = bmc else {
        let (says, racks) = (json!({}), BTreeSet::new());
        let is_told = loaded.entries.contains_key(POWER) && differs(loaded, POWER, &says, &racks);
        return Ok(is_told.then_some(Wanted { concern: POWER, says, body: None, racks }));
    };
    let mut says = json!({ "generation": input.generation });
    if let (Some(account), Some(says)) = (input.bmc_account, says.as_object_mut()) {
        // The BMC's address and its certificate can change without a change of the spec.
        let certificate = bmc.tls.as_ref().and_then(|tls| tls.fingerprint);
        says.insert("account".to_owned(), to_json(&account)?);
        says.insert("address".to_owned(), to_json(&bmc.address)?);
        says.insert("certificate".to_owned(), to_json(&certificate)?);
    }
    let racks = estate.power_rack(&input.spec, power_holder(&loaded.entries)).map(|rack| rack.uid);
    let racks = racks.into_iter().collect();
    if !differs(loaded, POWER, &says, &racks) {
        return Ok(None);
    }
    let password = match input.bmc_account {
        Some(_) => store.bmc_password(input.uid).await?,
        None => store.open_secret(input.uid.into(), "/bmc/password").await?,
    };
    let k_g = match bmc.k_g {
        Some(_) => store.open_secret(input.uid.into(), "/bmc/k_g").await?,
        None => None,
    };
    let k_g = k_g.and_then(|text| kinds::bmc_key(std::str::from_utf8(&text).ok()?).ok());
    let bmc = Bmc {
        machine_uid: input.uid.to_string(),
        driver: bmc.driver.to_string(),
        address: bmc.address.map(|a| a.to_string()).unwrap_or_default(),
        port: bmc.port.map_or(0, u32::from),
        username: bmc.username.unwrap_or_default(),
        password: password.map(|p| String::from_utf8_lossy(&p).into_owned()).unwrap_or_default(),
        cipher_suite: bmc.options.cipher_suite.map_or(0, u32::from),
        generation: input.generation.get(),
        system: bmc.options.system.unwrap_or_default(),
        trust: bmc.tls.and_then(trust),
        privilege: bmc.options.privilege.map(|it| it.to_string()).unwrap_or_default(),
        account: input.bmc_account.map_or(0, Attempt::get),
        webhook: bmc.webhook.map(webhook),
        k_g: k_g.map(Vec::from).unwrap_or_default(),
    };
    Ok(Some(Wanted { concern: POWER, says, body: Some(bmc.encode_to_vec()), racks }))
}

fn webhook(webhook: kinds::BmcWebhook) -> BmcWebhook {
    let kinds::BmcWebhook { on, off, status, cycle, soft_off, says_on, says_off, plain } = webhook;
    let (cycle, soft_off) = (cycle.unwrap_or_default(), soft_off.unwrap_or_default());
    BmcWebhook { on, off, status, cycle, soft_off, says_on, says_off, plain }
}

/// The certificate that a BMC must have; `None`: the first one that the rack sees. The first rule that applies counts. Validation has
/// refused contradictions.
fn trust(tls: BmcTls) -> Option<Trust> {
    Some(match (tls.verify, tls.fingerprint, tls.ca) {
        (false, ..) => Trust::Unverified(true),
        (true, Some(sha256), _) => Trust::Sha256(sha256.bytes().to_vec()),
        (true, None, Some(ca)) => Trust::Ca(ca),
        (true, None, None) => Trust::HostRoots(true),
    })
}

/// All subnets of the VLANs on which machines boot and in which one of these addresses is.
fn networks(nets: &[Net], stands_at: &[IpAddr]) -> Vec<String> {
    let networks: BTreeSet<_> =
        network::nets_at(nets, stands_at).map(|net| net.subnet.cidr.to_string()).collect();
    networks.into_iter().collect()
}
