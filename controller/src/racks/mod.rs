//! The connection between the region and its racks.
//!
//! | module | contents |
//! | --- | --- |
//! | [`authority`] | the certificate authority with which racks are enrolled |
//! | [`join_token`] | the token with which a person enrols a new rack |
//! | [`concerns`] | the concerns that a rack was sent: whole, or as deltas |
//! | [`sessions`] | the racks' streams to this process |
//! | [`own_address`] | the address at which racks reach this process |
//! | [`regions`] | the addresses of the other processes, which this one sends to racks |
//! | [`observed`] | facts, from the wire to the store |
//! | [`stranger`] | the identity of an undeclared machine, from its result |
//! | `enrolment` | enrolment, and renewal of certificates |
//! | `call` | the calls: permitted callers, and limits on their bodies |
//! | [`service`] | the gRPC services: link, blobs |
//! | [`listener`], `doors` | TLS, and the limits on connections |

pub mod authority;
mod call;
pub mod concerns;
mod doors;
mod enrolment;
mod failures;
pub mod join_token;
pub mod listener;
pub mod meters;
pub mod observed;
pub mod own_address;
pub mod regions;
pub mod service;
pub mod sessions;
pub mod stranger;
mod tunnel;
