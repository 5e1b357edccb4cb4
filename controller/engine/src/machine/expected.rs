//! The power state that a machine should have, and the condition that reports a difference.
//!
//! | `spec.power` | on a difference |
//! | --- | --- |
//! | `on`, `off` | the machine is switched ([`Walk::hold_power`]); the condition is set if that is impossible |
//! | `auto` | the condition is set. A person may have switched the machine on purpose |

use basalt_api::kinds::{
    Condition, ConditionStatus, Lifecycle, MachineMode, PowerDriver, PowerPolicy, PowerState,
};

use super::walk::Walk;

impl Walk<'_> {
    /// The power state that the machine should have. `None` while an operation on it is in progress.
    fn expected_power(&self, lifecycle: Lifecycle) -> Option<PowerState> {
        let spec = &self.input.spec;
        let is_asked = self.operations.iter().any(|operation| !operation.state.is_over());
        let settled = matches!(lifecycle, Lifecycle::Ready | Lifecycle::Deployed);
        if spec.mode != MachineMode::Managed || self.blocked() || is_asked || !settled {
            return None;
        }
        match spec.power {
            PowerPolicy::On => Some(PowerState::On),
            PowerPolicy::Off => Some(PowerState::Off),
            PowerPolicy::Auto => self.wish().or_else(|| match lifecycle {
                Lifecycle::Deployed => Some(PowerState::On),
                // Without an inventory, the system that runs on the machine is unknown.
                _ if self.input.facts.inventory.is_none() => None,
                _ => self.powers_off_when_idle().then_some(PowerState::Off),
            }),
        }
    }

    /// The condition [`Condition::POWER_DIFFERS`], if the power state differs or cannot be read.
    pub(super) fn power_differs(&self, lifecycle: Lifecycle) -> Option<Condition> {
        let input = self.input;
        input.spec.bmc.as_ref().filter(|bmc| bmc.driver != PowerDriver::Manual)?;
        let name = &input.name;
        let (status, reason, message) = match (&input.facts.unread, self.expected_power(lifecycle)) {
            (Some(unread), _) => {
                let rule = unread.failure.rule();
                let message =
                    format!("the power of {name} cannot be read: {} ({})", rule.says, unread.message);
                (ConditionStatus::Unknown, rule.code, message)
            }
            (None, Some(expected)) => {
                let read = self.reading().filter(|it| it.state != expected)?.state;
                let is = if lifecycle == Lifecycle::Deployed { "deployed" } else { "idle" };
                let reason = match read {
                    PowerState::On => "FoundOn",
                    PowerState::Off => "FoundOff",
                    PowerState::Unknown => return None,
                };
                let message =
                    format!("{name} is {is} and ought to be {expected}; its BMC says that it is {read}");
                (ConditionStatus::True, reason, message)
            }
            (None, None) => return None,
        };
        Some(Condition {
            kind: Condition::POWER_DIFFERS.to_owned(),
            status,
            reason: reason.to_owned(),
            message,
            since: self.now,
            deadline: None,
        })
    }
}
