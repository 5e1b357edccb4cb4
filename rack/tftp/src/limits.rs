//! The most transfers that may run, in total and per client.

use std::collections::HashMap;
use std::net::IpAddr;

/// The limits on concurrent transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most transfers in total.
    pub total: usize,
    /// The most transfers of one client address.
    pub per_client: usize,
}

impl Default for Limits {
    /// Enough for a hall of machines that boot together, each with an abandoned earlier transfer, and for a ROM that
    /// abandons several.
    fn default() -> Self {
        Self { total: 4096, per_client: 16 }
    }
}

/// A transfer that may not start now. The client repeats its request by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Busy {
    /// [`Limits::total`] is reached.
    #[error("{0} transfers are running, the most allowed")]
    Server(usize),
    /// [`Limits::per_client`] is reached.
    #[error("{0} transfers of this client are running, the most allowed")]
    Client(usize),
}

/// The number of running transfers, in total and per client.
#[derive(Debug, Default)]
pub struct Admission {
    limits: Limits,
    total: usize,
    clients: HashMap<IpAddr, usize>,
}

impl Admission {
    /// An admission without transfers.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Counts a transfer that starts.
    ///
    /// # Errors
    /// A limit is reached; nothing was counted.
    pub fn admit(&mut self, client: IpAddr) -> Result<(), Busy> {
        if self.total >= self.limits.total {
            return Err(Busy::Server(self.total));
        }
        let of_client = self.clients.entry(client).or_default();
        if *of_client >= self.limits.per_client {
            return Err(Busy::Client(*of_client));
        }
        *of_client += 1;
        self.total += 1;
        Ok(())
    }

    /// Counts the end of an admitted transfer.
    pub fn release(&mut self, client: IpAddr) {
        let Some(of_client) = self.clients.get_mut(&client) else { return };
        *of_client = of_client.saturating_sub(1);
        self.total = self.total.saturating_sub(1);
        if *of_client == 0 {
            self.clients.remove(&client);
        }
    }

    /// The number of running transfers.
    #[must_use]
    pub const fn running(&self) -> usize {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_both_limits_and_forgets_clients_that_left() {
        let client = |last| IpAddr::from([10, 0, 0, last]);
        let mut admission = Admission::new(Limits { total: 3, per_client: 2 });
        assert_eq!(admission.admit(client(1)), Ok(()));
        assert_eq!(admission.admit(client(1)), Ok(()));
        assert_eq!(admission.admit(client(1)), Err(Busy::Client(2)));
        assert_eq!(admission.admit(client(2)), Ok(()));
        assert_eq!(admission.admit(client(3)), Err(Busy::Server(3)));
        admission.release(client(2));
        admission.release(client(9));
        assert_eq!((admission.running(), admission.clients.len()), (2, 1));
        assert_eq!(admission.admit(client(3)), Ok(()));
    }
}
