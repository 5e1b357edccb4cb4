//! Logins by OpenID Connect: an ID token of the declared issuer is exchanged for a session (docs/decisions/049-openid-connect.md,
//! docs/decisions/098-browser-logins.md).
//!
//! | module | does |
//! | --- | --- |
//! | [`token`] | validates a token; pure |
//! | [`issuer`] | fetches and keeps the issuer's keys and endpoints; exchanges a code |
//! | [`account`] | maps a token's subject to a user |
//! | [`flow`] | the steps by which a browser gets an ID token; pure |

pub(crate) mod account;
pub(crate) mod flow;
pub(crate) mod issuer;
pub(crate) mod token;
