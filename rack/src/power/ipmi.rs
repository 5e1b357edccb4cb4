//! Driver `ipmi`: IPMI 2.0 over LAN.

use std::net::{IpAddr, SocketAddr};

use basalt_bmc::{
    BmcClient, BmcConfig, BmcError, BmcSession, BootDevice, BootOverride, Credentials, Failure, PowerVerb,
    Privilege,
};
use basalt_proto::rack_v1::Bmc;

use super::{Conversation, Ended, Reading};

/// IPMI over LAN.
pub(super) const PORT: u16 = 623;
/// The suite where the concern names none.
const DEFAULT_SUITE: u32 = 3;

/// Opens a session, with the BMC at this address if it was judged already.
pub(super) async fn open(bmc: &Bmc, at: Option<IpAddr>) -> Result<BmcSession, Ended> {
    client(bmc, at).await?.connect().await.map_err(|error| failed(&error))
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

    async fn close(self) -> String {
        Self::close(self).await;
        String::new()
    }
}

async fn client(bmc: &Bmc, at: Option<IpAddr>) -> Result<BmcClient, Ended> {
    let address = resolve(bmc, at).await?;
    let credentials = Credentials::new(&bmc.username, &bmc.password)
        .map_err(|error| Ended::error("unsupported", format!("BMC {}: {error}", bmc.address)))?;
    let mut config = BmcConfig::new(address, credentials);
    let number = if bmc.cipher_suite == 0 { DEFAULT_SUITE } else { bmc.cipher_suite };
    let suite = u8::try_from(number).ok().and_then(basalt_bmc::CipherSuite::by_id);
    config.suite = suite.ok_or_else(|| {
        Ended::error("cipher_suite", format!("BMC {}: this rack does not speak suite {number}", bmc.address))
    })?;
    if bmc.privilege == Privilege::Administrator.to_string() {
        config.privilege = Privilege::Administrator;
    }
    Ok(BmcClient::new(config))
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
        Failure::BmcKeyRequired => "unsupported",
        Failure::RefusedPrivilege { .. } => "privilege",
        Failure::UnsupportedSuite { .. } | Failure::NoIpmi20 => "cipher_suite",
        // The BMC is busy or ill. It answers, so its address and its cable are right.
        Failure::Command { .. } | Failure::NoFreeSession | Failure::Refused { .. } => "completion_code",
        _ => "unreachable",
    };
    Ended::error(code, error.to_string())
}
