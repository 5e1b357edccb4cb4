//! User names, passwords and privilege levels. They are checked before a packet is sent.

use zeroize::Zeroizing;

/// Longest user name that IPMI can carry, in octets (§22.28).
pub const MAX_USERNAME: usize = 16;
/// Longest password that IPMI 2.0 can carry, in octets (§22.30).
pub const MAX_PASSWORD: usize = 20;
/// Length of a BMC key, in octets (§13.31).
const BMC_KEY: usize = 20;

/// A user name or password that IPMI cannot carry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// The name is empty: the BMC would take the client for the anonymous user.
    #[error("the BMC user name is empty; name a user of the BMC")]
    EmptyUsername,
    /// The name has more than 16 octets.
    #[error(
        "the BMC user name {name:?} has {length} octets, and IPMI allows {MAX_USERNAME}; use a shorter name"
    )]
    UsernameTooLong {
        /// The name given.
        name: String,
        /// Its length in octets.
        length: usize,
    },
    /// The password has more than 20 octets. It is not repeated here.
    #[error(
        "the BMC password has {length} octets, and IPMI 2.0 allows {MAX_PASSWORD}; set a shorter one on the BMC, or use Redfish"
    )]
    PasswordTooLong {
        /// Its length in octets.
        length: usize,
    },
    /// The name or password contains a NUL octet, which would end it early on the BMC.
    #[error("the BMC {what} contains a NUL octet; choose another")]
    Nul {
        /// `user name` or `password`.
        what: &'static str,
    },
    /// The BMC key does not have 20 octets. It is not repeated here.
    #[error("the BMC key (K_g) has {length} octets, and IPMI 2.0 requires {BMC_KEY}")]
    BmcKeyLength {
        /// Its length in octets.
        length: usize,
    },
}

/// A BMC user's name: 1 to 16 octets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Username(String);

impl Username {
    /// Checks a name.
    ///
    /// # Errors
    /// [`CredentialError`] if it is empty, too long, or contains NUL.
    pub fn new(name: &str) -> Result<Self, CredentialError> {
        if name.is_empty() {
            return Err(CredentialError::EmptyUsername);
        }
        if name.len() > MAX_USERNAME {
            return Err(CredentialError::UsernameTooLong { name: name.to_owned(), length: name.len() });
        }
        if name.contains('\0') {
            return Err(CredentialError::Nul { what: "user name" });
        }
        Ok(Self(name.to_owned()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// A BMC user's password: at most 20 octets, wiped from memory when dropped, never printed.
#[derive(Clone)]
pub struct Password(Zeroizing<[u8; MAX_PASSWORD]>);

impl Password {
    /// Checks a password.
    ///
    /// # Errors
    /// [`CredentialError`] if it is too long or contains NUL.
    pub fn new(password: &str) -> Result<Self, CredentialError> {
        let bytes = password.as_bytes();
        if bytes.contains(&0) {
            return Err(CredentialError::Nul { what: "password" });
        }
        let mut padded = Zeroizing::new([0; MAX_PASSWORD]);
        let Some(head) = padded.get_mut(..bytes.len()) else {
            return Err(CredentialError::PasswordTooLong { length: bytes.len() });
        };
        head.copy_from_slice(bytes);
        Ok(Self(padded))
    }

    /// The key K[UID] of RAKP: the password, padded with NUL to 20 octets.
    pub(crate) fn key(&self) -> &[u8; MAX_PASSWORD] {
        &self.0
    }
}

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password(…)")
    }
}

/// A BMC's key K_g (§13.31): a second secret beside each user's password. All users have the same key. Wiped from memory when dropped, never
/// printed.
#[derive(Clone)]
pub struct BmcKey(Zeroizing<[u8; BMC_KEY]>);

impl BmcKey {
    /// Takes 20 octets.
    ///
    /// # Errors
    /// [`CredentialError::BmcKeyLength`].
    pub fn new(octets: &[u8]) -> Result<Self, CredentialError> {
        let octets = <[u8; BMC_KEY]>::try_from(octets)
            .map_err(|_| CredentialError::BmcKeyLength { length: octets.len() })?;
        Ok(Self(Zeroizing::new(octets)))
    }

    pub(crate) fn octets(&self) -> &[u8; BMC_KEY] {
        &self.0
    }
}

impl std::fmt::Debug for BmcKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BmcKey(…)")
    }
}

/// The user name and password for a BMC.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The name of the user.
    pub username: Username,
    /// The password of the user.
    pub password: Password,
    /// The key of the BMC. `None`: the password alone opens a session.
    pub bmc_key: Option<BmcKey>,
}

impl Credentials {
    /// Checks a name and a password.
    ///
    /// # Errors
    /// [`CredentialError`] for what IPMI cannot carry.
    pub fn new(username: &str, password: &str) -> Result<Self, CredentialError> {
        Ok(Self { username: Username::new(username)?, password: Password::new(password)?, bmc_key: None })
    }

    /// The credentials for a BMC that has a key.
    #[must_use]
    pub fn with_bmc_key(mut self, key: BmcKey) -> Self {
        self.bmc_key = Some(key);
        self
    }
}

/// Privilege levels of users, sessions and commands (§6.8), lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Privilege {
    /// Allows callback only.
    Callback = 1,
    /// Allows reading, but no changes.
    User = 2,
    /// Allows control of power and boot device, which is all that Basalt needs.
    Operator = 3,
    /// Allows changes to the BMC itself.
    Administrator = 4,
}

impl Privilege {
    /// The level of that number in the low four bits of `code`.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        match code & 0x0f {
            1 => Some(Self::Callback),
            2 => Some(Self::User),
            3 => Some(Self::Operator),
            4 => Some(Self::Administrator),
            _ => None,
        }
    }

    pub(crate) fn code(self) -> u8 {
        self as u8
    }
}

impl std::fmt::Display for Privilege {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Callback => "callback",
            Self::User => "user",
            Self::Operator => "operator",
            Self::Administrator => "administrator",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_octets_of_password_pass_and_twenty_one_are_named() {
        assert!(Password::new(&"x".repeat(20)).is_ok());
        let error = Password::new(&"x".repeat(21)).unwrap_err();
        assert_eq!(error, CredentialError::PasswordTooLong { length: 21 });
        assert!(error.to_string().contains("21 octets"));
    }

    #[test]
    fn an_overlong_user_name_is_refused_instead_of_becoming_anonymous() {
        assert!(Username::new("sixteen-octets-x").is_ok());
        assert!(matches!(
            Username::new("seventeen-octets-"),
            Err(CredentialError::UsernameTooLong { length: 17, .. })
        ));
        assert_eq!(Username::new("").unwrap_err(), CredentialError::EmptyUsername);
    }

    #[test]
    fn neither_a_password_nor_a_bmc_key_is_printed() {
        let key = BmcKey::new(b"twenty octets of key").unwrap();
        let printed = format!("{:?}", Credentials::new("admin", "hunter2").unwrap().with_bmc_key(key));
        assert!(!printed.contains("hunter2") && !printed.contains("twenty") && !printed.contains("116"));
    }

    #[test]
    fn a_bmc_key_has_twenty_octets() {
        for length in [0, 19, 21] {
            let error = BmcKey::new(&vec![7; length]).unwrap_err();
            assert_eq!(error, CredentialError::BmcKeyLength { length });
        }
    }
}
