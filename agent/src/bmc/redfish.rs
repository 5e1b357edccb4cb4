//! The BMC's account by its Redfish host interface (DSP0270): finds the service, logs in with a bootstrap account, and makes the region's
//! account.
//!
//! The certificate cannot be verified, since the machine knows no key of the BMC. But the connection uses a device of the machine itself,
//! and all connections of one boot must have the same certificate.

use std::net::SocketAddr;
use std::time::Instant;

use basalt_api::agent::{AddressSource, Bmc, BmcAccount, BmcDriver, BmcSetup};
use basalt_api::sealing;
use basalt_redfish::accounts::{self, Lengths};
use basalt_redfish::manager;
use basalt_redfish::service::{Exchange, Login, Reply, Root as ServiceRoot, Service};
use basalt_redfish::{Request, header};

use super::host_interface::{HostInterface, host_interfaces};
use super::password::{self, SHAPES};
use super::{Command, GET_BOOTSTRAP_ACCOUNT, Interface, Refusal, host_network};
use crate::http::{self, Client};
use crate::root::Root;
use crate::{deadlines, say, smbios, tls};

/// The group of Redfish in Get Bootstrap Account Credentials (DSP0270 §9.2).
const GROUP: u8 = 0x52;
/// Credential bootstrapping stays enabled. It is disabled once the account exists.
const KEEP: u8 = 0xa5;
/// Octets of the name, and of the password, in the answer.
const WORD: usize = 16;
/// Completion code of a BMC with disabled credential bootstrapping.
const DISABLED: u8 = 0x80;

/// A Redfish service that has answered.
#[derive(Debug)]
pub struct Found {
    service: Service<HostService>,
    root: ServiceRoot,
    at: SocketAddr,
    interface: HostInterface,
}

/// Finds the service. `None`: the firmware describes no Redfish host interface. `boot` is the interface that the machine booted from; it is
/// not changed.
#[must_use]
pub fn find(root: &Root, boot: Option<&str>) -> Option<Result<Found, String>> {
    let table = smbios::table(root);
    let all: Vec<HostInterface> = host_interfaces(&table).collect();
    let end = Instant::now() + deadlines::BMC_FIND;
    let mut last = None;
    for interface in all {
        match reach(root, boot, interface, end) {
            Ok(found) => return Some(Ok(found)),
            Err(why) => last = Some(Err(why)),
        }
        if Instant::now() >= end {
            break;
        }
    }
    last
}

fn reach(root: &Root, boot: Option<&str>, interface: HostInterface, end: Instant) -> Result<Found, String> {
    let name = host_network::find(root, &interface.device).ok_or_else(|| {
        format!(
            "the firmware describes a Redfish host interface, and the kernel has no such network device ({:?}): turn it on in the BMC's settings",
            interface.device
        )
    })?;
    if boot == Some(name.as_str()) {
        return Err(format!(
            "the firmware calls {name} its Redfish host interface, and the machine has booted from it"
        ));
    }
    let at = host_network::configure(root, &name, &interface)?;
    let exchange = HostService::new(at, &interface.hostname, end)?;
    let mut service = Service::new(exchange, &at.ip().to_string(), at.port());
    let root = service.root().map_err(|error| format!("{error} (Redfish host interface {name}, {at})"))?;
    say!("Redfish {} at {at} by {name}; its certificate is not verified", root.version);
    Ok(Found { service, root, at, interface })
}

impl Found {
    /// Adds the facts of the service root to those from IPMI.
    pub fn describe(&self, bmc: &mut Bmc) {
        bmc.driver = BmcDriver::Redfish;
        if bmc.manufacturer.is_empty() {
            bmc.manufacturer = self.root.vendor.clone().unwrap_or_default();
        }
    }

    /// Makes the account by a bootstrap account from `inside`, and reads the BMC. `promise` stores a password before the BMC gets it.
    ///
    /// # Errors
    /// The message has the reason why there is no account, and a remedy.
    pub fn set_up(
        &mut self,
        inside: &mut impl Interface,
        wanted: &BmcSetup,
        purpose: &str,
        uuid: &str,
        bmc: &mut Bmc,
        promise: &mut dyn FnMut(&BmcAccount) -> Result<(), String>,
    ) -> Result<BmcAccount, String> {
        if self.interface.bootstraps == Some(false) {
            return Err("the BMC gives no bootstrap accounts (SMBIOS type 42)".to_owned());
        }
        let key = hex::decode(&wanted.key).map_err(|_| "the region's key is not hexadecimal".to_owned())?;
        let login = bootstrap(inside)?;
        self.service.log_in(login);
        self.service.exchange().until(Instant::now() + deadlines::BMC_REDFISH);
        // The account counts. Facts about the BMC are worth less.
        let manager = manager::read(&mut self.service, &self.root, self.at.ip()).unwrap_or_else(|error| {
            say!("the BMC does not describe itself: {error}");
            manager::Manager::default()
        });
        let mut made = None;
        let mut shapes = SHAPES.iter();
        let passwords = |lengths: Lengths| -> Result<Option<String>, String> {
            let fits = |length: usize| (lengths.min..=lengths.max).contains(&(length as u64));
            let Some(shape) = shapes.find(|shape| fits(shape.length)) else { return Ok(None) };
            let password = password::random(*shape).map_err(|error| format!("no random bytes: {error}"))?;
            let sealed =
                sealing::seal(&key, purpose, password.as_bytes()).map_err(|error| error.to_string())?;
            let (user, driver) = (wanted.user.clone(), BmcDriver::Redfish);
            let account =
                BmcAccount { user, driver, slot: None, channel: None, password: hex::encode(sealed) };
            promise(&account)?;
            made = Some(account);
            Ok(Some(password))
        };
        accounts::set_up(&mut self.service, &self.root, &wanted.user, passwords)
            .map_err(|error| error.to_string())?;
        self.tell(&manager, uuid, bmc);
        match manager::stop_bootstrapping(&mut self.service, &manager) {
            Ok(true) => say!("the BMC gives no more bootstrap accounts until the next reset"),
            Ok(false) => {}
            Err(error) => say!("credential bootstrapping stays on: {error}"),
        }
        made.ok_or_else(|| "the BMC took an account that nobody has described".to_owned())
    }

    /// Overwrites facts from IPMI, since the service has better ones.
    fn tell(&mut self, manager: &manager::Manager, uuid: &str, bmc: &mut Bmc) {
        let maker = self.root.vendor.clone().or_else(|| manager.manufacturer.clone());
        bmc.manufacturer = maker.unwrap_or_else(|| std::mem::take(&mut bmc.manufacturer));
        if let Some(firmware) = &manager.firmware {
            bmc.firmware.clone_from(firmware);
        }
        if let Some(lan) = &manager.lan {
            bmc.address = Some(lan.address.to_string());
            bmc.address_source = lan.is_dhcp.map(|is_dhcp| match is_dhcp {
                true => AddressSource::Dhcp,
                false => AddressSource::Static,
            });
            bmc.mac = lan.mac.clone().or_else(|| bmc.mac.take());
        }
        bmc.system = manager::system(&mut self.service, &self.root, uuid).unwrap_or_else(|error| {
            say!("the systems of the BMC cannot be read: {error}");
            None
        });
    }
}

/// Requests a bootstrap account (DSP0270 §9.3). The answer has the group, then a name and a password of 16 octets each.
fn bootstrap(inside: &mut impl Interface) -> Result<Login, String> {
    let answer = match inside.ask(GET_BOOTSTRAP_ACCOUNT, &[GROUP, KEEP]) {
        Ok(answer) => answer,
        Err(Refusal::Code(Command { name, .. }, DISABLED)) => {
            return Err(format!(
                "the BMC refuses {name}: credential bootstrapping is off (0x80); reset the BMC, or turn it on in its Redfish settings"
            ));
        }
        Err(refusal) => return Err(refusal.to_string()),
    };
    let word = |at: usize| {
        let octets = answer.get(at..at + WORD)?.split(|octet| *octet == 0).next()?;
        String::from_utf8(octets.to_vec()).ok().filter(|word| !word.is_empty())
    };
    match (answer.first(), word(1), word(1 + WORD)) {
        (Some(&GROUP), Some(user), Some(password)) => Ok(Login { user, password }),
        _ => Err(format!("the BMC's bootstrap account is none: {} octets", answer.len())),
    }
}

/// The connection to the service, with a time limit.
#[derive(Debug)]
struct HostService {
    client: Client,
    end: Instant,
}

impl HostService {
    fn new(at: SocketAddr, hostname: &str, end: Instant) -> Result<Self, String> {
        let tls = tls::first_seen().map_err(|error| error.to_string())?;
        let mut service = Self { client: Client::to(at, hostname, tls), end };
        service.until(end);
        Ok(service)
    }

    /// Ends all requests at this time.
    fn until(&mut self, end: Instant) {
        self.end = end;
        self.client.until(end);
    }

    fn send(&self, request: &Request, login: Option<&Login>) -> Result<Reply, http::HttpError> {
        let body = request.body.as_ref().map(ToString::to_string);
        let account = login.and_then(|login| header::basic(&login.user, &login.password));
        let mut headers = vec![("Accept", "application/json"), ("OData-Version", "4.0")];
        if let Some(account) = account.as_ref().and_then(|value| value.to_str().ok()) {
            headers.push(("Authorization", account));
        }
        if let Some(etag) = &request.if_match {
            headers.push(("If-Match", etag));
        }
        let response = self.client.ask(http::Request {
            headers: &headers,
            body: body.as_ref().map(|body| ("application/json", body.as_bytes())),
            ..http::Request::new(request.method.as_str(), &request.path)
        })?;
        let (status, location, etag) = (response.status, response.location.clone(), response.etag.clone());
        let body = response.bytes().map_err(|source| http::HttpError::Io {
            method: request.method.as_str(),
            path: request.path.clone(),
            source,
        })?;
        Ok(Reply { status, location, etag, body })
    }
}

impl Exchange for HostService {
    /// Repeats a request if the BMC is busy (503) or not reachable yet. A change is only repeated if it did not arrive.
    fn ask(&mut self, request: &Request, login: Option<&Login>) -> Result<Reply, String> {
        let connecting = Instant::now() + deadlines::BMC_CONNECT;
        loop {
            let done = self.send(request, login);
            let now = Instant::now();
            let again = match &done {
                Ok(reply) => reply.status == 503 && now < self.end,
                Err(http::HttpError::Connect { .. }) => now < connecting.min(self.end),
                Err(_) => false,
            };
            if !again {
                return done.map_err(|error| error.to_string());
            }
            std::thread::sleep(deadlines::BMC_BUSY);
        }
    }

    fn pause(&mut self) {
        std::thread::sleep(deadlines::BMC_STORES);
    }
}
