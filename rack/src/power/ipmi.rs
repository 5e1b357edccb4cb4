//! Driver `ipmi`: IPMI 2.0 over LAN.
//!
//! Without a declared cipher suite, the rack tries those of [`PROBED`] in turn. While it runs, it remembers the suite that the BMC took. A BMC
//! refuses a suite that it lacks, answers with other algorithms, or is silent. It sees no password before it has taken a suite, so probing
//! does not count towards a lock-out.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use basalt_bmc::{
    BmcClient, BmcConfig, BmcError, BmcKey, BmcSession, BootDevice, BootOverride, CipherSuite,
    CredentialError, Credentials, Failure, PowerVerb, Privilege, Timing,
};
use basalt_proto::rack_v1::Bmc;

use super::{Ask, Conversation, Ended, Reading, Verb, place};

/// The port of IPMI over LAN (RMCP).
pub(super) const PORT: u16 = 623;
/// Suites for BMCs without a declared suite: SHA-256 first, then the suite that IPMI 2.0 requires.
const PROBED: [u8; 2] = [17, 3];
/// How long a suite is tried, if another one is left.
const PROBE: Duration = Duration::from_secs(4);

/// The suites that BMCs took, by address and port.
#[derive(Debug, Default)]
pub(super) struct Suites(Mutex<HashMap<String, u8>>);

impl Suites {
    /// The suites to try, in order.
    fn of(&self, bmc: &Bmc, place: &str) -> Vec<u32> {
        if bmc.cipher_suite != 0 {
            return vec![bmc.cipher_suite];
        }
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(place).copied();
        known.map_or_else(|| PROBED.map(u32::from).to_vec(), |known| vec![u32::from(known)])
    }

    #[cfg(test)]
    pub(super) fn known(&self, address: &str, port: u16) -> Option<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&format!("{address}:{port}")).copied()
    }

    fn took(&self, place: String, suite: u8) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(place, suite);
    }

    /// Forgets the suite of a BMC: after an update, firmware may have other suites. They are probed again.
    fn forget(&self, place: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(place);
    }
}

/// The demands on a session.
pub(super) struct Asked {
    /// The longest wait for a free session.
    free: Duration,
    /// The session resets the BMC, which only an administrator may (IPMI 2.0 appendix G).
    resets: bool,
}

impl Asked {
    pub(super) fn by(ask: Ask<'_>, free: Duration) -> Self {
        let resets = matches!(ask, Ask::Command(command) if command.verb() == Verb::ResetBmc);
        Self { free, resets }
    }
}

/// Opens a session. `at`: the address of the BMC, if it was checked already.
pub(super) async fn open(
    bmc: &Bmc,
    at: Option<IpAddr>,
    suites: &Suites,
    asked: Asked,
) -> Result<BmcSession, Ended> {
    let place = place(bmc);
    let mut left = suites.of(bmc, &place).into_iter().peekable();
    let mut config = config(bmc, at).await?;
    config.timing.free_session = asked.free;
    if asked.resets {
        config.privilege = Privilege::Administrator;
    }
    loop {
        let Some(number) = left.next() else { return Err(Ended::error("cipher_suite", "no suite is left")) };
        let suite = u8::try_from(number).ok().and_then(CipherSuite::by_id);
        config.suite = suite.ok_or_else(|| {
            let message = format!("BMC {}: this rack does not speak suite {number}", bmc.address);
            Ended::error("cipher_suite", message)
        })?;
        let is_probe = left.peek().is_some();
        config.timing.session = if is_probe { PROBE } else { Timing::default().session };
        match BmcClient::new(config.clone()).connect().await {
            Ok(session) => {
                suites.took(place, config.suite.id);
                return Ok(session);
            }
            Err(error) if is_probe && lacks_suite(&error.failure) => {}
            Err(error) => {
                if matches!(error.failure, Failure::UnsupportedSuite { .. }) {
                    suites.forget(&place);
                }
                return Err(failed(&error));
            }
        }
    }
}

/// True if another suite may help.
fn lacks_suite(failure: &Failure) -> bool {
    match failure {
        Failure::UnsupportedSuite { .. } | Failure::Unreachable { .. } => true,
        Failure::StoppedAnswering { during, .. } => *during == "Open Session",
        _ => false,
    }
}

impl Conversation for BmcSession {
    async fn power(&mut self) -> Result<Reading, Ended> {
        self.power_status().await.map(Reading::Still).map_err(|error| failed(&error))
    }

    async fn send(&mut self, verb: PowerVerb) -> Result<(), Ended> {
        Self::power(self, verb).await.map_err(|error| failed(&error))
    }

    async fn boot(&mut self, device: BootDevice, efi: bool) -> Result<(), Ended> {
        let boot = BootOverride { device, once: true, efi };
        self.set_boot_override(boot).await.map_err(|error| failed(&error))
    }

    async fn reset_bmc(self) -> Result<String, Ended> {
        self.cold_reset().await.map(|()| String::new()).map_err(|error| failed(&error))
    }

    async fn close(self) -> String {
        Self::close(self).await;
        String::new()
    }
}

async fn config(bmc: &Bmc, at: Option<IpAddr>) -> Result<BmcConfig, Ended> {
    let address = resolve(bmc, at).await?;
    let credentials = credentials(bmc)
        .map_err(|error| Ended::error("unsupported", format!("BMC {}: {error}", bmc.address)))?;
    let mut config = BmcConfig::new(address, credentials);
    if bmc.privilege == Privilege::Administrator.to_string() {
        config.privilege = Privilege::Administrator;
    }
    Ok(config)
}

fn credentials(bmc: &Bmc) -> Result<Credentials, CredentialError> {
    let credentials = Credentials::new(&bmc.username, &bmc.password)?;
    if bmc.k_g.is_empty() {
        return Ok(credentials);
    }
    Ok(credentials.with_bmc_key(BmcKey::new(&bmc.k_g)?))
}

async fn resolve(bmc: &Bmc, at: Option<IpAddr>) -> Result<SocketAddr, Ended> {
    let unreachable = |reason: String| Ended::error("unreachable", format!("BMC {}: {reason}", bmc.address));
    let port = if bmc.port == 0 { u32::from(PORT) } else { bmc.port };
    let port = u16::try_from(port).map_err(|_| unreachable(format!("port {} does not exist", bmc.port)))?;
    if let Some(at) = at {
        return Ok(SocketAddr::from((at, port)));
    }
    let mut found = tokio::net::lookup_host((bmc.address.as_str(), port))
        .await
        .map_err(|error| unreachable(error.to_string()))?;
    found.next().ok_or_else(|| unreachable("the name has no address".to_owned()))
}

fn failed(error: &BmcError) -> Ended {
    let code = match &error.failure {
        Failure::WrongUserName { .. } => "bad_username",
        Failure::WrongPassword { .. } => "bad_password",
        Failure::BmcKeyRequired | Failure::WrongBmcKey { .. } => "bad_bmc_key",
        Failure::RefusedPrivilege { .. } => "privilege",
        Failure::UnsupportedSuite { .. } | Failure::NoIpmi20 => "cipher_suite",
        // The BMC is busy or ill. It answers, so its address and its cable are right.
        Failure::Command { .. } | Failure::Refused { .. } => "completion_code",
        Failure::NoFreeSession { .. } => "no_session",
        _ => "unreachable",
    };
    Ended::error(code, error.to_string())
}
