//! The account that a machine makes on its own BMC (docs/decisions/095-bmc-accounts.md): when it is wanted, when it is used, how it is told.

use std::net::IpAddr;

use basalt_api::agent::{self, BmcEnd, BmcSetup, bmc_purpose};
use basalt_api::kinds::{
    Bmc, BmcAccountStatus, BmcAddressSource, BmcConfig, DetectedBmc, MachineSpec, PowerDriver, SettingsSpec,
};
use basalt_api::sealing;
use basalt_api::values::{Attempt, MachineId};
use basalt_db::{BmcAccount, BmcAccountState, Fact, NewBmcAccount, Store, StoreError};
use basalt_engine::facts::Facts;
use basalt_engine::failures::PowerFailure;

use super::converge::Driver;
use super::load::Loaded;
use crate::racks::observed::Observed;

/// Whether commissioning makes an account on the machine's BMC.
fn sets_up(spec: &MachineSpec) -> bool {
    match spec.commissioning.bmc {
        Some(config) => config == BmcConfig::SetUp,
        None => spec.bmc.as_ref().is_none_or(|bmc| bmc.driver == PowerDriver::Ipmi && bmc.username.is_none()),
    }
}

/// What is declared of a BMC, as far as the account matters.
#[derive(Clone, Copy, Debug)]
pub struct DeclaredBmc {
    /// Whether commissioning makes an account.
    sets_up: bool,
    /// `bmc.rotate`.
    rotate: u32,
    /// Whether `bmc` has an account.
    has_account: bool,
}

impl DeclaredBmc {
    /// Of the machine that is declared so.
    #[must_use]
    pub fn of(spec: &MachineSpec) -> Self {
        let bmc = spec.bmc.as_ref();
        Self {
            sets_up: sets_up(spec),
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
}

impl InUse {
    /// As the store has it.
    ///
    /// # Errors
    /// The database.
    pub async fn load(
        store: &Store,
        spec: &MachineSpec,
        account: Option<&BmcAccount>,
        facts: &Facts,
    ) -> Result<Self, StoreError> {
        let found = facts.inventory.as_ref().and_then(|seen| seen.inventory.bmc.as_ref());
        let followed = match account.and_then(|_| followed_by(spec, found)) {
            Some(mac) => store.current_leases(&[mac]).await?.first().map(|lease| lease.address),
            None => None,
        };
        Ok(Self::of(spec, account, found, followed))
    }

    /// Of the machine that is declared so. `followed` is the address that the BMC has leased.
    fn of(
        spec: &MachineSpec,
        account: Option<&BmcAccount>,
        found: Option<&agent::Bmc>,
        followed: Option<IpAddr>,
    ) -> Self {
        let declared = || {
            let bmc = spec.bmc.clone();
            let bmc = bmc.filter(|bmc| bmc.driver != PowerDriver::Ipmi || bmc.username.is_some());
            Self { bmc, account: None }
        };
        let Some(account) = account.filter(|it| sets_up(spec) && it.state != BmcAccountState::Refused) else {
            return declared();
        };
        let mut bmc = spec.bmc.clone().unwrap_or_else(|| Bmc::new(PowerDriver::Ipmi));
        let leased = followed.map(|address| address.to_string());
        let address = leased.or_else(|| found?.address.clone()).and_then(|address| address.parse().ok());
        bmc.address = bmc.address.or(address);
        if bmc.address.is_none() {
            return declared();
        }
        bmc.username = Some(account.username.clone());
        bmc.password = None;
        // The account has the privilege that power needs, and no other.
        bmc.options.privilege = None;
        Self { bmc: Some(bmc), account: Some(account.attempt) }
    }
}

/// The MAC address of a BMC whose address is to be followed.
fn followed_by(spec: &MachineSpec, found: Option<&agent::Bmc>) -> Option<String> {
    let found = found.filter(|it| it.address_source == Some(agent::AddressSource::Dhcp))?;
    let is_declared = spec.bmc.as_ref().is_some_and(|bmc| bmc.address.is_some());
    found.mac.clone().filter(|_| !is_declared)
}

/// What the machine is told to make with its next inventory, if anything.
#[must_use]
pub fn wanted(store: &Store, loaded: &Loaded, settings: &SettingsSpec, attempt: Attempt) -> Option<BmcSetup> {
    let good = loaded.account.as_ref().is_some_and(|account| {
        account.rotate == loaded.declared.rotate
            && account.state != BmcAccountState::Refused
            && !is_refused(&loaded.input.facts, account)
    });
    if good || !loaded.declared.sets_up {
        return None;
    }
    let private = store.bmc_setup_key(loaded.input.uid, attempt);
    let key = public(private.as_slice())?;
    Some(BmcSetup { user: settings.bmc_user.clone(), key: hex::encode(key) })
}

fn public(private: &[u8]) -> Option<Vec<u8>> {
    use aws_lc_rs::agreement::{PrivateKey, X25519};
    let private = PrivateKey::from_private_key(&X25519, private).ok()?;
    Some(private.compute_public_key().ok()?.as_ref().to_vec())
}

/// The latest answer to a power command since the account was stored.
fn latest(facts: &Facts, account: &BmcAccount) -> Option<Result<(), PowerFailure>> {
    let since = facts.power_results.values().filter(|answer| answer.at > account.made_at);
    let answer = since.max_by_key(|answer| answer.at)?;
    Some(answer.result.as_ref().map(|_| ()).map_err(|(failure, _)| *failure))
}

fn is_refused(facts: &Facts, account: &BmcAccount) -> bool {
    use PowerFailure::{BadPassword, BadUsername, Privilege};
    matches!(latest(facts, account), Some(Err(BadPassword | BadUsername | Privilege)))
}

/// Takes over an account that the machine has made, and notes whether racks can use the one that it has. True: something is another
/// now, and the caller looks again.
///
/// # Errors
/// The database.
pub async fn settle(driver: &Driver, loaded: &Loaded) -> Result<bool, StoreError> {
    let machine = loaded.input.uid;
    let known = loaded.account.as_ref().map(|account| account.attempt);
    if let Some((attempt, BmcEnd::Made(made))) = end(&loaded.facts)
        && known.is_none_or(|known| attempt > known)
    {
        match opened(&driver.store, machine, attempt, &made.password) {
            Ok(password) => {
                let (username, rotate) = (made.user.as_str(), loaded.declared.rotate);
                let new = NewBmcAccount { attempt, username, password: &password, rotate };
                driver.store.put_bmc_account(machine, &new).await?;
                return Ok(true);
            }
            Err(error) => {
                tracing::warn!(%machine, %attempt, %error, "the password of the BMC cannot be read; the next commissioning makes another");
            }
        }
    }
    let Some(account) = loaded.account.as_ref().filter(|it| it.state == BmcAccountState::Made) else {
        return Ok(false);
    };
    let state = match latest(&loaded.input.facts, account) {
        Some(Ok(())) => BmcAccountState::Checked,
        Some(Err(failure)) if loaded.declared.has_account && cannot_be_used(failure) => {
            BmcAccountState::Refused
        }
        _ => return Ok(false),
    };
    driver.store.judge_bmc_account(machine, account.attempt, state).await?;
    Ok(true)
}

/// Whether the failure says something of the account, or of the way to the BMC.
fn cannot_be_used(failure: PowerFailure) -> bool {
    matches!(
        failure,
        PowerFailure::BadPassword
            | PowerFailure::BadUsername
            | PowerFailure::Privilege
            | PowerFailure::CipherSuite
            | PowerFailure::Unreachable
            | PowerFailure::Outside
    )
}

fn opened(store: &Store, machine: MachineId, attempt: Attempt, sealed: &str) -> Result<Vec<u8>, String> {
    let sealed = hex::decode(sealed).map_err(|error| error.to_string())?;
    let private = store.bmc_setup_key(machine, attempt);
    let purpose = bmc_purpose(&machine.to_string(), attempt.get());
    sealing::open(private.as_slice(), &purpose, &sealed).map_err(|error| error.to_string())
}

/// What became of the latest account that was wanted.
fn end(facts: &[Fact]) -> Option<(Attempt, BmcEnd)> {
    let results =
        facts.iter().filter(|fact| fact.kind == "result").filter_map(|fact| match Observed::of(fact) {
            Some(Observed::Result(result)) => Some((Attempt::new(result.attempt), result.bmc?)),
            _ => None,
        });
    results.max_by_key(|(attempt, _)| *attempt)
}

/// The BMC in the machine's status.
#[must_use]
pub fn status(loaded: &Loaded) -> Option<DetectedBmc> {
    let found = loaded.input.facts.inventory.as_ref().and_then(|seen| seen.inventory.bmc.as_ref());
    let account = loaded.account.as_ref();
    let end = end(&loaded.facts).filter(|(attempt, _)| account.is_none_or(|it| *attempt > it.attempt));
    let problem = end.and_then(|(_, end)| match end {
        BmcEnd::Failed { message } => Some(message),
        BmcEnd::Made(_) => None,
    });
    if found.is_none() && account.is_none() && problem.is_none() {
        return None;
    }
    let mut status = DetectedBmc::new(PowerDriver::Ipmi);
    if let Some(found) = found {
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
    status.problem = problem;
    Some(status)
}
