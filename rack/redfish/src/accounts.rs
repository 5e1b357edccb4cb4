//! An account by AccountService (DSP2046): made, or given another password.
//!
//! BMCs have accounts in two ways. Some make one with a POST to the collection. Others have a fixed number of slots, where a PATCH
//! of an empty one fills it; they refuse the POST.

use serde_json::{Map, Value, json};

use crate::core::{Method, Request};
use crate::error::told;
use crate::reference::name;
use crate::resource::{Objection, link, objections, said, text};
use crate::service::{Exchange, Login, Reply, Root, Service, ServiceError, refusal};

/// Roles in the order in which they are asked for. Power and boot device need no more than the first (DSP0266 §13.4.2).
const ROLES: [&str; 2] = ["Operator", "Administrator"];
/// Properties that some BMCs want in a new account (`PropertyMissing`). No others are sent unasked.
const WANTED_BY_SOME: [(&str, Wanted); 4] = [
    ("AccountTypes", Wanted::Redfish),
    ("PasswordChangeRequired", Wanted::No),
    ("Locked", Wanted::No),
    ("Description", Wanted::Words),
];
/// The most requests with one password. Each further one has a changed body.
const MENDS: u32 = 6;
/// Tries of the new account. BMCs lock accounts after a few failures.
const TRIES: u32 = 2;

#[derive(Clone, Copy)]
enum Wanted {
    Redfish,
    No,
    Words,
}

impl Wanted {
    fn value(self) -> Value {
        match self {
            Self::Redfish => json!(["Redfish"]),
            Self::No => json!(false),
            Self::Words => json!("Basalt"),
        }
    }
}

/// The lengths of passwords that the BMC says it takes, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// `MinPasswordLength`; 0 where it does not say.
    pub min: u64,
    /// `MaxPasswordLength`; [`u64::MAX`] where it does not say.
    pub max: u64,
}

impl std::fmt::Display for Lengths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.min, self.max) {
            (0, u64::MAX) => f.write_str("any length"),
            (min, u64::MAX) => write!(f, "{min} characters or more"),
            (min, max) => write!(f, "{min} to {max} characters"),
        }
    }
}

/// Why there is no account.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccountError {
    /// A request failed.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// The service has no accounts.
    #[error("the BMC's Redfish service has no AccountService: declare an account in bmc")]
    NoAccounts,
    /// All accounts have users.
    #[error(
        "all {} accounts of the BMC are taken ({}): delete a user that nobody needs, or declare one of them in bmc",
        .0.len(), .0.join(", ")
    )]
    Taken(Vec<String>),
    /// No password was taken.
    #[error(
        "the BMC takes no password of Basalt's (it says that it wants {lengths}){said}: relax its rules for passwords, or declare an account in bmc"
    )]
    Passwords {
        /// The lengths that the BMC says it takes.
        lengths: Lengths,
        /// The BMC's words to the last password, or nothing.
        said: String,
    },
    /// The new account cannot log in.
    #[error(
        "the BMC took the account of {user:?} and refuses it ({status}{said}): look at its rules for accounts"
    )]
    NotKept {
        /// The user's name.
        user: String,
        /// The HTTP status.
        status: u16,
        /// The words of the BMC, or nothing.
        said: String,
    },
    /// A password could not be made, or not be written down.
    #[error("{0}")]
    Caller(String),
}

/// The account's place on the BMC.
#[derive(Clone, Debug)]
enum Place {
    /// The user has it already.
    Own { path: String, etag: Option<String>, role: Option<String>, locked: bool },
    /// The collection, which makes a member.
    Collection(String),
    /// A slot without a user.
    Slot { path: String, etag: Option<String> },
}

/// The end of one password.
enum End {
    Kept(String),
    /// The BMC refuses the password, for this reason. It may accept another one.
    Password(String),
    /// The collection makes no members.
    NoMembers,
    Taken,
}

/// Makes the account, or sets another password for it. Returns the password after the account has logged in with it. `passwords`
/// stores the next password to try, then returns it. `None`: there is no further one.
///
/// # Errors
/// [`AccountError`]. An account that was new is removed again.
pub fn set_up<E: Exchange>(
    service: &mut Service<E>,
    root: &Root,
    user: &str,
    mut passwords: impl FnMut(Lengths) -> Result<Option<String>, String>,
) -> Result<String, AccountError> {
    let of = root.accounts.as_deref().ok_or(AccountError::NoAccounts)?;
    let (settings, _) = service.get(of)?;
    let number = |property: &str| settings.get(property).and_then(Value::as_u64).filter(|it| *it > 0);
    let lengths = Lengths {
        min: number("MinPasswordLength").unwrap_or(0),
        max: number("MaxPasswordLength").unwrap_or(u64::MAX),
    };
    let collection = link(&settings, "Accounts").ok_or(AccountError::NoAccounts)?;
    let table = Table::read(service, &collection, user)?;
    let mut place = match &table.own {
        Some(own) => own.clone(),
        None => Place::Collection(service.path(&collection)?),
    };
    let mut slots = table.slots.into_iter();
    let mut last = String::new();
    let mut next = |last: &str| {
        let next = passwords(lengths).map_err(AccountError::Caller)?;
        next.ok_or_else(|| AccountError::Passwords { lengths, said: last.to_owned() })
    };
    let mut password = next(&last)?;
    let path = loop {
        match put(service, &place, user, &password)? {
            End::Kept(path) => break path,
            End::Password(said) => {
                last = said;
                password = next(&last)?;
            }
            End::NoMembers => match slots.next() {
                Some(slot) => place = slot,
                None => return Err(AccountError::Taken(table.names)),
            },
            End::Taken => return Err(AccountError::Taken(table.names)),
        }
    };
    let login = Login { user: user.to_owned(), password: password.clone() };
    let checked = check(service, &path, login);
    if checked.is_err() {
        give_back(service, &place, &path);
    }
    checked.map(|()| password)
}

/// The accounts of the BMC.
struct Table {
    own: Option<Place>,
    slots: Vec<Place>,
    names: Vec<String>,
}

impl Table {
    fn read<E: Exchange>(
        service: &mut Service<E>,
        collection: &str,
        user: &str,
    ) -> Result<Self, ServiceError> {
        let mut table = Self { own: None, slots: Vec::new(), names: Vec::new() };
        for path in service.members(collection)? {
            let (account, etag) = service.get(&path)?;
            let holder = text(account.get("UserName")).unwrap_or_default();
            if holder == user {
                let role = text(account.get("RoleId"));
                let locked = account.get("Locked").and_then(Value::as_bool).unwrap_or(false);
                table.own = Some(Place::Own { path, etag, role, locked });
            } else if !holder.is_empty() {
                table.names.push(told(&holder));
            } else if name(&path) != "1" {
                // Slot 1 is the anonymous user's where accounts are IPMI's.
                table.slots.push(Place::Slot { path, etag });
            }
        }
        Ok(table)
    }
}

/// Sends the account with this password. If the BMC names a property as missing or refused, the property is added, changed or
/// removed, and the account is sent again.
fn put<E: Exchange>(
    service: &mut Service<E>,
    place: &Place,
    user: &str,
    password: &str,
) -> Result<End, ServiceError> {
    let mut roles = ROLES.iter();
    let mut body =
        Map::from_iter([("Password".to_owned(), json!(password)), ("Enabled".to_owned(), json!(true))]);
    match place {
        Place::Own { role, locked, .. } => {
            if !role.as_deref().is_some_and(|role| ROLES.contains(&role)) {
                body.insert("RoleId".to_owned(), json!(roles.next()));
            }
            if *locked {
                body.insert("Locked".to_owned(), json!(false));
            }
        }
        Place::Collection(_) | Place::Slot { .. } => {
            body.insert("UserName".to_owned(), json!(user));
            body.insert("RoleId".to_owned(), json!(roles.next()));
        }
    }
    let (method, path, etag) = match place {
        Place::Own { path, etag, .. } | Place::Slot { path, etag } => (Method::Patch, path, etag.clone()),
        Place::Collection(path) => (Method::Post, path, None),
    };
    for _ in 0..MENDS {
        let (path, body_now) = (path.clone(), Some(Value::Object(body.clone())));
        let request = Request { method, path, body: body_now, if_match: etag.clone() };
        let reply = service.change(request.clone())?;
        let reasons = objections(&reply.body);
        let is_limit = |it: &Objection| it.id == "CreateLimitReachedForResource";
        match reply.status {
            200..=299 => return Ok(End::Kept(made_at(service, &request, &reply))),
            401 | 403 => return Err(refusal(&request, &reply)),
            404 | 405 | 501 if method == Method::Post => return Ok(End::NoMembers),
            _ if method == Method::Post && reasons.iter().any(is_limit) => return Ok(End::Taken),
            400 | 409 | 422 => {}
            _ => return Err(refusal(&request, &reply)),
        }
        if reasons.iter().any(|it| it.names("RoleId") && !it.id.ends_with("Missing"))
            && let Some(role) = roles.next()
        {
            body.insert("RoleId".to_owned(), json!(role));
        } else if !mend(&mut body, &reasons) {
            return Ok(End::Password(said(&reply.body)));
        }
    }
    Ok(End::Password(": it names one property after the other".to_owned()))
}

/// Adds a property that the BMC misses, or removes a property that the BMC refuses. False: the reasons name no such property.
fn mend(body: &mut Map<String, Value>, reasons: &[Objection]) -> bool {
    for reason in reasons {
        if reason.id == "PropertyMissing" {
            let missing =
                WANTED_BY_SOME.iter().find(|(name, _)| reason.names(name) && !body.contains_key(*name));
            if let Some((name, value)) = missing {
                body.insert((*name).to_owned(), value.value());
                return true;
            }
        } else if matches!(reason.id.as_str(), "PropertyUnknown" | "PropertyNotWritable") {
            let extra = ["Enabled", "Locked"].into_iter().find(|name| reason.names(name));
            if extra.is_some_and(|name| body.remove(name).is_some()) {
                return true;
            }
        }
    }
    false
}

/// The path of an account that was kept.
fn made_at<E: Exchange>(service: &Service<E>, request: &Request, reply: &Reply) -> String {
    if request.method != Method::Post {
        return request.path.clone();
    }
    let body = serde_json::from_slice::<Value>(&reply.body).ok();
    let own = body.and_then(|body| text(body.get("@odata.id")));
    let path = reply.location.clone().or(own).and_then(|it| service.path(&it).ok());
    path.unwrap_or_else(|| request.path.clone())
}

/// Reads the account as its own user.
fn check<E: Exchange>(service: &mut Service<E>, path: &str, login: Login) -> Result<(), AccountError> {
    let user = login.user.clone();
    let mut last = (0, String::new());
    for attempt in 0..TRIES {
        if attempt > 0 {
            service.pause();
        }
        match service.get_as(path, &login)? {
            Reply { status: 200, .. } => return Ok(()),
            reply => last = (reply.status, said(&reply.body)),
        }
    }
    let (status, said) = last;
    Err(AccountError::NotKept { user, status, said })
}

/// Removes an account that was new: a member is deleted, and a slot is nobody's again.
fn give_back<E: Exchange>(service: &mut Service<E>, place: &Place, path: &str) {
    let request = |method, body| Request { method, path: path.to_owned(), body, if_match: None };
    let request = match place {
        Place::Own { .. } => return,
        Place::Collection(collection) if collection == path => return,
        Place::Collection(_) => request(Method::Delete, None),
        Place::Slot { .. } => request(Method::Patch, Some(json!({"UserName": "", "Enabled": false}))),
    };
    // A failure here is ignored: the caller reports the first error.
    let _ = service.change(request);
}
