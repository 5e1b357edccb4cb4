//! Everything between the region and its racks.
//!
//! | module | is |
//! | --- | --- |
//! | [`authority`] | the certificate authority that racks are enrolled with |
//! | [`join_token`] | what a person carries to a new rack |
//! | [`sessions`] | the streams that racks hold open to this process |
//! | [`own_address`] | where racks dial this process |
//! | [`regions`] | where they dial the others, of which it tells them |
//! | [`observed`] | facts, from the wire to the store |
//! | [`stranger`] | which machine a result is of that nobody declared |
//! | `enrolment` | enrolling, and renewing certificates |
//! | `call` | the calls: who may make each, and how much of it is read |
//! | [`service`] | the gRPC services: link, blobs |
//! | [`listener`], `doors` | TLS in front of them; how many connections there may be |

pub mod authority;
mod call;
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
