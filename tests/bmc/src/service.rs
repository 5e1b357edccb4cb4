//! Answers to requests. There are few resources, each with the properties that clients read.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use basalt_bmc::{BootDevice, BootOverride, ChassisBackend, PowerState, PowerVerb};
use serde_json::{Map, Value, json};

use crate::Config;

const V1: &str = "/redfish/v1";
/// Properties of an account that a client may write.
const WRITABLE: [&str; 7] =
    ["UserName", "Password", "RoleId", "Enabled", "AccountTypes", "PasswordChangeRequired", "Locked"];
const ROLES: [&str; 3] = ["Administrator", "Operator", "ReadOnly"];
/// Redfish's ResetType, and the chassis' verb for it.
const RESETS: [(&str, PowerVerb); 5] = [
    ("On", PowerVerb::On),
    ("ForceOff", PowerVerb::Off),
    ("GracefulShutdown", PowerVerb::Soft),
    ("ForceRestart", PowerVerb::Reset),
    ("PowerCycle", PowerVerb::Cycle),
];

/// A request, reduced to the parts that answers depend on.
pub(crate) struct Asked {
    /// The address of the service that the client is connected to.
    pub(crate) at: IpAddr,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) login: Option<(String, String)>,
    pub(crate) if_match: Option<String>,
    pub(crate) body: Value,
}

/// An answer, before it is encoded for HTTP.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Value,
}

impl Reply {
    fn ok(body: Value) -> Self {
        Self { status: 200, headers: Vec::new(), body }
    }

    fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Value::Null }
    }

    /// An error with a message of the registry Base, about a property.
    fn refused(status: u16, message: &str, property: &str) -> Self {
        let info = json!({"MessageId": format!("Base.1.8.{message}"), "MessageArgs": [property],
            "RelatedProperties": [format!("#/{property}")], "Message": format!("{property}: {message}.")});
        let body = json!({"error": {"code": "Base.1.8.GeneralError", "@Message.ExtendedInfo": [info]}});
        Self { status, headers: Vec::new(), body }
    }
}

/// The requests so far, and the present accounts.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Method, path, and the user of each request.
    pub requests: Vec<(String, String, Option<String>)>,
    /// User and role of each account.
    pub accounts: BTreeMap<String, String>,
    /// Number of refused logins.
    pub failures: usize,
}

#[derive(Clone, Debug)]
struct Account {
    user: String,
    password: String,
    role: String,
    enabled: bool,
    failures: u32,
    locked_until: Option<Instant>,
    /// Number of changes, for its ETag.
    revision: u32,
}

impl Account {
    fn nobody() -> Self {
        let empty = String::new;
        let (user, password, role) = (empty(), empty(), empty());
        Self { user, password, role, enabled: false, failures: 0, locked_until: None, revision: 0 }
    }

    fn etag(&self) -> String {
        format!("\"{}\"", self.revision)
    }
}

pub(crate) struct Service<B> {
    config: Config,
    chassis: Arc<B>,
    accounts: BTreeMap<usize, Account>,
    seen: Arc<Mutex<Seen>>,
}

impl<B: ChassisBackend> Service<B> {
    pub(crate) fn new(config: Config, chassis: Arc<B>, seen: Arc<Mutex<Seen>>) -> Self {
        let mut accounts = BTreeMap::new();
        for number in 1..=config.slots.unwrap_or(0) {
            accounts.insert(number, Account::nobody());
        }
        for (number, (user, password, role)) in (2..).zip(config.users.clone()) {
            accounts.insert(number, Account { user, password, role, enabled: true, ..Account::nobody() });
        }
        let service = Self { config, chassis, accounts, seen };
        service.note(None);
        service
    }

    fn note(&self, asked: Option<&Asked>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Asked { method, path, login, .. }) = asked {
            let user = login.as_ref().map(|(user, _)| user.clone());
            seen.requests.push((method.clone(), path.clone(), user));
        }
        let users = self.accounts.values().filter(|it| !it.user.is_empty());
        seen.accounts = users.map(|it| (it.user.clone(), it.role.clone())).collect();
    }

    pub(crate) async fn answer(&mut self, asked: &Asked) -> Reply {
        let reply = self.decide(asked).await;
        self.note(Some(asked));
        reply
    }

    async fn decide(&mut self, asked: &Asked) -> Reply {
        let path = asked.path.trim_end_matches('/');
        let Some(path) = path.strip_prefix(V1) else { return Reply::status(404) };
        if path.is_empty() && asked.method == "GET" {
            return root();
        }
        let role = match self.log_in(asked) {
            Ok(role) => role,
            Err(reply) => return reply,
        };
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let changes = asked.method != "GET";
        let is_administrator = role == "Administrator";
        match (asked.method.as_str(), parts.as_slice()) {
            _ if changes && !is_administrator && parts.first() != Some(&"Systems") => {
                Reply::refused(403, "InsufficientPrivilege", "")
            }
            ("GET", ["AccountService"]) => Reply::ok(json!({
                "MinPasswordLength": self.config.policy.min, "MaxPasswordLength": self.config.policy.max,
                "Accounts": {"@odata.id": format!("{V1}/AccountService/Accounts")}})),
            ("GET", ["AccountService", "Accounts"]) => {
                collection("AccountService/Accounts", self.accounts.keys().map(ToString::to_string))
            }
            ("POST", ["AccountService", "Accounts"]) => self.make(&asked.body),
            (method, ["AccountService", "Accounts", number]) => {
                let number = number.parse().unwrap_or(0);
                match method {
                    "GET" => self.account(number),
                    "PATCH" => self.change(number, asked),
                    "DELETE" if self.config.slots.is_none() && self.accounts.remove(&number).is_some() => {
                        Reply::status(204)
                    }
                    _ => Reply::status(405),
                }
            }
            ("GET", ["Managers"]) => collection("Managers", ["bmc".to_owned()].into_iter()),
            ("GET", ["Managers", "bmc"]) => Reply::ok(json!({
                "ManagerType": "BMC", "Manufacturer": "Basalt", "FirmwareVersion": "2.14.0",
                "EthernetInterfaces": {"@odata.id": format!("{V1}/Managers/bmc/EthernetInterfaces")},
                "HostInterfaces": {"@odata.id": format!("{V1}/Managers/bmc/HostInterfaces")}})),
            ("GET", ["Managers", "bmc", "EthernetInterfaces"]) => {
                collection("Managers/bmc/EthernetInterfaces", ["usb0", "eth0"].map(String::from).into_iter())
            }
            ("GET", ["Managers", "bmc", "EthernetInterfaces", name]) => self.interface(name),
            ("GET", ["Managers", "bmc", "HostInterfaces"]) => {
                collection("Managers/bmc/HostInterfaces", ["1".to_owned()].into_iter())
            }
            ("GET", ["Managers", "bmc", "HostInterfaces", "1"]) => {
                let enabled = self.config.bootstrap.is_enabled();
                Reply::ok(json!({"CredentialBootstrapping": {"Enabled": enabled, "EnableAfterReset": true}}))
            }
            ("PATCH", ["Managers", "bmc", "HostInterfaces", "1"]) => {
                let enabled = asked.body.pointer("/CredentialBootstrapping/Enabled").and_then(Value::as_bool);
                self.config.bootstrap.enable(enabled.unwrap_or(true));
                Reply::status(204)
            }
            ("GET", ["Systems"]) => collection("Systems", ["1".to_owned()].into_iter()),
            ("GET", ["Systems", "1"]) => self.system().await,
            ("PATCH", ["Systems", "1"]) => self.boot(&asked.body).await,
            ("POST", ["Systems", "1", "Actions", "ComputerSystem.Reset"]) => self.reset(&asked.body).await,
            _ => Reply::status(404),
        }
    }

    /// The role of the authenticated user.
    fn log_in(&mut self, asked: &Asked) -> Result<String, Reply> {
        let refused = || Err(Reply::refused(401, "NoValidSession", ""));
        let Some((user, password)) = &asked.login else { return refused() };
        if Some(asked.at) == self.config.inside && self.config.bootstrap.takes(user, password) {
            return Ok("Administrator".to_owned());
        }
        let now = Instant::now();
        let account = self.accounts.values_mut().find(|it| !it.user.is_empty() && it.user == *user);
        let is_good = account.as_ref().is_some_and(|it| {
            it.enabled && it.password == *password && it.locked_until.is_none_or(|until| until <= now)
        });
        match account {
            Some(account) if is_good => {
                account.failures = 0;
                return Ok(account.role.clone());
            }
            Some(account) => {
                account.failures += 1;
                if let Some(lockout) = self.config.lockout.filter(|it| account.failures >= it.tries) {
                    account.locked_until = Some(now + lockout.lasts);
                }
            }
            None => {}
        }
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).failures += 1;
        refused()
    }

    fn account(&self, number: usize) -> Reply {
        let Some(account) = self.accounts.get(&number) else { return Reply::status(404) };
        let locked = account.locked_until.is_some_and(|until| until > Instant::now());
        let body = json!({"@odata.id": format!("{V1}/AccountService/Accounts/{number}"), "UserName": account.user,
            "RoleId": account.role, "Enabled": account.enabled, "Locked": locked});
        Reply { status: 200, headers: vec![("ETag", account.etag())], body }
    }

    fn make(&mut self, body: &Value) -> Reply {
        if self.config.slots.is_some() {
            return Reply::status(405);
        }
        if self.accounts.len() >= self.config.most {
            return Reply::refused(400, "CreateLimitReachedForResource", "");
        }
        let all = ["UserName", "Password", "RoleId"].iter().chain(&self.config.wants);
        if let Some(missing) = all.into_iter().find(|name| body.get(**name).is_none()) {
            return Reply::refused(400, "PropertyMissing", missing);
        }
        let number = self.accounts.keys().max().map_or(2, |last| last + 1);
        let mut account = Account::nobody();
        if let Err(reply) = self.fill(&mut account, body) {
            return reply;
        }
        self.accounts.insert(number, account);
        let location = format!("{V1}/AccountService/Accounts/{number}");
        Reply { status: 201, headers: vec![("Location", location)], body: Value::Null }
    }

    fn change(&mut self, number: usize, asked: &Asked) -> Reply {
        let Some(mut account) = self.accounts.get(&number).cloned() else { return Reply::status(404) };
        match &asked.if_match {
            None if self.config.etags => return Reply::status(428),
            Some(etag) if *etag != account.etag() => return Reply::status(412),
            _ => {}
        }
        if number == 1 && self.config.slots.is_some() {
            return Reply::refused(400, "PropertyNotWritable", "UserName");
        }
        if let Err(reply) = self.fill(&mut account, &asked.body) {
            return reply;
        }
        account.revision += 1;
        self.accounts.insert(number, account);
        self.account(number)
    }

    fn fill(&self, account: &mut Account, body: &Value) -> Result<(), Reply> {
        let empty = Map::new();
        let body = body.as_object().unwrap_or(&empty);
        if let Some(unknown) = body.keys().find(|name| !WRITABLE.contains(&name.as_str())) {
            return Err(Reply::refused(400, "PropertyUnknown", unknown));
        }
        let text = |name: &str| body.get(name).and_then(Value::as_str);
        if let Some(password) = text("Password") {
            if !self.config.policy.takes(password.as_bytes()) {
                return Err(Reply::refused(400, "PropertyValueFormatError", "Password"));
            }
            account.password = password.chars().take(self.config.keeps).collect();
        }
        if let Some(role) = text("RoleId") {
            if !ROLES.contains(&role) {
                return Err(Reply::refused(400, "PropertyValueNotInList", "RoleId"));
            }
            role.clone_into(&mut account.role);
        }
        if let Some(user) = text("UserName") {
            user.clone_into(&mut account.user);
        }
        account.enabled = body.get("Enabled").and_then(Value::as_bool).unwrap_or(account.enabled);
        if body.get("Locked") == Some(&json!(false)) {
            (account.failures, account.locked_until) = (0, None);
        }
        Ok(())
    }

    /// `usb0` leads to the machine, `eth0` to the management network.
    fn interface(&self, name: &str) -> Reply {
        let address = match name {
            "usb0" => self.config.inside,
            "eth0" => self.config.lan,
            _ => return Reply::status(404),
        };
        let one = |it: IpAddr| json!([{"Address": it, "AddressOrigin": "Static"}]);
        let (v4, v6) = match address {
            Some(it @ IpAddr::V4(_)) => (one(it), json!([])),
            Some(it @ IpAddr::V6(_)) => (json!([]), one(it)),
            None => (json!([{"Address": "0.0.0.0", "AddressOrigin": "DHCP"}]), json!([])),
        };
        Reply::ok(json!({"InterfaceEnabled": true, "MACAddress": "52:54:00:F7:00:01",
            "IPv4Addresses": v4, "IPv6Addresses": v6}))
    }

    async fn system(&self) -> Reply {
        let power = match self.chassis.power_status().await {
            PowerState::On => "On",
            PowerState::Off => "Off",
        };
        let boot = self.chassis.boot_override().await;
        let target = match boot.device {
            BootDevice::Pxe => "Pxe",
            BootDevice::Disk => "Hdd",
            BootDevice::None => "None",
        };
        let enabled = match boot.device {
            BootDevice::None => "Disabled",
            _ if boot.once => "Once",
            _ => "Continuous",
        };
        let types: Vec<&str> = RESETS.iter().map(|(name, _)| *name).collect();
        Reply::ok(json!({"PowerState": power,
            "Boot": {"BootSourceOverrideTarget": target, "BootSourceOverrideEnabled": enabled,
                "BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Pxe", "Hdd"]},
            "Actions": {"#ComputerSystem.Reset": {"target": format!("{V1}/Systems/1/Actions/ComputerSystem.Reset"),
                "ResetType@Redfish.AllowableValues": types}}}))
    }

    async fn boot(&self, body: &Value) -> Reply {
        let text = |name: &str| body.pointer(&format!("/Boot/{name}")).and_then(Value::as_str);
        let device = match text("BootSourceOverrideTarget") {
            Some("Pxe") => BootDevice::Pxe,
            Some("Hdd") => BootDevice::Disk,
            Some("None") => BootDevice::None,
            _ => return Reply::refused(400, "PropertyValueNotInList", "BootSourceOverrideTarget"),
        };
        let once = text("BootSourceOverrideEnabled") != Some("Continuous");
        match self.chassis.set_boot_override(BootOverride { device, once, efi: false }).await {
            Ok(()) => Reply::status(204),
            Err(_) => Reply::status(500),
        }
    }

    async fn reset(&self, body: &Value) -> Reply {
        let wanted = body.get("ResetType").and_then(Value::as_str);
        let Some((_, verb)) = RESETS.iter().find(|(name, _)| Some(*name) == wanted) else {
            return Reply::refused(400, "ActionParameterNotSupported", "ResetType");
        };
        match self.chassis.control(*verb).await {
            Ok(()) => Reply::status(204),
            Err(_) => Reply::refused(409, "ActionNotSupported", "ResetType"),
        }
    }
}

fn root() -> Reply {
    let at = |name: &str| json!({"@odata.id": format!("{V1}/{name}")});
    Reply::ok(json!({"RedfishVersion": "1.15.0", "Vendor": "Basalt", "Product": "Played BMC",
        "AccountService": at("AccountService"), "Managers": at("Managers"), "Systems": at("Systems")}))
}

fn collection(path: &str, names: impl Iterator<Item = String>) -> Reply {
    let members = names.map(|name| json!({"@odata.id": format!("{V1}/{path}/{name}")}));
    Reply::ok(json!({"Members": members.collect::<Vec<_>>()}))
}
