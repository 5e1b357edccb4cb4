//! Bootstrap accounts of a Redfish host interface (DSP0270 1.3 §9): given by IPMI to the machine itself, and taken by the Redfish
//! service of the same BMC. Both hold one [`Bootstrap`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::answers::{ok, refuse};
use crate::crypto::same;
use crate::message::{CompletionCode, Response};
use crate::random::{Random, SystemRandom};

/// The group of Redfish (§9.2).
const GROUP: u8 = 0x52;
/// The control octet that leaves credential bootstrapping on. All others turn it off.
const KEEP: u8 = 0xa5;
/// Credential bootstrapping is off.
const DISABLED: CompletionCode = CompletionCode(0x80);
/// Octets of a name and of a password.
const LENGTH: usize = 16;
/// Accounts that are kept; the oldest goes.
const MOST: usize = 8;
const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

#[derive(Debug)]
struct State {
    enabled: bool,
    accounts: Vec<(String, String)>,
}

/// The bootstrap accounts of a BMC, until it is reset.
#[derive(Clone, Debug)]
pub struct Bootstrap(Arc<Mutex<State>>);

impl Bootstrap {
    /// No accounts yet. `enabled`: the BMC gives them.
    #[must_use]
    pub fn new(enabled: bool) -> Self {
        Self(Arc::new(Mutex::new(State { enabled, accounts: Vec::new() })))
    }

    /// The property `Enabled` of CredentialBootstrapping.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.state().enabled
    }

    /// Turns it on or off. Accounts that were given stay.
    pub fn enable(&self, enabled: bool) {
        self.state().enabled = enabled;
    }

    /// True: the pair was given.
    #[must_use]
    pub fn takes(&self, user: &str, password: &str) -> bool {
        let state = self.state();
        state
            .accounts
            .iter()
            .any(|(name, secret)| name == user && same(secret.as_bytes(), password.as_bytes()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Get Bootstrap Account Credentials (§9.3).
    pub(crate) fn answer(&self, data: &[u8]) -> Response {
        let [GROUP, control] = *data else { return refuse(CompletionCode::INVALID_FIELD) };
        let mut state = self.state();
        if !state.enabled {
            return refuse(DISABLED);
        }
        let [Ok(user), Ok(password)] = [word(), word()] else {
            return refuse(CompletionCode::UNSPECIFIED);
        };
        state.enabled = control == KEEP;
        if state.accounts.len() >= MOST {
            state.accounts.remove(0);
        }
        let answer = [&[GROUP], user.as_bytes(), password.as_bytes()].concat();
        state.accounts.push((user, password));
        ok(answer)
    }
}

/// Random letters and digits.
fn word() -> Result<String, crate::error::Failure> {
    let octets: [u8; LENGTH] = SystemRandom.array()?;
    let letter = |octet: &u8| LETTERS.get(usize::from(octet % 32)).copied().map_or('a', char::from);
    Ok(octets.iter().map(letter).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_given_until_bootstrapping_is_turned_off() {
        let bootstrap = Bootstrap::new(true);
        let given = bootstrap.answer(&[GROUP, KEEP]);
        assert_eq!((given.code, given.data.len(), given.data[0]), (CompletionCode::OK, 33, GROUP));
        let text = |range: std::ops::Range<usize>| String::from_utf8(given.data[range].to_vec()).unwrap();
        let (user, password) = (text(1..17), text(17..33));
        assert!(bootstrap.takes(&user, &password) && !bootstrap.takes(&user, "another"));
        assert_eq!(bootstrap.answer(&[GROUP, 0]).code, CompletionCode::OK);
        assert_eq!(bootstrap.answer(&[GROUP, KEEP]).code, DISABLED);
        assert!(bootstrap.takes(&user, &password));
        assert_eq!(bootstrap.answer(&[0x00, KEEP]).code, CompletionCode::INVALID_FIELD);
    }
}
