//! Runs of a client. Objects that a run creates are unconfirmed until a report confirms them.

use super::transport::Call;
use super::{Client, ClientError};
use crate::values::RunId;
use crate::wire::RunReport;
use reqwest::Method;
use std::sync::Arc;

impl Client {
    /// The same client, but it creates objects for this run. Both clients share their knowledge of the endpoints.
    #[must_use]
    pub fn of_run(&self, run: RunId) -> Self {
        Self { transport: Arc::new(self.transport.as_ref().clone().of_run(run)) }
    }

    /// Reports that a run continues or has ended, and the objects that the client keeps.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn report_run(&self, run: RunId, report: &RunReport) -> Result<(), ClientError> {
        let call = Call::new(Method::POST, &format!("/api/v1/runs/{run}")).repeatable().body(report)?;
        self.transport.json_with_status::<Option<()>>(call).await.map(drop)
    }
}
