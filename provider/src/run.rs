//! The run of this provider. Each created object stays unconfirmed in the region until a state is known to contain the object.
//!
//! Terraform may die between a creation and its own record of it. The next apply then finds an object that no state contains, and adopts
//! it ([`creation`](crate::resource)). It must not adopt an object of another state. So the region keeps each creation as unconfirmed,
//! with the run that made it, until one of these events confirms it:
//!
//! | event | confirmed objects |
//! | --- | --- |
//! | Terraform's `Shutdown` | all objects that this run has created and answered, in one call |
//! | a later read, plan or change | an object of the state whose private data is marked as not yet seen by a read |
//!
//! Another run may adopt only unconfirmed objects, and only after the run that created them has ended or is no longer renewed. While the
//! provider runs, it renews its own run.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use basalt_api::values::{RunId, Uid};
use basalt_api::wire::{MAX_CONFIRMED, RunReport};
use tokio::task::JoinHandle;

use crate::bounded::Bounded;

/// Interval of renewals. The region considers a run interrupted after 30 s without one.
const RENEWAL: Duration = Duration::from_secs(5);

/// The certainty that Terraform has stored the objects of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Terraform has received every answer.
    Yes,
    /// Terraform died, or another command began without a word.
    Unknown,
}

/// A run. The region does not know it until it creates something.
#[derive(Clone, Debug)]
pub(crate) struct Run(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    id: RunId,
    client: Bounded,
    now: Mutex<Now>,
    /// Held during a report of confirmed objects. Tasks that wait for it share the next report.
    confirming: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Now {
    /// Set while the run is known to the region.
    renewal: Option<JoinHandle<()>>,
    created: BTreeSet<Uid>,
    /// Uids to report with the next call.
    held: BTreeSet<Uid>,
    /// Uids that the region has noted.
    noted: BTreeSet<Uid>,
}

impl Drop for Now {
    fn drop(&mut self) {
        if let Some(renewal) = &self.renewal {
            renewal.abort();
        }
    }
}

impl Run {
    /// A run that creates through this client.
    pub(crate) fn new(id: RunId, client: Bounded) -> Self {
        Self(Arc::new(Inner { id, client, now: Mutex::default(), confirming: tokio::sync::Mutex::default() }))
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.0.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the renewal of the run, before its first creation.
    pub(crate) fn creates(&self) {
        let mut now = self.now();
        if now.renewal.is_some() {
            return;
        }
        let (id, client) = (self.0.id, self.0.client.clone());
        now.renewal = Some(tokio::spawn(async move {
            loop {
                tokio::time::sleep(RENEWAL).await;
                // A request that hangs must not last longer than the region waits for a renewal.
                if let Err(error) = client.for_the_last().report_run(id, &RunReport::default()).await {
                    tracing::debug!(%error, "the run was not renewed; it is tried again");
                }
            }
        }));
    }

    /// Notes an answered creation. Terraform has stored it when it asks for the shutdown.
    pub(crate) fn answers(&self, uid: Uid) {
        self.now().created.insert(uid);
    }

    /// Tells the region that a state contains the object. True if the region has recorded that. Simultaneous calls share one request.
    pub(crate) async fn confirm(&self, uid: Uid) -> bool {
        self.now().held.insert(uid);
        let _one_at_a_time = self.0.confirming.lock().await;
        let held: Vec<Uid> = {
            let mut now = self.now();
            if now.noted.contains(&uid) {
                return true;
            }
            // Another task may have taken this uid into a report that failed.
            let mut held = std::mem::take(&mut now.held);
            held.insert(uid);
            held.into_iter().collect()
        };
        for confirms in held.chunks(MAX_CONFIRMED) {
            let report = RunReport { confirms: confirms.to_vec(), ends: false };
            let said = self.0.client.call().await.report_run(self.0.id, &report).await;
            if let Err(error) = said {
                tracing::debug!(%error, "what the state holds was not confirmed; the next read confirms it");
                return false;
            }
        }
        self.now().noted.extend(held);
        true
    }

    /// Ends the run. Confirms its creations if Terraform has stored them.
    pub(crate) async fn end(&self, kept: Kept) {
        let created: Vec<Uid> = {
            let mut now = self.now();
            let Some(renewal) = now.renewal.take() else { return };
            renewal.abort();
            std::mem::take(&mut now.created).into_iter().collect()
        };
        let created = if kept == Kept::Yes { created } else { Vec::new() };
        let client = self.0.client.for_the_last();
        let (most, last) = created.split_at(created.len() - created.len() % MAX_CONFIRMED);
        let reports = most
            .chunks(MAX_CONFIRMED)
            .map(|some| RunReport { confirms: some.to_vec(), ends: false })
            .chain([RunReport { confirms: last.to_vec(), ends: true }]);
        for report in reports {
            if let Err(error) = client.report_run(self.0.id, &report).await {
                tracing::warn!(%error, "what was created was not confirmed; the next read confirms it");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::http::StatusCode;
    use basalt_api::client::ClientConfig;

    type Reports = Arc<Mutex<Vec<RunReport>>>;

    /// A run, and the reports that a simulated region receives.
    async fn run() -> (Run, Reports) {
        run_answered(StatusCode::NO_CONTENT).await
    }

    /// The same, with `first` as the answer to the first report.
    async fn run_answered(first: StatusCode) -> (Run, Reports) {
        let reports = Reports::default();
        let told = Arc::clone(&reports);
        let app = Router::new().fallback(move |axum::Json(report): axum::Json<RunReport>| {
            let mut told = told.lock().expect("a lock");
            told.push(report);
            let answer = if told.len() == 1 { first } else { StatusCode::NO_CONTENT };
            async move { answer }
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoints = vec![format!("http://{}", listener.local_addr().expect("an address"))];
        tokio::spawn(async move { axum::serve(listener, app).await.expect("it serves") });
        let config = ClientConfig { endpoints, ..ClientConfig::default() };
        (Run::new(RunId::generate(), Bounded::new(&config, None).expect("a client")), reports)
    }

    fn told(reports: &Reports) -> Vec<RunReport> {
        std::mem::take(&mut *reports.lock().expect("a lock"))
    }

    #[tokio::test]
    async fn a_shutdown_confirms_all_that_was_created_and_answered_in_one_call() {
        let (run, reports) = run().await;
        run.creates();
        let mut uids = [(); 3].map(|()| Uid::generate());
        uids.iter().for_each(|uid| run.answers(*uid));
        run.end(Kept::Yes).await;
        run.end(Kept::Yes).await;
        uids.sort();
        assert_eq!(told(&reports), [RunReport { confirms: uids.to_vec(), ends: true }], "and once");
    }

    #[tokio::test]
    async fn a_run_whose_terraform_died_ends_and_confirms_nothing() {
        let (run, reports) = run().await;
        run.creates();
        run.answers(Uid::generate());
        run.end(Kept::Unknown).await;
        assert_eq!(told(&reports), [RunReport { confirms: Vec::new(), ends: true }]);
    }

    #[tokio::test]
    async fn a_run_that_creates_nothing_tells_the_region_nothing() {
        let (run, reports) = run().await;
        run.end(Kept::Yes).await;
        assert_eq!(told(&reports), []);
    }

    #[tokio::test]
    async fn a_uid_whose_report_failed_is_reported_again_by_each_task_that_shared_it() {
        let (run, reports) = run_answered(StatusCode::UNPROCESSABLE_ENTITY).await;
        let (one, other) = (Uid::generate(), Uid::generate());
        run.now().held.insert(other);
        assert!(!run.confirm(one).await, "the report with both has failed");
        assert!(run.confirm(other).await);
        assert_eq!(told(&reports).pop().map(|it| it.confirms), Some(vec![other]));
        assert!(run.confirm(other).await && told(&reports).is_empty(), "it is noted");
    }

    #[tokio::test]
    async fn objects_that_are_read_at_once_are_confirmed_together() {
        let (run, reports) = run().await;
        let uids: BTreeSet<Uid> = (0..100).map(|_| Uid::generate()).collect();
        let mut reads = tokio::task::JoinSet::new();
        for uid in uids.clone() {
            let run = run.clone();
            reads.spawn(async move { run.confirm(uid).await });
        }
        assert!(reads.join_all().await.into_iter().all(|noted| noted));
        let told = told(&reports);
        assert!(told.len() < 50, "{} calls", told.len());
        assert_eq!(told.into_iter().flat_map(|it| it.confirms).collect::<BTreeSet<_>>(), uids);
    }
}
