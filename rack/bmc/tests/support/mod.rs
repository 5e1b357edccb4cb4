//! A chassis in memory and a BMC around it, for the tests of this crate.

#![allow(dead_code, unreachable_pub, reason = "each test program uses another part")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use basalt_bmc::{
    BmcClient, BmcConfig, BmcServer, BootOverride, ChassisBackend, CompletionCode, Credentials, Password,
    PowerState, PowerVerb, ServerConfig, Timing, Username,
};

/// Power and boot device in memory; counts what was done.
pub struct Chassis {
    pub power: Mutex<PowerState>,
    pub boot: Mutex<BootOverride>,
    pub controls: AtomicU32,
}

impl Chassis {
    pub fn off() -> Arc<Self> {
        Arc::new(Self {
            power: Mutex::new(PowerState::Off),
            boot: Mutex::new(BootOverride::NONE),
            controls: AtomicU32::new(0),
        })
    }

    pub fn is_on(&self) -> bool {
        *self.power.lock().unwrap() == PowerState::On
    }

    pub fn boot(&self) -> BootOverride {
        *self.boot.lock().unwrap()
    }

    pub fn controls(&self) -> u32 {
        self.controls.load(Ordering::SeqCst)
    }
}

impl ChassisBackend for Chassis {
    async fn power_status(&self) -> PowerState {
        *self.power.lock().unwrap()
    }

    async fn control(&self, verb: PowerVerb) -> Result<(), CompletionCode> {
        self.controls.fetch_add(1, Ordering::SeqCst);
        let mut power = self.power.lock().unwrap();
        *power = match (verb, *power) {
            (PowerVerb::On, _) => PowerState::On,
            (PowerVerb::Off | PowerVerb::Soft, _) => PowerState::Off,
            (PowerVerb::Cycle | PowerVerb::Reset, PowerState::On) => PowerState::On,
            (PowerVerb::Cycle | PowerVerb::Reset, PowerState::Off) => {
                return Err(CompletionCode::NOT_IN_THIS_STATE);
            }
        };
        Ok(())
    }

    async fn boot_override(&self) -> BootOverride {
        *self.boot.lock().unwrap()
    }

    async fn set_boot_override(&self, boot: BootOverride) -> Result<(), CompletionCode> {
        *self.boot.lock().unwrap() = boot;
        Ok(())
    }
}

/// A BMC with user `admin` and password `secret`, on a free port of loopback.
pub async fn bmc(chassis: &Arc<Chassis>) -> BmcServer {
    bmc_with(chassis, server_config()).await
}

pub async fn bmc_with(chassis: &Arc<Chassis>, config: ServerConfig) -> BmcServer {
    BmcServer::start("127.0.0.1:0".parse().unwrap(), config, Arc::clone(chassis)).await.unwrap()
}

pub fn server_config() -> ServerConfig {
    ServerConfig::new(Username::new("admin").unwrap(), Password::new("secret").unwrap(), *b"0123456789abcdef")
}

/// Short waits: no peer in these tests is slow, except on purpose.
pub fn client_config(address: SocketAddr) -> BmcConfig {
    let mut config = BmcConfig::new(address, Credentials::new("admin", "secret").unwrap());
    config.timing = Timing {
        session: Duration::from_secs(2),
        retransmit: Duration::from_millis(50),
        retransmit_max: Duration::from_millis(200),
        operation: Duration::from_secs(10),
        close: Duration::from_millis(100),
        reset: Duration::from_millis(400),
        free_session: Duration::from_millis(400),
        free_session_poll: Duration::from_millis(20),
    };
    config
}

pub fn client(address: SocketAddr) -> BmcClient {
    BmcClient::new(client_config(address))
}
