//! The register of attempts: their claims and their ends. Stored in the file `attempts`.
//!
//! An attempt is one armed ephemeral boot of one *subject*: a machine or, for enlistment, one unknown MAC. The boot
//! concern arms it. An attempt ends when one of these happens: its result arrives, `not_after` passes, or it is fenced.
//!
//! # Claims
//! A claim carries a boot token, which is verified before the register is asked. Then, first match wins:
//!
//! | attempt | token's boot counter, against the claim's | boot id | address | answer |
//! | --- | --- | --- | --- | --- |
//! | finished | | | | refused: finished |
//! | fenced | | | | refused: fenced |
//! | claimed | same | | not the claim's | **fenced**, alarm: a claim from two places |
//! | | | | not the one leased to the MAC | refused: address, alarm |
//! | claimed | same | same | | the same answer again |
//! | claimed | same | other | | refused: taken, alarm |
//! | claimed | lower | | | refused: outdated; alarm |
//! | | | | | token expired: refused |
//! | claimed | higher | | | granted: the machine has rebooted; the earlier session ends |
//! | not claimed | | | | granted |
//!
//! "Leased to the MAC" is checked only if this rack knows a lease. If another rack serves DHCP, it may not.
//!
//! The boot counter rises with every boot exchange (see [`presence`](crate::presence)) for which a script was rendered.
//! So a retry of the script within one boot has the same counter, and a machine that was reset has a higher one. The
//! counter starts at the clock's seconds. So it also rises from rack to rack, and after this file is lost.
//!
//! # Sessions
//! A session key is verified by its tag (see [`token`](crate::token)). It is refused once its attempt is fenced, or
//! claimed by a later boot or another boot id. A session that another rack granted is taken over.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use basalt_api::agent::Checkpoint;
use basalt_dhcp::Mac;
use serde::{Deserialize, Serialize};

use crate::boot::BootTable;
use crate::hash::sha256;
use crate::journal::Journal;
use crate::token::{BootIdDigest, Session, report};

/// The most attempts that are kept when the file is opened. Those with the lowest numbers are dropped first.
const REMEMBERED: usize = 20_000;
/// The most attempts of undeclared machines that are kept. At this number, the older half is dropped: anybody on a
/// network can invent such machines, at most 256 an hour in each VLAN (see [`strangers`](crate::strangers)).
const STRANGERS: usize = 8_192;
/// The file is rewritten when it is larger than this, and twice as large as after the last rewrite.
const COMPACT_BYTES: u64 = 32 << 20;

/// The subject of an attempt: a machine's uid, or a MAC for enlistment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Subject(String);

impl Subject {
    /// The subject for a known machine.
    #[must_use]
    pub fn machine(uid: &str) -> Self {
        Self(uid.to_owned())
    }

    /// The subject for an unknown machine, identified by its MAC.
    #[must_use]
    pub fn mac(mac: Mac) -> Self {
        Self(mac.to_string())
    }

    /// The MAC of an unknown machine. `None`: it is a known one.
    fn stranger(&self) -> Option<Mac> {
        self.0.parse().ok()
    }
}

impl From<Subject> for String {
    fn from(subject: Subject) -> Self {
        subject.0
    }
}

/// The identity of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptId {
    /// The region-wide number.
    pub attempt: u64,
    /// The machine or MAC that the attempt boots.
    pub subject: Subject,
}

/// A claim that was granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The boot counter of its token.
    pub boot: u64,
    /// The digest of the claimant's boot id.
    pub boot_id: BootIdDigest,
    /// The address of the claimant; `None` when the claim was taken over from another rack.
    pub address: Option<IpAddr>,
    /// An earlier boot had claimed the attempt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
}

/// The claimant of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claimant {
    /// The boot counter of the token.
    pub boot: u64,
    /// The digest of the boot id.
    pub boot_id: BootIdDigest,
    /// The address that the claim came from.
    pub address: IpAddr,
    /// The token has expired.
    pub expired: bool,
    /// The address that this rack has leased to the token's MAC.
    pub leased: Option<IpAddr>,
}

/// The reason why a claim or a session is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The result of the attempt has arrived.
    #[error("the attempt has finished")]
    Finished,
    /// The attempt was claimed from two places.
    #[error("the attempt was claimed from two places and is fenced; a new attempt is needed")]
    Fenced,
    /// The token comes from an address that is not its machine's.
    #[error("the boot token does not belong to this address")]
    Address,
    /// Another program of the same boot has claimed the attempt.
    #[error("this boot has already claimed, under another boot id")]
    Taken,
    /// The machine has booted again since.
    #[error("a later boot of this machine has claimed")]
    Outdated,
    /// The token expired before the claim.
    #[error("the boot token has expired")]
    Expired,
}

impl Refusal {
    /// The error code in the answer.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Fenced => "fenced",
            Self::Address => "wrong_address",
            Self::Taken => "taken",
            Self::Outdated => "outdated",
            Self::Expired => "expired",
        }
    }
}

/// The decision about a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimDecision {
    /// This is the attempt's claim from now on.
    Granted,
    /// The attempt already has this claim: the claimant repeated its request.
    Repeated,
    /// The claim is refused.
    Refused(Refusal),
    /// The claim is refused, and an alarm is raised.
    RefusedLoudly(Refusal),
    /// The claim is refused, the attempt is fenced, and an alarm is raised.
    Fence,
}

/// The register's data about one attempt.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    minted: u64,
    minted_for: Option<u64>,
    claim: Option<Claim>,
    fenced: bool,
    /// The digest of the session key that delivered the result.
    finished: Option<String>,
    /// The digest of the report token.
    report: Option<String>,
    progress: u64,
    /// The number of passwords for its BMC that were stored.
    accounts: u32,
    log_end: u64,
    /// The latest checkpoint of its agent.
    checkpoint: Option<Box<Checkpoint>>,
    /// Bytes of all its checkpoints.
    checkpoint_bytes: usize,
}

/// Decides about a claim, by the table in the module's documentation.
#[must_use]
pub fn decide(entry: &Entry, claimant: &Claimant) -> ClaimDecision {
    use ClaimDecision::{Fence, Granted, Refused, RefusedLoudly, Repeated};
    if entry.finished.is_some() {
        return Refused(Refusal::Finished);
    }
    if entry.fenced {
        return Refused(Refusal::Fenced);
    }
    let same_boot = entry.claim.as_ref().filter(|claim| claim.boot == claimant.boot);
    if same_boot.and_then(|claim| claim.address).is_some_and(|address| address != claimant.address) {
        return Fence;
    }
    if claimant.leased.is_some_and(|leased| leased != claimant.address) {
        return RefusedLoudly(Refusal::Address);
    }
    match &entry.claim {
        Some(claim) if claim.boot == claimant.boot && claim.boot_id == claimant.boot_id => Repeated,
        Some(claim) if claim.boot == claimant.boot => RefusedLoudly(Refusal::Taken),
        Some(claim) if claim.boot > claimant.boot => RefusedLoudly(Refusal::Outdated),
        _ if claimant.expired => Refused(Refusal::Expired),
        _ => Granted,
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Record {
    Claimed {
        id: AttemptId,
        claim: Claim,
    },
    Fenced {
        id: AttemptId,
    },
    /// A checkpoint of the agent.
    Checkpoint {
        id: AttemptId,
        checkpoint: Box<Checkpoint>,
    },
    /// The attempt starts over for the same subject: an unknown machine is inspected again.
    Renewed {
        id: AttemptId,
    },
    /// The digest of the attempt's report token. With it the installed system can report to any rack that ever held
    /// this attempt's key, even if another rack took the result.
    Reports {
        id: AttemptId,
        report: String,
    },
    /// The result is in the spool. With the digests the session can repeat the result and the system can report, even
    /// after the boot concern has dropped the attempt and its key.
    Finished {
        id: AttemptId,
        session: String,
        report: String,
    },
}

/// The end of an attempt, for the boot concern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// The result of the attempt has arrived.
    Finished,
    /// The attempt was claimed from two places.
    Fenced,
}

/// The register, with its file.
#[derive(Debug)]
pub struct Attempts {
    inner: Mutex<(Journal<Record>, BTreeMap<AttemptId, Entry>)>,
}

impl Attempts {
    /// Reads `DIR/attempts`.
    ///
    /// # Errors
    /// `io::Error`: the file cannot be read or written.
    pub fn open(data_dir: &Path) -> io::Result<Self> {
        let (mut journal, found) = Journal::open(&data_dir.join("attempts"))?;
        let mut entries = BTreeMap::new();
        for record in found.records {
            apply(&mut entries, record);
        }
        if found.skipped > 0 {
            tracing::error!(lines = found.skipped, "file `attempts` has damaged lines; they were skipped");
        }
        while entries.len() > REMEMBERED {
            entries.pop_first();
        }
        if found.existed {
            journal.rewrite(&records(&entries))?;
        }
        Ok(Self { inner: Mutex::new((journal, entries)) })
    }

    /// The way in which an attempt ended; `None` while it runs.
    pub fn over(&self, id: &AttemptId) -> Option<Over> {
        self.with(|_, entries| {
            let entry = entries.get(id)?;
            if entry.finished.is_some() {
                return Some(Over::Finished);
            }
            entry.fenced.then_some(Over::Fenced)
        })
    }

    /// The boot counter for a token: the same within one boot exchange, otherwise higher than every earlier one.
    pub fn next_boot(&self, id: &AttemptId, exchange: u64, now_ms: i64) -> u64 {
        self.with(|_, entries| {
            let entry = entries.entry(id.clone()).or_default();
            if entry.minted_for != Some(exchange) {
                let claimed = entry.claim.as_ref().map_or(0, |claim| claim.boot);
                let seconds = u64::try_from(now_ms / 1000).unwrap_or(0);
                entry.minted = (entry.minted.max(claimed) + 1).max(seconds);
                entry.minted_for = Some(exchange);
            }
            entry.minted
        })
    }

    /// Starts an attempt over if it has ended. Its earlier sessions stay refused, since the boot counter continues.
    ///
    /// # Errors
    /// `io::Error`: the file cannot be written; the attempt stays ended.
    pub fn renew(&self, id: &AttemptId) -> io::Result<()> {
        self.with(|journal, entries| {
            forget_strangers(entries);
            journal.compact(COMPACT_BYTES, || Some(records(entries)));
            if !entries.get(id).is_some_and(|entry| entry.fenced || entry.finished.is_some()) {
                return Ok(());
            }
            let record = Record::Renewed { id: id.clone() };
            journal.append(std::slice::from_ref(&record))?;
            apply(entries, record);
            Ok(())
        })
    }

    /// The MACs of unknown machines whose results have arrived.
    #[must_use]
    pub fn strangers(&self) -> Vec<Mac> {
        self.with(|_, entries| {
            let finished = entries.iter().filter(|(_, entry)| entry.finished.is_some());
            finished.filter_map(|(id, _)| id.subject.stranger()).collect()
        })
    }

    /// Decides about a claim and stores the decision durably.
    ///
    /// # Errors
    /// `io::Error`: the file cannot be written; nothing was granted.
    pub fn claim(&self, id: &AttemptId, claimant: &Claimant) -> io::Result<ClaimDecision> {
        self.with(|journal, entries| {
            let entry = entries.entry(id.clone()).or_default();
            let (decision, again) = (decide(entry, claimant), entry.claim.is_some());
            let record = match decision {
                ClaimDecision::Granted => Record::Claimed {
                    id: id.clone(),
                    claim: Claim {
                        boot: claimant.boot,
                        boot_id: claimant.boot_id,
                        address: Some(claimant.address),
                        again,
                    },
                },
                ClaimDecision::Fence => Record::Fenced { id: id.clone() },
                _ => return Ok(decision),
            };
            journal.append(std::slice::from_ref(&record))?;
            apply(entries, record);
            Ok(decision)
        })
    }

    /// Allows a session with a verified key to act, or returns the reason why not. A session that another rack granted
    /// is stored as a claim.
    ///
    /// # Errors
    /// `io::Error`: the file cannot be written.
    pub fn session(&self, id: &AttemptId, session: &Session) -> io::Result<Result<(), Refusal>> {
        self.with(|journal, entries| {
            let entry = entries.entry(id.clone()).or_default();
            if entry.fenced {
                return Ok(Err(Refusal::Fenced));
            }
            match &entry.claim {
                Some(claim) if claim.boot == session.boot && claim.boot_id == session.boot_id => {
                    return Ok(Ok(()));
                }
                Some(claim) if claim.boot >= session.boot => return Ok(Err(Refusal::Outdated)),
                _ if entry.finished.is_some() => return Ok(Err(Refusal::Finished)),
                _ => {}
            }
            let claim = Claim { boot: session.boot, boot_id: session.boot_id, address: None, again: false };
            let record = Record::Claimed { id: id.clone(), claim };
            journal.append(std::slice::from_ref(&record))?;
            apply(entries, record);
            Ok(Ok(()))
        })
    }

    /// Stores the report token of every machine that the boot concern arms, so that reports are recognised after the
    /// concern has dropped the machine.
    ///
    /// # Errors
    /// `io::Error`: the file cannot be written; tokens that were not stored are tried again with the next concern.
    pub fn remember_reports(&self, table: &BootTable) -> io::Result<()> {
        self.with(|journal, entries| {
            let mut new = Vec::new();
            for (machine, boot) in table.armed() {
                let id = AttemptId { attempt: boot.attempt, subject: Subject::machine(&machine.machine_uid) };
                if entries.get(&id).is_none_or(|entry| entry.report.is_none()) {
                    let token = report::mint(&boot.attempt_key, boot.attempt, &machine.machine_uid);
                    new.push(Record::Reports { id, report: digest(&token) });
                }
            }
            if new.is_empty() {
                return Ok(());
            }
            journal.append(&new)?;
            new.into_iter().for_each(|record| apply(entries, record));
            Ok(())
        })
    }

    /// Ends the attempt: its result is durable in the spool. `session` and `report` are the key and the token as text.
    ///
    /// # Errors
    /// `io::Error`: the file cannot be written; the result must not be acknowledged.
    pub fn finish(&self, id: &AttemptId, session: &str, report: &str) -> io::Result<()> {
        self.with(|journal, entries| {
            if entries.get(id).is_some_and(|entry| entry.finished.is_some()) {
                return Ok(());
            }
            let record =
                Record::Finished { id: id.clone(), session: digest(session), report: digest(report) };
            journal.append(std::slice::from_ref(&record))?;
            apply(entries, record);
            Ok(())
        })
    }

    /// The finished attempt that this session key belonged to.
    pub fn finished_by(&self, session: &str) -> Option<AttemptId> {
        let digest = digest(session);
        self.with(|_, entries| {
            let mut newest_first = entries.iter().rev();
            newest_first.find(|(_, entry)| entry.finished.as_ref() == Some(&digest)).map(|(id, _)| id.clone())
        })
    }

    /// The attempt whose installed system holds this report token.
    pub fn reported_by(&self, attempt: u64, token: &str) -> Option<AttemptId> {
        let digest = digest(token);
        self.with(|_, entries| {
            let first = AttemptId { attempt, subject: Subject(String::new()) };
            let mut of_attempt = entries.range(first..).take_while(|(id, _)| id.attempt == attempt);
            let found = of_attempt.find(|(_, entry)| entry.report.as_ref() == Some(&digest));
            found.map(|(id, _)| id.clone())
        })
    }

    /// True if a progress report is new, false for a repeat.
    pub fn is_new_progress(&self, id: &AttemptId, seq: u64) -> bool {
        self.with(|_, entries| {
            let entry = entries.entry(id.clone()).or_default();
            let new = seq > entry.progress;
            entry.progress = entry.progress.max(seq);
            new
        })
    }

    /// Counts a password for the BMC that the attempt wants to store. False: it has stored `most` already.
    pub fn may_write_account(&self, id: &AttemptId, most: u32) -> bool {
        self.with(|_, entries| {
            let entry = entries.entry(id.clone()).or_default();
            let may = entry.accounts < most;
            entry.accounts += u32::from(may);
            may
        })
    }

    /// The latest checkpoint of an attempt that runs.
    pub fn checkpoint(&self, id: &AttemptId) -> Option<Box<Checkpoint>> {
        self.with(|_, entries| entries.get(id)?.checkpoint.clone())
    }

    /// Counts the bytes of a checkpoint. False: the attempt has had `most`.
    pub fn may_write_checkpoint(&self, id: &AttemptId, bytes: usize, most: usize) -> bool {
        self.with(|_, entries| {
            let entry = entries.entry(id.clone()).or_default();
            entry.checkpoint_bytes = entry.checkpoint_bytes.saturating_add(bytes);
            entry.checkpoint_bytes <= most
        })
    }

    /// Stores a checkpoint, unless a later one is stored.
    ///
    /// # Errors
    /// `io::Error`: the file cannot be written; the checkpoint must not be acknowledged.
    pub fn write_checkpoint(&self, id: &AttemptId, checkpoint: Box<Checkpoint>) -> io::Result<()> {
        self.with(|journal, entries| {
            let known = entries.get(id).and_then(|entry| entry.checkpoint.as_ref());
            if known.is_some_and(|known| known.seq >= checkpoint.seq) {
                return Ok(());
            }
            let record = Record::Checkpoint { id: id.clone(), checkpoint };
            journal.append(std::slice::from_ref(&record))?;
            apply(entries, record);
            Ok(())
        })
    }

    /// True if an earlier boot had claimed the attempt before the boot that holds the claim now.
    pub fn is_claimed_again(&self, id: &AttemptId) -> bool {
        self.with(|_, entries| {
            entries.get(id).and_then(|entry| entry.claim.as_ref()).is_some_and(|claim| claim.again)
        })
    }

    /// The number of bytes at the start of a log chunk that were received before.
    pub fn known_log_bytes(&self, id: &AttemptId, offset: u64, length: u64) -> u64 {
        self.with(|_, entries| {
            let entry = entries.entry(id.clone()).or_default();
            let known = entry.log_end.saturating_sub(offset).min(length);
            entry.log_end = entry.log_end.max(offset.saturating_add(length));
            known
        })
    }

    fn with<R>(&self, act: impl FnOnce(&mut Journal<Record>, &mut BTreeMap<AttemptId, Entry>) -> R) -> R {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let (journal, entries) = &mut *inner;
        act(journal, entries)
    }
}

/// Drops the older half of the undeclared machines' attempts if there are too many. A boot counter starts at the clock's
/// seconds, so a lower one is older.
fn forget_strangers(entries: &mut BTreeMap<AttemptId, Entry>) {
    if entries.len() < STRANGERS {
        return;
    }
    let boot = |entry: &Entry| entry.minted.max(entry.claim.as_ref().map_or(0, |claim| claim.boot));
    let strangers = entries.iter().filter(|(id, _)| id.subject.stranger().is_some());
    let mut by_age: Vec<_> = strangers.map(|(id, entry)| (boot(entry), id.clone())).collect();
    if by_age.len() < STRANGERS {
        return;
    }
    by_age.sort_unstable();
    for (_, id) in by_age.iter().take(STRANGERS / 2) {
        entries.remove(id);
    }
}

fn digest(secret: &str) -> String {
    hex::encode(sha256(secret.as_bytes()))
}

fn apply(entries: &mut BTreeMap<AttemptId, Entry>, record: Record) {
    match record {
        Record::Claimed { id, claim } => {
            let entry = entries.entry(id).or_default();
            // A machine that booted again restarts its report numbers.
            entry.progress = 0;
            entry.log_end = 0;
            entry.claim = Some(claim);
        }
        Record::Fenced { id } => entries.entry(id).or_default().fenced = true,
        Record::Checkpoint { id, checkpoint } => {
            entries.entry(id).or_default().checkpoint = Some(checkpoint);
        }
        Record::Renewed { id } => {
            let entry = entries.entry(id).or_default();
            entry.checkpoint = None;
            (entry.fenced, entry.finished, entry.report) = (false, None, None);
            // A boot id that no machine has: sessions of earlier boots are outdated.
            if let Some(claim) = &mut entry.claim {
                (claim.boot, claim.boot_id, claim.address) = (claim.boot.saturating_add(1), [0; 16], None);
            }
        }
        Record::Reports { id, report } => entries.entry(id).or_default().report = Some(report),
        Record::Finished { id, session, report } => {
            let entry = entries.entry(id).or_default();
            entry.finished = Some(session);
            entry.report = Some(report);
            entry.checkpoint = None;
        }
    }
}

fn records(entries: &BTreeMap<AttemptId, Entry>) -> Vec<Record> {
    let mut records = Vec::new();
    for (id, entry) in entries {
        let id = || id.clone();
        records.extend(entry.claim.iter().map(|claim| Record::Claimed { id: id(), claim: claim.clone() }));
        let checkpoint = entry.checkpoint.iter();
        records.extend(checkpoint.map(|it| Record::Checkpoint { id: id(), checkpoint: it.clone() }));
        records.extend(entry.fenced.then(|| Record::Fenced { id: id() }));
        match (&entry.finished, &entry.report) {
            (Some(session), Some(report)) => {
                records.push(Record::Finished { id: id(), session: session.clone(), report: report.clone() });
            }
            (None, Some(report)) => records.push(Record::Reports { id: id(), report: report.clone() }),
            (_, None) => {}
        }
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::boot_id_digest;

    fn id() -> AttemptId {
        AttemptId { attempt: 17, subject: Subject::machine("m1") }
    }

    fn claimant(boot: u64, boot_id: &str, address: &str) -> Claimant {
        let address = address.parse().unwrap();
        Claimant { boot, boot_id: boot_id_digest(boot_id), address, expired: false, leased: None }
    }

    fn open() -> (tempfile::TempDir, Attempts) {
        let dir = tempfile::tempdir().unwrap();
        let attempts = Attempts::open(dir.path()).unwrap();
        (dir, attempts)
    }

    #[test]
    fn undeclared_machines_that_somebody_makes_up_push_out_older_ones_and_no_declared_machine() {
        let (_dir, attempts) = open();
        attempts.next_boot(&id(), 1, 1_000);
        let of = |number: u32| {
            let [a, b, c, d] = number.to_be_bytes();
            AttemptId { attempt: 4, subject: Subject::mac(Mac([2, 0, a, b, c, d])) }
        };
        let count = u32::try_from(STRANGERS).unwrap() + 10;
        for number in 0..count {
            // The older machines have the higher MACs.
            let id = of(count - number);
            attempts.renew(&id).unwrap();
            attempts.next_boot(&id, u64::from(number), i64::from(number) * 1_000);
        }
        attempts.with(|_, entries| {
            assert_eq!(entries.len(), 1 + STRANGERS / 2 + 10);
            assert!(entries.contains_key(&id()) && entries.contains_key(&of(1)));
            assert!(!entries.contains_key(&of(count)), "the oldest one");
        });
    }

    #[test]
    fn a_claim_is_granted_once_and_its_identical_repeat_answered_the_same_even_late_and_after_a_restart() {
        let (dir, attempts) = open();
        let first = claimant(5, "a", "10.0.0.5");
        assert_eq!(attempts.claim(&id(), &first).unwrap(), ClaimDecision::Granted);
        assert_eq!(attempts.claim(&id(), &first).unwrap(), ClaimDecision::Repeated);
        let attempts = Attempts::open(dir.path()).unwrap();
        assert_eq!(
            attempts.claim(&id(), &Claimant { expired: true, ..first }).unwrap(),
            ClaimDecision::Repeated
        );
    }

    #[test]
    fn a_machine_that_was_reset_claims_again_with_a_higher_counter_and_its_earlier_boot_is_out() {
        let (_dir, attempts) = open();
        attempts.claim(&id(), &claimant(5, "a", "10.0.0.5")).unwrap();
        assert_eq!(attempts.claim(&id(), &claimant(6, "b", "10.0.0.9")).unwrap(), ClaimDecision::Granted);
        let late = attempts.claim(&id(), &claimant(5, "a", "10.0.0.5")).unwrap();
        assert_eq!(late, ClaimDecision::RefusedLoudly(Refusal::Outdated));
        let session =
            |boot, boot_id| Session { attempt: 17, mac: Mac([0; 6]), boot, boot_id: boot_id_digest(boot_id) };
        assert_eq!(attempts.session(&id(), &session(5, "a")).unwrap(), Err(Refusal::Outdated));
        assert_eq!(attempts.session(&id(), &session(6, "b")).unwrap(), Ok(()));
    }

    #[test]
    fn a_stolen_token_used_elsewhere_fences_the_attempt_for_everyone() {
        let (dir, attempts) = open();
        attempts.claim(&id(), &claimant(5, "a", "10.0.0.5")).unwrap();
        assert_eq!(attempts.claim(&id(), &claimant(5, "thief", "10.0.0.66")).unwrap(), ClaimDecision::Fence);
        let attempts = Attempts::open(dir.path()).unwrap();
        assert_eq!(attempts.over(&id()), Some(Over::Fenced));
        for again in [claimant(5, "a", "10.0.0.5"), claimant(6, "a", "10.0.0.5")] {
            assert_eq!(attempts.claim(&id(), &again).unwrap(), ClaimDecision::Refused(Refusal::Fenced));
        }
        let session = Session { attempt: 17, mac: Mac([0; 6]), boot: 5, boot_id: boot_id_digest("a") };
        assert_eq!(attempts.session(&id(), &session).unwrap(), Err(Refusal::Fenced));
    }

    #[test]
    fn even_a_copied_boot_id_does_not_open_the_session_elsewhere() {
        let (_dir, attempts) = open();
        attempts.claim(&id(), &claimant(5, "a", "10.0.0.5")).unwrap();
        assert_eq!(attempts.claim(&id(), &claimant(5, "a", "10.0.0.66")).unwrap(), ClaimDecision::Fence);
    }

    #[test]
    fn a_thief_who_is_faster_than_the_machine_is_refused_where_the_lease_is_known() {
        let (_dir, attempts) = open();
        let leased = Some("10.0.0.5".parse().unwrap());
        let thief = Claimant { leased, ..claimant(5, "thief", "10.0.0.66") };
        assert_eq!(attempts.claim(&id(), &thief).unwrap(), ClaimDecision::RefusedLoudly(Refusal::Address));
        let machine = Claimant { leased, ..claimant(5, "a", "10.0.0.5") };
        assert_eq!(attempts.claim(&id(), &machine).unwrap(), ClaimDecision::Granted);
    }

    #[test]
    fn a_second_program_of_the_same_boot_is_refused_and_the_first_goes_on() {
        let (_dir, attempts) = open();
        let first = claimant(5, "a", "10.0.0.5");
        attempts.claim(&id(), &first).unwrap();
        let second = attempts.claim(&id(), &claimant(5, "b", "10.0.0.5")).unwrap();
        assert_eq!(second, ClaimDecision::RefusedLoudly(Refusal::Taken));
        assert_eq!(attempts.claim(&id(), &first).unwrap(), ClaimDecision::Repeated);
    }

    #[test]
    fn an_expired_token_claims_nothing() {
        let (_dir, attempts) = open();
        let late = Claimant { expired: true, ..claimant(5, "a", "10.0.0.5") };
        assert_eq!(attempts.claim(&id(), &late).unwrap(), ClaimDecision::Refused(Refusal::Expired));
    }

    #[test]
    fn after_the_result_nothing_can_be_claimed_but_the_result_can_be_repeated() {
        let (dir, attempts) = open();
        attempts.claim(&id(), &claimant(5, "a", "10.0.0.5")).unwrap();
        attempts.finish(&id(), "session", "report").unwrap();
        let attempts_again = Attempts::open(dir.path()).unwrap();
        for attempts in [attempts, attempts_again] {
            assert_eq!(attempts.over(&id()), Some(Over::Finished));
            for boot in [5, 6] {
                let claim = attempts.claim(&id(), &claimant(boot, "a", "10.0.0.5")).unwrap();
                assert_eq!(claim, ClaimDecision::Refused(Refusal::Finished));
            }
            assert_eq!(attempts.finished_by("session"), Some(id()));
            assert_eq!(attempts.finished_by("other"), None);
            assert_eq!(attempts.reported_by(17, "report"), Some(id()));
            assert_eq!(attempts.reported_by(17, "forged"), None);
            assert_eq!(attempts.reported_by(18, "report"), None);
        }
    }

    #[test]
    fn an_attempt_of_a_stranger_begins_anew_and_its_old_session_does_not() {
        let (dir, attempts) = open();
        let id = AttemptId { attempt: 4, subject: Subject::mac(Mac([0x52, 0x54, 0, 0, 0, 9])) };
        let first = attempts.next_boot(&id, 1, 1_700_000_000_000);
        attempts.claim(&id, &claimant(first, "a", "10.0.0.5")).unwrap();
        attempts.finish(&id, "session", "report").unwrap();
        assert_eq!(attempts.strangers(), [Mac([0x52, 0x54, 0, 0, 0, 9])]);
        attempts.renew(&id).unwrap();
        let attempts = [attempts, Attempts::open(dir.path()).unwrap()];
        for attempts in &attempts {
            assert_eq!((attempts.over(&id), attempts.strangers()), (None, Vec::new()));
            let session = Session {
                attempt: 4,
                mac: Mac([0x52, 0x54, 0, 0, 0, 9]),
                boot: first,
                boot_id: boot_id_digest("a"),
            };
            assert_eq!(attempts.session(&id, &session).unwrap(), Err(Refusal::Outdated));
            let again = attempts.next_boot(&id, 7, 0);
            assert!(again > first);
            let claim = attempts.claim(&id, &claimant(again, "b", "10.0.0.5")).unwrap();
            assert_eq!(claim, ClaimDecision::Granted);
            let old = attempts.claim(&id, &claimant(first, "a", "10.0.0.5")).unwrap();
            assert_eq!(old, ClaimDecision::RefusedLoudly(Refusal::Outdated));
        }
    }

    #[test]
    fn an_installed_system_reports_to_a_rack_that_did_not_take_its_result() {
        let (dir, attempts) = open();
        let table = BootTable::new(&Default::default(), crate::boot::fixtures::concern());
        attempts.remember_reports(&table).unwrap();
        let size = || std::fs::metadata(dir.path().join("attempts")).unwrap().len();
        let before = size();
        attempts.remember_reports(&table).unwrap();
        assert_eq!(size(), before, "the same concern again costs nothing");
        let token = report::mint(&[7; 32], 17, "uid-1");
        let machine = AttemptId { attempt: 17, subject: Subject::machine("uid-1") };
        // Two rounds: the first start reads the record as written, the second as compacted.
        for _ in 0..2 {
            let attempts = Attempts::open(dir.path()).unwrap();
            assert_eq!(attempts.reported_by(17, &token), Some(machine.clone()));
            assert_eq!(attempts.reported_by(17, &report::mint(&[8; 32], 17, "uid-1")), None);
            assert_eq!(attempts.over(&machine), None);
        }
    }

    #[test]
    fn a_session_of_another_rack_is_taken_over_and_then_defended() {
        let (_dir, attempts) = open();
        let session = Session { attempt: 17, mac: Mac([0; 6]), boot: 5, boot_id: boot_id_digest("a") };
        assert_eq!(attempts.session(&id(), &session).unwrap(), Ok(()));
        let other = attempts.claim(&id(), &claimant(5, "b", "10.0.0.5")).unwrap();
        assert_eq!(other, ClaimDecision::RefusedLoudly(Refusal::Taken));
    }

    #[test]
    fn the_counter_rises_with_boots_and_not_with_retries_of_the_script() {
        let (dir, attempts) = open();
        let first = attempts.next_boot(&id(), 1, 1_700_000_000_000);
        assert_eq!(first, 1_700_000_000);
        assert_eq!(attempts.next_boot(&id(), 1, 1_700_000_005_000), first);
        assert_eq!(attempts.next_boot(&id(), 2, 1_700_000_000_000), first + 1);
        attempts.claim(&id(), &claimant(first + 1, "a", "10.0.0.5")).unwrap();
        let attempts = Attempts::open(dir.path()).unwrap();
        assert_eq!(attempts.next_boot(&id(), 1, 0), first + 2, "even if the clock was reset");
    }

    #[test]
    fn the_latest_checkpoint_is_kept_over_a_restart_and_until_the_end() {
        let (dir, attempts) = open();
        let checkpoint = |seq| Box::new(Checkpoint { seq, leaves: true, ..Checkpoint::default() });
        let seq = |attempts: &Attempts| attempts.checkpoint(&id()).map(|it| it.seq);
        assert_eq!(seq(&attempts), None);
        for (written, latest) in [(1, 1), (3, 3), (2, 3)] {
            attempts.write_checkpoint(&id(), checkpoint(written)).unwrap();
            assert_eq!(seq(&attempts), Some(latest));
        }
        // Two rounds: the first start reads the records as written, the second as compacted.
        let attempts = [(); 2].map(|()| {
            let attempts = Attempts::open(dir.path()).unwrap();
            assert_eq!(seq(&attempts), Some(3));
            attempts
        });
        let [_, attempts] = attempts;
        assert_eq!(
            [6, 3, 1].map(|bytes| attempts.may_write_checkpoint(&id(), bytes, 9)),
            [true, true, false]
        );
        attempts.finish(&id(), "session", "report").unwrap();
        assert_eq!(seq(&attempts), None);
        assert_eq!(seq(&Attempts::open(dir.path()).unwrap()), None);
    }

    #[test]
    fn repeated_reports_are_recognised() {
        let (_dir, attempts) = open();
        assert!(attempts.is_new_progress(&id(), 1));
        assert!(!attempts.is_new_progress(&id(), 1));
        assert!(attempts.is_new_progress(&id(), 2));
        assert_eq!(attempts.known_log_bytes(&id(), 0, 10), 0);
        assert_eq!(attempts.known_log_bytes(&id(), 0, 10), 10);
        assert_eq!(attempts.known_log_bytes(&id(), 5, 10), 5);
        assert_eq!([1, 2, 3].map(|_| attempts.may_write_account(&id(), 2)), [true, true, false]);
    }
}
