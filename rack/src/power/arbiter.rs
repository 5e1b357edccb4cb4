//! The turns of one BMC: one command or reading at a time, and a command before a reading.

use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard, watch};

/// The turns of a BMC, or of one of its systems.
#[derive(Debug)]
pub(super) struct Arbiter {
    turn: Mutex<()>,
    /// Commands that wait for their turn, or have it.
    commands: watch::Sender<usize>,
}

impl Default for Arbiter {
    fn default() -> Self {
        Self { turn: Mutex::default(), commands: watch::Sender::new(0) }
    }
}

/// The turn of a command.
pub(super) struct Commanding<'a> {
    arbiter: &'a Arbiter,
    _turn: Option<MutexGuard<'a, ()>>,
}

impl Drop for Commanding<'_> {
    fn drop(&mut self) {
        self.arbiter.commands.send_modify(|count| *count = count.saturating_sub(1));
    }
}

impl Arbiter {
    /// Waits for the turn of a command.
    pub(super) async fn command(&self) -> Commanding<'_> {
        self.commands.send_modify(|count| *count += 1);
        let mut commanding = Commanding { arbiter: self, _turn: None };
        commanding._turn = Some(self.turn.lock().await);
        commanding
    }

    /// The turn of a reading. `None`: the BMC is busy, or a command waits for it.
    pub(super) fn free(&self) -> Option<MutexGuard<'_, ()>> {
        if *self.commands.borrow() > 0 {
            return None;
        }
        self.turn.try_lock().ok()
    }

    /// Ends when a command has waited for this long.
    pub(super) async fn wanted(&self, grace: Duration) {
        let mut commands = self.commands.subscribe();
        // The sender lives as long as `self`, so this cannot fail.
        let _ = commands.wait_for(|count| *count > 0).await;
        tokio::time::sleep(grace).await;
    }
}
