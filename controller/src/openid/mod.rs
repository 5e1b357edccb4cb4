//! Logins by OpenID Connect (docs/decisions/049-openid-connect.md): an ID token of the issuer that Settings name, for a session.
//!
//! | module | is |
//! | --- | --- |
//! | [`token`] | whether a token is good: pure |
//! | [`issuer`] | the issuer's keys, fetched and kept |
//! | [`account`] | which user a token's subject logs in as |

pub(crate) mod account;
pub(crate) mod issuer;
pub(crate) mod token;
