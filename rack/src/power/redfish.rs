//! Driver `redfish`: Redfish over HTTPS. A BMC's certificate is judged before the account is shown to it.

use std::net::IpAddr;
use std::sync::Arc;

use basalt_bmc::{BootDevice, PowerState, PowerVerb};
use basalt_proto::rack_v1::Bmc;
use basalt_redfish::{Account, Boot, Config, Device, Failure, Power, RedfishError, Reset, Session};

use tokio::sync::Semaphore;

use super::trust::Trust;
use super::{Conversation, Ended, Reading, place};
use crate::certificates::Certificates;

/// The port of HTTPS (RFC 9110 §4.2.2).
pub(super) const PORT: u16 = 443;

/// An open session.
pub(super) struct Redfish {
    session: Session,
    trust: Trust,
}

/// Connects. `at`: the address to connect to, if it was checked already. The BMC's certificate is stored before any request is sent.
pub(super) async fn open(
    bmc: &Bmc,
    at: Option<IpAddr>,
    certificates: &Certificates,
    turns: Arc<Semaphore>,
) -> Result<Redfish, Ended> {
    let place = place(bmc);
    let port = if bmc.port == 0 { Some(PORT) } else { u16::try_from(bmc.port).ok() };
    let port = port.ok_or_else(|| {
        Ended::error("unreachable", format!("BMC {}: port {} does not exist", bmc.address, bmc.port))
    })?;
    let trust = Trust::of(bmc, certificates.known(&place))
        .map_err(|why| Ended::error("certificate", format!("BMC {place}: {why}")))?;
    let account = Account::new(&bmc.username, &bmc.password);
    let mut config = Config::new(&bmc.address, port, account, trust.tls());
    config.at = at;
    config.turns = turns;
    config.system = Some(bmc.system.clone()).filter(|system| !system.is_empty());
    let session = Session::open(config).await.map_err(|error| failed(&error, &trust))?;
    trust.remember(bmc, &place, certificates)?;
    Ok(Redfish { session, trust })
}

impl Conversation for Redfish {
    async fn power(&mut self) -> Result<Reading, Ended> {
        match self.session.power().await {
            Ok(Power::On) => Ok(Reading::Still(PowerState::On)),
            Ok(Power::Off) => Ok(Reading::Still(PowerState::Off)),
            Ok(Power::PoweringOn) => Ok(Reading::MovingTo(PowerState::On)),
            Ok(Power::PoweringOff) => Ok(Reading::MovingTo(PowerState::Off)),
            Err(error) => Err(failed(&error, &self.trust)),
        }
    }

    async fn send(&mut self, verb: PowerVerb) -> Result<(), Ended> {
        let reset = match verb {
            PowerVerb::On => Reset::On,
            PowerVerb::Off => Reset::Off,
            PowerVerb::Soft => Reset::SoftOff,
            PowerVerb::Cycle | PowerVerb::Reset => Reset::Cycle,
        };
        self.session.reset(reset).await.map_err(|error| failed(&error, &self.trust))
    }

    async fn boot(&mut self, device: BootDevice, efi: bool) -> Result<(), Ended> {
        let device = match device {
            BootDevice::Pxe => Device::Network,
            BootDevice::Disk | BootDevice::None => Device::Disk,
        };
        let boot = Boot { device, uefi: efi };
        self.session.boot_once(boot).await.map_err(|error| failed(&error, &self.trust))
    }

    async fn reset_bmc(mut self) -> Result<String, Ended> {
        let restarted = self.session.restart_manager().await;
        restarted.map_err(|error| failed(&error, &self.trust))?;
        Ok(self.close().await)
    }

    async fn close(self) -> String {
        self.trust.shown().map(hex::encode).unwrap_or_default()
    }
}

fn failed(error: &RedfishError, trust: &Trust) -> Ended {
    let code = match &error.failure {
        Failure::Unreachable(_) | Failure::StoppedAnswering { .. } => "unreachable",
        Failure::Certificate(_) => {
            return Ended::error("certificate", format!("{error}; {}", trust.advice()));
        }
        Failure::WrongPassword { .. } => "bad_password",
        Failure::RefusedPrivilege { .. } => "privilege",
        Failure::NoPowerState(_) | Failure::Refused { .. } | Failure::NotKept { .. } => "completion_code",
        Failure::SeveralSystems { .. }
        | Failure::NoSystem { .. }
        | Failure::Unsupported { .. }
        | Failure::Rejected { .. }
        | Failure::Elsewhere { .. }
        | Failure::Malformed { .. }
        | Failure::Endless(_) => "unsupported",
    };
    Ended::error(code, error.to_string())
}
