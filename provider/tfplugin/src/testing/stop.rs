//! Interrupts a provider during a request, like a user's Ctrl-C in Terraform.

use tonic::transport::Channel;

use super::mini::failed;
use super::{Broken, MiniCore};
use crate::pb;
use crate::pb::provider_client::ProviderClient;

/// The effect of Ctrl-C on a provider: it ends all requests until [`MiniCore::resume`].
#[derive(Clone, Debug)]
pub struct Interrupt(ProviderClient<Channel>);

impl Interrupt {
    /// Stops the provider.
    ///
    /// # Errors
    /// The provider does not answer.
    pub async fn now(mut self) -> Result<(), Broken> {
        let stopped = self.0.stop_provider(pb::stop_provider::Request {}).await;
        let stopped = stopped.map_err(|status| failed("StopProvider", &status))?.into_inner();
        match stopped.error.is_empty() {
            true => Ok(()),
            false => Err(Broken { during: "StopProvider".to_owned(), how: vec![stopped.error] }),
        }
    }
}

impl MiniCore {
    /// An interruption that can be made while another request runs.
    #[must_use]
    pub fn interrupt_by(&self) -> Interrupt {
        Interrupt(self.client.clone())
    }

    /// Starts the next command of Terraform.
    ///
    /// # Errors
    /// The provider refuses its configuration.
    pub async fn resume(&mut self) -> Result<(), Broken> {
        self.configure().await
    }
}
