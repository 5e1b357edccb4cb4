//! The power state that a machine should have, and the condition that reports a difference.
//!
//! | `spec.power` | a machine that is found otherwise |
//! | --- | --- |
//! | `on`, `off` | is switched ([`Walk::hold_power`]), and told of where it cannot be |
//! | `auto` | is told of. Somebody switched it, and may have had a reason |

use basalt_api::kinds::{
    Condition, ConditionStatus, Lifecycle, MachineMode, PowerDriver, PowerPolicy, PowerState,
};

use super::walk::Walk;

impl Walk<'_> {
    /// The power state that it should have. `None` while an action is in progress on it.
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
                // It is not known which system runs on a machine without an inventory.
                _ if self.input.facts.inventory.is_none() => None,
                _ => self.powers_off_when_idle().then_some(PowerState::Off),
            }),
        }
    }

    /// The condition [`Condition::POWER_DIFFERS`], if there is something to tell.
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
