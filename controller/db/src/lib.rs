//! The region's store: the only crate that knows SQL.
//!
//! Every function is a whole transaction. No transaction type leaves this crate, and its only network dependency is the database's
//! client. So no caller can keep a transaction open while it waits for a BMC, a rack or a disk.
//!
//! | module | holds |
//! | --- | --- |
//! | [`Store`] | pool, seal key, wake-ups |
//! | `object`, `write`, `remove`, `rename` | objects of all kinds: specs as declared, references by uid, sealed secrets |
//! | `overlay` | supposed states of objects, for dry runs |
//! | `layer` | labels and tags of one manager |
//! | `reach` | the rights to write objects, by pools |
//! | `run` | runs of clients, and creations that no client has confirmed |
//! | `invariant` | values that only one object can have |
//! | `ipam` | addresses: their owners, and free ones |
//! | [`change`], `watch` | the change log and its follower; reads for watchers |
//! | `queue` | the reconcile queue and status writes |
//! | `topology` | the objects that most reconciliations read, with their position |
//! | `fact`, `step`, `claim`, `driver` | observations, steps, machines of deployments; the inputs of plans |
//! | `boot`, `lease` | the requests that booting machines send to racks; DHCP leases |
//! | `event` | events of the region |
//! | `test_result`, `tagging` | results of hardware tests; automatic tags |
//! | `bmc_account` | accounts that machines made on their BMCs |
//! | `zone`, `zone_source` | DNS zones, and the objects that names come from |
//! | `log_target` | receivers of machine logs |
//! | `gather` | single objects, read several in one statement |
//! | `stranger` | undeclared machines, as their agents found them, and limits on them |
//! | `operation` | one-time requests of people on machines |
//! | `decision`, `fleet` | the reasons of steps; the budget of the fleet |
//! | `gauge` | measurements |
//! | `webhook` | deliveries to webhooks |
//! | [`trace`] | the trace of a write |
//! | `entry`, `concern`, `common_concern` | the configuration of racks: per machine, as whole documents, and those that all racks share |
//! | `known` | the changes of the entries that all racks receive |
//! | `access`, `blob` | tokens, racks and regions; the list of blobs |
//! | `account`, `holders`, `password` | the holders of tokens, logins |
//! | `audit` | the audit log |
//! | [`cluster`] | a supervised PostgreSQL of the region; dumps |
//! | [`rotate`] | the replacement of the seal key |
//! | [`recover`] | a database that went back in time |
//!
//! Queries are checked against the schema when `controller/db/prepare` is run; its result, `.sqlx`, is in git, so that
//! building needs no database.

pub mod change;
pub mod cluster;
pub mod merge;
pub mod recover;
pub mod rotate;
pub mod splice;
#[cfg(feature = "testing")]
pub mod testing;
pub mod trace;

mod access;
mod account;
mod audit;
mod blob;
mod bmc_account;
mod boot;
mod claim;
mod common_concern;
mod concern;
mod decision;
mod driver;
mod entry;
mod error;
mod event;
mod fact;
mod fleet;
mod gather;
mod gauge;
mod holders;
mod invariant;
mod ipam;
mod known;
mod layer;
mod lease;
mod log_target;
mod object;
mod operation;
mod overlay;
mod password;
mod queue;
mod reach;
mod remove;
mod rename;
mod run;
mod seal;
mod secondary;
mod step;
mod store;
mod stranger;
mod tagging;
mod test_result;
mod topology;
pub mod wake;
mod watch;
mod webhook;
mod write;
mod zone;
mod zone_source;

pub use access::{Enrolment, Joined, RegionProcess};
pub use account::{Account, Bearer, Holder, Issued, RestsOn, RoleGrant};
pub use audit::{Actor, AuditEntry, AuditPage, AuditQuery};
pub use blob::Blob;
pub use bmc_account::{BmcAccount, BmcAccountState, BmcDestination, NewBmcAccount};
pub use boot::{BOOT_TRACE, BootTrace, HeardPort};
pub use claim::{Allocation, Claiming, Given};
pub use concern::{Concern, ConcernAck, ConcernHead, ConcernWrite};
pub use decision::{ALLOCATE, Decision, NewDecision};
pub use driver::{BootClaim, MachineMarks, TestsAccepted};
pub use entry::{EntriesRead, Entry, EntryHolder, EntryState, NewEntry, Progress};
pub use error::StoreError;
pub use event::{Event, EventPage, EventQuery};
pub use fact::{Fact, NewFact};
pub use fleet::{FleetLimits, FleetUse, Slot, Take};
pub use gauge::{FailingGauge, KindGauge, PhaseGauge, QueueGauge};
pub use ipam::{
    Address, AddressPosition, AddressQuery, AddressWish, Addressed, Block, BlockUse, Delegation, RangeUse,
    ServedSubnet, SubnetUse, TakenAddress, TakenPage,
};
pub use known::KnownNews;
pub use lease::{CurrentLease, Grantor, LastLease, LeasesSeen, RackLease, SubnetLeases};
pub use log_target::{LogProgress, LogTarget, Positions};
pub use object::{BmcOf, Key, ListQuery, Object, Page, Referrer};
pub use operation::{NewOperation, Operation};
pub use overlay::Overlay;
pub use password::{hash_password, verify_password};
pub use queue::{Requeue, StatusWrite, WorkLease};
pub use reach::Named;
pub use remove::{Deletion, Removal};
pub use rename::{Namesake, Renamed};
pub use run::Run;
pub use seal::{BadSealKey, SealKey};
pub use step::{Announced, Announcement, StepEnd, StepRecord};
pub use store::{Options, Store};
pub use stranger::{
    DeclaredMachine, FORGET, LeftOut, MADE, MOST_OF_VLAN, NEW_STRANGERS, STRANGER, Stranger, StrangerSeen,
};
pub use tagging::{PlaceUse, TagUse, Taggable, Tagged, Tagging};
pub use test_result::{TestQuery, TestResult, TestRun};
pub use topology::{TOPOLOGY_KINDS, TopologyRows};
pub use watch::{Changed, ChangedPage};
pub use webhook::{Delivery, DeliveryEntry, WebhookGauge, WebhookState};
pub use write::{Batch, Judge, NoJudge, Precondition, Prune, Pruned, Put, Stored, Written};
pub use zone::{DeclaredRecord, DynamicRange, HostAddress, HostName, Published, ZoneHead, ZoneRow};
pub use zone_source::{DocumentState, NameSource, NameSources};
