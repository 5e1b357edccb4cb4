//! The account that a machine makes on its own BMC (docs/decisions/095-bmc-accounts.md).
//!
//! It decides when an account is wanted, when racks use it, and when it is no longer believed.

use std::net::IpAddr;

use basalt_api::agent::{self, BmcAccount as BmcAccountMade, BmcDriver, BmcEnd, BmcSetup, bmc_purpose};
use basalt_api::kinds::{
    Bmc, BmcAccountStatus, BmcAddressSource, BmcConfig, DetectedBmc, MachineSpec, PowerDriver, SettingsSpec,
};
use basalt_api::sealing;
use basalt_api::values::{Attempt, Sha256};
use basalt_db::{BmcAccount, BmcAccountState, BmcDestination, Fact, NewBmcAccount, Store, StoreError};
use basalt_engine::facts::{Facts, PowerOutcome, StepKey};
use basalt_engine::failures::PowerFailure;
use basalt_engine::steps::StepId;

use crate::driver::machine::bmc_destination::Seen;
use crate::driver::machine::{Loaded, bmc_destination};
use crate::driver::topology::network::Net;
use crate::racks::observed::Observed;

/// Longest password that IPMI 2.0 can carry, in bytes (§22.30).
const LONGEST_PASSWORD: usize = 20;
/// An account was made, and nobody knows its password.
const UNREADABLE: &str = "the password that the machine made cannot be read, since the region's seal key is another, or the result is damaged: `basalt recommission` makes another";

/// True: commissioning makes an account on the machine's BMC.
fn sets_up(spec: &MachineSpec) -> bool {
    match spec.commissioning.bmc {
        Some(config) => config == BmcConfig::SetUp,
        None => {
            let may = |driver| matches!(driver, PowerDriver::Ipmi | PowerDriver::Redfish);
            spec.bmc.as_ref().is_none_or(|bmc| may(bmc.driver) && bmc.username.is_none())
        }
    }
}

/// The declared fields of a BMC that matter to the account.
#[derive(Clone, Debug)]
pub struct DeclaredBmc {
    /// The destination of the next account.
    pub destination: BmcDestination,
    /// Commissioning makes an account.
    sets_up: bool,
    /// `bmc.driver`, if an account is made by it.
    driver: Option<BmcDriver>,
    /// `bmc.rotate`.
    rotate: u32,
    /// `bmc` has an account.
    has_account: bool,
}

impl DeclaredBmc {
    /// Takes them from the spec.
    #[must_use]
    pub fn of(spec: &MachineSpec) -> Self {
        let bmc = spec.bmc.as_ref();
        Self {
            destination: bmc_destination::declared(spec),
            sets_up: sets_up(spec),
            driver: bmc.and_then(|bmc| match bmc.driver {
                PowerDriver::Ipmi => Some(BmcDriver::Ipmi),
                PowerDriver::Redfish => Some(BmcDriver::Redfish),
                PowerDriver::Webhook | PowerDriver::Manual => None,
            }),
            rotate: bmc.map_or(0, |bmc| bmc.rotate),
            has_account: bmc.is_some_and(|bmc| bmc.username.is_some()),
        }
    }
}

/// A BMC as racks are to speak to it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InUse {
    /// None: nobody can log in to it.
    pub bmc: Option<Bmc>,
    /// The attempt by which the account was made; None: the account is declared.
    pub account: Option<Attempt>,
    /// The reason why the account that was made may not be sent to where the BMC is now, for `status.bmc.problem`.
    pub misdirected: Option<String>,
}

impl InUse {
    /// As the store has it.
    ///
    /// # Errors
    /// Fails if the database cannot be reached.
    pub async fn load(
        store: &Store,
        nets: &[Net],
        spec: &MachineSpec,
        account: Option<&BmcAccount>,
        facts: &Facts,
    ) -> Result<Self, StoreError> {
        let found = facts.inventory.as_ref().and_then(|seen| seen.inventory.bmc.as_ref());
        let is_declared = spec.bmc.as_ref().is_some_and(|bmc| bmc.address.is_some());
        let made_for = account.filter(|_| !is_declared).map(|account| &account.destination);
        let leased = match made_for.and_then(|it| Some((it.mac?, it.address.as_ref()?.ip()?))) {
            Some((mac, home)) => {
                let leases = store.current_leases(&[mac.to_string()]).await?;
                // Any host can copy a MAC address and get a lease, but not in the network of BMCs. Accept only a lease in that network.
                let home = nets.iter().find(|net| net.subnet.cidr.contains(home));
                let is_home = |it: &IpAddr| home.is_some_and(|net| net.subnet.cidr.contains(*it));
                leases.into_iter().map(|lease| lease.address).find(is_home)
            }
            None => None,
        };
        let system = found.and_then(|found| found.system.as_deref());
        let seen = Seen { found: found.and_then(bmc_destination::address), leased };
        Ok(Self::of(spec, account, seen, system))
    }

    /// Decides it. `system` is the machine's name in its Redfish service.
    fn of(spec: &MachineSpec, account: Option<&BmcAccount>, seen: Seen, system: Option<&str>) -> Self {
        let declared = |misdirected| {
            let bmc = spec.bmc.clone();
            let needs_account = |driver| matches!(driver, PowerDriver::Ipmi | PowerDriver::Redfish);
            let bmc = bmc.filter(|bmc| !needs_account(bmc.driver) || bmc.username.is_some());
            Self { bmc, account: None, misdirected }
        };
        let Some(account) = account.filter(|it| sets_up(spec) && it.state != BmcAccountState::Refused) else {
            return declared(None);
        };
        let mut bmc = spec.bmc.clone().unwrap_or_else(|| Bmc::new(driver(account.driver)));
        if bmc.driver != driver(account.driver) {
            return declared(None);
        }
        if let Err(why) = bmc_destination::direct(&mut bmc, account, seen) {
            return declared(Some(why));
        }
        bmc.username = Some(account.username.clone());
        bmc.password = None;
        // The account has the privilege that power needs, and no other.
        bmc.options.privilege = None;
        if bmc.driver == PowerDriver::Redfish && bmc.options.system.is_none() {
            bmc.options.system = system.map(str::to_owned);
        }
        Self { bmc: Some(bmc), account: Some(account.attempt), misdirected: None }
    }
}

/// The driver by which racks use an account.
fn driver(of: BmcDriver) -> PowerDriver {
    match of {
        BmcDriver::Ipmi => PowerDriver::Ipmi,
        BmcDriver::Redfish => PowerDriver::Redfish,
    }
}

/// The account that the machine makes with its next inventory.
#[must_use]
pub fn wanted(store: &Store, loaded: &Loaded, settings: &SettingsSpec, attempt: Attempt) -> Option<BmcSetup> {
    let account = loaded.account.as_ref();
    let good = account.is_some_and(|account| {
        account.rotate == loaded.declared.rotate
            && loaded.misdirected.is_none()
            && account.state != BmcAccountState::Refused
            && loaded.declared.driver.is_none_or(|driver| driver == account.driver)
            && !latest(loaded, account).is_some_and(|answer| answer.is_err_and(refuses))
    });
    if good || !loaded.declared.sets_up {
        return None;
    }
    let private = store.bmc_setup_key(loaded.input.uid, attempt);
    let key = public(private.as_slice())?;
    // Use the same user name again: the new password replaces the old one on the BMC.
    let user = account.map_or(&settings.bmc_user, |account| &account.username);
    Some(BmcSetup { user: user.clone(), driver: loaded.declared.driver, key: hex::encode(key) })
}

fn public(private: &[u8]) -> Option<Vec<u8>> {
    use aws_lc_rs::agreement::{PrivateKey, X25519};
    let private = PrivateKey::from_private_key(&X25519, private).ok()?;
    Some(private.compute_public_key().ok()?.as_ref().to_vec())
}

/// The latest answer to a power command that was given with the account.
fn latest(loaded: &Loaded, account: &BmcAccount) -> Option<Result<(), PowerFailure>> {
    let (_, answer) = latest_answer(loaded, account)?;
    Some(answer.result.as_ref().map(|_| ()).map_err(|(failure, _)| *failure))
}

/// The same, with the key of its step.
fn latest_answer<'a>(loaded: &'a Loaded, account: &BmcAccount) -> Option<(&'a StepKey, &'a PowerOutcome)> {
    // A reset of the BMC needs more privilege than the account has, so its refusal says nothing about the account.
    let given = loaded
        .input
        .records
        .iter()
        .filter(|it| it.cause.bmc_account == Some(account.attempt) && it.step != StepId::ResetBmc);
    let results = &loaded.input.facts.power_results;
    given.filter_map(|record| results.get_key_value(&record.key)).max_by_key(|(_, answer)| answer.at)
}

/// The certificate that the BMC showed in that answer, if the command succeeded.
fn shown(loaded: &Loaded, account: &BmcAccount) -> Option<Sha256> {
    let (key, answer) = latest_answer(loaded, account)?;
    answer.result.as_ref().ok()?;
    let fact = loaded.facts.iter().find(|fact| fact.step_key.as_deref() == Some(key.as_str()))?;
    match Observed::of(fact)? {
        Observed::Power(power) => power.certificate.parse().ok(),
        _ => None,
    }
}

/// True: the BMC refuses this account. If any account works, it is another one.
fn refuses(failure: PowerFailure) -> bool {
    use PowerFailure::{BadPassword, BadUsername, Privilege, Unsupported};
    matches!(failure, BadPassword | BadUsername | Privilege | Unsupported)
}

/// Stores a new account. Then stores the results of its use by racks: the certificate of the BMC, and whether the account works.
/// True: something was stored, and the caller must read the machine again.
///
/// # Errors
/// Fails if the database cannot be reached.
pub async fn settle(store: &Store, loaded: &Loaded) -> Result<bool, StoreError> {
    let machine = loaded.input.uid;
    if let Some(Ended { attempt, end: BmcEnd::Made(made), found }) = end(loaded)
        && keep(store, loaded, (attempt, &made), found.as_ref()).await?
    {
        return Ok(true);
    }
    if let Some((attempt, promised)) = promised(loaded)
        && keep(store, loaded, (attempt, &promised), found_by(loaded, attempt).as_ref()).await?
    {
        tracing::warn!(%machine, %attempt, "the machine has not said whether its BMC took an account; racks try it");
        return Ok(true);
    }
    let Some(account) = loaded.account.as_ref() else { return Ok(false) };
    if let Some(certificate) = shown(loaded, account).filter(|it| account.certificate != Some(*it)) {
        store.pin_bmc_account(machine, account.attempt, certificate).await?;
        return Ok(true);
    }
    let reserve = loaded.declared.has_account;
    let state = match (account.state, latest(loaded, account)) {
        (BmcAccountState::Made, Some(Ok(()))) => BmcAccountState::Checked,
        (BmcAccountState::Made, Some(Err(failure))) if reserve && cannot_be_used(failure) => {
            BmcAccountState::Refused
        }
        (BmcAccountState::Checked, Some(Err(failure))) if reserve && refuses(failure) => {
            BmcAccountState::Refused
        }
        _ => return Ok(false),
    };
    store.judge_bmc_account(machine, account.attempt, state).await?;
    Ok(true)
}

/// Keeps an account whose password can be read. `found` is the BMC as the attempt found it. False: nothing was changed.
async fn keep(
    store: &Store,
    loaded: &Loaded,
    (attempt, made): (Attempt, &BmcAccountMade),
    found: Option<&agent::Bmc>,
) -> Result<bool, StoreError> {
    let machine = loaded.input.uid;
    match opened(store, loaded, attempt, made) {
        Ok(password) => {
            let (username, rotate) = (made.user.as_str(), loaded.declared.rotate);
            let declared = loaded.destinations.get(&attempt).cloned().unwrap_or_default();
            let destination = &bmc_destination::completed(declared, found);
            let (driver_of, password) = (made.driver, &password);
            let new = NewBmcAccount { attempt, username, driver: driver_of, password, rotate, destination };
            store.put_bmc_account(machine, &new).await?;
            Ok(true)
        }
        Err(error) => {
            tracing::debug!(%machine, %attempt, %error, "the password of the BMC cannot be read");
            Ok(false)
        }
    }
}

/// An account that a machine announced before it set the account on its BMC. No result confirms the account. Conditions for its use:
///
/// 1. The task has ended, or a later task was armed.
/// 2. No other account works: the BMC refuses the known account, or [`InUse::misdirected`] is set. Or no account is known or declared, and
///    the task reported no failure.
fn promised(loaded: &Loaded) -> Option<(Attempt, BmcAccountMade)> {
    let facts = loaded.facts.iter().filter(|fact| fact.kind == "bmc_account");
    let fact = facts.max_by_key(|fact| fact.id)?;
    let attempt = fact.attempt?;
    let end = end(loaded).filter(|ended| ended.attempt >= attempt);
    let is_over = end.is_some() || loaded.tasks.keys().any(|armed| *armed > attempt);
    let (is_made, has_failed) = end.map_or((false, false), |Ended { end, .. }| {
        (matches!(end, BmcEnd::Made(_)), matches!(end, BmcEnd::Failed { .. }))
    });
    let needed = match &loaded.account {
        Some(known) if known.attempt >= attempt => false,
        Some(_) if loaded.misdirected.is_some() => true,
        Some(known) => latest(loaded, known).is_some_and(|answer| answer.is_err_and(refuses)),
        // The words of the failure say more than an account that the BMC has perhaps never had.
        None => !loaded.declared.has_account && !has_failed,
    };
    if !loaded.declared.sets_up || !is_over || is_made || !needed {
        return None;
    }
    match Observed::of(fact)? {
        Observed::BmcAccount(it) => {
            let (user, password) = (it.user.to_string(), it.sealed.to_string());
            Some((attempt, BmcAccountMade { user, driver: it.driver, slot: None, channel: None, password }))
        }
        _ => None,
    }
}

/// True: the failure concerns the account, or the way to the BMC.
fn cannot_be_used(failure: PowerFailure) -> bool {
    use PowerFailure::{CipherSuite, Outside, Unreachable};
    refuses(failure) || matches!(failure, CipherSuite | Unreachable | Outside)
}

/// The password of an account, if it is the account that the task asked for.
fn opened(
    store: &Store,
    loaded: &Loaded,
    attempt: Attempt,
    made: &BmcAccountMade,
) -> Result<Vec<u8>, String> {
    let wanted = loaded.tasks.get(&attempt).and_then(|task| task.pointer("/bmc/user")?.as_str());
    if wanted != Some(made.user.as_str()) {
        return Err(format!("user {:?} is not the one that was asked for", made.user));
    }
    let machine = loaded.input.uid;
    let sealed = hex::decode(&made.password).map_err(|error| error.to_string())?;
    let private = store.bmc_setup_key(machine, attempt);
    let purpose = bmc_purpose(&machine.to_string(), attempt.get());
    let password = sealing::open(private.as_slice(), &purpose, &sealed).map_err(|error| error.to_string())?;
    let is_one =
        (1..=LONGEST_PASSWORD).contains(&password.len()) && password.iter().all(u8::is_ascii_graphic);
    is_one.then_some(password).ok_or_else(|| "it is no password that a BMC takes".to_owned())
}

/// The end of an account that a task asked for.
struct Ended {
    attempt: Attempt,
    end: BmcEnd,
    /// The BMC in the inventory of the same result.
    found: Option<agent::Bmc>,
}

/// The end of the latest account that a task asked for, if it is later than the account that is known. No other result is read.
fn end(loaded: &Loaded) -> Option<Ended> {
    let known = loaded.account.as_ref().map(|account| account.attempt);
    let asked = |fact: &&Fact| {
        let task = fact.attempt.filter(|attempt| Some(*attempt) > known);
        let task = task.and_then(|attempt| loaded.tasks.get(&attempt));
        fact.kind == "result" && task.is_some_and(|task| task.get("bmc").is_some())
    };
    let results = loaded.facts.iter().filter(asked).filter_map(|fact| match Observed::of(fact) {
        Some(Observed::Result(result)) => {
            let found = result.inventory.and_then(|it| it.bmc);
            Some(Ended { attempt: fact.attempt?, end: result.bmc?, found })
        }
        _ => None,
    });
    results.max_by_key(|ended| ended.attempt)
}

/// The BMC as this attempt found it, or an earlier one. A later inventory may be somebody else's.
fn found_by(loaded: &Loaded, attempt: Attempt) -> Option<agent::Bmc> {
    if let Some(found) = end(loaded).filter(|it| it.attempt == attempt).and_then(|it| it.found) {
        return Some(found);
    }
    let seen = loaded.input.facts.inventory.as_ref().filter(|seen| seen.attempt <= attempt)?;
    seen.inventory.bmc.clone()
}

/// The BMC in the machine's status.
#[must_use]
pub fn status(loaded: &Loaded) -> Option<DetectedBmc> {
    let found = loaded.input.facts.inventory.as_ref().and_then(|seen| seen.inventory.bmc.as_ref());
    let account = loaded.account.as_ref();
    let problem = end(loaded).filter(|_| loaded.declared.sets_up).map(|ended| match ended.end {
        BmcEnd::Failed { message } => message,
        BmcEnd::Made(_) => UNREADABLE.to_owned(),
    });
    if found.is_none() && account.is_none() && problem.is_none() {
        return None;
    }
    let mut status = DetectedBmc::new(PowerDriver::Ipmi);
    if let Some(found) = found {
        status.driver = driver(account.map_or(found.driver, |account| account.driver));
        let text = |text: &String| Some(text.clone()).filter(|it| !it.is_empty());
        status.address = found.address.as_ref().and_then(|it| it.parse().ok());
        status.address_source = found.address_source.map(|it| match it {
            agent::AddressSource::Static => BmcAddressSource::Static,
            agent::AddressSource::Dhcp => BmcAddressSource::Dhcp,
        });
        status.mac = found.mac.as_ref().and_then(|it| it.parse().ok());
        status.channel = found.channel;
        status.vendor = text(&found.manufacturer);
        status.product_id = found.product_id;
        status.firmware = text(&found.firmware);
    }
    status.account = account.map(|account| {
        let mut told = BmcAccountStatus::new(account.username.clone(), account.revision, account.made_at);
        told.checked = account.state == BmcAccountState::Checked;
        told.refused = account.state == BmcAccountState::Refused;
        told
    });
    status.problem = problem.or_else(|| loaded.misdirected.clone());
    Some(status)
}
