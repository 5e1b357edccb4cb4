//! Logins by OpenID Connect (docs/decisions/049-openid-connect.md, docs/decisions/098-browser-logins.md): an ID token of the issuer that Settings name, for a session.
//!
//! | module | is |
//! | --- | --- |
//! | [`token`] | whether a token is good: pure |
//! | [`issuer`] | the issuer's keys and endpoints, fetched and kept; a code exchanged |
//! | [`account`] | which user a token's subject logs in as |
//! | [`flow`] | how a browser comes to an ID token: pure |

pub(crate) mod account;
pub(crate) mod flow;
pub(crate) mod issuer;
pub(crate) mod token;
