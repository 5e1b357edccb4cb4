//! The settings of a BMC that its manager can change: users by slot, access over LAN, addresses. Also its lockout after
//! failed logins.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::bootstrap::Bootstrap;
use crate::credentials::{MAX_PASSWORD, MAX_USERNAME, Password, Privilege, Username};
use crate::crypto::same;
use crate::message::CompletionCode;
use crate::server::User;

/// The channel of the LAN interface.
pub const LAN_CHANNEL: u8 = 1;
/// Set User Password (§22.30): the tested password is another one.
const PASSWORD_DIFFERS: CompletionCode = CompletionCode(0x80);
/// Set User Password (§22.30): the password was stored with another length.
const PASSWORD_SIZE: CompletionCode = CompletionCode(0x81);

/// A BMC's rules for passwords.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PasswordPolicy {
    /// The fewest characters of a password.
    pub min: usize,
    /// The most characters; more than 16 need the 20-octet form.
    pub max: usize,
    /// A password needs a capital letter, a small letter, a digit and another character, and no character twice in a
    /// row.
    pub mixed: bool,
}

impl Default for PasswordPolicy {
    fn default() -> Self {
        Self { min: 0, max: MAX_PASSWORD, mixed: false }
    }
}

impl PasswordPolicy {
    /// True if a password meets the rules.
    #[must_use]
    pub fn takes(&self, password: &[u8]) -> bool {
        let has = |class: fn(&u8) -> bool| password.iter().any(class);
        let mixed = has(u8::is_ascii_uppercase)
            && has(u8::is_ascii_lowercase)
            && has(u8::is_ascii_digit)
            && has(u8::is_ascii_punctuation)
            && password.windows(2).all(|pair| pair.first() != pair.last());
        (self.min..=self.max).contains(&password.len()) && (mixed || !self.mixed)
    }
}

/// The lockout of users after failed logins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lockout {
    /// The number of failed logins after which a user is locked.
    pub tries: u32,
    /// How long the user is locked.
    pub lasts: Duration,
}

/// The LAN interface's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lan {
    /// The address of the interface.
    pub address: Ipv4Addr,
    /// Its network mask.
    pub mask: Ipv4Addr,
    /// The router of its network.
    pub gateway: Ipv4Addr,
    /// The address comes from DHCP.
    pub dhcp: bool,
    /// Its own MAC address.
    pub mac: [u8; 6],
    /// Sessions over LAN are allowed (access mode "always available").
    pub enabled: bool,
}

impl Default for Lan {
    fn default() -> Self {
        Self {
            address: Ipv4Addr::UNSPECIFIED,
            mask: Ipv4Addr::UNSPECIFIED,
            gateway: Ipv4Addr::UNSPECIFIED,
            dhcp: false,
            mac: [0; 6],
            enabled: true,
        }
    }
}

/// A user slot. Slot 1 belongs to the anonymous user and has no user here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slot {
    pub(crate) name: Option<Username>,
    password: Option<Password>,
    /// The length that the password was set with, in octets.
    form: usize,
    pub(crate) enabled: bool,
    /// The highest privilege on the LAN channel.
    pub(crate) privilege: Option<Privilege>,
    /// It may open sessions over LAN.
    pub(crate) messaging: bool,
    failures: u32,
    locked_until: Option<Instant>,
}

/// Users, LAN settings and rules of a BMC.
#[derive(Clone, Debug)]
pub struct Accounts {
    slots: Vec<Slot>,
    pub(crate) lan: Lan,
    policy: PasswordPolicy,
    lockout: Option<Lockout>,
    pub(crate) bootstrap: Option<Bootstrap>,
}

impl Accounts {
    /// Accounts with this many slots, including slot 1; the users start at slot 2.
    #[must_use]
    pub fn new(slots: usize, users: Vec<User>) -> Self {
        let mut all = vec![Slot::default(); slots.max(users.len() + 1)];
        for (slot, user) in all.iter_mut().skip(1).zip(users) {
            *slot = Slot {
                name: Some(user.name),
                password: Some(user.password),
                form: MAX_PASSWORD,
                enabled: true,
                privilege: Some(user.privilege),
                messaging: true,
                ..Slot::default()
            };
        }
        Self {
            slots: all,
            lan: Lan::default(),
            policy: PasswordPolicy::default(),
            lockout: None,
            bootstrap: None,
        }
    }

    /// The accounts with these LAN settings.
    #[must_use]
    pub fn with_lan(mut self, lan: Lan) -> Self {
        self.lan = lan;
        self
    }

    /// The accounts with rules for passwords.
    #[must_use]
    pub fn with_policy(mut self, policy: PasswordPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// The accounts with a lockout after failed logins.
    #[must_use]
    pub fn with_lockout(mut self, lockout: Lockout) -> Self {
        self.lockout = Some(lockout);
        self
    }

    /// With bootstrap accounts for the machine itself.
    #[must_use]
    pub fn with_bootstrap(mut self, bootstrap: Bootstrap) -> Self {
        self.bootstrap = Some(bootstrap);
        self
    }

    /// How many slots there are.
    pub(crate) fn count(&self) -> usize {
        self.slots.len()
    }

    /// The number of users that may log in.
    pub(crate) fn enabled(&self) -> usize {
        self.slots.iter().filter(|slot| slot.enabled).count()
    }

    /// The slot with this number, from 1 on.
    pub(crate) fn slot(&mut self, id: u8) -> Result<&mut Slot, CompletionCode> {
        let index = usize::from(id & 0x3f).checked_sub(1);
        index.and_then(|index| self.slots.get_mut(index)).ok_or(CompletionCode::OUT_OF_RANGE)
    }

    /// The user with this name, if it may open a session over LAN now.
    pub(crate) fn who(&self, name: &[u8], now: Instant) -> Option<User> {
        let slot = self.named(name)?;
        let may = self.lan.enabled && slot.enabled && slot.messaging;
        let locked = slot.locked_until.is_some_and(|until| now < until);
        (may && !locked).then(|| {
            Some(User {
                name: slot.name.clone()?,
                password: slot.password.clone()?,
                privilege: slot.privilege?,
            })
        })?
    }

    fn named(&self, name: &[u8]) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.name.as_ref().is_some_and(|it| it.as_bytes() == name))
    }

    /// Counts a login that begins. A console with another password ends it without a message to the BMC.
    pub(crate) fn challenged(&mut self, name: &[u8], now: Instant) {
        let lockout = self.lockout;
        let Some(slot) = self.named_mut(name) else { return };
        slot.failures += 1;
        if let Some(lockout) = lockout.filter(|it| slot.failures >= it.tries) {
            slot.locked_until = now.checked_add(lockout.lasts);
            slot.failures = 0;
        }
    }

    /// Notes a successful login of the user.
    pub(crate) fn logged_in(&mut self, name: &[u8]) {
        if let Some(slot) = self.named_mut(name) {
            (slot.failures, slot.locked_until) = (0, None);
        }
    }

    fn named_mut(&mut self, name: &[u8]) -> Option<&mut Slot> {
        self.slots.iter_mut().find(|slot| slot.name.as_ref().is_some_and(|it| it.as_bytes() == name))
    }

    /// Set User Name (§22.28): 16 octets; the name ends at the first NUL.
    pub(crate) fn set_name(&mut self, id: u8, octets: &[u8]) -> Result<(), CompletionCode> {
        let octets: &[u8; MAX_USERNAME] = octets.try_into().map_err(|_| CompletionCode::BAD_LENGTH)?;
        let text = octets.split(|byte| *byte == 0).next().unwrap_or_default();
        let name = match std::str::from_utf8(text) {
            Ok("") => None,
            Ok(name) => Some(Username::new(name).map_err(|_| CompletionCode::INVALID_FIELD)?),
            Err(_) => return Err(CompletionCode::INVALID_FIELD),
        };
        if id & 0x3f == 1 {
            return Err(CompletionCode::INVALID_FIELD);
        }
        let taken = name.as_ref().and_then(|name| self.named(name.as_bytes())).is_some();
        let slot = self.slot(id)?;
        if taken && slot.name != name {
            return Err(CompletionCode::INVALID_FIELD);
        }
        slot.name = name;
        Ok(())
    }

    /// Set User Password (§22.30): sets or tests 16 or 20 octets.
    pub(crate) fn password(&mut self, id: u8, test: bool, octets: &[u8]) -> Result<(), CompletionCode> {
        let form = if id & 0x80 == 0 { MAX_USERNAME } else { MAX_PASSWORD };
        if octets.len() != form {
            return Err(CompletionCode::BAD_LENGTH);
        }
        let text = octets.split(|byte| *byte == 0).next().unwrap_or_default();
        let policy = self.policy;
        let slot = self.slot(id)?;
        if test {
            let known = slot.password.as_ref().ok_or(PASSWORD_DIFFERS)?;
            let mut padded = [0; MAX_PASSWORD];
            for (to, from) in padded.iter_mut().zip(octets) {
                *to = *from;
            }
            return match same(&padded, known.key()) {
                false => Err(PASSWORD_DIFFERS),
                true if slot.form != form => Err(PASSWORD_SIZE),
                true => Ok(()),
            };
        }
        if form > policy.max && text.len() > policy.max {
            return Err(CompletionCode::BAD_LENGTH);
        }
        if !policy.takes(text) {
            return Err(CompletionCode::INVALID_FIELD);
        }
        let text = std::str::from_utf8(text).map_err(|_| CompletionCode::INVALID_FIELD)?;
        slot.password = Some(Password::new(text).map_err(|_| CompletionCode::INVALID_FIELD)?);
        slot.form = form;
        Ok(())
    }
}
